//! `windlass migrate`: the hub does the work; this asks for it and tells what it waits for.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use kube::ResourceExt;
use windlass_api::labels;
use windlass_api::member::{Identity, MemberCluster};
use windlass_api::names::member_namespace;
use windlass_cluster::{Writer, clock};

use crate::cli::{self, Failure, say, words};
use crate::join;

/// How we appear in managedFields.
const FIELD_MANAGER: &str = "windlass-migrate";
/// How often one looks at what the hub has said.
const PERIOD: Duration = Duration::from_millis(500);
/// Condition with what the hub waits for.
const MIGRATING: &str = "Migrating";

#[derive(clap::Args)]
pub struct Args {
    /// Name of the cluster.
    name: String,
    /// Who is to deliver: the hub (push) or an agent on the cluster (pull).
    #[arg(long, env = "WINDLASS_TO", value_enum)]
    to: Mode,
    /// Kubeconfig of the hub.
    #[arg(long, env = "WINDLASS_HUB_KUBECONFIG")]
    hub_kubeconfig: PathBuf,
    /// To push: kubeconfig of the member, with an administrator's rights; its credentials are not stored.
    #[arg(long, env = "WINDLASS_MEMBER_KUBECONFIG", required_if_eq("to", "push"))]
    member_kubeconfig: Option<PathBuf>,
    /// To push: rights of the hub on the member, as for join.
    #[arg(long, env = "WINDLASS_RIGHTS", default_value = "all")]
    rights: String,
    /// To pull: who the agent is on the hub: User:NAME, Group:NAME or ServiceAccount:NAMESPACE/NAME.
    #[arg(long, env = "WINDLASS_AGENT", value_parser = identity, required_if_eq("to", "pull"))]
    agent: Option<Identity>,
    /// How long to wait: 120, 120s or 2m.
    #[arg(long, env = "WINDLASS_TIMEOUT", default_value = "10m", value_parser = cli::seconds)]
    timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// The hub delivers.
    Push,
    /// An agent delivers.
    Pull,
}

impl Mode {
    fn value(self) -> &'static str {
        match self {
            Self::Push => labels::DELIVERY_PUSH,
            Self::Pull => labels::DELIVERY_PULL,
        }
    }

    fn of(cluster: &MemberCluster) -> Self {
        match cluster.annotations().get(labels::DELIVERY) {
            Some(mode) if mode == labels::DELIVERY_PUSH => Self::Push,
            _ => Self::Pull,
        }
    }
}

/// Reads who an agent is.
fn identity(text: &str) -> Result<Identity, String> {
    let what = "give User:NAME, Group:NAME or ServiceAccount:NAMESPACE/NAME";
    let (kind, name) = text.split_once(':').ok_or(what)?;
    let (namespace, name) = match (kind, name.split_once('/')) {
        ("ServiceAccount", Some((namespace, name))) if !namespace.is_empty() => {
            (Some(namespace.to_owned()), name)
        }
        ("User" | "Group", _) => (None, name),
        _ => return Err(what.to_owned()),
    };
    if name.is_empty() {
        return Err(what.to_owned());
    }
    Ok(Identity {
        api_group: None,
        kind: kind.to_owned(),
        name: name.to_owned(),
        namespace,
    })
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let hub = cli::hub(&args.hub_kubeconfig, FIELD_MANAGER).await?;
    let name = &args.name;
    let Some(cluster) = read(&hub, name).await? else {
        return Err(format!("{name} is not in the fleet").into());
    };
    if cluster.metadata.deletion_timestamp.is_some() {
        return Err(format!("{name} is leaving the fleet").into());
    }
    if Mode::of(&cluster) == args.to && !is_migrating(&cluster) {
        say(&format!("{name} is in {} mode already", args.to.value()));
        return Ok(());
    }
    // Before there are credentials: without the mark, the hub would clear them away.
    let mark = |cluster: &mut MemberCluster| {
        let marked = cli::annotate(cluster, labels::MIGRATE_TO, args.to.value());
        let is_it = args
            .agent
            .as_ref()
            .is_none_or(|agent| *agent == cluster.spec.identity);
        if let Some(agent) = args.agent.as_ref().filter(|_| args.to == Mode::Pull) {
            cluster.spec.identity = agent.clone();
        }
        marked || !is_it
    };
    cli::change(&hub, None, name, mark)
        .await
        .map_err(|error| words("marking the MemberCluster", &error))?;
    match (args.to, &args.member_kubeconfig) {
        (Mode::Push, Some(member)) => {
            let uid = join::give_credentials(&hub, name, member, &args.rights).await?;
            let known =
                |cluster: &mut MemberCluster| cli::annotate(cluster, labels::CLUSTER_UID, &uid);
            cli::change(&hub, None, name, known)
                .await
                .map_err(|error| words("noting what the cluster is known by", &error))?;
        }
        _ => say(&format!(
            "{name}: start a KubeFleet member agent there, if none runs yet: with MEMBER_CLUSTER_NAME={name}, and \
             credentials for the hub that make it the identity given; it works in namespace {} of the hub. Until it \
             has joined, the hub delivers as before.",
            member_namespace(name)
        )),
    }
    wait(&hub, &args).await
}

async fn read(hub: &Writer, name: &str) -> Result<Option<MemberCluster>, Failure> {
    hub.get(None, name)
        .await
        .map_err(|error| words("reading the MemberCluster", &error))
}

/// Passes on what the hub says, until it is done.
async fn wait(hub: &Writer, args: &Args) -> Result<(), Failure> {
    let until = clock::monotonic() + args.timeout;
    let mut last = String::new();
    loop {
        let Some(cluster) = read(hub, &args.name).await? else {
            return Err(format!("{} has left the fleet", args.name).into());
        };
        if !is_migrating(&cluster) && Mode::of(&cluster) == args.to {
            say(&farewell(&args.name, args.to, &cluster));
            return Ok(());
        }
        if let Some(message) = waits_for(&cluster)
            && message != last
        {
            say(&message);
            last = message;
        }
        if clock::monotonic() >= until {
            let why = if last.is_empty() {
                "the hub has not begun; is it running?"
            } else {
                &last
            };
            return Err(format!(
                "{} is not in {} mode within {} s: {why}\nNothing on it was deleted. The hub goes on; look again by \
                 running this again, or with: kubectl get cluster {0} -o yaml",
                args.name,
                args.to.value(),
                args.timeout.as_secs()
            )
            .into());
        }
        clock::sleep(PERIOD).await;
    }
}

fn is_migrating(cluster: &MemberCluster) -> bool {
    cluster.annotations().contains_key(labels::MIGRATE_TO)
}

fn waits_for(cluster: &MemberCluster) -> Option<String> {
    let conditions = cluster.status.as_ref()?.conditions.as_deref()?;
    let migrating = conditions
        .iter()
        .find(|condition| condition.type_ == MIGRATING)?;
    Some(migrating.message.clone())
}

/// What is left on a cluster of the mode that it had.
fn left_behind(cluster: &MemberCluster) -> Option<&str> {
    let conditions = cluster.status.as_ref()?.conditions.as_deref()?;
    let migrated = conditions
        .iter()
        .find(|condition| condition.type_ == MIGRATING && condition.status == "False")?;
    Some(&migrated.message)
}

fn farewell(name: &str, to: Mode, cluster: &MemberCluster) -> String {
    let said = in_words(name, to);
    match left_behind(cluster) {
        Some(left) => format!("{said}\nBut {left}\nRemove them there by hand"),
        None => said,
    }
}

fn in_words(name: &str, to: Mode) -> String {
    match to {
        Mode::Push => format!(
            "{name} is in push mode: the hub delivers to it. Nothing on it was deleted. Its agent has left and can \
             be removed"
        ),
        Mode::Pull => format!(
            "{name} is in pull mode: its agent delivers to it. Nothing on it was deleted. The hub has no \
             credentials for it any more"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_an_agent_is() {
        let read =
            |text: &str| identity(text).map(|i| (i.kind, i.namespace.unwrap_or_default(), i.name));
        let of = |kind: &str, namespace: &str, name: &str| {
            Ok((kind.to_owned(), namespace.to_owned(), name.to_owned()))
        };
        assert_eq!(read("User:a:b"), of("User", "", "a:b"));
        assert_eq!(read("Group:g"), of("Group", "", "g"));
        assert_eq!(read("ServiceAccount:n/a"), of("ServiceAccount", "n", "a"));
        for text in [
            "",
            "User",
            "User:",
            "Robot:x",
            "ServiceAccount:a",
            "ServiceAccount:/a",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_left_behind_is_told() {
        let with = |status: &str| -> MemberCluster {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "east"}, "spec": {"identity": {"kind": "User", "name": "u"}},
                "status": {"conditions": [{"type": "Migrating", "status": status, "reason": "R",
                    "message": "ServiceAccount windlass-hub is left behind", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
            }))
            .unwrap()
        };
        let said = |cluster: &MemberCluster| farewell("east", Mode::Pull, cluster);
        assert!(said(&with("False")).contains("But ServiceAccount windlass-hub is left behind"));
        assert!(!said(&with("True")).contains("left behind"));
    }

    #[test]
    fn the_mode_of_a_cluster() {
        let mut cluster = MemberCluster::default();
        assert_eq!(Mode::of(&cluster), Mode::Pull);
        cli::annotate(&mut cluster, labels::DELIVERY, labels::DELIVERY_PUSH);
        assert_eq!(Mode::of(&cluster), Mode::Push);
        assert!(!is_migrating(&cluster));
        cli::annotate(&mut cluster, labels::MIGRATE_TO, Mode::Pull.value());
        assert!(is_migrating(&cluster));
    }
}
