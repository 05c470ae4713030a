//! What overrides do to a manifest, by the rows of the reference (API §7.7, hub §5).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that can't go on fails"
)]

mod common;

use std::collections::BTreeMap;

use common::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_render::{Cluster, ObjectId, PlacementKey, Rendered, effects};

fn data(sources: &[Source]) -> Value {
    result(&object(), sources)["data"].clone()
}

#[test]
fn what_a_selector_selects() {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "app"}});
    let elsewhere = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "other"}});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "web"}});
    let home = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "app"}});
    let rbac = "rbac.authorization.k8s.io";
    let any = || json!([everywhere(json!([]))]);
    let c = |selector| cro("o", selector, any());
    let n = |selector| ro("o", selector, any());
    let rows = [
        (
            c(selector(&format!("{rbac}/v1"), "ClusterRole", "web")),
            &role,
            true,
        ),
        (
            c(selector(&format!("{rbac}/v1"), "ClusterRole", "other")),
            &role,
            false,
        ),
        (
            c(selector(&format!("{rbac}/v1beta1"), "ClusterRole", "web")),
            &role,
            false,
        ),
        (c(selector("v1", "ClusterRole", "web")), &role, false),
        (c(namespace()), &home, true),
        (c(namespace()), &deployment, true),
        (c(namespace()), &object(), true),
        (c(namespace()), &elsewhere, false),
        (c(namespace()), &role, false),
        // A namespaced object is not reached by its own name.
        (c(config_map()), &object(), false),
        (
            c(selector("example.com/v1", "Namespace", "app")),
            &object(),
            false,
        ),
        (n(config_map()), &object(), true),
        (n(config_map()), &elsewhere, false),
        (
            n(selector("apps/v1", "Deployment", "web")),
            &deployment,
            true,
        ),
        (
            n(selector("apps/v1beta1", "Deployment", "web")),
            &deployment,
            false,
        ),
        (n(namespace()), &home, false),
        (
            n(selector(&format!("{rbac}/v1"), "ClusterRole", "web")),
            &role,
            false,
        ),
    ];
    for (row, (source, object, expected)) in rows.iter().enumerate() {
        let id = ObjectId::of(object);
        assert_eq!(source.view().selects(&id), *expected, "row {row}: {id}");
    }
}

#[test]
fn which_placement_an_override_is_for() {
    let pinned = |mut source: Source, scope: Option<&str>| {
        let reference = json!({"name": "web", "scope": scope});
        let reference = serde_json::from_value(reference).unwrap();
        match &mut source {
            Source::Cluster(_, spec) => spec.placement = reference,
            Source::Namespace(_, _, spec) => spec.placement = reference,
        }
        source
    };
    let c = || cro("o", namespace(), json!([delete()]));
    let n = || ro("o", config_map(), json!([delete()]));
    let other = PlacementKey {
        namespace: None,
        name: "other",
    };
    let in_app = PlacementKey {
        namespace: Some("app"),
        name: "web",
    };
    let in_other = PlacementKey {
        namespace: Some("other"),
        name: "web",
    };
    let all = [WEB, other, in_app, in_other];
    for (row, (source, expected)) in [
        (c(), [true, true, true, true]),
        (n(), [true, true, true, true]),
        (pinned(c(), None), [true, false, false, false]),
        (pinned(c(), Some("Cluster")), [true, false, false, false]),
        (
            pinned(c(), Some("Namespaced")),
            [false, false, false, false],
        ),
        (pinned(n(), None), [true, false, false, false]),
        (pinned(n(), Some("Cluster")), [true, false, false, false]),
        (pinned(n(), Some("Namespaced")), [false, false, true, false]),
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(
            all.map(|key| source.view().is_for(key)),
            *expected,
            "row {row}"
        );
    }
}

#[test]
fn which_cluster_a_rule_is_for() {
    let term = |labels: Value| json!({"labelSelector": {"matchLabels": labels}});
    let rows = [
        (json!(null), false),
        (json!({"clusterSelectorTerms": []}), true),
        (
            json!({"clusterSelectorTerms": [term(json!({"env": "prod"}))]}),
            true,
        ),
        (
            json!({"clusterSelectorTerms": [term(json!({"env": "test"}))]}),
            false,
        ),
        (
            json!({"clusterSelectorTerms": [term(json!({"env": "test"})), term(json!({"zone": "z1"}))]}),
            true,
        ),
        (
            json!({"clusterSelectorTerms": [term(json!({"env": "prod", "zone": "z2"}))]}),
            false,
        ),
        (
            json!({"clusterSelectorTerms": [{"labelSelector": {}}]}),
            true,
        ),
        // What is not for overrides does not make one apply everywhere.
        (json!({"clusterSelectorTerms": [{}]}), false),
        (
            json!({"clusterSelectorTerms": [{"propertySelector": {"matchExpressions": []}}]}),
            false,
        ),
    ];
    for (selector, expected) in rows {
        let rule = json!({"clusterSelector": selector, "jsonPatchOverrides": [set("/data/a", json!("2"))]});
        let source = ro("o", config_map(), json!([rule]));
        let (labels, name) = (labels(), "east");
        assert_eq!(
            source.view().matches(Cluster {
                name,
                labels: &labels
            }),
            expected,
            "{selector}"
        );
        let changed = data(&[source]) != object()["data"];
        assert_eq!(changed, expected, "{selector}");
    }
}

#[test]
fn order_and_precedence() {
    let to = |value: &str| json!([everywhere(json!([set("/data/a", json!(value))]))]);
    let a = |sources: &[Source]| data(sources)["a"].clone();
    // Rules, and patches, in order; the last one wins.
    let twice = json!([
        where_label(
            "env",
            "prod",
            json!([set("/data/a", json!("2")), set("/data/a", json!("3"))])
        ),
        where_label("zone", "z1", json!([set("/data/a", json!("4"))])),
        where_label("env", "test", json!([set("/data/a", json!("5"))])),
    ]);
    assert_eq!(a(&[ro("o", config_map(), twice)]), "4");
    // A ResourceOverride has the last word.
    let both = [
        cro("z", namespace(), to("cro")),
        ro("a", config_map(), to("ro")),
    ];
    assert_eq!(a(&both), "ro");
    // A later patch sees what an earlier one did.
    let chain = json!([everywhere(json!([
        set("/data/new", json!("n")),
        {"op": "replace", "path": "/data/new", "value": "m"},
        {"op": "remove", "path": "/data/a"},
        set("/data/list/-", json!("y")),
        set("/data/list/0", json!("w")),
    ]))]);
    assert_eq!(
        data(&[ro("o", config_map(), chain)]),
        json!({"new": "m", "list": ["w", "x", "y"]})
    );
}

#[test]
fn delete_is_the_end() {
    let bad = || json!([everywhere(json!([{"op": "remove", "path": "/none"}]))]);
    for sources in [
        vec![ro("o", config_map(), json!([delete()]))],
        vec![cro("o", namespace(), json!([delete()]))],
        // What comes after is not looked at.
        vec![
            cro("o", namespace(), json!([delete()])),
            ro("p", config_map(), bad()),
        ],
        vec![ro("o", config_map(), json!([delete(), bad()[0]]))],
        vec![ro(
            "o",
            config_map(),
            json!([everywhere(json!([set("/data/a", json!("2"))])), delete()]),
        )],
    ] {
        assert_eq!(render_one(&object(), &sources).unwrap(), Rendered::LeftOut);
    }
}

#[test]
fn what_nothing_touches_is_shared() {
    let same = json!([everywhere(json!([set("/data/a", json!("1"))]))]);
    for sources in [
        vec![],
        vec![ro(
            "o",
            selector("v1", "ConfigMap", "other"),
            json!([delete()]),
        )],
        vec![ro(
            "o",
            config_map(),
            json!([where_label(
                "env",
                "test",
                json!([set("/data/a", json!("2"))])
            )]),
        )],
        // A patch that changes nothing, too.
        vec![ro("o", config_map(), same)],
    ] {
        assert_eq!(render_one(&object(), &sources).unwrap(), Rendered::Same);
    }
}

#[test]
fn variables_stand_for_the_cluster() {
    let patches = json!([
        set(
            "/data/at",
            json!("${MEMBER-CLUSTER-NAME}.${MEMBER-CLUSTER-LABEL-KEY-zone}.example.com")
        ),
        set("/data/price", json!("5$")),
        set(
            "/data/${MEMBER-CLUSTER-NAME}",
            json!("the path is taken as it is")
        ),
    ]);
    let data = data(&[ro("o", config_map(), json!([everywhere(patches)]))]);
    assert_eq!(data["at"], "east.z1.example.com");
    assert_eq!(data["price"], "5$");
    assert_eq!(data["${MEMBER-CLUSTER-NAME}"], "the path is taken as it is");
}

#[test]
fn a_bad_patch_is_named_in_full() {
    let rows = [
        (
            "remove",
            "/data/none",
            "the object has no /data/none; there is nothing to remove",
        ),
        (
            "replace",
            "/data/none",
            "the object has no /data/none; use op add",
        ),
        (
            "replace",
            "/spec/replicas",
            "the object has no /spec; there is nothing to replace",
        ),
        (
            "add",
            "/metadata/labels/x",
            "the object has no /metadata/labels; add that first, with what belongs into it",
        ),
        (
            "add",
            "/data/list/5",
            "/data/list is a list of 1 item(s) and has no position \"5\"",
        ),
        (
            "remove",
            "/data/list/x",
            "/data/list is a list of 1 item(s) and has no position \"x\"",
        ),
        (
            "add",
            "/data/a/b",
            "/data/a is neither an object nor a list",
        ),
        (
            "add",
            "data",
            "this is no JSON pointer: it starts with /, and ~ is written ~0",
        ),
        (
            "add",
            "/data/~2",
            "this is no JSON pointer: it starts with /, and ~ is written ~0",
        ),
        (
            "add",
            "",
            "the object as a whole can't be replaced; name a field",
        ),
        ("add", "/data//a", "the path has an empty segment"),
        ("add", "/data/", "the path has an empty segment"),
        (
            "replace",
            "/kind",
            "apiVersion and kind say which object it is, and can't be changed",
        ),
        (
            "remove",
            "/apiVersion",
            "apiVersion and kind say which object it is, and can't be changed",
        ),
        (
            "add",
            "/status",
            "the status is the cluster's, and can't be changed",
        ),
        (
            "add",
            "/status/phase",
            "the status is the cluster's, and can't be changed",
        ),
        (
            "replace",
            "/metadata",
            "metadata as a whole can't be changed; name a label or an annotation",
        ),
        (
            "replace",
            "/metadata/name",
            "name and namespace say which object it is, and can't be changed",
        ),
        (
            "remove",
            "/metadata/namespace",
            "name and namespace say which object it is, and can't be changed",
        ),
        (
            "add",
            "/metadata/finalizers",
            "of metadata, only labels and annotations can be changed",
        ),
        (
            "add",
            "/metadata/ownerReferences/-",
            "of metadata, only labels and annotations can be changed",
        ),
        (
            "add",
            "/metadata/generateName",
            "of metadata, only labels and annotations can be changed",
        ),
    ];
    for (op, path, why) in rows {
        let patch = json!([{"op": op, "path": path, "value": "secret"}]);
        let rules = json!([where_label("env", "test", json!([])), everywhere(patch)]);
        let errors = render_one(&object(), &[ro("o-3", config_map(), rules)]).unwrap_err();
        assert_eq!(errors.len(), 1);
        let expected = format!(
            "cluster east, ConfigMap app/web, ResourceOverrideSnapshot app/o-3, overrideRules[1], path {path:?}: {why}"
        );
        assert_eq!(errors[0].to_string(), expected);
    }
}

#[test]
fn a_variable_without_value_and_a_selector_that_cannot_be_read_are_named() {
    let unset = json!([everywhere(json!([set(
        "/data/a",
        json!("${MEMBER-CLUSTER-LABEL-KEY-tier}")
    )]))]);
    let errors = render_one(&object(), &[cro("o-0", namespace(), unset)]).unwrap_err();
    assert_eq!(
        errors[0].to_string(),
        "cluster east, ConfigMap app/web, ClusterResourceOverrideSnapshot o-0, overrideRules[0], path \"/data/a\": \
         the variable ${MEMBER-CLUSTER-LABEL-KEY-tier} has no value: the cluster has no label tier"
    );
    let term = json!({"labelSelector": {"matchExpressions": [{"key": "env", "operator": "Near"}]}});
    let rule =
        json!({"clusterSelector": {"clusterSelectorTerms": [term]}, "overrideType": "Delete"});
    let source = ro("o-0", config_map(), json!([rule]));
    let (labels, name) = (labels(), "east");
    assert!(source.view().matches(Cluster {
        name,
        labels: &labels
    }));
    let errors = render_one(&object(), &[source]).unwrap_err();
    assert!(
        errors[0].to_string().starts_with(
            "cluster east, ResourceOverrideSnapshot app/o-0, overrideRules[0]: clusterSelector: "
        ),
        "{}",
        errors[0]
    );
}

fn effects_of(
    source: &Source,
    name: &str,
    labels: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    effects(&[source.view()], WEB, Cluster { name, labels })
}

#[test]
fn effects_are_equal_where_the_rendering_is() {
    let test = |v: &str| where_label("env", "test", json!([set("/data/a", json!(v))]));
    let prod = |v: &str| where_label("env", "prod", json!([set("/data/a", json!(v))]));
    let east =
        |rules: Value, snapshot| effects_of(&ro(snapshot, config_map(), rules), "east", &labels());
    let base = east(json!([test("1"), prod("2")]), "o-0");
    assert_eq!(base.len(), 1);
    // A change for other clusters, under another name, changes nothing here.
    assert_eq!(base, east(json!([test("9"), prod("2")]), "o-1"));
    assert_eq!(base, east(json!([prod("2")]), "o-2"));
    assert_ne!(base, east(json!([test("1"), prod("3")]), "o-3"));
    assert!(east(json!([test("1")]), "o-4").is_empty());
    // A variable counts by its value.
    let named = json!([everywhere(json!([set(
        "/data/a",
        json!("${MEMBER-CLUSTER-LABEL-KEY-zone}")
    )]))]);
    let source = ro("o", config_map(), named);
    let mut moved = labels();
    let before = effects_of(&source, "east", &moved);
    moved.insert("other".into(), "x".into());
    assert_eq!(before, effects_of(&source, "west", &moved));
    moved.insert("zone".into(), "z2".into());
    assert_ne!(before, effects_of(&source, "east", &moved));
}

fn paths() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        Just("metadata"),
        Just("name"),
        Just("namespace"),
        Just("kind"),
        Just("apiVersion"),
        Just("labels"),
        Just("data"),
        Just("a"),
        Just("list"),
        Just("0"),
        Just("-"),
        Just("status"),
        Just("~0"),
        Just("~1kind"),
        Just("")
    ];
    proptest::collection::vec(token, 0..4)
        .prop_map(|tokens| tokens.iter().map(|token| format!("/{token}")).collect())
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!("x")),
        Just(json!({"name": "evil", "namespace": "kube-system"})),
        Just(json!({"a": "1"})),
        Just(json!([1, 2]))
    ]
}

fn patches() -> impl Strategy<Value = Value> {
    let op = prop_oneof![Just("add"), Just("remove"), Just("replace")];
    (op, paths(), values())
        .prop_map(|(op, path, value)| json!({"op": op, "path": path, "value": value}))
}

proptest! {
    /// Whatever is patched, it stays the object that it was; and no input makes the renderer panic.
    #[test]
    fn identity_stays(list in proptest::collection::vec(patches(), 1..5)) {
        let source = ro("o", config_map(), json!([everywhere(json!(list))]));
        if let Ok(Rendered::Changed(changed)) = render_one(&object(), &[source]) {
            let before = object();
            prop_assert_eq!(ObjectId::of(&changed), ObjectId::of(&before));
            prop_assert!(changed.get("status").is_none());
            prop_assert_eq!(changed["metadata"].get("finalizers"), None);
        }
    }

    /// Equal effects, equal result: what the digest of a binding stands on.
    #[test]
    fn equal_effects_render_equally(
        first in proptest::collection::vec((any::<bool>(), 0..3u8), 1..4),
        second in proptest::collection::vec((any::<bool>(), 0..3u8), 1..4),
    ) {
        let source = |rules: &[(bool, u8)], name| {
            let rules: Vec<Value> = rules
                .iter()
                .map(|(prod, v)| {
                    let env = if *prod { "prod" } else { "test" };
                    where_label("env", env, json!([set("/data/a", json!(v.to_string()))]))
                })
                .collect();
            ro(name, config_map(), json!(rules))
        };
        let (first, second) = (source(&first, "o-0"), source(&second, "o-1"));
        if effects_of(&first, "east", &labels()) == effects_of(&second, "east", &labels()) {
            prop_assert_eq!(result(&object(), &[first]), result(&object(), &[second]));
        }
    }
}
