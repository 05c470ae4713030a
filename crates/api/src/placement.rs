//! ClusterResourcePlacement: what to place, where, and how to roll it out (reference: API §2, §3.3).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

/// How changes reach the clusters (API §2.5).
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStrategy {
    /// Who rolls out; absent means RollingUpdate.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "RollingUpdate", "x-kubernetes-validations" = [
        {"rule": "!(self != 'External' && oldSelf == 'External')",
         "message": "cannot change rollout strategy type from 'External' to other types"}]))]
    pub type_: Option<RolloutStrategyType>,
    /// Bounds of a rolling update; only with type RollingUpdate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdateConfig>,
    /// How manifests are applied on the members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apply_strategy: Option<ApplyStrategy>,
    /// What happens on the members when the placement is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_strategy: Option<DeleteStrategy>,
    /// Whether member status is mirrored to the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_back_strategy: Option<ReportBackStrategy>,
}

/// Who rolls out.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum RolloutStrategyType {
    /// The hub, within bounds.
    RollingUpdate,
    /// Update runs, or a person.
    External,
}

/// Bounds of a rolling update.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdateConfig {
    /// Clusters that may be not ready: a number, or a percentage of the target, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "25%", "pattern" = "^((100|[0-9]{1,2})%|[0-9]+)$"))]
    pub max_unavailable: Option<IntOrString>,
    /// Extra clusters allowed above the target: a number, or a percentage of it, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "25%", "pattern" = "^((100|[0-9]{1,2})%|[0-9]+)$"))]
    pub max_surge: Option<IntOrString>,
    /// Seconds before resources whose readiness can't be tracked count as ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 60), transform = crate::raw::plain_integer)]
    pub unavailable_period_seconds: Option<i64>,
}

/// How manifests are applied on the members (API §2.6).
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplyStrategy {
    /// Which fields count as drift.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "PartialComparison"))]
    pub comparison_option: Option<ComparisonOption>,
    /// Whether drifted objects are overwritten.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Always"))]
    pub when_to_apply: Option<WhenToApply>,
    /// How manifests reach the member.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "ClientSideApply"))]
    pub type_: Option<ApplyStrategyType>,
    /// Owners other than ours are permitted on the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_co_ownership: Option<bool>,
    /// Options of server-side apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_side_apply_config: Option<ServerSideApplyConfig>,
    /// What happens to objects that exist already and are not ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Always"))]
    pub when_to_take_over: Option<WhenToTakeOver>,
}

/// Which fields count as drift.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum ComparisonOption {
    /// Fields that the manifest sets.
    PartialComparison,
    /// Every field.
    FullComparison,
}

/// Whether drifted objects are overwritten.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum WhenToApply {
    /// Always.
    Always,
    /// Drift stops the apply and is reported.
    IfNotDrifted,
}

/// How manifests reach the member.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum ApplyStrategyType {
    /// Three-way merge in effect; served by forced server-side apply.
    ClientSideApply,
    /// Server-side apply, conflicts reported.
    ServerSideApply,
    /// Nothing is applied; differences are reported.
    ReportDiff,
}

/// What happens to objects that exist already and are not ours.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum WhenToTakeOver {
    /// They are taken over.
    Always,
    /// They are taken over when nothing differs.
    IfNoDiff,
    /// They are left alone.
    Never,
}

/// Options of server-side apply.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerSideApplyConfig {
    /// Conflicts are resolved in our favour.
    #[serde(rename = "force", skip_serializing_if = "Option::is_none")]
    pub force_conflicts: Option<bool>,
}

/// What happens on the members when the placement is deleted.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteStrategy {
    /// Whether placed objects are removed or left.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Delete"))]
    pub propagation_policy: Option<DeletePropagationPolicy>,
}

/// Whether placed objects are removed or left.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum DeletePropagationPolicy {
    /// They stay, unowned.
    Abandon,
    /// They are removed.
    Delete,
}

/// Whether member status is mirrored to the hub.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!(self.type == 'Mirror' && !has(self.destination))",
     "message": "when reportBackStrategy.type is Mirror, a destination must be specified"}]))]
pub struct ReportBackStrategy {
    /// Mirror, or not.
    #[serde(rename = "type")]
    #[schemars(extend("default" = "Disabled"))]
    pub type_: ReportBackStrategyType,
    /// Where the mirrored status goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<ReportBackDestination>,
}

/// Mirror, or not.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum ReportBackStrategyType {
    /// Nothing is mirrored.
    Disabled,
    /// Status is mirrored.
    Mirror,
}

/// Where the mirrored status goes.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum ReportBackDestination {
    /// Onto the hub's object.
    OriginalResource,
    /// Into the Work.
    WorkAPI,
}

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
