//! I10, from a snapshot to what a cluster gets: whatever stands in a namespaced placement, its envelopes and the
//! overrides beside it, nothing outside of the namespace comes out, and nothing that gives rights.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod common;

use common::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_render::{
    Cluster, Confinement, ObjectId, Part, PlacementKey, Rendered, Scope, View, open, render,
};

/// API version, kind, and whether it is cluster-scoped.
const KINDS: [(&str, &str, bool); 7] = [
    ("v1", "ConfigMap", false),
    ("v1", "Namespace", true),
    ("apps/v1", "Deployment", false),
    ("rbac.authorization.k8s.io/v1", "Role", false),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", false),
    ("rbac.authorization.k8s.io/v1beta1", "ClusterRole", true),
    ("example.com/v1", "Thing", false),
];

/// Harmless ones are as frequent as all others together, or next to nothing would come out.
fn a_manifest() -> impl Strategy<Value = Value> {
    let kind = prop_oneof![Just(KINDS[0]), proptest::sample::select(KINDS.to_vec())];
    let namespace = prop_oneof![
        4 => Just(Some("app")),
        1 => proptest::sample::select(vec![None, Some("kube-system"), Some("other")]),
    ];
    (kind, namespace, "[ab]").prop_map(|((api_version, kind, _), namespace, name)| {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace},
            "data": {"a": "1"}})
    })
}

/// An object of a snapshot: an envelope of either kind, or a manifest as it is.
fn an_object() -> impl Strategy<Value = Value> {
    let envelope = |kind: &'static str, namespace: Option<&'static str>| {
        proptest::collection::vec(a_manifest(), 1..3).prop_map(move |all| {
            let data: serde_json::Map<String, Value> = all
                .into_iter()
                .enumerate()
                .map(|(at, manifest)| (at.to_string(), manifest))
                .collect();
            json!({"apiVersion": "placement.kubernetes-fleet.io/v1beta1", "kind": kind,
                "metadata": {"name": "e", "namespace": namespace}, "data": data})
        })
    };
    prop_oneof![
        3 => a_manifest(),
        3 => envelope("ResourceEnvelope", Some("app")),
        1 => envelope("ResourceEnvelope", Some("other")),
        1 => envelope("ClusterResourceEnvelope", None),
    ]
}

/// A patch of any place that matters, of what is called `a` or `b`.
fn a_source() -> impl Strategy<Value = Source> {
    let path = proptest::sample::select(vec![
        "/data/a",
        "/kind",
        "/apiVersion",
        "/metadata/namespace",
        "/metadata/name",
        "/metadata",
        "/roleRef",
        "/metadata/labels",
    ]);
    let value = proptest::sample::select(vec![json!("kube-system"), json!({"a": "b"})]);
    let target = proptest::sample::select(KINDS.to_vec());
    (path, value, target, "[ab]", any::<bool>()).prop_map(|(path, value, target, name, of_team)| {
        let rules = json!([everywhere(json!([set(path, value)]))]);
        if of_team {
            ro("o", selector(target.0, target.1, &name), rules)
        } else {
            cro("o", namespace(), rules)
        }
    })
}

/// Everything that a cluster gets; none if it gets nothing new.
fn gets(objects: Vec<Value>, sources: &[Source]) -> Option<Vec<Value>> {
    let opened = open(objects, &|_| None);
    if !opened.problems.is_empty() {
        return None;
    }
    let parts: Vec<Part<'_>> = opened
        .parts
        .iter()
        .map(|part| Part {
            object: &part.object,
            envelope: part.envelope.as_deref(),
            // That it is the hub's own render frees no namespaced placement.
            vouched: true,
        })
        .collect();
    let overrides: Vec<_> = sources.iter().map(Source::view).collect();
    let view = View {
        placement: PlacementKey {
            namespace: Some("app"),
            name: "web",
        },
        cluster: Cluster {
            name: "east",
            labels: &labels(),
        },
        overrides: &overrides,
        scope: Scope::Namespace("app"),
        confinement: &Confinement::default(),
    };
    let rendered = render(&view, &parts).ok()?;
    let all = opened.parts.iter().zip(rendered);
    Some(
        all.filter_map(|(part, rendered)| match rendered {
            Rendered::Same => Some(part.object.clone()),
            Rendered::Changed(object) => Some(object),
            Rendered::LeftOut => None,
        })
        .collect(),
    )
}

proptest! {
    #[test]
    fn what_comes_out_is_of_the_namespace_and_gives_no_rights(
        objects in proptest::collection::vec(an_object(), 1..3),
        sources in proptest::collection::vec(a_source(), 0..3),
    ) {
        for object in gets(objects, &sources).into_iter().flatten() {
            let id = ObjectId::of(&object);
            prop_assert_eq!(id.namespace, Some("app"), "{}", object);
            prop_assert!(!id.group.contains("rbac"), "{}", object);
            let is_cluster_scoped = KINDS.iter().any(|kind| kind.1 == id.kind && kind.2);
            prop_assert!(!is_cluster_scoped, "{}", object);
        }
    }
}

/// The property is about something: harmless things come out, changed.
#[test]
fn what_is_harmless_comes_out() {
    let harmless = json!({"apiVersion": "placement.kubernetes-fleet.io/v1beta1", "kind": "ResourceEnvelope",
        "metadata": {"name": "e", "namespace": "app"}, "data": {"a": object()}});
    let change = ro(
        "o",
        config_map(),
        json!([everywhere(json!([set("/data/a", json!("2"))]))]),
    );
    let out = gets(vec![harmless], &[change]).unwrap();
    assert_eq!(out[0]["data"]["a"], "2");
}
