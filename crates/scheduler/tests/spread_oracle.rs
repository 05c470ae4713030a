//! The picks under topology spread against a plain reading of the reference: look at every cluster, take
//! the best, count it, again.

mod common;

use std::collections::BTreeMap;

use common::{Cluster, bound, cluster, policy, run, scored};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_api::binding::BindingState;

/// Constraint: label, max skew, hard.
type Constraint = (&'static str, i32, bool);

/// How one more cluster changes the skew over `key`, and the skew after it (hub §1.7.4).
fn skew(fleet: &[Cluster], picked: &[&str], key: &str, candidate: &Cluster) -> Option<(i32, i32)> {
    let home = candidate.labels.get(key)?;
    let mut counts: BTreeMap<&str, i32> = BTreeMap::new();
    for cluster in fleet {
        if let Some(value) = cluster.labels.get(key) {
            *counts.entry(value).or_default() += i32::from(picked.contains(&cluster.name.as_str()));
        }
    }
    let count = counts[home.as_str()];
    let smallest = counts.values().copied().min()?;
    let largest = counts.values().copied().max()?;
    let alone = counts.values().filter(|c| **c == smallest).count() == 1;
    Some(if counts.len() == 1 || smallest == largest {
        (1, 1)
    } else if count == smallest && alone {
        (-1, largest - smallest - 1)
    } else if count == largest {
        (1, largest - smallest + 1)
    } else {
        (0, largest - smallest)
    })
}

fn oracle(
    fleet: &[Cluster],
    held: &[&str],
    constraints: &[Constraint],
    number: usize,
) -> Vec<String> {
    let mut picked: Vec<&str> = held.to_vec();
    while picked.len() < number {
        let best = fleet
            .iter()
            .filter(|candidate| !picked.contains(&candidate.name.as_str()))
            .filter_map(|candidate| {
                let mut score = 0;
                for (key, max, hard) in constraints {
                    match skew(fleet, &picked, key, candidate) {
                        None => {}
                        Some((_, skew)) if skew > *max && *hard => return None,
                        Some((_, skew)) if skew > *max => score -= 1000,
                        Some((change, _)) => score -= change,
                    }
                }
                Some((score, candidate.name.as_str()))
            })
            .max();
        let Some((_, name)) = best else { break };
        picked.push(name);
    }
    let mut names: Vec<String> = picked.into_iter().map(str::to_owned).collect();
    names.sort();
    names
}

/// Largest less smallest number of clusters over `key`.
fn unevenness(fleet: &[Cluster], held: &[&str], key: &str) -> i32 {
    let mut counts: BTreeMap<&str, i32> = BTreeMap::new();
    for cluster in fleet {
        if let Some(value) = cluster.labels.get(key) {
            *counts.entry(value).or_default() += i32::from(held.contains(&cluster.name.as_str()));
        }
    }
    let (smallest, largest) = (counts.values().min(), counts.values().max());
    largest.copied().unwrap_or(0) - smallest.copied().unwrap_or(0)
}

/// By how much the hard constraints are exceeded, and how uneven they are.
fn broken(fleet: &[Cluster], held: &[&str], constraints: &[Constraint]) -> (i32, i32) {
    let hard = constraints.iter().filter(|(.., hard)| *hard);
    let skews = hard.map(|(key, max, _)| {
        let skew = unevenness(fleet, held, key);
        ((skew - max).max(0), skew)
    });
    skews.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Which are left of `held`, each with its affinity score, when all but `number` go one at a time.
fn oracle_of_trimming(
    fleet: &[Cluster],
    held: &[(&str, bool, i32)],
    constraints: &[Constraint],
    number: usize,
) -> Vec<String> {
    let mut left = held.to_vec();
    while left.len() > number {
        let order = left.iter().copied().map(|gone| {
            let others: Vec<&str> = left.iter().filter(|b| **b != gone).map(|b| b.0).collect();
            (gone.1, broken(fleet, &others, constraints), gone.2, gone.0)
        });
        let Some((.., gone)) = order.min() else { break };
        left.retain(|b| b.0 != gone);
    }
    let mut names: Vec<String> = left.into_iter().map(|b| b.0.to_owned()).collect();
    names.sort();
    names
}

fn constrained(
    number: usize,
    constraints: &[Constraint],
) -> windlass_api::placement::PlacementPolicy {
    let spread: Vec<Value> = constraints
        .iter()
        .map(|(key, max, hard)| {
            json!({"topologyKey": key, "maxSkew": max,
            "whenUnsatisfiable": if *hard { "DoNotSchedule" } else { "ScheduleAnyway" }})
        })
        .collect();
    policy(json!({"placementType": "PickN", "numberOfClusters": number,
        "topologySpreadConstraints": spread}))
}

#[test]
fn fewer_clusters_stay_spread() {
    let zone = |name: &str, zone: &str| cluster(name).label("zone", zone);
    let fleet = [
        zone("a", "A"),
        zone("b", "A"),
        zone("c", "B"),
        zone("d", "B"),
    ];
    // The last two were picked last, which made the spread even: they would have gone first.
    let held = [("a", -1), ("b", -1), ("c", 1), ("d", 1)]
        .map(|(name, spread)| scored(name, BindingState::Bound, spread, 0));
    let left = |hard| {
        let policy = constrained(2, &[("zone", 1, hard)]);
        common::names(&run(&policy, &fleet, &held).selected).join(" ")
    };
    assert_eq!(left(true), "b d");
    assert_eq!(left(false), "c d");
}

fn any_fleet() -> impl Strategy<Value = Vec<Cluster>> {
    vec(
        (
            option::weighted(0.9, 0..3_u8),
            option::weighted(0.9, 0..30_u8),
            0..60_u8,
        ),
        1..50,
    )
    .prop_map(|rows| {
        rows.into_iter()
            .enumerate()
            .map(|(number, (zone, host, rack))| {
                let mut subject =
                    cluster(&format!("c{number:02}")).label("rack", &rack.to_string());
                if let Some(zone) = zone {
                    subject = subject.label("zone", &zone.to_string());
                }
                if let Some(host) = host {
                    subject = subject.label("host", &host.to_string());
                }
                subject
            })
            .collect()
    })
}

fn any_constraints() -> impl Strategy<Value = Vec<Constraint>> {
    let key = prop_oneof![Just("zone"), Just("host"), Just("rack"), Just("nowhere")];
    vec((key, 1..4_i32, any::<bool>()), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn picks_are_those_of_the_plain_reading(
        fleet in any_fleet(),
        constraints in any_constraints(),
        number in 0..60_usize,
        held in vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut held: Vec<&str> = held.iter().map(|i| i.get(&fleet).name.as_str()).collect();
        held.sort_unstable();
        held.dedup();
        // With more held than wanted it is trimmed, which is another rule.
        let number = number.max(held.len());
        let policy = constrained(number, &constraints);
        let existing: Vec<_> = held.iter().map(|name| bound(name)).collect();
        let result = run(&policy, &fleet, &existing);
        prop_assert_eq!(
            common::names(&result.selected),
            oracle(&fleet, &held, &constraints, number)
        );
        prop_assert_eq!(result.selected.len() + result.unselected.len(), fleet.len());
    }

    #[test]
    fn what_is_left_is_that_of_the_plain_reading(
        fleet in any_fleet(),
        constraints in any_constraints(),
        number in 0..8_usize,
        held in vec((any::<prop::sample::Index>(), any::<bool>(), 0..3_i32, -2..3_i32), 1..16),
    ) {
        prop_assume!(constraints.iter().any(|(.., hard)| *hard));
        let mut held: Vec<(&str, bool, i32, i32)> = held
            .iter()
            .map(|(i, bound, affinity, spread)| (i.get(&fleet).name.as_str(), *bound, *affinity, *spread))
            .collect();
        held.sort_unstable();
        held.dedup_by_key(|b| b.0);
        let number = number.min(held.len());
        let existing: Vec<_> = held
            .iter()
            .map(|(name, is_bound, affinity, spread)| {
                let state = if *is_bound { BindingState::Bound } else { BindingState::Scheduled };
                scored(name, state, *spread, *affinity)
            })
            .collect();
        let held: Vec<_> = held.iter().map(|b| (b.0, b.1, b.2)).collect();
        let result = run(&constrained(number, &constraints), &fleet, &existing);
        prop_assert_eq!(
            common::names(&result.selected),
            oracle_of_trimming(&fleet, &held, &constraints, number)
        );
    }

    #[test]
    fn a_constraint_that_holds_goes_on_holding(
        fleet in any_fleet(),
        max in 1..4_i32,
        number in 0..40_usize,
        fewer in 0..40_usize,
    ) {
        let constraints = [("zone", max, true)];
        let first = run(&constrained(number, &constraints), &fleet, &[]);
        let held: Vec<_> = first.selected.iter().map(|d| bound(&d.cluster_name)).collect();
        let second = run(&constrained(fewer.min(held.len()), &constraints), &fleet, &held);
        let skew = |names: &[&str]| unevenness(&fleet, names, "zone");
        let (before, after) = (common::names(&first.selected), common::names(&second.selected));
        prop_assert!(skew(&before) <= max && skew(&after) <= max, "{before:?} {after:?}");
    }
}
