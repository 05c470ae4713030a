//! Connecting to an API server.

use std::time::Duration;

use http::{HeaderValue, Request};
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::limit::ConcurrencyLimitLayer;
use tower::util::MapRequestLayer;

use crate::requests::RequestCounter;

/// Why a connection could not be prepared. Never holds a credential.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig is not one that we accept.
    #[error("the kubeconfig is refused: {0}")]
    Refused(String),
    /// The kubeconfig does not lead to a server.
    #[error("the kubeconfig can't be used: {0}")]
    Unusable(String),
}

/// How to talk to one API server.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Name of the server in metrics: `hub`, or the member's name.
    pub target: String,
    /// Requests in flight at once; watches don't count.
    pub concurrency: usize,
    /// Limit for the TCP and TLS handshakes.
    pub connect_timeout: Duration,
}

impl ConnectOptions {
    /// Sensible limits for `target`.
    #[must_use]
    pub fn new(target: impl Into<String>) -> Self {
        Self {
            target: target.into(),
            concurrency: 64,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// Makes a client for the current context of a kubeconfig. Nothing is sent yet.
///
/// The client does not retry by itself: retrying, with backoff and jitter, is the queue's job.
///
/// # Errors
/// When the kubeconfig has no usable server or credentials.
pub async fn connect(
    kubeconfig: Kubeconfig,
    options: &ConnectOptions,
    requests: &RequestCounter,
) -> Result<Client, ConnectError> {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| ConnectError::Unusable(error.to_string()))?;
    config.connect_timeout = Some(options.connect_timeout);
    // A watch may be silent for minutes; the server ends it after five at most.
    config.read_timeout = Some(Duration::from_secs(330));
    config.default_retry = false;
    config.headers.push((
        http::header::USER_AGENT,
        HeaderValue::from_static("windlass"),
    ));
    build(config, options, requests).map_err(|error| ConnectError::Unusable(error.to_string()))
}

fn build(
    config: Config,
    options: &ConnectOptions,
    requests: &RequestCounter,
) -> Result<Client, kube::Error> {
    let target = options.target.clone();
    let requests = requests.clone();
    let count = MapRequestLayer::new(move |request: Request<Body>| {
        requests.count(&target, &request);
        request
    });
    // The limit sees a request until its response begins, so an open watch does not hold a place.
    Ok(ClientBuilder::try_from(config)?
        .with_layer(&ConcurrencyLimitLayer::new(options.concurrency))
        .with_layer(&count)
        .build())
}
