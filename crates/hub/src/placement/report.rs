//! What a placement's status says, and when it is written.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use windlass_aggregator::{ExternalUnset, Scheduling};
use windlass_api::binding::BindingState;
use windlass_api::conditions::{Reason, SCHEDULED, Status};
use windlass_api::placement::{PlacementStatus, ResourceIdentifier, RolloutStrategyType};
use windlass_api::scoped::{Binding, Placement, Scope};
use windlass_api::snapshot::ClusterDecision;
use windlass_cluster::{ApiError, ObjectKey, clock};
use windlass_scheduler::Schedule;
use windlass_status::conditions::{find, set};
use windlass_status::defaults::rollout_type;

use super::actor::{Actor, Decided, selected_before};
use super::bindings::behind;
use super::policy;
use super::snapshots::{Groups, LatestSnapshot};
use super::status::{self, StatusInputs};
use crate::members::is_push;
use crate::observe::{Skipped, rolled_up, skipped};
use crate::overrides::resolve::Resolved;
use crate::report_back;
use crate::select::Selection;
use crate::world::BY_PLACEMENT;

/// When to ask again for what is in force, if the API server could not be asked.
const UNTOLD_AGAIN: Duration = Duration::from_secs(5);
/// How many clusters a note names.
const LEFT_NAMED: usize = 5;

impl Actor {
    /// Only says why the placement can't be acted on, and how what runs fares: nothing of it is touched. When to
    /// come again, if not all is said.
    pub(super) async fn stand(
        &self,
        placement: &Placement,
        scheduling: Scheduling<'_>,
    ) -> Result<Option<Duration>, ApiError> {
        if let Some(wait) = self.status_held(&ObjectKey::of(placement)) {
            return Ok(Some(wait));
        }
        let now = clock::now();
        let (status, again) = match self.in_force(placement, scheduling, now).await {
            Ok(Some(status)) => (status, None),
            Ok(None) => (
                standing(placement, scheduling, self.external_unset, now),
                None,
            ),
            // Why nothing is decided is said all the same.
            Err(error) => {
                tracing::debug!(%error, "what is in force can't be told");
                let status = standing(placement, scheduling, self.external_unset, now);
                (status, Some(UNTOLD_AGAIN))
            }
        };
        let hold = self.say_status(placement, status).await?;
        Ok(hold.into_iter().chain(again).min())
    }

    /// The status by what was decided last; none if nothing was.
    async fn in_force(
        &self,
        placement: &Placement,
        scheduling: Scheduling<'_>,
        now: jiff::Timestamp,
    ) -> Result<Option<PlacementStatus>, ApiError> {
        let key = ObjectKey::of(placement);
        let policies = self.world.policies.under(BY_PLACEMENT, &key);
        let groups = self.world.groups_of(&key);
        let (Some(generation), Some(latest)) =
            (policy::decided_generation(&policies), groups.newest())
        else {
            return Ok(None);
        };
        let bindings = self.world.bindings_of(&key);
        let overrides = self.overrides(&key, None, Some(&latest.name)).await?;
        let content = self
            .contents
            .get(&ObjectKey::namespaced(&key.namespace, &latest.name))
            .await?;
        // What was selected is remembered: nothing is concluded from content that is not there.
        let resources = content.map_or_else(
            || selected_before(placement).to_vec(),
            |content| content.identifiers(),
        );
        let others = self.shared_snapshot(&key, &bindings, None, &latest).await?;
        let strategy = placement.spec.strategy.as_ref();
        let known = (placement.metadata.generation == Some(generation)).then_some(strategy);
        let held = match rollout_type(strategy) {
            RolloutStrategyType::RollingUpdate => behind(&bindings, &latest, &overrides, known),
            RolloutStrategyType::External => BTreeSet::new(),
        };
        rolled_up();
        let rolled = status::roll_up(
            &StatusInputs {
                placement,
                scheduling,
                in_force: Some(generation),
                decisions: &decisions_of(placement, &bindings),
                policy_snapshot: None,
                bindings: &bindings,
                held: &held,
                unreachable: &self.members.unreachable(),
                groups: &groups,
                latest: &latest,
                overrides: &overrides,
                resources: &resources,
                others: &others,
                external_unset: self.external_unset,
                run: self.world.runs.rolling(&key).as_deref(),
            },
            now,
        );
        let mut status = rolled.status;
        self.say_reported_back(placement, &bindings, &mut status, now);
        Ok(Some(status))
    }

    pub(super) async fn write_status(
        &self,
        placement: &Placement,
        decided: &Decided,
        now: jiff::Timestamp,
    ) -> Result<Option<Duration>, ApiError> {
        let key = ObjectKey::of(placement);
        // What can't be written is not worth making.
        if let Some(wait) = self.status_held(&key) {
            return Ok(Some(wait));
        }
        let bindings = self.world.bindings_of(&key);
        let policy_snapshot = decided.policy_snapshot.name_any();
        let others = self
            .shared_snapshot(&key, &bindings, Some(&policy_snapshot), &decided.latest)
            .await?;
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
        rolled_up();
        let mut rolled = status::roll_up(
            &StatusInputs {
                placement,
                scheduling: Scheduling::Decided {
                    fulfilled: decided.schedule.fulfilled,
                    reason: reason.as_str(),
                    message: &message,
                },
                in_force: None,
                decisions: &decisions,
                policy_snapshot: Some(&policy_snapshot),
                bindings: &bindings,
                held: &decided.held,
                unreachable: &decided.unreachable,
                groups: &decided.groups,
                latest: &decided.latest,
                overrides: &decided.overrides,
                resources: &decided.resources,
                others: &others,
                external_unset: self.external_unset,
                run: self.world.runs.rolling(&key).as_deref(),
            },
            now,
        );
        self.say_reported_back(placement, &bindings, &mut rolled.status, now);
        self.say_status(placement, rolled.status).await
    }

    /// Writes a status that is not held back ([`Self::status_held`]), if it differs. When to come again, if not
    /// all is said.
    async fn say_status(
        &self,
        placement: &Placement,
        status: PlacementStatus,
    ) -> Result<Option<Duration>, ApiError> {
        if placement.status.as_ref() == Some(&status) && self.is_copied(placement, &status) {
            skipped(Skipped::Placement(Scope::of(placement)));
            return Ok(None);
        }
        let key = ObjectKey::of(placement);
        let (size, again) = self.put_status(placement, status).await?;
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
        policy: Option<&str>,
        latest: &LatestSnapshot,
    ) -> Result<HashMap<String, Vec<ResourceIdentifier>>, ApiError> {
        let names = snapshots_in_use(bindings, policy);
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
            in_force: None,
            decisions: &[],
            policy_snapshot: None,
            bindings: &[],
            held: &BTreeSet::new(),
            unreachable: &BTreeSet::new(),
            groups: &Groups::default(),
            latest: &LatestSnapshot::default(),
            overrides: &Resolved::default(),
            resources: &[],
            others: &HashMap::new(),
            external_unset,
            run: None,
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

/// Whether a binding is of a cluster that is selected: by the present policy, or by any if none is given.
fn counts(binding: &Binding, policy: Option<&str>) -> bool {
    binding.metadata.deletion_timestamp.is_none()
        && binding.spec.state != BindingState::Unscheduled
        && policy.is_none_or(|policy| binding.spec.scheduling_policy_snapshot_name == policy)
}

/// The decisions in force, as the bindings have them; in the words in which they were last told.
fn decisions_of(placement: &Placement, bindings: &[Arc<Binding>]) -> Vec<ClusterDecision> {
    let entries = placement
        .status
        .iter()
        .flat_map(|status| status.placement_statuses.iter().flatten());
    let told: HashMap<&str, &str> = entries
        .filter_map(|entry| {
            let conditions = entry.conditions.as_deref().unwrap_or_default();
            let scheduled = find(conditions, SCHEDULED)?;
            Some((entry.cluster_name.as_deref()?, scheduled.message.as_str()))
        })
        .collect();
    let decision = |binding: &Arc<Binding>| {
        let cluster = &binding.spec.target_cluster;
        let mut decision = binding.spec.cluster_decision.clone();
        decision.cluster_name.clone_from(cluster);
        decision.selected = true;
        if let Some(reason) = told.get(cluster.as_str()) {
            (*reason).clone_into(&mut decision.reason);
        }
        decision
    };
    let counted = bindings.iter().filter(|binding| counts(binding, None));
    counted.map(decision).collect()
}

/// Snapshots that the bindings which count name: of clusters that are selected by the present policy.
fn snapshots_in_use<'a>(bindings: &'a [Arc<Binding>], policy: Option<&str>) -> BTreeSet<&'a str> {
    bindings
        .iter()
        .filter(|binding| counts(binding, policy))
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
            snapshots_in_use(&bindings, Some("p-1")),
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
