//! How a placement's changes roll out, are applied, and end (API §2.5, §2.6).

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// Extension: how long a cluster that answers may take to be ready with what it was given, as 10m or
    /// 1h30m. Then its first condition that is not True gets the reason Timeout. Absent means 10m; 0s: there
    /// is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = r"^(?:(?:0|[1-9][0-9]*)(\.[0-9]+)?(?:s|m|h))+$"))]
    pub timeout: Option<String>,
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
