//! What is placed and how it rolls, on a real fleet: large contents, budgets, labels, new kinds.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use windlass_tests::{Fleet, eventually};

const MEMBERS: [&str; 3] = ["member-1", "member-2", "member-3"];

/// A placement of the namespace of its name, with more fields of its spec.
fn placement(name: &str, spec: &str) -> String {
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {{name: {name}}}
spec:
  resourceSelectors: [{{group: '', version: v1, kind: Namespace, name: {name}}}]
  {spec}
"
    )
}

fn namespace(name: &str) -> String {
    format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}")
}

fn of_placement(fleet: &Fleet, name: &str, path: &str) -> String {
    fleet.get("hub", &format!("crp {name}"), path)
}

fn condition(fleet: &Fleet, placement: &str, type_: &str, field: &str) -> String {
    let path =
        format!("{{.status.conditions[?(@.type==\"ClusterResourcePlacement{type_}\")].{field}}}");
    of_placement(fleet, placement, &path)
}

/// Whether a placement has this version, available, on exactly these clusters.
fn is_on(fleet: &Fleet, name: &str, index: &str, members: &[&str]) -> bool {
    let clusters = "{.status.placementStatuses[*].clusterName}";
    let indexes = "{.status.placementStatuses[*].observedResourceIndex}";
    of_placement(fleet, name, clusters) == members.join(" ")
        && of_placement(fleet, name, indexes) == vec![index; members.len()].join(" ")
        && of_placement(fleet, name, "{.status.observedResourceIndex}") == index
        && condition(fleet, name, "Available", "status") == "True"
}

#[test]
fn contents_roll_on_a_real_fleet() {
    let mut fleet = Fleet::up("rollout", 3);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    fleet.start_hub();
    for member in &MEMBERS[..2] {
        fleet.join(member);
    }
    kinds_that_the_hub_learns_of_later_are_placed(&fleet);
    large_contents_are_split_and_arrive_whole(&fleet);
    old_contents_go_with_all_their_parts(&fleet);
    a_member_that_joins_later_gets_what_is_placed_everywhere(&fleet);
    labels_of_members_decide(&fleet);
    a_change_that_fails_stops_at_the_budget(&fleet);
    what_takes_too_long_is_told(&mut fleet);
    a_placement_that_rolls_can_be_deleted(&fleet);
}

/// A kind by its scope; the CRD, and one resource.
fn kind(plural: &str, kind: &str, scope: &str) -> String {
    format!(
        "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.example.com}}
spec:
  group: example.com
  names: {{kind: {kind}, plural: {plural}}}
  scope: {scope}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{type: object, properties: {{spec: {{type: object, properties: {{size: {{type: integer}}}}}}}}}}}}
"
    )
}

fn kinds_that_the_hub_learns_of_later_are_placed(fleet: &Fleet) {
    let crd = |plural: &str| {
        format!(
            "{{group: apiextensions.k8s.io, version: v1, kind: CustomResourceDefinition, name: {plural}.example.com}}"
        )
    };
    let selectors = format!(
        "{}, {}, {{group: example.com, version: v1, kind: Gauge, name: g}}",
        crd("things"),
        crd("gauges")
    );
    // Whether a custom resource is available can't be known; it counts as such after a while.
    let strategy = "strategy: {rollingUpdate: {unavailablePeriodSeconds: 1}}";
    let manifest = placement("custom", strategy)
        .replace("name: custom}]", &format!("name: custom}}, {selectors}]"));
    fleet.apply("hub", &namespace("custom"));
    fleet.apply("hub", &manifest);
    eventually("it is said that the kind is not known", || {
        condition(fleet, "custom", "Scheduled", "status") == "False"
            && condition(fleet, "custom", "Scheduled", "message").contains("Gauge")
    });
    fleet.apply("hub", &kind("things", "Thing", "Namespaced"));
    fleet.apply("hub", &kind("gauges", "Gauge", "Cluster"));
    fleet.kubectl("hub", "wait --for=condition=Established crd/things.example.com crd/gauges.example.com --timeout=30s");
    fleet.apply("hub", "{apiVersion: example.com/v1, kind: Thing, metadata: {name: t, namespace: custom}, spec: {size: 3}}");
    fleet.apply(
        "hub",
        "{apiVersion: example.com/v1, kind: Gauge, metadata: {name: g}, spec: {size: 4}}",
    );
    for member in &MEMBERS[..2] {
        eventually("both resources arrive", || {
            fleet.get(member, "things t -n custom", "{.spec.size}") == "3"
                && fleet.get(member, "gauges g", "{.spec.size}") == "4"
        });
    }
    eventually("the placement says so", || {
        condition(fleet, "custom", "Available", "status") == "True"
    });
    fleet.kubectl("hub", "delete crp custom --wait=false");
}

/// How many ConfigMaps of 200 KiB make the large content.
const PARTS_OF_BIG: usize = 7;

fn big(number: usize, letter: char) -> String {
    let text = letter.to_string().repeat(200 * 1024);
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: big-{number}, namespace: big}}, data: {{letter: {letter}, text: {text}}}}}"
    )
}

/// The snapshots of a group, by name, with a path of each.
fn group(fleet: &Fleet, index: &str, path: &str) -> Vec<String> {
    let what = format!(
        "crs -l kubernetes-fleet.io/parent-CRP=big,kubernetes-fleet.io/resource-index={index}"
    );
    let path = format!("{{range.items[*]}}{{.metadata.name}}:{path},{{end}}");
    let text = fleet.get("hub", &what, &path);
    text.split_terminator(',').map(str::to_owned).collect()
}

fn large_contents_are_split_and_arrive_whole(fleet: &Fleet) {
    fleet.apply("hub", &namespace("big"));
    for number in 0..PARTS_OF_BIG {
        fleet.apply("hub", &big(number, 'a'));
    }
    fleet.apply("hub", &placement("big", "revisionHistoryLimit: 1"));
    eventually("it is available", || {
        is_on(fleet, "big", "0", &MEMBERS[..2])
    });
    is_a_complete_group(fleet, "0");
    for member in &MEMBERS[..2] {
        assert_eq!(letters(fleet, member), "a ".repeat(PARTS_OF_BIG).trim_end());
    }
}

fn letters(fleet: &Fleet, member: &str) -> String {
    fleet.get(member, "cm -n big", "{.items[*].data.letter}")
}

/// A master and its parts, with the labels and annotations of the reference (API §3.6).
fn is_a_complete_group(fleet: &Fleet, index: &str) {
    let annotation = |key: &str| format!("{{.metadata.annotations.kubernetes-fleet\\.io/{key}}}");
    let names = group(fleet, index, "");
    let count = names.len();
    assert!(count > 1, "{names:?}");
    let mut expected: Vec<String> = (0..count - 1)
        .map(|part| format!("big-{index}-{part}:"))
        .collect();
    expected.push(format!("big-{index}-snapshot:"));
    assert_eq!(names, expected);
    // What only the master has, and what only the others have.
    let master = |value: &str| -> Vec<String> {
        let last = format!("big-{index}-snapshot:{value}");
        [&expected[..count - 1], &[last]].concat()
    };
    let latest = "{.metadata.labels.kubernetes-fleet\\.io/is-latest-snapshot}";
    assert_eq!(group(fleet, index, latest), master("true"));
    let counted = group(fleet, index, &annotation("number-of-resource-snapshots"));
    assert_eq!(counted, master(&count.to_string()));
    let enveloped = group(fleet, index, &annotation("number-of-enveloped-object"));
    assert_eq!(enveloped, master("0"));
    let hashes = group(fleet, index, &annotation("resource-hash"));
    assert_eq!(hashes[..count - 1], expected[..count - 1]);
    assert_ne!(hashes[count - 1], expected[count - 1]);
    let mut positions: Vec<String> = (0..count - 1)
        .map(|part| format!("big-{index}-{part}:{part}"))
        .collect();
    positions.push(expected[count - 1].clone());
    assert_eq!(
        group(fleet, index, &annotation("subindex-of-resource-snapshot")),
        positions
    );
    let owners = group(fleet, index, "{.metadata.ownerReferences[*].kind}");
    assert!(
        owners
            .iter()
            .all(|owner| owner.ends_with(":ClusterResourcePlacement")),
        "{owners:?}"
    );
    let kinds = group(fleet, index, "{.spec.selectedResources[*].kind}");
    let found = kinds.iter().map(|kinds| kinds.matches("ConfigMap").count());
    assert_eq!(found.sum::<usize>(), PARTS_OF_BIG, "{kinds:?}");
}

fn old_contents_go_with_all_their_parts(fleet: &Fleet) {
    fleet.apply("hub", &big(3, 'b'));
    eventually("it is available", || {
        is_on(fleet, "big", "1", &MEMBERS[..2])
    });
    is_a_complete_group(fleet, "1");
    for member in &MEMBERS[..2] {
        assert_eq!(letters(fleet, member), "a a a b a a a");
    }
    eventually("the old content is gone", || {
        group(fleet, "0", "").is_empty()
    });
}

fn a_member_that_joins_later_gets_what_is_placed_everywhere(fleet: &Fleet) {
    fleet.join("member-3");
    eventually("it is there, too", || is_on(fleet, "big", "1", &MEMBERS));
    assert_eq!(letters(fleet, "member-3"), "a a a b a a a");
    is_a_complete_group(fleet, "1");
    fleet.kubectl("hub", "delete crp big --wait=false");
}

fn labels_of_members_decide(fleet: &Fleet) {
    let policy = |stages: &str| {
        let term =
            "{labelSelector: {matchExpressions: [{key: stage, operator: In, values: [STAGES]}]}}";
        placement(
            "labels",
            "policy: {placementType: PickAll, affinity: {clusterAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {clusterSelectorTerms: [TERM]}}}}",
        )
        .replace("TERM", &term.replace("STAGES", stages))
    };
    fleet.apply("hub", &namespace("labels"));
    fleet.kubectl("hub", "label cluster member-2 stage=prod");
    fleet.apply("hub", &policy("prod"));
    eventually("it is where the label is", || {
        is_on(fleet, "labels", "0", &["member-2"])
    });
    let phase = |member: &str| fleet.get(member, "ns labels", "{.status.phase}");
    assert_eq!(MEMBERS.map(phase), ["", "Active", ""]);
    fleet.kubectl("hub", "label cluster member-3 stage=prod");
    eventually("a label brings it", || {
        is_on(fleet, "labels", "0", &["member-2", "member-3"])
    });
    assert_eq!(MEMBERS.map(phase), ["", "Active", "Active"]);
    // Labels are looked at when something is scheduled; what is placed stays (IgnoredDuringExecution).
    fleet.kubectl("hub", "label cluster member-2 stage-");
    fleet.kubectl("hub", "label cluster member-1 stage=prod");
    eventually("it stays without the label", || {
        is_on(fleet, "labels", "0", &MEMBERS)
    });
    assert_eq!(MEMBERS.map(phase), ["Active", "Active", "Active"]);
    fleet.apply("hub", &policy("prod, canary"));
    eventually("another policy looks at all of them", || {
        is_on(fleet, "labels", "0", &["member-1", "member-3"])
    });
    eventually("it is gone", || {
        MEMBERS.map(phase) == ["Active", "", "Active"]
    });
    fleet.kubectl("hub", "delete crp labels --wait=false");
}

/// A version of the app; one whose pods fit nowhere never becomes available.
fn app(version: u32, node: &str) -> String {
    format!(
        "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: app, namespace: roll}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: web, image: 'example/web:{version}'}}], nodeSelector: {{{node}}}}}
"
    )
}

const NOWHERE: &str = "no: where";

/// Which members have that version.
fn with_version(fleet: &Fleet, version: u32) -> Vec<&'static str> {
    let image = "{.spec.template.spec.containers[0].image}";
    let has = |member: &&str| {
        fleet.get(member, "deploy app -n roll", image) == format!("example/web:{version}")
    };
    MEMBERS.into_iter().filter(has).collect()
}

fn a_change_that_fails_stops_at_the_budget(fleet: &Fleet) {
    fleet.apply("hub", &namespace("roll"));
    fleet.apply("hub", &app(0, ""));
    let mut version = 0;
    // Percentages are rounded up: a quarter of three clusters is one, a half is two.
    for (budget, moved) in [("1", 1), ("25%", 1), ("50%", 2)] {
        let strategy = format!(
            "revisionHistoryLimit: 1\n  strategy: {{rollingUpdate: {{maxUnavailable: {budget}}}}}"
        );
        fleet.apply("hub", &placement("roll", &strategy));
        eventually("all have the version", || {
            is_on(fleet, "roll", &version.to_string(), &MEMBERS)
        });
        fleet.apply("hub", &app(version + 1, NOWHERE));
        is_stuck(fleet, version, version + 1, moved);
        fleet.apply("hub", &app(version + 2, ""));
        eventually("the next version rolls everywhere", || {
            is_on(fleet, "roll", &(version + 2).to_string(), &MEMBERS)
        });
        assert_eq!(with_version(fleet, version + 2), MEMBERS);
        version += 2;
    }
}

/// So many clusters have the new version, which is not available; the others the old one, which is.
fn is_stuck(fleet: &Fleet, old: u32, new: u32, moved: usize) {
    let each = |type_: &str, field: &str| {
        let path = format!(
            "{{range.status.placementStatuses[*]}}{{.observedResourceIndex}}:{{.conditions[?(@.type==\"{type_}\")].{field}}},{{end}}"
        );
        let text = of_placement(fleet, "roll", &path);
        let mut all: Vec<String> = text.split_terminator(',').map(str::to_owned).collect();
        all.sort();
        all
    };
    let expected = |of_old: &str, of_new: &str| -> Vec<String> {
        let mut all = vec![format!("{old}:{of_old}"); MEMBERS.len() - moved];
        all.extend(vec![format!("{new}:{of_new}"); moved]);
        all.sort();
        all
    };
    eventually(
        "so many clusters have it, and it is not available there",
        || each("Available", "status") == expected("True", "False"),
    );
    eventually("the placement waits", || {
        condition(fleet, "roll", "RolloutStarted", "status") == "False"
    });
    for type_ in [
        "Scheduled",
        "RolloutStarted",
        "Overridden",
        "WorkSynchronized",
        "Applied",
    ] {
        assert_eq!(each(type_, "status"), expected("True", "True"), "{type_}");
    }
    assert_eq!(
        each("Available", "reason"),
        expected("AllWorkAreAvailable", "NotAllWorkAreAvailable")
    );
    let index = of_placement(fleet, "roll", "{.status.observedResourceIndex}");
    assert_eq!(index, new.to_string());
    let reason = condition(fleet, "roll", "RolloutStarted", "reason");
    assert_eq!(reason, "RolloutNotStartedYet");
    let types = of_placement(fleet, "roll", "{.status.conditions[*].type}");
    assert_eq!(
        types,
        "ClusterResourcePlacementScheduled ClusterResourcePlacementRolloutStarted"
    );
    assert_eq!(with_version(fleet, new).len(), moved);
    assert_eq!(with_version(fleet, old).len(), MEMBERS.len() - moved);
    // Whatever the history limit says, a version that is in use stays.
    let kept = fleet.get(
        "hub",
        "crs -l kubernetes-fleet.io/parent-CRP=roll",
        "{.items[*].metadata.name}",
    );
    assert_eq!(kept, format!("roll-{old}-snapshot roll-{new}-snapshot"));
}

/// Of the binding to each member, by name: a path.
fn bindings(fleet: &Fleet, path: &str) -> Vec<String> {
    let path = format!("{{range.items[*]}}{path},{{end}}");
    let of_roll = "crb -l kubernetes-fleet.io/parent-CRP=roll";
    let text = fleet.get("hub", of_roll, &path);
    text.split_terminator(',').map(str::to_owned).collect()
}

fn available(fleet: &Fleet, field: &str) -> Vec<String> {
    let path = format!("{{.status.conditions[?(@.type==\"Available\")].{field}}}");
    bindings(fleet, &path)
}

const SOON: &str = "NotAllWorkAreAvailable";
const READY: &str = "AllWorkAreAvailable";

fn what_takes_too_long_is_told(fleet: &mut Fleet) {
    let version: u32 = of_placement(fleet, "roll", "{.status.observedResourceIndex}")
        .parse()
        .unwrap();
    fleet.kill_hub();
    fleet.start_hub();
    let with_timeout = |fleet: &Fleet, timeout: &str| {
        let strategy = format!(
            "revisionHistoryLimit: 1\n  strategy: {{timeout: {timeout}, rollingUpdate: {{maxUnavailable: 2}}}}"
        );
        fleet.apply("hub", &placement("roll", &strategy));
    };
    let healthy = "{.status.conditions[?(@.type==\"Healthy\")].status}";
    let since = |fleet: &Fleet| bindings(fleet, "{.status.processingSince}");
    with_timeout(fleet, "1h");
    fleet.apply("hub", &app(version + 1, NOWHERE));
    eventually("two clusters are on their way", || {
        available(fleet, "reason") == [SOON, SOON, READY]
    });
    fleet.control("stop", "member-1");
    eventually("one of them is gone", || {
        fleet.get("hub", "cluster member-1", healthy) == "False"
    });
    with_timeout(fleet, "3s");
    eventually("the other one took too long", || {
        available(fleet, "reason")[1] == "Timeout"
    });
    assert_eq!(available(fleet, "reason"), [SOON, "Timeout", READY]);
    fleet.control("start", "member-1");
    eventually("so does the one that is back", || {
        available(fleet, "reason") == ["Timeout", "Timeout", READY]
    });
    // What the user sees: what is wrong, and how long it was waited for.
    let of_cluster = "{.status.placementStatuses[?(@.clusterName==\"member-2\")].conditions[?(@.type==\"Available\")]";
    eventually("the placement tells", || {
        let message = of_placement(fleet, "roll", &format!("{of_cluster}.message}}"));
        of_placement(fleet, "roll", &format!("{of_cluster}.reason}}")) == "Timeout"
            && message.starts_with("Not ready within 3s (")
            && message.contains("Deployment roll/app")
    });
    let events = "events.v1.events.k8s.io --field-selector reason=Timeout";
    eventually("so does an event", || {
        fleet
            .get("hub", events, "{.items[*].note}")
            .contains("Available is False on cluster member-2: Not ready within 3s")
    });
    let started = since(fleet);
    assert_eq!(
        started.iter().map(String::is_empty).collect::<Vec<_>>(),
        [false, false, true],
        "the clock stands where all is well"
    );
    fleet.kill_hub();
    fleet.start_hub();
    with_timeout(fleet, "0s");
    eventually("no limit any more", || {
        available(fleet, "reason") == [SOON, SOON, READY]
    });
    assert_eq!(since(fleet), started, "the clocks go on");
    with_timeout(fleet, "3s");
    eventually("a limit again, which is long over", || {
        available(fleet, "reason") == ["Timeout", "Timeout", READY]
    });
    assert_eq!(since(fleet), started);
    // Both have failed, so that they cost nothing of the budget.
    fleet.apply("hub", &app(version + 2, ""));
    eventually("the next version rolls everywhere", || {
        is_on(fleet, "roll", &(version + 2).to_string(), &MEMBERS)
    });
    assert_eq!(since(fleet), ["", "", ""]);
    with_timeout(fleet, "1h");
}

fn a_placement_that_rolls_can_be_deleted(fleet: &Fleet) {
    let version = of_placement(fleet, "roll", "{.status.observedResourceIndex}")
        .parse::<u32>()
        .unwrap();
    fleet.apply("hub", &app(version + 1, NOWHERE));
    is_stuck(fleet, version, version + 1, 2);
    fleet.kubectl("hub", "delete crp roll --timeout=60s");
    // With those that other tests deleted.
    let names = "{.items[*].metadata.name}";
    eventually("no placement is left", || {
        fleet.get("hub", "crp", names).is_empty()
    });
    for member in MEMBERS {
        assert_eq!(fleet.get(member, "ns roll", "{.metadata.name}"), "");
        assert_eq!(fleet.get(member, "appliedworks", names), "");
    }
    assert_eq!(fleet.get("hub", "crb,crs,csps", names), "");
    assert_eq!(fleet.get("hub", "ns roll", "{.status.phase}"), "Active");
}
