//! Overrides and their snapshots (API §2.10, §3.8, §3.9): what differs on some clusters.

use k8s_openapi::ByteString;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::placement::{ClusterSelector, ResourceSelectorTerm};
use crate::raw::RawValue;

/// ClusterResourceOverride changes cluster-scoped objects, and everything in named namespaces, on some
/// clusters.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "placement.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "ClusterResourceOverride",
    plural = "clusterresourceoverrides",
    category = "fleet",
    category = "fleet-placement",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterResourceOverrideSpec {
    /// The one placement that the override is for; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementRef>,
    /// The objects; a Namespace stands for everything in it, too.
    #[schemars(length(min = 1, max = 20))]
    pub cluster_resource_selectors: Vec<ResourceSelectorTerm>,
    /// What changes where.
    pub policy: OverridePolicy,
}

/// ResourceOverride changes objects of its namespace on some clusters.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "placement.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "ResourceOverride",
    plural = "resourceoverrides",
    namespaced,
    category = "fleet",
    category = "fleet-placement",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceOverrideSpec {
    /// The one placement that the override is for; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementRef>,
    /// The objects, in the override's own namespace.
    #[schemars(length(min = 1, max = 20))]
    pub resource_selectors: Vec<ResourceSelector>,
    /// What changes where.
    pub policy: OverridePolicy,
}

/// Names a placement.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementRef {
    /// Name of the placement.
    pub name: String,
    /// Which kind of placement; a namespaced one is in the override's own namespace. Absent means Cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Cluster"))]
    pub scope: Option<ResourceScope>,
}

/// Which kind of placement is meant.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum ResourceScope {
    /// A ClusterResourcePlacement.
    Cluster,
    /// A ResourcePlacement.
    Namespaced,
}

/// Names an object in the override's namespace.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelector {
    /// API group; empty means the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

/// What changes where (API §2.10).
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverridePolicy {
    /// The rules; every one that matches a cluster applies, in order, up to a Delete.
    #[schemars(length(min = 1, max = 20))]
    pub override_rules: Vec<OverrideRule>,
}

/// What changes on the clusters that a selector matches.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverrideRule {
    /// The clusters, by label: absent means none, a list without terms means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_selector: Option<ClusterSelector>,
    /// Whether objects are patched or left out; absent means JSONPatch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "JSONPatch"))]
    pub override_type: Option<OverrideType>,
    /// The patches, applied in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 20))]
    pub json_patch_overrides: Option<Vec<JsonPatchOverride>>,
}

/// What a rule does to an object.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum OverrideType {
    /// It is patched.
    #[serde(rename = "JSONPatch")]
    JsonPatch,
    /// It is not placed.
    Delete,
}

/// One operation of a JSON patch (RFC 6902).
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JsonPatchOverride {
    /// What is done.
    pub op: JsonPatchOperator,
    /// JSON pointer of the field (RFC 6901).
    pub path: String,
    /// The value; absent for remove. In its strings, variables are replaced (API §5.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<RawValue>,
}

/// The operations that an override may use.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JsonPatchOperator {
    /// Adds a field, or inserts into a list.
    Add,
    /// Removes a field that is there.
    Remove,
    /// Replaces a field that is there.
    Replace,
}

/// ClusterResourceOverrideSnapshot is one version of a ClusterResourceOverride.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "placement.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "ClusterResourceOverrideSnapshot",
    plural = "clusterresourceoverridesnapshots",
    category = "fleet",
    category = "fleet-placement",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterResourceOverrideSnapshotSpec {
    /// The override's spec at that time.
    pub override_spec: ClusterResourceOverrideSpec,
    /// Hash of the spec.
    #[schemars(with = "String", extend("format" = "byte"))]
    pub override_hash: ByteString,
}

/// ResourceOverrideSnapshot is one version of a ResourceOverride.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "placement.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "ResourceOverrideSnapshot",
    plural = "resourceoverridesnapshots",
    namespaced,
    category = "fleet",
    category = "fleet-placement",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceOverrideSnapshotSpec {
    /// The override's spec at that time.
    pub override_spec: ResourceOverrideSpec,
    /// Hash of the spec.
    #[schemars(with = "String", extend("format" = "byte"))]
    pub override_hash: ByteString,
}
