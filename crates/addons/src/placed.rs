//! What an Addon's status says: one pure function from what happened to the whole of it.
//!
//! | what happened | Rendered | Ready | abnormal |
//! |---|---|---|---|
//! | somebody has to mend something | False, the reason | False, the same | Stalled |
//! | it waits for a repository or chart | Unknown, the reason | False, the same | Reconciling |
//! | it failed for a reason that may pass | False, the reason | False, the same | Reconciling |
//! | rendered, and the placement can't work | True | False, `PlacementFailed` | Stalled |
//! | rendered, and not available everywhere yet | True | False, `PlacementProgressing` | Reconciling |
//! | rendered and available everywhere | True | True, `Available` | none |
//!
//! What runs is never touched by any of the first three: the envelopes of the last render stay. A repository
//! that can't be read does not even show here as long as nothing new is asked of it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use windlass_api::addon::AddonStatus;
use windlass_api::conditions::Status;
use windlass_status::NewCondition;

use crate::evaluate::{READY, RECONCILING, STALLED};
use crate::schedule;

/// Type of a condition.
pub const RENDERED: &str = "Rendered";
/// The first distance between two attempts.
const FIRST: SignedDuration = SignedDuration::from_secs(5);
/// The longest one.
const LONGEST: SignedDuration = SignedDuration::from_mins(10);

/// What a pass came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Somebody has to mend something: a change of the Addon, its repository or its placement is waited for.
    Refused(Why),
    /// Something that is not there yet is waited for.
    Waits(Why),
    /// It failed, and is tried again.
    Failed(Why, Option<Duration>),
    /// What is asked for is rendered, and its placement is so.
    Rendered(Placed),
}

/// Why something is so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// One CamelCase word.
    pub reason: &'static str,
    /// For people; says what to do.
    pub message: String,
}

impl Why {
    /// Of both parts.
    #[must_use]
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// State of the placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It has the render on every cluster.
    Available(String),
    /// It is on its way.
    Progressing(String),
    /// It can't get there by itself.
    Failed(String),
}

/// What [`evaluate`] goes by.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// The Addon's generation.
    pub generation: i64,
    /// Now.
    pub now: Timestamp,
    /// From −1 to 1.
    pub jitter: f64,
    /// The status with what this pass has found out about versions and renders; the conditions, counts and
    /// times in it are still those of before.
    pub known: &'a AddonStatus,
    /// What the pass came to.
    pub outcome: &'a Outcome,
}

/// The whole status, and when to look again if nothing changes.
#[must_use]
pub fn evaluate(inputs: &Inputs<'_>) -> (AddonStatus, Option<SignedDuration>) {
    let mut status = inputs.known.clone();
    let before = if status.observed_generation == Some(inputs.generation) {
        status.consecutive_failures.unwrap_or(0).max(0)
    } else {
        0
    };
    status.observed_generation = Some(inputs.generation);
    status.next_attempt_time = None;
    status.consecutive_failures = None;
    let mut requeue = None;
    if let Outcome::Failed(_, asked) = inputs.outcome {
        let failures = before.saturating_add(1).min(i32::from(u8::MAX));
        let delay = delay(failures, *asked, inputs.jitter);
        status.consecutive_failures = Some(failures);
        status.next_attempt_time = inputs.now.checked_add(delay).ok().map(whole);
        requeue = Some(delay);
    }
    status.conditions = Some(conditions(inputs));
    (status, requeue)
}

fn whole(at: Timestamp) -> Time {
    windlass_status::conditions::time(at)
}

/// 5 s, 10 s, and so on up to 10 min, and up to a tenth more or less; at least what a server asked for, up to
/// the same bound.
fn delay(failures: i32, asked: Option<Duration>, jitter: f64) -> SignedDuration {
    let doublings = failures.clamp(1, 10) - 1;
    let grown = (FIRST * (1 << doublings)).min(LONGEST);
    let asked = asked.map_or(SignedDuration::ZERO, |asked| {
        SignedDuration::try_from(asked).map_or(LONGEST, |asked| asked.min(LONGEST))
    });
    let own = schedule::stretch(grown, jitter);
    let distance = own.max(schedule::stretch(asked, jitter.abs()));
    SignedDuration::from_secs(distance.as_secs_f64().ceil() as i64)
}

fn conditions(inputs: &Inputs<'_>) -> Vec<windlass_api::Condition> {
    let previous = inputs.known.conditions.as_deref().unwrap_or_default();
    let build = |type_, status, why: &Why| {
        NewCondition {
            type_,
            status,
            reason: why.reason,
            message: why.message.clone(),
            observed_generation: Some(inputs.generation),
        }
        .build(previous, inputs.now)
    };
    let rendered = Why::new(RENDERED, rendered_message(inputs.known));
    let (rendered_is, rendered, ready_is, ready, stalled) = match inputs.outcome {
        Outcome::Refused(why) => (Status::False, why.clone(), Status::False, why.clone(), true),
        Outcome::Waits(why) => (
            Status::Unknown,
            why.clone(),
            Status::False,
            why.clone(),
            false,
        ),
        Outcome::Failed(why, _) => (
            Status::False,
            why.clone(),
            Status::False,
            why.clone(),
            false,
        ),
        Outcome::Rendered(placed) => {
            let (is, reason, message, stalled) = match placed {
                Placed::Available(message) => (Status::True, "Available", message, false),
                Placed::Progressing(message) => {
                    (Status::False, "PlacementProgressing", message, false)
                }
                Placed::Failed(message) => (Status::False, "PlacementFailed", message, true),
            };
            (
                Status::True,
                rendered,
                is,
                Why::new(reason, message),
                stalled,
            )
        }
    };
    let mut all = vec![
        build(READY, ready_is, &ready),
        build(RENDERED, rendered_is, &rendered),
    ];
    if stalled {
        all.push(build(STALLED, Status::True, &ready));
    } else if ready_is != Status::True {
        let tries = match inputs.outcome {
            Outcome::Failed(..) => Why::new("ProgressingWithRetry", &ready.message),
            _ => ready,
        };
        all.push(build(RECONCILING, Status::True, &tries));
    }
    all
}

fn rendered_message(status: &AddonStatus) -> String {
    let version = status.version.as_deref().unwrap_or_default();
    let objects: i32 = status
        .objects
        .iter()
        .flat_map(|objects| objects.values())
        .sum();
    let mut message = format!("Version {version} is rendered: {objects} objects.");
    if status.not_reproducible == Some(true) {
        message.push_str(
            " The chart has random values or dates in it: it renders differently each time, and is rendered \
             again only when something that it depends on changes.",
        );
    }
    let hooks = status.skipped_hooks.as_ref().map_or(0, Vec::len);
    if hooks > 0 {
        message.push_str(&format!(
            " {hooks} hooks are left out, see status.skippedHooks."
        ));
    }
    if let Some(assumed) = &status.assumed_kinds {
        message.push_str(&format!(
            " Taken to live in a namespace, for the hub does not know them: {}.",
            assumed.join(", ")
        ));
    }
    if let Some(newer) = &status.available_version {
        message.push_str(&format!(
            " Version {newer} could be rolled out; updatePolicy: Automatic would, and so would asking for it."
        ));
    }
    message
}
