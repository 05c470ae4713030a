//! What an Addon's status says: one pure function from what happened to the whole of it.
//!
//! | what happened | Rendered | Ready | abnormal |
//! |---|---|---|---|
//! | somebody has to mend something | False, the reason | False, the same | Stalled |
//! | it waits for a repository or chart | Unknown, the reason | False, the same | Reconciling |
//! | it failed for a reason that may pass | False, the reason | False, the same | Reconciling |
//! | rendered, and the placement can't work, or can't be made | True | False, `PlacementFailed`, or the reason | Stalled |
//! | rendered, and there is no placement yet | True | False, the reason | Reconciling |
//! | rendered, and some cluster has failed | True | False, `PlacementFailing` | Reconciling |
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
/// The longest one: nobody tells when what an attempt failed for is mended.
const LONGEST: SignedDuration = SignedDuration::from_mins(2);
/// The longest that a server may ask for.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);

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
    /// Some cluster can't have it, or takes too long; the placement goes on trying.
    Failing(String),
    /// It can't get there by itself.
    Failed(String),
    /// There is no placement yet.
    Waits(Why),
    /// It can't be made, or must not be touched: somebody has to mend something.
    Refused(Why),
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

/// 5 s, 10 s, and so on up to 2 min, and up to a tenth more or less; at least what a server asked for, up to
/// 10 min.
fn delay(failures: i32, asked: Option<Duration>, jitter: f64) -> SignedDuration {
    let doublings = failures.clamp(1, 10) - 1;
    let grown = (FIRST * (1 << doublings)).min(LONGEST);
    let asked = asked.map_or(SignedDuration::ZERO, |asked| {
        SignedDuration::try_from(asked).map_or(PATIENCE, |asked| asked.min(PATIENCE))
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
    let (rendered, ready) = told(inputs);
    let mut all = vec![
        build(READY, ready.is, &ready.why),
        build(RENDERED, rendered.is, &rendered.why),
    ];
    match ready.beside {
        Beside::Nothing => {}
        Beside::Stalled => all.push(build(STALLED, Status::True, &ready.why)),
        Beside::Waiting => all.push(build(RECONCILING, Status::True, &ready.why)),
        Beside::Retrying => {
            let why = Why::new("ProgressingWithRetry", &ready.why.message);
            all.push(build(RECONCILING, Status::True, &why));
        }
    }
    all
}

/// The abnormal condition that stands beside Ready.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Stalled,
    Waiting,
    Retrying,
}

/// What a condition says, and what stands beside it.
struct Told {
    is: Status,
    why: Why,
    beside: Beside,
}

/// Rendered and Ready.
fn told(inputs: &Inputs<'_>) -> (Told, Told) {
    let told = |is, why: &Why, beside| Told {
        is,
        why: why.clone(),
        beside,
    };
    let both = |rendered, why: &Why, beside| {
        (
            told(rendered, why, beside),
            told(Status::False, why, beside),
        )
    };
    let placed = match inputs.outcome {
        Outcome::Refused(why) => return both(Status::False, why, Beside::Stalled),
        Outcome::Waits(why) => return both(Status::Unknown, why, Beside::Waiting),
        Outcome::Failed(why, _) => return both(Status::False, why, Beside::Retrying),
        Outcome::Rendered(placed) => placed,
    };
    let rendered = Why::new(RENDERED, rendered_message(inputs.known));
    let rendered = told(Status::True, &rendered, Beside::Nothing);
    let no =
        |reason, message: &str, beside| told(Status::False, &Why::new(reason, message), beside);
    let ready = match placed {
        Placed::Available(message) => told(
            Status::True,
            &Why::new("Available", message),
            Beside::Nothing,
        ),
        Placed::Progressing(message) => no("PlacementProgressing", message, Beside::Waiting),
        Placed::Failing(message) => no("PlacementFailing", message, Beside::Retrying),
        Placed::Failed(message) => no("PlacementFailed", message, Beside::Stalled),
        Placed::Waits(why) => told(Status::False, why, Beside::Waiting),
        Placed::Refused(why) => told(Status::False, why, Beside::Stalled),
    };
    (rendered, ready)
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
