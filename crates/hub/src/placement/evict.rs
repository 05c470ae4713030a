//! Evictions of a placement: the planner's decisions, carried out.
//!
//! For each: the binding is noted in the eviction's status, then deleted if it is still as it was seen, then
//! the outcome is told. Whoever dies in between finds what was noted: once that binding goes, the eviction is
//! executed, and it never takes another one. An eviction that is over is not written again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use windlass_api::binding::BindingState;
use windlass_api::conditions::{EvictionCondition, Stage, Status};
use windlass_api::eviction::{
    ClusterResourcePlacementDisruptionBudget as Budget,
    ClusterResourcePlacementEviction as Eviction,
};
use windlass_api::scoped::{Binding, Placement};
use windlass_cluster::{ApiError, ObjectKey, clock};
use windlass_rollout::{
    EvictionBinding, EvictionPlan, EvictionTarget, EvictionView, Outcome, Readiness, Verdict,
    is_over, plan_evictions,
};
use windlass_status::conditions::{find, status};
use windlass_status::defaults::{EffectiveApply, EffectiveRolling};
use windlass_status::freshness::{self, Freshness};
use windlass_status::ready::{self, classify};

use super::actor::{Actor, until};
use super::bindings::Digests;
use crate::worker::Next;

/// How soon the numbers of an eviction that waits are told anew.
const TOLD_AGAIN: Duration = Duration::from_secs(5);

/// What is known of a binding beside what is in it.
struct Known {
    binding: Arc<Binding>,
    uid: String,
    deleting: bool,
    readiness: Readiness,
    diff_reported: bool,
}

impl Known {
    fn view(&self) -> EvictionBinding<'_> {
        let spec = &self.binding.spec;
        EvictionBinding {
            uid: &self.uid,
            cluster: &spec.target_cluster,
            state: spec.state.clone(),
            previously_bound: spec.state == BindingState::Unscheduled
                && !spec.resource_snapshot_name.is_empty(),
            deleting: self.deleting,
            readiness: self.readiness,
            diff_reported: self.diff_reported,
        }
    }
}

impl Actor {
    /// Carries out what may be of the evictions of a placement, after everything else about it; `next` is what
    /// came of that.
    pub(super) async fn evict(
        &self,
        placement: &Placement,
        next: Result<Next, ApiError>,
    ) -> Result<Next, ApiError> {
        let evicted = self.evict_from(placement).await;
        Ok(sooner(next?, evicted?))
    }

    /// Says of the evictions from a placement that there is none, once the API server itself says so: the
    /// watch of evictions may be ahead of that of placements, which then tells of it.
    pub(super) async fn refuse_evictions(&self, key: &ObjectKey) -> Result<(), ApiError> {
        let open = self.open_evictions(key);
        if open.is_empty() {
            return Ok(());
        }
        if self.exists(key).await? {
            return Ok(());
        }
        let plan = decide(EvictionTarget::Missing, &[], None, &open);
        self.carry_out(key, &plan, &open, &[]).await.map(drop)
    }

    fn open_evictions(&self, key: &ObjectKey) -> Vec<Arc<Eviction>> {
        let mut all = self.world.evictions.of(key);
        all.retain(|eviction| !is_over(eviction));
        all
    }

    /// When to come again though nothing is heard.
    async fn evict_from(&self, placement: &Placement) -> Result<Option<Duration>, ApiError> {
        let key = ObjectKey::of(placement);
        let open = self.open_evictions(&key);
        if open.is_empty() {
            return Ok(None);
        }
        if placement.metadata.deletion_timestamp.is_some() {
            let plan = decide(EvictionTarget::Deleting, &[], None, &open);
            return self.carry_out(&key, &plan, &open, &[]).await;
        }
        let known = self.known_bindings(placement, &key).await?;
        let views: Vec<_> = known.iter().map(Known::view).collect();
        let target = EvictionTarget::Stays(placement.spec.policy.as_ref());
        let budget = self.world.evictions.budgets.get(&key);
        let mut plan = decide(target, &views, budget.as_deref(), &open);
        // What has consequences is decided by the budget as it is: whoever makes an eviction right after a budget
        // may have it seen first.
        let is_final =
            |verdict: &Verdict| matches!(verdict.outcome, Outcome::Evict(_) | Outcome::NotExecuted);
        if plan.verdicts.iter().any(is_final) {
            let live = self.writer.get::<Budget>(None, &key.name).await?;
            plan = decide(target, &views, live.as_ref(), &open);
        }
        self.carry_out(&key, &plan, &open, &known).await
    }

    /// How each binding is with what it was last given.
    async fn known_bindings(
        &self,
        placement: &Placement,
        key: &ObjectKey,
    ) -> Result<Vec<Known>, ApiError> {
        let now = clock::now();
        let groups = self.world.groups_of(key);
        let latest = groups.newest().unwrap_or_default();
        let name = Some(latest.name.as_str()).filter(|name| !name.is_empty());
        let overrides = self.overrides(key, None, name).await?;
        let unreachable = self.members.unreachable();
        let rolling = placement.spec.strategy.as_ref();
        let rolling = rolling.and_then(|strategy| strategy.rolling_update.as_ref());
        let period = EffectiveRolling::of(rolling).unavailable_period;
        // The watch may not have told of our own deletions yet.
        let evicted: BTreeSet<String> = self
            .world
            .evictions
            .of(key)
            .iter()
            .filter_map(took)
            .collect();
        let mut digests = Digests::default();
        let known = |binding: Arc<Binding>| {
            let digest = digests.of(&binding, &groups, &latest, &overrides);
            let facts = ready::Facts {
                binding: &binding,
                desired_digest: digest,
                unreachable: unreachable.contains(&binding.spec.target_cluster),
                unavailable_period: period,
            };
            let reports_diff =
                EffectiveApply::of(binding.spec.apply_strategy.as_ref()).reports_diff();
            let fresh = Freshness::of(&binding, digest);
            let reported = freshness::condition(&binding, fresh, Stage::DiffReported).is_some();
            let uid = binding.uid().unwrap_or_default();
            Known {
                readiness: Readiness::of(classify(&facts, now), reports_diff),
                diff_reported: reports_diff && reported,
                deleting: binding.metadata.deletion_timestamp.is_some() || evicted.contains(&uid),
                uid,
                binding,
            }
        };
        Ok(self.world.bindings_of(key).into_iter().map(known).collect())
    }

    /// One that is refused does not keep the others: the planner takes it for gone, which costs the budget.
    async fn carry_out(
        &self,
        key: &ObjectKey,
        plan: &EvictionPlan,
        open: &[Arc<Eviction>],
        known: &[Known],
    ) -> Result<Option<Duration>, ApiError> {
        let hold = self.numbers_held(key);
        let (mut again, mut all) = (None, Ok(()));
        for verdict in &plan.verdicts {
            let Some(eviction) = open.iter().find(|e| e.name_any() == verdict.eviction) else {
                continue;
            };
            let done = match &verdict.outcome {
                Outcome::Evict(uid) => match known.iter().find(|known| known.uid == *uid) {
                    Some(known) => self.take(eviction, verdict, &known.binding).await,
                    None => Ok(()),
                },
                Outcome::Waiting if hold.is_some() && waits(eviction) => {
                    again = hold.filter(|_| differs(eviction, verdict)).or(again);
                    Ok(())
                }
                _ => self.tell(eviction, verdict).await.map(drop),
            };
            all = all.and(done);
        }
        all?;
        let wake = plan.wake_at.map(|at| until(at, clock::now()));
        Ok(wake.into_iter().chain(again).min())
    }

    /// Notes, deletes, tells.
    async fn take(
        &self,
        eviction: &Eviction,
        verdict: &Verdict,
        binding: &Binding,
    ) -> Result<(), ApiError> {
        // One that was taken back in the last moment takes nothing.
        let Some(noted) = self.tell(eviction, verdict).await? else {
            return Ok(());
        };
        self.writer.delete_unchanged(binding).await?;
        self.see_deletion(binding).await;
        let executed = Verdict {
            outcome: Outcome::Executed,
            ..verdict.clone()
        };
        self.tell(&noted, &executed).await.map(drop)
    }

    /// Writes what is said of an eviction, if that is new; none when it is gone.
    async fn tell(
        &self,
        eviction: &Eviction,
        verdict: &Verdict,
    ) -> Result<Option<Arc<Eviction>>, ApiError> {
        let old = eviction.status.clone().unwrap_or_default();
        let before = old.conditions.as_deref().unwrap_or_default();
        let now = clock::now();
        let conditions = verdict.conditions(eviction.metadata.generation);
        let conditions: Vec<_> = conditions
            .into_iter()
            .map(|condition| condition.build(before, now))
            .collect();
        let mut new = old.clone();
        new.evicting = match &verdict.outcome {
            Outcome::Evict(uid) => Some(uid.clone()),
            Outcome::Executed => old.evicting.clone(),
            Outcome::Invalid | Outcome::NotExecuted | Outcome::Waiting => None,
        };
        new.conditions = Some(conditions);
        if new == old {
            return Ok(Some(Arc::new(eviction.clone())));
        }
        let mut changed = eviction.clone();
        changed.status = Some(new);
        let live = match self.writer.replace_status(&changed).await {
            Ok(live) => live,
            Err(ApiError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        self.world.observer.eviction_told(eviction, &live, verdict);
        self.world.evictions.all.observe(live.clone());
        if verdict.outcome == Outcome::Waiting {
            let key = ObjectKey::cluster(&eviction.spec.placement_name);
            let told = clock::monotonic() + TOLD_AGAIN;
            self.memory.entry(key).or_default().numbers_from = Some(told);
        }
        Ok(Some(Arc::new(live)))
    }

    /// How long the numbers of evictions that wait are not told anew.
    fn numbers_held(&self, placement: &ObjectKey) -> Option<Duration> {
        let from = self.memory.get(placement)?.numbers_from?;
        let wait = from.saturating_duration_since(clock::monotonic());
        (!wait.is_zero()).then_some(wait)
    }
}

fn decide(
    placement: EvictionTarget<'_>,
    bindings: &[EvictionBinding<'_>],
    budget: Option<&Budget>,
    open: &[Arc<Eviction>],
) -> EvictionPlan {
    let evictions: Vec<&Eviction> = open.iter().map(|eviction| &**eviction).collect();
    let view = EvictionView {
        placement,
        bindings,
        budget: budget.map(|budget| &budget.spec),
        evictions: &evictions,
    };
    plan_evictions(&view, clock::now())
}

fn executed(eviction: &Eviction) -> Option<&windlass_api::Condition> {
    let conditions = eviction.status.as_ref()?.conditions.as_deref()?;
    find(conditions, EvictionCondition::Executed.as_str())
}

/// UID of the binding that was deleted for an eviction which is over.
fn took(eviction: &Arc<Eviction>) -> Option<String> {
    let is_executed = executed(eviction).is_some_and(|c| status(c) == Status::True);
    let noted = eviction.status.as_ref().and_then(|s| s.evicting.clone());
    noted.filter(|_| is_executed)
}

/// Whether people have been told that an eviction waits.
fn waits(eviction: &Eviction) -> bool {
    let noted = eviction.status.as_ref().and_then(|s| s.evicting.as_ref());
    noted.is_none() && executed(eviction).is_some_and(|c| status(c) == Status::Unknown)
}

fn differs(eviction: &Eviction, verdict: &Verdict) -> bool {
    executed(eviction).is_none_or(|condition| condition.message != verdict.message)
}

/// Whether an object can have that name at all: what else people write into evictions is not asked for.
pub(super) fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    !text.is_empty() && text.len() < 254 && text.chars().all(is_part)
}

pub(super) fn sooner(next: Next, again: Option<Duration>) -> Next {
    match (next, again) {
        (Next::Event, Some(again)) => Next::After(again),
        (Next::After(after), Some(again)) => Next::After(after.min(again)),
        (next, _) => next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sooner_of_two() {
        let second = Duration::from_secs;
        for (next, again, expected) in [
            (Next::Event, None, Next::Event),
            (Next::Event, Some(second(2)), Next::After(second(2))),
            (
                Next::After(second(1)),
                Some(second(2)),
                Next::After(second(1)),
            ),
            (
                Next::After(second(3)),
                Some(second(2)),
                Next::After(second(2)),
            ),
            (Next::Backoff(None), Some(second(2)), Next::Backoff(None)),
        ] {
            assert_eq!(sooner(next, again), expected);
        }
    }

    #[test]
    fn what_can_be_asked_for() {
        for (text, expected) in [
            ("web", true),
            ("web.v1-2", true),
            ("", false),
            ("web/status", false),
            ("web?x", false),
            ("../x", false),
            ("Web", false),
        ] {
            assert_eq!(is_name(text), expected, "{text}");
        }
    }
}
