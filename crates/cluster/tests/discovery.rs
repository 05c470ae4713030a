//! Discovery against a server whose kinds come, and transport limits.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use common::{Log, Reply, Seen, drain, refusal};
use kube::client::ClientBuilder;
use kube::core::GroupVersionKind;
use prometheus::Registry;
use serde_json::{Value, json};
use tower::limit::ConcurrencyLimitLayer;
use windlass_cluster::{ApiError, Discovery, RequestCounter, Writer, clock};

fn resource(plural: &str, kind: &str, scope: &str) -> Value {
    json!({"resource": plural, "responseKind": {"group": "", "version": "", "kind": kind}, "scope": scope,
           "verbs": ["get", "list", "watch"]})
}

fn groups(items: &Value) -> Reply {
    Reply::Json(
        200,
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items}),
    )
}

/// A server with Namespaces, and HPAs in two versions, of which the older one has a kind of its own; and
/// with Widgets, once they are installed.
struct Server {
    installed: Arc<AtomicBool>,
    /// The code of every refusal to come; 0 is none.
    down: Arc<AtomicU16>,
    discovery: Discovery,
    log: Log,
}

impl Server {
    fn new() -> Self {
        let (installed, down) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU16::new(0)),
        );
        let (widgets, refuse) = (Arc::clone(&installed), Arc::clone(&down));
        let (client, log) = common::server(move |seen| match refuse.load(Ordering::Relaxed) {
            0 => answer(seen, widgets.load(Ordering::Relaxed)),
            code => refusal(code, "", "down"),
        });
        Self {
            installed,
            down,
            discovery: Discovery::new(client),
            log,
        }
    }
}

fn answer(seen: &Seen, widgets: bool) -> Reply {
    match seen.path.as_str() {
        "/api" => groups(&json!([{"metadata": {"name": ""}, "versions": [
            {"version": "v1", "resources": [resource("namespaces", "Namespace", "Cluster")]}]}])),
        "/apis" => groups(&json!([
            {"metadata": {"name": "autoscaling"}, "versions": [
                {"version": "v2", "resources": [resource("horizontalpodautoscalers", "HorizontalPodAutoscaler", "Namespaced")]},
                {"version": "v1", "resources": [resource("horizontalpodautoscalers", "HorizontalPodAutoscaler", "Namespaced"),
                                                  resource("olds", "Old", "Namespaced")]}]},
            {"metadata": {"name": "empty"}, "versions": []},
        ])),
        "/apis/example.com/v1" if widgets => Reply::Json(
            200,
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "example.com/v1", "resources": [
                {"name": "widgets", "singularName": "widget", "namespaced": true, "kind": "Widget", "verbs": ["get", "list", "watch"]},
                {"name": "widgets/status", "singularName": "", "namespaced": true, "kind": "Widget", "verbs": ["get"]}]}),
        ),
        _ => refusal(
            404,
            "NotFound",
            "the server could not find the requested resource",
        ),
    }
}

fn widget() -> GroupVersionKind {
    GroupVersionKind::gvk("example.com", "v1", "Widget")
}

#[tokio::test(start_paused = true)]
async fn everything_is_fetched_once() {
    let s = Server::new();
    let (namespace, namespaced) = s
        .discovery
        .resolve(&GroupVersionKind::gvk("", "v1", "Namespace"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (
            namespace.plural.as_str(),
            namespace.api_version.as_str(),
            namespaced
        ),
        ("namespaces", "v1", false)
    );
    let hpa = GroupVersionKind::gvk("autoscaling", "v1", "HorizontalPodAutoscaler");
    let kind = s.discovery.kind(&hpa).await.unwrap().unwrap();
    assert_eq!(
        (
            kind.resource.api_version.as_str(),
            kind.namespaced,
            kind.watchable,
            kind.preferred
        ),
        ("autoscaling/v1", true, true, false)
    );
    let preferred: Vec<String> = s
        .discovery
        .preferred()
        .await
        .unwrap()
        .iter()
        .map(|k| format!("{} {}", k.resource.api_version, k.resource.kind))
        .collect();
    assert_eq!(
        preferred,
        [
            "v1 Namespace",
            "autoscaling/v2 HorizontalPodAutoscaler",
            "autoscaling/v1 Old"
        ]
    );
    assert_eq!(drain(&s.log), ["GET /apis", "GET /api"]);
    s.discovery.invalidate();
    assert!(s.discovery.resolve(&hpa).await.unwrap().is_some());
    assert_eq!(drain(&s.log), ["GET /apis", "GET /api"]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_kind_is_looked_for_in_its_group_at_most_every_second() {
    let s = Server::new();
    for _ in 0..5 {
        assert_eq!(s.discovery.resolve(&widget()).await, Ok(None));
    }
    assert_eq!(
        drain(&s.log),
        ["GET /apis", "GET /api", "GET /apis/example.com/v1"]
    );
    s.installed.store(true, Ordering::Relaxed);
    assert_eq!(s.discovery.resolve(&widget()).await, Ok(None));
    clock::sleep(Duration::from_secs(1)).await;
    let (resource, namespaced) = s.discovery.resolve(&widget()).await.unwrap().unwrap();
    assert_eq!((resource.plural.as_str(), namespaced), ("widgets", true));
    assert_eq!(
        s.discovery
            .resolve(&GroupVersionKind::gvk("example.com", "v1", "Gadget"))
            .await,
        Ok(None)
    );
    assert_eq!(drain(&s.log), ["GET /apis/example.com/v1"]);
    s.discovery.preferred().await.unwrap();
    assert_eq!(
        drain(&s.log),
        ["GET /apis", "GET /api"],
        "which version of a Widget is preferred was not told"
    );
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_an_error_and_not_an_absence() {
    let s = Server::new();
    s.down.store(503, Ordering::Relaxed);
    let widget = widget();
    let asked = futures::future::join_all((0..5).map(|_| s.discovery.resolve(&widget))).await;
    assert!(
        asked
            .iter()
            .all(|answer| *answer == Err(ApiError::transient("down"))),
        "{asked:?}"
    );
    assert_eq!(
        drain(&s.log),
        ["GET /apis"],
        "whoever waited takes the same answer"
    );
    s.down.store(0, Ordering::Relaxed);
    clock::sleep(Duration::from_secs(1)).await;
    assert_eq!(s.discovery.resolve(&widget).await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn a_server_without_aggregated_discovery_is_told_from_an_empty_one() {
    let (client, _) = common::server(|_| {
        Reply::Json(
            200,
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}),
        )
    });
    assert!(matches!(
        Discovery::new(client).resolve(&widget()).await,
        Err(ApiError::Rejected(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_gives_its_places_back_and_every_request_is_counted() {
    let registry = Registry::new();
    let requests = RequestCounter::new(&registry).unwrap();
    let (service, _) = common::service(|seen| match seen.path.as_str() {
        "/api/v1/nodes/silent" => Reply::Silence,
        "/api/v1/nodes/broken" => Reply::Break,
        _ => Reply::Json(200, json!({"metadata": {"name": "fine"}})),
    });
    let client = ClientBuilder::new(service, "default")
        .with_layer(&requests.layer("m1", Duration::from_secs(30)))
        .with_layer(&ConcurrencyLimitLayer::new(1))
        .build();
    let writer = Writer::new(client, "windlass").with_timeout(Duration::from_secs(3600));
    let get = |name: &'static str| {
        let writer = writer.clone();
        async move {
            writer
                .get::<k8s_openapi::api::core::v1::Node>(None, name)
                .await
        }
    };
    // The one place is held by the silent one for 30 s, not for the hour that its caller would wait.
    let (silent, fine, broken) = futures::join!(get("silent"), get("fine"), get("broken"));
    assert!(
        silent
            .unwrap_err()
            .message()
            .contains("has not answered within 30s")
    );
    assert!(fine.unwrap().is_some());
    assert!(broken.unwrap_err().message().contains("connection reset"));
    // Its caller gives up first.
    drop(tokio::time::timeout(Duration::from_secs(1), get("silent")).await);
    let mut codes: Vec<String> = registry.gather()[0]
        .get_metric()
        .iter()
        .map(|metric| {
            let labels: Vec<&str> = metric
                .get_label()
                .iter()
                .map(prometheus::proto::LabelPair::value)
                .collect();
            format!("{} {}", labels.join(" "), metric.get_counter().get_value())
        })
        .collect();
    codes.sort();
    assert_eq!(
        codes,
        [
            "200 nodes m1 get 1",
            "cancelled nodes m1 get 1",
            "error nodes m1 get 1",
            "timeout nodes m1 get 1"
        ]
    );
}

/// A CRD comes while the server is asked for all kinds: that answer may be from before it.
#[tokio::test(start_paused = true)]
async fn an_answer_from_before_the_news_is_not_all_there_is() {
    let slot: Arc<std::sync::Mutex<Option<Discovery>>> = Arc::default();
    let watch = Arc::clone(&slot);
    let (client, log) = common::server(move |seen| {
        let news = watch.lock().unwrap().take();
        if let Some(discovery) = news {
            discovery.invalidate();
        }
        answer(seen, false)
    });
    let discovery = Discovery::new(client);
    *slot.lock().unwrap() = Some(discovery.clone());
    for asked in [1, 2, 2] {
        discovery.preferred().await.unwrap();
        let all = log.lock().unwrap();
        let times = all.iter().filter(|seen| seen.path == "/apis").count();
        assert_eq!(times, asked);
    }
}
