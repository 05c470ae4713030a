//! Fields that an agent owned by updates become fields that we own by apply, once: otherwise a field that
//! leaves the template would stay on the object for ever.

use kube::core::DynamicObject;
use serde_json::{Map, Value, json};

use crate::object::FIELD_MANAGER;

/// The patch that moves ownership; none when nothing is to be moved. `live` has its managedFields.
#[must_use]
pub fn migration(live: &DynamicObject) -> Option<json_patch::Patch> {
    let entries = serde_json::to_value(live.metadata.managed_fields.as_ref()?).ok()?;
    let entries = entries.as_array()?;
    let ours = |entry: &Value| {
        entry["manager"] == FIELD_MANAGER && entry.get("subresource").is_none_or(|s| s == "")
    };
    let is_update = |entry: &&Value| ours(entry) && entry["operation"] == "Update";
    if !entries.iter().any(|entry| is_update(&entry)) {
        return None;
    }
    let mut fields = Map::new();
    for entry in entries.iter().filter(|entry| ours(entry)) {
        if let Some(more) = entry["fieldsV1"].as_object() {
            unite(&mut fields, more);
        }
    }
    let template = entries.iter().find(is_update)?;
    let mut kept: Vec<Value> = entries
        .iter()
        .filter(|entry| !ours(entry))
        .cloned()
        .collect();
    kept.push(json!({
        "manager": FIELD_MANAGER,
        "operation": "Apply",
        "apiVersion": template["apiVersion"],
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        "time": template["time"],
    }));
    serde_json::from_value(json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": live.metadata.resource_version},
        {"op": "replace", "path": "/metadata/managedFields", "value": kept},
    ]))
    .ok()
}

fn unite(into: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (key, value) in more {
        match (into.get_mut(key), value) {
            (Some(Value::Object(into)), Value::Object(more)) => unite(into, more),
            _ => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "rows read better")]
    fn object(entries: Value) -> DynamicObject {
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "resourceVersion": "7", "managedFields": entries}}))
        .unwrap()
    }

    fn entry(manager: &str, operation: &str, field: &str) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
               "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:data": {field: {}}}})
    }

    #[test]
    fn updates_of_the_agent_become_one_apply() {
        let live = object(json!([
            entry("kubectl", "Update", "f:k"),
            entry(FIELD_MANAGER, "Update", "f:a"),
            entry(FIELD_MANAGER, "Apply", "f:b"),
        ]));
        let patch = serde_json::to_value(migration(&live).unwrap()).unwrap();
        assert_eq!(patch[0]["value"], "7");
        let entries = patch[1]["value"].as_array().unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0]["manager"], "kubectl");
        assert_eq!(entries[1]["operation"], "Apply");
        assert_eq!(
            entries[1]["fieldsV1"],
            json!({"f:data": {"f:a": {}, "f:b": {}}})
        );
    }

    #[test]
    fn nothing_to_move() {
        assert!(
            migration(&object(json!([
                entry(FIELD_MANAGER, "Apply", "f:a"),
                entry("x", "Update", "f:b")
            ])))
            .is_none()
        );
        assert!(migration(&object(json!([]))).is_none());
    }
}
