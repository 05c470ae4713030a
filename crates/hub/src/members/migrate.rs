//! A cluster changes its mode of delivery: the new owner of what is placed there takes it over, then the old
//! one lets go; nothing is deleted. Everything is owned by AppliedWorks on the cluster, and these have the
//! same names in both modes; where an agent has more than one per placement, delivery moves objects between
//! them ([`windlass_member::regroup`]).
//!
//! To pull:
//!
//! | mode | state | what happens |
//! |---|---|---|
//! | push | something placed there is refused | waited for: nobody delivers it after the change |
//! | push | no agent has joined | the hub prepares for one, waits, and delivers as before |
//! | push | it has | the mode changes: Works are written |
//! | pull | it has not reported on every Work | waited for |
//! | pull | it has | the hub's rights on the cluster, and its credentials, go; done |
//!
//! To push:
//!
//! | mode | state | what happens |
//! |---|---|---|
//! | pull | something placed there is refused, the agent reports | waited for: nobody delivers it after the change |
//! | pull | the hub can't reach the cluster | waited for; the agent delivers as before |
//! | pull | it can, the agent has not left | the agent is told to leave: it lets be what it placed |
//! | pull | the agent has left, or is silent | the mode changes: the hub delivers |
//! | push | not everything is applied by the hub | waited for |
//! | push | it is | the agent's Works and namespace go; done |

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use windlass_api::conditions::{Stage, Status};
use windlass_api::member::{MemberCluster, MemberClusterStatus};
use windlass_api::placement::ApplyStrategyType;
use windlass_api::scoped::Binding;
use windlass_api::{labels, names};
use windlass_cluster::{ApiError, ObjectKey, clock};
use windlass_status::conditions::{NewCondition, find, is_true, remove, set};

use super::leave::{Farewell, Haste, rights_stay};
use super::pull::leave::says_joined;
use super::{Members, is_push};
use crate::delivery::refused;
use crate::pull::work::WorkMeta;
use crate::worker::Next;
use crate::works;
use crate::world::{BY_CLUSTER, placement_of};

/// Condition of a cluster that changes its mode; the message says what that waits for.
pub const MIGRATING: &str = "Migrating";
/// Its reason when it is over and something of the old mode is left on the cluster.
const LEFT_BEHIND: &str = "MemberClusterLeftBehind";
/// How often a cluster that changes its mode is looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// How many placements a message names.
const NAMED: usize = 3;

/// A mode of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The hub delivers.
    Push,
    /// An agent does.
    Pull,
}

/// The mode that a cluster is marked to change to, if it is.
fn marked(cluster: &MemberCluster) -> Option<Mode> {
    match cluster.annotations().get(labels::MIGRATE_TO)?.as_str() {
        labels::DELIVERY_PUSH => Some(Mode::Push),
        labels::DELIVERY_PULL => Some(Mode::Pull),
        _ => None,
    }
}

impl Members {
    /// The mode that a cluster changes to, or has changed to without the old owner having let go: somebody may
    /// have set the mode by hand.
    #[must_use]
    pub fn changes_to(&self, cluster: &MemberCluster) -> Option<Mode> {
        let name = cluster.name_any();
        marked(cluster).or_else(|| {
            if is_push(cluster) {
                self.world.pull.agent(&name).map(|_| Mode::Push)
            } else {
                self.has_credentials(&name).then_some(Mode::Pull)
            }
        })
    }

    /// Push, to become pull: after a look at the cluster as at any other in push mode.
    pub(super) async fn await_agent(&self, name: &str) -> Result<Next, ApiError> {
        let Some(cluster) = self.world.clusters.get(&ObjectKey::cluster(name)) else {
            return Ok(Next::Event);
        };
        let waits = match self.prepare(&cluster).await {
            Ok(waits) => waits,
            Err(ApiError::Rejected(why)) => Some(why),
            Err(error) => return Err(error),
        };
        if let Some(left) = self.refused(name) {
            let message = format!("Waiting, and delivering as before, for {left}");
            return self.say_migrating(&cluster, &message).await;
        }
        let agent = self.world.pull.agent(name);
        let joined = agent.as_deref().and_then(says_joined);
        if waits.is_none() && joined == Some(true) {
            self.change_mode(&cluster, Mode::Pull).await?;
            return Ok(Next::After(PERIOD));
        }
        let why = waits.unwrap_or_else(|| {
            let identity = &cluster.spec.identity;
            format!(
                "no agent has joined; it has to reach the hub as {} {}",
                identity.kind, identity.name
            )
        });
        let message = format!("Waiting for the cluster's agent, and delivering as before: {why}");
        self.say_migrating(&cluster, &message).await
    }

    /// Pull since a moment ago: after a look at the cluster as at any other in pull mode.
    pub(super) async fn end_push(&self, name: &str) -> Result<Next, ApiError> {
        let Some(cluster) = self.world.clusters.get(&ObjectKey::cluster(name)) else {
            return Ok(Next::Event);
        };
        // Delivery needs it for what it has to move there.
        let trouble = if self.has_credentials(name) {
            self.reach(name).await
        } else {
            None
        };
        let left = self.not_yet(name, |binding| {
            binding.metadata.deletion_timestamp.is_some() || self.is_reported(name, binding)
        });
        let joined = self.world.pull.agent(name).as_deref().and_then(says_joined);
        if let Some(why) = holds_push(joined, left.as_deref(), trouble.as_deref()) {
            return self.say_migrating(&cluster, &why).await;
        }
        let mut left = None;
        let mut cluster = MemberCluster::clone(&cluster);
        if self.has_credentials(name) {
            cluster = self.ask_back(&cluster, trouble.as_deref()).await?;
            let farewell = self.remove_rights(name, trouble, Haste::Stays).await;
            cluster = self.note_refusal(&cluster).await?;
            match farewell {
                Farewell::Gone => {}
                Farewell::Going(None) => return Ok(Next::After(PERIOD)),
                Farewell::Going(Some(trouble)) => {
                    let message =
                        format!("Waiting for the hub's own rights on the cluster to go: {trouble}");
                    return self.say_migrating(&cluster, &message).await;
                }
                Farewell::Stays(trouble) => left = Some(rights_stay(&trouble)),
            }
            self.goodbyes.remove(name);
            self.disconnect(name);
            if let Some(secret) = self.secret_of(name) {
                self.writer.delete(&*secret).await?;
                self.world.secrets.observe_deleted(&secret);
            }
        }
        self.migrated(&cluster, left.as_deref()).await
    }

    /// Pull, to become push.
    pub(super) async fn await_push(&self, cluster: &Arc<MemberCluster>) -> Result<Next, ApiError> {
        let name = cluster.name_any();
        let told = self.is_told_to_leave(&name);
        // One that is silent delivers nothing that could go on.
        if let Some(left) = self.refused(&name)
            && !told
            && !self.is_silent(&name)
        {
            self.process_pull(Arc::clone(cluster)).await?;
            let Some(cluster) = self.world.clusters.get(&ObjectKey::cluster(&name)) else {
                return Ok(Next::Event);
            };
            let message = format!("Waiting, while the agent delivers as before, for {left}");
            return self.say_migrating(&cluster, &message).await;
        }
        if let Some(trouble) = self.reach(&name).await
            && !told
        {
            self.process_pull(Arc::clone(cluster)).await?;
            let Some(cluster) = self.world.clusters.get(&ObjectKey::cluster(&name)) else {
                return Ok(Next::Event);
            };
            let message = format!(
                "Waiting for the hub to reach the cluster, while its agent delivers as before: {trouble}"
            );
            return self.say_migrating(&cluster, &message).await;
        }
        self.tell_to_leave(cluster).await?;
        let (silent, _) = self.listen(&name, cluster);
        if self.agent_is_gone(&name) || silent.is_some() {
            self.change_mode(cluster, Mode::Push).await?;
            return Ok(Next::After(PERIOD));
        }
        let message = "Waiting for the cluster's agent to let go; what it placed stays";
        self.say_migrating(cluster, message).await
    }

    /// Push since a moment ago: after a look at the cluster as at any other in push mode.
    pub(super) async fn end_pull(&self, name: &str) -> Result<Next, ApiError> {
        let Some(cluster) = self.world.clusters.get(&ObjectKey::cluster(name)) else {
            return Ok(Next::Event);
        };
        let member = self.get(name);
        let left = self.not_yet(name, |binding| {
            let digest = binding
                .status
                .as_ref()
                .and_then(|s| s.observed_digest.as_deref());
            let parent = placement_of(binding).map(|placement| works::parent(placement, |_| false));
            let names = parent.map(|parent| [parent.usual_name(), parent.hashed_name()]);
            let has_works = placement_of(binding)
                .is_some_and(|placement| !self.world.pull.works_of(name, &placement).is_empty());
            let is_applied = reports_diff(binding)
                || matches!((&member, names, digest), (Some(member), Some(names), Some(digest))
                    if names.iter().any(|work| member.has_applied(work, digest)));
            is_taken_over(binding, has_works, is_applied)
        });
        if let Some(left) = left {
            let message = format!("Waiting for the hub to have taken over {left}");
            return self.say_migrating(&cluster, &message).await;
        }
        // It has, unless the mode was set by hand. One that works would take along what is in its Works.
        self.tell_to_leave(&cluster).await?;
        let (silent, _) = self.listen(name, &cluster);
        if !self.agent_is_gone(name) && silent.is_none() {
            let message = "Waiting for the cluster's agent to let go; what it placed stays";
            return self.say_migrating(&cluster, message).await;
        }
        let namespace = names::member_namespace(name);
        self.clear_namespace(&namespace).await?;
        let key = ObjectKey::cluster(&namespace);
        if self.world.pull.namespaces.get(&key).is_some() {
            let message = self.waits_for_namespace(&namespace).await?;
            return self.say_migrating(&cluster, &message).await;
        }
        self.agents.remove(name);
        self.world.pull.forget(name);
        self.migrated(&cluster, None).await
    }

    /// Placements on the cluster that something does not hold for, in words.
    fn not_yet(&self, name: &str, holds: impl Fn(&Binding) -> bool) -> Option<String> {
        let bindings = self.world.bindings.by_index(BY_CLUSTER, name);
        let left = bindings
            .iter()
            .filter(|binding| !binding.spec.resource_snapshot_name.is_empty() && !holds(binding))
            .filter_map(|binding| {
                let placement = placement_of(&**binding)?.to_string();
                let turn = self.held.contains(&ObjectKey::of(&**binding));
                let turn = turn.then_some(
                    "its overrides change there, and it has to wait for its turn in the rollout",
                );
                Some((placement, turn.or(refused::why(binding)).map(str::to_owned)))
            });
        in_words(left.collect())
    }

    /// Placements of which nothing is sent to the cluster, in words.
    fn refused(&self, name: &str) -> Option<String> {
        self.not_yet(name, |binding| {
            let is_held = self.held.contains(&ObjectKey::of(binding));
            binding.metadata.deletion_timestamp.is_some()
                || !refused::is_refused(binding) && !is_held
        })
    }

    /// Notes whether nothing is sent to a binding's cluster until the rollout gives it its turn.
    pub fn note_held(&self, binding: &ObjectKey, is_held: bool) {
        if is_held {
            self.held.insert(binding.clone());
        } else {
            self.held.remove(binding);
        }
    }

    fn is_reported(&self, cluster: &str, binding: &Binding) -> bool {
        let works = placement_of(binding)
            .map(|placement| self.world.pull.works_of(cluster, &placement))
            .unwrap_or_default();
        !works.is_empty() && works.iter().all(|work| has_report(work))
    }

    /// Whether the cluster's agent has been told to leave.
    #[must_use]
    pub fn is_told_to_leave(&self, name: &str) -> bool {
        let agent = self.world.pull.agent(name);
        agent.is_some_and(|agent| agent.spec.state == windlass_api::pull::MembershipState::Leave)
    }

    /// Whether the hub has credentials of a cluster.
    #[must_use]
    pub fn has_credentials(&self, name: &str) -> bool {
        self.secret_of(name).is_some()
    }

    async fn change_mode(&self, cluster: &MemberCluster, to: Mode) -> Result<(), ApiError> {
        let mut changed = cluster.clone();
        let annotations = changed.annotations_mut();
        match to {
            Mode::Push => {
                let push = labels::DELIVERY_PUSH.to_owned();
                annotations.insert(labels::DELIVERY.to_owned(), push);
                // Rights that were given anew.
                annotations.remove(labels::RIGHTS_ASKED_BACK);
            }
            Mode::Pull => drop(annotations.remove(labels::DELIVERY)),
        }
        let live = self.writer.replace(&changed).await?;
        tracing::info!(?to, "the cluster's mode of delivery has changed");
        self.world.clusters.observe(live);
        self.wake(&cluster.name_any());
        Ok(())
    }

    /// The mark goes, and what was said of it, unless something is left on the cluster of the old mode.
    async fn migrated(
        &self,
        cluster: &MemberCluster,
        left: Option<&str>,
    ) -> Result<Next, ApiError> {
        let mut live = cluster.clone();
        if let Some(message) = left {
            // Before the mark goes: who waits for that reads it.
            let mut status = live.status.clone().unwrap_or_default();
            set(
                status.conditions.get_or_insert_default(),
                NewCondition {
                    type_: MIGRATING,
                    status: Status::False,
                    reason: LEFT_BEHIND,
                    message: message.to_owned(),
                    observed_generation: live.metadata.generation,
                },
                clock::now(),
            );
            live = self.put_status(&live, status).await?;
            self.world
                .observer
                .cluster_left_behind(&live, LEFT_BEHIND, message);
        }
        let marks = [labels::MIGRATE_TO, labels::RIGHTS_ASKED_BACK];
        let marked = |mark: &&str| live.annotations().contains_key(*mark);
        if marks.iter().any(marked) {
            for mark in marks {
                live.annotations_mut().remove(mark);
            }
            live = self.writer.replace(&live).await?;
            self.world.clusters.observe(live.clone());
        }
        let mut status = live.status.clone().unwrap_or_default();
        if left.is_none()
            && status
                .conditions
                .as_mut()
                .is_some_and(|list| remove(list, MIGRATING))
        {
            self.put_status(&live, status).await?;
        }
        tracing::info!("the change of the cluster's mode of delivery is complete");
        Ok(Next::After(PERIOD))
    }

    /// What was said of a change of mode goes when there is none any more: its mark was taken off.
    pub(super) async fn end_migrating(
        &self,
        cluster: Arc<MemberCluster>,
    ) -> Result<Arc<MemberCluster>, ApiError> {
        if !self.writer.gate().is_open() {
            return Ok(cluster);
        }
        match without_migrating(&cluster) {
            Some(status) => Ok(Arc::new(self.put_status(&cluster, status).await?)),
            None => Ok(cluster),
        }
    }

    async fn say_migrating(
        &self,
        cluster: &MemberCluster,
        message: &str,
    ) -> Result<Next, ApiError> {
        let mut status = cluster.status.clone().unwrap_or_default();
        let to = match self.changes_to(cluster) {
            Some(Mode::Push) => "ToPush",
            _ => "ToPull",
        };
        let new = NewCondition {
            type_: MIGRATING,
            status: Status::True,
            reason: to,
            message: message.to_owned(),
            observed_generation: cluster.metadata.generation,
        };
        if set(status.conditions.get_or_insert_default(), new, clock::now()) {
            self.put_status(cluster, status).await?;
        }
        Ok(Next::After(PERIOD))
    }
}

/// Names of placements, and why the cluster does not have what is wanted of the first of which that is known.
fn in_words(mut left: Vec<(String, Option<String>)>) -> Option<String> {
    left.sort();
    let names: Vec<&str> = left.iter().map(|(name, _)| name.as_str()).collect();
    let named = names.get(..NAMED).unwrap_or(&names).join(", ");
    let number = (!left.is_empty()).then_some(left.len())?;
    let known = left
        .iter()
        .find_map(|(name, why)| Some((name, why.as_ref()?)));
    let trouble = known.map_or_else(String::new, |(name, why)| {
        format!("; {name}: {why}; mend that, or take {name} off the cluster")
    });
    Some(format!("{number} placement(s), {named}{trouble}"))
}

/// The status without a change of mode that goes on, if it has one. That something is left behind of one that
/// is over stays.
fn without_migrating(cluster: &MemberCluster) -> Option<MemberClusterStatus> {
    let mut status = cluster.status.clone()?;
    let list = status.conditions.as_mut()?;
    (is_true(list, MIGRATING) && remove(list, MIGRATING)).then_some(status)
}

/// Whether the hub does not need an agent's Works for a binding any more. They alone tell under which
/// AppliedWorks the agent had the objects, also of a binding that is being deleted.
fn is_taken_over(binding: &Binding, has_works: bool, is_applied: bool) -> bool {
    if binding.metadata.deletion_timestamp.is_some() {
        return !has_works;
    }
    is_applied
}

/// What the end of the hub's rights on a cluster in pull mode waits for. `left`: placements that no agent has
/// reported on; `trouble`: why the hub can't reach the cluster.
fn holds_push(joined: Option<bool>, left: Option<&str>, trouble: Option<&str>) -> Option<String> {
    match (left, trouble) {
        // The mode may have been set by hand.
        _ if joined != Some(true) => Some(
            "Waiting for an agent to join; until then the hub keeps its rights on the cluster, with which \
             `windlass migrate --to push` goes back"
                .to_owned(),
        ),
        (Some(left), Some(trouble)) => Some(format!(
            "Waiting for the hub to reach the cluster for {left}: {trouble}"
        )),
        (Some(left), None) => Some(format!(
            "Waiting for the cluster's agent to report on {left}"
        )),
        (None, _) => None,
    }
}

fn reports_diff(binding: &Binding) -> bool {
    let strategy = binding.spec.apply_strategy.as_ref();
    strategy.and_then(|strategy| strategy.type_) == Some(ApplyStrategyType::ReportDiff)
}

/// Whether the agent has said anything about a Work as it is now.
fn has_report(work: &WorkMeta) -> bool {
    let status = work.status.as_ref();
    [Stage::Applied, Stage::DiffReported].iter().any(|stage| {
        status
            .and_then(|status| find(&status.conditions, stage.as_str()))
            .is_some_and(|condition| condition.observed_generation == work.metadata.generation)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn works_are_kept_until_the_hub_has_what_was_in_them() {
        let binding = |deleted: bool| {
            let mut binding = Binding::default();
            let now = windlass_api::Time(clock::now());
            binding.metadata.deletion_timestamp = deleted.then_some(now);
            binding
        };
        for (about, deleted, has_works, is_applied, expected) in [
            ("applied", false, true, true, true),
            ("not yet", false, true, false, false),
            ("being deleted, with its Works", true, true, false, false),
            ("being deleted, applied before", true, true, true, false),
            ("being deleted, without any", true, false, false, true),
        ] {
            let taken = is_taken_over(&binding(deleted), has_works, is_applied);
            assert_eq!(taken, expected, "{about}");
        }
    }

    #[test]
    fn what_a_placement_suffers_from_is_named() {
        let bad = Some("no such path");
        for (left, expected) in [
            (vec![], None),
            (vec![("b", None), ("a", None)], Some("2 placement(s), a, b")),
            (
                vec![("d", bad), ("c", None), ("b", None), ("a", None)],
                Some(
                    "4 placement(s), a, b, c; d: no such path; mend that, or take d off the cluster",
                ),
            ),
        ] {
            let owned =
                |(name, why): (&str, Option<&str>)| (name.to_owned(), why.map(str::to_owned));
            let said = in_words(left.into_iter().map(owned).collect());
            assert_eq!(said.as_deref(), expected);
        }
    }

    #[test]
    fn a_change_of_mode_that_was_called_off_is_not_said_to_go_on() {
        for (status, goes) in [(None, false), (Some("True"), true), (Some("False"), false)] {
            let mut list = vec![
                json!({ "type": "Joined", "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" }),
            ];
            let migrating = status.map(|status| {
                json!({ "type": MIGRATING, "status": status, "reason": "R",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" })
            });
            list.extend(migrating);
            let cluster = MemberCluster {
                status: serde_json::from_value(json!({ "conditions": list })).unwrap(),
                ..MemberCluster::default()
            };
            let next = without_migrating(&cluster).map(|status| status.conditions.unwrap());
            assert_eq!(next.map(|list| list.len()), goes.then_some(1), "{status:?}");
        }
        assert_eq!(without_migrating(&MemberCluster::default()), None);
    }

    #[test]
    fn the_hub_keeps_its_rights_until_an_agent_has_everything() {
        let joins = Some("an agent to join");
        for (joined, left, trouble, expected) in [
            (None, None, None, joins),
            (Some(false), None, None, joins),
            (None, Some("web"), Some("refused"), joins),
            (Some(true), Some("web"), None, Some("to report on web")),
            (
                Some(true),
                Some("web"),
                Some("refused"),
                Some("to reach the cluster for web: refused"),
            ),
            (Some(true), None, Some("refused"), None),
            (Some(true), None, None, None),
        ] {
            let why = holds_push(joined, left, trouble);
            let fits = match (&why, expected) {
                (Some(why), Some(expected)) => why.contains(expected),
                (why, expected) => why.is_none() && expected.is_none(),
            };
            assert!(fits, "{joined:?} {left:?} {trouble:?}: {why:?}");
        }
    }
}
