//! ClusterResourcePlacement: what to place, where, and how to roll it out (reference: API §2, §3.3).

mod policy;
mod status;
mod strategy;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::policy::*;
pub use self::status::*;
pub use self::strategy::*;

/// ClusterResourcePlacement selects cluster-scoped resources and whole namespaces on the hub and places
/// them on member clusters.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "placement.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "ClusterResourcePlacement",
    plural = "clusterresourceplacements",
    shortname = "crp",
    category = "fleet",
    category = "fleet-placement",
    status = "PlacementStatus",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Gen", type_ = "string", json_path = ".metadata.generation"),
    printcolumn(
        name = "Type",
        type_ = "string",
        json_path = ".spec.policy.placementType",
        priority = 1
    ),
    printcolumn(
        name = "Scheduled",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="ClusterResourcePlacementScheduled")].status"#
    ),
    printcolumn(
        name = "Scheduled-Gen",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="ClusterResourcePlacementScheduled")].observedGeneration"#
    ),
    printcolumn(
        name = "Work-Synchronized",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="ClusterResourcePlacementWorkSynchronized")].status"#,
        priority = 1
    ),
    printcolumn(
        name = "Work-Synchronized-Gen",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="ClusterResourcePlacementWorkSynchronized")].observedGeneration"#,
        priority = 1
    ),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="ClusterResourcePlacementAvailable")].status"#
    ),
    printcolumn(
        name = "Available-Gen",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="ClusterResourcePlacementAvailable")].observedGeneration"#
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct PlacementSpec {
    /// What to place: the union of all selectors.
    #[schemars(length(min = 1, max = 100))]
    pub resource_selectors: Vec<ResourceSelectorTerm>,
    /// Where to place it; absent means every cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PlacementPolicy>,
    /// How changes reach the clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<RolloutStrategy>,
    /// How many old policy and resource snapshots are kept; absent means 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = 10))]
    pub revision_history_limit: Option<i32>,
    /// Whether the status is also copied into the selected namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "ClusterScopeOnly"))]
    pub status_reporting_scope: Option<StatusReportingScope>,
}

/// Who can read a placement's status.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum StatusReportingScope {
    /// Only on the cluster-scoped placement.
    ClusterScopeOnly,
    /// Also as a ClusterResourcePlacementStatus in the selected namespace.
    NamespaceAccessible,
}

/// One way of choosing resources on the hub (API §2.2).
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelectorTerm {
    /// API group; empty means the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind of the object.
    pub kind: String,
    /// Exact name; excludes `labelSelector`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels of the objects; with neither name nor selector every object of the kind matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// For a Namespace: whether its contents come along.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "NamespaceWithResources"))]
    pub selection_scope: Option<SelectionScope>,
}

/// What selecting a Namespace brings along (API §7.2).
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum SelectionScope {
    /// Just the Namespace object.
    NamespaceOnly,
    /// The Namespace and everything in it that can be placed.
    NamespaceWithResources,
    /// The Namespace and what the other selectors choose in it.
    NamespaceWithResourceSelectors,
}
