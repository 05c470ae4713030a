//! What is taken off an object before it is stored (API §7.4).

use serde_json::{Map, Value};
use windlass_api::labels;

use super::renders::OWNED;

const METADATA: [&str; 8] = [
    "resourceVersion",
    "generation",
    "uid",
    "selfLink",
    "deletionTimestamp",
    "creationTimestamp",
    "managedFields",
    "ownerReferences",
];
const ANNOTATIONS: [&str; 4] = [
    OWNED,
    // Only the hub vouches, and only afterwards.
    labels::ADDON_VOUCHED,
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
];
const CONTROLLER_UIDS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Takes off what only means something on the hub.
pub fn sanitise(object: &mut Value) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    map.remove("status");
    if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in METADATA {
            metadata.remove(field);
        }
        remove_keys(metadata, "annotations", &ANNOTATIONS);
    }
    let kind = (
        map.get("apiVersion").and_then(Value::as_str),
        map.get("kind").and_then(Value::as_str),
    );
    match kind {
        (Some("v1"), Some("Service")) => service(map),
        (Some("batch/v1"), Some("Job")) => job(map),
        // The API server's own finalizer comes by itself.
        (Some("v1"), Some("Namespace")) => {
            map.remove("spec");
        }
        _ => {}
    }
}

/// Removes keys from a map field, and the field when nothing is left in it.
fn remove_keys(parent: &mut Map<String, Value>, field: &str, keys: &[&str]) {
    let Some(map) = parent.get_mut(field).and_then(Value::as_object_mut) else {
        return;
    };
    for key in keys {
        map.remove(*key);
    }
    if map.is_empty() {
        parent.remove(field);
    }
}

fn service(map: &mut Map<String, Value>) {
    let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if spec.get("clusterIP").and_then(Value::as_str) != Some("None") {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    spec.remove("healthCheckNodePort");
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(port) = port.as_object_mut() {
            port.remove("nodePort");
        }
    }
}

fn job(map: &mut Map<String, Value>) {
    let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if spec.get("manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    if let Some(selector) = spec.get_mut("selector").and_then(Value::as_object_mut) {
        remove_keys(selector, "matchLabels", &CONTROLLER_UIDS);
        if selector.is_empty() {
            spec.remove("selector");
        }
    }
    let metadata = spec
        .get_mut("template")
        .and_then(|t| t.get_mut("metadata"))
        .and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        remove_keys(metadata, "labels", &CONTROLLER_UIDS);
        metadata.remove("creationTimestamp");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn rows() {
        let rows = [
            (
                json!({"apiVersion": "v1", "kind": "ConfigMap", "status": {},
                       "metadata": {"name": "a", "uid": "u", "resourceVersion": "1", "managedFields": [],
                                    "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x"},
                                    "finalizers": ["f"], "labels": {"l": "1"}}}),
                json!({"apiVersion": "v1", "kind": "ConfigMap",
                       "metadata": {"name": "a", "finalizers": ["f"], "labels": {"l": "1"}}}),
            ),
            (
                json!({"apiVersion": "v1", "kind": "Service",
                       "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80, "nodePort": 30000}]}}),
                json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}}),
            ),
            (
                json!({"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None", "clusterIPs": ["None"]}}),
                json!({"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None", "clusterIPs": ["None"]}}),
            ),
            (
                json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {
                    "selector": {"matchLabels": {"controller-uid": "u"}},
                    "template": {"metadata": {"labels": {"controller-uid": "u", "a": "b"}, "creationTimestamp": null}}}}),
                json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}),
            ),
            (
                json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {
                    "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u", "a": "b"}},
                    "template": {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": "u"}}}}}),
                json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {
                    "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {}}}}),
            ),
            (
                json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"manualSelector": true,
                    "selector": {"matchLabels": {"controller-uid": "u"}},
                    "template": {"metadata": {"labels": {"controller-uid": "u"}}}}}),
                json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"manualSelector": true,
                    "selector": {"matchLabels": {"controller-uid": "u"}},
                    "template": {"metadata": {"labels": {"controller-uid": "u"}}}}}),
            ),
            (
                json!({"apiVersion": "v1", "kind": "Service", "spec": {"healthCheckNodePort": 30001, "type": "LoadBalancer"}}),
                json!({"apiVersion": "v1", "kind": "Service", "spec": {"type": "LoadBalancer"}}),
            ),
            // Of another group, it is another kind.
            (
                json!({"apiVersion": "serving.example.com/v1", "kind": "Service", "spec": {"clusterIP": "x"}}),
                json!({"apiVersion": "serving.example.com/v1", "kind": "Service", "spec": {"clusterIP": "x"}}),
            ),
            (
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"deletionGracePeriodSeconds": 3,
                    "annotations": {"deployment.kubernetes.io/revision": "2", "mine": "1"}}}),
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"deletionGracePeriodSeconds": 3,
                    "annotations": {"mine": "1"}}}),
            ),
            (
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}}),
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}),
            ),
        ];
        for (mut object, expected) in rows {
            sanitise(&mut object);
            assert_eq!(object, expected);
            sanitise(&mut object);
            assert_eq!(object, expected, "once is enough");
        }
    }

    fn an_object() -> impl Strategy<Value = Value> {
        let field = proptest::sample::select(
            METADATA
                .iter()
                .chain(&["name", "labels", "finalizers"])
                .copied()
                .collect::<Vec<_>>(),
        );
        let metadata = proptest::collection::btree_map(field, Just(json!([{"k": "v"}])), 0..8);
        let annotation = proptest::sample::select(vec![ANNOTATIONS[0], ANNOTATIONS[1], "mine"]);
        let annotations = proptest::collection::btree_map(annotation, Just("v"), 0..3);
        let api = proptest::sample::select(vec![
            ("v1", "Service"),
            ("batch/v1", "Job"),
            ("apps/v1", "Deployment"),
        ]);
        (api, metadata, annotations).prop_map(|((version, kind), metadata, annotations)| {
            let mut object = json!({"apiVersion": version, "kind": kind, "metadata": metadata,
                "spec": {"clusterIP": "1.2.3.4", "selector": {"matchLabels": {"controller-uid": "u", "a": "b"}}},
                "status": {}});
            object["metadata"]["annotations"] = json!(annotations);
            object
        })
    }

    proptest! {
        #[test]
        fn what_is_kept_is_kept_and_once_is_enough(object in an_object()) {
            let mut clean = object.clone();
            sanitise(&mut clean);
            for field in METADATA {
                prop_assert!(clean["metadata"].get(field).is_none());
            }
            for field in ["name", "labels", "finalizers"] {
                prop_assert_eq!(clean["metadata"].get(field), object["metadata"].get(field));
            }
            let mine = object["metadata"]["annotations"].get("mine").map(|_| json!({"mine": "v"}));
            prop_assert_eq!(clean["metadata"].get("annotations"), mine.as_ref());
            prop_assert!(clean.get("status").is_none());
            let mut again = clean.clone();
            sanitise(&mut again);
            prop_assert_eq!(again, clean);
        }
    }
}
