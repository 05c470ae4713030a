//! A connected member cluster.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Api, Client};
use windlass_api::labels;
use windlass_api::work::AppliedWork;
use windlass_cluster::clock::Instant;
use windlass_cluster::{ApiError, Cache, CacheOptions, Change, Discovery, ObjectKey, Writer};

use crate::manifest::ManifestId;
use crate::object::FIELD_MANAGER;

/// How long a first list may take before the cluster counts as not answering.
const LIST_LIMIT: Duration = Duration::from_secs(15);

/// How a member is connected.
pub struct MemberOptions {
    /// Its name.
    pub cluster: String,
    /// Its client.
    pub client: Client,
    /// Told the name of the Work whose objects have changed.
    pub wake: Arc<dyn Fn(&str) + Send + Sync>,
    /// Applies of one Work in flight at once.
    pub concurrency: usize,
}

/// See the module.
pub struct Member {
    pub(crate) cluster: String,
    pub(crate) writer: Writer,
    pub(crate) discovery: Discovery,
    pub(crate) concurrency: usize,
    wake: Arc<dyn Fn(&str) + Send + Sync>,
    kinds: Mutex<HashMap<ApiResourceKey, Cache<DynamicObject>>>,
    /// Which Work an object belongs to.
    pub(crate) works_of: Arc<DashMap<ObjectRef, String>>,
    pub(crate) works: DashMap<String, Arc<tokio::sync::Mutex<WorkState>>>,
}

type ApiResourceKey = (String, String, String);

/// Group, kind, namespace and name: an object whatever version it is looked at in.
pub(crate) type ObjectRef = (String, String, String, String);

/// What is remembered of a Work between two deliveries. All of it may be lost.
#[derive(Default)]
pub(crate) struct WorkState {
    /// The AppliedWork as last seen.
    pub applied: Option<AppliedWork>,
    /// Objects of which an apply changed nothing: clean as long as uid and resourceVersion stay.
    pub clean: HashMap<ManifestId, (String, String)>,
    /// Objects that somebody keeps changing: how often in a row, and when they are applied again.
    pub fights: HashMap<ManifestId, (u32, Instant)>,
}

impl Member {
    /// Prepares the engine; watches start as kinds are needed.
    #[must_use]
    pub fn start(options: MemberOptions) -> Arc<Self> {
        Arc::new(Self {
            cluster: options.cluster,
            writer: Writer::new(options.client.clone(), FIELD_MANAGER),
            discovery: Discovery::new(options.client),
            concurrency: options.concurrency.max(1),
            wake: options.wake,
            kinds: Mutex::default(),
            works_of: Arc::default(),
            works: DashMap::new(),
        })
    }

    /// Ends the watches.
    pub fn stop(&self) {
        for cache in lock(&self.kinds).values() {
            cache.stop();
        }
    }

    pub(crate) fn work_state(&self, work: &str) -> Arc<tokio::sync::Mutex<WorkState>> {
        Arc::clone(&self.works.entry(work.to_owned()).or_default())
    }

    /// What is placed of a kind, watched from now on.
    pub(crate) fn watch(&self, kind: &ApiResource) -> Cache<DynamicObject> {
        let key = (kind.group.clone(), kind.version.clone(), kind.kind.clone());
        let mut kinds = lock(&self.kinds);
        if let Some(cache) = kinds.get(&key) {
            return cache.clone();
        }
        let (works_of, wake) = (Arc::clone(&self.works_of), Arc::clone(&self.wake));
        let (group, name) = (kind.group.clone(), kind.kind.clone());
        let options = CacheOptions {
            on_change: Arc::new(move |change: &Change<DynamicObject>| {
                let object = (
                    group.clone(),
                    name.clone(),
                    change.key.namespace.clone(),
                    change.key.name.clone(),
                );
                if let Some(work) = works_of.get(&object) {
                    wake(&work);
                }
            }),
            ..Default::default()
        };
        let config = watcher::Config::default().labels(&format!(
            "{}={}",
            labels::PLACED,
            labels::PLACED_VALUE
        ));
        let cache = Cache::start(
            "placed",
            Api::all_with(self.writer.client().clone(), kind),
            config,
            options,
        );
        kinds.insert(key, cache.clone());
        cache
    }

    /// As [`Self::watch`], once the first list is in.
    ///
    /// # Errors
    /// When it does not come.
    pub(crate) async fn watched(
        &self,
        kind: &ApiResource,
    ) -> Result<Cache<DynamicObject>, ApiError> {
        let cache = self.watch(kind);
        if tokio::time::timeout(LIST_LIMIT, cache.wait_synced())
            .await
            .is_err()
        {
            let why = cache.last_error().unwrap_or_else(|| "no answer".to_owned());
            return Err(ApiError::transient(format!(
                "{} of cluster {} can't be listed: {why}",
                kind.plural, self.cluster
            )));
        }
        Ok(cache)
    }

    pub(crate) fn own(&self, id: &ManifestId, work: &str) {
        self.works_of.insert(object_ref(id), work.to_owned());
    }

    pub(crate) fn disown(&self, id: &ManifestId) {
        self.works_of.remove(&object_ref(id));
    }
}

pub(crate) fn object_ref(id: &ManifestId) -> ObjectRef {
    (
        id.group.clone(),
        id.kind.clone(),
        id.namespace.clone().unwrap_or_default(),
        id.name.clone(),
    )
}

pub(crate) fn key_of(id: &ManifestId) -> ObjectKey {
    ObjectKey::namespaced(id.namespace.clone().unwrap_or_default(), id.name.clone())
}

pub(crate) fn gvk_of(id: &ManifestId) -> GroupVersionKind {
    GroupVersionKind::gvk(&id.group, &id.version, &id.kind)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
