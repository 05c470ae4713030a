//! What the hub and a member's agent say to each other (API §3.2, §3.10): the hub writes the specs, the
//! agent the statuses. Both kinds live in the member's namespace on the hub.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::member::{AgentStatus, PropertyValue, ResourceUsage};
use crate::placement::{ApplyStrategy, PatchDetail, ReportBackStrategy};
use crate::raw::RawObject;

/// InternalMemberCluster is where a member's agent learns whether it belongs to the fleet, and reports.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "cluster.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "InternalMemberCluster",
    plural = "internalmemberclusters",
    shortname = "imc",
    category = "fleet",
    category = "fleet-cluster",
    namespaced,
    status = "InternalMemberClusterStatus",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct InternalMemberClusterSpec {
    /// Whether the cluster is to be in the fleet.
    pub state: MembershipState,
    /// How often the agent reports, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 600), extend("default" = 60))]
    pub heartbeat_period_seconds: Option<i32>,
}

/// Whether a cluster is to be in the fleet. Not an enum in the schema.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default, JsonSchema)]
#[serde(from = "String", into = "String")]
#[schemars(with = "String")]
pub enum MembershipState {
    /// It is.
    #[default]
    Join,
    /// It is to leave.
    Leave,
    /// Written by somebody else; agents ignore it.
    Other(String),
}

impl MembershipState {
    /// The string in the object.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Join => "Join",
            Self::Leave => "Leave",
            Self::Other(text) => text,
        }
    }
}

impl From<String> for MembershipState {
    fn from(text: String) -> Self {
        match text.as_str() {
            "Join" => Self::Join,
            "Leave" => Self::Leave,
            _ => Self::Other(text),
        }
    }
}

impl From<MembershipState> for String {
    fn from(state: MembershipState) -> Self {
        state.as_str().to_owned()
    }
}

/// What the member's agents report.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InternalMemberClusterStatus {
    /// How the collection of properties fares (API §4.8).
    #[serde(skip_serializing_if = "Option::is_none")]
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

/// Work is what one placement wants on one cluster, or a part of it.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "placement.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "Work",
    plural = "works",
    category = "fleet",
    category = "fleet-placement",
    namespaced,
    status = "WorkStatus",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct WorkSpec {
    /// The objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadTemplate>,
    /// How they are applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apply_strategy: Option<ApplyStrategy>,
    /// Whether their status is mirrored to the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_back_strategy: Option<ReportBackStrategy>,
}

/// The objects of a Work.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadTemplate {
    /// Whole objects; their order defines their ordinals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifests: Option<Vec<RawObject>>,
}

/// How a Work fares. Written by the agent alone.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkStatus {
    /// Applied, Available, DiffReported, StatusTrimmed (API §4.5).
    pub conditions: Vec<Condition>,
    /// One per object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest_conditions: Option<Vec<ManifestCondition>>,
}

/// How one object fares.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestCondition {
    /// Which object.
    pub identifier: WorkResourceIdentifier,
    /// Applied, Available, DiffReported (API §4.6).
    pub conditions: Vec<Condition>,
    /// What somebody changed on the member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift_details: Option<DriftDetails>,
    /// How the member's object differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff_details: Option<DiffDetails>,
    /// The object's status, mirrored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back_reported_status: Option<BackReportedStatus>,
}

/// Names an object of a Work.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkResourceIdentifier {
    /// Position among the manifests.
    #[schemars(transform = crate::raw::plain_integer)]
    pub ordinal: i32,
    /// API group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// API version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Plural name of the kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What somebody changed on the member.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftDetails {
    /// When it was last looked at.
    pub observation_time: Time,
    /// Generation of the member's object.
    pub observed_in_member_cluster_generation: i64,
    /// When it was first seen.
    pub first_drifted_observed_time: Time,
    /// What differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_drifts: Option<Vec<PatchDetail>>,
}

/// How the member's object differs.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiffDetails {
    /// When it was last looked at.
    pub observation_time: Time,
    /// Generation of the member's object; absent when it does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_in_member_cluster_generation: Option<i64>,
    /// When it was first seen.
    pub first_diffed_observed_time: Time,
    /// What differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_diffs: Option<Vec<PatchDetail>>,
}

/// An object's status, mirrored.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackReportedStatus {
    /// apiVersion, kind and status of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_status: Option<RawObject>,
    /// When it was read.
    pub observation_time: Time,
}
