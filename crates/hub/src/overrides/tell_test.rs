//! Who is told of a change of an override, how often, and how many overrides a look reads.

use kube::Resource;
use serde_json::{Value, json};
use windlass_api::overrides::{ClusterResourceOverride, ResourceOverride};
use windlass_api::scoped::Binding;
use windlass_cluster::{ApiError, ObjectKey};
use windlass_render::{ObjectId, placed};

use super::Overrides;
use super::kind::Kind;
use super::next::snapshot;
use super::pending::Trouble;
use crate::scoped::ScopedCache;
use crate::world::{BY_OVERRIDE, Queues};

/// The placements: `shop` holds namespace `shop` and a ConfigMap in it, `bank` the same of `bank`, `shop/web`
/// is a ResourcePlacement of that ConfigMap, `role` holds a ClusterRole.
struct Fleet {
    overrides: Overrides,
    queues: Queues,
    bindings: ScopedCache<Binding>,
    version: u64,
}

fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

fn contents() -> Vec<(ObjectKey, Vec<Value>)> {
    let home = |name: &str| object("v1", "Namespace", "", name);
    let config = |namespace: &str| object("v1", "ConfigMap", namespace, "web");
    let role = object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "web");
    vec![
        (
            ObjectKey::cluster("shop"),
            vec![home("shop"), config("shop")],
        ),
        (
            ObjectKey::cluster("bank"),
            vec![home("bank"), config("bank")],
        ),
        (ObjectKey::namespaced("shop", "web"), vec![config("shop")]),
        (ObjectKey::cluster("role"), vec![role]),
    ]
}

impl Fleet {
    /// Every placement has been looked at.
    fn new() -> Self {
        let queues = Queues::default();
        let by_override = || windlass_cluster::CacheOptions {
            indexes: vec![windlass_cluster::Index {
                name: BY_OVERRIDE,
                values: |binding: &Binding| {
                    let named = super::named_by(&binding.spec);
                    named.iter().map(ObjectKey::to_string).collect()
                },
            }],
            ..Default::default()
        };
        let bindings = ScopedCache::detached(by_override);
        let fleet = Self {
            overrides: Overrides::detached(&queues, &bindings),
            queues,
            bindings,
            version: 0,
        };
        for (placement, objects) in contents() {
            fleet
                .overrides
                .any_for(&placement, "1", || placed(objects.iter()));
        }
        fleet
    }

    /// An override as the API server answers with it, with a version of its own.
    fn of<K: Kind>(&mut self, namespace: &str, mut spec: Value) -> K {
        self.version += 1;
        let value = self.version.to_string();
        let patch = json!({"op": "add", "path": "/data/x", "value": value});
        spec["policy"] = json!({"overrideRules": [{"clusterSelector": {"clusterSelectorTerms": []},
            "jsonPatchOverrides": [patch]}]});
        serde_json::from_value(
            json!({"spec": spec, "metadata": {"name": "o", "namespace": namespace,
            "uid": "u", "generation": self.version, "resourceVersion": value}}),
        )
        .unwrap()
    }

    /// Who has been told since the last time.
    async fn told(&self) -> Vec<String> {
        let mut told = Vec::new();
        let queue = &self.queues.placements;
        while !queue.is_empty() {
            let key = queue.next().await.unwrap();
            queue.done(&key);
            told.push(key.to_string());
        }
        told.sort();
        told
    }

    /// Who is told of an override, and who then of its snapshot.
    async fn change<K: Kind>(&mut self, of: K, index: u64) -> (Vec<String>, Vec<String>) {
        let (overrides, snapshots) = K::caches(&self.overrides);
        overrides.observe(of.clone());
        let first = self.told().await;
        let mut made = snapshot(&of, index);
        made.meta_mut().uid = Some(format!("s{index}"));
        snapshots.observe(made);
        (first, self.told().await)
    }
}

fn cluster_selector(group: &str, kind: &str, name: &str) -> Value {
    json!({"clusterResourceSelectors": [{"group": group, "version": "v1", "kind": kind, "name": name}]})
}

fn config_map() -> Value {
    json!({"resourceSelectors": [{"group": "", "version": "v1", "kind": "ConfigMap", "name": "web"}]})
}

fn pinned(mut spec: Value, name: &str, scope: &str) -> Value {
    spec["placement"] = json!({"name": name, "scope": scope});
    spec
}

#[tokio::test]
async fn a_new_override_wakes_whom_it_concerns_once() {
    let rbac = "rbac.authorization.k8s.io";
    for (spec, expected) in [
        (
            cluster_selector("", "Namespace", "shop"),
            vec!["shop", "shop/web"],
        ),
        (cluster_selector(rbac, "ClusterRole", "web"), vec!["role"]),
        (cluster_selector(rbac, "ClusterRole", "other"), vec![]),
        (
            pinned(cluster_selector("", "Namespace", "shop"), "shop", "Cluster"),
            vec!["shop"],
        ),
        (
            pinned(
                cluster_selector("", "Namespace", "shop"),
                "web",
                "Namespaced",
            ),
            vec![],
        ),
    ] {
        let mut fleet = Fleet::new();
        let of: ClusterResourceOverride = fleet.of("", spec.clone());
        let (first, then) = fleet.change(of, 0).await;
        assert_eq!((first, then), (vec![], strings(&expected)), "{spec}");
    }
    for (namespace, spec, expected) in [
        ("shop", config_map(), vec!["shop", "shop/web"]),
        ("bank", config_map(), vec!["bank"]),
        ("elsewhere", config_map(), vec![]),
        (
            "shop",
            pinned(config_map(), "web", "Namespaced"),
            vec!["shop/web"],
        ),
        (
            "shop",
            pinned(config_map(), "bank", "Cluster"),
            vec!["bank"],
        ),
    ] {
        let mut fleet = Fleet::new();
        let of: ResourceOverride = fleet.of(namespace, spec.clone());
        let (first, then) = fleet.change(of, 0).await;
        assert_eq!(
            (first, then),
            (vec![], strings(&expected)),
            "{namespace} {spec}"
        );
    }
}

fn strings(of: &[&str]) -> Vec<String> {
    of.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test]
async fn a_change_wakes_whom_it_concerned_and_whom_it_concerns_once() {
    let mut fleet = Fleet::new();
    let shop = cluster_selector("", "Namespace", "shop");
    let of: ClusterResourceOverride = fleet.of("", shop.clone());
    fleet.change(of.clone(), 0).await;

    // A finalizer.
    let mut finalized = of.clone();
    finalized.metadata.finalizers = Some(vec!["f".to_owned()]);
    finalized.metadata.resource_version = Some("100".to_owned());
    fleet.overrides.of_cluster.observe(finalized);
    assert_eq!(fleet.told().await, strings(&[]), "a finalizer");

    fleet.version = 200;
    let of: ClusterResourceOverride = fleet.of("", shop);
    let told = fleet.change(of, 1).await;
    assert_eq!(told, (vec![], strings(&["shop", "shop/web"])), "new rules");

    let of: ClusterResourceOverride = fleet.of("", cluster_selector("", "Namespace", "bank"));
    let told = fleet.change(of.clone(), 2).await;
    let expected = (strings(&["shop", "shop/web"]), strings(&["bank"]));
    assert_eq!(told, expected, "another selector");

    // Made anew as it was: its snapshot is there already.
    let mut again = of;
    again.metadata.uid = Some("another".to_owned());
    again.metadata.resource_version = Some("300".to_owned());
    fleet.overrides.of_cluster.observe(again.clone());
    assert_eq!(fleet.told().await, strings(&["bank"]), "made anew");

    // On its way out; then gone, which is no news.
    again.metadata.deletion_timestamp =
        Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    again.metadata.resource_version = Some("301".to_owned());
    fleet.overrides.of_cluster.observe(again.clone());
    assert_eq!(fleet.told().await, strings(&["bank"]), "on its way out");
    fleet.overrides.of_cluster.observe_deleted(&again);
    assert_eq!(fleet.told().await, strings(&[]), "gone");
}

/// What an override did is gone with it: who lost an object from its content is told on, until the next look.
#[tokio::test]
async fn a_placement_is_told_by_what_it_held_at_its_last_look() {
    let mut fleet = Fleet::new();
    let shop = ObjectKey::cluster("shop");
    let other = object("v1", "Namespace", "", "other");
    let look = |fleet: &Fleet, content: &str| {
        fleet
            .overrides
            .any_for(&shop, content, || vec![ObjectId::of(&other)]);
    };
    look(&fleet, "2");
    for (index, (name, expected)) in [("shop", vec!["shop/web"]), ("other", vec!["shop"])]
        .into_iter()
        .enumerate()
    {
        let of: ClusterResourceOverride = fleet.of("", cluster_selector("", "Namespace", name));
        let (_, then) = fleet.change(of, index as u64).await;
        assert_eq!(then, strings(&expected), "{name}");
    }
    fleet.overrides.forget(&shop);
    let of: ClusterResourceOverride = fleet.of("", cluster_selector("", "Namespace", "other"));
    assert_eq!(fleet.change(of, 2).await, (vec![], vec![]));
}

/// A snapshot that somebody deletes is the affair of who uses it.
#[tokio::test]
async fn a_snapshot_that_goes_wakes_who_uses_it() {
    let mut fleet = Fleet::new();
    let of: ClusterResourceOverride = fleet.of("", cluster_selector("", "Namespace", "shop"));
    fleet.change(of, 0).await;
    let binding = json!({"apiVersion": "placement.kubernetes-fleet.io/v1", "kind": "ClusterResourceBinding",
        "metadata": {"name": "b", "labels": {"kubernetes-fleet.io/parent-CRP": "bank"}},
        "spec": {"state": "Bound", "targetCluster": "a", "resourceSnapshotName": "r", "schedulingPolicySnapshotName": "p",
            "clusterDecision": {"clusterName": "a", "selected": true, "reason": ""},
            "clusterResourceOverrideSnapshots": ["o-0"]}});
    fleet
        .bindings
        .observe(serde_json::from_value(binding).unwrap());
    let snapshots = &fleet.overrides.cluster_snapshots;
    let snapshot = snapshots.get(&ObjectKey::cluster("o-0")).unwrap();
    snapshots.observe_deleted(&snapshot);
    assert_eq!(fleet.told().await, strings(&["bank"]));
    assert_eq!(fleet.queues.bindings.len(), 1);
}

#[tokio::test]
async fn a_look_reads_what_can_matter_to_it() {
    let mut fleet = Fleet::new();
    let mut add = |namespace: &str, name: String, spec: Value| {
        let mut of: ResourceOverride = fleet.of(namespace, spec);
        of.metadata.name = Some(name);
        fleet.overrides.of_namespace.observe(of);
    };
    for n in 0..1000 {
        add(&format!("n{n}"), format!("o{n}"), config_map());
        let of_another = pinned(config_map(), "bank", "Cluster");
        add("shop", format!("pinned{n}"), of_another);
    }
    for name in ["x", "y"] {
        add("shop", name.to_owned(), config_map());
    }
    let read: Vec<usize> = contents()
        .iter()
        .map(|(placement, objects)| {
            let objects = placed(objects.iter());
            let found = fleet
                .overrides
                .candidates::<ResourceOverride>(placement, &objects);
            found.len()
        })
        .collect();
    assert_eq!(read, [2, 1000, 2, 0]);
}

/// Content is opened when it has changed, or when an override may matter to it.
#[test]
fn what_is_held_is_read_once() {
    let fleet = Fleet::new();
    let shop = ObjectKey::cluster("shop");
    let mut reads = 0;
    for (content, expected) in [("1", 0), ("1", 0), ("2", 1), ("2", 1), ("1", 2)] {
        fleet.overrides.any_for(&shop, content, || {
            reads += 1;
            Vec::new()
        });
        assert_eq!(reads, expected, "{content}");
    }
}

/// A refusal is told to whom the override concerns, and to delivery where it is named; once, and not to those
/// whom only another version of it concerns.
#[tokio::test]
async fn that_a_version_is_not_stored_is_told_once() {
    let rejected = |why: &str| ApiError::Rejected(why.to_owned());
    let mut fleet = Fleet::new();
    let of: ClusterResourceOverride = fleet.of("", cluster_selector("", "Namespace", "shop"));
    fleet.overrides.of_cluster.observe(of.clone());
    let binding = json!({"apiVersion": "placement.kubernetes-fleet.io/v1", "kind": "ClusterResourceBinding",
        "metadata": {"name": "b", "labels": {"kubernetes-fleet.io/parent-CRP": "shop"}},
        "spec": {"state": "Bound", "targetCluster": "a", "resourceSnapshotName": "r", "schedulingPolicySnapshotName": "p",
            "clusterDecision": {"clusterName": "a", "selected": true, "reason": ""},
            "clusterResourceOverrideSnapshots": ["o-0"]}});
    let binding: Binding = serde_json::from_value(binding).unwrap();
    fleet.bindings.observe(binding.clone());
    let stuck = |of: &ClusterResourceOverride, error: &ApiError| {
        let is_news = fleet.overrides.note_trouble(of, error);
        if is_news {
            fleet.overrides.tell_stuck(of, &fleet.bindings);
        }
    };
    let why = || {
        let missing = fleet.overrides.versions_of(&binding.spec).remove(0);
        missing.unwrap_err().to_string()
    };
    assert_eq!(fleet.overrides.trouble_with(&of), Trouble::None);
    for (error, expected, trouble) in [
        (
            ApiError::transient("an outage"),
            vec!["shop", "shop/web"],
            Trouble::ForNow("an outage".to_owned()),
        ),
        (
            rejected("quota"),
            vec!["shop", "shop/web"],
            Trouble::Refused("quota".to_owned()),
        ),
        (
            rejected("quota"),
            vec![],
            Trouble::Refused("quota".to_owned()),
        ),
    ] {
        stuck(&of, &error);
        assert_eq!(fleet.told().await, strings(&expected), "{error}");
        assert_eq!(fleet.overrides.trouble_with(&of), trouble);
        assert!(why().ends_with(error.message()), "{}", why());
    }
    assert_eq!(fleet.queues.bindings.len(), 1);
    // Another version has a chance of its own; so has another override of the name.
    for (generation, uid) in [(Some(9), "u"), (of.metadata.generation, "v")] {
        let mut other = of.clone();
        other.metadata.generation = generation;
        other.metadata.uid = Some(uid.to_owned());
        assert_eq!(fleet.overrides.trouble_with(&other), Trouble::None);
    }
    fleet.overrides.no_trouble(&ObjectKey::of(&of));
    assert_eq!(fleet.overrides.trouble_with(&of), Trouble::None);
}
