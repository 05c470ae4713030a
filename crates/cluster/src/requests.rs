//! Counts API requests: what a change costs is known, not guessed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Request};
use prometheus::core::Collector;
use prometheus::{IntCounterVec, Opts, Registry};

use crate::transport::TransportLayer;

/// So many targets have series of their own, those that are connected first; the rest share some.
const MOST_NAMED: usize = 100;
/// The target of all others.
const OTHERS: &str = "others";

/// Counts requests by target cluster, verb, resource and answer. Clones share the counters.
#[derive(Clone)]
pub struct RequestCounter {
    counter: IntCounterVec,
    /// The targets that have series of their own.
    named: Arc<Mutex<BTreeSet<String>>>,
}

impl RequestCounter {
    /// Makes the counter and registers it as `windlass_api_requests_total`.
    ///
    /// # Errors
    /// When the registry has a metric of that name.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = IntCounterVec::new(
            Opts::new(
                "windlass_api_requests_total",
                "Requests sent to API servers.",
            ),
            &["target", "verb", "resource", "code"],
        )?;
        registry.register(Box::new(counter.clone()))?;
        Ok(Self {
            counter,
            named: Arc::default(),
        })
    }

    /// A layer for a client of `target` that counts its requests, and gives up on a response that has not
    /// begun within `limit`.
    #[must_use]
    pub fn layer(&self, target: impl Into<String>, limit: Duration) -> TransportLayer {
        TransportLayer::new(self.clone(), self.name(target.into()), limit)
    }

    /// What a target is called. Thousands of clusters would make hundreds of thousands of series.
    fn name(&self, target: String) -> String {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() >= MOST_NAMED && !named.contains(&target) {
            return OTHERS.to_owned();
        }
        named.insert(target.clone());
        target
    }

    /// Removes the series of a cluster that has left.
    pub fn forget(&self, target: &str) {
        self.named
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(target);
        for family in self.counter.collect() {
            for metric in family.get_metric() {
                let value = |name: &str| {
                    metric
                        .get_label()
                        .iter()
                        .find(|label| label.name() == name)
                        .map_or("", |label| label.value())
                };
                if value("target") == target {
                    // A series that is gone already is as wanted.
                    drop(self.counter.remove_label_values(&[
                        target,
                        value("verb"),
                        value("resource"),
                        value("code"),
                    ]));
                }
            }
        }
    }

    /// Begins to count a request to `target`.
    pub(crate) fn begin<B>(&self, target: &str, request: &Request<B>) -> Pending {
        let query = request.uri().query().unwrap_or_default();
        let (resource, named) = resource_of(request.uri().path());
        Pending {
            counter: self.counter.clone(),
            target: target.to_owned(),
            verb: verb_of(request.method(), query, named),
            resource,
            code: "cancelled".to_owned(),
        }
    }
}

/// A request whose answer is not known yet. It is counted when this is dropped, so exactly once, also
/// when whoever waited for the answer has given up.
pub(crate) struct Pending {
    counter: IntCounterVec,
    target: String,
    verb: &'static str,
    resource: String,
    code: String,
}

impl Pending {
    /// Counts the request with its answer: an HTTP status, `error` or `timeout`.
    pub(crate) fn end(mut self, code: impl Into<String>) {
        self.code = code.into();
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.counter
            .with_label_values(&[&self.target, self.verb, &self.resource, &self.code])
            .inc();
    }
}

fn verb_of(method: &Method, query: &str, named: bool) -> &'static str {
    match *method {
        Method::GET if query.contains("watch=") => "watch",
        Method::GET if named => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if named => "delete",
        Method::DELETE => "deletecollection",
        _ => "other",
    }
}

/// The resource that a path names, with its subresource, and whether it names a single object.
fn resource_of(path: &str) -> (String, bool) {
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let skip = match parts.first() {
        Some(&"api") => 2,
        Some(&"apis") => 3,
        _ => return (path.to_owned(), true),
    };
    if parts.len() <= skip {
        return ("discovery".to_owned(), true);
    }
    parts.drain(..skip);
    // /namespaces/NAME is the Namespace itself; /namespaces/NAME/pods lies in it.
    if let ["namespaces", _, inner, ..] = parts[..]
        && !matches!(inner, "status" | "finalize")
    {
        parts.drain(..2);
    }
    let resource = match parts[..] {
        [resource, _, sub, ..] => format!("{resource}/{sub}"),
        [resource, ..] => resource.to_owned(),
        [] => String::new(),
    };
    (resource, parts.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (path, resource, named) in [
            ("/api/v1/namespaces", "namespaces", false),
            ("/api/v1/namespaces/web", "namespaces", true),
            ("/api/v1/namespaces/web/status", "namespaces/status", true),
            ("/api/v1/namespaces/web/configmaps", "configmaps", false),
            ("/api/v1/namespaces/web/configmaps/a", "configmaps", true),
            (
                "/apis/apps/v1/namespaces/web/deployments/a/status",
                "deployments/status",
                true,
            ),
            ("/apis/g.example/v1/crps/a/status", "crps/status", true),
            ("/apis/g.example/v1", "discovery", true),
            ("/api", "discovery", true),
            ("/readyz", "/readyz", true),
        ] {
            assert_eq!(resource_of(path), (resource.to_owned(), named), "{path}");
        }
    }

    #[test]
    fn verbs() {
        for (method, query, named, verb) in [
            (Method::GET, "watch=true", false, "watch"),
            (Method::GET, "limit=5", false, "list"),
            (Method::GET, "", true, "get"),
            (Method::DELETE, "", true, "delete"),
            (Method::DELETE, "", false, "deletecollection"),
            (Method::PATCH, "", true, "patch"),
        ] {
            assert_eq!(verb_of(&method, query, named), verb);
        }
    }

    #[test]
    fn many_clusters_share_their_series() {
        let counter = RequestCounter::new(&Registry::new()).unwrap();
        for n in 0..MOST_NAMED {
            assert_eq!(counter.name(n.to_string()), n.to_string());
        }
        assert_eq!(counter.name("more".into()), OTHERS);
        assert_eq!(counter.name("0".into()), "0");
        counter.forget("0");
        assert_eq!(counter.name("more".into()), "more");
    }

    #[test]
    fn a_cluster_that_leaves_takes_its_series_along() {
        let registry = Registry::new();
        let counter = RequestCounter::new(&registry).unwrap();
        let request = Request::get("/api/v1/pods").body(()).unwrap();
        counter.begin("a", &request).end("200");
        counter.begin("a", &request).end("500");
        counter.begin("b", &request).end("200");
        drop(counter.begin("b", &request));
        counter.forget("a");
        let left: Vec<String> = registry.gather()[0]
            .get_metric()
            .iter()
            .map(|metric| {
                metric
                    .get_label()
                    .iter()
                    .map(prometheus::proto::LabelPair::value)
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect();
        assert_eq!(
            left,
            ["200 pods b list", "cancelled pods b list"],
            "labels are sorted by name"
        );
    }
}
