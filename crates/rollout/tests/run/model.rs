//! Runs in worlds where anything may happen, and where the hub dies between any two writes.
//!
//! `WINDLASS_RUN_WORLDS` sets how many worlds are tried; with `--nocapture` it is told what was seen.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use windlass_api::conditions::RunCondition::{Progressing, RolledBack, Succeeded, Superseded};
use windlass_api::run::RunState;
use windlass_rollout::run::is_over;

use super::fleet::{Fleet, NEW, OLD};
use super::laws::{is, is_closed};
use super::world::{Quality, World};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A stage: clusters, concurrency, tasks before and after, threshold.
type StageSeed = (usize, u8, bool, u8, u8);

#[derive(Clone, Debug)]
struct Seed {
    stages: Vec<StageSeed>,
    threshold: u8,
    /// Clusters that are only slow don't count as failed.
    patient: bool,
    strict: bool,
    removed: usize,
    /// What versions do on the clusters.
    qualities: Vec<u8>,
    events: Vec<(u8, u16, u8)>,
}

fn seeds(bad: u8, kinds: u8, patient: bool) -> impl Strategy<Value = Seed> {
    let stage = (0..5_usize, 0..5_u8, any::<bool>(), 0..4_u8, 0..8_u8);
    let event = (0..kinds, any::<u16>(), 0..16_u8);
    let many = (vec(stage, 1..5), 0..8_u8, 0..8_u8, 0..3_usize);
    (many, vec(0..bad, 32), vec(event, 0..90)).prop_map(
        move |((stages, threshold, strict, removed), qualities, events)| Seed {
            stages,
            patient,
            threshold,
            strict: strict == 0,
            removed,
            qualities,
            events,
        },
    )
}

fn threshold(patient: bool, seed: u8) -> Value {
    match seed {
        0..5 if patient => {
            json!({"maxFailures": 0, "onExceeded": "Rollback", "count": ["ApplyFailed"]})
        }
        0 => json!({"maxFailures": 0, "onExceeded": "Rollback"}),
        1 => json!({"maxFailures": 1, "onExceeded": "Rollback", "unavailableAfter": "30s"}),
        2 => json!({"maxFailures": "40%", "onExceeded": "Rollback", "count": ["ApplyFailed"]}),
        3 => json!({"maxFailures": 0, "count": ["Timeout", "Unavailable"]}),
        4 => json!({"maxFailures": 1}),
        _ => Value::Null,
    }
}

fn stage(name: &str, patient: bool, (_, concurrency, before, after, seed): StageSeed) -> Value {
    let mut stage = json!({"name": name, "labelSelector": {"matchLabels": {"stage": name}}});
    let limits = [json!(1), json!(2), json!("50%"), json!("100%")];
    if let Some(limit) = limits.get(usize::from(concurrency)) {
        stage["maxConcurrency"] = limit.clone();
    }
    let approval = json!({"type": "Approval"});
    if before {
        stage["beforeStageTasks"] = json!([approval]);
    }
    let wait = json!({"type": "TimedWait", "waitTime": "1m"});
    match after {
        0 => stage["afterStageTasks"] = json!([wait]),
        1 => stage["afterStageTasks"] = json!([wait, approval]),
        _ => {}
    }
    let threshold = threshold(patient, seed);
    if !threshold.is_null() {
        stage["failureThreshold"] = threshold;
    }
    stage
}

fn world(seed: &Seed) -> World {
    let mut fleet = Fleet::empty();
    let mut quality = BTreeMap::new();
    let mut qualities = seed.qualities.iter().cycle();
    let patient = seed.patient;
    let stages = seed.stages.iter().zip(NAMES);
    let stages: Vec<Value> = stages
        .map(|(seed, name)| {
            for number in 1..=seed.0 {
                let cluster = format!("{name}{number}");
                fleet.join(&cluster, name);
                let (new, old, start) = match qualities.next().unwrap() {
                    4 => (Quality::Fails, Quality::Works, OLD),
                    5 => (Quality::Hangs, Quality::Works, OLD),
                    6 => (Quality::TimesOut, Quality::Works, ""),
                    7 => (Quality::Works, Quality::Fails, OLD),
                    8 => (Quality::Fails, Quality::Fails, OLD),
                    3 => (Quality::Works, Quality::Works, NEW),
                    2 => (Quality::Works, Quality::Works, ""),
                    _ => (Quality::Works, Quality::Works, OLD),
                };
                quality.insert((cluster.clone(), NEW.to_owned()), new);
                quality.insert((cluster.clone(), OLD.to_owned()), old);
                fleet.bindings.pop();
                fleet.bind(&cluster, start);
            }
            stage(name, patient, *seed)
        })
        .collect();
    fleet.strategy(json!({"stages": stages}));
    for number in 0..seed.removed.max(usize::from(fleet.selected.is_empty())) {
        let cluster = format!("gone{number}");
        fleet.join(&cluster, "nowhere");
        fleet.unselect(&cluster);
    }
    let threshold = threshold(patient, seed.threshold);
    if !threshold.is_null() {
        fleet.spec(&json!({"failureThreshold": threshold}));
    }
    if seed.strict {
        fleet.spec(&json!({"membershipChanges": "Fail"}));
    }
    World::new(fleet.begun(), quality)
}

/// What was seen in all worlds.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    worlds: usize,
    looks: usize,
    writes: usize,
    crashes: usize,
    succeeded: usize,
    failed: usize,
    rolled_back: usize,
}

/// Tries worlds, and tells what was seen.
fn explore(
    name: &str,
    worlds: u32,
    seeds: &impl Strategy<Value = Seed>,
    end: fn(&Seed, &mut World),
) {
    let worlds = std::env::var("WINDLASS_RUN_WORLDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(worlds);
    let config = ProptestConfig {
        cases: worlds,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let seen = RefCell::new(Seen::default());
    let result = TestRunner::new(config).run(seeds, |seed| {
        let mut world = world(&seed);
        for (kind, index, crash) in &seed.events {
            world.happen(*kind, usize::from(*index));
            // Some looks are whole; of the others any number of writes is done.
            world.look(usize::from(*crash).checked_sub(10).unwrap_or(usize::MAX));
        }
        end(&seed, &mut world);
        let (run, seen) = (&world.fleet, &mut *seen.borrow_mut());
        seen.worlds += 1;
        seen.looks += world.looks;
        seen.writes += world.written;
        seen.crashes += world.crashes;
        let told = |type_, word: &str| usize::from(run.says(type_).starts_with(word));
        seen.succeeded += told(Succeeded, "True");
        seen.failed += told(Succeeded, "False");
        seen.rolled_back += usize::from(run.says(RolledBack) != "none");
        Ok(())
    });
    if let Err(error) = result {
        panic!("{name}: {error}");
    }
    println!("{name}: {:?}", seen.into_inner());
}

/// From now on all goes well, and nobody says a word.
fn settle(world: &mut World) {
    world.quality.clear();
    for _ in 0..400 {
        let before = (world.fleet.run.status.clone(), world.fleet.bindings.clone());
        world.fleet.bindings.retain(|binding| !binding.deleting);
        for at in 0..world.fleet.bindings.len() {
            world.regain(at);
            world.report(at);
        }
        world.look(usize::MAX);
        if before == (world.fleet.run.status.clone(), world.fleet.bindings.clone()) {
            return;
        }
    }
    panic!("no end: {:#?}", world.fleet.run.status);
}

/// Somebody approves of everything, and time passes.
fn finish(world: &mut World) {
    world.fleet.state(RunState::Run);
    for _ in 0..20 {
        settle(world);
        for index in 0..world.fleet.requests.len() {
            world.happen(18, index);
        }
        world.fleet.later(61);
        settle(world);
        if is_over(&world.fleet.run) {
            return;
        }
    }
    panic!("no end: {:#?}", world.fleet.run.status);
}

/// Whoever was chosen all the time and has no binding gets one.
fn complete(world: &mut World) {
    for cluster in world.fleet.selected.clone() {
        let mut all = world.fleet.bindings.iter();
        if !all.any(|b| b.spec.target_cluster == cluster && !b.deleting) {
            world.fleet.bind(&cluster, "");
        }
    }
}

/// Stop stands in the end, resume goes on, and the run ends: well, unless something was done to it.
#[test]
fn anything_may_happen() {
    explore("anything", 500, &seeds(9, 32, false), |seed, world| {
        complete(world);
        world.fleet.state(RunState::Stop);
        settle(world);
        let fleet = &world.fleet;
        assert!(
            is_over(&fleet.run) || fleet.says(Progressing) == "False UpdateRunStopped",
            "{:#?}",
            fleet.status()
        );
        finish(world);
        let why = world.fleet.message(Succeeded);
        let is_excused = world.fleet.says(RolledBack) != "none"
            || why.contains("failed, ")
            || seed.strict && world.changed
            || !world.edited.is_empty() && why.contains("changed by somebody else");
        let end = world.fleet.says(Succeeded);
        assert!(end == "True UpdateRunSucceeded" || is_excused, "{why}");
    });
}

/// Where every version works and nobody interferes, clusters may come and go and be out of reach, the hub may
/// die, people may stop and resume: the run succeeds, and every cluster that was there all the time has it.
#[test]
fn what_works_succeeds() {
    explore("all works", 400, &seeds(4, 28, true), |seed, world| {
        complete(world);
        finish(world);
        let fleet = &world.fleet;
        if seed.strict && world.changed {
            return;
        }
        let why = fleet.message(Succeeded);
        assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded", "{why}");
        let asking = fleet.asking(NEW);
        for stage in fleet.status().stages_status.iter().flatten() {
            for cluster in &stage.clusters {
                assert!(is_closed(cluster));
                let done = is(cluster.conditions.as_ref(), Succeeded);
                let name = cluster.cluster_name.as_str();
                let is_there = fleet.bindings.iter().any(|b| b.spec.target_cluster == name);
                assert!(!done || !is_there || asking.contains(&name), "{name}");
            }
        }
    });
}

/// Another run takes over, or the placement can't be rolled out any more: at whatever moment, that is the end.
#[test]
fn an_end_from_outside() {
    explore("ended", 150, &seeds(9, 32, false), |seed, world| {
        let was_over = is_over(&world.fleet.run);
        if seed.removed == 0 {
            world.fleet.superseded_by = Some("r2".into());
        } else {
            world.fleet.unfit = Some("placement p is gone".into());
        }
        // The hub may die before that is written.
        world.look(0);
        let plan = world.fleet.plan();
        assert!(plan.moves.is_empty() && plan.remove.is_empty() && plan.ask.is_empty());
        world.look(usize::MAX);
        assert!(is_over(&world.fleet.run));
        if !was_over {
            assert_eq!(world.fleet.says(Succeeded), "False UpdateRunFailed");
            let superseded = world.fleet.says(Superseded) == "True UpdateRunSuperseded";
            assert_eq!(superseded, seed.removed == 0);
            assert!(!world.fleet.says(RolledBack).starts_with("Unknown"));
        }
        for at in 0..world.fleet.bindings.len() {
            world.happen(0, at);
            world.look(usize::MAX);
        }
    });
}
