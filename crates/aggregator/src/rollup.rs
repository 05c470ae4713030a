//! From the clusters' entries to the placement's index and conditions (design §5.2).

use std::collections::BTreeMap;

use windlass_api::conditions::{Reason, Stage, Status};
use windlass_api::scoped::Scope;

use crate::cluster::{Cluster, Target};
use crate::view::{AggregateView, ExternalUnset};
use crate::words;

/// A condition of the placement, not yet stamped with generation and time.
pub struct Verdict {
    /// Which condition.
    pub stage: Stage,
    /// Status.
    pub status: Status,
    /// Reason.
    pub reason: Reason,
    /// Message.
    pub message: String,
}

/// What the clusters come to.
pub struct Rollup<'a> {
    /// Index that the conditions are about.
    pub index: Option<&'a str>,
    /// Snapshot that the conditions are about.
    pub snapshot: Option<&'a str>,
    /// The conditions after Scheduled, in order.
    pub verdicts: Vec<Verdict>,
}

/// Which of False and Unknown outweighs the other.
#[derive(Clone, Copy)]
enum Precedence {
    FalseFirst,
    UnknownFirst,
}

/// RollingUpdate: about the latest snapshot. A cluster whose turn has not come counts as False for
/// RolloutStarted, whatever it reports about its older one, and for nothing after it. False outweighs
/// Unknown: a cluster that is silent never hides one that fails. At least one cluster is needed.
pub fn rolling<'a>(view: &AggregateView<'a>, clusters: &[Cluster<'a>]) -> Rollup<'a> {
    let status = |cluster: &Cluster<'a>, stage| match (stage, cluster.target) {
        (Stage::RolloutStarted, Target::Waiting) => Some(Status::False),
        (Stage::RolloutStarted, Target::Unknown) => Some(Status::Unknown),
        _ => cluster.status(stage),
    };
    Rollup {
        index: view.latest.map(|latest| latest.index),
        snapshot: view.latest.map(|latest| latest.name),
        verdicts: chain(view, clusters, Precedence::FalseFirst, status),
    }
}

/// External: about the index that all clusters observe; if there is none, nothing is known for the
/// placement as a whole. Unknown outweighs False. At least one cluster is needed.
pub fn external<'a>(view: &AggregateView<'a>, clusters: &[Cluster<'a>]) -> Rollup<'a> {
    let Some((index, snapshot)) = common(clusters) else {
        return Rollup {
            index: None,
            snapshot: None,
            verdicts: unset(view, clusters),
        };
    };
    let mut verdicts = chain(view, clusters, Precedence::UnknownFirst, Cluster::status);
    if let Some(first) = verdicts.first_mut()
        && first.status == Status::Unknown
    {
        first.reason = Reason::RolloutControlledByExternalController;
    }
    Rollup {
        index: Some(index),
        snapshot: Some(snapshot),
        verdicts,
    }
}

/// The index, and the snapshot, that all clusters have.
fn common<'a>(clusters: &[Cluster<'a>]) -> Option<(&'a str, &'a str)> {
    let first = clusters.first()?;
    let pair = (first.index?, first.snapshot?);
    clusters
        .iter()
        .all(|cluster| cluster.index == first.index)
        .then_some(pair)
}

/// One verdict per type, up to the first that is not True.
fn chain<'a>(
    view: &AggregateView<'_>,
    clusters: &[Cluster<'a>],
    precedence: Precedence,
    status: impl Fn(&Cluster<'a>, Stage) -> Option<Status>,
) -> Vec<Verdict> {
    let mut verdicts = Vec::with_capacity(view.mode.chain().len());
    for stage in view.mode.chain() {
        let with = |wanted| -> Vec<&str> {
            clusters
                .iter()
                .filter(|cluster| status(cluster, *stage) == Some(wanted))
                .map(|cluster| cluster.name)
                .collect()
        };
        let order = match precedence {
            Precedence::FalseFirst => [Status::False, Status::Unknown],
            Precedence::UnknownFirst => [Status::Unknown, Status::False],
        };
        let stopped = order
            .into_iter()
            .map(|status| (status, with(status)))
            .find(|(_, names)| !names.is_empty());
        match stopped {
            Some((status, names)) => {
                verdicts.push(Verdict {
                    stage: *stage,
                    status,
                    reason: words::reason(*stage, status),
                    message: words::message(*stage, status, &words::clusters(&names)),
                });
                return verdicts;
            }
            None => verdicts.push(holds(*stage, clusters)),
        }
    }
    verdicts
}

fn holds(stage: Stage, clusters: &[Cluster<'_>]) -> Verdict {
    let count = words::count(clusters.len());
    let plain = stage == Stage::Overridden && !clusters.iter().any(Cluster::is_overridden);
    let (reason, message) = if plain {
        (
            Reason::NoOverrideSpecified,
            format!("No overrides are in effect for any of {count}"),
        )
    } else {
        (
            words::reason(stage, Status::True),
            words::message(stage, Status::True, &count),
        )
    };
    Verdict {
        stage,
        status: Status::True,
        reason,
        message,
    }
}

/// The conditions when clusters observe different indexes, or none.
fn unset(view: &AggregateView<'_>, clusters: &[Cluster<'_>]) -> Vec<Verdict> {
    let stages = match view.external_unset {
        ExternalUnset::Unknown => view.mode.chain(),
        ExternalUnset::Omit => &view.mode.chain()[..1],
    };
    let unknown = |stage: &Stage| match stage {
        Stage::RolloutStarted => Verdict {
            stage: *stage,
            status: Status::Unknown,
            reason: Reason::RolloutControlledByExternalController,
            message: disagreement(view, clusters),
        },
        _ => Verdict {
            stage: *stage,
            status: Status::Unknown,
            reason: words::reason(*stage, Status::Unknown),
            message:
                "Not known for the placement as a whole while its clusters do not all observe \
                      the same resource index; see the entry of each cluster"
                    .to_owned(),
        },
    };
    stages.iter().map(unknown).collect()
}

/// Names each index with how many clusters observe it, the most common first.
fn disagreement(view: &AggregateView<'_>, clusters: &[Cluster<'_>]) -> String {
    /// Indexes named before the rest is only counted; a fleet may be on very many.
    const NAMED: usize = 10;
    let mut groups: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for cluster in clusters {
        *groups.entry(cluster.index).or_default() += 1;
    }
    let who = mover(view);
    if groups.keys().all(Option::is_none) {
        return format!(
            "None of {} observes a resource index yet; {who}",
            words::count(clusters.len())
        );
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    // Stable, and 2 comes before 10: with equal counts the shorter index first.
    groups.sort_by_key(|(index, count)| {
        (
            index.is_none(),
            std::cmp::Reverse(*count),
            index.map(str::len),
        )
    });
    let more = groups.len().saturating_sub(NAMED);
    let mut parts: Vec<String> = groups
        .into_iter()
        .take(NAMED)
        .map(|(index, count)| match index {
            Some(index) => format!("index {index} on {}", words::count(count)),
            None => format!("none on {}", words::count(count)),
        })
        .collect();
    if more > 0 {
        parts.push(format!("{more} more"));
    }
    format!(
        "Clusters observe different resource indexes: {}; {who}",
        parts.join(", ")
    )
}

/// Who rolls out, or would.
fn mover(view: &AggregateView<'_>) -> String {
    let kind = match view.scope {
        Scope::Cluster => "ClusterStagedUpdateRun",
        Scope::Namespaced => "StagedUpdateRun",
    };
    match view.run {
        Some(run) => format!("{kind} {run} rolls out"),
        None => format!(
            "the rollout is controlled by an external controller, and none is under way: a {kind} with state Run \
             moves them"
        ),
    }
}
