//! Series about add-on repositories and Addons: a few for each, which go with their objects.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts, Registry};
use windlass_api::addon::{Addon, AddonRepository};
use windlass_api::{Condition, Time};
use windlass_cluster::Change;
use windlass_status::conditions::is_true;

/// Takes note of repositories and Addons. Clones share everything.
#[derive(Clone, Default)]
pub struct AddonObserver(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    repositories: BTreeMap<String, Repository>,
    /// Whether each Addon is ready.
    addons: BTreeMap<String, bool>,
}

struct Repository {
    is_ready: bool,
    is_synced: bool,
    failures: i64,
    charts: Option<i64>,
    last: Option<i64>,
    next: Option<i64>,
}

impl AddonObserver {
    /// Shows its metrics in a registry.
    ///
    /// # Errors
    /// When the registry has metrics of the same names.
    pub fn new(registry: &Registry, leads: Arc<AtomicBool>) -> Result<Self, prometheus::Error> {
        let this = Self::default();
        registry.register(Box::new(AddonCollector::new(this.clone(), leads)?))?;
        Ok(this)
    }

    /// A repository has changed.
    pub fn repository(&self, change: &Change<AddonRepository>) {
        let name = change.key.name.clone();
        let Some(new) = &change.new else {
            self.lock().repositories.remove(&name);
            return;
        };
        let status = new.status.clone().unwrap_or_default();
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let facts = Repository {
            is_ready: is_true(conditions, "Ready"),
            is_synced: is_true(conditions, "Synced"),
            failures: status.consecutive_fetch_failures.unwrap_or(0).into(),
            charts: status.chart_count.map(i64::from),
            last: status.last_successful_sync_time.as_ref().map(seconds),
            next: status.next_sync_time.as_ref().map(seconds),
        };
        self.lock().repositories.insert(name, facts);
    }

    /// An Addon has changed.
    pub fn addon(&self, change: &Change<Addon>) {
        let name = change.key.name.clone();
        let mut known = self.lock();
        match change.new.as_deref() {
            None => drop(known.addons.remove(&name)),
            Some(new) => {
                let is_ready = is_true(conditions_of(new), "Ready");
                known.addons.insert(name, is_ready);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn conditions_of(addon: &Addon) -> &[Condition] {
    let status = addon.status.as_ref();
    status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default()
}

fn seconds(time: &Time) -> i64 {
    time.0.as_second()
}

/// Shows what the observer knows.
struct AddonCollector {
    known: AddonObserver,
    leads: Arc<AtomicBool>,
    ready: IntGaugeVec,
    synced: IntGaugeVec,
    failures: IntGaugeVec,
    charts: IntGaugeVec,
    last: IntGaugeVec,
    next: IntGaugeVec,
    addons: IntGaugeVec,
}

impl AddonCollector {
    fn new(known: AddonObserver, leads: Arc<AtomicBool>) -> Result<Self, prometheus::Error> {
        let gauge =
            |name: &str, help: &str, label: &str| IntGaugeVec::new(Opts::new(name, help), &[label]);
        let of = |name: &str, help: &str| gauge(name, help, "repository");
        Ok(Self {
            known,
            leads,
            ready: of(
                "windlass_addon_repository_ready",
                "1 while Addons can be made from the repository, else 0.",
            )?,
            synced: of(
                "windlass_addon_repository_synced",
                "1 while the last attempt has read the repository and written what it offers, else 0.",
            )?,
            failures: of(
                "windlass_addon_repository_failures",
                "Attempts in a row that could not read the repository, at most 5.",
            )?,
            charts: of(
                "windlass_addon_repository_charts",
                "Charts that the repository offers; only once it was read.",
            )?,
            last: of(
                "windlass_addon_repository_last_sync_timestamp_seconds",
                "When the repository was last read and what it offers written, in Unix time; only once it was.",
            )?,
            next: of(
                "windlass_addon_repository_next_sync_timestamp_seconds",
                "When the next attempt is due, in Unix time; not while none is planned.",
            )?,
            addons: gauge(
                "windlass_addon_ready",
                "1 while the Addon is rendered and available on every cluster it is placed on, else 0.",
                "addon",
            )?,
        })
    }

    fn all(&self) -> [&IntGaugeVec; 7] {
        [
            &self.ready,
            &self.synced,
            &self.failures,
            &self.charts,
            &self.last,
            &self.next,
            &self.addons,
        ]
    }
}

impl Collector for AddonCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.all()
            .into_iter()
            .flat_map(|gauge| gauge.desc())
            .collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        for gauge in self.all() {
            gauge.reset();
        }
        if self.leads.load(Ordering::Relaxed) {
            let known = self.known.lock();
            for (name, facts) in &known.repositories {
                let always = [
                    (&self.ready, i64::from(facts.is_ready)),
                    (&self.synced, i64::from(facts.is_synced)),
                    (&self.failures, facts.failures),
                ];
                let some = [
                    (&self.charts, facts.charts),
                    (&self.last, facts.last),
                    (&self.next, facts.next),
                ];
                let some = some
                    .into_iter()
                    .filter_map(|(gauge, value)| Some((gauge, value?)));
                for (gauge, value) in always.into_iter().chain(some) {
                    gauge.with_label_values(&[name]).set(value);
                }
            }
            for (name, is_ready) in &known.addons {
                self.addons
                    .with_label_values(&[name])
                    .set(i64::from(*is_ready));
            }
        }
        self.all()
            .into_iter()
            .flat_map(Collector::collect)
            .collect()
    }
}
