//! `windlass plan`: what a placement would do, without doing it.

mod ending;
mod text;
mod wish;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kube::{Api, Client};
use prometheus::Registry;
use serde::Serialize;
use windlass_api::scoped::Placement;
use windlass_cluster::{ApiError, ConnectOptions, ObjectKey, RequestCounter, clock, connect};
use windlass_hub::preview::{self, Preview, Wish};
use windlass_hub::scoped::api_in;

use crate::cli::{self, Failure, words};
use crate::placeable::Placeable;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  windlass plan -f placement.yaml               what a new or changed placement would do
  windlass plan web --set spec.policy.numberOfClusters=5
  windlass plan web -n team -f changed.yaml -o json

Only reads are sent. Rules that only the API server can judge are not looked at: see them with
kubectl apply --dry-run=server.")]
pub struct Args {
    /// An existing placement; not needed with --file.
    placement: Option<String>,
    /// Namespace of a ResourcePlacement; without it, PLACEMENT is a ClusterResourcePlacement.
    #[arg(long, short, env = "WINDLASS_NAMESPACE")]
    namespace: Option<String>,
    /// Manifest of the placement as it would be; - reads it from the standard input.
    #[arg(long, short, env = "WINDLASS_FILE")]
    file: Option<PathBuf>,
    /// Changes a field, such as spec.policy.numberOfClusters=5; may be given more than once. The value is
    /// YAML, null takes the field away.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Kubeconfig of the hub; without it, the one that kubectl uses.
    #[arg(long, env = "WINDLASS_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Form of the output.
    #[arg(long, short, env = "WINDLASS_OUTPUT", default_value = "table")]
    output: Output,
    /// Show the manifests as each cluster would get them.
    #[arg(long, env = "WINDLASS_MANIFESTS")]
    manifests: bool,
    /// Show every cluster, not only the first of those that are not picked.
    #[arg(long, env = "WINDLASS_ALL")]
    all: bool,
    /// As the hub's.
    #[command(flatten, next_help_heading = "As the hub's")]
    placeable: Placeable,
}

/// Form of the output.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For programs: one object.
    Json,
}

/// All that is said about a placement.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    #[serde(flatten)]
    preview: &'a Preview,
    /// What was passed over in the manifest.
    warnings: &'a [String],
    /// Requests that were sent to the hub, by verb.
    requests: BTreeMap<String, u64>,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let path = args.kubeconfig.clone().unwrap_or_else(cli::kubectls);
    let registry = Registry::new();
    let client = reader(&path, &registry).await?;
    let filter = args.placeable.filter()?;
    let manifest = args.file.as_deref().map(wish::read_file).transpose()?;
    let wanted = wish::named(
        manifest,
        args.placement.as_deref(),
        args.namespace.as_deref(),
        client.default_namespace(),
    )?;
    let existing = existing(&client, &wanted.key).await?;
    let made = wish::make(wanted, existing.as_ref(), &args.set)?;
    let live = preview::read(
        &client,
        Wish {
            placement: made.placement,
            exists: existing.is_some(),
            filter,
        },
    )
    .await
    .map_err(|error| words("reading the hub", &error))?;
    let mut preview = preview::preview(&live, clock::now());
    if !args.manifests
        && let Some(decided) = &mut preview.decided
    {
        decided.leave_out_manifests();
    }
    let undecided = preview.decided.is_none() && preview.deleting.is_none();
    cli::print(&match args.output {
        Output::Table => text::of(&preview, &made.warnings, args.all),
        Output::Json => {
            serde_json::to_string_pretty(&Told {
                preview: &preview,
                warnings: &made.warnings,
                requests: requests(&registry),
            })? + "\n"
        }
    })?;
    if undecided {
        return Err("nothing can be decided; the condition says why".into());
    }
    Ok(())
}

/// A client that only reads, on what is known to be a hub.
async fn reader(path: &Path, registry: &Registry) -> Result<Client, Failure> {
    let options = ConnectOptions::new("hub").reading();
    let kubeconfig = cli::read_kubeconfig(path)?;
    let client = connect(kubeconfig, &options, &RequestCounter::new(registry)?).await?;
    cli::require_hub(&client, path).await?;
    Ok(client)
}

async fn existing(client: &Client, key: &ObjectKey) -> Result<Option<Placement>, Failure> {
    let api: Api<Placement> = api_in(client.clone(), &key.namespace);
    let found = api.get_opt(&key.name).await.map_err(ApiError::from_kube);
    found.map_err(|error| words("reading the placement", &error))
}

/// What was sent so far, by verb.
fn requests(registry: &Registry) -> BTreeMap<String, u64> {
    let mut sent = BTreeMap::new();
    for family in registry.gather() {
        for metric in family.get_metric() {
            let verb = metric
                .get_label()
                .iter()
                .find(|label| label.name() == "verb");
            let verb = verb.map_or("other", |label| label.value()).to_owned();
            // Counts are whole numbers, far below the limit of a float.
            *sent.entry(verb).or_default() += metric.get_counter().get_value() as u64;
        }
    }
    sent
}
