//! Envelopes: manifests that travel instead of the object that carries them (API §7.6).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use windlass_api::placement::{EnvelopeIdentifier, EnvelopeType};
use windlass_api::{CLUSTER_GROUP, PLACEMENT_GROUP};

use crate::object::{ObjectId, is_cluster_scoped};

/// The content of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Opened {
    /// Every manifest in order; those of an envelope stand in its place, by key.
    pub parts: Vec<OpenedPart>,
    /// What is wrong with envelopes, in order: each names the envelope and the key. When there is any,
    /// nothing may be placed.
    pub problems: Vec<String>,
}

/// A manifest, and the envelope that it came in.
#[derive(Clone, Debug)]
pub struct OpenedPart {
    /// The object.
    pub object: Value,
    /// Which of the given objects it is, or came in.
    pub source: usize,
    /// The envelope.
    pub envelope: Option<Arc<EnvelopeIdentifier>>,
}

/// Takes the manifests out of the envelopes among `objects`.
///
/// | in | refused |
/// |---|---|
/// | any envelope | a name of 64 characters or more; what `refuses` has a reason against; no apiVersion, kind or name; generateName; an envelope, or anything else of the hub's own groups; an object that is there already, in whatever version |
/// | ClusterResourceEnvelope | a namespace; a kind that lives in one |
/// | ResourceEnvelope | no namespace, or another one than the envelope's; a kind that is cluster-scoped |
///
/// Only kinds that every cluster has are known to be cluster-scoped or not; of others the cluster says so.
#[must_use]
pub fn open(objects: Vec<Value>, refuses: &dyn Fn(&Value) -> Option<String>) -> Opened {
    let mut opened = Opened::default();
    let mut seen: HashMap<String, String> = HashMap::new();
    for object in &objects {
        if kind_of(object).is_none() {
            seen.insert(key(&ObjectId::of(object)), "the placement itself".into());
        }
    }
    for (source, object) in objects.into_iter().enumerate() {
        let Some(type_) = kind_of(&object) else {
            opened.parts.push(OpenedPart {
                object,
                source,
                envelope: None,
            });
            continue;
        };
        let id = ObjectId::of(&object);
        let envelope = Arc::new(EnvelopeIdentifier {
            name: id.name.to_owned(),
            namespace: id.namespace.map(str::to_owned),
            type_: Some(type_),
        });
        unpack(&envelope, (source, object), refuses, &mut seen, &mut opened);
    }
    opened
}

/// Which objects a placement places, given what it selects: those in envelopes instead of the envelopes.
/// What is wrong with envelopes is passed over.
#[must_use]
pub fn placed<'a>(selected: impl Iterator<Item = &'a Value>) -> Vec<ObjectId<'a>> {
    let mut ids = Vec::new();
    for object in selected {
        if kind_of(object).is_none() {
            ids.push(ObjectId::of(object));
        } else if let Some(data) = object.get("data").and_then(Value::as_object) {
            ids.extend(data.values().map(ObjectId::of));
        }
    }
    ids
}

/// How many envelopes there are.
#[must_use]
pub fn envelopes<'a>(selected: impl Iterator<Item = &'a Value>) -> usize {
    selected.filter(|object| kind_of(object).is_some()).count()
}

fn unpack(
    envelope: &Arc<EnvelopeIdentifier>,
    (source, object): (usize, Value),
    refuses: &dyn Fn(&Value) -> Option<String>,
    seen: &mut HashMap<String, String>,
    opened: &mut Opened,
) {
    // It is the value of a label, and was not always held to that.
    if envelope.name.len() >= 64 {
        opened.problems.push(format!(
            "{} has a name of {} characters, and has to have less than 64",
            words(envelope),
            envelope.name.len()
        ));
        return;
    }
    let data = match object {
        Value::Object(mut map) => map.remove("data"),
        _ => None,
    };
    let Some(Value::Object(data)) = data else {
        opened
            .problems
            .push(format!("{} has no data", words(envelope)));
        return;
    };
    let mut entries: Vec<_> = data.into_iter().collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, manifest) in entries {
        let id = ObjectId::of(&manifest);
        let mut problem = fault(envelope, &id, &manifest).or_else(|| refuses(&manifest));
        if problem.is_none() {
            let here = format!("{}, key {name:?}", words(envelope));
            match seen.get(&key(&id)) {
                Some(first) => problem = Some(format!("{id} is there already, in {first}")),
                None => {
                    seen.insert(key(&id), here);
                }
            }
        }
        match problem {
            Some(why) => opened
                .problems
                .push(format!("{}, key {name:?}: {why}", words(envelope))),
            None => opened.parts.push(OpenedPart {
                object: manifest,
                source,
                envelope: Some(Arc::clone(envelope)),
            }),
        }
    }
}

fn fault(envelope: &EnvelopeIdentifier, id: &ObjectId<'_>, manifest: &Value) -> Option<String> {
    if id.version.is_empty() || id.kind.is_empty() {
        return Some("the manifest has no apiVersion or no kind".to_owned());
    }
    if id.name.is_empty() {
        let generated = manifest.pointer("/metadata/generateName").is_some();
        let why = if generated {
            format!(
                "{} has generateName, which is not supported; give it a name",
                id.kind
            )
        } else {
            format!("{} has no name", id.kind)
        };
        return Some(why);
    }
    if [PLACEMENT_GROUP, CLUSTER_GROUP].contains(&id.group) {
        return Some(format!("{id} is the hub's own kind, and is not placed"));
    }
    let scope = is_cluster_scoped(id.group, id.kind);
    match &envelope.namespace {
        None => match (id.namespace, scope) {
            (Some(_), _) | (None, Some(false)) => Some(format!(
                "{id} lives in a namespace, and a ClusterResourceEnvelope carries cluster-scoped objects only; use a ResourceEnvelope there"
            )),
            (None, _) => None,
        },
        Some(_) if scope == Some(true) => Some(format!(
            "{id} is cluster-scoped; use a ClusterResourceEnvelope"
        )),
        Some(own) => match id.namespace {
            Some(namespace) if namespace == own => None,
            Some(_) => Some(format!(
                "{id} is in another namespace than the envelope; only {own} is allowed"
            )),
            None => Some(format!(
                "{id} names no namespace; metadata.namespace has to be the envelope's, {own}"
            )),
        },
    }
}

fn kind_of(object: &Value) -> Option<EnvelopeType> {
    let id = ObjectId::of(object);
    match (id.group, id.kind) {
        (PLACEMENT_GROUP, "ClusterResourceEnvelope") => Some(EnvelopeType::ClusterResourceEnvelope),
        (PLACEMENT_GROUP, "ResourceEnvelope") => Some(EnvelopeType::ResourceEnvelope),
        _ => None,
    }
}

/// An object in whatever version.
fn key(id: &ObjectId<'_>) -> String {
    let namespace = id.namespace.unwrap_or_default();
    format!("{}/{}/{namespace}/{}", id.group, id.kind, id.name)
}

/// How messages name an envelope.
pub fn words(envelope: &EnvelopeIdentifier) -> impl fmt::Display {
    match &envelope.namespace {
        Some(namespace) => format!("ResourceEnvelope {namespace}/{}", envelope.name),
        None => format!("ClusterResourceEnvelope {}", envelope.name),
    }
}
