//! Fields that an agent of this API owned by updates become fields that we own by apply, once. Otherwise a
//! field that leaves the template would stay on the object for ever: the server removes only what the same
//! manager applied before, and what nobody else owns (rust-stack §4).
//!
//! What moves, of the entries that are about the object itself:
//!
//! | manager | operation | what moves |
//! |---|---|---|
//! | `work-api-agent` | Update | everything |
//! | `before-first-apply`, on an object with a last-applied annotation of the agent | Update | the fields that the annotation holds |
//! | anybody else | any | nothing |

use std::collections::BTreeSet;

use kube::core::DynamicObject;
use serde_json::{Map, Value, json};
use windlass_api::labels;

use crate::object::{FIELD_MANAGER, annotation};

/// The name under which the server keeps fields that were there before it tracked managers.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The patch that makes an object ours to apply: moves ownership of fields, and drops owners that do not
/// exist any more. None when there is nothing to do. `live` has its managedFields.
#[must_use]
pub fn migration(
    live: &DynamicObject,
    dead_owners: &BTreeSet<String>,
) -> Option<json_patch::Patch> {
    let mut steps = Vec::new();
    if let Some(entries) = moved(live) {
        steps.push(json!({"op": "replace", "path": "/metadata/managedFields", "value": entries}));
    }
    let owners = live
        .metadata
        .owner_references
        .as_deref()
        .unwrap_or_default();
    if owners.iter().any(|owner| dead_owners.contains(&owner.uid)) {
        let alive: Vec<_> = owners
            .iter()
            .filter(|owner| !dead_owners.contains(&owner.uid))
            .collect();
        steps.push(json!({"op": "replace", "path": "/metadata/ownerReferences", "value": alive}));
    }
    if steps.is_empty() {
        return None;
    }
    let version = &live.metadata.resource_version;
    steps.insert(
        0,
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}),
    );
    serde_json::from_value(Value::Array(steps)).ok()
}

/// The managedFields after the move; none when nothing moves.
fn moved(live: &DynamicObject) -> Option<Vec<Value>> {
    let entries = serde_json::to_value(live.metadata.managed_fields.as_ref()?).ok()?;
    let last = annotation(live, labels::LAST_APPLIED)
        .and_then(|text| serde_json::from_str::<Value>(text).ok());
    let (mut ours, mut kept) = (Map::new(), Vec::new());
    let mut template: Option<Value> = None;
    let mut any = false;
    for entry in entries.as_array()? {
        let of_object = entry
            .get("subresource")
            .is_none_or(|subresource| subresource == "");
        let fields = entry.get("fieldsV1").and_then(Value::as_object);
        match (
            entry["manager"].as_str(),
            entry["operation"].as_str(),
            fields,
        ) {
            (Some(FIELD_MANAGER), Some(operation), Some(fields)) if of_object => {
                unite(&mut ours, fields);
                any |= operation == "Update";
                // There is one Apply entry per manager, in the version applied last.
                if operation == "Apply" || template.is_none() {
                    template = Some(entry.clone());
                }
            }
            (Some(BEFORE_FIRST_APPLY), Some("Update"), Some(fields))
                if of_object && last.is_some() =>
            {
                let applied = within(fields, last.as_ref().unwrap_or(&Value::Null));
                let mut entry = entry.clone();
                entry["fieldsV1"] = Value::Object(without(fields, &applied));
                any |= !applied.is_empty();
                unite(&mut ours, &applied);
                template.get_or_insert_with(|| entry.clone());
                kept.push(entry);
            }
            _ => kept.push(entry.clone()),
        }
    }
    let mut entry = template.filter(|_| any)?;
    entry["manager"] = json!(FIELD_MANAGER);
    entry["operation"] = json!("Apply");
    entry["fieldsV1"] = Value::Object(ours);
    kept.retain(|entry| {
        entry
            .get("fieldsV1")
            .and_then(Value::as_object)
            .is_none_or(|fields| !fields.is_empty())
    });
    kept.push(entry);
    Some(kept)
}

/// Adds fields to a set of fields.
pub fn unite(into: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (key, value) in more {
        match (into.get_mut(key), value) {
            (Some(Value::Object(into)), Value::Object(more)) => unite(into, more),
            (Some(_), _) => {}
            (None, _) => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The fields of a set that an object has.
fn within(fields: &Map<String, Value>, object: &Value) -> Map<String, Value> {
    let mut found = Map::new();
    for (key, below) in fields {
        let Some(value) = lookup(key, object) else {
            continue;
        };
        match below.as_object().filter(|below| !below.is_empty()) {
            None => {
                found.insert(key.clone(), json!({}));
            }
            Some(below) => {
                let below = within(below, value);
                if !below.is_empty() {
                    found.insert(key.clone(), Value::Object(below));
                }
            }
        }
    }
    found
}

/// What a path element of a field set leads to: `f:name` a field, `k:{…}` the item with those keys,
/// `v:…` the item of that value, `.` the thing itself.
fn lookup<'a>(element: &str, object: &'a Value) -> Option<&'a Value> {
    if element == "." {
        return Some(object);
    }
    let (kind, rest) = element.split_once(':')?;
    match kind {
        "f" => object.get(rest),
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(rest).ok()?;
            let is_it = |item: &&Value| {
                keys.iter().all(|(key, value)| match item.get(key) {
                    None => key == "protocol" && value == "TCP",
                    Some(found) => found == value,
                })
            };
            object.as_array()?.iter().find(is_it)
        }
        "v" => {
            let value: Value = serde_json::from_str(rest).ok()?;
            object.as_array()?.iter().find(|item| **item == value)
        }
        "i" => object.as_array()?.get(rest.parse::<usize>().ok()?),
        _ => None,
    }
}

/// The fields of a set that another one does not have.
fn without(fields: &Map<String, Value>, other: &Map<String, Value>) -> Map<String, Value> {
    let mut left = Map::new();
    for (key, below) in fields {
        let Some(gone) = other.get(key) else {
            left.insert(key.clone(), below.clone());
            continue;
        };
        if let (Value::Object(below), Value::Object(gone)) = (below, gone) {
            let below = without(below, gone);
            if !below.is_empty() {
                left.insert(key.clone(), Value::Object(below));
            }
        }
    }
    left
}

#[cfg(test)]
#[allow(
    clippy::needless_pass_by_value,
    reason = "rows read better with values in place"
)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object(entries: Value) -> DynamicObject {
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "resourceVersion": "7", "managedFields": entries}}))
        .unwrap()
    }

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
               "time": "2026-01-01T00:00:00Z", "fieldsV1": fields})
    }

    fn data(field: &str) -> Value {
        json!({"f:data": {field: {}}})
    }

    fn patch(live: &DynamicObject) -> Option<Value> {
        migration(live, &BTreeSet::new()).map(|patch| serde_json::to_value(patch).unwrap())
    }

    #[test]
    fn updates_of_the_agent_become_one_apply() {
        let mut status = entry(FIELD_MANAGER, "Update", json!({"f:status": {}}));
        status["subresource"] = json!("status");
        let live = object(json!([
            entry("kubectl", "Update", data("f:k")),
            entry(FIELD_MANAGER, "Update", data("f:a")),
            entry(FIELD_MANAGER, "Apply", data("f:b")),
            status,
        ]));
        let patch = patch(&live).unwrap();
        assert_eq!(
            patch[0],
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"})
        );
        let entries = patch[1]["value"].as_array().unwrap();
        assert_eq!(entries.len(), 3);
        assert_eq!(entries[0]["manager"], "kubectl");
        assert_eq!(entries[1]["subresource"], "status");
        assert_eq!(
            (&entries[2]["operation"], &entries[2]["manager"]),
            (&json!("Apply"), &json!(FIELD_MANAGER))
        );
        assert_eq!(
            entries[2]["fieldsV1"],
            json!({"f:data": {"f:a": {}, "f:b": {}}})
        );
    }

    #[test]
    fn of_what_was_there_before_only_what_the_agent_applied_moves() {
        let fields = json!({
            "f:data": {".": {}, "f:mine": {}, "f:other": {}},
            "f:list": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:x": {}}, "k:{\"name\":\"b\"}": {".": {}}},
            "f:metadata": {"f:finalizers": {"v:\"keep\"": {}}},
        });
        let mut live = object(json!([entry(BEFORE_FIRST_APPLY, "Update", fields)]));
        assert_eq!(
            patch(&live),
            None,
            "without the annotation nothing tells what the agent applied"
        );
        let last = json!({"data": {"mine": "1"}, "list": [{"name": "a", "x": 1}]});
        live.metadata.annotations =
            Some([(labels::LAST_APPLIED.to_owned(), last.to_string())].into());
        let patch = patch(&live).unwrap();
        assert_eq!(
            patch[1]["value"][0]["fieldsV1"],
            json!({"f:data": {"f:other": {}}, "f:list": {"k:{\"name\":\"b\"}": {".": {}}},
                   "f:metadata": {"f:finalizers": {"v:\"keep\"": {}}}})
        );
        assert_eq!(
            patch[1]["value"][1]["fieldsV1"],
            json!({"f:data": {".": {}, "f:mine": {}},
                   "f:list": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:x": {}}}})
        );
    }

    #[test]
    fn owners_that_are_no_more_are_dropped() {
        let mut live = object(json!([]));
        let owners = json!([{"apiVersion": "v1", "kind": "AppliedWork", "name": "w", "uid": "dead"},
                            {"apiVersion": "v1", "kind": "Thing", "name": "t", "uid": "alive"}]);
        live.metadata.owner_references = serde_json::from_value(owners).unwrap();
        let patch = migration(&live, &BTreeSet::from(["dead".to_owned()])).unwrap();
        let patch = serde_json::to_value(patch).unwrap();
        assert_eq!(patch[1]["path"], "/metadata/ownerReferences");
        assert_eq!(patch[1]["value"].as_array().unwrap().len(), 1);
        assert_eq!(patch[1]["value"][0]["uid"], "alive");
    }

    #[test]
    fn nothing_to_move() {
        let applied = entry(FIELD_MANAGER, "Apply", data("f:a"));
        assert_eq!(
            patch(&object(json!([applied, entry("x", "Update", data("f:b"))]))),
            None
        );
        assert_eq!(patch(&object(json!([]))), None);
    }

    fn fields() -> impl Strategy<Value = Map<String, Value>> {
        let leaf = Just(json!({}));
        leaf.prop_recursive(3, 24, 4, |inner| {
            proptest::collection::btree_map("f:[a-e]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        })
        .prop_map(|value| value.as_object().cloned().unwrap_or_default())
    }

    fn united(a: &Map<String, Value>, b: &Map<String, Value>) -> Map<String, Value> {
        let mut sum = a.clone();
        unite(&mut sum, b);
        sum
    }

    proptest! {
        #[test]
        fn the_union_is_one(a in fields(), b in fields(), c in fields()) {
            prop_assert_eq!(united(&a, &a), a.clone());
            prop_assert_eq!(united(&a, &b), united(&b, &a));
            prop_assert_eq!(united(&united(&a, &b), &c), united(&a, &united(&b, &c)));
        }
    }
}
