//! Three-way merge, for objects that server-side apply can't take because a list in them repeats a key.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use windlass_api::labels;

use crate::schema::{Schema, identities};

/// Size that all annotations of an object may have together.
const ANNOTATIONS_LIMIT: usize = 262_144;

/// What is wanted, with a record of itself in an annotation, so that the next merge knows what to take
/// away. The record is empty when there is no room for it.
#[must_use]
pub fn recorded(mut wanted: Value) -> Value {
    let record = wanted.to_string();
    let Some(annotations) = wanted
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    else {
        return wanted;
    };
    let used: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    let fits = used + labels::LAST_APPLIED.len() + record.len() <= ANNOTATIONS_LIMIT;
    annotations.insert(
        labels::LAST_APPLIED.to_owned(),
        json!(if fits { record } else { String::new() }),
    );
    wanted
}

/// What a live object becomes: what was applied last and is no longer wanted goes, what is wanted is set,
/// the rest stays.
///
/// Lists with merge keys are merged by item, as long as no key is repeated in any of the three; others are
/// replaced whole. Owners and finalizers of the live object all stay.
#[must_use]
pub fn three_way(schema: Schema<'_>, last: Option<&Value>, live: &Value, wanted: &Value) -> Value {
    let mut merged = value(schema, "", last, live, wanted);
    for (field, keys) in [("ownerReferences", &["uid"][..]), ("finalizers", &[][..])] {
        let all = union(keys, &live["metadata"][field], &wanted["metadata"][field]);
        if let Some(metadata) = merged.get_mut("metadata").and_then(Value::as_object_mut)
            && !all.is_empty()
        {
            metadata.insert(field.to_owned(), Value::Array(all));
        }
    }
    // The server alone writes it here.
    if let Some(map) = merged.as_object_mut() {
        match live.get("status") {
            Some(status) => map.insert("status".to_owned(), status.clone()),
            None => map.remove("status"),
        };
    }
    merged
}

fn union(keys: &[&str], live: &Value, wanted: &Value) -> Vec<Value> {
    let mut all = live.as_array().cloned().unwrap_or_default();
    let same = |a: &Value, b: &Value| match keys.first() {
        Some(key) => a.get(key) == b.get(key),
        None => a == b,
    };
    for item in wanted.as_array().into_iter().flatten() {
        match all.iter_mut().find(|other| same(other, item)) {
            Some(other) => *other = item.clone(),
            None => all.push(item.clone()),
        }
    }
    all
}

fn value(
    schema: Schema<'_>,
    field: &str,
    last: Option<&Value>,
    live: &Value,
    wanted: &Value,
) -> Value {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            let empty = Map::new();
            let last = last.and_then(Value::as_object).unwrap_or(&empty);
            Value::Object(map(schema, last, live, wanted))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            let last = last
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice);
            Value::Array(list(schema, field, last, live, wanted).unwrap_or_else(|| wanted.clone()))
        }
        _ => wanted.clone(),
    }
}

fn map(
    schema: Schema<'_>,
    last: &Map<String, Value>,
    live: &Map<String, Value>,
    wanted: &Map<String, Value>,
) -> Map<String, Value> {
    let mut merged = live.clone();
    for key in last.keys().filter(|key| !wanted.contains_key(*key)) {
        merged.remove(key);
    }
    for (key, next) in wanted {
        let next = match live.get(key) {
            Some(found) => value(schema, key, last.get(key), found, next),
            None => next.clone(),
        };
        merged.insert(key.clone(), next);
    }
    merged
}

/// Items in the order in which they are wanted, then those of others; none when they can't be told apart.
fn list(
    schema: Schema<'_>,
    field: &str,
    last: &[Value],
    live: &[Value],
    wanted: &[Value],
) -> Option<Vec<Value>> {
    let keys = schema.keys(field, wanted)?;
    let by_identity = |items: &[Value]| -> Option<HashMap<String, Value>> {
        let names = identities(items, keys)?
            .into_iter()
            .map(|identity| format!("{identity:?}"));
        Some(names.zip(items.iter().cloned()).collect())
    };
    let (was, is) = (by_identity(last)?, by_identity(live)?);
    let names: Vec<String> = identities(wanted, keys)?
        .iter()
        .map(|identity| format!("{identity:?}"))
        .collect();
    let mut merged = Vec::with_capacity(live.len());
    for (name, item) in names.iter().zip(wanted) {
        merged.push(match is.get(name) {
            Some(found) => value(schema, "", was.get(name), found, item),
            None => item.clone(),
        });
    }
    for (item, identity) in live.iter().zip(identities(live, keys)?) {
        let name = format!("{identity:?}");
        if !names.contains(&name) && !was.contains_key(&name) {
            merged.push(item.clone());
        }
    }
    Some(merged)
}

#[cfg(test)]
#[allow(
    clippy::needless_pass_by_value,
    reason = "rows read better with values in place"
)]
mod tests {
    use super::*;
    use crate::manifest::ManifestId;
    use proptest::prelude::*;

    fn merged(last: Option<Value>, live: Value, wanted: Value) -> Value {
        let id = ManifestId {
            group: "apps".into(),
            version: "v1".into(),
            kind: "Deployment".into(),
            ..Default::default()
        };
        three_way(Schema::of(&id), last.as_ref(), &live, &wanted)
    }

    #[test]
    fn fields_of_others_stay_and_ours_follow_the_template() {
        let last = json!({"a": 1, "b": {"x": 1, "y": 2}, "l": [1]});
        let live = json!({"a": 1, "b": {"x": 1, "y": 2, "other": 9}, "l": [1, 2], "theirs": true, "status": {"n": 1}});
        let wanted = json!({"b": {"x": 5}, "l": [3]});
        assert_eq!(
            merged(Some(last), live, wanted),
            json!({"b": {"x": 5, "other": 9}, "l": [3], "theirs": true, "status": {"n": 1}})
        );
        assert_eq!(
            merged(None, json!({"a": 1}), json!({"b": 2})),
            json!({"a": 1, "b": 2})
        );
    }

    #[test]
    fn lists_are_merged_by_key_unless_it_is_repeated() {
        let containers = |list: Value| json!({"spec": {"containers": list}});
        let last = containers(json!([{"name": "a", "x": 1}, {"name": "old"}]));
        let live = containers(
            json!([{"name": "sidecar"}, {"name": "a", "x": 1, "d": 1}, {"name": "old"}]),
        );
        let wanted = containers(
            json!([{"name": "a", "env": [{"name": "E", "value": "1"}, {"name": "E", "value": "2"}]}]),
        );
        let expected = containers(json!([
            {"name": "a", "d": 1, "env": [{"name": "E", "value": "1"}, {"name": "E", "value": "2"}]},
            {"name": "sidecar"}]));
        assert_eq!(merged(Some(last), live.clone(), wanted), expected);
        let repeated = containers(json!([{"name": "a"}, {"name": "a"}]));
        assert_eq!(merged(None, live, repeated.clone()), repeated);
    }

    #[test]
    fn owners_and_finalizers_of_others_stay() {
        let live =
            json!({"metadata": {"finalizers": ["theirs"], "ownerReferences": [{"uid": "1"}]}});
        let wanted =
            json!({"metadata": {"finalizers": ["ours"], "ownerReferences": [{"uid": "2"}]}});
        assert_eq!(
            merged(None, live, wanted),
            json!({"metadata": {"finalizers": ["theirs", "ours"], "ownerReferences": [{"uid": "1"}, {"uid": "2"}]}})
        );
    }

    #[test]
    fn the_record_holds_what_was_wanted_unless_it_is_too_large() {
        let wanted = json!({"data": {"k": "v"}, "metadata": {"annotations": {"a": "1"}}});
        let sent = recorded(wanted.clone());
        let record = sent["metadata"]["annotations"][labels::LAST_APPLIED]
            .as_str()
            .unwrap();
        assert_eq!(serde_json::from_str::<Value>(record).unwrap(), wanted);
        let large =
            json!({"data": {"k": "x".repeat(ANNOTATIONS_LIMIT)}, "metadata": {"annotations": {}}});
        assert_eq!(
            recorded(large)["metadata"]["annotations"][labels::LAST_APPLIED],
            ""
        );
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i8>().prop_map(Value::from),
            "[a-z]{0,3}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 3, |inner| {
            proptest::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        })
    }

    proptest! {
        #[test]
        fn a_second_merge_changes_nothing(last in tree(), live in tree(), wanted in tree()) {
            let (last, live, wanted) = (json!({"spec": last}), json!({"spec": live}), json!({"spec": wanted}));
            let once = merged(Some(last), live, wanted.clone());
            prop_assert_eq!(merged(Some(wanted.clone()), once.clone(), wanted), once);
        }
    }
}
