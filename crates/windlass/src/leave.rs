//! `windlass leave`: the hub does the work; this asks for it and tells how it goes (design §5.19).

use std::path::PathBuf;
use std::time::Duration;

use kube::ResourceExt;
use windlass_api::labels;
use windlass_api::member::MemberCluster;
use windlass_api::names::HUB_NAMESPACE;
use windlass_cluster::{Writer, clock};
use windlass_member::install::SERVICE_ACCOUNT;

use crate::cli::{self, Failure, say, words};

/// How often the hub is asked.
const PERIOD: Duration = Duration::from_millis(250);

#[derive(clap::Args)]
pub struct Args {
    /// Name of the cluster.
    name: String,
    /// Kubeconfig of the hub.
    #[arg(long, env = "WINDLASS_HUB_KUBECONFIG")]
    hub_kubeconfig: PathBuf,
    /// Remove what was created on the cluster, too; what was there before stays.
    #[arg(long, env = "WINDLASS_PURGE")]
    purge: bool,
    /// How long to wait: 120, 120s or 2m.
    #[arg(long, env = "WINDLASS_TIMEOUT", default_value = "120s", value_parser = cli::seconds)]
    timeout: Duration,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let hub = cli::hub(&args.hub_kubeconfig, "windlass-leave").await?;
    let purge =
        |cluster: &mut MemberCluster| args.purge && cli::annotate(cluster, labels::PURGE, "true");
    let cluster = cli::change(&hub, None, &args.name, purge)
        .await
        .map_err(|e| words("marking the MemberCluster", &e))?;
    let Some(cluster) = cluster else {
        say(&format!("{} is not in the fleet", args.name));
        return Ok(());
    };
    hub.delete(&cluster)
        .await
        .map_err(|error| words("deleting the MemberCluster", &error))?;
    let message = wait(&hub, &cluster, args.timeout).await?;
    say(&farewell(&args.name, args.purge, message.as_deref()));
    Ok(())
}

/// Waits until this cluster, not a later one of its name, is gone. Gives the hub's last words on it.
async fn wait(
    hub: &Writer,
    cluster: &MemberCluster,
    timeout: Duration,
) -> Result<Option<String>, Failure> {
    let name = cluster.name_any();
    let until = clock::monotonic() + timeout;
    let mut said: Option<String> = None;
    loop {
        match hub.get::<MemberCluster>(None, &name).await {
            Ok(Some(live)) if live.uid() == cluster.uid() => {
                let message = words_of_hub(&live);
                if message != said {
                    say(message.as_deref().unwrap_or_default());
                    said = message;
                }
            }
            Ok(_) => return Ok(said),
            // The hub's API server may be away for a moment; the deletion goes on without us.
            Err(error) if error.is_outage() => {}
            Err(error) => return Err(words("reading the MemberCluster", &error)),
        }
        if clock::monotonic() >= until {
            return Err(left_behind(&name, timeout, said.as_deref()).into());
        }
        clock::sleep(PERIOD).await;
    }
}

/// What the hub says about a leaving cluster; none before it has taken note.
fn words_of_hub(cluster: &MemberCluster) -> Option<String> {
    let conditions = cluster.status.as_ref()?.conditions.as_deref()?;
    let joined = conditions
        .iter()
        .find(|condition| condition.type_ == "Joined")?;
    (joined.status == "False" && joined.reason == "MemberClusterLeft")
        .then(|| joined.message.clone())
}

fn farewell(name: &str, purge: bool, last: Option<&str>) -> String {
    let placed = match last {
        Some(last) if last.contains("left behind") => {
            "what it could not clean up there is left behind, see above"
        }
        _ if purge => {
            "what the hub had created there was removed, what it had taken over stays, unowned"
        }
        _ => "what was placed there keeps running, unowned",
    };
    format!(
        "{name} has left; {placed}\nThe hub's ServiceAccount is still there; to take its rights away, run on {name}:\n  \
         kubectl delete clusterrolebinding,clusterrole {SERVICE_ACCOUNT}\n  \
         kubectl delete serviceaccount {SERVICE_ACCOUNT} -n {HUB_NAMESPACE}"
    )
}

fn left_behind(name: &str, timeout: Duration, said: Option<&str>) -> String {
    let why = said.unwrap_or("the hub has not begun; is it running?");
    format!(
        "{name} has not left within {} s: {why}\nStill on {name}: what was placed, the AppliedWorks that own it, and \
         ServiceAccount {HUB_NAMESPACE}/{SERVICE_ACCOUNT}. Still on the hub: MemberCluster {name} and its Secret. \
         The hub goes on trying; look again with: windlass leave {name}",
        timeout.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cluster(type_: &str, status: &str, reason: &str) -> MemberCluster {
        let condition = json!({ "type": type_, "status": status, "reason": reason, "message": "m",
                                "lastTransitionTime": "2026-01-01T00:00:00Z" });
        serde_json::from_value(json!({
            "metadata": { "name": "a" }, "spec": { "identity": { "kind": "User", "name": "u" } },
            "status": { "conditions": [condition] },
        }))
        .unwrap()
    }

    #[test]
    fn only_words_about_leaving_are_passed_on() {
        assert_eq!(
            words_of_hub(&cluster("Joined", "False", "MemberClusterLeft")).as_deref(),
            Some("m")
        );
        for (type_, status, reason) in [
            ("Joined", "True", "MemberClusterJoined"),
            ("Joined", "False", "Other"),
            ("Healthy", "False", "MemberClusterLeft"),
        ] {
            assert_eq!(
                words_of_hub(&cluster(type_, status, reason)),
                None,
                "{type_} {status} {reason}"
            );
        }
        assert_eq!(words_of_hub(&MemberCluster::default()), None);
    }

    #[test]
    fn the_last_words_are_true() {
        assert!(farewell("a", false, None).contains("keeps running"));
        assert!(
            farewell(
                "a",
                true,
                Some("Leaving: 1 placement(s) are being released")
            )
            .contains("was removed, what it had taken over stays")
        );
        for purge in [false, true] {
            let text = farewell(
                "a",
                purge,
                Some("Leaving without the cluster; what 1 placement(s) put there is left behind"),
            );
            assert!(
                text.contains("left behind") && !text.contains("was removed"),
                "{text}"
            );
        }
        let text = left_behind("a", Duration::from_secs(5), None);
        assert!(
            text.contains("within 5 s: the hub has not begun") && text.contains("AppliedWorks"),
            "{text}"
        );
    }
}
