//! The hub's process: connect, start, serve, end.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::config::Kubeconfig;
use prometheus::Registry;
use tokio::task::JoinHandle;
use windlass_addons::render::{self, Renderer};
use windlass_aggregator::ExternalUnset;
use windlass_cluster::kubeconfig::in_cluster;
use windlass_cluster::lease::step::Timing;
use windlass_cluster::{
    ConnectError, ConnectOptions, Discovery, Events, ObjectKey, Rate, RequestCounter, Writer,
    clock, connect,
};
use windlass_metrics::Readiness;

use crate::addons::addon::AddonActor;
use crate::addons::repository::RepositoryActor;
use crate::contents::Contents;
use crate::delivery::Delivery;
use crate::installed::{self, InstalledError};
use crate::lead::Lead;
use crate::members::{MemberPolicy, Members};
use crate::observe::{Observer, REPORTER, instance};
use crate::overrides::actor::OverrideActor;
use crate::placement::actor::Actor;
use crate::report_back::ReportBack;
use crate::select::Resources;
use crate::select::rules::{ApiFilter, FilterError};
use crate::world::{Queues, World};

/// Field manager of every write on the hub.
pub const FIELD_MANAGER: &str = "windlass-hub";
/// Bindings worked on at once. Many, for each waits for its cluster; few of them are one cluster's. An idle
/// worker is a small thing.
const DELIVERY_WORKERS: usize = 1024;
/// Overrides worked on at once.
const OVERRIDE_WORKERS: usize = 4;
/// Add-on repositories read at once: each may take a minute.
const REPOSITORY_WORKERS: usize = 16;
/// Addons worked on at once: each may wait for its repository. An idle worker is a small thing.
const ADDON_WORKERS: usize = 256;
/// Clusters looked at at once.
const CLUSTER_WORKERS: usize = 16;

/// How the hub runs.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// Kubeconfig of the hub's API server; none means the cluster that the process runs in, outside of one
    /// the user's kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Where metrics and probes are served; none means nowhere.
    pub metrics_bind_address: Option<SocketAddr>,
    /// Where they are served a second time.
    pub health_probe_bind_address: Option<SocketAddr>,
    /// Limit for the requests to the hub's API server; none means none.
    pub hub_rate: Option<Rate>,
    /// Placements worked on at once.
    pub placement_workers: usize,
    /// Whether members get ClusterProfiles, where that kind is installed.
    pub cluster_profiles: bool,
    /// What External shows while clusters disagree.
    pub external_unset: ExternalUnset,
    /// A cluster that has not answered for so long is unhealthy.
    pub member_unhealthy_threshold: Duration,
    /// A leaving cluster that can't be reached is given up after so long.
    pub force_delete_wait: Duration,
    /// Kinds, objects and namespaces that may be placed.
    pub filter: ApiFilter,
    /// Namespace of the lease.
    pub leader_election_namespace: String,
    /// Helm's program; none means the `helm` in `PATH`.
    pub helm_binary: Option<PathBuf>,
    /// Times of the leader election; none means that this process leads without one.
    pub leader_election: Option<Timing>,
}

/// Why the hub could not run.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The kubeconfig can't be read.
    #[error("the kubeconfig can't be read: {0}")]
    Kubeconfig(String),
    /// The API server can't be connected to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The lists of kinds that may be placed can't be read.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The installed CRDs lack something.
    #[error(transparent)]
    Installed(#[from] InstalledError),
    /// A metric is registered twice: a bug.
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
    /// Metrics can't be served.
    #[error("metrics can't be served on {0}: {1}")]
    Serve(SocketAddr, std::io::Error),
    /// Another process leads, or may: this one ends, to start anew.
    #[error("this process does not lead any more: {0}; it ends, to be started again")]
    LeadershipLost(String),
}

/// Runs the hub until `shutdown` is done.
///
/// # Errors
/// When it can't start, and when it has led and leads no more.
pub async fn run(
    options: HubOptions,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), HubError> {
    let hub = Hub::build(options).await?;
    let mut workers = Vec::new();
    let result = tokio::select! {
        biased;
        why = hub.lead.lost() => {
            tracing::error!(why, "this process does not lead any more; it ends");
            Err(HubError::LeadershipLost(why))
        }
        result = hub.work(&mut workers) => {
            tracing::error!("the workers have ended");
            result
        }
        () = shutdown => {
            tracing::info!("ending");
            Ok(())
        }
    };
    hub.end(workers, result.is_ok()).await;
    result
}

/// The parts of a hub, wired together.
struct Hub {
    world: World,
    /// Of the hub's API server, past the gate: for reads.
    reader: Writer,
    lead: Lead,
    members: Members,
    actor: Actor,
    overrides: OverrideActor,
    repositories: RepositoryActor,
    addons: AddonActor,
    delivery: Arc<Delivery>,
    placement_workers: usize,
    /// Tasks that only show things.
    shows: Vec<JoinHandle<()>>,
}

impl Hub {
    /// Watches begin, and the pages are served; nothing is decided yet.
    async fn build(options: HubOptions) -> Result<Self, HubError> {
        let registry = Registry::new();
        let requests = RequestCounter::new(&registry)?;
        let kubeconfig = kubeconfig(options.kubeconfig.as_deref())?;
        let connection = ConnectOptions {
            rate: options.hub_rate,
            ..ConnectOptions::new("hub")
        };
        let client = connect(&kubeconfig, &connection, &requests).await?;
        let reader = Writer::new(client.clone(), FIELD_MANAGER);
        let queues = Queues::default();
        let (events, events_sender) =
            Events::start(reader.clone(), REPORTER, &instance(), &registry)?;
        let observer = Observer::new(&registry, &queues, events)?;
        windlass_metrics::process(&registry)?;
        let world = World::start(&client, queues.clone(), observer);
        let addresses = [
            options.metrics_bind_address,
            options.health_probe_bind_address,
        ];
        let mut shows = vec![events_sender];
        for address in addresses.into_iter().flatten() {
            shows.push(serve(address, &registry, &world).await?);
        }
        let lead = {
            // A connection of its own: a renewal must not wait behind other requests.
            let client = connect(&kubeconfig, &ConnectOptions::new("hub"), &requests).await?;
            let synced = world.clone();
            let ready = async move { synced.wait_synced().await };
            let namespace = &options.leader_election_namespace;
            Lead::start(client, namespace, options.leader_election, &registry, ready)?
        };
        let writer = reader.clone().with_gate(lead.gate());
        let policy = MemberPolicy {
            unhealthy_threshold: options.member_unhealthy_threshold,
            force_delete_wait: options.force_delete_wait,
            profiles: options.cluster_profiles,
        };
        let members = Members::new(world.clone(), writer.clone(), requests, policy, &registry)?;
        let confinement = options.filter.confinement().clone();
        let filter = options.filter.with_renders(world.addons.renders());
        let filter = Arc::new(filter);
        let contents = Contents::new(world.clone(), client.clone(), Arc::clone(&filter));
        let discovery = Discovery::new(client.clone());
        let report_back = ReportBack::new(writer.clone(), discovery.clone());
        let resources = Resources::with_filter(
            client,
            discovery.clone(),
            (*filter).clone(),
            Arc::new(move |placement: &ObjectKey| queues.placements.add(placement.clone())),
        );
        let renderer = Renderer::new(options.helm_binary, render_limits());
        renderer.sweep();
        let addons = AddonActor::new(
            world.clone(),
            writer.clone(),
            resources.clone(),
            contents.clone(),
            discovery,
            Arc::clone(&filter),
            Arc::new(renderer),
        );
        let actor = Actor::new(
            world.clone(),
            writer.clone(),
            contents.clone(),
            resources,
            members.clone(),
            options.external_unset,
            filter,
        );
        Ok(Self {
            overrides: OverrideActor::new(world.clone(), writer.clone()),
            repositories: RepositoryActor::new(world.clone(), writer.clone()),
            addons,
            delivery: Arc::new(Delivery::new(
                world.clone(),
                contents,
                members.clone(),
                writer,
                report_back,
                confinement,
            )),
            world,
            reader,
            lead,
            members,
            actor,
            placement_workers: options.placement_workers.max(1),
            shows,
        })
    }

    /// Works until the queues are closed: members are connected by every process, the rest is done by the
    /// one that leads.
    async fn work(&self, workers: &mut Vec<JoinHandle<()>>) -> Result<(), HubError> {
        installed::check(&self.reader).await?;
        self.world.wait_synced().await;
        tracing::info!("the hub is in sync");
        workers.extend(
            (0..CLUSTER_WORKERS).map(|_| clock::spawn("clusters", self.members.clone().work())),
        );
        self.lead.leads().await;
        self.members.lead();
        self.world.addons.lead();
        self.world.observer.lead();
        workers.extend(
            (0..OVERRIDE_WORKERS).map(|_| clock::spawn("overrides", self.overrides.clone().work())),
        );
        workers.extend(
            (0..REPOSITORY_WORKERS)
                .map(|_| clock::spawn("repositories", self.repositories.clone().work())),
        );
        workers
            .extend((0..ADDON_WORKERS).map(|_| clock::spawn("addons", self.addons.clone().work())));
        workers.extend(
            (0..self.placement_workers)
                .map(|_| clock::spawn("placements", self.actor.clone().work())),
        );
        workers.extend(
            (0..DELIVERY_WORKERS)
                .map(|_| clock::spawn("delivery", Arc::clone(&self.delivery).work())),
        );
        futures::future::join_all(workers).await;
        Ok(())
    }

    /// In order: no new keys; what is under way ends, if it may; the lease is given back.
    async fn end(self, workers: Vec<JoinHandle<()>>, in_order: bool) {
        let queues = &self.world.queues;
        queues.placements.shutdown();
        queues.bindings.shutdown();
        queues.clusters.shutdown();
        queues.overrides.shutdown();
        queues.repositories.shutdown();
        queues.addons.shutdown();
        if in_order {
            self.lead.drain().await;
        }
        for worker in workers {
            worker.abort();
        }
        self.lead.release().await;
        self.world.observer.drain().await;
        self.world.stop();
        for task in self.shows {
            task.abort();
        }
    }
}

/// The kubeconfig of a file; or what a Pod is given; or what kubectl would use.
fn kubeconfig(path: Option<&Path>) -> Result<Kubeconfig, HubError> {
    if let Some(path) = path {
        return Kubeconfig::read_from(path)
            .map_err(|error| HubError::Kubeconfig(format!("{}: {error}", path.display())));
    }
    match in_cluster() {
        Some(kubeconfig) => Ok(kubeconfig),
        None => Kubeconfig::read().map_err(|error| HubError::Kubeconfig(error.to_string())),
    }
}

async fn serve(
    address: SocketAddr,
    registry: &Registry,
    world: &World,
) -> Result<JoinHandle<()>, HubError> {
    let world = world.clone();
    let readiness = Readiness::new(move || world.unsynced());
    let server = windlass_metrics::serve(address, registry.clone(), readiness)
        .await
        .map_err(|error| HubError::Serve(address, error))?;
    Ok(clock::spawn("metrics", server))
}

#[cfg(not(debug_assertions))]
fn render_limits() -> render::Limits {
    render::Limits::default()
}

/// The usual ones. Debug builds take another one on time from `WINDLASS_RENDER_SECONDS`, so that a test need not
/// wait for it.
#[cfg(debug_assertions)]
fn render_limits() -> render::Limits {
    let mut limits = render::Limits::default();
    let given = std::env::var("WINDLASS_RENDER_SECONDS").ok();
    if let Some(seconds) = given.and_then(|seconds| seconds.parse().ok()) {
        limits.time = std::time::Duration::from_secs(seconds);
    }
    limits
}
