//! What a watch delivers, kept: objects by key and by index, and every change told once, in order.
//!
//! Works for typed objects, for `DynamicObject`, and for `PartialObjectMeta` of either: an
//! `Api<PartialObjectMeta<K>>` asks the server for metadata only, by itself
//! ([`Cache::start_metadata`] makes one for a kind that is known at run time).
//!
//! A list replaces the content at once: readers see the old or the new, never a mixture, and only what
//! differs is told. Errors never empty a cache: a kind that may not be listed, or that the server does not
//! know (yet), is tried again for ever, and [`Cache::failure`] says why.
//!
//! Read-your-writes: the answer to a write is put in by [`Cache::observe`], so that the next look sees it
//! without waiting for the watch. Deletions are remembered for a while, so that a late answer can't bring
//! an object back.

mod feed;
mod store;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clock::{self, Instant};
use crate::error::ApiError;
use store::{ListOutcome, Listed, Source, Store};

/// How long a failure of a synced cache's watch is news. A watch that works again is silent until
/// something happens, while one that fails says so at least this often: its longest backoff is a minute,
/// and an attempt ends within half of one.
const FAILURE_IS_NEWS: Duration = Duration::from_secs(120);

/// Namespace (empty for cluster-scoped objects) and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// Key of a cluster-scoped object.
    #[must_use]
    pub fn cluster(name: impl Into<String>) -> Self {
        Self {
            namespace: String::new(),
            name: name.into(),
        }
    }

    /// Key of a namespaced object.
    #[must_use]
    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Key of an object.
    #[must_use]
    pub fn of<K: Resource>(object: &K) -> Self {
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        }
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// One change of one object.
#[derive(Debug)]
pub struct Change<K> {
    /// Which object.
    pub key: ObjectKey,
    /// What it was; none when it is new.
    pub old: Option<Arc<K>>,
    /// What it is; none when it is gone.
    pub new: Option<Arc<K>>,
    /// Whether it comes from the first list.
    pub initial: bool,
}

/// A secondary index: the values under which an object is found.
pub struct Index<K> {
    /// Name of the index.
    pub name: &'static str,
    /// Values of an object.
    pub values: fn(&K) -> Vec<String>,
}

/// Who is told of changes.
pub type OnChange<K> = Arc<dyn Fn(&Change<K>) + Send + Sync>;

/// How a cache treats its objects.
pub struct CacheOptions<K> {
    /// Secondary indexes.
    pub indexes: Vec<Index<K>>,
    /// Drops what is not needed as an object is decoded; managedFields go in any case. Has to leave name,
    /// namespace, uid and resourceVersion alone.
    pub trim: Option<fn(&mut K)>,
    /// Told of every change, in order, after the cache shows it. Has to be quick, and may read any cache;
    /// it may not [`Cache::observe`] in its own, which is waiting for it.
    pub on_change: OnChange<K>,
}

impl<K> Default for CacheOptions<K> {
    fn default() -> Self {
        Self {
            indexes: Vec::new(),
            trim: None,
            on_change: Arc::new(|_| {}),
        }
    }
}

/// See the module. Clones share the cache.
pub struct Cache<K> {
    inner: Arc<Inner<K>>,
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

struct Inner<K> {
    name: &'static str,
    store: RwLock<Store<K>>,
    /// Held over a change and its announcement, so that announcements come in order.
    order: Mutex<()>,
    trim: Option<fn(&mut K)>,
    on_change: OnChange<K>,
    synced: watch::Sender<bool>,
    failure: Mutex<Option<(Instant, ApiError)>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Cache<PartialObjectMeta<DynamicObject>> {
    /// Starts to watch the metadata of a kind that is known at run time, in one namespace or in all.
    #[must_use]
    pub fn start_metadata(
        name: &'static str,
        client: &Client,
        kind: &ApiResource,
        namespace: Option<&str>,
        config: watcher::Config,
        options: CacheOptions<PartialObjectMeta<DynamicObject>>,
    ) -> Self {
        let api = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, kind),
            None => Api::all_with(client.clone(), kind),
        };
        Self::start(name, api, config, options)
    }
}

impl<K> Cache<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Starts to watch. The task ends with [`Self::stop`]. Of the configuration, the selectors, the page
    /// size and the timeout count; lists are always consistent reads.
    #[must_use]
    pub fn start(
        name: &'static str,
        api: Api<K>,
        config: watcher::Config,
        options: CacheOptions<K>,
    ) -> Self {
        let cache = Self::detached(name, options);
        let task = clock::spawn(name, feed::run(cache.clone(), api, config));
        *lock(&cache.inner.task) = Some(task);
        cache
    }

    /// A cache without a watch: what [`Self::start`] fills, and what tests of readers fill by hand.
    #[must_use]
    pub fn detached(name: &'static str, options: CacheOptions<K>) -> Self {
        Self {
            inner: Arc::new(Inner {
                name,
                store: RwLock::new(Store::new(options.indexes)),
                order: Mutex::new(()),
                trim: options.trim,
                on_change: options.on_change,
                synced: watch::Sender::new(false),
                failure: Mutex::new(None),
                task: Mutex::new(None),
            }),
        }
    }

    /// The object of that key.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.read(|store| store.get(key))
    }

    /// Every object, by key.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<K>> {
        self.read(|store| store.iter().map(Arc::clone).collect())
    }

    /// The objects of one namespace, by name.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.read(|store| store.in_namespace(namespace))
    }

    /// The objects under a value of an index, by key. An index that was not declared finds nothing.
    #[must_use]
    pub fn by_index(&self, index: &'static str, value: &str) -> Vec<Arc<K>> {
        self.read(|store| store.by_index(index, value))
            .unwrap_or_else(|| {
                tracing::error!(cache = self.inner.name, index, "no such index");
                Vec::new()
            })
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read(Store::len)
    }

    /// Whether there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the first list is in. Before that, absence means nothing.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.inner.synced.borrow()
    }

    /// Waits until the first list is in, and told.
    pub async fn wait_synced(&self) {
        // The sender lives as long as the cache, so the wait can't fail.
        drop(
            self.inner
                .synced
                .subscribe()
                .wait_for(|synced| *synced)
                .await,
        );
    }

    /// Why the watch does not work at present, if it does not.
    #[must_use]
    pub fn failure(&self) -> Option<ApiError> {
        let (at, error) = lock(&self.inner.failure).clone()?;
        let news =
            !self.is_synced() || clock::monotonic().saturating_duration_since(at) < FAILURE_IS_NEWS;
        news.then_some(error)
    }

    /// [`Self::failure`] in words.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.failure().map(|error| error.to_string())
    }

    /// Puts in the answer to a write of our own, unless the cache knows better. An answer that shows the
    /// end of an object (its last finalizer removed) takes it out.
    ///
    /// Only for objects that the watch covers: nobody would ever take another one out.
    pub fn observe(&self, object: K) {
        let object = Arc::new(self.trimmed(object));
        self.change(|store| store.apply(object, Source::Own));
    }

    /// Takes note of a deletion of our own, given the object as it was. One with finalizers is not gone
    /// yet, and is left to the watch; so have to be kinds that go gracefully (Pods, Namespaces).
    pub fn observe_deleted(&self, object: &K) {
        if object.finalizers().is_empty() {
            let uid = object.meta().uid.as_deref();
            self.change(|store| store.remove(&ObjectKey::of(object), uid, store::version(object)));
        }
    }

    /// Ends the watch. What is in the cache stays.
    pub fn stop(&self) {
        if let Some(task) = lock(&self.inner.task).take() {
            task.abort();
        }
    }

    fn watched(&self, object: K) {
        let object = Arc::new(self.trimmed(object));
        self.change(|store| store.apply(object, Source::Watch));
        self.works();
    }

    fn watched_deletion(&self, object: &K) {
        let uid = object.meta().uid.as_deref();
        self.change(|store| store.remove(&ObjectKey::of(object), uid, store::version(object)));
        self.works();
    }

    fn begin_list(&self) {
        self.write(Store::begin_list);
    }

    /// Makes a complete list the content; returns what it leaves in doubt.
    fn finish_list(&self, listed: Vec<Listed<K>>) -> Vec<ObjectKey> {
        let initial = !self.is_synced();
        let _order = lock(&self.inner.order);
        let ListOutcome { changes, doubtful } = self.write(|store| store.finish_list(listed));
        for change in changes {
            (self.inner.on_change)(&Change { initial, ..change });
        }
        self.works();
        self.inner.synced.send_replace(true);
        doubtful
    }

    fn failed(&self, error: ApiError) {
        tracing::debug!(cache = self.inner.name, %error, "the watch has failed; it is tried again");
        *lock(&self.inner.failure) = Some((clock::monotonic(), error));
    }

    fn works(&self) {
        *lock(&self.inner.failure) = None;
    }

    fn has(&self, key: &ObjectKey, object: &K) -> bool {
        self.read(|store| store.has(key, object))
    }

    fn any_pending(&self, keys: &[ObjectKey]) -> bool {
        self.read(|store| store.any_pending(keys))
    }

    fn trimmed(&self, mut object: K) -> K {
        let meta = object.meta_mut();
        meta.managed_fields = None;
        // A decoded list has room for four.
        meta.finalizers.iter_mut().for_each(Vec::shrink_to_fit);
        meta.owner_references
            .iter_mut()
            .for_each(Vec::shrink_to_fit);
        if let Some(trim) = self.inner.trim {
            trim(&mut object);
        }
        object
    }

    /// Changes the content, then tells.
    fn change(&self, f: impl FnOnce(&mut Store<K>) -> Option<Change<K>>) {
        let _order = lock(&self.inner.order);
        if let Some(change) = self.write(f) {
            (self.inner.on_change)(&change);
        }
    }

    fn read<T>(&self, f: impl FnOnce(&Store<K>) -> T) -> T {
        f(&self
            .inner
            .store
            .read()
            .unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, f: impl FnOnce(&mut Store<K>) -> T) -> T {
        f(&mut self
            .inner
            .store
            .write()
            .unwrap_or_else(PoisonError::into_inner))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
