//! What a contender for the lease does next: pure, with times given.
//!
//! Three rules keep two from leading at once, however late answers are and whatever the wall clocks say:
//!
//! 1. Every write is a compare-and-swap: a create that meets no lease, or a replace of the version seen.
//! 2. Who holds the lease counts from *before* it sent its last successful write, and leads for the renew
//!    deadline only.
//! 3. Who waits for the lease counts from *after* it saw the holder's record change, by its own monotonic
//!    clock, for the duration that the holder has promised in the record. The record's time is only ever
//!    compared for being another one than before.
//!
//! The renew deadline is shorter than the duration; clocks whose rates differ by less than that ratio are
//! safe. What is not: an administrator who deletes or empties a lease that is held says "take it now".

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::core::ObjectMeta;

use crate::clock::Instant;

/// How long things last. The defaults hand over within 15 s of a crash: 10 s lease, 7 s renew deadline,
/// 2 s retry period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    lease: Duration,
    renew_deadline: Duration,
    retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            renew_deadline: Duration::from_secs(7),
            retry: Duration::from_secs(2),
        }
    }
}

impl Timing {
    /// The lease's duration counts in whole seconds; between it and the renew deadline lies the margin for
    /// requests that are under way and for clocks of different rates, a tenth at least. One renewal may
    /// fail without harm, so the deadline is longer than the retry period.
    ///
    /// # Errors
    /// When the times don't go together; the text says which, by the names of the hub's flags.
    pub fn new(
        lease: Duration,
        renew_deadline: Duration,
        retry: Duration,
    ) -> Result<Self, &'static str> {
        if lease.as_secs() == 0
            || lease.subsec_nanos() != 0
            || i32::try_from(lease.as_secs()).is_err()
        {
            return Err("the lease duration is a whole number of seconds, 1 at least");
        }
        if renew_deadline > lease.mul_f64(0.9) {
            return Err("the renew deadline is at most nine tenths of the lease duration");
        }
        if retry.is_zero() || renew_deadline < retry.mul_f64(1.2) {
            return Err(
                "the renew deadline is at least 1.2 times the retry period, which is above 0",
            );
        }
        Ok(Self {
            lease,
            renew_deadline,
            retry,
        })
    }

    /// How long the lease stays the holder's without being renewed.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// How long the holder leads without renewing.
    #[must_use]
    pub fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// Time between renewals, and between looks of those who wait.
    #[must_use]
    pub fn retry(&self) -> Duration {
        self.retry
    }
}

/// Who contends for which lease.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// What nobody else is called, not even the same process after a restart.
    pub identity: String,
    /// How long things last.
    pub timing: Timing,
}

/// What tells one state of a lease from another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    holder: String,
    renewed: Option<Timestamp>,
    transitions: i32,
    version: String,
}

impl Record {
    fn of(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        Self {
            holder: spec.holder_identity.unwrap_or_default(),
            renewed: spec.renew_time.map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or_default(),
            version: lease.metadata.resource_version.clone().unwrap_or_default(),
        }
    }
}

/// A record, and since when it is known not to have changed.
#[derive(Clone, Debug)]
struct Seen {
    record: Record,
    since: Instant,
    promised: Duration,
}

/// What a contender knows.
#[derive(Clone, Debug)]
pub struct LeaseState {
    contender: Contender,
    /// The lease as read last; none when there was none.
    lease: Option<Lease>,
    /// When that was; none when it may not be so any more.
    looked: Option<Instant>,
    /// The last record. It outlives the lease: one that is deleted is still somebody's.
    seen: Option<Seen>,
    /// When the last write of ours that succeeded was sent.
    led: Option<Instant>,
    /// Nothing is tried before, after a failure.
    pause: Option<Instant>,
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// Somebody else was first: what is there now?
    Raced,
    /// No answer, or a refusal.
    Outage,
}

/// Why a leader leads no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// No renewal has succeeded in time.
    #[error("the lease could not be renewed within {} s", .0.as_secs_f32())]
    Deadline(Duration),
    /// The lease is held by somebody else.
    #[error("the lease was taken by {0:?}")]
    Taken(String),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing before that moment, unless there is news of the lease.
    Wait(Instant),
    /// Read the lease, then tell [`LeaseState::looked`] or [`LeaseState::failed`].
    Look,
    /// Write this: create it when it has no resourceVersion, else replace that version. Then tell
    /// [`LeaseState::wrote`] or [`LeaseState::failed`].
    Write(Box<Lease>),
    /// Stop working at once. There is no way back.
    StepDown(Loss),
}

impl LeaseState {
    /// Of somebody who knows nothing yet.
    #[must_use]
    pub fn new(contender: Contender) -> Self {
        Self {
            contender,
            lease: None,
            looked: None,
            seen: None,
            led: None,
            pause: None,
        }
    }

    /// The lease as it was read; `at` is when the answer was there, not when it was asked for.
    pub fn looked(&mut self, lease: Option<Lease>, at: Instant) {
        if let Some(lease) = &lease {
            self.see(lease, at);
        }
        self.lease = lease;
        self.looked = Some(at);
        self.pause = None;
    }

    /// A write of ours has succeeded, and this is the lease now; `sent` is from before it was sent.
    pub fn wrote(&mut self, lease: Lease, sent: Instant) {
        self.see(&lease, sent);
        self.lease = Some(lease);
        self.looked = Some(sent);
        self.led = Some(sent);
        self.pause = None;
    }

    /// An attempt that began at `began` has failed, or its outcome is not known.
    pub fn failed(&mut self, failed: Failed, began: Instant) {
        let retry = self.contender.timing.retry;
        self.looked = None;
        self.pause = Some(match failed {
            Failed::Raced => began + retry / 10,
            Failed::Outage => began + retry,
        });
    }

    /// There is news of the lease: what was read may not be so any more.
    pub fn news(&mut self) {
        self.looked = None;
    }

    /// Until when we may act as the leader, unless the lease is renewed; none when we don't lead.
    #[must_use]
    pub fn leads_until(&self) -> Option<Instant> {
        self.led
            .map(|led| led + self.contender.timing.renew_deadline)
    }

    /// Who held the lease when it was last seen; none when nobody did.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        let seen = self.seen.as_ref()?;
        Some(seen.record.holder.as_str()).filter(|holder| !holder.is_empty())
    }

    /// What to write so that somebody else can take the lease at once; none when it isn't ours. Only when
    /// nothing is being done any more on the strength of it.
    #[must_use]
    pub fn released(&self, wall: Timestamp) -> Option<Lease> {
        if self.holder() != Some(&self.contender.identity) {
            return None;
        }
        let mut lease = self.lease.clone()?;
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.acquire_time = Some(MicroTime(wall));
        spec.renew_time = Some(MicroTime(wall));
        Some(lease)
    }

    fn see(&mut self, lease: &Lease, at: Instant) {
        let record = Record::of(lease);
        if self.seen.as_ref().is_some_and(|seen| seen.record == record) {
            return;
        }
        let promised = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.lease_duration_seconds)
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0)
            .map_or(self.contender.timing.lease, Duration::from_secs);
        self.seen = Some(Seen {
            record,
            since: at,
            promised,
        });
    }

    /// When the lease is free; none when it is now. It is free when there never was one, when it was given
    /// back, when it is ours (a lost answer), and when the holder's time is over.
    fn free_at(&self) -> Option<Instant> {
        let seen = self.seen.as_ref()?;
        let holder = &seen.record.holder;
        (!holder.is_empty() && *holder != self.contender.identity)
            .then(|| seen.since + seen.promised)
    }

    /// The lease as ours.
    fn mine(&self, wall: Timestamp) -> Box<Lease> {
        let Contender {
            namespace,
            name,
            identity,
            timing,
        } = &self.contender;
        let mut lease = self.lease.clone().unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.clone()),
                ..Default::default()
            },
            spec: None,
        });
        let is_new = lease.spec.is_none();
        let spec = lease.spec.get_or_insert_default();
        let renew = MicroTime(after(wall, spec));
        if spec.holder_identity.as_ref() != Some(identity) {
            spec.holder_identity = Some(identity.clone());
            spec.acquire_time = Some(renew.clone());
            let transitions = spec.lease_transitions.unwrap_or_default();
            spec.lease_transitions = Some(transitions.saturating_add(i32::from(!is_new)));
        }
        spec.renew_time = Some(renew);
        spec.lease_duration_seconds = i32::try_from(timing.lease.as_secs()).ok();
        Box::new(lease)
    }
}

/// A time other than the record's: a write that changes nothing gets no new version, so that nobody would
/// see the renewal.
fn after(wall: Timestamp, spec: &LeaseSpec) -> Timestamp {
    match &spec.renew_time {
        Some(last) if last.0.as_microsecond() == wall.as_microsecond() => wall
            .checked_add(SignedDuration::from_micros(1))
            .unwrap_or(wall),
        _ => wall,
    }
}

/// Decides. Ordered; the first row that fits counts:
///
/// | state | step |
/// |---|---|
/// | we lead, and no renewal has succeeded for the renew deadline | step down |
/// | we lead, and the lease shows another holder, or none | step down |
/// | an attempt has failed a moment ago | wait for the retry period |
/// | it is not known how the lease stands | look |
/// | we lead, and the retry period is over | renew |
/// | we lead | wait for that |
/// | there is no lease and never was one; or it is given back, ours, or out of its holder's time | acquire |
/// | the retry period is over | look |
/// | else | wait for that, or for the end of the holder's time |
#[must_use]
pub fn step(state: &LeaseState, now: Instant, wall: Timestamp) -> Step {
    let timing = &state.contender.timing;
    let deadline = state.leads_until();
    if deadline.is_some_and(|deadline| now >= deadline) {
        return Step::StepDown(Loss::Deadline(timing.renew_deadline));
    }
    if deadline.is_some() && state.holder() != Some(&state.contender.identity) {
        let holder = state.holder().unwrap_or_default().to_owned();
        return Step::StepDown(Loss::Taken(holder));
    }
    if let Some(pause) = state.pause.filter(|pause| now < *pause) {
        return Step::Wait(deadline.map_or(pause, |deadline| deadline.min(pause)));
    }
    let Some(looked) = state.looked else {
        return Step::Look;
    };
    if let Some(led) = state.led {
        let due = led + timing.retry;
        return if now < due {
            Step::Wait(due)
        } else {
            Step::Write(state.mine(wall))
        };
    }
    let Some(free) = state.free_at().filter(|free| now < *free) else {
        return Step::Write(state.mine(wall));
    };
    let due = looked + timing.retry;
    if now < due {
        Step::Wait(due.min(free))
    } else {
        Step::Look
    }
}

#[cfg(test)]
#[path = "step_test.rs"]
mod tests;

#[cfg(test)]
#[path = "sim_test.rs"]
mod simulation;
