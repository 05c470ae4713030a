//! An API server as far as selection needs one: discovery, lists, watches and reads, over plain HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use windlass_cluster::clock;

/// Group, version, kind, plural, whether namespaced.
pub type Kind = (&'static str, &'static str, &'static str, &'static str, bool);

#[derive(Default)]
struct State {
    kinds: Vec<Kind>,
    objects: BTreeMap<(String, String, String), Value>,
    version: u64,
    watchers: Vec<(String, UnboundedSender<String>)>,
    requests: Vec<String>,
    forbidden: BTreeSet<String>,
    unconvertible: BTreeSet<String>,
    unreadable: BTreeSet<String>,
}

#[derive(Clone)]
pub struct Server {
    state: Arc<Mutex<State>>,
    pub client: kube::Client,
}

impl Server {
    pub async fn start(kinds: &[Kind]) -> Self {
        clock::install_crypto();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State {
            kinds: kinds.to_vec(),
            ..State::default()
        }));
        let serving = Arc::clone(&state);
        clock::spawn("test-server", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&serving);
                clock::spawn("test-request", async move { answer(&state, stream).await });
            }
        });
        let config = kube::Config::new(address.parse().unwrap());
        Self {
            state,
            client: kube::Client::try_from(config).unwrap(),
        }
    }

    /// Creates or replaces an object.
    pub fn put(&self, plural: &str, mut object: Value) {
        let mut state = self.state.lock().unwrap();
        state.version += 1;
        let version = state.version.to_string();
        let text = |object: &Value, field: &str| {
            object["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let key = (
            plural.to_owned(),
            text(&object, "namespace"),
            text(&object, "name"),
        );
        let known = state
            .objects
            .get(&key)
            .map(|old| old["metadata"]["uid"].clone());
        let event = if known.is_some() { "MODIFIED" } else { "ADDED" };
        object["metadata"]["uid"] = known.unwrap_or_else(|| json!(format!("uid-{version}")));
        object["metadata"]["resourceVersion"] = json!(version);
        state.objects.insert(key, object.clone());
        state.tell(plural, event, &object);
    }

    /// Creates or replaces an object that has nothing but a name.
    pub fn create(&self, plural: &str, namespace: &str, name: &str) {
        let namespace = (!namespace.is_empty()).then_some(namespace);
        self.put(
            plural,
            json!({"metadata": {"namespace": namespace, "name": name}}),
        );
    }

    pub fn delete(&self, plural: &str, namespace: &str, name: &str) {
        let mut state = self.state.lock().unwrap();
        state.version += 1;
        let version = state.version;
        let key = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        let mut object = state.objects.remove(&key).unwrap();
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        state.tell(plural, "DELETED", &object);
    }

    pub fn add_kind(&self, kind: Kind) {
        self.state.lock().unwrap().kinds.push(kind);
    }

    pub fn remove_kind(&self, plural: &str) {
        let mut state = self.state.lock().unwrap();
        state.kinds.retain(|kind| kind.3 != plural);
        state.watchers.retain(|(of, _)| of != plural);
    }

    pub fn forbid(&self, plural: &str, yes: bool) {
        let mut state = self.state.lock().unwrap();
        if yes {
            state.forbidden.insert(plural.to_owned());
        } else {
            state.forbidden.remove(plural);
        }
    }

    /// Whether objects of a name, of whatever kind, can't be read one by one.
    pub fn forbid_reading(&self, name: &str, yes: bool) {
        let mut state = self.state.lock().unwrap();
        if yes {
            state.unreadable.insert(name.to_owned());
        } else {
            state.unreadable.remove(name);
        }
    }

    /// The conversion webhook of a kind goes down: lists fail that have anything to convert.
    pub fn break_conversion(&self, plural: &str, yes: bool) {
        let mut state = self.state.lock().unwrap();
        if yes {
            state.unconvertible.insert(plural.to_owned());
        } else {
            state.unconvertible.remove(plural);
        }
    }

    /// What was asked since the last time: `GET plural namespace/name`, `LIST …`, `WATCH …`; metadata
    /// requests say so.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    /// Whether somebody watches a kind.
    pub fn is_watched(&self, plural: &str) -> bool {
        let state = self.state.lock().unwrap();
        let mut open = state.watchers.iter().filter(|(_, to)| !to.is_closed());
        open.any(|(of, _)| of == plural)
    }

    /// How many watches are open.
    pub fn watches(&self) -> usize {
        let mut state = self.state.lock().unwrap();
        state.watchers.retain(|(_, sender)| !sender.is_closed());
        state.watchers.len()
    }
}

impl State {
    fn tell(&mut self, plural: &str, event: &str, object: &Value) {
        let line = format!(
            "{}\n",
            json!({"type": event, "object": only_metadata(object)})
        );
        for (_, sender) in self.watchers.iter().filter(|(of, _)| of == plural) {
            let _ = sender.send(line.clone());
        }
    }

    fn groups(&self, core: bool) -> Value {
        let mut items: BTreeMap<&str, BTreeMap<&str, Vec<Value>>> = BTreeMap::new();
        for (group, version, kind, plural, namespaced) in &self.kinds {
            if group.is_empty() == core {
                items
                    .entry(group)
                    .or_default()
                    .entry(version)
                    .or_default()
                    .push(json!({
                        "resource": plural, "verbs": ["get", "list", "watch"],
                        "responseKind": {"group": group, "version": version, "kind": kind},
                        "scope": if *namespaced { "Namespaced" } else { "Cluster" },
                    }));
            }
        }
        let items: Vec<Value> = items
            .into_iter()
            .map(|(group, versions)| {
                let versions: Vec<Value> = versions
                    .into_iter()
                    .map(|(version, resources)| json!({"version": version, "resources": resources}))
                    .collect();
                json!({"metadata": {"name": group}, "versions": versions})
            })
            .collect();
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items})
    }
}

enum Answer {
    Whole(u16, Value),
    Watch(UnboundedReceiver<String>),
}

async fn answer(state: &Mutex<State>, stream: TcpStream) {
    let mut stream = BufReader::new(stream);
    let (mut target, mut metadata) = (String::new(), false);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
            return;
        }
        if line.starts_with("GET ") {
            target = line.split(' ').nth(1).unwrap().to_owned();
        }
        metadata |=
            line.to_lowercase().starts_with("accept:") && line.contains("PartialObjectMetadata");
        if line == "\r\n" {
            break;
        }
    }
    let answer = state.lock().unwrap().route(&target, metadata);
    let head = |code: u16| {
        format!("HTTP/1.1 {code} X\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")
    };
    match answer {
        Answer::Whole(code, body) => {
            let _ = stream
                .write_all(format!("{}{body}", head(code)).as_bytes())
                .await;
        }
        Answer::Watch(mut events) => {
            let _ = stream.write_all(head(200).as_bytes()).await;
            let mut byte = String::new();
            loop {
                tokio::select! {
                    event = events.recv() => match event {
                        Some(event) if stream.write_all(event.as_bytes()).await.is_ok() => {}
                        _ => break,
                    },
                    _ = stream.read_line(&mut byte) => break,
                }
            }
        }
    }
    let _ = stream.shutdown().await;
}

impl State {
    fn route(&mut self, target: &str, metadata: bool) -> Answer {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let rest = match parts[..] {
            ["api"] => return Answer::Whole(200, self.groups(true)),
            ["apis"] => return Answer::Whole(200, self.groups(false)),
            ["api", _] | ["apis", _, _] => {
                return Answer::Whole(
                    200,
                    json!({"kind": "APIResourceList", "groupVersion": "", "resources": []}),
                );
            }
            ["api", _, ref rest @ ..] | ["apis", _, _, ref rest @ ..] => rest.to_vec(),
            _ => return refuse(404, "NotFound"),
        };
        let (namespace, plural, name) = match rest[..] {
            ["namespaces", namespace, plural] => (namespace, plural, ""),
            ["namespaces", namespace, plural, name] => (namespace, plural, name),
            [plural] => ("", plural, ""),
            [plural, name] => ("", plural, name),
            _ => return refuse(404, "NotFound"),
        };
        let verb = match (query.contains("watch=true"), name) {
            (true, _) => "WATCH",
            (_, "") => "LIST",
            _ => "GET",
        };
        let sort = if metadata { " metadata" } else { "" };
        self.requests
            .push(format!("{verb}{sort} {plural} {namespace}/{name}"));
        if self.forbidden.contains(plural) || self.unreadable.contains(name) {
            return refuse(403, "Forbidden");
        }
        if !self.kinds.iter().any(|kind| kind.3 == plural) {
            return refuse(404, "NotFound");
        }
        let inside = |(of, there, _): &(String, String, String)| {
            of == plural && (namespace.is_empty() || there == namespace)
        };
        if self.unconvertible.contains(plural) && self.objects.keys().any(inside) {
            return refuse(500, "InternalError");
        }
        match verb {
            "WATCH" => self.watch(plural, query),
            "LIST" => self.list(plural, namespace, metadata),
            _ => {
                let key = (plural.to_owned(), namespace.to_owned(), name.to_owned());
                match self.objects.get(&key) {
                    Some(object) => Answer::Whole(200, object.clone()),
                    None => refuse(404, "NotFound"),
                }
            }
        }
    }

    fn list(&self, plural: &str, namespace: &str, metadata: bool) -> Answer {
        let all = self.objects.iter().filter(|((of, inside, _), _)| {
            of == plural && (namespace.is_empty() || inside == namespace)
        });
        let items: Vec<Value> = all
            .map(|(_, object)| {
                if metadata {
                    only_metadata(object)
                } else {
                    object.clone()
                }
            })
            .collect();
        let version = self.version.to_string();
        Answer::Whole(
            200,
            json!({"kind": "List", "apiVersion": "v1", "items": items,
                                  "metadata": {"resourceVersion": version}}),
        )
    }

    /// Begins with what came between the list and the watch. Deletions are not kept; tests need none.
    fn watch(&mut self, plural: &str, query: &str) -> Answer {
        let (sender, events) = unbounded_channel();
        let seen: u64 = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("resourceVersion="))
            .and_then(|version| version.parse().ok())
            .unwrap_or_default();
        for ((of, ..), object) in &self.objects {
            let version = object["metadata"]["resourceVersion"].as_str().unwrap();
            if of == plural && version.parse::<u64>().unwrap() > seen {
                let event = json!({"type": "ADDED", "object": only_metadata(object)});
                let _ = sender.send(format!("{event}\n"));
            }
        }
        self.watchers.push((plural.to_owned(), sender));
        Answer::Watch(events)
    }
}

fn refuse(code: u16, reason: &str) -> Answer {
    Answer::Whole(
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {},
                               "message": format!("{reason}, says the server"), "reason": reason, "code": code}),
    )
}

fn only_metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
