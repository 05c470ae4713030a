//! Series about update runs: of those that are not over, and of the last of each placement, so that one
//! that has failed is seen until somebody makes another.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramOpts, IntGaugeVec, Opts, Registry};
use windlass_api::conditions::{RunCondition, RunReason, Status};
use windlass_api::run::{ClusterStatus, StageStatus, TaskStatus, UpdateRunStatus};
use windlass_api::scoped::UpdateRun;
use windlass_api::{Condition, Time};
use windlass_cluster::{Change, ObjectKey};
use windlass_rollout::run::is_over;
use windlass_status::conditions::{find, status};

use crate::update_runs::placement_of;

/// Takes note of runs. Clones share everything.
#[derive(Clone)]
pub struct RunObserver {
    known: Arc<Mutex<BTreeMap<ObjectKey, Facts>>>,
    approvals: Histogram,
    stages: Histogram,
}

/// What is shown of a run.
struct Facts {
    placement: String,
    created: Option<Time>,
    is_over: bool,
    state: &'static str,
    /// Since when it waits for an approval or for time to pass, in Unix seconds.
    waits_since: Option<i64>,
    clusters: [(&'static str, usize); 5],
}

impl RunObserver {
    /// Shows its metrics in a registry.
    ///
    /// # Errors
    /// When the registry has metrics of the same names.
    pub fn new(registry: &Registry, leads: Arc<AtomicBool>) -> Result<Self, prometheus::Error> {
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))
        };
        let this = Self {
            known: Arc::default(),
            approvals: histogram(
                "windlass_update_run_approval_latency_seconds",
                "From an approval request to the approval.",
                &[
                    60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 21_600.0, 43_200.0, 86_400.0,
                ],
            )?,
            stages: histogram(
                "windlass_update_run_stage_duration_seconds",
                "From the first cluster of a stage of an update run to the end of the stage.",
                &[15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0],
            )?,
        };
        registry.register(Box::new(this.approvals.clone()))?;
        registry.register(Box::new(this.stages.clone()))?;
        let known = Arc::clone(&this.known);
        registry.register(Box::new(RunCollector::new(known, leads)?))?;
        Ok(this)
    }

    /// A run has changed.
    pub fn changed(&self, change: &Change<UpdateRun>) {
        let mut known = lock(&self.known);
        match &change.new {
            Some(run) => known.insert(change.key.clone(), Facts::of(run)),
            None => known.remove(&change.key),
        };
    }

    /// A run's status has been replaced: what took how long.
    pub fn written(&self, old: Option<&UpdateRunStatus>, new: &UpdateRunStatus) {
        let stages = |status: Option<&UpdateRunStatus>| -> Vec<StageStatus> {
            status
                .and_then(|status| status.stages_status.clone())
                .unwrap_or_default()
        };
        let before = stages(old);
        for (at, stage) in new.stages_status.iter().flatten().enumerate() {
            let was = before.get(at);
            let is_new = was.is_none_or(|was| was.end_time.is_none());
            if let (true, Some(begin), Some(end)) = (is_new, &stage.start_time, &stage.end_time) {
                self.stages.observe(seconds(begin, end));
            }
            for (at, task) in tasks(stage).enumerate() {
                let was = was.and_then(|was| approved(tasks(was).nth(at)?));
                let asked = get(&task.conditions, RunCondition::ApprovalRequestCreated);
                if let (None, Some(asked), Some(approved)) = (was, asked, approved(task)) {
                    let (from, to) = (&asked.last_transition_time, &approved.last_transition_time);
                    self.approvals.observe(seconds(from, to));
                }
            }
        }
    }
}

fn tasks(stage: &StageStatus) -> impl Iterator<Item = &TaskStatus> {
    let before = stage.before_stage_task_status.iter().flatten();
    before.chain(stage.after_stage_task_status.iter().flatten())
}

fn approved(task: &TaskStatus) -> Option<&Condition> {
    get(&task.conditions, RunCondition::ApprovalRequestApproved)
}

fn get(list: &Option<Vec<Condition>>, type_: RunCondition) -> Option<&Condition> {
    find(list.as_deref()?, type_.as_str())
}

fn seconds(from: &Time, to: &Time) -> f64 {
    to.0.duration_since(from.0).as_secs_f64().max(0.0)
}

fn lock(known: &Mutex<BTreeMap<ObjectKey, Facts>>) -> MutexGuard<'_, BTreeMap<ObjectKey, Facts>> {
    // No code that can panic runs under the lock.
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Facts {
    fn of(run: &UpdateRun) -> Self {
        let empty = UpdateRunStatus::default();
        let told = run.status.as_ref().unwrap_or(&empty);
        let progressing = get(&told.conditions, RunCondition::Progressing);
        let state = state(told, progressing);
        Self {
            placement: placement_of(run).to_string(),
            created: run.metadata.creation_timestamp.clone(),
            is_over: is_over(run),
            state,
            waits_since: progressing
                .filter(|_| state == "waiting")
                .map(|told| told.last_transition_time.0.as_second()),
            clusters: clusters(told),
        }
    }
}

/// A run's state in a word.
fn state(told: &UpdateRunStatus, progressing: Option<&Condition>) -> &'static str {
    let status_of = |type_| get(&told.conditions, type_).map(status);
    match (
        status_of(RunCondition::Initialized),
        status_of(RunCondition::Succeeded),
    ) {
        (_, Some(Status::True)) => return "succeeded",
        (_, Some(Status::False)) | (Some(Status::False), _) => return "failed",
        (None | Some(Status::Unknown), _) => return "initializing",
        (Some(Status::True), _) => {}
    }
    let Some(told) = progressing else {
        return "initialized";
    };
    match RunReason::parse(&told.reason) {
        Some(RunReason::UpdateRunWaiting) => "waiting",
        Some(RunReason::UpdateRunStuck) => "stuck",
        Some(RunReason::UpdateRunStopping) => "stopping",
        Some(RunReason::UpdateRunStopped) => "stopped",
        Some(RunReason::UpdateRunRollingBack) => "rolling-back",
        _ => "running",
    }
}

/// Clusters by what became of them.
fn clusters(told: &UpdateRunStatus) -> [(&'static str, usize); 5] {
    let mut counts = [
        ("waiting", 0),
        ("updating", 0),
        ("done", 0),
        ("failed", 0),
        ("skipped", 0),
    ];
    let stages = told.stages_status.iter().flatten();
    for cluster in stages.flat_map(|stage| &stage.clusters) {
        counts[class(cluster)].1 += 1;
    }
    counts
}

fn class(cluster: &ClusterStatus) -> usize {
    let status_of = |type_| get(&cluster.conditions, type_).map(status);
    match status_of(RunCondition::Succeeded) {
        Some(Status::True) => 2,
        Some(Status::False) => 3,
        _ if status_of(RunCondition::Skipped) == Some(Status::True) => 4,
        _ => usize::from(status_of(RunCondition::Started) == Some(Status::True)),
    }
}

#[derive(Clone)]
struct Series {
    state: IntGaugeVec,
    waits: IntGaugeVec,
    clusters: IntGaugeVec,
}

impl Series {
    fn new() -> Result<Self, prometheus::Error> {
        let gauges = |name: &str, help: &str, more: &str| {
            IntGaugeVec::new(Opts::new(name, help), &["placement", "run", more])
        };
        Ok(Self {
            state: gauges(
                "windlass_update_run_state",
                "1 for the state that an update run is in.",
                "state",
            )?,
            waits: IntGaugeVec::new(
                Opts::new(
                    "windlass_update_run_waiting_since_timestamp_seconds",
                    "Since when an update run waits for an approval or for time to pass.",
                ),
                &["placement", "run"],
            )?,
            clusters: gauges(
                "windlass_update_run_clusters",
                "Clusters of an update run by what became of them.",
                "outcome",
            )?,
        })
    }

    fn all(&self) -> [&IntGaugeVec; 3] {
        [&self.state, &self.waits, &self.clusters]
    }
}

struct RunCollector {
    known: Arc<Mutex<BTreeMap<ObjectKey, Facts>>>,
    leads: Arc<AtomicBool>,
    series: Mutex<Series>,
    /// Copies whose descriptions can be borrowed.
    described: Series,
}

impl RunCollector {
    fn new(
        known: Arc<Mutex<BTreeMap<ObjectKey, Facts>>>,
        leads: Arc<AtomicBool>,
    ) -> Result<Self, prometheus::Error> {
        Ok(Self {
            known,
            leads,
            series: Mutex::new(Series::new()?),
            described: Series::new()?,
        })
    }
}

impl Collector for RunCollector {
    fn desc(&self) -> Vec<&Desc> {
        let all = self.described.all();
        all.into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.all().into_iter().for_each(IntGaugeVec::reset);
        if self.leads.load(Ordering::Relaxed) {
            fill(&series, &lock(&self.known));
        }
        let all = series.all();
        all.into_iter().flat_map(Collector::collect).collect()
    }
}

fn fill(series: &Series, known: &BTreeMap<ObjectKey, Facts>) {
    let mut last: BTreeMap<&str, (&Option<Time>, &ObjectKey)> = BTreeMap::new();
    for (key, facts) in known {
        let newest = last
            .entry(&facts.placement)
            .or_insert((&facts.created, key));
        if newest.0.as_ref().map(|time| time.0) < facts.created.as_ref().map(|time| time.0) {
            *newest = (&facts.created, key);
        }
    }
    for (key, facts) in known {
        let is_last = last
            .get(facts.placement.as_str())
            .is_some_and(|last| last.1 == key);
        if facts.is_over && !is_last {
            continue;
        }
        let labels = [facts.placement.as_str(), key.name.as_str()];
        let [placement, run] = labels;
        let state = [placement, run, facts.state];
        series.state.with_label_values(&state).set(1);
        if let Some(since) = facts.waits_since {
            series.waits.with_label_values(&labels).set(since);
        }
        for (outcome, count) in facts.clusters {
            if count > 0 {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                let gauges = &series.clusters;
                gauges
                    .with_label_values(&[placement, run, outcome])
                    .set(count);
            }
        }
    }
}
