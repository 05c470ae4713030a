//! Watches on what was placed: one per kind in use, scoped to our label, so that other objects of the
//! member cost nothing. A change wakes the Works that own the object, or did until then: an object that
//! leaves a watch may be gone, or may have lost the label.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::{DashMap, DashSet};
use futures::future::join_all;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Api, Client};
use windlass_api::labels;
use windlass_cluster::discovery::KnownKind;
use windlass_cluster::{Cache, CacheOptions, Change, ObjectKey};

use crate::availability::assess;
use crate::manifest::ManifestId;
use crate::memory::Memory;
use crate::object::{state_of, works_of};

/// How long a pass waits for a first list. After that it reads each object: a list that is refused, or
/// does not come, holds nothing up.
const PATIENCE: Duration = Duration::from_secs(2);

/// Told the name of the Work whose objects have changed.
pub(crate) type Wake = Arc<dyn Fn(&str) + Send + Sync>;

/// See the module.
pub(crate) struct Watches {
    client: Client,
    wake: Wake,
    memory: Arc<Memory>,
    /// Versions by UID that are answers to writes of our own: their news is none.
    own: Arc<DashMap<String, String>>,
    /// Works that are told of every change of a status.
    mirrors: Arc<DashSet<String>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    caches: HashMap<GroupVersionKind, Cache<DynamicObject>>,
    /// Kinds in use, by Work.
    uses: HashMap<String, HashSet<GroupVersionKind>>,
}

impl Watches {
    pub fn new(client: Client, wake: Wake, memory: Arc<Memory>) -> Self {
        Self {
            client,
            wake,
            memory,
            own: Arc::default(),
            mirrors: Arc::default(),
            state: Mutex::default(),
        }
    }

    /// Says which kinds a Work uses from now on: watches that are needed start, others end. Waits a little
    /// for first lists.
    pub async fn claim(&self, work: &str, kinds: &[&KnownKind]) {
        let caches = self.claimed(work, kinds);
        let unsynced = caches
            .iter()
            .filter(|cache| !cache.is_synced() && cache.last_error().is_none());
        let first_lists = join_all(unsynced.map(Cache::wait_synced));
        // What is late is read object by object.
        drop(tokio::time::timeout(PATIENCE, first_lists).await);
    }

    /// Says whether a Work is told of every change of a status.
    pub fn mirror(&self, work: &str, yes: bool) {
        if !yes {
            self.mirrors.remove(work);
        } else if !self.mirrors.contains(work) {
            self.mirrors.insert(work.to_owned());
        }
    }

    fn claimed(&self, work: &str, kinds: &[&KnownKind]) -> Vec<Cache<DynamicObject>> {
        let mut state = self.lock();
        let used: HashSet<_> = kinds
            .iter()
            .filter(|kind| kind.watchable)
            .map(|kind| gvk(kind))
            .collect();
        if used.is_empty() {
            state.uses.remove(work);
        } else if state.uses.get(work) != Some(&used) {
            state.uses.insert(work.to_owned(), used.clone());
        }
        for kind in kinds.iter().filter(|kind| kind.watchable) {
            state
                .caches
                .entry(gvk(kind))
                .or_insert_with(|| self.start(kind));
        }
        let State { caches, uses } = &mut *state;
        caches.retain(|kind, cache| {
            let needed = uses.values().any(|kinds| kinds.contains(kind));
            if !needed {
                cache.stop();
            }
            needed
        });
        used.iter()
            .filter_map(|kind| caches.get(kind).cloned())
            .collect()
    }

    /// An object that bears our label; none also when that is not known.
    pub fn get(&self, kind: &KnownKind, id: &ManifestId) -> Option<Arc<DynamicObject>> {
        let key = ObjectKey::namespaced(id.namespace.clone().unwrap_or_default(), id.name.clone());
        let cache = self.lock().caches.get(&gvk(kind)).cloned()?;
        cache.get(&key)
    }

    /// Whether changes of a kind will be told.
    pub fn is_watched(&self, kind: &KnownKind) -> bool {
        self.lock()
            .caches
            .get(&gvk(kind))
            .is_some_and(Cache::is_synced)
    }

    /// Puts in the answer to an apply of our own. It wakes nobody.
    pub fn observe(&self, kind: &KnownKind, live: DynamicObject) {
        let Some(cache) = self.lock().caches.get(&gvk(kind)).cloned() else {
            return;
        };
        let (uid, version) = state_of(&live);
        self.own.insert(uid.clone(), version);
        cache.observe(live);
        self.own.remove(&uid);
    }

    /// Ends all watches.
    pub fn stop(&self) {
        self.lock().caches.values().for_each(Cache::stop);
    }

    fn start(&self, kind: &KnownKind) -> Cache<DynamicObject> {
        let resource = &kind.resource;
        let template = ManifestId {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: resource.kind.clone(),
            ..Default::default()
        };
        let (wake, memory, own, mirrors) = (
            Arc::clone(&self.wake),
            Arc::clone(&self.memory),
            Arc::clone(&self.own),
            Arc::clone(&self.mirrors),
        );
        let options = CacheOptions {
            trim: Some(trim as fn(&mut DynamicObject)),
            on_change: Arc::new(move |change: &Change<DynamicObject>| {
                let id = id_in(&template, &change.key);
                match &change.new {
                    None => {
                        // Who waits for another placement to let go of it need not wait longer.
                        let waiting = memory.waiting(&id);
                        memory.forget(&id);
                        waiting.iter().for_each(|work| wake(work));
                    }
                    Some(new) => {
                        let (uid, version) = state_of(new);
                        if own.get(&uid).is_some_and(|written| *written == version) {
                            return;
                        }
                        if !matters(&template, change) {
                            let mirrored = works_of(new).filter(|work| mirrors.contains(*work));
                            if is_status_new(change) {
                                mirrored.for_each(|work| wake(work));
                            }
                            return;
                        }
                        if is_container(&id) {
                            memory.retry(&id);
                        }
                    }
                }
                let owners: BTreeSet<&str> = change
                    .old
                    .iter()
                    .chain(&change.new)
                    .flat_map(|object| works_of(object))
                    .collect();
                owners.into_iter().for_each(|work| wake(work));
            }),
            ..Default::default()
        };
        let labelled = watcher::Config::default().labels(&format!(
            "{}={}",
            labels::PLACED,
            labels::PLACED_VALUE
        ));
        Cache::start(
            "placed",
            Api::all_with(self.client.clone(), resource),
            labelled,
            options,
        )
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an object holds others, which go when it goes.
pub(crate) fn is_container(id: &ManifestId) -> bool {
    matches!(
        (id.group.as_str(), id.kind.as_str()),
        ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition")
    )
}

fn gvk(kind: &KnownKind) -> GroupVersionKind {
    GroupVersionKind::gvk(
        &kind.resource.group,
        &kind.resource.version,
        &kind.resource.kind,
    )
}

fn id_in(template: &ManifestId, key: &ObjectKey) -> ManifestId {
    ManifestId {
        namespace: Some(key.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        name: key.name.clone(),
        ..template.clone()
    }
}

/// Records of how an object was applied are as large as the object, and nobody asks what they say.
fn trim(object: &mut DynamicObject) {
    let Some(annotations) = &mut object.metadata.annotations else {
        return;
    };
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    if let Some(record) = annotations.get_mut(labels::LAST_APPLIED) {
        record.clear();
    }
}

/// Whether a change is news: most are of a status, and say nothing about availability.
fn matters(template: &ManifestId, change: &Change<DynamicObject>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else {
        return true;
    };
    let (was, is) = (&old.metadata, &new.metadata);
    let same_metadata = was.uid == is.uid
        && was.labels == is.labels
        && was.annotations == is.annotations
        && was.owner_references == is.owner_references
        && was.finalizers == is.finalizers
        && was.deletion_timestamp == is.deletion_timestamp;
    let same_content = match (was.generation, is.generation) {
        (Some(was), Some(is)) if was > 0 => was == is,
        _ => without_status(old) == without_status(new),
    };
    !same_metadata || !same_content || assess(template, old) != assess(template, new)
}

fn is_status_new(change: &Change<DynamicObject>) -> bool {
    let status = |object: &Option<Arc<DynamicObject>>| -> Option<serde_json::Value> {
        object.as_ref()?.data.get("status").cloned()
    };
    status(&change.old) != status(&change.new)
}

fn without_status(object: &DynamicObject) -> Vec<(&String, &serde_json::Value)> {
    object
        .data
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(field, _)| *field != "status")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn change(old: Value, new: Value) -> Change<DynamicObject> {
        Change {
            key: ObjectKey::namespaced("n", "a"),
            old: Some(Arc::new(serde_json::from_value(old).unwrap())),
            new: Some(Arc::new(serde_json::from_value(new).unwrap())),
            initial: false,
        }
    }

    #[test]
    fn only_news_wake() {
        let deployment = ManifestId {
            group: "apps".into(),
            version: "v1".into(),
            kind: "Deployment".into(),
            ..Default::default()
        };
        let object = |generation: i64, label: &str, replicas: i64, available: i64, note: &str| {
            json!({"metadata": {"name": "a", "generation": generation, "labels": {"l": label}},
                   "spec": {"replicas": replicas},
                   "status": {"observedGeneration": 1, "availableReplicas": available, "updatedReplicas": 2, "note": note}})
        };
        let base = || object(1, "x", 2, 1, "");
        for (new, expected) in [
            (base(), false),
            (object(1, "x", 2, 1, "talk"), false),
            (object(1, "x", 2, 2, ""), true),
            (object(2, "x", 3, 1, ""), true),
            (object(1, "y", 2, 1, ""), true),
        ] {
            assert_eq!(
                matters(&deployment, &change(base(), new.clone())),
                expected,
                "{new}"
            );
        }
        let config = ManifestId {
            version: "v1".into(),
            kind: "ConfigMap".into(),
            ..Default::default()
        };
        let data = |value: &str| json!({"metadata": {"name": "a"}, "data": {"k": value}});
        assert!(matters(&config, &change(data("1"), data("2"))));
        assert!(!matters(&config, &change(data("1"), data("1"))));
    }

    #[test]
    fn records_are_trimmed_but_seen() {
        let mut object: DynamicObject = serde_json::from_value(json!({"metadata": {"name": "a", "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{}", labels::LAST_APPLIED: "{}", "mine": "1"}}}))
        .unwrap();
        trim(&mut object);
        let left = object.metadata.annotations.unwrap();
        assert_eq!(left.get(labels::LAST_APPLIED).map(String::as_str), Some(""));
        assert_eq!(left.len(), 2);
    }
}
