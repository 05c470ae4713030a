//! Topology spread: keeping the clusters of a placement even over the values of a label (hub §1.7.4).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use windlass_api::placement::{TopologySpreadConstraint, UnsatisfiableConstraintAction};

use crate::view::ClusterView;

/// What breaking a ScheduleAnyway constraint costs.
const VIOLATION: i32 = -1000;

/// The domain of a cluster under each constraint; `None` where it lacks the label. Clusters with the
/// same signature are alike for spreading.
pub(crate) type Signature = Vec<Option<usize>>;

/// How many clusters of the placement each domain holds, kept up to date while clusters are picked.
pub(crate) struct Spread<'a> {
    constraints: Vec<Constraint<'a>>,
}

struct Constraint<'a> {
    spec: &'a TopologySpreadConstraint,
    max_skew: i32,
    hard: bool,
    domains: BTreeMap<&'a str, usize>,
    counts: Vec<i32>,
    /// How many domains have each count.
    tally: BTreeMap<i32, usize>,
}

/// The counts that the skew depends on. With a single domain, `second` is `None`.
#[derive(Clone, Copy)]
struct Extremes {
    smallest: i32,
    second: Option<i32>,
    largest: i32,
}

impl<'a> Spread<'a> {
    /// Domains are those of all clusters in the fleet that aren't leaving it, also where they hold
    /// nothing or nothing can go there.
    pub(crate) fn new(
        constraints: &'a [TopologySpreadConstraint],
        clusters: &[&'a ClusterView<'a>],
    ) -> Self {
        let constraints = constraints
            .iter()
            .map(|spec| Constraint::new(spec, clusters))
            .collect();
        Spread { constraints }
    }

    pub(crate) fn signature(&self, cluster: &ClusterView<'_>) -> Signature {
        self.constraints
            .iter()
            .map(|c| {
                let value = cluster.labels.get(&c.spec.topology_key)?;
                c.domains.get(value.as_str()).copied()
            })
            .collect()
    }

    /// Counts a cluster as picked.
    pub(crate) fn add(&mut self, signature: &Signature) {
        for (constraint, domain) in self.constraints.iter_mut().zip(signature) {
            if let Some(domain) = *domain {
                constraint.shift(domain, 1);
            }
        }
    }

    /// Counts a cluster as let go.
    pub(crate) fn remove(&mut self, signature: &Signature) {
        for (constraint, domain) in self.constraints.iter_mut().zip(signature) {
            if let Some(domain) = *domain {
                constraint.shift(domain, -1);
            }
        }
    }

    /// Whether any constraint is one that has to hold.
    pub(crate) fn is_hard(&self) -> bool {
        self.constraints.iter().any(|constraint| constraint.hard)
    }

    /// How uneven the hard constraints would be without one cluster of this signature: by how much the skews
    /// exceed what is allowed, and the skews; each summed up.
    pub(crate) fn without(&self, signature: &Signature) -> (i32, i32) {
        let mut sums = (0_i32, 0_i32);
        let pairs = self.constraints.iter().zip(signature);
        for (constraint, domain) in pairs.filter(|(constraint, _)| constraint.hard) {
            let skew = constraint.skew_without(*domain);
            let excess = skew.saturating_sub(constraint.max_skew).max(0);
            sums = (sums.0.saturating_add(excess), sums.1.saturating_add(skew));
        }
        sums
    }

    /// How many domains each constraint has.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.constraints.iter().map(|c| c.counts.len()).collect()
    }

    /// What a domain of the constraint with this number holds.
    pub(crate) fn count(&self, constraint: usize, domain: usize) -> i32 {
        self.constraints
            .get(constraint)
            .and_then(|c| c.counts.get(domain))
            .copied()
            .unwrap_or_default()
    }

    /// The score of one more cluster with this signature.
    ///
    /// # Errors
    ///
    /// The first DoNotSchedule constraint that it would break.
    pub(crate) fn score(&self, signature: &Signature) -> Result<i32, &'a TopologySpreadConstraint> {
        let mut score = 0_i32;
        for (constraint, domain) in self.constraints.iter().zip(signature) {
            let Some(count) = domain.and_then(|d| constraint.counts.get(d)) else {
                continue;
            };
            let (change, skew) = constraint.extremes().after_adding_to(*count);
            score = score.saturating_add(match (skew > constraint.max_skew, constraint.hard) {
                (true, true) => return Err(constraint.spec),
                (true, false) => VIOLATION,
                (false, _) => -change,
            });
        }
        Ok(score)
    }
}

impl<'a> Constraint<'a> {
    fn new(spec: &'a TopologySpreadConstraint, clusters: &[&'a ClusterView<'a>]) -> Self {
        let mut domains = BTreeMap::new();
        for cluster in clusters.iter().filter(|c| !c.deleting) {
            if let Some(value) = cluster.labels.get(&spec.topology_key) {
                let next = domains.len();
                domains.entry(value.as_str()).or_insert(next);
            }
        }
        Constraint {
            spec,
            max_skew: spec.max_skew.unwrap_or(1),
            hard: spec
                .when_unsatisfiable
                .unwrap_or(UnsatisfiableConstraintAction::DoNotSchedule)
                == UnsatisfiableConstraintAction::DoNotSchedule,
            counts: vec![0; domains.len()],
            tally: BTreeMap::from([(0, domains.len())]),
            domains,
        }
    }

    /// Changes what a domain holds.
    fn shift(&mut self, domain: usize, by: i32) {
        let Some(count) = self.counts.get_mut(domain) else {
            return;
        };
        if let Entry::Occupied(mut same) = self.tally.entry(*count) {
            *same.get_mut() -= 1;
            if *same.get() == 0 {
                same.remove();
            }
        }
        *count = count.saturating_add(by);
        *self.tally.entry(*count).or_default() += 1;
    }

    /// The skew when a domain held one less.
    fn skew_without(&self, domain: Option<usize>) -> i32 {
        let Extremes {
            smallest, largest, ..
        } = self.extremes();
        let Some(count) = domain.and_then(|domain| self.counts.get(domain)).copied() else {
            return largest - smallest;
        };
        let less = count.saturating_sub(1);
        let largest = if count == largest && self.tally.get(&count) == Some(&1) {
            let next = self.tally.range(..count).next_back();
            next.map_or(less, |(next, _)| less.max(*next))
        } else {
            largest
        };
        // A domain that is alone is the smallest and the largest.
        let smallest = match self.counts.len() {
            1 => less,
            _ => smallest.min(less),
        };
        largest - smallest
    }

    fn extremes(&self) -> Extremes {
        let mut ascending = self.tally.iter();
        let (smallest, shared) = ascending.next().map_or((0, false), |(c, n)| (*c, *n > 1));
        let next = ascending.next().map(|(count, _)| *count);
        Extremes {
            smallest,
            second: if shared { Some(smallest) } else { next },
            largest: self.tally.last_key_value().map_or(0, |(count, _)| *count),
        }
    }
}

impl Extremes {
    /// How one more cluster in a domain of `count` changes the skew, and the skew after it.
    ///
    /// | Case | change | skew |
    /// |---|---|---|
    /// | a single domain, or all are equal | +1 | 1 |
    /// | the only smallest | −1 | (largest − smallest) − 1 |
    /// | a largest | +1 | (largest − smallest) + 1 |
    /// | otherwise | 0 | largest − smallest |
    fn after_adding_to(self, count: i32) -> (i32, i32) {
        let skew = self.largest - self.smallest;
        match self.second {
            None => (1, 1),
            Some(_) if skew == 0 => (1, 1),
            Some(second) if count == self.smallest && second != self.smallest => (-1, skew - 1),
            Some(_) if count == self.largest => (1, skew + 1),
            Some(_) => (0, skew),
        }
    }
}
