use proptest::prelude::*;
use serde_json::json;

use super::*;

fn manifest(api_version: &str, kind: &str, mut object: Value) -> Manifest {
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    if object.get("metadata").is_none() {
        object["metadata"] = json!({});
    }
    object["metadata"]["name"] = json!("a");
    Manifest::of_snapshot(object)
}

fn first(api_version: &str, kind: &str, wanted: Value, live: Value) -> Option<String> {
    let live: DynamicObject = serde_json::from_value(live).unwrap();
    first_difference(&manifest(api_version, kind, wanted), &live)
}

fn check(api_version: &str, kind: &str, rows: Vec<(Value, Value, Option<&str>)>) {
    for (wanted, live, expected) in rows {
        let found = first(api_version, kind, wanted.clone(), live.clone());
        assert_eq!(found.as_deref(), expected, "{wanted} {live}");
    }
}

#[test]
fn plain_data_is_compared_exactly() {
    check(
        "v1",
        "ConfigMap",
        vec![
            (
                json!({"data": {"a": "1"}}),
                json!({"data": {"a": "1", "b": "2"}}),
                None,
            ),
            (
                json!({"data": {"a": "1"}}),
                json!({"data": {"a": "2"}}),
                Some("/data/a"),
            ),
            (json!({"data": {"a": "1"}}), json!({}), Some("/data")),
            (
                json!({"data": {"a": "1000m"}}),
                json!({"data": {"a": "1"}}),
                Some("/data/a"),
            ),
            (
                json!({"data": {"limits": "1000m"}}),
                json!({"data": {"limits": "1"}}),
                Some("/data/limits"),
            ),
            (
                json!({"data": {"a": ""}}),
                json!({"data": {"b": ""}}),
                Some("/data/a"),
            ),
            (json!({"data": {}}), json!({}), None),
            (json!({"data": null}), json!({"data": {"a": "1"}}), None),
            (json!({"immutable": false}), json!({}), Some("/immutable")),
            (json!({"status": {"x": 1}}), json!({}), None),
        ],
    );
}

#[test]
fn labels_and_annotations_count_but_no_other_metadata() {
    let manifest = json!({"metadata": {
        "labels": {"a/b": "1"}, "annotations": {"note": "", "deployment.kubernetes.io/revision": "3"},
        "finalizers": ["x"], "ownerReferences": [{"uid": "u"}], "generation": 3}});
    check(
        "v1",
        "ConfigMap",
        vec![
            (
                manifest.clone(),
                json!({"metadata": {"labels": {"a/b": "1", "c": "2"}, "annotations": {"note": ""}}}),
                None,
            ),
            (
                manifest.clone(),
                json!({"metadata": {"annotations": {"note": ""}}}),
                Some("/metadata/labels/a~1b"),
            ),
            (
                manifest,
                json!({"metadata": {"labels": {"a/b": "1"}}}),
                Some("/metadata/annotations/note"),
            ),
        ],
    );
}

#[test]
fn secrets_are_compared_where_the_server_keeps_them() {
    check(
        "v1",
        "Secret",
        vec![
            (
                json!({"stringData": {"k": "v"}}),
                json!({"data": {"k": "dg=="}}),
                None,
            ),
            (
                json!({"stringData": {"k": "v"}}),
                json!({"data": {"k": "dw=="}}),
                Some("/stringData/k"),
            ),
            (
                json!({"stringData": {"k": "v"}}),
                json!({}),
                Some("/stringData/k"),
            ),
            (
                json!({"data": {"k": "dw=="}, "stringData": {"k": "v"}}),
                json!({"data": {"k": "dg=="}}),
                None,
            ),
        ],
    );
}

#[test]
fn workloads() {
    let pod = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    let image = Some("/spec/template/spec/containers/0/image");
    check(
        "apps/v1",
        "Deployment",
        vec![
            (
                pod(json!({"containers": [{"name": "a", "image": "x"}]})),
                pod(
                    json!({"containers": [{"name": "sidecar"}, {"name": "a", "image": "x", "imagePullPolicy": "Always"}]}),
                ),
                None,
            ),
            (
                pod(json!({"containers": [{"name": "a", "image": "x"}]})),
                pod(json!({"containers": [{"name": "a", "image": "y"}]})),
                image,
            ),
            (
                pod(
                    json!({"containers": [{"resources": {"limits": {"cpu": "1000m", "memory": 1024}}, "name": "a"}]}),
                ),
                pod(
                    json!({"containers": [{"resources": {"limits": {"cpu": "1", "memory": "1Ki"}}, "name": "a"}]}),
                ),
                None,
            ),
            (
                pod(json!({"containers": [{"ports": [{"containerPort": 80}], "name": "a"}]})),
                pod(
                    json!({"containers": [{"ports": [{"containerPort": 80, "protocol": "TCP"}], "name": "a"}]}),
                ),
                None,
            ),
            (
                pod(json!({"containers": [{"args": ["a", "b"], "name": "a"}]})),
                pod(json!({"containers": [{"args": ["b", "a"], "name": "a"}]})),
                Some("/spec/template/spec/containers/0/args/0"),
            ),
            (
                pod(
                    json!({"containers": [{"env": [{"name": "A", "value": "1000m"}], "name": "a"}]}),
                ),
                pod(json!({"containers": [{"env": [{"name": "A", "value": "1"}], "name": "a"}]})),
                Some("/spec/template/spec/containers/0/env/0/value"),
            ),
            // A repeated key leaves no way but the order.
            (
                pod(
                    json!({"containers": [{"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], "name": "a"}]}),
                ),
                pod(
                    json!({"containers": [{"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], "name": "a"}]}),
                ),
                None,
            ),
            (
                json!({"spec": {"paused": false, "strategy": {}}}),
                json!({"spec": {}}),
                None,
            ),
            (
                json!({"spec": {"replicas": 0}}),
                json!({"spec": {"replicas": 1}}),
                Some("/spec/replicas"),
            ),
            (
                json!({"spec": {"template": {"metadata": {"creationTimestamp": null}}}}),
                json!({"spec": {"template": {"metadata": {}}}}),
                None,
            ),
        ],
    );
}

#[test]
fn services_and_selectors() {
    check(
        "v1",
        "Service",
        vec![
            (
                json!({"spec": {"selector": {"a": "1"}}}),
                json!({"spec": {"selector": {"a": "1"}}}),
                None,
            ),
            (
                json!({"spec": {"selector": {"a": "1"}}}),
                json!({"spec": {"selector": {"a": "1", "b": "2"}}}),
                Some("/spec/selector/b"),
            ),
            (
                json!({"spec": {"clusterIP": "", "ports": [{"port": 80}]}}),
                json!({"spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]}}),
                None,
            ),
            (
                json!({"spec": {"publishNotReadyAddresses": false}}),
                json!({"spec": {}}),
                None,
            ),
        ],
    );
}

#[test]
fn nothing_is_known_of_custom_resources() {
    check(
        "example.com/v1",
        "Thing",
        vec![
            (
                json!({"spec": {"containers": [{"name": "a"}]}}),
                json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
                Some("/spec/containers"),
            ),
            (
                json!({"spec": {"limits": "1000m"}}),
                json!({"spec": {"limits": "1"}}),
                Some("/spec/limits"),
            ),
            (
                json!({"spec": {"paused": false}}),
                json!({"spec": {}}),
                Some("/spec/paused"),
            ),
            (json!({"spec": {"n": 1}}), json!({"spec": {"n": 1.0}}), None),
            (
                json!({"spec": {"n": 1}}),
                json!({"spec": {"n": "1"}}),
                Some("/spec/n"),
            ),
        ],
    );
}

#[test]
fn all_differences_are_told_in_order() {
    let manifest = manifest(
        "v1",
        "ConfigMap",
        json!({"data": {"a": "1", "b": "2", "c": "3"}}),
    );
    let live = serde_json::from_value(json!({"data": {"a": "x", "b": "2"}})).unwrap();
    let paths: Vec<String> = covers(&manifest, &live)
        .unwrap_err()
        .into_iter()
        .map(|d| d.path)
        .collect();
    assert_eq!(paths, ["/data/a", "/data/c"]);
}

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,4}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z]{1,3}|env|ports|selector", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Puts a field that nobody asked for into every map.
fn with_extras(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut map: Map<String, Value> = map
                .iter()
                .map(|(key, value)| (key.clone(), with_extras(value)))
                .collect();
            map.insert("ADDED".to_owned(), json!(1));
            Value::Object(map)
        }
        Value::Array(list) => list.iter().map(with_extras).collect(),
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn every_object_covers_itself(spec in tree(), builtin in any::<bool>()) {
        let version = if builtin { "apps/v1" } else { "example.com/v1" };
        prop_assert_eq!(first(version, "Thing", json!({"spec": spec.clone()}), json!({"spec": spec})), None);
    }

    #[test]
    fn what_the_server_adds_does_not_matter(spec in tree()) {
        let live = json!({"spec": with_extras(&spec)});
        prop_assert_eq!(first("example.com/v1", "Thing", json!({"spec": spec}), live), None);
    }

    #[test]
    fn a_changed_scalar_is_always_seen(spec in tree(), value in any::<i32>()) {
        let wanted = json!({"spec": {"x": value, "y": spec.clone()}});
        let live = json!({"spec": {"x": i64::from(value) + 1, "y": spec}});
        let found = first("apps/v1", "Thing", wanted, live);
        prop_assert_eq!(found.as_deref(), Some("/spec/x"));
    }
}
