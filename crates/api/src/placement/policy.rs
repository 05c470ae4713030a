//! On which clusters a placement goes (API §2.3, §2.4).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where resources go (API §2.3).
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementPolicy {
    /// How clusters are chosen; absent means PickAll.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "PickAll"))]
    pub placement_type: Option<PlacementType>,
    /// The clusters of PickFixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub cluster_names: Option<Vec<String>>,
    /// How many clusters PickN wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub number_of_clusters: Option<i32>,
    /// What the clusters must or should be like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// How evenly PickN spreads over the values of a cluster label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// Taints that do not keep the placement away.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub tolerations: Option<Vec<Toleration>>,
}

/// How clusters are chosen.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum PlacementType {
    /// Every cluster that qualifies.
    PickAll,
    /// The best N clusters.
    PickN,
    /// The named clusters.
    PickFixed,
}

/// Groups the kinds of affinity.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Affinity {
    /// Affinity to member clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
}

/// Hard and soft wishes about clusters.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// A cluster that matches none of the terms is not chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_during_scheduling_ignored_during_execution: Option<ClusterSelector>,
    /// The weights of all matching terms add up to a cluster's score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_during_scheduling_ignored_during_execution: Option<Vec<PreferredClusterSelector>>,
}

/// A list of terms of which one has to match.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSelector {
    /// The terms; any one suffices.
    #[schemars(length(max = 10))]
    pub cluster_selector_terms: Vec<ClusterSelectorTerm>,
}

/// A weighted wish.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreferredClusterSelector {
    /// Score of a match; negative repels.
    #[schemars(range(min = -100, max = 100))]
    pub weight: i32,
    /// What a matching cluster is like.
    pub preference: ClusterSelectorTerm,
}

/// Describes clusters by labels and properties; all parts have to hold (API §2.4).
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSelectorTerm {
    /// Labels of the MemberCluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Numeric tests of cluster properties; only in required terms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub property_selector: Option<PropertySelector>,
    /// Ranks clusters by a property; only in preferred terms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub property_sorter: Option<PropertySorter>,
}

/// Numeric tests of cluster properties.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PropertySelector {
    /// The tests; all have to hold.
    pub match_expressions: Vec<PropertySelectorRequirement>,
}

/// One numeric test.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PropertySelectorRequirement {
    /// Name of the property (API §10.1).
    pub name: String,
    /// One of `Gt`, `Ge`, `Eq`, `Ne`, `Lt`, `Le`.
    pub operator: String,
    /// Exactly one quantity.
    #[schemars(length(max = 1))]
    pub values: Vec<String>,
}

/// Ranks clusters by a property.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PropertySorter {
    /// Name of the property (API §10.1).
    pub name: String,
    /// `Descending` favours large values, `Ascending` small ones.
    pub sort_order: PropertySortOrder,
}

/// Direction of a [`PropertySorter`].
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum PropertySortOrder {
    /// Large values first.
    Descending,
    /// Small values first.
    Ascending,
}

/// How evenly PickN spreads over the values of a cluster label.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpreadConstraint {
    /// Largest allowed difference between domains.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 1))]
    pub max_skew: Option<i32>,
    /// MemberCluster label whose values are the domains.
    pub topology_key: String,
    /// Whether the constraint is hard or soft.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "DoNotSchedule"))]
    pub when_unsatisfiable: Option<UnsatisfiableConstraintAction>,
}

/// What happens when a spread constraint can't be met.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum UnsatisfiableConstraintAction {
    /// The cluster is not chosen.
    DoNotSchedule,
    /// The cluster scores low.
    ScheduleAnyway,
}

/// Lets a placement onto clusters with a taint.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.operator != 'Exists' || !has(self.value) || self.value == ''",
     "message": "toleration value needs to be empty, when operator is Exists"},
    {"rule": "(has(self.key) && self.key != '') || self.operator == 'Exists'",
     "message": "toleration key needs to be set, when operator is not Exists"},
]))]
pub struct Toleration {
    /// Taint key; empty with `Exists` means every taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How key and value are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Equal"))]
    pub operator: Option<TolerationOperator>,
    /// Taint value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Taint effect; empty means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
}

/// Comparison of a [`Toleration`].
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum TolerationOperator {
    /// Key and value are equal.
    Equal,
    /// The key exists.
    Exists,
}

/// Effect of a taint.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default, JsonSchema)]
pub enum TaintEffect {
    /// Nothing new is placed on the cluster.
    #[default]
    NoSchedule,
}
