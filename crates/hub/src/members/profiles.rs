//! ClusterProfiles are kept, where their CRD is installed: it may come and go while the hub runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use tokio::task::JoinHandle;
use windlass_api::labels;
use windlass_api::member::MemberCluster;
use windlass_api::names::HUB_NAMESPACE;
use windlass_api::profile::{CLUSTER_PROFILE_CRD, ClusterProfile};
use windlass_cluster::{ApiError, Cache, CacheOptions, Change, ObjectKey, Writer, clock};
use windlass_status::digest::Digest;

use super::{Members, profile};
use crate::world::World;

/// How often a profile that could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(15);

type Crd = PartialObjectMeta<CustomResourceDefinition>;

/// See the module. Clones share everything.
#[derive(Clone)]
pub struct Profiles {
    world: World,
    writer: Writer,
    /// While the CRD is there.
    watch: Arc<Mutex<Option<Watch>>>,
    /// None when nobody wants profiles.
    crds: Option<Cache<Crd>>,
    /// What was last sent for a cluster, and the resourceVersion that came of it: an older CRD drops what it
    /// does not know, which must not be sent for ever.
    sent: Arc<DashMap<String, (Digest, Option<String>)>>,
}

struct Watch {
    profiles: Cache<ClusterProfile>,
    news: JoinHandle<()>,
}

impl Profiles {
    /// Begins to look whether the CRD is installed, if profiles are wanted.
    #[must_use]
    pub fn start(world: World, writer: Writer, wanted: bool) -> Self {
        let watch: Arc<Mutex<Option<Watch>>> = Arc::default();
        let crds = wanted.then(|| watch_crd(&world, &writer, &watch));
        Self {
            world,
            writer,
            watch,
            crds,
            sent: Arc::default(),
        }
    }

    /// Brings the profile of a cluster up to date; when to try again, if that fails. `silent`: nothing is heard
    /// of the cluster. Trouble is logged: a profile must not hold up its cluster.
    pub async fn sync(&self, name: &str, silent: bool) -> Option<Duration> {
        let cluster = self.world.clusters.get(&ObjectKey::cluster(name));
        let Some(profiles) = lock(&self.watch)
            .as_ref()
            .map(|watch| watch.profiles.clone())
        else {
            // The CRD is gone, and with it every profile; what waits for that must not wait for ever.
            let gone = self.crds.as_ref().is_none_or(Cache::is_synced);
            return match cluster
                .filter(|cluster| gone && cluster.metadata.deletion_timestamp.is_some())
            {
                Some(cluster) => again(self.unblock(&cluster).await),
                None => None,
            };
        };
        if !profiles.is_synced() || !self.writer.gate().is_open() {
            return None;
        }
        let live = profiles.get(&ObjectKey::namespaced(HUB_NAMESPACE, name));
        let Some(cluster) = cluster.filter(|cluster| cluster.metadata.deletion_timestamp.is_none())
        else {
            self.sent.remove(name);
            return again(self.remove(name, live.as_deref(), &profiles).await);
        };
        let written = self.write(&cluster, live.as_deref(), silent, &profiles);
        again(written.await)
    }

    async fn write(
        &self,
        cluster: &MemberCluster,
        live: Option<&ClusterProfile>,
        silent: bool,
        profiles: &Cache<ClusterProfile>,
    ) -> Result<(), ApiError> {
        if live.is_some_and(|live| !profile::is_ours(live))
            || live.is_none() && !profile::is_wanted(cluster)
        {
            return Ok(());
        }
        let live = match (profile::desired(cluster, live), live) {
            (Some(next), None) => self.writer.create(&next).await?,
            (Some(next), Some(_)) => self.writer.replace(&next).await?,
            (None, Some(live)) => live.clone(),
            (None, None) => return Ok(()),
        };
        profiles.observe(live.clone());
        let Some(status) = profile::desired_status(cluster, &live, silent, clock::now()) else {
            return Ok(());
        };
        let digest = Digest::of_bytes(&serde_json::to_vec(&status).unwrap_or_default());
        let name = cluster.name_any();
        let known = self.sent.get(&name).map(|sent| sent.clone());
        if known == Some((digest, live.resource_version())) {
            return Ok(());
        }
        let next = ClusterProfile {
            status: Some(status),
            ..live
        };
        let live = self.writer.replace_status(&next).await?;
        self.sent.insert(name, (digest, live.resource_version()));
        profiles.observe(live);
        Ok(())
    }

    async fn remove(
        &self,
        name: &str,
        live: Option<&ClusterProfile>,
        profiles: &Cache<ClusterProfile>,
    ) -> Result<(), ApiError> {
        if let Some(live) =
            live.filter(|live| profile::is_ours(live) && live.metadata.deletion_timestamp.is_none())
        {
            self.writer.delete(live).await?;
            profiles.observe_deleted(live);
        }
        match self.world.clusters.get(&ObjectKey::cluster(name)) {
            Some(cluster) => self.unblock(&cluster).await,
            None => Ok(()),
        }
    }

    /// Takes off the finalizer by which another implementation waits for the end of the profile.
    async fn unblock(&self, cluster: &MemberCluster) -> Result<(), ApiError> {
        let is_it = |finalizer: &String| finalizer == labels::PROFILE_FINALIZER;
        if !cluster.finalizers().iter().any(is_it) || !self.writer.gate().is_open() {
            return Ok(());
        }
        let mut changed = cluster.clone();
        changed
            .finalizers_mut()
            .retain(|finalizer| !is_it(finalizer));
        match self.writer.replace(&changed).await {
            Ok(live) => self.world.clusters.observe(live),
            Err(ApiError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Members {
    /// Brings the profile of a cluster up to date; when to try again, if that fails.
    pub(super) async fn show_profile(&self, name: &str) -> Option<Duration> {
        self.profiles.sync(name, self.is_unreachable(name)).await
    }

    pub(super) fn is_leaving(&self, name: &str) -> bool {
        let cluster = self.world.clusters.get(&ObjectKey::cluster(name));
        cluster.is_some_and(|cluster| cluster.metadata.deletion_timestamp.is_some())
    }
}

impl Watch {
    fn start(world: &World, client: kube::Client) -> Self {
        let queue = world.queues.clusters.clone();
        let options = CacheOptions {
            on_change: Arc::new(move |change: &Change<ClusterProfile>| {
                queue.add(change.key.name.clone());
            }),
            ..Default::default()
        };
        let api = Api::namespaced(client, HUB_NAMESPACE);
        let profiles = Cache::start("cluster profiles", api, watcher::Config::default(), options);
        let (listed, world) = (profiles.clone(), world.clone());
        let news = clock::spawn("cluster profiles", async move {
            listed.wait_synced().await;
            for cluster in world.clusters.list() {
                world.queues.clusters.add(cluster.name_any());
            }
        });
        Self { profiles, news }
    }

    fn stop(self) {
        self.profiles.stop();
        self.news.abort();
    }
}

/// Watches whether the CRD is there, and, while it is, its objects.
fn watch_crd(world: &World, writer: &Writer, watch: &Arc<Mutex<Option<Watch>>>) -> Cache<Crd> {
    let (shared, around, client) = (Arc::clone(watch), world.clone(), writer.client().clone());
    let on_change = Arc::new(move |change: &Change<Crd>| {
        let mut watch = lock(&shared);
        match (&change.new, watch.is_some()) {
            (Some(_), false) => {
                tracing::info!("ClusterProfile is installed: each member gets one");
                *watch = Some(Watch::start(&around, client.clone()));
            }
            (None, true) => {
                tracing::info!("ClusterProfile is not installed any more");
                if let Some(watch) = watch.take() {
                    watch.stop();
                }
            }
            _ => {}
        }
    });
    let only = watcher::Config::default().fields(&format!("metadata.name={CLUSTER_PROFILE_CRD}"));
    let options = CacheOptions {
        on_change,
        ..Default::default()
    };
    let crds = Cache::start(
        "cluster profile CRD",
        Api::all(writer.client().clone()),
        only,
        options,
    );
    let told = crds.clone();
    clock::spawn("cluster profiles", async move {
        told.wait_synced().await;
        if told.is_empty() {
            tracing::info!(
                "ClusterProfile ({CLUSTER_PROFILE_CRD}) is not installed: none are made until it is"
            );
        }
    });
    crds
}

fn again(result: Result<(), ApiError>) -> Option<Duration> {
    let error = result.err()?;
    // A conflict is settled by the change that caused it.
    if !matches!(error, ApiError::Conflict(_) | ApiError::AlreadyExists(_)) {
        tracing::warn!(
            error = error.message(),
            "the cluster's ClusterProfile could not be written; it is tried again"
        );
    }
    Some(AGAIN)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
