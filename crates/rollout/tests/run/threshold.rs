//! How many clusters may fail, and what counts as failed.

use serde_json::{Value, json};
use windlass_api::conditions::RunCondition::{InReach, Succeeded};
use windlass_api::conditions::{RunReason, Stage, Status};
use windlass_rollout::run::is_over;
use windlass_status::ready::Readiness;

use super::fleet::{Fleet, condition, message, says};

fn with(threshold: &Value) -> Value {
    json!({"maxConcurrency": "100%", "failureThreshold": threshold})
}

/// Clusters of a stage, the threshold, how many fail; whether that is too many.
#[test]
fn how_many_may_fail_in_a_stage() {
    let rows = [
        (3, json!(0), 0, false),
        (3, json!(0), 1, true),
        (3, json!(1), 1, false),
        (3, json!(1), 2, true),
        (3, json!(9), 3, false),
        (10, json!("0%"), 1, true),
        (10, json!("20%"), 2, false),
        (10, json!("20%"), 3, true),
        // Rounded down, and that may be none.
        (3, json!("33%"), 1, true),
        (9, json!("25%"), 2, false),
        (9, json!("25%"), 3, true),
        (4, json!("100%"), 4, false),
        // What is no number lets none fail.
        (4, json!("50"), 1, true),
    ];
    for (size, max, failures, too_many) in rows {
        let threshold = with(&json!({"maxFailures": max}));
        let mut fleet = Fleet::new(&[("a", size, threshold)]).begun();
        fleet.pass();
        for number in 1..=failures {
            fleet.fails(&format!("a{number}"), "no such kind");
        }
        fleet.pass();
        let failed = fleet.says(Succeeded) == "False UpdateRunFailed";
        assert_eq!(failed, too_many, "{failures} of {size}, {max} may");
        if !too_many {
            fleet.run_on();
            assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded");
        }
    }
}

#[test]
fn what_is_said_when_too_many_fail() {
    let threshold = json!({"maxConcurrency": 5, "failureThreshold": {"maxFailures": 1}});
    let mut fleet = Fleet::new(&[("a", 7, threshold)]).begun();
    fleet.pass();
    for cluster in ["a5", "a1", "a3", "a2"] {
        fleet.fails(cluster, "no such kind");
    }
    // Nobody is begun with any more.
    assert!(fleet.pass().is_empty());
    let why = "4 of 7 cluster(s) of stage a failed, 1 may: a1, a2, a3 and 1 more";
    fleet.expect(Status::False, RunReason::UpdateRunFailed);
    assert_eq!(fleet.message(Succeeded), why);
    let stage = fleet.stage("a").conditions.as_ref();
    assert_eq!(says(stage, Succeeded), "False StageUpdatingFailed");
    assert_eq!(message(stage, Succeeded), why);
    let list = fleet.cluster("a1").conditions.as_ref();
    assert_eq!(says(list, Succeeded), "False ClusterUpdatingFailed");
    assert_eq!(message(list, Succeeded), "no such kind");
    let list = fleet.cluster("a4").conditions.as_ref();
    assert_eq!(says(list, Succeeded), "none");
    assert!(fleet.status().rollback_status.is_none());
}

/// What may fail gives its place to the next, and is told of in the end.
#[test]
fn a_failure_that_is_allowed() {
    let threshold = json!({"failureThreshold": {"maxFailures": 1}});
    let mut fleet = Fleet::new(&[("a", 2, threshold)]).begun();
    fleet.pass();
    fleet.fails("a1", "no such kind");
    assert_eq!(fleet.pass(), ["b-a2"]);
    // It stays failed, though it mends itself later.
    fleet.works(&["a1"]);
    fleet.pass();
    fleet.works(&["a2"]);
    fleet.pass();
    assert_eq!(
        fleet.message(Succeeded),
        "1 cluster(s) updated, 1 failed, which the threshold allows"
    );
}

#[test]
fn without_a_threshold_nothing_ends_a_run() {
    let mut fleet = Fleet::new(&[("a", 2, json!({"maxConcurrency": 2}))]).begun();
    fleet.pass();
    fleet.fails("a1", "no such kind");
    fleet.times_out("a2");
    fleet.later(100_000);
    fleet.pass();
    fleet.expect(Status::False, RunReason::UpdateRunStuck);
    fleet.run_on();
    assert!(!is_over(&fleet.run));
    fleet.works(&["a1", "a2"]);
    fleet.pass();
    assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded");
}

/// A cluster that had the version before the run, and had failed with it, is looked at again at once.
#[test]
fn a_cluster_that_has_failed_with_it_before() {
    let threshold = json!({"failureThreshold": {"maxFailures": 0}});
    let mut fleet = Fleet::new(&[("a", 2, threshold)]).begun();
    fleet.binding("a1").spec.resource_snapshot_name = super::fleet::NEW.into();
    fleet.fails("a1", "no such kind");
    assert!(fleet.pass().is_empty());
    // What it said before the run is no news about the run; within a minute it is tried again.
    assert!(fleet.pass().is_empty());
    fleet.later(64);
    assert!(fleet.pass().is_empty());
    assert!(!is_over(&fleet.run));
    fleet.later(1);
    assert!(fleet.pass().is_empty());
    assert_eq!(
        fleet.message(Succeeded),
        "1 of 2 cluster(s) of stage a failed, 0 may: a1"
    );
}

/// What fails once and not at the next try is no failure.
#[test]
fn a_moment_of_failure() {
    let threshold = json!({"failureThreshold": {"maxFailures": 0}});
    let mut fleet = Fleet::new(&[("a", 1, threshold)]).begun();
    fleet.pass();
    fleet.fails("a1", "no answer");
    let now = windlass_api::Time(fleet.now);
    fleet
        .binding("a1")
        .why
        .as_mut()
        .unwrap()
        .last_transition_time = now;
    assert_eq!(
        fleet.plan().wake_at,
        Some(fleet.now + jiff::SignedDuration::from_secs(5))
    );
    fleet.pass();
    assert!(!is_over(&fleet.run));
    fleet.later(5);
    fleet.pass();
    assert!(is_over(&fleet.run));
}

/// The run's threshold counts over all stages; each stage's own counts in that stage.
#[test]
fn of_the_run_and_of_stages() {
    let all = json!({"maxConcurrency": "100%"});
    let mut fleet = Fleet::new(&[("a", 2, all.clone()), ("b", 2, all)]);
    fleet.spec(&json!({"failureThreshold": {"maxFailures": "25%"}}));
    let mut fleet = fleet.begun();
    fleet.pass();
    fleet.fails("a1", "x");
    fleet.works(&["a2"]);
    assert_eq!(fleet.pass(), ["b-b1", "b-b2"]);
    fleet.fails("b2", "x");
    fleet.pass();
    assert_eq!(
        fleet.message(Succeeded),
        "2 of 4 cluster(s) of the run failed, 1 may: a1, b2"
    );

    let none = with(&json!({"maxFailures": 0}));
    let mut fleet = Fleet::new(&[("a", 2, json!({})), ("b", 2, none)]);
    fleet.spec(&json!({"failureThreshold": {"maxFailures": 3, "onExceeded": "Rollback"}}));
    let mut fleet = fleet.begun();
    for cluster in ["a1", "a2"] {
        fleet.pass();
        fleet.fails(cluster, "x");
    }
    assert_eq!(fleet.pass(), ["b-b1", "b-b2"]);
    fleet.fails("b1", "x");
    fleet.pass();
    // The stage's own says what happens then.
    assert_eq!(
        fleet.message(Succeeded),
        "1 of 2 cluster(s) of stage b failed, 0 may: b1"
    );
    assert!(is_over(&fleet.run));
}

/// What counts: the kinds listed, or everything.
#[test]
fn what_counts_as_failed() {
    use Readiness::{Failed, InProgress, Undisturbed, Unreachable, Withheld};
    let timeout = "Timeout";
    let other = "NotAllWorkHaveBeenApplied";
    // Class, reason, seconds since it was begun with; kinds under which it has failed.
    let apply: &[&str] = &["ApplyFailed"];
    let rows: &[(Readiness, &str, i64, &[&str])] = &[
        (Failed(Stage::Applied), other, 4, &[]),
        (Failed(Stage::Applied), other, 5, apply),
        (Failed(Stage::Applied), other, 299, apply),
        // Whatever keeps it from being available.
        (
            Failed(Stage::Applied),
            other,
            300,
            &["ApplyFailed", "Unavailable"],
        ),
        (Failed(Stage::Overridden), "OverriddenFailed", 5, apply),
        (Failed(Stage::WorkSynchronized), "SyncWorkFailed", 5, apply),
        (Undisturbed, "OverriddenFailed", 5, apply),
        (Withheld, "SyncWorkFailed", 5, apply),
        (Failed(Stage::Available), timeout, 0, &["Timeout"]),
        (Failed(Stage::Available), timeout, 299, &["Timeout"]),
        (
            Failed(Stage::Available),
            timeout,
            300,
            &["Timeout", "Unavailable"],
        ),
        (InProgress, "NotAllWorkAreAvailable", 299, &[]),
        (InProgress, "NotAllWorkAreAvailable", 300, &["Unavailable"]),
        (Unreachable, timeout, 100_000, &[]),
        (Unreachable, other, 100_000, &[]),
    ];
    for (readiness, reason, seconds, kinds) in rows {
        for counted in [
            None,
            Some("ApplyFailed"),
            Some("Unavailable"),
            Some("Timeout"),
        ] {
            let mut threshold = json!({"maxFailures": 0});
            if let Some(kind) = counted {
                threshold["count"] = json!([kind]);
            }
            let mut fleet = Fleet::new(&[("a", 1, with(&threshold))]).begun();
            fleet.pass();
            let binding = fleet.binding("a1");
            binding.readiness = *readiness;
            binding.why = Some(condition("Applied", Status::False, reason, ""));
            fleet.later(*seconds);
            fleet.pass();
            let expected = match counted {
                Some(kind) => kinds.contains(&kind),
                None => !kinds.is_empty(),
            };
            let row = format!("{readiness:?} {reason} after {seconds} s, {counted:?} counted");
            assert_eq!(is_over(&fleet.run), expected, "{row}");
        }
    }
}

#[test]
fn how_long_a_cluster_may_be_unavailable() {
    let threshold = json!({"maxFailures": 0, "unavailableAfter": "1m30s"});
    let mut fleet = Fleet::new(&[("a", 1, with(&threshold))]).begun();
    fleet.pass();
    fleet.hangs("a1", "0 of 2");
    let at = fleet.now + jiff::SignedDuration::from_secs(90);
    assert_eq!(fleet.plan().wake_at, Some(at));
    fleet.now = at;
    fleet.pass();
    let list = fleet.cluster("a1").conditions.as_ref();
    assert_eq!(
        message(list, Succeeded),
        "not available 1m30s after it was updated: 0 of 2"
    );
}

/// A cluster that was out of reach has its time when it is back: it could not become available meanwhile.
#[test]
fn time_out_of_reach_does_not_count() {
    let threshold = with(&json!({"maxFailures": 0}));
    let mut fleet = Fleet::new(&[("a", 2, threshold)]).begun();
    fleet.pass();
    fleet.works(&["a2"]);
    fleet.unreachable("a1");
    fleet.pass();
    let list = fleet.cluster("a1").conditions.as_ref();
    assert_eq!(says(list, InReach), "False ClusterUnreachable");
    fleet.later(3600);
    fleet.pass();
    fleet.expect(Status::False, RunReason::UpdateRunStuck);
    fleet.hangs("a1", "coming");
    fleet.pass();
    assert!(!is_over(&fleet.run));
    let list = fleet.cluster("a1").conditions.as_ref();
    assert_eq!(says(list, InReach), "True ClusterInReach");
    fleet.later(299);
    assert!(!is_over(&fleet.run));
    let mut late = fleet.clone();
    late.later(1);
    late.pass();
    assert!(is_over(&late.run));
    fleet.works(&["a1"]);
    fleet.pass();
    assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded");
    // What is over is told of no more.
    let list = fleet.cluster("a1").conditions.as_ref();
    assert_eq!(says(list, InReach), "none");
}

/// Neither is the time in which the hub was dead, before it could write what it had recorded, nor that in
/// which a cluster had no binding.
#[test]
fn time_without_a_version_does_not_count() {
    for evicted in [false, true] {
        let threshold = with(&json!({"maxFailures": 0, "onExceeded": "Rollback"}));
        let mut fleet = Fleet::new(&[("a", 1, threshold)]).begun();
        fleet.run.status = Some(fleet.plan().status);
        if evicted {
            fleet.pass();
            fleet.bindings.clear();
            fleet.pass();
        }
        fleet.later(3600);
        if evicted {
            fleet.bind("a1", "");
        }
        assert_eq!(fleet.pass(), ["b-a1"]);
        fleet.hangs("a1", "coming");
        fleet.pass();
        fleet.later(299);
        fleet.pass();
        assert!(fleet.status().rollback_status.is_none(), "{evicted}");
        fleet.later(1);
        assert_eq!(fleet.pass(), ["b-a1"], "{evicted}");
        assert!(fleet.status().rollback_status.is_some(), "{evicted}");
    }
}

/// Skipped clusters are neither done nor failed.
#[test]
fn a_cluster_that_leaves_has_not_failed() {
    let threshold = with(&json!({"maxFailures": 0}));
    let mut fleet = Fleet::new(&[("a", 2, threshold)]).begun();
    fleet.pass();
    fleet.fails("a1", "x");
    fleet.members.remove("a1");
    fleet.selected.remove("a1");
    fleet.run_on();
    assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded");
}

#[test]
fn a_long_message_is_cut() {
    let mut fleet = Fleet::new(&[("a", 1, with(&json!({"maxFailures": 0})))]).begun();
    fleet.pass();
    fleet.fails("a1", &"ä".repeat(400));
    fleet.pass();
    let text = message(fleet.cluster("a1").conditions.as_ref(), Succeeded);
    assert_eq!(text, format!("{}…", "ä".repeat(128)));
}
