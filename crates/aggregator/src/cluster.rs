//! One cluster's entry (reference: hub §2.4; design §5.1).
//!
//! | binding | index | conditions |
//! |---|---|---|
//! | none that counts | none | RolloutStarted Unknown |
//! | names no snapshot | none | a fresh RolloutStarted False is copied, else RolloutStarted Unknown |
//! | names a snapshot | that snapshot's | copied in order while fresh and True; the first that is not ends it |
//!
//! This holds for both strategies, also on a snapshot that is not the latest.

use jiff::Timestamp;
use windlass_api::Condition;
use windlass_api::binding::BindingStatus;
use windlass_api::conditions::{Reason, SCHEDULED, Stage, Status};
use windlass_api::placement::{PerClusterPlacementStatus, ResourceIdentifier};
use windlass_api::scoped::Binding;
use windlass_api::snapshot::ClusterDecision;
use windlass_status::freshness::{self, Freshness};
use windlass_status::{NewCondition, conditions};

use crate::view::{AggregateView, BindingView};
use crate::words::{self, Gap};

/// Longest detail list that the API accepts.
const LIST_LIMIT: usize = 100;

/// A cluster's entry, and what the roll-up needs to know of it.
pub struct Cluster<'a> {
    /// The cluster.
    pub name: &'a str,
    /// What the status shows.
    pub entry: PerClusterPlacementStatus,
    /// Index of its snapshot.
    pub index: Option<&'a str>,
    /// Name of its snapshot.
    pub snapshot: Option<&'a str>,
    /// Where it stands with respect to the latest desired state.
    pub target: Target,
    statuses: [Option<Status>; 6],
}

/// Where a cluster stands with respect to the latest desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// There is no binding, or no latest snapshot.
    Unknown,
    /// Its turn has not come.
    Waiting,
    /// Its binding asks for the latest.
    Current,
}

impl Cluster<'_> {
    /// Status of a condition; none if the chain ended before it.
    pub const fn status(&self, stage: Stage) -> Option<Status> {
        self.statuses[stage as usize]
    }

    /// Whether any condition has this status.
    pub fn has(&self, status: Status) -> bool {
        self.statuses.contains(&Some(status))
    }

    /// Whether overrides are in effect.
    pub const fn is_overridden(&self) -> bool {
        self.entry.applicable_resource_overrides.is_some()
            || self.entry.applicable_cluster_resource_overrides.is_some()
    }
}

/// The entry of a selected cluster. `previous` is the one last written.
pub fn selected<'a>(
    view: &AggregateView<'a>,
    decision: &'a ClusterDecision,
    previous: Option<&PerClusterPlacementStatus>,
    now: Timestamp,
) -> Cluster<'a> {
    let name = decision.cluster_name.as_str();
    let mut builder = Builder {
        generation: view.generation,
        previous: previous_conditions(previous),
        now,
        entry: PerClusterPlacementStatus {
            cluster_name: Some(name.to_owned()),
            ..PerClusterPlacementStatus::default()
        },
        conditions: Vec::with_capacity(1 + view.mode.chain().len()),
        statuses: [None; 6],
    };
    builder.scheduled(Status::True, Reason::Scheduled, decision);
    let binding = view.bindings.get(name).filter(|found| found.is_live());
    match binding {
        None => builder.unknown(Stage::RolloutStarted, Gap::Unbound),
        Some(found) => builder.copy(found, view.mode.chain()),
    }
    builder.entry.conditions = Some(builder.conditions);
    let snapshot = binding
        .map(|found| found.binding.spec.resource_snapshot_name.as_str())
        .filter(|snapshot| !snapshot.is_empty());
    let index = snapshot
        .and(binding)
        .and_then(|found| found.snapshot_index)
        .filter(|index| !index.is_empty());
    builder.entry.observed_resource_index = index.map(str::to_owned);
    Cluster {
        name,
        entry: builder.entry,
        index,
        snapshot,
        target: target(view, binding),
        statuses: builder.statuses,
    }
}

/// The nameless entry of a slot that found no cluster; `decision` tells about one that was not taken.
pub fn unfilled(
    view: &AggregateView<'_>,
    decision: &ClusterDecision,
    previous: Option<&PerClusterPlacementStatus>,
    now: Timestamp,
) -> PerClusterPlacementStatus {
    let scheduled = NewCondition {
        type_: SCHEDULED,
        status: Status::False,
        reason: Reason::ScheduleFailed.as_str(),
        message: decision.reason.clone(),
        observed_generation: Some(view.generation),
    };
    PerClusterPlacementStatus {
        conditions: Some(vec![scheduled.build(previous_conditions(previous), now)]),
        ..PerClusterPlacementStatus::default()
    }
}

fn previous_conditions(previous: Option<&PerClusterPlacementStatus>) -> &[Condition] {
    previous
        .and_then(|entry| entry.conditions.as_deref())
        .unwrap_or_default()
}

fn target(view: &AggregateView<'_>, binding: Option<&BindingView<'_>>) -> Target {
    match (view.latest, binding) {
        (None, _) | (_, None) => Target::Unknown,
        (Some(latest), Some(found)) => {
            if found.held_back || found.binding.spec.resource_snapshot_name != latest.name {
                Target::Waiting
            } else {
                Target::Current
            }
        }
    }
}

struct Builder<'p> {
    generation: i64,
    previous: &'p [Condition],
    now: Timestamp,
    entry: PerClusterPlacementStatus,
    conditions: Vec<Condition>,
    statuses: [Option<Status>; 6],
}

impl Builder<'_> {
    fn scheduled(&mut self, status: Status, reason: Reason, decision: &ClusterDecision) {
        let new = NewCondition {
            type_: SCHEDULED,
            status,
            reason: reason.as_str(),
            message: decision.reason.clone(),
            observed_generation: Some(self.generation),
        };
        self.conditions.push(new.build(self.previous, self.now));
    }

    fn unknown(&mut self, stage: Stage, gap: Gap) {
        let new = NewCondition {
            type_: stage.as_str(),
            status: Status::Unknown,
            reason: words::reason(stage, Status::Unknown).as_str(),
            message: gap.message(stage),
            observed_generation: Some(self.generation),
        };
        self.conditions.push(new.build(self.previous, self.now));
        self.statuses[stage as usize] = Some(Status::Unknown);
    }

    fn copy(&mut self, view: &BindingView<'_>, chain: &[Stage]) {
        let fresh = Freshness::of(view.binding, view.desired_digest);
        let rolled_out = !view.binding.spec.resource_snapshot_name.is_empty();
        for stage in chain {
            let known = freshness::condition(view.binding, fresh, *stage)
                .map(|condition| (condition, conditions::status(condition)));
            match known {
                Some((_, Status::True)) if !rolled_out => {
                    return self.unknown(*stage, Gap::NotRolledOut);
                }
                None | Some((_, Status::Unknown)) => {
                    let gap = match (rolled_out, view.unreachable) {
                        (false, _) => Gap::NotRolledOut,
                        (true, false) => Gap::Unreported,
                        (true, true) => Gap::Unreachable,
                    };
                    return self.unknown(*stage, gap);
                }
                Some((condition, status)) => {
                    self.take(*stage, status, condition);
                    self.details(*stage, status, view.binding);
                    if status == Status::False {
                        return;
                    }
                }
            }
        }
    }

    fn take(&mut self, stage: Stage, status: Status, condition: &Condition) {
        let new = NewCondition {
            type_: stage.as_str(),
            status,
            reason: &condition.reason,
            message: condition.message.clone(),
            observed_generation: Some(self.generation),
        };
        // An entry that was left out for size comes back with the time that the binding knows.
        let since = condition.last_transition_time.0;
        self.conditions
            .push(new.build_since(self.previous, since, self.now));
        self.statuses[stage as usize] = Some(status);
    }

    /// What comes along with a condition:
    ///
    /// | condition | overrides | failed | diffed | drifted |
    /// |---|---|---|---|---|
    /// | RolloutStarted True | yes | | | |
    /// | Applied or Available True | | | | yes |
    /// | Applied or Available False | | yes | yes | yes |
    /// | DiffReported True | | | yes | |
    fn details(&mut self, stage: Stage, status: Status, binding: &Binding) {
        let entry = &mut self.entry;
        let none = BindingStatus::default();
        let reported = binding.status.as_ref().unwrap_or(&none);
        match (stage, status) {
            (Stage::RolloutStarted, Status::True) => {
                let spec = &binding.spec;
                entry.applicable_resource_overrides =
                    filled(spec.resource_override_snapshots.as_ref());
                entry.applicable_cluster_resource_overrides =
                    filled(spec.cluster_resource_override_snapshots.as_ref());
            }
            (Stage::Applied | Stage::Available, Status::True | Status::False) => {
                let drifted = reported.drifted_placements.as_ref();
                entry.drifted_placements = sorted(drifted, |item| &item.identifier);
                if status == Status::False {
                    let failed = reported.failed_placements.as_ref();
                    entry.failed_placements = sorted(failed, |item| &item.identifier);
                    let diffed = reported.diffed_placements.as_ref();
                    entry.diffed_placements = sorted(diffed, |item| &item.identifier);
                }
            }
            (Stage::DiffReported, Status::True) => {
                let diffed = reported.diffed_placements.as_ref();
                entry.diffed_placements = sorted(diffed, |item| &item.identifier);
            }
            _ => {}
        }
    }
}

fn filled<T: Clone>(list: Option<&Vec<T>>) -> Option<Vec<T>> {
    list.filter(|items| !items.is_empty()).cloned()
}

/// By identity first, then cut, so that the same ones stay every time; only those are cloned.
fn sorted<T: Clone>(
    list: Option<&Vec<T>>,
    identity: impl Fn(&T) -> &ResourceIdentifier,
) -> Option<Vec<T>> {
    let mut items: Vec<&T> = list.filter(|items| !items.is_empty())?.iter().collect();
    items.sort_by(|a, b| identity(a).cmp(identity(b)));
    Some(items.into_iter().take(LIST_LIMIT).cloned().collect())
}
