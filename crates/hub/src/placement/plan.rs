//! The decision about one placement: from everything that is known of it to everything that is to be
//! written, but for its status. Pure; the actor carries it out, the preview shows it.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use windlass_api::member::MemberCluster;
use windlass_api::scoped::{Binding, Placement, PolicySnapshot};
use windlass_cluster::ObjectKey;
use windlass_member::manifest::Manifest;
use windlass_scheduler::{ClusterView, ExistingBinding, Schedule, SchedulingView, schedule};
use windlass_status::digest::Digest;

use super::bindings::{self, BindingInputs, BindingPlan};
use super::packing::Places;
use super::policy::{self, PolicyInputs, PolicyPlan};
use super::snapshots::{self, Groups, LatestSnapshot, SnapshotInputs, SnapshotPlan};
use crate::overrides::resolve::Resolved;

/// Snapshots kept when the placement does not say.
const DEFAULT_HISTORY: i32 = 10;

/// A placement at one moment.
#[derive(Clone, Copy)]
pub struct PlacementView<'a> {
    /// The placement.
    pub placement: &'a Placement,
    /// What it selects, in order.
    pub manifests: &'a [Arc<Manifest>],
    /// Hash of what it selects.
    pub hash: Digest,
    /// Where it is in the latest snapshot, if that could matter ([`super::packing::needs_places`]).
    pub places: &'a Places,
    /// A snapshot was made a moment ago: the next one waits, and until then the old one is the latest.
    pub snapshot_waits: bool,
    /// Its resource snapshots.
    pub groups: &'a Groups,
    /// Names of the snapshots that update runs need.
    pub pinned: &'a BTreeSet<String>,
    /// Its policy snapshots.
    pub policies: &'a [Arc<PolicySnapshot>],
    /// Its bindings.
    pub bindings: &'a [Arc<Binding>],
    /// Every member cluster of the hub.
    pub clusters: &'a [Arc<MemberCluster>],
    /// When a cluster was last heard of, if that is known to be later than its status says.
    pub heard: &'a dyn Fn(&str) -> Option<Timestamp>,
    /// Clusters that have stopped reporting.
    pub unreachable: &'a BTreeSet<String>,
    /// What overrides do to what the latest snapshot holds.
    pub overrides: &'a Resolved,
}

/// What is to be written, in this order.
#[derive(Debug)]
pub struct PlacementPlan {
    /// Resource snapshots; none while a new one has to wait.
    pub snapshots: Option<SnapshotPlan>,
    /// The resource snapshot that is the latest once they are written.
    pub latest: LatestSnapshot,
    /// Policy snapshots.
    pub policy: PolicyPlan,
    /// Where the placement goes, and why not elsewhere.
    pub schedule: Schedule,
    /// Bindings.
    pub bindings: BindingPlan,
}

/// Decides.
#[must_use]
pub fn plan(view: &PlacementView<'_>, now: Timestamp) -> PlacementPlan {
    let key = ObjectKey::of(view.placement);
    let uid = view.placement.uid().unwrap_or_default();
    let spec = &view.placement.spec;
    let history = spec.revision_history_limit.unwrap_or(DEFAULT_HISTORY);
    let history_limit = usize::try_from(history).unwrap_or(1);
    let (snapshots, latest) = content(view, &key, &uid, history_limit);
    let policy = policy::plan(&PolicyInputs {
        placement: &key,
        placement_uid: &uid,
        generation: view.placement.metadata.generation.unwrap_or_default(),
        policy: spec.policy.as_ref(),
        snapshots: view.policies,
        history_limit,
    });
    let schedule = schedule_on(view, &policy.latest, now);
    let members = bindings::staying(view.clusters);
    let bindings = bindings::plan(
        &BindingInputs {
            placement: &key,
            policy: spec.policy.as_ref(),
            strategy: spec.strategy.as_ref(),
            selected: &schedule.selected,
            members: &members,
            unreachable: view.unreachable,
            policy_snapshot: &policy.latest,
            latest: &latest,
            groups: view.groups,
            existing: view.bindings,
            overrides: view.overrides,
        },
        now,
    );
    PlacementPlan {
        snapshots,
        latest,
        policy,
        schedule,
        bindings,
    }
}

/// The snapshots, unless a new one has to wait.
fn content(
    view: &PlacementView<'_>,
    key: &ObjectKey,
    uid: &str,
    history_limit: usize,
) -> (Option<SnapshotPlan>, LatestSnapshot) {
    let in_use: BTreeSet<String> = view
        .bindings
        .iter()
        .map(|binding| binding.spec.resource_snapshot_name.clone())
        .chain(view.pinned.iter().cloned())
        .collect();
    let plan = snapshots::plan(&SnapshotInputs {
        placement: key,
        placement_uid: uid,
        groups: view.groups,
        manifests: view.manifests,
        hash: view.hash,
        places: view.places,
        history_limit,
        in_use: &in_use,
    });
    if view.snapshot_waits
        && !plan.create.is_empty()
        && let Some(latest) = view.groups.newest()
    {
        return (None, latest);
    }
    let latest = plan.latest.clone();
    (Some(plan), latest)
}

fn schedule_on(view: &PlacementView<'_>, policy_snapshot: &str, now: Timestamp) -> Schedule {
    let clusters: Vec<ClusterView<'_>> = view
        .clusters
        .iter()
        .map(|cluster| {
            let mut cluster = ClusterView::of(cluster);
            let heard = (view.heard)(cluster.name);
            cluster.membership.last_heartbeat = cluster.membership.last_heartbeat.max(heard);
            cluster
        })
        .collect();
    let existing: Vec<ExistingBinding<'_>> = view
        .bindings
        .iter()
        .map(|binding| ExistingBinding {
            cluster: &binding.spec.target_cluster,
            state: binding.spec.state.clone(),
            deleting: binding.metadata.deletion_timestamp.is_some(),
            current_policy: binding.spec.scheduling_policy_snapshot_name == policy_snapshot,
            score: binding.spec.cluster_decision.cluster_score,
        })
        .collect();
    let view = SchedulingView {
        policy: view.placement.spec.policy.as_ref(),
        namespace: view.placement.metadata.namespace.as_deref(),
        clusters: &clusters,
        existing: &existing,
    };
    schedule(&view, now)
}
