//! The decision, and the policies that need no scores.

use std::collections::BTreeSet;

use jiff::Timestamp;
use windlass_api::placement::PlacementType;
use windlass_api::snapshot::ClusterDecision;

use crate::context::{Context, Fit};
use crate::pick_n;
use crate::reason;
use crate::view::SchedulingView;

/// How many decisions a policy snapshot's status may have (schema limit).
pub const MAX_DECISIONS: usize = 1000;
/// How many clusters that weren't selected are told of (API §8.1).
pub const MAX_UNSELECTED: usize = 20;

/// Where a placement goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Every cluster that the placement is to be on, by name. Complete: bindings follow from it.
    pub selected: Vec<ClusterDecision>,
    /// Why each other cluster wasn't selected: first the runners-up, best first, then those that a filter
    /// rejects, by name. Complete; the objects show a part ([`Self::shown`]).
    pub unselected: Vec<ClusterDecision>,
    /// Whether there are as many clusters as the policy asks for. Always so for PickAll.
    pub fulfilled: bool,
    /// Message of the Scheduled condition.
    pub message: String,
    /// When the reasons may change without anything being heard: the end of a tolerance of a runner-up.
    /// Selected clusters stay selected, so that the time never changes the selection itself.
    pub wake_at: Option<Timestamp>,
    /// Terms of the policy that can't be evaluated, or that contradict themselves: required ones match no
    /// cluster, preferred ones count for nothing.
    pub trouble: Vec<String>,
}

impl Schedule {
    /// The clusters not selected that the objects tell of: the first [`MAX_UNSELECTED`], and none beyond
    /// [`MAX_DECISIONS`] in total.
    #[must_use]
    pub fn shown(&self) -> &[ClusterDecision] {
        let room = MAX_UNSELECTED.min(MAX_DECISIONS.saturating_sub(self.selected.len()));
        self.unselected.get(..room).unwrap_or(&self.unselected)
    }

    /// The decisions for the policy snapshot's status: selected ones first, at most [`MAX_DECISIONS`].
    #[must_use]
    pub fn decisions(&self) -> Vec<ClusterDecision> {
        let all = self.selected.iter().chain(self.shown());
        all.take(MAX_DECISIONS).cloned().collect()
    }

    /// Sorts those selected.
    pub(crate) fn new(
        mut selected: Vec<ClusterDecision>,
        unselected: Vec<ClusterDecision>,
        outcome: (bool, String),
    ) -> Self {
        selected.sort_by(|a, b| a.cluster_name.cmp(&b.cluster_name));
        let (fulfilled, message) = outcome;
        Schedule {
            selected,
            unselected,
            fulfilled,
            message,
            wake_at: None,
            trouble: Vec::new(),
        }
    }
}

/// Whether as many clusters as wanted were found, and the words for it.
pub(crate) fn outcome(found: usize, wanted: usize) -> (bool, String) {
    if found == wanted {
        (true, reason::fulfilled(found))
    } else {
        (false, reason::unfulfilled(found, wanted))
    }
}

/// Decides which clusters a placement goes to.
#[must_use]
pub fn schedule(view: &SchedulingView<'_>, now: Timestamp) -> Schedule {
    let context = Context::new(view, now);
    let mut schedule = match view.policy.and_then(|p| p.placement_type) {
        None | Some(PlacementType::PickAll) => pick_all(&context),
        Some(PlacementType::PickN) => pick_n::pick_n(&context),
        Some(PlacementType::PickFixed) => pick_fixed(&context),
    };
    let required = context.required.trouble();
    schedule.trouble.splice(0..0, required);
    schedule
}

/// Every cluster that passes the filters, and those that passed them once under this policy.
fn pick_all(context: &Context<'_>) -> Schedule {
    let mut selected = Vec::new();
    let mut unselected = Vec::new();
    for cluster in &context.clusters {
        if let Some(binding) = context.selecting(cluster.name).filter(|b| b.current_policy) {
            selected.push(reason::picked(
                cluster.name,
                binding.score.unwrap_or_default(),
            ));
            continue;
        }
        match context.fit(cluster) {
            Fit::Fits(_) => selected.push(reason::picked(cluster.name, reason::score(0, 0))),
            Fit::Paused(_) if context.is_obsolete(cluster.name) => {
                selected.push(reason::picked(cluster.name, reason::score(0, 0)));
            }
            Fit::Paused(why) | Fit::Unfit(why) => {
                unselected.push(reason::filtered(cluster.name, &why));
            }
        }
    }
    let found = selected.len();
    Schedule::new(selected, unselected, (true, reason::fulfilled(found)))
}

/// The named clusters that exist and can take something, or have it already. Taints and affinity don't
/// count. An empty list is fulfilled by nothing (trap T8).
fn pick_fixed(context: &Context<'_>) -> Schedule {
    let names: BTreeSet<&str> = context
        .policy
        .and_then(|p| p.cluster_names.as_deref())
        .unwrap_or_default()
        .iter()
        .map(String::as_str)
        .collect();
    let mut selected = Vec::new();
    let mut ineligible = Vec::new();
    let mut missing = Vec::new();
    for name in &names {
        let Some(cluster) = context.cluster(name) else {
            missing.push(reason::not_found(name));
            continue;
        };
        match context.eligibility(cluster) {
            Ok(_) => selected.push(reason::picked_by_name(name)),
            Err(_) if context.selecting(name).is_some() => {
                selected.push(reason::picked_by_name(name));
            }
            Err(why) => ineligible.push(reason::not_eligible(name, why)),
        }
    }
    ineligible.append(&mut missing);
    let outcome = outcome(selected.len(), names.len());
    Schedule::new(selected, ineligible, outcome)
}
