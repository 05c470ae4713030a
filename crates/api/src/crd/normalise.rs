//! From schemars' form to controller-gen's.

use serde_json::{Map, Value, json};

const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Normalises a schema and everything below it.
pub fn schema(node: &mut Value) {
    if let Value::Object(map) = node {
        map.remove("nullable");
        map.remove("title");
        // A number of the API has no unsigned form.
        if matches!(
            map.get("format").and_then(Value::as_str),
            Some("uint32" | "uint64" | "double")
        ) {
            map.remove("format");
        }
        without_null(map);
        whole_numbers(map);
        int_or_string(map);
        for key in ["properties", "items", "additionalProperties", "anyOf"] {
            match map.get_mut(key) {
                Some(Value::Object(children)) if key == "properties" => {
                    children.values_mut().for_each(schema);
                }
                Some(Value::Array(children)) => children.iter_mut().for_each(schema),
                Some(child @ Value::Object(_)) => schema(child),
                _ => {}
            }
        }
        known_shapes(map);
    }
}

/// Every object has a type and metadata, and is described by its own words: they stand at the type of the
/// spec, because that is the type which a person writes.
pub fn root(node: &mut Value) {
    let spec = json!("Desired state.");
    if let Some(about) = node.pointer_mut("/properties/spec/description") {
        node["description"] = std::mem::replace(about, spec);
    }
    if let Some(about) = node.pointer_mut("/properties/status/description") {
        *about = json!(format!(
            "Observed state. {}",
            about.as_str().unwrap_or_default()
        ));
    }
    let described = |text: &str| json!({ "type": "string", "description": text });
    if let Some(properties) = node.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert(
            "apiVersion".into(),
            described(
                "APIVersion defines the versioned schema of this representation of an object.",
            ),
        );
        properties.insert(
            "kind".into(),
            described(
                "Kind is a string value representing the REST resource this object represents.",
            ),
        );
        properties.insert("metadata".into(), json!({ "type": "object" }));
    }
}

/// An optional enum lists null among its values; the API leaves an absent field out instead.
fn without_null(map: &mut Map<String, Value>) {
    if let Some(Value::Array(values)) = map.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
}

/// Bounds are floating point numbers in Rust's schema, and integers in Go's.
fn whole_numbers(map: &mut Map<String, Value>) {
    for key in ["minimum", "maximum"] {
        let Some(bound) = map.get(key).and_then(Value::as_f64) else {
            continue;
        };
        // Bounds of the API are small.
        if bound.fract() == 0.0 && bound.abs() < 1e9 {
            map.insert(key.to_owned(), json!(bound as i64));
        }
    }
}

fn int_or_string(map: &mut Map<String, Value>) {
    if map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        map.insert(
            "anyOf".into(),
            json!([{ "type": "integer" }, { "type": "string" }]),
        );
        map.remove("type");
        map.remove("format");
    }
}

/// Limits that Kubernetes' own types carry in Go and not in Rust.
fn known_shapes(map: &mut Map<String, Value>) {
    let has = |map: &Map<String, Value>, names: &[&str]| {
        map.get("properties")
            .and_then(Value::as_object)
            .is_some_and(|p| names.iter().all(|name| p.contains_key(*name)))
    };
    if has(map, &["lastTransitionTime", "reason", "status", "type"]) {
        condition(map);
    }
    if has(map, &["matchExpressions", "matchLabels"]) {
        map.insert("x-kubernetes-map-type".into(), json!("atomic"));
        for pointer in [
            "/properties/matchExpressions",
            "/properties/matchExpressions/items/properties/values",
        ] {
            let mut parts = pointer.trim_start_matches('/').split('/');
            let first = parts.next().and_then(|key| map.get_mut(key));
            let found = parts.fold(first, |node, key| node.and_then(|node| node.get_mut(key)));
            if let Some(Value::Object(list)) = found {
                list.insert("x-kubernetes-list-type".into(), json!("atomic"));
            }
        }
    }
    for name in ["capacity", "allocatable", "available"] {
        let quantity = map
            .get_mut("properties")
            .and_then(|p| p.get_mut(name))
            .and_then(|p| p.get_mut("additionalProperties"))
            .and_then(Value::as_object_mut);
        if let Some(quantity) = quantity {
            *quantity = Map::new();
            quantity.insert(
                "anyOf".into(),
                json!([{ "type": "integer" }, { "type": "string" }]),
            );
            quantity.insert("pattern".into(), json!(QUANTITY));
            quantity.insert("x-kubernetes-int-or-string".into(), json!(true));
        }
    }
}

fn condition(map: &mut Map<String, Value>) {
    let limits = [
        ("message", json!({ "maxLength": 32768 })),
        (
            "reason",
            json!({ "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$" }),
        ),
        ("status", json!({ "enum": ["True", "False", "Unknown"] })),
        (
            "type",
            json!({ "maxLength": 316, "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$" }),
        ),
        ("observedGeneration", json!({ "minimum": 0 })),
    ];
    let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for (name, extra) in limits {
        if let (Some(Value::Object(field)), Value::Object(extra)) =
            (properties.get_mut(name), extra)
        {
            field.extend(extra);
        }
    }
}
