//! Invariant I1, the surge limit, progress and calm, in worlds where anything may happen.
//!
//! `WINDLASS_MODEL_WORLDS` says in how many; the figures are printed (`cargo test -p windlass-rollout --test
//! model -- --nocapture`).
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod world;

use std::cell::Cell;

use jiff::SignedDuration;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use windlass_rollout::RollingPlan;

use self::world::{KINDS, Quality, World};

/// Worlds where nothing is asked for.
const WORLDS: u32 = 400;

fn config() -> ProptestConfig {
    let asked = std::env::var("WINDLASS_MODEL_WORLDS").ok();
    ProptestConfig {
        cases: asked.map_or(WORLDS, |number| number.parse().unwrap()),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// A limit, at times: what takes too long must not be needed to come to an end.
fn timeouts() -> impl Strategy<Value = Option<SignedDuration>> {
    prop_oneof![
        Just(None),
        Just(Some(SignedDuration::from_secs(30))),
        Just(Some(SignedDuration::from_secs(100))),
    ]
}

#[test]
fn never_more_than_the_budget_and_always_to_the_end() {
    let (worlds, steps, events) = (Cell::new(0_usize), Cell::new(0_usize), Cell::new(0_usize));
    let sizes = (1..9_usize, 0..4_usize, 1..4_usize, 0..4_usize);
    let happens = vec((0..KINDS, any::<u16>()), 0..150);
    let result = TestRunner::new(config()).run(
        &(sizes, timeouts(), happens),
        |((wanted, spare, max_unavailable, max_surge), timeout, happens)| {
            let size = wanted + spare;
            let mut world =
                World::new(size, wanted, max_unavailable, max_surge).with_timeout(timeout);
            world.settle();
            events.set(events.get() + happens.len());
            for (kind, index) in happens {
                world.happen(kind, usize::from(index));
                world.settle();
            }
            world.heal();
            prop_assert!(world.is_done(), "{world:#?}");
            prop_assert_eq!(world.plan(), RollingPlan::default());
            worlds.set(worlds.get() + 1);
            steps.set(steps.get() + world.steps);
            Ok(())
        },
    );
    if let Err(TestError::Fail(why, value)) = &result {
        panic!("{why}\nof {value:?}");
    }
    result.unwrap();
    println!(
        "{} worlds, {} events, {} plans",
        worlds.get(),
        events.get(),
        steps.get()
    );
}

/// Plans, and tells how many of the members with an even number move.
fn of_the_half(world: &mut World) -> usize {
    let plan = world.settle();
    let half = world.bindings.iter().filter(|b| b.member % 2 == 0);
    half.filter(|b| plan.update.contains(&b.name)).count()
}

proptest! {
    #![proptest_config(config())]

    /// Half the fleet is cut off for longer than it may take, with some of it on its way, and comes back.
    #[test]
    fn reconnecting_half_a_fleet_moves_no_more_than_the_budget(
        wanted in 2..24_usize,
        max_unavailable in 0..12_usize,
        ready in vec(any::<bool>(), 24),
        reports in vec(any::<u16>(), 0..20),
        away in 1..1000_i64,
        noticed_late in any::<bool>(),
        later in 0..29_i64,
    ) {
        let timeout = Some(SignedDuration::from_secs(30));
        let mut world = World::new(wanted, wanted, max_unavailable, 0).with_timeout(timeout);
        world.settle();
        for index in (0..wanted).filter(|index| ready[*index]) {
            world.report(index);
        }
        world.settle();
        for member in (0..wanted).step_by(2) {
            world.connect(member, false);
        }
        if !noticed_late {
            world.notice();
        }
        world.pass(away);
        world.settle();
        // All of them want to move.
        world.versions.push(Quality::Good);
        let mut moved = 0;
        moved += of_the_half(&mut world);
        world.notice();
        for report in reports {
            world.report(usize::from(report) % wanted);
            moved += of_the_half(&mut world);
        }
        for member in (0..wanted).step_by(2) {
            world.connect(member, true);
        }
        world.notice();
        moved += of_the_half(&mut world);
        // Nobody of them is late before it had its time.
        world.pass(later);
        moved += of_the_half(&mut world);
        prop_assert!(moved <= max_unavailable.max(1), "{moved} in {world:#?}");
    }

    #[test]
    fn without_unavailability_clusters_can_still_be_replaced(
        wanted in 1..6_usize,
        max_surge in 1..4_usize,
        swaps in vec((any::<u16>(), any::<u16>()), 0..12),
    ) {
        let mut world = World::new(wanted * 2 + 2, wanted, 0, max_surge);
        world.settle();
        for i in 0..world.bindings.len() {
            world.report(i);
        }
        for (from, to) in swaps {
            let (from, to) = (usize::from(from) % world.bindings.len(), usize::from(to) % world.members.len());
            world.swap(from, to);
            world.settle();
        }
        for _ in 0..100 {
            world.settle();
            for i in (0..world.bindings.len()).rev() {
                world.report(i);
                world.finish(i);
            }
        }
        prop_assert!(world.is_done(), "{world:#?}");
    }

    #[test]
    fn order_does_not_matter(
        events in vec((0..KINDS, any::<u16>()), 0..60),
        timeout in timeouts(),
        turn in any::<usize>(),
    ) {
        let mut world = World::new(8, 6, 2, 1).with_timeout(timeout);
        for (kind, index) in events {
            world.happen(kind, usize::from(index));
            let mut turned = world.clone();
            let len = turned.bindings.len();
            turned.bindings.rotate_left(turn % len);
            turned.bindings.reverse();
            prop_assert_eq!(turned.plan(), world.plan());
            world.look_at_all();
            world.step();
        }
    }
}
