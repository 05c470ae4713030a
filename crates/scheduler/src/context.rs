//! The view, sorted and indexed, and the filters.

use std::collections::BTreeMap;

use jiff::Timestamp;
use windlass_api::binding::BindingState;
use windlass_api::placement::{PlacementPolicy, Toleration};

use crate::affinity::Required;
use crate::eligibility::{self, Ineligible};
use crate::reason;
use crate::taint;
use crate::view::{ClusterView, ExistingBinding, Namespaces, SchedulingView};

/// The view, ready for use.
pub(crate) struct Context<'a> {
    pub(crate) policy: Option<&'a PlacementPolicy>,
    /// By name.
    pub(crate) clusters: Vec<&'a ClusterView<'a>>,
    /// The binding that selects each cluster: live, scheduled or bound, its cluster in the fleet.
    selected: BTreeMap<&'a str, &'a ExistingBinding<'a>>,
    pub(crate) required: Required<'a>,
    tolerations: &'a [Toleration],
    namespace: Option<&'a str>,
    now: Timestamp,
}

/// What the filters say of a cluster.
pub(crate) enum Fit {
    /// It can take the placement, until this moment if nothing more is heard of it.
    Fits(Timestamp),
    /// It could if it weren't for a trouble that may pass.
    Paused(String),
    /// It can't.
    Unfit(String),
}

impl<'a> Context<'a> {
    pub(crate) fn new(view: &SchedulingView<'a>, now: Timestamp) -> Self {
        let mut clusters: Vec<_> = view.clusters.iter().collect();
        clusters.sort_by_key(|c| c.name);
        clusters.dedup_by_key(|c| c.name);
        let mut context = Context {
            policy: view.policy,
            clusters,
            selected: BTreeMap::new(),
            required: Required::new(view.policy),
            tolerations: view
                .policy
                .and_then(|p| p.tolerations.as_deref())
                .unwrap_or_default(),
            namespace: view.namespace,
            now,
        };
        for binding in view.existing.iter().filter(|b| selects(b)) {
            if context
                .cluster(binding.cluster)
                .is_some_and(|c| !c.deleting)
            {
                context
                    .selected
                    .entry(binding.cluster)
                    .and_modify(|known| {
                        // Two live bindings of one cluster are a foreign writer's; the firmer counts.
                        if firmness(binding) > firmness(known) {
                            *known = binding;
                        }
                    })
                    .or_insert(binding);
            }
        }
        context
    }

    pub(crate) fn cluster(&self, name: &str) -> Option<&'a ClusterView<'a>> {
        let index = self.clusters.binary_search_by(|c| c.name.cmp(name)).ok()?;
        self.clusters.get(index).copied()
    }

    /// The binding that selects a cluster, under the latest policy or an earlier one.
    pub(crate) fn selecting(&self, cluster: &str) -> Option<&'a ExistingBinding<'a>> {
        self.selected.get(cluster).copied()
    }

    /// Bindings that select a cluster under the latest policy, by cluster.
    pub(crate) fn present(&self) -> impl Iterator<Item = &'a ExistingBinding<'a>> {
        self.selected.values().copied().filter(|b| b.current_policy)
    }

    /// Whether an earlier policy selected the cluster.
    pub(crate) fn is_obsolete(&self, cluster: &str) -> bool {
        self.selecting(cluster).is_some_and(|b| !b.current_policy)
    }

    pub(crate) fn eligibility(&self, cluster: &ClusterView<'_>) -> Result<Timestamp, Ineligible> {
        eligibility::check(cluster, self.now)
    }

    /// Affinity, eligibility, namespace, taints: the first that rejects gives the reason. (Topology spread
    /// depends on what else is picked, and is looked at there.)
    ///
    /// A trouble pauses only when nothing lasting stands in the way as well.
    pub(crate) fn fit(&self, cluster: &ClusterView<'_>) -> Fit {
        if let Err(why) = self.required.check(cluster) {
            return Fit::Unfit(why);
        }
        let taint = taint::first_untolerated(cluster.taints, self.tolerations);
        let home = self.home(cluster);
        let lasting = taint.is_some() || home == Home::Absent;
        match self.eligibility(cluster) {
            Err(why) if why.is_passing() && !lasting => Fit::Paused(why.to_string()),
            Err(why) => Fit::Unfit(why.to_string()),
            Ok(until) => match (home, taint) {
                (Home::Absent, _) => {
                    Fit::Unfit(reason::namespace_absent(self.namespace.unwrap_or_default()))
                }
                (Home::Unknown, None) => Fit::Paused(reason::NAMESPACES_MISSING.to_owned()),
                (Home::Unknown, Some(_)) => Fit::Unfit(reason::NAMESPACES_MISSING.to_owned()),
                (Home::Present, Some(taint)) => Fit::Unfit(reason::taint(taint)),
                (Home::Present, None) => Fit::Fits(until),
            },
        }
    }

    /// Whether the cluster has the namespace of a namespaced placement, as far as it tells.
    fn home(&self, cluster: &ClusterView<'_>) -> Home {
        let Some(namespace) = self.namespace else {
            return Home::Present;
        };
        match cluster.namespaces {
            Namespaces::NotCollected => Home::Present,
            Namespaces::Missing => Home::Unknown,
            Namespaces::Known(all) if all.contains_key(namespace) => Home::Present,
            Namespaces::Known(_) => Home::Absent,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    Present,
    Unknown,
    Absent,
}

/// Whether a binding holds its cluster selected. An unknown state is taken for selected: undoing what
/// isn't understood would be the greater harm.
fn selects(binding: &ExistingBinding<'_>) -> bool {
    !binding.deleting && binding.state != BindingState::Unscheduled
}

type Firmness = (bool, bool, Option<(Option<i32>, Option<i32>)>);

fn firmness(binding: &ExistingBinding<'_>) -> Firmness {
    (
        binding.current_policy,
        binding.state == BindingState::Bound,
        binding
            .score
            .map(|score| (score.topology_spread_score, score.affinity_score)),
    )
}
