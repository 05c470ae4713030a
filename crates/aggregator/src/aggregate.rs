//! Puts a placement's status together (reference: hub §2.2).

use std::collections::BTreeMap;

use jiff::Timestamp;
use windlass_api::Condition;
use windlass_api::conditions::{Reason, Stage, Status, placement_scheduled};
use windlass_api::placement::{
    PerClusterPlacementStatus, PlacementStatus, ResourceIdentifier, RolloutStrategyType,
};
use windlass_api::scoped::Scope;
use windlass_api::snapshot::ClusterDecision;
use windlass_status::{NewCondition, conditions};

use crate::budget::{self, Class, Ranked};
use crate::cluster::{self, Cluster, Target};
use crate::rollup::{self, Rollup};
use crate::view::{AggregateView, Scheduling, unfilled_slots};

/// Bytes kept free for what the Scheduled message says about things left out, and for field names.
const RESERVE: usize = 512;

/// The roll-up's outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// The status to write. A list or text without content is absent, as the API gives it back.
    pub status: PlacementStatus,
    /// Selected clusters without an entry, for size.
    pub omitted_clusters: usize,
    /// Selected resources without an entry, for size.
    pub omitted_resources: usize,
    /// Selected clusters, by how they fare.
    pub clusters: Counts,
    /// Whether every condition of the chain is True: what is wanted runs everywhere.
    pub completed: bool,
}

/// Selected clusters, by how they fare; each counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// A condition is False.
    pub failing: usize,
    /// A condition is Unknown, or (RollingUpdate) the cluster is not on the latest snapshot.
    pub changing: usize,
    /// All is well.
    pub settled: usize,
}

/// Computes the status of a placement.
///
/// | scheduling | index, resources | entries | conditions |
/// |---|---|---|---|
/// | invalid selectors, or undecided | of the roll-up | clusters by name, slots as they were | Scheduled False, or Unknown; those of the roll-up |
/// | the same, and nothing in force | as they were | as they were | Scheduled False, or Unknown; others as they were |
/// | pending | latest (External: no index) | none | Scheduled Unknown; others as they were |
/// | decided, no cluster selected | latest (External: no index) | slots | Scheduled |
/// | decided | of the roll-up | clusters by name, slots | Scheduled, and those of the roll-up |
///
/// Conditions "as they were" tell by their observedGeneration that they are about an older one. So do those of
/// what is in force while the selectors can't be acted on: only Scheduled is about the present generation.
/// Conditions of types that are not the roll-up's stay throughout.
#[must_use]
pub fn aggregate(view: &AggregateView<'_>, now: Timestamp) -> Aggregate {
    match view.scheduling {
        Scheduling::InvalidSelectors(message) => standing(view, Status::False, message, now),
        Scheduling::Undecided(message) => standing(view, Status::Unknown, message, now),
        Scheduling::Pending => {
            let kept = PlacementStatus {
                observed_resource_index: latest_index(view).map(str::to_owned),
                placement_statuses: None,
                conditions: view.previous.and_then(|old| old.conditions.clone()),
                selected_resources: None,
            };
            let message = format!(
                "Scheduling is not done for generation {} yet",
                view.generation
            );
            let mut out = unscheduled(view, kept, Status::Unknown, message, now);
            out.fill_resources(view, view.latest.map(|latest| latest.resources));
            out
        }
        Scheduling::Decided {
            fulfilled,
            reason,
            message,
        } => {
            let scheduled = NewCondition {
                type_: placement_scheduled(view.scope),
                status: if fulfilled {
                    Status::True
                } else {
                    Status::False
                },
                reason,
                message: message.to_owned(),
                observed_generation: Some(view.generation),
            };
            decided(view, scheduled, now)
        }
    }
}

/// What is in force goes on being told of, per cluster and in total.
fn standing(
    view: &AggregateView<'_>,
    scheduled: Status,
    message: &str,
    now: Timestamp,
) -> Aggregate {
    let Some(generation) = view.in_force else {
        let kept = view.previous.cloned().unwrap_or_default();
        return unscheduled(view, kept, scheduled, message.to_owned(), now);
    };
    let scheduled = not_done(view, scheduled, message.to_owned());
    let view = AggregateView {
        generation,
        ..*view
    };
    decided(&view, scheduled, now)
}

fn not_done<'a>(view: &AggregateView<'_>, status: Status, message: String) -> NewCondition<'a> {
    let reason = match status {
        Status::False => Reason::InvalidResourceSelectors,
        Status::True | Status::Unknown => Reason::SchedulePending,
    };
    NewCondition {
        type_: placement_scheduled(view.scope),
        status,
        reason: reason.as_str(),
        message,
        observed_generation: Some(view.generation),
    }
}

fn unscheduled(
    view: &AggregateView<'_>,
    mut status: PlacementStatus,
    scheduled: Status,
    message: String,
    now: Timestamp,
) -> Aggregate {
    let new = not_done(view, scheduled, message);
    conditions::set(status.conditions.get_or_insert_default(), new, now);
    order(view.scope, status.conditions.get_or_insert_default());
    Aggregate::new(status)
}

fn decided(view: &AggregateView<'_>, scheduled: NewCondition<'_>, now: Timestamp) -> Aggregate {
    let (chosen, refused) = split(view.decisions);
    let previous = Previous::of(view.previous);
    let clusters: Vec<Cluster<'_>> = chosen
        .iter()
        .map(|decision| {
            let old = previous.named.get(decision.cluster_name.as_str()).copied();
            cluster::selected(view, decision, old, now)
        })
        .collect();
    let slots = match view.scheduling {
        Scheduling::Decided { .. } => slots(view, chosen.len(), &refused, &previous, now),
        _ => previous.nameless.iter().copied().cloned().collect(),
    };

    let rollup = if clusters.is_empty() {
        Rollup {
            index: latest_index(view),
            snapshot: view.latest.map(|latest| latest.name),
            verdicts: Vec::new(),
        }
    } else {
        match view.strategy {
            RolloutStrategyType::RollingUpdate => rollup::rolling(view, &clusters),
            RolloutStrategyType::External => rollup::external(view, &clusters),
        }
    };
    let resources = resources(view, rollup.snapshot);
    let mut out = Aggregate::new(PlacementStatus {
        observed_resource_index: rollup
            .index
            .filter(|index| !index.is_empty())
            .map(str::to_owned),
        ..PlacementStatus::default()
    });
    out.completed = scheduled.status == Status::True
        && !clusters.is_empty()
        && rollup
            .verdicts
            .iter()
            .all(|verdict| verdict.status == Status::True);
    out.status.conditions = Some(stamp(view, scheduled, rollup, now));
    out.fill_resources(view, resources);
    out.fill_entries(view, clusters, slots);
    out.mention_omissions();
    out
}

/// Entries of the slots that found no cluster. The n-th of this pass continues the n-th of the last: they have
/// no other identity.
fn slots(
    view: &AggregateView<'_>,
    chosen: usize,
    refused: &[&ClusterDecision],
    previous: &Previous<'_>,
    now: Timestamp,
) -> Vec<PerClusterPlacementStatus> {
    let count = unfilled_slots(view.policy, chosen, refused.len());
    let entry = |(at, decision): (usize, &&ClusterDecision)| {
        cluster::unfilled(view, decision, previous.nameless.get(at).copied(), now)
    };
    refused.iter().take(count).enumerate().map(entry).collect()
}

/// The placement's conditions: new ones, and those of other types as they were.
fn stamp(
    view: &AggregateView<'_>,
    scheduled: NewCondition<'_>,
    rollup: Rollup<'_>,
    now: Timestamp,
) -> Vec<Condition> {
    let previous = view
        .previous
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let mut list = vec![scheduled.build(previous, now)];
    list.extend(rollup.verdicts.into_iter().map(|verdict| {
        let new = NewCondition {
            type_: verdict.stage.placement_type(view.scope),
            status: verdict.status,
            reason: verdict.reason.as_str(),
            message: verdict.message,
            observed_generation: Some(view.generation),
        };
        new.build(previous, now)
    }));
    let others = previous
        .iter()
        .filter(|old| position(view.scope, &old.type_).is_none());
    list.extend(others.cloned());
    order(view.scope, &mut list);
    list
}

/// Place of the roll-up's own condition types; none for the types of others.
fn position(scope: Scope, type_: &str) -> Option<usize> {
    if type_ == placement_scheduled(scope) {
        return Some(0);
    }
    let stages = Stage::APPLY.into_iter().chain([Stage::DiffReported]);
    stages
        .enumerate()
        .find(|(_, stage)| stage.placement_type(scope) == type_)
        .map(|(at, _)| at + 1)
}

fn order(scope: Scope, list: &mut [Condition]) {
    list.sort_by(|a, b| {
        let place = |condition: &Condition| position(scope, &condition.type_).unwrap_or(usize::MAX);
        place(a).cmp(&place(b)).then_with(|| a.type_.cmp(&b.type_))
    });
}

/// The index before any cluster is looked at; External takes it from clusters alone.
fn latest_index<'a>(view: &AggregateView<'a>) -> Option<&'a str> {
    match view.strategy {
        RolloutStrategyType::RollingUpdate => view.latest.map(|latest| latest.index),
        RolloutStrategyType::External => None,
    }
}

fn resources<'a>(
    view: &AggregateView<'a>,
    snapshot: Option<&str>,
) -> Option<&'a [ResourceIdentifier]> {
    let name = snapshot?;
    match view.latest {
        Some(latest) if latest.name == name => Some(latest.resources),
        _ => (view.resources_of)(name),
    }
}

/// Selected and other decisions, each by name of the cluster.
fn split(decisions: &[ClusterDecision]) -> (Vec<&ClusterDecision>, Vec<&ClusterDecision>) {
    let (mut chosen, mut refused): (Vec<_>, Vec<_>) =
        decisions.iter().partition(|decision| decision.selected);
    for list in [&mut chosen, &mut refused] {
        list.sort_by(|a, b| (&a.cluster_name, &a.reason).cmp(&(&b.cluster_name, &b.reason)));
    }
    chosen.dedup_by(|a, b| a.cluster_name == b.cluster_name);
    (chosen, refused)
}

/// The entries last written, to be found again.
struct Previous<'a> {
    named: BTreeMap<&'a str, &'a PerClusterPlacementStatus>,
    nameless: Vec<&'a PerClusterPlacementStatus>,
}

impl<'a> Previous<'a> {
    fn of(status: Option<&'a PlacementStatus>) -> Self {
        let mut found = Self {
            named: BTreeMap::new(),
            nameless: Vec::new(),
        };
        let entries = status.and_then(|status| status.placement_statuses.as_deref());
        for entry in entries.unwrap_or_default() {
            match entry.cluster_name.as_deref() {
                None | Some("") => found.nameless.push(entry),
                Some(name) => {
                    found.named.insert(name, entry);
                }
            }
        }
        found
    }
}

impl Aggregate {
    fn new(status: PlacementStatus) -> Self {
        Self {
            status,
            omitted_clusters: 0,
            omitted_resources: 0,
            clusters: Counts::default(),
            completed: false,
        }
    }

    /// Bytes left, with what the status holds so far.
    fn room(&self, view: &AggregateView<'_>) -> usize {
        let used = view.budget.rest + budget::size(&self.status) + RESERVE;
        view.budget.total.saturating_sub(used)
    }

    /// Selected resources get no more than half of the room, so that clusters always have some.
    fn fill_resources(&mut self, view: &AggregateView<'_>, list: Option<&[ResourceIdentifier]>) {
        let list = list.unwrap_or_default();
        let kept = &list[..budget::prefix(list, self.room(view) / 2)];
        self.omitted_resources = list.len() - kept.len();
        self.status.selected_resources = (!kept.is_empty()).then(|| kept.to_vec());
    }

    fn fill_entries(
        &mut self,
        view: &AggregateView<'_>,
        clusters: Vec<Cluster<'_>>,
        slots: Vec<PerClusterPlacementStatus>,
    ) {
        let rolling = view.strategy == RolloutStrategyType::RollingUpdate;
        let mut entries = Vec::with_capacity(clusters.len() + slots.len());
        for cluster in clusters {
            let class = if cluster.has(Status::False) {
                self.clusters.failing += 1;
                Class::Failing
            } else if cluster.has(Status::Unknown) || rolling && cluster.target != Target::Current {
                self.clusters.changing += 1;
                Class::Changing
            } else {
                self.clusters.settled += 1;
                Class::Settled
            };
            let entry = cluster.entry;
            entries.push(Ranked { class, entry });
        }
        entries.extend(slots.into_iter().map(|entry| Ranked {
            class: Class::Unfilled,
            entry,
        }));
        let (kept, omitted) = budget::fit(entries, self.room(view));
        self.omitted_clusters = omitted;
        self.status.placement_statuses = (!kept.is_empty()).then_some(kept);
    }

    /// Says in the Scheduled message what was left out for size.
    fn mention_omissions(&mut self) {
        let first = self
            .status
            .conditions
            .as_mut()
            .and_then(|list| list.first_mut());
        let Some(scheduled) = first else { return };
        for (count, what) in [
            (self.omitted_clusters, "cluster"),
            (self.omitted_resources, "resource"),
        ] {
            if count > 0 {
                scheduled.message += &format!("; {count} {what}(s) not listed here for size");
            }
        }
    }
}
