//! The status of a placement: rolled up from its bindings, written when it changed and no faster than
//! the budget allows (design §5.3).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use windlass_aggregator::{
    Aggregate, AggregateView, BindingView, Budget, ExternalUnset, Mode, Scheduling, SnapshotView,
    aggregate, bindings_by_cluster,
};
use windlass_api::placement::ResourceIdentifier;
use windlass_api::scoped::{Binding, Placement, Scope};
use windlass_api::snapshot::ClusterDecision;
use windlass_status::defaults::rollout_type;

use super::bindings::Digests;
use super::snapshots::{Groups, LatestSnapshot};
use crate::overrides::resolve::Resolved;

/// Bytes of status per second and placement.
const RATE: u64 = 256 * 1024;
/// Longest time for which a status is held back.
const LONGEST: Duration = Duration::from_secs(10);

/// What [`roll_up`] needs.
pub struct StatusInputs<'a> {
    /// The placement.
    pub placement: &'a Placement,
    /// What scheduling came to.
    pub scheduling: Scheduling<'a>,
    /// While that is not done: the generation that what is in force was decided for, if anything is.
    pub in_force: Option<i64>,
    /// Its decisions, selected and not.
    pub decisions: &'a [ClusterDecision],
    /// Name of the latest policy snapshot; none: the bindings of every one count.
    pub policy_snapshot: Option<&'a str>,
    /// Bindings as they are now.
    pub bindings: &'a [Arc<Binding>],
    /// Names of the bindings that are held back.
    pub held: &'a BTreeSet<String>,
    /// Clusters that have stopped answering.
    pub unreachable: &'a BTreeSet<String>,
    /// Snapshot groups.
    pub groups: &'a Groups,
    /// The latest snapshot.
    pub latest: &'a LatestSnapshot,
    /// What overrides do on the clusters.
    pub overrides: &'a Resolved,
    /// What is in the latest snapshot.
    pub resources: &'a [ResourceIdentifier],
    /// What is in other snapshots that all clusters may share.
    pub others: &'a HashMap<String, Vec<ResourceIdentifier>>,
    /// What External shows while clusters disagree.
    pub external_unset: ExternalUnset,
    /// Name of the update run that rolls out at present, if one does.
    pub run: Option<&'a str>,
}

/// Rolls the bindings up.
#[must_use]
pub fn roll_up(inputs: &StatusInputs<'_>, now: Timestamp) -> Aggregate {
    let spec = &inputs.placement.spec;
    let indexes: Vec<Option<String>> = inputs
        .bindings
        .iter()
        .map(|binding| index_of(inputs, &binding.spec.resource_snapshot_name))
        .collect();
    let mut digests = Digests::default();
    let views = inputs
        .bindings
        .iter()
        .zip(&indexes)
        .map(|(binding, index)| BindingView {
            binding,
            desired_digest: digests.of(binding, inputs.groups, inputs.latest, inputs.overrides),
            snapshot_index: index.as_deref(),
            current_policy: inputs
                .policy_snapshot
                .is_none_or(|latest| binding.spec.scheduling_policy_snapshot_name == latest),
            held_back: inputs.held.contains(&binding.name_any()),
            unreachable: inputs.unreachable.contains(&binding.spec.target_cluster),
        });
    let bindings: BTreeMap<&str, BindingView<'_>> = bindings_by_cluster(views);
    let index = inputs.latest.index.to_string();
    let latest = SnapshotView {
        name: &inputs.latest.name,
        index: &index,
        resources: inputs.resources,
    };
    let resources_of = |name: &str| -> Option<&[ResourceIdentifier]> {
        if name == inputs.latest.name {
            return Some(inputs.resources);
        }
        inputs.others.get(name).map(Vec::as_slice)
    };
    let view = AggregateView {
        scope: Scope::of(inputs.placement),
        generation: inputs.placement.metadata.generation.unwrap_or_default(),
        strategy: rollout_type(spec.strategy.as_ref()),
        mode: mode(inputs),
        policy: spec.policy.as_ref(),
        previous: inputs.placement.status.as_ref(),
        scheduling: inputs.scheduling,
        in_force: inputs.in_force,
        decisions: inputs.decisions,
        bindings: &bindings,
        latest: (!inputs.latest.name.is_empty()).then_some(latest),
        resources_of: &resources_of,
        external_unset: inputs.external_unset,
        run: inputs.run,
        budget: Budget {
            rest: size_of_rest(inputs.placement),
            ..Budget::default()
        },
    };
    aggregate(&view, now)
}

/// A new generation that nothing was decided for yet says nothing of what the bindings do.
fn mode(inputs: &StatusInputs<'_>) -> Mode {
    let wanted = inputs.placement.spec.strategy.as_ref();
    let wanted = wanted.and_then(|strategy| strategy.apply_strategy.as_ref());
    let generation = inputs.placement.metadata.generation;
    if inputs.in_force.is_none() || inputs.in_force == generation {
        return Mode::of(wanted);
    }
    let bound = inputs
        .bindings
        .iter()
        .find_map(|b| b.spec.apply_strategy.as_ref());
    Mode::of(bound.or(wanted))
}

fn index_of(inputs: &StatusInputs<'_>, snapshot: &str) -> Option<String> {
    if snapshot == inputs.latest.name && !snapshot.is_empty() {
        return Some(inputs.latest.index.to_string());
    }
    inputs
        .groups
        .by_name(snapshot)
        .map(|(index, _)| index.to_string())
}

/// Size of the object without its status, in bytes of JSON.
fn size_of_rest(placement: &Placement) -> usize {
    let spec = serde_json::to_vec(&placement.spec).map_or(0, |text| text.len());
    let metadata = serde_json::to_vec(&placement.metadata).map_or(0, |text| text.len());
    spec + metadata
}

/// How long after a status of that size the next one may be written.
#[must_use]
pub fn pause_after(size: usize) -> Duration {
    Duration::from_micros(size as u64 * 1_000_000 / RATE).min(LONGEST)
}
