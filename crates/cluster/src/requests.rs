//! Counts API requests: what a change costs is known, not guessed.

use http::{Method, Request};
use kube::client::Body;
use prometheus::{IntCounterVec, Opts, Registry};

/// Counts requests by target cluster, verb and resource. Clones share the counters.
#[derive(Clone)]
pub struct RequestCounter {
    counter: IntCounterVec,
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
            &["target", "verb", "resource"],
        )?;
        registry.register(Box::new(counter.clone()))?;
        Ok(Self { counter })
    }

    /// Counts one request to `target`.
    pub fn count(&self, target: &str, request: &Request<Body>) {
        let query = request.uri().query().unwrap_or_default();
        let (resource, named) = resource_of(request.uri().path());
        let verb = verb_of(request.method(), query, named);
        self.counter
            .with_label_values(&[target, verb, resource.as_str()])
            .inc();
    }

    /// Removes the series of a cluster that has left.
    pub fn forget(&self, target: &str) {
        use prometheus::core::Collector;
        for family in self.counter.collect() {
            for metric in family.get_metric() {
                let value = |name: &str| {
                    metric
                        .get_label()
                        .iter()
                        .find(|l| l.name() == name)
                        .map(|l| l.value().to_owned())
                };
                if let (Some(t), Some(verb), Some(resource)) =
                    (value("target"), value("verb"), value("resource"))
                    && t == target
                {
                    // A series that is gone already is as wanted.
                    drop(self.counter.remove_label_values(&[&t, &verb, &resource]));
                }
            }
        }
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
        Method::DELETE => "delete",
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
    if parts.len() > 2 && parts[0] == "namespaces" && !matches!(parts[2], "status" | "finalize") {
        parts.drain(..2);
    }
    let resource = match parts.get(2) {
        Some(sub) => format!("{}/{sub}", parts[0]),
        None => parts[0].to_owned(),
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
            ("/api/v1/namespaces/web/configmaps", "configmaps", false),
            ("/api/v1/namespaces/web/configmaps/a", "configmaps", true),
            (
                "/apis/apps/v1/namespaces/web/deployments/a/status",
                "deployments/status",
                true,
            ),
            ("/apis/g.example/v1/crps/a/status", "crps/status", true),
            ("/apis/g.example/v1", "discovery", true),
            ("/readyz", "/readyz", true),
        ] {
            assert_eq!(resource_of(path), (resource.to_owned(), named), "{path}");
        }
        assert_eq!(verb_of(&Method::GET, "watch=true", false), "watch");
        assert_eq!(verb_of(&Method::GET, "limit=5", false), "list");
    }
}
