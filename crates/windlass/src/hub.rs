//! `windlass hub`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use windlass_hub::{ApiFilter, Confinement, ExternalUnset, HubOptions};

use crate::cli::{self, Failure};
use crate::election;
use crate::log::{self, LogFormat};

#[derive(clap::Args)]
pub struct Args {
    /// Kubeconfig of the hub's API server. Default: the Pod's ServiceAccount, outside of a Pod KUBECONFIG or
    /// ~/.kube/config.
    #[arg(long, env = "WINDLASS_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Where /metrics, /healthz and /readyz are served.
    #[arg(
        long,
        env = "WINDLASS_METRICS_BIND_ADDRESS",
        default_value = "127.0.0.1:8080"
    )]
    metrics_bind_address: SocketAddr,
    /// With strategy External, while clusters disagree: show the later conditions as Unknown, or leave them out.
    #[arg(
        long,
        env = "WINDLASS_EXTERNAL_UNSET_CONDITIONS",
        default_value = "unknown"
    )]
    external_unset_conditions: Unset,
    /// A cluster that has not answered for so long is unhealthy: 60, 60s or 1m.
    #[arg(long, env = "WINDLASS_MEMBER_UNHEALTHY_THRESHOLD", default_value = "60s", value_parser = cli::seconds)]
    member_unhealthy_threshold: Duration,
    /// A leaving cluster that can't be reached is given up after so long.
    #[arg(long, env = "WINDLASS_FORCE_DELETE_WAIT", default_value = "15m", value_parser = cli::seconds)]
    force_delete_wait: Duration,
    /// Kinds that are not placed, beside those that never are: group, group/version, group/version/Kind,Kind
    /// or v1/Kind, separated by semicolons.
    #[arg(
        long,
        env = "WINDLASS_SKIPPED_PROPAGATING_APIS",
        default_value = "",
        hide_default_value = true,
        conflicts_with = "allowed_propagating_apis"
    )]
    skipped_propagating_apis: String,
    /// The only kinds that are placed, written the same way.
    #[arg(
        long,
        env = "WINDLASS_ALLOWED_PROPAGATING_APIS",
        default_value = "",
        hide_default_value = true
    )]
    allowed_propagating_apis: String,
    /// Namespaces that are not placed, beside the reserved ones, separated by commas or semicolons.
    #[arg(
        long,
        env = "WINDLASS_SKIPPED_PROPAGATING_NAMESPACES",
        default_value = "",
        hide_default_value = true
    )]
    skipped_propagating_namespaces: String,
    /// What ResourcePlacements and namespaced overrides may do beside what they always may: rbac (place Roles
    /// and RoleBindings, change who has which rights), pod-security (change what Pods may do on their node),
    /// separated by commas.
    #[arg(
        long,
        env = "WINDLASS_ALLOWED_IN_NAMESPACED_PLACEMENTS",
        default_value = "",
        hide_default_value = true
    )]
    allowed_in_namespaced_placements: String,
    /// The hub's cluster runs workloads of its own: its PersistentVolumeClaims are then not placed.
    #[arg(long, env = "WINDLASS_ENABLE_WORKLOAD")]
    enable_workload: bool,
    #[command(flatten)]
    election: election::Election,
    /// Form of the log.
    #[arg(long, env = "WINDLASS_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// What is logged: error, warn, info, debug, trace, or directives.
    #[arg(long, env = "WINDLASS_LOG_LEVEL", default_value = "info")]
    log_level: String,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Unset {
    Unknown,
    Omit,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    log::start(args.log_format, &args.log_level)?;
    let filter = ApiFilter::new(
        &args.skipped_propagating_apis,
        &args.allowed_propagating_apis,
    )
    .map_err(windlass_hub::HubError::from)?
    .reserving(&args.skipped_propagating_namespaces)
    .with_hub_workloads(args.enable_workload)
    .confining(Confinement::new(&args.allowed_in_namespaced_placements)?);
    let options = HubOptions {
        leader_election: args.election.timing()?,
        kubeconfig: args.kubeconfig,
        metrics_bind_address: args.metrics_bind_address,
        external_unset: match args.external_unset_conditions {
            Unset::Unknown => ExternalUnset::Unknown,
            Unset::Omit => ExternalUnset::Omit,
        },
        member_unhealthy_threshold: args.member_unhealthy_threshold,
        force_delete_wait: args.force_delete_wait,
        filter,
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
