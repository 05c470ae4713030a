//! ClusterResourceBinding: one placement on one cluster (API §3.7).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::placement::{
    ApplyStrategy, DiffedResourcePlacement, DriftedResourcePlacement, FailedResourcePlacement,
    NamespacedName,
};
use crate::snapshot::ClusterDecision;

/// ClusterResourceBinding says which snapshot of a placement one cluster runs, and how it fares there.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "placement.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "ClusterResourceBinding",
    plural = "clusterresourcebindings",
    shortname = "crb",
    category = "fleet",
    category = "fleet-placement",
    status = "BindingStatus",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "WorkSynchronized",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="WorkSynchronized")].status"#
    ),
    printcolumn(
        name = "ResourcesApplied",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Applied")].status"#
    ),
    printcolumn(
        name = "ResourceAvailable",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Available")].status"#,
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BindingSpec {
    /// Where the binding stands in its life.
    pub state: BindingState,
    /// Master resource snapshot that the cluster runs; empty until first rolled out.
    pub resource_snapshot_name: String,
    /// ResourceOverride snapshots in effect, sorted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_override_snapshots: Option<Vec<NamespacedName>>,
    /// ClusterResourceOverride snapshots in effect, sorted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_resource_override_snapshots: Option<Vec<String>>,
    /// Policy snapshot that chose the cluster.
    pub scheduling_policy_snapshot_name: String,
    /// The member cluster.
    pub target_cluster: String,
    /// Why the cluster was chosen.
    pub cluster_decision: ClusterDecision,
    /// How manifests are applied there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apply_strategy: Option<ApplyStrategy>,
}

/// Life of a binding. Not an enum in the schema: other writers may add states.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default, JsonSchema)]
#[serde(from = "String", into = "String")]
#[schemars(with = "String")]
pub enum BindingState {
    /// Chosen by the scheduler, not rolled out.
    #[default]
    Scheduled,
    /// Rolled out.
    Bound,
    /// No longer chosen; to be removed.
    Unscheduled,
    /// Written by somebody else; treated like Scheduled.
    Other(String),
}

impl BindingState {
    /// The string in the object.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Scheduled => "Scheduled",
            Self::Bound => "Bound",
            Self::Unscheduled => "Unscheduled",
            Self::Other(text) => text,
        }
    }
}

impl From<String> for BindingState {
    fn from(text: String) -> Self {
        match text.as_str() {
            "Scheduled" => Self::Scheduled,
            "Bound" => Self::Bound,
            "Unscheduled" => Self::Unscheduled,
            _ => Self::Other(text),
        }
    }
}

impl From<BindingState> for String {
    fn from(state: BindingState) -> Self {
        state.as_str().to_owned()
    }
}

/// How the placement fares on the cluster. Written by delivery alone.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingStatus {
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
    /// RolloutStarted, Overridden, WorkSynchronized, Applied, Available, DiffReported.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Extension: digest of the desired state that this status is about (hex SHA-256).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_digest: Option<String>,
    /// Extension: resource snapshot that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_resource_snapshot_name: Option<String>,
    /// Extension: since when the cluster has not been ready with what it was given; absent when it is, and
    /// while it is given nothing. Counts for spec.strategy.timeout of the placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processing_since: Option<Time>,
    /// Extension: digest of the desired state (hex SHA-256) that processingSince is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processing_digest: Option<String>,
}
