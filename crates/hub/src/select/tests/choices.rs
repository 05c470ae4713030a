//! What selectors and their scopes choose, and what is wrong with them.

use serde_json::{Value, json};

use super::super::rules::ApiFilter;
use super::{Fixture, labelled, term};

#[tokio::test]
async fn selectors_choose_in_one_namespace() {
    let f = Fixture::new().await;
    f.put("namespaces", "", "web");
    f.put_with(
        "configmaps",
        "web",
        "a",
        &json!({"labels": {"team": "x"}}),
        &json!({}),
    );
    f.put("configmaps", "web", "b");
    f.put_with(
        "configmaps",
        "api",
        "a",
        &json!({"labels": {"team": "x"}}),
        &json!({}),
    );
    f.put("endpoints", "web", "e");
    f.put("clusterroles", "", "r");
    let scope = json!({"name": "web", "selectionScope": "NamespaceWithResourceSelectors"});
    let selectors = json!([
        term("ConfigMap", &labelled("x")),
        term("Namespace", &scope),
        term("ClusterRole", &json!({"name": "r"})),
        term("Endpoints", &json!({})),
        term("Pod", &json!({})),
    ]);
    let all = [
        "Namespace web",
        "ConfigMap web/a",
        "ClusterRole r",
        "Endpoints web/e",
    ];
    assert_eq!(f.names("p", &selectors).await, all);
    assert!(
        !f.server
            .requests()
            .iter()
            .any(|r| r.contains("deployments")),
        "only what is named"
    );
    f.woken().await;
    f.put("configmaps", "web", "b");
    assert_eq!(f.woken().await, Vec::<String>::new());
    // A Service makes the Endpoints its own.
    f.put("services", "web", "e");
    f.until_woken("p").await;
    assert_eq!(f.names("p", &selectors).await, &all[..3]);
    f.server.delete("namespaces", "", "web");
    f.until_woken("p").await;
    assert!(f.user_error(&selectors).await.contains("no such namespace"));
}

/// API §7.2, row by row: what comes along with a Namespace, and how objects are chosen.
#[tokio::test]
async fn scopes_and_choices() {
    let f = Fixture::new().await;
    let team = |team: &str| json!({"labels": {"team": team}});
    let gone = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    f.put_with("namespaces", "", "web", &team("x"), &json!({}));
    f.put_with("namespaces", "", "api", &team("x"), &json!({}));
    f.put_with("namespaces", "", "going", &gone, &json!({}));
    for namespace in ["web", "api", "going"] {
        f.put("configmaps", namespace, "a");
        f.put_with("configmaps", namespace, "b", &team("x"), &json!({}));
    }
    f.put_with("clusterroles", "", "a", &team("x"), &json!({}));
    f.put("clusterroles", "", "b");
    let of = |kind: &str, rest: Value| term(kind, &rest);
    let only = || {
        of(
            "Namespace",
            json!({"name": "web", "selectionScope": "NamespaceOnly"}),
        )
    };
    let bound = || {
        let scope = "NamespaceWithResourceSelectors";
        of("Namespace", json!({"name": "web", "selectionScope": scope}))
    };
    let rows: [(&str, Vec<Value>, &[&str]); 14] = [
        (
            "cluster-scoped, by name",
            vec![of("ClusterRole", json!({"name": "a"}))],
            &["ClusterRole a"],
        ),
        (
            "by label",
            vec![term("ClusterRole", &labelled("x"))],
            &["ClusterRole a"],
        ),
        (
            "all",
            vec![of("ClusterRole", json!({}))],
            &["ClusterRole a", "ClusterRole b"],
        ),
        (
            "an empty name is no name",
            vec![of("ClusterRole", json!({"name": ""}))],
            &["ClusterRole a", "ClusterRole b"],
        ),
        (
            "a scope on another kind",
            vec![of(
                "ClusterRole",
                json!({"name": "a", "selectionScope": "NamespaceOnly"}),
            )],
            &["ClusterRole a"],
        ),
        (
            "missing",
            vec![of("ClusterRole", json!({"name": "c"}))],
            &[],
        ),
        (
            "namespaces by label",
            vec![of(
                "Namespace",
                json!({"labelSelector": {"matchLabels": {"team": "x"}}, "selectionScope": "NamespaceOnly"}),
            )],
            &["Namespace api", "Namespace web"],
        ),
        (
            "with what is in them",
            vec![term("Namespace", &labelled("x"))],
            &[
                "Namespace api",
                "Namespace web",
                "ConfigMap api/a",
                "ConfigMap api/b",
                "ConfigMap web/a",
                "ConfigMap web/b",
            ],
        ),
        ("the Namespace only", vec![only()], &["Namespace web"]),
        (
            "being deleted",
            vec![of("Namespace", json!({"name": "going"}))],
            &[],
        ),
        (
            "alone, of those that are chosen",
            vec![bound()],
            &["Namespace web"],
        ),
        (
            "by name in it",
            vec![bound(), of("ConfigMap", json!({"name": "a"}))],
            &["Namespace web", "ConfigMap web/a"],
        ),
        (
            "by label in it",
            vec![bound(), term("ConfigMap", &labelled("x"))],
            &["Namespace web", "ConfigMap web/b"],
        ),
        (
            "all of a kind in it, and a cluster-scoped one",
            vec![
                bound(),
                of("ConfigMap", json!({})),
                of("ClusterRole", json!({"name": "b"})),
            ],
            &[
                "Namespace web",
                "ConfigMap web/a",
                "ConfigMap web/b",
                "ClusterRole b",
            ],
        ),
    ];
    for (what, selectors, expected) in rows {
        assert_eq!(f.names("p", &json!(selectors)).await, expected, "{what}");
    }
    // What does not come along does not matter.
    f.names("p", &json!([only()])).await;
    f.woken().await;
    f.put("configmaps", "web", "a");
    assert_eq!(f.woken().await, Vec::<String>::new());
}

#[tokio::test]
async fn what_the_user_has_to_mend() {
    let f = Fixture::with(ApiFilter::default().reserving("infra")).await;
    // The same object in another version.
    let old = (
        "rbac.authorization.k8s.io",
        "v1beta1",
        "ClusterRole",
        "clusterroles",
        false,
    );
    f.server.add_kind(old);
    f.put("clusterroles", "", "r");
    for name in ["default", "web", "infra"] {
        f.put_with(
            "namespaces",
            "",
            name,
            &json!({"labels": {"team": name}}),
            &json!({}),
        );
    }
    let name = |name: &str, scope: &str| {
        term("Namespace", &json!({"name": name, "selectionScope": scope}))
    };
    let label = |team: &str| term("Namespace", &labelled(team));
    let twice = json!([name("web", "NamespaceOnly"), label("web")]);
    let widgets = json!([{"group": "example.com", "version": "v1", "kind": "Widget", "name": "w"}]);
    for (selectors, words) in [
        (
            json!([term("Deployment", &json!({"name": "a"}))]),
            "Deployment (apps/v1) lives in namespaces",
        ),
        (
            json!([term("Namespace", &json!({}))]),
            "namespace default is reserved",
        ),
        (
            json!([name("kube-system", "NamespaceOnly")]),
            "namespace kube-system is reserved",
        ),
        (json!([label("infra")]), "namespace infra is reserved"),
        (
            json!([name("gone", "NamespaceWithResourceSelectors")]),
            "no such namespace",
        ),
        (
            json!([name("infra", "NamespaceWithResourceSelectors")]),
            "namespace infra is reserved",
        ),
        (
            json!([
                term("ClusterRole", &json!({"name": "r"})),
                {"group": "rbac.authorization.k8s.io", "version": "v1beta1", "kind": "ClusterRole", "name": "r"},
            ]),
            "ClusterRole r is selected both by",
        ),
        (
            twice,
            "Namespace web is selected both by resourceSelectors[0] (Namespace web) and by resourceSelectors[1] \
             (Namespace by labels)",
        ),
        (widgets, "the hub knows no kind Widget (example.com/v1)"),
    ] {
        let message = f.user_error(&selectors).await;
        assert!(message.contains(words), "{message}");
    }
    // A kind that is never placed is passed over without a word.
    assert_eq!(
        f.names("p", &json!([term("Pod", &json!({"name": "a"}))]))
            .await,
        Vec::<String>::new()
    );
}
