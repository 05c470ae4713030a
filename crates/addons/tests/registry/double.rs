//! A registry, and a server of plain files, as these tests want them: on a loopback address, told what to
//! hold and how to misbehave, and remembering who asked for what.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use serde_json::{Value, json};
use windlass_addons::source::{SecretData, Source};
use windlass_addons::{archive, oci};
use windlass_api::addon::RepositorySpec;
use windlass_status::Digest;

/// Media type of a chart's Chart.yaml.
pub const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
/// Media type of a chart's archive.
pub const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The user that the doubles know.
pub const USER: &str = "ada";
/// Its password.
pub const PASSWORD: &str = "correct-horse-battery";

/// How a registry wants to know who asks.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Auth {
    /// Not at all.
    #[default]
    Open,
    /// By user name and password.
    Basic,
    /// By a token from its own endpoint, or from the realm given; strangers get one that reads nothing.
    Token(Option<String>),
    /// The same, where strangers may read.
    Public,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub query: String,
    pub authorization: Option<String>,
}

/// An answer.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    /// One of a status, with a body.
    pub fn of(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    /// A registry's error.
    pub fn error(status: u16, code: &str) -> Self {
        let body = json!({"errors": [{"code": code, "message": format!("told {code}")}]});
        Self::of(status, body.to_string())
    }

    /// The same with a header.
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

/// Answers in the double's place.
pub type Hook = Box<dyn FnMut(&Seen) -> Option<Reply> + Send>;

/// What a double holds.
#[derive(Default)]
pub struct Held {
    pub auth: Auth,
    /// By repository and tag: digest of a manifest.
    pub tags: BTreeMap<String, BTreeMap<String, String>>,
    /// By digest: manifests and blobs.
    pub blobs: BTreeMap<String, Vec<u8>>,
    /// Where plain files are, by path.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Tags on a page at most.
    pub page: usize,
    /// Whether links are absolute.
    pub absolute: bool,
    /// After so many requests with a token all tokens expire.
    pub expire_at: Vec<usize>,
    pub hook: Option<Hook>,
    pub seen: Vec<Seen>,
    origin: String,
    /// By token: whether it reads.
    tokens: BTreeMap<String, bool>,
    taken: usize,
    issued: usize,
}

/// The server.
#[derive(Clone)]
pub struct Double {
    pub host: String,
    held: Arc<Mutex<Held>>,
}

impl Double {
    /// Starts one.
    pub async fn start() -> Self {
        windlass_cluster::clock::install_crypto();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let held = Arc::new(Mutex::new(Held {
            page: 1000,
            origin: format!("http://{host}"),
            ..Held::default()
        }));
        let shared = Arc::clone(&held);
        let router = Router::new().fallback(move |request: Request<Body>| {
            let reply = shared.lock().unwrap().answer(&request);
            async move { response(reply) }
        });
        windlass_cluster::clock::spawn("double", async move {
            axum::serve(listener, router).await.unwrap();
        });
        Self { host, held }
    }

    /// What it holds.
    pub fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap()
    }

    /// What was asked since the last time, as `METHOD path`.
    pub fn asked(&self) -> Vec<String> {
        let seen = std::mem::take(&mut self.held().seen);
        seen.into_iter()
            .map(|seen| format!("{} {}", seen.method, seen.path))
            .collect()
    }

    /// How many of the requests since the last time begin and end so.
    pub fn count(&self, method: &str, part: &str) -> usize {
        let seen = &self.held().seen;
        seen.iter()
            .filter(|seen| seen.method == method && seen.path.contains(part))
            .count()
    }

    /// Answers in its place.
    pub fn hook(&self, hook: impl FnMut(&Seen) -> Option<Reply> + Send + 'static) {
        self.held().hook = Some(Box::new(hook));
    }

    /// The source of a path here.
    pub fn source(&self, path: &str, secret: Option<&SecretData>) -> Source {
        self.source_of(
            &RepositorySpec {
                url: format!("oci://{}/{path}", self.host),
                ..RepositorySpec::default()
            },
            secret,
        )
    }

    /// The source of a spec.
    pub fn source_of(&self, spec: &RepositorySpec, secret: Option<&SecretData>) -> Source {
        Source::of(spec, secret, None).unwrap()
    }
}

/// Limits that wait for nothing.
pub fn limits() -> oci::Limits {
    oci::Limits {
        pause: Duration::from_millis(1),
        ..oci::Limits::default()
    }
}

/// The same for archives.
pub fn archive_limits() -> archive::Limits {
    archive::Limits {
        pause: Duration::from_millis(1),
        ..archive::Limits::default()
    }
}

/// A Secret's data.
pub fn secret(username: &str, password: &str) -> SecretData {
    let pair = |key: &str, value: &str| (key.to_owned(), value.as_bytes().to_vec());
    BTreeMap::from([pair("username", username), pair("password", password)])
}

/// The one that the doubles know.
pub fn right() -> SecretData {
    secret(USER, PASSWORD)
}

/// One that they do not.
pub fn wrong() -> SecretData {
    secret(USER, "wrong-horse-battery")
}

/// An archive, so called: it begins as one, and holds a text.
pub fn archive_of(text: &str) -> Vec<u8> {
    [&[0x1f, 0x8b, 8, 0][..], text.as_bytes()].concat()
}

impl Held {
    /// Keeps a blob.
    pub fn blob(&mut self, bytes: Vec<u8>) -> String {
        let digest = format!("sha256:{}", Digest::of_bytes(&bytes));
        self.blobs.insert(digest.clone(), bytes);
        digest
    }

    /// Puts a manifest under a tag.
    pub fn manifest(&mut self, repository: &str, tag: &str, manifest: &Value) -> String {
        let digest = self.blob(manifest.to_string().into_bytes());
        let tags = self.tags.entry(repository.to_owned()).or_default();
        tags.insert(tag.to_owned(), digest.clone());
        digest
    }

    /// Pushes a chart as Helm does, with what Chart.yaml says besides.
    pub fn push(&mut self, repository: &str, tag: &str, metadata: &Value) -> String {
        let mut chart = json!({"apiVersion": "v2", "name": repository, "version": tag});
        for (key, value) in metadata.as_object().into_iter().flatten() {
            chart[key] = value.clone();
        }
        let manifest = self.chart(&chart, archive_of(&format!("{repository} {tag}")));
        self.manifest(repository, tag, &manifest)
    }

    /// A chart's manifest, its blobs kept.
    pub fn chart(&mut self, chart: &Value, content: Vec<u8>) -> Value {
        let config = chart.to_string().into_bytes();
        let (config_size, size) = (config.len(), content.len());
        let (config, content) = (self.blob(config), self.blob(content));
        json!({
            "schemaVersion": 2,
            "config": {"mediaType": CONFIG, "digest": config, "size": config_size},
            "layers": [{"mediaType": CONTENT, "digest": content, "size": size}],
            "annotations": {"org.opencontainers.image.created": "2026-01-02T03:04:05Z"},
        })
    }

    /// Makes tags of which only the names matter.
    pub fn tag_all(&mut self, repository: &str, tags: impl IntoIterator<Item = String>) {
        let manifest = self.chart(&json!({}), archive_of("same"));
        let digest = self.blob(manifest.to_string().into_bytes());
        let all = self.tags.entry(repository.to_owned()).or_default();
        all.extend(tags.into_iter().map(|tag| (tag, digest.clone())));
    }

    fn answer(&mut self, request: &Request<Body>) -> Reply {
        let header = request.headers().get("authorization");
        let seen = Seen {
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            authorization: header.map(|value| value.to_str().unwrap().to_owned()),
        };
        self.seen.push(seen.clone());
        if let Some(mut hook) = self.hook.take() {
            let reply = hook(&seen);
            self.hook = Some(hook);
            if let Some(reply) = reply {
                return reply;
            }
        }
        if seen.path == "/token" {
            return self.token(&seen);
        }
        match seen.path.strip_prefix("/v2/") {
            Some(path) => self
                .refusal(&seen)
                .unwrap_or_else(|| self.registry(path, &seen)),
            None => self.file(&seen),
        }
    }

    fn file(&self, seen: &Seen) -> Reply {
        if self.auth == Auth::Basic && !is_user(seen) {
            return Reply::of(401, "who are you");
        }
        match self.files.get(&seen.path) {
            Some(body) => Reply::of(200, body.clone()),
            None => Reply::of(404, ""),
        }
    }

    fn refusal(&mut self, seen: &Seen) -> Option<Reply> {
        let unauthorized = Reply::error(401, "UNAUTHORIZED");
        let realm = match &self.auth {
            Auth::Open => return None,
            Auth::Basic => {
                let refused = unauthorized.with("www-authenticate", "Basic realm=\"double\"");
                return (!is_user(seen)).then_some(refused);
            }
            Auth::Token(Some(realm)) => realm.clone(),
            Auth::Token(None) | Auth::Public => format!("{}/token", self.origin),
        };
        let token = seen.authorization.as_deref().unwrap_or_default();
        let reads = self.tokens.get(token).copied();
        if reads == Some(true) {
            self.taken += 1;
            if self.expire_at.contains(&self.taken) {
                self.tokens.clear();
            }
            return None;
        }
        let name = seen.path.trim_start_matches("/v2/");
        let name = ["/tags/", "/manifests/", "/blobs/"]
            .iter()
            .find_map(|part| name.split_once(part))
            .map_or("", |(name, _)| name);
        let challenge =
            format!("Bearer realm=\"{realm}\",service=\"double\",scope=\"repository:{name}:pull\"");
        Some(unauthorized.with("www-authenticate", challenge))
    }

    fn token(&mut self, seen: &Seen) -> Reply {
        let user = is_user(seen);
        if seen.authorization.is_some() && !user {
            return Reply::error(401, "UNAUTHORIZED");
        }
        assert!(seen.query.contains("service=double"), "{}", seen.query);
        self.issued += 1;
        let token = format!("secret-token-{}", self.issued);
        let reads = user || self.auth == Auth::Public;
        self.tokens.insert(format!("Bearer {token}"), reads);
        // Both spellings are in use.
        let key = ["token", "access_token"][self.issued % 2];
        Reply::of(200, json!({key: token, "expires_in": 300}).to_string())
    }

    fn registry(&self, path: &str, seen: &Seen) -> Reply {
        if path.is_empty() {
            return Reply::of(200, "{}");
        }
        if let Some(name) = path.strip_suffix("/tags/list") {
            return self.list(name, &seen.query);
        }
        if let Some((name, reference)) = path.split_once("/manifests/") {
            let tags = self.tags.get(name);
            let digest = tags.and_then(|tags| tags.get(reference).cloned());
            let digest = digest.unwrap_or_else(|| reference.to_owned());
            return match self.blobs.get(&digest) {
                Some(body) => Reply::of(200, body.clone())
                    .with("docker-content-digest", digest)
                    .with("content-type", MANIFEST),
                None => Reply::error(404, "MANIFEST_UNKNOWN"),
            };
        }
        match path
            .split_once("/blobs/")
            .and_then(|(_, digest)| self.blobs.get(digest))
        {
            Some(body) => Reply::of(200, body.clone()),
            None => Reply::error(404, "BLOB_UNKNOWN"),
        }
    }

    fn list(&self, name: &str, query: &str) -> Reply {
        let Some(tags) = self.tags.get(name) else {
            return Reply::error(404, "NAME_UNKNOWN");
        };
        let pairs: BTreeMap<&str, &str> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .collect();
        let wanted = pairs.get("n").map_or(usize::MAX, |n| n.parse().unwrap());
        let last = pairs.get("last").copied().unwrap_or("");
        let after: Vec<&String> = tags.keys().filter(|tag| tag.as_str() > last).collect();
        let page = &after[..after.len().min(wanted).min(self.page)];
        let reply = Reply::of(200, json!({"name": name, "tags": page}).to_string());
        if page.len() == after.len() {
            return reply;
        }
        let origin = if self.absolute {
            self.origin.as_str()
        } else {
            ""
        };
        let last = page[page.len() - 1];
        let link = format!("<{origin}/v2/{name}/tags/list?last={last}&n={wanted}>; rel=\"next\"");
        reply.with("link", link)
    }

    /// Who was seen, however often.
    pub fn identities(&self) -> BTreeSet<Option<String>> {
        self.seen
            .iter()
            .map(|seen| seen.authorization.clone())
            .collect()
    }
}

/// The header of the user that the doubles know.
pub const USER_HEADER: &str = "Basic YWRhOmNvcnJlY3QtaG9yc2UtYmF0dGVyeQ==";

fn is_user(seen: &Seen) -> bool {
    seen.authorization.as_deref() == Some(USER_HEADER)
}

fn response(reply: Reply) -> Response<Body> {
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(reply.body)).unwrap()
}
