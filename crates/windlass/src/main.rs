//! The one binary.

mod cli;
mod crds;
mod election;
mod endpoint;
mod hub;
mod join;
mod leave;
mod log;
mod migrate;
mod peer_flags;
mod placeable;
mod plan;
mod rollback;
mod run;
mod screen;
mod status;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Places Kubernetes resources onto a fleet of clusters, and tells the truth about what runs where.
#[derive(Parser)]
#[command(name = "windlass", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the CustomResourceDefinitions as YAML.
    Crds(crds::Args),
    /// Run the hub.
    Hub(Box<hub::Args>),
    /// Join a cluster: the hub will deliver to it.
    Join(join::Args),
    /// Let a cluster leave; what runs there stays, unless it is purged.
    Leave(leave::Args),
    /// Change who delivers to a cluster, the hub or an agent; nothing on it is deleted.
    Migrate(migrate::Args),
    /// Say what a new or changed placement would do, and do nothing.
    Plan(plan::Args),
    /// Bring an earlier version of a placement with strategy External back to its clusters.
    Rollback(rollback::Args),
    /// Watch and steer staged update runs.
    Run(run::Args),
    /// Show placements, or how one fares on each cluster.
    Status(status::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse_from(peer_flags::as_ours(std::env::args_os()));
    windlass_cluster::clock::install_crypto();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("windlass: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(async {
        match cli.command {
            Command::Crds(args) => crds::run(&args),
            Command::Hub(args) => hub::run(*args).await,
            Command::Join(args) => join::run(args).await,
            Command::Leave(args) => leave::run(args).await,
            Command::Migrate(args) => migrate::run(args).await,
            Command::Plan(args) => plan::run(args).await,
            Command::Rollback(args) => rollback::run(args).await,
            Command::Run(args) => run::run(args).await,
            Command::Status(args) => status::run(args).await,
        }
    });
    // Not dropped: that would wait for name look-ups that hang.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("windlass: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_flags_of_every_command_go_together() {
        Cli::command().debug_assert();
    }
}
