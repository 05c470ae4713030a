//! Whether the CRDs that are installed know every field of ours (design §5.20). A field that the API
//! server does not know is dropped, so that each report looks new, and is written for ever.

use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;
use windlass_api::crd;
use windlass_cluster::Writer;

/// Why the hub can't work with what is installed.
#[derive(Debug, thiserror::Error)]
pub enum InstalledError {
    /// A field is not known to the API server.
    #[error(
        "the installed CRD {crd} does not know the field {field}; bring it up to date with: \
         windlass crds | kubectl apply --server-side -f -"
    )]
    Missing {
        /// Name of the CRD.
        crd: String,
        /// Path of the first field that is missing.
        field: String,
    },
    /// Our own CRDs can't be made: a bug.
    #[error("the CRDs can't be made: {0}")]
    Own(#[from] serde_json::Error),
}

/// Compares the CRDs that are installed with ours. One that can't be read is passed over: without it the
/// watches say what is missing, and the right to read it may be lacking.
///
/// # Errors
/// See [`InstalledError`].
pub async fn check(hub: &Writer) -> Result<(), InstalledError> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
    ));
    for ours in crd::hub_crds()? {
        let name = ours["metadata"]["name"].as_str().unwrap_or_default();
        match hub.get_dyn(&kind, None, name).await {
            Ok(Some(installed)) => {
                if let Some(field) = missing(&ours["spec"], &installed.data["spec"]) {
                    return Err(InstalledError::Missing {
                        crd: name.to_owned(),
                        field,
                    });
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(
                    crd = name,
                    error = error.message(),
                    "the installed CRD can't be read, so it is not checked"
                );
            }
        }
    }
    Ok(())
}

/// The first field of ours that the other one has not.
fn missing(ours: &Value, installed: &Value) -> Option<String> {
    let versions = ours["versions"].as_array().into_iter().flatten();
    let version = versions
        .filter(|version| version["storage"] == true)
        .map(|version| &version["name"])
        .next()
        .unwrap_or(&Value::Null);
    let (Some(ours), Some(installed)) = (schema(ours, version), schema(installed, version)) else {
        return Some(format!(
            "(version {})",
            version.as_str().unwrap_or_default()
        ));
    };
    missing_in(ours, installed, "")
}

/// The schema of the version that is written: the one that ours is stored in.
fn schema<'a>(spec: &'a Value, version: &Value) -> Option<&'a Value> {
    spec.get("versions")?
        .as_array()?
        .iter()
        .find(|known| known["name"] == *version)?
        .pointer("/schema/openAPIV3Schema")
}

fn missing_in(ours: &Value, installed: &Value, path: &str) -> Option<String> {
    let keeps_all = installed["x-kubernetes-preserve-unknown-fields"] == true;
    if let Some(fields) = ours["properties"].as_object() {
        for (name, field) in fields {
            let path = format!("{path}.{name}");
            match installed["properties"].get(name) {
                Some(other) => {
                    if let Some(found) = missing_in(field, other, &path) {
                        return Some(found);
                    }
                }
                None if keeps_all => {}
                None => return Some(path),
            }
        }
    }
    let inner = [("items", "[]"), ("additionalProperties", ".*")];
    inner.into_iter().find_map(|(key, mark)| {
        let field = ours.get(key).filter(|field| field.is_object())?;
        missing_in(field, installed.get(key)?, &format!("{path}{mark}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(properties: &Value) -> Value {
        json!({ "versions": [{ "name": "v1beta1", "storage": true, "schema": { "openAPIV3Schema": {
            "properties": { "status": { "properties": properties } } } } }] })
    }

    #[test]
    fn ours_are_complete_and_one_without_a_field_is_named() {
        for crd in crd::hub_crds().unwrap() {
            assert_eq!(missing(&crd["spec"], &crd["spec"]), None);
        }
        let known = json!({ "type": "string" });
        let list = |fields: Value| json!({ "items": { "properties": fields } });
        let rows = [
            (json!({ "a": known }), json!({ "a": known }), None),
            (
                json!({ "a": known }),
                json!({ "a": known, "more": known }),
                None,
            ),
            (json!({ "a": known }), json!({}), Some(".status.a")),
            (
                json!({ "l": list(json!({ "a": known })) }),
                json!({ "l": list(json!({})) }),
                Some(".status.l[].a"),
            ),
            (
                json!({ "o": { "properties": { "a": known } } }),
                json!({ "o": { "x-kubernetes-preserve-unknown-fields": true } }),
                None,
            ),
        ];
        for (ours, installed, expected) in rows {
            let found = missing(&spec(&ours), &spec(&installed));
            assert_eq!(found.as_deref(), expected, "{ours}");
        }
        assert!(missing(&spec(&json!({})), &json!({ "versions": [] })).is_some());
    }
}
