//! A server in this process: answers requests of a client by a function, and notes them.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::io;
use std::sync::{Arc, Mutex};

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub accept: String,
    pub content_type: String,
    pub body: Value,
}

impl Seen {
    /// Method and path.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// What the server does.
pub enum Reply {
    /// Answers.
    Json(u16, Value),
    /// Answers with a header and a text.
    Text(u16, &'static str, &'static str, String),
    /// Answers line by line, as they come.
    Stream(Lines),
    /// Never answers.
    Silence,
    /// Breaks the connection off.
    Break,
}

pub type Lines = UnboundedReceiver<Result<String, io::Error>>;
pub type LinesSender = UnboundedSender<Result<String, io::Error>>;

/// A stream of lines, and its end in hand.
pub fn lines() -> (LinesSender, Lines) {
    unbounded()
}

pub type Log = Arc<Mutex<Vec<Seen>>>;

/// A client of a server that answers by `handler`, and what the server has seen.
pub fn server(handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> (Client, Log) {
    let (service, log) = service(handler);
    (Client::new(service, "default"), log)
}

/// A server as a service.
pub type FakeService =
    tower::util::BoxCloneService<Request<Body>, Response<axum::body::Body>, io::Error>;

/// The server as a service, to put layers around.
pub fn service(handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> (FakeService, Log) {
    let log = Log::default();
    let handler = Arc::new(handler);
    let seen = Arc::clone(&log);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (handler, log) = (Arc::clone(&handler), Arc::clone(&seen));
        async move {
            let request = read(request).await;
            log.lock().unwrap().push(request.clone());
            answer(handler(&request)).await
        }
    });
    (FakeService::new(service), log)
}

async fn read(request: Request<Body>) -> Seen {
    let (head, body) = request.into_parts();
    let header = |name: &str| {
        head.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
            .to_owned()
    };
    Seen {
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        accept: header("accept"),
        content_type: header("content-type"),
        body: serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default(),
        method: head.method,
    }
}

async fn answer(reply: Reply) -> Result<Response<axum::body::Body>, io::Error> {
    use axum::body::Body;
    let response = match reply {
        Reply::Json(code, body) => Response::builder()
            .status(code)
            .body(Body::from(body.to_string())),
        Reply::Text(code, header, value, text) => Response::builder()
            .status(code)
            .header(header, value)
            .body(Body::from(text)),
        Reply::Stream(lines) => Response::builder()
            .status(200)
            .body(Body::from_stream(lines)),
        Reply::Silence => std::future::pending().await,
        Reply::Break => {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionReset,
                "connection reset by peer",
            ));
        }
    };
    Ok(response.unwrap())
}

/// A refusal as API servers put it.
pub fn refusal(code: u16, reason: &str, message: &str) -> Reply {
    Reply::Json(code, status(code, reason, message))
}

/// A Status object.
pub fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
           "code": code, "reason": reason, "message": message})
}

/// The requests that a server has seen, one line each; forgets them.
pub fn drain(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.lock().unwrap())
        .iter()
        .map(Seen::line)
        .collect()
}
