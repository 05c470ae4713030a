//! What placements select on the hub, kept up to date by watches (API §7, design §5.6).
//!
//! | module | what it is for |
//! |---|---|
//! | [`matcher`] | selectors, read and checked |
//! | [`rules`] | kinds, objects and namespaces that are never placed |
//! | [`interest`] | from a changed object to the placements that select it |
//! | [`sanitise`], [`order`] | what of an object is stored, and where in the snapshot |
//! | `enveloped` | the same rules for what is in envelopes |
//! | `watches` | one metadata-only watch per kind that some placement needs, shared by all |
//! | `pass` | one look at what a placement selects |
//! | `kept` | what was selected last, while it counts |
//! | `current` | whether that is what the API server has |
//! | [`renders`] | envelopes that Addons have made: only whole renders count |
//! | `fetch` | the selected objects themselves, once per version |
//!
//! Nothing is asked for twice: a change of an object, of a namespace or of the kinds that there are wakes
//! the placements that it can matter to, and those look again.

mod current;
mod enveloped;
mod fetch;
pub mod interest;
mod kept;
pub mod matcher;
pub mod order;
mod pass;
pub mod renders;
pub mod rules;
pub mod sanitise;
#[cfg(test)]
mod tests;
mod watches;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use tokio::task::JoinHandle;
use windlass_api::addon::RenderedEnvelope;
use windlass_api::labels;
use windlass_api::placement::{ResourceIdentifier, ResourceSelectorTerm};
use windlass_cluster::{ApiError, Change, Discovery, ObjectKey, clock};
use windlass_member::manifest::Manifest;
use windlass_status::digest::Digest;

use self::fetch::Store;
use self::interest::{Interests, Object};
pub use self::kept::Known;
use self::kept::{Basis, Kept};
use self::pass::Pass;
use self::rules::ApiFilter;
use self::watches::{Meta, Watches};

/// Pauses between the looks after a CRD or an APIService has changed. A server offers a new kind a moment
/// after its CRD says so, and its replicas some seconds later; nothing tells when.
const SETTLING: [Duration; 3] = [
    Duration::from_millis(1200),
    Duration::from_secs(5),
    Duration::from_secs(25),
];

/// Label of the APIServices that an API server makes by itself, for what it serves and for CRDs.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// How soon something is looked at again of whose changes nobody tells.
const BLIND: Duration = Duration::from_secs(30);

/// What a placement selects.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The objects, sanitised, in order.
    pub manifests: Vec<Arc<Manifest>>,
    /// Hash of them all, which depends on their order too.
    pub hash: Digest,
    /// Selectors that choose nothing, kinds that can't be listed, and why: words for a person.
    pub idle: Vec<String>,
    /// When to look again though nothing is heard: of some kind nobody would tell.
    pub again: Option<Duration>,
}

/// Why nothing can be said of what a placement selects. Nothing may be concluded from it about what is
/// placed already (design §6, I4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectError {
    /// The user has to act; the text says how.
    User(String),
    /// Something has not been listed yet; the placement is woken when it has.
    Pending(String),
    /// An Addon's render is being written; the placement is woken when it is. The text says whose.
    Unwritten(String),
    /// The API server can't be asked, or refuses.
    Api {
        /// What happened.
        message: String,
        /// Whether trying again soon can help.
        retry: bool,
    },
}

impl std::fmt::Display for SelectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::User(message) | Self::Unwritten(message) | Self::Api { message, .. } => {
                f.write_str(message)
            }
            Self::Pending(what) => write!(f, "{what} has not been listed yet"),
        }
    }
}

impl From<ApiError> for SelectError {
    fn from(error: ApiError) -> Self {
        Self::Api {
            message: error.message().to_owned(),
            retry: error.is_transient(),
        }
    }
}

/// See the module. Clones share everything; the watches end with the last of them.
#[derive(Clone)]
pub struct Resources {
    inner: Arc<Inner>,
}

struct Inner {
    discovery: Discovery,
    filter: Arc<ApiFilter>,
    on_change: Arc<dyn Fn(&ObjectKey) + Send + Sync>,
    interests: Mutex<Interests>,
    watches: Watches,
    store: Store,
    kept: Kept,
    settling: Mutex<Settling>,
    /// How many looks there were.
    #[cfg(test)]
    looks: std::sync::atomic::AtomicUsize,
}

/// API groups whose kinds may be about to change.
#[derive(Default)]
struct Settling {
    groups: BTreeSet<String>,
    /// How many changes there were: only the task of the last one may end it.
    changes: u64,
    task: Option<JoinHandle<()>>,
}

impl Resources {
    /// With what is never placed by default. See [`Self::with_filter`].
    #[must_use]
    pub fn new(
        client: Client,
        discovery: Discovery,
        on_change: Arc<dyn Fn(&ObjectKey) + Send + Sync>,
    ) -> Self {
        Self::with_filter(client, discovery, ApiFilter::default(), on_change)
    }

    /// Nothing is watched yet. `on_change` is told the placements whose selection may have
    /// changed; it has to be quick. Others that use the same discovery have it refreshed as CRDs and
    /// APIServices change.
    #[must_use]
    pub fn with_filter(
        client: Client,
        discovery: Discovery,
        filter: ApiFilter,
        on_change: Arc<dyn Fn(&ObjectKey) + Send + Sync>,
    ) -> Self {
        let filter = Arc::new(filter);
        let inner = Arc::new_cyclic(|weak: &Weak<Inner>| {
            let (changed, news) = (weak.clone(), weak.clone());
            let watches = Watches::new(
                client.clone(),
                Arc::new(move |kind, change| {
                    if let Some(inner) = changed.upgrade() {
                        inner.changed(kind, change);
                    }
                }),
                Arc::new(move |kind| {
                    if let Some(inner) = news.upgrade() {
                        inner.wake(inner.watches.users(kind));
                    }
                }),
            );
            Inner {
                discovery,
                filter: Arc::clone(&filter),
                on_change,
                interests: Mutex::default(),
                watches,
                store: Store::new(client, filter),
                kept: Kept::default(),
                settling: Mutex::default(),
                #[cfg(test)]
                looks: Default::default(),
            }
        });
        Self { inner }
    }

    /// What a placement selects: what it selected last, unless that can be different now. See
    /// [`Self::select`].
    pub async fn selected(
        &self,
        placement: &ObjectKey,
        selectors: &[ResourceSelectorTerm],
        remembered: &[ResourceIdentifier],
    ) -> Known {
        let kept = &self.inner.kept;
        let news = || self.inner.discovery.news();
        let mut basis = Basis {
            selectors: selectors.to_vec(),
            news: news(),
        };
        if let Some(known) = kept.get(placement, &basis, clock::monotonic()) {
            return known;
        }
        kept.begin(placement);
        let selection = self.select(placement, selectors, remembered).await;
        if selection.is_err() {
            // It may have asked for other answers itself, and is looked at again in any case.
            basis.news = news();
        }
        let outcome = selection.map(Arc::new);
        kept.keep(placement, basis, outcome, clock::monotonic())
    }

    /// What a placement selects now. One call per placement at a time. `remembered`: what it had selected
    /// before, of which nothing is dropped on the strength of an incomplete answer.
    ///
    /// # Errors
    /// See [`SelectError`]. The placement keeps the watches that it has: they tell when things are mended. When
    /// its selectors have to be, those of other kinds than it selects now end.
    pub async fn select(
        &self,
        placement: &ObjectKey,
        selectors: &[ResourceSelectorTerm],
        remembered: &[ResourceIdentifier],
    ) -> Result<Selection, SelectError> {
        let inner = &*self.inner;
        crate::observe::selects();
        #[cfg(test)]
        inner
            .looks
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let terms = matcher::read(selectors).map_err(|why| {
            inner.watches.keep_only(placement, &HashSet::new());
            SelectError::User(why)
        })?;
        let mut pass = Pass::new(inner, placement, remembered);
        let chosen = pass.choose(&terms).await.inspect_err(|error| {
            if let (SelectError::User(_), Some(kinds)) = (error, pass.kinds_to_keep(&terms)) {
                inner.watches.keep_only(placement, &kinds);
            }
        })?;
        let entries = inner.store.fetch(&chosen).await?;
        inner.watches.keep_only(placement, &pass.kinds());
        let manifests: Vec<Arc<Manifest>> = entries
            .iter()
            .filter_map(|entry| entry.manifest.clone())
            .collect();
        inner.store.hold(placement, entries);
        let mut manifests = renders::settle(placement, manifests, inner.filter.renders())?;
        manifests.sort_by_cached_key(|manifest| order::key(&manifest.id));
        let digests: Vec<String> = manifests.iter().map(|m| m.digest.to_string()).collect();
        Ok(Selection {
            hash: Digest::of_bytes(digests.join("\n").as_bytes()),
            manifests,
            idle: pass.idle().to_vec(),
            again: pass.is_blind().then_some(BLIND),
        })
    }

    /// Wakes the placements that select an envelope of an Addon, though nothing about it has changed: it is
    /// listed by the Addon now, or no longer.
    pub fn relisted(&self, addon: &str, envelope: &RenderedEnvelope) {
        let kind = renders::kind_of(envelope);
        let labels = BTreeMap::from([(labels::ADDON.to_owned(), addon.to_owned())]);
        let woken = lock(&self.inner.interests).selecting(Object {
            kind: &kind,
            namespace: envelope.namespace.as_deref(),
            name: &envelope.name,
            labels: &labels,
        });
        self.inner.wake(woken.into_iter().collect());
    }

    /// Drops a placement's interest. Watches that nobody needs end, and objects that nobody selects are let
    /// go.
    pub fn forget(&self, placement: &ObjectKey) {
        self.inner.kept.forget(placement);
        lock(&self.inner.interests).remove(placement);
        self.inner.watches.keep_only(placement, &HashSet::new());
        self.inner.store.hold(placement, Vec::new());
    }
}

impl Inner {
    /// Wakes the placements that select an object, by what it was or by what it is.
    fn changed(self: &Arc<Self>, kind: &GroupVersionKind, change: &Change<Meta>) {
        let users = self.watches.users(kind);
        let mut woken = BTreeSet::new();
        {
            let interests = lock(&self.interests);
            for meta in [&change.old, &change.new].into_iter().flatten() {
                if !self.filter.passes_over(kind, &meta.metadata) {
                    woken.extend(interests.selecting(Object {
                        kind,
                        namespace: meta.metadata.namespace.as_deref(),
                        name: &change.key.name,
                        labels: meta.labels(),
                    }));
                }
            }
        }
        woken.retain(|placement| users.contains(placement));
        if let Some(group) = group_of(kind, change) {
            self.discovery.invalidate();
            woken.extend(lock(&self.interests).of_group(group));
            self.settle(group);
        }
        self.wake(woken);
    }

    fn wake(&self, placements: BTreeSet<ObjectKey>) {
        self.kept.outdate(&placements);
        for placement in placements {
            (self.on_change)(&placement);
        }
    }

    /// Has another look at an API group in a while, and at those that are still to be looked at.
    fn settle(self: &Arc<Self>, group: &str) {
        let mut settling = lock(&self.settling);
        settling.groups.insert(group.to_owned());
        settling.changes += 1;
        let (weak, mine) = (Arc::downgrade(self), settling.changes);
        let task = clock::spawn("settling-kinds", async move {
            for pause in SETTLING {
                clock::sleep(pause).await;
                let Some(inner) = weak.upgrade() else { return };
                inner.look_again();
            }
            if let Some(inner) = weak.upgrade() {
                let mut settling = lock(&inner.settling);
                if settling.changes == mine {
                    settling.groups.clear();
                }
            }
        });
        if let Some(old) = settling.task.replace(task) {
            old.abort();
        }
    }

    fn look_again(&self) {
        self.discovery.invalidate();
        let groups = lock(&self.settling).groups.clone();
        let interests = lock(&self.interests);
        let woken = groups
            .iter()
            .flat_map(|group| interests.of_group(group))
            .collect();
        drop(interests);
        self.wake(woken);
    }
}

/// The API group whose kinds may come, change or go with this: that of a CRD, or of a server that the hub's API
/// server hands requests on to. APIServices that it makes for CRDs by itself tell nothing that these don't.
fn group_of<'a>(kind: &GroupVersionKind, change: &'a Change<Meta>) -> Option<&'a str> {
    let either = change.new.as_ref().or(change.old.as_ref())?;
    let tells = *kind == crd_kind()
        || (*kind == api_service_kind() && !either.labels().contains_key(AUTOMANAGED));
    // Both are named after their group: widgets.example.com, v1.example.com.
    let (_, group) = change.key.name.split_once('.').filter(|_| tells)?;
    Some(group)
}

fn crd_kind() -> GroupVersionKind {
    GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
}

fn api_service_kind() -> GroupVersionKind {
    GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
