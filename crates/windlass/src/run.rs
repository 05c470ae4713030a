//! `windlass run`: staged update runs, as a person watches and steers them. It asks for no more rights than
//! on the kinds of runs.

mod act;
mod text;
mod view;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use windlass_api::scoped::{Scope, UpdateRun};
use windlass_cluster::{ApiError, ObjectKey, Writer, clock};
use windlass_hub::scoped::api_in;

use crate::cli::{self, Failure, words};
use crate::screen::Output;

/// How we appear in managedFields.
const FIELD_MANAGER: &str = "windlass-run";

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List update runs.
    List {
        #[command(flatten)]
        at: At,
        /// Only those of this placement.
        placement: Option<String>,
        /// Form of the output.
        #[arg(long, short, env = "WINDLASS_OUTPUT", default_value = "table")]
        output: Output,
    },
    /// Show a run: stages, what they wait for, and clusters.
    Show {
        #[command(flatten)]
        of: Which,
        /// Form of the output.
        #[arg(long, short, env = "WINDLASS_OUTPUT", default_value = "table")]
        output: Output,
    },
    /// Follow a run until it has ended; fails unless it succeeds. On a terminal it is drawn anew, elsewhere
    /// each change is a line, with the time in UTC.
    Watch {
        #[command(flatten)]
        of: Which,
        /// Form of the output.
        #[arg(long, short, env = "WINDLASS_OUTPUT", default_value = "table")]
        output: Output,
        /// Fail when that takes longer: 60, 60s, 5m or 1h.
        #[arg(long, env = "WINDLASS_TIMEOUT", value_parser = cli::seconds)]
        timeout: Option<Duration>,
    },
    /// Approve what a run waits for.
    Approve {
        #[command(flatten)]
        of: Which,
        /// The stage; not needed while one approval only is waited for.
        stage: Option<String>,
    },
    /// Stop a run: no further cluster is begun with, and those under way are waited for.
    Stop(Which),
    /// Go on with a run that was stopped, or start one.
    Resume(Which),
    /// Start a run that is initialized, or go on with one that was stopped.
    Start(Which),
}

/// Where runs are looked for.
#[derive(clap::Args)]
pub struct At {
    /// Namespace of StagedUpdateRuns. Without it, ClusterStagedUpdateRuns, and in a list both.
    #[arg(
        long,
        short,
        env = "WINDLASS_NAMESPACE",
        default_value = "",
        hide_default_value = true
    )]
    pub namespace: String,
    /// Kubeconfig of the hub; without it, the one that kubectl uses (of several the first).
    #[arg(long, alias = "hub-kubeconfig", env = "WINDLASS_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
}

impl At {
    /// A writer on the hub. Whether it is one shows by what it answers: people who steer runs may not be
    /// allowed to look at anything else.
    pub async fn hub(&self, field_manager: &'static str) -> Result<Writer, Failure> {
        let path = self.kubeconfig.clone().unwrap_or_else(cli::kubectls);
        let client = cli::client(cli::read_kubeconfig(&path)?).await?;
        Ok(Writer::new(client, field_manager))
    }

    /// The scope of the kinds that are meant.
    pub fn scope(&self) -> Scope {
        Scope::of_namespace(Some(&self.namespace))
    }

    /// What another command about the same hub and namespace needs.
    pub fn flags(&self) -> String {
        let mut flags = String::new();
        if !self.namespace.is_empty() {
            flags += &format!(" -n {}", self.namespace);
        }
        if let Some(path) = &self.kubeconfig {
            flags += &format!(" --kubeconfig {}", path.display());
        }
        flags
    }
}

/// Which run a command is about.
#[derive(clap::Args)]
struct Which {
    /// Name of the run.
    run: String,
    #[command(flatten)]
    at: At,
}

impl Which {
    fn key(&self) -> ObjectKey {
        ObjectKey::namespaced(&self.at.namespace, &self.run)
    }

    fn api(&self, hub: &Writer) -> Api<UpdateRun> {
        api_in(hub.client().clone(), &self.at.namespace)
    }

    async fn read(&self, hub: &Writer) -> Result<UpdateRun, Failure> {
        let run = self
            .api(hub)
            .get_opt(&self.run)
            .await
            .map_err(ApiError::from_kube)
            .map_err(|error| refused("reading the run", &error, &self.at.namespace))?;
        let hint = hint(&self.at.namespace);
        run.ok_or_else(|| format!("there is no {}{hint}", text_of(&self.key())).into())
    }
}

pub async fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::List {
            at,
            placement,
            output,
        } => list(&at, placement.as_deref(), output).await,
        Command::Show { of, output } => {
            let hub = of.at.hub(FIELD_MANAGER).await?;
            let view = view::of(&of.read(&hub).await?);
            cli::print(&match output {
                Output::Table => text::show(&view, &of.at.flags(), clock::now(), None),
                Output::Json => serde_json::to_string_pretty(&view)? + "\n",
            })
        }
        Command::Watch {
            of,
            output,
            timeout,
        } => {
            let hub = of.at.hub(FIELD_MANAGER).await?;
            of.read(&hub).await?;
            watch::follow(of.api(&hub), &of.key(), &of.at.flags(), output, timeout).await
        }
        Command::Approve { of, stage } => act::approve(&of, stage.as_deref()).await,
        Command::Stop(of) => act::stop(&of).await,
        Command::Resume(of) | Command::Start(of) => act::resume(&of).await,
    }
}

async fn list(at: &At, placement: Option<&str>, output: Output) -> Result<(), Failure> {
    let hub = at.hub(FIELD_MANAGER).await?;
    let mut runs = runs(&hub, &at.namespace).await?;
    runs.retain(|run| placement.is_none_or(|name| run.spec.placement_name == name));
    let views: Vec<view::View> = runs.iter().map(view::of).collect();
    cli::print(&match output {
        Output::Table => text::list(&views, clock::now()),
        Output::Json => serde_json::to_string_pretty(&views)? + "\n",
    })
}

/// The runs of a namespace; without one, those of both scopes that one may see. The newest comes last.
pub async fn runs(hub: &Writer, namespace: &str) -> Result<Vec<UpdateRun>, Failure> {
    let scopes: &[Scope] = match namespace {
        "" => &Scope::BOTH,
        _ => &[Scope::Namespaced],
    };
    let mut all = Vec::new();
    let mut denied = Vec::new();
    for scope in scopes {
        let api: Api<UpdateRun> = match namespace {
            "" => Api::all_with(hub.client().clone(), scope),
            namespace => api_in(hub.client().clone(), namespace),
        };
        let list = api.list(&ListParams::default()).await;
        match list.map_err(ApiError::from_kube) {
            Ok(list) => all.extend(list.items),
            Err(error @ ApiError::Rejected(_)) => denied.push(error),
            Err(ApiError::NotFound(_)) => {
                return Err("this API server does not know update runs; run: \
                     windlass crds | kubectl apply --server-side -f -"
                    .into());
            }
            Err(error) => return Err(words("reading the runs", &error)),
        }
    }
    match denied.first() {
        Some(error) if denied.len() == scopes.len() => {
            Err(refused("reading the runs", error, namespace))
        }
        // Not in the output, which may be read by a program.
        Some(error) => {
            eprintln!("windlass: not all runs are shown: {}", error.message());
            Ok(sorted(all))
        }
        None => Ok(sorted(all)),
    }
}

/// What may be missing where no namespace was given.
fn hint(namespace: &str) -> &'static str {
    match namespace {
        "" => " (for a StagedUpdateRun give -n NAMESPACE)",
        _ => "",
    }
}

/// What failed, and why; who has rights in a namespace only is told how to use them.
fn refused(doing: &str, error: &ApiError, namespace: &str) -> Failure {
    let why = words(doing, error);
    match error {
        ApiError::Rejected(_) => format!("{why}{}", hint(namespace)).into(),
        _ => why,
    }
}

fn sorted(mut runs: Vec<UpdateRun>) -> Vec<UpdateRun> {
    let created = |run: &UpdateRun| run.metadata.creation_timestamp.as_ref().map(|time| time.0);
    runs.sort_by_key(|run| (Scope::of(run), created(run), run.metadata.name.clone()));
    runs
}

/// A run the way messages name it.
fn text_of(key: &ObjectKey) -> String {
    match Scope::of_namespace(Some(&key.namespace)) {
        Scope::Cluster => format!("ClusterStagedUpdateRun {key}"),
        Scope::Namespaced => format!("StagedUpdateRun {key}"),
    }
}

/// Whether a run goes on, or stands and could go on: another one that starts takes over from it.
pub fn is_under_way(run: &UpdateRun) -> bool {
    let view = view::of(run);
    !view.ended
        && !matches!(
            view.state,
            view::Phase::Pending
                | view::Phase::Initializing
                | view::Phase::Initialized
                | view::Phase::Deleting
        )
}

/// Whether a run has ended.
pub fn has_ended(run: &UpdateRun) -> bool {
    run.status.as_ref().is_some_and(view::has_ended)
}

#[cfg(test)]
mod tests;
