//! MemberCluster: a cluster of the fleet (API §3.1).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::placement::TaintEffect;

/// MemberCluster is a cluster that has joined, or is to join, the fleet.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "cluster.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "MemberCluster",
    plural = "memberclusters",
    shortname = "cluster",
    category = "fleet",
    category = "fleet-cluster",
    status = "MemberClusterStatus",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Joined",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Joined")].status"#
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Member-Agent-Last-Seen",
        type_ = "date",
        json_path = r#".status.agentStatus[?(@.type=="MemberAgent")].lastReceivedHeartbeat"#
    ),
    printcolumn(
        name = "Node-Count",
        type_ = "string",
        json_path = r".status.properties.kubernetes-fleet\.io/node-count.value"
    ),
    printcolumn(
        name = "Available-CPU",
        type_ = "string",
        json_path = ".status.resourceUsage.available.cpu"
    ),
    printcolumn(
        name = "Available-Memory",
        type_ = "string",
        json_path = ".status.resourceUsage.available.memory"
    ),
    printcolumn(
        name = "Allocatable-CPU",
        type_ = "string",
        json_path = ".status.resourceUsage.allocatable.cpu",
        priority = 1
    ),
    printcolumn(
        name = "Allocatable-Memory",
        type_ = "string",
        json_path = ".status.resourceUsage.allocatable.memory",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct MemberClusterSpec {
    /// Identity with which the member's agent reaches the hub.
    pub identity: Identity,
    /// How often the member reports, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 600), extend("default" = 60))]
    pub heartbeat_period_seconds: Option<i32>,
    /// What keeps placements away.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub taints: Option<Vec<Taint>>,
    /// Options for the deletion of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_options: Option<DeleteOptions>,
}

/// An RBAC subject.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct Identity {
    /// API group of the subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// `User`, `Group` or `ServiceAccount`.
    pub kind: String,
    /// Name of the subject.
    pub name: String,
    /// Namespace of a ServiceAccount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Keeps placements that don't tolerate it away.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Effect.
    pub effect: TaintEffect,
}

/// Options for the deletion of a member cluster.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteOptions {
    /// Whether admission checks the deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Strict"))]
    pub validation_mode: Option<DeleteValidationMode>,
}

/// Whether admission checks the deletion.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum DeleteValidationMode {
    /// No check.
    Skip,
    /// Check.
    Strict,
}

/// Why a cluster that leaves is not Joined any more: reasons of that condition, which the hub writes and
/// `windlass leave` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// It leaves in order.
    Left,
    /// It leaves, and something of ours stays on it; the message says what.
    LeftBehind,
}

impl Leaving {
    /// As it stands in the condition.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Left => "MemberClusterLeft",
            Self::LeftBehind => "MemberClusterLeftBehind",
        }
    }

    /// The reason of that name; none for those of clusters that don't leave.
    #[must_use]
    pub fn of(reason: &str) -> Option<Self> {
        [Self::Left, Self::LeftBehind]
            .into_iter()
            .find(|leaving| leaving.as_str() == reason)
    }
}

/// What is known of a member cluster.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberClusterStatus {
    /// ReadyToJoin, Joined, Healthy and more (API §4.8).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Properties by name (API §10.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub properties: Option<BTreeMap<String, PropertyValue>>,
    /// Capacity and use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_usage: Option<ResourceUsage>,
    /// One entry per agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_status: Option<Vec<AgentStatus>>,
    /// Namespaces on the member, with the AppliedWork that owns each (empty when none does).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<BTreeMap<String, String>>,
}

/// Value of a property.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PropertyValue {
    /// The value; a quantity where selectors use it.
    pub value: String,
    /// When it was read.
    pub observation_time: Time,
}

/// Capacity and use of a cluster.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUsage {
    /// Total of all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<BTreeMap<String, Quantity>>,
    /// What pods may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<BTreeMap<String, Quantity>>,
    /// What pods have not requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<BTreeMap<String, Quantity>>,
    /// When it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observation_time: Option<Time>,
}

/// What one agent reported.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// `MemberAgent` and others.
    #[serde(rename = "type")]
    pub type_: String,
    /// Joined, Healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Last time the member was heard of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_received_heartbeat: Option<Time>,
}
