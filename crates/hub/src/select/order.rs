//! The order of objects in a snapshot (API §7.5): the hash and the packing depend on it.

use windlass_member::manifest::ManifestId;

/// Kinds in their order. The group does not count.
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

/// What objects are sorted by: the place of the kind, then the text of group and version (with the kind
/// where that has no place), then that of namespace and name.
#[must_use]
pub fn key(id: &ManifestId) -> (usize, String, String) {
    let place = KINDS.iter().position(|kind| *kind == id.kind);
    let api = match (place, id.group.is_empty()) {
        (Some(_), true) => id.version.clone(),
        (Some(_), false) => format!("{}/{}", id.group, id.version),
        (None, _) => format!("{}/{}, Kind={}", id.group, id.version, id.kind),
    };
    let object = format!(
        "{}/{}",
        id.namespace.as_deref().unwrap_or_default(),
        id.name
    );
    (place.unwrap_or(KINDS.len()), api, object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(group: &str, version: &str, kind: &str, namespace: &str, name: &str) -> ManifestId {
        ManifestId {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
            name: name.to_owned(),
        }
    }

    fn sorted() -> Vec<ManifestId> {
        vec![
            id("scheduling.k8s.io", "v1", "PriorityClass", "", "z"),
            id("", "v1", "Namespace", "", "web"),
            id("", "v1", "ServiceAccount", "web", "a"),
            id("", "v1", "Secret", "web", "a"),
            id("", "v1", "ConfigMap", "api", "z"),
            id("", "v1", "ConfigMap", "web", "a"),
            id("", "v1", "ConfigMap", "web", "b"),
            id(
                "apiextensions.k8s.io",
                "v1",
                "CustomResourceDefinition",
                "",
                "x.example.com",
            ),
            // Same kind, another group: the text of group and version decides.
            id("serving.example.com", "v1", "Service", "z", "z"),
            id("", "v1", "Service", "web", "a"),
            id("apps", "v1", "Deployment", "web", "a"),
            id("batch", "v1", "Job", "web", "a"),
            id(
                "admissionregistration.k8s.io",
                "v1",
                "ValidatingWebhookConfiguration",
                "",
                "a",
            ),
            // Unknown kinds come last, by the text of group, version and kind.
            id("a.example.com", "v1", "Zebra", "web", "a"),
            id("b.example.com", "v1", "Ant", "web", "a"),
            id("b.example.com", "v1", "Bee", "", "a"),
            id("b.example.com", "v1", "Bee", "web", "a"),
        ]
    }

    proptest! {
        #[test]
        fn whatever_the_order_before(shuffled in Just(sorted()).prop_shuffle()) {
            let mut shuffled = shuffled;
            shuffled.sort_by_cached_key(key);
            prop_assert_eq!(shuffled, sorted());
        }
    }
}
