//! The server for `/metrics`, `/healthz` and `/readyz`, and the process' own metrics.

mod process;

pub use process::process;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::{Encoder, Registry, TextEncoder};
use tokio::net::TcpListener;

/// Tells what is not ready yet; empty means ready.
#[derive(Clone)]
pub struct Readiness(Arc<dyn Fn() -> Vec<String> + Send + Sync>);

impl Readiness {
    /// Asks `waits_for` at every probe.
    pub fn new(waits_for: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(waits_for))
    }
}

#[derive(Clone)]
struct Served {
    registry: Registry,
    readiness: Readiness,
}

/// Binds the address, and gives the future that serves until it is dropped.
///
/// # Errors
/// When the address can't be bound.
pub async fn serve(
    address: SocketAddr,
    registry: Registry,
    readiness: Readiness,
) -> std::io::Result<impl Future<Output = ()> + Send> {
    let listener = TcpListener::bind(address).await?;
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .with_state(Served {
            registry,
            readiness,
        });
    Ok(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "metrics are not served any more");
        }
    })
}

async fn metrics(State(served): State<Served>) -> Response {
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    match encoder.encode(&served.registry.gather(), &mut text) {
        Ok(()) => (
            [(header::CONTENT_TYPE, encoder.format_type().to_owned())],
            text,
        )
            .into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn readyz(State(served): State<Served>) -> Response {
    let waits_for = (served.readiness.0)();
    if waits_for.is_empty() {
        return "ok".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, waits_for.join("\n")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn metrics_and_probes() {
        let registry = Registry::new();
        let counter = prometheus::IntCounter::new("windlass_test_total", "A test.").unwrap();
        registry.register(Box::new(counter.clone())).unwrap();
        counter.inc();
        let synced = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&synced);
        let readiness = Readiness::new(move || {
            if seen.load(Ordering::SeqCst) {
                Vec::new()
            } else {
                vec!["placements".to_owned(), "bindings".to_owned()]
            }
        });

        // The address in use is only known to whoever chose it; a free port is found by asking for one.
        let address = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap();
        let server = serve(address, registry.clone(), readiness.clone())
            .await
            .unwrap();
        let asked = async {
            let waiting = get(address, "/readyz").await;
            assert!(waiting.starts_with("HTTP/1.1 503"), "{waiting}");
            assert!(waiting.ends_with("placements\nbindings"), "{waiting}");
            assert!(
                get(address, "/healthz").await.starts_with("HTTP/1.1 200"),
                "healthy while it starts"
            );
            synced.store(true, Ordering::SeqCst);
            assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
            let metrics = get(address, "/metrics").await;
            assert!(
                metrics.contains("text/plain") && metrics.contains("windlass_test_total 1"),
                "{metrics}"
            );
            assert!(get(address, "/other").await.starts_with("HTTP/1.1 404"));
            assert!(
                serve(address, registry, readiness).await.is_err(),
                "the address is taken"
            );
        };
        tokio::select! {
            () = server => panic!("the server has ended"),
            () = asked => {}
        }
    }
}
