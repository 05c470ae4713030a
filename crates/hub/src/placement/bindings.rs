//! Bindings: from the scheduler's choice and the rolling planner's leave to what is written (hub §1.8).
//!
//! A binding's name follows from placement and cluster, so that a second create of the same one meets the
//! first. A binding that may roll out at once is created Bound: one write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use windlass_api::binding::{BindingSpec, BindingState};
use windlass_api::member::MemberCluster;
use windlass_api::placement::{
    ApplyStrategy, PlacementPolicy, RolloutStrategy, RolloutStrategyType,
};
use windlass_api::scoped::Binding;
use windlass_api::snapshot::ClusterDecision;
use windlass_api::{labels, names};
use windlass_cluster::ObjectKey;
use windlass_rollout::{
    Readiness, RollingPlan, RollingView, RolloutBinding, plan_rolling, target_count,
};
use windlass_status::defaults::{EffectiveApply, EffectiveRolling, rollout_type};
use windlass_status::digest::Digest;
use windlass_status::freshness::lag;
use windlass_status::ready::{self, classify};

use super::snapshots::{Groups, LatestSnapshot};
use crate::delivery::desired_digest;
use crate::overrides::leave::{self, Effect};
use crate::overrides::resolve::{Lists, Resolved};
use crate::removal;

/// What [`plan`] needs.
pub struct BindingInputs<'a> {
    /// The placement.
    pub placement: &'a ObjectKey,
    /// Its policy.
    pub policy: Option<&'a PlacementPolicy>,
    /// Its strategy.
    pub strategy: Option<&'a RolloutStrategy>,
    /// The clusters that the scheduler chose.
    pub selected: &'a [ClusterDecision],
    /// Clusters that exist and don't leave.
    pub members: &'a BTreeSet<String>,
    /// Clusters that have stopped reporting.
    pub unreachable: &'a BTreeSet<String>,
    /// Name of the latest policy snapshot.
    pub policy_snapshot: &'a str,
    /// The latest resource snapshot.
    pub latest: &'a LatestSnapshot,
    /// Every snapshot group.
    pub groups: &'a Groups,
    /// The placement's bindings.
    pub existing: &'a [Arc<Binding>],
    /// What overrides do on its clusters.
    pub overrides: &'a Resolved,
}

/// What to write.
#[derive(Debug, Default)]
pub struct BindingPlan {
    /// New bindings.
    pub create: Vec<Binding>,
    /// Changed bindings.
    pub replace: Vec<Binding>,
    /// Bindings that go.
    pub delete: Vec<Arc<Binding>>,
    /// Names of bindings that the rollout's bounds hold back.
    pub held: BTreeSet<String>,
    /// When to look again though nothing is heard.
    pub wake_at: Option<Timestamp>,
}

/// Names of the clusters that are there and don't leave.
#[must_use]
pub fn staying(clusters: &[Arc<MemberCluster>]) -> BTreeSet<String> {
    let stays = |cluster: &&Arc<MemberCluster>| cluster.metadata.deletion_timestamp.is_none();
    clusters
        .iter()
        .filter(stays)
        .map(|cluster| cluster.name_any())
        .collect()
}

/// Bindings that are still to be asked to go since their cluster leaves or is gone: that follows from the
/// clusters alone, so they go also while nothing can be decided for their placement.
#[must_use]
pub fn of_leaving(existing: &[Arc<Binding>], members: &BTreeSet<String>) -> Vec<Arc<Binding>> {
    existing
        .iter()
        .filter(|binding| binding.metadata.deletion_timestamp.is_none())
        .filter(|binding| leaves(binding, members))
        .cloned()
        .collect()
}

fn leaves(binding: &Binding, members: &BTreeSet<String>) -> bool {
    !members.contains(&binding.spec.target_cluster)
}

/// Digest of what a binding asks for; none when its snapshot is gone or incomplete.
#[must_use]
pub fn digest_of(
    binding: &Binding,
    groups: &Groups,
    latest: &LatestSnapshot,
    overrides: &Resolved,
) -> Option<Digest> {
    Digests::default().of(binding, groups, latest, overrides)
}

/// Digests of what the bindings of a placement ask for. Most clusters ask for the same, and a digest takes
/// longer than anything else that is decided about a cluster: each is computed once.
#[derive(Debug, Default)]
pub struct Digests {
    /// By hash of the snapshot and effect of overrides; there are few strategies.
    known: BTreeMap<(String, Effect), Vec<Known>>,
}

/// How it is applied, and the digest.
type Known = (Option<ApplyStrategy>, Digest);

impl Digests {
    /// As [`digest_of`].
    pub fn of(
        &mut self,
        binding: &Binding,
        groups: &Groups,
        latest: &LatestSnapshot,
        overrides: &Resolved,
    ) -> Option<Digest> {
        let name = &binding.spec.resource_snapshot_name;
        let hash = if *name == latest.name {
            &latest.hash
        } else {
            groups.by_name(name)?.1.hash()?
        };
        let effect = leave::given(binding)
            .or_else(|| overrides.effect(&binding.spec))
            .unwrap_or(Effect::Nothing);
        let known = self.known.entry((hash.to_owned(), effect)).or_default();
        let strategy = &binding.spec.apply_strategy;
        if let Some((_, digest)) = known.iter().find(|(known, _)| known == strategy) {
            return Some(*digest);
        }
        let digest = desired_digest(binding, hash, effect);
        known.push((strategy.clone(), digest));
        Some(digest)
    }
}

/// Decides what to write.
#[must_use]
pub fn plan(inputs: &BindingInputs<'_>, now: Timestamp) -> BindingPlan {
    let mut wanted = desired_bindings(inputs);
    let mut plan = BindingPlan::default();
    if rollout_type(inputs.strategy) == RolloutStrategyType::RollingUpdate {
        let rolling = roll(inputs, &wanted, now);
        apply_rolling(inputs, &mut wanted, &rolling);
        plan.held = rolling.held.into_iter().collect();
        plan.wake_at = rolling.wake_at;
    } else {
        for binding in &mut wanted {
            leave::give(&mut binding.next, None);
            let never_bound = binding.next.spec.resource_snapshot_name.is_empty();
            binding.gone |= binding.next.spec.state == BindingState::Unscheduled && never_bound;
        }
    }
    for binding in wanted {
        match binding.live {
            Some(live) if live.metadata.deletion_timestamp.is_some() => {}
            Some(live) if binding.gone => plan.delete.push(live),
            Some(live)
                if live.spec != binding.next.spec || live.metadata != binding.next.metadata =>
            {
                plan.replace.push(binding.next);
            }
            Some(_) => {}
            None if binding.gone => {}
            None => plan.create.push(binding.next),
        }
    }
    plan
}

struct Wanted {
    live: Option<Arc<Binding>>,
    next: Binding,
    gone: bool,
}

/// The bindings with what the scheduler decided; what they roll out is not touched yet.
fn desired_bindings(inputs: &BindingInputs<'_>) -> Vec<Wanted> {
    let decisions: BTreeMap<&str, &ClusterDecision> = inputs
        .selected
        .iter()
        .map(|decision| (decision.cluster_name.as_str(), decision))
        .collect();
    let mut all: Vec<Wanted> = inputs
        .existing
        .iter()
        .map(|live| existing(inputs, &decisions, live))
        .collect();
    // A binding of the same cluster that is still being removed has to be gone first (trap T7).
    let taken: BTreeSet<&str> = inputs
        .existing
        .iter()
        .map(|b| b.spec.target_cluster.as_str())
        .collect();
    for (cluster, decision) in decisions {
        if !taken.contains(cluster) {
            all.push(Wanted {
                live: None,
                next: new_binding(inputs, decision),
                gone: false,
            });
        }
    }
    all
}

fn existing(
    inputs: &BindingInputs<'_>,
    decisions: &BTreeMap<&str, &ClusterDecision>,
    live: &Arc<Binding>,
) -> Wanted {
    let mut next = (**live).clone();
    let mut gone = false;
    if live.metadata.deletion_timestamp.is_none() {
        if !next
            .finalizers()
            .iter()
            .any(|f| f == labels::WORK_FINALIZER)
        {
            next.finalizers_mut()
                .push(labels::WORK_FINALIZER.to_owned());
        }
        removal::note(&mut next, inputs.strategy);
        match decisions.get(live.spec.target_cluster.as_str()) {
            Some(decision) => keep(inputs, &mut next, decision),
            None if leaves(live, inputs.members) => gone = true,
            None => unschedule(&mut next),
        }
    }
    Wanted {
        live: Some(Arc::clone(live)),
        next,
        gone,
    }
}

fn keep(inputs: &BindingInputs<'_>, next: &mut Binding, decision: &ClusterDecision) {
    if next.spec.scheduling_policy_snapshot_name != inputs.policy_snapshot {
        inputs
            .policy_snapshot
            .clone_into(&mut next.spec.scheduling_policy_snapshot_name);
        next.spec.cluster_decision = decision.clone();
    }
    if next.spec.state == BindingState::Unscheduled {
        next.spec.state = if next.spec.resource_snapshot_name.is_empty() {
            BindingState::Scheduled
        } else {
            BindingState::Bound
        };
        next.annotations_mut()
            .remove(labels::PREVIOUS_BINDING_STATE);
    }
}

fn unschedule(next: &mut Binding) {
    if next.spec.state != BindingState::Unscheduled {
        let previous = next.spec.state.as_str().to_owned();
        // Other annotations stay (trap T10).
        next.annotations_mut()
            .insert(labels::PREVIOUS_BINDING_STATE.to_owned(), previous);
        next.spec.state = BindingState::Unscheduled;
    }
}

fn new_binding(inputs: &BindingInputs<'_>, decision: &ClusterDecision) -> Binding {
    let cluster = &decision.cluster_name;
    let unique = Digest::of_bytes(format!("{}/{cluster}", inputs.placement).as_bytes()).to_string();
    let name = names::binding(&inputs.placement.name, cluster, &unique[..8]);
    let mut binding = Binding::new(
        &name,
        BindingSpec {
            state: BindingState::Scheduled,
            scheduling_policy_snapshot_name: inputs.policy_snapshot.to_owned(),
            target_cluster: cluster.clone(),
            cluster_decision: decision.clone(),
            apply_strategy: Some(apply_strategy(inputs.strategy)),
            ..Default::default()
        },
    )
    .within(&inputs.placement.namespace);
    binding.metadata.labels = Some(BTreeMap::from([(
        labels::PARENT_PLACEMENT.to_owned(),
        inputs.placement.name.clone(),
    )]));
    binding.metadata.finalizers = Some(vec![labels::WORK_FINALIZER.to_owned()]);
    removal::note(&mut binding, inputs.strategy);
    binding
}

/// How a placement has manifests applied, with the defaults filled in.
#[must_use]
pub fn apply_strategy(strategy: Option<&RolloutStrategy>) -> ApplyStrategy {
    EffectiveApply::of(strategy.and_then(|strategy| strategy.apply_strategy.as_ref())).to_strategy()
}

fn roll(inputs: &BindingInputs<'_>, wanted: &[Wanted], now: Timestamp) -> RollingPlan {
    let config = inputs
        .strategy
        .and_then(|strategy| strategy.rolling_update.as_ref());
    let period = EffectiveRolling::of(config).unavailable_period;
    let apply = apply_strategy(inputs.strategy);
    let names: Vec<String> = wanted
        .iter()
        .map(|binding| binding.next.name_any())
        .collect();
    let mut digests = Digests::default();
    let bindings: Vec<RolloutBinding<'_>> = wanted
        .iter()
        .zip(&names)
        .filter(|(binding, _)| !binding.gone)
        .map(|(binding, name)| {
            rollout_binding(inputs, &apply, &mut digests, (binding, name), period, now)
        })
        .collect();
    let view = RollingView {
        bindings: &bindings,
        target: target_count(inputs.policy, &bindings),
        max_unavailable: config.and_then(|config| config.max_unavailable.as_ref()),
        max_surge: config.and_then(|config| config.max_surge.as_ref()),
    };
    plan_rolling(&view, now)
}

fn rollout_binding<'a>(
    inputs: &BindingInputs<'_>,
    apply: &ApplyStrategy,
    digests: &mut Digests,
    (binding, name): (&'a Wanted, &'a str),
    period: jiff::SignedDuration,
    now: Timestamp,
) -> RolloutBinding<'a> {
    let spec = &binding.next.spec;
    let mut digest = |binding| digests.of(binding, inputs.groups, inputs.latest, inputs.overrides);
    // What the binding in the API server asks for, too: the scheduler's decision changes nothing of that.
    let current = digest(&binding.next);
    // What it is to ask for; its status is not looked at.
    let mut target = Binding {
        metadata: binding.next.metadata.clone(),
        spec: spec.clone(),
        status: None,
    };
    retarget(inputs.latest, inputs.overrides, apply, &mut target);
    let same_content = current.is_some() && current == digest(&target);
    let same_leave = leave::given(&binding.next) == leave::given(&target);
    let same_snapshot = spec.resource_snapshot_name == inputs.latest.name;
    let same_lists = Lists::of(spec) == Lists::of(&target.spec);
    let quiet = windlass_rollout::touches_no_object(spec.apply_strategy.as_ref(), Some(apply));
    let reports_diff = EffectiveApply::of(spec.apply_strategy.as_ref()).reports_diff();
    let unreachable = inputs.unreachable.contains(&spec.target_cluster);
    let readiness = match &binding.live {
        // The spec as it is in the API server is what the status is about.
        Some(live) => classify(
            &ready::Facts {
                binding: live,
                desired_digest: current,
                unreachable,
                unavailable_period: period,
            },
            now,
        ),
        None => ready::Readiness::InProgress,
    };
    // One of which the status is too old to say anything may well serve: it does not go for free.
    let is_behind = binding.live.as_deref().is_some_and(|live| lag(live) > 1);
    let readiness = if is_behind && spec.state == BindingState::Unscheduled {
        ready::Readiness::Unreachable
    } else {
        readiness
    };
    // No content goes out with an old override after the new one was seen.
    let waits = inputs.overrides.waits(spec);
    RolloutBinding {
        name,
        cluster: &spec.target_cluster,
        state: spec.state.clone(),
        deleting: binding.next.metadata.deletion_timestamp.is_some(),
        waits,
        on_target: !waits
            && same_snapshot
            && same_lists
            && same_leave
            && spec.apply_strategy.as_ref() == Some(apply),
        settings_only: same_content || (same_snapshot && same_lists && same_leave && quiet),
        readiness: Readiness::of(readiness, reports_diff),
        previously_bound: !spec.resource_snapshot_name.is_empty(),
    }
}

fn retarget(
    latest: &LatestSnapshot,
    overrides: &Resolved,
    apply: &ApplyStrategy,
    binding: &mut Binding,
) {
    binding.spec.resource_snapshot_name.clone_from(&latest.name);
    binding.spec.apply_strategy = Some(apply.clone());
    binding.spec.state = BindingState::Bound;
    let lists = overrides.lists(&binding.spec);
    lists.set(&mut binding.spec);
    let effect = overrides.effect(&binding.spec);
    leave::give(binding, effect);
}

/// Names of the bindings that are on the latest snapshot, and have yet to get what else a rollout brings:
/// overrides and, unless the strategy in force is not known, the way to apply.
#[must_use]
pub fn behind(
    existing: &[Arc<Binding>],
    latest: &LatestSnapshot,
    overrides: &Resolved,
    strategy: Option<Option<&RolloutStrategy>>,
) -> BTreeSet<String> {
    let wanted = strategy.map(apply_strategy);
    existing
        .iter()
        .filter(|live| live.spec.resource_snapshot_name == latest.name)
        .filter(|live| {
            let spec = &live.spec;
            let apply = wanted.as_ref().or(spec.apply_strategy.as_ref());
            let mut target = Binding::clone(live);
            retarget(
                latest,
                overrides,
                &apply.cloned().unwrap_or_default(),
                &mut target,
            );
            overrides.waits(spec)
                || Lists::of(spec) != Lists::of(&target.spec)
                || leave::given(live) != leave::given(&target)
                || wanted.is_some() && spec.apply_strategy != target.spec.apply_strategy
        })
        .map(|live| live.name_any())
        .collect()
}

fn apply_rolling(inputs: &BindingInputs<'_>, wanted: &mut [Wanted], rolling: &RollingPlan) {
    let apply = apply_strategy(inputs.strategy);
    let moving: BTreeSet<&String> = rolling.update.iter().chain(&rolling.bind).collect();
    let removed: BTreeSet<&String> = rolling.remove.iter().collect();
    for binding in wanted {
        let name = binding.next.name_any();
        if moving.contains(&name) {
            retarget(inputs.latest, inputs.overrides, &apply, &mut binding.next);
        } else if removed.contains(&name) {
            binding.gone = true;
        }
    }
}
