//! The way back of a run on which too many clusters have failed.

use serde_json::{Value, json};
use windlass_api::conditions::RunCondition::{
    Progressing, RolledBack, Skipped, Started, Succeeded, Superseded,
};
use windlass_api::conditions::{RunReason, Status};
use windlass_api::placement::ApplyStrategyType;
use windlass_api::run::RunState::{Run, Stop};
use windlass_rollout::run::is_over;

use super::fleet::{Fleet, NEW, OLD, message, says};

fn none_may(concurrency: &Value) -> Value {
    json!({
        "maxConcurrency": concurrency,
        "failureThreshold": {"maxFailures": 0, "onExceeded": "Rollback"},
    })
}

/// Stage a is done, two of three of b are moved, and b2 has failed.
fn failed() -> Fleet {
    let stages = [
        ("a", 3, none_may(&json!(2))),
        ("b", 3, none_may(&json!(2))),
        ("c", 2, json!({})),
    ];
    let mut fleet = Fleet::new(&stages).begun();
    for _ in 0..4 {
        fleet.pass();
        for binding in &mut fleet.bindings {
            if binding.spec.target_cluster.starts_with('a') {
                binding.readiness = windlass_status::ready::Readiness::Ready;
            }
        }
    }
    assert_eq!(fleet.asking(NEW), ["a1", "a2", "a3", "b1", "b2"]);
    fleet.works(&["b1"]);
    fleet.fails("b2", "no such kind");
    fleet
}

const WHY: &str = "1 of 3 cluster(s) of stage b failed, 0 may: b2";

#[test]
fn in_reverse_order_step_by_step() {
    let mut fleet = failed();
    // The one that was never begun with is left alone.
    assert_eq!(fleet.pass(), ["b-b2", "b-b1"]);
    fleet.expect(Status::True, RunReason::UpdateRunRollingBack);
    assert_eq!(
        fleet.message(Progressing),
        "Rolling back stage b: 2 cluster(s) under way, 0 to go"
    );
    assert_eq!(fleet.says(RolledBack), "Unknown UpdateRunRollingBack");
    assert_eq!(fleet.message(RolledBack), WHY);
    let b = fleet.stage("b").conditions.as_ref();
    assert_eq!(says(b, Succeeded), "False StageUpdatingFailed");
    let way: Vec<(String, Vec<String>)> = fleet
        .status()
        .rollback_status
        .iter()
        .flatten()
        .map(|stage| {
            let clusters = stage.clusters.iter();
            let names = clusters.map(|c| c.cluster_name.clone()).collect();
            (stage.stage_name.clone(), names)
        })
        .collect();
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(
        way,
        [
            ("b".to_owned(), names(&["b2", "b1"])),
            ("a".to_owned(), names(&["a3", "a2", "a1"]))
        ]
    );
    fleet.works(&["b2"]);
    assert!(fleet.pass().is_empty());
    let list = fleet.back("b").clusters[0].conditions.as_ref();
    assert_eq!(says(list, Succeeded), "True ClusterUpdatingSucceeded");
    // The next stage only when this one is back, under its own concurrency.
    fleet.works(&["b1"]);
    assert_eq!(fleet.pass(), ["b-a3", "b-a2"]);
    fleet.works(&["a2"]);
    assert_eq!(fleet.pass(), ["b-a1"]);
    fleet.works(&["a1"]);
    assert!(fleet.pass().is_empty());
    fleet.works(&["a3"]);
    fleet.pass();
    assert!(is_over(&fleet.run));
    assert_eq!(fleet.says(RolledBack), "True UpdateRunRolledBack");
    assert_eq!(fleet.says(Succeeded), "False UpdateRunFailed");
    assert_eq!(
        fleet.message(Succeeded),
        format!("{WHY}; 5 cluster(s) are back where they were")
    );
    assert_eq!(fleet.asking(OLD).len(), 8);
}

/// The share is of the stage, not of what goes back.
#[test]
fn concurrency_as_a_share() {
    let mut fleet = Fleet::new(&[("a", 10, none_may(&json!("30%")))]).begun();
    assert_eq!(fleet.pass().len(), 3);
    fleet.fails("a2", "x");
    assert_eq!(fleet.pass().len(), 3);
    let mut fleet = Fleet::new(&[("a", 4, none_may(&json!("50%")))]).begun();
    fleet.pass();
    fleet.works(&["a1", "a2"]);
    fleet.pass();
    fleet.fails("a3", "x");
    assert_eq!(fleet.pass(), ["b-a4", "b-a3"]);
}

/// Overrides and the way of applying go back, too.
#[test]
fn what_a_cluster_goes_back_to() {
    let mut fleet = Fleet::new(&[("a", 2, none_may(&json!(2)))]);
    fleet.overrides.insert("a1".into(), vec!["o-2".into()]);
    let spec = &mut fleet.binding("a1").spec;
    spec.cluster_resource_override_snapshots = Some(vec!["o-1".into()]);
    spec.apply_strategy = Some(serde_json::from_value(json!({"type": "ServerSideApply"})).unwrap());
    fleet.binding("a2").spec.apply_strategy = None;
    let before: Vec<_> = fleet.bindings.iter().map(|b| b.spec.clone()).collect();
    let mut fleet = fleet.begun();
    fleet.pass();
    fleet.fails("a1", "x");
    fleet.pass();
    let a1 = fleet.binding("a1").spec.clone();
    assert_eq!(a1.resource_snapshot_name, OLD);
    assert_eq!(
        a1.cluster_resource_override_snapshots,
        before[0].cluster_resource_override_snapshots
    );
    assert_eq!(a1.resource_override_snapshots, None);
    assert_eq!(
        a1.apply_strategy.unwrap().type_,
        Some(ApplyStrategyType::ServerSideApply)
    );
    let a2 = fleet.binding("a2").spec.clone();
    assert_eq!(
        a2.apply_strategy.unwrap().type_,
        Some(ApplyStrategyType::ClientSideApply)
    );
}

#[test]
fn a_cluster_that_had_nothing_keeps_what_it_has() {
    let mut fleet = Fleet::new(&[("a", 2, none_may(&json!(2)))]);
    let spec = &mut fleet.binding("a2").spec;
    spec.resource_snapshot_name = String::new();
    spec.state = windlass_api::binding::BindingState::Scheduled;
    let mut fleet = fleet.begun();
    fleet.pass();
    fleet.fails("a1", "x");
    assert_eq!(fleet.pass(), ["b-a1"]);
    let list = fleet.back("a").clusters[0].conditions.as_ref();
    assert_eq!(says(list, Skipped), "True NothingToGoBackTo");
    fleet.works(&["a1"]);
    fleet.pass();
    assert_eq!(fleet.says(RolledBack), "True UpdateRunRolledBack");
    assert_eq!(fleet.asking(NEW), ["a2"]);
}

/// One that had the version before the run, and was only waited for, is not moved.
#[test]
fn a_cluster_that_was_not_moved_does_not_go_back() {
    let mut fleet = Fleet::new(&[("a", 2, none_may(&json!(2)))]).begun();
    fleet.binding("a2").spec.resource_snapshot_name = NEW.into();
    fleet.hangs("a2", "coming");
    fleet.pass();
    fleet.fails("a1", "x");
    assert_eq!(fleet.pass(), ["b-a1"]);
    assert_eq!(fleet.back("a").clusters.len(), 1);
}

#[test]
fn a_cluster_whose_write_was_lost_goes_back_by_staying() {
    let mut fleet = Fleet::new(&[("a", 2, none_may(&json!(2)))]).begun();
    let plan = fleet.plan();
    let writes = fleet.writes(&plan);
    for write in writes.into_iter().take(2) {
        fleet.write(write);
    }
    assert_eq!(fleet.asking(NEW), ["a1"]);
    fleet.fails("a1", "x");
    assert_eq!(fleet.pass(), ["b-a1"]);
    let list = fleet.back("a").clusters[0].conditions.as_ref();
    assert_eq!(says(list, Succeeded), "True ClusterUpdatingSucceeded");
    fleet.works(&["a1"]);
    fleet.pass();
    assert_eq!(fleet.says(RolledBack), "True UpdateRunRolledBack");
}

/// Somebody else has brought something else: that stays.
#[test]
fn a_cluster_that_somebody_else_has_changed_before() {
    let mut fleet = failed();
    fleet.binding("a1").spec.resource_snapshot_name = "p-2-snapshot".into();
    fleet.binding("a2").spec.resource_snapshot_name = "p-2-snapshot".into();
    fleet.run_until_back();
    assert_eq!(fleet.says(RolledBack), "True UpdateRunRolledBack");
    assert_eq!(fleet.asking("p-2-snapshot"), ["a1", "a2"]);
    let list = fleet.back("a").clusters[1].conditions.as_ref();
    assert_eq!(says(list, Skipped), "True ClusterChangedByOthers");
    assert_eq!(
        message(list, Skipped),
        "Somebody else has changed the cluster's binding since; it stays as it is"
    );
}

#[test]
fn a_cluster_that_somebody_else_changes_on_its_way_back() {
    let mut fleet = failed();
    fleet.pass();
    fleet.binding("b2").spec.resource_snapshot_name = "p-2-snapshot".into();
    assert!(fleet.pass().is_empty());
    assert_eq!(fleet.says(RolledBack), "False UpdateRunRollbackFailed");
    assert_eq!(
        fleet.message(Succeeded),
        format!(
            "{WHY}; going back has failed, too: stage b, cluster b2: Binding b-b2 was changed by somebody else \
             while the run was updating the cluster"
        )
    );
    assert!(is_over(&fleet.run));
}

#[test]
fn a_way_back_that_fails_stops() {
    let mut fleet = failed();
    fleet.pass();
    // It is not yet known to have failed with what it goes back to: it has all the time in the world.
    fleet.hangs("b1", "0 of 2");
    fleet.later(10_000);
    fleet.pass();
    fleet.expect(Status::False, RunReason::UpdateRunStuck);
    fleet.fails("b2", "that neither");
    assert!(fleet.pass().is_empty());
    assert_eq!(fleet.says(RolledBack), "False UpdateRunRollbackFailed");
    assert_eq!(
        fleet.message(Succeeded),
        format!("{WHY}; going back has failed, too: stage b, cluster b2: that neither")
    );
    let back = fleet.back("b").conditions.as_ref();
    assert_eq!(says(back, Succeeded), "False StageUpdatingFailed");
    assert_eq!(fleet.asking(NEW), ["a1", "a2", "a3"]);
    fleet.works(&["b1", "b2"]);
    assert!(fleet.writes(&fleet.plan()).is_empty());
}

#[test]
fn clusters_that_leave_are_skipped_on_the_way_back() {
    let mut fleet = failed();
    fleet.pass();
    fleet.unselect("b2");
    fleet.members.remove("a2");
    fleet.run_until_back();
    assert_eq!(fleet.says(RolledBack), "True UpdateRunRolledBack");
    let of = |stage: &str, at: usize| {
        let list = fleet.back(stage).clusters[at].conditions.clone();
        says(list.as_ref(), Skipped)
    };
    assert_eq!(of("b", 0), "True ClusterNotSelected");
    assert_eq!(of("a", 1), "True ClusterLeft");
}

/// Evicted and chosen again, a cluster has nothing of the run any more; it gets what it had.
#[test]
fn a_binding_that_is_made_anew_on_the_way_back() {
    for begun in [false, true] {
        let mut fleet = failed();
        if begun {
            fleet.pass();
        }
        fleet.bindings.retain(|b| b.name != "b-b1");
        fleet.pass();
        fleet.bind("b1", "");
        fleet.run_until_back();
        assert_eq!(
            fleet.says(RolledBack),
            "True UpdateRunRolledBack",
            "{begun}"
        );
        assert_eq!(fleet.asking(OLD).len(), 8, "{begun}");
    }
}

#[test]
fn stop_and_resume_on_the_way_back() {
    let mut fleet = failed();
    fleet.state(Stop);
    assert!(fleet.pass().is_empty());
    fleet.expect(Status::False, RunReason::UpdateRunStopped);
    assert_eq!(fleet.says(RolledBack), "Unknown UpdateRunRollingBack");
    fleet.state(Run);
    assert_eq!(fleet.pass(), ["b-b2", "b-b1"]);
    fleet.state(Stop);
    fleet.pass();
    fleet.expect(Status::Unknown, RunReason::UpdateRunStopping);
    let back = fleet.back("b").conditions.as_ref();
    assert_eq!(says(back, Progressing), "Unknown StageUpdatingStopping");
    fleet.works(&["b1", "b2"]);
    assert!(fleet.pass().is_empty());
    fleet.expect(Status::False, RunReason::UpdateRunStopped);
    fleet.state(Run);
    assert_eq!(fleet.pass(), ["b-a3", "b-a2"]);
    let back = fleet.back("a").clusters[0].conditions.as_ref();
    assert_eq!(says(back, Started), "True ClusterUpdatingStarted");
}

#[test]
fn another_run_takes_over_on_the_way_back() {
    let mut fleet = failed();
    fleet.pass();
    fleet.superseded_by = Some("r2".into());
    assert!(fleet.pass().is_empty());
    assert_eq!(fleet.says(Superseded), "True UpdateRunSuperseded");
    assert_eq!(fleet.says(RolledBack), "False UpdateRunRollbackFailed");
    assert_eq!(
        fleet.message(RolledBack),
        format!("{WHY}; going back was broken off: Update run r2 has taken over placement p")
    );
    let back = fleet.back("b").conditions.as_ref();
    assert_eq!(says(back, Succeeded), "False StageUpdatingFailed");
}

#[test]
fn by_the_threshold_of_the_run() {
    let mut fleet = Fleet::new(&[("a", 1, json!({})), ("b", 1, json!({}))]);
    fleet.spec(&json!({"failureThreshold": {"maxFailures": 0, "onExceeded": "Rollback"}}));
    let mut fleet = fleet.begun();
    fleet.pass();
    fleet.works(&["a1"]);
    fleet.pass();
    fleet.times_out("b1");
    assert_eq!(fleet.pass(), ["b-b1"]);
    fleet.works(&["b1"]);
    assert_eq!(fleet.pass(), ["b-a1"]);
    fleet.works(&["a1"]);
    fleet.pass();
    assert_eq!(
        fleet.message(RolledBack),
        "1 of 2 cluster(s) of the run failed, 0 may: b1; 2 cluster(s) are back where they were"
    );
}

#[test]
fn nothing_was_moved() {
    let mut fleet = Fleet::new(&[("a", 1, none_may(&json!(1)))]).begun();
    fleet.binding("a1").spec.resource_snapshot_name = NEW.into();
    fleet.fails("a1", "x");
    fleet.pass();
    fleet.later(65);
    assert!(fleet.pass().is_empty());
    assert_eq!(fleet.says(RolledBack), "True UpdateRunRolledBack");
}

impl Fleet {
    /// Looks, and lets what goes back work, until the run is over.
    fn run_until_back(&mut self) {
        for _ in 0..50 {
            self.pass();
            for binding in &mut self.bindings {
                if binding.spec.resource_snapshot_name == OLD {
                    binding.readiness = windlass_status::ready::Readiness::Ready;
                }
            }
            if is_over(&self.run) {
                return;
            }
        }
        panic!("no end: {:#?}", self.run.status);
    }
}

/// One that is cut off keeps no other one on a version that has failed; the run waits for it at the end.
#[test]
fn one_that_is_cut_off_holds_up_nobody() {
    let stages = [("a", 2, json!({})), ("b", 1, none_may(&json!(1)))];
    let mut fleet = Fleet::new(&stages).begun();
    for cluster in ["a1", "a2"] {
        fleet.pass();
        fleet.works(&[cluster]);
    }
    fleet.pass();
    fleet.fails("b1", "x");
    assert_eq!(fleet.pass(), ["b-b1"]);
    fleet.works(&["b1"]);
    assert_eq!(fleet.pass(), ["b-a2"]);
    fleet.unreachable("a2");
    assert_eq!(fleet.pass(), ["b-a1"]);
    fleet.works(&["a1"]);
    fleet.pass();
    assert!(!is_over(&fleet.run));
    fleet.works(&["a2"]);
    fleet.pass();
    assert_eq!(fleet.says(RolledBack), "True UpdateRunRolledBack");
}

/// A strict run ends by a change of its clusters, but goes its way back to the end.
#[test]
fn a_strict_run_goes_back_whoever_comes() {
    let mut fleet = Fleet::new(&[("a", 2, none_may(&json!(2)))]);
    fleet.spec(&json!({"membershipChanges": "Fail"}));
    let mut fleet = fleet.begun();
    fleet.pass();
    fleet.fails("a1", "x");
    fleet.pass();
    fleet.join("a3", "a");
    fleet.pass();
    fleet.works(&["a1", "a2"]);
    fleet.pass();
    assert_eq!(fleet.says(RolledBack), "True UpdateRunRolledBack");
}
