//! The one writer of a binding's status, with its processing clock (`windlass_status::processing`).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use windlass_api::binding::BindingStatus;
use windlass_api::conditions::Stage;
use windlass_api::scoped::{Binding, Placement, Scope};
use windlass_cluster::{ApiError, ObjectKey, clock};
use windlass_status::defaults::{EffectiveApply, timeout};
use windlass_status::digest::Digest;
use windlass_status::freshness::lag;
use windlass_status::processing::{
    Contact, Facts, Wake, has_timed_out, reachable_since, running_since, tell,
};

use super::{Delivery, Report, lists, parent, refused};
use crate::contents::Content;
use crate::observe::{Skipped, skipped};
use crate::worker::Next;

/// What a status is about.
#[derive(Clone, Copy)]
pub(super) enum About<'a> {
    /// What is wanted was given to the cluster.
    Given(Digest, &'a Content),
    /// The cluster was to be given it, and does not take it.
    NotTaken(Digest),
    /// It can't be made, and so is not given to the cluster.
    Refused(Digest, &'a Content),
    /// Nothing that can be told.
    Nothing,
}

impl<'a> About<'a> {
    /// What the status will be fresh for, and the name of that snapshot.
    fn observed(self) -> Option<(Digest, &'a str)> {
        match self {
            Self::Given(digest, content) | Self::Refused(digest, content) => {
                Some((digest, content.name.as_str()))
            }
            Self::NotTaken(_) | Self::Nothing => None,
        }
    }

    /// What is under way. A cluster that is left alone is not waited for.
    const fn under_way(self) -> Option<Digest> {
        match self {
            Self::Given(digest, _) | Self::NotTaken(digest) => Some(digest),
            Self::Refused(..) | Self::Nothing => None,
        }
    }
}

impl Delivery {
    /// Writes a binding's status if that says something new. After how long to look at its clock.
    pub(super) async fn write_status(
        &self,
        binding: &Binding,
        about: About<'_>,
        fill: impl FnOnce(&mut Report<'_>),
    ) -> Result<Option<Duration>, ApiError> {
        let terms = self.terms(binding);
        let mut status = refused::filled(binding, about.observed(), terms.now, fill);
        let wake = terms.time(binding, about.under_way(), &mut status);
        self.put(binding, status).await?;
        Ok(self.until(binding, wake, terms.now))
    }

    /// A delivery failed for a reason that may pass. Nothing was learnt of the objects, so that what is known
    /// of them stays; but a cluster that answers, and yet gets nothing done, is too late some day.
    pub(super) async fn note_trouble(
        &self,
        binding: &Binding,
        digest: Digest,
        error: &ApiError,
    ) -> Result<(), ApiError> {
        let terms = self.terms(binding);
        match trouble(binding, digest, error.message(), &terms) {
            Some(status) => self.put(binding, status).await,
            None => Ok(()),
        }
    }

    /// What a binding's clock goes by now.
    fn terms(&self, binding: &Binding) -> Terms {
        let placement = self.world.placements.get(&parent(binding));
        Terms {
            timeout: placement.map_or_else(|| timeout(None), |placement| timeout_of(&placement)),
            contact: self.contact(&binding.spec.target_cluster),
            now: clock::now(),
        }
    }

    fn contact(&self, cluster: &str) -> Contact {
        let known = self.world.clusters.get(&ObjectKey::cluster(cluster));
        let reachable_since = known
            .filter(|known| !self.members.is_silent_one(known))
            .and_then(|known| reachable_since(&known));
        Contact {
            reachable_since,
            heard: self.members.last_contact(cluster),
        }
    }

    fn until(&self, binding: &Binding, wake: Wake, now: Timestamp) -> Option<Duration> {
        match wake {
            Wake::Event => None,
            // A moment more, so that the time is up by then.
            Wake::At(at) => Some(at.duration_since(now).unsigned_abs() + Duration::from_millis(10)),
            Wake::WhenHeard => {
                self.members.doubt(&binding.spec.target_cluster);
                None
            }
        }
    }

    async fn put(&self, binding: &Binding, status: BindingStatus) -> Result<(), ApiError> {
        let previous = binding.status.clone().unwrap_or_default();
        if status == previous {
            skipped(Skipped::Binding(Scope::of(binding)));
            return Ok(());
        }
        let write = |status| {
            let mut changed = binding.clone();
            changed.status = Some(status);
            async move { self.writer.replace_status(&changed).await }
        };
        match lists::send(status, &previous, write).await? {
            Some(live) => self.world.bindings.observe(live),
            None => skipped(Skipped::Binding(Scope::of(binding))),
        }
        Ok(())
    }
}

/// What a binding's clock goes by.
struct Terms {
    timeout: Option<SignedDuration>,
    contact: Contact,
    now: Timestamp,
}

impl Terms {
    /// Puts the clock into a status that is otherwise complete.
    fn time(&self, binding: &Binding, digest: Option<Digest>, status: &mut BindingStatus) -> Wake {
        let apply = EffectiveApply::of(binding.spec.apply_strategy.as_ref());
        let none = BindingStatus::default();
        let facts = Facts {
            previous: binding.status.as_ref().unwrap_or(&none),
            digest,
            chain: if apply.reports_diff() {
                &Stage::REPORT_DIFF
            } else {
                &Stage::APPLY
            },
            timeout: self.timeout,
            contact: self.contact,
            generation: binding.metadata.generation,
            now: self.now,
        };
        tell(status, &facts)
    }
}

/// The status after a delivery that failed for a reason that may pass; none when it stays as it is.
fn trouble(binding: &Binding, digest: Digest, why: &str, terms: &Terms) -> Option<BindingStatus> {
    let mut status = binding.status.clone().unwrap_or_default();
    let observed = status.observed_digest.as_deref();
    if observed.is_some_and(|observed| digest.is(observed)) && lag(binding) <= 1 {
        // What was said about it holds, and is repeated only to say that it has taken too long.
        if running_since(&status, digest).is_none() || has_timed_out(&status) {
            return None;
        }
        terms.time(binding, Some(digest), &mut status);
        return Some(status);
    }
    let about = About::NotTaken(digest);
    let cluster = &binding.spec.target_cluster;
    let message = format!("cluster {cluster} can't be worked on: {why}");
    let fill = |report: &mut Report<'_>| report.sync_failed(message);
    let mut told = refused::filled(binding, about.observed(), terms.now, fill);
    terms.time(binding, about.under_way(), &mut told);
    if has_timed_out(&told) {
        return Some(told);
    }
    status.processing_since = told.processing_since;
    status.processing_digest = told.processing_digest;
    Some(status)
}

/// How long a placement's clusters may take; none: as long as they like.
pub(crate) fn timeout_of(placement: &Placement) -> Option<SignedDuration> {
    timeout(placement.spec.strategy.as_ref())
}

/// Whether a binding's clock runs.
pub(crate) fn is_under_way(binding: &Binding) -> bool {
    let status = binding.status.as_ref();
    status.is_some_and(|status| status.processing_since.is_some())
}

/// What comes first of what was to come and another moment.
pub(super) fn sooner(next: Next, other: Option<Duration>) -> Next {
    match (next, other) {
        (Next::Event, Some(other)) => Next::After(other),
        (Next::After(delay), Some(other)) => Next::After(delay.min(other)),
        (next, _) => next,
    }
}

#[cfg(test)]
mod tests {
    use windlass_api::conditions::{BindingReason, Status};
    use windlass_status::conditions::find;

    use super::*;

    const LIMIT: SignedDuration = SignedDuration::from_secs(100);

    fn terms(now: i64, heard: i64) -> Terms {
        let at = |second| Timestamp::from_second(second).unwrap();
        Terms {
            timeout: Some(LIMIT),
            contact: Contact {
                reachable_since: Some(at(0)),
                heard: Some(at(heard)),
            },
            now: at(now),
        }
    }

    /// A binding whose status says of another digest, or of this one, that it is available or not yet.
    fn binding(observed: Digest, available: Status) -> Binding {
        let mut binding = Binding::default();
        binding.metadata.generation = Some(1);
        let empty = binding.clone();
        let mut report = Report {
            binding: &empty,
            previous: &[],
            now: Timestamp::UNIX_EPOCH,
            status: BindingStatus::default(),
        };
        report.told();
        let applied = BindingReason::AllWorkHaveBeenApplied;
        report.condition(Stage::Applied, Status::True, applied, "");
        let reason = BindingReason::NotAllWorkAreAvailable;
        report.condition(Stage::Available, available, reason, "soon");
        report.status.observed_digest = Some(observed.to_string());
        binding.status = Some(report.status);
        binding
    }

    fn said(status: &BindingStatus, stage: Stage) -> (String, String) {
        let list = status.conditions.as_deref().unwrap();
        let condition = find(list, stage.as_str()).unwrap();
        (condition.reason.clone(), condition.message.clone())
    }

    #[test]
    fn a_cluster_that_answers_and_gets_nothing_done_is_too_late_some_day() {
        let (old, new) = (Digest::of_bytes(b"old"), Digest::of_bytes(b"new"));
        let mut binding = binding(old, Status::True);
        let before = binding.status.clone().unwrap();
        let first = trouble(&binding, new, "503", &terms(10, 10)).unwrap();
        assert_eq!(first.conditions, before.conditions, "nothing was learnt");
        assert_eq!(first.observed_digest, before.observed_digest);
        assert!(running_since(&first, new).is_some(), "the clock runs");
        binding.status = Some(first.clone());
        for (now, heard) in [(50, 50), (200, 60)] {
            // It may be gone, only that nobody has noticed yet.
            let again = trouble(&binding, new, "503", &terms(now, heard)).unwrap();
            assert_eq!(again, first, "no write");
        }
        let late = trouble(&binding, new, "503", &terms(110, 110)).unwrap();
        let (reason, message) = said(&late, Stage::WorkSynchronized);
        assert_eq!(reason, "Timeout");
        assert!(message.contains("503"), "{message}");
        binding.status = Some(late.clone());
        let again = trouble(&binding, new, "503", &terms(300, 300)).unwrap();
        assert_eq!(again, late, "no write");
    }

    #[test]
    fn what_was_said_holds_while_a_cluster_is_in_trouble() {
        let digest = Digest::of_bytes(b"same");
        let ready = binding(digest, Status::True);
        assert_eq!(trouble(&ready, digest, "503", &terms(500, 500)), None);
        let mut waits = binding(digest, Status::False);
        let mut told = waits.status.clone().unwrap();
        terms(10, 10).time(&waits, Some(digest), &mut told);
        waits.status = Some(told);
        let soon = trouble(&waits, digest, "503", &terms(50, 50));
        assert_eq!(soon, waits.status, "no write");
        let late = trouble(&waits, digest, "503", &terms(110, 110)).unwrap();
        let (reason, message) = said(&late, Stage::Available);
        assert_eq!(reason, "Timeout");
        assert!(message.ends_with(": soon"), "{message}");
        waits.status = Some(late);
        assert_eq!(trouble(&waits, digest, "503", &terms(300, 300)), None);
    }

    #[test]
    fn the_sooner_of_two_moments_counts() {
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(2));
        for (next, other, expected) in [
            (Next::Event, None, Next::Event),
            (Next::Event, Some(long), Next::After(long)),
            (Next::After(short), Some(long), Next::After(short)),
            (Next::After(long), Some(short), Next::After(short)),
            (Next::Backoff(None), Some(short), Next::Backoff(None)),
        ] {
            assert_eq!(sooner(next, other), expected, "{next:?} {other:?}");
        }
    }
}
