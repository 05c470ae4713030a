//! From what a snapshot holds to what one cluster gets.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use windlass_api::labels;
use windlass_api::placement::ResourceIdentifier;
use windlass_member::manifest::Manifest;
use windlass_render::{
    Cluster, Confinement, Part, RenderError, Rendered, Scope, View, is_confined, render,
};

use crate::contents::Content;
use crate::overrides::Version;
use crate::overrides::pending::Missing;
use crate::overrides::resolve::placement_key;
use crate::select::rules::ApiFilter;
use crate::select::sanitise::sanitise;

/// How many faults a message lists.
const NAMED: usize = 5;

/// The content of a snapshot, envelopes opened.
#[derive(Debug)]
pub struct Opened {
    /// What was selected: envelopes as themselves.
    pub selected: Vec<ResourceIdentifier>,
    /// What is placed: the manifests of envelopes in the place of these.
    pub manifests: Arc<[Arc<Manifest>]>,
    /// What is wrong with envelopes; then nothing is placed.
    pub problems: Vec<String>,
}

/// Opens the envelopes among the objects of a snapshot, of each of which `part_of` tells the part. Manifests in
/// envelopes have not been sanitised before, and met no rule of selection.
#[must_use]
pub fn open(objects: Vec<Value>, part_of: &[usize], filter: &ApiFilter) -> Opened {
    let selected = objects.iter().map(identifier_of).collect();
    let vouched: Vec<bool> = objects.iter().map(is_vouched).collect();
    let opened = windlass_render::open(objects, &|manifest| filter.refuses_enveloped(manifest));
    let manifests = opened.parts.into_iter().map(|part| {
        let mut object = part.object;
        if part.envelope.is_some() {
            sanitise(&mut object);
        }
        let number = part_of.get(part.source).copied().unwrap_or_default();
        let vouched = vouched.get(part.source).copied().unwrap_or_default();
        let manifest = Manifest::of_snapshot(object).from(number, part.envelope);
        Arc::new(manifest.vouched(vouched))
    });
    Opened {
        selected,
        manifests: manifests.collect(),
        problems: opened.problems,
    }
}

fn is_vouched(object: &Value) -> bool {
    let annotations = object.pointer("/metadata/annotations");
    annotations.is_some_and(|all| all.get(labels::ADDON_VOUCHED).is_some())
}

fn identifier_of(object: &Value) -> ResourceIdentifier {
    let id = windlass_render::ObjectId::of(object);
    ResourceIdentifier {
        group: Some(id.group.to_owned()).filter(|group| !group.is_empty()),
        version: id.version.to_owned(),
        kind: id.kind.to_owned(),
        name: id.name.to_owned(),
        namespace: id.namespace.map(str::to_owned),
        envelope: None,
    }
}

/// Why a cluster gets nothing new.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// An override can't be worked in.
    Override(String),
    /// The placement holds what can't be placed.
    Content(String),
}

/// The manifests of a cluster. Where no override does anything, they are the ones that all clusters share.
///
/// # Errors
/// See [`Refusal`].
pub fn manifests(
    content: &Content,
    versions: &[Result<Version, Missing>],
    cluster: &str,
    labels: &BTreeMap<String, String>,
    confinement: &Confinement,
) -> Result<Arc<[Arc<Manifest>]>, Refusal> {
    if !content.problems.is_empty() {
        return Err(Refusal::Content(listed(&content.problems)));
    }
    let missing: Vec<String> = versions
        .iter()
        .filter_map(|version| version.as_ref().err())
        .map(|missing| format!("cluster {cluster}: {missing}"))
        .collect();
    if !missing.is_empty() {
        return Err(Refusal::Override(listed(&missing)));
    }
    let overrides: Vec<_> = versions
        .iter()
        .flatten()
        .map(Version::as_override)
        .collect();
    let namespace = content.placement.namespace.as_str();
    let scope = if namespace.is_empty() {
        Scope::Cluster
    } else {
        Scope::Namespace(namespace)
    };
    let parts: Vec<Part<'_>> = content
        .manifests
        .iter()
        .map(|manifest| Part {
            object: &manifest.object,
            envelope: manifest.envelope.as_deref(),
            vouched: manifest.vouched,
        })
        .collect();
    if overrides.is_empty() && !parts.iter().any(|part| is_confined(scope, part)) {
        return Ok(Arc::clone(&content.manifests));
    }
    let view = View {
        placement: placement_key(&content.placement),
        cluster: Cluster {
            name: cluster,
            labels,
        },
        overrides: &overrides,
        scope,
        confinement,
    };
    let rendered = render(&view, &parts).map_err(|errors| refusal(&errors))?;
    if rendered.iter().all(|part| *part == Rendered::Same) {
        return Ok(Arc::clone(&content.manifests));
    }
    let put = |(manifest, part): (&Arc<Manifest>, Rendered)| match part {
        Rendered::Same => Some(Arc::clone(manifest)),
        Rendered::LeftOut => None,
        Rendered::Changed(object) => Some(Arc::new(
            Manifest::of_snapshot(object)
                .from(manifest.part, manifest.envelope.clone())
                .vouched(manifest.vouched),
        )),
    };
    Ok(content
        .manifests
        .iter()
        .zip(rendered)
        .filter_map(put)
        .collect())
}

fn refusal(errors: &[RenderError]) -> Refusal {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let text = listed(&texts);
    if errors.iter().any(|error| error.by.is_some()) {
        Refusal::Override(text)
    } else {
        Refusal::Content(text)
    }
}

fn listed(texts: &[String]) -> String {
    let named = texts[..texts.len().min(NAMED)].join("; ");
    match texts.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn envelope(namespace: Option<&str>, manifest: &Value) -> Value {
        let kind = match namespace {
            Some(_) => "ResourceEnvelope",
            None => "ClusterResourceEnvelope",
        };
        json!({"apiVersion": "placement.kubernetes-fleet.io/v1beta1", "kind": kind,
            "metadata": {"name": "e", "namespace": namespace}, "data": {"a": manifest}})
    }

    /// A team's envelope grants nothing in an administrator's placement either.
    #[test]
    fn who_wrote_an_envelope_counts_in_whatever_placement() {
        let rbac = "rbac.authorization.k8s.io/v1";
        let of_team = json!({"apiVersion": rbac, "kind": "RoleBinding", "metadata": {"name": "a", "namespace": "team"}});
        let of_cluster =
            json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "a"}});
        for (object, allowed, carried) in [
            (of_team.clone(), "", true),
            (envelope(Some("team"), &of_team), "", false),
            (envelope(Some("team"), &of_team), "rbac", true),
            (envelope(None, &of_cluster), "", true),
        ] {
            let opened = open(vec![object.clone()], &[], &ApiFilter::default());
            assert!(opened.problems.is_empty(), "{:?}", opened.problems);
            let content = Content {
                placement: windlass_cluster::ObjectKey::cluster("web"),
                name: "web-0-snapshot".to_owned(),
                index: 0,
                hash: String::new(),
                manifests: opened.manifests,
                selected: opened.selected,
                problems: opened.problems,
            };
            let confinement = Confinement::new(allowed).unwrap();
            let result = manifests(&content, &[], "east", &BTreeMap::new(), &confinement);
            assert_eq!(result.is_ok(), carried, "{object} {allowed:?}: {result:?}");
        }
    }
}
