//! The hub dies at every write that the leaving of a cluster takes.

use windlass_tests::{Fleet, eventually};

const ALONE: [&str; 1] = ["--leader-elect=false"];
/// More writes than that takes; the walk ends when a failpoint is not reached any more.
const MOST_WRITES: usize = 12;

#[test]
fn a_cluster_leaves_whenever_the_hub_dies_and_nothing_untrue_is_said() {
    let fleet = Fleet::up("dying", 1);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    let walked = (1..=MOST_WRITES)
        .take_while(|number| leaves(&fleet, *number))
        .count();
    println!("{walked} writes");
    assert!((3..MOST_WRITES).contains(&walked), "{walked} writes");
}

/// Whether there was that write. One that is refused, as when the hub asks for its rights to be taken away once
/// more, kills nobody.
fn leaves(fleet: &Fleet, number: usize) -> bool {
    let reached = || fleet.log().matches("failpoint mode").count();
    let before = reached();
    fleet.join("member-1");
    let alone = |variables: &[(&str, &str)]| {
        let mut hub = fleet.spawn_hub_with(&fleet.hub_kubeconfig(), &ALONE, variables);
        eventually("the hub is ready, or has died", || {
            hub.is_ready() || hub.ended().is_some()
        });
        hub
    };
    let hub = alone(&[]);
    eventually("the cluster has joined", || {
        let healthy = "{.status.conditions[?(@.type==\"Healthy\")].status}";
        fleet.get("hub", "cluster member-1", healthy) == "True"
    });
    drop(hub);
    let failpoint = format!("after:{number}");
    let mut hub = alone(&[("WINDLASS_FAILPOINT", &failpoint)]);
    fleet.kubectl("hub", "delete cluster member-1 --wait=false");
    let is_gone = || fleet.get("hub", "cluster member-1", "{.kind}").is_empty();
    eventually(
        &format!("{failpoint}: it dies, or has nothing to do"),
        || hub.ended().is_some() || is_gone(),
    );
    if hub.ended().is_some() {
        hub = alone(&[]);
    }
    eventually(&format!("{failpoint}: the cluster is gone"), is_gone);
    drop(hub);
    let said = "events -A --field-selector=reason=MemberClusterLeftBehind";
    let said = fleet.get("hub", said, "{.items[*].note}{.items[*].message}");
    assert_eq!(said, "", "{failpoint}: nothing is left behind");
    let secret = "secret windlass-cluster-member-1 -n fleet-system";
    assert_eq!(fleet.get("hub", secret, "{.kind}"), "", "{failpoint}");
    for what in [
        "clusterrole windlass-hub",
        "clusterrolebinding windlass-hub",
    ] {
        eventually(&format!("{failpoint}: no {what}"), || {
            fleet.get("member-1", what, "{.kind}").is_empty()
        });
    }
    reached() > before
}
