//! Required and preferred cluster affinity (hub §1.7.4).

use windlass_api::placement::{
    ClusterAffinity, ClusterSelectorTerm, PlacementPolicy, PreferredClusterSelector,
    PropertySortOrder,
};

use crate::property::{Property, Test, contradiction};
use crate::quantity::Quantity;
use crate::selector::Selector;
use crate::view::ClusterView;

fn cluster_affinity(policy: Option<&PlacementPolicy>) -> Option<&ClusterAffinity> {
    policy?.affinity.as_ref()?.cluster_affinity.as_ref()
}

/// A term whose selectors were checked.
struct Term<'a> {
    labels: Option<Selector<'a>>,
    tests: Vec<Test<'a>>,
}

impl<'a> Term<'a> {
    fn new(term: &'a ClusterSelectorTerm) -> Result<Self, String> {
        let labels = term
            .label_selector
            .as_ref()
            .map(Selector::new)
            .transpose()
            .map_err(|error| error.to_string())?;
        let tests: Vec<Test<'_>> = term
            .property_selector
            .iter()
            .flat_map(|selector| &selector.match_expressions)
            .map(Test::new)
            .collect::<Result<_, _>>()?;
        if let Some(why) = contradiction(&tests) {
            return Err(why);
        }
        Ok(Term { labels, tests })
    }

    /// Labels and every property test have to hold.
    fn matches(&self, cluster: &ClusterView<'_>) -> Result<bool, String> {
        if !self
            .labels
            .as_ref()
            .is_none_or(|selector| selector.matches(cluster.labels))
        {
            return Ok(false);
        }
        for test in &self.tests {
            if !test.holds(cluster)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The terms of which a cluster has to match one.
pub(crate) struct Required<'a> {
    terms: Vec<Result<Term<'a>, String>>,
}

impl<'a> Required<'a> {
    pub(crate) fn new(policy: Option<&'a PlacementPolicy>) -> Self {
        let terms = cluster_affinity(policy)
            .and_then(|a| {
                a.required_during_scheduling_ignored_during_execution
                    .as_ref()
            })
            .map_or(&[][..], |selector| &selector.cluster_selector_terms);
        Required {
            terms: terms.iter().map(Term::new).collect(),
        }
    }

    /// Terms that no cluster can match, and why.
    pub(crate) fn trouble(&self) -> impl Iterator<Item = String> {
        let numbered = self.terms.iter().enumerate();
        numbered.filter_map(|(index, term)| {
            let why = term.as_ref().err()?;
            Some(format!(
                "required affinity term {} matches no cluster: {why}",
                index + 1
            ))
        })
    }

    /// Whether the cluster matches; no terms match every cluster. A term that can't be evaluated doesn't
    /// match, and the first such one is named when no other does.
    pub(crate) fn check(&self, cluster: &ClusterView<'_>) -> Result<(), String> {
        if self.terms.is_empty() {
            return Ok(());
        }
        let mut trouble = None;
        for (index, term) in self.terms.iter().enumerate() {
            let matched = match term {
                Ok(term) => term.matches(cluster),
                Err(error) => Err(error.clone()),
            };
            match matched {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => trouble = trouble.or(Some((index + 1, error))),
            }
        }
        let text = "cluster does not match any required affinity term";
        Err(match trouble {
            Some((number, error)) => format!("{text} (term {number}: {error})"),
            None => text.to_owned(),
        })
    }
}

/// The weighted wishes, with what they need to know of the whole fleet.
pub(crate) struct Preferred<'a> {
    wishes: Vec<Wish<'a>>,
    /// Those that can't be evaluated, and why.
    pub(crate) trouble: Vec<String>,
}

struct Wish<'a> {
    weight: i32,
    term: Term<'a>,
    sorter: Option<Sorter<'a>>,
}

struct Sorter<'a> {
    property: Property<'a>,
    order: PropertySortOrder,
    /// Smallest and largest value in the fleet.
    range: Option<(Quantity, Quantity)>,
}

impl<'a> Preferred<'a> {
    pub(crate) fn new(
        policy: Option<&'a PlacementPolicy>,
        clusters: &[&'a ClusterView<'a>],
    ) -> Self {
        let wishes = cluster_affinity(policy)
            .and_then(|a| {
                a.preferred_during_scheduling_ignored_during_execution
                    .as_deref()
            })
            .unwrap_or_default();
        // A wish that can't be evaluated is worth nothing on any cluster.
        let mut preferred = Preferred {
            wishes: Vec::new(),
            trouble: Vec::new(),
        };
        for (index, wish) in wishes.iter().enumerate() {
            match Wish::new(wish, clusters) {
                Ok(wish) => preferred.wishes.push(wish),
                Err(error) => preferred.trouble.push(format!(
                    "preferred affinity term {} counts for nothing: {error}",
                    index + 1
                )),
            }
        }
        preferred
    }

    /// The sum over all wishes.
    pub(crate) fn score(&self, cluster: &ClusterView<'_>) -> i32 {
        self.wishes
            .iter()
            .fold(0, |sum: i32, wish| sum.saturating_add(wish.score(cluster)))
    }
}

impl<'a> Wish<'a> {
    fn new(
        wish: &'a PreferredClusterSelector,
        clusters: &[&'a ClusterView<'a>],
    ) -> Result<Self, String> {
        let sorter = match &wish.preference.property_sorter {
            None => None,
            Some(sorter) => {
                let property = Property::parse(&sorter.name)?;
                let values = || clusters.iter().filter_map(|c| value(property, c));
                Some(Sorter {
                    property,
                    order: sorter.sort_order,
                    range: values().min().zip(values().max()),
                })
            }
        };
        Ok(Wish {
            weight: wish.weight,
            term: Term::new(&wish.preference)?,
            sorter,
        })
    }

    fn score(&self, cluster: &ClusterView<'_>) -> i32 {
        if !self.term.matches(cluster).unwrap_or(false) {
            return 0;
        }
        match &self.sorter {
            None => self.weight,
            Some(sorter) => sorter.share(cluster, self.weight),
        }
    }
}

impl Sorter<'_> {
    /// The part of `weight` that the cluster's place between the extremes earns; nothing when the
    /// property is missing, unreadable, or the same everywhere.
    fn share(&self, cluster: &ClusterView<'_>, weight: i32) -> i32 {
        let (Some((min, max)), Some(value)) = (self.range, value(self.property, cluster)) else {
            return 0;
        };
        let span = max.nanos().saturating_sub(min.nanos());
        let distance = match self.order {
            PropertySortOrder::Descending => value.nanos().saturating_sub(min.nanos()),
            PropertySortOrder::Ascending => max.nanos().saturating_sub(value.nanos()),
        };
        if span == 0 {
            return 0;
        }
        round_divide(distance.saturating_mul(i128::from(weight)), span)
    }
}

/// A value that can be ranked. An unreadable one is like a missing one.
fn value(property: Property<'_>, cluster: &ClusterView<'_>) -> Option<Quantity> {
    property.of(cluster).ok().flatten()
}

/// `numerator / denominator`, halves away from zero, for a positive denominator.
fn round_divide(numerator: i128, denominator: i128) -> i32 {
    let quotient = numerator / denominator;
    let remainder = (numerator % denominator).abs();
    let rounded = if remainder >= denominator - remainder {
        quotient + numerator.signum()
    } else {
        quotient
    };
    i32::try_from(rounded).unwrap_or(if rounded < 0 { i32::MIN } else { i32::MAX })
}
