//! What the suites share: overrides and clusters from JSON.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    reason = "each suite uses its part; a test that can't go on fails; rows read better without references"
)]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use windlass_api::overrides::{ClusterResourceOverrideSpec, ResourceOverrideSpec};
use windlass_api::placement::EnvelopeIdentifier;
use windlass_render::{
    Cluster, Confinement, Override, Part, PlacementKey, RenderError, Rendered, Scope, View, render,
};

/// An administrator allows namespaced placements nothing.
pub const REFUSED: &str = "";
/// An administrator allows them everything that can be allowed.
pub const ALLOWED: &str = "rbac,pod-security,quota";

pub const WEB: PlacementKey<'_> = PlacementKey {
    namespace: None,
    name: "web",
};

/// An override of either kind, with the name of its snapshot.
#[derive(Debug)]
pub enum Source {
    Cluster(&'static str, ClusterResourceOverrideSpec),
    Namespace(&'static str, &'static str, ResourceOverrideSpec),
}

impl Source {
    pub fn view(&self) -> Override<'_> {
        match self {
            Self::Cluster(name, spec) => Override::of_cluster(name, spec),
            Self::Namespace(namespace, name, spec) => Override::of_namespace(namespace, name, spec),
        }
    }
}

/// A ClusterResourceOverride that selects one object.
pub fn cro(name: &'static str, selector: Value, rules: Value) -> Source {
    let spec = json!({"clusterResourceSelectors": [selector], "policy": {"overrideRules": rules}});
    Source::Cluster(name, serde_json::from_value(spec).unwrap())
}

/// A ResourceOverride in namespace `app` that selects one object.
pub fn ro(name: &'static str, selector: Value, rules: Value) -> Source {
    let spec = json!({"resourceSelectors": [selector], "policy": {"overrideRules": rules}});
    Source::Namespace("app", name, serde_json::from_value(spec).unwrap())
}

pub fn selector(api_version: &str, kind: &str, name: &str) -> Value {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    json!({"group": group, "version": version, "kind": kind, "name": name})
}

pub fn config_map() -> Value {
    selector("v1", "ConfigMap", "web")
}

pub fn namespace() -> Value {
    selector("v1", "Namespace", "app")
}

/// A rule for every cluster.
pub fn everywhere(patches: Value) -> Value {
    json!({"clusterSelector": {"clusterSelectorTerms": []}, "jsonPatchOverrides": patches})
}

/// A rule for clusters with a label.
pub fn where_label(key: &str, value: &str, patches: Value) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {key: value}}});
    json!({"clusterSelector": {"clusterSelectorTerms": [term]}, "jsonPatchOverrides": patches})
}

pub fn set(path: &str, value: Value) -> Value {
    json!({"op": "add", "path": path, "value": value})
}

/// Leaves out everywhere.
pub fn delete() -> Value {
    json!({"clusterSelector": {"clusterSelectorTerms": []}, "overrideType": "Delete"})
}

/// ConfigMap app/web.
pub fn object() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "app"},
        "data": {"a": "1", "list": ["x"]}})
}

pub fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([
        ("env".to_owned(), "prod".to_owned()),
        ("zone".to_owned(), "z1".to_owned()),
    ])
}

/// Renders one object for cluster `east`, with env=prod and zone=z1.
pub fn render_one(object: &Value, sources: &[Source]) -> Result<Rendered, Vec<RenderError>> {
    render_in(WEB, Scope::Cluster, REFUSED, object, sources)
}

pub fn render_in(
    placement: PlacementKey<'_>,
    scope: Scope<'_>,
    allowed: &str,
    object: &Value,
    sources: &[Source],
) -> Result<Rendered, Vec<RenderError>> {
    render_part(placement, scope, allowed, (object, None), sources)
}

/// Renders one object that may have come in an envelope.
pub fn render_part(
    placement: PlacementKey<'_>,
    scope: Scope<'_>,
    allowed: &str,
    (object, envelope): (&Value, Option<&EnvelopeIdentifier>),
    sources: &[Source],
) -> Result<Rendered, Vec<RenderError>> {
    let overrides: Vec<_> = sources.iter().map(Source::view).collect();
    let labels = labels();
    let view = View {
        placement,
        cluster: Cluster {
            name: "east",
            labels: &labels,
        },
        overrides: &overrides,
        scope,
        confinement: &Confinement::new(allowed).unwrap(),
    };
    let parts = [Part {
        object,
        envelope,
        vouched: false,
    }];
    render(&view, &parts).map(|mut all| all.remove(0))
}

/// The object as it comes out.
pub fn result(object: &Value, sources: &[Source]) -> Value {
    match render_one(object, sources).unwrap() {
        Rendered::Same => object.clone(),
        Rendered::LeftOut => Value::Null,
        Rendered::Changed(changed) => changed,
    }
}
