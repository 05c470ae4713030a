//! A web server that serves folders, does as it is told, and remembers what it was asked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request as Asked;
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, Response, StatusCode};
use futures::{StreamExt, stream};

/// What is answered.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A status and a body. A body with 200 has an `ETag` by its content, and `If-None-Match` is heeded.
    Whole(u16, Vec<u8>),
    /// As [`Self::Whole`], with further headers.
    With(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// The connection breaks in the middle of this body.
    Cut(Vec<u8>),
    /// The body begins so, and goes on never.
    Stuck(Vec<u8>),
    /// Only for this value of the header `Authorization`; 401 for all others.
    Guarded(String, Box<Reply>),
}

impl Reply {
    /// 200 with a text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Whole(200, text.as_bytes().to_vec())
    }

    /// A status without a body.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::Whole(status, Vec::new())
    }
}

/// What was asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// Path, without the query.
    pub path: String,
    /// When.
    pub at: Instant,
    /// Status of the answer.
    pub status: u16,
}

#[derive(Default)]
struct State {
    replies: BTreeMap<String, Reply>,
    folders: BTreeMap<String, PathBuf>,
    requests: Vec<Request>,
}

/// See the module. It ends when it is dropped.
pub struct Web {
    port: u16,
    state: Arc<Mutex<State>>,
    // Held so that the server lives.
    _runtime: tokio::runtime::Runtime,
}

impl Web {
    /// Starts one that answers 404 to everything.
    ///
    /// # Panics
    /// When there is no port for it.
    #[must_use]
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        let app = Router::new().fallback(move |asked: Asked| {
            let answer = answer(&shared, &asked);
            async move { answer }
        });
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self {
            port,
            state,
            _runtime: runtime,
        }
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Answers so at a path from now on, whatever a folder has there.
    pub fn reply(&self, path: &str, reply: Reply) {
        self.lock().replies.insert(path.to_owned(), reply);
    }

    /// Serves a folder's files below a path, as they are when they are asked for.
    pub fn serve(&self, path: &str, folder: &Path) {
        let (path, folder) = (path.to_owned(), folder.to_owned());
        self.lock().folders.insert(path, folder);
    }

    /// What was asked at a path so far, oldest first.
    #[must_use]
    pub fn requests(&self, path: &str) -> Vec<Request> {
        let state = self.lock();
        let at_path = state.requests.iter().filter(|asked| asked.path == path);
        at_path.cloned().collect()
    }

    /// How often anything was asked so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().requests.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(state: &Mutex<State>, asked: &Asked) -> Response<Body> {
    let path = asked.uri().path().to_owned();
    let mut state = lock(state);
    let reply = state.replies.get(&path).cloned();
    let reply = reply.or_else(|| {
        let (prefix, folder) = state.folders.iter().find(|(prefix, _)| {
            path.strip_prefix(prefix.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
        })?;
        let rest = path.strip_prefix(prefix.as_str())?.trim_start_matches('/');
        let file = std::fs::read(folder.join(rest)).ok()?;
        Some(Reply::Whole(200, file))
    });
    let response = respond(reply.unwrap_or_else(|| Reply::status(404)), asked.headers());
    state.requests.push(Request {
        path,
        at: Instant::now(),
        status: response.status().as_u16(),
    });
    response
}

fn respond(reply: Reply, asked: &HeaderMap) -> Response<Body> {
    let header = |name| asked.get(name).and_then(|value| value.to_str().ok());
    let mut response = Response::builder();
    let built = match reply {
        Reply::Whole(status, body) => {
            if status == 200 {
                use std::hash::{DefaultHasher, Hash, Hasher};
                let mut hasher = DefaultHasher::new();
                body.hash(&mut hasher);
                let tag = format!("\"{:x}\"", hasher.finish());
                if header(IF_NONE_MATCH) == Some(&*tag) {
                    return respond(Reply::status(304), asked);
                }
                response = response.header(ETAG, tag);
            }
            response.status(status).body(body.into())
        }
        Reply::With(status, headers, body) => {
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.status(status).body(body.into())
        }
        Reply::Cut(body) => {
            let more = body.len() + 1000;
            let first = stream::iter([Ok(Bytes::from(body))]);
            let cut = stream::once(async {
                // What was written before goes out first.
                tokio::task::yield_now().await;
                Err(std::io::Error::other("cut"))
            });
            let body = Body::from_stream(first.chain(cut));
            response.header(CONTENT_LENGTH, more).body(body)
        }
        Reply::Stuck(body) => {
            let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from(body))]);
            response.body(Body::from_stream(first.chain(stream::pending())))
        }
        Reply::Guarded(wanted, reply) if header(AUTHORIZATION) == Some(&*wanted) => {
            return respond(*reply, asked);
        }
        Reply::Guarded(..) => {
            let body = Body::from("who are you?");
            response.status(StatusCode::UNAUTHORIZED).body(body)
        }
    };
    built.expect("it is a response")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_replies_and_etags() {
        let folder = std::env::temp_dir().join(format!("windlass-web-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("a"), "in the folder").expect("a file");
        let web = Web::start();
        web.serve("/files", &folder);
        web.reply("/files/b", Reply::status(503));
        let ask = |path: &str, header: &str| -> String {
            use std::io::{Read, Write};
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", web.port)).expect("open");
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: x\r\n{header}Connection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).expect("sent");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("answered");
            text
        };
        let first = ask("/files/a", "");
        assert!(first.starts_with("HTTP/1.1 200") && first.ends_with("in the folder"));
        let tag = first.lines().find_map(|line| line.strip_prefix("etag: "));
        let again = format!("If-None-Match: {}\r\n", tag.expect("an ETag"));
        assert!(ask("/files/a", &again).starts_with("HTTP/1.1 304"));
        assert!(ask("/files/b", "").starts_with("HTTP/1.1 503"));
        assert!(ask("/filesa", "").starts_with("HTTP/1.1 404"));
        let statuses: Vec<u16> = web
            .requests("/files/a")
            .iter()
            .map(|asked| asked.status)
            .collect();
        assert_eq!(statuses, [200, 304]);
        drop(std::fs::remove_dir_all(&folder));
    }
}
