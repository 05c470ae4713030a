//! Clusters that come and go while a run is under way.

use windlass_tests::{Fleet, eventually};

use super::{MEMBERS, approve, content, of_cluster, of_run, placement, run, settle, told};

/// The placement's clusters: all, or those that have a label.
fn choose(fleet: &Fleet, only_prod_one: bool) {
    let affinity = if only_prod_one {
        "{requiredDuringSchedulingIgnoredDuringExecution: {clusterSelectorTerms: [{labelSelector: {matchExpressions: [{key: out, operator: DoesNotExist}]}}]}}"
    } else {
        "{requiredDuringSchedulingIgnoredDuringExecution: {clusterSelectorTerms: [{labelSelector: {matchExpressions: [{key: stage, operator: Exists}]}}]}}"
    };
    let manifest = placement("mesh").replace(
        "  strategy:",
        &format!("  policy: {{placementType: PickAll, affinity: {{clusterAffinity: {affinity}}}}}\n  strategy:"),
    );
    fleet.apply("hub", &manifest);
}

fn waits(fleet: &Fleet, name: &str) {
    eventually("prod waits for approval", || {
        told(fleet, name, "Progressing") == "False/UpdateRunWaiting"
            && !fleet
                .get("hub", &format!("careq {name}-before-prod"), "{.kind}")
                .is_empty()
    });
}

pub fn clusters_come_and_go(fleet: &Fleet) {
    fleet.apply("hub", &content("mesh", "1"));
    fleet.kubectl("hub", &format!("label cluster {} out=yes", MEMBERS[2]));
    choose(fleet, false);
    settle(fleet, "mesh", "mesh-1", "1");
    fleet.apply("hub", &content("mesh", "2"));
    fleet.apply("hub", &run("mesh-2", "mesh", "gated", "state: Run"));
    waits(fleet, "mesh-2");
    choose(fleet, true);
    approve(fleet, "mesh-2-before-prod");
    eventually("it is done without the cluster", || {
        told(fleet, "mesh-2", "Succeeded") == "True/UpdateRunSucceeded"
    });
    assert_eq!(
        of_cluster(fleet, "mesh-2", MEMBERS[2], "Skipped", "reason"),
        "ClusterNotSelected"
    );
    // The next run removes what is no longer placed, and one that comes back meanwhile waits.
    fleet.apply("hub", &run("mesh-3", "mesh", "gated", "state: Run"));
    waits(fleet, "mesh-3");
    choose(fleet, false);
    eventually("the cluster that has joined is told of", || {
        of_run(fleet, "mesh-3", "{.status.joinedClusters[*]}") == MEMBERS[2]
    });
    approve(fleet, "mesh-3-before-prod");
    eventually("it is done", || {
        told(fleet, "mesh-3", "Succeeded") == "True/UpdateRunSucceeded"
    });
    settle(fleet, "mesh", "mesh-4", "2");
}

pub fn a_strict_run_ends_when_clusters_change(fleet: &Fleet) {
    let strict = "state: Run, membershipChanges: Fail";
    fleet.apply("hub", &run("mesh-5", "mesh", "gated", strict));
    waits(fleet, "mesh-5");
    choose(fleet, true);
    eventually("it has failed", || {
        told(fleet, "mesh-5", "Succeeded") == "False/UpdateRunFailed"
    });
    choose(fleet, false);
}

pub fn a_cluster_that_leaves_is_skipped(fleet: &Fleet) {
    fleet.apply("hub", &content("mesh", "6"));
    fleet.apply("hub", &run("mesh-6", "mesh", "gated", "state: Run"));
    waits(fleet, "mesh-6");
    fleet.leave(MEMBERS[2], &[]).unwrap();
    approve(fleet, "mesh-6-before-prod");
    eventually("it is done without the cluster", || {
        told(fleet, "mesh-6", "Succeeded") == "True/UpdateRunSucceeded"
    });
    assert_eq!(
        of_cluster(fleet, "mesh-6", MEMBERS[2], "Skipped", "reason"),
        "ClusterLeft"
    );
}
