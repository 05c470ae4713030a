//! What a placement's status says (API §2.7, §2.8, §3.3).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is selected, and how it fares, in total and per cluster (API §3.3).
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementStatus {
    /// The resources of the snapshot that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_resources: Option<Vec<ResourceIdentifier>>,
    /// Index of the snapshot that this status describes; empty when clusters disagree (External).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_resource_index: Option<String>,
    /// One entry per selected cluster, and one without a name per slot that found no cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_statuses: Option<Vec<PerClusterPlacementStatus>>,
    /// The placement as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}

/// Names one object (API §2.7).
#[derive(
    Serialize, Deserialize, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceIdentifier {
    /// API group; absent means the core group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace; absent for cluster-scoped objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The envelope that the object came in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub envelope: Option<EnvelopeIdentifier>,
}

/// Names an envelope.
#[derive(
    Serialize, Deserialize, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct EnvelopeIdentifier {
    /// Name of the envelope.
    pub name: String,
    /// Namespace of a ResourceEnvelope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Kind of the envelope.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "ConfigMap"))]
    pub type_: Option<EnvelopeType>,
}

/// Kind of an envelope.
#[derive(
    Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema,
)]
pub enum EnvelopeType {
    /// Obsolete.
    ConfigMap,
    /// Cluster-scoped manifests.
    ClusterResourceEnvelope,
    /// Manifests of one namespace.
    ResourceEnvelope,
}

/// How one cluster fares (API §2.8).
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PerClusterPlacementStatus {
    /// The cluster; absent for a slot that found none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Index of the snapshot that this cluster's conditions are about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_resource_index: Option<String>,
    /// ResourceOverride snapshots in effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applicable_resource_overrides: Option<Vec<NamespacedName>>,
    /// ClusterResourceOverride snapshots in effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applicable_cluster_resource_overrides: Option<Vec<String>>,
    /// Objects that failed to apply or to become available.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub failed_placements: Option<Vec<FailedResourcePlacement>>,
    /// Objects that were changed on the member.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub drifted_placements: Option<Vec<DriftedResourcePlacement>>,
    /// Objects whose configuration differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub diffed_placements: Option<Vec<DiffedResourcePlacement>>,
    /// The cluster's conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}

/// Name and namespace of an object.
#[derive(
    Serialize, Deserialize, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedName {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
}

/// An object that failed, and how.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedResourcePlacement {
    /// The object.
    #[serde(flatten)]
    pub identifier: ResourceIdentifier,
    /// The condition that is not True.
    pub condition: Condition,
}

/// An object that was changed on the member.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftedResourcePlacement {
    /// The object.
    #[serde(flatten)]
    pub identifier: ResourceIdentifier,
    /// When the drift was last looked at.
    pub observation_time: Time,
    /// Generation of the member's object.
    pub target_cluster_observed_generation: i64,
    /// When the drift was first seen.
    pub first_drifted_observed_time: Time,
    /// What differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_drifts: Option<Vec<PatchDetail>>,
}

/// An object whose configuration differs.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiffedResourcePlacement {
    /// The object.
    #[serde(flatten)]
    pub identifier: ResourceIdentifier,
    /// When the difference was last looked at.
    pub observation_time: Time,
    /// Generation of the member's object; absent when it does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_cluster_observed_generation: Option<i64>,
    /// When the difference was first seen.
    pub first_diffed_observed_time: Time,
    /// What differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_diffs: Option<Vec<PatchDetail>>,
}

/// One differing field (API §2.7).
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PatchDetail {
    /// JSON pointer of the field.
    pub path: String,
    /// The member's value; absent when the member has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_in_member: Option<String>,
    /// The hub's value; absent when the hub has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_in_hub: Option<String>,
}
