//! Delivery by agents beside delivery by push: 50 clusters with agents that are played, two real members.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "pull/leaving.rs"]
mod leaving;
#[path = "pull/names.rs"]
mod names;
#[path = "pull/refused.rs"]
mod refused;

use std::collections::BTreeMap;

use windlass_tests::agents::{Agents, Behaviour, may_bypass};
use windlass_tests::{Fleet, condition, eventually};

const AGENTS: usize = 50;

const APP: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: web}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: web}
data: {a: '1'}
";

const PLACEMENT: &str = r"
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: web}
spec:
  resourceSelectors: [{group: '', version: v1, kind: Namespace, name: web}]
  policy: {placementType: PickAll}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: '100%'}}
";

const DIFFS: &str = r"
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: diffs}
spec:
  resourceSelectors: [{group: '', version: v1, kind: Namespace, name: other}]
  policy: {placementType: PickFixed, clusterNames: [agent-00, agent-01]}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: '100%'}
    applyStrategy: {type: ReportDiff}
";

fn agent(number: usize) -> String {
    format!("agent-{number:02}")
}

fn cluster(name: &str) -> String {
    format!(
        "apiVersion: cluster.kubernetes-fleet.io/v1beta1\nkind: MemberCluster\nmetadata: {{name: {name}}}\n\
         spec: {{identity: {{kind: User, name: user-{name}}}, heartbeatPeriodSeconds: 600}}\n---\n"
    )
}

/// Writes of the hub so far, as `verb resource[/subresource]`.
fn counts(fleet: &Fleet) -> BTreeMap<String, u64> {
    let label = |line: &str, key: &str| -> String {
        let value = line.split_once(&format!("{key}=\""));
        value
            .and_then(|(_, rest)| rest.split_once('"'))
            .map_or(String::new(), |(value, _)| value.to_owned())
    };
    let mut counts = BTreeMap::new();
    for line in fleet.writes() {
        if label(&line, "target") != "hub" || !label(&line, "code").starts_with('2') {
            continue;
        }
        let number: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        let what = format!("{} {}", label(&line, "verb"), label(&line, "resource"));
        *counts.entry(what).or_insert(0) += number as u64;
    }
    counts
}

/// What was written while something went on.
fn written(fleet: &Fleet, what: impl FnOnce()) -> BTreeMap<String, u64> {
    let before = counts(fleet);
    what();
    let mut after = counts(fleet);
    for (key, number) in &mut after {
        *number -= before.get(key).copied().unwrap_or_default();
    }
    after.retain(|_, number| *number > 0);
    after
}

fn is_available_at(fleet: &Fleet, index: &str) -> bool {
    fleet.get("hub", "crp web", "{.status.observedResourceIndex}") == index
        && condition(fleet, "web", "Available", "status") == "True"
}

/// A field of a cluster's entry in the status of placement `web`.
fn entry(fleet: &Fleet, cluster: &str, field: &str) -> String {
    let path = format!("{{.status.placementStatuses[?(@.clusterName==\"{cluster}\")].{field}}}");
    fleet.get("hub", "crp web", &path)
}

#[test]
fn agents_and_push_members_are_one_fleet() {
    let mut fleet = Fleet::up("pull", 2);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    fleet.start_hub();
    for member in ["member-1", "member-2"] {
        fleet.join(member);
    }
    let agents = Agents::start(&fleet);
    agents_join(&fleet);
    an_agent_may_do_what_it_must_and_no_more(&fleet);
    a_name_that_no_namespace_can_have_is_refused(&fleet);
    a_placement_reaches_both(&fleet);
    a_change_costs_three_writes_per_cluster(&fleet);
    heartbeats_are_gathered(&fleet, &agents);
    trouble_is_told(&fleet, &agents);
    differences_are_reported(&fleet);
    names_that_read_the_same_do_not_meet(&fleet);
    what_somebody_changed_is_put_back(&fleet);
    a_restart_writes_nothing(&mut fleet);
    a_cluster_leaves_with_what_it_has(&fleet, &agents);
    a_placement_goes_everywhere(&fleet, &agents);
}

fn agents_join(fleet: &Fleet) {
    let all: String = (0..AGENTS).map(|number| cluster(&agent(number))).collect();
    let joined = written(fleet, || {
        fleet.apply("hub", &all);
        eventually("every agent has joined", || {
            let path = "{.items[*].status.conditions[?(@.type==\"Joined\")].status}";
            let states = fleet.get("hub", "cluster", path);
            states.matches("True").count() == AGENTS + 2
        });
    });
    let sum = |what: &str| joined.get(what).copied().unwrap_or_default() as usize;
    for kind in [
        "namespaces",
        "roles",
        "rolebindings",
        "internalmemberclusters",
    ] {
        assert_eq!(sum(&format!("create {kind}")), AGENTS, "{kind}: {joined:?}");
    }
    assert_eq!(sum("update memberclusters"), AGENTS, "{joined:?}");
    let statuses = sum("update memberclusters/status");
    // ReadyToJoin by itself only where an agent took more than two seconds.
    assert!((AGENTS..=2 * AGENTS).contains(&statuses), "{joined:?}");
    let own = "ns fleet-member-agent-07";
    let label = r"{.metadata.labels.kubernetes-fleet\.io/is-fleet-resource}";
    assert_eq!(fleet.get("hub", own, label), "true");
    let status = |path: &str| fleet.get("hub", "cluster agent-07", path);
    assert_eq!(status("{.status.agentStatus[0].type}"), "MemberAgent");
    assert_eq!(status("{.status.resourceUsage.available.cpu}"), "5");
    assert_eq!(
        status(r"{.status.properties.kubernetes-fleet\.io/node-count.value}"),
        "3"
    );
}

fn an_agent_may_do_what_it_must_and_no_more(fleet: &Fleet) {
    let may = |verb: &str, what: &str, namespace: &str| {
        let args = format!("auth can-i {verb} {what} -n {namespace} --as user-agent-07");
        fleet.try_kubectl("hub", &args, None).is_ok()
    };
    let own = "fleet-member-agent-07";
    for (verb, what) in [
        ("watch", "works.placement.kubernetes-fleet.io"),
        ("update", "works.placement.kubernetes-fleet.io/status"),
        (
            "update",
            "internalmemberclusters.cluster.kubernetes-fleet.io/status",
        ),
        ("create", "events"),
    ] {
        assert!(may(verb, what, own), "{verb} {what}");
        assert!(!may(verb, what, "fleet-member-agent-08"), "{verb} {what}");
    }
    for (verb, what) in [
        ("get", "secrets"),
        ("delete", "works.placement.kubernetes-fleet.io"),
        ("create", "resourceplacements.placement.kubernetes-fleet.io"),
        ("get", "memberclusters.cluster.kubernetes-fleet.io"),
    ] {
        assert!(!may(verb, what, own), "{verb} {what}");
    }
    // Guard rails that come later are none for an agent in its own namespace.
    let file = windlass_tests::root().join("deploy/guard-rails/bypass.yaml");
    fleet.kubectl("hub", &format!("apply --server-side -f {}", file.display()));
    eventually("every agent is let past the guard rails", || {
        let names = fleet.get("hub", "rolebindings -A", "{.items[*].metadata.name}");
        names.matches("fleet-guard-rails-agent-").count() == AGENTS
    });
    assert!(may_bypass(fleet, "user-agent-07", own));
    assert!(!may_bypass(fleet, "user-agent-07", "fleet-member-agent-08"));
}

fn a_name_that_no_namespace_can_have_is_refused(fleet: &Fleet) {
    fleet.apply("hub", &cluster("with.dots"));
    eventually("the cluster says what is wrong", || {
        let path = "{.status.conditions[?(@.type==\"ReadyToJoin\")].message}";
        let message = fleet.get("hub", "cluster with.dots", path);
        message.contains("fleet-member-with.dots")
    });
    fleet.kubectl("hub", "delete cluster with.dots --timeout=60s");
}

fn a_placement_reaches_both(fleet: &Fleet) {
    fleet.apply("hub", APP);
    let placed = written(fleet, || {
        fleet.apply("hub", PLACEMENT);
        eventually("the placement is available everywhere", || {
            is_available_at(fleet, "0")
        });
    });
    let sum = |what: &str| placed.get(what).copied().unwrap_or_default() as usize;
    assert_eq!(sum("create works"), AGENTS, "{placed:?}");
    assert_eq!(sum("update works"), 0, "{placed:?}");
    assert_eq!(sum("create clusterresourcebindings"), AGENTS + 2);
    // One per agent, unless answers take seconds; the two members in push mode report their steps.
    let statuses = sum("update clusterresourcebindings/status");
    assert!(statuses <= AGENTS * 3 / 2 + 2 * 4, "{placed:?}");
    let work = "work web-work -n fleet-member-agent-07";
    let label = |key: &str| {
        let path = format!(r"{{.metadata.labels.kubernetes-fleet\.io/{key}}}");
        fleet.get("hub", work, &path)
    };
    assert_eq!(label("parent-CRP"), "web");
    assert_eq!(label("parent-resource-snapshot-index"), "0");
    let binding = format!("crb {}", label("parent-resource-binding"));
    assert_eq!(
        fleet.get("hub", &binding, "{.spec.targetCluster}"),
        "agent-07"
    );
    let digests = fleet.get("hub", "crb", "{.items[*].status.observedDigest}");
    let mut digests: Vec<&str> = digests.split(' ').collect();
    assert_eq!(digests.len(), AGENTS + 2);
    digests.dedup();
    assert_eq!(digests.len(), 1, "both modes are about the same");
    let owners = fleet.get("hub", work, "{.metadata.ownerReferences}");
    assert_eq!(owners, "", "no owner in another namespace");
    assert_eq!(
        fleet.get("member-1", "cm settings -n web", "{.data.a}"),
        "1"
    );
}

fn a_change_costs_three_writes_per_cluster(fleet: &Fleet) {
    let changed = written(fleet, || {
        fleet.apply("hub", &APP.replace("'1'", "'2'"));
        eventually("the change is everywhere", || is_available_at(fleet, "1"));
    });
    let sum = |what: &str| changed.get(what).copied().unwrap_or_default() as usize;
    assert_eq!(sum("update works"), AGENTS, "{changed:?}");
    assert_eq!(sum("create works") + sum("delete works"), 0, "{changed:?}");
    assert_eq!(sum("update clusterresourcebindings"), AGENTS + 2);
    let statuses = sum("update clusterresourcebindings/status");
    assert!(statuses <= AGENTS * 3 / 2 + 2 * 4, "{changed:?}");
    let work = "work web-work -n fleet-member-agent-07";
    let path = "{.spec.workload.manifests[1].data.a}";
    assert_eq!(fleet.get("hub", work, path), "2");
}

/// Heartbeats within the period of one are none of the hub's writes.
fn heartbeats_are_gathered(fleet: &Fleet, agents: &Agents) {
    let heard = |cluster: &str| {
        let path = "{.status.agentStatus[0].lastReceivedHeartbeat}";
        let imc = format!("imc {cluster} -n fleet-member-{cluster}");
        fleet.get("hub", &imc, path)
    };
    let before: Vec<_> = (0..5).map(|number| heard(&agent(number))).collect();
    let beaten = written(fleet, || {
        for (number, before) in before.iter().enumerate() {
            eventually("a heartbeat of another second", || {
                agents.beat(&agent(number));
                heard(&agent(number)) != *before
            });
        }
        let _ = fleet.settled(|line| !line.contains("member-"));
    });
    assert_eq!(beaten, BTreeMap::new());
}

fn trouble_is_told(fleet: &Fleet, agents: &Agents) {
    agents.behave("agent-03", Behaviour::Fails);
    eventually("the failure is told", || {
        condition(fleet, "web", "Applied", "status") == "False"
    });
    let failed = entry(fleet, "agent-03", "failedPlacements[*].kind");
    assert_eq!(failed, "ConfigMap Namespace", "sorted");
    let why = entry(fleet, "agent-03", "failedPlacements[0].condition.message");
    assert_eq!(why, "Applied, says the agent");
    assert_eq!(entry(fleet, "agent-04", "failedPlacements"), "");
    agents.behave("agent-03", Behaviour::Drifts);
    eventually("the drift is told", || {
        !entry(fleet, "agent-03", "driftedPlacements[*].name").is_empty()
            && is_available_at(fleet, "1")
    });
    let path = "driftedPlacements[0].observedDrifts[0].path";
    assert_eq!(entry(fleet, "agent-03", path), "/data/a");
    agents.behave("agent-03", Behaviour::NotAvailable);
    eventually("what is not available is told", || {
        condition(fleet, "web", "Available", "status") == "False"
    });
    fleet.apply(
        "hub",
        &PLACEMENT.replace("strategy: {", "strategy: {timeout: 1s, "),
    );
    eventually("that it takes too long, once the agent is heard of", || {
        agents.beat("agent-03");
        let reason = "conditions[?(@.type==\"Available\")].reason";
        entry(fleet, "agent-03", reason) == "Timeout"
    });
    fleet.apply("hub", PLACEMENT);
    agents.behave("agent-03", Behaviour::Untracked);
    eventually("what can't be tracked counts", || {
        let path = "conditions[?(@.type==\"Available\")].status";
        entry(fleet, "agent-03", path) == "True"
    });
    // One that says nothing holds up nobody else, and is named.
    agents.behave("agent-03", Behaviour::Silent);
    fleet.apply("hub", &APP.replace("'1'", "'3'"));
    eventually("all the others have it", || {
        entry(fleet, "agent-04", "observedResourceIndex") == "2"
            && entry(
                fleet,
                "agent-03",
                "conditions[?(@.type==\"Applied\")].status",
            ) != "True"
    });
    agents.behave("agent-03", Behaviour::Good);
    eventually("it has caught up", || is_available_at(fleet, "2"));
}

fn differences_are_reported(fleet: &Fleet) {
    fleet.apply("hub", &APP.replace("web", "other"));
    fleet.apply("hub", DIFFS);
    eventually("the differences are told", || {
        condition(fleet, "diffs", "DiffReported", "status") == "True"
    });
    let path = "{.status.placementStatuses[*].diffedPlacements[*].kind}";
    let kinds = fleet.get("hub", "crp diffs", path);
    assert_eq!(kinds.matches("ConfigMap").count(), 2, "{kinds}");
    fleet.kubectl("hub", "delete crp diffs --timeout=60s");
}

/// ClusterResourcePlacement `other.x` and ResourcePlacement `other/x` want a Work of one name.
fn names_that_read_the_same_do_not_meet(fleet: &Fleet) {
    let policy = "policy: {placementType: PickFixed, clusterNames: [agent-05]}";
    fleet.apply(
        "hub",
        &format!(
            "apiVersion: placement.kubernetes-fleet.io/v1beta1\nkind: ClusterResourcePlacement\n\
             metadata: {{name: other.x}}\nspec:\n  resourceSelectors: [{{group: '', version: v1, kind: Namespace, \
             name: other, selectionScope: NamespaceOnly}}]\n  {policy}\n"
        ),
    );
    let works = |path: &str| fleet.get("hub", "works -n fleet-member-agent-05", path);
    let name =
        r"{.items[?(@.metadata.labels.kubernetes-fleet\.io/parent-CRP=='other.x')].metadata.name}";
    eventually("the first has the name", || works(name) == "other.x-work");
    fleet.apply(
        "hub",
        &format!(
            "apiVersion: placement.kubernetes-fleet.io/v1beta1\nkind: ResourcePlacement\n\
             metadata: {{name: x, namespace: other}}\nspec:\n  resourceSelectors: [{{group: '', version: v1, \
             kind: ConfigMap, name: settings}}]\n  {policy}\n"
        ),
    );
    let other = r"{.items[?(@.metadata.labels.kubernetes-fleet\.io/parent-placement-namespace=='other')].metadata.name}";
    eventually("the second has another", || !works(other).is_empty());
    let second = works(other);
    assert!(
        second.starts_with("other.x-") && second != "other.x-work",
        "{second}"
    );
    assert_eq!(works(name), "other.x-work");
    fleet.kubectl("hub", "delete rp x -n other --timeout=60s");
    fleet.kubectl("hub", "delete crp other.x --timeout=60s");
}

fn what_somebody_changed_is_put_back(fleet: &Fleet) {
    let work = "work web-work -n fleet-member-agent-09";
    let patch = "patch work web-work -n fleet-member-agent-09 --type=json -p \
                 [{\"op\":\"replace\",\"path\":\"/spec/workload/manifests\",\"value\":[]}]";
    fleet.kubectl("hub", patch);
    eventually("the Work is as the hub left it", || {
        fleet.get("hub", work, "{.spec.workload.manifests[*].kind}") == "Namespace ConfigMap"
    });
    fleet.kubectl(
        "hub",
        "delete role fleet-role-agent-09 -n fleet-member-agent-09",
    );
    eventually("the Role is back", || {
        fleet.get(
            "hub",
            "role fleet-role-agent-09 -n fleet-member-agent-09",
            "{.kind}",
        ) == "Role"
    });
    eventually("all is well again", || is_available_at(fleet, "2"));
}

fn a_restart_writes_nothing(fleet: &mut Fleet) {
    let _ = fleet.settled(|line| !line.contains("member-"));
    fleet.kill_hub();
    fleet.start_hub();
    let heartbeat = "resource=\"memberclusters/status\"";
    let writes = fleet.settled(|line| !line.contains(heartbeat));
    assert_eq!(writes, Vec::<String>::new());
}

fn a_cluster_leaves_with_what_it_has(fleet: &Fleet, agents: &Agents) {
    let before = agents.removed();
    fleet.kubectl("hub", "delete cluster agent-10 --timeout=60s");
    assert_eq!(agents.removed(), before, "nothing was taken away");
    eventually("its namespace is gone", || {
        fleet
            .get("hub", "ns fleet-member-agent-10", "{.kind}")
            .is_empty()
    });
    let path = "{.status.placementStatuses[*].clusterName}";
    eventually("the placement has forgotten it", || {
        !fleet.get("hub", "crp web", path).contains("agent-10")
    });
    // It may come back under its name.
    fleet.apply("hub", &cluster("agent-10"));
    eventually("it has joined again, and has the placement", || {
        entry(fleet, "agent-10", "observedResourceIndex") == "2" && is_available_at(fleet, "2")
    });
}

fn a_placement_goes_everywhere(fleet: &Fleet, agents: &Agents) {
    fleet.kubectl("hub", "delete crp web --timeout=60s");
    assert_eq!(
        fleet.get("hub", "works -A", "{.items[*].metadata.name}"),
        ""
    );
    let removed = agents.removed();
    let of_web = |name: &&String| name.ends_with("/web-work");
    assert_eq!(removed.iter().filter(of_web).count(), AGENTS);
    eventually("it is gone from the members in push mode", || {
        fleet.get("member-1", "ns web", "{.kind}").is_empty()
    });
}

const ENVELOPED: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: web}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: web}
data: {a: '1'}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourceEnvelope
metadata: {name: inside, namespace: web}
data:
  quota.yaml: {apiVersion: v1, kind: ConfigMap, metadata: {name: enveloped, namespace: web}, data: {b: '1'}}
";

/// UIDs of what is placed on a member.
fn placed(fleet: &Fleet, member: &str) -> Vec<String> {
    ["ns web", "cm settings -n web", "cm enveloped -n web"]
        .iter()
        .map(|what| fleet.get(member, what, "{.metadata.uid}"))
        .collect()
}

/// AppliedWorks of placement `web` on a member, and who owns the object that came in an envelope.
fn ownership(fleet: &Fleet, member: &str) -> (Vec<String>, String) {
    let works = fleet.get(member, "appliedworks", "{.items[*].metadata.name}");
    let works = works
        .split_whitespace()
        .filter(|name| name.starts_with("web-"));
    let mut works: Vec<String> = works.map(str::to_owned).collect();
    works.sort();
    let owner = "{.metadata.ownerReferences[*].name}";
    (works, fleet.get(member, "cm enveloped -n web", owner))
}

#[test]
fn a_cluster_changes_its_mode_and_keeps_everything() {
    let mut fleet = Fleet::up("migrate", 1);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    // An agent finds its own CRD on the member.
    fleet.apply("member-1", &crds);
    fleet.start_hub();
    let agents = Agents::start(&fleet);
    agents.apply_on("member-1", &fleet.kubeconfig("member-1"));
    fleet.apply("hub", &cluster("member-1"));
    fleet.apply("hub", ENVELOPED);
    fleet.apply("hub", PLACEMENT);
    eventually("the agent has placed everything", || {
        is_available_at(&fleet, "0") && !placed(&fleet, "member-1").contains(&String::new())
    });
    let uids = placed(&fleet, "member-1");
    assert_eq!(ownership(&fleet, "member-1").0.len(), 2);
    let twins = names::place_two_of_one_name(&fleet);

    a_change_that_is_called_off_is_not_said_to_go_on(&fleet);
    to_push(&fleet);
    twins.are_as_they_were(&fleet);
    assert_eq!(placed(&fleet, "member-1"), uids);
    // The member's own garbage collector lets the emptied AppliedWork go.
    eventually("everything is under one AppliedWork", || {
        ownership(&fleet, "member-1") == (vec!["web-work".to_owned()], "web-work".to_owned())
    });
    assert_eq!(agents.removed().len(), 0);
    fleet.apply("hub", &ENVELOPED.replace("'1'", "'2'"));
    eventually("the hub delivers", || {
        fleet.get("member-1", "cm settings -n web", "{.data.a}") == "2"
            && fleet.get("member-1", "cm enveloped -n web", "{.data.b}") == "2"
            && condition(&fleet, "web", "Available", "status") == "True"
    });

    to_pull(&fleet);
    twins.are_as_they_were(&fleet);
    twins.go(&fleet);
    assert_eq!(placed(&fleet, "member-1"), uids);
    let (works, owner) = ownership(&fleet, "member-1");
    assert_eq!(works.len(), 2);
    assert!(owner.starts_with("web-work-envelope-"), "{owner}");
    fleet.apply("hub", &ENVELOPED.replace("'1'", "'3'"));
    eventually("the agent delivers", || {
        fleet.get("member-1", "cm settings -n web", "{.data.a}") == "3"
            && fleet.get("member-1", "cm enveloped -n web", "{.data.b}") == "3"
            && condition(&fleet, "web", "Available", "status") == "True"
    });
    assert_eq!(placed(&fleet, "member-1"), uids);
    leaving::a_cluster_is_purged_while_its_mode_changes(&fleet, &agents);
    eventually("everything is gone", || {
        placed(&fleet, "member-1").iter().all(String::is_empty)
    });
}

fn migrate(fleet: &Fleet, args: &[&str]) -> Result<String, String> {
    let hub = fleet.kubeconfig("hub");
    let hub = hub.to_string_lossy();
    let mut all = vec!["migrate", "member-1", "--hub-kubeconfig", &hub];
    all.extend(args);
    fleet.windlass(&all)
}

fn a_change_that_is_called_off_is_not_said_to_go_on(fleet: &Fleet) {
    let migrating = || {
        let path = "{.status.conditions[?(@.type==\"Migrating\")].status}";
        fleet.get("hub", "cluster member-1", path)
    };
    let annotate = "annotate cluster member-1 windlass.dev/migrate-to";
    fleet.kubectl("hub", &format!("{annotate}=push"));
    eventually("it waits for credentials", || migrating() == "True");
    fleet.kubectl("hub", &format!("{annotate}-"));
    eventually("nothing is said of it", || migrating().is_empty());
}

fn to_push(fleet: &Fleet) {
    refused::a_change_waits_for_what_is_refused(fleet, "push");
    let refused = fleet.windlass(&[
        "join",
        "member-1",
        "--hub-kubeconfig",
        &fleet.kubeconfig("hub").to_string_lossy(),
        "--member-kubeconfig",
        &fleet.kubeconfig("member-1").to_string_lossy(),
    ]);
    assert!(refused.unwrap_err().contains("windlass migrate member-1"));
    let member = fleet.kubeconfig("member-1");
    let said = migrate(
        fleet,
        &[
            "--to",
            "push",
            "--member-kubeconfig",
            &member.to_string_lossy(),
        ],
    );
    assert!(said.unwrap().contains("is in push mode"));
    assert_eq!(fleet.get("hub", "ns fleet-member-member-1", "{.kind}"), "");
}

fn to_pull(fleet: &Fleet) {
    refused::a_change_waits_for_what_is_refused(fleet, "pull");
    let said = migrate(fleet, &["--to", "pull", "--agent", "User:user-member-1"]);
    assert!(said.unwrap().contains("is in pull mode"));
    let secret = "secret windlass-cluster-member-1 -n fleet-system";
    assert_eq!(fleet.get("hub", secret, "{.kind}"), "");
    let role = "clusterrolebinding windlass-hub";
    assert_eq!(fleet.get("member-1", role, "{.kind}"), "");
}
