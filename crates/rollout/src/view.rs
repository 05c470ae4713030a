//! What a rolling plan is made from.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use windlass_api::binding::BindingState;
use windlass_api::conditions::Stage;
use windlass_api::placement::{PlacementPolicy, PlacementType};
use windlass_status::ready;

/// Everything that decides which bindings may move.
#[derive(Clone, Copy, Debug)]
pub struct RollingView<'a> {
    /// Every binding of the placement, in any order.
    pub bindings: &'a [RolloutBinding<'a>],
    /// How many clusters the placement is meant to be on; see [`target_count`].
    pub target: usize,
    /// `maxUnavailable` of the strategy.
    pub max_unavailable: Option<&'a IntOrString>,
    /// `maxSurge` of the strategy.
    pub max_surge: Option<&'a IntOrString>,
}

/// What the planner looks at in a binding.
#[derive(Clone, Debug)]
pub struct RolloutBinding<'a> {
    /// Its name; decides the order.
    pub name: &'a str,
    /// Its target cluster.
    pub cluster: &'a str,
    /// Its state.
    pub state: BindingState,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// Snapshot, overrides and apply strategy are those wanted for its cluster.
    pub on_target: bool,
    /// All that keeps it from being on target are settings for which [`crate::touches_no_object`] holds.
    /// It is then updated at once.
    pub settings_only: bool,
    /// What is wanted for its cluster can't be said yet: it stays as it is.
    pub waits: bool,
    /// How it is with what it was last given, not with what is wanted.
    pub readiness: Readiness,
    /// Unscheduled, and was Bound before: its cluster may still carry the resources.
    pub previously_bound: bool,
}

/// How a binding is with what it was last given (design §5.8: the three classes are never mixed).
///
/// The status has to be about the binding's present digest; one about an earlier digest means
/// [`InProgress`](Self::InProgress), unless the cluster isn't reachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Available.
    Ready,
    /// Available as far as can be told; counts as such from this moment (`unavailablePeriodSeconds`).
    ReadyAt(Timestamp),
    /// The difference was reported and nothing was applied (ReportDiff): ready, and no load on the
    /// cluster.
    DiffReported,
    /// On its way; may become ready.
    InProgress,
    /// A reachable member reported a true failure, or ran past its timeout.
    Failed,
    /// What is wanted there can't be made (an override that can't be worked in), and nothing is known to
    /// serve: until that is mended the cluster is no part of what the others have to keep up.
    Refused,
    /// What is wanted can't be placed anywhere, and what the cluster had before serves on. It is available,
    /// and yet has had its turn: once the hub may place it after all, the cluster gets it at once.
    Withheld,
    /// Nothing is heard of the member.
    Unreachable,
}

impl Readiness {
    /// Takes over what the status crate says of a binding. `report_diff`: the binding's own apply
    /// strategy has the type ReportDiff, so that being ready is no load.
    #[must_use]
    pub const fn of(class: ready::Readiness, report_diff: bool) -> Self {
        match class {
            ready::Readiness::Ready if report_diff => Self::DiffReported,
            // What runs there is as available as before, and moving it costs as much: what could not be
            // made has cost nothing, and holds no other cluster up.
            ready::Readiness::Ready | ready::Readiness::Undisturbed => Self::Ready,
            ready::Readiness::Withheld => Self::Withheld,
            ready::Readiness::ReadyAt(at) => Self::ReadyAt(at),
            ready::Readiness::InProgress => Self::InProgress,
            ready::Readiness::Failed(Stage::Overridden) => Self::Refused,
            ready::Readiness::Failed(_) => Self::Failed,
            ready::Readiness::Unreachable => Self::Unreachable,
        }
    }
}

/// How many clusters a placement is meant to be on (hub reference §1.9.4): PickFixed and PickN as the
/// policy says, PickAll the clusters that are scheduled or bound.
///
/// A binding that is being deleted counts too, since its cluster is one of those that are unavailable;
/// a cluster that was picked again meanwhile counts once. A PickN or PickFixed that can't find all its
/// clusters keeps its number, as the peer does: the missing ones are unavailable and use up the budget.
#[must_use]
pub fn target_count(policy: Option<&PlacementPolicy>, bindings: &[RolloutBinding<'_>]) -> usize {
    let fixed = || {
        let policy = policy?;
        match policy.placement_type? {
            PlacementType::PickAll => None,
            PlacementType::PickN => usize::try_from(policy.number_of_clusters?).ok(),
            PlacementType::PickFixed => {
                let names = policy.cluster_names.as_deref().unwrap_or_default();
                Some(names.iter().collect::<BTreeSet<_>>().len())
            }
        }
    };
    fixed().unwrap_or_else(|| {
        let wanted = bindings
            .iter()
            .filter(|b| b.state != BindingState::Unscheduled);
        wanted.map(|b| b.cluster).collect::<BTreeSet<_>>().len()
    })
}
