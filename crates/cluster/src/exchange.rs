//! One request and its answer: read by ourselves rather than by kube's client, for three reasons. The
//! client drops the Retry-After header, it logs an answer that it can't decode (which may be a Secret),
//! and it does not tell an answer from silence, on which the settling of lost writes rests.

use std::time::Duration;

use http::{HeaderMap, Request};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde::de::DeserializeOwned;

use crate::error::ApiError;

/// How a request failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing was sent.
    Unsent(ApiError),
    /// The server refused, and did nothing.
    Refused(Box<Status>, Option<Duration>),
    /// It may or may not have been done.
    Lost(ApiError),
}

impl Failure {
    /// For requests that do no harm when they are sent again.
    pub(crate) fn into_error(self) -> ApiError {
        match self {
            Self::Refused(status, hint) => ApiError::from_status(&status).hinted(hint),
            Self::Unsent(error) | Self::Lost(error) => error,
        }
    }
}

/// Sends a request and reads its whole answer within `limit`.
pub(crate) async fn exchange<T: DeserializeOwned>(
    client: &Client,
    request: Request<Vec<u8>>,
    limit: Duration,
) -> Result<T, Failure> {
    tokio::time::timeout(limit, answer(client, request))
        .await
        .unwrap_or_else(|_| {
            Err(Failure::Lost(ApiError::transient(format!(
                "no answer within {limit:?}"
            ))))
        })
}

async fn answer<T: DeserializeOwned>(
    client: &Client,
    request: Request<Vec<u8>>,
) -> Result<T, Failure> {
    let lost = |error| Failure::Lost(ApiError::from_kube(error));
    let response = client
        .send(request.map(Body::from))
        .await
        .map_err(|error| match ApiError::from_kube(error) {
            refused @ ApiError::Rejected(_) => Failure::Unsent(refused),
            other => Failure::Lost(other),
        })?;
    let (head, body) = response.into_parts();
    let bytes = body.collect_bytes().await.map_err(lost)?;
    if head.status.is_success() {
        return serde_json::from_slice(&bytes)
            .map_err(|error| Failure::Lost(ApiError::unreadable(&error)));
    }
    let mut status = serde_json::from_slice::<Status>(&bytes)
        .unwrap_or_else(|_| Status::failure(String::from_utf8_lossy(&bytes).trim(), ""));
    status.code = head.status.as_u16();
    let hint = retry_after(&head.headers);
    Err(if outcome_unknown(&status) {
        Failure::Lost(ApiError::from_status(&status).hinted(hint))
    } else {
        Failure::Refused(Box::new(status), hint)
    })
}

/// Whether the server itself does not know if a write was done: it gave up waiting for its own storage.
fn outcome_unknown(status: &Status) -> bool {
    match status.code {
        408 | 504 => true,
        500 => status.message.contains("etcdserver") && !status.message.contains("too large"),
        _ => false,
    }
}

/// Seconds are what API servers send; a date would be a proxy's.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(http::header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}
