//! A server that answers as a test says, wrongly for the most part, and notes what it was asked.
#![allow(dead_code, reason = "each suite uses a part of it")]
#![allow(
    clippy::unwrap_used,
    reason = "a server that does not start fails its test"
)]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::serve::Listener;
use futures::{StreamExt, stream};
use http::HeaderMap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use windlass_addons::Source;
use windlass_addons::source::SecretData;
use windlass_api::addon::RepositorySpec;
use windlass_cluster::clock;

pub const CA: &str = include_str!("../pki/ca.crt");
pub const SERVER: (&str, &str) = (
    include_str!("../pki/server.crt"),
    include_str!("../pki/server.key"),
);
pub const CLIENT: (&str, &str) = (
    include_str!("../pki/client.crt"),
    include_str!("../pki/client.key"),
);

/// A small index, whole and valid.
pub const INDEX: &str = "apiVersion: v1\nentries:\n  app:\n  - name: app\n    version: 1.2.3\n    urls: [app-1.2.3.tgz]\n";

/// A request that came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub path: String,
    pub headers: HeaderMap,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Ends with this value.
pub struct Server {
    pub url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Over plain HTTP. `answer` gets the request and how many came before it.
    pub async fn start<F>(answer: F) -> Self
    where
        F: Fn(&Seen, usize) -> Response + Clone + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self::on(listener, format!("http://{address}"), answer)
    }

    /// Over TLS with the certificate of the tests' authority, and clients' certificates wanted or not.
    pub async fn start_tls<F>(wants_client: bool, answer: F) -> Self
    where
        F: Fn(&Seen, usize) -> Response + Clone + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = TlsListener {
            listener,
            acceptor: TlsAcceptor::from(Arc::new(config(wants_client))),
        };
        Self::on(tls, format!("https://{address}"), answer)
    }

    fn on<L, F>(listener: L, url: String, answer: F) -> Self
    where
        L: Listener<Addr = SocketAddr>,
        F: Fn(&Seen, usize) -> Response + Clone + Send + Sync + 'static,
    {
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let notes = Arc::clone(&seen);
        let router = Router::new().fallback(move |request: Request| {
            let now = Seen {
                path: request.uri().to_string(),
                headers: request.headers().clone(),
            };
            let mut notes = lock(&notes);
            let response = answer(&now, notes.len());
            notes.push(now);
            async move { response }
        });
        let task = clock::spawn("fault server", async move {
            axum::serve(listener, router).await.unwrap();
        });
        Self { url, seen, task }
    }

    /// What was asked so far.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.seen).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.unwrap();
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

fn config(wants_client: bool) -> ServerConfig {
    clock::install_crypto();
    let builder = ServerConfig::builder();
    let builder = if wants_client {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(CA.as_bytes()).unwrap())
            .unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
        builder.with_client_cert_verifier(verifier.unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let certificate = CertificateDer::from_pem_slice(SERVER.0.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(SERVER.1.as_bytes()).unwrap();
    builder.with_single_cert(vec![certificate], key).unwrap()
}

/// An answer with a status, headers and a body.
pub fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Body>) -> Response {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body.into()).unwrap()
}

/// The small index.
pub fn index() -> Response {
    answer(200, &[], INDEX)
}

/// Half of it, then the connection is cut.
pub fn cut() -> Response {
    let half = &INDEX.as_bytes()[..INDEX.len() / 2];
    let pieces = stream::iter([Ok(half), Err(std::io::Error::other("cut"))]);
    // The first half has to be out before the connection is cut.
    let pieces = pieces.then(|piece| async {
        if piece.is_err() {
            clock::sleep(Duration::from_millis(20)).await;
        }
        piece
    });
    answer(200, &[], Body::from_stream(pieces))
}

/// Half of it, then nothing.
pub fn slow() -> Response {
    let half = &INDEX.as_bytes()[..INDEX.len() / 2];
    let pieces = stream::iter([Ok::<_, std::io::Error>(half)]).chain(stream::pending());
    answer(200, &[], Body::from_stream(pieces))
}

/// A source of a url, with Secrets of text, that has two seconds.
pub fn source(url: &str, credentials: &[(&str, &str)], certificates: &[(&str, &str)]) -> Source {
    clock::install_crypto();
    let spec = RepositorySpec {
        url: url.to_owned(),
        timeout: Some("2s".to_owned()),
        ..RepositorySpec::default()
    };
    let secret = |data: &[(&str, &str)]| {
        let text = |(key, value): &(&str, &str)| ((*key).to_owned(), value.as_bytes().to_vec());
        (!data.is_empty()).then(|| data.iter().map(text).collect::<SecretData>())
    };
    let (credentials, certificates) = (secret(credentials), secret(certificates));
    Source::of(&spec, credentials.as_ref(), certificates.as_ref()).unwrap()
}
