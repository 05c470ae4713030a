//! What a Namespace or a CustomResourceDefinition holds that we did not place: it would go with it, so the
//! one that holds it waits (design §5.19).

use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::{Api, ResourceExt};
use serde_json::Value;
use windlass_api::labels;
use windlass_cluster::ApiError;

use crate::manifest::ManifestId;
use crate::member::Member;
use crate::object::{OWNER_KIND, annotation};

/// Objects per page of a list.
const PAGE: u32 = 500;

impl Member {
    /// Why a Namespace or CRD can't go yet, if it can't.
    ///
    /// # Errors
    /// When what it holds can't be found out: then nothing may be deleted (I4).
    pub(crate) async fn held_by_contents(
        &self,
        id: &ManifestId,
        live: &DynamicObject,
        work_uid: &str,
    ) -> Result<Option<String>, ApiError> {
        if annotation(live, labels::ALLOW_CASCADE) == Some("true") {
            return Ok(None);
        }
        let found = match (id.group.as_str(), id.kind.as_str()) {
            ("", "Namespace") => self.foreign_in_namespace(&id.name, work_uid).await?,
            ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                self.foreign_of_crd(live, work_uid).await?
            }
            _ => None,
        };
        Ok(found.map(|what| {
            format!(
                "{id}, which holds {what} that this placement did not put there; remove that, or annotate {id} with {}=true to let it go too",
                labels::ALLOW_CASCADE
            )
        }))
    }

    async fn foreign_in_namespace(
        &self,
        namespace: &str,
        work_uid: &str,
    ) -> Result<Option<String>, ApiError> {
        // A kind that was installed a moment ago counts, too.
        self.discovery.invalidate();
        for kind in self.discovery.preferred().await? {
            if !kind.namespaced || !kind.watchable || is_made_by_the_cluster(&kind.resource) {
                continue;
            }
            let api = Api::namespaced_with(self.writer.client().clone(), namespace, &kind.resource);
            if let Some(what) =
                first_foreign(&api, &kind.resource, Some(namespace), work_uid).await?
            {
                return Ok(Some(what));
            }
        }
        Ok(None)
    }

    async fn foreign_of_crd(
        &self,
        crd: &DynamicObject,
        work_uid: &str,
    ) -> Result<Option<String>, ApiError> {
        let Some(kind) = kind_of_crd(crd) else {
            return Ok(None);
        };
        let api = Api::all_with(self.writer.client().clone(), &kind);
        first_foreign(&api, &kind, None, work_uid).await
    }
}

type Metadata = PartialObjectMeta<DynamicObject>;

async fn first_foreign(
    api: &Api<DynamicObject>,
    kind: &ApiResource,
    namespace: Option<&str>,
    work_uid: &str,
) -> Result<Option<String>, ApiError> {
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = match api
            .list_metadata(&params)
            .await
            .map_err(ApiError::from_kube)
        {
            Ok(page) => page,
            // The kind has just gone.
            Err(ApiError::NotFound(_)) => return Ok(None),
            Err(ApiError::Rejected(why)) => {
                return Err(ApiError::Rejected(format!(
                    "whether it holds any {} can't be found out: {why}",
                    kind.plural
                )));
            }
            Err(error) => return Err(error),
        };
        if let Some(object) = page
            .items
            .iter()
            .find(|object| is_foreign(&kind.kind, object, work_uid))
        {
            return Ok(Some(format!(
                "{} {}",
                kind.kind,
                place_of(object, namespace)
            )));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(None),
        }
    }
}

/// The name of an object, with its namespace unless that is clear.
fn place_of(object: &Metadata, within: Option<&str>) -> String {
    let name = object.name_any();
    match object.namespace() {
        Some(namespace) if within != Some(&namespace) => format!("{namespace}/{name}"),
        _ => name,
    }
}

/// The kind that a CRD defines, in a version that it serves.
fn kind_of_crd(crd: &DynamicObject) -> Option<ApiResource> {
    let text = |pointer: &str| crd.data.pointer(pointer).and_then(Value::as_str);
    let versions = crd
        .data
        .pointer("/spec/versions")
        .and_then(Value::as_array)?;
    let version = versions.iter().find(|version| version["served"] == true)?["name"].as_str()?;
    let (group, kind) = (text("/spec/group")?, text("/spec/names/kind")?);
    let gvk = kube::core::GroupVersionKind::gvk(group, version, kind);
    Some(ApiResource::from_gvk_with_plural(
        &gvk,
        text("/spec/names/plural")?,
    ))
}

/// Kinds that controllers of the cluster keep, whatever people do.
fn is_made_by_the_cluster(kind: &ApiResource) -> bool {
    matches!(
        (kind.group.as_str(), kind.kind.as_str()),
        ("", "Event" | "Endpoints")
            | (
                "events.k8s.io" | "coordination.k8s.io" | "metrics.k8s.io",
                _
            )
            | ("discovery.k8s.io", "EndpointSlice")
    )
}

/// Whether an object would be missed: it belongs to nobody, or to another placement. What belongs to an
/// object goes, or stays, with that one.
fn is_foreign(kind: &str, object: &Metadata, work_uid: &str) -> bool {
    let metadata = &object.metadata;
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    if owners
        .iter()
        .any(|owner| owner.kind == OWNER_KIND && owner.uid != work_uid)
    {
        return true;
    }
    let name = metadata.name.as_deref().unwrap_or_default();
    let annotations = metadata.annotations.as_ref();
    let made_by_the_cluster = match kind {
        "ConfigMap" => name == "kube-root-ca.crt",
        "ServiceAccount" => name == "default",
        "Secret" => {
            annotations.is_some_and(|a| a.contains_key("kubernetes.io/service-account.uid"))
        }
        _ => false,
    };
    owners.is_empty() && !made_by_the_cluster
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, owner: Option<(&str, &str)>) -> Metadata {
        let owners: Vec<Value> = owner
            .map(|(kind, uid)| json!({"apiVersion": "g/v1", "kind": kind, "name": "o", "uid": uid}))
            .into_iter()
            .collect();
        serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": owners}}))
            .unwrap()
    }

    #[test]
    fn what_would_be_missed() {
        for (kind, name, owner, expected) in [
            ("ConfigMap", "mine", None, true),
            ("ConfigMap", "kube-root-ca.crt", None, false),
            ("ServiceAccount", "default", None, false),
            ("Secret", "default", None, true),
            ("PersistentVolumeClaim", "data-web-0", None, true),
            ("ConfigMap", "ours", Some(("AppliedWork", "us")), false),
            ("ConfigMap", "theirs", Some(("AppliedWork", "them")), true),
            ("Pod", "web-1", Some(("ReplicaSet", "r")), false),
        ] {
            assert_eq!(
                is_foreign(kind, &object(name, owner), "us"),
                expected,
                "{kind} {name}"
            );
        }
    }

    #[test]
    fn the_kind_of_a_crd_in_a_version_that_is_served() {
        let crd = |versions: Value| -> DynamicObject {
            serde_json::from_value(json!({"metadata": {"name": "things.example.com"}, "spec": {
                "group": "example.com", "names": {"kind": "Thing", "plural": "things"}, "versions": versions}}))
            .unwrap()
        };
        let kind = kind_of_crd(&crd(
            json!([{"name": "v1", "served": false}, {"name": "v2", "served": true}]),
        ))
        .unwrap();
        assert_eq!(
            (kind.version.as_str(), kind.plural.as_str()),
            ("v2", "things")
        );
        assert!(kind_of_crd(&crd(json!([]))).is_none());
    }
}
