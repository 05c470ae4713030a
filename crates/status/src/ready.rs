//! How a binding counts for rollout, eviction and runs: the three classes that are never mixed
//! (design §5.8), and ready.

use jiff::{SignedDuration, Timestamp};
use windlass_api::Condition;
use windlass_api::conditions::{BindingReason, Stage, Status};
use windlass_api::scoped::Binding;

use crate::conditions;
use crate::digest::Digest;
use crate::freshness::{self, Freshness};
use crate::processing::is_timeout;

/// Reason that members give for a Work whose availability can't be tracked.
const WORK_NOT_TRACKABLE: &str = "WorkNotTrackable";

/// How a binding counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The desired state runs, or its differences are reported.
    Ready,
    /// The desired state is there but can't be tracked; it counts as ready from then on.
    ReadyAt(Timestamp),
    /// A reachable member reported a true failure for the desired state, at this stage.
    Failed(Stage),
    /// The desired state can't be made, so that the cluster was left alone; what it was given before was
    /// available, and runs on. Nothing comes to the cluster before somebody gives leave for it.
    Undisturbed,
    /// What is wanted can't be placed anywhere, so that the cluster was left alone; what it was given before
    /// was available, and runs on. The hub may be told to place it after all (by its flags), and then the
    /// cluster gets it without anybody's leave.
    Withheld,
    /// The member does not report: unavailable, whatever its last report says.
    Unreachable,
    /// Everything else.
    InProgress,
}

/// What [`classify`] looks at.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The binding.
    pub binding: &'a Binding,
    /// Digest of what its spec asks for; none if that can't be told.
    pub desired_digest: Option<Digest>,
    /// Whether its cluster has stopped reporting.
    pub unreachable: bool,
    /// How long untrackable resources are waited for.
    pub unavailable_period: SignedDuration,
}

/// Classifies a binding, first row that holds:
///
/// | what holds, of fresh conditions | class |
/// |---|---|
/// | the cluster does not report | Unreachable |
/// | Overridden False, and [`was_available`] | Undisturbed |
/// | Overridden False, and Available Unknown NotAllWorkAreAvailable ([`Left::Unavailable`]) | Failed, of Available |
/// | Overridden False | Failed |
/// | WorkSynchronized False, reason SyncWorkFailed, and Available Unknown for the same reason | Withheld |
/// | WorkSynchronized False, reason SyncWorkFailed | Failed |
/// | Applied False, reason NotAllWorkHaveBeenApplied | Failed |
/// | any False, reason Timeout: the member was reachable, and took too long | Failed |
/// | DiffReported True | Ready |
/// | Available True, trackable | Ready |
/// | Available True, untrackable since unavailablePeriodSeconds | Ready |
/// | Available True, untrackable for less long | ReadyAt |
/// | otherwise (Applied False ApplyInProgress and Available False NotAllWorkAreAvailable among them) | InProgress |
#[must_use]
pub fn classify(facts: &Facts<'_>, now: Timestamp) -> Readiness {
    if facts.unreachable {
        return Readiness::Unreachable;
    }
    let fresh = Freshness::of(facts.binding, facts.desired_digest);
    let get = |stage| freshness::condition(facts.binding, fresh, stage);
    let failed = STAGES
        .into_iter()
        .find(|stage| get(*stage).is_some_and(|condition| is_failure(*stage, condition)));
    let is_left = |why| get(Stage::Available).is_some_and(|condition| is_unknown(condition, why));
    match failed {
        // Whoever leaves a cluster alone leaves that condition, too: it is about what runs there.
        Some(Stage::Overridden) if was_available(facts.binding) => return Readiness::Undisturbed,
        Some(Stage::Overridden) if is_left(BindingReason::NotAllWorkAreAvailable) => {
            return Readiness::Failed(Stage::Available);
        }
        Some(Stage::WorkSynchronized) if is_left(BindingReason::SyncWorkFailed) => {
            return Readiness::Withheld;
        }
        Some(stage) => return Readiness::Failed(stage),
        None => {}
    }
    if get(Stage::DiffReported).is_some_and(is_true) {
        return Readiness::Ready;
    }
    match get(Stage::Available).filter(|condition| is_true(condition)) {
        Some(available) if is_untrackable(available) => {
            let since = available.last_transition_time.0;
            // A period beyond the end of time never ends.
            let until = since
                .checked_add(facts.unavailable_period)
                .unwrap_or(Timestamp::MAX);
            if until <= now {
                Readiness::Ready
            } else {
                Readiness::ReadyAt(until)
            }
        }
        Some(_) => Readiness::Ready,
        None => Readiness::InProgress,
    }
}

/// What a cluster has that is left alone because what it is to get can't be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// What it was given last was available.
    Available,
    /// It was given something, and that is not known to be available.
    Unavailable,
    /// Nothing, as far as is known: nothing was applied there.
    Nothing,
}

/// What a cluster has, by the status of its binding before what it asks for now was refused.
///
/// Available counts only when the status is about the binding as it was one change ago. What was asked for in
/// between may have been sent without a word said of it yet: then nobody knows what runs there.
#[must_use]
pub fn left(binding: &Binding) -> Left {
    let conditions = binding.status.as_ref().and_then(|s| s.conditions.as_ref());
    let find = |stage: Stage| {
        conditions.and_then(|conditions| conditions::find(conditions, stage.as_str()))
    };
    let is_next = |condition: &Condition| {
        let (was, is) = (condition.observed_generation, binding.metadata.generation);
        was.zip(is)
            .is_none_or(|(was, is)| is.saturating_sub(was) <= 1)
    };
    match find(Stage::Available) {
        _ if find(Stage::Applied).is_some_and(|c| is_failure(Stage::Applied, c)) => {
            Left::Unavailable
        }
        Some(available) if says_available(available) && is_next(available) => Left::Available,
        Some(_) => Left::Unavailable,
        None if find(Stage::Applied).is_some() => Left::Unavailable,
        None if find(Stage::WorkSynchronized).is_some_and(is_true)
            && find(Stage::DiffReported).is_none() =>
        {
            Left::Unavailable
        }
        None => Left::Nothing,
    }
}

/// Whether a cluster is known to have been available with what it was given last: the condition says so, or,
/// where nothing could be made of what it was to get since, that it did so then.
fn was_available(binding: &Binding) -> bool {
    let conditions = binding.status.as_ref().and_then(|s| s.conditions.as_ref());
    let available = conditions.and_then(|list| conditions::find(list, Stage::Available.as_str()));
    available.is_some_and(says_available)
}

fn says_available(available: &Condition) -> bool {
    is_true(available)
        || is_unknown(available, BindingReason::OverriddenFailed)
        || is_unknown(available, BindingReason::SyncWorkFailed)
}

fn is_unknown(condition: &Condition, why: BindingReason) -> bool {
    conditions::status(condition) == Status::Unknown
        && BindingReason::parse(&condition.reason) == Some(why)
}

fn is_true(condition: &Condition) -> bool {
    conditions::status(condition) == Status::True
}

fn is_untrackable(available: &Condition) -> bool {
    available.reason == WORK_NOT_TRACKABLE
        || BindingReason::parse(&available.reason)
            == Some(BindingReason::NotAllWorkAreAvailabilityTrackable)
}

/// In the order in which they are looked at.
const STAGES: [Stage; 6] = [
    Stage::RolloutStarted,
    Stage::Overridden,
    Stage::WorkSynchronized,
    Stage::Applied,
    Stage::Available,
    Stage::DiffReported,
];

/// Only reasons that say "failed" count; False alone also stands for "not yet".
fn is_failure(stage: Stage, condition: &Condition) -> bool {
    if conditions::status(condition) != Status::False {
        return false;
    }
    if is_timeout(condition) {
        return true;
    }
    let reason = BindingReason::parse(&condition.reason);
    match stage {
        Stage::Overridden => true,
        Stage::WorkSynchronized => reason == Some(BindingReason::SyncWorkFailed),
        Stage::Applied => reason == Some(BindingReason::NotAllWorkHaveBeenApplied),
        Stage::RolloutStarted | Stage::Available | Stage::DiffReported => false,
    }
}

#[cfg(test)]
mod tests {
    use windlass_api::Time;
    use windlass_api::binding::BindingStatus;

    use super::*;

    const SINCE: i64 = 100;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// `conditions`: type, status, reason, all of generation 1, as is the binding.
    fn binding(list: &[(Stage, &str, &str)], generation: i64) -> Binding {
        let mut binding = Binding::default();
        binding.metadata.generation = Some(1);
        let conditions = list.iter().map(|(stage, status, reason)| Condition {
            type_: stage.to_string(),
            status: (*status).to_owned(),
            reason: (*reason).to_owned(),
            message: String::new(),
            observed_generation: Some(generation),
            last_transition_time: Time(at(SINCE)),
        });
        binding.status = Some(BindingStatus {
            conditions: Some(conditions.collect()),
            ..BindingStatus::default()
        });
        binding
    }

    fn class(binding: &Binding, unreachable: bool, now: i64) -> Readiness {
        let facts = Facts {
            binding,
            desired_digest: None,
            unreachable,
            unavailable_period: SignedDuration::from_secs(60),
        };
        classify(&facts, at(now))
    }

    type Row = (Stage, &'static str, &'static str, i64, Readiness);

    fn rows() -> Vec<Row> {
        use Readiness::{Failed, InProgress, Ready, ReadyAt};
        use Stage::{
            Applied, Available, DiffReported, Overridden, RolloutStarted, WorkSynchronized,
        };
        let untrackable = "NotAllWorkAreAvailabilityTrackable";
        vec![
            (Available, "True", "AllWorkAreAvailable", 100, Ready),
            (Available, "True", untrackable, 100, ReadyAt(at(160))),
            (Available, "True", untrackable, 159, ReadyAt(at(160))),
            (Available, "True", untrackable, 160, Ready),
            (Available, "True", "WorkNotTrackable", 159, ReadyAt(at(160))),
            (
                Available,
                "False",
                "NotAllWorkAreAvailable",
                999,
                InProgress,
            ),
            (Available, "Unknown", "AllWorkAreAvailable", 999, InProgress),
            (DiffReported, "True", "AllWorkHaveDiffReported", 100, Ready),
            (
                DiffReported,
                "False",
                "NotAllWorkHaveDiffReported",
                100,
                InProgress,
            ),
            (Applied, "True", "AllWorkHaveBeenApplied", 100, InProgress),
            (Applied, "False", "ApplyInProgress", 100, InProgress),
            (
                Applied,
                "False",
                "NotAllWorkHaveBeenApplied",
                100,
                Failed(Applied),
            ),
            (
                WorkSynchronized,
                "False",
                "SyncWorkFailed",
                100,
                Failed(WorkSynchronized),
            ),
            (
                WorkSynchronized,
                "False",
                "WorkNotSynchronizedYet",
                100,
                InProgress,
            ),
            (
                Overridden,
                "False",
                "OverriddenFailed",
                100,
                Failed(Overridden),
            ),
            (
                RolloutStarted,
                "False",
                "RolloutNotStartedYet",
                100,
                InProgress,
            ),
            (
                WorkSynchronized,
                "False",
                "Timeout",
                100,
                Failed(WorkSynchronized),
            ),
            (Applied, "False", "Timeout", 100, Failed(Applied)),
            (Available, "False", "Timeout", 100, Failed(Available)),
            (DiffReported, "False", "Timeout", 100, Failed(DiffReported)),
            (Available, "Unknown", "Timeout", 100, InProgress),
            (RolloutStarted, "True", "RolloutStarted", 100, InProgress),
        ]
    }

    #[test]
    fn one_condition() {
        use Readiness::InProgress;
        for (row, (stage, status, reason, now, expected)) in rows().into_iter().enumerate() {
            let fresh = binding(&[(stage, status, reason)], 1);
            assert_eq!(class(&fresh, false, now), expected, "row {row}");
            assert_eq!(
                class(&fresh, true, now),
                Readiness::Unreachable,
                "row {row}"
            );
            let stale = binding(&[(stage, status, reason)], 0);
            assert_eq!(class(&stale, false, now), InProgress, "stale row {row}");
        }
    }

    #[test]
    fn a_cluster_that_was_left_alone_is_undisturbed() {
        use Readiness::{Failed, Undisturbed};
        let refused = (Stage::Overridden, "False", "OverriddenFailed");
        for (status, expected) in [("True", Undisturbed), ("False", Failed(Stage::Overridden))] {
            let left = binding(&[refused, (Stage::Available, status, "R")], 1);
            assert_eq!(class(&left, false, 200), expected, "{status}");
            assert_eq!(class(&left, true, 200), Readiness::Unreachable);
        }
    }

    #[test]
    fn what_a_refusal_says_of_what_runs_there() {
        use Readiness::{Failed, Undisturbed, Withheld};
        use Stage::{Available, Overridden, WorkSynchronized};
        let rows = [
            (Overridden, "OverriddenFailed", Undisturbed),
            (Overridden, "SyncWorkFailed", Undisturbed),
            (Overridden, "NotAllWorkAreAvailable", Failed(Available)),
            (WorkSynchronized, "SyncWorkFailed", Withheld),
            (
                WorkSynchronized,
                "NotAllWorkAreAvailable",
                Failed(WorkSynchronized),
            ),
        ];
        for (stage, left, expected) in rows {
            let why = match stage {
                Overridden => "OverriddenFailed",
                _ => "SyncWorkFailed",
            };
            let refused = binding(&[(stage, "False", why), (Available, "Unknown", left)], 1);
            assert_eq!(class(&refused, false, 200), expected, "{stage} {left}");
        }
    }

    #[test]
    fn what_is_left_where_nothing_can_be_made() {
        use Stage::{Applied, Available, DiffReported, Overridden, WorkSynchronized};
        // Conditions; how many changes ago they were written; what is left.
        let available = (Available, "True", "AllWorkAreAvailable");
        let refused = (Overridden, "False", "OverriddenFailed");
        let sent = (WorkSynchronized, "True", "AllWorkSynced");
        type Said = [(Stage, &'static str, &'static str)];
        let rows: &[(&Said, i64, Left)] = &[
            (&[], 1, Left::Nothing),
            (&[refused], 1, Left::Nothing),
            (&[sent, (DiffReported, "True", "R")], 1, Left::Nothing),
            (&[sent], 1, Left::Unavailable),
            (&[(Applied, "False", "R")], 1, Left::Unavailable),
            (&[(Available, "False", "R")], 1, Left::Unavailable),
            (
                &[(Applied, "False", "NotAllWorkHaveBeenApplied"), available],
                1,
                Left::Unavailable,
            ),
            (&[available], 0, Left::Available),
            (&[available], 1, Left::Available),
            // What was asked for in between may have been sent.
            (&[available], 2, Left::Unavailable),
            (
                &[(Available, "Unknown", "OverriddenFailed")],
                1,
                Left::Available,
            ),
            (
                &[(Available, "Unknown", "SyncWorkFailed")],
                1,
                Left::Available,
            ),
            (
                &[(Available, "Unknown", "OverriddenFailed")],
                2,
                Left::Unavailable,
            ),
            (
                &[(Available, "Unknown", "NotAllWorkAreAvailable")],
                1,
                Left::Unavailable,
            ),
        ];
        for (row, (conditions, ago, expected)) in rows.iter().enumerate() {
            let binding = binding(conditions, 1 - ago);
            assert_eq!(left(&binding), *expected, "row {row}");
        }
    }

    #[test]
    fn a_failure_outweighs_a_later_success() {
        let both = binding(
            &[
                (Stage::Available, "True", "AllWorkAreAvailable"),
                (Stage::Applied, "False", "NotAllWorkHaveBeenApplied"),
            ],
            1,
        );
        assert_eq!(class(&both, false, 200), Readiness::Failed(Stage::Applied));
    }

    #[test]
    fn nothing_reported_is_in_progress_and_time_does_not_overflow() {
        let mut none = binding(&[], 1);
        none.status = None;
        assert_eq!(class(&none, false, 200), Readiness::InProgress);
        let untrackable = binding(&[(Stage::Available, "True", "WorkNotTrackable")], 1);
        let facts = Facts {
            binding: &untrackable,
            desired_digest: None,
            unreachable: false,
            unavailable_period: SignedDuration::MAX,
        };
        assert_eq!(classify(&facts, at(1)), Readiness::ReadyAt(Timestamp::MAX));
    }
}
