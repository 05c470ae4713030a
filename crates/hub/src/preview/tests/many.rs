//! A fleet of 1,500 clusters: what is decided, and what the objects show of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Value, json};
use windlass_aggregator::{Aggregate, ExternalUnset, Scheduling};
use windlass_api::binding::{BindingState, BindingStatus};
use windlass_api::conditions::Stage;
use windlass_api::member::MemberCluster;
use windlass_api::scoped::Binding;
use windlass_api::{Condition, Time};
use windlass_scheduler::MAX_DECISIONS;

use super::super::{End, Fate, Kind, preview};
use super::hub::*;
use crate::placement::bindings::Digests;
use crate::placement::plan::{PlacementPlan, plan};
use crate::placement::report::verdict;
use crate::placement::status::{StatusInputs, roll_up};

const MANY: usize = 1500;
const ZONES: [&str; 5] = ["north", "east", "south", "west", "sea"];
/// What a placement may take in all (design §5.3).
const MEBIBYTE: usize = 1024 * 1024;

fn zone(number: usize) -> &'static str {
    ZONES[number % ZONES.len()]
}

/// Clusters in five zones.
fn hub(policy: &Value) -> Hub {
    let clusters: Vec<Arc<MemberCluster>> = (0..MANY)
        .map(|n| cluster(&format!("c{n:04}"), zone(n)))
        .collect();
    Hub::new(placement(policy, &json!({}), "RollingUpdate"), clusters)
}

fn decide(hub: &Hub) -> PlacementPlan {
    let chosen = selection(hub.version);
    plan(&hub.live().view(&chosen), hub.now)
}

/// As delivery says it.
fn ready(binding: &Binding) -> Vec<Condition> {
    let said = [
        (Stage::RolloutStarted, "RolloutStarted"),
        (Stage::Overridden, "NoOverrideSpecified"),
        (Stage::WorkSynchronized, "AllWorkSynced"),
        (Stage::Applied, "AllWorkHaveBeenApplied"),
        (Stage::Available, "AllWorkAreAvailable"),
    ];
    let conditions = said.map(|(stage, reason)| Condition {
        type_: stage.to_string(),
        status: "True".to_owned(),
        reason: reason.to_owned(),
        message: "The cluster has what it is meant to have".to_owned(),
        observed_generation: binding.metadata.generation,
        last_transition_time: Time(NOW),
    });
    conditions.into()
}

/// Writes what was decided, and has every cluster become ready.
fn carry_out(hub: &mut Hub) -> PlacementPlan {
    let plan = decide(hub);
    hub.look();
    let live = hub.live();
    let mut digests = Digests::default();
    for binding in hub.bindings.values_mut() {
        let digest = digests.of(binding, &live.groups, &plan.latest, &live.overrides);
        binding.status = Some(BindingStatus {
            conditions: Some(ready(binding)),
            observed_digest: digest.map(|digest| digest.to_string()),
            ..BindingStatus::default()
        });
    }
    plan
}

fn status(hub: &Hub, plan: &PlacementPlan) -> Aggregate {
    let live = hub.live();
    let shown = plan.schedule.selected.iter().chain(plan.schedule.shown());
    let decisions: Vec<_> = shown.cloned().collect();
    let inputs = StatusInputs {
        placement: &hub.placement,
        scheduling: Scheduling::Decided {
            fulfilled: plan.schedule.fulfilled,
            reason: verdict(&plan.schedule).1.as_str(),
            message: &plan.schedule.message,
        },
        in_force: None,
        decisions: &decisions,
        policy_snapshot: Some(&plan.policy.latest),
        bindings: &live.bindings,
        held: &plan.bindings.held,
        unreachable: &live.unreachable,
        groups: &live.groups,
        latest: &plan.latest,
        overrides: &live.overrides,
        resources: &[],
        others: &HashMap::new(),
        external_unset: ExternalUnset::Unknown,
        run: None,
    };
    roll_up(&inputs, NOW)
}

#[test]
fn everything_everywhere() {
    let mut hub = hub(&Value::Null);
    let plan = carry_out(&mut hub);
    assert!(plan.schedule.fulfilled);
    assert_eq!(plan.schedule.selected.len(), MANY);
    assert_eq!(
        plan.bindings.create.len(),
        MANY,
        "all at once: nothing is lost"
    );
    let bound = |b: &&Binding| b.spec.state == BindingState::Bound;
    assert_eq!(hub.bindings.values().filter(bound).count(), MANY);
    let targets = hub.bindings.values().map(|b| b.spec.target_cluster.clone());
    assert_eq!(targets.collect::<BTreeSet<_>>().len(), MANY);
    let again = decide(&hub).bindings;
    assert!(again.create.is_empty() && again.replace.is_empty() && again.delete.is_empty());

    // The policy snapshot shows what its schema takes: clusters that are selected, by name.
    let decisions = plan.schedule.decisions();
    assert_eq!(decisions.len(), MAX_DECISIONS);
    assert!(decisions.iter().all(|decision| decision.selected));
    assert_eq!(decisions[999].cluster_name, "c0999");

    // The placement shows what fits, those that fail first, and says how many it does not list.
    for name in ["c0700", "c1499"] {
        let mut bindings = hub.bindings.values_mut();
        let binding = bindings.find(|b| b.spec.target_cluster == name).unwrap();
        let list = binding
            .status
            .as_mut()
            .unwrap()
            .conditions
            .as_mut()
            .unwrap();
        let applied = list.iter_mut().find(|c| c.type_ == "Applied").unwrap();
        applied.status = "False".to_owned();
        applied.reason = "NotAllWorkHaveBeenApplied".to_owned();
    }
    let rolled = status(&hub, &plan);
    assert_eq!(
        (rolled.clusters.failing, rolled.clusters.settled),
        (2, MANY - 2)
    );
    let entries = rolled.status.placement_statuses.clone().unwrap();
    let listed: Vec<&str> = entries
        .iter()
        .map(|e| e.cluster_name.as_deref().unwrap())
        .collect();
    assert!(listed.is_sorted() && rolled.omitted_clusters > 0);
    assert_eq!(listed.len() + rolled.omitted_clusters, MANY);
    assert!(listed.contains(&"c0700") && listed.contains(&"c1499"));
    let size = serde_json::to_vec(&rolled.status).unwrap().len();
    assert!(size < MEBIBYTE && size > MEBIBYTE * 9 / 10, "{size}");
    let conditions = rolled.status.conditions.unwrap();
    let expected = format!(
        "found all cluster needed as specified by the scheduling policy, found 1500 cluster(s); {} cluster(s) not listed here for size",
        rolled.omitted_clusters
    );
    assert_eq!(conditions[0].message, expected);
    let applied = conditions
        .iter()
        .find(|c| c.type_.ends_with("Applied"))
        .unwrap();
    assert_eq!(applied.status, "False");
    assert!(applied.message.contains("2 "), "{}", applied.message);
}

#[test]
fn some_of_them_spread() {
    let policy = |number: usize| {
        json!({"placementType": "PickN", "numberOfClusters": number, "topologySpreadConstraints":
            [{"topologyKey": "env", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]})
    };
    // Clusters to pick; entries of the policy snapshot that are selected, and that are not.
    for (number, selected, unselected) in [(600, 600, 20), (990, 990, 10), (1200, 1000, 0)] {
        let hub = hub(&policy(number));
        let plan = decide(&hub);
        assert!(plan.schedule.fulfilled, "{}", plan.schedule.message);
        assert_eq!(plan.bindings.create.len(), number);
        let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
        for binding in &plan.bindings.create {
            let name = &binding.spec.target_cluster;
            *zones.entry(zone(name[1..].parse().unwrap())).or_default() += 1;
        }
        assert!(
            zones.values().all(|count| *count == number / ZONES.len()),
            "{zones:?}"
        );
        assert_eq!(plan.schedule.unselected.len(), MANY - number);
        let decisions = plan.schedule.decisions();
        let picked = decisions.iter().filter(|d| d.selected).count();
        assert_eq!(
            (picked, decisions.len() - picked),
            (selected, unselected),
            "{number}"
        );
        let found = format!("found {number} cluster(s)");
        assert!(
            plan.schedule.message.ends_with(&found),
            "{}",
            plan.schedule.message
        );
    }
    // What is picked is kept as the number grows.
    let mut hub = hub(&policy(1200));
    carry_out(&mut hub);
    hub.placement = placement(&policy(1205), &json!({}), "RollingUpdate");
    let grown = decide(&hub).bindings;
    assert_eq!((grown.create.len(), grown.delete.len()), (5, 0));
    let told = preview(&hub.live(), NOW).decided.unwrap();
    let count = |fate| told.clusters.iter().filter(|c| c.fate == fate).count();
    let counts = [Fate::Picked, Fate::Kept, Fate::Dropped, Fate::Unpicked].map(count);
    assert_eq!(counts, [5, 1200, 0, 295]);
}

#[test]
fn a_change_is_played_out_within_the_budget() {
    let mut hub = hub(&Value::Null);
    let told = preview(&hub.live(), NOW).decided.unwrap();
    let steps = |rollout: &super::super::Rollout, kind| -> Vec<usize> {
        let steps = rollout.steps.iter();
        steps
            .map(|step| step.iter().filter(|c| c.kind == kind).count())
            .collect()
    };
    assert_eq!(steps(&told.rollout, Kind::Add), [MANY]);
    assert_eq!(told.variants.len(), 1);
    assert_eq!(told.variants[0].clusters.len(), MANY);
    carry_out(&mut hub);
    hub.version = 1;
    let told = preview(&hub.live(), NOW).decided.unwrap();
    assert_eq!(steps(&told.rollout, Kind::Update), [MANY / 4; 4]);
    assert_eq!(told.rollout.end, End::Complete);
    let updated: BTreeSet<_> = told.rollout.steps.iter().flatten().collect();
    assert_eq!(updated.len(), MANY, "each once");
}
