//! The preview against a hub that carries the plan out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::select::rules::ApiFilter;
use jiff::Timestamp;
use kube::ResourceExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_api::binding::{BindingState, BindingStatus};
use windlass_api::member::MemberCluster;
use windlass_api::scoped::{Binding, Placement};
use windlass_api::{Condition, Time};
use windlass_cluster::ObjectKey;
use windlass_member::manifest::Manifest;
use windlass_status::digest::Digest;

use super::{Change, End, Fate, Kind, Live, preview};
use crate::overrides::Version;
use crate::overrides::resolve::Resolved;
use crate::placement::bindings::digest_of;
use crate::placement::plan::{self, PlacementView};
use crate::placement::snapshots::{Groups, LatestSnapshot, meta_of};
use crate::select::{SelectError, Selection};

const NOW: Timestamp = Timestamp::constant(1_750_000_000, 0);
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn cluster(name: &str, env: &str) -> Arc<MemberCluster> {
    let healthy = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": NOW})
    };
    let cluster = json!({
        "metadata": {"name": name, "labels": {"env": env},
            "annotations": {"windlass.dev/delivery": "push"}},
        "spec": {"identity": {"kind": "User", "name": "x"}},
        "status": {"agentStatus": [{"type": "MemberAgent", "lastReceivedHeartbeat": NOW,
            "conditions": [healthy("Joined"), healthy("Healthy")]}]},
    });
    Arc::new(serde_json::from_value(cluster).unwrap())
}

fn placement(policy: &Value, budget: &Value, strategy: &str) -> Placement {
    let mut spec = json!({"resourceSelectors": [{"group": "", "version": "v1", "kind": "Namespace", "name": "web"}],
        "policy": policy, "strategy": {"type": strategy}});
    if strategy == "RollingUpdate" {
        spec["strategy"]["rollingUpdate"] = budget.clone();
    }
    let placement = json!({"metadata": {"name": "web", "uid": "u", "generation": 1}, "spec": spec});
    serde_json::from_value(placement).unwrap()
}

fn selection(version: u8) -> Selection {
    let object = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "web", "labels": {"v": version.to_string()}}});
    Selection {
        manifests: vec![Arc::new(Manifest::of_snapshot(object))],
        hash: Digest::of_bytes(&[version]),
        idle: Vec::new(),
        again: None,
    }
}

/// A patch that sets a label.
fn label(key: &str, value: &str) -> Value {
    json!({"op": "add", "path": format!("/metadata/labels/{key}"), "value": value})
}

/// A hub: objects, and the plan carried out on them write by write.
#[derive(Clone, Debug)]
struct Hub {
    placement: Placement,
    version: u8,
    snapshots: BTreeMap<String, Arc<crate::placement::snapshots::SnapshotMeta>>,
    policies: BTreeMap<String, Arc<windlass_api::scoped::PolicySnapshot>>,
    bindings: BTreeMap<String, Binding>,
    clusters: Vec<Arc<MemberCluster>>,
    silent: BTreeSet<String>,
    /// An override on the clusters of that environment; the patch.
    overridden: Option<(&'static str, Value)>,
    now: Timestamp,
}

impl Hub {
    fn new(placement: Placement, clusters: Vec<Arc<MemberCluster>>) -> Self {
        Hub {
            placement,
            version: 0,
            snapshots: BTreeMap::new(),
            policies: BTreeMap::new(),
            bindings: BTreeMap::new(),
            clusters,
            silent: BTreeSet::new(),
            overridden: None,
            now: NOW,
        }
    }

    fn live(&self) -> Live {
        let snapshots: Vec<_> = self.snapshots.values().cloned().collect();
        Live {
            placement: self.placement.clone(),
            exists: true,
            selection: Ok(selection(self.version)),
            groups: Groups::of(&snapshots),
            policies: self.policies.values().cloned().collect(),
            bindings: self.bindings.values().cloned().map(Arc::new).collect(),
            clusters: self.clusters.clone(),
            unreachable: self.silent.clone(),
            overrides: self.overrides(),
            filter: ApiFilter::default(),
        }
    }

    fn overrides(&self) -> Resolved {
        let Some((env, patch)) = &self.overridden else {
            return Resolved::default();
        };
        let snapshot = json!({
            "metadata": {"name": "o-0"}, "spec": {"overrideHash": "", "overrideSpec": {
                "clusterResourceSelectors": [{"group": "", "version": "v1", "kind": "Namespace", "name": "web"}],
                "policy": {"overrideRules": [{"jsonPatchOverrides": [patch], "clusterSelector":
                    {"clusterSelectorTerms": [{"labelSelector": {"matchLabels": {"env": env}}}]}}]}}}});
        let version = Version::Cluster(Arc::new(serde_json::from_value(snapshot).unwrap()));
        Resolved::new(
            ObjectKey::cluster("web"),
            vec![version],
            [],
            self.clusters.clone(),
            Vec::new(),
        )
    }

    /// What each cluster has been told to hold.
    fn told(&self) -> BTreeMap<String, String> {
        self.bindings
            .values()
            .filter(|b| b.metadata.deletion_timestamp.is_none())
            .filter(|b| !b.spec.resource_snapshot_name.is_empty())
            .map(|b| {
                let strategy = serde_json::to_string(&b.spec.apply_strategy).unwrap();
                let what = format!(
                    "{} {strategy} {:?}",
                    b.spec.resource_snapshot_name, b.spec.cluster_resource_override_snapshots
                );
                (b.spec.target_cluster.clone(), what)
            })
            .collect()
    }

    /// One look: what it changes on clusters, and when to look again.
    fn look(&mut self) -> (Vec<Change>, LatestSnapshot, bool, Option<Timestamp>) {
        let before = self.told();
        let live = self.live();
        let chosen = selection(self.version);
        let plan = plan::plan(
            &PlacementView {
                heard: &|_| None,
                ..live.view(&chosen)
            },
            self.now,
        );
        if let Some(snapshots) = &plan.snapshots {
            for new in &snapshots.create {
                let meta = Arc::new(meta_of(new.metadata.clone()));
                self.snapshots.insert(new.name_any(), meta);
            }
            for gone in &snapshots.expired {
                self.snapshots.remove(&gone.name_any());
            }
        }
        for new in plan.policy.create.iter().chain(&plan.policy.update) {
            self.policies.insert(new.name_any(), Arc::new(new.clone()));
        }
        for gone in &plan.policy.expired {
            self.policies.remove(&gone.name_any());
        }
        let writes = &plan.bindings;
        for new in writes.create.iter().chain(&writes.replace) {
            let mut new = new.clone();
            new.metadata.generation = Some(new.metadata.generation.unwrap_or_default() + 1);
            self.bindings.insert(new.name_any(), new);
        }
        for gone in &writes.delete {
            let binding = self.bindings.get_mut(&gone.name_any()).unwrap();
            binding.metadata.deletion_timestamp = Some(Time(self.now));
        }
        let silent = self.silent.clone();
        self.bindings.retain(|_, b| {
            b.metadata.deletion_timestamp.is_none() || silent.contains(&b.spec.target_cluster)
        });
        let after = self.told();
        let all: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let changes = all
            .into_iter()
            .filter_map(|cluster| {
                let kind = match (before.get(cluster), after.get(cluster)) {
                    (None, Some(_)) => Kind::Add,
                    (Some(_), None) => Kind::Remove,
                    (Some(old), Some(new)) if old != new => Kind::Update,
                    _ => return None,
                };
                Some(Change {
                    cluster: cluster.clone(),
                    kind,
                })
            })
            .collect();
        let wrote =
            !writes.create.is_empty() || !writes.replace.is_empty() || !writes.delete.is_empty();
        (changes, plan.latest, wrote, writes.wake_at)
    }

    /// Clusters that were told something new, and could report that they have it.
    fn under_way(&self, latest: &LatestSnapshot) -> Vec<String> {
        let groups = self.live().groups;
        self.bindings
            .values()
            .filter(|b| b.spec.resource_snapshot_name == latest.name)
            .filter(|b| !self.silent.contains(&b.spec.target_cluster))
            .filter(|b| {
                let digest =
                    digest_of(b, &groups, latest, &self.overrides()).map(|d| d.to_string());
                b.status.as_ref().and_then(|s| s.observed_digest.clone()) != digest
            })
            .map(ResourceExt::name_any)
            .collect()
    }

    fn report(&mut self, name: &str, latest: &LatestSnapshot, type_: &str, status: &str) {
        let groups = self.live().groups;
        let overrides = self.overrides();
        let binding = self.bindings.get_mut(name).unwrap();
        let reason = match type_ {
            "Applied" => "NotAllWorkHaveBeenApplied",
            _ => "AllWorkAreAvailable",
        };
        binding.status = Some(BindingStatus {
            conditions: Some(vec![Condition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message: String::new(),
                observed_generation: binding.metadata.generation,
                last_transition_time: Time(self.now),
            }]),
            observed_digest: digest_of(binding, &groups, latest, &overrides).map(|d| d.to_string()),
            ..Default::default()
        });
    }

    /// Looks until nothing moves; after each look `arrive` picks who reports to be ready.
    fn run(&mut self, mut arrive: impl FnMut(Vec<String>) -> Vec<String>) -> Vec<Vec<Change>> {
        let mut steps = Vec::new();
        for _ in 0..500 {
            let (changes, latest, wrote, wake_at) = self.look();
            if !changes.is_empty() {
                steps.push(changes);
            }
            let arrived = arrive(self.under_way(&latest));
            for name in &arrived {
                self.report(name, &latest, "Available", "True");
            }
            if wrote || !arrived.is_empty() {
                continue;
            }
            match wake_at {
                Some(at) if at > self.now => self.now = at,
                _ => return steps,
            }
        }
        panic!("the hub does not come to rest: {steps:?}");
    }
}

fn any_policy() -> impl Strategy<Value = Value> {
    let prod = json!({"clusterAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"clusterSelectorTerms": [{"labelSelector": {"matchLabels": {"env": "prod"}}}]}}});
    prop_oneof![
        Just(Value::Null),
        Just(json!({"placementType": "PickAll", "affinity": prod})),
        (0..5).prop_map(|n| json!({"placementType": "PickN", "numberOfClusters": n})),
        (0..5).prop_map(
            move |n| json!({"placementType": "PickN", "numberOfClusters": n,
            "topologySpreadConstraints": [{"topologyKey": "env"}]})
        ),
        prop::sample::subsequence(NAMES.to_vec(), 0..5)
            .prop_map(|names| json!({"placementType": "PickFixed", "clusterNames": names})),
    ]
}

fn any_budget() -> impl Strategy<Value = Value> {
    let amount = || {
        prop_oneof![
            (0..4).prop_map(|n| json!(n)),
            Just(json!("25%")),
            Just(json!("50%"))
        ]
    };
    (amount(), amount()).prop_map(|(unavailable, surge)| {
        json!({"maxUnavailable": unavailable, "maxSurge": surge, "unavailablePeriodSeconds": 60})
    })
}

/// A hub in the middle of its life: with a version out, some clusters failed or silent, and a new wish.
fn any_hub() -> impl Strategy<Value = Hub> {
    (
        prop::collection::vec(any::<bool>(), 1..=NAMES.len()),
        (any_policy(), any_policy()),
        any_budget(),
        prop_oneof![4 => Just("RollingUpdate"), 1 => Just("External")],
        (0..4_u8, 0..3_u8, any::<bool>(), any::<bool>()),
        prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8), 0..3),
    )
        .prop_map(
            |(
                fleet,
                (old, new),
                budget,
                strategy,
                (fresh, version, other_way, overridden),
                events,
            )| {
                let clusters: Vec<_> = NAMES
                    .iter()
                    .zip(&fleet)
                    .map(|(name, prod)| cluster(name, if *prod { "prod" } else { "dev" }))
                    .collect();
                let mut hub = Hub::new(placement(&old, &budget, "RollingUpdate"), clusters);
                if fresh > 0 {
                    hub.run(|all| all);
                    for (index, event) in events {
                        let name = hub.clusters[index.index(hub.clusters.len())].name_any();
                        let binding = hub
                            .bindings
                            .values()
                            .find(|b| b.spec.target_cluster == name);
                        let binding = binding.map(ResourceExt::name_any);
                        match (event, binding) {
                            (0, _) => drop(hub.silent.insert(name)),
                            (1, Some(binding)) => {
                                let (_, latest, ..) = hub.look();
                                hub.report(&binding, &latest, "Applied", "False");
                            }
                            (_, Some(binding)) => {
                                hub.bindings.get_mut(&binding).unwrap().status = None;
                            }
                            _ => {}
                        }
                    }
                }
                hub.placement = placement(&new, &budget, strategy);
                if other_way {
                    hub.placement
                        .spec
                        .strategy
                        .get_or_insert_default()
                        .apply_strategy =
                        serde_json::from_value(json!({"type": "ServerSideApply"})).unwrap();
                }
                hub.placement.metadata.generation = Some(2);
                hub.version = version;
                hub.overridden = overridden.then(|| ("prod", label("x", "1")));
                hub
            },
        )
}

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
        prop_assert_eq!(set(&steps), set(&told.rollout.steps));

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

    hub.overridden = Some(("prod", json!({"op": "remove", "path": "/data/none"})));
    let decided = preview(&hub.live(), NOW).decided.unwrap();
    let error = decided.variants[0].error.as_ref().unwrap();
    assert!(
        error.contains("o-0") && error.contains("/data/none"),
        "{error}"
    );
    assert_eq!(decided.variants[1].error, None);
    assert!(
        matches!(&decided.rollout.end, End::Stuck { failing, .. } if failing == &["a", "c"]),
        "{:?}",
        decided.rollout
    );
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
