//! `windlass hub`.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use windlass_hub::{ExternalUnset, HubOptions};

use crate::cli::{self, Failure};

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

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&args.log_level)?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    if args.log_format == LogFormat::Json {
        log.json().init();
    } else {
        log.init();
    }
    let options = HubOptions {
        kubeconfig: args.kubeconfig,
        metrics_bind_address: args.metrics_bind_address,
        external_unset: match args.external_unset_conditions {
            Unset::Unknown => ExternalUnset::Unknown,
            Unset::Omit => ExternalUnset::Omit,
        },
        member_unhealthy_threshold: args.member_unhealthy_threshold,
        force_delete_wait: args.force_delete_wait,
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
