//! Reads as `kubectl get -o jsonpath` does, without a process for each: suites poll, and starting kubectl
//! costs a hundred times what the request does. What this does not know is kubectl's own business:
//! [`Reader::get`] then tells nothing.

use std::collections::BTreeMap;
use std::path::Path;

use kube::Client;
use kube::core::Request;
use kube::core::params::ListParams;
use serde_json::{Value, json};

use crate::agents::connect;
use crate::{Fleet, jsonpath};

/// Asks for all kinds of an API server in one answer.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A kind as discovered.
#[derive(Clone)]
struct Kind {
    /// `api/v1` or `apis/GROUP/VERSION`.
    prefix: String,
    plural: String,
    is_namespaced: bool,
}

/// See the module.
pub(crate) struct Reader {
    /// Made when it is needed: within another one it could not even be dropped.
    runtime: Option<tokio::runtime::Runtime>,
    servers: BTreeMap<String, Server>,
}

struct Server {
    client: Client,
    kinds: BTreeMap<String, Kind>,
}

/// What kubectl's arguments ask for.
#[derive(Debug, Default, PartialEq)]
struct Query<'a> {
    kinds: Vec<&'a str>,
    names: Vec<&'a str>,
    namespace: Option<&'a str>,
    labels: Option<&'a str>,
    everywhere: bool,
}

impl<'a> Query<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut query = Self::default();
        let mut words = text.split_whitespace();
        query.kinds = words.next()?.split(',').collect();
        while let Some(word) = words.next() {
            match word {
                "-n" => query.namespace = Some(words.next()?),
                "-l" => query.labels = Some(words.next()?),
                "-A" => query.everywhere = true,
                word if word.starts_with('-') => return None,
                name => query.names.push(name),
            }
        }
        let is_plain = query.labels.is_none() && !query.everywhere && query.kinds.len() == 1;
        (query.names.is_empty() || is_plain).then_some(query)
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime can be made")
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self {
            runtime: None,
            servers: BTreeMap::new(),
        }
    }

    /// What kubectl would print, empty when it would fail; none: kubectl has to be asked.
    pub(crate) fn get(&mut self, kubeconfig: &Path, what: &str, path: &str) -> Option<String> {
        // Nobody may wait on one runtime within another.
        if tokio::runtime::Handle::try_current().is_ok() {
            return None;
        }
        let query = Query::parse(what)?;
        let template = jsonpath::parse(path)?;
        let runtime = self.runtime.get_or_insert_with(runtime);
        let name = kubeconfig.to_string_lossy().into_owned();
        let server = match self.servers.entry(name) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => new.insert(Server {
                client: runtime.block_on(connect(kubeconfig)),
                kinds: BTreeMap::new(),
            }),
        };
        let answer = server.query(&query);
        let limit = std::time::Duration::from_secs(5);
        let answer = runtime.block_on(async { tokio::time::timeout(limit, answer).await });
        match answer {
            Ok(Ok(found)) => Some(jsonpath::print(&template, &found)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                if status.details.is_none_or(|details| details.name.is_empty()) {
                    server.kinds.clear();
                }
                Some(String::new())
            }
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

impl Fleet {
    /// A JSONPath of an object, as `kubectl get WHAT -o jsonpath=PATH` prints it; empty when there is no such
    /// object, kind or entry. Who waits and gets no answer asks again.
    ///
    /// # Panics
    /// When there is no answer, and nobody waits for one.
    #[must_use]
    pub fn get(&self, name: &str, what: &str, path: &str) -> String {
        // One that died while it read has left nothing half done.
        let reader = self.reader.lock();
        let mut reader = reader.unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(read) = reader.get(&self.kubeconfig(name), what, path) {
            return read;
        }
        drop(reader);
        self.get_by_kubectl(name, what, path)
    }
}

fn not_found() -> kube::Error {
    let status: kube::core::Status =
        serde_json::from_value(json!({"status": "Failure", "code": 404})).expect("it is a Status");
    kube::Error::Api(Box::new(status))
}

impl Server {
    async fn query(&mut self, query: &Query<'_>) -> Result<Value, kube::Error> {
        let mut found = Vec::new();
        for kind in &query.kinds {
            let kind = self.kind(kind).await?;
            let mut folder = format!("/{}", kind.prefix);
            if kind.is_namespaced && !query.everywhere {
                let namespace = query.namespace.unwrap_or("default");
                folder = format!("{folder}/namespaces/{namespace}");
            }
            folder = format!("{folder}/{}", kind.plural);
            for name in &query.names {
                found.push(self.fetch(&format!("{folder}/{name}"), None).await?);
            }
            if query.names.is_empty() {
                let labels = query.labels.unwrap_or_default();
                let path = format!("{folder}?labelSelector={}", labels.replace('=', "%3D"));
                let mut list = self.fetch(&path, None).await?;
                if let Some(items) = list["items"].as_array_mut() {
                    found.append(items);
                }
            }
        }
        if query.names.len() == 1 {
            return found.pop().ok_or_else(not_found);
        }
        Ok(json!({"apiVersion": "v1", "kind": "List", "items": found}))
    }

    async fn fetch(&self, path: &str, accept: Option<&str>) -> Result<Value, kube::Error> {
        let request = Request::new("").list(&ListParams::default());
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        *request.uri_mut() = path.parse().expect("it is a path");
        if let Some(accept) = accept {
            let accept = accept.parse().expect("it is a header's value");
            request.headers_mut().insert("accept", accept);
        }
        self.client.request(request).await
    }

    /// By any of the names that kubectl takes. A kind that is not known may be new.
    async fn kind(&mut self, name: &str) -> Result<Kind, kube::Error> {
        if let Some(known) = self.kinds.get(name) {
            return Ok(known.clone());
        }
        self.kinds.clear();
        for root in ["/api", "/apis"] {
            let all = self.fetch(root, Some(DISCOVERY)).await?;
            for (name, kind) in discovered(&all) {
                self.kinds.entry(name).or_insert(kind);
            }
        }
        self.kinds.get(name).cloned().ok_or_else(not_found)
    }
}

/// Each kind by each of its names, the one that kubectl takes first.
fn discovered(answer: &Value) -> Vec<(String, Kind)> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut all = Vec::new();
    for group in list(&answer["items"]) {
        let name = text(&group["metadata"]["name"]);
        for version in list(&group["versions"]) {
            let number = text(&version["version"]);
            let prefix = match name.as_str() {
                "" => format!("api/{number}"),
                group => format!("apis/{group}/{number}"),
            };
            for resource in list(&version["resources"]) {
                let plural = text(&resource["resource"]);
                let kind = Kind {
                    prefix: prefix.clone(),
                    plural: plural.clone(),
                    is_namespaced: resource["scope"] == "Namespaced",
                };
                let short = list(&resource["shortNames"]);
                let mut names: Vec<String> = short.iter().map(text).collect();
                names.extend([text(&resource["singularResource"]), plural.clone()]);
                names.push(format!("{plural}.{name}"));
                names.push(format!("{plural}.{number}.{name}"));
                all.extend(names.into_iter().map(|name| (name, kind.clone())));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_understood_or_left_to_kubectl() {
        let query = Query::parse("cm new old -n kept").unwrap();
        assert_eq!(
            (query.kinds, query.names, query.namespace),
            (vec!["cm"], vec!["new", "old"], Some("kept"))
        );
        let query = Query::parse("crb,crs -l a=b").unwrap();
        assert_eq!(
            (query.kinds, query.labels),
            (vec!["crb", "crs"], Some("a=b"))
        );
        assert!(Query::parse("works -A").unwrap().everywhere);
        for other in ["", "cm -w", "cm --all-namespaces", "cm,svc a", "cm -n"] {
            assert_eq!(Query::parse(other), None, "{other}");
        }
    }
}
