//! Namespaced placements choose in their own namespace (I10).

use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_cluster::ObjectKey;
use windlass_render::Confinement;

use super::super::SelectError;
use super::super::rules::ApiFilter;
use super::{Fixture, KINDS, labelled, term};

const NAMESPACES: [&str; 3] = ["web", "api", "kube-system"];

/// The same objects in several namespaces, and cluster-scoped ones of the same names.
async fn fixture(allowed: &str) -> Fixture {
    let confinement = Confinement::new(allowed).unwrap();
    let f = Fixture::with(ApiFilter::default().confining(confinement)).await;
    let labels = json!({"labels": {"team": "x"}});
    for namespace in NAMESPACES {
        f.put_with("namespaces", "", namespace, &labels, &json!({}));
        for plural in ["configmaps", "secrets", "deployments", "roles"] {
            f.put_with(plural, namespace, "a", &labels, &json!({}));
            f.put(plural, namespace, "b");
        }
    }
    f.put_with("clusterroles", "", "a", &labels, &json!({}));
    f
}

#[tokio::test]
async fn what_a_namespaced_placement_may_select() {
    let f = fixture("").await;
    let placement = ObjectKey::namespaced("web", "p");
    for (what, selectors, expected) in [
        (
            "everything of a kind",
            json!([term("ConfigMap", &json!({}))]),
            Ok("ConfigMap web/a, ConfigMap web/b"),
        ),
        (
            "one",
            json!([term("ConfigMap", &json!({"name": "b"}))]),
            Ok("ConfigMap web/b"),
        ),
        (
            "by labels",
            json!([term("Deployment", &labelled("x"))]),
            Ok("Deployment web/a"),
        ),
        (
            "several",
            json!([
                term("ConfigMap", &json!({"name": "a"})),
                term("Secret", &json!({"name": "b"}))
            ]),
            Ok("Secret web/b, ConfigMap web/a"),
        ),
        (
            "what is not there",
            json!([term("ConfigMap", &json!({"name": "c"}))]),
            Ok(""),
        ),
        (
            "a name with a way out",
            json!([term("ConfigMap", &json!({"name": "../api/a"}))]),
            Ok(""),
        ),
        (
            "a scope, which says nothing of other kinds",
            json!([term(
                "ConfigMap",
                &json!({
            "name": "a", "selectionScope": "NamespaceWithResources"})
            )]),
            Ok("ConfigMap web/a"),
        ),
        (
            "a cluster-scoped kind",
            json!([term("ClusterRole", &json!({}))]),
            Err("is cluster-scoped"),
        ),
        (
            "the same, beside its own",
            json!([
                term("ConfigMap", &json!({})),
                term("ClusterRole", &json!({"name": "a"}))
            ]),
            Err("is cluster-scoped"),
        ),
        (
            "its Namespace",
            json!([term("Namespace", &json!({"name": "web"}))]),
            Err("is cluster-scoped"),
        ),
        (
            "another Namespace",
            json!([term("Namespace", &json!({"name": "api"}))]),
            Err("is cluster-scoped"),
        ),
        (
            "another one as a bound",
            json!([
                term("ConfigMap", &json!({})),
                term(
                    "Namespace",
                    &json!({
            "name": "api", "selectionScope": "NamespaceWithResourceSelectors"})
                )
            ]),
            Err("is cluster-scoped"),
        ),
        (
            "Roles",
            json!([term("Role", &json!({}))]),
            Err("unless an administrator allows it"),
        ),
        (
            "the same object twice",
            json!([
                term("ConfigMap", &json!({})),
                term("ConfigMap", &json!({"name": "a"}))
            ]),
            Err("is selected both by"),
        ),
    ] {
        let result = f.select_for(&placement, &selectors, &json!([])).await;
        match (result, expected) {
            (Ok(selection), Ok(names)) => {
                let ids = selection
                    .manifests
                    .iter()
                    .map(|manifest| manifest.id.to_string());
                assert_eq!(ids.collect::<Vec<_>>().join(", "), names, "{what}");
            }
            (Err(SelectError::User(message)), Err(words)) => {
                assert!(message.contains(words), "{what}: {message}");
            }
            (other, _) => panic!("{what}: {other:?}"),
        }
    }
    let reserved = ObjectKey::namespaced("kube-system", "p");
    let result = f
        .select_for(
            &reserved,
            &json!([term("ConfigMap", &json!({}))]),
            &json!([]),
        )
        .await;
    assert!(matches!(result, Err(SelectError::User(message)) if message.contains("is reserved")));
}

#[tokio::test]
async fn changes_elsewhere_wake_nobody() {
    let f = fixture("").await;
    let selectors = json!([term("ConfigMap", &json!({"name": "a"}))]);
    for placement in [
        ObjectKey::namespaced("web", "p"),
        ObjectKey::namespaced("api", "p"),
    ] {
        f.select_for(&placement, &selectors, &json!([]))
            .await
            .unwrap();
    }
    f.woken().await;
    f.put_with(
        "configmaps",
        "web",
        "a",
        &json!({}),
        &json!({"data": {"a": "2"}}),
    );
    assert_eq!(f.woken().await, ["web/p"]);
}

fn a_selector() -> impl Strategy<Value = Value> {
    let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.2).collect();
    let name = proptest::sample::select(vec!["a", "b", "web", "api", "kube-system"]);
    let choice = prop_oneof![
        name.prop_map(|name| json!({"name": name})),
        Just(labelled("x")),
        Just(json!({})),
    ];
    let scope = proptest::option::of(proptest::sample::select(vec![
        "NamespaceOnly",
        "NamespaceWithResources",
        "NamespaceWithResourceSelectors",
    ]));
    (proptest::sample::select(kinds), choice, scope).prop_map(|(kind, choice, scope)| {
        let mut term = term(kind, &choice);
        if let Some(scope) = scope {
            term["selectionScope"] = json!(scope);
        }
        term
    })
}

/// I10: whatever it asks for, and whatever is allowed, what a namespaced placement gets lives in its own
/// namespace, and is of a kind that does.
#[test]
fn nothing_outside_is_ever_selected() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for allowed in ["", "rbac,pod-security"] {
        let f = runtime.block_on(fixture(allowed));
        let any = (
            proptest::sample::select(NAMESPACES.to_vec()),
            proptest::collection::vec(a_selector(), 1..4),
        );
        let config = ProptestConfig {
            cases: 96,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let result = runner.run(&any, |(namespace, selectors)| {
            let placement = ObjectKey::namespaced(namespace, "p");
            let result = runtime.block_on(f.select_for(&placement, &json!(selectors), &json!([])));
            for manifest in result.iter().flat_map(|selection| &selection.manifests) {
                let id = &manifest.id;
                prop_assert_eq!(id.namespace.as_deref(), Some(namespace), "{}", id);
                prop_assert!(namespace != "kube-system", "{}", id);
                let kind = KINDS.iter().find(|kind| kind.2 == id.kind).unwrap();
                prop_assert!(kind.4, "{}", id);
                prop_assert!(!allowed.is_empty() || id.kind != "Role");
            }
            let is_clear = matches!(result, Ok(_) | Err(SelectError::User(_)));
            prop_assert!(is_clear);
            Ok(())
        });
        result.unwrap();
        // That it may select something, the table says; that these did, this.
        let own = json!([term("ConfigMap", &json!({}))]);
        let placement = ObjectKey::namespaced("web", "p");
        let selected = runtime
            .block_on(f.select_for(&placement, &own, &json!([])))
            .unwrap()
            .manifests
            .len();
        assert_eq!(selected, 2);
    }
}
