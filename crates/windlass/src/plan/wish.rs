//! From a manifest, a name and changes to the placement as it would be stored.

use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use windlass_api::crd;
use windlass_api::placement::{PlacementType, RolloutStrategyType};
use windlass_api::scoped::Placement;
use windlass_api::{PLACEMENT_GROUP, STORAGE_VERSION};
use windlass_cluster::ObjectKey;
use windlass_status::defaults::rollout_type;

use crate::cli::Failure;

/// Which placement is meant.
pub struct Wanted {
    /// Its key.
    pub key: ObjectKey,
    /// Its manifest, if one was given.
    pub manifest: Option<Value>,
}

/// The placement as it would be.
pub struct Made {
    /// It, with its defaults.
    pub placement: Placement,
    /// What was passed over.
    pub warnings: Vec<String>,
}

/// Reads a file, or the standard input for `-`.
pub fn read_file(path: &Path) -> Result<Value, Failure> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        text
    } else {
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?
    };
    the_placement(&text).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// The one placement among the documents of a text; others may stand beside it.
fn the_placement(text: &str) -> Result<Value, String> {
    let mut found = Vec::new();
    for document in yaml_serde::Deserializer::from_str(text) {
        let value = Value::deserialize(document).map_err(|error| error.to_string())?;
        if is_placement(&value) {
            found.push(value);
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err("it holds no ClusterResourcePlacement and no ResourcePlacement".to_owned()),
        many => Err(format!("it holds {many} placements; give one at a time")),
    }
}

fn is_placement(value: &Value) -> bool {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let group = text("apiVersion").split('/').next().unwrap_or_default();
    group == PLACEMENT_GROUP
        && matches!(
            text("kind"),
            "ClusterResourcePlacement" | "ResourcePlacement"
        )
}

/// Finds out which placement is meant; `usual` is the namespace of a ResourcePlacement that names none.
pub fn named(
    manifest: Option<Value>,
    name: Option<&str>,
    namespace: Option<&str>,
    usual: &str,
) -> Result<Wanted, Failure> {
    let Some(manifest) = manifest else {
        let name = name.ok_or("name a placement, or give its manifest with --file")?;
        return Ok(Wanted {
            key: ObjectKey::namespaced(namespace.unwrap_or_default(), name),
            manifest: None,
        });
    };
    let text = |path: &str| manifest.pointer(path).and_then(Value::as_str);
    let own = text("/metadata/name").ok_or("the manifest has no metadata.name")?;
    if let Some(name) = name.filter(|name| *name != own) {
        return Err(format!("the manifest is of {own}, not of {name}").into());
    }
    let within = match text("/kind") {
        Some("ResourcePlacement") => {
            let own = text("/metadata/namespace");
            match (own, namespace) {
                (Some(own), Some(asked)) if own != asked => {
                    return Err(format!("the manifest is of namespace {own}, not {asked}").into());
                }
                _ => own.or(namespace).unwrap_or(usual),
            }
        }
        _ if namespace.is_some() => {
            return Err(
                "a ClusterResourcePlacement lives in no namespace; leave --namespace out".into(),
            );
        }
        _ => "",
    };
    Ok(Wanted {
        key: ObjectKey::namespaced(within, own),
        manifest: Some(manifest),
    })
}

/// Makes the placement: the manifest, or the existing one; with the changes; as the API server would store
/// it. What it would refuse is an error.
pub fn make(wanted: Wanted, existing: Option<&Placement>, set: &[String]) -> Result<Made, Failure> {
    let key = wanted.key;
    let kind = Placement::default().within(&key.namespace).kind_text();
    let mut manifest = match (wanted.manifest, existing) {
        (Some(manifest), _) => manifest,
        (None, Some(existing)) => json!({
            "apiVersion": format!("{PLACEMENT_GROUP}/{STORAGE_VERSION}"), "kind": kind, "spec": existing.spec,
        }),
        (None, None) => {
            return Err(format!("there is no {kind} {key}; give its manifest with --file").into());
        }
    };
    for change in set {
        apply(&mut manifest, change)?;
    }
    let admitted = crd::admit(&crd::hub_crds()?, &mut manifest).ok_or_else(|| {
        let version = manifest.get("apiVersion").cloned().unwrap_or_default();
        format!("{kind} is not served as {version}")
    })?;
    let mut refused = admitted.refused;
    let warnings = admitted.unknown.iter();
    let warnings = warnings.map(|field| format!("{field} is not a known field; it is dropped"));
    let warnings = warnings.collect();
    if refused.is_empty() {
        let spec = manifest.get("spec").cloned().unwrap_or_default();
        let mut placement = Placement::new(&key.name, serde_json::from_value(spec)?);
        placement = placement.within(&key.namespace);
        if let Some(existing) = existing {
            refused.extend(immutable(existing, &placement));
            placement.metadata = existing.metadata.clone();
            if placement.spec != existing.spec {
                let generation = existing.metadata.generation.unwrap_or_default();
                placement.metadata.generation = Some(generation + 1);
            }
            placement.status.clone_from(&existing.status);
        }
        if refused.is_empty() {
            return Ok(Made {
                placement,
                warnings,
            });
        }
    }
    Err(format!(
        "the API server would refuse this {kind}: {}",
        refused.join("; ")
    )
    .into())
}

/// What may not change, of what decides where a placement goes (API §2.12, P1, P8, P14).
fn immutable(old: &Placement, new: &Placement) -> Vec<String> {
    let type_of = |placement: &Placement| {
        let policy = placement.spec.policy.as_ref();
        policy
            .and_then(|policy| policy.placement_type)
            .unwrap_or(PlacementType::PickAll)
    };
    let external = |placement: &Placement| {
        rollout_type(placement.spec.strategy.as_ref()) == RolloutStrategyType::External
    };
    let mut refused = Vec::new();
    if type_of(old) != type_of(new) {
        refused.push(
            "spec.policy.placementType is immutable; a placement without a policy has PickAll",
        );
    } else if old.spec.policy.is_some() && new.spec.policy.is_none() {
        refused.push("spec.policy cannot be removed once set");
    }
    if external(old) && !external(new) {
        refused.push("spec.strategy.type cannot be changed once it is External");
    }
    refused.into_iter().map(str::to_owned).collect()
}

/// Carries out `path=value` on a manifest.
fn apply(manifest: &mut Value, change: &str) -> Result<(), Failure> {
    let wrong = |why: &str| -> Failure { format!("--set {change}: {why}").into() };
    let (path, text) = change
        .split_once('=')
        .ok_or_else(|| wrong("write PATH=VALUE"))?;
    let value: Value = yaml_serde::from_str(text).map_err(|error| wrong(&error.to_string()))?;
    let steps =
        steps(path).ok_or_else(|| wrong("write the path as spec.policy.clusterNames[0]"))?;
    if !matches!(steps.first(), Some(Step::Field(first)) if first == "spec") {
        return Err(wrong("the path has to begin with spec"));
    }
    let mut place = manifest;
    for step in steps {
        place = match step {
            Step::Field(name) => {
                if place.is_null() {
                    *place = Value::Object(Map::new());
                }
                place
                    .as_object_mut()
                    .ok_or_else(|| wrong(&format!("{name} is looked for in what is no object")))?
                    .entry(name)
                    .or_insert(Value::Null)
            }
            Step::Index(index) => {
                if place.is_null() {
                    *place = Value::Array(Vec::new());
                }
                let list = place
                    .as_array_mut()
                    .ok_or_else(|| wrong(&format!("[{index}] is looked for in what is no list")))?;
                // One beyond the end adds an entry.
                if index == list.len() {
                    list.push(Value::Null);
                }
                list.get_mut(index)
                    .ok_or_else(|| wrong(&format!("the list has no entry {index}")))?
            }
        };
    }
    *place = value;
    Ok(())
}

enum Step {
    Field(String),
    Index(usize),
}

/// Reads `a.b[0].c`; a key with dots in it is written `a["b.c"]`.
fn steps(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path;
    loop {
        if let Some(inner) = rest.strip_prefix('[') {
            if let Some(quoted) = inner.strip_prefix('"') {
                let (key, after) = quoted.split_once("\"]")?;
                steps.push(Step::Field(key.to_owned()));
                rest = after;
            } else {
                let (index, after) = inner.split_once(']')?;
                steps.push(Step::Index(index.parse().ok()?));
                rest = after;
            }
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (key, after) = rest.split_at(end);
            if key.is_empty() {
                return None;
            }
            steps.push(Step::Field(key.to_owned()));
            rest = after;
        }
        if rest.is_empty() {
            return Some(steps);
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crp(name: &str, spec: &Value) -> Value {
        json!({"apiVersion": "placement.kubernetes-fleet.io/v1beta1", "kind": "ClusterResourcePlacement",
            "metadata": {"name": name}, "spec": spec})
    }

    fn selectors() -> Value {
        json!([{"group": "", "version": "v1", "kind": "Namespace", "name": "web"}])
    }

    fn existing(policy: &Value) -> Placement {
        serde_json::from_value(
            json!({"metadata": {"name": "web", "uid": "u", "generation": 4},
            "spec": {"resourceSelectors": selectors(), "policy": policy}}),
        )
        .unwrap()
    }

    #[test]
    fn one_placement_among_other_objects() {
        let text = "kind: ConfigMap\napiVersion: v1\n---\n---\nkind: ClusterResourcePlacement\napiVersion: placement.kubernetes-fleet.io/v1\nmetadata: {name: web}\n";
        assert_eq!(the_placement(text).unwrap()["metadata"]["name"], "web");
        let rows = [
            ("kind: ConfigMap\napiVersion: v1\n", "holds no"),
            ("", "holds no"),
            ("a: [", "line"),
            (&format!("{text}---\n{text}"), "holds 2 placements"),
        ];
        for (text, expected) in rows {
            let error = the_placement(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn which_placement_is_meant() {
        let own =
            json!({"kind": "ResourcePlacement", "metadata": {"name": "p", "namespace": "team"}});
        let none = json!({"kind": "ResourcePlacement", "metadata": {"name": "p"}});
        let cluster = crp("p", &json!({}));
        let rows = [
            (None, Some("p"), None, Ok("p")),
            (None, Some("p"), Some("team"), Ok("team/p")),
            (None, None, None, Err("name a placement")),
            (Some(own.clone()), None, None, Ok("team/p")),
            (Some(own.clone()), Some("q"), None, Err("is of p, not of q")),
            (
                Some(own),
                None,
                Some("other"),
                Err("namespace team, not other"),
            ),
            (Some(none.clone()), None, Some("other"), Ok("other/p")),
            (Some(none), None, None, Ok("usual/p")),
            (Some(cluster.clone()), None, None, Ok("p")),
            (
                Some(cluster),
                None,
                Some("team"),
                Err("lives in no namespace"),
            ),
        ];
        for (manifest, name, namespace, expected) in rows {
            match (named(manifest, name, namespace, "usual"), expected) {
                (Ok(wanted), Ok(expected)) => assert_eq!(wanted.key.to_string(), expected),
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().contains(expected), "{error}");
                }
                (found, expected) => panic!("{:?} instead of {expected:?}", found.map(|w| w.key)),
            }
        }
    }

    #[test]
    fn changes() {
        let rows = [
            ("spec.policy.numberOfClusters=5", Ok(json!(5))),
            ("spec.policy.tolerations[0].key=a", Ok(json!("a"))),
            (
                "spec.strategy.rollingUpdate.maxUnavailable=50%",
                Ok(json!("50%")),
            ),
            ("spec.x={a: [1, 2]}", Ok(json!({"a": [1, 2]}))),
            ("spec.policy=null", Ok(Value::Null)),
            ("spec.policy", Err("write PATH=VALUE")),
            ("metadata.name=x", Err("begin with spec")),
            ("spec..a=1", Err("write the path")),
            ("spec.resourceSelectors[7].name=x", Err("no entry 7")),
            ("spec.resourceSelectors.name=x", Err("no object")),
            ("spec.policy[0]=x", Err("no list")),
            ("spec.a=[", Err("--set")),
        ];
        for (change, expected) in rows {
            let policy = json!({"placementType": "PickN"});
            let mut manifest = crp(
                "web",
                &json!({"resourceSelectors": selectors(), "policy": policy}),
            );
            match (apply(&mut manifest, change), expected) {
                (Ok(()), Ok(expected)) => {
                    let path = change.split('=').next().unwrap();
                    let pointer = format!("/{}", path.replace('.', "/").replace("[0]", "/0"));
                    assert_eq!(manifest.pointer(&pointer), Some(&expected), "{change}");
                }
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().contains(expected), "{error}");
                }
                (found, _) => panic!("{change}: {found:?}"),
            }
        }
        assert!(matches!(steps("a[\"b.c/d\"].e").unwrap().as_slice(),
            [Step::Field(a), Step::Field(b), Step::Field(e)] if a == "a" && b == "b.c/d" && e == "e"));
    }

    #[test]
    fn as_it_would_be_stored() {
        let wanted = |manifest| Wanted {
            key: ObjectKey::cluster("web"),
            manifest,
        };
        let pick_n = json!({"placementType": "PickN", "numberOfClusters": 2});
        let old = existing(&pick_n);
        let set = ["spec.policy.numberOfClusters=3".to_owned()];
        let made = make(wanted(None), Some(&old), &set).unwrap();
        assert_eq!(
            made.placement.spec.policy.unwrap().number_of_clusters,
            Some(3)
        );
        assert_eq!(made.placement.metadata.generation, Some(5));
        assert_eq!(made.placement.metadata.uid.as_deref(), Some("u"));

        // What differs by defaults alone is no change once the server has filled them in.
        let stored = make(wanted(None), Some(&old), &[]).unwrap().placement;
        let again = make(
            wanted(Some(crp(
                "web",
                &json!({"resourceSelectors": selectors(), "policy": pick_n}),
            ))),
            Some(&stored),
            &[],
        )
        .unwrap();
        assert_eq!(again.placement.spec, stored.spec);
        assert_eq!(
            again.placement.metadata.generation,
            stored.metadata.generation
        );

        let typo = crp(
            "web",
            &json!({"resourceSelectors": selectors(), "polcy": {}}),
        );
        let made = make(wanted(Some(typo)), None, &[]).unwrap();
        assert_eq!(
            made.warnings,
            ["spec.polcy is not a known field; it is dropped"]
        );
        assert_eq!(made.placement.metadata.generation, None);

        let rows = [
            (
                crp("web", &json!({"resourceSelectors": selectors()})),
                "placementType is immutable",
            ),
            (
                crp("web", &json!({"resourceSelectors": []})),
                "less than 1 entries",
            ),
        ];
        for (manifest, expected) in rows {
            let error = make(wanted(Some(manifest)), Some(&old), &[])
                .err()
                .unwrap()
                .to_string();
            assert!(
                error.starts_with("the API server would refuse this ClusterResourcePlacement: "),
                "{error}"
            );
            assert!(error.contains(expected), "{error}");
        }
        let error = make(wanted(None), None, &[]).err().unwrap().to_string();
        assert!(
            error.contains("there is no ClusterResourcePlacement web"),
            "{error}"
        );
    }
}
