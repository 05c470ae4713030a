//! Runs as people see them, from made-up statuses.

use serde_json::{Value, json};
use windlass_api::scoped::{ApprovalRequest, UpdateRun};
use windlass_cluster::ApiError;

use super::{is_under_way, text, view};

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({ "type": type_, "status": status, "reason": reason, "message": message,
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

pub fn run(state: &str, status: &Value) -> UpdateRun {
    serde_json::from_value(json!({
        "metadata": { "name": "web-3", "uid": "u", "generation": 1 },
        "spec": { "placementName": "web", "stagedRolloutStrategyName": "careful",
                  "resourceSnapshotIndex": "3", "state": state },
        "status": status,
    }))
    .unwrap()
}

pub fn request() -> ApprovalRequest {
    serde_json::from_value(json!({
        "metadata": { "name": "web-3-after-canary", "generation": 1, "resourceVersion": "7" },
        "spec": { "parentStageRollout": "web-3", "targetStage": "canary" },
    }))
    .unwrap()
}

/// A run whose first stage is done, but for a wait and an approval.
pub fn asks() -> Value {
    let cluster =
        |name: &str, conditions: Value| json!({ "clusterName": name, "conditions": conditions });
    json!({
        "resourceSnapshotIndexUsed": "3",
        "stagedUpdateStrategySnapshot": { "stages": [
            { "name": "canary", "afterStageTasks": [{ "type": "TimedWait", "waitTime": "10m" }, { "type": "Approval" }] },
            { "name": "prod", "beforeStageTasks": [{ "type": "Approval" }] },
        ] },
        "stagesStatus": [
            {
                "stageName": "canary",
                "clusters": [
                    cluster("east", json!([
                        condition("Started", "True", "ClusterUpdatingStarted", ""),
                        condition("Succeeded", "True", "ClusterUpdatingSucceeded", ""),
                    ])),
                    cluster("west", json!([
                        condition("Started", "True", "ClusterUpdatingStarted", ""),
                        condition("Succeeded", "False", "ClusterUpdatingFailed", "apply\nfailed"),
                    ])),
                ],
                "afterStageTaskStatus": [
                    { "type": "TimedWait" },
                    { "type": "Approval", "approvalRequestName": "web-3-after-canary", "conditions": [
                        condition("ApprovalRequestCreated", "True", "StageTaskApprovalRequestCreated", "") ] },
                ],
                "conditions": [condition("Progressing", "False", "StageUpdatingWaiting", "Waiting")],
            },
            {
                "stageName": "prod",
                "clusters": [{ "clusterName": "a" }, { "clusterName": "b" }],
                "beforeStageTaskStatus": [{ "type": "Approval", "approvalRequestName": "web-3-before-prod" }],
            },
        ],
        "deletionStageStatus": { "stageName": "kubernetes-fleet.io/deleteStage", "clusters": [{ "clusterName": "old" }] },
        "conditions": [
            condition("Initialized", "True", "UpdateRunInitializedSuccessfully", ""),
            condition("Progressing", "False", "UpdateRunWaiting", "Stage canary waits"),
        ],
    })
}

fn at(time: &str) -> jiff::Timestamp {
    time.parse().unwrap()
}

#[test]
fn a_list() {
    let mut other = run("Initialize", &json!({}));
    other.metadata.namespace = Some("shop".to_owned());
    let views = [view::of(&run("Run", &asks())), view::of(&other)];
    let expected = "\
RUN          PLACEMENT   INDEX   STAGE   DONE   FAILED   SKIPPED   STATE     SINCE
web-3        web         3       1/2     1/4    1        0         Waiting   5m
shop/web-3   web         3       0/0     0/0    0        0         Pending   -
";
    assert_eq!(text::list(&views, at("2026-01-01T00:05:00Z")), expected);
    assert_eq!(
        text::list(&[], at("2026-01-01T00:05:00Z")),
        "there are no update runs\n"
    );
}

#[test]
fn a_run_that_waits() {
    let view = view::of(&run("Run", &asks()));
    let expected = "\
web-3: placement web, index 3, strategy careful
Waiting for 5m; 1 of 4 clusters done, 1 failed
  Stage canary waits

STAGE       STATE     DONE   FAILED   SKIPPED   SINCE
canary      Waiting   1/2    1        0         5m
prod        Pending   0/2    0        0         -
(removal)   Pending   0/1    0        0         -

TASK                         STATE     DETAILS
after canary: wait of 10m    Waiting   5m left
after canary: approval       Waiting   web-3-after-canary; to approve: windlass run approve web-3 canary -n shop
before prod: approval        Pending

CLUSTER   STAGE       STATE     SINCE   MESSAGE
east      canary      Updated   5m
west      canary      Failed    5m      apply failed
a         prod        Pending   -
b         prod        Pending   -
old       (removal)   Pending   -
";
    let found = text::show(&view, " -n shop", at("2026-01-01T00:05:00Z"), None);
    assert_eq!(squeezed(&found), squeezed(expected));
    let short = text::show(&view, "", at("2026-01-01T00:05:00Z"), Some(2));
    assert!(
        short.contains("west") && !short.contains("east") && short.ends_with("and 3 more\n"),
        "{short}"
    );
}

/// With one space for several.
fn squeezed(text: &str) -> String {
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn who_was_skipped_joined_and_goes_back() {
    let status = json!({
        "stagesStatus": [{ "stageName": "all", "clusters": [
            { "clusterName": "gone", "conditions": [condition("Skipped", "True", "ClusterLeft", "The cluster has left the fleet")] },
            { "clusterName": "east", "conditions": [condition("Started", "True", "S", ""), condition("Succeeded", "False", "F", "broken")] },
        ], "conditions": [condition("Progressing", "False", "StageUpdatingFailed", ""), condition("Succeeded", "False", "StageUpdatingFailed", "too many")] }],
        "joinedClusters": ["new-1", "new-2"],
        "rollbackStatus": [{ "stageName": "all", "clusters": [
            { "clusterName": "east", "conditions": [condition("Started", "True", "S", "")] },
            { "clusterName": "west", "conditions": [condition("Started", "True", "S", ""), condition("Succeeded", "True", "S", "")] },
        ] }],
        "conditions": [
            condition("Initialized", "True", "UpdateRunInitializedSuccessfully", ""),
            condition("RolledBack", "Unknown", "UpdateRunRollingBack", "too many"),
            condition("Progressing", "True", "UpdateRunRollingBack", "Rolling back stage all"),
        ],
    });
    let view = view::of(&run("Run", &status));
    let text = text::show(&view, "", at("2026-01-01T00:00:05Z"), None);
    for line in [
        "Rolling back for 5s; 0 of 2 clusters done, 1 failed, 1 skipped",
        "gone all Skipped 5s The cluster has left the fleet",
        "Joined since, and waiting for the next run: new-1, new-2",
        "The way back: 1 of 2 clusters are back",
        "east all Going back 5s",
        "west all Back 5s",
    ] {
        assert!(squeezed(&text).contains(line), "{line}\n{text}");
    }
}

#[test]
fn phases() {
    let initialized = || {
        condition(
            "Initialized",
            "True",
            "UpdateRunInitializedSuccessfully",
            "",
        )
    };
    let progressing = |status: &str, reason: &str| condition("Progressing", status, reason, "");
    let failed = || condition("Succeeded", "False", "UpdateRunFailed", "");
    let rows = [
        ("Run", vec![], "Pending"),
        (
            "Run",
            vec![condition(
                "Initialized",
                "Unknown",
                "UpdateRunInitializing",
                "",
            )],
            "Initializing",
        ),
        (
            "Run",
            vec![condition(
                "Initialized",
                "False",
                "UpdateRunInitializedFailed",
                "",
            )],
            "Initialization failed",
        ),
        (
            "Initialize",
            vec![initialized()],
            "Initialized, not started",
        ),
        ("Run", vec![initialized()], "Starting"),
        (
            "Run",
            vec![initialized(), progressing("True", "UpdateRunProgressing")],
            "Running",
        ),
        (
            "Run",
            vec![initialized(), progressing("False", "UpdateRunStuck")],
            "Stuck",
        ),
        (
            "Stop",
            vec![initialized(), progressing("Unknown", "UpdateRunStopping")],
            "Stopping",
        ),
        (
            "Stop",
            vec![initialized(), progressing("False", "UpdateRunStopped")],
            "Stopped",
        ),
        (
            "Run",
            vec![
                initialized(),
                condition("Succeeded", "True", "UpdateRunSucceeded", ""),
            ],
            "Succeeded",
        ),
        ("Run", vec![initialized(), failed()], "Failed"),
        (
            "Run",
            vec![
                condition("Superseded", "True", "UpdateRunSuperseded", ""),
                failed(),
            ],
            "Superseded",
        ),
        (
            "Run",
            vec![
                condition("RolledBack", "True", "UpdateRunRolledBack", ""),
                failed(),
            ],
            "Failed, rolled back",
        ),
        (
            "Run",
            vec![
                condition("RolledBack", "False", "UpdateRunRollbackFailed", ""),
                failed(),
            ],
            "Failed, rollback failed",
        ),
    ];
    for (state, conditions, expected) in rows {
        let run = run(state, &json!({ "conditions": conditions }));
        let view = view::of(&run);
        assert_eq!(view.state.text(), expected);
        let open = ["Starting", "Running", "Stuck", "Stopping", "Stopped"].contains(&expected);
        assert_eq!(is_under_way(&run), open, "{expected}");
    }
    // What it was told, and has not looked at yet.
    for (state, reason, expected) in [
        ("Stop", "UpdateRunWaiting", "Stopping"),
        ("Run", "UpdateRunStopped", "Starting"),
    ] {
        let mut run = run(
            state,
            &json!({ "conditions": [initialized(), progressing("False", reason)] }),
        );
        run.metadata.generation = Some(2);
        assert_eq!(view::of(&run).state.text(), expected);
    }
}

#[test]
fn programs_see_what_people_see() {
    let told = serde_json::to_value(view::of(&run("Run", &asks()))).unwrap();
    for (pointer, expected) in [
        ("/run", json!("web-3")),
        ("/placement", json!("web")),
        ("/index", json!("3")),
        ("/state", json!("Waiting")),
        ("/ended", json!(false)),
        ("/doneClusters", json!(1)),
        ("/totalClusters", json!(4)),
        ("/stages/0/failedClusters", json!(1)),
        ("/stages/0/tasks/0/until", json!("2026-01-01T00:10:00Z")),
        (
            "/stages/0/tasks/1/approvalRequest",
            json!("web-3-after-canary"),
        ),
        ("/stages/0/clusters/1/state", json!("Failed")),
    ] {
        assert_eq!(told.pointer(pointer), Some(&expected), "{pointer}");
    }
}

#[test]
fn who_may_look_in_a_namespace_only_is_told_to_name_it() {
    let rejected = ApiError::Rejected("forbidden at the cluster scope".into());
    let outage = ApiError::transient("away");
    for (error, namespace, expected) in [
        (&rejected, "", true),
        (&rejected, "shop", false),
        (&outage, "", false),
    ] {
        let text = super::refused("reading the runs", error, namespace).to_string();
        assert_eq!(
            text.ends_with("(for a StagedUpdateRun give -n NAMESPACE)"),
            expected,
            "{text}"
        );
    }
}
