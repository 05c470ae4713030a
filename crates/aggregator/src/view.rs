//! What the roll-up looks at.

use std::collections::BTreeMap;

use windlass_api::conditions::{SCHEDULED, Stage, Status};
use windlass_api::placement::{
    ApplyStrategy, PlacementPolicy, PlacementStatus, PlacementType, ResourceIdentifier,
    RolloutStrategyType,
};
use windlass_api::scoped::{Binding, PolicySnapshot, Scope};
use windlass_api::snapshot::ClusterDecision;
use windlass_status::defaults::{self, EffectiveApply};
use windlass_status::{Digest, conditions};

/// Size that a placement object keeps within (design §5.3); etcd refuses 1.5 MiB.
pub const DEFAULT_BUDGET: usize = 1 << 20;

/// Everything that a placement's status follows from.
#[derive(Clone, Copy)]
pub struct AggregateView<'a> {
    /// Scope of the placement: its condition types begin with its kind.
    pub scope: Scope,
    /// Generation of the placement; every condition is stamped with it.
    pub generation: i64,
    /// Who rolls out.
    pub strategy: RolloutStrategyType,
    /// Whether the placement applies or only reports differences.
    pub mode: Mode,
    /// The policy; how many slots found no cluster follows from it.
    pub policy: Option<&'a PlacementPolicy>,
    /// The status as last written; transition times come from it.
    pub previous: Option<&'a PlacementStatus>,
    /// How far scheduling got.
    pub scheduling: Scheduling<'a>,
    /// While that is not done: generation of the placement that what its bindings ask for was decided for;
    /// none if nothing was decided yet.
    pub in_force: Option<i64>,
    /// The scheduler's decisions, selected clusters and others, in any order. While scheduling is not done,
    /// those in force, selected ones only.
    pub decisions: &'a [ClusterDecision],
    /// Bindings by cluster, see [`bindings_by_cluster`]; such that are not live are passed over.
    pub bindings: &'a BTreeMap<&'a str, BindingView<'a>>,
    /// The latest resource snapshot, under both strategies; none before the first.
    pub latest: Option<SnapshotView<'a>>,
    /// Identifiers of the resources of any snapshot, by the name of its master (External).
    pub resources_of: &'a dyn Fn(&str) -> Option<&'a [ResourceIdentifier]>,
    /// What stands for a condition that clusters can't agree on (External).
    pub external_unset: ExternalUnset,
    /// Name of the update run that rolls out at present, if one does (External).
    pub run: Option<&'a str>,
    /// How large the status may get.
    pub budget: Budget,
}

/// Whether a placement applies or only reports differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Applied and Available follow WorkSynchronized.
    Apply,
    /// DiffReported follows WorkSynchronized.
    ReportDiff,
}

impl Mode {
    /// The mode that an apply strategy asks for; applying unless it says otherwise.
    #[must_use]
    pub fn of(strategy: Option<&ApplyStrategy>) -> Self {
        if EffectiveApply::of(strategy).reports_diff() {
            Self::ReportDiff
        } else {
            Self::Apply
        }
    }

    /// The condition types, in order.
    #[must_use]
    pub const fn chain(self) -> &'static [Stage] {
        match self {
            Self::Apply => &Stage::APPLY,
            Self::ReportDiff => &Stage::REPORT_DIFF,
        }
    }
}

/// How far scheduling got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling<'a> {
    /// The selectors can't be acted on, for this reason; what was decided before stands.
    InvalidSelectors(&'a str),
    /// The API server refuses or does not answer, for this reason; what was decided before stands.
    Undecided(&'a str),
    /// Not done for this generation.
    Pending,
    /// Done.
    Decided {
        /// Whether every slot found a cluster.
        fulfilled: bool,
        /// Reason, as in the policy snapshot.
        reason: &'a str,
        /// Message, as in the policy snapshot.
        message: &'a str,
    },
}

impl<'a> Scheduling<'a> {
    /// Reads a policy snapshot: pending when its Scheduled is missing, Unknown, about an older
    /// generation of the snapshot, or about an older generation of the placement.
    #[must_use]
    pub fn read(snapshot: &'a PolicySnapshot, placement_generation: i64) -> Self {
        let Some(status) = &snapshot.status else {
            return Self::Pending;
        };
        let list = status.conditions.as_deref().unwrap_or_default();
        let Some(scheduled) = conditions::find(list, SCHEDULED) else {
            return Self::Pending;
        };
        // None sorts before every generation.
        if scheduled.observed_generation < snapshot.metadata.generation
            || status.observed_crp_generation < placement_generation
        {
            return Self::Pending;
        }
        let fulfilled = match conditions::status(scheduled) {
            Status::True => true,
            Status::False => false,
            Status::Unknown => return Self::Pending,
        };
        Self::Decided {
            fulfilled,
            reason: &scheduled.reason,
            message: &scheduled.message,
        }
    }
}

/// A binding and what the caches know about it.
#[derive(Clone, Copy, Debug)]
pub struct BindingView<'a> {
    /// The binding.
    pub binding: &'a Binding,
    /// Digest of what its spec asks for; none if that can't be told.
    pub desired_digest: Option<Digest>,
    /// Index of the snapshot that its spec names; none if it names none or that is gone.
    pub snapshot_index: Option<&'a str>,
    /// Whether the latest policy snapshot chose it.
    pub current_policy: bool,
    /// Whether the rollout has yet to change it though it is on the latest snapshot: its overrides or
    /// apply strategy are out of date.
    pub held_back: bool,
    /// Whether its cluster has stopped answering.
    pub unreachable: bool,
}

impl BindingView<'_> {
    /// Whether the binding counts: not being deleted, for a cluster, and chosen by the latest policy.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.current_policy
            && self.binding.metadata.deletion_timestamp.is_none()
            && !self.binding.spec.target_cluster.is_empty()
    }
}

/// The bindings that count, by cluster. Should one cluster have two, the one with the smallest name is
/// taken, so that the outcome is the same every time.
#[must_use]
pub fn bindings_by_cluster<'a>(
    bindings: impl IntoIterator<Item = BindingView<'a>>,
) -> BTreeMap<&'a str, BindingView<'a>> {
    let mut map: BTreeMap<&str, BindingView<'_>> = BTreeMap::new();
    for view in bindings.into_iter().filter(BindingView::is_live) {
        map.entry(&view.binding.spec.target_cluster)
            .and_modify(|known| {
                if view.binding.metadata.name < known.binding.metadata.name {
                    *known = view;
                }
            })
            .or_insert(view);
    }
    map
}

/// A resource snapshot group.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotView<'a> {
    /// Name of the master.
    pub name: &'a str,
    /// Index.
    pub index: &'a str,
    /// What is in it.
    pub resources: &'a [ResourceIdentifier],
}

/// What stands for conditions of an External placement whose clusters observe different indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExternalUnset {
    /// Every condition is there and Unknown.
    #[default]
    Unknown,
    /// RolloutStarted is there and Unknown, later ones are left out: the shape that KubeFleet gives,
    /// for tools that compare statuses literally.
    Omit,
}

/// How large the status may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes for the whole placement object, as JSON.
    pub total: usize,
    /// Bytes that metadata and spec take of it.
    pub rest: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            total: DEFAULT_BUDGET,
            rest: 0,
        }
    }
}

/// How many slots found no cluster: PickN's number or PickFixed's names, less the selected, and no more
/// than there are decisions against a cluster to tell why.
#[must_use]
pub fn unfilled_slots(
    policy: Option<&PlacementPolicy>,
    selected: usize,
    unselected: usize,
) -> usize {
    let Some(given) = policy else { return 0 };
    let wanted = match defaults::placement_type(policy) {
        PlacementType::PickAll => 0,
        PlacementType::PickN => given
            .number_of_clusters
            .and_then(|number| usize::try_from(number).ok())
            .unwrap_or(0),
        PlacementType::PickFixed => given.cluster_names.as_ref().map_or(0, Vec::len),
    };
    wanted.saturating_sub(selected).min(unselected)
}
