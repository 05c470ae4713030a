//! What changes of objects, namespaces and kinds bring about.

use std::time::Duration;

use serde_json::json;
use windlass_cluster::{ObjectKey, clock};

use super::super::SelectError;
use super::server::Server;
use super::{Fixture, WIDGET, labelled, namespace, term};

type Change = fn(&Server);

/// What happens, and who is woken by it; each row begins where the one before ends.
const CHANGES: [(&str, Change, &[&str]); 9] = [
    ("added", |s| s.create("configmaps", "web", "a"), &["web"]),
    (
        "passed over",
        |s| s.create("configmaps", "web", "kube-root-ca.crt"),
        &[],
    ),
    ("elsewhere", |s| s.create("configmaps", "nowhere", "a"), &[]),
    ("deleted", |s| s.delete("configmaps", "web", "a"), &["web"]),
    (
        "the label goes",
        |s| s.create("clusterroles", "", "a"),
        &["named", "x"],
    ),
    (
        "without the label",
        |s| s.create("clusterroles", "", "a"),
        &["named"],
    ),
    ("another name", |s| s.create("clusterroles", "", "b"), &[]),
    (
        "the namespace",
        |s| s.create("namespaces", "", "api"),
        &["api"],
    ),
    (
        "one that was missing",
        |s| s.create("namespaces", "", "later"),
        &["later"],
    ),
];

#[tokio::test]
async fn only_who_selects_an_object_is_woken() {
    let f = Fixture::new().await;
    f.put("namespaces", "", "web");
    f.put("namespaces", "", "api");
    let labels = json!({"labels": {"team": "x"}});
    f.put_with("clusterroles", "", "a", &labels, &json!({}));
    f.names("web", &namespace("web")).await;
    f.names("api", &namespace("api")).await;
    f.names("x", &json!([term("ClusterRole", &labelled("x"))]))
        .await;
    f.names(
        "named",
        &json!([term("ClusterRole", &json!({"name": "a"}))]),
    )
    .await;
    f.names("later", &namespace("later")).await;
    f.woken().await;
    for (what, change, expected) in CHANGES {
        change(&f.server);
        assert_eq!(f.woken().await, expected, "{what}");
    }
    let later = f.names("later", &namespace("later")).await;
    assert_eq!(later, ["Namespace later"]);
}

/// A server that the hub's API server hands requests on to brings kinds without a CRD.
#[tokio::test]
async fn kinds_of_another_server_come_and_go() {
    const SERVERS: &str = "apiservices";
    let f = Fixture::new().await;
    let group = "apiregistration.k8s.io";
    f.server
        .add_kind((group, "v1", "APIService", SERVERS, false));
    // Whoever may not see APIServices selects all the same.
    f.server.forbid(SERVERS, true);
    f.put("namespaces", "", "web");
    assert_eq!(f.names("whole", &namespace("web")).await, ["Namespace web"]);
    f.resources.forget(&ObjectKey::cluster("whole"));
    f.server.forbid(SERVERS, false);
    let scope = json!({"name": "web", "selectionScope": "NamespaceWithResourceSelectors"});
    let named = json!([term("Namespace", &scope), term("Widget", &json!({}))]);
    f.names("whole", &namespace("web")).await;
    f.names("other", &json!([term("ClusterRole", &json!({}))]))
        .await;
    assert!(f.user_error(&named).await.contains("Widget"));
    f.until_watched(SERVERS).await;
    f.woken().await;
    let listed = f.server.requests();
    let of_servers = |line: &&String| line.contains(SERVERS) && !line.contains(" metadata ");
    assert_eq!(listed.iter().find(of_servers), None, "metadata is enough");

    // For what it serves itself, an API server makes APIServices on its own.
    let own = json!({"metadata": {"name": "v1.example.com",
        "labels": {"kube-aggregator.kubernetes.io/automanaged": "true"}}});
    f.server.put(SERVERS, own);
    assert_eq!(f.woken().await, Vec::<String>::new());

    f.server.add_kind(WIDGET);
    f.server.create("widgets", "web", "w");
    f.server.create(SERVERS, "", "v1.example.com");
    f.until_woken("p").await;
    f.until_woken("whole").await;
    let both = ["Namespace web", "Widget web/w"];
    assert_eq!(f.names("p", &named).await, both);
    assert_eq!(f.names("whole", &namespace("web")).await, both);
    f.woken().await;

    // It is available no more: that changes nothing but its status.
    f.server.create(SERVERS, "", "v1.example.com");
    assert_eq!(f.woken().await, ["p", "whole"]);

    f.server.delete("widgets", "web", "w");
    f.server.remove_kind("widgets");
    f.server.delete(SERVERS, "", "v1.example.com");
    f.woken().await;
    assert_eq!(f.names("whole", &namespace("web")).await, ["Namespace web"]);
    assert!(f.user_error(&named).await.contains("Widget"));
}

#[tokio::test]
async fn kinds_come_and_go() {
    let f = Fixture::new().await;
    f.put("namespaces", "", "web");
    let scope = json!({"name": "web", "selectionScope": "NamespaceWithResourceSelectors"});
    let named = json!([term("Namespace", &scope), term("Widget", &json!({}))]);
    assert_eq!(f.names("whole", &namespace("web")).await, ["Namespace web"]);
    f.names("other", &json!([term("ClusterRole", &json!({}))]))
        .await;
    assert!(f.user_error(&named).await.contains("Widget"));
    f.woken().await;
    // The server offers the kind a moment after its CRD is there.
    f.put("customresourcedefinitions", "", "widgets.example.com");
    assert_eq!(f.woken().await, ["p", "whole"]);
    assert!(f.user_error(&named).await.contains("Widget"));
    f.server.add_kind(WIDGET);
    f.put("widgets", "web", "w");
    f.until_woken("p").await;
    f.until_woken("whole").await;
    let both = ["Namespace web", "Widget web/w"];
    assert_eq!(f.names("p", &named).await, both);
    assert_eq!(f.names("whole", &namespace("web")).await, both);
    // Only the kind goes: nothing may follow from that but an error.
    f.server.remove_kind("widgets");
    f.resources.inner.discovery.invalidate();
    let outage = f.select("whole", &namespace("web")).await.unwrap_err();
    assert!(
        matches!(&outage, SelectError::Api { retry: true, message } if message.contains("Widget")),
        "{outage:?}"
    );
    f.server.add_kind(WIDGET);
    f.resources.inner.discovery.invalidate();
    assert_eq!(f.names("whole", &namespace("web")).await, both);
}

#[tokio::test]
async fn a_kind_that_is_gone_leaves_the_selection() {
    let f = Fixture::new().await;
    f.server.add_kind(WIDGET);
    f.put("namespaces", "", "web");
    f.put("widgets", "web", "w");
    f.put("customresourcedefinitions", "", "widgets.example.com");
    assert_eq!(
        f.names("p", &namespace("web")).await,
        ["Namespace web", "Widget web/w"]
    );
    f.woken().await;
    // The API server removes the objects of a CRD before the CRD.
    f.server.delete("widgets", "web", "w");
    f.server.remove_kind("widgets");
    f.server
        .delete("customresourcedefinitions", "", "widgets.example.com");
    f.until_woken("p").await;
    clock::sleep(Duration::from_millis(100)).await;
    let watches = f.resources.inner.watches.len();
    assert_eq!(f.names("p", &namespace("web")).await, ["Namespace web"]);
    assert_eq!(f.resources.inner.watches.len(), watches - 1);
}

#[tokio::test]
async fn a_kind_that_cannot_be_listed_concerns_who_selects_it() {
    let f = Fixture::new().await;
    f.put("namespaces", "", "web");
    f.server.forbid("secrets", true);
    let before =
        |kind: &str| json!([{"version": "v1", "kind": kind, "namespace": "web", "name": "s"}]);
    let refused = f
        .select_after("whole", &namespace("web"), &before("Secret"))
        .await;
    let refused = refused.unwrap_err();
    assert_eq!(
        refused,
        SelectError::Api {
            message: "Secret (v1) can't be listed on the hub: Forbidden, says the server"
                .to_owned(),
            retry: false,
        }
    );
    f.names("other", &json!([term("ClusterRole", &json!({}))]))
        .await;
    // Nor does it concern those of whom none is known to have been selected.
    for remembered in [json!([]), before("ConfigMap")] {
        let goes_on = f
            .select_after("never", &namespace("web"), &remembered)
            .await
            .unwrap();
        assert_eq!(
            goes_on.idle,
            [
                "Secret (v1) can't be listed on the hub, and was selected in no namespace before: \
              Forbidden, says the server"
            ]
        );
        assert!(goes_on.again.is_some(), "it may come to be allowed");
    }
    let named = json!([
        {"group": "", "version": "v1", "kind": "Namespace", "name": "web",
            "selectionScope": "NamespaceWithResourceSelectors"},
        {"group": "", "version": "v1", "kind": "Secret", "name": "s"},
    ]);
    assert!(f.select("named", &named).await.is_err());
    f.server.forbid("secrets", false);
    // Told of the failure it may have been before; told of its end it is in any case.
    f.put("secrets", "web", "s");
    while f
        .select_after("whole", &namespace("web"), &before("Secret"))
        .await
        .is_err()
    {
        f.until_woken("whole").await;
    }
    let all = ["Namespace web", "Secret web/s"];
    assert_eq!(f.names("whole", &namespace("web")).await, all);
}

#[tokio::test]
async fn watches_are_shared_and_end_with_their_last_user() {
    let f = Fixture::new().await;
    f.put("namespaces", "", "web");
    f.put("configmaps", "web", "a");
    let roles = json!([term("ClusterRole", &json!({}))]);
    f.names("p", &namespace("web")).await;
    let before = f.resources.inner.watches.len();
    f.names("q", &namespace("web")).await;
    let lists = f
        .server
        .requests()
        .iter()
        .filter(|r| r.starts_with("LIST metadata configmaps"))
        .count();
    assert_eq!((f.resources.inner.watches.len(), lists), (before, 1));
    // The CRDs stay watched, for any kind may come from one.
    f.names("p", &roles).await;
    assert_eq!(f.resources.inner.watches.len(), before + 1);
    f.resources.forget(&ObjectKey::cluster("q"));
    assert_eq!(
        (
            f.resources.inner.watches.len(),
            f.resources.inner.store.len()
        ),
        (2, 0)
    );
    // Selectors that have to be mended need no watches of kinds that they do not select any more.
    for (selectors, watches) in [
        (json!([term("ConfigMap", &json!({}))]), 1),
        (
            json!([term(
                "ClusterRole",
                &json!({"name": "a", "labelSelector": {}})
            )]),
            0,
        ),
    ] {
        f.names("p", &roles).await;
        f.user_error(&selectors).await;
        assert_eq!(f.resources.inner.watches.len(), watches, "{selectors}");
    }
    f.resources.forget(&ObjectKey::cluster("p"));
    assert_eq!(f.resources.inner.watches.len(), 0);
    f.woken().await;
    f.put("configmaps", "web", "a");
    assert_eq!(f.woken().await, Vec::<String>::new());
    assert_eq!(f.server.watches(), 0);
}

#[tokio::test]
async fn what_nobody_selects_any_more_is_let_go() {
    let f = Fixture::new().await;
    for name in ["a", "b"] {
        f.put("clusterroles", "", name);
    }
    let role = |name: &str| json!([term("ClusterRole", &json!({"name": name}))]);
    f.names("p", &json!([term("ClusterRole", &json!({}))]))
        .await;
    f.names("q", &role("a")).await;
    assert_eq!(f.resources.inner.store.len(), 2);
    f.names("p", &role("b")).await;
    assert_eq!(f.resources.inner.store.len(), 2, "q has a, p has b");
    f.resources.forget(&ObjectKey::cluster("q"));
    assert_eq!(f.resources.inner.store.len(), 1);
}

/// One of several objects can't be read: the others are not kept for a placement that does not hold them.
#[tokio::test]
async fn what_was_fetched_in_vain_is_let_go() {
    let f = Fixture::new().await;
    for name in ["a", "b", "c"] {
        f.put("clusterroles", "", name);
    }
    let all = json!([term("ClusterRole", &json!({}))]);
    f.names("q", &json!([term("ClusterRole", &json!({"name": "a"}))]))
        .await;
    f.server.forbid_reading("c", true);
    let refused = f.select("p", &all).await.unwrap_err();
    assert!(
        matches!(&refused, SelectError::Api { message, .. } if message.contains("ClusterRole c"))
    );
    assert_eq!(f.resources.inner.store.len(), 1, "q has a");
    f.server.forbid_reading("c", false);
    f.names("p", &all).await;
    assert_eq!(f.resources.inner.store.len(), 3);
}
