//! Add-ons on the hub: repositories are read ([`repository`]), what they offer is written ([`catalogue`]), and
//! what Addons ask for is rendered and handed to a placement ([`addon`]).
//!
//! What a reading, a status and a render come to is for `windlass_addons`; here are the caches, the writes and
//! their order. Secrets are watched as metadata and read when a repository is looked at; only those of the
//! hub's own namespace, whatever a repository names.

mod catalogue;
pub mod repository;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Secret;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use windlass_addons::catalogue::InUse;
use windlass_addons::version::Loose;
use windlass_api::addon::{Addon, AddonChart, AddonRepository, RepositorySpec};
use windlass_api::names;
use windlass_cluster::{Cache, CacheOptions, Change, Index};

use crate::observe::Observer;
use crate::world::{Queues, enqueue};

/// Index of repositories: the Secrets that they name. Of AddonCharts and Addons: their repository.
const BY_SECRET: &str = "secret";
const BY_REPOSITORY: &str = "repository";

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
    secrets: Cache<PartialObjectMeta<DynamicObject>>,
    /// Repositories that an Addon waits for a version of that their AddonCharts leave out.
    wanted: Arc<Mutex<BTreeSet<String>>>,
    queues: Queues,
}

impl AddonCaches {
    /// Starts the watches.
    #[must_use]
    pub fn start(client: &Client, queues: &Queues, observer: &Observer) -> Self {
        let all = watcher::Config::default;
        let repositories = Cache::start(
            "add-on repositories",
            Api::all(client.clone()),
            all(),
            repository_options(queues, observer),
        );
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
                chart_options(),
            ),
            addons: Cache::start(
                "add-ons",
                Api::all(client.clone()),
                all(),
                addon_options(),
            ),
            repositories,
            wanted: Arc::default(),
            queues: queues.clone(),
        }
    }

    /// Waits until every watch has delivered its first list.
    pub async fn wait_synced(&self) {
        futures::join!(
            self.repositories.wait_synced(),
            self.charts.wait_synced(),
            self.addons.wait_synced(),
            self.secrets.wait_synced(),
        );
    }

    /// Which watches have not delivered their first list, and why.
    pub fn unsynced(&self) -> impl Iterator<Item = (String, Option<String>)> {
        fn waits<K>(cache: &Cache<K>, name: &str) -> Option<(String, Option<String>)>
        where
            K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
        {
            (!cache.is_synced()).then(|| (name.to_owned(), cache.last_error()))
        }
        [
            waits(&self.repositories, "add-on repositories"),
            waits(&self.charts, "add-on charts"),
            waits(&self.addons, "add-ons"),
            waits(&self.secrets, "secrets of add-on repositories"),
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

    /// Asks for a reading of a repository, for an Addon names a version that was left out of it.
    pub fn want(&self, repository: &str) {
        self.lock().insert(repository.to_owned());
        self.queues.repositories.add(repository.to_owned());
    }

    /// Whether somebody has asked since the last time.
    fn take_wanted(&self, repository: &str) -> bool {
        self.lock().remove(repository)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        // No code that can panic runs under the lock.
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
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

fn repository_options(queues: &Queues, observer: &Observer) -> CacheOptions<AddonRepository> {
    let (queue, observer) = (queues.repositories.clone(), observer.clone());
    CacheOptions {
        indexes: vec![Index {
            name: BY_SECRET,
            values: |repository| secrets_of(&repository.spec).map(str::to_owned).collect(),
        }],
        on_change: Arc::new(move |change: &Change<AddonRepository>| {
            observer.repository_changed(change);
            enqueue(&queue, change.key.name.clone(), change.initial);
        }),
        ..Default::default()
    }
}

fn secret_options(
    queues: &Queues,
    repositories: Cache<AddonRepository>,
) -> CacheOptions<PartialObjectMeta<DynamicObject>> {
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

fn chart_options() -> CacheOptions<AddonChart> {
    CacheOptions {
        indexes: vec![Index {
            name: BY_REPOSITORY,
            values: |chart| vec![chart.spec.repository.clone()],
        }],
        ..Default::default()
    }
}

fn addon_options() -> CacheOptions<Addon> {
    CacheOptions {
        indexes: vec![Index {
            name: BY_REPOSITORY,
            values: |addon| vec![addon.spec.chart.repository.clone()],
        }],
        ..Default::default()
    }
}
