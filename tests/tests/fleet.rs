//! One placement's life on a real fleet: a hub and three members, as a user would see it with kubectl.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::time::Duration;

use windlass_tests::{Fleet, condition, eventually, within};

const APP: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: web}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: web}
data: {a: '1', b: '1'}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: app, namespace: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: 'example/web:1', resources: {requests: {cpu: 1000m}}}]}
---
apiVersion: v1
kind: Service
metadata: {name: app, namespace: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
";

const PLACEMENT: &str = r"
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: web}
spec:
  resourceSelectors: [{group: '', version: v1, kind: Namespace, name: web}]
";

const MEMBERS: [&str; 3] = ["member-1", "member-2", "member-3"];

fn is_settled(fleet: &Fleet, placement: &str, index: &str) -> bool {
    fleet.get(
        "hub",
        &format!("crp {placement}"),
        "{.status.observedResourceIndex}",
    ) == index
        && condition(fleet, placement, "Available", "status") == "True"
        && fleet
            .get(
                "hub",
                &format!("crp {placement}"),
                "{.status.placementStatuses[*].observedResourceIndex}",
            )
            .split(' ')
            .all(|own| own == index)
}

fn on_every_member(fleet: &Fleet, what: &str, path: &str, expected: &str) -> bool {
    MEMBERS
        .iter()
        .all(|member| fleet.get(member, what, path) == expected)
}

#[test]
fn a_placement_lives_on_a_real_fleet() {
    let mut fleet = Fleet::up("fleet", 3);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    fleet.start_hub();
    for member in MEMBERS {
        fleet.join(member);
    }
    fleet.apply("hub", APP);
    fleet.apply("hub", PLACEMENT);
    places_everything(&fleet);
    joining_twice_changes_nothing(&fleet);
    bad_objects_are_refused_with_the_field(&fleet);
    changes_roll_and_fields_that_leave_go(&fleet);
    edits_on_a_member_are_put_back(&fleet);
    what_is_no_longer_selected_is_pruned(&fleet);
    a_restart_over_a_settled_fleet_writes_nothing(&mut fleet);
    external_follows_hand_edits(&fleet);
    a_member_that_is_down_is_unhealthy_and_recovers(&fleet);
    adopted_objects_survive_the_placement(&fleet);
    deleting_the_placement_removes_what_it_placed(&fleet);
    a_cluster_leaves_with_its_workloads_in_place(&fleet);
}

fn places_everything(fleet: &Fleet) {
    eventually("the app is available everywhere", || {
        is_settled(fleet, "web", "0")
    });
    assert!(on_every_member(
        fleet,
        "deploy app -n web",
        "{.status.availableReplicas}",
        "2"
    ));
    let table = fleet.kubectl("hub", "get crp");
    for column in [
        "NAME",
        "GEN",
        "SCHEDULED",
        "SCHEDULED-GEN",
        "AVAILABLE",
        "AVAILABLE-GEN",
        "AGE",
    ] {
        assert!(table.contains(column), "{table}");
    }
    let clusters = fleet.kubectl("hub", "get cluster");
    for column in [
        "JOINED",
        "MEMBER-AGENT-LAST-SEEN",
        "NODE-COUNT",
        "AVAILABLE-CPU",
        "AVAILABLE-MEMORY",
    ] {
        assert!(clusters.contains(column), "{clusters}");
    }
    assert!(fleet.kubectl("hub", "get crb").contains("WORKSYNCHRONIZED"));
    eventually("nodes are counted", || {
        fleet.get(
            "hub",
            "cluster member-1",
            "{.status.properties.kubernetes-fleet\\.io/node-count.value}",
        ) == "2"
    });
    let kubeconfig = fleet.kubeconfig("hub");
    let status = fleet
        .windlass(&[
            "status",
            "web",
            "--kubeconfig",
            &kubeconfig.to_string_lossy(),
        ])
        .unwrap();
    assert!(
        MEMBERS.iter().all(|member| status.contains(member)),
        "{status}"
    );
}

fn joining_twice_changes_nothing(fleet: &Fleet) {
    let before = fleet.get(
        "hub",
        "cluster member-2",
        "{.metadata.uid}{.metadata.generation}",
    );
    fleet.join("member-2");
    assert_eq!(
        fleet.get(
            "hub",
            "cluster member-2",
            "{.metadata.uid}{.metadata.generation}"
        ),
        before
    );
}

fn bad_objects_are_refused_with_the_field(fleet: &Fleet) {
    let rows = [
        ("policy: {placementType: PickN}", "numberOfClusters"),
        (
            "policy: {placementType: PickFixed, clusterNames: [a], affinity: {}}",
            "affinity",
        ),
        (
            "policy: {placementType: PickAll, clusterNames: [a]}",
            "clusterNames",
        ),
        (
            "policy: {tolerations: [{key: a, operator: Exists, value: b}]}",
            "toleration value",
        ),
        ("revisionHistoryLimit: 0", "spec.revisionHistoryLimit"),
        ("strategy: {rollingUpdate: {maxSurge: 200%}}", "maxSurge"),
    ];
    for (field, expected) in rows {
        let manifest = PLACEMENT.replace(
            "name: web}\nspec:",
            &format!("name: bad}}\nspec:\n  {field}"),
        );
        let error = fleet
            .try_kubectl("hub", "create -f -", Some(&manifest))
            .unwrap_err();
        assert!(error.contains(expected), "{field}: {error}");
    }
}

fn changes_roll_and_fields_that_leave_go(fleet: &Fleet) {
    fleet.apply(
        "hub",
        &APP.replace("data: {a: '1', b: '1'}", "data: {b: '2'}"),
    );
    eventually("the change is everywhere", || {
        on_every_member(fleet, "cm settings -n web", "{.data}", r#"{"b":"2"}"#)
    });
    eventually("the status says so", || is_settled(fleet, "web", "1"));
}

fn edits_on_a_member_are_put_back(fleet: &Fleet) {
    fleet.kubectl("member-2", "scale deploy app -n web --replicas=5");
    eventually("replicas are put back", || {
        fleet.get("member-2", "deploy app -n web", "{.spec.replicas}") == "2"
    });
    fleet.kubectl("member-2", "delete svc app -n web");
    eventually("a deleted object comes back", || {
        fleet.get("member-2", "svc app -n web", "{.metadata.name}") == "app"
    });
}

fn what_is_no_longer_selected_is_pruned(fleet: &Fleet) {
    fleet.kubectl("hub", "delete svc app -n web");
    eventually("the service is gone everywhere", || {
        on_every_member(fleet, "svc app -n web", "{.metadata.name}", "")
    });
    eventually("the status says so", || is_settled(fleet, "web", "2"));
}

fn a_restart_over_a_settled_fleet_writes_nothing(fleet: &mut Fleet) {
    let planes = ["hub", "member-1", "member-2", "member-3"];
    let served = |fleet: &Fleet| planes.map(|plane| fleet.served_writes(plane));
    drop(fleet.settled(|line| !line.contains("memberclusters/status")));
    let settled = served(fleet);
    assert!(
        settled.iter().all(|lines| !lines.is_empty()),
        "writes are counted"
    );
    fleet.kill_hub();
    fleet.start_hub();
    eventually("every cluster was looked at", || {
        let metrics = fleet.http("/metrics").unwrap_or_default();
        MEMBERS.iter().all(|member| {
            metrics.contains(&format!(
                "windlass_member_healthy{{cluster=\"{member}\"}} 1"
            )) && metrics.lines().any(|line| {
                line.contains("deployments") && line.contains(member) && line.contains("watch")
            })
        })
    });
    let sent = fleet.settled(|line| !line.contains("memberclusters/status"));
    assert!(sent.is_empty(), "by the hub's own count: {sent:?}");
    assert_eq!(served(fleet), settled, "by the API servers' count");
}

fn external_follows_hand_edits(fleet: &Fleet) {
    fleet.apply(
        "hub",
        "{apiVersion: v1, kind: Namespace, metadata: {name: ext}}",
    );
    let manifest = PLACEMENT.replace("web", "ext") + "  strategy: {type: External}\n";
    fleet.apply("hub", &manifest);
    let bind = |member: &str, index: &str| {
        let name = fleet.get(
            "hub",
            "crb",
            &format!("{{.items[?(@.spec.targetCluster==\"{member}\")].metadata.name}}"),
        );
        let binding = name
            .split(' ')
            .find(|name| name.starts_with("ext-"))
            .unwrap()
            .to_owned();
        let patch = format!(
            "{{\"spec\":{{\"resourceSnapshotName\":\"ext-{index}-snapshot\",\"state\":\"Bound\"}}}}"
        );
        fleet.kubectl(
            "hub",
            &format!("patch crb {binding} --type merge -p {patch}"),
        );
    };
    eventually("three bindings are made", || {
        fleet.get(
            "hub",
            "crb -l kubernetes-fleet.io/parent-CRP=ext",
            "{.items[*].spec.state}",
        ) == "Scheduled Scheduled Scheduled"
    });
    eventually("nothing is rolled out, and that is said", || {
        condition(fleet, "ext", "RolloutStarted", "reason")
            == "RolloutControlledByExternalController"
            && condition(fleet, "ext", "Available", "status") == "Unknown"
    });
    fleet.apply(
        "hub",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ext}}",
    );
    eventually("content makes a snapshot", || {
        fleet
            .get(
                "hub",
                "crs -l kubernetes-fleet.io/parent-CRP=ext",
                "{.items[*].metadata.name}",
            )
            .contains("ext-1-snapshot")
    });
    for (member, index) in [("member-1", "0"), ("member-2", "1"), ("member-3", "1")] {
        bind(member, index);
    }
    let indexes = || {
        fleet.get(
            "hub",
            "crp ext",
            "{.status.placementStatuses[*].observedResourceIndex}",
        )
    };
    eventually("each cluster shows its own index", || indexes() == "0 1 1");
    eventually("disagreement has no index", || {
        fleet
            .get("hub", "crp ext", "{.status.observedResourceIndex}")
            .is_empty()
            && condition(fleet, "ext", "Available", "status") == "Unknown"
    });
    eventually("each runs what its binding names", || {
        fleet
            .get("member-1", "cm c -n ext", "{.metadata.name}")
            .is_empty()
            && fleet.get("member-2", "cm c -n ext", "{.metadata.name}") == "c"
    });
    bind("member-1", "1");
    eventually("agreement has an index", || is_settled(fleet, "ext", "1"));
    for member in MEMBERS {
        bind(member, "0");
    }
    eventually("an older snapshot can be gone back to", || {
        is_settled(fleet, "ext", "0")
            && on_every_member(fleet, "cm c -n ext", "{.metadata.name}", "")
    });
    fleet.kubectl("hub", "delete crp ext --timeout=60s");
    assert!(on_every_member(fleet, "ns ext", "{.status.phase}", ""));
}

fn a_member_that_is_down_is_unhealthy_and_recovers(fleet: &Fleet) {
    let healthy = || {
        fleet.get(
            "hub",
            "cluster member-3",
            "{.status.conditions[?(@.type==\"Healthy\")].status}",
        )
    };
    fleet.control("stop", "member-3");
    eventually("the cluster is unhealthy", || healthy() == "False");
    fleet.control("start", "member-3");
    within(
        Duration::from_secs(120),
        "the cluster is healthy again",
        || healthy() == "True",
    );
}

fn adopted_objects_survive_the_placement(fleet: &Fleet) {
    fleet.apply(
        "member-1",
        "{apiVersion: v1, kind: Namespace, metadata: {name: old}}",
    );
    fleet.apply(
        "hub",
        "{apiVersion: v1, kind: Namespace, metadata: {name: old}}",
    );
    fleet.apply("hub", &PLACEMENT.replace("web", "old"));
    eventually("it is taken over", || is_settled(fleet, "old", "0"));
    assert_eq!(
        fleet.get("member-1", "ns old", "{.metadata.ownerReferences[0].kind}"),
        "AppliedWork"
    );
    fleet.kubectl("hub", "delete crp old --timeout=60s");
    assert_eq!(
        fleet.get(
            "member-1",
            "ns old",
            "{.status.phase}{.metadata.ownerReferences}"
        ),
        "Active"
    );
    eventually("a created one is gone", || {
        fleet
            .get("member-2", "ns old", "{.status.phase}")
            .is_empty()
    });
}

fn deleting_the_placement_removes_what_it_placed(fleet: &Fleet) {
    fleet.kubectl("member-1", "create cm foreign -n web");
    fleet.kubectl("hub", "delete crp web --wait=false");
    eventually("it says what it waits for", || {
        condition(fleet, "web", "Deleting", "message").contains("ConfigMap foreign")
    });
    fleet.kubectl("member-1", "delete cm foreign -n web");
    fleet.kubectl("hub", "wait --for=delete crp/web --timeout=60s");
    assert!(on_every_member(fleet, "ns web", "{.status.phase}", ""));
    assert!(on_every_member(
        fleet,
        "appliedworks",
        "{.items[*].metadata.name}",
        ""
    ));
    assert_eq!(
        fleet.get("hub", "crb,crs,csps", "{.items[*].metadata.name}"),
        ""
    );
}

fn a_cluster_leaves_with_its_workloads_in_place(fleet: &Fleet) {
    fleet.apply("hub", PLACEMENT);
    eventually("it is placed again", || {
        condition(fleet, "web", "Available", "status") == "True"
    });
    let kubeconfig = fleet.kubeconfig("hub");
    let said = fleet
        .windlass(&[
            "leave",
            "member-1",
            "--hub-kubeconfig",
            &kubeconfig.to_string_lossy(),
        ])
        .unwrap();
    assert!(said.contains("has left"), "{said}");
    assert_eq!(
        fleet.get(
            "member-1",
            "deploy app -n web",
            "{.spec.replicas}{.metadata.ownerReferences}"
        ),
        "2"
    );
    assert_eq!(
        fleet.get(
            "hub",
            "secret -n fleet-system windlass-cluster-member-1",
            "{.metadata.name}"
        ),
        ""
    );
    eventually("the status has two clusters", || {
        fleet.get(
            "hub",
            "crp web",
            "{.status.placementStatuses[*].clusterName}",
        ) == "member-2 member-3"
    });
}
