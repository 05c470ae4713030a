//! Whether what may become of a run fits into one object.
//!
//! etcd refuses objects over 1.5 MiB. A run that would grow beyond that in mid-way could record nothing more,
//! so it is not begun with.

use std::collections::BTreeMap;

use windlass_api::binding::BindingSpec;
use windlass_api::placement::{ApplyStrategy, NamespacedName};
use windlass_api::run::{ClusterStatus, FailureThreshold, OnExceeded, UpdateRunStatus};
use windlass_api::scoped::UpdateRun;

use super::view::version_of;

/// What all entries of clusters together may take, in bytes; the rest of the 1.5 MiB is for messages, for
/// clusters that join, and for what there is once.
const ENTRIES: usize = 1_270_000;
/// What messages about single clusters may take together, in bytes.
const MESSAGES: usize = 130_000;
/// What an entry takes besides names: two conditions, one of them with a fixed message, in bytes.
const ENTRY: usize = 430;
/// What an apply strategy takes in which everything is spelled out, in bytes.
const APPLY: usize = 220;

/// How long a message about one of so many clusters may be, in bytes of JSON.
pub fn message_of(total: usize) -> usize {
    (MESSAGES / total.max(1)).clamp(32, 256)
}

/// Whether a run's status will have room for whatever may become of its clusters. `has` is what the cluster of
/// that name asks for now.
pub fn is_enough(
    run: &UpdateRun,
    status: &UpdateRunStatus,
    has: &BTreeMap<&str, &BindingSpec>,
) -> bool {
    let apply = status.applied_strategy.clone().unwrap_or_default();
    let may_return = may_return(run, status);
    let stages = status.stages_status.iter().flatten();
    let clusters = stages.flat_map(|stage| &stage.clusters);
    let moved = clusters.map(|cluster| {
        let has = has.get(cluster.cluster_name.as_str()).copied();
        entry(cluster) + before(cluster, has, &apply, may_return)
    });
    let removed = status.deletion_stage_status.iter();
    let removed = removed.flat_map(|stage| &stage.clusters).map(entry);
    moved.chain(removed).sum::<usize>() <= ENTRIES
}

/// Whether clusters may go back to what they had.
fn may_return(run: &UpdateRun, status: &UpdateRunStatus) -> bool {
    let strategy = status.strategy_snapshot.iter();
    let stages = strategy.flat_map(|strategy| &strategy.stages);
    let mut thresholds = stages
        .filter_map(|stage| stage.failure_threshold.as_ref())
        .chain(&run.spec.failure_threshold);
    thresholds
        .any(|threshold: &FailureThreshold| threshold.on_exceeded == Some(OnExceeded::Rollback))
}

/// The entry of a cluster in its stage.
fn entry(cluster: &ClusterStatus) -> usize {
    let overrides = overrides(
        cluster.cluster_resource_override_snapshots.as_deref(),
        cluster.resource_override_snapshots.as_deref(),
    );
    ENTRY + cluster.cluster_name.len() + overrides
}

/// What is noted of what a cluster had, and its entry on the way back.
fn before(
    cluster: &ClusterStatus,
    has: Option<&BindingSpec>,
    apply: &ApplyStrategy,
    may_return: bool,
) -> usize {
    let version = has.map(|has| version_of(has, apply)).unwrap_or_default();
    let overrides = overrides(
        version.cluster_resource_override_snapshots.as_deref(),
        version.resource_override_snapshots.as_deref(),
    );
    let back = if may_return {
        ENTRY + cluster.cluster_name.len() + overrides
    } else {
        0
    };
    let snapshot = version.resource_snapshot_name.map_or(0, |name| name.len());
    let apply = version.apply_strategy.map_or(0, |_| APPLY);
    50 + snapshot + apply + overrides + back
}

fn overrides(cluster: Option<&[String]>, namespaced: Option<&[NamespacedName]>) -> usize {
    let cluster = cluster.map_or(0, |names| {
        names.iter().map(|name| name.len() + 3).sum::<usize>() + 40
    });
    let namespaced = namespaced.map_or(0, |names| {
        let one = |name: &NamespacedName| name.name.len() + name.namespace.len() + 30;
        names.iter().map(one).sum::<usize>() + 40
    });
    cluster + namespaced
}
