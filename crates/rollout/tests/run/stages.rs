//! How clusters are updated, stage by stage (hub §3.5, §3.8, §3.11).

use serde_json::{Value, json};
use windlass_api::binding::BindingState;
use windlass_api::conditions::RunCondition::{
    InReach, Progressing, Started, Succeeded, Superseded,
};
use windlass_api::conditions::{RunReason, Status};
use windlass_api::run::{RunState, UpdateRunStatus};
use windlass_rollout::run::is_over;
use windlass_status::ready::Readiness;

use super::fleet::{Fleet, NEW, OLD, START, find, says};

/// Clusters of 10 that are begun with at once.
#[test]
fn max_concurrency() {
    let rows: &[(Value, usize, usize)] = &[
        (json!({"maxConcurrency": 3}), 10, 3),
        (json!({"maxConcurrency": 15}), 10, 10),
        (json!({"maxConcurrency": "50%"}), 10, 5),
        (json!({"maxConcurrency": "10%"}), 1, 1),
        (json!({"maxConcurrency": "33%"}), 10, 3),
        (json!({"maxConcurrency": "25%"}), 7, 1),
        (json!({"maxConcurrency": "10%"}), 3, 1),
        (json!({"maxConcurrency": "100%"}), 7, 7),
        (json!({"maxConcurrency": 0}), 7, 1),
        (json!({}), 7, 1),
    ];
    for (fields, size, expected) in rows {
        let mut fleet = Fleet::new(&[("a", *size, fields.clone())]).begun();
        assert_eq!(fleet.pass().len(), *expected, "{fields} of {size}");
        assert!(fleet.pass().is_empty(), "{fields} of {size}");
    }
}

#[test]
fn a_place_is_taken_when_another_is_done() {
    let mut fleet = Fleet::new(&[("a", 5, json!({"maxConcurrency": 2}))]).begun();
    assert_eq!(fleet.pass(), ["b-a1", "b-a2"]);
    assert_eq!(
        fleet.message(Progressing),
        "Updating stage a: 2 cluster(s) under way, 3 to go"
    );
    fleet.works(&["a2"]);
    assert_eq!(fleet.pass(), ["b-a3"]);
    fleet.works(&["a1", "a3"]);
    assert_eq!(fleet.pass(), ["b-a4", "b-a5"]);
    fleet.works(&["a4", "a5"]);
    assert!(fleet.pass().is_empty());
    fleet.expect(Status::False, RunReason::UpdateRunSucceeded);
    assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded");
    assert_eq!(fleet.message(Succeeded), "5 cluster(s) updated");
}

/// Nothing of a later stage begins before the earlier one is done.
#[test]
fn stages_come_in_order() {
    let all = json!({"maxConcurrency": "100%"});
    let mut fleet = Fleet::new(&[("a", 2, all.clone()), ("b", 0, all.clone()), ("c", 2, all)]);
    fleet.join("gone", "none");
    fleet.unselect("gone");
    let mut fleet = fleet.begun();
    assert_eq!(fleet.pass(), ["b-a1", "b-a2"]);
    fleet.works(&["a1"]);
    assert!(fleet.pass().is_empty());
    let a = fleet.stage("a").conditions.as_ref();
    assert_eq!(says(a, Progressing), "True StageUpdatingStarted");
    fleet.later(10);
    fleet.works(&["a2"]);
    assert_eq!(fleet.pass(), ["b-c1", "b-c2"]);
    for (stage, reason) in [
        ("a", "StageUpdatingSucceeded"),
        ("b", "StageUpdatingSkippedNoClusters"),
    ] {
        let list = fleet.stage(stage).conditions.as_ref();
        assert_eq!(says(list, Progressing), format!("False {reason}"));
        assert_eq!(says(list, Succeeded), format!("True {reason}"));
    }
    let a = fleet.stage("a");
    assert_eq!(a.start_time.as_ref().unwrap().0, START);
    assert_eq!(a.end_time.as_ref().unwrap().0, fleet.now);
    assert!(fleet.stage("b").start_time.is_none());
    fleet.works(&["c1", "c2"]);
    assert_eq!(fleet.pass(), ["-b-gone"]);
    assert!(fleet.pass().is_empty());
    fleet.expect(Status::True, RunReason::UpdateRunProgressing);
    fleet.bindings.retain(|binding| !binding.deleting);
    fleet.pass();
    assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded");
    assert_eq!(fleet.asking(NEW), ["a1", "a2", "c1", "c2"]);
}

#[test]
fn what_a_cluster_gets_is_what_was_fixed() {
    let mut fleet = Fleet::new(&[("a", 1, json!({}))]);
    fleet.overrides.insert("a1".into(), vec!["o-1".into()]);
    fleet.apply = serde_json::from_value(json!({"type": "ServerSideApply"})).unwrap();
    let mut fleet = fleet.begun();
    // Overrides, strategy and the placement's apply strategy change meanwhile.
    fleet.overrides.clear();
    fleet.strategy = None;
    fleet.apply = windlass_api::placement::ApplyStrategy::default();
    fleet.pass();
    let spec = fleet.binding("a1").spec.clone();
    assert_eq!(spec.state, BindingState::Bound);
    assert_eq!(spec.resource_snapshot_name, NEW);
    let cluster_wide = spec.cluster_resource_override_snapshots.unwrap();
    assert_eq!(cluster_wide, ["o-1"]);
    assert_eq!(spec.resource_override_snapshots.unwrap()[0].name, "o-1");
    let type_ = spec.apply_strategy.unwrap().type_;
    assert_eq!(
        type_,
        Some(windlass_api::placement::ApplyStrategyType::ServerSideApply)
    );
    let previous = fleet.cluster("a1").previous.clone().unwrap();
    assert_eq!(previous.resource_snapshot_name.as_deref(), Some(OLD));
    assert!(previous.apply_strategy.is_some(), "it was another one");
    fleet.works(&["a1"]);
    fleet.pass();
    assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded");
}

/// A cluster is done only when it is well with what this run brings (reports 25, 32).
#[test]
fn when_a_cluster_is_done() {
    use Readiness::{Failed, InProgress, Ready, ReadyAt, Undisturbed, Unreachable, Withheld};
    let later = START + jiff::SignedDuration::from_mins(1);
    let rows = [
        (Ready, true),
        // What can't be tracked counts at once.
        (ReadyAt(later), true),
        (InProgress, false),
        (Failed(windlass_api::conditions::Stage::Applied), false),
        (Undisturbed, false),
        (Withheld, false),
        (Unreachable, false),
    ];
    for (readiness, done) in rows {
        let mut fleet = Fleet::new(&[("a", 1, json!({}))]).begun();
        fleet.binding("a1").readiness = readiness;
        // How it was with the old version doesn't count.
        assert_eq!(fleet.pass(), ["b-a1"], "{readiness:?}");
        assert!(!is_over(&fleet.run), "{readiness:?}");
        fleet.binding("a1").readiness = readiness;
        fleet.pass();
        assert_eq!(is_over(&fleet.run), done, "{readiness:?}");
    }
}

#[test]
fn a_cluster_that_has_the_version_already() {
    let mut fleet = Fleet::new(&[("a", 4, json!({}))]).begun();
    for cluster in ["a1", "a2", "a4"] {
        fleet.binding(cluster).spec.resource_snapshot_name = NEW.to_owned();
    }
    fleet.hangs("a2", "coming");
    // a1 and a4 are done at once; a2 is begun with, and takes the one place; a3 waits.
    assert!(fleet.pass().is_empty());
    let started = |fleet: &Fleet, cluster: &str| {
        let list = fleet.cluster(cluster).conditions.clone();
        [Started, Succeeded].map(|type_| says(list.as_ref(), type_))
    };
    let (begun, done) = (
        "True ClusterUpdatingStarted",
        "True ClusterUpdatingSucceeded",
    );
    assert_eq!(started(&fleet, "a1"), [begun, done]);
    assert_eq!(started(&fleet, "a2"), [begun, "none"]);
    assert_eq!(started(&fleet, "a3"), ["none", "none"]);
    assert_eq!(started(&fleet, "a4"), [begun, done]);
    assert!(fleet.cluster("a2").previous.is_none());
    fleet.works(&["a2"]);
    assert_eq!(fleet.pass(), ["b-a3"]);
}

/// Each of these is not what the run brings, so the binding is written.
#[test]
fn what_differs_is_written() {
    type Change = fn(&mut windlass_api::binding::BindingSpec);
    let rows: &[(&str, Change)] = &[
        ("state", |spec| spec.state = BindingState::Scheduled),
        ("snapshot", |spec| spec.resource_snapshot_name = OLD.into()),
        ("overrides", |spec| {
            spec.cluster_resource_override_snapshots = Some(vec!["other".into()]);
        }),
        ("apply strategy", |spec| {
            spec.apply_strategy =
                Some(serde_json::from_value(json!({"type": "ReportDiff"})).unwrap());
        }),
    ];
    for (name, change) in rows {
        let mut fleet = Fleet::new(&[("a", 1, json!({}))]).begun();
        let spec = &mut fleet.binding("a1").spec;
        spec.resource_snapshot_name = NEW.into();
        change(spec);
        assert_eq!(fleet.pass(), ["b-a1"], "{name}");
    }
    // Spelled out or left open is the same.
    let mut fleet = Fleet::new(&[("a", 1, json!({}))]).begun();
    let spec = &mut fleet.binding("a1").spec;
    spec.resource_snapshot_name = NEW.into();
    spec.cluster_resource_override_snapshots = Some(Vec::new());
    spec.apply_strategy = Some(serde_json::from_value(json!({"type": "ClientSideApply"})).unwrap());
    assert!(fleet.pass().is_empty());
    assert!(is_over(&fleet.run));
}

/// The write may be lost after it was recorded; it is done again, and nothing is taken for somebody's edit.
#[test]
fn a_lost_write_is_done_again() {
    let mut fleet = Fleet::new(&[("a", 2, json!({}))]).begun();
    let plan = fleet.plan();
    fleet.run.status = Some(plan.status.clone());
    let again = fleet.plan();
    assert_eq!(again.moves, plan.moves);
    let in_reach = |fleet: &Fleet| says(fleet.cluster("a1").conditions.as_ref(), InReach);
    fleet.pass();
    assert_eq!(in_reach(&fleet), "False BindingUnwritten");
    assert!(fleet.pass().is_empty());
    assert_eq!(in_reach(&fleet), "True ClusterInReach");
    assert!(fleet.writes(&fleet.plan()).is_empty());
}

/// Somebody else changes the binding of a cluster that was begun with: the run has lost it.
#[test]
fn a_binding_altered_behind_a_started_cluster() {
    // To something else, or back to what it had.
    for to in ["p-2-snapshot", OLD] {
        let mut fleet = Fleet::new(&[("a", 2, json!({}))]).begun();
        fleet.pass();
        fleet.binding("a1").spec.resource_snapshot_name = to.into();
        assert!(fleet.pass().is_empty());
        let why = "stage a: cluster a1: Binding b-a1 was changed by somebody else while the run was updating the \
                   cluster";
        assert_eq!(fleet.says(Succeeded), "False UpdateRunFailed");
        assert_eq!(fleet.message(Succeeded), why);
        let stage = fleet.stage("a").conditions.as_ref();
        assert_eq!(says(stage, Succeeded), "False StageUpdatingFailed");
        let cluster = fleet.cluster("a1").conditions.as_ref();
        assert_eq!(says(cluster, Succeeded), "False ClusterUpdatingFailed");
        assert!(fleet.pass().is_empty());
    }
}

/// Neither is written over: what somebody made of a binding after the run had recorded what it had, and what
/// they made of one that the run did not need to move.
#[test]
fn a_binding_altered_before_it_was_moved() {
    let mut fleet = Fleet::new(&[("a", 1, json!({}))]).begun();
    let plan = fleet.plan();
    fleet.run.status = Some(plan.status);
    fleet.binding("a1").spec.resource_snapshot_name = "p-2-snapshot".into();
    assert!(fleet.pass().is_empty());
    assert_eq!(fleet.says(Succeeded), "False UpdateRunFailed");

    let mut fleet = Fleet::new(&[("a", 1, json!({}))]).begun();
    fleet.binding("a1").spec.resource_snapshot_name = NEW.into();
    fleet.hangs("a1", "coming");
    fleet.pass();
    fleet.binding("a1").spec.resource_snapshot_name = OLD.into();
    assert!(fleet.pass().is_empty());
    assert_eq!(fleet.says(Succeeded), "False UpdateRunFailed");
}

/// An eviction in mid-run: the cluster is waited for, and its new binding gets the version (report 28).
#[test]
fn a_binding_that_is_deleted_and_made_anew() {
    let mut fleet = Fleet::new(&[("a", 2, json!({}))]).begun();
    fleet.pass();
    fleet.binding("a1").deleting = true;
    assert!(fleet.pass().is_empty());
    fleet.bindings.remove(0);
    assert!(fleet.pass().is_empty());
    fleet.expect(Status::True, RunReason::UpdateRunProgressing);
    fleet.bind("a1", "");
    assert_eq!(fleet.pass(), ["b-a1"]);
    fleet.works(&["a1"]);
    assert_eq!(fleet.pass(), ["b-a2"]);
    // Before it is begun with, too: the next one doesn't wait for it.
    let mut fleet = Fleet::new(&[("a", 2, json!({}))]).begun();
    fleet.bindings.remove(0);
    assert_eq!(fleet.pass(), ["b-a2"]);
    fleet.bind("a1", "");
    fleet.works(&["a2"]);
    assert_eq!(fleet.pass(), ["b-a1"]);
    fleet.works(&["a1"]);
    fleet.pass();
    assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded");
}

/// The one that stays counts, in whatever order they come.
#[test]
fn two_bindings_of_one_cluster() {
    let states = [
        (BindingState::Unscheduled, false),
        (BindingState::Bound, true),
        (BindingState::Scheduled, false),
    ];
    for (state, deleting) in states {
        for first in [false, true] {
            let mut fleet = Fleet::new(&[("a", 1, json!({}))]).begun();
            let mut other = fleet.bindings[0].clone();
            other.name = "a-first-by-name".into();
            other.spec.state = state.clone();
            other.deleting = deleting;
            fleet.bindings.insert(usize::from(!first), other);
            assert_eq!(fleet.pass(), ["b-a1"], "{state:?} {first}");
        }
    }
}

#[test]
fn a_run_that_only_removes() {
    let mut fleet = Fleet::new(&[("a", 0, json!({})), ("b", 0, json!({}))]);
    for cluster in ["y", "x"] {
        fleet.join(cluster, "none");
        fleet.unselect(cluster);
    }
    let mut fleet = fleet.begun();
    // All at once, in the order of the bindings' clusters.
    assert_eq!(fleet.pass(), ["-b-x", "-b-y"]);
    for stage in ["a", "b"] {
        let list = fleet.stage(stage).conditions.as_ref();
        assert_eq!(says(list, Succeeded), "True StageUpdatingSkippedNoClusters");
    }
    fleet.bindings.retain(|binding| !binding.deleting);
    fleet.pass();
    assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded");
    assert_eq!(fleet.message(Succeeded), "0 cluster(s) updated");
}

#[test]
fn what_is_chosen_again_is_not_removed() {
    let mut fleet = Fleet::new(&[("a", 1, json!({}))]);
    for cluster in ["x", "y", "z"] {
        fleet.join(cluster, "none");
        fleet.unselect(cluster);
    }
    let mut fleet = fleet.begun();
    fleet.pass();
    fleet.works(&["a1"]);
    // x is chosen again; y, too, and the removal of its old binding isn't over; z is gone by itself.
    fleet.binding("x").spec.state = BindingState::Bound;
    fleet.binding("y").deleting = true;
    fleet.bind("y", "");
    fleet.selected.extend(["x".to_owned(), "y".to_owned()]);
    fleet.bindings.retain(|b| b.spec.target_cluster != "z");
    assert!(fleet.pass().is_empty());
    let removed = |fleet: &Fleet| -> Vec<String> {
        let stage = fleet.status().deletion_stage_status.clone().unwrap();
        let says = |c: &windlass_api::run::ClusterStatus| {
            let list = c.conditions.as_ref();
            let skipped = says(list, windlass_api::conditions::RunCondition::Skipped);
            format!("{} {skipped} {}", c.cluster_name, says(list, Succeeded))
        };
        stage.clusters.iter().map(says).collect()
    };
    assert_eq!(
        removed(&fleet),
        [
            "x True ClusterSelectedAgain none",
            "y none none",
            "z none True ClusterUpdatingSucceeded"
        ]
    );
    fleet.bindings.retain(|binding| !binding.deleting);
    fleet.pass();
    assert_eq!(removed(&fleet)[1], "y True ClusterSelectedAgain none");
    assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded");
}

/// Marked after 5 minutes, told of in one line, and never more than told of.
#[test]
fn stuck() {
    let mut fleet = Fleet::new(&[("a", 6, json!({"maxConcurrency": 5}))]).begun();
    fleet.pass();
    let at = START + jiff::SignedDuration::from_mins(5);
    assert_eq!(fleet.plan().wake_at, Some(at));
    fleet.fails("a1", "no such kind");
    fleet.unreachable("a2");
    fleet.hangs("a3", "0 of 2 replicas");
    fleet.later(294);
    fleet.pass();
    fleet.expect(Status::True, RunReason::UpdateRunProgressing);
    assert_eq!(fleet.plan().wake_at, Some(at));
    fleet.later(1);
    fleet.pass();
    fleet.expect(Status::False, RunReason::UpdateRunStuck);
    assert_eq!(
        fleet.message(Progressing),
        "Updating stage a takes long: a1 (no such kind), a2 (the cluster is not reachable), \
         a3 (0 of 2 replicas), 2 more"
    );
    assert_eq!(fleet.plan().wake_at, None);
    // The stage goes on, and so does the run.
    let stage = fleet.stage("a").conditions.as_ref();
    assert_eq!(says(stage, Progressing), "True StageUpdatingStarted");
    fleet.works(&["a1", "a2", "a3", "a4", "a5"]);
    assert_eq!(fleet.pass(), ["b-a6"]);
    fleet.expect(Status::True, RunReason::UpdateRunProgressing);
    // A resumed run counts from when the cluster was begun with.
    let a6 = find(fleet.cluster("a6").conditions.as_ref(), Started).unwrap();
    assert_eq!(a6.last_transition_time.0, fleet.now);
}

#[test]
fn a_run_that_is_told_nothing_does_nothing() {
    for state in [None, Some(RunState::Initialize)] {
        let mut fleet = Fleet::new(&[("a", 1, json!({}))]);
        fleet.run.spec.state = state;
        let mut fleet = fleet.begun();
        assert!(fleet.writes(&fleet.plan()).is_empty());
        fleet.state(RunState::Run);
        assert_eq!(fleet.pass(), ["b-a1"]);
    }
}

#[test]
fn a_placement_that_no_run_can_go_on_with() {
    for state in [RunState::Initialize, RunState::Run, RunState::Stop] {
        let mut fleet = Fleet::new(&[("a", 2, json!({}))]).begun();
        fleet.pass();
        fleet.run.spec.state = Some(state);
        fleet.unfit = Some("placement p is gone".into());
        assert!(fleet.pass().is_empty());
        fleet.expect(Status::False, RunReason::UpdateRunFailed);
        assert_eq!(fleet.message(Succeeded), "placement p is gone");
        let stage = fleet.stage("a").conditions.as_ref();
        assert_eq!(says(stage, Succeeded), "False StageUpdatingFailed");
    }
}

#[test]
fn a_run_that_was_taken_over_from() {
    let mut fleet = Fleet::new(&[("a", 2, json!({}))]).begun();
    fleet.pass();
    fleet.superseded_by = Some("r2".into());
    assert!(fleet.pass().is_empty());
    assert_eq!(fleet.says(Superseded), "True UpdateRunSuperseded");
    assert_eq!(fleet.says(Succeeded), "False UpdateRunFailed");
    assert_eq!(
        fleet.message(Superseded),
        "Update run r2 has taken over placement p"
    );
    // It stays over when the other one is gone.
    fleet.superseded_by = None;
    assert!(fleet.writes(&fleet.plan()).is_empty());
}

/// A stage that had begun to remove has failed with its run.
#[test]
fn the_stage_that_removes_ends_with_its_run() {
    let mut fleet = Fleet::new(&[("a", 0, json!({}))]);
    fleet.join("x", "none");
    fleet.unselect("x");
    let mut fleet = fleet.begun();
    fleet.pass();
    fleet.unfit = Some("placement p is gone".into());
    fleet.pass();
    let removal = fleet.status().deletion_stage_status.as_ref().unwrap();
    let list = removal.conditions.as_ref();
    assert_eq!(says(list, Succeeded), "False StageUpdatingFailed");
}

#[test]
fn a_status_that_cannot_be_read_ends_the_run() {
    type Change = fn(&mut UpdateRunStatus);
    let rows: &[(Change, &str)] = &[
        (
            |status| status.resource_snapshot_index_used = Some("x".into()),
            "status.resourceSnapshotIndexUsed is no number; start another run",
        ),
        (
            |status| status.strategy_snapshot = None,
            "status.stagedUpdateStrategySnapshot lacks a stage",
        ),
    ];
    for (change, message) in rows {
        let mut fleet = Fleet::new(&[("a", 1, json!({}))]).begun();
        change(fleet.run.status.as_mut().unwrap());
        assert!(fleet.pass().is_empty());
        assert_eq!(&fleet.message(Succeeded), message);
    }
}

/// A change of the state makes every condition one of the present generation, and nothing else of it.
#[test]
fn conditions_follow_the_generation_and_keep_their_times() {
    let tasks = json!({"afterStageTasks": [{"type": "TimedWait", "waitTime": "1h"}]});
    let mut fleet = Fleet::new(&[("a", 1, tasks), ("b", 2, json!({}))]).begun();
    fleet.pass();
    fleet.works(&["a1"]);
    fleet.pass();
    let before = fleet.status().clone();
    fleet.later(60);
    fleet.run.metadata.generation = Some(7);
    fleet.pass();
    let text = serde_json::to_string(fleet.status()).unwrap();
    assert!(text.contains("\"observedGeneration\":7"));
    let old = serde_json::to_string(&before).unwrap();
    assert_eq!(
        text,
        old.replace("\"observedGeneration\":1", "\"observedGeneration\":7")
    );
}

/// Looking again at a world that stays as it is changes nothing, and the same look says the same.
#[test]
fn a_second_look_changes_nothing() {
    let tasks = json!({
        "maxConcurrency": 2,
        "beforeStageTasks": [{"type": "Approval"}],
        "afterStageTasks": [{"type": "TimedWait", "waitTime": "1h"}, {"type": "Approval"}],
    });
    let mut fleet = Fleet::new(&[("a", 3, tasks)]).begun();
    let calm = |fleet: &mut Fleet| {
        assert_eq!(fleet.plan(), fleet.plan());
        fleet.pass();
        fleet.later(1);
        let plan = fleet.plan();
        assert_eq!(fleet.writes(&plan), []);
        fleet.bindings.reverse();
        fleet.requests.reverse();
        assert_eq!(fleet.plan(), plan);
    };
    calm(&mut fleet);
    fleet.approve("r-before-a");
    calm(&mut fleet);
    fleet.unreachable("a1");
    fleet.works(&["a2"]);
    calm(&mut fleet);
    fleet.works(&["a1", "a3"]);
    calm(&mut fleet);
    fleet.later(3600);
    calm(&mut fleet);
    fleet.approve("r-after-a");
    calm(&mut fleet);
    assert!(is_over(&fleet.run));
}

/// Binding altered, state flipped, fleet gone: what is over stays as it is.
#[test]
fn what_is_over_stays_over() {
    let mut fleet = Fleet::new(&[("a", 1, json!({}))]).begun();
    fleet.run_on();
    assert!(is_over(&fleet.run));
    fleet.state(RunState::Stop);
    fleet.binding("a1").spec.resource_snapshot_name = OLD.into();
    fleet.unfit = Some("gone".into());
    fleet.superseded_by = Some("r2".into());
    fleet.later(1000);
    let plan = fleet.plan();
    assert!(fleet.writes(&plan).is_empty());
    assert_eq!(plan.wake_at, None);
}
