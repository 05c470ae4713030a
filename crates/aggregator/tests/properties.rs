//! What holds in every world.

mod common;

use std::collections::BTreeMap;

use common::{World, at, failed};
use proptest::prelude::*;
use windlass_aggregator::{Aggregate, Budget, Mode};
use windlass_api::Condition;
use windlass_api::placement::{PlacementStatus, RolloutStrategyType};

/// Words of one cluster's binding after its name; none for no binding.
fn cluster() -> impl Strategy<Value = Option<String>> {
    let status = prop_oneof![6 => Just("T"), 1 => Just("F"), 1 => Just("U"), 1 => Just("T@0")];
    let word = prop_oneof![
        12 => Just(""),
        1 => Just("deleting"),
        1 => Just("oldpolicy"),
        1 => Just("held"),
        1 => Just("digest=same"),
        1 => Just("digest=other"),
        1 => Just("failed drifted diffed cro"),
    ];
    let snap = prop_oneof![6 => Just("1"), 3 => Just("0"), 1 => Just(""), 1 => Just("gone")];
    let text = (snap, proptest::collection::vec(status, 0..=6), word).prop_map(
        |(snap, statuses, word)| {
            let mut text = format!("snap={snap} {word}");
            for (name, status) in ["RS", "OV", "WS", "AP", "AV", "DR"].iter().zip(statuses) {
                text += &format!(" {name}={status}");
            }
            text
        },
    );
    prop_oneof![1 => Just(None), 9 => text.prop_map(Some)]
}

fn world() -> impl Strategy<Value = World> {
    let clusters = proptest::collection::vec(cluster(), 0..6);
    (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        clusters,
        0..8_i32,
        0..4_usize,
    )
        .prop_map(|(external, diff, omit, clusters, wanted, refused)| {
            let mut world = World::rolling("1").pick_n(Some(wanted));
            if external {
                world.strategy = RolloutStrategyType::External;
            }
            if diff {
                world.mode = Mode::ReportDiff;
            }
            if omit {
                world = world.omit();
            }
            for (number, text) in clusters.into_iter().enumerate() {
                world = match text {
                    Some(text) => world.bound(&format!("c{number} {text}")),
                    None => world.chosen(&format!("c{number}")),
                };
            }
            for number in 0..refused {
                world = world.refused(&format!("z{number}"));
            }
            world
        })
}

/// How many conditions are True before the first that is not.
fn depth(status: &PlacementStatus) -> usize {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    conditions
        .iter()
        .take_while(|condition| condition.status == "True")
        .count()
}

/// All conditions by where they stand. Slots are told apart by their number.
fn all_conditions(status: &PlacementStatus) -> BTreeMap<(String, String), &Condition> {
    let mut map = BTreeMap::new();
    for condition in status.conditions.iter().flatten() {
        map.insert((String::new(), condition.type_.clone()), condition);
    }
    let mut slot = 0;
    for entry in status.placement_statuses.iter().flatten() {
        let name = entry.cluster_name.clone().unwrap_or_else(|| {
            slot += 1;
            format!("slot {slot}")
        });
        for condition in entry.conditions.iter().flatten() {
            map.insert((name.clone(), condition.type_.clone()), condition);
        }
    }
    map
}

fn size(aggregate: &Aggregate) -> usize {
    serde_json::to_string(&aggregate.status).map_or(0, |text| text.len())
}

proptest! {
    #[test]
    fn the_order_of_inputs_does_not_matter(world in world(), turn in 0..9_usize) {
        let expected = world.run(1_000);
        let mut turned = world;
        turned.decisions.reverse();
        turned.bindings.reverse();
        let count = turned.decisions.len();
        if count > 0 {
            turned.decisions.rotate_left(turn % count);
        }
        prop_assert_eq!(turned.run(1_000), expected);
    }

    #[test]
    fn a_second_pass_changes_nothing(world in world(), before in world()) {
        let old = before.run(1_000);
        let first = world.clone().previous(&old).run(2_000);
        let second = world.previous(&first).run(3_000);
        prop_assert_eq!(first, second);
    }

    #[test]
    fn times_move_with_the_status_and_only_then(world in world(), before in world()) {
        let old = before.run(1_000);
        let new = world.previous(&old).run(2_000);
        let old = all_conditions(&old.status);
        for (key, condition) in all_conditions(&new.status) {
            let time = condition.last_transition_time.0;
            prop_assert!(time <= at(2_000));
            if let Some(before) = old.get(&key) {
                if before.status == condition.status {
                    prop_assert_eq!(time, before.last_transition_time.0, "{:?}", key);
                } else {
                    prop_assert_eq!(time, at(2_000), "{:?}", key);
                }
            }
        }
    }

    #[test]
    fn the_last_condition_is_the_first_that_is_not_true(world in world()) {
        let status = world.run(1_000).status;
        let unset = status.observed_resource_index.is_none();
        let conditions = status.conditions.unwrap_or_default();
        if !(world.strategy == RolloutStrategyType::External && unset) && conditions.len() > 1 {
            let after = &conditions[1..conditions.len() - 1];
            prop_assert!(after.iter().all(|condition| condition.status == "True"));
        }
        for entry in status.placement_statuses.iter().flatten() {
            let list = entry.conditions.as_deref().unwrap_or_default();
            prop_assert!(list[..list.len() - 1].iter().all(|condition| condition.status == "True"));
        }
    }

    #[test]
    fn external_has_an_index_exactly_when_all_clusters_have_that_one(mut world in world()) {
        world.strategy = RolloutStrategyType::External;
        let status = world.run(1_000).status;
        let entries = status.placement_statuses.unwrap_or_default();
        let seen: std::collections::BTreeSet<_> = entries
            .iter()
            .filter(|entry| entry.cluster_name.is_some())
            .map(|entry| entry.observed_resource_index.clone())
            .collect();
        let common = match seen.into_iter().collect::<Vec<_>>().as_slice() {
            [Some(index)] => Some(index.clone()),
            _ => None,
        };
        prop_assert_eq!(status.observed_resource_index, common);
    }

    #[test]
    fn a_cluster_that_does_better_never_makes_the_placement_look_worse(
        world in world(),
        which in 0..6_usize,
    ) {
        let before = world.run(1_000);
        let mut better = world.clone();
        let Some(bound) = better.bindings.get_mut(which) else { return Ok(()) };
        let name = bound.binding.spec.target_cluster.clone();
        // Under External no index is better than another: only the conditions get better.
        let snap = match world.strategy {
            RolloutStrategyType::RollingUpdate => "1",
            RolloutStrategyType::External => match bound.index.as_deref() {
                Some(index) if bound.view().is_live() => index,
                _ => return Ok(()),
            },
        };
        *bound = common::parse(&format!("{name} snap={snap} RS=T OV=T WS=T AP=T AV=T DR=T"));
        let after = better.run(1_000);
        prop_assert!(depth(&after.status) >= depth(&before.status));
        prop_assert_eq!(
            after.clusters.failing + after.clusters.changing + after.clusters.settled,
            before.clusters.failing + before.clusters.changing + before.clusters.settled
        );
        prop_assert!(after.clusters.settled >= before.clusters.settled);
    }

    #[test]
    fn all_clusters_done_is_the_placement_done(mut world in world()) {
        for bound in &mut world.bindings {
            let name = bound.binding.spec.target_cluster.clone();
            *bound = common::parse(&format!("{name} snap=1 RS=T OV=T WS=T AP=T AV=T DR=T"));
        }
        let chosen = world.decisions.iter().filter(|decision| decision.selected).count();
        let result = world.run(1_000);
        prop_assert_eq!(result.completed, chosen > 0 && chosen == world.bindings.len());
    }

    #[test]
    fn the_budget_is_kept_and_what_is_left_out_is_counted(
        world in world(),
        total in 0..6_000_usize,
        rest in 0..1_000_usize,
    ) {
        let everything = world.run(1_000);
        let mut small = world.clone();
        small.budget = Budget { total, rest };
        let result = small.run(1_000);
        let mut bare = result.clone();
        bare.status.placement_statuses = None;
        bare.status.selected_resources = None;
        prop_assert!(rest + size(&result) <= total.max(rest + size(&bare)));
        let listed = result.status.placement_statuses.iter().flatten();
        let listed = listed.filter(|entry| entry.cluster_name.is_some()).count();
        let chosen = world.decisions.iter().filter(|decision| decision.selected).count();
        prop_assert_eq!(listed + result.omitted_clusters, chosen);
        let scheduled = result.status.conditions.iter().flatten().next().map(|c| c.message.clone());
        let told = scheduled.unwrap_or_default()
            .contains(&format!("{} cluster(s) not listed here for size", result.omitted_clusters));
        prop_assert_eq!(told, result.omitted_clusters > 0);
        prop_assert_eq!(result.clusters, everything.clusters);
        // A second pass does not move anything, though it finds fewer entries to go by.
        let second = small.previous(&result).run(2_000);
        prop_assert_eq!(all_conditions(&second.status), all_conditions(&result.status));
    }
}

/// A thousand clusters with long lists: the three that fail are listed, and the object fits.
#[test]
fn a_thousand_clusters_fit() {
    let mut world = World::rolling("1");
    for number in 0..1_000 {
        let state = if number % 400 == 399 {
            "AP=F"
        } else {
            "AP=T AV=T"
        };
        world = world.bound(&format!(
            "c{number:04} snap=1 RS=T OV=T WS=T {state} drifted"
        ));
    }
    for bound in &mut world.bindings {
        let status = bound.binding.status.get_or_insert_default();
        status.failed_placements = Some(
            (0..150)
                .rev()
                .map(|n| failed(&format!("f{n:03}")))
                .collect(),
        );
        for condition in status.conditions.iter_mut().flatten() {
            condition.message = "m".repeat(400);
        }
    }
    let result = world.run(1_000);
    assert!(result.omitted_clusters > 0);
    assert!(size(&result) <= 1 << 20);
    assert!(size(&result) > 900_000, "room is used");
    let entries = result.status.placement_statuses.unwrap_or_default();
    let failing: Vec<_> = entries
        .iter()
        .filter(|entry| entry.failed_placements.is_some())
        .collect();
    let names: Vec<_> = failing
        .iter()
        .filter_map(|entry| entry.cluster_name.as_deref())
        .collect();
    assert_eq!(names, ["c0399", "c0799"]);
    let list = failing[0].failed_placements.as_deref().unwrap_or_default();
    assert_eq!(list.len(), 100);
    assert_eq!(list[0].identifier.name, "f000");
    assert!(
        entries
            .windows(2)
            .all(|pair| pair[0].cluster_name < pair[1].cluster_name)
    );
}

/// Very many selected resources leave room for clusters.
#[test]
fn resources_get_half_the_room() {
    let mut world = World::rolling("1").bound("a snap=1 RS=T");
    world.budget = Budget {
        total: 1_200,
        rest: 300,
    };
    let result = world.run(1_000);
    assert_eq!(result.omitted_resources, 1);
    let message = &result.status.conditions.unwrap_or_default()[0].message;
    assert!(
        message.ends_with("; 1 resource(s) not listed here for size"),
        "{message}"
    );
}
