//! Overrides: what differs on some clusters.
//!
//! The hub makes an immutable snapshot of every version of an override ([`actor`], which alone writes
//! them). A binding names the snapshots that are in effect on its cluster ([`resolve`]), so that a change
//! of an override rolls out as a change of a resource does. What they do to manifests is for
//! `windlass_render`.
//!
//! A version counts once its snapshot is made. Until then nothing of the placements with strategy RollingUpdate
//! that it is for moves: no content goes out with an old override after the new one was seen. Under External
//! nothing is held; whoever rolls out there has to wait for the snapshot.

pub mod actor;
mod kind;
pub mod leave;
mod next;
mod plan;
pub mod resolve;
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
    ClusterResourceOverride, ClusterResourceOverrideSnapshot, PlacementRef, ResourceOverride,
    ResourceOverrideSnapshot, ResourceScope,
};
use windlass_api::scoped::{Binding, Placement};
use windlass_cluster::{Cache, CacheOptions, Change, Index, ObjectKey};

use self::kind::{Kind, Object};
pub use self::version::Version;
use crate::scoped::ScopedCache;
use crate::world::{BY_OVERRIDE, Queues, enqueue};

/// Index of override snapshots: the key of their override.
const BY_PARENT: &str = "parent";

/// Overrides and their snapshots. Clones share the caches.
#[derive(Clone)]
pub struct Overrides {
    of_cluster: Cache<ClusterResourceOverride>,
    of_namespace: Cache<ResourceOverride>,
    cluster_snapshots: Cache<ClusterResourceOverrideSnapshot>,
    snapshots: Cache<ResourceOverrideSnapshot>,
}

impl Overrides {
    /// Starts the watches. A change tells the placements that it may concern.
    #[must_use]
    pub fn start(
        client: &Client,
        queues: &Queues,
        placements: &ScopedCache<Placement>,
        bindings: &ScopedCache<Binding>,
    ) -> Self {
        let all = watcher::Config::default;
        Self {
            of_cluster: Cache::start(
                "cluster overrides",
                Api::all(client.clone()),
                all(),
                override_options(queues, placements),
            ),
            of_namespace: Cache::start(
                "overrides",
                Api::all(client.clone()),
                all(),
                override_options(queues, placements),
            ),
            cluster_snapshots: Cache::start(
                "cluster override snapshots",
                Api::all(client.clone()),
                all(),
                snapshot_options::<ClusterResourceOverride>(queues, placements, bindings),
            ),
            snapshots: Cache::start(
                "override snapshots",
                Api::all(client.clone()),
                all(),
                snapshot_options::<ResourceOverride>(queues, placements, bindings),
            ),
        }
    }

    /// Starts the watches for somebody who only looks.
    #[must_use]
    pub fn look(client: &Client) -> Self {
        let all = watcher::Config::default;
        let api = || client.clone();
        Self {
            of_cluster: Cache::start("overrides", Api::all(api()), all(), CacheOptions::default()),
            of_namespace: Cache::start(
                "overrides",
                Api::all(api()),
                all(),
                CacheOptions::default(),
            ),
            cluster_snapshots: Cache::start("overrides", Api::all(api()), all(), by_parent()),
            snapshots: Cache::start("overrides", Api::all(api()), all(), by_parent()),
        }
    }

    /// Caches that nothing fills.
    #[cfg(test)]
    fn detached() -> Self {
        Self {
            of_cluster: Cache::detached("overrides", CacheOptions::default()),
            of_namespace: Cache::detached("overrides", CacheOptions::default()),
            cluster_snapshots: Cache::detached("overrides", by_parent()),
            snapshots: Cache::detached("overrides", by_parent()),
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
fn parent_of_named(snapshot: &ObjectKey) -> Option<ObjectKey> {
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

fn override_options<K: Kind>(
    queues: &Queues,
    placements: &ScopedCache<Placement>,
) -> CacheOptions<K> {
    let (queues, placements) = (queues.clone(), placements.clone());
    CacheOptions {
        on_change: Arc::new(move |change: &Change<K>| {
            enqueue(&queues.overrides, change.key.clone(), change.initial);
            let (old, new) = (change.old.as_deref(), change.new.as_deref());
            // A finalizer that we set is no news.
            let same = matches!((old, new), (Some(old), Some(new))
                if old.meta().generation == new.meta().generation
                    && old.meta().deletion_timestamp == new.meta().deletion_timestamp
                    && old.meta().uid == new.meta().uid);
            if !same {
                let references = [old, new].into_iter().flatten().map(K::placement);
                tell(
                    &queues,
                    &placements,
                    &change.key.namespace,
                    references,
                    change.initial,
                );
            }
        }),
        ..Default::default()
    }
}

fn snapshot_options<K: Kind>(
    queues: &Queues,
    placements: &ScopedCache<Placement>,
    bindings: &ScopedCache<Binding>,
) -> CacheOptions<K::Snapshot> {
    let (queues, placements, bindings) = (queues.clone(), placements.clone(), bindings.clone());
    CacheOptions {
        on_change: Arc::new(move |change: &Change<K::Snapshot>| {
            let (old, new) = (change.old.as_deref(), change.new.as_deref());
            for parent in [old, new].into_iter().flatten().filter_map(parent_of) {
                enqueue(&queues.overrides, parent, change.initial);
            }
            // Labels and owners mean nothing to others; what a snapshot says does not change.
            let same = matches!((old, new), (Some(old), Some(new))
                if K::same_content(old, new) && old.meta().uid == new.meta().uid);
            if same {
                return;
            }
            for binding in bindings.by_index(BY_OVERRIDE, &change.key.to_string()) {
                enqueue(&queues.bindings, ObjectKey::of(&*binding), change.initial);
            }
            let references = [old, new].into_iter().flatten().map(K::placement_of);
            tell(
                &queues,
                &placements,
                &change.key.namespace,
                references,
                change.initial,
            );
        }),
        ..by_parent()
    }
}

/// Tells the placements that an override may be for.
fn tell<'a>(
    queues: &Queues,
    placements: &ScopedCache<Placement>,
    namespace: &str,
    references: impl Iterator<Item = Option<&'a PlacementRef>>,
    initial: bool,
) {
    let mut told = BTreeSet::new();
    for reference in references {
        match reference {
            Some(reference) => {
                let namespace = match reference.scope.unwrap_or(ResourceScope::Cluster) {
                    ResourceScope::Cluster => "",
                    ResourceScope::Namespaced => namespace,
                };
                told.insert(ObjectKey::namespaced(namespace, &reference.name));
            }
            None => told.extend(
                placements
                    .list()
                    .iter()
                    .map(|placement| ObjectKey::of(&**placement)),
            ),
        }
    }
    for placement in told {
        enqueue(&queues.placements, placement, initial);
    }
}
