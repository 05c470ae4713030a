//! What a live object tells about a write whose answer got lost.

use serde_json::Value;

/// Whether a live object is the one that was sent: it shows everything that was sent. The server may
/// have added defaults, and its own metadata; the status is not part of what a create writes.
pub(super) fn shows(live: &Value, sent: &Value) -> bool {
    let Some(sent) = sent.as_object() else {
        return false;
    };
    sent.iter()
        .filter(|(field, _)| *field != "status")
        .all(|(field, sent)| {
            let live = live.get(field).unwrap_or(&Value::Null);
            contains(live, sent)
        })
}

fn contains(live: &Value, sent: &Value) -> bool {
    match (live, sent) {
        (Value::Object(live), Value::Object(sent)) => sent
            .iter()
            .all(|(field, sent)| contains(live.get(field).unwrap_or(&Value::Null), sent)),
        (Value::Array(live), Value::Array(sent)) => {
            live.len() == sent.len()
                && live
                    .iter()
                    .zip(sent)
                    .all(|(live, sent)| contains(live, sent))
        }
        // What is empty may not have been stored.
        (Value::Null, Value::Array(sent)) => sent.is_empty(),
        (Value::Null, Value::Object(sent)) => {
            sent.values().all(|sent| contains(&Value::Null, sent))
        }
        _ => live == sent,
    }
}

/// The resourceVersion of an object.
pub(super) fn version(object: &Value) -> Option<&str> {
    object.pointer("/metadata/resourceVersion")?.as_str()
}

/// Whether it is another object than the one with that UID.
pub(super) fn is_another(live: &Value, uid: Option<&str>) -> bool {
    let live = live.pointer("/metadata/uid").and_then(Value::as_str);
    live.is_some() && uid.is_some() && live != uid
}

/// Whether an object is being deleted.
pub(super) fn is_going(live: &Value) -> bool {
    live.pointer("/metadata/deletionTimestamp")
        .is_some_and(|time| !time.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_server_adds_makes_no_difference_and_what_it_lacks_does() {
        let sent = json!({
            "metadata": {"name": "a", "labels": {"x": "1"}, "annotations": {}},
            "spec": {"list": [{"n": 1}], "none": []}, "status": {"phase": "New"},
        });
        let stored = json!({
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "5", "labels": {"x": "1", "y": "2"}},
            "spec": {"list": [{"n": 1, "defaulted": true}], "policy": "Default"},
        });
        assert!(shows(&stored, &sent));
        for (path, other) in [
            ("/metadata/labels/x", json!("2")),
            ("/metadata/labels", json!(null)),
            ("/spec/list", json!([])),
            ("/spec/list/0/n", json!(2)),
            ("/spec", json!(null)),
        ] {
            let mut stored = stored.clone();
            *stored.pointer_mut(path).unwrap() = other;
            assert!(!shows(&stored, &sent), "{path}");
        }
    }

    #[test]
    fn identity() {
        let live = json!({"metadata": {"uid": "u"}});
        assert!(
            is_another(&live, Some("v"))
                && !is_another(&live, Some("u"))
                && !is_another(&live, None)
        );
        assert!(
            !is_going(&live)
                && is_going(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))
        );
    }
}
