//! What a run is looked at with, and what is decided about it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use windlass_api::Condition;
use windlass_api::binding::{BindingSpec, BindingState};
use windlass_api::placement::{ApplyStrategy, NamespacedName};
use windlass_api::run::{ClusterStatus, ClusterVersion, UpdateRunStatus};
use windlass_api::scoped::{ApprovalRequest, UpdateRun};
use windlass_status::defaults::EffectiveApply;
use windlass_status::ready::Readiness;

/// A run at one moment, and everything that it depends on.
#[derive(Clone, Copy)]
pub struct RunView<'a> {
    /// The run.
    pub run: &'a UpdateRun,
    /// Every binding of its placement.
    pub bindings: &'a [RunBinding<'a>],
    /// Every approval request that names the run.
    pub requests: &'a [&'a ApprovalRequest],
    /// The clusters that are there and don't leave.
    pub members: &'a [Member<'a>],
    /// The clusters that the placement chooses now.
    pub selected: &'a BTreeSet<&'a str>,
    /// Whether that is known. While it isn't, `selected` are those that have a binding; nothing is concluded
    /// from one that is missing, and nothing is removed.
    pub is_settled: bool,
    /// Index of the latest policy snapshot.
    pub policy_index: &'a str,
    /// How the placement has manifests applied now.
    pub apply_strategy: &'a ApplyStrategy,
    /// Why no run can go on with the placement, if none can.
    pub unfit: Option<&'a str>,
    /// The run that has taken over, if one has ([`super::superseded`]).
    pub superseded_by: Option<&'a str>,
}

/// A member cluster.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
}

/// A binding, and how its cluster is with what the binding asks for.
#[derive(Clone, Copy, Debug)]
pub struct RunBinding<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it asks for.
    pub spec: &'a BindingSpec,
    /// It is being deleted.
    pub deleting: bool,
    /// UID of the run that moved it last.
    pub moved_by: Option<&'a str>,
    /// How the cluster is with that.
    pub readiness: Readiness,
    /// Nothing is heard of the cluster yet by a hub that has just started, though it was well before: it is
    /// neither judged nor taken for out of reach.
    pub unheard: bool,
    /// The first of its conditions about that which is not True.
    pub why: Option<&'a Condition>,
}

/// A version for one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Name of the resource snapshot.
    pub snapshot: String,
    /// ClusterResourceOverride snapshots.
    pub cluster_overrides: Option<Vec<String>>,
    /// ResourceOverride snapshots.
    pub overrides: Option<Vec<NamespacedName>>,
    /// How manifests are applied.
    pub apply: ApplyStrategy,
}

impl Target {
    /// Whether a binding asks for exactly this.
    #[must_use]
    pub fn is_asked_by(&self, spec: &BindingSpec) -> bool {
        let version = Version {
            snapshot: &self.snapshot,
            cluster_overrides: self.cluster_overrides.as_ref(),
            overrides: self.overrides.as_ref(),
            apply: &self.apply,
        };
        version.is_asked_by(spec)
    }

    /// Has a binding ask for this.
    pub fn set(&self, spec: &mut BindingSpec) {
        spec.state = BindingState::Bound;
        spec.resource_snapshot_name.clone_from(&self.snapshot);
        spec.cluster_resource_override_snapshots = filled(self.cluster_overrides.as_ref()).cloned();
        spec.resource_override_snapshots = filled(self.overrides.as_ref()).cloned();
        spec.apply_strategy = Some(EffectiveApply::of(Some(&self.apply)).to_strategy());
    }
}

/// A version for one cluster, as it stands in a run.
#[derive(Clone, Copy)]
pub(super) struct Version<'a> {
    snapshot: &'a str,
    cluster_overrides: Option<&'a Vec<String>>,
    overrides: Option<&'a Vec<NamespacedName>>,
    apply: &'a ApplyStrategy,
}

impl<'a> Version<'a> {
    /// What a run brings to a cluster.
    pub fn of_run(snapshot: &'a str, apply: &'a ApplyStrategy, cluster: &'a ClusterStatus) -> Self {
        Self {
            snapshot,
            cluster_overrides: cluster.cluster_resource_override_snapshots.as_ref(),
            overrides: cluster.resource_override_snapshots.as_ref(),
            apply,
        }
    }

    /// What a cluster goes back to; none when it had nothing.
    pub fn back(previous: &'a ClusterVersion, apply: &'a ApplyStrategy) -> Option<Self> {
        Some(Self {
            snapshot: previous.resource_snapshot_name.as_deref()?,
            cluster_overrides: previous.cluster_resource_override_snapshots.as_ref(),
            overrides: previous.resource_override_snapshots.as_ref(),
            apply: previous.apply_strategy.as_ref().unwrap_or(apply),
        })
    }

    /// Whether a binding asks for exactly this.
    pub fn is_asked_by(&self, spec: &BindingSpec) -> bool {
        spec.state == BindingState::Bound
            && spec.resource_snapshot_name == self.snapshot
            && filled(spec.cluster_resource_override_snapshots.as_ref())
                == filled(self.cluster_overrides)
            && filled(spec.resource_override_snapshots.as_ref()) == filled(self.overrides)
            && EffectiveApply::of(spec.apply_strategy.as_ref())
                == EffectiveApply::of(Some(self.apply))
    }

    /// The change that brings it to a cluster.
    pub fn to_move(self, binding: &RunBinding<'_>) -> Move {
        Move {
            binding: binding.name.to_owned(),
            target: Target {
                snapshot: self.snapshot.to_owned(),
                cluster_overrides: self.cluster_overrides.cloned(),
                overrides: self.overrides.cloned(),
                apply: self.apply.clone(),
            },
        }
    }
}

/// Whether a binding was never given a version: it is new, or was made anew.
pub(super) fn is_fresh(spec: &BindingSpec) -> bool {
    spec.resource_snapshot_name.is_empty()
}

/// What a binding asks for, to go back to it; `apply` is how the run applies.
pub(super) fn version_of(spec: &BindingSpec, apply: &ApplyStrategy) -> ClusterVersion {
    let has = EffectiveApply::of(spec.apply_strategy.as_ref());
    ClusterVersion {
        resource_snapshot_name: Some(spec.resource_snapshot_name.clone())
            .filter(|name| !name.is_empty()),
        resource_override_snapshots: filled(spec.resource_override_snapshots.as_ref()).cloned(),
        cluster_resource_override_snapshots: filled(
            spec.cluster_resource_override_snapshots.as_ref(),
        )
        .cloned(),
        apply_strategy: (has != EffectiveApply::of(Some(apply))).then(|| has.to_strategy()),
    }
}

fn filled<T>(list: Option<&Vec<T>>) -> Option<&Vec<T>> {
    list.filter(|list| !list.is_empty())
}

/// What is to be written, in this order; each prefix of it is a valid state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunPlan {
    /// Names of approval requests that are another run's of the same name: they go.
    pub discard: Vec<String>,
    /// Approval requests to make.
    pub ask: Vec<Ask>,
    /// Names of approved requests to accept.
    pub accept: Vec<String>,
    /// The run's status; unchanged when nothing is to be recorded.
    pub status: UpdateRunStatus,
    /// Bindings to change, once that is recorded.
    pub moves: Vec<Move>,
    /// Names of bindings to delete, once that is recorded.
    pub remove: Vec<String>,
    /// When to look again though nothing is heard.
    pub wake_at: Option<Timestamp>,
}

impl RunPlan {
    /// Looks again at that moment, if not before.
    pub(super) fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }
}

/// An approval request to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Its name.
    pub name: String,
    /// The stage that it is about.
    pub stage: String,
    /// Whether the stage has not begun yet.
    pub before: bool,
}

/// A binding to change.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// Name of the binding.
    pub binding: String,
    /// What it is to ask for.
    pub target: Target,
}
