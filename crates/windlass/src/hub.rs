//! `windlass hub`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use windlass_cluster::Rate;
use windlass_hub::{ExternalUnset, HubOptions};

use crate::cli::{self, Failure};
use crate::election;
use crate::log::{self, LogFormat};
use crate::peer_flags::WithoutEffect;
use crate::placeable::Placeable;

#[derive(clap::Args)]
pub struct Args {
    /// Kubeconfig of the hub's API server. Default: the Pod's ServiceAccount, outside of a Pod KUBECONFIG or
    /// ~/.kube/config.
    #[arg(long, env = "WINDLASS_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Where /metrics, /healthz and /readyz are served: 127.0.0.1:8080, :8080, or 0 for nowhere. Default: :8080 in
    /// a Pod, 127.0.0.1:8080 outside of one.
    #[arg(long, env = "WINDLASS_METRICS_BIND_ADDRESS", value_parser = Listen::of)]
    metrics_bind_address: Option<Listen>,
    /// Where the same pages are served a second time, for probes that look there. Default: :8081 in a Pod,
    /// nowhere outside of one.
    #[arg(long, env = "WINDLASS_HEALTH_PROBE_BIND_ADDRESS", value_parser = Listen::of)]
    health_probe_bind_address: Option<Listen>,
    /// With strategy External, while clusters disagree: show the later conditions as Unknown, or leave them out.
    #[arg(
        long,
        env = "WINDLASS_EXTERNAL_UNSET_CONDITIONS",
        default_value = "unknown"
    )]
    external_unset_conditions: Unset,
    /// A cluster that has not answered for so long is unhealthy: 60, 60s or 1m30s.
    #[arg(long, env = "WINDLASS_CLUSTER_UNHEALTHY_THRESHOLD", default_value = "60s", value_parser = cli::seconds)]
    cluster_unhealthy_threshold: Duration,
    /// A leaving cluster that can't be reached is given up after so long.
    #[arg(long, env = "WINDLASS_FORCE_DELETE_WAIT_TIME", default_value = "15m", value_parser = cli::seconds)]
    force_delete_wait_time: Duration,
    /// Make a ClusterProfile (multicluster.x-k8s.io) for each member, where that kind is installed.
    #[arg(long, env = "WINDLASS_ENABLE_CLUSTER_INVENTORY_APIS", default_value = "true", action = clap::ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = cli::yes)]
    enable_cluster_inventory_apis: bool,
    /// Requests per second to the hub's API server, on average; 0 or less means no limit.
    #[arg(
        long,
        env = "WINDLASS_HUB_API_QPS",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    hub_api_qps: f64,
    /// Requests to the hub's API server that may go at once; counts only with --hub-api-qps.
    #[arg(long, env = "WINDLASS_HUB_API_BURST", default_value_t = 1000)]
    hub_api_burst: u32,
    /// A tenth of it is how many placements are worked on at once.
    #[arg(long, env = "WINDLASS_MAX_CONCURRENT_CLUSTER_PLACEMENT", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_concurrent_cluster_placement: u32,
    #[command(flatten)]
    placeable: Placeable,
    /// Helm's program, which renders the charts of Addons; the `helm` in PATH if not given.
    #[arg(long, env = "WINDLASS_HELM_BINARY", value_name = "PATH")]
    helm_binary: Option<PathBuf>,
    #[command(flatten)]
    election: election::Election,
    /// Form of the log.
    #[arg(long, env = "WINDLASS_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// What is logged: error, warn, info, debug, trace, or directives.
    #[arg(long, env = "WINDLASS_LOG_LEVEL", default_value = "info")]
    log_level: String,
    #[command(flatten)]
    pub without_effect: WithoutEffect,
}

/// An address to listen on, or none.
#[derive(Clone, Copy)]
struct Listen(Option<SocketAddr>);

impl Listen {
    fn of(text: &str) -> Result<Self, String> {
        cli::address(text).map(Self)
    }
}

/// What was asked for, or the default: KubeFleet's in a Pod, where a Service and probes have to reach it.
fn listen(
    asked: Option<Listen>,
    in_pod: bool,
    pod: u16,
    outside: Option<u16>,
) -> Option<SocketAddr> {
    match asked {
        Some(Listen(address)) => address,
        None if in_pod => Some((Ipv4Addr::UNSPECIFIED, pod).into()),
        None => outside.map(|port| (Ipv4Addr::LOCALHOST, port).into()),
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Unset {
    Unknown,
    Omit,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    log::start(args.log_format, &args.log_level)?;
    for warning in args.without_effect.warnings() {
        tracing::warn!("{warning}");
    }
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let rate = (args.hub_api_qps > 0.0).then(|| Rate::new(args.hub_api_qps, args.hub_api_burst));
    let rate = rate
        .transpose()
        .map_err(|error| format!("--hub-api-qps, --hub-api-burst: {error}"))?;
    let options = HubOptions {
        leader_election: args.election.timing()?,
        kubeconfig: args.kubeconfig,
        leader_election_namespace: args.election.namespace(),
        metrics_bind_address: listen(args.metrics_bind_address, in_pod, 8080, Some(8080)),
        health_probe_bind_address: listen(args.health_probe_bind_address, in_pod, 8081, None),
        hub_rate: rate,
        placement_workers: args.max_concurrent_cluster_placement.div_ceil(10) as usize,
        cluster_profiles: args.enable_cluster_inventory_apis,
        external_unset: match args.external_unset_conditions {
            Unset::Unknown => ExternalUnset::Unknown,
            Unset::Omit => ExternalUnset::Omit,
        },
        member_unhealthy_threshold: args.cluster_unhealthy_threshold,
        force_delete_wait: args.force_delete_wait_time,
        filter: args.placeable.filter()?,
        helm_binary: args.helm_binary,
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(windlass_hub::run(options, shutdown).await?)
}
