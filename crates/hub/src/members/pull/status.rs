//! What a MemberCluster's status says of a cluster with an agent, as a pure function of what the agent has
//! reported (API §4.8, hub §6.1, design §5.21).
//!
//! | what moves | written |
//! |---|---|
//! | a condition, a property's value, capacity, what is allocatable, namespaces | at once |
//! | what is available | when by more than 5 % |
//! | the heartbeat, and times of observations | with anything else, and else at their pace; after a restart their pace begins anew |
//!
//! A heartbeat's time is the hub's own: that of when it came. An agent whose clock is wrong is neither
//! given up nor trusted for that.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use windlass_api::conditions::Status;
use windlass_api::member::{AgentStatus, MemberCluster, MemberClusterStatus, ResourceUsage};
use windlass_api::pull::InternalMemberClusterStatus;
use windlass_api::{Condition, Time};
use windlass_status::conditions::{NewCondition, find, is_true, set, status};

use crate::members::status::MEMBER_AGENT;
use crate::members::usage::{moved, thousandths};

/// Types of the cluster's own conditions: an agent does not write these.
const OWN: [&str; 5] = [
    "ReadyToJoin",
    "Joined",
    "Healthy",
    "CredentialsValid",
    "Migrating",
];

/// What is known of a cluster with an agent.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// What the agent has reported.
    pub report: Option<&'a InternalMemberClusterStatus>,
    /// Generation of what it is told.
    pub told: Option<i64>,
    /// Why the agent can't join, if the hub could not prepare for it.
    pub not_ready: Option<String>,
    /// When it was last heard of, since this process began.
    pub heard: Option<Timestamp>,
    /// For how long, at least, nothing was heard of it, once that is too long.
    pub silent: Option<Duration>,
    /// Shortest time between two heartbeat writes.
    pub heartbeat_every: Duration,
    /// Whether this process has known the cluster for long enough to write a heartbeat alone: right after a
    /// restart many would be due.
    pub is_settled: bool,
}

/// The status to write; none when what is there says it all.
#[must_use]
pub fn desired(
    cluster: &MemberCluster,
    facts: &Facts<'_>,
    now: Timestamp,
) -> Option<MemberClusterStatus> {
    let previous = cluster.status.clone().unwrap_or_default();
    let mut next = previous.clone();
    let generation = cluster.metadata.generation;
    own_conditions(&mut next, facts, generation, now);
    if let Some(report) = facts.report {
        agents(&mut next, report, generation, now);
        provider_conditions(&mut next, report, generation, now);
        observations(&mut next, report);
    }
    let due = is_due(&previous, facts);
    if next == previous && !due {
        return None;
    }
    if let Some(report) = facts.report {
        next.properties.clone_from(&report.properties);
        next.resource_usage.clone_from(&report.resource_usage);
    }
    if let (Some(heard), Some(agent)) = (facts.heard, agent_mut(&mut next)) {
        agent.last_received_heartbeat = Some(Time(heard));
    }
    (next != previous).then_some(next)
}

/// Whether the heartbeat is to be written even alone.
fn is_due(previous: &MemberClusterStatus, facts: &Facts<'_>) -> bool {
    let Some(heard) = facts.heard else {
        return false;
    };
    let every = SignedDuration::try_from(facts.heartbeat_every).unwrap_or(SignedDuration::MAX);
    agent_of(previous.agent_status.as_deref())
        .and_then(|agent| agent.last_received_heartbeat.as_ref())
        .is_none_or(|last| facts.is_settled && heard.duration_since(last.0) >= every)
}

fn agent_of(agents: Option<&[AgentStatus]>) -> Option<&AgentStatus> {
    agents?.iter().find(|agent| agent.type_ == MEMBER_AGENT)
}

fn agent_mut(status: &mut MemberClusterStatus) -> Option<&mut AgentStatus> {
    status
        .agent_status
        .iter_mut()
        .flatten()
        .find(|agent| agent.type_ == MEMBER_AGENT)
}

/// Whether the agent says that it has joined; none while it says neither. That it has left counts only as the
/// answer to what it is told now: it may have left, and been told to join again, before.
#[must_use]
pub fn has_joined(
    report: Option<&InternalMemberClusterStatus>,
    generation: Option<i64>,
) -> Option<bool> {
    let agent = agent_of(report?.agent_status.as_deref())?;
    let joined = find(agent.conditions.as_deref()?, "Joined")?;
    match status(joined) {
        Status::True => Some(true),
        Status::False if joined.observed_generation == generation => Some(false),
        Status::False | Status::Unknown => None,
    }
}

/// Reason of a cluster whose agent is silent.
const UNREACHABLE: &str = "MemberClusterUnreachable";

fn own_conditions(
    next: &mut MemberClusterStatus,
    facts: &Facts<'_>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let list = next.conditions.get_or_insert_default();
    let healthy = find(list, "Healthy");
    let had_reported = healthy.is_some();
    // Right after a restart nothing was heard yet of an agent that was silent before it.
    let still_silent = facts.heard.is_none()
        && facts.silent.is_none()
        && healthy.is_some_and(|healthy| healthy.reason == UNREACHABLE);
    let mut put = |type_, status, reason, message: String| {
        let new = NewCondition {
            type_,
            status,
            reason,
            message,
            observed_generation: generation,
        };
        set(list, new, now);
    };
    match &facts.not_ready {
        None => put(
            "ReadyToJoin",
            Status::True,
            "MemberClusterReadyToJoin",
            "The hub is ready for the cluster's agent".to_owned(),
        ),
        Some(why) => put(
            "ReadyToJoin",
            Status::False,
            "MemberClusterNotReadyToJoin",
            why.clone(),
        ),
    }
    let (joined, reason, message) = match has_joined(facts.report, facts.told) {
        Some(true) => (Status::True, "MemberClusterJoined", "The agent has joined"),
        Some(false) => (Status::False, "MemberClusterLeft", "The agent has left"),
        None => (
            Status::Unknown,
            "MemberClusterJoinStateUnknown",
            "The agent has not reported that it has joined",
        ),
    };
    put("Joined", joined, reason, message.to_owned());
    let agent = facts
        .report
        .and_then(|report| agent_of(report.agent_status.as_deref()))
        .and_then(|agent| agent.conditions.as_deref())
        .and_then(|list| find(list, "Healthy"));
    match (
        agent.map(|condition| (status(condition), &condition.message)),
        facts.silent,
    ) {
        _ if still_silent => {}
        (agent, Some(silent)) if agent.is_some() || had_reported => put(
            "Healthy",
            Status::False,
            UNREACHABLE,
            format!(
                "The agent has not reported for more than {} s",
                silent.as_secs()
            ),
        ),
        (Some((Status::True, _)), None) => put(
            "Healthy",
            Status::True,
            "MemberClusterHealthy",
            "The agent reports that the cluster is healthy".to_owned(),
        ),
        (Some((Status::False, message)), None) => put(
            "Healthy",
            Status::False,
            "MemberClusterUnhealthy",
            format!("The agent reports: {message}"),
        ),
        (agent, None) if agent.is_some() || had_reported => put(
            "Healthy",
            Status::Unknown,
            "MemberClusterHealthUnknown",
            "The agent does not report how the cluster is".to_owned(),
        ),
        _ => {}
    }
}

/// The agents' entries, with the conditions about the cluster's generation; times stay with their status.
fn agents(
    next: &mut MemberClusterStatus,
    report: &InternalMemberClusterStatus,
    generation: Option<i64>,
    now: Timestamp,
) {
    let Some(reported) = &report.agent_status else {
        return;
    };
    let previous = next.agent_status.take().unwrap_or_default();
    let entry = |agent: &AgentStatus| {
        let old = previous.iter().find(|old| old.type_ == agent.type_);
        let before = old
            .and_then(|old| old.conditions.as_deref())
            .unwrap_or_default();
        let conditions = agent.conditions.iter().flatten().map(|condition| {
            let since = condition.last_transition_time.0;
            taken_over(condition, generation).build_since(before, since, now)
        });
        AgentStatus {
            type_: agent.type_.clone(),
            conditions: agent.conditions.as_ref().map(|_| conditions.collect()),
            // The hub's clock says when it came.
            last_received_heartbeat: old.and_then(|old| old.last_received_heartbeat.clone()),
        }
    };
    let entries = reported.iter().map(entry).collect();
    next.agent_status = Some(entries);
}

fn provider_conditions(
    next: &mut MemberClusterStatus,
    report: &InternalMemberClusterStatus,
    generation: Option<i64>,
    now: Timestamp,
) {
    let list = next.conditions.get_or_insert_default();
    let reported = report.conditions.as_deref().unwrap_or_default();
    list.retain(|old| OWN.contains(&old.type_.as_str()) || find(reported, &old.type_).is_some());
    for condition in reported {
        if OWN.contains(&condition.type_.as_str()) {
            continue;
        }
        set(list, taken_over(condition, generation), now);
    }
}

/// A reported condition, about the MemberCluster's generation.
fn taken_over(condition: &Condition, generation: Option<i64>) -> NewCondition<'_> {
    NewCondition {
        type_: &condition.type_,
        status: status(condition),
        reason: &condition.reason,
        message: condition.message.clone(),
        observed_generation: generation,
    }
}

/// What is worth a write by itself.
fn observations(next: &mut MemberClusterStatus, report: &InternalMemberClusterStatus) {
    let values = |status: &Option<BTreeMap<String, windlass_api::member::PropertyValue>>| {
        let properties = status.clone().unwrap_or_default();
        properties
            .into_iter()
            .map(|(name, property)| (name, property.value))
            .collect::<BTreeMap<_, _>>()
    };
    if values(&next.properties) != values(&report.properties) {
        next.properties.clone_from(&report.properties);
    }
    if has_moved(next.resource_usage.as_ref(), report.resource_usage.as_ref()) {
        next.resource_usage.clone_from(&report.resource_usage);
    }
    next.namespaces.clone_from(&report.namespaces);
}

fn has_moved(old: Option<&ResourceUsage>, new: Option<&ResourceUsage>) -> bool {
    let (Some(old), Some(new)) = (old, new) else {
        return old.is_some() != new.is_some();
    };
    let amounts = |quantities: Option<&BTreeMap<String, Quantity>>| -> BTreeMap<String, i128> {
        quantities
            .into_iter()
            .flatten()
            .filter_map(|(name, quantity)| Some((name.clone(), thousandths(quantity)?)))
            .collect()
    };
    let now = amounts(new.available.as_ref());
    old.capacity != new.capacity
        || old.allocatable != new.allocatable
        || amounts(old.available.as_ref()).keys().ne(now.keys())
        || moved(old.available.as_ref(), &now)
}

/// Whether an agent has ever reported how the cluster is, by the status that is written.
#[must_use]
pub fn has_reported(cluster: &MemberCluster) -> bool {
    let list = cluster
        .status
        .as_ref()
        .and_then(|s| s.conditions.as_deref());
    find(list.unwrap_or_default(), "Healthy").is_some()
}

/// Whether the status that is written says that the agent has joined.
#[must_use]
pub fn is_joined(cluster: &MemberCluster) -> bool {
    let list = cluster
        .status
        .as_ref()
        .and_then(|s| s.conditions.as_deref());
    is_true(list.unwrap_or_default(), "Joined")
}

#[cfg(test)]
#[path = "status_test.rs"]
mod tests;
