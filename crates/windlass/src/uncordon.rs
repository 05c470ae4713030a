//! `windlass uncordon`: the end of a drain.

use std::path::PathBuf;

use kube::api::ListParams;
use kube::{Api, ResourceExt};
use windlass_api::eviction::ClusterResourcePlacementEviction as Eviction;
use windlass_api::member::MemberCluster;
use windlass_cluster::ApiError;
use windlass_rollout::is_over;

use crate::cli::{self, Failure, say, words};
use crate::drain::taint;

#[derive(clap::Args)]
pub struct Args {
    /// Name of the cluster.
    name: String,
    /// Kubeconfig of the hub.
    #[arg(long, alias = "kubeconfig", env = "WINDLASS_HUB_KUBECONFIG")]
    hub_kubeconfig: PathBuf,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let (hub, name) = (
        cli::hub(&args.hub_kubeconfig, "windlass-uncordon").await?,
        &args.name,
    );
    let clear = |cluster: &mut MemberCluster| {
        let taints = cluster.spec.taints.get_or_insert_default();
        let before = taints.len();
        taints.retain(|has| *has != taint());
        let is_less = taints.len() < before;
        if taints.is_empty() {
            cluster.spec.taints = None;
        }
        is_less
    };
    cli::change(&hub, None, name, clear)
        .await
        .map_err(|error| words("taking the taint off the MemberCluster", &error))?
        .ok_or_else(|| format!("{name} is not in the fleet"))?;
    say(&format!(
        "{name} is not cordoned: it can be placed on. What was evicted does not come back by itself, but for \
         placements that are on every cluster or want more clusters than they have"
    ));
    let api: Api<Eviction> = Api::all(hub.client().clone());
    let all = match api.list(&ListParams::default()).await {
        Ok(all) => all,
        // The taint is off, and that was what was asked for.
        Err(error) => {
            let why = words("listing evictions", &ApiError::from_kube(error));
            say(&format!(
                "Whether evictions from it still wait is not known: {why}"
            ));
            return Ok(());
        }
    };
    let waiting: Vec<String> = all
        .iter()
        .filter(|eviction| eviction.spec.cluster_name == *name && !is_over(eviction))
        .map(ResourceExt::name_any)
        .collect();
    if !waiting.is_empty() {
        say(&format!(
            "{} eviction(s) from it still wait, and will be carried out once they are allowed; to call them off:\n  \
             kubectl delete crpe {}",
            waiting.len(),
            waiting.join(" ")
        ));
    }
    Ok(())
}
