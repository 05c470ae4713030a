//! What placements select on the hub, kept up to date by watches (API §7, design §5.6).
//!
//! One metadata-only watch per kind that some placement needs, shared by all; it ends when none does. The
//! objects themselves are fetched once per version, only when they are selected. A change wakes the
//! placements that select the object, by its old state or its new one.

pub mod order;
pub mod rules;
pub mod sanitise;
pub mod terms;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use windlass_api::placement::{ResourceSelectorTerm, SelectionScope};
use windlass_cluster::discovery::KnownKind;
use windlass_cluster::{ApiError, Cache, CacheOptions, Change, Discovery, ObjectKey};
use windlass_member::manifest::{Manifest, ManifestId};
use windlass_status::digest::Digest;

use self::terms::{Choice, is_namespace, scope};

/// Objects fetched at once for one placement.
const PARALLEL: usize = 8;
/// How long a first list is waited for before the placement is left to be woken.
const LIST_LIMIT: Duration = Duration::from_secs(5);

type Meta = PartialObjectMeta<DynamicObject>;

/// What a placement selects.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The objects, sanitised, in order.
    pub manifests: Vec<Arc<Manifest>>,
    /// Hash of them all.
    pub hash: Digest,
}

/// Why nothing can be said of what a placement selects.
#[derive(Clone, Debug)]
pub enum SelectError {
    /// The user has to act; the text says how.
    User(String),
    /// A watch has not delivered its first list; the placement is woken when it has.
    Pending(String),
    /// The API server can't be asked, or refuses.
    Api {
        /// What happened.
        message: String,
        /// Whether trying again soon can help.
        retry: bool,
    },
}

impl From<ApiError> for SelectError {
    fn from(error: ApiError) -> Self {
        Self::Api {
            message: error.message().to_owned(),
            retry: error.is_transient(),
        }
    }
}

/// See the module. Clones share everything.
#[derive(Clone)]
pub struct Resources {
    client: Client,
    discovery: Discovery,
    on_change: Arc<dyn Fn(&str) + Send + Sync>,
    watches: Arc<Mutex<HashMap<GroupVersionKind, Watch>>>,
    interests: Arc<Mutex<HashMap<String, Arc<Interest>>>>,
    fetched: Arc<Mutex<HashMap<(GroupVersionKind, ObjectKey), Fetched>>>,
}

struct Watch {
    cache: Cache<Meta>,
    users: BTreeSet<String>,
}

#[derive(Clone)]
struct Fetched {
    version: (String, String),
    /// None for an object that is passed over.
    manifest: Option<Arc<Manifest>>,
}

/// What a placement wants to know about.
#[derive(Default)]
struct Interest {
    terms: Vec<(GroupVersionKind, Choice)>,
    /// Namespaces of which everything is selected, and those that only bound the other terms.
    namespaces: BTreeSet<String>,
}

/// A kind with the objects of it that are selected.
struct Chosen {
    kind: GroupVersionKind,
    resource: ApiResource,
    metas: Vec<Arc<Meta>>,
}

impl Resources {
    /// Nothing is watched yet. `on_change` is told the names of placements whose selection may have changed.
    #[must_use]
    pub fn new(
        client: Client,
        discovery: Discovery,
        on_change: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Self {
        Self {
            client,
            discovery,
            on_change,
            watches: Arc::default(),
            interests: Arc::default(),
            fetched: Arc::default(),
        }
    }

    /// What a placement selects now.
    ///
    /// # Errors
    /// See [`SelectError`].
    pub async fn select(
        &self,
        placement: &str,
        selectors: &[ResourceSelectorTerm],
    ) -> Result<Selection, SelectError> {
        let mut needed = BTreeSet::new();
        let result = self.choose(placement, selectors, &mut needed).await;
        // Even a selection that failed keeps its watches: they tell when it is mended.
        self.release_unneeded(placement, &needed);
        let chosen = result?;
        let mut manifests: Vec<Arc<Manifest>> = Vec::new();
        for kind in &chosen {
            manifests.extend(self.fetch(kind).await?);
        }
        manifests.sort_by(|a, b| order::key(&a.id).cmp(&order::key(&b.id)));
        if let Some(twice) = manifests.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(SelectError::User(format!(
                "{} is selected by more than one resourceSelector; remove one of them",
                twice[0].id
            )));
        }
        let digests: Vec<String> = manifests
            .iter()
            .map(|manifest| manifest.digest.to_string())
            .collect();
        Ok(Selection {
            hash: Digest::of_bytes(digests.join("\n").as_bytes()),
            manifests,
        })
    }

    /// Drops a placement's interest; watches that nobody needs end.
    pub fn forget(&self, placement: &str) {
        lock(&self.interests).remove(placement);
        self.release_unneeded(placement, &BTreeSet::new());
    }

    async fn choose(
        &self,
        placement: &str,
        selectors: &[ResourceSelectorTerm],
        needed: &mut BTreeSet<String>,
    ) -> Result<Vec<Chosen>, SelectError> {
        let mut kinds = Vec::with_capacity(selectors.len());
        let mut interest = Interest::default();
        for term in selectors {
            let kind = GroupVersionKind::gvk(&term.group, &term.version, &term.kind);
            interest.terms.push((kind.clone(), Choice::of(term)));
            kinds.push((term, kind));
        }
        // A CRD that comes or goes changes which kinds there are.
        let crds = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        interest.terms.push((crds.clone(), Choice::All));
        self.set_interest(placement, interest);
        let mut chosen = Vec::new();
        let mut namespaces: BTreeMap<String, SelectionScope> = BTreeMap::new();
        for (term, kind) in kinds.iter().filter(|(term, _)| is_namespace(term)) {
            let known = self.known(kind).await?;
            let metas = self
                .matching(placement, kind, &known, &Choice::of(term), None, needed)
                .await?;
            for meta in &metas {
                self.check_namespace(meta, scope(term))?;
                namespaces.insert(meta.name_any(), scope(term));
            }
            chosen.push(Chosen {
                kind: kind.clone(),
                resource: known.resource,
                metas,
            });
        }
        self.bound_by(placement, namespaces.keys().cloned().collect());
        let bound = namespaces
            .iter()
            .find(|(_, s)| **s == SelectionScope::NamespaceWithResourceSelectors);
        for (term, kind) in kinds.iter().filter(|(term, _)| !is_namespace(term)) {
            if !rules::may_place_kind(&kind.group, &kind.kind) {
                continue;
            }
            let known = self.known(kind).await?;
            let namespace = match (known.namespaced, bound) {
                (false, _) => None,
                (true, Some((namespace, _))) => Some(namespace.as_str()),
                (true, None) => {
                    return Err(SelectError::User(format!(
                        "kind {} lives in namespaces; select its Namespace, or use selectionScope NamespaceWithResourceSelectors",
                        term.kind
                    )));
                }
            };
            let metas = self
                .matching(
                    placement,
                    kind,
                    &known,
                    &Choice::of(term),
                    namespace,
                    needed,
                )
                .await?;
            chosen.push(Chosen {
                kind: kind.clone(),
                resource: known.resource,
                metas,
            });
        }
        let whole: Vec<&String> = namespaces
            .iter()
            .filter(|(_, s)| **s == SelectionScope::NamespaceWithResources)
            .map(|(name, _)| name)
            .collect();
        if !whole.is_empty() {
            self.watch(placement, &crds, None, needed).await?;
            chosen.extend(self.contents(placement, &whole, needed).await?);
        }
        Ok(chosen)
    }

    fn check_namespace(&self, meta: &Meta, scope: SelectionScope) -> Result<(), SelectError> {
        let name = meta.name_any();
        if rules::may_place_namespace(&name) {
            return Ok(());
        }
        let _ = scope;
        Err(SelectError::User(format!(
            "namespace {name} is reserved and can't be placed; select another one"
        )))
    }

    async fn known(&self, kind: &GroupVersionKind) -> Result<KnownKind, SelectError> {
        self.discovery.kind(kind).await?.ok_or_else(|| {
            SelectError::User(format!(
                "the kind {} of {}/{} is not known on the hub; correct the selector or install the kind",
                kind.kind, kind.group, kind.version
            ))
        })
    }

    async fn matching(
        &self,
        placement: &str,
        kind: &GroupVersionKind,
        known: &KnownKind,
        choice: &Choice,
        namespace: Option<&str>,
        needed: &mut BTreeSet<String>,
    ) -> Result<Vec<Arc<Meta>>, SelectError> {
        let cache = self.watch(placement, kind, Some(known), needed).await?;
        let all = match namespace {
            Some(namespace) => cache.in_namespace(namespace),
            None => cache.list(),
        };
        Ok(all
            .into_iter()
            .filter(|meta| {
                meta.metadata.deletion_timestamp.is_none()
                    && choice.picks(&meta.name_any(), meta.labels())
            })
            .collect())
    }

    /// Everything in some namespaces that may be placed.
    async fn contents(
        &self,
        placement: &str,
        namespaces: &[&String],
        needed: &mut BTreeSet<String>,
    ) -> Result<Vec<Chosen>, SelectError> {
        let mut chosen = Vec::new();
        let kinds = self.discovery.preferred().await?;
        for known in kinds
            .into_iter()
            .filter(|known| known.namespaced && known.watchable)
        {
            let r = &known.resource;
            if !rules::may_place_kind(&r.group, &r.kind) {
                continue;
            }
            let kind = GroupVersionKind::gvk(&r.group, &r.version, &r.kind);
            let cache = self.watch(placement, &kind, Some(&known), needed).await?;
            let metas: Vec<Arc<Meta>> = namespaces
                .iter()
                .flat_map(|namespace| cache.in_namespace(namespace))
                .filter(|meta| meta.metadata.deletion_timestamp.is_none())
                .collect();
            if !metas.is_empty() {
                chosen.push(Chosen {
                    kind,
                    resource: known.resource,
                    metas,
                });
            }
        }
        Ok(chosen)
    }

    /// The shared watch of a kind, with its first list in.
    async fn watch(
        &self,
        placement: &str,
        kind: &GroupVersionKind,
        known: Option<&KnownKind>,
        needed: &mut BTreeSet<String>,
    ) -> Result<Cache<Meta>, SelectError> {
        needed.insert(name_of(kind));
        let resource = match known {
            Some(known) => known.resource.clone(),
            None => self.known(kind).await?.resource,
        };
        let cache = {
            let mut watches = lock(&self.watches);
            let watch = watches.entry(kind.clone()).or_insert_with(|| Watch {
                cache: self.start(kind, &resource),
                users: BTreeSet::new(),
            });
            watch.users.insert(placement.to_owned());
            watch.cache.clone()
        };
        if tokio::time::timeout(LIST_LIMIT, cache.wait_synced())
            .await
            .is_err()
        {
            return Err(match cache.last_error() {
                Some(error) => SelectError::Api {
                    message: format!("{} can't be listed: {error}", resource.plural),
                    retry: true,
                },
                None => SelectError::Pending(resource.plural),
            });
        }
        Ok(cache)
    }

    fn start(&self, kind: &GroupVersionKind, resource: &ApiResource) -> Cache<Meta> {
        let this = self.clone();
        let kind = kind.clone();
        let options = CacheOptions {
            on_change: Arc::new(move |change: &Change<Meta>| this.changed(&kind, change)),
            ..Default::default()
        };
        Cache::start(
            "selected",
            Api::all_with(self.client.clone(), resource),
            watcher::Config::default(),
            options,
        )
    }

    /// Wakes the placements that select an object, by what it was or by what it is.
    fn changed(&self, kind: &GroupVersionKind, change: &Change<Meta>) {
        if kind.kind == "CustomResourceDefinition" {
            self.discovery.invalidate();
        }
        let interested: Vec<String> = lock(&self.interests)
            .iter()
            .filter(|(_, interest)| {
                let states = [&change.old, &change.new];
                states
                    .into_iter()
                    .flatten()
                    .any(|meta| interest.covers(kind, meta))
            })
            .map(|(placement, _)| placement.clone())
            .collect();
        for placement in interested {
            (self.on_change)(&placement);
        }
    }

    fn set_interest(&self, placement: &str, mut interest: Interest) {
        let mut interests = lock(&self.interests);
        if let Some(old) = interests.get(placement) {
            interest.namespaces.clone_from(&old.namespaces);
        }
        interests.insert(placement.to_owned(), Arc::new(interest));
    }

    fn bound_by(&self, placement: &str, namespaces: BTreeSet<String>) {
        let mut interests = lock(&self.interests);
        if let Some(old) = interests.get(placement) {
            let interest = Interest {
                terms: old.terms.clone(),
                namespaces,
            };
            interests.insert(placement.to_owned(), Arc::new(interest));
        }
    }

    fn release_unneeded(&self, placement: &str, needed: &BTreeSet<String>) {
        let mut ended = Vec::new();
        lock(&self.watches).retain(|kind, watch| {
            if !needed.contains(&name_of(kind)) {
                watch.users.remove(placement);
            }
            if watch.users.is_empty() {
                watch.cache.stop();
                ended.push(kind.clone());
            }
            !watch.users.is_empty()
        });
        if !ended.is_empty() {
            lock(&self.fetched).retain(|(kind, _), _| !ended.contains(kind));
        }
    }

    /// The selected objects of a kind; each version is fetched once.
    async fn fetch(&self, chosen: &Chosen) -> Result<Vec<Arc<Manifest>>, SelectError> {
        let requests: Vec<_> = chosen
            .metas
            .iter()
            .map(|meta| self.fetch_one(chosen, meta).boxed())
            .collect();
        let manifests: Vec<Option<Arc<Manifest>>> = stream::iter(requests)
            .buffered(PARALLEL)
            .try_collect()
            .await?;
        Ok(manifests.into_iter().flatten().collect())
    }

    async fn fetch_one(
        &self,
        chosen: &Chosen,
        meta: &Meta,
    ) -> Result<Option<Arc<Manifest>>, SelectError> {
        let key = (chosen.kind.clone(), ObjectKey::of(meta));
        let version = (
            meta.uid().unwrap_or_default(),
            meta.resource_version().unwrap_or_default(),
        );
        let known = lock(&self.fetched).get(&key).cloned();
        if let Some(known) = known.filter(|known| known.version == version) {
            return Ok(known.manifest);
        }
        let api: Api<DynamicObject> = match meta.namespace() {
            Some(namespace) => {
                Api::namespaced_with(self.client.clone(), &namespace, &chosen.resource)
            }
            None => Api::all_with(self.client.clone(), &chosen.resource),
        };
        let Some(live) = api
            .get_opt(&meta.name_any())
            .await
            .map_err(ApiError::from_kube)?
        else {
            return Ok(None);
        };
        let version = (
            live.uid().unwrap_or_default(),
            live.resource_version().unwrap_or_default(),
        );
        let mut object = serde_json::to_value(&live).unwrap_or_default();
        object["apiVersion"] = chosen.resource.api_version.clone().into();
        object["kind"] = chosen.resource.kind.clone().into();
        let manifest = (!rules::is_skipped(&object)).then(|| {
            sanitise::sanitise(&mut object);
            Arc::new(Manifest::of_snapshot(object))
        });
        lock(&self.fetched).insert(
            key,
            Fetched {
                version,
                manifest: manifest.clone(),
            },
        );
        Ok(manifest)
    }
}

impl Interest {
    fn covers(&self, kind: &GroupVersionKind, meta: &Meta) -> bool {
        if let Some(namespace) = meta.namespace() {
            return self.namespaces.contains(&namespace);
        }
        self.terms
            .iter()
            .any(|(wanted, choice)| wanted == kind && choice.picks(&meta.name_any(), meta.labels()))
    }
}

fn name_of(kind: &GroupVersionKind) -> String {
    format!("{}/{}/{}", kind.group, kind.version, kind.kind)
}

/// Names an object the way errors do.
#[must_use]
pub fn describe(id: &ManifestId) -> String {
    id.to_string()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
