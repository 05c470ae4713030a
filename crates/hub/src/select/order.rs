//! The order of objects in a snapshot (API §7.5): stable, for the hash and the packing depend on it.

use windlass_member::manifest::ManifestId;

const KINDS: [&str; 32] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// What objects are sorted by: the kind's place, then group and version, then namespace and name.
#[must_use]
pub fn key(id: &ManifestId) -> (usize, &str, &str, &str, &str, &str) {
    let place = KINDS
        .iter()
        .position(|kind| *kind == id.kind)
        .unwrap_or(KINDS.len());
    (
        place,
        &id.kind,
        &id.group,
        &id.version,
        id.namespace.as_deref().unwrap_or_default(),
        &id.name,
    )
}
