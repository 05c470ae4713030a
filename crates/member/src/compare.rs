//! Whether a live object has everything that a manifest asks for.

use serde_json::{Map, Value};

/// Fields that tell the items of a list apart, in the order in which they are tried.
const KEYS: [&str; 8] = [
    "name",
    "containerPort",
    "port",
    "mountPath",
    "devicePath",
    "topologyKey",
    "type",
    "uid",
];

/// The first field of the manifest that the live object lacks or has another value of, as a JSON pointer;
/// none when the live object covers the manifest. What only the live object has does not matter.
#[must_use]
pub fn first_difference(manifest: &Value, live: &Value) -> Option<String> {
    let (Some(wanted), Some(found)) = (manifest.as_object(), live.as_object()) else {
        return (manifest != live).then(|| "/".to_owned());
    };
    for (key, value) in wanted {
        let path = format!("/{}", escape(key));
        let difference = match key.as_str() {
            // The type is what the object was looked up by; items of a list come without it.
            "status" | "apiVersion" | "kind" => None,
            "metadata" => metadata(value, found.get(key).unwrap_or(&Value::Null)),
            // The server keeps the bytes under data.
            "stringData" => string_data(value, found.get("data")),
            _ => differs(value, found.get(key), &path),
        };
        if difference.is_some() {
            return difference;
        }
    }
    None
}

fn metadata(wanted: &Value, found: &Value) -> Option<String> {
    ["labels", "annotations"].iter().find_map(|key| {
        let path = format!("/metadata/{key}");
        wanted
            .get(key)
            .and_then(|wanted| differs(wanted, found.get(key), &path))
    })
}

fn string_data(wanted: &Value, data: Option<&Value>) -> Option<String> {
    let missing = |key: &String| data.and_then(|data| data.get(key)).is_none();
    // Values are not compared: they would have to be encoded, and a change of the manifest shows in its digest.
    wanted
        .as_object()?
        .keys()
        .find(|key| missing(key))
        .map(|key| format!("/stringData/{}", escape(key)))
}

fn differs(wanted: &Value, found: Option<&Value>, path: &str) -> Option<String> {
    if is_empty(wanted) && found.is_none_or(is_empty) {
        return None;
    }
    let Some(found) = found else {
        return Some(path.to_owned());
    };
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => object_differs(wanted, found, path),
        (Value::Array(wanted), Value::Array(found)) => list_differs(wanted, found, path),
        _ => (!same_scalar(wanted, found)).then(|| path.to_owned()),
    }
}

fn object_differs(
    wanted: &Map<String, Value>,
    found: &Map<String, Value>,
    path: &str,
) -> Option<String> {
    wanted
        .iter()
        .find_map(|(key, value)| differs(value, found.get(key), &format!("{path}/{}", escape(key))))
}

fn list_differs(wanted: &[Value], found: &[Value], path: &str) -> Option<String> {
    if let Some(key) = key_of(wanted) {
        // Lists with a key merge: others may have added items and the order may differ.
        return wanted.iter().enumerate().find_map(|(position, item)| {
            let twin = found.iter().find(|other| other.get(key) == item.get(key));
            differs(item, twin, &format!("{path}/{position}"))
        });
    }
    if wanted.len() != found.len() {
        return Some(path.to_owned());
    }
    wanted
        .iter()
        .zip(found)
        .enumerate()
        .find_map(|(position, (wanted, found))| {
            differs(wanted, Some(found), &format!("{path}/{position}"))
        })
}

fn key_of(items: &[Value]) -> Option<&'static str> {
    if items.is_empty() || !items.iter().all(Value::is_object) {
        return None;
    }
    KEYS.into_iter().find(|key| {
        let values: Vec<&Value> = items.iter().filter_map(|item| item.get(key)).collect();
        values.len() == items.len() && (1..values.len()).all(|i| !values[..i].contains(&values[i]))
    })
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

fn same_scalar(wanted: &Value, found: &Value) -> bool {
    if wanted == found {
        return true;
    }
    if let (Some(wanted), Some(found)) = (wanted.as_f64(), found.as_f64()) {
        return wanted == found;
    }
    // "1000m" and "1" are the same quantity; a number may stand for either.
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    match (
        text(wanted).and_then(|t| quantity(&t)),
        text(found).and_then(|t| quantity(&t)),
    ) {
        (Some(wanted), Some(found)) => wanted == found,
        _ => false,
    }
}

/// A quantity in billionths; none when the text is not one, or has a fraction finer than that.
fn quantity(text: &str) -> Option<i128> {
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let unit: i128 = match suffix {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "" => 1_000_000_000,
        "k" => 1_000_000_000_000,
        "M" => 1_000_000_000_000_000,
        "G" => 1_000_000_000_000_000_000,
        "T" => 1_000_000_000_000_000_000_000,
        "Ki" => 1_000_000_000 << 10,
        "Mi" => 1_000_000_000 << 20,
        "Gi" => 1_000_000_000 << 30,
        "Ti" => 1_000_000_000 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let scaled = format!("{whole}{fraction}")
        .parse::<i128>()
        .ok()?
        .checked_mul(unit)?;
    (scaled % scale == 0).then(|| scaled / scale)
}

fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
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
            (json!({"spec": {"x": {}}}), json!({}), None),
            (
                json!({"spec": {"cpu": "1000m"}}),
                json!({"spec": {"cpu": "1"}}),
                None,
            ),
            (
                json!({"spec": {"cpu": "0.5"}}),
                json!({"spec": {"cpu": "500m"}}),
                None,
            ),
            (
                json!({"spec": {"cpu": 1}}),
                json!({"spec": {"cpu": "1"}}),
                None,
            ),
            (
                json!({"spec": {"l": [1, 2]}}),
                json!({"spec": {"l": [1, 2, 3]}}),
                Some("/spec/l"),
            ),
            (
                json!({"spec": {"c": [{"name": "a", "image": "x"}]}}),
                json!({"spec": {"c": [{"name": "sidecar"}, {"name": "a", "image": "x", "pull": "p"}]}}),
                None,
            ),
            (
                json!({"spec": {"c": [{"name": "a", "image": "x"}]}}),
                json!({"spec": {"c": [{"name": "a", "image": "y"}]}}),
                Some("/spec/c/0/image"),
            ),
            (
                json!({"metadata": {"labels": {"a/b": "1"}, "finalizers": ["x"]}}),
                json!({"metadata": {"labels": {}}}),
                Some("/metadata/labels/a~1b"),
            ),
            (
                json!({"stringData": {"k": "v"}}),
                json!({"data": {"k": "dg=="}}),
                None,
            ),
            (json!({"status": {"x": 1}}), json!({}), None),
        ];
        for (manifest, live, expected) in rows {
            assert_eq!(
                first_difference(&manifest, &live).as_deref(),
                expected,
                "{manifest} {live}"
            );
        }
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
            "[a-z]{0,4}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-z]{1,3}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_object_covers_itself(spec in tree()) {
            let object = json!({ "spec": spec });
            prop_assert_eq!(first_difference(&object, &object), None);
        }
    }
}
