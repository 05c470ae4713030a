//! `windlass leave`: the hub does the work; this asks for it and tells how it goes (design §5.19).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use windlass_api::labels;
use windlass_api::member::{Leaving, MemberCluster};
use windlass_api::names::HUB_NAMESPACE;
use windlass_cluster::{Cache, CacheOptions, Change, ObjectKey, Writer, clock};
use windlass_member::install::SERVICE_ACCOUNT;

use crate::cli::{self, Failure, say, words};

/// How often one looks at what the hub has said.
const PERIOD: Duration = Duration::from_millis(250);
/// How long the hub's API server may take to answer the watch.
const LISTENING_LIMIT: Duration = Duration::from_secs(30);

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
    /// Don't wait for a cluster that can't be reached: what it has is left behind, and listed. Without this the
    /// hub waits for its --force-delete-wait-time.
    #[arg(long, env = "WINDLASS_FORCE")]
    force: bool,
    /// How long to wait: 120, 120s or 2m.
    #[arg(long, env = "WINDLASS_TIMEOUT", default_value = "120s", value_parser = cli::seconds)]
    timeout: Duration,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let hub = cli::hub(&args.hub_kubeconfig, "windlass-leave").await?;
    let marks = |cluster: &mut MemberCluster| {
        let purge = args.purge && cli::annotate(cluster, labels::PURGE, "true");
        let force = args.force && cli::annotate(cluster, labels::FORCE_LEAVE, "true");
        purge || force
    };
    let cluster = cli::change(&hub, None, &args.name, marks)
        .await
        .map_err(|e| words("marking the MemberCluster", &e))?;
    let Some(cluster) = cluster else {
        say(&format!("{} is not in the fleet", args.name));
        return Ok(());
    };
    let hears = Hears::start(&hub, &cluster).await?;
    hub.delete(&cluster)
        .await
        .map_err(|error| words("deleting the MemberCluster", &error))?;
    let clean = hears.until_gone(&args.name, args.timeout).await?;
    say(&farewell(&args.name, args.purge, clean));
    Ok(())
}

/// What the hub says about a cluster that leaves. A watch, for its last words are followed by the
/// cluster's end at once.
struct Hears {
    cache: Cache<MemberCluster>,
    key: ObjectKey,
    uid: Option<String>,
    said: Arc<Mutex<Vec<(Leaving, String)>>>,
}

impl Hears {
    /// Listens; what is said from now on is heard.
    async fn start(hub: &Writer, cluster: &MemberCluster) -> Result<Self, Failure> {
        let said = Arc::<Mutex<Vec<(Leaving, String)>>>::default();
        let (heard, uid) = (Arc::clone(&said), cluster.uid());
        let on_change = move |change: &Change<MemberCluster>| {
            let live = change.new.as_deref().filter(|live| live.uid() == uid);
            let mut said = lock(&heard);
            if let Some(words) = live.and_then(words_of_hub)
                && said.last() != Some(&words)
            {
                said.push(words);
            }
        };
        let name = cluster.name_any();
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let options = CacheOptions {
            on_change: Arc::new(on_change),
            ..Default::default()
        };
        let hears = Self {
            cache: Cache::start("leave", Api::all(hub.client().clone()), only, options),
            key: ObjectKey::cluster(name),
            uid: cluster.uid(),
            said,
        };
        let until = clock::monotonic() + LISTENING_LIMIT;
        while !hears.cache.is_synced() {
            match hears.cache.failure() {
                Some(error) if !error.is_outage() || clock::monotonic() >= until => {
                    return Err(words("watching the MemberCluster", &error));
                }
                _ => clock::sleep(PERIOD / 10).await,
            }
        }
        Ok(hears)
    }

    /// Waits until this cluster, not a later one of its name, is gone, and passes on what the hub says.
    /// Tells whether nothing was left behind.
    async fn until_gone(&self, name: &str, timeout: Duration) -> Result<bool, Failure> {
        let until = clock::monotonic() + timeout;
        let mut passed_on = 0;
        loop {
            // In this order: once it is gone, everything was said.
            let gone = self.is_gone();
            let said = lock(&self.said).clone();
            for (_, message) in &said[passed_on..] {
                say(message);
            }
            passed_on = said.len();
            if gone {
                return Ok(said.iter().all(|(how, _)| *how == Leaving::Left));
            }
            // The hub's API server may be away for a moment; the deletion goes on without us.
            if let Some(error) = self.cache.failure().filter(|error| !error.is_outage()) {
                return Err(words("watching the MemberCluster", &error));
            }
            if clock::monotonic() >= until {
                let last = said.last().map(|(_, message)| message.as_str());
                return Err(left_behind(name, timeout, last).into());
            }
            clock::sleep(PERIOD).await;
        }
    }

    fn is_gone(&self) -> bool {
        let is_it = |live: Arc<MemberCluster>| live.uid() == self.uid;
        self.cache.is_synced() && !self.cache.get(&self.key).is_some_and(is_it)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the hub says about a leaving cluster; none before it has taken note.
fn words_of_hub(cluster: &MemberCluster) -> Option<(Leaving, String)> {
    let conditions = cluster.status.as_ref()?.conditions.as_deref()?;
    let joined = conditions
        .iter()
        .find(|condition| condition.type_ == "Joined")?;
    let how = Leaving::of(&joined.reason).filter(|_| joined.status == "False")?;
    Some((how, joined.message.clone()))
}

fn farewell(name: &str, purge: bool, clean: bool) -> String {
    if !clean {
        return format!(
            "{name} has left; what could not be cleaned up there is left behind, see above, and: kubectl get \
             events --field-selector reason=MemberClusterLeftBehind\nShould {name} come back, it can join again; \
             what it has is taken over then. If it is not to, run on {name}, to let go of what runs there:\n  \
             kubectl delete appliedworks --all --cascade=orphan\nand to take the hub's rights away:\n  \
             kubectl delete clusterrolebinding,clusterrole {SERVICE_ACCOUNT}\n  \
             kubectl delete serviceaccount {SERVICE_ACCOUNT} -n {HUB_NAMESPACE} --ignore-not-found"
        );
    }
    let placed = if purge {
        "what the hub had created there was removed, what it had taken over stays, unowned"
    } else {
        "what was placed there keeps running, unowned"
    };
    format!("{name} has left; {placed}\nThe hub has no rights there any more")
}

fn left_behind(name: &str, timeout: Duration, said: Option<&str>) -> String {
    let why = said.unwrap_or("the hub has not begun; is it running?");
    format!(
        "{name} has not left within {} s: {why}\nStill on {name}: what was placed, the AppliedWorks that own it, and \
         ServiceAccount {HUB_NAMESPACE}/{SERVICE_ACCOUNT}. Still on the hub: MemberCluster {name} and its Secret. \
         The hub goes on trying; look again with: windlass leave {name}. For a cluster that will not come back: \
         windlass leave {name} --force",
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
        for (reason, how) in [
            ("MemberClusterLeft", Leaving::Left),
            ("MemberClusterLeftBehind", Leaving::LeftBehind),
        ] {
            let heard = words_of_hub(&cluster("Joined", "False", reason));
            assert_eq!(heard, Some((how, "m".to_owned())), "{reason}");
        }
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
        let text = farewell("a", false, true);
        assert!(
            text.contains("keeps running") && text.contains("no rights"),
            "{text}"
        );
        assert!(farewell("a", true, true).contains("was removed, what it had taken over stays"));
        for purge in [false, true] {
            let text = farewell("a", purge, false);
            assert!(
                text.contains("left behind") && text.contains("kubectl delete"),
                "{text}"
            );
            assert!(
                !text.contains("was removed") && !text.contains("no rights"),
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
