//! The content of a cache: what is there, what is gone, and what a list changes. No locks, no watch.
//!
//! Versions. Resource versions of one kind on one server are numbers that grow, and a deletion takes one
//! too (KEP-5504). They order what a watch delivers and what our own writes answer. A list is different:
//! it is a consistent read, so it is the truth about everything that we knew before it began, whatever
//! the numbers say (a server restored from a backup starts from lower ones). Hence the *epoch*: lists
//! begun so far. An own write that was put in during the present epoch may be newer than the list.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use kube::{Resource, ResourceExt};

use super::{Change, Index, ObjectKey};

/// How many deleted objects are remembered.
const GRAVES: usize = 4096;

/// Where an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The watch.
    Watch,
    /// The answer to a write of our own.
    Own,
}

/// One row of a list; no object when the cache had exactly this one as it came in.
pub(super) type Listed<K> = (ObjectKey, Option<Arc<K>>);

/// What a list changed.
pub(super) struct ListOutcome<K> {
    pub(super) changes: Vec<Change<K>>,
    /// Objects that the list does not have, and that we wrote while it was made: they may have been
    /// created after it, or deleted before it. The watch shows the former.
    pub(super) doubtful: Vec<ObjectKey>,
}

/// See the module.
pub(super) struct Store<K> {
    objects: BTreeMap<Arc<ObjectKey>, Entry<K>>,
    index_of: Vec<Index<K>>,
    indexes: Vec<HashMap<Box<str>, Keys>>,
    graves: Graves,
    epoch: u64,
}

/// The objects under one value of an index. Many indexes have one under each value, and a set of one is
/// more than half a KiB.
enum Keys {
    One(Arc<ObjectKey>),
    Many(BTreeSet<Arc<ObjectKey>>),
}

impl Keys {
    fn iter(&self) -> impl Iterator<Item = &Arc<ObjectKey>> {
        let (one, many) = match self {
            Self::One(key) => (Some(key), None),
            Self::Many(keys) => (None, Some(keys)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    fn insert(&mut self, key: &Arc<ObjectKey>) {
        match self {
            Self::One(known) if known == key => {}
            Self::One(known) => {
                *self = Self::Many(BTreeSet::from([Arc::clone(known), Arc::clone(key)]));
            }
            Self::Many(keys) => {
                keys.insert(Arc::clone(key));
            }
        }
    }

    /// Whether none is left.
    fn remove(&mut self, key: &ObjectKey) -> bool {
        match self {
            Self::One(known) => **known == *key,
            Self::Many(keys) => {
                keys.remove(key);
                keys.is_empty()
            }
        }
    }
}

struct Entry<K> {
    object: Arc<K>,
    /// Put in by us in that epoch, not seen by the watch yet.
    pending: Option<u64>,
}

impl<K: Resource> Store<K> {
    pub(super) fn new(index_of: Vec<Index<K>>) -> Self {
        Self {
            objects: BTreeMap::new(),
            indexes: index_of.iter().map(|_| HashMap::new()).collect(),
            index_of,
            graves: Graves::default(),
            epoch: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.objects.get(key).map(|entry| Arc::clone(&entry.object))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values().map(|entry| &entry.object)
    }

    pub(super) fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.objects
            .range::<ObjectKey, _>(&ObjectKey::namespaced(namespace, "")..)
            .take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, entry)| Arc::clone(&entry.object))
            .collect()
    }

    /// None when there is no such index.
    pub(super) fn by_index(&self, index: &str, value: &str) -> Option<Vec<Arc<K>>> {
        let position = self.index_of.iter().position(|known| known.name == index)?;
        let keys = self.indexes[position].get(value);
        Some(
            keys.into_iter()
                .flat_map(Keys::iter)
                .filter_map(|key| self.get(key))
                .collect(),
        )
    }

    /// Whether the cache has exactly this state of this object.
    pub(super) fn has(&self, key: &ObjectKey, object: &K) -> bool {
        self.objects
            .get(key)
            .is_some_and(|entry| same_state(&*entry.object, object))
    }

    /// Whether one of these is still there only because we wrote it.
    pub(super) fn any_pending(&self, keys: &[ObjectKey]) -> bool {
        keys.iter().any(|key| {
            self.objects
                .get(key)
                .is_some_and(|entry| entry.pending.is_some())
        })
    }

    /// Takes an object in. None when it changes nothing.
    pub(super) fn apply(&mut self, object: Arc<K>, source: Source) -> Option<Change<K>> {
        let key = ObjectKey::of(&*object);
        if source == Source::Own && is_gone(&*object) {
            return self.remove(&key, object.meta().uid.as_deref(), version(&*object));
        }
        if !self.graves.lets_through(&*object) {
            return None;
        }
        if let Some(entry) = self.objects.get_mut(&key)
            && !is_newer(&*entry.object, &*object)
        {
            if source == Source::Watch && same_state(&*entry.object, &*object) {
                entry.pending = None;
            }
            return None;
        }
        let pending = (source == Source::Own).then_some(self.epoch);
        Some(self.put(key, object, pending))
    }

    /// Takes note of a deletion, at a version if one is known. None when it changes nothing.
    pub(super) fn remove(
        &mut self,
        key: &ObjectKey,
        uid: Option<&str>,
        at: Option<u64>,
    ) -> Option<Change<K>> {
        self.graves.dig(uid, at, self.epoch);
        let entry = self.objects.get(key)?;
        // Another object of that name may have taken its place, and what was written after it left a
        // selector's view is in view again.
        let another = uid.is_some() && entry.object.meta().uid.as_deref() != uid;
        let written_since = entry.pending.is_some() && at.is_some() && version(&*entry.object) > at;
        if another || written_since {
            return None;
        }
        self.drop_entry(key)
    }

    /// A list begins: what is known now, it knows better.
    pub(super) fn begin_list(&mut self) {
        self.epoch += 1;
    }

    /// Makes a complete list the content, except for what we wrote after it had begun.
    pub(super) fn finish_list(&mut self, listed: Vec<Listed<K>>) -> ListOutcome<K> {
        let mut changes = Vec::new();
        let mut keys = HashSet::with_capacity(listed.len());
        let mut newest = None;
        for (key, object) in listed {
            match object {
                Some(object) => {
                    newest = newest.max(version(&*object));
                    changes.extend(self.apply_listed(key.clone(), object));
                }
                None => newest = newest.max(self.confirm(&key)),
            }
            keys.insert(key);
        }
        let mut doubtful = Vec::new();
        let mut gone = Vec::new();
        let missing = |(key, _): &(&Arc<ObjectKey>, _)| !keys.contains(&***key);
        for (key, entry) in self.objects.iter().filter(missing) {
            let newer_than_list = version(&*entry.object) > newest || newest.is_none();
            if entry.pending == Some(self.epoch) && newer_than_list {
                doubtful.push(ObjectKey::clone(key));
            } else {
                let at_the_earliest = newest.max(version(&*entry.object));
                gone.push((
                    Arc::clone(key),
                    entry.object.meta().uid.clone(),
                    at_the_earliest,
                ));
            }
        }
        for (key, uid, at) in gone {
            self.graves.dig(uid.as_deref(), at, self.epoch);
            changes.extend(self.drop_entry(&key));
        }
        ListOutcome { changes, doubtful }
    }

    fn apply_listed(&mut self, key: ObjectKey, object: Arc<K>) -> Option<Change<K>> {
        if !self.graves.lets_through_listed(&*object, self.epoch) {
            return None;
        }
        if let Some(entry) = self.objects.get_mut(&key) {
            if same_state(&*entry.object, &*object) {
                entry.pending = None;
                return None;
            }
            if entry.pending == Some(self.epoch) && !is_newer(&*entry.object, &*object) {
                return None;
            }
        }
        Some(self.put(key, object, None))
    }

    /// The list has the object as it was when its row came in; since then we may have written it.
    fn confirm(&mut self, key: &ObjectKey) -> Option<u64> {
        let epoch = self.epoch;
        let entry = self.objects.get_mut(key)?;
        if entry.pending != Some(epoch) {
            entry.pending = None;
            return version(&*entry.object);
        }
        None
    }

    fn put(&mut self, key: ObjectKey, object: Arc<K>, pending: Option<u64>) -> Change<K> {
        let old = self.drop_entry(&key).and_then(|change| change.old);
        let shared = Arc::new(key.clone());
        for (index, map) in self.index_of.iter().zip(&mut self.indexes) {
            for value in (index.values)(&object) {
                map.entry(value.into_boxed_str())
                    .and_modify(|keys| keys.insert(&shared))
                    .or_insert_with(|| Keys::One(Arc::clone(&shared)));
            }
        }
        self.objects.insert(
            shared,
            Entry {
                object: Arc::clone(&object),
                pending,
            },
        );
        Change {
            key,
            old,
            new: Some(object),
            initial: false,
        }
    }

    fn drop_entry(&mut self, key: &ObjectKey) -> Option<Change<K>> {
        let entry = self.objects.remove(key)?;
        for (index, map) in self.index_of.iter().zip(&mut self.indexes) {
            for value in (index.values)(&entry.object) {
                if let Some(keys) = map.get_mut(value.as_str())
                    && keys.remove(key)
                {
                    map.remove(value.as_str());
                }
            }
        }
        Some(Change {
            key: key.clone(),
            old: Some(entry.object),
            new: None,
            initial: false,
        })
    }
}

/// Deletions by UID: a late answer to a write can't bring an object back. What is newer than the
/// deletion can: a selector's watch says DELETE of an object that left its view, and that may return.
#[derive(Default)]
struct Graves {
    by_uid: HashMap<String, Grave>,
    order: VecDeque<String>,
}

struct Grave {
    /// Version of the deletion, as far as it is known.
    at: Option<u64>,
    epoch: u64,
}

impl Graves {
    fn dig(&mut self, uid: Option<&str>, at: Option<u64>, epoch: u64) {
        let Some(uid) = uid else { return };
        if let Some(grave) = self.by_uid.get_mut(uid) {
            grave.at = grave.at.max(at);
            grave.epoch = epoch;
            return;
        }
        self.by_uid.insert(uid.to_owned(), Grave { at, epoch });
        self.order.push_back(uid.to_owned());
        while self.order.len() > GRAVES {
            if let Some(oldest) = self.order.pop_front() {
                self.by_uid.remove(&oldest);
            }
        }
    }

    fn lets_through<K: Resource>(&mut self, object: &K) -> bool {
        let Some((uid, grave)) = object
            .meta()
            .uid
            .as_ref()
            .and_then(|uid| self.by_uid.get_key_value(uid))
        else {
            return true;
        };
        let newer =
            matches!((version(object), grave.at), (Some(version), Some(at)) if version > at);
        if newer {
            let uid = uid.clone();
            self.by_uid.remove(&uid);
        }
        newer
    }

    /// A list knows better than what was noted before it began.
    fn lets_through_listed<K: Resource>(&mut self, object: &K, epoch: u64) -> bool {
        if let Some(uid) = &object.meta().uid
            && self
                .by_uid
                .get(uid)
                .is_some_and(|grave| grave.epoch < epoch)
        {
            self.by_uid.remove(uid);
        }
        self.lets_through(object)
    }
}

/// The resourceVersion as the number that it is.
pub(super) fn version<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

fn is_newer<K: Resource>(old: &K, new: &K) -> bool {
    match (version(old), version(new)) {
        (Some(old), Some(new)) => new > old,
        _ => old.meta().resource_version != new.meta().resource_version,
    }
}

fn same_state<K: Resource>(a: &K, b: &K) -> bool {
    a.meta().resource_version == b.meta().resource_version && a.meta().uid == b.meta().uid
}

/// Whether the answer to a write shows the object's last state: being deleted, and nothing to wait for.
fn is_gone<K: Resource>(object: &K) -> bool {
    let meta = object.meta();
    meta.deletion_timestamp.is_some()
        && meta.deletion_grace_period_seconds == Some(0)
        && object.finalizers().is_empty()
}
