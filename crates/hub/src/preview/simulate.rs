//! The rollout of a placement, played out: carry out what the plan says, let every cluster that was given
//! something report that it is ready, plan again, until nothing moves.
//!
//! Assumed is what can't be known: that each reachable cluster becomes ready with what it is given. One that
//! has failed with what it has, and one that is silent, stay so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde::Serialize;
use windlass_api::Condition;
use windlass_api::binding::{BindingState, BindingStatus};
use windlass_api::conditions::Stage;
use windlass_api::scoped::{Binding, PolicySnapshot};
use windlass_status::defaults::EffectiveApply;
use windlass_status::digest::Digest;
use windlass_status::ready::{Facts, Readiness, classify};

use super::Live;
use crate::delivery::refused;
use crate::placement::bindings::{BindingPlan, Digests};
use crate::placement::packing::NOWHERE;
use crate::placement::plan::{self, PlacementPlan, PlacementView};
use crate::placement::snapshots::{Groups, LatestSnapshot, meta_of};
use crate::render::Refusal;
use crate::select::Selection;

/// So many clusters are looked at at most, each as often as is planned: a rollout cluster by cluster over
/// thousands of them is not followed to its end.
const MOST_LOOKS: usize = 3_000_000;

/// Clusters that get nothing new, and why.
pub type Broken = BTreeMap<String, Refusal>;

/// A rollout, played out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// What changes at once; each step begins when the clusters of those before it are ready. The hub does
    /// not wait for whole steps: whoever is ready makes room for the next.
    pub steps: Vec<Vec<Change>>,
    /// How it ends.
    pub end: End,
}

/// A change on a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The cluster.
    pub cluster: String,
    /// What happens there.
    pub kind: Kind,
}

/// What happens on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// It gets the resources.
    Add,
    /// It gets another version of them, or another way to apply them.
    Update,
    /// It loses them.
    Remove,
}

/// How a rollout ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum End {
    /// Every cluster has what it is meant to have.
    #[default]
    Complete,
    /// Strategy External: others roll out, and nothing changes before they do.
    External,
    /// The bounds of the strategy let nothing more happen.
    Stuck {
        /// Clusters that wait for their turn.
        waiting: Vec<String>,
        /// Clusters that were given something and are silent.
        silent: Vec<String>,
        /// Clusters whose overrides can't be worked in.
        failing: Vec<String>,
        /// Clusters on which the resources can't be placed.
        refusing: Vec<String>,
    },
    /// It was not played out any further.
    Unknown,
}

/// Plays the rollout out.
#[must_use]
pub fn rollout(live: &Live, selection: &Selection, broken: &Broken, now: Timestamp) -> Rollout {
    let mut scene = Scene {
        groups: live.groups.clone(),
        policies: live.policies.clone(),
        bindings: live.bindings.iter().map(by_name).collect(),
        moved: live.bindings.iter().map(|b| b.name_any()).collect(),
        digests: Digests::default(),
        now,
    };
    let mut rollout = Rollout::default();
    // Each turn moves or settles a cluster, or passes the end of a waiting period.
    let clusters = live.bindings.len() + live.clusters.len();
    let turns = 4 * clusters + 16;
    for _ in 0..turns.min(MOST_LOOKS / clusters.max(1)) {
        let bindings: Vec<Arc<Binding>> = scene.bindings.values().cloned().collect();
        let plan = plan::plan(
            &PlacementView {
                places: &NOWHERE,
                groups: &scene.groups,
                policies: &scene.policies,
                bindings: &bindings,
                ..live.view(selection)
            },
            scene.now,
        );
        let step = changes(&scene.bindings, &plan);
        if !step.is_empty() {
            rollout.steps.push(step);
        }
        scene.write_versions(&plan);
        let moved = scene.carry_out(live, &plan.bindings);
        let settled = scene.settle(live, &plan.latest, broken);
        if moved || settled {
            continue;
        }
        match plan.bindings.wake_at {
            Some(at) if at > scene.now => scene.now = at,
            _ => {
                rollout.end = scene.end(live, &plan, broken);
                return rollout;
            }
        }
    }
    rollout.end = End::Unknown;
    rollout
}

/// What a plan changes on clusters, in the order in which it is written.
fn changes(bindings: &Bindings, plan: &PlacementPlan) -> Vec<Change> {
    let change = |binding: &Binding, kind| Change {
        cluster: binding.spec.target_cluster.clone(),
        kind,
    };
    let mut step: BTreeSet<Change> = BTreeSet::new();
    for new in plan.bindings.create.iter().filter(|b| holds(b)) {
        step.insert(change(new, Kind::Add));
    }
    for next in plan.bindings.replace.iter().filter(|b| holds(b)) {
        match bindings.get(&next.name_any()) {
            Some(old) if !holds(old) => step.insert(change(next, Kind::Add)),
            Some(old) if differs(old, next) => step.insert(change(next, Kind::Update)),
            _ => false,
        };
    }
    for gone in plan.bindings.delete.iter().filter(|b| holds(b)) {
        step.insert(change(gone, Kind::Remove));
    }
    step.into_iter().collect()
}

/// Bindings by name.
type Bindings = BTreeMap<String, Arc<Binding>>;

fn by_name(binding: &Arc<Binding>) -> (String, Arc<Binding>) {
    (binding.name_any(), Arc::clone(binding))
}

/// Whether the cluster has, or is to have, the resources because of the binding.
fn holds(binding: &Binding) -> bool {
    !binding.spec.resource_snapshot_name.is_empty() && binding.spec.state != BindingState::Scheduled
}

fn differs(old: &Binding, next: &Binding) -> bool {
    let (old, next) = (&old.spec, &next.spec);
    old.resource_snapshot_name != next.resource_snapshot_name
        || old.apply_strategy != next.apply_strategy
        || old.resource_override_snapshots != next.resource_override_snapshots
        || old.cluster_resource_override_snapshots != next.cluster_resource_override_snapshots
}

/// The hub's objects as the rollout goes on.
struct Scene {
    groups: Groups,
    policies: Vec<Arc<PolicySnapshot>>,
    bindings: Bindings,
    /// Names of the bindings that were given something since it was looked whether their clusters arrive.
    moved: BTreeSet<String>,
    digests: Digests,
    now: Timestamp,
}

impl Scene {
    /// Makes the snapshots that the plan asks for. Old ones stay: nothing depends on their going.
    fn write_versions(&mut self, plan: &PlacementPlan) {
        let created = plan.snapshots.iter().flat_map(|plan| &plan.create);
        let created: Vec<_> = created
            .map(|snapshot| Arc::new(meta_of(snapshot.metadata.clone())))
            .collect();
        if !created.is_empty() {
            let known = self.groups.objects().cloned();
            self.groups = Groups::of(&known.chain(created).collect::<Vec<_>>());
        }
        self.policies
            .extend(plan.policy.create.clone().map(Arc::new));
    }

    /// Carries out the writes of bindings. Tells whether there was any.
    fn carry_out(&mut self, live: &Live, plan: &BindingPlan) -> bool {
        for next in plan.create.iter().chain(&plan.replace) {
            let mut next = next.clone();
            let generation = next.metadata.generation.unwrap_or_default();
            next.metadata.generation = Some(generation + 1);
            self.moved.insert(next.name_any());
            self.bindings.insert(next.name_any(), Arc::new(next));
        }
        for gone in &plan.delete {
            if let Some(binding) = self.bindings.get_mut(&gone.name_any()) {
                Arc::make_mut(binding).metadata.deletion_timestamp = Some(Time(self.now));
            }
        }
        // A cluster that answers lets go of what was removed; one that is not in the fleet has nothing.
        self.bindings.retain(|_, binding| {
            binding.metadata.deletion_timestamp.is_none()
                || live.unreachable.contains(&binding.spec.target_cluster)
        });
        !plan.create.is_empty() || !plan.replace.is_empty() || !plan.delete.is_empty()
    }

    /// Every reachable cluster that is under way to what is wanted arrives there, but for those that refuse
    /// it. Tells whether any did.
    fn settle(&mut self, live: &Live, latest: &LatestSnapshot, broken: &Broken) -> bool {
        let mut settled = false;
        for name in std::mem::take(&mut self.moved) {
            let Some(binding) = self.bindings.get_mut(&name) else {
                continue;
            };
            let digest = self
                .digests
                .of(binding, &self.groups, latest, &live.overrides);
            let on_its_way = holds(binding)
                && binding.spec.resource_snapshot_name == latest.name
                && classify(
                    &Facts {
                        binding,
                        desired_digest: digest,
                        unreachable: live.unreachable.contains(&binding.spec.target_cluster),
                        unavailable_period: jiff::SignedDuration::ZERO,
                    },
                    self.now,
                ) == Readiness::InProgress;
            if on_its_way {
                let refusal = broken.get(&binding.spec.target_cluster);
                let status = match (refusal, digest) {
                    (Some(refusal), Some(digest)) => {
                        refused::status(binding, digest, &latest.name, refusal, self.now)
                    }
                    _ => arrived(binding, digest, self.now),
                };
                Arc::make_mut(binding).status = Some(status);
                settled = true;
            }
        }
        settled
    }

    fn end(&self, live: &Live, plan: &PlacementPlan, broken: &Broken) -> End {
        if live.is_external() {
            return End::External;
        }
        let clusters = |wanted: &dyn Fn(&Binding) -> bool| -> Vec<String> {
            let found: BTreeSet<String> = self
                .bindings
                .values()
                .filter(|binding| wanted(binding))
                .map(|binding| binding.spec.target_cluster.clone())
                .collect();
            found.into_iter().collect()
        };
        let unscheduled = |b: &Binding| b.spec.state == BindingState::Unscheduled;
        let waiting = clusters(&|b| plan.bindings.held.contains(&b.name_any()) || unscheduled(b));
        let silent = clusters(&|b| holds(b) && live.unreachable.contains(&b.spec.target_cluster));
        let faulty = |b: &Binding| broken.get(&b.spec.target_cluster).filter(|_| holds(b));
        let failing = clusters(&|b| matches!(faulty(b), Some(Refusal::Override(_))));
        let refusing = clusters(&|b| matches!(faulty(b), Some(Refusal::Content(_))));
        let lists = [&waiting, &silent, &failing, &refusing];
        if lists.iter().all(|list| list.is_empty()) {
            End::Complete
        } else {
            End::Stuck {
                waiting,
                silent,
                failing,
                refusing,
            }
        }
    }
}

/// The status of a binding whose cluster has arrived.
fn arrived(binding: &Binding, digest: Option<Digest>, now: Timestamp) -> BindingStatus {
    let diff = EffectiveApply::of(binding.spec.apply_strategy.as_ref()).reports_diff();
    let stages: &[Stage] = if diff {
        &[Stage::DiffReported]
    } else {
        &[Stage::Applied, Stage::Available]
    };
    let conditions = stages.iter().map(|stage| Condition {
        type_: stage.to_string(),
        status: "True".to_owned(),
        reason: "Assumed".to_owned(),
        message: String::new(),
        observed_generation: binding.metadata.generation,
        last_transition_time: Time(now),
    });
    BindingStatus {
        conditions: Some(conditions.collect()),
        observed_digest: digest.map(|digest| digest.to_string()),
        ..BindingStatus::default()
    }
}
