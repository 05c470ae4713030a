//! A connected member cluster.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use windlass_api::names::member_namespace;
use windlass_api::work::{AppliedWork, AppliedWorkSpec};
use windlass_cluster::clock::{self, Instant};
use windlass_cluster::{ApiError, Cache, CacheOptions, Change, Discovery, Gate, ObjectKey, Writer};

use crate::manifest::ManifestId;
use crate::memory::Memory;
use crate::object::{FIELD_MANAGER, state_of_meta};
use crate::parent::{Parent, Rival, whose};
use crate::watches::Watches;

/// How long the first list of AppliedWorks is waited for before one is read by itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// How a member is connected.
pub struct MemberOptions {
    /// Its name.
    pub cluster: String,
    /// Its client.
    pub client: Client,
    /// What its writes go through.
    pub gate: Gate,
    /// Told the name of the Work whose objects have changed.
    pub wake: Arc<dyn Fn(&str) + Send + Sync>,
    /// Requests of one Work in flight at once.
    pub concurrency: usize,
}

/// See the module.
pub struct Member {
    pub(crate) cluster: String,
    pub(crate) writer: Writer,
    pub(crate) discovery: Discovery,
    pub(crate) concurrency: usize,
    pub(crate) memory: Arc<Memory>,
    pub(crate) watches: Watches,
    works: Cache<AppliedWork>,
    /// Versions by UID that are answers to writes of our own.
    own: Arc<DashMap<String, String>>,
    /// A Work is delivered or removed, not both at once.
    turns: DashMap<String, Arc<tokio::sync::Mutex<()>>>,
    contact: Mutex<Option<Instant>>,
}

impl Member {
    /// Starts the engine. AppliedWorks are watched from now on, other kinds as they are needed.
    #[must_use]
    pub fn start(options: MemberOptions) -> Arc<Self> {
        let memory = Arc::<Memory>::default();
        let own = Arc::<DashMap<String, String>>::default();
        let (wake, written) = (Arc::clone(&options.wake), Arc::clone(&own));
        let of_works = CacheOptions {
            on_change: Arc::new(move |change: &Change<AppliedWork>| {
                let ours = change.new.as_ref().is_some_and(|new| {
                    let (uid, version) = state_of_meta(&new.metadata);
                    written.get(&uid).is_some_and(|written| *written == version)
                });
                if !ours {
                    wake(&change.key.name);
                }
            }),
            ..Default::default()
        };
        let works = Api::all(options.client.clone());
        Arc::new(Self {
            cluster: options.cluster,
            writer: Writer::new(options.client.clone(), FIELD_MANAGER).with_gate(options.gate),
            discovery: Discovery::new(options.client.clone()),
            concurrency: options.concurrency.max(1),
            watches: Watches::new(options.client, options.wake, Arc::clone(&memory)),
            memory,
            works: Cache::start("applied works", works, watcher::Config::default(), of_works),
            own,
            turns: DashMap::new(),
            contact: Mutex::default(),
        })
    }

    /// Ends the watches.
    pub fn stop(&self) {
        self.works.stop();
        self.watches.stop();
    }

    /// Whether the AppliedWork of that name says that a desired state was applied in full.
    #[must_use]
    pub fn has_applied(&self, work: &str, digest: &str) -> bool {
        let work = self.works.get(&ObjectKey::cluster(work));
        let status = work.as_ref().and_then(|work| work.status.as_ref());
        status.and_then(|status| status.digest.as_deref()) == Some(digest)
    }

    /// When the cluster last answered a delivery or a removal; none before the first.
    #[must_use]
    pub fn last_contact(&self) -> Option<Instant> {
        *self.contact.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note_contact(&self) {
        *self.contact.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock::monotonic());
    }

    pub(crate) fn turn(&self, work: &str) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.turns.entry(work.to_owned()).or_default())
    }

    pub(crate) fn end_turns(&self, work: &str) {
        self.turns.remove(work);
    }

    /// The AppliedWork of a placement, made when there is none.
    pub(crate) async fn ensure_work(
        &self,
        parent: &Parent,
        name: &str,
        namespace: &str,
    ) -> Result<AppliedWork, ApiError> {
        if let Some(work) = self.find_work(name).await? {
            if whose(&work).is_none() || parent.rival == Some(Rival::Loses) {
                return self.marked(work, parent).await;
            }
            return Ok(work);
        }
        let spec = AppliedWorkSpec {
            work_name: name.to_owned(),
            work_namespace: namespace.to_owned(),
        };
        let mut work = AppliedWork::new(name, spec);
        parent.mark(&mut work.metadata);
        let work = self.writer.create(&work).await?;
        self.observe_work(work.clone());
        Ok(work)
    }

    /// The AppliedWork with labels that say whose it is, where two may claim it: before anything is done in
    /// its name.
    pub(crate) async fn marked(
        &self,
        mut work: AppliedWork,
        parent: &Parent,
    ) -> Result<AppliedWork, ApiError> {
        if parent.rival.is_some() && whose(&work).as_ref() != Some(&parent.placement) {
            parent.mark(&mut work.metadata);
            work = self.writer.replace(&work).await?;
            self.observe_work(work.clone());
        }
        Ok(work)
    }

    /// The AppliedWork of that name, from the cache if that may be relied on.
    pub(crate) async fn find_work(&self, name: &str) -> Result<Option<AppliedWork>, ApiError> {
        if !self.works.is_synced() && self.works.last_error().is_none() {
            // What is late is read by itself.
            drop(tokio::time::timeout(PATIENCE, self.works.wait_synced()).await);
        }
        if let Some(work) = self.works.get(&ObjectKey::cluster(name)) {
            return Ok(Some((*work).clone()));
        }
        self.read_work(name).await
    }

    /// The AppliedWork of that name as it is on the server.
    pub(crate) async fn read_work(&self, name: &str) -> Result<Option<AppliedWork>, ApiError> {
        let work = self.writer.get::<AppliedWork>(None, name).await?;
        match (&work, self.works.get(&ObjectKey::cluster(name))) {
            (Some(work), _) => self.observe_work(work.clone()),
            (None, Some(gone)) => self.works.observe_deleted(&gone),
            (None, None) => {}
        }
        Ok(work)
    }

    /// Writes the status of an AppliedWork.
    pub(crate) async fn put_work_status(
        &self,
        work: &AppliedWork,
    ) -> Result<AppliedWork, ApiError> {
        let live = self.writer.replace_status(work).await?;
        self.observe_work(live.clone());
        Ok(live)
    }

    fn observe_work(&self, work: AppliedWork) {
        let (uid, version) = state_of_meta(&work.metadata);
        self.own.insert(uid.clone(), version);
        self.works.observe(work);
        self.own.remove(&uid);
    }

    /// Whether there is an AppliedWork of that name and UID. When in doubt, there is.
    pub(crate) fn is_work(&self, name: &str, uid: &str) -> bool {
        !self.works.is_synced()
            || self
                .works
                .get(&ObjectKey::cluster(name))
                .is_some_and(|work| work.uid().as_deref() == Some(uid))
    }

    /// Sends requests, so many at once, and gives the answers in order. They come boxed: the compiler can't
    /// tell that a stream of borrowing futures may move between threads.
    pub(crate) async fn all<T>(&self, requests: Vec<BoxFuture<'_, T>>) -> Vec<T> {
        stream::iter(requests)
            .buffered(self.concurrency)
            .collect()
            .await
    }

    /// Whether the server answers at all.
    pub(crate) async fn answers(&self) -> Result<(), ApiError> {
        match tokio::time::timeout(PATIENCE * 2, self.writer.client().apiserver_version()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(ApiError::from_kube(error)),
            Err(_) => Err(ApiError::transient(format!(
                "cluster {} does not answer",
                self.cluster
            ))),
        }
    }
}

/// Why an AppliedWork is not that of the cluster whose namespace on the hub is `namespace`, if it is not. One
/// cluster that has joined under two names has AppliedWorks of equal names: shared, each delivery would
/// remove what the other one placed.
pub(crate) fn belongs_to_another(work: &AppliedWork, namespace: &str) -> Option<String> {
    let theirs = &work.spec.work_namespace;
    let cluster = |namespace: &str| {
        let name = namespace.strip_prefix(&member_namespace(""));
        name.unwrap_or(namespace).to_owned()
    };
    (!theirs.is_empty() && theirs != namespace).then(|| {
        format!(
            "AppliedWork {} on cluster {} is not its own: this cluster is also in a fleet as {}; nothing was changed there; let it leave under one of the names, or, if that name is no more, release what it left: kubectl delete appliedwork {0} --cascade=orphan",
            work.name_any(),
            cluster(namespace),
            cluster(theirs),
        )
    })
}

pub(crate) fn gvk_of(id: &ManifestId) -> GroupVersionKind {
    GroupVersionKind::gvk(&id.group, &id.version, &id.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_an_applied_work_is() {
        let told = |namespace: &str| {
            let spec = AppliedWorkSpec {
                work_name: "web-work".into(),
                work_namespace: namespace.into(),
            };
            belongs_to_another(&AppliedWork::new("web-work", spec), "fleet-member-east")
        };
        assert_eq!(told("fleet-member-east"), None);
        assert_eq!(told(""), None, "it says nothing");
        let message = told("fleet-member-west").unwrap();
        for part in [
            "AppliedWork web-work on cluster east ",
            "also in a fleet as west;",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
}
