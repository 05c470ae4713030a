//! Selection against a small API server.

mod changes;
mod choices;
mod confined;
mod kept;
mod outages;
mod server;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use windlass_api::placement::{ResourceIdentifier, ResourceSelectorTerm};
use windlass_cluster::{Discovery, ObjectKey, clock};

use self::server::{Kind, Server};
use super::rules::ApiFilter;
use super::{Resources, SelectError, Selection};

const KINDS: [Kind; 12] = [
    ("", "v1", "Namespace", "namespaces", false),
    ("", "v1", "ConfigMap", "configmaps", true),
    ("", "v1", "Secret", "secrets", true),
    ("", "v1", "ServiceAccount", "serviceaccounts", true),
    ("", "v1", "Service", "services", true),
    ("", "v1", "Endpoints", "endpoints", true),
    ("", "v1", "Pod", "pods", true),
    ("apps", "v1", "Deployment", "deployments", true),
    ("coordination.k8s.io", "v1", "Lease", "leases", true),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", true),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRole",
        "clusterroles",
        false,
    ),
    (
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        false,
    ),
];
const WIDGET: Kind = ("example.com", "v1", "Widget", "widgets", true);

struct Fixture {
    server: Server,
    resources: Resources,
    woken: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    async fn new() -> Self {
        Self::with(ApiFilter::default()).await
    }

    async fn with(filter: ApiFilter) -> Self {
        let server = Server::start(&KINDS).await;
        let woken = Arc::<Mutex<Vec<String>>>::default();
        let told = Arc::clone(&woken);
        let discovery = Discovery::new(server.client.clone());
        let resources = Resources::with_filter(
            server.client.clone(),
            discovery,
            filter,
            Arc::new(move |placement: &ObjectKey| told.lock().unwrap().push(placement.to_string())),
        );
        Self {
            server,
            resources,
            woken,
        }
    }

    fn put(&self, plural: &str, namespace: &str, name: &str) {
        self.put_with(plural, namespace, name, &json!({}), &json!({}));
    }

    fn put_with(&self, plural: &str, namespace: &str, name: &str, metadata: &Value, rest: &Value) {
        let kind = KINDS
            .iter()
            .chain([&WIDGET])
            .find(|kind| kind.3 == plural)
            .unwrap();
        let version = if kind.0.is_empty() {
            kind.1.to_owned()
        } else {
            format!("{}/{}", kind.0, kind.1)
        };
        let mut object = json!({"apiVersion": version, "kind": kind.2, "metadata": {"name": name}});
        if kind.4 {
            object["metadata"]["namespace"] = json!(namespace);
        }
        object["metadata"]
            .as_object_mut()
            .unwrap()
            .extend(metadata.as_object().unwrap().clone());
        object
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        self.server.put(plural, object);
    }

    async fn select(&self, placement: &str, selectors: &Value) -> Result<Selection, SelectError> {
        self.select_after(placement, selectors, &json!([])).await
    }

    /// As [`Self::select`], by a placement whose status has these selected.
    async fn select_after(
        &self,
        placement: &str,
        selectors: &Value,
        before: &Value,
    ) -> Result<Selection, SelectError> {
        self.select_for(&ObjectKey::cluster(placement), selectors, before)
            .await
    }

    /// As [`Self::select_after`], for a placement of either scope.
    async fn select_for(
        &self,
        placement: &ObjectKey,
        selectors: &Value,
        before: &Value,
    ) -> Result<Selection, SelectError> {
        let before: Vec<ResourceIdentifier> = serde_json::from_value(before.clone()).unwrap();
        let terms: Vec<ResourceSelectorTerm> = serde_json::from_value(selectors.clone()).unwrap();
        loop {
            match self.resources.select(placement, &terms, &before).await {
                Err(SelectError::Pending(_)) => self.until_woken(&placement.to_string()).await,
                other => return other,
            }
        }
    }

    async fn names(&self, placement: &str, selectors: &Value) -> Vec<String> {
        let selection = self.select(placement, selectors).await.unwrap();
        selection
            .manifests
            .iter()
            .map(|manifest| manifest.id.to_string())
            .collect()
    }

    async fn user_error(&self, selectors: &Value) -> String {
        match self.select("p", selectors).await {
            Err(SelectError::User(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    async fn until_woken(&self, placement: &str) {
        for _ in 0..1000 {
            if self.take(placement) {
                return;
            }
            clock::sleep(Duration::from_millis(5)).await;
        }
        panic!("{placement} is not woken");
    }

    /// Waits until somebody watches a kind.
    async fn until_watched(&self, plural: &str) {
        for _ in 0..1000 {
            if self.server.is_watched(plural) {
                return;
            }
            clock::sleep(Duration::from_millis(5)).await;
        }
        panic!("{plural} is not watched");
    }

    fn take(&self, placement: &str) -> bool {
        let mut woken = self.woken.lock().unwrap();
        let before = woken.len();
        woken.retain(|name| name != placement);
        woken.len() < before
    }

    /// Lets what is under way come in, then tells who was woken since the last time.
    async fn woken(&self) -> Vec<String> {
        clock::sleep(Duration::from_millis(150)).await;
        let mut woken = std::mem::take(&mut *self.woken.lock().unwrap());
        woken.sort();
        woken.dedup();
        woken
    }
}

fn term(kind: &str, rest: &Value) -> Value {
    let kind = KINDS
        .iter()
        .chain([&WIDGET])
        .find(|known| known.2 == kind)
        .unwrap();
    let mut term = json!({"group": kind.0, "version": kind.1, "kind": kind.2});
    term.as_object_mut()
        .unwrap()
        .extend(rest.as_object().unwrap().clone());
    term
}

fn namespace(name: &str) -> Value {
    json!([term("Namespace", &json!({"name": name}))])
}

fn labelled(value: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"team": value}}})
}

#[tokio::test]
async fn a_namespace_comes_with_what_may_be_placed() {
    let f = Fixture::new().await;
    f.put("namespaces", "", "web");
    f.put("namespaces", "", "api");
    f.put("configmaps", "web", "a");
    f.put("configmaps", "web", "kube-root-ca.crt");
    f.put("configmaps", "api", "a");
    f.put("serviceaccounts", "web", "default");
    f.put("pods", "web", "a");
    f.put("leases", "web", "a");
    f.put("services", "web", "a");
    f.put("endpoints", "web", "a");
    f.put("endpoints", "web", "hand-made");
    f.put("deployments", "web", "a");
    let token = json!({"type": "kubernetes.io/service-account-token"});
    f.put_with("secrets", "web", "token", &json!({}), &token);
    f.put_with(
        "secrets",
        "web",
        "member",
        &json!({"labels": {"windlass.dev/cluster": "m"}}),
        &json!({}),
    );
    f.put("secrets", "web", "mine");
    let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    f.put_with("configmaps", "web", "going", &deleting, &json!({}));
    assert_eq!(
        f.names("p", &namespace("web")).await,
        [
            "Namespace web",
            "Secret web/mine",
            "ConfigMap web/a",
            "Service web/a",
            "Deployment web/a",
            "Endpoints web/hand-made",
        ]
    );
    let requests = f.server.requests();
    let whole: Vec<_> = requests
        .iter()
        .filter(|r| !r.contains("metadata"))
        .collect();
    assert_eq!(
        whole.len(),
        7,
        "one for each object selected, and for the token: {whole:?}"
    );
    assert!(
        !requests
            .iter()
            .any(|r| r.contains("pods") || r.contains("leases")),
        "{requests:?}"
    );
    // The same again asks for nothing.
    f.names("p", &namespace("web")).await;
    assert_eq!(f.server.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn a_change_is_fetched_once_and_only_content_counts() {
    let f = Fixture::new().await;
    f.put("namespaces", "", "web");
    f.put_with(
        "configmaps",
        "web",
        "a",
        &json!({}),
        &json!({"data": {"k": "1"}}),
    );
    let first = f.select("p", &namespace("web")).await.unwrap();
    f.woken().await;
    f.server.requests();
    f.put_with(
        "configmaps",
        "web",
        "a",
        &json!({}),
        &json!({"data": {"k": "1"}, "status": {"x": 1}}),
    );
    f.until_woken("p").await;
    let same = f.select("p", &namespace("web")).await.unwrap();
    assert_eq!(same.hash, first.hash);
    assert!(Arc::ptr_eq(&same.manifests[1], &first.manifests[1]));
    assert_eq!(f.server.requests(), ["GET configmaps web/a"]);
    f.put_with(
        "configmaps",
        "web",
        "a",
        &json!({}),
        &json!({"data": {"k": "2"}}),
    );
    f.until_woken("p").await;
    let changed = f.select("p", &namespace("web")).await.unwrap();
    assert_ne!(changed.hash, first.hash);
    assert_eq!(f.server.requests(), ["GET configmaps web/a"]);
}

#[tokio::test]
async fn many_objects_are_listed() {
    let f = Fixture::new().await;
    f.put("namespaces", "", "web");
    f.put("configmaps", "other", "x");
    for i in 0..60 {
        f.put("configmaps", "web", &format!("c-{i:02}"));
    }
    let selection = f.select("p", &namespace("web")).await.unwrap();
    assert_eq!(selection.manifests.len(), 61);
    assert_eq!(selection.manifests[1].object["kind"], "ConfigMap");
    let whole: Vec<_> = f
        .server
        .requests()
        .into_iter()
        .filter(|r| !r.contains("metadata"))
        .collect();
    assert_eq!(whole.len(), 2, "{whole:?}");
    assert!(
        whole.contains(&"LIST configmaps web/".to_owned()),
        "{whole:?}"
    );
    f.put("configmaps", "web", "c-00");
    f.until_woken("p").await;
    f.select("p", &namespace("web")).await.unwrap();
    assert_eq!(f.server.requests(), ["GET configmaps web/c-00"]);
}

/// A CRD, which defines the kind, stands before what is of that kind.
#[tokio::test]
async fn a_definition_travels_before_what_it_defines() {
    let f = Fixture::new().await;
    f.server.add_kind(WIDGET);
    f.put("namespaces", "", "web");
    f.put("widgets", "web", "w");
    f.put("customresourcedefinitions", "", "widgets.example.com");
    let crd = json!({"name": "widgets.example.com"});
    let selectors = json!([
        term("Namespace", &json!({"name": "web"})),
        term("CustomResourceDefinition", &crd),
    ]);
    assert_eq!(
        f.names("p", &selectors).await,
        [
            "Namespace web",
            "CustomResourceDefinition widgets.example.com",
            "Widget web/w",
        ]
    );
}
