//! Reads `schema.txt`, and a schema in its words.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Rows of a section: path and the sorted rest.
pub type Rows = BTreeMap<String, BTreeSet<String>>;

pub fn tables() -> BTreeMap<String, Rows> {
    let mut sections: BTreeMap<String, Rows> = BTreeMap::new();
    let mut current = String::new();
    for line in include_str!("../schema.txt").lines() {
        if line.starts_with('#') || line.is_empty() {
        } else if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            current = name.to_owned();
        } else {
            let (path, rest) = line.split_once(' ').unwrap();
            let rest = rest.split(' ').map(str::to_owned).collect();
            let before = sections
                .entry(current.clone())
                .or_default()
                .insert(path.to_owned(), rest);
            assert_eq!(before, None, "{current}: {path} is there twice");
        }
    }
    sections
}

/// The rows of a section and of what it refers to, below `prefix`.
pub fn expand(sections: &BTreeMap<String, Rows>, section: &str, prefix: &str, rows: &mut Rows) {
    for (path, words) in &sections[section] {
        let path = format!("{prefix}{path}");
        let mut words = words.clone();
        let types: Vec<String> = words
            .iter()
            .filter_map(|word| word.strip_prefix("of=").map(str::to_owned))
            .collect();
        words.retain(|word| !word.starts_with("of=") && word != "extension");
        for name in types.iter().flat_map(|names| names.split(',')) {
            let inside = if words.contains("list-object") {
                "[]."
            } else {
                "."
            };
            expand(sections, name, &format!("{path}{inside}"), rows);
        }
        rows.insert(path, words);
    }
}

/// What a schema says, in the words of `schema.txt`.
fn describe(node: &Value, words: &mut BTreeSet<String>) -> String {
    let name = match node["type"].as_str() {
        None if node["x-kubernetes-int-or-string"] == true => {
            let any_of = serde_json::json!([{ "type": "integer" }, { "type": "string" }]);
            assert_eq!(node["anyOf"], any_of);
            "int-or-string".to_owned()
        }
        Some("array") => format!("list-{}", describe(&node["items"], words)),
        Some("object") if node.get("additionalProperties").is_some() => {
            format!("map-{}", describe(&node["additionalProperties"], words))
        }
        Some(name) => name.to_owned(),
        None if node["x-kubernetes-preserve-unknown-fields"] == true => "any".to_owned(),
        None => panic!("no type: {node}"),
    };
    let text = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    for (key, short) in [
        ("default", "default"),
        ("minimum", "min"),
        ("maximum", "max"),
        ("minItems", "minItems"),
        ("maxItems", "maxItems"),
        ("minProperties", "minProperties"),
        ("maxProperties", "maxProperties"),
        ("minLength", "minLength"),
        ("maxLength", "maxLength"),
        ("format", "format"),
        ("pattern", "pattern"),
    ] {
        if let Some(value) = node.get(key) {
            words.insert(format!("{short}={}", text(value)));
        }
    }
    if let Some(values) = node["enum"].as_array() {
        let values: BTreeSet<String> = values.iter().map(text).collect();
        words.insert(format!(
            "enum={}",
            values.into_iter().collect::<Vec<_>>().join("|")
        ));
    }
    if node["x-kubernetes-list-type"] == "map" {
        assert_eq!(
            node["x-kubernetes-list-map-keys"],
            serde_json::json!(["type"])
        );
        words.insert("list-map".to_owned());
    }
    for (key, value, word) in [
        ("x-kubernetes-list-type", Value::from("atomic"), "atomic"),
        ("x-kubernetes-map-type", Value::from("atomic"), "atomic"),
        (
            "x-kubernetes-preserve-unknown-fields",
            Value::from(true),
            "any-content",
        ),
        (
            "x-kubernetes-embedded-resource",
            Value::from(true),
            "embedded",
        ),
    ] {
        if node.get(key) == Some(&value) {
            words.insert(word.to_owned());
        }
    }
    name
}

pub fn walk(node: &Value, prefix: &str, rows: &mut Rows) {
    for key in ["nullable", "title", "$ref", "oneOf", "allOf"] {
        assert!(node.get(key).is_none(), "{prefix} has {key}");
    }
    let required: Vec<&str> = node["required"]
        .as_array()
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    for (name, child) in node["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        assert!(child["description"].is_string(), "{path} is not described");
        let mut words = BTreeSet::new();
        let kind = describe(child, &mut words);
        words.insert(kind);
        if required.contains(&name.as_str()) {
            words.insert("required".to_owned());
        }
        rows.insert(path.clone(), words);
        walk(child, &format!("{path}."), rows);
        walk(&child["items"], &format!("{path}[]."), rows);
        walk(
            &child["additionalProperties"],
            &format!("{path}{{}}."),
            rows,
        );
    }
}
