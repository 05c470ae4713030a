//! Topology spread: keeping the clusters of a placement even over the values of a label (hub §1.7.4).

use std::collections::BTreeMap;

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
    extremes: Extremes,
}

/// The counts that the skew depends on. With a single domain, `second` is `None`.
#[derive(Clone, Copy, Default)]
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
            if let Some(count) = domain.and_then(|d| constraint.counts.get_mut(d)) {
                *count = count.saturating_add(1);
                constraint.extremes = Extremes::of(&constraint.counts);
            }
        }
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
            let (change, skew) = constraint.extremes.after_adding_to(*count);
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
        let counts = vec![0; domains.len()];
        Constraint {
            spec,
            max_skew: spec.max_skew.unwrap_or(1),
            hard: spec
                .when_unsatisfiable
                .unwrap_or(UnsatisfiableConstraintAction::DoNotSchedule)
                == UnsatisfiableConstraintAction::DoNotSchedule,
            extremes: Extremes::of(&counts),
            domains,
            counts,
        }
    }
}

impl Extremes {
    fn of(counts: &[i32]) -> Self {
        let mut extremes = Extremes {
            smallest: i32::MAX,
            second: None,
            largest: 0,
        };
        for (index, &count) in counts.iter().enumerate() {
            extremes.largest = extremes.largest.max(count);
            if count < extremes.smallest {
                extremes.second = (index > 0).then_some(extremes.smallest);
                extremes.smallest = count;
            } else {
                extremes.second = Some(extremes.second.map_or(count, |s| s.min(count)));
            }
        }
        extremes
    }

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
