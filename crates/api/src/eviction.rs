//! Evictions and disruption budgets (API §3.15, §3.16). Cluster-scoped placements only, as upstream.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// ClusterResourcePlacementEviction takes what a ClusterResourcePlacement has placed off one cluster, within
/// the placement's disruption budget.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "placement.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "ClusterResourcePlacementEviction",
    plural = "clusterresourceplacementevictions",
    shortname = "crpe",
    category = "fleet",
    category = "fleet-placement",
    status = "EvictionStatus",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Valid",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Valid")].status"#
    ),
    printcolumn(
        name = "Executed",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Executed")].status"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct EvictionSpec {
    /// The ClusterResourcePlacement.
    #[schemars(length(max = 255), extend("x-kubernetes-validations" = [
        {"rule": "self == oldSelf",
         "message": "placementName is immutable; create another eviction"}]))]
    pub placement_name: String,
    /// The member cluster that its resources are taken off.
    #[schemars(length(max = 255), extend("x-kubernetes-validations" = [
        {"rule": "self == oldSelf",
         "message": "clusterName is immutable; create another eviction"}]))]
    pub cluster_name: String,
    /// Extension: what becomes of the eviction while the budget, or the state of the placement on the
    /// cluster, does not allow it; absent means Never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<EvictionRetry>,
}

/// What becomes of an eviction that is not allowed now.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum EvictionRetry {
    /// It has failed.
    Never,
    /// It waits until it is allowed.
    WhenAllowed,
}

impl EvictionSpec {
    /// Whether the eviction waits while it is not allowed.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.retry == Some(EvictionRetry::WhenAllowed)
    }
}

/// What came of an eviction. Written by the hub alone.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionStatus {
    /// Valid, Executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// Extension: UID of the binding that is deleted for this eviction. Noted before that is asked for: once
    /// that binding goes, the eviction is executed, whatever has come to the cluster since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evicting: Option<String>,
}

/// ClusterResourcePlacementDisruptionBudget says how many clusters evictions may take from the
/// ClusterResourcePlacement of the same name.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "placement.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "ClusterResourcePlacementDisruptionBudget",
    plural = "clusterresourceplacementdisruptionbudgets",
    shortname = "crpdb",
    category = "fleet",
    category = "fleet-placement",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!(has(self.maxUnavailable) && has(self.minAvailable))",
     "message": "maxUnavailable and minAvailable are mutually exclusive"}]))]
pub struct DisruptionBudgetSpec {
    /// Most clusters that may be unavailable: a number, or a percentage of those that the placement is meant
    /// to be on, rounded up. Not for PickAll, which has no such number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [
        {"rule": "type(self) == string ? self.matches('^(100|[0-9]{1,2})%$') : self >= 0",
         "message": "maxUnavailable must be a number from 0, or a percentage from 0% to 100%"}]))]
    pub max_unavailable: Option<IntOrString>,
    /// Fewest clusters that have to stay available: a number, or a percentage of those that the placement is
    /// meant to be on, rounded up. For PickAll, a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [
        {"rule": "type(self) == string ? self.matches('^(100|[0-9]{1,2})%$') : self >= 0",
         "message": "minAvailable must be a number from 0, or a percentage from 0% to 100%"}]))]
    pub min_available: Option<IntOrString>,
}
