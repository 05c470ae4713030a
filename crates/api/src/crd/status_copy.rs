//! The CRD of ClusterResourcePlacementStatus, which has neither spec nor status: what it copies has the
//! schema of a placement's status.

use serde_json::{Value, json};

use crate::PLACEMENT_GROUP;

/// The CRD, made from that of the placement.
pub fn of(mut placement: Value) -> Value {
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/status";
    let mut status = placement
        .pointer_mut(schema)
        .map(Value::take)
        .unwrap_or_default();
    status["description"] =
        json!("The placement's status when it was copied, but for its StatusSynced condition.");
    let column = |name: &str, type_: &str, path: &str| json!({ "name": name, "type": type_, "jsonPath": path });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("clusterresourceplacementstatuses.{PLACEMENT_GROUP}") },
        "spec": {
            "group": PLACEMENT_GROUP,
            "names": {
                "kind": "ClusterResourcePlacementStatus",
                "plural": "clusterresourceplacementstatuses",
                "singular": "clusterresourceplacementstatus",
                "shortNames": ["crps"],
                "categories": ["fleet", "fleet-placement"],
            },
            "scope": "Namespaced",
            "versions": [{
                "additionalPrinterColumns": [
                    column("Resource-Index", "string", ".sourceStatus.observedResourceIndex"),
                    column("Last-Updated", "string", ".lastUpdatedTime"),
                    column("Age", "date", ".metadata.creationTimestamp"),
                ],
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "description": "ClusterResourcePlacementStatus is a copy of a placement's status in the namespace \
                                    that it selects.",
                    "properties": {
                        "sourceStatus": status,
                        "lastUpdatedTime": {
                            "type": "string",
                            "format": "date-time",
                            "description": "When the status was copied.",
                        },
                    },
                    "required": ["lastUpdatedTime", "sourceStatus"],
                } },
            }],
        },
    })
}
