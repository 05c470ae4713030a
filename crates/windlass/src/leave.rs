//! `windlass leave`.

use std::path::PathBuf;
use std::time::Duration;

use kube::{Api, ResourceExt};
use windlass_api::labels;
use windlass_api::member::MemberCluster;
use windlass_cluster::{ApiError, Writer, clock};

use crate::{Failure, join};

#[derive(clap::Args)]
pub struct Args {
    /// Name of the cluster.
    name: String,
    /// Kubeconfig of the hub.
    #[arg(long, env = "WINDLASS_HUB_KUBECONFIG")]
    hub_kubeconfig: PathBuf,
    /// Remove what was placed on the cluster too.
    #[arg(long, env = "WINDLASS_PURGE")]
    purge: bool,
    /// How many seconds to wait.
    #[arg(long, env = "WINDLASS_TIMEOUT", default_value_t = 120)]
    timeout: u64,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let hub = Writer::new(join::client(&args.hub_kubeconfig).await?, "windlass-leave");
    let api: Api<MemberCluster> = Api::all(hub.client().clone());
    let Some(mut cluster) = api.get_opt(&args.name).await.map_err(ApiError::from_kube)? else {
        println!("{} is not in the fleet", args.name);
        return Ok(());
    };
    if args.purge {
        cluster.annotations_mut().insert(labels::PURGE.to_owned(), "true".to_owned());
        cluster = hub.replace(&cluster).await?;
    }
    hub.delete(&cluster).await?;
    let until = clock::monotonic() + Duration::from_secs(args.timeout);
    let mut said = String::new();
    loop {
        let Some(live) = api.get_opt(&args.name).await.map_err(ApiError::from_kube)? else {
            let what = if args.purge { "was removed" } else { "stays there, unowned" };
            println!("{} has left; what was placed {what}", args.name);
            return Ok(());
        };
        let message = waiting_for(&live);
        if message != said {
            println!("{message}");
            said = message;
        }
        if clock::monotonic() > until {
            return Err(format!(
                "{} has not left within {} s: {said}. Its objects, AppliedWorks and the ServiceAccount windlass-hub in fleet-system are still there; the hub goes on trying",
                args.name, args.timeout
            )
            .into());
        }
        clock::sleep(Duration::from_millis(250)).await;
    }
}

fn waiting_for(cluster: &MemberCluster) -> String {
    let conditions = cluster.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions
        .iter()
        .find(|condition| condition.type_ == "Joined" && condition.status == "False")
        .map_or_else(|| "waiting for the hub".to_owned(), |condition| condition.message.clone())
}
