//! A hub that carries plans out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_api::binding::BindingStatus;
use windlass_api::member::MemberCluster;
use windlass_api::scoped::{Binding, Placement};
use windlass_api::{Condition, Time};
use windlass_cluster::ObjectKey;
use windlass_member::manifest::Manifest;
use windlass_status::digest::Digest;

use super::super::{Change, Kind, Live, variants};
use crate::delivery::refused;
use crate::overrides::Version;
use crate::overrides::resolve::Resolved;
use crate::placement::bindings::digest_of;
use crate::placement::packing::NOWHERE;
use crate::placement::plan::{self, PlacementView};
use crate::placement::snapshots::{Groups, LatestSnapshot, meta_of};
use crate::render;
use crate::select::Selection;
use crate::select::rules::ApiFilter;

pub(super) const NOW: Timestamp = Timestamp::constant(1_750_000_000, 0);
pub(super) const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

pub(super) fn cluster(name: &str, env: &str) -> Arc<MemberCluster> {
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

pub(super) fn placement(policy: &Value, budget: &Value, strategy: &str) -> Placement {
    let mut spec = json!({"resourceSelectors": [{"group": "", "version": "v1", "kind": "Namespace", "name": "web"}],
        "policy": policy, "strategy": {"type": strategy}});
    if strategy == "RollingUpdate" {
        spec["strategy"]["rollingUpdate"] = budget.clone();
    }
    let placement = json!({"metadata": {"name": "web", "uid": "u", "generation": 1}, "spec": spec});
    serde_json::from_value(placement).unwrap()
}

pub(super) fn selection(version: u8) -> Selection {
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
pub(super) fn label(key: &str, value: &str) -> Value {
    json!({"op": "add", "path": format!("/metadata/labels/{key}"), "value": value})
}

/// A patch that can't be worked in.
pub(super) fn bad_patch() -> Value {
    json!({"op": "remove", "path": "/data/none"})
}

/// A hub: objects, and the plan carried out on them write by write.
#[derive(Clone, Debug)]
pub(super) struct Hub {
    pub(super) placement: Placement,
    pub(super) version: u8,
    pub(super) snapshots: BTreeMap<String, Arc<crate::placement::snapshots::SnapshotMeta>>,
    pub(super) policies: BTreeMap<String, Arc<windlass_api::scoped::PolicySnapshot>>,
    pub(super) bindings: BTreeMap<String, Binding>,
    pub(super) clusters: Vec<Arc<MemberCluster>>,
    pub(super) silent: BTreeSet<String>,
    /// An override on the clusters of that environment; the patch.
    pub(super) overridden: Option<(&'static str, Value)>,
    pub(super) now: Timestamp,
}

impl Hub {
    pub(super) fn new(placement: Placement, clusters: Vec<Arc<MemberCluster>>) -> Self {
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

    pub(super) fn live(&self) -> Live {
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
            pending: Vec::new(),
            filter: ApiFilter::default(),
        }
    }

    pub(super) fn overrides(&self) -> Resolved {
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
    pub(super) fn told(&self) -> BTreeMap<String, String> {
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
    pub(super) fn look(&mut self) -> (Vec<Change>, LatestSnapshot, bool, Option<Timestamp>) {
        let before = self.told();
        let live = self.live();
        let chosen = selection(self.version);
        let plan = plan::plan(
            &PlacementView {
                places: &NOWHERE,
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
    pub(super) fn under_way(&self, latest: &LatestSnapshot) -> Vec<String> {
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

    /// A cluster gets what it was told, if that can be made; whether it can, and what is said if not, is
    /// what delivery would find.
    pub(super) fn arrive(&mut self, name: &str, latest: &LatestSnapshot) {
        let refused = {
            let binding = &self.bindings[name];
            let live = self.live();
            let overrides = self.overrides();
            let digest = digest_of(binding, &live.groups, latest, &overrides);
            let known = |c: &&Arc<MemberCluster>| c.name_any() == binding.spec.target_cluster;
            let labels = self.clusters.iter().find(known).map(|c| c.labels().clone());
            let rendered = render::manifests(
                &variants::content(&live, latest, &selection(self.version)),
                &overrides.versions(&binding.spec),
                &binding.spec.target_cluster,
                &labels.unwrap_or_default(),
                live.filter.confinement(),
            );
            rendered.err().map(|refusal| {
                refused::status(binding, digest.unwrap(), &latest.name, &refusal, self.now)
            })
        };
        match refused {
            Some(status) => self.bindings.get_mut(name).unwrap().status = Some(status),
            None => self.report(name, latest, "Available", "True"),
        }
    }

    pub(super) fn report(
        &mut self,
        name: &str,
        latest: &LatestSnapshot,
        type_: &str,
        status: &str,
    ) {
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
    pub(super) fn run(
        &mut self,
        mut arrive: impl FnMut(Vec<String>) -> Vec<String>,
    ) -> Vec<Vec<Change>> {
        let mut steps = Vec::new();
        for _ in 0..500 {
            let (changes, latest, wrote, wake_at) = self.look();
            if !changes.is_empty() {
                steps.push(changes);
            }
            let arrived = arrive(self.under_way(&latest));
            for name in &arrived {
                self.arrive(name, &latest);
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

pub(super) fn any_policy() -> impl Strategy<Value = Value> {
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

pub(super) fn any_budget() -> impl Strategy<Value = Value> {
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
pub(super) fn any_hub() -> impl Strategy<Value = Hub> {
    (
        prop::collection::vec(any::<bool>(), 1..=NAMES.len()),
        (any_policy(), any_policy()),
        any_budget(),
        prop_oneof![4 => Just("RollingUpdate"), 1 => Just("External")],
        (0..4_u8, 0..3_u8, any::<bool>(), 0..4_u8),
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
                hub.overridden = match overridden {
                    0 | 1 => None,
                    2 => Some(("prod", label("x", "1"))),
                    _ => Some(("prod", bad_patch())),
                };
                hub
            },
        )
}
