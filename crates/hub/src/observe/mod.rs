//! The hub seen from outside: metrics, events and log lines about placements and clusters.
//!
//! Caches tell of every change, and counters move by the difference that it makes ([`tally`]); series are
//! made from the counters when they are asked for ([`collector`]). Who writes a status tells what it was
//! and is, and what is new of that becomes an event and a log line. Nothing here waits or fails.

pub mod actors;
mod addons;
pub mod collector;
pub mod evictions;
mod runs;
pub mod summary;
pub mod tally;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use prometheus::Registry;
use windlass_api::Condition;
use windlass_api::addon::{Addon, AddonRepository, AddonStatus, RepositoryStatus};
use windlass_api::eviction::ClusterResourcePlacementEviction;
use windlass_api::member::{MemberCluster, MemberClusterStatus};
use windlass_api::placement::PlacementStatus;
use windlass_api::run::UpdateRunStatus;
use windlass_api::scoped::{Binding, Placement, Scope, UpdateRun};
use windlass_cluster::events::{Severity, reference_to};
use windlass_cluster::{Change, Events, KindOf, NewEvent, clock};
use windlass_rollout::{Outcome, Verdict};
use windlass_status::addon_transitions::{of_addon, of_repository};
use windlass_status::digest::Digest;
use windlass_status::run_transitions::of_run;
use windlass_status::transitions::{Transition, of_member, of_placement};

use self::addons::AddonObserver;
use self::collector::FleetCollector;
use self::evictions::{EvictionCollector, EvictionTally, State};
use self::runs::RunObserver;
use self::summary::Summary;
use self::tally::{PlacementFacts, Tally};
use crate::world::{Queues, placement_of};

pub use self::actors::{Skipped, rolled_up, selects, skipped};

/// How the hub's events name their author.
pub const REPORTER: &str = "windlass.dev/hub";

/// Takes note of what happens. Clones share everything.
#[derive(Clone)]
pub struct Observer {
    tally: Arc<Mutex<Tally>>,
    evictions: EvictionTally,
    leads: Arc<AtomicBool>,
    events: Events,
    runs: RunObserver,
    addons: AddonObserver,
}

impl Observer {
    /// Shows its metrics in a registry, and sends news through `events`.
    ///
    /// # Errors
    /// When the registry has metrics of the same names.
    pub fn new(
        registry: &Registry,
        queues: &Queues,
        events: Events,
    ) -> Result<Self, prometheus::Error> {
        let tally = Arc::default();
        let leads: Arc<AtomicBool> = Arc::default();
        let runs = RunObserver::new(registry, Arc::clone(&leads))?;
        let fleet = FleetCollector::new(Arc::clone(&tally), Arc::clone(&leads), queues.clone())?;
        registry.register(Box::new(fleet))?;
        let evictions = EvictionTally::default();
        let shown = EvictionCollector::new(evictions.clone(), Arc::clone(&leads))?;
        registry.register(Box::new(shown))?;
        let addons = AddonObserver::new(registry, Arc::clone(&leads))?;
        actors::register(registry)?;
        Ok(Self {
            tally,
            evictions,
            leads,
            events,
            runs,
            addons,
        })
    }

    /// This process leads: from now on it shows the fleet. A standby does not, so that sums over all
    /// processes are right.
    pub fn lead(&self) {
        self.leads.store(true, Ordering::Relaxed);
    }

    /// Waits a moment for events that have not been sent yet: before the process ends.
    pub async fn drain(&self) {
        self.events.drain(Duration::from_millis(300)).await;
    }

    /// A placement has changed.
    pub fn placement_changed(&self, change: &Change<Placement>) {
        let name = change.key.to_string();
        let mut tally = self.lock();
        let Some(new) = &change.new else {
            tally.placement_gone(&name);
            return;
        };
        let facts = PlacementFacts::of(new);
        let took = tally.placement(&name, &facts, change.initial, clock::monotonic());
        if let Some(took) = took
            && self.leads.load(Ordering::Relaxed)
        {
            actors::rolled_out(took);
        }
    }

    /// A binding has changed.
    pub fn binding_changed(&self, change: &Change<Binding>) {
        let new = change.new.as_deref().and_then(Summary::of);
        self.lock().binding(&change.key.to_string(), new);
    }

    /// A member cluster has changed.
    pub fn cluster_changed(&self, change: &Change<MemberCluster>) {
        self.lock().cluster(&change.key.name, change.new.is_some());
    }

    /// An eviction has changed.
    pub fn eviction_changed(&self, change: &Change<ClusterResourcePlacementEviction>) {
        self.evictions
            .eviction(&change.key.name, change.new.as_deref());
    }

    /// An eviction's status, as given, has been replaced by what was decided.
    pub fn eviction_told(
        &self,
        old: &ClusterResourcePlacementEviction,
        new: &ClusterResourcePlacementEviction,
        verdict: &Verdict,
    ) {
        // Noting what is to be deleted is no news; nor are other numbers of one that waits.
        let noted = matches!(verdict.outcome, Outcome::Evict(_));
        if noted || State::of(old) == State::of(new) && State::of(new) == State::Waiting {
            return;
        }
        let conditions = verdict.conditions(None);
        let Some(told) = conditions.last() else {
            return;
        };
        let news = Transition {
            is_warning: matches!(verdict.outcome, Outcome::Invalid | Outcome::NotExecuted),
            reason: told.reason.to_owned(),
            action: "Evict",
            note: told.message.clone(),
            cluster: Some(new.spec.cluster_name.clone()),
            index: String::new(),
        };
        self.tell(new, news);
    }

    /// A placement's status, as given, has been replaced by a new one.
    pub fn placement_status(&self, old: &Placement, new: Option<&PlacementStatus>) {
        let Some(new) = new else { return };
        for news in of_placement(Scope::of(old), old.status.as_ref(), new) {
            self.tell(old, news);
        }
    }

    /// A member cluster's status, as given, has been replaced by a new one.
    pub fn cluster_status(&self, old: &MemberCluster, new: Option<&MemberClusterStatus>) {
        let Some(new) = new else { return };
        for news in of_member(old.status.as_ref(), new) {
            self.tell(old, news);
        }
    }

    /// An update run has changed.
    pub fn run_changed(&self, change: &Change<UpdateRun>) {
        self.runs.changed(change);
    }

    /// An update run's status, as given, has been replaced by a new one.
    pub fn run_status(&self, old: &UpdateRun, new: Option<&UpdateRunStatus>) {
        let Some(new) = new else { return };
        self.runs.written(old.status.as_ref(), new);
        for news in of_run(old.status.as_ref(), new) {
            self.tell(old, news);
        }
    }

    /// An add-on repository has changed.
    pub fn repository_changed(&self, change: &Change<AddonRepository>) {
        self.addons.repository(change);
    }

    /// An add-on repository's status, as given, has been replaced by a new one.
    pub fn repository_status(&self, old: &AddonRepository, new: &RepositoryStatus) {
        let before = old
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_deref());
        let after = new.conditions.as_deref().unwrap_or_default();
        for news in of_repository(before.unwrap_or_default(), after) {
            self.tell(old, news);
        }
    }

    /// An Addon has changed.
    pub fn addon_changed(&self, change: &Change<Addon>) {
        self.addons.addon(change);
    }

    /// An Addon's status, as given, has been replaced by a new one.
    pub fn addon_status(&self, old: &Addon, new: &AddonStatus) {
        fn parts(status: &AddonStatus) -> (&[Condition], Option<&str>) {
            (
                status.conditions.as_deref().unwrap_or_default(),
                status.render_digest.as_deref(),
            )
        }
        let before = old.status.clone().unwrap_or_default();
        for news in of_addon(parts(&before), parts(new)) {
            self.tell(old, news);
        }
    }

    /// Something of ours stays on a member cluster that leaves. `note` says what.
    pub fn cluster_left_behind(&self, cluster: &MemberCluster, reason: &str, note: &str) {
        let news = Transition {
            is_warning: true,
            reason: reason.to_owned(),
            action: "Leave",
            note: note.to_owned(),
            cluster: None,
            // What stays is told as it is found: one is no repetition of the other.
            index: Digest::of_bytes(note.as_bytes()).to_string(),
        };
        self.tell(cluster, news);
    }

    /// A member cluster has been let go.
    pub fn cluster_left(&self, cluster: &MemberCluster) {
        let news = Transition {
            is_warning: false,
            reason: "MemberClusterGone".to_owned(),
            action: "Leave",
            note: "The cluster has left the fleet".to_owned(),
            cluster: None,
            index: String::new(),
        };
        self.tell(cluster, news);
    }

    /// The log line's own object is told by the fields of the look that it is logged in.
    fn tell<K: Resource<DynamicType: KindOf<K>>>(&self, about: &K, news: Transition) {
        let (cluster, reason) = (news.cluster.as_deref(), news.reason.as_str());
        if news.is_warning {
            tracing::warn!(cluster, reason, "{}", news.note);
        } else {
            tracing::info!(cluster, reason, "{}", news.note);
        }
        let related = news.cluster.as_ref().map(|cluster| ObjectReference {
            api_version: Some(MemberCluster::api_version(&()).into_owned()),
            kind: Some(MemberCluster::kind(&()).into_owned()),
            name: Some(cluster.clone()),
            ..ObjectReference::default()
        });
        self.events.send(NewEvent {
            regarding: reference_to(about),
            related,
            severity: if news.is_warning {
                Severity::Warning
            } else {
                Severity::Normal
            },
            reason: news.reason,
            action: news.action,
            note: news.note,
            about: news.index,
        });
    }

    fn lock(&self) -> MutexGuard<'_, Tally> {
        // No code that can panic runs under the lock.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Log lines of the present look say which placement and cluster a binding is about.
pub fn log_binding(binding: &Binding) {
    let span = tracing::Span::current();
    span.record(
        "placement",
        placement_of(binding).map(|key| key.to_string()),
    );
    span.record("cluster", binding.spec.target_cluster.as_str());
}

/// How this process names itself in events: the host's name, which is a pod's name in a cluster.
#[must_use]
pub fn instance() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match host.trim() {
        "" => "windlass-hub".to_owned(),
        host => format!("windlass-hub-{host}"),
    }
}
