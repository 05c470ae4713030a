//! Snapshots of a placement's policy and of its resources (API §3.5, §3.6).

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::placement::PlacementPolicy;
use crate::raw::RawObject;

/// ClusterSchedulingPolicySnapshot is one version of a placement's policy, with the decisions made for it.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "placement.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "ClusterSchedulingPolicySnapshot",
    plural = "clusterschedulingpolicysnapshots",
    shortname = "csps",
    category = "fleet",
    category = "fleet-placement",
    status = "PolicySnapshotStatus",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Gen", type_ = "string", json_path = ".metadata.generation"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct PolicySnapshotSpec {
    /// The policy, without PickN's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PlacementPolicy>,
    /// Hash of the policy, without PickN's number.
    #[schemars(with = "String", extend("format" = "byte"))]
    pub policy_hash: ByteString,
}

/// What the scheduler decided.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySnapshotStatus {
    /// Placement generation that the decisions are for.
    #[serde(rename = "observedCRPGeneration")]
    pub observed_crp_generation: i64,
    /// `Scheduled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Selected clusters and some of the others, with the reasons.
    #[serde(rename = "targetClusters", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    pub cluster_decisions: Option<Vec<ClusterDecision>>,
}

/// Whether a cluster was chosen, and why (API §2.9).
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDecision {
    /// The cluster.
    pub cluster_name: String,
    /// Chosen or not.
    pub selected: bool,
    /// Its score; absent where nothing was scored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_score: Option<ClusterScore>,
    /// Why, in words.
    pub reason: String,
}

/// Score of a cluster.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterScore {
    /// Sum over the preferred affinity terms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity_score: Option<i32>,
    /// Topology spread score.
    #[serde(rename = "priorityScore", skip_serializing_if = "Option::is_none")]
    pub topology_spread_score: Option<i32>,
}

/// ClusterResourceSnapshot is one version of a placement's resources, or a part of one.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "placement.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "ClusterResourceSnapshot",
    plural = "clusterresourcesnapshots",
    shortname = "crs",
    category = "fleet",
    category = "fleet-placement",
    status = "ResourceSnapshotStatus",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Gen", type_ = "string", json_path = ".metadata.generation"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSnapshotSpec {
    /// The manifests, sanitised, in a fixed order.
    pub selected_resources: Vec<RawObject>,
}

/// Declared by the API; nothing writes it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSnapshotStatus {
    /// Conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}
