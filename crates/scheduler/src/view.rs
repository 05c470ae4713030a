//! What a scheduling decision is made from.

use std::collections::BTreeMap;

use jiff::Timestamp;
use windlass_api::binding::BindingState;
use windlass_api::conditions::Status;
use windlass_api::member::{
    AgentStatus, MemberCluster, MemberClusterStatus, PropertyValue, ResourceUsage, Taint,
};
use windlass_api::placement::PlacementPolicy;
use windlass_api::snapshot::ClusterScore;

/// Everything that decides where a placement goes.
#[derive(Clone, Copy, Debug)]
pub struct SchedulingView<'a> {
    /// The placement's policy, with PickN's number; `None` means PickAll.
    pub policy: Option<&'a PlacementPolicy>,
    /// The placement's namespace, when it has one: a cluster that reports its namespaces has to have it.
    pub namespace: Option<&'a str>,
    /// Every member cluster of the hub, in any order.
    pub clusters: &'a [ClusterView<'a>],
    /// Every binding of the placement, in any order.
    pub existing: &'a [ExistingBinding<'a>],
}

/// What the scheduler looks at in a MemberCluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterView<'a> {
    /// Name of the MemberCluster.
    pub name: &'a str,
    /// It has a deletion timestamp: it is leaving the fleet.
    pub deleting: bool,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Its taints.
    pub taints: &'a [Taint],
    /// Its properties (`status.properties`).
    pub properties: &'a BTreeMap<String, PropertyValue>,
    /// Its capacity and use (`status.resourceUsage`).
    pub usage: Option<&'a ResourceUsage>,
    /// The namespaces that it has.
    pub namespaces: Namespaces<'a>,
    /// Whether it takes part in the fleet right now.
    pub membership: Membership,
}

/// What is known of a cluster's namespaces (hub §1.7.4, NamespaceAffinity).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespaces<'a> {
    /// The cluster doesn't report them: no reason to keep anything away.
    NotCollected,
    /// It says that it does, but hasn't yet.
    Missing,
    /// Their names, with whom they belong to.
    Known(&'a BTreeMap<String, String>),
}

/// What decides whether new placements may go to a cluster (API §8.1).
///
/// The hub may know of later contact than `lastReceivedHeartbeat` says, since that is written rarely
/// (design §5.21): it overwrites [`Membership::last_heartbeat`] with what it has in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Membership {
    /// The status has an entry of the member agent.
    pub reported: bool,
    /// The agent's Joined condition is True.
    pub joined: bool,
    /// The agent's Healthy condition; `None` when there is none.
    pub health: Option<Health>,
    /// The last time the member was heard of.
    pub last_heartbeat: Option<Timestamp>,
}

/// The agent's Healthy condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Its status is True.
    pub healthy: bool,
    /// When the status last changed.
    pub since: Timestamp,
}

/// A binding that the placement has.
#[derive(Clone, Debug)]
pub struct ExistingBinding<'a> {
    /// Its target cluster.
    pub cluster: &'a str,
    /// Its state.
    pub state: BindingState,
    /// It has a deletion timestamp; its cluster counts as free.
    pub deleting: bool,
    /// It was selected under the latest policy snapshot. If not, its cluster has to qualify again.
    pub current_policy: bool,
    /// The score in its cluster decision.
    pub score: Option<ClusterScore>,
}

const NO_LABELS: &BTreeMap<String, String> = &BTreeMap::new();
const NO_PROPERTIES: &BTreeMap<String, PropertyValue> = &BTreeMap::new();
/// Type of the condition of a cluster that reports its namespaces, whatever its status: False means that
/// there are more than it reports.
pub const NAMESPACES_COLLECTED: &str = "NamespaceCollectionSucceeded";
/// Type of the agent entry that eligibility is judged by.
const MEMBER_AGENT: &str = "MemberAgent";

impl<'a> ClusterView<'a> {
    /// Reads a MemberCluster. A missing name gives an empty one.
    #[must_use]
    pub fn of(member: &'a MemberCluster) -> Self {
        let status = member.status.as_ref();
        ClusterView {
            name: member.metadata.name.as_deref().unwrap_or_default(),
            deleting: member.metadata.deletion_timestamp.is_some(),
            labels: member.metadata.labels.as_ref().unwrap_or(NO_LABELS),
            taints: member.spec.taints.as_deref().unwrap_or_default(),
            properties: status
                .and_then(|s| s.properties.as_ref())
                .unwrap_or(NO_PROPERTIES),
            usage: status.and_then(|s| s.resource_usage.as_ref()),
            namespaces: status.map_or(Namespaces::NotCollected, Namespaces::of),
            membership: status
                .and_then(|s| s.agent_status.as_ref())
                .and_then(|agents| agents.iter().find(|agent| agent.type_ == MEMBER_AGENT))
                .map(Membership::of)
                .unwrap_or_default(),
        }
    }
}

impl<'a> Namespaces<'a> {
    /// Reads the status of a MemberCluster.
    #[must_use]
    pub fn of(status: &'a MemberClusterStatus) -> Self {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        if !conditions.iter().any(|c| c.type_ == NAMESPACES_COLLECTED) {
            return Self::NotCollected;
        }
        status
            .namespaces
            .as_ref()
            .map_or(Self::Missing, Self::Known)
    }
}

impl Membership {
    /// Reads the member agent's entry.
    #[must_use]
    pub fn of(agent: &AgentStatus) -> Self {
        let conditions = agent.conditions.as_deref().unwrap_or_default();
        let find = |type_: &str| conditions.iter().find(|c| c.type_ == type_);
        let is_true = |status: &str| Status::parse(status) == Status::True;
        Membership {
            reported: true,
            joined: find("Joined").is_some_and(|c| is_true(&c.status)),
            health: find("Healthy").map(|c| Health {
                healthy: is_true(&c.status),
                since: c.last_transition_time.0,
            }),
            last_heartbeat: agent.last_received_heartbeat.as_ref().map(|time| time.0),
        }
    }
}
