//! The hub dies after every write of update runs: while they begin, wait, are approved, stopped and resumed,
//! fail and go back, remove what is no longer placed, and are taken over from; and of an eviction that waits.
//! No cluster is moved twice, none before its turn, and no approval is lost.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use windlass_tests::deaths::{Deaths, Mortal, alone};
use windlass_tests::{Fleet, eventually};

const MEMBERS: [&str; 2] = ["member-1", "member-2"];
/// Such a life takes more writes than these.
const WRITES: usize = 50;

/// What is there before the hub begins to die.
const SETTING: &str = "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterStagedUpdateStrategy
metadata: {name: gated}
spec:
  stages:
  - name: canary
    labelSelector: {matchLabels: {stage: canary}}
    afterStageTasks: [{type: Approval}, {type: TimedWait, waitTime: 1s}]
  - name: prod
    labelSelector: {matchLabels: {stage: prod}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterStagedUpdateStrategy
metadata: {name: one-by-one}
spec: {stages: [{name: all, labelSelector: {}, maxConcurrency: 1}]}
";

fn content(value: &str) -> String {
    format!(
        "
{{apiVersion: v1, kind: Namespace, metadata: {{name: kept}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: app, namespace: kept}}, data: {{v: '{value}'}}}}
"
    )
}

/// A placement on the clusters that have a label.
fn placement(label: &str) -> String {
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {{name: web}}
spec:
  resourceSelectors: [{{group: '', version: v1, kind: Namespace, name: kept}}]
  policy:
    placementType: PickAll
    affinity: {{clusterAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{clusterSelectorTerms: [{{labelSelector: {{matchExpressions: [{{key: {label}, operator: Exists}}]}}}}]}}}}}}
  strategy: {{type: External}}
"
    )
}

fn run(name: &str, strategy: &str, more: &str) -> String {
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterStagedUpdateRun
metadata: {{name: {name}}}
spec: {{placementName: web, stagedRolloutStrategyName: {strategy}, {more}}}
"
    )
}

fn told(fleet: &Fleet, run: &str, type_: &str) -> String {
    let field = |field: &str| {
        let path = format!("{{.status.conditions[?(@.type==\"{type_}\")].{field}}}");
        fleet.get("hub", &format!("csur {run}"), &path)
    };
    format!("{}/{}", field("status"), field("reason"))
}

fn versions(fleet: &Fleet) -> String {
    MEMBERS
        .map(|member| fleet.get(member, "cm app -n kept", "{.data.v}"))
        .join(" ")
}

/// How often the bindings' specs were changed since they were made, by cluster.
fn changes(fleet: &Fleet) -> Vec<(String, i64)> {
    let path = "{range .items[*]}{.spec.targetCluster} {.metadata.generation}{\"\\n\"}{end}";
    let text = fleet.get("hub", "crb", path);
    let mut changes: Vec<(String, i64)> = text
        .lines()
        .filter_map(|line| {
            let (cluster, generation) = line.split_once(' ')?;
            Some((cluster.to_owned(), generation.parse().ok()?))
        })
        .collect();
    changes.sort();
    changes
}

fn changed(times: [i64; 2]) -> Vec<(String, i64)> {
    MEMBERS.map(str::to_owned).into_iter().zip(times).collect()
}

/// Clusters that a run has begun with, there or back, and that have neither got there nor failed.
fn under_way(fleet: &Fleet, run: &str) -> usize {
    let count = |list: &str, type_: &str| {
        let path =
            format!("{{.status.{list}[*].clusters[*].conditions[?(@.type==\"{type_}\")].status}}");
        let found = fleet.get("hub", &format!("csur {run}"), &path);
        found.split_whitespace().count()
    };
    let open = |list| count(list, "Started").saturating_sub(count(list, "Succeeded"));
    open("stagesStatus").max(open("rollbackStatus"))
}

fn approve(fleet: &Fleet, request: &str) {
    let patch = r#"{"status":{"conditions":[{"type":"Approved","status":"True","reason":"Yes","message":"","lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":1}]}}"#;
    fleet.kubectl(
        "hub",
        &format!("patch careq {request} --subresource status --type merge -p {patch}"),
    );
}

fn set_state(fleet: &Fleet, run: &str, state: &str) {
    let patch = format!("{{\"spec\":{{\"state\":\"{state}\"}}}}");
    fleet.kubectl("hub", &format!("patch csur {run} --type merge -p {patch}"));
}

/// One life; how often the hub died in it.
fn live(fleet: &Fleet, deaths: Deaths) -> usize {
    fleet.apply("hub", &content("1"));
    // Of the life before.
    fleet.kubectl("hub", "delete cm more -n kept --ignore-not-found");
    let mut hub = Mortal::start(fleet, deaths);
    fleet.apply("hub", &placement("stage"));
    goes_on(fleet, &mut hub);
    goes_back(fleet, &mut hub);
    evicts(fleet, &mut hub);
    removes(fleet, &mut hub);
    fleet.kubectl("hub", "delete crpe,crpdb --all --wait=false");
    fleet.kubectl("hub", "delete csur --all --wait=false");
    fleet.kubectl("hub", "delete crp web --wait=false");
    hub.survive("nothing of it is left", || {
        let names = "{.items[*].metadata.name}";
        let is_gone = |member: &&str| fleet.get(member, "ns kept", "{.kind}").is_empty();
        fleet
            .get("hub", "crp,crb,crs,csps,csur,careq", names)
            .is_empty()
            && MEMBERS.iter().all(is_gone)
    });
    hub.count()
}

/// A run through a gate, which is stopped at it.
fn goes_on(fleet: &Fleet, hub: &mut Mortal<'_>) {
    fleet.apply("hub", &run("first", "gated", "state: Run"));
    hub.survive("the canary has it, and approval is asked for", || {
        versions(fleet) == "1 "
            && !fleet
                .get("hub", "careq first-after-canary", "{.kind}")
                .is_empty()
            && told(fleet, "first", "Progressing") == "False/UpdateRunWaiting"
    });
    set_state(fleet, "first", "Stop");
    approve(fleet, "first-after-canary");
    hub.survive("it stands", || {
        told(fleet, "first", "Progressing") == "False/UpdateRunStopped"
    });
    assert_eq!(versions(fleet), "1 ");
    set_state(fleet, "first", "Run");
    hub.survive("it is done", || {
        told(fleet, "first", "Succeeded") == "True/UpdateRunSucceeded"
    });
    assert_eq!(versions(fleet), "1 1");
    // Made, then moved.
    assert_eq!(changes(fleet), changed([2, 2]));
}

/// A run that fails on the second cluster.
fn goes_back(fleet: &Fleet, hub: &mut Mortal<'_>) {
    let blocker = "{apiVersion: v1, kind: ConfigMap, immutable: true, metadata: {name: more, namespace: kept}, data: {x: other}}";
    fleet.apply(MEMBERS[1], blocker);
    let more = "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: more, namespace: kept}, data: {a: b}}\n";
    fleet.apply("hub", &(content("2") + more));
    let threshold = "state: Run, failureThreshold: {maxFailures: 0, onExceeded: Rollback}";
    fleet.apply("hub", &run("second", "one-by-one", threshold));
    hub.survive("it has failed and gone back", || {
        assert!(under_way(fleet, "second") <= 1, "one by one");
        told(fleet, "second", "RolledBack") == "True/UpdateRunRolledBack"
            && told(fleet, "second", "Succeeded") == "False/UpdateRunFailed"
    });
    assert_eq!(versions(fleet), "1 1");
    // There and back.
    assert_eq!(changes(fleet), changed([4, 4]));
    fleet.kubectl(MEMBERS[1], "delete cm more -n kept");
}

fn budget(fleet: &Fleet, fewest: usize) {
    let manifest = format!(
        "{{apiVersion: placement.kubernetes-fleet.io/v1beta1, kind: ClusterResourcePlacementDisruptionBudget, metadata: {{name: web}}, spec: {{minAvailable: {fewest}}}}}"
    );
    fleet.apply("hub", &manifest);
}

/// An eviction that has to wait for its budget.
fn evicts(fleet: &Fleet, hub: &mut Mortal<'_>) {
    budget(fleet, 2);
    fleet.apply(
        "hub",
        "{apiVersion: placement.kubernetes-fleet.io/v1beta1, kind: ClusterResourcePlacementEviction, metadata: {name: out}, spec: {placementName: web, clusterName: member-1, retry: WhenAllowed}}",
    );
    let says = |type_: &str| {
        let path = format!("{{.status.conditions[?(@.type==\"{type_}\")].status}}");
        fleet.get("hub", "crpe out", &path)
    };
    hub.survive("it is seen", || says("Valid") == "True");
    assert_ne!(says("Executed"), "True");
    assert_eq!(versions(fleet), "1 1");
    budget(fleet, 1);
    hub.survive("it is carried out, and the cluster is chosen again", || {
        says("Executed") == "True" && versions(fleet) == " 1" && changes(fleet) == changed([1, 4])
    });
}

/// A run that removes, and takes over from one that waits.
fn removes(fleet: &Fleet, hub: &mut Mortal<'_>) {
    fleet.apply("hub", &content("3"));
    fleet.apply("hub", &run("third", "gated", "state: Run"));
    hub.survive("approval is asked for", || {
        told(fleet, "third", "Progressing") == "False/UpdateRunWaiting"
    });
    fleet.apply("hub", &placement("only"));
    hub.survive("the other cluster is no longer wanted", || {
        fleet
            .get("hub", "crb", "{.items[*].spec.state}")
            .contains("Unscheduled")
    });
    fleet.apply("hub", &run("fourth", "one-by-one", "state: Run"));
    hub.survive("the other run is done", || {
        told(fleet, "fourth", "Succeeded") == "True/UpdateRunSucceeded"
    });
    assert_eq!(
        told(fleet, "third", "Superseded"),
        "True/UpdateRunSuperseded"
    );
    assert_eq!(versions(fleet), "3 ");
}

#[test]
fn dying_at_every_write_of_runs() {
    let fleet = Fleet::up("crash-runs", 2);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    {
        let _hub = alone(&fleet, None);
        for (member, stage) in MEMBERS.iter().zip(["canary", "prod"]) {
            fleet.join(member);
            fleet.kubectl("hub", &format!("label cluster {member} stage={stage}"));
        }
        fleet.kubectl("hub", "label cluster member-1 only=yes");
        eventually("the members have joined", || {
            let path = "{.items[*].status.conditions[?(@.type==\"Joined\")].status}";
            fleet.get("hub", "cluster", path) == "True True"
        });
    }
    fleet.apply("hub", SETTING);
    let walk = |mode, first, next| {
        let died = live(&fleet, Deaths { mode, first, next });
        println!("{mode}:{first}/{next}: {died}");
        died
    };
    // Every other answer is lost: what was written is not known.
    assert!(walk("lost", 2, 2) > WRITES / 4);
    let died = walk("after", 1, 1);
    assert!(died > WRITES, "died {died} times");
    if std::env::var_os("WINDLASS_TEST_FULL").is_some() {
        for mode in ["after", "before", "lost"] {
            for first in 1..=8 {
                assert!(walk(mode, first, 8) > WRITES / 8 / 2, "{mode}:{first}");
            }
        }
    }
}
