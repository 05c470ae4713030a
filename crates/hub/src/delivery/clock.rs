//! The one writer of a binding's status, with its processing clock (`windlass_status::processing`).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use windlass_api::binding::BindingStatus;
use windlass_api::conditions::Stage;
use windlass_api::scoped::{Binding, Placement, Scope};
use windlass_cluster::{ApiError, ObjectKey, clock};
use windlass_status::defaults::{EffectiveApply, timeout};
use windlass_status::digest::Digest;
use windlass_status::processing::{
    Contact, Facts, Wake, has_timed_out, reachable_since, running_since, tell,
};

use super::{Delivery, Report, lists, parent, refused};
use crate::contents::Content;
use crate::members::is_push;
use crate::observe::{Skipped, skipped};
use crate::worker::Next;

/// How soon a cluster whose time is up is asked for again whether it is still there.
const ASK_AGAIN: Duration = Duration::from_secs(1);

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
        let now = clock::now();
        let mut status = refused::filled(binding, about.observed(), now, fill);
        let wake = self.clock(binding, about.under_way(), now, &mut status);
        self.put(binding, status).await?;
        Ok(self.until(binding, wake, now))
    }

    /// A delivery failed for a reason that may pass. Nothing was learnt of the objects, so that what is known
    /// of them stays; but a cluster that answers, and yet gets nothing done, is too late some day.
    pub(super) async fn note_trouble(
        &self,
        binding: &Binding,
        digest: Digest,
        error: &ApiError,
    ) -> Result<(), ApiError> {
        let now = clock::now();
        let mut status = binding.status.clone().unwrap_or_default();
        let observed = status.observed_digest.as_deref();
        if observed.is_some_and(|observed| digest.is(observed)) {
            // What was said about it holds, and is repeated only to say that it has taken too long.
            if running_since(&status, digest).is_none() || has_timed_out(&status) {
                return Ok(());
            }
            self.clock(binding, Some(digest), now, &mut status);
            return self.put(binding, status).await;
        }
        let about = About::NotTaken(digest);
        let cluster = &binding.spec.target_cluster;
        let message = format!("cluster {cluster} can't be worked on: {}", error.message());
        let fill = |report: &mut Report<'_>| report.sync_failed(message);
        let mut told = refused::filled(binding, about.observed(), now, fill);
        self.clock(binding, about.under_way(), now, &mut told);
        if has_timed_out(&told) {
            return self.put(binding, told).await;
        }
        status.processing_since = told.processing_since;
        status.processing_digest = told.processing_digest;
        self.put(binding, status).await
    }

    fn clock(
        &self,
        binding: &Binding,
        digest: Option<Digest>,
        now: Timestamp,
        status: &mut BindingStatus,
    ) -> Wake {
        let placement = self.world.placements.get(&parent(binding));
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
            timeout: placement.map_or_else(|| timeout(None), |placement| timeout_of(&placement)),
            contact: self.contact(&binding.spec.target_cluster),
            now,
        };
        tell(status, &facts, binding.metadata.generation)
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
                let cluster = &binding.spec.target_cluster;
                let known = self.world.clusters.get(&ObjectKey::cluster(cluster))?;
                if is_push(&known) {
                    // That asks it.
                    self.world.queues.clusters.add(cluster.clone());
                    return Some(ASK_AGAIN);
                }
                Some(self.members.probe_period(&known))
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
