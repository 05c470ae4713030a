//! The clusters that may be picked, kept so that the best is found without looking at each.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::spread::{Signature, Spread};

/// A cluster that may be picked.
pub(crate) struct Candidate<'a> {
    pub(crate) rank: Rank<'a>,
    /// How long it stays eligible if nothing more is heard of it.
    pub(crate) until: Timestamp,
    /// Why it isn't eligible.
    pub(crate) trouble: Option<String>,
}

/// The order of picking for clusters that spread alike: the last is the best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank<'a> {
    /// Not so for a cluster of an earlier policy with a passing trouble: better than nothing, and worse
    /// than any other.
    pub(crate) eligible: bool,
    /// Sum over the preferred terms.
    pub(crate) affinity: i32,
    /// An earlier policy selected it; so staying moves nothing.
    pub(crate) obsolete: bool,
    /// Ties go to the larger name, as with the peer. The inverse of trimming.
    pub(crate) name: &'a str,
}

/// Candidates of one signature: they spread alike whatever is picked.
struct Group<'a> {
    signature: Signature,
    /// The best last.
    candidates: Vec<Candidate<'a>>,
}

/// How a domain takes part in the key of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cell {
    /// The cluster lacks the label.
    Lacking,
    /// A constraint of few domains: the domain itself.
    Domain(usize),
    /// A constraint of many domains: what the domain holds. Domains that hold as much are alike.
    Holds(i32),
}

/// Groups whose spread score is the same. A key tells what the score depends on, so that there are far
/// fewer buckets than clusters also where a label has a value of its own on each cluster.
type Key = Vec<Cell>;

/// See the module.
pub(crate) struct Pool<'a> {
    groups: Vec<Group<'a>>,
    buckets: BTreeMap<Key, BTreeSet<(Rank<'a>, usize)>>,
    /// For each constraint that takes part by what its domains hold: the groups of each domain.
    by_domain: Vec<Option<Vec<Vec<usize>>>>,
}

impl<'a> Pool<'a> {
    pub(crate) fn new(candidates: Vec<(Signature, Candidate<'a>)>, spread: &Spread<'_>) -> Self {
        let sizes = spread.sizes();
        let many = many_domains(&sizes, candidates.len());
        let mut by_signature: BTreeMap<Signature, Vec<Candidate<'a>>> = BTreeMap::new();
        for (signature, candidate) in candidates {
            by_signature.entry(signature).or_default().push(candidate);
        }
        let mut pool = Pool {
            groups: Vec::new(),
            buckets: BTreeMap::new(),
            by_domain: many
                .iter()
                .zip(&sizes)
                .map(|(many, size)| many.then(|| vec![Vec::new(); *size]))
                .collect(),
        };
        for (number, (signature, mut candidates)) in by_signature.into_iter().enumerate() {
            candidates.sort_unstable_by_key(|candidate| candidate.rank);
            for (lists, domain) in pool.by_domain.iter_mut().zip(&signature) {
                if let (Some(lists), Some(domain)) = (lists, domain)
                    && let Some(list) = lists.get_mut(*domain)
                {
                    list.push(number);
                }
            }
            pool.groups.push(Group {
                signature,
                candidates,
            });
            pool.enter(number, spread);
        }
        pool
    }

    /// Takes the best candidate that breaks no hard constraint, and counts it in `spread`. Tells its
    /// spread score. Order: eligible, spread score, affinity score, selected under an earlier policy,
    /// larger name.
    pub(crate) fn take_best(&mut self, spread: &mut Spread<'_>) -> Option<(Candidate<'a>, i32)> {
        let (_, number, score) = self
            .buckets
            .values()
            .filter_map(|bucket| {
                let (rank, number) = *bucket.last()?;
                let score = spread.score(&self.groups.get(number)?.signature).ok()?;
                Some(((rank.eligible, score, rank), number, score))
            })
            .max_by_key(|(order, ..)| *order)?;
        let signature = self.groups.get(number)?.signature.clone();
        let moved: BTreeSet<usize> = self
            .by_domain
            .iter()
            .zip(&signature)
            .filter_map(|(lists, domain)| lists.as_ref()?.get((*domain)?))
            .flatten()
            .copied()
            .chain([number])
            .collect();
        for group in &moved {
            self.leave(*group, spread);
        }
        let candidate = self.groups.get_mut(number)?.candidates.pop();
        spread.add(&signature);
        for group in moved {
            self.enter(group, spread);
        }
        Some((candidate?, score))
    }

    /// What was not taken.
    pub(crate) fn rest(self) -> impl Iterator<Item = (Signature, Vec<Candidate<'a>>)> {
        self.groups
            .into_iter()
            .map(|group| (group.signature, group.candidates))
    }

    fn enter(&mut self, number: usize, spread: &Spread<'_>) {
        if let Some((key, entry)) = self.place(number, spread) {
            self.buckets.entry(key).or_default().insert(entry);
        }
    }

    fn leave(&mut self, number: usize, spread: &Spread<'_>) {
        if let Some((key, entry)) = self.place(number, spread)
            && let Some(bucket) = self.buckets.get_mut(&key)
        {
            bucket.remove(&entry);
            if bucket.is_empty() {
                self.buckets.remove(&key);
            }
        }
    }

    /// The bucket of a group, and its entry there; none when nothing is left of it.
    fn place(&self, number: usize, spread: &Spread<'_>) -> Option<(Key, (Rank<'a>, usize))> {
        let group = self.groups.get(number)?;
        let best = group.candidates.last()?;
        let cells = group.signature.iter().zip(&self.by_domain).enumerate();
        let key = cells
            .map(|(constraint, (domain, many))| match (domain, many) {
                (None, _) => Cell::Lacking,
                (Some(domain), None) => Cell::Domain(*domain),
                (Some(domain), Some(_)) => Cell::Holds(spread.count(constraint, *domain)),
            })
            .collect();
        Some((key, (best.rank, number)))
    }
}

/// Which constraints take part by what their domains hold: all but the smallest, whose domains together
/// make no more than about √n buckets. Of the others each has so many domains that a pick, which changes
/// the bucket of all clusters of its domain, changes that of few.
fn many_domains(sizes: &[usize], candidates: usize) -> Vec<bool> {
    const FEWEST: usize = 16;
    let limit = candidates.isqrt().max(FEWEST);
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|constraint| sizes.get(*constraint));
    let mut buckets = 1_usize;
    let mut many = vec![false; sizes.len()];
    for constraint in order {
        let size = sizes.get(constraint).copied().unwrap_or_default();
        buckets = buckets.saturating_mul(size.saturating_add(1));
        if let Some(many) = many.get_mut(constraint) {
            *many = buckets > limit;
        }
    }
    many
}
