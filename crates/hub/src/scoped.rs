//! Caches of what comes in both scopes: one watch per kind, one lookup by key.

use std::fmt::Debug;
use std::sync::Arc;

use kube::core::DynamicResourceScope;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use windlass_api::scoped::Scope;
use windlass_cluster::{Cache, CacheOptions, ObjectKey};

/// An object of a kind that comes in both scopes.
pub trait Scoped:
    Resource<DynamicType = Scope, Scope = DynamicResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Scoped for K where
    K: Resource<DynamicType = Scope, Scope = DynamicResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// The API of a kind in a namespace; in an empty one, of the cluster-scoped kind.
#[must_use]
pub fn api_in<K: Scoped>(client: Client, namespace: &str) -> Api<K> {
    match Scope::of_namespace(Some(namespace)) {
        scope @ Scope::Cluster => Api::all_with(client, &scope),
        scope @ Scope::Namespaced => Api::namespaced_with(client, namespace, &scope),
    }
}

/// See the module. Clones share the caches.
pub struct ScopedCache<K> {
    cluster: Cache<K>,
    namespaced: Cache<K>,
}

impl<K> Clone for ScopedCache<K> {
    fn clone(&self) -> Self {
        Self {
            cluster: self.cluster.clone(),
            namespaced: self.namespaced.clone(),
        }
    }
}

impl<K: Scoped> ScopedCache<K> {
    /// Starts both watches; `options` are made for each.
    #[must_use]
    pub fn start(
        name: &'static str,
        client: &Client,
        options: impl Fn() -> CacheOptions<K>,
    ) -> Self {
        let start = |scope| {
            let api = Api::all_with(client.clone(), &scope);
            Cache::start(name, api, watcher::Config::default(), options())
        };
        Self {
            cluster: start(Scope::Cluster),
            namespaced: start(Scope::Namespaced),
        }
    }

    /// Caches that only a test fills.
    #[cfg(test)]
    pub fn detached(options: impl Fn() -> CacheOptions<K>) -> Self {
        Self {
            cluster: Cache::detached("a test's", options()),
            namespaced: Cache::detached("a test's", options()),
        }
    }

    /// The object of that key.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.of(key).get(key)
    }

    /// Every object, the cluster-scoped ones first.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<K>> {
        let mut all = self.cluster.list();
        all.extend(self.namespaced.list());
        all
    }

    /// The objects of both scopes under a value of an index.
    #[must_use]
    pub fn by_index(&self, index: &'static str, value: &str) -> Vec<Arc<K>> {
        let mut all = self.cluster.by_index(index, value);
        all.extend(self.namespaced.by_index(index, value));
        all
    }

    /// The objects under a value of an index, of the scope of that key and with its text as the value.
    #[must_use]
    pub fn under(&self, index: &'static str, key: &ObjectKey) -> Vec<Arc<K>> {
        self.of(key).by_index(index, &key.to_string())
    }

    /// See [`Cache::observe`].
    pub fn observe(&self, object: K) {
        self.of(&ObjectKey::of(&object)).observe(object);
    }

    /// See [`Cache::observe_deleted`].
    pub fn observe_deleted(&self, object: &K) {
        self.of(&ObjectKey::of(object)).observe_deleted(object);
    }

    /// Waits until both have their first list.
    pub async fn wait_synced(&self) {
        self.cluster.wait_synced().await;
        self.namespaced.wait_synced().await;
    }

    /// What is not listed yet, by the plural of its kind, and why if that is known.
    pub fn unsynced(&self) -> impl Iterator<Item = (String, Option<String>)> {
        [
            (Scope::Cluster, &self.cluster),
            (Scope::Namespaced, &self.namespaced),
        ]
        .into_iter()
        .filter(|(_, cache)| !cache.is_synced())
        .map(|(scope, cache)| (K::plural(&scope).into_owned(), cache.last_error()))
    }

    /// Ends both watches.
    pub fn stop(&self) {
        self.cluster.stop();
        self.namespaced.stop();
    }

    fn of(&self, key: &ObjectKey) -> &Cache<K> {
        match Scope::of_namespace(Some(&key.namespace)) {
            Scope::Cluster => &self.cluster,
            Scope::Namespaced => &self.namespaced,
        }
    }
}
