//! What joining installs on a member, and how the hub takes it away when the cluster has left.
//!
//! Nobody can take away their own rights one by one: with the first, the right to the next is gone. So the
//! ServiceAccount and the ClusterRoleBinding belong to the ClusterRole, and the cluster's own garbage
//! collector removes all three when the hub deletes that one. It goes last (foreground), so that whoever
//! joins again can see whether the removal is over.

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::core::ApiResource;
use serde_json::{Value, json};
use windlass_api::names::HUB_NAMESPACE;
use windlass_api::{CLUSTER_GROUP, PLACEMENT_GROUP};
use windlass_cluster::{ApiError, Propagation};

use crate::manifest::ManifestId;
use crate::member::Member;

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
        { "apiGroups": [PLACEMENT_GROUP],
          "resources": ["appliedworks", "appliedworks/status", "appliedworks/finalizers"], "verbs": ["*"] },
        { "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": [SERVICE_ACCOUNT],
          "verbs": ["create"] },
        { "apiGroups": [""], "resources": ["nodes", "pods", "namespaces"], "verbs": read },
        { "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": read },
        { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
          "resourceNames": [SERVICE_ACCOUNT], "verbs": ["get", "delete"] },
        { "nonResourceURLs": ["/readyz", "/version", "/api", "/api/*", "/apis", "/apis/*"], "verbs": ["get"] },
    ])
}

/// Whether an object is what the hub itself, or the fleet, stands on there: no placement may have it, or it
/// could take the hub's rights, or the fleet's kinds, away (or widen them). By name alone: the server holds
/// that a CustomResourceDefinition is named after its group.
#[must_use]
pub fn is_own(id: &ManifestId) -> bool {
    match (id.group.as_str(), id.kind.as_str()) {
        ("rbac.authorization.k8s.io", "ClusterRole" | "ClusterRoleBinding") => {
            id.name == SERVICE_ACCOUNT
        }
        ("", "ServiceAccount") => {
            id.namespace.as_deref() == Some(HUB_NAMESPACE) && id.name == SERVICE_ACCOUNT
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => id
            .name
            .split_once('.')
            .is_some_and(|(_, group)| [PLACEMENT_GROUP, CLUSTER_GROUP].contains(&group)),
        _ => false,
    }
}

/// How far [`Member::remove_rights`] got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// They are being removed; the last of them is still there.
    Going,
    /// They are gone.
    Gone,
}

impl Member {
    /// Takes the hub's own rights on the member away, all at once. Safe to repeat; after this has been
    /// asked for, a refusal means that the rights are gone.
    ///
    /// # Errors
    /// When the member can't be asked, or refuses.
    pub async fn remove_rights(&self) -> Result<Rights, ApiError> {
        let role = ApiResource::erase::<ClusterRole>(&());
        self.writer
            .delete_dyn(&role, None, SERVICE_ACCOUNT, None, Propagation::Foreground)
            .await?;
        match self.writer.get_dyn(&role, None, SERVICE_ACCOUNT).await {
            Ok(Some(_)) => Ok(Rights::Going),
            Ok(None) | Err(ApiError::Rejected(_) | ApiError::Unauthorized(_)) => Ok(Rights::Gone),
            Err(error) => Err(error),
        }
    }
}

/// What is applied first, in this order. The ClusterRole comes last: the rest belongs to it.
#[must_use]
pub fn objects(rules: &Value) -> Vec<Value> {
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": HUB_NAMESPACE } }),
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": { "name": SERVICE_ACCOUNT }, "rules": rules }),
    ]
}

/// What belongs to the ClusterRole of that UID, and goes with it.
#[must_use]
pub fn dependents(role_uid: &str) -> Vec<Value> {
    let owners = json!([{ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                          "name": SERVICE_ACCOUNT, "uid": role_uid, "blockOwnerDeletion": true }]);
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": { "name": SERVICE_ACCOUNT, "namespace": HUB_NAMESPACE, "ownerReferences": owners } }),
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": { "name": SERVICE_ACCOUNT, "ownerReferences": owners },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": SERVICE_ACCOUNT },
                "subjects": [{ "kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": HUB_NAMESPACE }] }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;

    #[test]
    fn what_no_placement_may_have() {
        const RBAC: &str = "rbac.authorization.k8s.io/v1";
        const CRD: &str = "apiextensions.k8s.io/v1";
        for (api, kind, namespace, name, expected) in [
            (RBAC, "ClusterRole", None, "windlass-hub", true),
            (RBAC, "ClusterRoleBinding", None, "windlass-hub", true),
            (RBAC, "ClusterRole", None, "windlass-hub-2", false),
            (RBAC, "Role", Some("web"), "windlass-hub", false),
            ("example.com/v1", "ClusterRole", None, "windlass-hub", false),
            (
                "v1",
                "ServiceAccount",
                Some("fleet-system"),
                "windlass-hub",
                true,
            ),
            ("v1", "ServiceAccount", Some("web"), "windlass-hub", false),
            ("v1", "ServiceAccount", Some("fleet-system"), "other", false),
            (
                CRD,
                "CustomResourceDefinition",
                None,
                "appliedworks.placement.kubernetes-fleet.io",
                true,
            ),
            (
                CRD,
                "CustomResourceDefinition",
                None,
                "memberclusters.cluster.kubernetes-fleet.io",
                true,
            ),
            (
                CRD,
                "CustomResourceDefinition",
                None,
                "things.example.com",
                false,
            ),
            (
                CRD,
                "CustomResourceDefinition",
                None,
                "a.x.placement.kubernetes-fleet.io",
                false,
            ),
        ] {
            let object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
            let id = Manifest::of_snapshot(object).id;
            assert_eq!(is_own(&id), expected, "{api} {kind} {namespace:?} {name}");
        }
    }
}
