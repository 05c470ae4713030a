//! What a repository's status says: one pure function from what happened to the whole of it (the first seed
//! document; reference, seed systems A4, with its holes mended).
//!
//! | condition | first that holds | status, reason |
//! |---|---|---|
//! | Stalled | the spec can't work | True, its fault |
//! | | the internal repository is stalled | True, its reason |
//! | | no attempt now, not suspended, and it stood for this spec | as it was |
//! | | a reading that somebody has to mend | True, its fault |
//! | | five failures in a row | True, `RetriesExceeded` |
//! | | else | absent |
//! | Ready | credentials can't be used | False, `AuxiliaryResourcesFailed` |
//! | | the internal repository is not ready | False, its reason |
//! | | stalled | False, the same reason |
//! | | read now, or before under the same spec and credentials (the latch) | True, `Success`; `Suspended` |
//! | | else | Unknown, `AwaitingInitialSync` |
//! | Reconciling | stalled | absent |
//! | | the internal repository is not ready | True, `Reconciling` |
//! | | credentials can't be used | True, `ProgressingWithRetry` |
//! | | AddonCharts could not be written, now or before | True, `ProgressingWithRetry` |
//! | | failures | True, `ProgressingWithRetry` |
//! | | suspended while the catalogue is not what the repository offers | True, `Suspended` |
//! | | Ready is Unknown | True, `AwaitingInitialSync` |
//! | | else | absent |
//! | Synced, only after an attempt | not read | False, `SyncFailed` |
//! | | AddonCharts could not be written | False, `CatalogUpdateFailed` |
//! | | else | True, `Success` |
//!
//! Three invariants: Ready=True and Synced=True have no abnormal condition; everything else has exactly one; and
//! all of it is about the present generation, but for a Synced that is about the last attempt. Only the last
//! status, the spec and the Secrets decide: of a restart nothing is seen.

mod conditions;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use windlass_api::addon::RepositoryStatus;
use windlass_api::conditions::Status;
use windlass_status::{Digest, conditions as list};

use crate::failure::{Failure, Fault};
use crate::schedule::{self, MAX_FAILURES, SHORTEST_INTERVAL};

/// Type of a condition.
pub const READY: &str = "Ready";
/// Type of a condition.
pub const SYNCED: &str = "Synced";
/// Type of a condition: abnormal while True, absent else.
pub const RECONCILING: &str = "Reconciling";
/// Type of a condition: abnormal while True, absent else.
pub const STALLED: &str = "Stalled";

/// What [`evaluate`] goes by.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// The repository's generation.
    pub generation: i64,
    /// Now.
    pub now: Timestamp,
    /// From −1 to 1.
    pub jitter: f64,
    /// How often the repository is read.
    pub interval: SignedDuration,
    /// The status as it stands.
    pub current: &'a RepositoryStatus,
    /// What decides where and as whom it is read; none if that can't be said.
    pub spec_digest: Option<Digest>,
    /// Why the spec can't work.
    pub config: Option<(Fault, String)>,
    /// The Secrets.
    pub credentials: Credentials,
    /// An object that another controller reads the repository by. The hub has none: it passes
    /// [`Internal::None`], so that the latch holds through an outage.
    pub internal: Internal,
    /// No attempts are wanted.
    pub suspended: bool,
    /// Value of the annotation that asks for an attempt.
    pub sync_request: Option<&'a str>,
    /// What was tried in this pass.
    pub attempt: Attempt,
}

/// State of what the repository is read with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// None are asked for.
    None,
    /// They can be used.
    Ready,
    /// They can't, and why.
    NotReady(String),
}

/// State of an internal repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Internal {
    /// There is none.
    None,
    /// It is in order.
    Ready,
    /// It is not.
    NotReady {
        /// Its reason.
        reason: String,
        /// Its message.
        message: String,
        /// Whether it has given up.
        stalled: bool,
    },
}

/// What came of a pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Attempt {
    /// Nothing was tried.
    None,
    /// It could not be read.
    Failed(Failure),
    /// It was read.
    Read {
        /// How many charts it has; none if nothing has changed since the last time.
        found: Option<Found>,
        /// Why its AddonCharts could not all be written.
        catalogue: Result<(), String>,
    },
}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Charts.
    pub charts: usize,
    /// Entries that were left out.
    pub skipped: usize,
}

/// What follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The whole status.
    pub status: RepositoryStatus,
    /// How long until it has to be looked at again; none until something changes.
    pub requeue_after: Option<SignedDuration>,
}

impl Inputs<'_> {
    /// Whether a pass reads the repository: it can, it may, and it is asked for, changed or due.
    #[must_use]
    pub fn should_attempt(&self) -> bool {
        self.can_attempt()
            && (self.is_forced()
                || self.is_changed()
                || schedule::is_due(self.now, next_sync(self.current), self.interval))
    }

    fn can_attempt(&self) -> bool {
        !self.suspended
            && self.config.is_none()
            && self.spec_digest.is_some()
            && !self.is_unusable()
    }

    fn is_unusable(&self) -> bool {
        matches!(self.credentials, Credentials::NotReady(_))
    }

    fn is_forced(&self) -> bool {
        let request = self.sync_request;
        request.is_some() && request != self.current.last_handled_sync_request.as_deref()
    }

    /// Whether the last status was about another spec, or the last attempt about other credentials.
    fn is_changed(&self) -> bool {
        self.current.observed_generation != Some(self.generation) || self.is_elsewhere()
    }

    fn is_elsewhere(&self) -> bool {
        let last = self.current.attempted_spec_digest.as_deref();
        match (&self.spec_digest, last) {
            (Some(digest), Some(last)) => !digest.is(last),
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// Whether the repository was read before, as it is to be read now.
    fn was_read(&self) -> bool {
        let last = self.current.fetched_spec_digest.as_deref();
        matches!((&self.spec_digest, last), (Some(digest), Some(last)) if digest.is(last))
    }

    fn stored(&self, type_: &str) -> Option<&Condition> {
        list::find(
            self.current.conditions.as_deref().unwrap_or_default(),
            type_,
        )
    }
}

/// See the module. It cannot fail.
#[must_use]
pub fn evaluate(inputs: &Inputs<'_>) -> Decision {
    let failures = failures(inputs);
    let conditions = conditions::all(inputs, failures);
    let mut status = inputs.current.clone();
    status.conditions = Some(conditions);
    status.observed_generation = Some(inputs.generation);
    status.consecutive_fetch_failures = (failures > 0).then_some(failures);
    note_attempt(inputs, failures, &mut status);
    let requeue_after = requeue_after(inputs, &status);
    Decision {
        status,
        requeue_after,
    }
}

fn next_sync(status: &RepositoryStatus) -> Option<Timestamp> {
    status.next_sync_time.as_ref().map(|time| time.0)
}

/// How many attempts in a row have failed. What failed under another spec says nothing about this one, and
/// AddonCharts that can't be written say nothing about the repository.
fn failures(inputs: &Inputs<'_>) -> i32 {
    let before = if inputs.is_changed() {
        0
    } else {
        let stored = inputs.current.consecutive_fetch_failures;
        stored.unwrap_or(0).clamp(0, MAX_FAILURES)
    };
    match &inputs.attempt {
        Attempt::None => before,
        Attempt::Read { .. } => 0,
        Attempt::Failed(Failure::Terminal { .. }) => MAX_FAILURES,
        Attempt::Failed(Failure::Transient { .. }) => (before + 1).min(MAX_FAILURES),
    }
}

/// Times, digests and counts.
fn note_attempt(inputs: &Inputs<'_>, failures: i32, status: &mut RepositoryStatus) {
    let now = list::time(inputs.now);
    if inputs.attempt == Attempt::None {
        let is_beyond = |next| schedule::is_beyond(inputs.now, next, inputs.interval);
        // A spec that nothing was tried for yet must not wait for the time that the last one was given, and
        // nothing for a time that was given under another clock.
        if inputs.is_changed() || next_sync(status).is_some_and(is_beyond) {
            status.next_sync_time = None;
        }
        return;
    }
    let digest = inputs.spec_digest.map(|digest| digest.to_string());
    status.attempted_spec_digest.clone_from(&digest);
    status.last_handled_sync_request = inputs.sync_request.map(str::to_owned);
    let mut retry_after = None;
    let mut interval = inputs.interval;
    match &inputs.attempt {
        Attempt::None => {}
        Attempt::Failed(failure) => {
            retry_after = failure
                .retry_after()
                .map(|asked| SignedDuration::try_from(asked).unwrap_or(SignedDuration::MAX));
        }
        Attempt::Read { found, catalogue } => {
            status.last_successful_fetch_time = Some(now.clone());
            status.fetched_spec_digest = digest;
            if let Some(found) = found {
                status.chart_count = Some(count(found.charts));
                status.skipped_entries = (found.skipped > 0).then(|| count(found.skipped));
            }
            match catalogue {
                Ok(()) => status.last_successful_sync_time = Some(now.clone()),
                // Soon, but not at once: the status that says so would itself be a reason to look again, and
                // each look reads the whole repository.
                Err(_) => interval = SHORTEST_INTERVAL,
            }
        }
    }
    let next = schedule::next(inputs.now, interval, failures, retry_after, inputs.jitter);
    status.next_sync_time = Some(Time(next));
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn requeue_after(inputs: &Inputs<'_>, status: &RepositoryStatus) -> Option<SignedDuration> {
    // All else waits for a change of the spec or of a Secret, which are watched.
    let next = inputs.can_attempt().then(|| next_sync(status))?;
    Some(next.map_or(SignedDuration::ZERO, |next| {
        schedule::until(inputs.now, next)
    }))
}

/// Whether a status was worked out for this generation and its condition of that type is so.
fn is(condition: Option<&Condition>, status: Status) -> bool {
    condition.is_some_and(|condition| list::status(condition) == status)
}
