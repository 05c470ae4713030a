//! The server for `/metrics`, `/healthz` and `/readyz`.

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
        .with_state(Served { registry, readiness });
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
        Ok(()) => ([(header::CONTENT_TYPE, encoder.format_type().to_owned())], text).into_response(),
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
