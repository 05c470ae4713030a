//! Who is told of a change of an override: the placements that hold, or held at their last look, something that
//! it is about.
//!
//! A placement's look notes what it asks for *before* it reads the caches, so a change is either seen by the
//! look or told after it.
//!
//! A new version is told of once, when its snapshot is there: before that it changes nothing but that the
//! placement has to wait for it, which every look finds by itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Resource;
use windlass_api::scoped::Binding;
use windlass_cluster::{Cache, CacheOptions, Change, Index, ObjectKey};
use windlass_render::{ObjectId, Override, Subject};

use super::kind::Kind;
use super::next::{Newest, newest};
use super::resolve::placement_key;
use super::{Overrides, by_parent, parent_of};
use crate::scoped::ScopedCache;
use crate::select::interest::{Placements, insert, take};
use crate::world::{BY_OVERRIDE, Queues, enqueue, placement_of};

/// Index of overrides: what they are about.
const BY_SUBJECT: &str = "subject";

/// What placements ask for overrides of. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Asking(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    all: HashMap<ObjectKey, Asked>,
    by_subject: HashMap<String, Placements>,
}

#[derive(Default)]
struct Asked {
    /// What the placement holds, told apart from what it held.
    content: String,
    subjects: Arc<BTreeSet<String>>,
}

impl Asking {
    /// What a placement asks for. `objects` are what it holds now, and are read only when `content` is news.
    fn note<'a>(
        &self,
        placement: &ObjectKey,
        content: &str,
        objects: impl FnOnce() -> Vec<ObjectId<'a>>,
    ) -> Arc<BTreeSet<String>> {
        let mut known = self.lock();
        if let Some(asked) = known.all.get(placement)
            && asked.content == content
        {
            return Arc::clone(&asked.subjects);
        }
        known.forget(placement);
        let subjects = Arc::new(subjects_of(placement, &objects()));
        for subject in subjects.iter() {
            insert(&mut known.by_subject, subject.clone(), placement);
        }
        let asked = Asked {
            content: content.to_owned(),
            subjects: Arc::clone(&subjects),
        };
        known.all.insert(placement.clone(), asked);
        subjects
    }

    fn forget(&self, placement: &ObjectKey) {
        self.lock().forget(placement);
    }

    /// The placements that ask for what an override is about.
    fn about(&self, override_: &Override<'_>) -> Placements {
        let known = self.lock();
        let subjects = override_.subjects();
        let asking = subjects
            .iter()
            .filter_map(|subject| known.by_subject.get(&subject.to_string()));
        asking.flatten().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn forget(&mut self, placement: &ObjectKey) {
        let asked = self.all.remove(placement).unwrap_or_default();
        for subject in asked.subjects.iter() {
            take(&mut self.by_subject, subject, placement);
        }
    }
}

/// What a placement that holds these objects asks for, as texts of the index.
fn subjects_of(placement: &ObjectKey, objects: &[ObjectId<'_>]) -> BTreeSet<String> {
    let subjects = Subject::of(placement_key(placement), objects);
    subjects.iter().map(Subject::to_string).collect()
}

impl Overrides {
    /// Whether any override may be for a placement, given what it holds. From now on the placement is told of
    /// changes of those that may be. `content` tells what it holds apart from everything else that it may;
    /// `objects` are read only when that has changed since the last time.
    pub fn any_for<'a>(
        &self,
        placement: &ObjectKey,
        content: &str,
        objects: impl FnOnce() -> Vec<ObjectId<'a>>,
    ) -> bool {
        let subjects = self.asking.note(placement, content, objects);
        let any = |subject: &String| {
            !self.of_cluster.by_index(BY_SUBJECT, subject).is_empty()
                || !self.of_namespace.by_index(BY_SUBJECT, subject).is_empty()
        };
        subjects.iter().any(any)
    }

    /// A placement is told of nothing any more.
    pub fn forget(&self, placement: &ObjectKey) {
        self.asking.forget(placement);
    }

    /// The overrides of a kind that may be for a placement that holds these objects.
    pub(super) fn candidates<K: Kind>(
        &self,
        placement: &ObjectKey,
        objects: &[ObjectId<'_>],
    ) -> Vec<Arc<K>> {
        let cache = K::caches(self).0;
        let found = subjects_of(placement, objects)
            .into_iter()
            .flat_map(|subject| cache.by_index(BY_SUBJECT, &subject))
            .map(|found| (ObjectKey::of(&*found), found));
        // By name, and each once.
        let found: BTreeMap<_, _> = found.collect();
        found.into_values().collect()
    }

    /// Tells whom an override concerns why its present version has no snapshot.
    pub(super) fn tell_stuck<K: Kind>(&self, stuck: &K, bindings: &ScopedCache<Binding>) {
        for placement in self.asking.about(&stuck.as_override()) {
            self.queues.placements.add(placement);
        }
        if let Newest::Due(due) = newest(stuck, K::caches(self).1) {
            for binding in bindings.by_index(BY_OVERRIDE, &ObjectKey::of(&due).to_string()) {
                self.queues.bindings.add(ObjectKey::of(&*binding));
            }
        }
    }
}

/// Of overrides: found by what they are about.
pub(super) fn by_subject<K: Kind>() -> CacheOptions<K> {
    CacheOptions {
        indexes: vec![Index {
            name: BY_SUBJECT,
            values: |object| {
                let subjects = object.as_override().subjects();
                subjects.iter().map(Subject::to_string).collect()
            },
        }],
        ..Default::default()
    }
}

/// The same, and a change tells whom it concerns.
pub(super) fn override_options<K: Kind>(
    queues: &Queues,
    asking: &Asking,
    snapshots: &Cache<K::Snapshot>,
) -> CacheOptions<K> {
    let (queues, asking, snapshots) = (queues.clone(), asking.clone(), snapshots.clone());
    CacheOptions {
        on_change: Arc::new(move |change: &Change<K>| {
            enqueue(&queues.overrides, change.key.clone(), change.initial);
            for placement in concerned(&asking, &snapshots, change) {
                enqueue(&queues.placements, placement, change.initial);
            }
        }),
        ..by_subject()
    }
}

/// Whom a change of an override concerns at once:
///
/// | was | is | concerned |
/// |---|---|---|
/// | nothing, or on its way out | the same | nobody |
/// | a version | the same version | nobody: a finalizer, say |
/// | a version | gone, or on its way out | whom it was about |
/// | nothing, or a version | a version with a snapshot | whom it was about and whom it is about |
/// | nothing, or a version | a version without | whom it was about only; the others are told of the snapshot |
fn concerned<K: Kind>(
    asking: &Asking,
    snapshots: &Cache<K::Snapshot>,
    change: &Change<K>,
) -> Placements {
    let standing = |side: &'_ Option<Arc<K>>| {
        let side = side.as_ref().map(Arc::clone);
        side.filter(|found| found.meta().deletion_timestamp.is_none())
    };
    let (old, new) = (standing(&change.old), standing(&change.new));
    if let (Some(old), Some(new)) = (&old, &new)
        && old.meta().generation == new.meta().generation
        && old.meta().uid == new.meta().uid
    {
        return Placements::new();
    }
    let about = |side: &Option<Arc<K>>| {
        let about = side.as_ref().map(|side| asking.about(&side.as_override()));
        about.unwrap_or_default()
    };
    let (was, is) = (about(&old), about(&new));
    let is_made = |new: &Arc<K>| matches!(newest(&**new, snapshots), Newest::Made(_));
    if new.as_ref().is_none_or(is_made) {
        &was | &is
    } else {
        &was - &is
    }
}

/// Of snapshots of overrides. A new one tells whom it is about; one that changes or goes, though it should
/// not, those who use it.
pub(super) fn snapshot_options<K: Kind>(
    queues: &Queues,
    asking: &Asking,
    bindings: &ScopedCache<Binding>,
) -> CacheOptions<K::Snapshot> {
    let (queues, asking, bindings) = (queues.clone(), asking.clone(), bindings.clone());
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
            let mut told =
                new.map_or_else(Placements::new, |new| asking.about(&K::override_in(new)));
            for binding in bindings.by_index(BY_OVERRIDE, &change.key.to_string()) {
                enqueue(&queues.bindings, ObjectKey::of(&*binding), change.initial);
                told.extend(placement_of(&*binding));
            }
            for placement in told {
                enqueue(&queues.placements, placement, change.initial);
            }
        }),
        ..by_parent()
    }
}
