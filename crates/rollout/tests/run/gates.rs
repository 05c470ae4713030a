//! Approvals and waits before and after stages (hub §3.5.1, §3.5.2).

use jiff::SignedDuration;
use serde_json::{Value, json};
use windlass_api::Time;
use windlass_api::conditions::RunCondition::{
    ApprovalAccepted, ApprovalRequestApproved, ApprovalRequestCreated, Approved, Progressing,
    Succeeded, WaitTimeElapsed,
};
use windlass_api::conditions::{RunReason, Status};
use windlass_api::run::TaskStatus;
use windlass_rollout::run::{Ask, is_over};

use super::fleet::{Fleet, START, UID, message, says};

fn before() -> Value {
    json!({"beforeStageTasks": [{"type": "Approval"}]})
}

fn after() -> Value {
    let wait = json!({"type": "TimedWait", "waitTime": "1h"});
    json!({"afterStageTasks": [wait, {"type": "Approval"}]})
}

fn task(fleet: &Fleet, at: usize) -> TaskStatus {
    let stage = fleet.stage("a");
    let mut all = stage.before_stage_task_status.iter().flatten();
    let mut rest = stage.after_stage_task_status.iter().flatten();
    let tasks: Vec<_> = all.by_ref().chain(rest.by_ref()).collect();
    tasks[at].clone()
}

#[test]
fn an_approval_before_a_stage() {
    let mut fleet = Fleet::new(&[("a", 2, before())]).begun();
    let plan = fleet.plan();
    let name = "r-before-a".to_owned();
    let ask = Ask {
        name: name.clone(),
        stage: "a".to_owned(),
        before: true,
    };
    assert_eq!(plan.ask, [ask]);
    assert_eq!(plan.wake_at, None, "nothing is polled");
    assert!(fleet.pass().is_empty());
    fleet.expect(Status::False, RunReason::UpdateRunWaiting);
    assert_eq!(
        fleet.message(Progressing),
        "Stage a waits for approval request r-before-a"
    );
    let stage = fleet.stage("a").conditions.as_ref();
    assert_eq!(says(stage, Progressing), "False StageUpdatingWaiting");
    assert!(fleet.stage("a").start_time.is_none());
    let list = task(&fleet, 0).conditions;
    let created = "True StageTaskApprovalRequestCreated";
    assert_eq!(says(list.as_ref(), ApprovalRequestCreated), created);
    assert_eq!(says(list.as_ref(), ApprovalRequestApproved), "none");

    fleet.later(60);
    fleet.approve(&name);
    let plan = fleet.plan();
    assert_eq!(plan.accept, [name]);
    assert_eq!(fleet.pass(), ["b-a1"]);
    fleet.expect(Status::True, RunReason::UpdateRunProgressing);
    let list = task(&fleet, 0).conditions;
    assert_eq!(
        message(list.as_ref(), ApprovalRequestApproved),
        format!("Approved at {}; by whom is not recorded", fleet.now)
    );
    let accepted = fleet.requests[0].status.as_ref().unwrap();
    assert_ne!(says(accepted.conditions.as_ref(), ApprovalAccepted), "none");
}

#[test]
fn who_approved_is_told_where_it_is_recorded() {
    let mut fleet = Fleet::new(&[("a", 1, before())]).begun();
    fleet.pass();
    fleet.approve("r-before-a");
    fleet.requests[0].status.as_mut().unwrap().approved_by = Some("ann".into());
    fleet.pass();
    assert_eq!(
        message(task(&fleet, 0).conditions.as_ref(), ApprovalRequestApproved),
        format!("Approved by ann at {START}")
    );
}

/// What counts as an answer.
#[test]
fn answers() {
    type Change = fn(&mut Fleet);
    let rows: &[(&str, Change, bool)] = &[
        ("none", |_| {}, false),
        ("approved", |f| f.approve("r-before-a"), true),
        (
            "accepted already, the run's status was lost",
            |f| f.answer("r-before-a", ApprovalAccepted),
            true,
        ),
        (
            "approved of an older generation",
            |f| {
                f.approve("r-before-a");
                f.requests[0].metadata.generation = Some(2);
            },
            false,
        ),
        (
            "approved without a generation, as people patch it",
            |f| {
                f.approve("r-before-a");
                let status = f.requests[0].status.as_mut().unwrap();
                status.conditions.as_mut().unwrap()[0].observed_generation = None;
            },
            true,
        ),
        (
            "refused",
            |f| {
                f.approve("r-before-a");
                let status = f.requests[0].status.as_mut().unwrap();
                status.conditions.as_mut().unwrap()[0].status = "False".into();
            },
            false,
        ),
    ];
    for (name, change, opens) in rows {
        let mut fleet = Fleet::new(&[("a", 1, before())]).begun();
        fleet.pass();
        change(&mut fleet);
        assert_eq!(!fleet.pass().is_empty(), *opens, "{name}");
    }
}

#[test]
fn an_approval_that_was_accepted_can_not_be_taken_back() {
    let mut fleet = Fleet::new(&[("a", 1, before())]).begun();
    fleet.pass();
    fleet.approve("r-before-a");
    // Only the acceptance is written, and the run's status is lost.
    let plan = fleet.plan();
    for write in fleet.writes(&plan).into_iter().take(1) {
        fleet.write(write);
    }
    let status = fleet.requests[0].status.as_mut().unwrap();
    let conditions = status.conditions.as_mut().unwrap();
    assert_eq!(conditions[0].type_, Approved.as_str());
    conditions[0].status = "False".into();
    assert_eq!(fleet.pass(), ["b-a1"]);
    // And when it is recorded, the request may go.
    fleet.requests.clear();
    fleet.works(&["a1"]);
    fleet.pass();
    assert!(is_over(&fleet.run));
}

#[test]
fn a_request_that_is_deleted_is_made_again() {
    let mut fleet = Fleet::new(&[("a", 1, before())]).begun();
    fleet.pass();
    fleet.requests.clear();
    assert_eq!(fleet.plan().ask.len(), 1);
    fleet.pass();
    assert_eq!(fleet.requests.len(), 1);
    assert!(fleet.plan().ask.is_empty());
}

/// What was approved for an earlier run of the same name is not approved for this one.
#[test]
fn a_request_of_an_earlier_run() {
    type Change = fn(&mut Fleet);
    let owner = |uid: &str| {
        let text = json!({"apiVersion": "v1", "kind": "X", "name": "r", "uid": uid});
        serde_json::from_value(text).unwrap()
    };
    let of_another: &[(&str, Change)] = &[
        ("older than the run", |f| {
            f.requests[0].metadata.creation_timestamp =
                Some(Time(START - SignedDuration::from_secs(1)));
        }),
        ("owned by another", |f| {
            f.requests[0].metadata.owner_references.as_mut().unwrap()[0].uid = "other".into();
        }),
    ];
    for (name, change) in of_another {
        let mut fleet = Fleet::new(&[("a", 1, before())]).begun();
        fleet.request("r-before-a", "a");
        if name.starts_with("owned") {
            fleet.requests[0].metadata.owner_references = Some(vec![owner(UID)]);
        }
        fleet.approve("r-before-a");
        change(&mut fleet);
        let mut finalized = fleet.clone();
        assert_eq!(fleet.plan().discard, ["r-before-a"], "{name}");
        assert!(fleet.pass().is_empty(), "{name}");
        // It is made anew, and asks again.
        assert!(fleet.pass().is_empty(), "{name}");
        assert_eq!(fleet.requests.len(), 1, "{name}");
        fleet.expect(Status::False, RunReason::UpdateRunWaiting);
        fleet.approve("r-before-a");
        assert_eq!(fleet.pass(), ["b-a1"], "{name}");
        // One that is being deleted already is waited for.
        finalized.requests[0].metadata.deletion_timestamp = Some(Time(START));
        let plan = finalized.plan();
        assert!(plan.discard.is_empty() && plan.ask.is_empty(), "{name}");
        assert!(finalized.pass().is_empty(), "{name}");
    }
    // One that the run owns among others is its own.
    let mut fleet = Fleet::new(&[("a", 1, before())]).begun();
    fleet.request("r-before-a", "a");
    fleet.requests[0].metadata.owner_references = Some(vec![owner("other"), owner(UID)]);
    fleet.approve("r-before-a");
    assert_eq!(fleet.pass(), ["b-a1"]);
}

#[test]
fn a_request_about_something_else_ends_the_run() {
    let mut fleet = Fleet::new(&[("a", 1, before())]).begun();
    fleet.request("r-before-a", "b");
    fleet.pass();
    assert_eq!(
        fleet.message(Succeeded),
        "stage a: approval request r-before-a is about stage b of run r, not about stage a of this one; \
         delete it and start another run"
    );
}

/// Both tasks after a stage are looked at each time, in whatever order they are done.
#[test]
fn tasks_after_a_stage() {
    let mut fleet = Fleet::new(&[("a", 1, after()), ("b", 1, json!({}))]).begun();
    fleet.pass();
    assert!(fleet.requests.is_empty(), "not asked for before its time");
    fleet.later(100);
    fleet.works(&["a1"]);
    fleet.pass();
    fleet.expect(Status::False, RunReason::UpdateRunWaiting);
    let until = START + SignedDuration::from_secs(3700);
    assert_eq!(
        fleet.message(Progressing),
        format!("Stage a waits until {until} (1h) and for approval request r-after-a")
    );
    let stage = fleet.stage("a").conditions.as_ref();
    assert_eq!(says(stage, Progressing), "False StageUpdatingWaiting");
    assert_eq!(fleet.plan().wake_at, Some(until));

    // The approval first.
    let mut early = fleet.clone();
    early.approve("r-after-a");
    assert!(early.pass().is_empty());
    assert_eq!(
        early.message(Progressing),
        format!("Stage a waits until {until} (1h)")
    );
    early.now = until - SignedDuration::from_secs(1);
    assert!(early.pass().is_empty());
    early.now = until;
    assert_eq!(early.pass(), ["b-b1"]);
    let elapsed = task(&early, 0).conditions;
    assert_eq!(
        says(elapsed.as_ref(), WaitTimeElapsed),
        "True AfterStageTaskWaitTimeElapsed"
    );
    assert_eq!(message(elapsed.as_ref(), WaitTimeElapsed), "1h have passed");
    let stage = early.stage("a");
    assert_eq!(
        says(stage.conditions.as_ref(), Succeeded),
        "True StageUpdatingSucceeded"
    );
    assert_eq!(stage.end_time.as_ref().unwrap().0, until);

    // The wait first.
    fleet.now = until;
    assert!(fleet.pass().is_empty());
    assert_eq!(
        fleet.message(Progressing),
        "Stage a waits for approval request r-after-a"
    );
    assert_eq!(fleet.plan().wake_at, None);
    fleet.approve("r-after-a");
    assert_eq!(fleet.pass(), ["b-b1"]);
}

/// The wait counts from when the last cluster of this stage was done by this run (report 29), and neither a
/// stop nor a restart of the hub makes it longer.
#[test]
fn a_wait_survives_stop_and_restart() {
    use windlass_api::run::RunState::{Run, Stop};
    let wait = json!({
        "maxConcurrency": 2,
        "afterStageTasks": [{"type": "TimedWait", "waitTime": "1h"}],
    });
    let mut fleet = Fleet::new(&[("a", 2, wait), ("b", 1, json!({}))]).begun();
    fleet.pass();
    fleet.works(&["a1"]);
    fleet.pass();
    fleet.later(600);
    fleet.works(&["a2"]);
    fleet.pass();
    let until = START + SignedDuration::from_secs(600 + 3600);
    assert_eq!(fleet.plan().wake_at, Some(until));
    fleet.later(60);
    fleet.state(Stop);
    fleet.pass();
    fleet.expect(Status::False, RunReason::UpdateRunStopped);
    assert_eq!(fleet.plan().wake_at, None);
    fleet.later(60);
    fleet.state(Run);
    fleet.pass();
    assert_eq!(fleet.plan().wake_at, Some(until));
    // Passed while it stood: resumed, it goes on at once.
    fleet.state(Stop);
    fleet.pass();
    fleet.now = until + SignedDuration::from_secs(60);
    assert!(fleet.pass().is_empty());
    fleet.state(Run);
    assert_eq!(fleet.pass(), ["b-b1"]);
}

#[test]
fn a_stage_without_a_cluster_has_no_gates() {
    let mut gates = before();
    gates
        .as_object_mut()
        .unwrap()
        .extend(after().as_object().unwrap().clone());
    let mut fleet = Fleet::new(&[("a", 0, gates), ("b", 1, json!({}))]).begun();
    assert_eq!(fleet.pass(), ["b-b1"]);
    assert!(fleet.requests.is_empty());
}

/// Each stage asks for itself.
#[test]
fn an_approval_opens_one_gate() {
    let mut fleet = Fleet::new(&[("a", 1, before()), ("b", 1, before())]).begun();
    fleet.pass();
    fleet.approve("r-before-a");
    fleet.pass();
    fleet.works(&["a1"]);
    assert!(fleet.pass().is_empty());
    assert_eq!(
        fleet.message(Progressing),
        "Stage b waits for approval request r-before-b"
    );
}
