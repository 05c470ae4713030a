//! PickN: the best N clusters, in one pass.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use windlass_api::binding::BindingState;
use windlass_api::snapshot::ClusterDecision;

use crate::affinity::Preferred;
use crate::context::{Context, Fit};
use crate::eligibility::after;
use crate::pool::{Candidate, Pool, Rank};
use crate::reason;
use crate::schedule::{Schedule, outcome};
use crate::spread::{Signature, Spread};
use crate::view::ExistingBinding;

/// Keeps what this policy has selected, trims it when N shrank, else fills up with the best.
///
/// Every pick counts for the topology spread of the next, so a batch never has to be cut up. Order:
/// spread score, affinity score, selected under an earlier policy, larger name.
pub(crate) fn pick_n(context: &Context<'_>) -> Schedule {
    let number = context
        .policy
        .and_then(|p| p.number_of_clusters)
        .and_then(|n| usize::try_from(n).ok());
    let mut present: Vec<_> = context.present().collect();
    // Nothing is undone on the strength of a number that is missing.
    let wanted = number.unwrap_or(present.len());
    trim(context, &mut present, wanted);
    let mut selected: Vec<_> = present
        .iter()
        .map(|b| reason::picked(b.cluster, b.score.unwrap_or_default()))
        .collect();

    let mut spread = Spread::new(
        context
            .policy
            .and_then(|p| p.topology_spread_constraints.as_deref())
            .unwrap_or_default(),
        &context.clusters,
    );
    for cluster in present.iter().filter_map(|b| context.cluster(b.cluster)) {
        let signature = spread.signature(cluster);
        spread.add(&signature);
    }
    let taken: BTreeSet<&str> = present.iter().map(|b| b.cluster).collect();
    let preferred = Preferred::new(context.policy, &context.clusters);
    let (candidates, mut filtered) = candidates(context, &spread, &preferred, &taken);
    let mut pool = Pool::new(candidates, &spread);
    while selected.len() < wanted {
        let Some((candidate, score)) = pool.take_best(&mut spread) else {
            break;
        };
        selected.push(reason::picked(
            candidate.rank.name,
            reason::score(candidate.rank.affinity, score),
        ));
    }

    let (mut unselected, wake_at) = leftovers(pool, &spread, &mut filtered);
    unselected.append(&mut filtered);
    let outcome = match number {
        Some(wanted) => outcome(selected.len(), wanted),
        None => (false, reason::number_missing(selected.len())),
    };
    Schedule {
        wake_at,
        trouble: preferred.trouble,
        ..Schedule::new(selected, unselected, outcome)
    }
}

/// Drops bindings until `wanted` are left, one at a time: scheduled ones before bound ones; of these the one
/// that leaves the least skew over the hard constraints, what they do not allow first of all; then the lowest
/// score; then the smaller name. The spread score is that of the pick, and counts where there is no hard
/// constraint only.
fn trim<'a>(context: &Context<'a>, present: &mut Vec<&'a ExistingBinding<'a>>, wanted: usize) {
    let constraints = context
        .policy
        .and_then(|p| p.topology_spread_constraints.as_deref())
        .unwrap_or_default();
    let mut spread = Spread::new(constraints, &context.clusters);
    let hard = spread.is_hard();
    let order = |b: &ExistingBinding<'a>| {
        let score = b.score.unwrap_or_default();
        let spread = (!hard).then_some(score.topology_spread_score);
        let score = b.score.map(|_| (spread, score.affinity_score));
        (b.state == BindingState::Bound, score, b.cluster)
    };
    present.sort_by_key(|b| order(b));
    let excess = present.len().saturating_sub(wanted);
    if excess == 0 || !hard {
        present.drain(..excess);
        return;
    }
    let signatures: Vec<Signature> = present
        .iter()
        .map(|b| context.cluster(b.cluster))
        .map(|cluster| cluster.map_or_else(Signature::new, |c| spread.signature(c)))
        .collect();
    for signature in &signatures {
        spread.add(signature);
    }
    // Those of a group are alike but for their order, so that only the first of each has to be looked at.
    let mut groups: BTreeMap<(bool, &Signature), Vec<&'a ExistingBinding<'a>>> = BTreeMap::new();
    for (binding, signature) in present.iter().zip(&signatures).rev() {
        let class = binding.state == BindingState::Bound;
        groups.entry((class, signature)).or_default().push(binding);
    }
    for _ in 0..excess {
        let next = groups
            .iter()
            .filter_map(|((class, signature), group)| {
                let first = group.last()?;
                let left = spread.without(signature);
                Some(((*class, left, order(first)), (*class, *signature)))
            })
            .min();
        let Some((_, key)) = next else { break };
        spread.remove(key.1);
        if let Some(group) = groups.get_mut(&key) {
            group.pop();
        }
    }
    let kept: BTreeSet<&str> = groups.values().flatten().map(|b| b.cluster).collect();
    present.retain(|b| kept.contains(b.cluster));
}

/// Splits the clusters that aren't taken into those that may be picked and those that a filter rejects.
fn candidates<'a>(
    context: &Context<'a>,
    spread: &Spread<'a>,
    preferred: &Preferred<'_>,
    taken: &BTreeSet<&str>,
) -> (Vec<(Signature, Candidate<'a>)>, Vec<ClusterDecision>) {
    let mut candidates = Vec::new();
    let mut filtered = Vec::new();
    for cluster in context.clusters.iter().filter(|c| !taken.contains(c.name)) {
        let obsolete = context.is_obsolete(cluster.name);
        let (until, trouble) = match context.fit(cluster) {
            Fit::Fits(until) => (until, None),
            Fit::Paused(why) if obsolete => (Timestamp::MAX, Some(why)),
            Fit::Paused(why) | Fit::Unfit(why) => {
                filtered.push(reason::filtered(cluster.name, &why));
                continue;
            }
        };
        let rank = Rank {
            eligible: trouble.is_none(),
            affinity: preferred.score(cluster),
            obsolete,
            name: cluster.name,
        };
        candidates.push((
            spread.signature(cluster),
            Candidate {
                rank,
                until,
                trouble,
            },
        ));
    }
    (candidates, filtered)
}

/// The runners-up, best first, and when the first of them stops being one. What breaks a constraint or
/// isn't eligible joins `filtered`, which stays sorted by name.
fn leftovers(
    pool: Pool<'_>,
    spread: &Spread<'_>,
    filtered: &mut Vec<ClusterDecision>,
) -> (Vec<ClusterDecision>, Option<Timestamp>) {
    let mut runners_up = Vec::new();
    let mut wake_at: Option<Timestamp> = None;
    for (signature, group) in pool.rest() {
        let score = spread.score(&signature);
        for candidate in group {
            match (&candidate.trouble, score) {
                (Some(why), _) => filtered.push(reason::filtered(candidate.rank.name, why)),
                (None, Err(constraint)) => filtered.push(reason::filtered(
                    candidate.rank.name,
                    &reason::topology(constraint),
                )),
                (None, Ok(score)) => {
                    runners_up.push((score, candidate.rank.affinity, candidate.rank.name));
                    // At the last moment itself it still is one.
                    let end = after(candidate.until, SignedDuration::from_secs(1));
                    wake_at = Some(wake_at.map_or(end, |known| known.min(end)));
                }
            }
        }
    }
    filtered.sort_by(|a, b| a.cluster_name.cmp(&b.cluster_name));
    runners_up.sort_unstable();
    let decisions = runners_up
        .into_iter()
        .rev()
        .map(|(score, affinity, name)| reason::outscored(name, affinity, score))
        .collect();
    (decisions, wake_at)
}
