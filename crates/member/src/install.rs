//! What joining installs on a member.

use serde_json::{Value, json};
use windlass_api::names::HUB_NAMESPACE;

/// Name of the ServiceAccount, ClusterRole and ClusterRoleBinding that are the hub's on a member.
pub const SERVICE_ACCOUNT: &str = "windlass-hub";

/// The rules of `--rights all`: whatever may be placed can be read and written, roles with any rights
/// included. Verbs that place nothing, impersonation first of all, are left out.
#[must_use]
pub fn all_rights() -> Value {
    json!([
        { "apiGroups": ["*"], "resources": ["*"],
          "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"] },
        { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "clusterroles"],
          "verbs": ["escalate", "bind"] },
        { "nonResourceURLs": ["/readyz", "/version", "/api", "/api/*", "/apis", "/apis/*"], "verbs": ["get"] },
    ])
}

/// What the hub can't do without, whatever else it may place: its own inventory and token, what it tells of
/// the cluster, and whether a namespace or a CRD is there.
#[must_use]
pub fn own_rights() -> Value {
    let read = json!(["get", "list", "watch"]);
    json!([
        { "apiGroups": [windlass_api::PLACEMENT_GROUP],
          "resources": ["appliedworks", "appliedworks/status", "appliedworks/finalizers"], "verbs": ["*"] },
        { "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": [SERVICE_ACCOUNT],
          "verbs": ["create"] },
        { "apiGroups": [""], "resources": ["nodes", "pods", "namespaces"], "verbs": read },
        { "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": read },
        { "nonResourceURLs": ["/readyz", "/version", "/api", "/api/*", "/apis", "/apis/*"], "verbs": ["get"] },
    ])
}

/// The objects, in the order in which they are applied.
#[must_use]
pub fn objects(rules: &Value) -> Vec<Value> {
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": HUB_NAMESPACE } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": { "name": SERVICE_ACCOUNT, "namespace": HUB_NAMESPACE } }),
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": { "name": SERVICE_ACCOUNT }, "rules": rules }),
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": { "name": SERVICE_ACCOUNT },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": SERVICE_ACCOUNT },
                "subjects": [{ "kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": HUB_NAMESPACE }] }),
    ]
}
