//! Staged update runs (API §2.11, §3.12 to §3.14): a version goes to the clusters of a placement stage by
//! stage, with approvals and waits between.
//!
//! Each kind comes in two scopes with one shape ([`crate::scoped`]).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::placement::{ApplyStrategy, NamespacedName};

/// Name of the stage that removes what is no longer placed.
pub const DELETION_STAGE: &str = "kubernetes-fleet.io/deleteStage";
/// Form of the durations in this API.
pub const DURATION_PATTERN: &str = "^(?:(?:0|[1-9][0-9]*)(\\.[0-9]+)?(?:s|m|h))+$";

/// ClusterStagedUpdateRun brings one version of a ClusterResourcePlacement to its clusters, stage by stage.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "placement.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "ClusterStagedUpdateRun",
    plural = "clusterstagedupdateruns",
    shortname = "csur",
    category = "fleet",
    category = "fleet-placement",
    status = "UpdateRunStatus",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Placement",
        type_ = "string",
        json_path = ".spec.placementName"
    ),
    printcolumn(
        name = "Resource-Snapshot-Index",
        type_ = "string",
        json_path = ".spec.resourceSnapshotIndex"
    ),
    printcolumn(
        name = "Policy-Snapshot-Index",
        type_ = "string",
        json_path = ".status.policySnapshotIndexUsed"
    ),
    printcolumn(
        name = "Initialized",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Initialized")].status"#
    ),
    printcolumn(
        name = "Progressing",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Progressing")].status"#
    ),
    printcolumn(
        name = "Succeeded",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Succeeded")].status"#
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Strategy",
        type_ = "string",
        json_path = ".spec.stagedRolloutStrategyName",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct UpdateRunSpec {
    /// Name of the placement; it must use strategy External. Immutable.
    #[schemars(length(max = 255))]
    pub placement_name: String,
    /// Index of the resource snapshot to roll out; empty or absent means the latest, as the content is when
    /// the run is initialized. Immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_snapshot_index: Option<String>,
    /// Name of the strategy that says which stages there are. Immutable.
    pub staged_rollout_strategy_name: String,
    /// What the run is to do; absent means Initialize.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Initialize"))]
    pub state: Option<RunState>,
    /// Extension: how many of all clusters of the run may fail; absent means that failures don't end it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_threshold: Option<FailureThreshold>,
    /// Extension: what happens when a cluster comes or goes while the run is under way; absent means Skip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub membership_changes: Option<MembershipChanges>,
}

/// What a run is to do.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum RunState {
    /// Stages are computed; nothing moves.
    #[default]
    Initialize,
    /// Clusters are updated.
    Run,
    /// No further cluster is begun with; those under way are waited for.
    Stop,
}

/// What happens when a cluster comes or goes while a run is under way.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum MembershipChanges {
    /// A cluster that leaves is skipped, one that joins waits for the next run.
    #[default]
    Skip,
    /// The run fails, as upstream's do.
    Fail,
}

/// How many clusters may fail, and what counts as failed. A cluster that can't be reached never does.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureThreshold {
    /// How many clusters may fail: a number, or a percentage of the clusters of the stage or run, rounded
    /// down. The run stops when more have failed.
    #[schemars(extend("pattern" = "^(100|[1-9]?[0-9])%$"))]
    pub max_failures: IntOrString,
    /// What counts as failed; absent means everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 3))]
    pub count: Option<Vec<FailureKind>>,
    /// How long a cluster that was updated may take to become available before it counts as Unavailable;
    /// absent means 5m.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = DURATION_PATTERN))]
    pub unavailable_after: Option<String>,
    /// What happens when more have failed; absent means Stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_exceeded: Option<OnExceeded>,
}

/// Ways for a cluster to fail.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum FailureKind {
    /// Its version could not be made or applied.
    ApplyFailed,
    /// It was updated, is reached, and did not become available in time (`unavailableAfter`).
    Unavailable,
    /// It ran past the placement's timeout.
    Timeout,
}

/// What happens when too many clusters have failed.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum OnExceeded {
    /// The run fails; clusters stay as they are.
    #[default]
    Stop,
    /// The clusters that the run has moved go back to what they had, in reverse order; then it fails.
    Rollback,
}

/// What became of a run so far.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateRunStatus {
    /// Index of the policy snapshot that chose the clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_snapshot_index_used: Option<String>,
    /// How many clusters it chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::raw::plain_integer)]
    pub policy_observed_cluster_count: Option<i64>,
    /// Index of the resource snapshot that is rolled out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_snapshot_index_used: Option<String>,
    /// How the placement had manifests applied when the run was initialized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_strategy: Option<ApplyStrategy>,
    /// The strategy as it was then.
    #[serde(
        rename = "stagedUpdateStrategySnapshot",
        skip_serializing_if = "Option::is_none"
    )]
    pub strategy_snapshot: Option<UpdateStrategySpec>,
    /// The stages, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages_status: Option<Vec<StageStatus>>,
    /// The stage that removes what is no longer placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_stage_status: Option<StageStatus>,
    /// Initialized, Progressing, Succeeded; extensions: Superseded, RolledBack.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Extension: clusters that were chosen after the run was initialized, by name; they wait for the next
    /// run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    pub joined_clusters: Option<Vec<String>>,
    /// Extension: the way back, in the order in which it is gone: the stages from the last that was begun,
    /// each with its clusters from the last that was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback_status: Option<Vec<StageStatus>>,
}

/// What became of a stage.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StageStatus {
    /// Its name.
    pub stage_name: String,
    /// Its clusters, in order.
    pub clusters: Vec<ClusterStatus>,
    /// Tasks before its first cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1))]
    pub before_stage_task_status: Option<Vec<TaskStatus>>,
    /// Tasks after its last cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2))]
    pub after_stage_task_status: Option<Vec<TaskStatus>>,
    /// When its first cluster was begun with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When it was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// Progressing, Succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}

/// What became of a cluster.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Its name.
    pub cluster_name: String,
    /// ResourceOverride snapshots that it gets, fixed when the run was initialized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_override_snapshots: Option<Vec<NamespacedName>>,
    /// ClusterResourceOverride snapshots that it gets, fixed when the run was initialized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_resource_override_snapshots: Option<Vec<String>>,
    /// Started, Succeeded; extensions: Skipped, InReach.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Extension: what it had before the run moved it; absent when the run has not moved it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<ClusterVersion>,
}

/// What a cluster ran.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterVersion {
    /// Name of the resource snapshot; absent means that it had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_snapshot_name: Option<String>,
    /// ResourceOverride snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_override_snapshots: Option<Vec<NamespacedName>>,
    /// ClusterResourceOverride snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_resource_override_snapshots: Option<Vec<String>>,
    /// How manifests were applied, where that was another way than the run's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apply_strategy: Option<ApplyStrategy>,
}

/// What became of a task.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskStatus {
    /// What kind of task.
    #[serde(rename = "type")]
    pub type_: TaskType,
    /// Name of the request, of an Approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_request_name: Option<String>,
    /// ApprovalRequestCreated, ApprovalRequestApproved; WaitTimeElapsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}

/// ClusterStagedUpdateStrategy says in which stages clusters are updated.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "placement.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "ClusterStagedUpdateStrategy",
    plural = "clusterstagedupdatestrategies",
    shortname = "csus",
    category = "fleet",
    category = "fleet-placement",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategySpec {
    /// The stages, in order.
    #[schemars(length(max = 31))]
    pub stages: Vec<StageConfig>,
}

/// A stage.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StageConfig {
    /// Its name; part of the names of approval requests.
    #[schemars(length(max = 63), extend("pattern" = "^[a-z0-9]+$"))]
    pub name: String,
    /// Labels of its clusters; empty means all of them, absent none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Label whose whole number decides the order of clusters, before their names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sorting_label_key: Option<String>,
    /// How many clusters are updated at once: a number, or a percentage of the stage's, rounded down, one at
    /// least; absent means 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 1, "pattern" = "^(100|[1-9][0-9]?)%$"))]
    pub max_concurrency: Option<IntOrString>,
    /// Tasks before its first cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1))]
    pub before_stage_tasks: Option<Vec<StageTask>>,
    /// Tasks after its last cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2))]
    pub after_stage_tasks: Option<Vec<StageTask>>,
    /// Extension: how many clusters of the stage may fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_threshold: Option<FailureThreshold>,
}

/// A gate before or after a stage.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StageTask {
    /// What kind of task.
    #[serde(rename = "type")]
    pub type_: TaskType,
    /// How long is waited, of a TimedWait.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = DURATION_PATTERN))]
    pub wait_time: Option<String>,
}

/// Kinds of tasks.
#[derive(
    Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema,
)]
pub enum TaskType {
    /// Time passes.
    TimedWait,
    /// Somebody approves.
    Approval,
}

/// ClusterApprovalRequest asks a person whether a run may go on.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "placement.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "ClusterApprovalRequest",
    plural = "clusterapprovalrequests",
    shortname = "careq",
    category = "fleet",
    category = "fleet-placement",
    status = "ApprovalRequestStatus",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Update-Run",
        type_ = "string",
        json_path = ".spec.parentStageRollout"
    ),
    printcolumn(name = "Stage", type_ = "string", json_path = ".spec.targetStage"),
    printcolumn(
        name = "Approved",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Approved")].status"#
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequestSpec {
    /// Name of the run.
    pub parent_stage_rollout: String,
    /// Name of its stage.
    pub target_stage: String,
}

/// What was answered.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequestStatus {
    /// Approved (a person writes it), ApprovalAccepted (the hub does).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Extension: the user who approved, stamped at admission from the request; nobody can claim to be
    /// another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
}
