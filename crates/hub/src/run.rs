//! The hub's process: connect, start, serve, end.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::config::Kubeconfig;
use prometheus::Registry;
use windlass_aggregator::ExternalUnset;
use windlass_cluster::kubeconfig::in_cluster;
use windlass_cluster::{
    ConnectError, ConnectOptions, Discovery, RequestCounter, Writer, clock, connect,
};
use windlass_metrics::Readiness;

use crate::contents::Contents;
use crate::delivery::Delivery;
use crate::members::{MemberPolicy, Members};
use crate::placement::actor::Actor;
use crate::select::Resources;
use crate::world::{Queues, World};

/// Field manager of every write on the hub.
pub const FIELD_MANAGER: &str = "windlass-hub";
/// Placements worked on at once.
const PLACEMENT_WORKERS: usize = 8;
/// Bindings delivered at once.
const DELIVERY_WORKERS: usize = 32;
/// Clusters looked at at once.
const CLUSTER_WORKERS: usize = 16;

/// How the hub runs.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// Kubeconfig of the hub's API server; none means the cluster that the process runs in, outside of one
    /// the user's kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Where metrics and probes are served.
    pub metrics_bind_address: SocketAddr,
    /// What External shows while clusters disagree.
    pub external_unset: ExternalUnset,
    /// A cluster that has not answered for so long is unhealthy.
    pub member_unhealthy_threshold: Duration,
    /// A leaving cluster that can't be reached is given up after so long.
    pub force_delete_wait: Duration,
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
    /// A metric is registered twice: a bug.
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
    /// Metrics can't be served.
    #[error("metrics can't be served on {0}: {1}")]
    Serve(SocketAddr, std::io::Error),
}

/// Runs the hub until `shutdown` is done.
///
/// # Errors
/// When it can't start.
pub async fn run(
    options: HubOptions,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), HubError> {
    let registry = Registry::new();
    let requests = RequestCounter::new(&registry)?;
    let kubeconfig = match &options.kubeconfig {
        Some(path) => Kubeconfig::read_from(path)
            .map_err(|error| HubError::Kubeconfig(format!("{}: {error}", path.display())))?,
        None => match in_cluster() {
            Some(kubeconfig) => kubeconfig,
            None => Kubeconfig::read().map_err(|error| HubError::Kubeconfig(error.to_string()))?,
        },
    };
    let client = connect(kubeconfig, &ConnectOptions::new("hub"), &requests).await?;
    let queues = Queues::default();
    let world = World::start(&client, queues.clone());
    let ready = world.clone();
    let readiness = Readiness::new(move || ready.unsynced());
    let server = windlass_metrics::serve(options.metrics_bind_address, registry.clone(), readiness)
        .await
        .map_err(|error| HubError::Serve(options.metrics_bind_address, error))?;
    let server = clock::spawn("metrics", server);
    let writer = Writer::new(client.clone(), FIELD_MANAGER);
    let policy = MemberPolicy {
        unhealthy_threshold: options.member_unhealthy_threshold,
        force_delete_wait: options.force_delete_wait,
    };
    let members = Members::new(world.clone(), writer.clone(), requests, policy, &registry)?;
    let contents = Contents::new(world.clone(), client.clone());
    let wake = queues.placements.clone();
    let resources = Resources::new(
        client.clone(),
        Discovery::new(client.clone()),
        Arc::new(move |placement: &str| wake.add(placement.to_owned())),
    );
    let actor = Actor::new(
        world.clone(),
        writer.clone(),
        contents.clone(),
        resources,
        members.clone(),
        options.external_unset,
    );
    let delivery = Delivery::new(world.clone(), contents, members.clone(), writer);
    let started = world.clone();
    let work = async move {
        started.wait_synced().await;
        tracing::info!("the hub is in sync");
        let mut workers = Vec::new();
        workers
            .extend((0..CLUSTER_WORKERS).map(|_| clock::spawn("clusters", members.clone().work())));
        workers.extend(
            (0..PLACEMENT_WORKERS).map(|_| clock::spawn("placements", actor.clone().work())),
        );
        workers.extend(
            (0..DELIVERY_WORKERS).map(|_| clock::spawn("delivery", delivery.clone().work())),
        );
        futures::future::join_all(workers).await;
    };
    tokio::select! {
        () = work => tracing::error!("the workers have ended"),
        () = shutdown => tracing::info!("ending"),
    }
    queues.placements.shutdown();
    queues.bindings.shutdown();
    queues.clusters.shutdown();
    world.stop();
    server.abort();
    Ok(())
}
