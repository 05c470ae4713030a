//! What actors cost: counters of the process, for every loop of [`crate::worker`].

use std::sync::LazyLock;
use std::time::Duration;

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
};
use windlass_api::scoped::Scope;

static ACTORS: LazyLock<Result<Actors, prometheus::Error>> = LazyLock::new(Actors::new);

struct Actors {
    duration: HistogramVec,
    errors: IntCounterVec,
    skipped: IntCounterVec,
    selections: IntCounter,
    roll_ups: IntCounter,
    rollouts: Histogram,
}

impl Actors {
    fn new() -> Result<Self, prometheus::Error> {
        let counters = |name: &str, help: &str, label: &str| {
            IntCounterVec::new(Opts::new(name, help), &[label])
        };
        let actors = Self {
            duration: HistogramVec::new(
                HistogramOpts::new(
                    "windlass_reconcile_duration_seconds",
                    "How long one look of an actor took.",
                )
                .buckets(vec![0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0]),
                &["actor"],
            )?,
            errors: counters(
                "windlass_reconcile_errors_total",
                "Looks of an actor that failed and are tried again.",
                "actor",
            )?,
            skipped: counters(
                "windlass_writes_skipped_total",
                "Looks that found what they would write to be there already.",
                "kind",
            )?,
            selections: IntCounter::new(
                "windlass_selections_total",
                "How often it was looked up what a placement selects.",
            )?,
            roll_ups: IntCounter::new(
                "windlass_status_rollups_total",
                "How often the status of a placement was made from its bindings.",
            )?,
            rollouts: Histogram::with_opts(
                HistogramOpts::new(
                    "windlass_rollout_duration_seconds",
                    "From a new index of a placement to the moment when all its clusters have it available.",
                )
                .buckets(vec![
                    1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0,
                ]),
            )?,
        };
        let of_scope = |scope| [Skipped::Placement(scope), Skipped::Binding(scope)];
        let kinds = Scope::BOTH.into_iter().flat_map(of_scope);
        for kind in kinds.chain([Skipped::Cluster]) {
            actors.skipped.with_label_values(&[kind.as_str()]);
        }
        Ok(actors)
    }
}

/// A write that was not needed, named as requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// Status of a placement.
    Placement(Scope),
    /// Status of a binding.
    Binding(Scope),
    /// Status of a member cluster.
    Cluster,
}

impl Skipped {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Placement(Scope::Cluster) => "clusterresourceplacements/status",
            Self::Placement(Scope::Namespaced) => "resourceplacements/status",
            Self::Binding(Scope::Cluster) => "clusterresourcebindings/status",
            Self::Binding(Scope::Namespaced) => "resourcebindings/status",
            Self::Cluster => "memberclusters/status",
        }
    }
}

/// Shows the process' counters in a registry.
///
/// # Errors
/// When it has metrics of the same names.
pub fn register(registry: &Registry) -> Result<(), prometheus::Error> {
    let actors = match &*ACTORS {
        Ok(actors) => actors,
        Err(error) => return Err(prometheus::Error::Msg(error.to_string())),
    };
    registry.register(Box::new(actors.duration.clone()))?;
    registry.register(Box::new(actors.errors.clone()))?;
    registry.register(Box::new(actors.skipped.clone()))?;
    registry.register(Box::new(actors.selections.clone()))?;
    registry.register(Box::new(actors.roll_ups.clone()))?;
    registry.register(Box::new(actors.rollouts.clone()))
}

/// One look of an actor is over.
pub fn looked(actor: &str, took: Duration, has_failed: bool) {
    let Ok(actors) = &*ACTORS else { return };
    actors
        .duration
        .with_label_values(&[actor])
        .observe(took.as_secs_f64());
    let errors = actors.errors.with_label_values(&[actor]);
    if has_failed {
        errors.inc();
    }
}

/// A write was not needed.
pub fn skipped(what: Skipped) {
    if let Ok(actors) = &*ACTORS {
        actors.skipped.with_label_values(&[what.as_str()]).inc();
    }
}

/// It is looked up what a placement selects.
pub fn selects() {
    if let Ok(actors) = &*ACTORS {
        actors.selections.inc();
    }
}

/// The status of a placement is made from its bindings.
pub fn rolled_up() {
    if let Ok(actors) = &*ACTORS {
        actors.roll_ups.inc();
    }
}

/// A rollout is complete.
pub fn rolled_out(took: Duration) {
    if let Ok(actors) = &*ACTORS {
        actors.rollouts.observe(took.as_secs_f64());
    }
}
