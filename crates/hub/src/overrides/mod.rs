//! Overrides: what differs on some clusters.
//!
//! The hub makes an immutable snapshot of every version of an override ([`actor`], which alone writes
//! them). A binding names the snapshots that are in effect on its cluster ([`resolve`]), so that a change
//! of an override rolls out as a change of a resource does. What they do to manifests is for
//! `windlass_render`.
//!
//! A version counts once its snapshot is made. Until then no cluster moves on which it would change something, of
//! the placements with strategy RollingUpdate that it is for: no content goes out with an old override after the
//! new one was seen ([`pending`]). Under External nothing is held; whoever rolls out there has to wait for the
//! snapshot.

pub mod actor;
mod kind;
pub mod leave;
mod next;
pub mod pending;
mod plan;
pub mod resolve;
mod tell;
#[cfg(test)]
mod tell_test;
#[cfg(test)]
mod tests;
mod version;

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use windlass_api::binding::BindingSpec;
use windlass_api::labels;
use windlass_api::overrides::{
    ClusterResourceOverride, ClusterResourceOverrideSnapshot, ResourceOverride,
    ResourceOverrideSnapshot,
};
use windlass_api::scoped::Binding;
use windlass_cluster::{Cache, CacheOptions, Change, Index, ObjectKey};

use self::kind::Object;
use self::pending::Troubles;
use self::tell::{Asking, by_subject, override_options, snapshot_options};
pub use self::version::Version;
use crate::scoped::ScopedCache;
use crate::world::Queues;

/// Index of override snapshots: the key of their override.
const BY_PARENT: &str = "parent";

/// Overrides and their snapshots. Clones share the caches.
#[derive(Clone)]
pub struct Overrides {
    of_cluster: Cache<ClusterResourceOverride>,
    of_namespace: Cache<ResourceOverride>,
    cluster_snapshots: Cache<ClusterResourceOverrideSnapshot>,
    snapshots: Cache<ResourceOverrideSnapshot>,
    asking: Asking,
    troubles: Troubles,
    queues: Queues,
}

impl Overrides {
    /// Starts the watches. A change tells the placements that it may concern.
    #[must_use]
    pub fn start(client: &Client, queues: &Queues, bindings: &ScopedCache<Binding>) -> Self {
        let all = watcher::Config::default;
        let api = || client.clone();
        let asking = Asking::default();
        let cluster_snapshots = Cache::start(
            "cluster override snapshots",
            Api::all(api()),
            all(),
            snapshot_options::<ClusterResourceOverride>(queues, &asking, bindings),
        );
        let snapshots = Cache::start(
            "override snapshots",
            Api::all(api()),
            all(),
            snapshot_options::<ResourceOverride>(queues, &asking, bindings),
        );
        let of_cluster = override_options(queues, &asking, &cluster_snapshots);
        let of_namespace = override_options(queues, &asking, &snapshots);
        Self {
            of_cluster: Cache::start("cluster overrides", Api::all(api()), all(), of_cluster),
            of_namespace: Cache::start("overrides", Api::all(api()), all(), of_namespace),
            cluster_snapshots,
            snapshots,
            asking,
            troubles: Troubles::default(),
            queues: queues.clone(),
        }
    }

    /// Starts the watches for somebody who only looks.
    #[must_use]
    pub fn look(client: &Client) -> Self {
        let all = watcher::Config::default;
        let api = || client.clone();
        Self {
            of_cluster: Cache::start("overrides", Api::all(api()), all(), by_subject()),
            of_namespace: Cache::start("overrides", Api::all(api()), all(), by_subject()),
            cluster_snapshots: Cache::start("overrides", Api::all(api()), all(), by_parent()),
            snapshots: Cache::start("overrides", Api::all(api()), all(), by_parent()),
            asking: Asking::default(),
            troubles: Troubles::default(),
            queues: Queues::default(),
        }
    }

    /// Caches that only a test fills. A change tells whom it concerns.
    #[cfg(test)]
    fn detached(queues: &Queues, bindings: &ScopedCache<Binding>) -> Self {
        let asking = Asking::default();
        let cluster_snapshots = Cache::detached(
            "overrides",
            snapshot_options::<ClusterResourceOverride>(queues, &asking, bindings),
        );
        let snapshots = Cache::detached(
            "overrides",
            snapshot_options::<ResourceOverride>(queues, &asking, bindings),
        );
        let of_cluster = override_options(queues, &asking, &cluster_snapshots);
        let of_namespace = override_options(queues, &asking, &snapshots);
        Self {
            of_cluster: Cache::detached("overrides", of_cluster),
            of_namespace: Cache::detached("overrides", of_namespace),
            cluster_snapshots,
            snapshots,
            asking,
            troubles: Troubles::default(),
            queues: queues.clone(),
        }
    }

    /// Waits until every watch has delivered its first list.
    pub async fn wait_synced(&self) {
        futures::join!(
            self.of_cluster.wait_synced(),
            self.of_namespace.wait_synced(),
            self.cluster_snapshots.wait_synced(),
            self.snapshots.wait_synced(),
        );
    }

    /// What is not listed yet, and why if that is known.
    pub fn unsynced(&self) -> impl Iterator<Item = (String, Option<String>)> {
        [
            unsynced(&self.of_cluster),
            unsynced(&self.of_namespace),
            unsynced(&self.cluster_snapshots),
            unsynced(&self.snapshots),
        ]
        .into_iter()
        .flatten()
    }

    /// Ends the watches.
    pub fn stop(&self) {
        self.of_cluster.stop();
        self.of_namespace.stop();
        self.cluster_snapshots.stop();
        self.snapshots.stop();
    }

    /// The snapshot of that key; without a namespace, of a ClusterResourceOverride.
    #[must_use]
    pub fn version(&self, key: &ObjectKey) -> Option<Version> {
        if key.namespace.is_empty() {
            self.cluster_snapshots.get(key).map(Version::Cluster)
        } else {
            self.snapshots.get(key).map(Version::Namespaced)
        }
    }
}

fn unsynced<K: Object>(cache: &Cache<K>) -> Option<(String, Option<String>)> {
    (!cache.is_synced()).then(|| (K::plural(&()).into_owned(), cache.last_error()))
}

/// The override snapshots that a binding names, in the order in which they are applied.
#[must_use]
pub fn named_by(spec: &BindingSpec) -> Vec<ObjectKey> {
    let of_cluster = spec.cluster_resource_override_snapshots.iter().flatten();
    let of_namespace = spec.resource_override_snapshots.iter().flatten();
    of_cluster
        .map(ObjectKey::cluster)
        .chain(of_namespace.map(|named| ObjectKey::namespaced(&named.namespace, &named.name)))
        .collect()
}

/// The overrides whose snapshots a binding does not name any more: one of them may be the last use of it.
pub fn dropped(change: &Change<Binding>) -> BTreeSet<ObjectKey> {
    let names = |binding: &Option<Arc<Binding>>| -> BTreeSet<ObjectKey> {
        let spec = binding.as_ref().map(|binding| &binding.spec);
        spec.map(named_by).into_iter().flatten().collect()
    };
    let (old, new) = (names(&change.old), names(&change.new));
    old.difference(&new).filter_map(parent_of_named).collect()
}

/// Names of snapshots are made from those of their overrides (API §5.4).
pub(crate) fn parent_of_named(snapshot: &ObjectKey) -> Option<ObjectKey> {
    let (name, _) = snapshot.name.rsplit_once('-')?;
    Some(ObjectKey::namespaced(&snapshot.namespace, name))
}

fn parent_of<K: kube::Resource>(snapshot: &K) -> Option<ObjectKey> {
    let name = snapshot.labels().get(labels::PARENT_OVERRIDE)?;
    let namespace = snapshot.meta().namespace.as_deref().unwrap_or_default();
    Some(ObjectKey::namespaced(namespace, name))
}

fn by_parent<K: Resource + 'static>() -> CacheOptions<K> {
    CacheOptions {
        indexes: vec![Index {
            name: BY_PARENT,
            values: |object| parent_of(object).iter().map(ObjectKey::to_string).collect(),
        }],
        ..Default::default()
    }
}
