//! Kinds that the hub's API server can't list, or does not offer for a while.

use serde_json::{Value, json};

use super::super::SelectError;
use super::{Fixture, WIDGET, namespace};

/// The conversion webhook of a kind is down: that stops the placements that select objects of it, and no
/// other one that takes a whole namespace along.
#[tokio::test]
async fn a_kind_that_cannot_be_converted_stops_who_selects_it() {
    let f = Fixture::new().await;
    f.server.add_kind(WIDGET);
    for name in ["web", "api"] {
        f.put("namespaces", "", name);
        f.put("configmaps", name, "a");
    }
    f.put("widgets", "api", "w");
    f.server.break_conversion("widgets", true);
    let stopped = f.select("api", &namespace("api")).await.unwrap_err();
    assert!(
        matches!(&stopped, SelectError::Api { message, .. } if message.contains("Widget (example.com/v1) can't be listed")),
        "{stopped:?}"
    );
    let goes_on = f.select("web", &namespace("web")).await.unwrap();
    let names: Vec<_> = goes_on.manifests.iter().map(|m| m.id.to_string()).collect();
    assert_eq!(names, ["Namespace web", "ConfigMap web/a"]);
    assert!(
        goes_on.idle[0].starts_with("Widget (example.com/v1) can't be listed on the hub"),
        "{:?}",
        goes_on.idle
    );
    assert!(
        goes_on.again.is_some(),
        "nobody tells of the first one there"
    );
    f.server.break_conversion("widgets", false);
    while f.select("api", &namespace("api")).await.is_err() {
        f.until_woken("api").await;
    }
    let mended = f.select("web", &namespace("web")).await.unwrap();
    assert_eq!((mended.idle, mended.again), (Vec::new(), None));
}

fn widget(group: &str) -> Value {
    json!([{"group": group, "version": "v1", "kind": "Widget", "namespace": "web", "name": "w"}])
}

/// After a restart nothing is watched yet: what the status has selected tells that a kind is missing.
#[tokio::test]
async fn a_kind_that_is_not_offered_yet_is_waited_for() {
    let f = Fixture::new().await;
    f.put("namespaces", "", "web");
    let established = |yes: &str| {
        json!({"spec": {"names": {"kind": "Widget"}},
               "status": {"conditions": [{"type": "Established", "status": yes}]}})
    };
    let crd = "customresourcedefinitions";
    f.put_with(
        crd,
        "",
        "widgets.example.com",
        &json!({}),
        &established("True"),
    );
    let web = namespace("web");
    let before = widget("example.com");
    let waits = f.select_after("p", &web, &before).await.unwrap_err();
    assert!(
        matches!(&waits, SelectError::Api { retry: true, message } if message.contains("does not offer Widget")),
        "{waits:?}"
    );
    // Who never had one does not wait; nor does anybody for a kind that is not defined any more.
    assert!(f.select("q", &web).await.is_ok());
    assert!(
        f.select_after("q", &web, &widget("gone.example.com"))
            .await
            .is_ok()
    );
    f.put_with(
        crd,
        "",
        "widgets.example.com",
        &json!({}),
        &established("False"),
    );
    f.until_woken("p").await;
    assert!(
        f.select_after("p", &web, &before).await.is_ok(),
        "it is not served"
    );
    f.put_with(
        crd,
        "",
        "widgets.example.com",
        &json!({}),
        &established("True"),
    );
    f.until_woken("p").await;
    assert!(f.select_after("p", &web, &before).await.is_err());
    f.server.add_kind(WIDGET);
    f.put("widgets", "web", "w");
    f.resources.inner.discovery.invalidate();
    let mut names = Vec::new();
    while names.len() < 2 {
        if let Ok(selection) = f.select_after("p", &web, &before).await {
            names = selection
                .manifests
                .iter()
                .map(|m| m.id.to_string())
                .collect();
        } else {
            f.until_woken("p").await;
        }
    }
    assert_eq!(names, ["Namespace web", "Widget web/w"]);
}
