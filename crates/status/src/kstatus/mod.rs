//! kstatus: one word for how an object stands, whatever its kind.
//!
//! [`compute`] gives exactly the verdicts of `sigs.k8s.io/cli-utils/pkg/kstatus/status` v0.37.2: its status
//! and the reason of its condition, its oddities included. So what Flux, `kpt` and Argo plug-ins say of an
//! object is what Windlass says. The messages are ours. There are two things that it does not take over: what
//! the library answers with an error is [`Status::Unknown`], and a container status that makes the library
//! panic is passed over.
//!
//! The order in which it decides, first that holds:
//!
//! | # | what holds | verdict |
//! |---|---|---|
//! | 1 | `metadata.deletionTimestamp` is a string that is not empty | Terminating |
//! | 2 | `metadata.generation` and `status.observedGeneration` are both there, and differ | InProgress |
//! | 3 | the first of the conditions Reconciling=True and Stalled=True, in the order of the list | InProgress, Failed |
//! | 4 | the kind (by group and kind, whatever the version) has a rule of its own: `kinds` | what that says |
//! | 5 | the first condition Ready that is True, False or Unknown | Current, InProgress, InProgress |
//! | 6 | nothing of these | Current |
//!
//! A field of the wrong type that one of these rows reads is an error, thus Unknown; `null` stands for "not
//! there" in the conditions and in `status`, but not in the three fields of rows 1 and 2. A number that is
//! not a whole one counts as missing in the kinds' rules. Words of conditions are case sensitive.
//!
//! `hack/kstatus-fuzz` compares this with the library over random objects. `tests/kstatus` holds verdicts
//! recorded from the library: 147 of the usual cases, and in `found.jsonl` the corners; a difference that the
//! comparison finds goes there.

mod created;
mod field;
mod kinds;
mod reason;

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

pub use reason::Reason;

pub(crate) use field::{Conditions, integer, text};
use field::{Malformed, nested_integer, nested_text};

/// How an object stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It is what its spec asks for, or nothing says otherwise.
    Current,
    /// Its controller is at work, or has not begun.
    InProgress,
    /// It says that it failed; somebody may have to act.
    Failed,
    /// It is being deleted.
    Terminating,
    /// It can't be told: the object is not formed as its kind demands.
    Unknown,
}

impl Status {
    /// The library's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Current => "Current",
            Self::InProgress => "InProgress",
            Self::Failed => "Failed",
            Self::Terminating => "Terminating",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is said of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How it stands.
    pub status: Status,
    /// Why: the reason of the library's condition Reconciling (of InProgress) or Stalled (of Failed). None for
    /// the other statuses.
    pub reason: Option<Reason>,
    /// For people: the object's own message where a condition of its own decided.
    pub message: String,
}

impl Verdict {
    fn new(status: Status, reason: Option<Reason>, message: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            message: message.into(),
        }
    }

    pub(crate) fn current(message: impl Into<String>) -> Self {
        Self::new(Status::Current, None, message)
    }

    pub(crate) fn in_progress(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(Status::InProgress, Some(reason), message)
    }

    pub(crate) fn failed(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(Status::Failed, Some(reason), message)
    }
}

/// Says how an object stands, by the table above. `now` counts only for a pod that can't be scheduled, which
/// is given 15 s from its creation.
///
/// `object` is the whole object as the API server gives it, with its apiVersion and kind.
#[must_use]
pub fn compute(object: &Value, now: Timestamp) -> Verdict {
    decide(object, now).unwrap_or_else(|malformed| {
        Verdict::new(
            Status::Unknown,
            None,
            format!("its status can't be read: {malformed}"),
        )
    })
}

fn decide(object: &Value, now: Timestamp) -> Result<Verdict, Malformed> {
    if !object.is_object() {
        return Err(Malformed::new("the object", "an object"));
    }
    let deleted = nested_text(object, ["metadata", "deletionTimestamp"])?;
    if deleted.is_some_and(|time| !time.is_empty()) {
        return Ok(Verdict::new(
            Status::Terminating,
            None,
            "it is being deleted",
        ));
    }
    if let Some(verdict) = unobserved(object)? {
        return Ok(verdict);
    }
    let conditions = Conditions::of(object)?;
    if let Some(verdict) = abnormal(&conditions) {
        return Ok(verdict);
    }
    if let Some(verdict) = kinds::judge(object, &conditions, now) {
        return verdict;
    }
    Ok(ready(&conditions).unwrap_or_else(|| Verdict::current("nothing says that it is not ready")))
}

/// Row 2. The observed generation is looked at only if there is a generation.
fn unobserved(object: &Value) -> Result<Option<Verdict>, Malformed> {
    let Some(generation) = nested_integer(object, ["metadata", "generation"])? else {
        return Ok(None);
    };
    let observed = nested_integer(object, ["status", "observedGeneration"])?;
    Ok(observed
        .filter(|observed| *observed != generation)
        .map(|observed| {
            Verdict::in_progress(
                Reason::LatestGenerationNotObserved,
                format!(
                    "its controller has seen generation {observed}, and the latest is {generation}"
                ),
            )
        }))
}

/// Row 3.
fn abnormal(conditions: &Conditions<'_>) -> Option<Verdict> {
    conditions
        .iter()
        .filter(|condition| condition.status == "True")
        .find_map(|condition| match condition.kind {
            "Reconciling" => Some(Verdict::in_progress(
                condition.reported(),
                condition.message,
            )),
            "Stalled" => Some(Verdict::failed(condition.reported(), condition.message)),
            _ => None,
        })
}

/// Row 5.
fn ready(conditions: &Conditions<'_>) -> Option<Verdict> {
    conditions
        .iter()
        .filter(|condition| condition.kind == "Ready")
        .find_map(|condition| match condition.status {
            "True" => Some(Verdict::current("it says that it is ready")),
            "False" | "Unknown" => Some(Verdict::in_progress(
                condition.reported(),
                condition.message,
            )),
            _ => None,
        })
}

/// Group and kind of an object as the library takes them. An apiVersion with two slashes or more is none, and
/// then the kind does not count either; nor does a word that is not a string.
pub(crate) fn group_kind(object: &Value) -> (&str, &str) {
    let version = text(object, "/apiVersion").unwrap_or_default();
    let kind = text(object, "/kind").unwrap_or_default();
    match version.split_once('/') {
        None => ("", kind),
        Some((_, rest)) if rest.contains('/') => ("", ""),
        Some((group, _)) => (group, kind),
    }
}

/// The key of the library's table of kinds: `group/kind`, or the kind alone in the core group.
fn key(object: &Value) -> Cow<'_, str> {
    match group_kind(object) {
        ("", kind) => Cow::Borrowed(kind),
        (group, kind) => Cow::Owned(format!("{group}/{kind}")),
    }
}
