//! What a placement's status says, and when it is written.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use windlass_aggregator::Scheduling;
use windlass_api::conditions::{Reason, Status};
use windlass_api::placement::{ClusterResourcePlacement, ResourceIdentifier};
use windlass_cluster::{ApiError, clock};
use windlass_scheduler::Schedule;

use super::actor::{Actor, Decided};
use super::snapshots::{Groups, LatestSnapshot};
use super::status::{self, StatusInputs};
use crate::observe::{Skipped, skipped};
use crate::worker::Next;

impl Actor {
    /// Only says that the selectors can't be acted on: nothing that runs is touched.
    pub(super) async fn invalid(
        &self,
        placement: &ClusterResourcePlacement,
        message: &str,
    ) -> Result<Next, ApiError> {
        let empty = (Groups::default(), LatestSnapshot::default());
        let rolled = status::roll_up(
            &StatusInputs {
                placement,
                scheduling: Scheduling::InvalidSelectors(message),
                decisions: &[],
                policy_snapshot: "",
                bindings: &[],
                held: &BTreeSet::new(),
                unreachable: &BTreeSet::new(),
                groups: &empty.0,
                latest: &empty.1,
                resources: &[],
                others: &HashMap::new(),
                external_unset: self.external_unset,
            },
            clock::now(),
        );
        self.put_status(placement, rolled.status).await?;
        Ok(Next::Event)
    }

    pub(super) async fn write_status(
        &self,
        placement: &ClusterResourcePlacement,
        decided: &Decided,
        now: jiff::Timestamp,
    ) -> Result<Option<Duration>, ApiError> {
        let name = placement.name_any();
        let bindings = self.world.bindings_of(&name);
        let others = self.shared_snapshot(&bindings, &decided.latest).await?;
        let decisions: Vec<_> = decided
            .schedule
            .selected
            .iter()
            .chain(&decided.schedule.unselected)
            .cloned()
            .collect();
        let (_, reason) = verdict(&decided.schedule);
        let said = std::slice::from_ref(&decided.schedule.message);
        let message = [said, &decided.idle].concat().join("; ");
        let policy_snapshot = decided.policy_snapshot.name_any();
        let rolled = status::roll_up(
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
                resources: &decided.resources,
                others: &others,
                external_unset: self.external_unset,
            },
            now,
        );
        if placement.status.as_ref() == Some(&rolled.status) {
            skipped(Skipped::Placement);
            return Ok(None);
        }
        let moment = clock::monotonic();
        let from = self.memory.entry(name.clone()).or_default().status_from;
        if let Some(from) = from.filter(|from| *from > moment) {
            return Ok(Some(from - moment));
        }
        let size = self.put_status(placement, rolled.status).await?;
        self.memory.entry(name).or_default().status_from = Some(moment + status::pause_after(size));
        Ok(None)
    }

    /// Under External all clusters may share a snapshot that is not the latest; its content is shown then.
    pub(super) async fn shared_snapshot(
        &self,
        bindings: &[Arc<windlass_api::binding::ClusterResourceBinding>],
        latest: &LatestSnapshot,
    ) -> Result<HashMap<String, Vec<ResourceIdentifier>>, ApiError> {
        let names: BTreeSet<&str> = bindings
            .iter()
            .map(|b| b.spec.resource_snapshot_name.as_str())
            .collect();
        let mut others = HashMap::new();
        if let (1, Some(name)) = (names.len(), names.first())
            && !name.is_empty()
            && **name != *latest.name
            && let Some(content) = self.contents.get(name).await?
        {
            others.insert((*name).to_owned(), content.identifiers());
        }
        Ok(others)
    }

    /// Writes a status if it differs; tells its size.
    pub(super) async fn put_status(
        &self,
        placement: &ClusterResourcePlacement,
        status: windlass_api::placement::PlacementStatus,
    ) -> Result<usize, ApiError> {
        let size = serde_json::to_vec(&status).map_or(0, |text| text.len());
        if placement.status.as_ref() != Some(&status) {
            let mut changed = placement.clone();
            changed.status = Some(status);
            let live = self.writer.replace_status(&changed).await?;
            let new = live.status.as_ref();
            self.world.observer.placement_status(placement, new);
            self.world.placements.observe(live);
        }
        Ok(size)
    }
}

/// Whether the policy is fulfilled, and the reason that is shown.
pub(super) fn verdict(schedule: &Schedule) -> (Status, Reason) {
    if schedule.fulfilled {
        (Status::True, Reason::SchedulingPolicyFulfilled)
    } else {
        (Status::False, Reason::SchedulingPolicyUnfulfilled)
    }
}
