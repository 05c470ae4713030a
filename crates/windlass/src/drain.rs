//! `windlass drain`: nothing new comes to a cluster, and what is there goes within the disruption budgets.
//! The hub does the work; this asks for it, and tells how it goes and what stays.

mod rights;
mod survey;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use windlass_api::conditions::{EvictionCondition, Stage};
use windlass_api::eviction::{
    ClusterResourcePlacementEviction as Eviction, EvictionRetry, EvictionSpec,
};
use windlass_api::member::{MemberCluster, Taint};
use windlass_api::placement::TaintEffect;
use windlass_api::scoped::{Binding, Scope};
use windlass_api::{Condition, labels, names};
use windlass_cluster::clock::Instant;
use windlass_cluster::{ApiError, Cache, CacheOptions, ObjectKey, Writer, clock};
use windlass_rollout::is_over;
use windlass_status::conditions::find;
use windlass_status::digest::Digest;

use self::survey::{Item, Stays, Survey};
use crate::cli::{self, Failure, say, words};
use crate::table::line;

/// How we appear in managedFields.
const FIELD_MANAGER: &str = "windlass-drain";
/// How often one looks at what the hub has said, at first and after news.
const PERIOD: Duration = Duration::from_millis(500);
/// How often while nothing happens.
const LONGEST_PERIOD: Duration = Duration::from_secs(5);
/// How often an eviction of one binding is made anew after one that has failed.
const TRIES: u32 = 20;

#[derive(clap::Args)]
pub struct Args {
    /// Name of the cluster.
    name: String,
    /// Kubeconfig of the hub.
    #[arg(long, alias = "kubeconfig", env = "WINDLASS_HUB_KUBECONFIG")]
    hub_kubeconfig: PathBuf,
    /// Succeed though placements stay that name their clusters (PickFixed).
    #[arg(long)]
    ignore_fixed: bool,
    /// Succeed though ResourcePlacements stay: there are no evictions from them.
    #[arg(long)]
    ignore_namespaced: bool,
    /// How long to wait: 120, 120s or 2m. What is not done by then goes on; run this again to follow it.
    #[arg(long, env = "WINDLASS_TIMEOUT", default_value = "10m", value_parser = cli::seconds)]
    timeout: Duration,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let hub = cli::hub(&args.hub_kubeconfig, FIELD_MANAGER).await?;
    let until = clock::monotonic() + args.timeout;
    let missing = rights::missing(&hub).await;
    if !missing.is_empty() {
        return Err(format!(
            "nothing was done, for rights on the hub are missing: {} (docs/examples/drain-rights.yaml has all that \
             a drain needs)",
            missing.join(", ")
        )
        .into());
    }
    let evictions = watch(&hub, until).await?;
    let drain = Drain {
        hub,
        evictions,
        cluster: args.name.clone(),
        until,
        args,
    };
    let result = match cordon(&drain.hub, &drain.cluster).await {
        Ok(()) => drain.run().await,
        refused => refused,
    };
    drain.evictions.stop();
    result
}

/// The taint of a cluster that is drained.
pub fn taint() -> Taint {
    Taint {
        key: labels::CORDON_KEY.to_owned(),
        value: Some(labels::CORDON_VALUE.to_owned()),
        effect: TaintEffect::NoSchedule,
    }
}

async fn cordon(hub: &Writer, name: &str) -> Result<(), Failure> {
    let mark = |cluster: &mut MemberCluster| {
        let taints = cluster.spec.taints.get_or_insert_default();
        let is_new = !taints.contains(&taint());
        if is_new {
            taints.push(taint());
        }
        is_new
    };
    let cluster = cli::change(hub, None, name, mark)
        .await
        .map_err(|error| words("tainting the MemberCluster", &error))?;
    let cluster = cluster.ok_or_else(|| format!("{name} is not in the fleet"))?;
    if cluster.metadata.deletion_timestamp.is_some() {
        return Err(format!("{name} is leaving the fleet: nothing can be drained any more").into());
    }
    say(&format!(
        "{name} is cordoned: nothing new is placed there (taint {}={}:NoSchedule)",
        labels::CORDON_KEY,
        labels::CORDON_VALUE
    ));
    Ok(())
}

/// The evictions, as they change.
async fn watch(hub: &Writer, until: Instant) -> Result<Cache<Eviction>, Failure> {
    let api: Api<Eviction> = Api::all(hub.client().clone());
    let cache = Cache::start(
        "drain",
        api,
        watcher::Config::default(),
        CacheOptions::default(),
    );
    while !cache.is_synced() {
        match cache.failure() {
            Some(error) if !error.is_outage() || clock::monotonic() >= until => {
                return Err(words("watching evictions", &error));
            }
            None if clock::monotonic() >= until => {
                return Err("watching evictions: no answer in time".into());
            }
            _ => clock::sleep(PERIOD / 10).await,
        }
    }
    Ok(cache)
}

/// How one placement fares.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Its eviction is not decided yet.
    Asked,
    /// Its eviction waits; why.
    Waits(String),
    /// Its binding goes; what that waits for.
    Goes(Option<String>),
    /// It is not on the cluster any more.
    Gone,
    /// Nothing comes of its eviction; why.
    Failed(String),
}

struct Drain {
    hub: Writer,
    evictions: Cache<Eviction>,
    cluster: String,
    until: Instant,
    args: Args,
}

impl Drain {
    async fn run(&self) -> Result<(), Failure> {
        let mut evicted = BTreeSet::new();
        let mut stays: Vec<Stays>;
        loop {
            let survey = self.survey().await?;
            stays = survey.stays;
            let (back, new): (Vec<_>, Vec<_>) = survey
                .items
                .into_iter()
                .partition(|item| evicted.contains(&item.placement));
            stays.extend(back.iter().map(|item| Stays::back(&item.placement)));
            if new.is_empty() {
                break;
            }
            let failed = self.evict(&new).await?;
            evicted.extend(new.into_iter().map(|item| item.placement));
            if !failed.is_empty() {
                stays.extend(failed);
                break;
            }
        }
        self.farewell(evicted.len(), &stays)
    }

    async fn survey(&self) -> Result<Survey, Failure> {
        let taint = taint();
        let look = || survey::look(&self.hub, &self.cluster, &taint);
        self.insist("looking at what is placed there", look).await
    }

    /// Does something that the API server may be away for, as long as there is time.
    async fn insist<T, F>(&self, doing: &str, mut act: impl FnMut() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        loop {
            match tokio::time::timeout_at(self.until, act()).await {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(ApiError::Transient { .. })) if clock::monotonic() < self.until => {
                    clock::sleep(PERIOD).await;
                }
                Ok(Err(error)) => return Err(words(doing, &error)),
                Err(_) => {
                    let limit = self.args.timeout.as_secs();
                    return Err(format!("{doing} was not done within {limit} s").into());
                }
            }
        }
    }

    /// Has the items evicted, and waits for that. Those that nothing comes of.
    async fn evict(&self, items: &[Item]) -> Result<Vec<Stays>, Failure> {
        for item in items.iter().filter(|item| item.evict) {
            if item.tolerates {
                say(&format!(
                    "{}: tolerates the taint, so it may be placed on {} again",
                    item.placement, self.cluster
                ));
            }
            let doing = format!("evicting {}", item.placement);
            self.insist(&doing, || self.ask(item)).await?;
        }
        let mut told: BTreeMap<&str, Step> = BTreeMap::new();
        let mut pause = PERIOD;
        loop {
            let mut is_news = false;
            for item in items {
                if matches!(
                    told.get(item.placement.as_str()),
                    Some(Step::Gone | Step::Failed(_))
                ) {
                    continue;
                }
                let step = match self.step(item).await {
                    Ok(step) => step,
                    // The hub's API server may be away for a moment.
                    Err(error) if error.is_outage() => continue,
                    Err(error) => return Err(words("looking at a binding", &error)),
                };
                if told.get(item.placement.as_str()) != Some(&step) {
                    // That it has only just been asked is no news.
                    if step != Step::Asked {
                        say(&format!("{}: {}", item.placement, in_words(&step)));
                    }
                    told.insert(&item.placement, step);
                    is_news = true;
                }
            }
            let over = |item: &&Item| {
                matches!(
                    told.get(item.placement.as_str()),
                    Some(Step::Gone | Step::Failed(_))
                )
            };
            let left: Vec<&Item> = items.iter().filter(|item| !over(item)).collect();
            if left.is_empty() {
                break;
            }
            if clock::monotonic() >= self.until {
                return Err(self.out_of_time(&left, &told));
            }
            pause = if is_news {
                PERIOD
            } else {
                (pause * 2).min(LONGEST_PERIOD)
            };
            clock::sleep_until(self.until.min(clock::monotonic() + pause)).await;
        }
        let failed = |item: &Item| match told.get(item.placement.as_str()) {
            Some(Step::Failed(why)) => Some(Stays::failed(&item.placement, why)),
            _ => None,
        };
        Ok(items.iter().filter_map(failed).collect())
    }

    /// Sees to it that there is an eviction of an item that is not over, or has done its work: one that an
    /// earlier run has made, or a new one.
    async fn ask(&self, item: &Item) -> Result<(), ApiError> {
        for name in names_of(item, &self.cluster) {
            let known = match self.evictions.get(&ObjectKey::cluster(&name)) {
                Some(known) => known,
                None => match self.hub.create(&self.eviction(&name, item)).await {
                    Ok(made) => {
                        self.evictions.observe(made);
                        return Ok(());
                    }
                    Err(ApiError::AlreadyExists(_)) => {
                        let Some(live) = self.hub.get::<Eviction>(None, &name).await? else {
                            continue;
                        };
                        self.evictions.observe(live.clone());
                        live.into()
                    }
                    Err(error) => return Err(error),
                },
            };
            if !has_failed(&known) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn eviction(&self, name: &str, item: &Item) -> Eviction {
        let spec = EvictionSpec {
            placement_name: item.placement.clone(),
            cluster_name: self.cluster.clone(),
            retry: Some(EvictionRetry::WhenAllowed),
        };
        Eviction::new(name, spec)
    }

    async fn step(&self, item: &Item) -> Result<Step, ApiError> {
        let eviction = names_of(item, &self.cluster)
            .filter_map(|name| self.evictions.get(&ObjectKey::cluster(&name)))
            .last();
        let is_over = !item.evict || eviction.as_deref().is_none_or(is_over);
        if let Some(eviction) = eviction.as_deref().filter(|_| !is_over) {
            return Ok(of_open(eviction));
        }
        let Some(live) = self.live(item).await? else {
            return Ok(Step::Gone);
        };
        let goes = Ok(Step::Goes(trouble(&live).map(str::to_owned)));
        match eviction.as_deref() {
            _ if !item.evict => goes,
            Some(eviction) if !has_failed(eviction) => goes,
            Some(eviction) => Ok(Step::Failed(message(eviction))),
            None => Ok(Step::Failed("its eviction was deleted".to_owned())),
        }
    }

    /// The binding of an item, as long as it is the same one.
    async fn live(&self, item: &Item) -> Result<Option<Binding>, ApiError> {
        let api: Api<Binding> = Api::all_with(self.hub.client().clone(), &Scope::Cluster);
        let live = api
            .get_opt(&item.binding)
            .await
            .map_err(ApiError::from_kube)?;
        Ok(live.filter(|live| live.uid().as_deref() == Some(&item.uid)))
    }

    fn out_of_time(&self, left: &[&Item], told: &BTreeMap<&str, Step>) -> Failure {
        let mut text = format!(
            "{} is not drained within {} s:",
            self.cluster,
            self.args.timeout.as_secs()
        );
        for item in left {
            let step = told.get(item.placement.as_str());
            let why = step.map_or_else(|| "not looked at yet".to_owned(), in_words);
            text.push_str(&format!("\n  {}: {why}", item.placement));
        }
        text.push_str(&format!(
            "\nThe hub goes on. To follow it, run this again. To call it off: kubectl delete crpe NAME for what \
             waits (kubectl get crpe), and windlass uncordon {}",
            self.cluster
        ));
        text.into()
    }

    fn farewell(&self, evicted: usize, stays: &[Stays]) -> Result<(), Failure> {
        let cluster = &self.cluster;
        let matters = |stays: &&Stays| !stays.is_ignored(&self.args);
        if stays.is_empty() {
            say(&format!(
                "{cluster} is drained: {evicted} placement(s) evicted, nothing is left. To use it again: windlass \
                 uncordon {cluster}"
            ));
            return Ok(());
        }
        let mut text = format!("{evicted} placement(s) evicted from {cluster}; still there:");
        for stays in stays {
            text.push_str(&format!("\n  {}", stays.in_words(cluster)));
        }
        if stays.iter().any(|stays| matters(&stays)) {
            return Err(text.into());
        }
        say(&text);
        Ok(())
    }
}

/// Names of the evictions of an item, in the order in which they are tried. They follow from the binding, so
/// that a later run goes on with them, and one that has come back is evicted anew.
fn names_of(item: &Item, cluster: &str) -> impl Iterator<Item = String> {
    (0..TRIES).map(move |number| {
        let unique = Digest::of_bytes(format!("{}/{number}", item.uid).as_bytes()).to_string();
        names::drain_eviction(&item.placement, cluster, &unique[..8])
    })
}

fn condition(eviction: &Eviction, type_: EvictionCondition) -> Option<&Condition> {
    let conditions = eviction.status.as_ref()?.conditions.as_deref()?;
    find(conditions, type_.as_str())
}

/// Whether nothing comes of an eviction: it is not valid, or was not allowed and does not wait.
fn has_failed(eviction: &Eviction) -> bool {
    [EvictionCondition::Valid, EvictionCondition::Executed]
        .into_iter()
        .filter_map(|type_| condition(eviction, type_))
        .any(|condition| condition.status == "False")
}

/// How an eviction stands that is not over.
fn of_open(eviction: &Eviction) -> Step {
    let noted = eviction.status.as_ref().and_then(|s| s.evicting.as_ref());
    match condition(eviction, EvictionCondition::Executed) {
        Some(condition) if noted.is_none() => Step::Waits(condition.message.clone()),
        _ => Step::Asked,
    }
}

/// Why nothing comes of an eviction.
fn message(eviction: &Eviction) -> String {
    let told = condition(eviction, EvictionCondition::Executed)
        .or_else(|| condition(eviction, EvictionCondition::Valid));
    told.map(|condition| condition.message.clone())
        .unwrap_or_default()
}

fn trouble(binding: &Binding) -> Option<&str> {
    let conditions = binding.status.as_ref()?.conditions.as_deref()?;
    let synchronized = find(conditions, Stage::WorkSynchronized.as_str())?;
    (synchronized.status == "False").then_some(synchronized.message.as_str())
}

fn in_words(step: &Step) -> String {
    line(&match step {
        Step::Asked => "its eviction is not decided yet; is the hub running?".to_owned(),
        Step::Waits(why) => format!("waits: {why}"),
        Step::Goes(None) => "evicted, and is being removed".to_owned(),
        Step::Goes(Some(trouble)) => format!("evicted; {trouble}"),
        Step::Gone => "gone".to_owned(),
        Step::Failed(why) => format!("stays: {why}"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn eviction(conditions: &[(&str, &str)], evicting: Option<&str>) -> Eviction {
        let list: Vec<_> = conditions
            .iter()
            .map(|(type_, status)| {
                json!({ "type": type_, "status": status, "reason": "R", "message": "m",
                        "lastTransitionTime": "2026-01-01T00:00:00Z" })
            })
            .collect();
        serde_json::from_value(json!({
            "metadata": { "name": "e" }, "spec": { "placementName": "web", "clusterName": "east" },
            "status": { "conditions": list, "evicting": evicting },
        }))
        .unwrap()
    }

    #[test]
    fn how_an_eviction_stands() {
        let waits = Step::Waits("m".to_owned());
        let (valid, unknown) = (("Valid", "True"), ("Executed", "Unknown"));
        for (conditions, evicting, expected) in [
            (&[][..], None, Some(Step::Asked)),
            (&[valid, unknown], None, Some(waits)),
            (&[valid, unknown], Some("u"), Some(Step::Asked)),
            (&[valid, ("Executed", "True")], Some("u"), None),
            (&[valid, ("Executed", "False")], None, None),
            (&[("Valid", "False")], None, None),
        ] {
            let eviction = eviction(conditions, evicting);
            let open = (!is_over(&eviction)).then(|| of_open(&eviction));
            assert_eq!(open, expected, "{conditions:?}");
        }
        assert!(has_failed(&eviction(&[valid, ("Executed", "False")], None)));
        assert!(!has_failed(&eviction(&[valid, ("Executed", "True")], None)));
    }

    #[test]
    fn a_later_run_finds_the_evictions_of_an_earlier_one() {
        let item = |uid: &str| Item {
            placement: "web".to_owned(),
            binding: "b".to_owned(),
            uid: uid.to_owned(),
            evict: true,
            tolerates: false,
        };
        let names = |uid: &str| names_of(&item(uid), "east").collect::<Vec<_>>();
        assert_eq!(names("u"), names("u"));
        assert!(names("u")[0].starts_with("drain-eviction-web-east-"));
        let all: BTreeSet<_> = names("u").into_iter().chain(names("v")).collect();
        assert_eq!(
            all.len(),
            2 * TRIES as usize,
            "one that has come back has others"
        );
    }
}
