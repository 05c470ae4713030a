//! Series about placements and clusters, made from the [`Tally`] when they are asked for: what is gone
//! there has no series, and nothing has to be taken back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, IntGaugeVec, Opts};
use windlass_cluster::clock;

use super::tally::{PlacementTally, Tally};
use crate::world::Queues;

/// Failing pairs with a series of their own: with 1,000 placements on 5,000 clusters there may be millions.
pub const FAILING_SERIES: usize = 500;
/// Newest indexes of a placement with a series of their own.
pub const INDEXES: usize = 5;

/// See the module.
pub struct FleetCollector {
    tally: Arc<Mutex<Tally>>,
    leads: Arc<AtomicBool>,
    queues: Queues,
    series: Mutex<Series>,
    /// Copies whose descriptions can be borrowed.
    described: Series,
}

#[derive(Clone)]
struct Series {
    scheduled: IntGaugeVec,
    clusters: IntGaugeVec,
    by_index: IntGaugeVec,
    failed: IntGaugeVec,
    lagging: IntGaugeVec,
    failing: IntGaugeVec,
    failing_dropped: IntGauge,
    queue_depth: IntGaugeVec,
    tasks: IntGauge,
}

impl Series {
    fn new() -> Result<Self, prometheus::Error> {
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            IntGaugeVec::new(Opts::new(name, help), labels)
        };
        Ok(Self {
            scheduled: gauges(
                "windlass_placement_scheduled",
                "1 while scheduling has found all the clusters that a placement asks for, else 0.",
                &["placement"],
            )?,
            clusters: gauges(
                "windlass_placement_clusters",
                "Clusters of a placement by condition and status.",
                &["placement", "condition", "status"],
            )?,
            by_index: gauges(
                "windlass_placement_clusters_by_index",
                "Clusters of a placement by the index of the resource snapshot that they have reported on: the newest ones, `older`, and `none`.",
                &["placement", "index"],
            )?,
            failed: gauges(
                "windlass_cluster_failed_placements",
                "Placements that have failed on a cluster.",
                &["cluster"],
            )?,
            lagging: gauges(
                "windlass_cluster_lagging_placements",
                "Placements whose desired index or digest a cluster has not reported on yet.",
                &["cluster"],
            )?,
            failing: gauges(
                "windlass_failing",
                "1 while a placement has failed on a cluster, with the first condition that failed.",
                &["placement", "cluster", "condition"],
            )?,
            failing_dropped: IntGauge::new(
                "windlass_failing_dropped",
                "Pairs of placement and cluster that are failing and left out of windlass_failing.",
            )?,
            queue_depth: gauges(
                "windlass_queue_depth",
                "Keys that wait for a worker.",
                &["queue"],
            )?,
            tasks: IntGauge::new("windlass_tasks", "Tasks that are running.")?,
        })
    }

    fn all(&self) -> [&dyn Collector; 9] {
        [
            &self.scheduled,
            &self.clusters,
            &self.by_index,
            &self.failed,
            &self.lagging,
            &self.failing,
            &self.failing_dropped,
            &self.queue_depth,
            &self.tasks,
        ]
    }
}

impl FleetCollector {
    /// Shows a tally, and the queues.
    ///
    /// # Errors
    /// Never in practice: the names are fixed.
    pub fn new(
        tally: Arc<Mutex<Tally>>,
        leads: Arc<AtomicBool>,
        queues: Queues,
    ) -> Result<Self, prometheus::Error> {
        Ok(Self {
            tally,
            leads,
            queues,
            series: Mutex::new(Series::new()?),
            described: Series::new()?,
        })
    }
}

impl Collector for FleetCollector {
    fn desc(&self) -> Vec<&Desc> {
        let all = self.described.all();
        all.into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        for gauges in [
            &series.scheduled,
            &series.clusters,
            &series.by_index,
            &series.failed,
            &series.lagging,
            &series.failing,
        ] {
            gauges.reset();
        }
        if self.leads.load(Ordering::Relaxed) {
            let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
            fill(&series, &tally);
        }
        for (name, depth) in [
            ("placements", self.queues.placements.len()),
            ("bindings", self.queues.bindings.len()),
            ("clusters", self.queues.clusters.len()),
        ] {
            set(&series.queue_depth, &[name], depth);
        }
        series.tasks.set(number(clock::running_tasks()));
        let all = series.all();
        all.into_iter().flat_map(Collector::collect).collect()
    }
}

fn fill(series: &Series, tally: &Tally) {
    for (name, facts, placement) in tally.placements() {
        for ((stage, status), clusters) in &placement.by_stage {
            let labels = [name, stage.as_str(), status.as_str()];
            set(&series.clusters, &labels, *clusters);
        }
        let is_scheduled = usize::from(facts.is_scheduled);
        set(&series.scheduled, &[name], is_scheduled);
        for (index, clusters) in by_index(placement) {
            set(&series.by_index, &[name, &index], clusters);
        }
    }
    for (name, cluster) in tally.clusters() {
        set(&series.failed, &[name], cluster.failed);
        set(&series.lagging, &[name], cluster.lagging);
    }
    let (failing, all) = tally.failing();
    for (placement, cluster, stage) in failing.take(FAILING_SERIES) {
        set(&series.failing, &[placement, cluster, stage.as_str()], 1);
    }
    series
        .failing_dropped
        .set(number(all.saturating_sub(FAILING_SERIES)));
}

/// Clusters by label: the newest indexes, then the others together, then those that have not reported.
fn by_index(placement: &PlacementTally) -> Vec<(String, usize)> {
    let mut shown = Vec::new();
    let mut older = 0;
    let known = placement.by_index.iter().rev();
    for (index, clusters) in known.filter_map(|(index, number)| Some(((*index)?, *number))) {
        if shown.len() < INDEXES {
            shown.push((index.to_string(), clusters));
        } else {
            older += clusters;
        }
    }
    let none = placement.by_index.get(&None).copied().unwrap_or_default();
    for (label, clusters) in [("older", older), ("none", none)] {
        if clusters > 0 {
            shown.push((label.to_owned(), clusters));
        }
    }
    shown
}

fn set(gauges: &IntGaugeVec, labels: &[&str], value: usize) {
    gauges.with_label_values(labels).set(number(value));
}

fn number(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
