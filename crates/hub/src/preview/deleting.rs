//! What becomes of a placement that is being deleted: nothing is decided of it any more but its end.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde::Serialize;
use windlass_api::binding::BindingState;
use windlass_api::member::MemberCluster;
use windlass_api::placement::DeletePropagationPolicy;
use windlass_api::scoped::Binding;
use windlass_api::{Condition, Time, labels};
use windlass_member::RemovalMode;

use super::Live;
use crate::placement::deletion::{trouble, waiting};
use crate::removal;

/// The end of a placement.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deleting {
    /// When its deletion was asked for.
    pub since: Time,
    /// Whether what was placed is removed or left, as the placement says now. Of its spec, nothing else
    /// counts any more.
    pub delete_strategy: DeletePropagationPolicy,
    /// Its condition Deleting; none when it waits for no cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// The clusters of which it is not done with, by name.
    pub clusters: Vec<Leaving>,
    /// Finalizers of others. The hub is done without them, and the placement stays until they are off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
}

/// What the end of a placement means to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Leaving {
    /// The cluster.
    pub name: String,
    /// What becomes of what was placed there.
    pub outcome: Outcome,
    /// What it waits for.
    pub waits_for: String,
}

/// What becomes of what was placed on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It goes; what was taken over stays.
    Removed,
    /// It stays, and is nobody's.
    Left,
    /// There was nothing, or the cluster is not in the fleet.
    Nothing,
}

/// What the deletion of the placement means; none when it is not being deleted.
pub(super) fn of(live: &Live, now: jiff::Timestamp) -> Option<Deleting> {
    let placement = &live.placement;
    let since = placement.metadata.deletion_timestamp.clone()?;
    let conditions = placement
        .status
        .as_ref()
        .and_then(|s| s.conditions.as_ref());
    let known = conditions.map(Vec::as_slice).unwrap_or_default();
    let condition =
        (!live.bindings.is_empty()).then(|| waiting(placement, &live.bindings).build(known, now));
    let members: BTreeMap<&str, &MemberCluster> = live
        .clusters
        .iter()
        .filter_map(|member| Some((member.metadata.name.as_deref()?, &**member)))
        .collect();
    let bindings = live.bindings.iter();
    let mut clusters: Vec<Leaving> = bindings
        .map(|binding| leaving(live, &members, binding))
        .collect();
    clusters.sort();
    let ours = [labels::PLACEMENT_FINALIZER, labels::SCHEDULER_FINALIZER];
    let foreign = placement.finalizers().iter();
    let foreign = foreign.filter(|finalizer| !ours.contains(&finalizer.as_str()));
    Some(Deleting {
        since,
        delete_strategy: if removal::wants_abandon(placement.spec.strategy.as_ref()) {
            DeletePropagationPolicy::Abandon
        } else {
            DeletePropagationPolicy::Delete
        },
        condition,
        clusters,
        finalizers: foreign.cloned().collect(),
    })
}

fn leaving(live: &Live, members: &BTreeMap<&str, &MemberCluster>, binding: &Binding) -> Leaving {
    let cluster = &binding.spec.target_cluster;
    let member = members.get(cluster.as_str()).copied();
    let outcome = match member {
        _ if never_held(binding) => Outcome::Nothing,
        None => Outcome::Nothing,
        Some(member) => match removal::mode(member, Some(&live.placement), binding) {
            RemovalMode::Placement | RemovalMode::Purge => Outcome::Removed,
            RemovalMode::Abandon | RemovalMode::Leave => Outcome::Left,
        },
    };
    let begun = binding.metadata.deletion_timestamp.is_some();
    let waits_for = match trouble(binding).filter(|_| begun) {
        Some(trouble) => trouble.to_owned(),
        None if member.is_some() && live.unreachable.contains(cluster) => {
            format!("waiting for cluster {cluster} to be reachable")
        }
        None if begun => "removing".to_owned(),
        None => "not begun yet".to_owned(),
    };
    Leaving {
        name: cluster.clone(),
        outcome,
        waits_for,
    }
}

/// Whether nothing was ever delivered because of the binding.
fn never_held(binding: &Binding) -> bool {
    binding.spec.resource_snapshot_name.is_empty() || binding.spec.state == BindingState::Scheduled
}
