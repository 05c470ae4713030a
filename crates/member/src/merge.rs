//! Three-way merge, for objects that server-side apply can't take because a list in them repeats a key.

use serde_json::{Map, Value};

/// What a live object becomes: what was applied last and is no longer wanted goes, what is wanted is set,
/// the rest stays. Lists are replaced whole.
#[must_use]
pub fn three_way(last: Option<&Value>, live: &Value, wanted: &Value) -> Value {
    let (Value::Object(live), Value::Object(wanted)) = (live, wanted) else {
        return wanted.clone();
    };
    let empty = Map::new();
    let last = last.and_then(Value::as_object).unwrap_or(&empty);
    let mut merged = live.clone();
    for key in last.keys().filter(|key| !wanted.contains_key(*key)) {
        merged.remove(key);
    }
    for (key, value) in wanted {
        let next = match live.get(key) {
            Some(found) => three_way(last.get(key), found, value),
            None => value.clone(),
        };
        merged.insert(key.clone(), next);
    }
    Value::Object(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows() {
        let last = json!({"a": 1, "b": {"x": 1, "y": 2}, "l": [1]});
        let live = json!({"a": 1, "b": {"x": 1, "y": 2, "other": 9}, "l": [1, 2], "mine": true});
        let wanted = json!({"b": {"x": 5}, "l": [3]});
        assert_eq!(
            three_way(Some(&last), &live, &wanted),
            json!({"b": {"x": 5, "other": 9}, "l": [3], "mine": true})
        );
        assert_eq!(
            three_way(None, &json!({"a": 1}), &json!({"b": 2})),
            json!({"a": 1, "b": 2})
        );
    }
}
