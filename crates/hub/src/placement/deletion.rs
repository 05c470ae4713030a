//! The end of a placement: its bindings go first, each with what it placed; then its snapshots; then it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use windlass_api::conditions::{Stage, Status, placement_deleting};
use windlass_api::labels;
use windlass_api::scoped::{Binding, Placement, Scope};
use windlass_cluster::{ApiError, ObjectKey, clock};
use windlass_status::conditions::{NewCondition, find, set};
use windlass_status::transitions::DELETION_IN_PROGRESS;

use super::actor::Actor;
use crate::removal;
use crate::worker::Next;
use crate::world::BY_PLACEMENT;

/// How many clusters are named in the message.
const NAMED: usize = 5;
/// How what goes on by itself ends.
const ROUTINE: [&str; 3] = [" to be gone", " to be released", " to let go"];
/// What is said of a cluster that has not said anything yet.
const REMOVING: &str = "removing";

impl Actor {
    /// Takes the next step; every step is safe to repeat.
    pub(super) async fn delete(&self, placement: &Placement) -> Result<Next, ApiError> {
        let key = ObjectKey::of(placement);
        self.forget_content(&key);
        let ours =
            |f: &String| f == labels::PLACEMENT_FINALIZER || f == labels::SCHEDULER_FINALIZER;
        if !placement.finalizers().iter().any(ours) {
            return Ok(Next::Event);
        }
        let bindings = self.world.bindings_of(&key);
        if !bindings.is_empty() {
            self.delete_bindings(&bindings).await?;
            let held = self.say_what_for(placement, &bindings).await?;
            return Ok(held.map_or(Next::Event, Next::After));
        }
        for snapshot in self.world.snapshots.under(BY_PLACEMENT, &key) {
            self.writer.delete(&*snapshot).await?;
            self.world.snapshots.observe_deleted(&snapshot);
        }
        for policy in self.world.policies.under(BY_PLACEMENT, &key) {
            self.writer.delete(&*policy).await?;
            self.world.policies.observe_deleted(&policy);
        }
        let mut changed = placement.clone();
        changed.finalizers_mut().retain(|f| !ours(f));
        match self.writer.replace(&changed).await {
            Ok(_) | Err(ApiError::NotFound(_)) => Ok(Next::Event),
            Err(error) => Err(error),
        }
    }

    /// Asks for the deletion of bindings; what they placed is removed before they go. One that is refused does
    /// not keep the others.
    pub(super) async fn delete_bindings(&self, bindings: &[Arc<Binding>]) -> Result<(), ApiError> {
        let mut all = Ok(());
        for binding in bindings
            .iter()
            .filter(|b| b.metadata.deletion_timestamp.is_none())
        {
            let deleted = self.writer.delete(&**binding).await;
            all = all.and(deleted.map(drop));
        }
        all
    }

    /// Tells how long what there is to say is held back: a status goes out whole, and the count changes with
    /// each cluster that is done (design §5.3).
    async fn say_what_for(
        &self,
        placement: &Placement,
        bindings: &[Arc<Binding>],
    ) -> Result<Option<Duration>, ApiError> {
        let mut changed = placement.clone();
        let list = changed
            .status
            .get_or_insert_default()
            .conditions
            .get_or_insert_default();
        let new = waiting(placement, bindings);
        if set(list, new, clock::now()) {
            let key = ObjectKey::of(placement);
            if let Some(wait) = self.status_held(&key) {
                return Ok(Some(wait));
            }
            let size = serde_json::to_vec(&changed.status).map_or(0, |text| text.len());
            let live = self.writer.replace_status(&changed).await?;
            let new = live.status.as_ref();
            self.world.observer.placement_status(placement, new);
            self.world.placements.observe(live);
            self.hold_status(&key, size);
        }
        Ok(None)
    }
}

/// The condition that says what the deletion of a placement waits for.
pub(crate) fn waiting(placement: &Placement, bindings: &[Arc<Binding>]) -> NewCondition<'static> {
    let waits: BTreeMap<&str, &str> = bindings
        .iter()
        .map(|binding| {
            (
                binding.spec.target_cluster.as_str(),
                trouble(binding).unwrap_or(REMOVING),
            )
        })
        .collect();
    let named: Vec<String> = waits
        .iter()
        .take(NAMED)
        .map(|(cluster, trouble)| format!("{cluster} ({trouble})"))
        .collect();
    let more = waits.len().saturating_sub(NAMED);
    let tail = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let what = if removal::wants_abandon(placement.spec.strategy.as_ref()) {
        "release"
    } else {
        "remove"
    };
    let message = format!(
        "Waiting for {} cluster(s) to {what} what was placed: {}{tail}",
        waits.len(),
        named.join(", ")
    );
    let reason = if waits.values().all(|trouble| is_routine(trouble)) {
        DELETION_IN_PROGRESS
    } else {
        "WaitingForClusters"
    };
    NewCondition {
        type_: placement_deleting(Scope::of(placement)),
        status: Status::True,
        reason,
        message,
        observed_generation: placement.metadata.generation,
    }
}

/// Whether a removal is just going on: objects have been asked to go, and nothing holds them.
pub(crate) fn is_routine(trouble: &str) -> bool {
    trouble == REMOVING
        || trouble
            .split(", ")
            .all(|what| ROUTINE.iter().any(|end| what.ends_with(end)))
}

/// What the removal of a binding waits for.
pub(crate) fn trouble(binding: &Binding) -> Option<&str> {
    let list = binding.status.as_ref()?.conditions.as_deref()?;
    let condition = find(list, Stage::WorkSynchronized.as_str())?;
    (condition.status == "False").then_some(condition.message.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The condition's reason tells what just takes its time from what somebody has to look at.
    #[test]
    fn what_holds_a_removal_up() {
        for (trouble, expected) in [
            (REMOVING, true),
            ("removing; waiting for Namespace web to be gone", true),
            (
                "removing; waiting for ConfigMap a to be gone, Namespace web to be gone",
                true,
            ),
            ("removing; waiting for ConfigMap a to be released", true),
            (
                "removing; waiting for Thing a to be gone (finalizers: x/y)",
                false,
            ),
            (
                "waiting for cluster east to be reachable, to remove what was placed there",
                false,
            ),
            (
                "waiting for cluster east to be reachable: its agent does not report",
                false,
            ),
            (
                "removing; waiting for Namespace web, which holds ConfigMap foreign",
                false,
            ),
            ("removing from cluster east failed: forbidden", false),
        ] {
            assert_eq!(is_routine(trouble), expected, "{trouble}");
        }
    }
}
