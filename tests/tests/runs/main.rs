//! Staged update runs on a real fleet, with kubectl as a user has it.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod back;
mod begin;
mod members;

use windlass_tests::{Fleet, eventually};

const MEMBERS: [&str; 3] = ["member-1", "member-2", "member-3"];

/// A placement of the namespace of its name that waits for update runs.
fn placement(name: &str) -> String {
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {{name: {name}}}
spec:
  resourceSelectors: [{{group: '', version: v1, kind: Namespace, name: {name}}}]
  strategy: {{type: External}}
"
    )
}

/// A namespace with a ConfigMap of that version.
fn content(name: &str, version: &str) -> String {
    format!(
        "
{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: app, namespace: {name}}}, data: {{version: '{version}'}}}}
"
    )
}

fn strategy(name: &str, stages: &str) -> String {
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterStagedUpdateStrategy
metadata: {{name: {name}}}
spec: {{stages: {stages}}}
"
    )
}

fn run(name: &str, placement: &str, strategy: &str, more: &str) -> String {
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterStagedUpdateRun
metadata: {{name: {name}}}
spec: {{placementName: {placement}, stagedRolloutStrategyName: {strategy}, {more}}}
"
    )
}

/// `status/reason` of a condition of a run.
fn told(fleet: &Fleet, run: &str, type_: &str) -> String {
    let field = |field: &str| {
        let path = format!("{{.status.conditions[?(@.type==\"{type_}\")].{field}}}");
        fleet.get("hub", &format!("csur {run}"), &path)
    };
    format!("{}/{}", field("status"), field("reason"))
}

fn of_run(fleet: &Fleet, run: &str, path: &str) -> String {
    fleet.get("hub", &format!("csur {run}"), path)
}

/// What runs on each member, and `-` where nothing does.
fn versions(fleet: &Fleet, name: &str) -> String {
    let of = |member: &&str| {
        let found = fleet.get(
            member,
            &format!("-n {name} configmap app"),
            "{.data.version}",
        );
        if found.is_empty() {
            "-".to_owned()
        } else {
            found
        }
    };
    MEMBERS.iter().map(of).collect::<Vec<_>>().join(" ")
}

/// Approves as a user of the peer does.
fn approve(fleet: &Fleet, request: &str) {
    approve_kind(fleet, "careq", request);
}

fn approve_kind(fleet: &Fleet, kind: &str, request: &str) {
    let patch = r#"{"status":{"conditions":[{"type":"Approved","status":"True","reason":"Reviewed","message":"","lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":1}]}}"#;
    fleet.kubectl(
        "hub",
        &format!("patch {kind} {request} --subresource status --type merge -p {patch}"),
    );
}

fn joined() -> Fleet {
    let mut fleet = Fleet::up("runs", 3);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    fleet.start_hub();
    for (member, stage) in MEMBERS.iter().zip(["canary", "prod", "prod"]) {
        fleet.join(member);
        fleet.kubectl("hub", &format!("label cluster {member} stage={stage}"));
    }
    fleet.apply(
        "hub",
        &strategy(
            "at-once",
            "[{name: all, labelSelector: {}, maxConcurrency: 3}]",
        ),
    );
    fleet.apply(
        "hub",
        &strategy(
            "one-by-one",
            "[{name: all, labelSelector: {}, maxConcurrency: 1}]",
        ),
    );
    fleet.apply(
        "hub",
        &strategy(
            "gated",
            "[{name: canary, labelSelector: {matchLabels: {stage: canary}}, afterStageTasks: [{type: TimedWait, waitTime: 2s}]},
              {name: prod, labelSelector: {matchLabels: {stage: prod}}, beforeStageTasks: [{type: Approval}]}]",
        ),
    );
    fleet
}

#[test]
fn runs_on_a_real_fleet() {
    let fleet = joined();
    a_version_goes_stage_by_stage(&fleet);
    begin::what_can_not_begin_says_why(&fleet);
    begin::a_run_that_is_stopped_stands(&fleet);
    begin::another_run_takes_over(&fleet);
    begin::an_older_version_comes_back(&fleet);
    begin::a_namespace_has_runs_of_its_own(&fleet);
    begin::a_rolling_placement_is_handed_over_as_it_is(&fleet);
    back::failures_end_a_run_and_clusters_go_back(&fleet);
    back::failures_within_the_threshold_are_passed_over(&fleet);
    members::clusters_come_and_go(&fleet);
    members::a_strict_run_ends_when_clusters_change(&fleet);
    members::a_cluster_that_leaves_is_skipped(&fleet);
}

fn a_version_goes_stage_by_stage(fleet: &Fleet) {
    fleet.apply("hub", &content("web", "1"));
    fleet.apply("hub", &placement("web"));
    eventually("the status names the kind that moves it", || {
        let message = fleet.get(
            "hub",
            "crp web",
            "{.status.conditions[?(@.type==\"ClusterResourcePlacementRolloutStarted\")].message}",
        );
        message.contains("ClusterStagedUpdateRun")
    });
    fleet.apply("hub", &run("web-1", "web", "gated", "state: Initialize"));
    eventually("it is initialized", || {
        told(fleet, "web-1", "Initialized") == "True/UpdateRunInitializedSuccessfully"
    });
    assert_eq!(versions(fleet, "web"), "- - -");
    assert_eq!(told(fleet, "web-1", "Progressing"), "/");
    fleet.kubectl(
        "hub",
        "patch csur web-1 --type merge -p {\"spec\":{\"state\":\"Run\"}}",
    );
    eventually("the canary is done and prod waits for approval", || {
        told(fleet, "web-1", "Progressing") == "False/UpdateRunWaiting"
            && fleet.get("hub", "careq web-1-before-prod", "{.spec.targetStage}") == "prod"
    });
    assert_eq!(versions(fleet, "web"), "1 - -");
    let waited = of_run(
        fleet,
        "web-1",
        "{.status.stagesStatus[0].afterStageTaskStatus[0].conditions[?(@.type==\"WaitTimeElapsed\")].status}",
    );
    assert_eq!(waited, "True");
    approve(fleet, "web-1-before-prod");
    eventually("the run is done", || {
        told(fleet, "web-1", "Succeeded") == "True/UpdateRunSucceeded"
    });
    assert_eq!(versions(fleet, "web"), "1 1 1");
    let accepted = fleet.get(
        "hub",
        "careq web-1-before-prod",
        "{.status.conditions[?(@.type==\"ApprovalAccepted\")].status}",
    );
    assert_eq!(accepted, "True");
    eventually("the placement tells of one version everywhere", || {
        fleet.get("hub", "crp web", "{.status.observedResourceIndex}") == "0"
    });
}

/// Rolls a version out everywhere at once.
fn settle(fleet: &Fleet, name: &str, run_name: &str, version: &str) {
    fleet.apply("hub", &content(name, version));
    fleet.apply("hub", &run(run_name, name, "at-once", "state: Run"));
    eventually("the version is everywhere", || {
        told(fleet, run_name, "Succeeded") == "True/UpdateRunSucceeded"
    });
    assert_eq!(versions(fleet, name), [version; 3].join(" "));
}

fn set_state(fleet: &Fleet, run: &str, state: &str) {
    let patch = format!("{{\"spec\":{{\"state\":\"{state}\"}}}}");
    fleet.kubectl("hub", &format!("patch csur {run} --type merge -p {patch}"));
}

/// A field of a cluster's condition in a run's stage.
fn of_cluster(fleet: &Fleet, run: &str, cluster: &str, type_: &str, field: &str) -> String {
    let path = format!(
        "{{.status.stagesStatus[*].clusters[?(@.clusterName==\"{cluster}\")].conditions[?(@.type==\"{type_}\")].{field}}}"
    );
    of_run(fleet, run, &path)
}
