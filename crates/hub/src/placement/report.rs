//! What a placement's status says, and when it is written.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use windlass_aggregator::{ExternalUnset, Scheduling};
use windlass_api::binding::BindingState;
use windlass_api::conditions::{Reason, Status};
use windlass_api::placement::{PlacementStatus, ResourceIdentifier, RolloutStrategyType};
use windlass_api::scoped::{Binding, Placement, Scope};
use windlass_cluster::{ApiError, ObjectKey, clock};
use windlass_scheduler::Schedule;
use windlass_status::conditions::set;
use windlass_status::defaults::rollout_type;

use super::actor::{Actor, Decided};
use super::snapshots::{Groups, LatestSnapshot};
use super::status::{self, StatusInputs};
use crate::members::is_push;
use crate::observe::{Skipped, skipped};
use crate::overrides::resolve::Resolved;
use crate::report_back;
use crate::select::Selection;

/// How many clusters a note names.
const LEFT_NAMED: usize = 5;

impl Actor {
    /// Only says why the placement can't be acted on: nothing that runs is touched. When to come again, if
    /// not all is said.
    pub(super) async fn stand(
        &self,
        placement: &Placement,
        scheduling: Scheduling<'_>,
    ) -> Result<Option<Duration>, ApiError> {
        let status = standing(placement, scheduling, self.external_unset, clock::now());
        let (_, again) = self.put_status(placement, status).await?;
        Ok(again)
    }

    pub(super) async fn write_status(
        &self,
        placement: &Placement,
        decided: &Decided,
        now: jiff::Timestamp,
    ) -> Result<Option<Duration>, ApiError> {
        let key = ObjectKey::of(placement);
        let bindings = self.world.bindings_of(&key);
        let others = self.shared_snapshot(&key, &bindings, decided).await?;
        let decisions: Vec<_> = decided
            .schedule
            .selected
            .iter()
            .chain(decided.schedule.shown())
            .cloned()
            .collect();
        let (_, reason) = verdict(&decided.schedule);
        let said = std::slice::from_ref(&decided.schedule.message);
        let message = [said, &decided.notes].concat().join("; ");
        let policy_snapshot = decided.policy_snapshot.name_any();
        let mut rolled = status::roll_up(
            &StatusInputs {
                placement,
                scheduling: Scheduling::Decided {
                    fulfilled: decided.schedule.fulfilled,
                    reason: reason.as_str(),
                    message: &message,
                },
                decisions: &decisions,
                policy_snapshot: &policy_snapshot,
                bindings: &bindings,
                held: &decided.held,
                unreachable: &decided.unreachable,
                groups: &decided.groups,
                latest: &decided.latest,
                overrides: &decided.overrides,
                resources: &decided.resources,
                others: &others,
                external_unset: self.external_unset,
            },
            now,
        );
        self.say_reported_back(placement, &bindings, &mut rolled.status, now);
        if placement.status.as_ref() == Some(&rolled.status)
            && self.is_copied(placement, &rolled.status)
        {
            skipped(Skipped::Placement(Scope::of(placement)));
            return Ok(None);
        }
        if let Some(wait) = self.status_held(&key) {
            return Ok(Some(wait));
        }
        let (size, again) = self.put_status(placement, rolled.status).await?;
        self.hold_status(&key, size);
        Ok(again)
    }

    /// How long the next status of a placement is held back.
    pub(super) fn status_held(&self, placement: &ObjectKey) -> Option<Duration> {
        let from = self.memory.get(placement)?.status_from?;
        let wait = from.saturating_duration_since(clock::monotonic());
        (!wait.is_zero()).then_some(wait)
    }

    /// Notes that a status of that size was written.
    pub(super) fn hold_status(&self, placement: &ObjectKey, size: usize) {
        let from = clock::monotonic() + status::pause_after(size);
        let mut memory = self.memory.entry(placement.clone()).or_default();
        memory.status_from = Some(from);
    }

    /// Says whether statuses are where the reportBackStrategy wants them.
    fn say_reported_back(
        &self,
        placement: &Placement,
        bindings: &[Arc<Binding>],
        status: &mut PlacementStatus,
        now: jiff::Timestamp,
    ) {
        let type_ = report_back::condition_type(placement);
        let list = status.conditions.get_or_insert_default();
        let pushed: Vec<&str> = bindings
            .iter()
            .filter(|binding| binding.spec.state == BindingState::Bound)
            .map(|binding| binding.spec.target_cluster.as_str())
            .filter(|cluster| {
                let cluster = self.world.clusters.get(&ObjectKey::cluster(*cluster));
                cluster.is_some_and(|cluster| is_push(&cluster))
            })
            .collect();
        match report_back::of_placement(placement, bindings, &pushed) {
            None => list.retain(|condition| condition.type_ != type_),
            Some(told) => {
                let condition = told.condition(type_, placement.metadata.generation);
                set(list, condition, now);
            }
        }
    }

    /// Under External all selected clusters may share a snapshot that is not the latest; its content is
    /// shown then.
    pub(super) async fn shared_snapshot(
        &self,
        placement: &ObjectKey,
        bindings: &[Arc<Binding>],
        decided: &Decided,
    ) -> Result<HashMap<String, Vec<ResourceIdentifier>>, ApiError> {
        let policy = decided.policy_snapshot.name_any();
        let latest = &decided.latest;
        let names = snapshots_in_use(bindings, &policy);
        let mut others = HashMap::new();
        if let (1, Some(name)) = (names.len(), names.first())
            && !name.is_empty()
            && **name != *latest.name
            && let Some(content) = self
                .contents
                .get(&ObjectKey::namespaced(&placement.namespace, *name))
                .await?
        {
            others.insert((*name).to_owned(), content.identifiers());
        }
        Ok(others)
    }

    /// Writes a status if it differs; tells its size, and when its copy is tried again.
    pub(super) async fn put_status(
        &self,
        placement: &Placement,
        mut status: PlacementStatus,
    ) -> Result<(usize, Option<Duration>), ApiError> {
        let again = self.copy_status(placement, &mut status).await;
        let size = serde_json::to_vec(&status).map_or(0, |text| text.len());
        if placement.status.as_ref() != Some(&status) {
            let mut changed = placement.clone();
            changed.status = Some(status);
            let live = self.writer.replace_status(&changed).await?;
            let new = live.status.as_ref();
            self.world.observer.placement_status(placement, new);
            self.world.placements.observe(live);
        }
        Ok((size, again))
    }
}

/// The status of a placement that nothing is decided for, but for scheduling.
pub(crate) fn standing(
    placement: &Placement,
    scheduling: Scheduling<'_>,
    external_unset: ExternalUnset,
    now: jiff::Timestamp,
) -> PlacementStatus {
    let rolled = status::roll_up(
        &StatusInputs {
            placement,
            scheduling,
            decisions: &[],
            policy_snapshot: "",
            bindings: &[],
            held: &BTreeSet::new(),
            unreachable: &BTreeSet::new(),
            groups: &Groups::default(),
            latest: &LatestSnapshot::default(),
            overrides: &Resolved::default(),
            resources: &[],
            others: &HashMap::new(),
            external_unset,
        },
        now,
    );
    rolled.status
}

/// Whether the policy is fulfilled, and the reason that is shown.
pub(crate) fn verdict(schedule: &Schedule) -> (Status, Reason) {
    if schedule.fulfilled {
        (Status::True, Reason::SchedulingPolicyFulfilled)
    } else {
        (Status::False, Reason::SchedulingPolicyUnfulfilled)
    }
}

/// Snapshots that the bindings which count name: of clusters that are selected by the present policy.
fn snapshots_in_use<'a>(bindings: &'a [Arc<Binding>], policy: &str) -> BTreeSet<&'a str> {
    let counts = |binding: &&Arc<Binding>| {
        binding.metadata.deletion_timestamp.is_none()
            && binding.spec.state != BindingState::Unscheduled
            && binding.spec.scheduling_policy_snapshot_name == policy
    };
    bindings
        .iter()
        .filter(counts)
        .map(|binding| binding.spec.resource_snapshot_name.as_str())
        .collect()
}

/// What a person should know beside the verdict of the scheduler: selectors that choose nothing; bindings
/// that could not be written; under External, clusters that keep what they have though they are not
/// selected any more.
pub(super) fn notes(
    selection: &Selection,
    placement: &Placement,
    bindings: &[Arc<Binding>],
    written: &Result<(), ApiError>,
) -> Vec<String> {
    let mut notes = selection.idle.clone();
    if let Err(ApiError::Rejected(why)) = written {
        notes.push(format!("a binding can't be written: {why}"));
    }
    if rollout_type(placement.spec.strategy.as_ref()) == RolloutStrategyType::External {
        let left: BTreeSet<String> = bindings
            .iter()
            .filter(|b| b.spec.state == BindingState::Unscheduled)
            .filter(|b| b.metadata.deletion_timestamp.is_none())
            .map(|b| {
                format!(
                    "{} ({} {})",
                    b.spec.target_cluster,
                    b.kind_text(),
                    b.name_any()
                )
            })
            .collect();
        if !left.is_empty() {
            let more = left.len().saturating_sub(LEFT_NAMED);
            let named: Vec<String> = left.into_iter().take(LEFT_NAMED).collect();
            let tail = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            notes.push(format!(
                "not selected any more, and left as they are until their binding is deleted: {}{tail}",
                named.join(", ")
            ));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use windlass_api::placement::RolloutStrategy;
    use windlass_status::digest::Digest;

    use super::*;

    fn binding(cluster: &str, snapshot: &str, state: BindingState) -> Arc<Binding> {
        let mut binding = Binding::default();
        binding.metadata.name = Some(format!("p-{cluster}"));
        binding.spec.target_cluster = cluster.to_owned();
        binding.spec.resource_snapshot_name = snapshot.to_owned();
        binding.spec.scheduling_policy_snapshot_name = "p-1".to_owned();
        binding.spec.state = state;
        Arc::new(binding)
    }

    #[test]
    fn a_cluster_that_is_not_selected_any_more_does_not_count_and_is_named() {
        let bindings = [
            binding("a", "p-1-snapshot", BindingState::Bound),
            binding("b", "p-0-snapshot", BindingState::Unscheduled),
        ];
        assert_eq!(
            snapshots_in_use(&bindings, "p-1"),
            BTreeSet::from(["p-1-snapshot"])
        );
        let selection = Selection {
            manifests: Vec::new(),
            hash: Digest::of_bytes(b""),
            idle: Vec::new(),
            again: None,
        };
        let mut placement = Placement::new("p", Default::default());
        let notes_of =
            |placement: &Placement| notes(&selection, placement, &bindings, &Ok(())).join("; ");
        assert_eq!(notes_of(&placement), "");
        placement.spec.strategy = Some(RolloutStrategy {
            type_: Some(RolloutStrategyType::External),
            ..Default::default()
        });
        assert!(notes_of(&placement).contains("b (ClusterResourceBinding p-b)"));
    }
}
