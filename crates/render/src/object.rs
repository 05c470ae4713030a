//! Which object a manifest is.

use std::fmt;

use serde_json::Value;

/// Identity of a manifest, as far as it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId<'a> {
    /// API group; empty means the core group.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Namespace; none for cluster-scoped objects.
    pub namespace: Option<&'a str>,
    /// Name.
    pub name: &'a str,
}

impl<'a> ObjectId<'a> {
    /// Reads the identity; what is missing is empty.
    #[must_use]
    pub fn of(object: &'a Value) -> Self {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let api_version = text("/apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self {
            group,
            version,
            kind: text("/kind"),
            namespace: Some(text("/metadata/namespace")).filter(|namespace| !namespace.is_empty()),
            name: text("/metadata/name"),
        }
    }
}

impl fmt::Display for ObjectId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// Whether a kind that every cluster has is cluster-scoped; none for all other kinds.
#[must_use]
pub fn is_cluster_scoped(group: &str, kind: &str) -> Option<bool> {
    let cluster = match group {
        "" => matches!(kind, "Namespace" | "Node" | "PersistentVolume"),
        "rbac.authorization.k8s.io" => matches!(kind, "ClusterRole" | "ClusterRoleBinding"),
        "networking.k8s.io" => matches!(kind, "IngressClass" | "IPAddress" | "ServiceCIDR"),
        "storage.k8s.io" => kind != "CSIStorageCapacity",
        "policy" => kind == "PodSecurityPolicy",
        "apps" | "batch" | "autoscaling" | "discovery.k8s.io" | "coordination.k8s.io" => false,
        "admissionregistration.k8s.io"
        | "apiextensions.k8s.io"
        | "apiregistration.k8s.io"
        | "scheduling.k8s.io"
        | "node.k8s.io"
        | "flowcontrol.apiserver.k8s.io"
        | "certificates.k8s.io" => true,
        _ => return None,
    };
    Some(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn identities() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n"}});
        let id = ObjectId::of(&object);
        assert_eq!((id.group, id.version), ("apps", "v1"));
        assert_eq!(id.to_string(), "Deployment n/a");
        let object =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "namespace": ""}});
        assert_eq!(ObjectId::of(&object).to_string(), "Node a");
        assert_eq!(ObjectId::of(&json!([])).name, "");
    }

    #[test]
    fn scopes() {
        for (group, kind, expected) in [
            ("", "Namespace", Some(true)),
            ("", "ConfigMap", Some(false)),
            ("rbac.authorization.k8s.io", "ClusterRole", Some(true)),
            ("rbac.authorization.k8s.io", "Role", Some(false)),
            (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration",
                Some(true),
            ),
            ("apps", "Deployment", Some(false)),
            ("example.com", "Thing", None),
        ] {
            assert_eq!(is_cluster_scoped(group, kind), expected, "{group} {kind}");
        }
    }
}
