//! Member clusters in push mode: connected, watched over, and let go in order.
//!
//! One look at a cluster (re-)connects it when its Secret has changed, probes it, renews its token, and
//! writes its status when that says something new. Liveness is kept in memory, measured with the
//! monotonic clock; after a restart no cluster is unhealthy before one full threshold (design §5.21).

mod contact;
pub mod facts;
pub mod heard;
pub mod leave;
pub mod left_behind;
pub mod migrate;
pub mod profile;
pub mod profiles;
pub mod pull;
pub mod status;
pub mod usage;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dashmap::{DashMap, DashSet};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use prometheus::{IntGaugeVec, Opts, Registry};
use windlass_api::member::MemberCluster;
use windlass_api::{labels, names};
use windlass_cluster::clock::{self, Instant};
use windlass_cluster::{
    ApiError, Cache, CacheOptions, ConnectOptions, ObjectKey, RequestCounter, Writer, connect,
    parse_stored_kubeconfig,
};
use windlass_member::{Member, MemberOptions, credentials};
use windlass_status::digest::Digest;

use self::facts::KnownSince;
use self::migrate::Mode;
use self::profiles::Profiles;
use self::status::Endpoint;
use self::usage::{trim_node, trim_pod};
use crate::observe::{Skipped, skipped};
use crate::worker::{Next, work};
use crate::works;
use crate::world::{BY_CLUSTER, World};

/// Limit for one probe.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// How clusters are watched over.
#[derive(Clone, Copy, Debug)]
pub struct MemberPolicy {
    /// A cluster that has not answered for so long is unhealthy.
    pub unhealthy_threshold: Duration,
    /// A leaving cluster that can't be reached is given up after so long.
    pub force_delete_wait: Duration,
    /// Whether members get ClusterProfiles, where that kind is installed.
    pub profiles: bool,
}

/// See the module. Clones share everything.
#[derive(Clone)]
pub struct Members {
    world: World,
    writer: Writer,
    requests: RequestCounter,
    policy: MemberPolicy,
    connections: Arc<DashMap<String, Connection>>,
    goodbyes: Arc<DashMap<String, leave::Goodbye>>,
    /// Bindings that wait for their turn in the rollout, as delivery found.
    held: Arc<DashSet<ObjectKey>>,
    profiles: Profiles,
    agents: Arc<DashMap<String, pull::Agent>>,
    /// When clusters were last heard of, as placements were told.
    contacts: Arc<DashMap<String, Timestamp>>,
    healthy: IntGaugeVec,
    token_expiry: IntGaugeVec,
}

/// A connected cluster.
#[derive(Clone)]
struct Connection {
    member: Arc<Member>,
    client: Client,
    /// Digest of the stored kubeconfig, to notice a rotated one.
    secret: Digest,
    expires: Option<Timestamp>,
    endpoint: Option<Endpoint>,
    nodes: Cache<Node>,
    pods: Cache<Pod>,
    state: Arc<Mutex<Liveness>>,
}

/// What probes have found.
#[derive(Clone, Debug)]
struct Liveness {
    known_since: KnownSince,
    answered: Option<(Instant, Timestamp)>,
    trouble: String,
    unauthorized: bool,
    version: Option<String>,
    healthy: Option<bool>,
}

impl Members {
    /// Wires things up; nothing runs yet.
    ///
    /// # Errors
    /// When a metric of the same name is registered already.
    pub fn new(
        world: World,
        writer: Writer,
        requests: RequestCounter,
        policy: MemberPolicy,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| -> Result<IntGaugeVec, prometheus::Error> {
            let gauge = IntGaugeVec::new(Opts::new(name, help), &["cluster"])?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        Ok(Self {
            profiles: Profiles::start(world.clone(), writer.clone(), policy.profiles),
            world,
            writer,
            requests,
            policy,
            connections: Arc::default(),
            goodbyes: Arc::default(),
            held: Arc::default(),
            agents: Arc::default(),
            contacts: Arc::default(),
            healthy: gauge(
                "windlass_member_healthy",
                "Whether a member cluster answers.",
            )?,
            token_expiry: gauge(
                "windlass_member_token_expiry_timestamp_seconds",
                "When the hub's token for a member expires.",
            )?,
        })
    }

    /// Works until the queue is closed.
    pub async fn work(self) {
        let queue = self.world.queues.clusters.clone();
        work(queue, "cluster", |name| {
            let this = self.clone();
            async move { this.look(&name).await }
        })
        .await;
    }

    /// The engine of a connected cluster. None while it does not answer: what waits for it is woken when
    /// it does.
    #[must_use]
    pub fn get(&self, cluster: &str) -> Option<Arc<Member>> {
        let connection = self.connections.get(cluster)?;
        let silent = lock(&connection.state).healthy == Some(false);
        (!silent).then(|| Arc::clone(&connection.member))
    }

    /// Clusters that have stopped answering, or whose agents have stopped reporting.
    #[must_use]
    pub fn unreachable(&self) -> BTreeSet<String> {
        self.world
            .clusters
            .list()
            .iter()
            .filter(|cluster| self.is_silent_one(cluster))
            .map(|cluster| cluster.name_any())
            .collect()
    }

    /// Whether a cluster is one of those.
    fn is_unreachable(&self, name: &str) -> bool {
        let cluster = self.world.clusters.get(&ObjectKey::cluster(name));
        cluster.is_some_and(|cluster| self.is_silent_one(&cluster))
    }

    pub(crate) fn is_silent_one(&self, cluster: &MemberCluster) -> bool {
        let name = cluster.name_any();
        if !is_push(cluster) {
            return self.is_silent(&name);
        }
        self.connections
            .get(&name)
            .is_none_or(|c| lock(&c.state).healthy == Some(false))
    }

    /// One look at a cluster, and at its ClusterProfile: of one that leaves it goes first.
    async fn look(&self, name: &str) -> Result<Next, ApiError> {
        if self.is_leaving(name) {
            self.show_profile(name).await;
            return self.process(name).await;
        }
        let before = self.known_contact(name);
        let next = self.process(name).await;
        self.note_contact(name, before);
        Ok(match (next?, self.show_profile(name).await) {
            (Next::Event, Some(wait)) => Next::After(wait),
            (next, _) => next,
        })
    }

    async fn process(&self, name: &str) -> Result<Next, ApiError> {
        let Some(cluster) = self.world.clusters.get(&ObjectKey::cluster(name)) else {
            let known = self.agents.remove(name).is_some();
            if self.disconnect(name).is_some() || known {
                self.forget_series(name);
            }
            self.world.pull.forget(name);
            self.contacts.remove(name);
            return self.clear_orphan(name).await;
        };
        let stays = cluster.metadata.deletion_timestamp.is_none();
        let migrates = self
            .changes_to(&cluster)
            .filter(|_| stays && self.writer.gate().is_open());
        let cluster = if migrates.is_none() {
            self.end_migrating(cluster).await?
        } else {
            cluster
        };
        match (is_push(&cluster), migrates) {
            (true, None) => self.process_push(cluster).await,
            (false, None) => self.process_pull(cluster).await,
            (false, Some(Mode::Push)) => self.await_push(&cluster).await,
            (true, Some(Mode::Push)) => {
                self.process_push(cluster).await?;
                self.end_pull(name).await
            }
            (true, Some(Mode::Pull)) => {
                self.process_push(cluster).await?;
                self.await_agent(name).await
            }
            (false, Some(Mode::Pull)) => {
                self.process_pull(cluster).await?;
                self.end_push(name).await
            }
        }
    }

    /// One look at a cluster in push mode.
    async fn process_push(&self, cluster: Arc<MemberCluster>) -> Result<Next, ApiError> {
        let name = &cluster.name_any();
        if !self.writer.gate().is_open() {
            return Ok(self.stand_by(name, &cluster).await);
        }
        if cluster.metadata.deletion_timestamp.is_some() {
            return self.leave(&cluster).await;
        }
        // Of an earlier stay that ended without us.
        self.goodbyes.remove(name);
        let cluster = self.ensure_marks(cluster).await?;
        let invalid = self.connect(name).await.err();
        let connection = self
            .connections
            .get(name)
            .map(|connection| connection.clone());
        let every = self.probe_period(&cluster);
        if let Some(connection) = &connection {
            self.probe(name, connection).await;
            if let Err(error) = self.renew(&cluster, connection).await {
                tracing::warn!(
                    error = error.message(),
                    "the token could not be renewed; it is tried again"
                );
            }
        }
        let facts = self.facts(&cluster, connection.as_ref(), invalid);
        if let Some(status) = status::desired(&cluster, &facts, clock::now()) {
            self.put_status(&cluster, status).await?;
        } else {
            skipped(Skipped::Cluster);
        }
        Ok(Next::After(clock::jitter(every, 0.1)))
    }

    /// While another process leads: the cluster is connected and probed, so that both are known by the time
    /// that we lead, and nothing is written.
    async fn stand_by(&self, name: &str, cluster: &MemberCluster) -> Next {
        if let Err(trouble) = self.connect(name).await {
            tracing::debug!(cluster = name, trouble, "not connected");
        }
        let connection = self
            .connections
            .get(name)
            .map(|connection| connection.clone());
        if let Some(connection) = connection {
            self.probe(name, &connection).await;
        }
        Next::After(clock::jitter(self.probe_period(cluster), 0.1))
    }

    /// Looks at every cluster: from now on we lead.
    pub fn lead(&self) {
        for cluster in self.world.clusters.list() {
            self.world.queues.clusters.add(cluster.name_any());
        }
        for name in self.with_going_namespaces() {
            self.world.queues.clusters.add(name);
        }
    }

    /// Removes the metrics of a cluster that has left.
    fn forget_series(&self, name: &str) {
        self.requests.forget(name);
        // Series that are gone already are as wanted.
        drop(self.healthy.remove_label_values(&[name]));
        drop(self.token_expiry.remove_label_values(&[name]));
    }

    /// The finalizer and the label with the cluster's own name, in one write.
    async fn ensure_marks(
        &self,
        cluster: Arc<MemberCluster>,
    ) -> Result<Arc<MemberCluster>, ApiError> {
        let mut changed = (*cluster).clone();
        if !changed
            .finalizers()
            .iter()
            .any(|f| f == labels::MEMBER_FINALIZER)
        {
            changed
                .finalizers_mut()
                .push(labels::MEMBER_FINALIZER.to_owned());
        }
        let name = cluster.name_any();
        changed
            .labels_mut()
            .insert(labels::MEMBER_NAME.to_owned(), name);
        if changed.metadata == cluster.metadata {
            return Ok(cluster);
        }
        let live = self.writer.replace(&changed).await?;
        self.world.clusters.observe(live.clone());
        Ok(Arc::new(live))
    }

    /// Connects a cluster whose Secret is new or has changed. What can't be used ends the connection that
    /// an earlier Secret made: what is stored counts, as it would after a restart.
    async fn connect(&self, name: &str) -> Result<(), String> {
        let result = self.connect_by_secret(name).await;
        if result.is_err() {
            self.disconnect(name);
        }
        result
    }

    async fn connect_by_secret(&self, name: &str) -> Result<(), String> {
        let place = format!(
            "Secret {}/{}",
            names::HUB_NAMESPACE,
            names::credentials_secret(name)
        );
        let unusable = |why: &str| format!("{place}: {why}; run windlass join {name} again");
        let secret = self.secret_of(name).ok_or_else(|| {
            format!("{place} with the cluster's credentials does not exist; run windlass join {name} again")
        })?;
        let bytes = secret
            .data
            .as_ref()
            .and_then(|data| data.get(credentials::KUBECONFIG_KEY))
            .ok_or_else(|| unusable(&format!("it has no key {}", credentials::KUBECONFIG_KEY)))?;
        let digest = Digest::of_bytes(&bytes.0);
        if self
            .connections
            .get(name)
            .is_some_and(|connection| connection.secret == digest)
        {
            return Ok(());
        }
        let kubeconfig =
            parse_stored_kubeconfig(&bytes.0).map_err(|error| unusable(&error.to_string()))?;
        let endpoint = Endpoint::of(&kubeconfig);
        let client = connect(kubeconfig, &ConnectOptions::new(name), &self.requests)
            .await
            .map_err(|error| unusable(&error.to_string()))?;
        let previous = self.disconnect(name);
        let expiry = credentials::expiry(&secret);
        let mut connection = self.connection(name, client, digest, expiry, previous);
        connection.endpoint = endpoint;
        self.connections.insert(name.to_owned(), connection);
        self.wake(name);
        Ok(())
    }

    fn connection(
        &self,
        name: &str,
        client: Client,
        secret: Digest,
        expires: Option<Timestamp>,
        previous: Option<Liveness>,
    ) -> Connection {
        let world = self.world.clone();
        let cluster = name.to_owned();
        let wake = Arc::new(move |work: &str| {
            for placement in works::placements_of(work) {
                for binding in world.bindings_to(&placement, &cluster) {
                    world.queues.bindings.add(ObjectKey::of(&*binding));
                }
            }
        });
        let member = Member::start(MemberOptions {
            cluster: name.to_owned(),
            client: client.clone(),
            gate: self.writer.gate().clone(),
            wake,
            concurrency: 8,
        });
        let queue = self.world.queues.clusters.clone();
        let changed = name.to_owned();
        let nodes = CacheOptions {
            trim: Some(trim_node as fn(&mut Node)),
            // Gathered a little: nodes of a cluster tend to change together.
            on_change: Arc::new(move |_: &windlass_cluster::Change<Node>| {
                queue.add_after(changed.clone(), Duration::from_millis(500));
            }),
            ..Default::default()
        };
        let pods = CacheOptions {
            trim: Some(trim_pod as fn(&mut Pod)),
            ..Default::default()
        };
        let running = watcher::Config::default()
            .fields("spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed");
        Connection {
            member,
            nodes: Cache::start(
                "nodes",
                Api::all(client.clone()),
                watcher::Config::default(),
                nodes,
            ),
            pods: Cache::start("pods", Api::all(client.clone()), running, pods),
            client,
            secret,
            expires,
            endpoint: None,
            state: Arc::new(Mutex::new(previous.unwrap_or_else(|| Liveness {
                known_since: KnownSince::now(),
                answered: None,
                trouble: "it has not answered yet".to_owned(),
                unauthorized: false,
                version: None,
                healthy: None,
            }))),
        }
    }

    /// Ends everything that runs for a cluster; its liveness survives a change of credentials.
    fn disconnect(&self, name: &str) -> Option<Liveness> {
        let (_, connection) = self.connections.remove(name)?;
        connection.member.stop();
        connection.nodes.stop();
        connection.pods.stop();
        let liveness = lock(&connection.state).clone();
        Some(liveness)
    }

    fn secret_of(&self, cluster: &str) -> Option<Arc<Secret>> {
        self.world.secrets.get(&ObjectKey::namespaced(
            names::HUB_NAMESPACE,
            names::credentials_secret(cluster),
        ))
    }

    /// How often a cluster is asked, or reports, whether it is there.
    pub(crate) fn probe_period(&self, cluster: &MemberCluster) -> Duration {
        let seconds = pull::objects::period(cluster);
        Duration::from_secs(seconds.unsigned_abs().into()).min(self.policy.unhealthy_threshold / 3)
    }

    /// Asks whether the cluster answers; the trouble, if it does not.
    async fn probe(&self, name: &str, connection: &Connection) -> Option<String> {
        let answer = tokio::time::timeout(PROBE_LIMIT, connection.client.apiserver_version()).await;
        let now = clock::monotonic();
        let was;
        let is;
        let trouble;
        {
            let mut state = lock(&connection.state);
            let answers = matches!(answer, Ok(Ok(_)));
            was = state.healthy;
            match answer {
                Ok(Ok(version)) => {
                    state.answered = Some((now, clock::now()));
                    state.version = Some(version.git_version);
                    state.unauthorized = false;
                    state.healthy = Some(true);
                }
                Ok(Err(error)) => {
                    let error = ApiError::from_kube(error);
                    state.unauthorized = matches!(error, ApiError::Unauthorized(_));
                    error.message().clone_into(&mut state.trouble);
                }
                Err(_) => state.trouble = format!("no answer within {} s", PROBE_LIMIT.as_secs()),
            }
            let since = state
                .answered
                .map_or(state.known_since.moment.instant, |(moment, _)| moment);
            if now.duration_since(since) >= self.policy.unhealthy_threshold {
                state.healthy = Some(false);
            }
            is = state.healthy;
            trouble = (!answers).then(|| state.trouble.clone());
        }
        self.healthy
            .with_label_values(&[name])
            .set(i64::from(is == Some(true)));
        if was != is {
            tracing::debug!(healthy = is, "health of the cluster has changed");
            self.wake(name);
        }
        trouble
    }

    /// What depends on the cluster is looked at again.
    fn wake(&self, cluster: &str) {
        for binding in self.world.bindings.by_index(BY_CLUSTER, cluster) {
            self.world.queues.bindings.add(ObjectKey::of(&*binding));
            if let Some(placement) = crate::world::placement_of(&*binding) {
                self.world.queues.placements.add(placement);
            }
        }
    }

    /// Renews the token at half its life.
    async fn renew(
        &self,
        cluster: &MemberCluster,
        connection: &Connection,
    ) -> Result<(), ApiError> {
        let name = cluster.name_any();
        let Some(secret) = self.secret_of(&name) else {
            return Ok(());
        };
        if let Some(expires) = credentials::expiry(&secret) {
            self.token_expiry
                .with_label_values(&[&name])
                .set(expires.as_second());
        }
        if !credentials::is_due(&secret, clock::now()) {
            return Ok(());
        }
        let renewed = credentials::renew(&connection.client, &secret, clock::now()).await?;
        let live = self.writer.replace(&renewed).await?;
        self.world.secrets.observe(live);
        Ok(())
    }

    async fn put_status(
        &self,
        cluster: &MemberCluster,
        status: windlass_api::member::MemberClusterStatus,
    ) -> Result<MemberCluster, ApiError> {
        let mut changed = cluster.clone();
        changed.status = Some(status);
        let live = self.writer.replace_status(&changed).await?;
        let new = live.status.as_ref();
        self.world.observer.cluster_status(cluster, new);
        self.world.clusters.observe(live.clone());
        Ok(live)
    }
}

/// Whether the hub delivers to a cluster itself (design §5.17).
#[must_use]
pub fn is_push(cluster: &MemberCluster) -> bool {
    cluster
        .annotations()
        .get(labels::DELIVERY)
        .is_some_and(|mode| mode == labels::DELIVERY_PUSH)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
