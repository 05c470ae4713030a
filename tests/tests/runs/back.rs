//! Failures, and the way back.

use windlass_tests::{Fleet, eventually};

use super::{MEMBERS, content, of_cluster, of_run, placement, run, settle, told, versions};

/// Content that can't be applied where there is an immutable ConfigMap of that name.
fn with_more(name: &str, version: &str) -> String {
    let more = format!(
        "---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: more, namespace: {name}}}, data: {{a: b}}}}\n"
    );
    content(name, version) + &more
}

fn block(fleet: &Fleet, member: &str, name: &str) {
    let manifest = format!(
        "{{apiVersion: v1, kind: ConfigMap, immutable: true, metadata: {{name: more, namespace: {name}}}, data: {{x: other}}}}"
    );
    fleet.apply(member, &manifest);
}

pub fn failures_end_a_run_and_clusters_go_back(fleet: &Fleet) {
    fleet.apply("hub", &content("shop", "1"));
    fleet.apply("hub", &placement("shop"));
    settle(fleet, "shop", "shop-1", "1");
    block(fleet, MEMBERS[1], "shop");
    fleet.apply("hub", &with_more("shop", "2"));
    let threshold = "state: Run, failureThreshold: {maxFailures: 0, onExceeded: Rollback}";
    fleet.apply("hub", &run("shop-2", "shop", "one-by-one", threshold));
    eventually("it has failed and gone back", || {
        told(fleet, "shop-2", "RolledBack") == "True/UpdateRunRolledBack"
    });
    assert_eq!(told(fleet, "shop-2", "Succeeded"), "False/UpdateRunFailed");
    assert_eq!(versions(fleet, "shop"), "1 1 1");
    let why = of_cluster(fleet, "shop-2", MEMBERS[1], "Succeeded", "message");
    assert!(why.contains("immutable"), "{why}");
    // In reverse order, and only those that were moved.
    let way = "{.status.rollbackStatus[*].clusters[*].clusterName}";
    assert_eq!(of_run(fleet, "shop-2", way), "member-2 member-1");
    assert_eq!(
        of_cluster(fleet, "shop-2", MEMBERS[2], "Started", "status"),
        ""
    );
    eventually("the placement tells of the earlier version", || {
        fleet.get("hub", "crp shop", "{.status.observedResourceIndex}") == "0"
    });
}

pub fn failures_within_the_threshold_are_passed_over(fleet: &Fleet) {
    let threshold = "state: Run, failureThreshold: {maxFailures: 34%, count: [ApplyFailed]}";
    fleet.apply("hub", &run("shop-3", "shop", "one-by-one", threshold));
    eventually("it is done", || {
        told(fleet, "shop-3", "Succeeded") == "True/UpdateRunSucceeded"
    });
    assert_eq!(
        of_cluster(fleet, "shop-3", MEMBERS[1], "Succeeded", "status"),
        "False"
    );
    let message = of_run(
        fleet,
        "shop-3",
        "{.status.conditions[?(@.type==\"Succeeded\")].message}",
    );
    assert!(message.contains("1 failed"), "{message}");
}
