//! What an envelope may not hold, though its kind may be placed: what is never selected outside of one either.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::GroupVersionKind;
use serde_json::Value;
use windlass_member::install::is_own;
use windlass_member::manifest::ManifestId;
use windlass_render::ObjectId;

use super::rules::{ApiFilter, holds_hub_token};

impl ApiFilter {
    /// Why a manifest in an envelope is not placed.
    #[must_use]
    pub fn refuses_enveloped(&self, manifest: &Value) -> Option<String> {
        let id = ObjectId::of(manifest);
        let kind = GroupVersionKind::gvk(id.group, id.version, id.kind);
        if id.group.is_empty() && id.kind == "Namespace" && self.is_reserved(id.name) {
            return Some(format!("{id} is reserved"));
        }
        if self.is_left_out(&kind) {
            return Some(format!(
                "{id} is of a kind that the hub's flags on propagating APIs leave out"
            ));
        }
        if is_own(&owned(&id)) {
            return Some(format!(
                "{id} is the hub's own on a member, and is not placed"
            ));
        }
        if holds_hub_token(&kind, manifest) {
            return Some(format!(
                "{id} holds a service account's token, which is worth nothing on another cluster"
            ));
        }
        // A claim in an envelope is bound to nothing on the hub.
        let is_claim = id.group.is_empty() && id.kind == "PersistentVolumeClaim";
        (!is_claim && self.passes_over(&kind, &meta_of(&id, manifest))).then(|| {
            format!("{id} is made by each cluster for itself, or by the hub, and is not placed")
        })
    }
}

fn owned(id: &ObjectId<'_>) -> ManifestId {
    ManifestId {
        group: id.group.to_owned(),
        version: id.version.to_owned(),
        kind: id.kind.to_owned(),
        namespace: id.namespace.map(str::to_owned),
        name: id.name.to_owned(),
    }
}

/// What the rules go by. Nobody has held that the rest of the metadata can be read.
fn meta_of(id: &ObjectId<'_>, manifest: &Value) -> ObjectMeta {
    let field = |pointer| manifest.pointer(pointer);
    let labels = field("/metadata/labels").and_then(Value::as_object);
    let owners = field("/metadata/ownerReferences").and_then(Value::as_array);
    ObjectMeta {
        name: Some(id.name.to_owned()),
        labels: labels.map(|labels| {
            labels
                .keys()
                .map(|key| (key.clone(), String::new()))
                .collect()
        }),
        owner_references: owners.map(|owners| vec![OwnerReference::default(); owners.len()]),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_never_placed_is_not_in_an_envelope_either() {
        let filter = ApiFilter::default()
            .reserving("infra")
            .with_hub_workloads(true);
        let rbac = "rbac.authorization.k8s.io/v1";
        let crd = "apiextensions.k8s.io/v1";
        let hub = "windlass-hub";
        for (api_version, kind, namespace, name, more, why) in [
            (
                "v1",
                "Namespace",
                None,
                "kube-system",
                json!({}),
                "is reserved",
            ),
            ("v1", "Namespace", None, "infra", json!({}), "is reserved"),
            ("v1", "Namespace", None, "web", json!({}), ""),
            ("example.com/v1", "Namespace", None, "infra", json!({}), ""),
            (
                "v1",
                "ConfigMap",
                Some("web"),
                "kube-root-ca.crt",
                json!({}),
                "each cluster for itself",
            ),
            ("v1", "ConfigMap", Some("web"), "settings", json!({}), ""),
            (
                "v1",
                "ServiceAccount",
                Some("web"),
                "default",
                json!({}),
                "each cluster for itself",
            ),
            ("v1", "ServiceAccount", Some("web"), "app", json!({}), ""),
            (
                "v1",
                "Secret",
                Some("web"),
                "t",
                json!({"type": "kubernetes.io/service-account-token"}),
                "a service account's token",
            ),
            (
                "v1",
                "Secret",
                Some("web"),
                "s",
                json!({"type": "Opaque"}),
                "",
            ),
            (
                "v1",
                "Secret",
                Some("web"),
                "c",
                json!({"labels": {"windlass.dev/cluster": 1}}),
                "by the hub",
            ),
            (
                "apps/v1",
                "ReplicaSet",
                Some("web"),
                "r",
                json!({"owners": [{}]}),
                "each cluster for itself",
            ),
            ("apps/v1", "ReplicaSet", Some("web"), "r", json!({}), ""),
            (
                "v1",
                "PersistentVolumeClaim",
                Some("web"),
                "c",
                json!({}),
                "",
            ),
            (rbac, "ClusterRole", None, hub, json!({}), "the hub's own"),
            (
                rbac,
                "ClusterRoleBinding",
                None,
                hub,
                json!({}),
                "the hub's own",
            ),
            (rbac, "ClusterRole", None, "app", json!({}), ""),
            (
                "v1",
                "ServiceAccount",
                Some("fleet-system"),
                hub,
                json!({}),
                "the hub's own",
            ),
            (
                crd,
                "CustomResourceDefinition",
                None,
                "works.placement.kubernetes-fleet.io",
                json!({}),
                "the hub's own",
            ),
            (
                crd,
                "CustomResourceDefinition",
                None,
                "things.example.com",
                json!({}),
                "",
            ),
        ] {
            let manifest = json!({
                "apiVersion": api_version, "kind": kind, "type": more["type"],
                "metadata": {"name": name, "namespace": namespace, "labels": more["labels"],
                    "ownerReferences": more["owners"]}});
            let refusal = filter.refuses_enveloped(&manifest);
            assert_eq!(
                refusal.is_some(),
                !why.is_empty(),
                "{manifest}: {refusal:?}"
            );
            assert!(refusal.unwrap_or_default().contains(why), "{manifest}");
        }
    }

    #[test]
    fn what_flags_leave_out_is_not_in_an_envelope_either() {
        let skipping = ApiFilter::new("v1/Secret;networking.k8s.io", "").unwrap();
        let only = ApiFilter::new("", "v1/ConfigMap,Service;apps/v1").unwrap();
        let default = ApiFilter::default();
        let network = "networking.k8s.io/v1";
        for (filter, api_version, kind, is_placed) in [
            (&skipping, "v1", "Secret", false),
            (&skipping, "v1", "ConfigMap", true),
            (&skipping, network, "NetworkPolicy", false),
            (&only, "v1", "Secret", false),
            (&only, "v1", "Service", true),
            (&only, "apps/v1", "Deployment", true),
            (&only, network, "NetworkPolicy", false),
            // Somebody wrote it into an envelope, so it is no cluster's own.
            (&default, "v1", "Pod", true),
            (&default, "v1", "Secret", true),
        ] {
            let manifest = json!({"apiVersion": api_version, "kind": kind,
                "metadata": {"name": "x", "namespace": "web"}});
            let refusal = filter.refuses_enveloped(&manifest);
            assert_eq!(refusal.is_none(), is_placed, "{kind}: {refusal:?}");
        }
    }
}
