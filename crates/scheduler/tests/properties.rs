//! What holds for every fleet and policy.

mod common;

use common::{Cluster, NOW, ago, cluster, names, run};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::json;
use windlass_api::binding::BindingState;
use windlass_api::placement::{PlacementPolicy, PlacementType};
use windlass_api::snapshot::ClusterDecision;
use windlass_scheduler::{ExistingBinding, eligibility};

const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

prop_compose! {
    fn any_cluster(name: &'static str)(
        zone in option::of(0..3_u8),
        env in 0..2_u8,
        size in option::of(prop_oneof![Just("1"), Just("20"), Just("3500m"), Just("odd")]),
        tainted in prop::bool::weighted(0.15),
        deleting in prop::bool::weighted(0.1),
        heartbeat in prop_oneof![4 => Just(10_i64), 1 => Just(900)],
    ) -> Cluster {
        let mut subject = cluster(name).label("env", if env == 0 { "prod" } else { "dev" });
        if let Some(zone) = zone {
            subject = subject.label("zone", &zone.to_string());
        }
        if let Some(size) = size {
            subject = subject.property("size", size);
        }
        if tainted {
            subject = subject.taint("k", "v");
        }
        subject.deleting = deleting;
        subject.membership.last_heartbeat = Some(ago(heartbeat));
        subject
    }
}

fn any_fleet() -> impl Strategy<Value = Vec<Cluster>> {
    (1..=NAMES.len()).prop_flat_map(|n| {
        NAMES[..n]
            .iter()
            .map(|n| any_cluster(n))
            .collect::<Vec<_>>()
    })
}

prop_compose! {
    fn policy_of(kinds: std::ops::Range<u8>)(
        kind in kinds,
        number in 0..9_u32,
        named in vec(0..NAMES.len(), 0..5),
        required in any::<bool>(),
        sorted in any::<bool>(),
        spread in option::of((1..3_i32, any::<bool>())),
    ) -> PlacementPolicy {
        let mut affinity = json!({});
        if required {
            affinity["requiredDuringSchedulingIgnoredDuringExecution"] = json!({"clusterSelectorTerms": [
                {"labelSelector": {"matchLabels": {"env": "prod"}}},
                {"propertySelector": {"matchExpressions": [{"name": "size", "operator": "Gt", "values": ["2"]}]}},
            ]});
        }
        if sorted {
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = json!([{"weight": 50,
                "preference": {"propertySorter": {"name": "size", "sortOrder": "Ascending"}}}]);
        }
        let mut policy = json!({"affinity": {"clusterAffinity": affinity}});
        match kind {
            0 => policy["placementType"] = json!("PickAll"),
            1 => {
                policy["placementType"] = json!("PickN");
                policy["numberOfClusters"] = json!(number);
                if let Some((skew, hard)) = spread {
                    policy["topologySpreadConstraints"] = json!([{"topologyKey": "zone", "maxSkew": skew,
                        "whenUnsatisfiable": if hard { "DoNotSchedule" } else { "ScheduleAnyway" }}]);
                }
            }
            _ => {
                policy["placementType"] = json!("PickFixed");
                policy["clusterNames"] = json!(named.iter().map(|i| NAMES[*i]).collect::<Vec<_>>());
            }
        }
        common::policy(policy)
    }
}

fn any_policy() -> impl Strategy<Value = PlacementPolicy> {
    policy_of(0..3)
}

fn any_bindings() -> impl Strategy<Value = Vec<ExistingBinding<'static>>> {
    let state = prop_oneof![
        Just(BindingState::Scheduled),
        Just(BindingState::Bound),
        Just(BindingState::Unscheduled)
    ];
    let binding = (state, any::<bool>(), prop::bool::weighted(0.1));
    vec(option::of(binding), NAMES.len()).prop_map(|all| {
        NAMES
            .iter()
            .zip(all)
            .filter_map(|(cluster, binding)| {
                let (state, current_policy, deleting) = binding?;
                Some(ExistingBinding {
                    cluster,
                    state,
                    deleting,
                    current_policy,
                    score: None,
                })
            })
            .collect()
    })
}

fn adopt(decision: &ClusterDecision) -> ExistingBinding<'_> {
    ExistingBinding {
        cluster: &decision.cluster_name,
        state: BindingState::Bound,
        deleting: false,
        current_policy: true,
        score: decision.cluster_score,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn order_does_not_matter(
        fleet in any_fleet(),
        policy in any_policy(),
        existing in any_bindings(),
        seed in any::<u64>(),
    ) {
        let expected = run(&policy, &fleet, &existing);
        let (mut fleet, mut existing) = (fleet, existing);
        let turn = usize::try_from(seed % 7).unwrap_or(0);
        fleet.reverse();
        existing.reverse();
        let len = fleet.len();
        fleet.rotate_left(turn % len);
        prop_assert_eq!(run(&policy, &fleet, &existing), expected);
    }

    #[test]
    fn nothing_new_goes_where_it_must_not(
        fleet in any_fleet(),
        policy in any_policy(),
        existing in any_bindings(),
    ) {
        let result = run(&policy, &fleet, &existing);
        for name in names(&result.selected) {
            let target = fleet.iter().find(|c| c.name == name).expect("a cluster of the fleet");
            prop_assert!(!target.deleting);
            let held = existing.iter().any(|b| {
                b.cluster == name && !b.deleting && b.state != BindingState::Unscheduled
            });
            let ok = eligibility::check(&target.view(), NOW).is_ok();
            prop_assert!(held || ok, "{name} is new and not eligible");
            if !held && policy.placement_type != Some(PlacementType::PickFixed) {
                prop_assert!(target.taints.is_empty());
            }
        }
        prop_assert!(result.unselected.iter().all(|d| !d.selected && !d.reason.is_empty()));
        prop_assert!(result.wake_at.is_none_or(|at| at > NOW));
    }

    #[test]
    fn what_this_policy_selected_stays(
        fleet in any_fleet(),
        policy in policy_of(0..1),
        existing in any_bindings(),
    ) {
        let result = run(&policy, &fleet, &existing);
        for b in existing.iter().filter(|b| b.current_policy && !b.deleting) {
            let alive = fleet.iter().any(|c| c.name == b.cluster && !c.deleting);
            if alive && b.state != BindingState::Unscheduled {
                prop_assert!(names(&result.selected).contains(&b.cluster));
            }
        }
    }

    #[test]
    fn a_second_pass_decides_the_same(
        fleet in any_fleet(),
        policy in any_policy(),
        existing in any_bindings(),
    ) {
        let first = run(&policy, &fleet, &existing);
        let adopted: Vec<_> = first.selected.iter().map(adopt).collect();
        let second = run(&policy, &fleet, &adopted);
        prop_assert_eq!(second, first);
    }

    #[test]
    fn pick_n_finds_as_many_as_there_are(
        fleet in any_fleet(),
        policy in policy_of(1..2),
        existing in any_bindings(),
    ) {
        let result = run(&policy, &fleet, &existing);
        let wanted = usize::try_from(policy.number_of_clusters.unwrap_or(0)).unwrap_or(0);
        prop_assert!(result.selected.len() <= wanted);
        prop_assert_eq!(result.fulfilled, result.selected.len() == wanted);
        let hard = policy.topology_spread_constraints.iter().flatten().any(|c| {
            c.when_unsatisfiable
                != Some(windlass_api::placement::UnsatisfiableConstraintAction::ScheduleAnyway)
        });
        if !hard {
            // With nothing selected yet, PickAll finds every feasible cluster.
            let everything = PlacementPolicy {
                placement_type: Some(PlacementType::PickAll),
                number_of_clusters: None,
                topology_spread_constraints: None,
                ..policy.clone()
            };
            let feasible = run(&everything, &fleet, &existing).selected.len();
            prop_assert_eq!(result.selected.len(), wanted.min(feasible));
        }
    }

    #[test]
    fn scaling_keeps_what_runs(
        fleet in any_fleet(),
        policy in policy_of(1..2),
        existing in any_bindings(),
        number in 0..12_i32,
    ) {
        let before = run(&policy, &fleet, &existing);
        let adopted: Vec<_> = before.selected.iter().map(adopt).collect();
        let scaled = PlacementPolicy { number_of_clusters: Some(number), ..policy };
        let after = run(&scaled, &fleet, &adopted);
        let (old, new) = (names(&before.selected), names(&after.selected));
        let wanted = usize::try_from(number).unwrap_or(0);
        prop_assert!(new.len() <= wanted);
        if wanted >= old.len() {
            prop_assert!(old.iter().all(|name| new.contains(name)), "scaling up moved {old:?} to {new:?}");
        } else {
            prop_assert_eq!(new.len(), wanted);
            prop_assert!(new.iter().all(|name| old.contains(name)), "scaling down moved {old:?} to {new:?}");
        }
    }

    #[test]
    fn every_cluster_has_one_decision(
        fleet in any_fleet(),
        policy in policy_of(0..2),
        existing in any_bindings(),
    ) {
        let result = run(&policy, &fleet, &existing);
        let mut decided = names(&result.selected);
        decided.extend(names(&result.unselected));
        decided.sort_unstable();
        let all: Vec<_> = fleet.iter().map(|c| c.name.as_str()).collect();
        prop_assert_eq!(decided, all);
    }

    #[test]
    fn twin_bindings_in_any_order(
        states in vec((any::<bool>(), any::<bool>(), option::of((0..3_i32, 0..3_i32))), 1..5),
        number in 0..3_i32,
    ) {
        let twins: Vec<_> = states
            .iter()
            .map(|(held, current_policy, score)| ExistingBinding {
                cluster: "a",
                state: if *held { BindingState::Bound } else { BindingState::Scheduled },
                deleting: false,
                current_policy: *current_policy,
                score: score.map(|(affinity, spread)| windlass_api::snapshot::ClusterScore {
                    affinity_score: Some(affinity),
                    topology_spread_score: Some(spread),
                }),
            })
            .collect();
        let policy = common::policy(json!({"placementType": "PickN", "numberOfClusters": number}));
        let fleet = [cluster("a"), cluster("b")];
        let reversed: Vec<_> = twins.iter().rev().cloned().collect();
        prop_assert_eq!(run(&policy, &fleet, &twins), run(&policy, &fleet, &reversed));
    }
}

proptest! {
    /// The oracle tries every value that matters: those of the tests, and some between and beyond.
    #[test]
    fn tests_are_said_to_contradict_each_other_if_and_only_if_no_value_passes(
        tests in vec((prop::sample::select(vec!["Gt", "Ge", "Eq", "Ne", "Lt", "Le"]), 0..4_i32), 0..6),
    ) {
        let expressions: Vec<_> = tests
            .iter()
            .map(|(operator, value)| json!({"name": "n", "operator": operator, "values": [value.to_string()]}))
            .collect();
        let term = json!({"propertySelector": {"matchExpressions": expressions}});
        let policy = common::policy(json!({"affinity": {"clusterAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms": [term]}}}}));
        let fleet: Vec<Cluster> = (-2..10)
            .map(|half| {
                cluster(&format!("c{half}")).property("n", &format!("{}m", half * 500))
            })
            .collect();
        let result = run(&policy, &fleet, &[]);
        prop_assert_eq!(result.trouble.is_empty(), !result.selected.is_empty(), "{:?}", result.trouble);
    }
}
