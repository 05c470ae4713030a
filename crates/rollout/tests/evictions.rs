//! Evictions: the table of the reference, and invariant I2 in worlds where anything may happen.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_api::Time;
use windlass_api::binding::BindingState::{self, Bound, Scheduled, Unscheduled};
use windlass_api::eviction::{ClusterResourcePlacementEviction as Eviction, DisruptionBudgetSpec};
use windlass_api::placement::PlacementPolicy;
use windlass_rollout::Readiness::{
    self, DiffReported, Failed, InProgress, Ready, ReadyAt, Refused, Unreachable, Withheld,
};
use windlass_rollout::{
    EvictionBinding, EvictionTarget, EvictionView, Outcome, Verdict, is_over, plan_evictions,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

const NOW: i64 = 1_000;

fn binding(cluster: &str, readiness: Readiness) -> EvictionBinding<'_> {
    EvictionBinding {
        uid: cluster,
        cluster,
        state: Bound,
        previously_bound: false,
        deleting: false,
        readiness,
        diff_reported: false,
    }
}

fn eviction(cluster: &str, waits: bool) -> Eviction {
    let retry = if waits { "WhenAllowed" } else { "Never" };
    serde_json::from_value(json!({
        "metadata": { "name": format!("evict-{cluster}"), "generation": 1 },
        "spec": { "placementName": "web", "clusterName": cluster, "retry": retry },
    }))
    .unwrap()
}

fn policy(of: Value) -> PlacementPolicy {
    serde_json::from_value(of).unwrap()
}

fn pick_n(number: usize) -> PlacementPolicy {
    policy(json!({ "placementType": "PickN", "numberOfClusters": number }))
}

fn pick_all() -> PlacementPolicy {
    policy(json!({ "placementType": "PickAll" }))
}

fn budget(of: Value) -> DisruptionBudgetSpec {
    serde_json::from_value(of).unwrap()
}

/// What comes of the evictions of a placement that stays.
fn plan(
    policy: &PlacementPolicy,
    bindings: &[EvictionBinding<'_>],
    budget: Option<&DisruptionBudgetSpec>,
    evictions: &[&Eviction],
) -> Vec<Verdict> {
    let view = EvictionView {
        placement: EvictionTarget::Stays(Some(policy)),
        bindings,
        budget,
        evictions,
    };
    plan_evictions(&view, at(NOW)).verdicts
}

/// What comes of an eviction from the first cluster.
fn one(
    policy: &PlacementPolicy,
    bindings: &[EvictionBinding<'_>],
    budget: Option<&DisruptionBudgetSpec>,
    waits: bool,
) -> Verdict {
    plan(policy, bindings, budget, &[&eviction("a", waits)])
        .pop()
        .unwrap()
}

#[test]
fn what_can_never_be_evicted_is_invalid() {
    let fixed = policy(json!({ "placementType": "PickFixed", "clusterNames": ["a"] }));
    let (all, there) = (pick_all(), [binding("a", Ready)]);
    let twice = [binding("a", Ready), binding("a", Ready)];
    let mut leaving = twice.clone();
    leaving[0].deleting = true;
    use EvictionTarget::{Deleting, Missing, Stays};
    for (target, bindings, words) in [
        (Missing, &there[..], "There is no ClusterResourcePlacement"),
        (Deleting, &there[..], "is being deleted"),
        (Stays(Some(&fixed)), &there[..], "clusterNames instead"),
        (Stays(Some(&all)), &twice[..], "2 bindings"),
        (Stays(None), &leaving[..], "2 bindings"),
        (Stays(Some(&all)), &[], "nothing to evict"),
        (
            Stays(Some(&all)),
            &[binding("b", Ready)],
            "nothing to evict",
        ),
    ] {
        for waits in [false, true] {
            let view = EvictionView {
                placement: target,
                bindings,
                budget: None,
                evictions: &[&eviction("a", waits)],
            };
            let verdict = plan_evictions(&view, at(NOW)).verdicts.pop().unwrap();
            assert_eq!(verdict.outcome, Outcome::Invalid, "{words}");
            assert!(verdict.message.contains(words), "{}", verdict.message);
            let conditions = verdict.conditions(Some(1));
            assert_eq!(conditions.len(), 1);
            assert_eq!(conditions[0].type_, "Valid");
            assert_eq!(conditions[0].status.as_str(), "False");
        }
    }
}

#[test]
fn who_is_available_and_who_has_failed() {
    // A budget that leaves nothing: only what does not count for it can be evicted.
    let none = budget(json!({ "maxUnavailable": 0 }));
    for (readiness, evicted) in [
        (Ready, false),
        (ReadyAt(at(NOW)), false),
        (ReadyAt(at(NOW + 1)), false),
        (Withheld, false),
        // Trap T1: on its way is not failed, and not heard of neither.
        (InProgress, false),
        (Unreachable, false),
        (Failed, true),
        (Refused, true),
        (DiffReported, true),
    ] {
        let bindings = [binding("a", readiness)];
        let outcome = one(&pick_n(1), &bindings, Some(&none), false).outcome;
        let expected = if evicted {
            Outcome::Evict("a".to_owned())
        } else {
            Outcome::NotExecuted
        };
        assert_eq!(outcome, expected, "{readiness:?}");
    }
    // One that is to be evicted is available, the other one is like this.
    let one_left = budget(json!({ "minAvailable": 1 }));
    for (readiness, available) in [
        (Ready, true),
        (ReadyAt(at(NOW)), true),
        (ReadyAt(at(NOW + 1)), false),
        (Withheld, true),
        (InProgress, false),
        (Unreachable, false),
        (Failed, false),
        (Refused, false),
        (DiffReported, false),
    ] {
        let bindings = [binding("a", Ready), binding("b", readiness)];
        let outcome = one(&pick_all(), &bindings, Some(&one_left), false).outcome;
        let is_evicted = matches!(outcome, Outcome::Evict(_));
        assert_eq!(is_evicted, available, "{readiness:?}");
    }
}

#[test]
fn the_state_of_the_binding() {
    for (state, previously_bound, evicted) in [
        (Bound, false, true),
        (Unscheduled, true, true),
        (Unscheduled, false, false),
        (Scheduled, false, false),
        (BindingState::Other("Odd".to_owned()), false, false),
    ] {
        let mut there = binding("a", InProgress);
        there.state = state.clone();
        there.previously_bound = previously_bound;
        let there = [there];
        for waits in [false, true] {
            let verdict = one(&pick_all(), &there, None, waits);
            let expected = match (evicted, waits) {
                (true, _) => Outcome::Evict("a".to_owned()),
                (false, true) => Outcome::Waiting,
                (false, false) => Outcome::NotExecuted,
            };
            assert_eq!(verdict.outcome, expected, "{state:?}");
        }
    }
    let mut leaving = binding("a", Ready);
    leaving.deleting = true;
    let none = budget(json!({ "maxUnavailable": 0 }));
    let verdict = one(&pick_n(1), &[leaving], Some(&none), false);
    assert_eq!(verdict.outcome, Outcome::Executed);
    let mut differs = binding("a", InProgress);
    differs.diff_reported = true;
    let verdict = one(&pick_n(1), &[differs], Some(&none), false);
    assert_eq!(verdict.outcome, Outcome::Evict("a".to_owned()));
}

#[test]
fn the_arithmetic() {
    // PickN or PickAll; ready and other bindings; budget; how many may be evicted.
    let rows = [
        (Some(4), 4, 0, json!({ "maxUnavailable": 1 }), 1),
        (Some(4), 3, 1, json!({ "maxUnavailable": 1 }), 0),
        (Some(4), 4, 0, json!({ "maxUnavailable": 0 }), 0),
        (Some(4), 4, 0, json!({ "maxUnavailable": 9 }), 9),
        (Some(5), 5, 0, json!({ "maxUnavailable": "25%" }), 2),
        (Some(5), 3, 2, json!({ "maxUnavailable": "25%" }), 0),
        (Some(4), 4, 0, json!({ "maxUnavailable": "0%" }), 0),
        // More bindings than desired: all of them count.
        (Some(2), 2, 2, json!({ "maxUnavailable": 2 }), 0),
        (Some(2), 4, 0, json!({ "maxUnavailable": 2 }), 2),
        // Fewer: the missing ones are unavailable.
        (Some(4), 3, 0, json!({ "maxUnavailable": 1 }), 0),
        (Some(4), 3, 0, json!({ "maxUnavailable": 2 }), 1),
        (Some(4), 4, 0, json!({ "minAvailable": 3 }), 1),
        (Some(4), 4, 0, json!({ "minAvailable": 4 }), 0),
        (Some(4), 3, 1, json!({ "minAvailable": 3 }), 0),
        (Some(5), 5, 0, json!({ "minAvailable": "50%" }), 2),
        (Some(4), 4, 0, json!({ "minAvailable": "100%" }), 0),
        (Some(4), 4, 0, json!({ "minAvailable": 0 }), 4),
        (Some(4), 4, 0, json!({}), 0),
        (None, 4, 0, json!({ "minAvailable": 3 }), 1),
        (None, 3, 1, json!({ "minAvailable": 3 }), 0),
        (None, 4, 0, json!({}), 0),
    ];
    for (row, (number, ready, other, allowed, expected)) in rows.into_iter().enumerate() {
        let policy = number.map_or_else(pick_all, pick_n);
        let names: Vec<String> = (0..ready + other).map(|i| format!("c{i}")).collect();
        let all: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(i, name)| binding(name, if i < ready { Ready } else { InProgress }))
            .collect();
        let allowed = budget(allowed);
        let evictions: Vec<Eviction> = names.iter().map(|name| eviction(name, true)).collect();
        let refs: Vec<&Eviction> = evictions.iter().collect();
        let first = &plan(&policy, &all, Some(&allowed), &refs[..1])[0];
        let said = format!(": {expected} may be evicted");
        assert!(
            first.message.contains(&said),
            "row {row}: {}",
            first.message
        );
        // All at once: no more than are allowed, though they are decided on in one plan.
        let verdicts = plan(&policy, &all, Some(&allowed), &refs);
        let gone = verdicts
            .iter()
            .filter(|v| matches!(v.outcome, Outcome::Evict(_)));
        assert_eq!(gone.count(), expected.min(ready), "row {row}");
    }
}

#[test]
fn a_budget_that_pick_all_has_no_use_for() {
    let there = [binding("a", Ready), binding("b", Ready)];
    for unfit in [
        json!({ "maxUnavailable": 1 }),
        json!({ "maxUnavailable": "50%" }),
        json!({ "minAvailable": "50%" }),
    ] {
        let budget = budget(unfit);
        let verdict = one(&pick_all(), &there, Some(&budget), false);
        assert_eq!(verdict.outcome, Outcome::NotExecuted);
        assert!(verdict.message.contains("can't be used with PickAll"));
        // A placement without a policy has PickAll.
        let view = EvictionView {
            placement: EvictionTarget::Stays(None),
            bindings: &there,
            budget: Some(&budget),
            evictions: &[&eviction("a", true)],
        };
        let verdict = plan_evictions(&view, at(NOW)).verdicts.pop().unwrap();
        assert_eq!(verdict.outcome, Outcome::Waiting);
        let verdict = one(&pick_n(2), &there, Some(&budget), false);
        assert!(matches!(verdict.outcome, Outcome::Evict(_)));
    }
}

#[test]
fn the_oldest_goes_first() {
    let made = |cluster: &str, second: i64| {
        let mut eviction = eviction(cluster, true);
        eviction.metadata.creation_timestamp = Some(Time(at(second)));
        eviction
    };
    let there = [
        binding("a", Ready),
        binding("b", Ready),
        binding("c", Ready),
    ];
    let budget = budget(json!({ "minAvailable": 2 }));
    let (a, b, c) = (made("a", 9), made("b", 5), made("c", 9));
    let verdicts = plan(&pick_all(), &there, Some(&budget), &[&c, &a, &b]);
    let told: Vec<_> = verdicts
        .iter()
        .map(|v| (v.eviction.as_str(), &v.outcome))
        .collect();
    let expected = [
        ("evict-b", &Outcome::Evict("b".to_owned())),
        ("evict-a", &Outcome::Waiting),
        ("evict-c", &Outcome::Waiting),
    ];
    assert_eq!(told, expected);
    // Two of one cluster take one binding.
    let mut again = made("b", 6);
    again.metadata.name = Some("again".to_owned());
    let verdicts = plan(&pick_all(), &there, Some(&budget), &[&b, &again]);
    assert_eq!(verdicts[1].outcome, Outcome::Executed);
}

#[test]
fn what_is_over_stays_over() {
    let said = |conditions: Value| {
        let mut over = eviction("a", true);
        let list: Vec<Value> = conditions
            .as_object()
            .unwrap()
            .iter()
            .map(|(type_, status)| {
                json!({ "type": type_, "status": status, "reason": "R", "message": "Evicted: so it was",
                        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 7 })
            })
            .collect();
        over.status = serde_json::from_value(json!({ "conditions": list })).unwrap();
        over
    };
    for (conditions, over) in [
        (json!({}), false),
        (json!({ "Valid": "True" }), false),
        (json!({ "Valid": "True", "Executed": "Unknown" }), false),
        (json!({ "Valid": "False" }), true),
        (json!({ "Valid": "True", "Executed": "False" }), true),
        (json!({ "Valid": "True", "Executed": "True" }), true),
    ] {
        let eviction = said(conditions.clone());
        assert_eq!(is_over(&eviction), over, "{conditions}");
        let there = [binding("a", Ready)];
        let told = plan(&pick_all(), &there, None, &[&eviction]);
        assert_eq!(told.is_empty(), over, "{conditions}");
    }
    // Noted before the hub died: the binding has gone since, and another one has come.
    let mut noted = said(json!({ "Valid": "True", "Executed": "Unknown" }));
    noted.status.as_mut().unwrap().evicting = Some("first".to_owned());
    let verdict = &plan(&pick_all(), &[binding("a", Ready)], None, &[&noted])[0];
    assert_eq!(verdict.outcome, Outcome::Executed);
    assert_eq!(verdict.message, "Evicted: so it was");
    // Or it was never asked to go: then that is decided anew.
    noted.status.as_mut().unwrap().evicting = Some("a".to_owned());
    let none = budget(json!({ "maxUnavailable": 0 }));
    let verdict = &plan(&pick_n(1), &[binding("a", Ready)], Some(&none), &[&noted])[0];
    assert_eq!(verdict.outcome, Outcome::Waiting);
}

#[test]
fn only_who_waits_is_looked_at_again() {
    let there = [binding("a", Ready), binding("b", ReadyAt(at(NOW + 5)))];
    let budget = budget(json!({ "minAvailable": 1 }));
    for (waits, expected) in [(false, None), (true, Some(at(NOW + 5)))] {
        let view = EvictionView {
            placement: EvictionTarget::Stays(None),
            bindings: &there,
            budget: Some(&budget),
            evictions: &[&eviction("a", waits)],
        };
        assert_eq!(plan_evictions(&view, at(NOW)).wake_at, expected);
        let later = plan_evictions(&view, at(NOW + 5)).verdicts.pop().unwrap();
        assert!(matches!(later.outcome, Outcome::Evict(_)));
    }
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    /// A cluster comes to be like this.
    Is(usize, Readiness),
    /// An eviction is made.
    Evict(usize, bool),
    /// A binding that has been asked to go is gone.
    Gone(usize),
    /// The scheduler picks the cluster again.
    Picked(usize),
    /// The hub forgets what it has not written down: its status writes since the last plan are lost.
    Dies,
}

fn steps(clusters: usize) -> impl Strategy<Value = Vec<Step>> {
    let readiness = prop_oneof![
        5 => Just(Ready),
        1 => Just(InProgress),
        1 => Just(Failed),
        1 => Just(Unreachable),
        1 => Just(Withheld),
        1 => Just(ReadyAt(at(NOW + 1))),
    ];
    let step = prop_oneof![
        3 => (0..clusters, readiness).prop_map(|(c, r)| Step::Is(c, r)),
        4 => (0..clusters, any::<bool>()).prop_map(|(c, w)| Step::Evict(c, w)),
        2 => (0..clusters).prop_map(Step::Gone),
        2 => (0..clusters).prop_map(Step::Picked),
        1 => Just(Step::Dies),
    ];
    vec(step, 1..60)
}

#[derive(Clone, Debug)]
struct There {
    uid: String,
    cluster: String,
    readiness: Readiness,
    deleting: bool,
}

/// A fleet with one placement.
struct World {
    policy: PlacementPolicy,
    number: Option<usize>,
    budget: DisruptionBudgetSpec,
    there: Vec<There>,
    evictions: Vec<Eviction>,
    /// By name of the eviction: what it took.
    took: Vec<(String, String)>,
    made: usize,
}

impl World {
    fn new(clusters: usize, number: Option<usize>, budget: DisruptionBudgetSpec) -> Self {
        let mut world = Self {
            policy: number.map_or_else(pick_all, pick_n),
            number,
            budget,
            there: Vec::new(),
            evictions: Vec::new(),
            took: Vec::new(),
            made: 0,
        };
        for cluster in 0..number.unwrap_or(clusters).min(clusters) {
            world.pick(cluster);
        }
        world
    }

    fn pick(&mut self, cluster: usize) {
        let name = format!("c{cluster}");
        if self.there.iter().all(|b| b.cluster != name) {
            self.made += 1;
            self.there.push(There {
                uid: format!("u{}", self.made),
                cluster: name,
                readiness: Ready,
                deleting: false,
            });
        }
    }

    fn step(&mut self, step: &Step) {
        let of = |cluster: &usize| format!("c{cluster}");
        match step {
            Step::Is(cluster, readiness) => {
                let name = of(cluster);
                for there in self.there.iter_mut().filter(|b| b.cluster == name) {
                    there.readiness = *readiness;
                }
            }
            Step::Evict(cluster, waits) => {
                let mut new = eviction(&of(cluster), *waits);
                self.made += 1;
                new.metadata.name = Some(format!("e{}", self.made));
                self.evictions.push(new);
            }
            Step::Gone(cluster) => {
                let name = of(cluster);
                self.there.retain(|b| b.cluster != name || !b.deleting);
            }
            Step::Picked(cluster) => self.pick(*cluster),
            Step::Dies => {}
        }
    }

    fn available(&self) -> usize {
        let serves = |b: &&There| !b.deleting && matches!(b.readiness, Ready | Withheld);
        self.there.iter().filter(serves).count()
    }

    /// Whether the budget is kept.
    fn is_kept(&self) -> bool {
        let share = |value: &IntOrString| match value {
            IntOrString::Int(number) => usize::try_from(*number).unwrap(),
            IntOrString::String(text) => {
                let percent: usize = text.trim_end_matches('%').parse().unwrap();
                (percent * self.number.unwrap_or(0)).div_ceil(100)
            }
        };
        let total = self.there.len().max(self.number.unwrap_or(0));
        match (&self.budget.max_unavailable, &self.budget.min_available) {
            (Some(most), _) => total - self.available() <= share(most),
            (None, Some(fewest)) => self.available() >= share(fewest),
            (None, None) => false,
        }
    }

    /// Plans and carries it out; `dies`: after the deletions nothing more is written down.
    fn act(&mut self, dies: bool) {
        let before = self.there.clone();
        let views: Vec<EvictionBinding<'_>> = before
            .iter()
            .map(|b| EvictionBinding {
                uid: &b.uid,
                cluster: &b.cluster,
                deleting: b.deleting,
                ..binding("", b.readiness)
            })
            .collect();
        let refs: Vec<&Eviction> = self.evictions.iter().collect();
        let verdicts = plan(&self.policy, &views, Some(&self.budget), &refs);
        let mut costs = false;
        for verdict in verdicts {
            let eviction = self
                .evictions
                .iter_mut()
                .find(|e| e.metadata.name.as_deref() == Some(&verdict.eviction))
                .unwrap();
            let status = eviction.status.get_or_insert_default();
            let mut outcome = verdict.outcome.clone();
            if let Outcome::Evict(uid) = &verdict.outcome {
                status.evicting = Some(uid.clone());
                let victim = self.there.iter_mut().find(|b| b.uid == *uid).unwrap();
                assert!(!victim.deleting, "evicted twice");
                victim.deleting = true;
                costs |= matches!(victim.readiness, Ready | Withheld);
                self.took.push((verdict.eviction.clone(), uid.clone()));
                outcome = Outcome::Executed;
                if dies {
                    continue;
                }
            }
            let list = status.conditions.insert(Vec::new());
            let said = Verdict { outcome, ..verdict };
            list.extend(
                said.conditions(Some(1))
                    .into_iter()
                    .map(|c| c.build(&[], at(NOW))),
            );
        }
        // What fails by itself is nobody's doing; what is evicted though it served is.
        assert!(
            !costs || self.is_kept(),
            "a budget was broken: {:?}",
            self.budget
        );
    }
}

fn budgets() -> impl Strategy<Value = (Option<usize>, Value)> {
    prop_oneof![
        (0..7_usize, 0..7).prop_map(|(n, b)| (Some(n), json!({ "maxUnavailable": b }))),
        (0..7_usize, 0..101)
            .prop_map(|(n, b)| (Some(n), json!({ "maxUnavailable": format!("{b}%") }))),
        (0..7_usize, 0..7).prop_map(|(n, b)| (Some(n), json!({ "minAvailable": b }))),
        (0..7_usize, 0..101)
            .prop_map(|(n, b)| (Some(n), json!({ "minAvailable": format!("{b}%") }))),
        (0..7).prop_map(|b| (None, json!({ "minAvailable": b }))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// I2, whatever happens; each eviction takes one binding at most, also if the hub dies in between.
    #[test]
    fn no_budget_is_broken((number, budget_) in budgets(), steps in steps(6)) {
        let mut world = World::new(6, number, budget(budget_));
        for step in &steps {
            world.step(step);
            world.act(matches!(step, Step::Dies));
        }
        let takers: BTreeSet<_> = world.took.iter().map(|(eviction, _)| eviction).collect();
        prop_assert_eq!(takers.len(), world.took.len(), "an eviction took two");
    }
}
