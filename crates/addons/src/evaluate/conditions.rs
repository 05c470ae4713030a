//! The four conditions, each an ordered choice.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use windlass_api::conditions::Status;
use windlass_status::NewCondition;

use super::{Attempt, Credentials, Inputs, Internal, READY, RECONCILING, STALLED, SYNCED, is};
use crate::failure::Failure;
use crate::schedule::MAX_FAILURES;

const SUCCESS: &str = "Success";
const SUSPENDED: &str = "Suspended";
const RETRYING: &str = "ProgressingWithRetry";
const AWAITING: &str = "AwaitingInitialSync";
const SYNC_FAILED: &str = "SyncFailed";
const CATALOGUE_FAILED: &str = "CatalogUpdateFailed";
const NOT_READ: &str = "The repository is not read while spec.suspend is true.";

/// Why something is so: reason and message.
#[derive(Clone, Debug)]
struct Why {
    reason: String,
    message: String,
}

impl Why {
    fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            message: message.into(),
        }
    }
}

/// All that apply, in the order Ready, Synced, Reconciling, Stalled.
pub(super) fn all(inputs: &Inputs<'_>, failures: i32) -> Vec<Condition> {
    let previous = inputs.current.conditions.as_deref().unwrap_or_default();
    let build = |type_: &str, status: Status, why: Why| {
        NewCondition {
            type_,
            status,
            reason: &why.reason,
            message: why.message,
            observed_generation: Some(inputs.generation),
        }
        .build(previous, inputs.now)
    };
    let synced = match synced(inputs) {
        Some((status, why)) => Some(build(SYNCED, status, why)),
        None => inputs.stored(SYNCED).cloned(),
    };
    let stalled = stalled(inputs, failures);
    let (ready, mut why_ready) = ready(inputs, stalled.as_ref(), synced.as_ref());
    let reconciling = if stalled.is_some() {
        None
    } else {
        reconciling(inputs, failures, (ready, &why_ready), synced.as_ref())
    };
    if inputs.suspended && ready == Status::False {
        why_ready.message.push_str(" (");
        why_ready.message.push_str(NOT_READ);
        why_ready.message.push(')');
    }
    let mut all = vec![build(READY, ready, why_ready)];
    all.extend(synced);
    all.extend(reconciling.map(|why| build(RECONCILING, Status::True, why)));
    all.extend(stalled.map(|why| build(STALLED, Status::True, why)));
    all
}

fn stalled(inputs: &Inputs<'_>, failures: i32) -> Option<Why> {
    if let Some((fault, message)) = &inputs.config {
        return Some(Why::new(fault.reason(), message));
    }
    if let Internal::NotReady {
        reason,
        message,
        stalled: true,
    } = &inputs.internal
    {
        return Some(Why::new(reason, message));
    }
    match &inputs.attempt {
        Attempt::None => {
            // The next attempt takes it away; while suspended there is none, and what stood was not of one.
            let stood = inputs.stored(STALLED).filter(|stored| {
                !inputs.suspended
                    && is(Some(stored), Status::True)
                    && stored.observed_generation == Some(inputs.generation)
                    && !inputs.is_changed()
            });
            stood.map(|stored| Why::new(&stored.reason, &stored.message))
        }
        Attempt::Failed(Failure::Terminal { fault, message }) => {
            Some(Why::new(fault.reason(), message))
        }
        Attempt::Failed(Failure::Transient { message, .. }) if failures >= MAX_FAILURES => {
            // No number: a terminal failure uses them all up, and none is counted beyond the fifth.
            let message = format!("Attempts keep failing, the last: {message}");
            Some(Why::new("RetriesExceeded", message))
        }
        Attempt::Failed(_) | Attempt::Read { .. } => None,
    }
}

fn ready(inputs: &Inputs<'_>, stalled: Option<&Why>, synced: Option<&Condition>) -> (Status, Why) {
    if let Credentials::NotReady(message) = &inputs.credentials {
        return (Status::False, Why::new("AuxiliaryResourcesFailed", message));
    }
    if let Internal::NotReady {
        reason, message, ..
    } = &inputs.internal
    {
        return (Status::False, Why::new(reason, message));
    }
    if let Some(why) = stalled {
        return (Status::False, why.clone());
    }
    let read_now = matches!(inputs.attempt, Attempt::Read { .. });
    if read_now || inputs.was_read() {
        let why = if inputs.suspended {
            Why::new(SUSPENDED, NOT_READ)
        } else if synced.is_some_and(|synced| synced.reason == SYNC_FAILED) {
            Why::new(
                SUCCESS,
                "The repository could be read before; see Synced for the last attempt.",
            )
        } else {
            Why::new(SUCCESS, "The repository can be read.")
        };
        return (Status::True, why);
    }
    let message = if inputs.suspended {
        "The repository was not read yet, and is not while spec.suspend is true."
    } else {
        "The repository was not read yet."
    };
    (Status::Unknown, Why::new(AWAITING, message))
}

fn reconciling(
    inputs: &Inputs<'_>,
    failures: i32,
    (ready, why_ready): (Status, &Why),
    synced: Option<&Condition>,
) -> Option<Why> {
    if matches!(inputs.internal, Internal::NotReady { .. }) {
        return Some(Why::new("Reconciling", &why_ready.message));
    }
    if let Credentials::NotReady(message) = &inputs.credentials {
        return Some(Why::new(RETRYING, message));
    }
    if ready == Status::True && is(synced, Status::True) {
        return None;
    }
    // The catalogue is not what the repository offers. Why not stands in Synced, in the same words also in the
    // passes between two attempts: no write.
    let not_synced = synced.filter(|synced| !is(Some(synced), Status::True));
    let cause = not_synced.map_or(&why_ready.message, |synced| &synced.message);
    if inputs.suspended {
        return Some(Why::new(SUSPENDED, cause));
    }
    if failures > 0 {
        let message = format!("{failures} of {MAX_FAILURES} attempts failed, the last: {cause}");
        return Some(Why::new(RETRYING, message));
    }
    let reason = not_synced.map_or(AWAITING, |_| RETRYING);
    Some(Why::new(reason, cause))
}

fn synced(inputs: &Inputs<'_>) -> Option<(Status, Why)> {
    match &inputs.attempt {
        Attempt::None => None,
        Attempt::Failed(failure) => {
            Some((Status::False, Why::new(SYNC_FAILED, failure.to_string())))
        }
        Attempt::Read {
            catalogue: Err(message),
            ..
        } => Some((Status::False, Why::new(CATALOGUE_FAILED, message))),
        Attempt::Read { .. } => {
            let message = "The AddonCharts are what the repository offers.";
            Some((Status::True, Why::new(SUCCESS, message)))
        }
    }
}
