//! Stop and resume (hub §3.6, §3.11; trap T4), and which of several runs a placement follows.

use jiff::SignedDuration;
use serde_json::json;
use windlass_api::Time;
use windlass_api::conditions::RunCondition::{Progressing, Succeeded};
use windlass_api::conditions::{RunReason, Status};
use windlass_api::run::RunState::{self, Initialize, Run, Stop};
use windlass_api::scoped::UpdateRun;
use windlass_rollout::run::{is_over, superseded};

use super::fleet::{Fleet, NEW, START, says};

fn stopped(fleet: &Fleet, stage: &str) {
    fleet.expect(Status::False, RunReason::UpdateRunStopped);
    assert_eq!(
        fleet.message(Progressing),
        format!("The run stands before or in stage {stage}; state Run resumes it")
    );
    assert_eq!(fleet.plan().wake_at, None);
    assert!(fleet.writes(&fleet.plan()).is_empty());
}

#[test]
fn while_an_approval_before_a_stage_is_waited_for() {
    let gate = json!({"beforeStageTasks": [{"type": "Approval"}]});
    let mut fleet = Fleet::new(&[("a", 1, gate)]).begun();
    fleet.pass();
    fleet.state(Stop);
    fleet.pass();
    stopped(&fleet, "a");
    let stage = fleet.stage("a").conditions.as_ref();
    assert_eq!(says(stage, Progressing), "False StageUpdatingStopped");
    // Granted meanwhile, it does not start the stage.
    fleet.approve("r-before-a");
    assert!(fleet.pass().is_empty());
    stopped(&fleet, "a");
    fleet.state(Run);
    assert_eq!(fleet.pass(), ["b-a1"]);
}

#[test]
fn while_a_cluster_is_updated() {
    let mut fleet = Fleet::new(&[("a", 3, json!({"maxConcurrency": 2}))]).begun();
    fleet.pass();
    fleet.state(Stop);
    assert!(fleet.pass().is_empty());
    fleet.expect(Status::Unknown, RunReason::UpdateRunStopping);
    assert_eq!(
        fleet.message(Progressing),
        "Stage a: waiting for 2 cluster(s) under way before the run stands"
    );
    let stage = fleet.stage("a").conditions.as_ref();
    assert_eq!(says(stage, Progressing), "Unknown StageUpdatingStopping");
    fleet.works(&["a1"]);
    assert!(fleet.pass().is_empty());
    fleet.expect(Status::Unknown, RunReason::UpdateRunStopping);
    // One that takes long is told of.
    fleet.later(300);
    fleet.hangs("a2", "0 of 2");
    fleet.pass();
    fleet.expect(Status::False, RunReason::UpdateRunStuck);
    assert_eq!(
        fleet.message(Progressing),
        "Stopping in stage a takes long: a2 (0 of 2)"
    );
    fleet.works(&["a2"]);
    assert!(fleet.pass().is_empty());
    stopped(&fleet, "a");
    fleet.state(Run);
    assert_eq!(fleet.pass(), ["b-a3"]);
    fleet.expect(Status::True, RunReason::UpdateRunProgressing);
}

/// A binding whose write was lost is under way, too, and is still written.
#[test]
fn while_a_write_was_lost() {
    let mut fleet = Fleet::new(&[("a", 2, json!({}))]).begun();
    fleet.run.status = Some(fleet.plan().status);
    fleet.state(Stop);
    assert_eq!(fleet.pass(), ["b-a1"]);
    fleet.expect(Status::Unknown, RunReason::UpdateRunStopping);
    fleet.works(&["a1"]);
    fleet.pass();
    stopped(&fleet, "a");
}

/// The last cluster of all: the run stands all the same, and ends when it is told to run.
#[test]
fn while_the_last_cluster_is_updated() {
    let mut fleet = Fleet::new(&[("a", 1, json!({}))]).begun();
    fleet.pass();
    fleet.state(Stop);
    fleet.works(&["a1"]);
    fleet.pass();
    stopped(&fleet, "a");
    assert!(!is_over(&fleet.run));
    fleet.state(Run);
    fleet.pass();
    assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded");
}

#[test]
fn between_two_stages() {
    let mut fleet = Fleet::new(&[("a", 1, json!({})), ("b", 1, json!({}))]).begun();
    fleet.pass();
    fleet.works(&["a1"]);
    fleet.state(Stop);
    assert!(fleet.pass().is_empty());
    stopped(&fleet, "a");
    fleet.state(Run);
    assert_eq!(fleet.pass(), ["b-b1"]);
}

/// Approvals are accepted only when the run goes on.
#[test]
fn while_tasks_after_a_stage_are_waited_for() {
    let tasks = json!({"afterStageTasks": [{"type": "Approval"}]});
    let mut fleet = Fleet::new(&[("a", 1, tasks), ("b", 1, json!({}))]).begun();
    fleet.pass();
    fleet.works(&["a1"]);
    fleet.pass();
    fleet.state(Stop);
    fleet.pass();
    stopped(&fleet, "a");
    fleet.approve("r-after-a");
    assert!(fleet.plan().accept.is_empty());
    assert!(fleet.pass().is_empty());
    fleet.state(Run);
    assert_eq!(fleet.plan().accept, ["r-after-a"]);
    assert_eq!(fleet.pass(), ["b-b1"]);
}

fn removing() -> Fleet {
    let mut fleet = Fleet::new(&[("a", 1, json!({}))]);
    for cluster in ["x", "y"] {
        fleet.join(cluster, "none");
        fleet.unselect(cluster);
    }
    fleet.begun()
}

/// Trap T4: nothing is removed, so nothing is waited for.
#[test]
fn before_anything_is_removed() {
    let mut fleet = removing();
    fleet.pass();
    fleet.works(&["a1"]);
    // The last stage is done, and what it leads to is lost.
    let plan = fleet.plan();
    assert_eq!(plan.remove, ["b-x", "b-y"]);
    fleet.state(Stop);
    assert!(fleet.pass().is_empty());
    fleet.expect(Status::False, RunReason::UpdateRunStopped);
    fleet.state(Run);
    assert_eq!(fleet.pass(), ["-b-x", "-b-y"]);

    // The stage that removes had its turn, and not one removal was recorded.
    let mut fleet = Fleet::new(&[("a", 0, json!({}))]);
    fleet.join("x", "none");
    fleet.unselect("x");
    let mut fleet = fleet.begun();
    fleet.state(Stop);
    assert!(fleet.pass().is_empty());
    stopped(&fleet, "kubernetes-fleet.io/deleteStage");
    fleet.state(Run);
    assert_eq!(fleet.pass(), ["-b-x"]);
}

#[test]
fn while_removals_are_under_way() {
    let mut fleet = removing();
    fleet.pass();
    fleet.works(&["a1"]);
    fleet.pass();
    fleet.state(Stop);
    assert!(fleet.pass().is_empty());
    fleet.expect(Status::Unknown, RunReason::UpdateRunStopping);
    fleet.bindings.retain(|b| b.name != "b-x");
    fleet.pass();
    fleet.expect(Status::Unknown, RunReason::UpdateRunStopping);
    fleet.bindings.retain(|b| b.name != "b-y");
    fleet.pass();
    stopped(&fleet, "kubernetes-fleet.io/deleteStage");
    fleet.state(Run);
    fleet.pass();
    assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded");
}

/// A removal that was recorded is under way though its write was lost.
#[test]
fn while_a_removal_was_lost() {
    let mut fleet = removing();
    fleet.pass();
    fleet.works(&["a1"]);
    fleet.run.status = Some(fleet.plan().status);
    fleet.state(Stop);
    assert_eq!(fleet.pass(), ["-b-x", "-b-y"]);
    fleet.expect(Status::Unknown, RunReason::UpdateRunStopping);
}

#[test]
fn again_and_again() {
    let mut fleet = Fleet::new(&[("a", 4, json!({}))]).begun();
    for _ in 0..4 {
        fleet.state(Run);
        assert_eq!(fleet.pass().len(), 1);
        fleet.state(Stop);
        assert!(fleet.pass().is_empty());
        for binding in &mut fleet.bindings {
            binding.readiness = windlass_status::ready::Readiness::Ready;
        }
        assert!(fleet.pass().is_empty());
        stopped(&fleet, "a");
    }
    fleet.state(Run);
    fleet.pass();
    assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded");
    assert_eq!(fleet.asking(NEW).len(), 4);
}

/// A run: its name, when it was created, what it is told, how far it is.
fn run((name, created, state, far): (&str, i64, RunState, Far)) -> UpdateRun {
    let mut fleet = Fleet::new(&[("a", 1, json!({"beforeStageTasks": [{"type": "Approval"}]}))]);
    fleet.run.metadata.name = Some(name.to_owned());
    let created = START + SignedDuration::from_secs(created);
    fleet.run.metadata.creation_timestamp = Some(Time(created));
    fleet.run.spec.state = Some(Run);
    let mut fleet = match far {
        Far::New => fleet,
        _ => fleet.begun(),
    };
    if far == Far::Begun || far == Far::Over {
        fleet.pass();
    }
    if far == Far::Over {
        fleet.unfit = Some("gone".into());
        fleet.pass();
    }
    fleet.run.spec.state = Some(state);
    fleet.run
}

#[derive(Clone, Copy, PartialEq)]
enum Far {
    New,
    Initialized,
    Begun,
    Over,
}

#[test]
fn which_run_takes_over() {
    use Far::{Begun, Initialized, New, Over};
    type Row = (&'static str, i64, RunState, Far);
    type Case = (
        &'static str,
        &'static [Row],
        &'static [(&'static str, &'static str)],
    );
    let rows: &[Case] = &[
        ("alone", &[("a", 0, Run, Begun)], &[]),
        (
            "a new one is told to run",
            &[("a", 0, Run, Begun), ("b", 1, Run, Initialized)],
            &[("a", "b")],
        ),
        (
            "an older one that was never begun is told to run",
            &[("a", 1, Run, Begun), ("b", 0, Run, Initialized)],
            &[("a", "b")],
        ),
        (
            "a new one is not told to run",
            &[("a", 0, Run, Begun), ("b", 1, Initialize, Initialized)],
            &[],
        ),
        (
            "a new one is not initialized yet",
            &[("a", 0, Run, Begun), ("b", 1, Run, New)],
            &[],
        ),
        (
            "one that stands yields to one that is told to run",
            &[("a", 0, Stop, Begun), ("b", 1, Run, Initialized)],
            &[("a", "b")],
        ),
        (
            "the same, and the new one had begun when the hub died",
            &[("a", 1, Stop, Begun), ("b", 0, Run, Begun)],
            &[("a", "b")],
        ),
        (
            "one that was taken over from is over",
            &[("a", 0, Run, Over), ("b", 1, Run, Begun)],
            &[],
        ),
        (
            "several at the same time: the last",
            &[
                ("a", 0, Run, Initialized),
                ("b", 2, Run, Initialized),
                ("c", 1, Run, Initialized),
            ],
            &[("a", "b"), ("c", "b")],
        ),
        (
            "created in the same second: by name",
            &[("b", 0, Run, Initialized), ("a", 0, Run, Initialized)],
            &[("a", "b")],
        ),
    ];
    for (name, given, expected) in rows {
        let runs: Vec<UpdateRun> = given.iter().copied().map(run).collect();
        let mut all: Vec<&UpdateRun> = runs.iter().collect();
        let mut actual = superseded(&all);
        actual.sort_unstable();
        assert_eq!(&actual, expected, "{name}");
        all.reverse();
        let mut actual = superseded(&all);
        actual.sort_unstable();
        assert_eq!(&actual, expected, "{name}, in another order");
    }
    // One that is being deleted takes nothing over, and is nobody's business.
    let (a, mut b) = (run(("a", 0, Run, Begun)), run(("b", 1, Run, Initialized)));
    b.metadata.deletion_timestamp = Some(Time(START));
    assert!(superseded(&[&a, &b]).is_empty());
}
