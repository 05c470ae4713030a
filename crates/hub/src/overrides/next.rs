//! The version of an override that counts, and the one that the hub makes next.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use windlass_api::{labels, names};
use windlass_cluster::{Cache, ObjectKey};

use super::BY_PARENT;
use super::kind::Kind;
use super::plan::{Facts, Fate, plan};

/// Which version counts.
pub(super) enum Newest<K: Kind> {
    /// The present one, which has a snapshot.
    Made(Arc<K::Snapshot>),
    /// The present one; the hub is yet to make this snapshot of it.
    Due(K::Snapshot),
}

/// The version of an override that counts, given all snapshots.
pub(super) fn newest<K: Kind>(of: &K, all: &Cache<K::Snapshot>) -> Newest<K> {
    let snapshots = all.by_index(BY_PARENT, &ObjectKey::of(of).to_string());
    let facts: Vec<Facts> = snapshots
        .iter()
        .map(|snapshot| facts(Some(of), &**snapshot, false))
        .collect();
    let create = plan(Fate::Stays, &facts).create;
    let highest = snapshots.iter().max_by_key(|snapshot| index(&***snapshot));
    match (create, highest) {
        (None, Some(highest)) => Newest::Made(Arc::clone(highest)),
        (index, _) => Newest::Due(snapshot(of, free(of, all, index.unwrap_or(0)))),
    }
}

/// The first index from this one on whose name is free: others may have made objects of such names.
pub(super) fn free<K: Kind>(of: &K, all: &Cache<K::Snapshot>, from: u64) -> u64 {
    let ObjectKey { namespace, name } = ObjectKey::of(of);
    let key = |index| ObjectKey::namespaced(&namespace, names::override_snapshot(&name, index));
    let mut index = from;
    while all.get(&key(index)).is_some() {
        index += 1;
    }
    index
}

/// What matters of a snapshot.
pub(super) fn facts<K: Kind>(of: Option<&K>, snapshot: &K::Snapshot, in_use: bool) -> Facts {
    let uid = of.and_then(|of| of.meta().uid.as_deref());
    let owners = snapshot.owner_references();
    let latest = snapshot.labels().get(labels::IS_LATEST_SNAPSHOT);
    Facts {
        index: index(snapshot),
        is_current: of.is_some_and(|of| of.is_in(snapshot)),
        is_labelled: latest.map(String::as_str) == Some("true"),
        is_owned: match uid {
            Some(uid) => owners.iter().any(|owner| owner.uid == uid),
            None => !owners.is_empty(),
        },
        in_use,
    }
}

fn index<S: Resource>(snapshot: &S) -> u64 {
    let label = snapshot.labels().get(labels::OVERRIDE_INDEX);
    label.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// A new snapshot of the present version, which is the latest.
pub(super) fn snapshot<K: Kind>(of: &K, index: u64) -> K::Snapshot {
    let name = of.name_any();
    let mut new = of.snapshot(&names::override_snapshot(&name, index));
    new.meta_mut().labels = Some(BTreeMap::from([
        (labels::PARENT_OVERRIDE.to_owned(), name),
        (labels::OVERRIDE_INDEX.to_owned(), index.to_string()),
        (labels::IS_LATEST_SNAPSHOT.to_owned(), "true".to_owned()),
    ]));
    new.meta_mut().owner_references = Some(vec![owner_reference(of)]);
    new
}

pub(super) fn owner_reference<K: Resource<DynamicType = ()>>(of: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: of.name_any(),
        uid: of.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_api::binding::BindingSpec;
    use windlass_api::overrides::ClusterResourceOverride;

    use windlass_render::ObjectId;

    use super::*;
    use crate::overrides::resolve::Resolved;
    use crate::overrides::{Overrides, by_parent};
    use crate::scoped::ScopedCache;
    use crate::world::Queues;

    fn of(value: &str) -> ClusterResourceOverride {
        let patch = json!({"op": "add", "path": "/metadata/labels/x", "value": value});
        serde_json::from_value(json!({"metadata": {"name": "o", "uid": "u", "resourceVersion": value}, "spec": {
            "clusterResourceSelectors": [{"group": "", "version": "v1", "kind": "Namespace", "name": "web"}],
            "policy": {"overrideRules": [{"clusterSelector": {"clusterSelectorTerms": []},
                "jsonPatchOverrides": [patch]}]}}}))
        .unwrap()
    }

    #[test]
    fn the_version_that_counts() {
        let made = |value: &str, index| snapshot(&of(value), index);
        // Nobody's, or somebody else's, under a name of ours: what it says does not matter.
        let planted = |value: &str, index| {
            let mut planted = made(value, index);
            planted.metadata.labels = None;
            planted
        };
        // Present version; snapshots; the one that counts, and whether it is still to be made.
        let rows = [
            ("1", vec![], "o-0", true),
            ("1", vec![made("1", 0)], "o-0", false),
            ("2", vec![made("1", 0)], "o-1", true),
            ("1", vec![made("1", 0), made("2", 1)], "o-2", true),
            ("2", vec![made("2", 10), made("1", 9)], "o-10", false),
            ("1", vec![planted("1", 0)], "o-1", true),
            ("1", vec![planted("2", 0), planted("2", 1)], "o-2", true),
            ("2", vec![made("1", 0), planted("2", 1)], "o-2", true),
            ("2", vec![planted("2", 0), made("2", 1)], "o-1", false),
        ];
        for (value, snapshots, name, due) in rows {
            let override_ = of(value);
            let all = Cache::detached("snapshots", by_parent());
            for snapshot in snapshots {
                all.observe(snapshot);
            }
            let (found, is_due) = match newest(&override_, &all) {
                Newest::Made(snapshot) => ((*snapshot).clone(), false),
                Newest::Due(snapshot) => (snapshot, true),
            };
            assert_eq!((found.name_any().as_str(), is_due), (name, due));
            assert_eq!(found.spec.override_spec, override_.spec, "{name}");
        }
    }

    #[test]
    fn a_version_without_a_snapshot_is_foreseen() {
        let web = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "web"}});
        let objects = [ObjectId::of(&web)];
        let placement = ObjectKey::cluster("web");
        let bindings = ScopedCache::detached(Default::default);
        let overrides = Overrides::detached(&Queues::default(), &bindings);
        let on_a = BindingSpec {
            target_cluster: "a".to_owned(),
            ..BindingSpec::default()
        };
        let named = |resolved: &Resolved| resolved.lists(&on_a).cluster.unwrap_or_default();
        let look = || {
            let now = overrides.resolve(&placement, &objects, &[], &[]);
            let then = overrides.foresee(&placement, &objects, &[], &[]);
            (
                named(&now),
                now.waits(&on_a),
                named(&then.0),
                then.0.waits(&on_a),
                then.1,
            )
        };
        let none = Vec::<String>::new;
        let list = |name: &str| vec![name.to_owned()];
        let pending = list("ClusterResourceOverride o");
        overrides.of_cluster.observe(of("1"));
        assert_eq!(look(), (none(), true, list("o-0"), false, pending.clone()));
        overrides.cluster_snapshots.observe(snapshot(&of("1"), 0));
        assert_eq!(look(), (list("o-0"), false, list("o-0"), false, none()));
        overrides.of_cluster.observe(of("2"));
        assert_eq!(look(), (none(), true, list("o-1"), false, pending));
    }
}
