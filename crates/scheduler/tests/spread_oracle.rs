//! The picks under topology spread against a plain reading of the reference: look at every cluster, take
//! the best, count it, again.

mod common;

use std::collections::BTreeMap;

use common::{Cluster, bound, cluster, policy, run};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

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
        let spread: Vec<Value> = constraints
            .iter()
            .map(|(key, max, hard)| json!({"topologyKey": key, "maxSkew": max,
                "whenUnsatisfiable": if *hard { "DoNotSchedule" } else { "ScheduleAnyway" }}))
            .collect();
        let policy = policy(json!({"placementType": "PickN", "numberOfClusters": number,
            "topologySpreadConstraints": spread}));
        let existing: Vec<_> = held.iter().map(|name| bound(name)).collect();
        let result = run(&policy, &fleet, &existing);
        prop_assert_eq!(
            common::names(&result.selected),
            oracle(&fleet, &held, &constraints, number)
        );
        prop_assert_eq!(result.selected.len() + result.unselected.len(), fleet.len());
    }
}
