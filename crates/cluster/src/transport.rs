//! What every request to an API server goes through: counting, and a limit for the response to begin.
//!
//! The limit covers the time until the response's head is there. A watch sends its head at once, so it
//! is not cut short; a server that takes a list or a write and then says nothing no longer holds a place
//! among the requests in flight.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response};
use tower::{BoxError, Layer, Service};

use crate::requests::RequestCounter;

/// See the module. Made by [`RequestCounter::layer`].
#[derive(Clone)]
pub struct TransportLayer {
    requests: RequestCounter,
    target: String,
    limit: Duration,
    read_only: bool,
}

impl TransportLayer {
    pub(crate) fn new(requests: RequestCounter, target: String, limit: Duration) -> Self {
        Self {
            requests,
            target,
            limit,
            read_only: false,
        }
    }

    /// Lets nothing through that could change anything: only GET requests are sent.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }
}

impl<S> Layer<S> for TransportLayer {
    type Service = Transport<S>;

    fn layer(&self, inner: S) -> Transport<S> {
        Transport {
            inner,
            with: self.clone(),
        }
    }
}

/// The service that [`TransportLayer`] makes.
#[derive(Clone)]
pub struct Transport<S> {
    inner: S,
    with: TransportLayer,
}

/// The response of a [`Transport`] to come.
type Answer<B> = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

impl<S, A, B> Service<Request<A>> for Transport<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Answer<B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<A>) -> Answer<B> {
        if self.with.read_only && *request.method() != Method::GET {
            let text = format!("{} is not sent: this client only reads", request.method());
            return Box::pin(async move { Err(text.into()) });
        }
        let pending = self.with.requests.begin(&self.with.target, &request);
        let limit = self.with.limit;
        let response = self.inner.call(request);
        Box::pin(async move {
            match tokio::time::timeout(limit, response).await {
                Ok(Ok(response)) => {
                    pending.end(response.status().as_str());
                    Ok(response)
                }
                Ok(Err(error)) => {
                    pending.end("error");
                    Err(error.into())
                }
                Err(_) => {
                    pending.end("timeout");
                    Err(format!("the server has not answered within {limit:?}").into())
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use tower::{ServiceExt, service_fn};

    use super::*;

    #[tokio::test]
    async fn a_client_that_only_reads_sends_nothing_else() {
        let requests = RequestCounter::new(&Registry::new()).unwrap();
        let layer = requests.layer("hub", Duration::from_secs(1));
        let server = service_fn(|request: Request<()>| async move {
            Ok::<_, BoxError>(Response::new(request.method().clone()))
        });
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            let request = || {
                Request::builder()
                    .method(method)
                    .uri("/api/v1/pods")
                    .body(())
                    .unwrap()
            };
            let reads = layer
                .clone()
                .read_only(true)
                .layer(server)
                .oneshot(request())
                .await;
            assert_eq!(reads.is_ok(), method == "GET", "{method}");
            let writes = layer.clone().layer(server).oneshot(request()).await;
            assert!(writes.is_ok(), "{method}");
        }
    }
}
