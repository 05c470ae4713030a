//! Connecting to an API server.

use std::borrow::Borrow;
use std::time::Duration;

use http::HeaderValue;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::limit::ConcurrencyLimitLayer;

use crate::error::chain;
use crate::rate::{Rate, RateLayer};
use crate::requests::RequestCounter;

/// A watch may be silent for minutes; the server ends it after five at most.
const READ_TIMEOUT: Duration = Duration::from_secs(330);

/// Why a connection could not be prepared. Never holds a credential.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
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
    /// How we introduce ourselves in the server's audit log.
    pub user_agent: String,
    /// Requests in flight at once; a watch counts until it is established.
    pub concurrency: usize,
    /// Limit for a response to begin; see [`crate::TransportLayer`].
    pub request_timeout: Duration,
    /// Limit for the TCP and TLS handshakes.
    pub connect_timeout: Duration,
    /// Whether everything but a GET is refused before it is sent.
    pub read_only: bool,
    /// Limit for the requests per second; none means none.
    pub rate: Option<Rate>,
}

impl ConnectOptions {
    /// Sensible limits for `target`.
    #[must_use]
    pub fn new(target: impl Into<String>) -> Self {
        Self {
            target: target.into(),
            user_agent: concat!("windlass/", env!("CARGO_PKG_VERSION")).to_owned(),
            concurrency: 64,
            request_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            read_only: false,
            rate: None,
        }
    }

    /// For a client that may only read.
    #[must_use]
    pub fn reading(self) -> Self {
        Self {
            read_only: true,
            ..self
        }
    }
}

/// Makes a client for the current context of a kubeconfig. Nothing is sent yet, and nothing refused
/// here: what comes from a Secret goes through [`crate::parse_stored_kubeconfig`] first.
///
/// The client does not retry by itself: retrying, with backoff and jitter, is the queue's job.
///
/// # Errors
/// When the kubeconfig has no usable server or credentials.
pub async fn connect(
    kubeconfig: impl Borrow<Kubeconfig>,
    options: &ConnectOptions,
    requests: &RequestCounter,
) -> Result<Client, ConnectError> {
    let kubeconfig = kubeconfig.borrow().clone();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| ConnectError::Unusable(chain(&error)))?;
    let user_agent = HeaderValue::from_str(&options.user_agent)
        .map_err(|_| ConnectError::Unusable("the user agent is no header value".to_owned()))?;
    config.headers.push((http::header::USER_AGENT, user_agent));
    config.connect_timeout = Some(options.connect_timeout);
    config.read_timeout = Some(READ_TIMEOUT);
    config.default_retry = false;
    let stack =
        ClientBuilder::try_from(config).map_err(|error| ConnectError::Unusable(chain(&error)))?;
    // The layer added last comes first: a request waits for its place before its time runs. A place is
    // given back when the response begins, so that open watches hold none.
    Ok(stack
        .with_layer(
            &requests
                .layer(&options.target, options.request_timeout)
                .read_only(options.read_only),
        )
        .with_layer(&ConcurrencyLimitLayer::new(options.concurrency.max(1)))
        .with_layer(&RateLayer(options.rate))
        .build())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::install_crypto;
    use prometheus::Registry;

    fn kubeconfig(server: &str) -> Kubeconfig {
        Kubeconfig::from_yaml(&format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\nusers: [{{name: u, user: {{token: word}}}}]\n"
        ))
        .unwrap()
    }

    #[tokio::test]
    async fn a_usable_kubeconfig_connects_and_others_say_why_not() {
        install_crypto();
        let requests = RequestCounter::new(&Registry::new()).unwrap();
        let options = ConnectOptions::new("m1");
        let good = kubeconfig("https://127.0.0.1:1");
        assert!(connect(&good, &options, &requests).await.is_ok());
        assert!(
            connect(good.clone(), &options, &requests).await.is_ok(),
            "owned or borrowed"
        );

        let bad = connect(kubeconfig("https://[nowhere"), &options, &requests)
            .await
            .err()
            .unwrap();
        assert!(
            matches!(&bad, ConnectError::Unusable(why) if !why.contains("word")),
            "{bad}"
        );
        let odd = ConnectOptions {
            user_agent: "a\nb".into(),
            ..options
        };
        assert!(connect(&good, &odd, &requests).await.is_err());
    }
}
