//! What a placement would do, before anybody applies it.
//!
//! [`read`] reads the hub as it is, with a client that only reads; [`preview`] asks the function that the
//! hub itself asks ([`crate::placement::plan`]), and plays its answers out to the end ([`simulate`]). So the
//! two can't differ but by what happens meanwhile.

mod deleting;
mod live;
pub mod simulate;
#[cfg(test)]
mod tests;
mod variants;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::select::rules::ApiFilter;
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::Value;
use windlass_aggregator::{ExternalUnset, Scheduling};
use windlass_api::Condition;
use windlass_api::binding::BindingState;
use windlass_api::member::MemberCluster;
use windlass_api::placement::{ResourceIdentifier, RolloutStrategyType};
use windlass_api::scoped::{Binding, Placement, PolicySnapshot};
use windlass_api::snapshot::ClusterDecision;
use windlass_scheduler::Schedule;
use windlass_status::defaults::rollout_type;

pub use self::deleting::{Deleting, Leaving, Outcome};
pub use self::live::{Wish, read};
pub use self::simulate::{Change, End, Kind, Rollout};
use crate::contents::identifier;
use crate::overrides::resolve::Resolved;
use crate::placement::packing::NOWHERE;
use crate::placement::plan::{self, PlacementView};
use crate::placement::report::{standing, verdict};
use crate::placement::snapshots::Groups;
use crate::render::Refusal;
use crate::select::{SelectError, Selection};

/// The hub as it was read, with the wish in the place of what is there.
pub struct Live {
    /// The placement as it would be.
    pub placement: Placement,
    /// Whether there is a placement of that name already.
    pub exists: bool,
    /// What it selects, or why nothing can be said of that.
    pub selection: Result<Selection, SelectError>,
    /// Its resource snapshots.
    pub groups: Groups,
    /// Its policy snapshots.
    pub policies: Vec<Arc<PolicySnapshot>>,
    /// Its bindings.
    pub bindings: Vec<Arc<Binding>>,
    /// Every member cluster.
    pub clusters: Vec<Arc<MemberCluster>>,
    /// Clusters that have stopped reporting.
    pub unreachable: BTreeSet<String>,
    /// What overrides do to what is selected.
    pub overrides: Resolved,
    /// Overrides of which the hub is yet to make the snapshot that is counted with.
    pub pending: Vec<String>,
    /// What may be placed, as the hub has been told.
    pub filter: ApiFilter,
}

/// What would become of a placement.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// Kind of the placement.
    pub kind: String,
    /// Its namespace, if it lives in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Whether it exists already.
    pub exists: bool,
    /// What its deletion means, if it is being deleted. Then nothing else is decided of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleting: Option<Deleting>,
    /// Its condition Scheduled, word for word; none when it is being deleted.
    pub scheduled: Option<Condition>,
    /// What would be decided; none when the condition says why nothing can be, or when it is being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
}

/// What the hub would decide.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    /// The version of the resources that would be the latest.
    pub snapshot: Version,
    /// What is selected, in the order in which it is applied.
    pub resources: Vec<ResourceIdentifier>,
    /// Every cluster of the fleet, by what becomes of it and by name.
    pub clusters: Vec<Cluster>,
    /// What each cluster that has the placement in the end gets; clusters that get the same stand together.
    pub variants: Vec<Variant>,
    /// Overrides whose present version has no snapshot yet. It is counted with; clusters that it changes wait until the hub
    /// has made it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
    /// Which clusters change, and in which order.
    pub rollout: Rollout,
}

/// What some clusters get.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Variant {
    /// The clusters.
    pub clusters: Vec<String>,
    /// The objects, in the order in which they are applied.
    pub resources: Vec<Resource>,
    /// Objects that overrides leave out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<ResourceIdentifier>,
    /// The objects in full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifests: Option<Vec<Value>>,
    /// Why these clusters get nothing new; they keep what they have.
    #[serde(flatten)]
    pub fault: Option<Fault>,
}

/// Why clusters get nothing new.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// What is wrong.
    pub error: String,
    /// Where it is wrong.
    pub error_in: Blame,
}

/// Where a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Blame {
    /// The overrides can't be worked in.
    Overrides,
    /// The resources can't be placed, whatever overrides do.
    Resources,
}

impl Fault {
    fn of(refusal: Refusal) -> Self {
        let (error, error_in) = match refusal {
            Refusal::Override(why) => (why, Blame::Overrides),
            Refusal::Content(why) => (why, Blame::Resources),
        };
        Self { error, error_in }
    }

    /// As delivery has it.
    fn refusal(&self) -> Refusal {
        match self.error_in {
            Blame::Overrides => Refusal::Override(self.error.clone()),
            Blame::Resources => Refusal::Content(self.error.clone()),
        }
    }
}

/// An object that a cluster gets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resource {
    /// Which.
    #[serde(flatten)]
    pub id: ResourceIdentifier,
    /// Whether overrides change it.
    pub changed: bool,
}

impl Decided {
    /// Takes the manifests away, for whoever wants it short.
    pub fn leave_out_manifests(&mut self) {
        for variant in &mut self.variants {
            variant.manifests = None;
        }
    }
}

/// A version of the resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// Name of the snapshot.
    pub name: String,
    /// Its index.
    pub index: u64,
    /// Whether it would be made: the content differs from that of the latest.
    pub new: bool,
}

/// What becomes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// What becomes of it.
    pub fate: Fate,
    /// Sum over the preferred terms; none where nothing was scored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity_score: Option<i32>,
    /// What it does for the topology spread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_spread_score: Option<i32>,
    /// Why, in the words of the placement's status.
    pub reason: String,
}

/// What becomes of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Fate {
    /// The placement goes there anew.
    Picked,
    /// It has the placement, and keeps it.
    Kept,
    /// It has the placement, and loses it.
    Dropped,
    /// It does not have the placement, nor gets it.
    Unpicked,
}

/// Says what would become of the placement.
#[must_use]
pub fn preview(live: &Live, now: Timestamp) -> Preview {
    let deleting = deleting::of(live, now);
    let (condition, decided) = match &live.selection {
        _ if deleting.is_some() => (None, None),
        Ok(selection) => decide(live, selection, now),
        Err(SelectError::User(message)) => {
            let condition = scheduled(live, Scheduling::InvalidSelectors(message), now);
            (condition, None)
        }
        Err(
            SelectError::Pending(message)
            | SelectError::Unwritten(message)
            | SelectError::Api { message, .. },
        ) => (scheduled(live, Scheduling::Undecided(message), now), None),
    };
    Preview {
        kind: live.placement.kind_text().to_owned(),
        namespace: live.placement.namespace(),
        name: live.placement.name_any(),
        exists: live.exists,
        deleting,
        scheduled: condition,
        decided,
    }
}

fn decide(
    live: &Live,
    selection: &Selection,
    now: Timestamp,
) -> (Option<Condition>, Option<Decided>) {
    let plan = plan::plan(&live.view(selection), now);
    let (_, reason) = verdict(&plan.schedule);
    let mut said = vec![plan.schedule.message.clone()];
    said.extend(selection.idle.iter().cloned());
    said.extend(plan.schedule.trouble.iter().cloned());
    let scheduling = Scheduling::Decided {
        fulfilled: plan.schedule.fulfilled,
        reason: reason.as_str(),
        message: &said.join("; "),
    };
    let condition = scheduled(live, scheduling, now);
    let new = plan.snapshots.is_some_and(|plan| !plan.create.is_empty());
    let variants = variants::of(live, &plan.schedule, &plan.latest, selection);
    let broken = variants.iter().flat_map(|variant| {
        let refusal = variant.fault.iter().map(Fault::refusal);
        refusal.flat_map(|refusal| {
            let clusters = variant.clusters.iter().cloned();
            clusters.map(move |cluster| (cluster, refusal.clone()))
        })
    });
    let broken = broken.collect();
    let manifests = selection.manifests.iter();
    let decided = Decided {
        snapshot: Version {
            name: plan.latest.name,
            index: plan.latest.index,
            new,
        },
        resources: manifests.map(|manifest| identifier(manifest)).collect(),
        clusters: clusters(&plan.schedule, &live.bindings),
        variants,
        pending: live.pending.clone(),
        rollout: simulate::rollout(live, selection, &broken, now),
    };
    (condition, Some(decided))
}

/// What is shown deletes no snapshot, so none has to be kept.
static NONE: BTreeSet<String> = BTreeSet::new();

impl Live {
    /// What decides.
    #[must_use]
    pub fn view<'a>(&'a self, selection: &'a Selection) -> PlacementView<'a> {
        PlacementView {
            places: &NOWHERE,
            placement: &self.placement,
            manifests: &selection.manifests,
            hash: selection.hash,
            snapshot_waits: false,
            groups: &self.groups,
            pinned: &NONE,
            policies: &self.policies,
            bindings: &self.bindings,
            clusters: &self.clusters,
            heard: &|_| None,
            unreachable: &self.unreachable,
            overrides: &self.overrides,
        }
    }

    /// Whether rolling out is left to others.
    #[must_use]
    pub fn is_external(&self) -> bool {
        rollout_type(self.placement.spec.strategy.as_ref()) == RolloutStrategyType::External
    }
}

/// The condition as the status would have it.
fn scheduled(live: &Live, scheduling: Scheduling<'_>, now: Timestamp) -> Option<Condition> {
    let status = standing(&live.placement, scheduling, ExternalUnset::Unknown, now);
    status.conditions.into_iter().flatten().next()
}

fn clusters(schedule: &Schedule, bindings: &[Arc<Binding>]) -> Vec<Cluster> {
    let held: BTreeSet<&str> = bindings
        .iter()
        .filter(|binding| binding.metadata.deletion_timestamp.is_none())
        .filter(|binding| binding.spec.state != BindingState::Unscheduled)
        .map(|binding| binding.spec.target_cluster.as_str())
        .collect();
    let mut known: BTreeMap<&str, Cluster> = BTreeMap::new();
    let decisions = schedule.selected.iter().chain(&schedule.unselected);
    for decision in decisions {
        let name = decision.cluster_name.as_str();
        let fate = match (decision.selected, held.contains(name)) {
            (true, true) => Fate::Kept,
            (true, false) => Fate::Picked,
            (false, true) => Fate::Dropped,
            (false, false) => Fate::Unpicked,
        };
        known
            .entry(name)
            .or_insert_with(|| of_decision(decision, fate));
    }
    for name in held {
        known.entry(name).or_insert_with(|| Cluster {
            name: name.to_owned(),
            fate: Fate::Dropped,
            affinity_score: None,
            topology_spread_score: None,
            reason: "the policy does not name it any more, or it has left the fleet".to_owned(),
        });
    }
    let mut all: Vec<Cluster> = known.into_values().collect();
    all.sort_by_key(|cluster| cluster.fate);
    all
}

fn of_decision(decision: &ClusterDecision, fate: Fate) -> Cluster {
    Cluster {
        name: decision.cluster_name.clone(),
        fate,
        affinity_score: decision
            .cluster_score
            .and_then(|score| score.affinity_score),
        topology_spread_score: decision
            .cluster_score
            .and_then(|score| score.topology_spread_score),
        reason: decision.reason.clone(),
    }
}
