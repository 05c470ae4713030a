//! Add-ons on the hub: repositories are read ([`repository`]), what they offer is written ([`catalogue`]), and
//! what Addons ask for is rendered and handed to a placement ([`addon`]).
//!
//! What a reading, a status and a render come to is for `windlass_addons`; here are the caches, the writes and
//! their order. Secrets are watched as metadata and read when a repository is looked at; only those of the
//! hub's own namespace, whatever a repository names.

pub mod addon;
mod catalogue;
mod choice;
mod envelopes;
mod making;
mod placement;
pub mod repository;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use windlass_addons::catalogue::InUse;
use windlass_addons::version::Loose;
use windlass_api::addon::{Addon, AddonChart, AddonRepository, RepositorySpec};
use windlass_api::{PLACEMENT_GROUP, STORAGE_VERSION, labels, names};
use windlass_cluster::{Cache, CacheOptions, Change, Index, ObjectKey, Queue, clock};

use crate::observe::Observer;
use crate::select::renders::{Listing, Renders};
use crate::world::{Queues, enqueue};

/// Index of repositories: the Secrets that they name.
const BY_SECRET: &str = "secret";
/// Index of AddonCharts and Addons: their repository.
const BY_REPOSITORY: &str = "repository";
/// Index of Addons: their placement.
const BY_PLACEMENT: &str = "placement";
/// Index of envelopes: the Addon that their label names.
const BY_ADDON: &str = "addon";

/// Metadata of an object.
type Meta = PartialObjectMeta<DynamicObject>;

/// Whether a placement is the one of an Addon.
#[must_use]
pub fn is_for(addon: &Addon, placement: &ObjectKey) -> bool {
    placement.namespace.is_empty() && placement.name == placement::name_of(addon)
}

/// From −1 to 1.
fn jitter() -> f64 {
    let second = Duration::from_secs(1);
    clock::jitter(second, 1.0).as_secs_f64() - 1.0
}

/// See the module. Clones share everything.
#[derive(Clone)]
pub struct AddonCaches {
    /// Repositories.
    pub repositories: Cache<AddonRepository>,
    /// What they offer.
    pub charts: Cache<AddonChart>,
    /// What is placed of it.
    pub addons: Cache<Addon>,
    /// Metadata of the Secrets in the hub's namespace.
    secrets: Cache<Meta>,
    /// Metadata of ClusterResourceEnvelopes and ResourceEnvelopes that Addons have made.
    envelopes: [Cache<Meta>; 2],
    /// Repositories that have to be read although they are not due.
    wanted: Wanted,
    queues: Queues,
}

impl AddonCaches {
    /// Starts the watches.
    #[must_use]
    pub fn start(client: &Client, queues: &Queues, observer: &Observer) -> Self {
        let all = watcher::Config::default;
        let wanted = Wanted::new(queues);
        let addons = Cache::start(
            "add-ons",
            Api::all(client.clone()),
            all(),
            addon_options(queues, observer),
        );
        let repositories = Cache::start(
            "add-on repositories",
            Api::all(client.clone()),
            all(),
            repository_options(queues, observer, addons.clone()),
        );
        let envelopes = ["ClusterResourceEnvelope", "ResourceEnvelope"].map(|kind| {
            let kind = GroupVersionKind::gvk(PLACEMENT_GROUP, STORAGE_VERSION, kind);
            Cache::start_metadata(
                "envelopes of add-ons",
                client,
                &ApiResource::from_gvk(&kind),
                None,
                all().labels(labels::ADDON),
                envelope_options(queues),
            )
        });
        Self {
            secrets: Cache::start_metadata(
                "secrets of add-on repositories",
                client,
                &ApiResource::erase::<Secret>(&()),
                Some(names::HUB_NAMESPACE),
                all(),
                secret_options(queues, repositories.clone()),
            ),
            charts: Cache::start(
                "add-on charts",
                Api::all(client.clone()),
                all(),
                chart_options(queues, addons.clone(), wanted.clone()),
            ),
            addons,
            envelopes,
            repositories,
            wanted,
            queues: queues.clone(),
        }
    }

    /// Call it when this process begins to lead: what another one took away meanwhile was no loss, and is no
    /// reason to read a repository before its day.
    pub fn lead(&self) {
        self.wanted.lock().repositories.clear();
    }

    /// Waits until every watch has delivered its first list.
    pub async fn wait_synced(&self) {
        futures::join!(
            self.repositories.wait_synced(),
            self.charts.wait_synced(),
            self.addons.wait_synced(),
            self.secrets.wait_synced(),
            self.envelopes[0].wait_synced(),
            self.envelopes[1].wait_synced(),
        );
    }

    /// Which watches have not delivered their first list, and why.
    pub fn unsynced(&self) -> impl Iterator<Item = (String, Option<String>)> {
        fn waits<K>(cache: &Cache<K>, name: &str) -> Option<(String, Option<String>)>
        where
            K: Resource
                + Clone
                + std::fmt::Debug
                + serde::de::DeserializeOwned
                + Send
                + Sync
                + 'static,
        {
            (!cache.is_synced()).then(|| (name.to_owned(), cache.last_error()))
        }
        [
            waits(&self.repositories, "add-on repositories"),
            waits(&self.charts, "add-on charts"),
            waits(&self.addons, "add-ons"),
            waits(&self.secrets, "secrets of add-on repositories"),
            waits(&self.envelopes[0], "cluster envelopes of add-ons"),
            waits(&self.envelopes[1], "envelopes of add-ons"),
        ]
        .into_iter()
        .flatten()
    }

    /// Ends the watches.
    pub fn stop(&self) {
        self.repositories.stop();
        self.charts.stop();
        self.addons.stop();
        self.secrets.stop();
        self.envelopes.iter().for_each(Cache::stop);
    }

    /// The versions of a repository's charts that Addons run or name: they are kept whatever the bound.
    #[must_use]
    pub fn in_use(&self, repository: &str) -> InUse {
        let mut in_use = InUse::new();
        for addon in self.addons.by_index(BY_REPOSITORY, repository) {
            let chart = &addon.spec.chart;
            let asked = chart.version.as_deref().and_then(Loose::parse);
            let status = addon.status.as_ref();
            let runs = status.filter(|status| {
                let of = status.chosen_for.as_ref();
                of.is_some_and(|of| of.repository == repository && of.name == chart.name)
            });
            let versions = in_use.entry(chart.name.clone()).or_default();
            versions.extend(runs.and_then(|status| status.version.clone()));
            versions.extend(asked.map(|asked| asked.text));
        }
        in_use.retain(|_, versions| {
            versions.sort();
            versions.dedup();
            !versions.is_empty()
        });
        in_use
    }

    /// What the Addons of a placement list, for whoever selects their envelopes.
    #[must_use]
    pub fn renders(&self) -> Renders {
        let addons = self.addons.clone();
        Renders::new(Arc::new(move |placement| {
            if !placement.namespace.is_empty() {
                return Vec::new();
            }
            let own = addons.by_index(BY_PLACEMENT, &placement.name);
            own.iter().map(|addon| Listing::of(addon)).collect()
        }))
    }

    /// Wakes the Addons that a placement is for.
    pub fn placement_changed(&self, name: &str, initial: bool) {
        for addon in self.addons.by_index(BY_PLACEMENT, name) {
            enqueue(&self.queues.addons, addon.name_any(), initial);
        }
    }

    fn envelope(&self, namespaced: bool, key: &ObjectKey) -> Option<Arc<Meta>> {
        self.envelopes[usize::from(namespaced)].get(key)
    }

    /// Those with the label of an Addon, each with whether it lives in a namespace.
    fn envelopes_of(&self, addon: &str) -> Vec<(bool, Arc<Meta>)> {
        let of = |namespaced: bool| {
            let found = self.envelopes[usize::from(namespaced)].by_index(BY_ADDON, addon);
            found.into_iter().map(move |meta| (namespaced, meta))
        };
        of(false).chain(of(true)).collect()
    }

    fn envelope_written(&self, namespaced: bool, live: &DynamicObject) {
        self.envelopes[usize::from(namespaced)].observe(Meta {
            types: live.types.clone(),
            metadata: live.metadata.clone(),
            _phantom: std::marker::PhantomData,
        });
    }

    /// Repositories that have to be read although they are not due.
    pub(crate) fn wanted(&self) -> &Wanted {
        &self.wanted
    }
}

/// Repositories that have to be read although they are not due: an Addon names a version that their AddonCharts
/// leave out, or an AddonChart is gone. Clones share everything.
#[derive(Clone)]
pub(crate) struct Wanted {
    state: Arc<Mutex<WantedState>>,
    queue: Queue<String>,
}

#[derive(Default)]
struct WantedState {
    repositories: BTreeSet<String>,
    /// AddonCharts that the hub itself takes away.
    pruned: BTreeSet<String>,
    /// What Addons have asked for, and when, by Addon: nothing is asked for twice.
    asked: BTreeMap<String, (String, Timestamp)>,
}

impl Wanted {
    fn new(queues: &Queues) -> Self {
        Self {
            state: Arc::default(),
            queue: queues.repositories.clone(),
        }
    }

    /// Asks for a reading, once for the same words of an Addon. When it was asked for.
    pub(crate) fn ask(&self, repository: &str, addon: &str, words: String) -> Timestamp {
        let mut state = self.lock();
        if let Some((before, at)) = state.asked.get(addon)
            && *before == words
        {
            return *at;
        }
        let now = clock::now();
        state.asked.insert(addon.to_owned(), (words, now));
        state.repositories.insert(repository.to_owned());
        drop(state);
        self.queue.add(repository.to_owned());
        now
    }

    /// An Addon is gone.
    pub(crate) fn forget(&self, addon: &str) {
        self.lock().asked.remove(addon);
    }

    /// Whether somebody has asked since it was read.
    pub(crate) fn is(&self, repository: &str) -> bool {
        self.lock().repositories.contains(repository)
    }

    /// It is about to be read, or is gone.
    pub(crate) fn read(&self, repository: &str) {
        self.lock().repositories.remove(repository);
    }

    /// The hub is about to take an AddonChart away.
    pub(crate) fn pruning(&self, chart: &str) {
        self.lock().pruned.insert(chart.to_owned());
    }

    /// It could not.
    pub(crate) fn not_pruned(&self, chart: &str) {
        self.lock().pruned.remove(chart);
    }

    /// An AddonChart is gone: it is written again, unless that was the hub.
    fn chart_gone(&self, chart: &str, repository: &str) {
        let mut state = self.lock();
        if state.pruned.remove(chart) {
            return;
        }
        state.repositories.insert(repository.to_owned());
        drop(state);
        self.queue.add(repository.to_owned());
    }

    fn lock(&self) -> MutexGuard<'_, WantedState> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names of the Secrets that a repository is read with.
fn secrets_of(spec: &RepositorySpec) -> impl Iterator<Item = &str> {
    let references = [&spec.secret_ref, &spec.cert_secret_ref];
    references
        .into_iter()
        .flatten()
        .map(|reference| reference.name.as_str())
}

fn repository_options(
    queues: &Queues,
    observer: &Observer,
    addons: Cache<Addon>,
) -> CacheOptions<AddonRepository> {
    let (queues, observer) = (queues.clone(), observer.clone());
    CacheOptions {
        indexes: vec![Index {
            name: BY_SECRET,
            values: |repository| secrets_of(&repository.spec).map(str::to_owned).collect(),
        }],
        on_change: Arc::new(move |change: &Change<AddonRepository>| {
            observer.repository_changed(change);
            let name = &change.key.name;
            enqueue(&queues.repositories, name.clone(), change.initial);
            // Only one that waits for it cares what a repository says of itself.
            let conditions = |repository: &Option<Arc<AddonRepository>>| {
                let status = repository.as_ref()?.status.as_ref()?;
                status.conditions.clone()
            };
            if conditions(&change.old) != conditions(&change.new) {
                for addon in addons.by_index(BY_REPOSITORY, name) {
                    enqueue(&queues.addons, addon.name_any(), change.initial);
                }
            }
        }),
        ..Default::default()
    }
}

fn secret_options(queues: &Queues, repositories: Cache<AddonRepository>) -> CacheOptions<Meta> {
    let queue = queues.repositories.clone();
    CacheOptions {
        on_change: Arc::new(move |change| {
            for repository in repositories.by_index(BY_SECRET, &change.key.name) {
                let name = repository.metadata.name.clone().unwrap_or_default();
                enqueue(&queue, name, change.initial);
            }
        }),
        ..Default::default()
    }
}

/// What a chart offers is the affair of the Addons that are made of it.
fn chart_options(
    queues: &Queues,
    addons: Cache<Addon>,
    wanted: Wanted,
) -> CacheOptions<AddonChart> {
    let queue = queues.addons.clone();
    CacheOptions {
        indexes: vec![Index {
            name: BY_REPOSITORY,
            values: |chart| vec![chart.spec.repository.clone()],
        }],
        on_change: Arc::new(move |change: &Change<AddonChart>| {
            let Some(chart) = change.new.as_ref().or(change.old.as_ref()) else {
                return;
            };
            if change.new.is_none() {
                wanted.chart_gone(&change.key.name, &chart.spec.repository);
            }
            for addon in addons.by_index(BY_REPOSITORY, &chart.spec.repository) {
                if addon.spec.chart.name == chart.spec.chart {
                    enqueue(&queue, addon.name_any(), change.initial);
                }
            }
        }),
        ..Default::default()
    }
}

fn addon_options(queues: &Queues, observer: &Observer) -> CacheOptions<Addon> {
    let (queue, observer) = (queues.addons.clone(), observer.clone());
    let placements = queues.placements.clone();
    CacheOptions {
        indexes: vec![
            Index {
                name: BY_REPOSITORY,
                values: |addon| vec![addon.spec.chart.repository.clone()],
            },
            Index {
                name: BY_PLACEMENT,
                values: |addon| vec![placement::name_of(addon)],
            },
        ],
        on_change: Arc::new(move |change: &Change<Addon>| {
            observer.addon_changed(change);
            // A placement that waits for a render may not select any of it, and would not hear of it otherwise.
            let listing = |addon: &Option<Arc<Addon>>| addon.as_deref().map(Listing::of);
            if listing(&change.old) != listing(&change.new) {
                let both = [&change.old, &change.new].into_iter().flatten();
                for name in both
                    .map(|addon| placement::name_of(addon))
                    .collect::<BTreeSet<_>>()
                {
                    enqueue(&placements, ObjectKey::cluster(name), change.initial);
                }
            }
            // A status that we wrote is no reason to look again.
            let same_wish = matches!((&change.old, &change.new), (Some(old), Some(new))
                if old.metadata.generation == new.metadata.generation
                    && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
                    && old.metadata.uid == new.metadata.uid
                    && old.status == new.status);
            if !same_wish {
                enqueue(&queue, change.key.name.clone(), change.initial);
            }
        }),
        ..Default::default()
    }
}

/// An envelope is its Addon's affair: one that somebody changed or took away is written again.
fn envelope_options(queues: &Queues) -> CacheOptions<Meta> {
    let queue = queues.addons.clone();
    CacheOptions {
        indexes: vec![Index {
            name: BY_ADDON,
            values: |meta| {
                meta.labels()
                    .get(labels::ADDON)
                    .cloned()
                    .into_iter()
                    .collect()
            },
        }],
        on_change: Arc::new(move |change: &Change<Meta>| {
            // One that was given another label has two to tell.
            let labels = [&change.old, &change.new].into_iter().flatten();
            let labels = labels.filter_map(|meta| meta.labels().get(labels::ADDON));
            for addon in labels.collect::<BTreeSet<_>>() {
                enqueue(&queue, addon.clone(), change.initial);
            }
        }),
        ..Default::default()
    }
}
