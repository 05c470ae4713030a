//! The preview against a hub that carries the plan out.

mod hub;
mod many;

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::ResourceExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_api::binding::BindingState;
use windlass_api::labels;
use windlass_api::placement::DeletePropagationPolicy;
use windlass_member::manifest::Manifest;

use super::{Blame, Change, Deleting, End, Fate, Outcome, preview};
use crate::select::SelectError;

use hub::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_hub_does_what_the_preview_says(hub in any_hub(), order in prop::collection::vec(any::<prop::sample::Index>(), 64)) {
        let told = preview(&hub.live(), NOW).decided.unwrap();

        // All that were told something arrive before the next look: the very steps.
        let mut in_waves = hub.clone();
        prop_assert_eq!(&in_waves.run(|all| all), &told.rollout.steps);

        // The clusters that have the placement in the end are those that were said to.
        let fated: BTreeSet<&str> = told
            .clusters
            .iter()
            .filter(|c| matches!(c.fate, Fate::Picked | Fate::Kept))
            .map(|c| c.name.as_str())
            .collect();
        let selected: BTreeSet<&str> = in_waves
            .bindings
            .values()
            .filter(|b| b.metadata.deletion_timestamp.is_none())
            .filter(|b| b.spec.state != BindingState::Unscheduled)
            .map(|b| b.spec.target_cluster.as_str())
            .collect();
        prop_assert!(fated.iter().all(|c| selected.contains(c)) || told.rollout.end != End::Complete);
        prop_assert!(selected.iter().all(|c| fated.contains(c)));

        // They arrive one by one, in any order: the same changes, the same ones first.
        let mut one_by_one = hub.clone();
        let mut turn = 0;
        let steps = one_by_one.run(|all| {
            turn += 1;
            if all.is_empty() { all } else { vec![order[turn % order.len()].get(&all).clone()] }
        });
        prop_assert_eq!(steps.first(), told.rollout.steps.first());
        let set = |steps: &[Vec<Change>]| -> BTreeSet<Change> { steps.iter().flatten().cloned().collect() };
        // Also where the budget ends at those that fail: the order in which clusters get their turn is fixed, and
        // whoever takes a turn for good takes it whenever that is found out.
        prop_assert_eq!(set(&steps), set(&told.rollout.steps), "{:?}", told.rollout.end);

        // Nothing is left to say once it is done.
        if told.rollout.end == End::Complete {
            let again = preview(&in_waves.live(), in_waves.now).decided.unwrap();
            prop_assert_eq!(again.rollout.steps, Vec::<Vec<Change>>::new());
            prop_assert!(!again.snapshot.new);
            prop_assert!(again.clusters.iter().all(|c| matches!(c.fate, Fate::Kept | Fate::Unpicked)));
        }
    }
}

fn fates(hub: &Hub) -> Vec<(String, Fate)> {
    let decided = preview(&hub.live(), NOW).decided.unwrap();
    let clusters = decided.clusters.into_iter();
    clusters
        .map(|cluster| (cluster.name, cluster.fate))
        .collect()
}

fn steps(hub: &Hub) -> Vec<String> {
    let rollout = preview(&hub.live(), NOW).decided.unwrap().rollout;
    let step = |step: &Vec<Change>| {
        let changes = step.iter().map(|c| format!("{:?} {}", c.kind, c.cluster));
        changes.collect::<Vec<_>>().join(", ")
    };
    rollout.steps.iter().map(step).collect()
}

#[test]
fn a_change_of_policy_and_content_step_by_step() {
    let clusters = vec![
        cluster("a", "prod"),
        cluster("b", "prod"),
        cluster("c", "dev"),
    ];
    let fixed = |names: &[&str]| json!({"placementType": "PickFixed", "clusterNames": names});
    let one = json!({"maxUnavailable": 1, "maxSurge": 1});
    let mut hub = Hub::new(
        placement(&fixed(&["a", "b"]), &one, "RollingUpdate"),
        clusters,
    );
    assert_eq!(steps(&hub), ["Add a, Add b"]);
    hub.run(|all| all);
    assert_eq!(steps(&hub), Vec::<String>::new());
    hub.version = 1;
    assert_eq!(steps(&hub), ["Update a", "Update b"]);
    hub.placement = placement(&fixed(&["b", "c", "z"]), &one, "RollingUpdate");
    hub.version = 0;
    assert_eq!(
        fates(&hub),
        [
            ("c", Fate::Picked),
            ("b", Fate::Kept),
            ("a", Fate::Dropped),
            ("z", Fate::Unpicked)
        ]
        .map(|(name, fate)| (name.to_owned(), fate))
    );
    assert_eq!(steps(&hub), ["Add c", "Remove a"]);
    let told = preview(&hub.live(), NOW);
    let condition = told.scheduled.unwrap();
    assert_eq!(
        (condition.status.as_str(), condition.reason.as_str()),
        ("False", "SchedulingPolicyUnfulfilled")
    );
}

#[test]
fn external_changes_nothing_by_itself_and_a_silent_cluster_holds_things_up() {
    let clusters = vec![
        cluster("a", "prod"),
        cluster("b", "prod"),
        cluster("c", "prod"),
    ];
    let one = json!({"maxUnavailable": 1});
    let mut hub = Hub::new(placement(&Value::Null, &one, "External"), clusters);
    let decided = preview(&hub.live(), NOW).decided.unwrap();
    assert_eq!(
        (decided.rollout.steps, decided.rollout.end),
        (vec![], End::External)
    );
    hub.placement = placement(&Value::Null, &one, "RollingUpdate");
    hub.run(|all| all);
    hub.version = 1;
    hub.silent.insert("b".to_owned());
    let rollout = preview(&hub.live(), NOW).decided.unwrap().rollout;
    assert!(
        matches!(&rollout.end, End::Stuck { silent, .. } if silent == &["b"]),
        "{rollout:?}"
    );
}

#[test]
fn overrides_are_worked_in_and_a_bad_one_concerns_its_clusters_alone() {
    let clusters = vec![
        cluster("a", "prod"),
        cluster("b", "dev"),
        cluster("c", "prod"),
    ];
    let one = json!({"maxUnavailable": 1});
    let mut hub = Hub::new(placement(&Value::Null, &one, "RollingUpdate"), clusters);
    let variants = |hub: &Hub| preview(&hub.live(), NOW).decided.unwrap().variants;
    let alike = variants(&hub);
    assert_eq!(alike.len(), 1);
    assert_eq!(alike[0].clusters, ["a", "b", "c"]);

    hub.overridden = Some(("prod", label("tier", "gold")));
    let different = variants(&hub);
    let clusters: Vec<_> = different.iter().map(|v| v.clusters.join(" ")).collect();
    assert_eq!(clusters, ["a c", "b"]);
    assert!(different[0].resources[0].changed && !different[1].resources[0].changed);
    let manifest = &different[0].manifests.as_ref().unwrap()[0];
    assert_eq!(manifest["metadata"]["labels"]["tier"], "gold");

    hub.overridden = Some(("prod", bad_patch()));
    let decided = preview(&hub.live(), NOW).decided.unwrap();
    let fault = decided.variants[0].fault.as_ref().unwrap();
    assert!(
        fault.error.contains("o-0") && fault.error.contains("/data/none"),
        "{fault:?}"
    );
    assert_eq!(fault.error_in, Blame::Overrides);
    assert_eq!(decided.variants[1].fault, None);
    let stuck = |waiting: &[&str], failing: &[&str]| {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        End::Stuck {
            waiting: list(waiting),
            silent: Vec::new(),
            failing: list(failing),
            refusing: Vec::new(),
        }
    };
    assert_eq!(decided.rollout.end, stuck(&[], &["a", "c"]));

    // Where the old version runs, a bad override takes nothing from anybody: the rollout goes on.
    hub.overridden = None;
    hub.run(|all| all);
    hub.version = 1;
    hub.overridden = Some(("prod", bad_patch()));
    assert_eq!(steps(&hub), ["Update a", "Update b", "Update c"]);
    let decided = preview(&hub.live(), NOW).decided.unwrap();
    assert_eq!(decided.rollout.end, stuck(&[], &["a", "c"]));
}

#[test]
fn what_cannot_be_placed_is_no_fault_of_overrides() {
    let one = json!({"maxUnavailable": 1});
    let mut hub = Hub::new(
        placement(&Value::Null, &one, "RollingUpdate"),
        vec![cluster("a", "prod"), cluster("b", "prod")],
    );
    hub.run(|all| all);
    hub.version = 1;
    let mut live = hub.live();
    let mut chosen = selection(1);
    let envelope = json!({"apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ClusterResourceEnvelope", "metadata": {"name": "e"},
        "data": {"x": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "web"}}}});
    chosen.manifests = vec![Arc::new(Manifest::of_snapshot(envelope))];
    live.selection = Ok(chosen);
    let decided = preview(&live, NOW).decided.unwrap();
    let fault = decided.variants[0].fault.as_ref().unwrap();
    assert_eq!(fault.error_in, Blame::Resources, "{fault:?}");
    let End::Stuck {
        waiting,
        failing,
        refusing,
        ..
    } = &decided.rollout.end
    else {
        panic!("{:?}", decided.rollout);
    };
    // The first to fail holds up the rest.
    assert_eq!(
        (waiting.as_slice(), failing.as_slice(), refusing.as_slice()),
        (
            ["b".to_owned()].as_slice(),
            [].as_slice(),
            ["a".to_owned(), "b".to_owned()].as_slice()
        )
    );
    let told = serde_json::to_value(&decided.variants[0]).unwrap();
    assert_eq!(told["errorIn"], "resources");
    assert!(told["error"].is_string(), "{told}");
}

#[test]
fn what_cannot_be_selected_is_said_in_the_words_of_the_condition() {
    let mut live = Hub::new(placement(&Value::Null, &json!({}), "RollingUpdate"), vec![]).live();
    live.selection = Err(SelectError::User("there is no kind Gadget".to_owned()));
    let told = preview(&live, NOW);
    let condition = told.scheduled.unwrap();
    assert_eq!(condition.type_, "ClusterResourcePlacementScheduled");
    assert_eq!(condition.status, "False");
    assert_eq!(condition.reason, "InvalidResourceSelectors");
    assert!(
        condition.message.contains("there is no kind Gadget"),
        "{}",
        condition.message
    );
    assert_eq!(told.decided, None);
}

#[test]
fn a_placement_that_is_being_deleted_says_so_and_what_it_means() {
    let clusters = ["a", "b", "c"].map(|name| cluster(name, "prod")).to_vec();
    let all = json!({"maxUnavailable": 3});
    let mut hub = Hub::new(placement(&Value::Null, &all, "RollingUpdate"), clusters);
    hub.run(|all| all);
    hub.placement.metadata.deletion_timestamp = Some(windlass_api::Time(NOW));
    hub.placement.metadata.finalizers = Some(vec![
        labels::PLACEMENT_FINALIZER.to_owned(),
        "x/y".to_owned(),
    ]);
    hub.silent.insert("b".to_owned());
    hub.clusters.retain(|cluster| cluster.name_any() != "c");

    let told = preview(&hub.live(), NOW);
    assert_eq!((&told.scheduled, &told.decided), (&None, &None));
    let deleting = told.deleting.unwrap();
    let leaving = |deleting: &Deleting| -> Vec<(String, Outcome, String)> {
        let clusters = deleting.clusters.iter().cloned();
        clusters.map(|c| (c.name, c.outcome, c.waits_for)).collect()
    };
    let row = |name: &str, outcome, waits: &str| (name.to_owned(), outcome, waits.to_owned());
    let silent = "waiting for cluster b to be reachable";
    assert_eq!(
        leaving(&deleting),
        [
            row("a", Outcome::Removed, "not begun yet"),
            row("b", Outcome::Removed, silent),
            row("c", Outcome::Nothing, "not begun yet"),
        ]
    );
    assert_eq!(deleting.finalizers, ["x/y"]);
    assert_eq!(deleting.delete_strategy, DeletePropagationPolicy::Delete);
    let condition = deleting.condition.unwrap();
    assert_eq!(condition.type_, "ClusterResourcePlacementDeleting");
    assert!(
        condition
            .message
            .starts_with("Waiting for 3 cluster(s) to remove")
    );

    // Begun, and the wish is another one meanwhile: that still counts.
    for binding in hub.bindings.values_mut() {
        binding.metadata.deletion_timestamp = Some(windlass_api::Time(NOW));
    }
    let strategy = json!({"propagationPolicy": "Abandon"});
    hub.placement
        .spec
        .strategy
        .get_or_insert_default()
        .delete_strategy = serde_json::from_value(strategy).unwrap();
    let told = preview(&hub.live(), NOW);
    let json = serde_json::to_value(&told).unwrap();
    assert_eq!(json["deleting"]["deleteStrategy"], "Abandon");
    assert_eq!(
        json["deleting"]["clusters"][0],
        json!({"name": "a", "outcome": "left", "waitsFor": "removing"})
    );
    assert_eq!(json["decided"], Value::Null);

    // Nothing is waited for.
    hub.bindings.clear();
    let deleting = preview(&hub.live(), NOW).deleting.unwrap();
    assert_eq!((deleting.clusters, deleting.condition), (Vec::new(), None));
}
