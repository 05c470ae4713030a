//! The order in which kinds are applied (member §7): what others need comes first.

use crate::manifest::ManifestId;

/// Groups whose kinds have a wave; kinds of the same name elsewhere go last.
const GROUPS: [&str; 12] = [
    "",
    "networking.k8s.io",
    "scheduling.k8s.io",
    "policy",
    "storage.k8s.io",
    "apiextensions.k8s.io",
    "rbac.authorization.k8s.io",
    "apps",
    "autoscaling",
    "apiregistration.k8s.io",
    "admissionregistration.k8s.io",
    "batch",
];

/// Wave of kinds that are in no table, custom resources among them.
pub const LAST: u16 = 999;

/// The wave of a kind; lower ones are applied first and removed last.
#[must_use]
pub fn wave(id: &ManifestId) -> u16 {
    if !GROUPS.contains(&id.group.as_str()) {
        return LAST;
    }
    match id.kind.as_str() {
        "Namespace" | "PriorityClass" => 0,
        "NetworkPolicy"
        | "ResourceQuota"
        | "LimitRange"
        | "PodDisruptionBudget"
        | "ServiceAccount"
        | "Secret"
        | "ConfigMap"
        | "StorageClass"
        | "PersistentVolume"
        | "PersistentVolumeClaim"
        | "CustomResourceDefinition"
        | "IngressClass" => 1,
        "ClusterRole" | "Role" => 2,
        "ClusterRoleBinding" | "RoleBinding" => 3,
        "Service"
        | "DaemonSet"
        | "Pod"
        | "ReplicationController"
        | "ReplicaSet"
        | "Deployment"
        | "HorizontalPodAutoscaler"
        | "StatefulSet"
        | "Job"
        | "CronJob"
        | "Ingress" => 4,
        "APIService" | "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => 5,
        _ => LAST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        for (group, kind, expected) in [
            ("", "Namespace", 0),
            ("", "ConfigMap", 1),
            ("apiextensions.k8s.io", "CustomResourceDefinition", 1),
            ("rbac.authorization.k8s.io", "Role", 2),
            ("rbac.authorization.k8s.io", "RoleBinding", 3),
            ("apps", "Deployment", 4),
            ("apiregistration.k8s.io", "APIService", 5),
            ("example.com", "Service", LAST),
            ("", "Unheard", LAST),
        ] {
            let id = ManifestId {
                group: group.into(),
                kind: kind.into(),
                ..Default::default()
            };
            assert_eq!(wave(&id), expected, "{group}/{kind}");
        }
    }
}
