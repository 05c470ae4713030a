//! The envelopes (API §3.17): manifests that must not take effect on the hub. They have no spec, so that
//! no type derives their CRD; the hub reads them as they are selected.

use serde_json::{Value, json};

use super::rules::push;
use crate::{PLACEMENT_GROUP, STORAGE_VERSION};

/// The CRDs of both envelopes. Upstream serves them in the storage version only (API §1.2).
pub fn crds() -> impl Iterator<Item = Value> {
    [
        crd(
            "ClusterResourceEnvelope",
            "Cluster",
            "ClusterResourceEnvelope carries cluster-scoped manifests that must not take effect on the hub.",
        ),
        crd(
            "ResourceEnvelope",
            "Namespaced",
            "ResourceEnvelope carries manifests of its namespace that must not take effect on the hub.",
        ),
    ]
    .into_iter()
}

fn crd(kind: &str, scope: &str, about: &str) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{PLACEMENT_GROUP}") },
        "spec": {
            "group": PLACEMENT_GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "singular": singular,
                "plural": plural,
                "categories": ["fleet", "fleet-placement"],
            },
            "conversion": { "strategy": "None" },
            "versions": [{
                "name": STORAGE_VERSION,
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": schema(about) },
            }],
        },
    })
}

fn schema(about: &str) -> Value {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let mut schema = json!({
        "type": "object",
        "description": about,
        "required": ["data"],
        "properties": {
            "apiVersion": text("APIVersion defines the versioned schema of this representation of an object."),
            "kind": text("Kind is a string value representing the REST resource this object represents."),
            "metadata": { "type": "object" },
            "data": {
                "type": "object",
                "description": "The manifests. The keys are for people only.",
                "minProperties": 1,
                "maxProperties": 50,
                "additionalProperties": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                },
            },
        },
    });
    // The name becomes the value of a label of a Work.
    push(
        &mut schema,
        "",
        "size(self.metadata.name) < 64",
        "metadata.name must be shorter than 64 characters",
    );
    schema
}
