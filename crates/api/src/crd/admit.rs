//! What an API server makes of a manifest, as far as the schema says: without asking one.

use serde_json::{Map, Value};

/// What [`admit`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Fields that the schema does not know; they were dropped, as the API server would.
    pub unknown: Vec<String>,
    /// What the API server would refuse, each with the field that it is about.
    pub refused: Vec<String>,
}

/// Brings a manifest into the form in which the API server would store it: defaults are filled in, fields
/// that the schema does not know are dropped. Tells what it would refuse: types, required fields, allowed
/// values, bounds. Rules in CEL are not looked at.
///
/// None when no CRD of `crds` serves the manifest's apiVersion and kind.
#[must_use]
pub fn admit(crds: &[Value], manifest: &mut Value) -> Option<Admitted> {
    let root = schema_of(crds, manifest)?;
    let mut admitted = Admitted::default();
    let properties = root.get("properties")?.as_object()?;
    for (name, schema) in properties {
        if matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        if let Some(value) = manifest.get_mut(name) {
            walk(schema, value, name, &mut admitted);
        } else if required(root).any(|known| known == name) {
            admitted.refused.push(format!("{name}: it is required"));
        }
    }
    if let Some(object) = manifest.as_object_mut() {
        object.retain(|name, _| {
            let known = properties.contains_key(name);
            if !known {
                admitted.unknown.push(name.clone());
            }
            known
        });
    }
    Some(admitted)
}

fn version_of<'a>(crds: &'a [Value], manifest: &Value) -> Option<&'a Value> {
    let (group, version) = manifest.get("apiVersion")?.as_str()?.split_once('/')?;
    let kind = manifest.get("kind")?;
    let crd = crds.iter().find(|crd| {
        crd.pointer("/spec/group").and_then(Value::as_str) == Some(group)
            && crd.pointer("/spec/names/kind") == Some(kind)
    })?;
    let versions = crd.pointer("/spec/versions")?.as_array()?;
    versions
        .iter()
        .find(|v| v.get("name").and_then(Value::as_str) == Some(version))
}

fn schema_of<'a>(crds: &'a [Value], manifest: &Value) -> Option<&'a Value> {
    version_of(crds, manifest)?.pointer("/schema/openAPIV3Schema")
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str)
}

fn walk(schema: &Value, value: &mut Value, path: &str, admitted: &mut Admitted) {
    if let Some(wrong) = wrong(schema, value) {
        admitted.refused.push(format!("{path}: {wrong}"));
        return;
    }
    match value {
        Value::Object(object) => members(schema, object, path, admitted),
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for (index, item) in items.iter_mut().enumerate() {
                    walk(schema, item, &format!("{path}[{index}]"), admitted);
                }
            }
        }
        _ => {}
    }
}

fn members(schema: &Value, object: &mut Map<String, Value>, path: &str, admitted: &mut Admitted) {
    let none = Map::new();
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    let others = schema
        .get("additionalProperties")
        .filter(|others| others.is_object());
    let keeps = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    // A null stands for a field that is not given.
    object.retain(|_, value| !value.is_null());
    for (name, schema) in properties {
        if !object.contains_key(name)
            && let Some(default) = schema.get("default")
        {
            object.insert(name.clone(), default.clone());
        }
    }
    for name in required(schema).filter(|name| !object.contains_key(*name)) {
        admitted
            .refused
            .push(format!("{path}.{name}: it is required"));
    }
    let mut unknown = Vec::new();
    for (name, value) in object.iter_mut() {
        let inner = format!("{path}.{name}");
        match properties.get(name).or(others) {
            Some(schema) => walk(schema, value, &inner, admitted),
            None if keeps || properties.is_empty() => {}
            None => unknown.push(name.clone()),
        }
    }
    for name in unknown {
        object.remove(&name);
        admitted.unknown.push(format!("{path}.{name}"));
    }
}

/// Why the schema refuses a value by itself.
fn wrong(schema: &Value, value: &Value) -> Option<String> {
    let int_or_string = schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
    let kind = schema.get("type").and_then(Value::as_str);
    let fits = match kind {
        _ if int_or_string => value.is_i64() || value.is_string(),
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        _ => true,
    };
    if !fits {
        let wanted = if int_or_string {
            "integer or string"
        } else {
            kind.unwrap_or_default()
        };
        return Some(format!("{value} is not of type {wanted}"));
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        return Some(format!("{value} is not one of {}", allowed.join(", ")));
    }
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    let size = match value {
        Value::Number(number) => {
            let number = number.as_f64()?;
            return match (bound("minimum"), bound("maximum")) {
                (Some(least), _) if number < least => Some(format!("{value} is less than {least}")),
                (_, Some(most)) if number > most => Some(format!("{value} is more than {most}")),
                _ => None,
            };
        }
        Value::Array(items) => ("Items", items.len(), "entries"),
        Value::String(text) => ("Length", text.chars().count(), "characters"),
        _ => return None,
    };
    let limit = |key: &str| {
        let limit = schema.get(format!("{key}{}", size.0))?.as_u64()?;
        usize::try_from(limit).ok()
    };
    match (limit("min"), limit("max")) {
        (Some(least), _) if size.1 < least => Some(format!("it has less than {least} {}", size.2)),
        (_, Some(most)) if size.1 > most => Some(format!("it has more than {most} {}", size.2)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn placement(spec: &Value) -> Value {
        json!({"apiVersion": "placement.kubernetes-fleet.io/v1beta1", "kind": "ClusterResourcePlacement",
            "metadata": {"name": "web", "labels": {"a": "b"}}, "spec": spec})
    }

    fn admitted(spec: &Value) -> (Value, Admitted) {
        let mut manifest = placement(spec);
        let found = admit(&super::super::hub_crds().unwrap(), &mut manifest).unwrap();
        (manifest, found)
    }

    fn selector() -> Value {
        json!([{"group": "", "version": "v1", "kind": "Namespace", "name": "web"}])
    }

    #[test]
    fn defaults_are_filled_in_where_their_parent_is() {
        let (stored, found) = admitted(&json!({"resourceSelectors": selector(), "policy": {
            "placementType": "PickN", "numberOfClusters": 2,
            "topologySpreadConstraints": [{"topologyKey": "zone"}]}}));
        assert_eq!(found, Admitted::default());
        let constraint = &stored["spec"]["policy"]["topologySpreadConstraints"][0];
        assert_eq!(constraint["maxSkew"], 1);
        assert_eq!(constraint["whenUnsatisfiable"], "DoNotSchedule");
        assert_eq!(stored["spec"]["revisionHistoryLimit"], 10);
        assert_eq!(stored["metadata"]["labels"]["a"], "b");
        let (stored, _) = admitted(&json!({"resourceSelectors": selector()}));
        assert_eq!(stored["spec"].get("policy"), None);
    }

    #[test]
    fn fields_that_are_not_known_are_dropped_and_told() {
        let (stored, found) = admitted(&json!({"resourceSelectors": selector(),
            "polcy": {}, "policy": {"placmentType": "PickAll"}}));
        assert_eq!(found.unknown, ["spec.policy.placmentType", "spec.polcy"]);
        assert_eq!(stored["spec"].get("polcy"), None);
        assert_eq!(
            stored["spec"]["policy"],
            json!({"placementType": "PickAll"})
        );
    }

    #[test]
    fn what_the_schema_refuses_is_told_with_its_place() {
        let rows = [
            (json!({}), "spec.resourceSelectors: it is required"),
            (
                json!({"resourceSelectors": []}),
                "spec.resourceSelectors: it has less than 1 entries",
            ),
            (
                json!({"resourceSelectors": selector(), "policy": {"placementType": "PickTwo"}}),
                "spec.policy.placementType: \"PickTwo\" is not one of",
            ),
            (
                json!({"resourceSelectors": selector(), "policy": {"numberOfClusters": -1}}),
                "spec.policy.numberOfClusters: -1 is less than 0",
            ),
            (
                json!({"resourceSelectors": selector(), "policy": {"numberOfClusters": "two"}}),
                "spec.policy.numberOfClusters: \"two\" is not of type integer",
            ),
            (
                json!({"resourceSelectors": selector(), "revisionHistoryLimit": 5000}),
                "spec.revisionHistoryLimit: 5000 is more than 1000",
            ),
        ];
        for (spec, expected) in rows {
            let (_, found) = admitted(&spec);
            assert_eq!(found.refused.len(), 1, "{found:?}");
            assert!(found.refused[0].starts_with(expected), "{found:?}");
        }
        let rolling = json!({"resourceSelectors": selector(),
            "strategy": {"rollingUpdate": {"maxUnavailable": "50%", "maxSurge": 1}}});
        assert_eq!(admitted(&rolling).1, Admitted::default());
    }

    #[test]
    fn another_kind_is_none_of_ours() {
        let mut other = json!({"apiVersion": "v1", "kind": "Pod"});
        assert_eq!(admit(&super::super::hub_crds().unwrap(), &mut other), None);
    }
}
