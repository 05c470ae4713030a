//! What a watch delivers, kept: objects by key and by index, and every change told once, in order.
//!
//! Read-your-writes: the answer to a write is put in by [`Cache::observe`], so that the next look sees it
//! without waiting for the watch. Deletions of objects by UID are remembered for a while, so that a late
//! answer can't bring one back.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use futures::{TryStreamExt, pin_mut};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clock;

/// How many deleted UIDs are remembered.
const TOMBSTONES: usize = 4096;

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

/// How a cache treats its objects.
pub struct CacheOptions<K> {
    /// Secondary indexes.
    pub indexes: Vec<Index<K>>,
    /// Drops what is not needed as an object is decoded; managedFields go in any case.
    pub trim: Option<fn(&mut K)>,
    /// Told of every change, in order, after the cache shows it; has to be quick.
    pub on_change: Arc<dyn Fn(&Change<K>) + Send + Sync>,
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
    options: CacheOptions<K>,
    synced: watch::Sender<bool>,
    error: Mutex<Option<String>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Store<K> {
    objects: BTreeMap<ObjectKey, Entry<K>>,
    indexes: Vec<HashMap<String, BTreeSet<ObjectKey>>>,
    deleted: HashSet<String>,
    deleted_order: VecDeque<String>,
}

struct Entry<K> {
    object: Arc<K>,
    /// Put in by us, not seen by the watch yet.
    own: bool,
}

impl<K> Cache<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Starts to watch. The task ends with [`Self::stop`].
    #[must_use]
    pub fn start(
        name: &'static str,
        api: Api<K>,
        config: watcher::Config,
        options: CacheOptions<K>,
    ) -> Self {
        let cache = Self::detached(name, options);
        let task = clock::spawn("watch", run(cache.clone(), api, config));
        *lock(&cache.inner.task) = Some(task);
        cache
    }

    /// A cache without a watch: what [`Self::start`] fills, and what tests of readers fill by hand.
    #[must_use]
    pub fn detached(name: &'static str, options: CacheOptions<K>) -> Self {
        let store = Store {
            objects: BTreeMap::new(),
            indexes: options.indexes.iter().map(|_| HashMap::new()).collect(),
            deleted: HashSet::new(),
            deleted_order: VecDeque::new(),
        };
        Self {
            inner: Arc::new(Inner {
                name,
                store: RwLock::new(store),
                order: Mutex::new(()),
                options,
                synced: watch::Sender::new(false),
                error: Mutex::new(None),
                task: Mutex::new(None),
            }),
        }
    }

    /// The object of that key.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.read(|store| {
            store
                .objects
                .get(key)
                .map(|entry| Arc::clone(&entry.object))
        })
    }

    /// Every object, by key.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<K>> {
        self.read(|store| {
            store
                .objects
                .values()
                .map(|entry| Arc::clone(&entry.object))
                .collect()
        })
    }

    /// The objects of one namespace, by name.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let from = ObjectKey::namespaced(namespace, "");
        self.read(|store| {
            store
                .objects
                .range(from..)
                .take_while(|(key, _)| key.namespace == namespace)
                .map(|(_, entry)| Arc::clone(&entry.object))
                .collect()
        })
    }

    /// The objects under a value of an index, by key. An index that was not declared finds nothing.
    #[must_use]
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        let Some(position) = self
            .inner
            .options
            .indexes
            .iter()
            .position(|i| i.name == index)
        else {
            tracing::error!(cache = self.inner.name, index, "no such index");
            return Vec::new();
        };
        self.read(|store| {
            let Some(keys) = store.indexes[position].get(value) else {
                return Vec::new();
            };
            keys.iter()
                .filter_map(|key| store.objects.get(key))
                .map(|entry| Arc::clone(&entry.object))
                .collect()
        })
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read(|store| store.objects.len())
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

    /// Waits for the first list.
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
    pub fn last_error(&self) -> Option<String> {
        lock(&self.inner.error).clone()
    }

    /// Puts in the answer to a write of our own, unless the cache knows better.
    pub fn observe(&self, object: K) {
        self.apply(object, false, true);
    }

    /// Takes note of a deletion of our own that had no finalizer to wait for.
    pub fn observe_deleted(&self, object: &K) {
        self.remove(&ObjectKey::of(object), object.uid().as_deref(), false);
    }

    /// Ends the watch. What is in the cache stays.
    pub fn stop(&self) {
        if let Some(task) = lock(&self.inner.task).take() {
            task.abort();
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

    fn trimmed(&self, mut object: K) -> K {
        object.meta_mut().managed_fields = None;
        if let Some(trim) = self.inner.options.trim {
            trim(&mut object);
        }
        object
    }

    fn apply(&self, object: K, initial: bool, own: bool) {
        let object = Arc::new(self.trimmed(object));
        let key = ObjectKey::of(&*object);
        let _order = lock(&self.inner.order);
        let old = self.write(|store| {
            if object.uid().is_some_and(|uid| store.deleted.contains(&uid)) {
                return None;
            }
            if let Some(entry) = store.objects.get_mut(&key) {
                if !is_newer(&*entry.object, &*object) {
                    entry.own &= own;
                    return None;
                }
            } else if own
                && object.meta().deletion_timestamp.is_some()
                && object.finalizers().is_empty()
            {
                return None;
            }
            Some(store.insert(
                &self.inner.options.indexes,
                key.clone(),
                Entry {
                    object: Arc::clone(&object),
                    own,
                },
            ))
        });
        if let Some(old) = old {
            self.announce(Change {
                key,
                old,
                new: Some(object),
                initial,
            });
        }
    }

    fn remove(&self, key: &ObjectKey, uid: Option<&str>, initial: bool) {
        let _order = lock(&self.inner.order);
        let old = self.write(|store| {
            if let Some(uid) = uid {
                store.bury(uid);
            }
            let entry = store.objects.get(key)?;
            // Another object of that name may have taken its place.
            if uid.is_some() && entry.object.uid().as_deref() != uid {
                return None;
            }
            store.take(&self.inner.options.indexes, key)
        });
        if let Some(old) = old {
            self.announce(Change {
                key: key.clone(),
                old: Some(old),
                new: None,
                initial,
            });
        }
    }

    /// Makes a complete list the content. What we wrote after the list was made stays.
    fn replace_all(&self, listed: Vec<K>) {
        let first = !self.is_synced();
        let newest = listed.iter().filter_map(version).max();
        let keys: HashSet<ObjectKey> = listed.iter().map(ObjectKey::of).collect();
        for object in listed {
            self.apply(object, first, false);
        }
        let gone: Vec<(ObjectKey, Option<String>)> = self.read(|store| {
            store
                .objects
                .iter()
                .filter(|(key, entry)| {
                    let newer_than_list = entry.own && version(&*entry.object) > newest;
                    !keys.contains(*key) && !newer_than_list
                })
                .map(|(key, entry)| (key.clone(), entry.object.uid()))
                .collect()
        });
        for (key, uid) in gone {
            self.remove(&key, uid.as_deref(), first);
        }
        self.inner.synced.send_replace(true);
        *lock(&self.inner.error) = None;
    }

    fn announce(&self, change: Change<K>) {
        (self.inner.options.on_change)(&change);
    }
}

async fn run<K>(cache: Cache<K>, api: Api<K>, config: watcher::Config)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let events = watcher(api, config).default_backoff();
    pin_mut!(events);
    let mut listed = Vec::new();
    loop {
        match events.try_next().await {
            Ok(Some(watcher::Event::Init)) => listed.clear(),
            Ok(Some(watcher::Event::InitApply(object))) => listed.push(cache.trimmed(object)),
            Ok(Some(watcher::Event::InitDone)) => cache.replace_all(std::mem::take(&mut listed)),
            Ok(Some(watcher::Event::Apply(object))) => {
                cache.apply(object, false, false);
                *lock(&cache.inner.error) = None;
            }
            Ok(Some(watcher::Event::Delete(object))) => {
                cache.remove(&ObjectKey::of(&object), object.uid().as_deref(), false);
            }
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(cache = cache.inner.name, %error, "watch failed; it is tried again");
                *lock(&cache.inner.error) = Some(error.to_string());
            }
        }
    }
}

impl<K: Resource> Store<K> {
    fn insert(&mut self, indexes: &[Index<K>], key: ObjectKey, entry: Entry<K>) -> Option<Arc<K>> {
        let old = self.take(indexes, &key);
        for (index, map) in indexes.iter().zip(&mut self.indexes) {
            for value in (index.values)(&entry.object) {
                map.entry(value).or_default().insert(key.clone());
            }
        }
        self.objects.insert(key, entry);
        old
    }

    fn take(&mut self, indexes: &[Index<K>], key: &ObjectKey) -> Option<Arc<K>> {
        let entry = self.objects.remove(key)?;
        for (index, map) in indexes.iter().zip(&mut self.indexes) {
            for value in (index.values)(&entry.object) {
                if let Some(keys) = map.get_mut(&value) {
                    keys.remove(key);
                    if keys.is_empty() {
                        map.remove(&value);
                    }
                }
            }
        }
        Some(entry.object)
    }

    fn bury(&mut self, uid: &str) {
        if self.deleted.insert(uid.to_owned()) {
            self.deleted_order.push_back(uid.to_owned());
        }
        if self.deleted_order.len() > TOMBSTONES
            && let Some(oldest) = self.deleted_order.pop_front()
        {
            self.deleted.remove(&oldest);
        }
    }
}

/// Resource versions of one server are numbers that grow (KEP-5504).
fn version<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

fn is_newer<K: Resource>(old: &K, new: &K) -> bool {
    match (version(old), version(new)) {
        (Some(old), Some(new)) => new > old,
        _ => old.meta().resource_version != new.meta().resource_version,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn object(name: &str, uid: &str, version: u64, team: &str) -> ConfigMap {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": version.to_string(),
                          "labels": {"team": team}, "managedFields": [{"manager": "m"}]},
        }))
        .unwrap()
    }

    type Log = Arc<Mutex<Vec<String>>>;

    fn cache() -> (Cache<ConfigMap>, Log) {
        let log = Log::default();
        let told = Arc::clone(&log);
        let options = CacheOptions {
            indexes: vec![Index {
                name: "team",
                values: |object: &ConfigMap| {
                    object.labels().get("team").cloned().into_iter().collect()
                },
            }],
            trim: None,
            on_change: Arc::new(move |change: &Change<ConfigMap>| {
                let word = match (&change.old, &change.new) {
                    (None, Some(_)) => "add",
                    (Some(_), Some(_)) => "change",
                    _ => "delete",
                };
                told.lock()
                    .unwrap()
                    .push(format!("{word} {}", change.key.name));
            }),
        };
        (Cache::detached("test", options), log)
    }

    fn drain(log: &Log) -> Vec<String> {
        std::mem::take(&mut log.lock().unwrap())
    }

    #[test]
    fn a_list_replaces_what_was_there_and_tells_only_real_changes() {
        let (cache, log) = cache();
        assert!(!cache.is_synced());
        cache.replace_all(vec![object("a", "1", 1, "x"), object("b", "2", 2, "x")]);
        assert!(cache.is_synced());
        assert_eq!(drain(&log), ["add a", "add b"]);
        cache.replace_all(vec![object("a", "1", 1, "x"), object("c", "3", 5, "y")]);
        assert_eq!(drain(&log), ["add c", "delete b"]);
        assert!(
            cache
                .get(&ObjectKey::namespaced("n", "a"))
                .unwrap()
                .metadata
                .managed_fields
                .is_none()
        );
    }

    #[test]
    fn indexes_follow_changes() {
        let (cache, _) = cache();
        cache.apply(object("a", "1", 1, "x"), false, false);
        assert_eq!(cache.by_index("team", "x").len(), 1);
        cache.apply(object("a", "1", 2, "y"), false, false);
        assert!(cache.by_index("team", "x").is_empty());
        assert_eq!(cache.by_index("team", "y").len(), 1);
        cache.remove(&ObjectKey::namespaced("n", "a"), Some("1"), false);
        assert!(cache.by_index("team", "y").is_empty());
    }

    #[test]
    fn own_writes_are_seen_at_once_and_the_echo_is_no_change() {
        let (cache, log) = cache();
        cache.observe(object("a", "1", 7, "x"));
        cache.apply(object("a", "1", 7, "x"), false, false);
        cache.apply(object("a", "1", 6, "old"), false, false);
        assert_eq!(drain(&log), ["add a"]);
        assert_eq!(cache.by_index("team", "x").len(), 1);
    }

    #[test]
    fn an_answer_that_comes_after_the_deletion_brings_nothing_back() {
        let (cache, _) = cache();
        cache.apply(object("a", "1", 1, "x"), false, false);
        cache.remove(&ObjectKey::namespaced("n", "a"), Some("1"), false);
        cache.observe(object("a", "1", 2, "x"));
        assert!(cache.is_empty());
        cache.observe(object("a", "2", 9, "x"));
        assert_eq!(
            cache.len(),
            1,
            "a new object of the same name is another one"
        );
    }

    #[test]
    fn a_list_that_is_older_than_our_write_does_not_undo_it() {
        let (cache, _) = cache();
        cache.replace_all(vec![object("a", "1", 1, "x")]);
        cache.observe(object("b", "2", 9, "x"));
        cache.replace_all(vec![object("a", "1", 1, "x")]);
        assert_eq!(cache.len(), 2);
        cache.apply(object("b", "2", 9, "x"), false, false);
        cache.replace_all(vec![object("a", "1", 1, "x")]);
        assert_eq!(
            cache.len(),
            1,
            "once the watch has shown it, a list without it means it is gone"
        );
    }
}
