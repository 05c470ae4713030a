//! Staged update runs on a real fleet, with kubectl as a user has it.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

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
    let patch = r#"{"status":{"conditions":[{"type":"Approved","status":"True","reason":"Reviewed","message":"","lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":1}]}}"#;
    fleet.kubectl(
        "hub",
        &format!("patch careq {request} --subresource status --type merge -p {patch}"),
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
