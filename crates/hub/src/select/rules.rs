//! What is never placed (API §7.1, §7.3).

use serde_json::Value;
use windlass_api::names::is_reserved_namespace;
use windlass_api::{CLUSTER_GROUP, PLACEMENT_GROUP, labels};

/// Whether objects of a kind may be placed at all.
#[must_use]
pub fn may_place_kind(group: &str, kind: &str) -> bool {
    match group {
        CLUSTER_GROUP | "events.k8s.io" | "coordination.k8s.io" | "metrics.k8s.io" => false,
        PLACEMENT_GROUP => matches!(kind, "ClusterResourceEnvelope" | "ResourceEnvelope"),
        "networking.fleet.azure.com" => !matches!(
            kind,
            "ServiceImport" | "TrafficManagerProfile" | "TrafficManagerBackend"
        ),
        // Events are history, and review kinds are questions.
        "" => !matches!(
            kind,
            "Pod" | "Node" | "Event" | "Binding" | "ComponentStatus"
        ),
        "authentication.k8s.io" | "authorization.k8s.io" => false,
        _ => true,
    }
}

/// Whether a namespace may be placed with its contents.
#[must_use]
pub fn may_place_namespace(name: &str) -> bool {
    !is_reserved_namespace(name)
}

/// Whether an object is passed over though its kind may be placed.
#[must_use]
pub fn is_skipped(object: &Value) -> bool {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let owned = object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array)
        .is_some_and(|o| !o.is_empty());
    let labelled = |key: &str| {
        object
            .pointer("/metadata/labels")
            .is_some_and(|map| map.get(key).is_some())
    };
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        return true;
    }
    match (text("/kind"), text("/metadata/name")) {
        ("ReplicaSet" | "ControllerRevision", _) => owned,
        ("ConfigMap", "kube-root-ca.crt") | ("ServiceAccount", "default") => true,
        ("Secret", _) => {
            text("/type") == "kubernetes.io/service-account-token"
                || labelled(labels::CREDENTIALS_CLUSTER)
        }
        // The members' own controllers make these for the Services that are placed.
        ("Endpoints", _) => owned || labelled("endpoints.kubernetes.io/managed-by"),
        ("EndpointSlice", _) => labelled("endpointslice.kubernetes.io/managed-by"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kinds() {
        for (group, kind, expected) in [
            ("", "ConfigMap", true),
            ("", "Pod", false),
            ("", "Node", false),
            ("apps", "Deployment", true),
            (CLUSTER_GROUP, "MemberCluster", false),
            (PLACEMENT_GROUP, "ClusterResourcePlacement", false),
            (PLACEMENT_GROUP, "ResourceEnvelope", true),
            ("coordination.k8s.io", "Lease", false),
            ("networking.fleet.azure.com", "ServiceImport", false),
        ] {
            assert_eq!(may_place_kind(group, kind), expected, "{group}/{kind}");
        }
    }

    #[test]
    fn objects() {
        for (object, expected) in [
            (
                json!({"kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}}),
                true,
            ),
            (
                json!({"kind": "ConfigMap", "metadata": {"name": "a"}}),
                false,
            ),
            (
                json!({"kind": "ServiceAccount", "metadata": {"name": "default"}}),
                true,
            ),
            (
                json!({"kind": "Secret", "metadata": {"name": "a"}, "type": "kubernetes.io/service-account-token"}),
                true,
            ),
            (
                json!({"kind": "Secret", "metadata": {"name": "a", "labels": {"windlass.dev/cluster": "m"}}}),
                true,
            ),
            (
                json!({"kind": "Secret", "metadata": {"name": "a"}, "type": "Opaque"}),
                false,
            ),
            (
                json!({"kind": "ReplicaSet", "metadata": {"name": "a", "ownerReferences": [{}]}}),
                true,
            ),
            (
                json!({"kind": "ReplicaSet", "metadata": {"name": "a"}}),
                false,
            ),
            (
                json!({"kind": "ConfigMap", "metadata": {"name": "a", "deletionTimestamp": "x"}}),
                true,
            ),
        ] {
            assert_eq!(is_skipped(&object), expected, "{object}");
        }
    }
}
