//! Counters over the fleet, moved by the difference that one object makes. Pure: time is a parameter.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use windlass_api::conditions::{Stage, Status, placement_scheduled};
use windlass_api::placement::RolloutStrategyType;
use windlass_api::scoped::{Placement, Scope};
use windlass_cluster::clock::Instant;
use windlass_status::conditions::{find, status};
use windlass_status::defaults::rollout_type;

use super::summary::Summary;

/// What metrics need to know of a placement besides its bindings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementFacts {
    /// Index that the status describes.
    pub index: Option<u64>,
    /// Index that every cluster is to have; none where each has its own (External).
    pub latest: Option<u64>,
    /// Whether scheduling found all that is asked for.
    pub is_scheduled: bool,
    /// Whether that index is available, or reported on, on every cluster.
    pub is_complete: bool,
}

impl PlacementFacts {
    /// Reads them off a placement.
    #[must_use]
    pub fn of(placement: &Placement) -> Self {
        let Some(told) = &placement.status else {
            return Self::default();
        };
        let index = told
            .observed_resource_index
            .as_deref()
            .and_then(|index| index.parse().ok());
        let strategy = rollout_type(placement.spec.strategy.as_ref());
        let scope = Scope::of(placement);
        let conditions = told.conditions.as_deref().unwrap_or_default();
        let is_true = |type_: &str| {
            find(conditions, type_).is_some_and(|condition| status(condition) == Status::True)
        };
        Self {
            index,
            latest: index.filter(|_| strategy == RolloutStrategyType::RollingUpdate),
            is_scheduled: is_true(placement_scheduled(scope)),
            is_complete: is_true(Stage::Available.placement_type(scope))
                || is_true(Stage::DiffReported.placement_type(scope)),
        }
    }
}

/// Counters of one placement.
#[derive(Default)]
pub struct PlacementTally {
    /// None once the placement is gone, or before it is known.
    pub facts: Option<PlacementFacts>,
    /// Clusters by stage and status.
    pub by_stage: BTreeMap<(Stage, Status), usize>,
    /// Clusters by the index that they have reported on.
    pub by_index: BTreeMap<Option<u64>, usize>,
    bindings: HashMap<Arc<str>, Summary>,
    /// When the rollout that is not complete yet began.
    began: Option<Instant>,
}

/// Counters of one cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterTally {
    /// Whether there is a member cluster of that name.
    pub is_known: bool,
    /// Placements that have failed there.
    pub failed: usize,
    /// Placements whose desired index or digest it has not reported on.
    pub lagging: usize,
}

/// A placement that has failed on a cluster, and at which stage.
pub type Failing = (Arc<str>, Arc<str>, Stage);

/// See the module.
#[derive(Default)]
pub struct Tally {
    placements: BTreeMap<Arc<str>, PlacementTally>,
    clusters: BTreeMap<Arc<str>, ClusterTally>,
    failing: BTreeMap<Failing, usize>,
    /// Placement of each binding that is counted.
    owners: HashMap<Arc<str>, Arc<str>>,
}

impl Tally {
    /// A binding is so now; none when it is gone.
    pub fn binding(&mut self, name: &str, new: Option<Summary>) {
        if let Some((name, owner)) = self.owners.remove_entry(name) {
            let tally = self.placements.entry(Arc::clone(&owner)).or_default();
            if let Some(old) = tally.bindings.remove(&name) {
                self.count(&old, Count::Out);
            }
            self.drop_unused(&owner);
        }
        let Some(new) = new else { return };
        self.count(&new, Count::In);
        let (name, owner): (Arc<str>, _) = (name.into(), Arc::clone(&new.placement));
        self.owners.insert(Arc::clone(&name), Arc::clone(&owner));
        let tally = self.placements.entry(owner).or_default();
        tally.bindings.insert(name, new);
    }

    /// A placement is so now. Gives the duration of its rollout when it has just become complete. Of one
    /// that was there before the process (`initial`), nobody knows when its rollout began.
    pub fn placement(
        &mut self,
        name: &str,
        new: &PlacementFacts,
        initial: bool,
        now: Instant,
    ) -> Option<Duration> {
        let key: Arc<str> = name.into();
        let tally = self.placements.entry(Arc::clone(&key)).or_default();
        let old = tally.facts.replace(new.clone());
        let known = old.unwrap_or_else(|| {
            tally.began = (!initial).then_some(now);
            PlacementFacts {
                index: new.index,
                ..PlacementFacts::default()
            }
        });
        // While clusters disagree (External) there is no index: the rollout began when they began to.
        let goes_on = known.index.is_none() && tally.began.is_some();
        if known.index != new.index && !goes_on {
            tally.began = Some(now);
        }
        let done = new.is_complete && new.index.is_some();
        let took = tally.began.take_if(|_| done);
        if known.latest != new.latest {
            self.desire(&key, known.latest, new.latest);
        }
        took.map(|began| now.saturating_duration_since(began))
    }

    /// A placement is gone.
    pub fn placement_gone(&mut self, name: &str) {
        let Some(tally) = self.placements.get_mut(name) else {
            return;
        };
        let latest = tally.facts.take().and_then(|facts| facts.latest);
        tally.began = None;
        self.desire(name, latest, None);
        self.drop_unused(name);
    }

    /// A member cluster is there, or gone.
    pub fn cluster(&mut self, name: &str, is_known: bool) {
        let tally = self.clusters.entry(name.into()).or_default();
        tally.is_known = is_known;
        if *tally == ClusterTally::default() {
            self.clusters.remove(name);
        }
    }

    /// Placements that exist, by name.
    pub fn placements(&self) -> impl Iterator<Item = (&str, &PlacementFacts, &PlacementTally)> {
        self.placements
            .iter()
            .filter_map(|(name, tally)| Some((&**name, tally.facts.as_ref()?, tally)))
    }

    /// Member clusters that exist, by name.
    pub fn clusters(&self) -> impl Iterator<Item = (&str, &ClusterTally)> {
        let known = self.clusters.iter().filter(|(_, tally)| tally.is_known);
        known.map(|(name, tally)| (&**name, tally))
    }

    /// Failing pairs, by placement and cluster, and how many there are.
    pub fn failing(&self) -> (impl Iterator<Item = &Failing>, usize) {
        (self.failing.keys(), self.failing.len())
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.placements.is_empty()
            && self.clusters.is_empty()
            && self.failing.is_empty()
            && self.owners.is_empty()
    }

    fn count(&mut self, summary: &Summary, count: Count) {
        let tally = self
            .placements
            .entry(Arc::clone(&summary.placement))
            .or_default();
        for stand in &summary.stages {
            count.apply(&mut tally.by_stage, stand);
        }
        count.apply(&mut tally.by_index, &summary.index);
        let latest = tally.facts.as_ref().and_then(|facts| facts.latest);
        let cluster = self
            .clusters
            .entry(Arc::clone(&summary.cluster))
            .or_default();
        if is_lagging(summary, latest) {
            count.step(&mut cluster.lagging);
        }
        if let Some(stage) = summary.failing {
            count.step(&mut cluster.failed);
            let pair = (
                Arc::clone(&summary.placement),
                Arc::clone(&summary.cluster),
                stage,
            );
            count.apply(&mut self.failing, &pair);
        }
        if *cluster == ClusterTally::default() {
            self.clusters.remove(&summary.cluster);
        }
    }

    /// Another index is desired on every cluster: one look at each, once per snapshot.
    fn desire(&mut self, placement: &str, old: Option<u64>, new: Option<u64>) {
        let Some(tally) = self.placements.get(placement) else {
            return;
        };
        for summary in tally.bindings.values() {
            let (was, is) = (is_lagging(summary, old), is_lagging(summary, new));
            if was != is {
                let cluster = self
                    .clusters
                    .entry(Arc::clone(&summary.cluster))
                    .or_default();
                Count::of(is).step(&mut cluster.lagging);
            }
        }
    }

    fn drop_unused(&mut self, placement: &str) {
        let is_unused = |tally: &PlacementTally| tally.facts.is_none() && tally.bindings.is_empty();
        if self.placements.get(placement).is_some_and(is_unused) {
            self.placements.remove(placement);
        }
    }
}

fn is_lagging(summary: &Summary, latest: Option<u64>) -> bool {
    summary.is_behind || latest.is_some_and(|latest| summary.index != Some(latest))
}

#[derive(Clone, Copy)]
enum Count {
    In,
    Out,
}

impl Count {
    fn of(is_in: bool) -> Self {
        if is_in { Self::In } else { Self::Out }
    }

    fn step(self, number: &mut usize) {
        *number = match self {
            Self::In => *number + 1,
            Self::Out => number.saturating_sub(1),
        };
    }

    /// Counts under a key; a key that counts nothing goes.
    fn apply<K: Ord + Clone>(self, counts: &mut BTreeMap<K, usize>, key: &K) {
        let number = counts.entry(key.clone()).or_default();
        self.step(number);
        if *number == 0 {
            counts.remove(key);
        }
    }
}
