//! ClusterProfile: a member as SIG Multicluster's cluster inventory shows it (API §12).
//!
//! The kind is not ours: its CRD comes from sigs.k8s.io/cluster-inventory-api, and is not among those that
//! `windlass crds` prints. Fields that are not named here are kept as they are.

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Name of the CRD.
pub const CLUSTER_PROFILE_CRD: &str = "clusterprofiles.multicluster.x-k8s.io";
/// Label that says which manager a profile is of.
pub const CLUSTER_MANAGER_LABEL: &str = "x-k8s.io/cluster-manager";
/// The manager that a fleet's profiles name, whichever hub makes them.
pub const CLUSTER_MANAGER: &str = "KubeFleet";
/// The condition that tells whether the cluster's API server is well.
pub const CONTROL_PLANE_HEALTHY: &str = "ControlPlaneHealthy";

/// What a ClusterProfile is of.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[kube(
    group = "multicluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ClusterProfile",
    plural = "clusterprofiles",
    namespaced,
    status = "ClusterProfileStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProfileSpec {
    /// Name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Whose profile it is; immutable.
    pub cluster_manager: ClusterManager,
    /// All else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Who manages a cluster.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
pub struct ClusterManager {
    /// Its name.
    pub name: String,
}

/// What is known of a cluster.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProfileStatus {
    /// [`CONTROL_PLANE_HEALTHY`], and those of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<ClusterVersion>,
    /// How to reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_providers: Option<Vec<AccessProvider>>,
    /// All else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// The version of a cluster.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
pub struct ClusterVersion {
    /// Of Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
}

/// A way to reach a cluster.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
pub struct AccessProvider {
    /// Who offers it.
    pub name: String,
    /// Where the API server is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<AccessCluster>,
    /// All else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Where an API server is, as in a kubeconfig.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(rename_all = "kebab-case")]
pub struct AccessCluster {
    /// URL.
    pub server: String,
    /// Certificates of its CA, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_authority_data: Option<ByteString>,
    /// All else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}
