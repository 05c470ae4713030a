//! What Helm prints, taken apart: what is placed, and what is left out.
//!
//! | in the render | what becomes of it |
//! |---|---|
//! | an object | is placed |
//! | a list | its items are |
//! | an empty document, notes | nothing: Helm prints no notes here |
//! | a CRD (`crds/`, or a hook `crd-install` of old charts) | is placed, like any other object |
//! | a hook for tests | is left out without a word |
//! | any other hook | is left out, and told: a hook is a step of one client's install or upgrade, with an order, waiting and deletion of its own; a placement has no such steps, and a Job that is placed for good is not what the chart means |
//! | `helm.sh/resource-policy: keep` | nothing: an annotation like others. What a removed placement keeps is said by its delete strategy, and by `windlass.dev/allow-cascade` for Namespaces and CRDs |
//! | the release's own Namespace | is left out and handed to the caller, who places that namespace anyway: its labels may be meant (pod security) |
//! | any other Namespace | is placed |
//! | an object without a name, or with generateName | an error: a placement needs to know which object it is |
//!
//! **Scope.** A chart need not say in which namespace its objects are; Helm asks the cluster. Here there are
//! many, so a kind lives in a namespace or not by the first of these that knows: the kinds that every cluster
//! has; the CRDs of this render; the caller (the hub's discovery). Of a kind that none knows it is assumed
//! that it lives in a namespace, as most do: a chart's `Certificate` is placed although cert-manager's CRDs
//! are on the members only. Such kinds are told ([`Content::assumed`]); where that is wrong (a
//! `ClusterIssuer`), the member says so, and the CRD on the hub mends it. A namespaced object without
//! namespace gets the release's; a namespace of a cluster-scoped one is dropped, as Helm does.

mod yaml;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value};
use windlass_render::{ObjectId, is_cluster_scoped};

use crate::render::{RenderError, RenderFault, cut};

/// Annotation that makes a hook.
const HOOK: &str = "helm.sh/hook";
/// Hooks that are objects all the same.
const CRD_HOOK: &str = "crd-install";
/// Hooks that are no part of what a chart installs.
const TEST_HOOKS: [&str; 3] = ["test", "test-success", "test-failure"];

/// Where objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindScope {
    /// In no namespace.
    Cluster,
    /// In one.
    Namespaced,
}

/// What the caller knows of a kind, by group and kind; none if nothing.
pub type ScopeOf<'a> = dyn Fn(&str, &str) -> Option<KindScope> + Send + Sync + 'a;

/// What a render holds. See the module.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Content {
    /// What is placed, in Helm's order. Each has apiVersion, kind, name, and a namespace exactly where it
    /// lives in one.
    pub objects: Vec<Value>,
    /// The release's own Namespace, if the chart makes it.
    pub namespace: Option<Value>,
    /// Hooks that are left out, as `Kind/name (events)`.
    pub skipped_hooks: Vec<String>,
    /// Kinds of which nobody knew where they live, as `Kind.group`: assumed to live in a namespace.
    pub assumed: Vec<String>,
}

/// A document of a render, and which template it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    source: String,
    object: Map<String, Value>,
}

/// Reads what `helm template` prints.
///
/// # Errors
/// For what is no YAML, or no object; the template is named.
pub fn documents(output: &[u8]) -> Result<Vec<Document>, RenderError> {
    let text = std::str::from_utf8(output)
        .map_err(|_| rejected("what the chart renders is no text (UTF-8)".to_owned()))?;
    let mut all = Vec::new();
    let left = Cell::new(yaml::LARGEST);
    for chunk in chunks(text) {
        let source = source(chunk);
        let values = yaml::read(chunk, &left).map_err(|error| {
            let mut why = error.to_string();
            cut(&mut why, 200);
            rejected(format!("{source}: not YAML: {why}"))
        })?;
        for value in values {
            flatten(value, source, &mut all)?;
        }
    }
    Ok(all)
}

/// The documents of a text, each with the comments before it. A line that begins with `---` is always a
/// mark: YAML allows it nowhere else.
fn chunks(text: &str) -> Vec<&str> {
    let mut chunks = Vec::new();
    let (mut begin, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        let is_mark = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if is_mark {
            chunks.push(text.get(begin..at).unwrap_or_default());
            begin = at;
        }
        at += line.len();
    }
    chunks.push(text.get(begin..).unwrap_or_default());
    chunks.retain(|chunk| !chunk.trim().is_empty());
    chunks
}

fn source(chunk: &str) -> &str {
    let mut comments = chunk
        .lines()
        .filter_map(|line| line.strip_prefix("# Source: "));
    comments.next().map_or("the chart", str::trim)
}

fn flatten(value: Value, source: &str, into: &mut Vec<Document>) -> Result<(), RenderError> {
    let mut object = match value {
        Value::Null => return Ok(()),
        Value::Object(object) if object.is_empty() => return Ok(()),
        Value::Object(object) => object,
        _ => return Err(rejected(format!("{source}: this is no object"))),
    };
    let kind = object.get("kind").and_then(Value::as_str);
    let of = kind.and_then(|kind| kind.strip_suffix("List"));
    let is_list = object.get("items").is_some_and(Value::is_array);
    let Some(of) = of.filter(|_| is_list).map(str::to_owned) else {
        into.push(Document {
            source: source.to_owned(),
            object,
        });
        return Ok(());
    };
    let version = object.remove("apiVersion");
    let Some(Value::Array(items)) = object.remove("items") else {
        return Ok(());
    };
    for mut item in items {
        if let (false, Some(item)) = (of.is_empty(), item.as_object_mut()) {
            item.entry("kind").or_insert_with(|| of.as_str().into());
            item.entry("apiVersion")
                .or_insert_with(|| version.clone().unwrap_or_default());
        }
        flatten(item, source, into)?;
    }
    Ok(())
}

impl Content {
    /// Sorts documents out; `namespace` is the release's.
    ///
    /// # Errors
    /// For an object without identity; the template is named.
    pub fn of(
        documents: Vec<Document>,
        namespace: &str,
        scope_of: &ScopeOf<'_>,
    ) -> Result<Self, RenderError> {
        let own = own_kinds(&documents);
        let known = |id: &ObjectId<'_>| {
            let cluster = is_cluster_scoped(id.group, id.kind);
            let built_in = cluster.map(|cluster| match cluster {
                true => KindScope::Cluster,
                false => KindScope::Namespaced,
            });
            built_in
                .or_else(|| own.get(&(id.group.to_owned(), id.kind.to_owned())).copied())
                .or_else(|| scope_of(id.group, id.kind))
        };
        let mut content = Self::default();
        let mut assumed = BTreeSet::new();
        for Document { source, object } in documents {
            let mut object = Value::Object(object);
            match hook(&object) {
                Hook::None => {}
                Hook::Test => continue,
                Hook::Step(events) => {
                    let id = ObjectId::of(&object);
                    content
                        .skipped_hooks
                        .push(format!("{}/{} ({events})", id.kind, id.name));
                    continue;
                }
            }
            identify(&object).map_err(|why| rejected(format!("{source}: {why}")))?;
            let id = ObjectId::of(&object);
            let scope = known(&id).unwrap_or_else(|| {
                assumed.insert(kind_words(&id));
                KindScope::Namespaced
            });
            if (id.group, id.kind, id.name) == ("", "Namespace", namespace) {
                content.namespace = Some(object);
                continue;
            }
            settle(&mut object, scope, namespace);
            content.objects.push(object);
        }
        content.assumed = assumed.into_iter().collect();
        Ok(content)
    }

    /// How many objects of each kind there are.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, i32> {
        let mut counts = BTreeMap::new();
        for object in &self.objects {
            *counts
                .entry(ObjectId::of(object).kind.to_owned())
                .or_default() += 1;
        }
        counts
    }
}

/// Where kinds live whose CRDs are in the render itself.
fn own_kinds(documents: &[Document]) -> HashMap<(String, String), KindScope> {
    let kinds = documents.iter().filter_map(|document| {
        let text = |map: &Map<String, Value>, key: &str| {
            map.get(key).and_then(Value::as_str).map(str::to_owned)
        };
        if text(&document.object, "kind")? != "CustomResourceDefinition" {
            return None;
        }
        let spec = document.object.get("spec")?.as_object()?;
        let scope = match text(spec, "scope")?.as_str() {
            "Cluster" => KindScope::Cluster,
            "Namespaced" => KindScope::Namespaced,
            _ => return None,
        };
        let kind = text(spec.get("names")?.as_object()?, "kind")?;
        Some(((text(spec, "group")?, kind), scope))
    });
    kinds.collect()
}

enum Hook {
    None,
    Test,
    Step(String),
}

fn hook(object: &Value) -> Hook {
    let annotations = object.pointer("/metadata/annotations");
    let Some(events) = annotations
        .and_then(|all| all.get(HOOK))
        .and_then(Value::as_str)
    else {
        return Hook::None;
    };
    let events: Vec<_> = events
        .split(',')
        .map(str::trim)
        .filter(|event| !event.is_empty())
        .collect();
    if events.is_empty() || events.contains(&CRD_HOOK) {
        return Hook::None;
    }
    if events.iter().all(|event| TEST_HOOKS.contains(event)) {
        return Hook::Test;
    }
    Hook::Step(events.join(", "))
}

fn identify(object: &Value) -> Result<(), String> {
    let id = ObjectId::of(object);
    if id.version.is_empty() || id.kind.is_empty() {
        return Err("an object has no apiVersion or no kind".to_owned());
    }
    if !id.name.is_empty() {
        return Ok(());
    }
    Err(match object.pointer("/metadata/generateName") {
        Some(_) => format!(
            "a {} has generateName, which is not supported: a placement needs to know its name",
            id.kind
        ),
        None => format!("a {} has no name", id.kind),
    })
}

fn settle(object: &mut Value, scope: KindScope, release: &str) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    // It has a name, so there is one.
    let Some(metadata) = metadata else { return };
    let has_one = metadata
        .get("namespace")
        .and_then(Value::as_str)
        .is_some_and(|namespace| !namespace.is_empty());
    match scope {
        KindScope::Cluster => drop(metadata.remove("namespace")),
        KindScope::Namespaced if has_one => {}
        KindScope::Namespaced => drop(metadata.insert("namespace".to_owned(), release.into())),
    }
}

fn kind_words(id: &ObjectId<'_>) -> String {
    format!("{}.{}", id.kind, id.group)
}

fn rejected(what: String) -> RenderError {
    RenderError::new(RenderFault::ObjectRejected, what)
}

#[cfg(test)]
mod tests;
