//! The processing clock (design §5.8): how long a cluster has been on its way with what it was given, and
//! whether that is too long. It stands in the binding's status, so that it survives a restart.
//!
//! The time for which a cluster was not reachable does not count: the clock counts from `processingSince`, or
//! from the moment that the cluster came back if that is later. And nobody is told that it took too long who
//! may have stopped answering meanwhile: a cluster has to be heard of after its time is up.
//!
//! First row that holds, of a binding and the conditions that its status is about to get:
//!
//! | what holds | clock | too long | look again |
//! |---|---|---|---|
//! | nothing is under way: it waits its turn, was left alone, or goes | stops | no | at an event |
//! | every condition of the chain is True | stops | no | at an event |
//! | the clock stands, or is about another digest | starts now | then as below | |
//! | there is no limit | goes on | no | at an event |
//! | the cluster is not reachable | goes on | as it was said before | at an event |
//! | its time is not up | goes on | no | when it is |
//! | it was heard of since, or was said to be too long before | goes on | yes | at an event |
//! | else | goes on | no | when it is heard of |

use jiff::{SignedDuration, Timestamp};
use windlass_api::binding::BindingStatus;
use windlass_api::conditions::{BindingReason, Stage, Status};
use windlass_api::member::MemberCluster;
use windlass_api::{Condition, Time};

use crate::conditions::{self, NewCondition};
use crate::digest::Digest;
use crate::duration;

/// What is known of the connection to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// Since when it has been reachable; none while it is not.
    pub reachable_since: Option<Timestamp>,
    /// When it was last heard of; none before that.
    pub heard: Option<Timestamp>,
}

/// Since when a cluster has been reachable: when its condition Healthy became True. None while it is not.
#[must_use]
pub fn reachable_since(cluster: &MemberCluster) -> Option<Timestamp> {
    let list = cluster.status.as_ref()?.conditions.as_deref()?;
    let healthy = conditions::find(list, "Healthy")?;
    (conditions::status(healthy) == Status::True).then_some(healthy.last_transition_time.0)
}

/// What the clock goes by.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The status as it was last written.
    pub previous: &'a BindingStatus,
    /// Digest of what the cluster was given; none if nothing is under way there.
    pub digest: Option<Digest>,
    /// The conditions that have to be True, in order.
    pub chain: &'a [Stage],
    /// How long that may take; none: as long as it likes.
    pub timeout: Option<SignedDuration>,
    /// What is known of the connection.
    pub contact: Contact,
    /// Generation of the binding, which new conditions are stamped with.
    pub generation: Option<i64>,
    /// Now.
    pub now: Timestamp,
}

/// When to look at a clock again, if nothing happens until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Not at all.
    Event,
    /// At this moment.
    At(Timestamp),
    /// The time is up. Only that the cluster is still there is not known.
    WhenHeard,
}

/// How a clock stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Since when it has been running, in whole seconds; none while it stands.
    pub since: Option<Timestamp>,
    /// What it is about, while it runs.
    pub digest: Option<String>,
    /// The first condition that is not True, if that takes too long.
    pub timed_out: Option<Stage>,
    /// When to look again.
    pub wake: Wake,
}

/// See the module's table. `list` are the conditions that the status is about to get.
#[must_use]
pub fn clock(facts: &Facts<'_>, list: &[Condition]) -> Clock {
    let is_true = |stage: &&Stage| conditions::is_true(list, stage.as_str());
    let open = facts.chain.iter().find(|stage| !is_true(stage)).copied();
    let (Some(digest), Some(open)) = (facts.digest, open) else {
        return Clock {
            since: None,
            digest: None,
            timed_out: None,
            wake: Wake::Event,
        };
    };
    let running = running_since(facts.previous, digest);
    let since = running.unwrap_or_else(|| conditions::time(facts.now).0);
    let was = running.is_some() && was_late(facts, digest);
    let (is_over, wake) = match (facts.timeout, facts.contact.reachable_since) {
        (None, _) => (false, Wake::Event),
        (Some(_), None) => (was, Wake::Event),
        (Some(timeout), Some(reachable)) => {
            // A limit beyond the end of time is none.
            let deadline = since.max(reachable).checked_add(timeout);
            match deadline {
                Err(_) => (false, Wake::Event),
                Ok(deadline) if facts.now < deadline => (false, Wake::At(deadline)),
                Ok(deadline) if was || facts.contact.heard >= Some(deadline) => (true, Wake::Event),
                Ok(_) => (false, Wake::WhenHeard),
            }
        }
    };
    Clock {
        since: Some(since),
        digest: Some(digest.to_string()),
        timed_out: is_over.then_some(open),
        wake,
    }
}

/// Puts the clock into a status that is otherwise complete. Where it took too long, the first condition that
/// is not True says so, and what it said.
pub fn tell(status: &mut BindingStatus, facts: &Facts<'_>) -> Wake {
    let list = status.conditions.get_or_insert_default();
    let clock = clock(facts, list);
    if let (Some(stage), Some(timeout)) = (clock.timed_out, facts.timeout) {
        let position = list.iter().position(|c| c.type_ == stage.as_str());
        let said = position.and_then(|position| list.get(position));
        let built = timed_out(facts, stage, timeout, said);
        match position.and_then(|position| list.get_mut(position)) {
            Some(place) => *place = built,
            None => list.push(built),
        }
    }
    status.processing_since = clock.since.map(Time);
    status.processing_digest = clock.digest;
    clock.wake
}

/// Since when the clock of a status has been running about this.
#[must_use]
pub fn running_since(status: &BindingStatus, digest: Digest) -> Option<Timestamp> {
    let is_same = |about: &String| digest.is(about);
    let since = status.processing_since.as_ref()?.0;
    status.processing_digest.as_ref().filter(|d| is_same(d))?;
    Some(since)
}

/// Whether a condition says that something took too long.
#[must_use]
pub fn is_timeout(condition: &Condition) -> bool {
    conditions::status(condition) == Status::False
        && BindingReason::parse(&condition.reason) == Some(BindingReason::Timeout)
}

/// Whether a status says so.
#[must_use]
pub fn has_timed_out(status: &BindingStatus) -> bool {
    status.conditions.iter().flatten().any(is_timeout)
}

/// Whether it was said of this very digest that it took too long: a clock may run about what nothing else was
/// said of yet.
fn was_late(facts: &Facts<'_>, digest: Digest) -> bool {
    let previous = facts.previous;
    let mut late = previous
        .conditions
        .iter()
        .flatten()
        .filter(|c| is_timeout(c));
    match &previous.observed_digest {
        Some(observed) => digest.is(observed) && late.next().is_some(),
        None => late.any(|condition| condition.observed_generation == facts.generation),
    }
}

fn timed_out(
    facts: &Facts<'_>,
    stage: Stage,
    timeout: SignedDuration,
    said: Option<&Condition>,
) -> Condition {
    let said_text = said.map_or("nothing was reported", |said| &said.message);
    let message = format!(
        "Not ready within {} (the placement's spec.strategy.timeout): {said_text}",
        duration::show(timeout)
    );
    let is_false = |condition: &&Condition| conditions::status(condition) == Status::False;
    // It may have been False before it was anything else.
    let before = said.filter(is_false).or_else(|| {
        let list = facts.previous.conditions.as_deref().unwrap_or_default();
        conditions::find(list, stage.as_str())
    });
    let new = NewCondition {
        type_: stage.as_str(),
        status: Status::False,
        reason: BindingReason::Timeout.as_str(),
        message,
        observed_generation: facts.generation,
    };
    new.build(before.map_or(&[], std::slice::from_ref), facts.now)
}
