//! How many clusters may fail, and what counts as failed.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use windlass_api::conditions::BindingReason;
use windlass_api::run::{FailureKind, FailureThreshold, OnExceeded};
use windlass_status::defaults::Amount;
use windlass_status::duration;
use windlass_status::ready::Readiness;

use super::view::RunBinding;

/// How long a cluster may take to become available when the threshold doesn't say.
const UNAVAILABLE_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// How long something has to fail before that counts.
const SETTLES: SignedDuration = SignedDuration::from_secs(5);

/// How a cluster fares with what the run brought to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It has it.
    Done,
    /// It has failed, for this reason.
    Failed(String),
    /// Neither; when that may change though nothing is heard.
    Going(Option<Timestamp>),
}

/// Judges a cluster that has had what the run brings since `since`, and could tell of it. Without a threshold
/// nothing counts as failed.
pub fn judge(
    binding: &RunBinding<'_>,
    threshold: Option<&FailureThreshold>,
    since: Timestamp,
    now: Timestamp,
) -> Judgement {
    let kind = match binding.readiness {
        // What can't be tracked counts at once (hub §3.5).
        Readiness::Ready | Readiness::ReadyAt(_) => return Judgement::Done,
        Readiness::Unreachable => return Judgement::Going(None),
        Readiness::InProgress => FailureKind::Unavailable,
        Readiness::Failed(_) | Readiness::Undisturbed | Readiness::Withheld => {
            if binding
                .why
                .is_some_and(|why| why.reason == BindingReason::Timeout.as_str())
            {
                FailureKind::Timeout
            } else {
                FailureKind::ApplyFailed
            }
        }
    };
    let Some(threshold) = threshold else {
        return Judgement::Going(None);
    };
    let counts = |kind| {
        let listed = threshold.count.as_ref();
        listed.is_none_or(|listed| listed.contains(&kind))
    };
    let late = counts(FailureKind::Unavailable);
    if kind != FailureKind::Unavailable && counts(kind) {
        let settled = settled_at(binding, kind, since);
        if settled > now {
            return Judgement::Going(Some(settled));
        }
        return Judgement::Failed(said(binding).to_owned());
    }
    if !late {
        return Judgement::Going(None);
    }
    let text = threshold.unavailable_after.as_deref();
    let after = text.and_then(duration::parse).unwrap_or(UNAVAILABLE_AFTER);
    let at = since.checked_add(after).unwrap_or(Timestamp::MAX);
    if at > now {
        return Judgement::Going(Some(at));
    }
    Judgement::Failed(format!(
        "not available {} after it was updated: {}",
        duration::show(after),
        said(binding)
    ))
}

/// From when a failure counts. What one lost answer makes fail is tried again within a second or two, and no
/// reason to end a run, or a way back. What had failed with the version before has failed for long: that counts
/// from when the cluster was begun with.
fn settled_at(binding: &RunBinding<'_>, kind: FailureKind, begun: Timestamp) -> Timestamp {
    let Some(why) = binding.why.filter(|_| kind == FailureKind::ApplyFailed) else {
        return Timestamp::MIN;
    };
    let since = why.last_transition_time.0.max(begun);
    since.checked_add(SETTLES).unwrap_or(Timestamp::MAX)
}

/// What its conditions say of a cluster that isn't done.
pub fn said<'a>(binding: &RunBinding<'a>) -> &'a str {
    if binding.readiness == Readiness::Unreachable {
        return "the cluster is not reachable";
    }
    match binding.why {
        Some(why) if !why.message.is_empty() => &why.message,
        Some(why) => &why.reason,
        None => "nothing is reported yet",
    }
}

/// What happens if that many of `total` clusters have failed; none if they may.
pub fn exceeded(threshold: &FailureThreshold, failed: usize, total: usize) -> Option<OnExceeded> {
    (failed > allowed(&threshold.max_failures, total))
        .then(|| threshold.on_exceeded.unwrap_or_default())
}

/// How many of `total` may fail; a share is rounded down.
pub fn allowed(field: &IntOrString, total: usize) -> usize {
    share(field, total).unwrap_or(0)
}

/// A number, or a share of `total` rounded down; none for what is neither, and for a number that is text
/// (hub §3.8).
pub fn share(field: &IntOrString, total: usize) -> Option<usize> {
    if matches!(field, IntOrString::String(text) if !text.ends_with('%')) {
        return None;
    }
    match Amount::read(field)? {
        Amount::Count(number) => usize::try_from(number).ok(),
        Amount::Percent(share) => {
            let share = usize::try_from(share).unwrap_or(usize::MAX);
            Some(total.saturating_mul(share) / 100)
        }
    }
}
