//! The loop around every actor: take a key, look, say when to look again.

use std::fmt::Display;
use std::future::Future;
use std::hash::Hash;
use std::time::Duration;

use tracing::Instrument;
use windlass_cluster::{ApiError, Queue, clock};

use crate::observe::actors;

/// When a key is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When something changes.
    Event,
    /// After a while, or when something changes.
    After(Duration),
    /// After the key's backoff, and at least after the hint, or when something changes.
    Backoff(Option<Duration>),
}

/// Works on a queue until it is closed. `what` names the actor in metrics, and the key in log lines.
pub async fn work<K, F>(queue: Queue<K>, what: &'static str, process: impl Fn(K) -> F)
where
    K: Clone + Eq + Hash + Display,
    F: Future<Output = Result<Next, ApiError>>,
{
    while let Some(key) = queue.next().await {
        // At the level of errors, so that the fields are on every line that is logged at all.
        let span = tracing::error_span!(
            "work",
            placement = tracing::field::Empty,
            binding = tracing::field::Empty,
            "override" = tracing::field::Empty,
            cluster = tracing::field::Empty,
            repository = tracing::field::Empty,
            addon = tracing::field::Empty
        );
        span.record(what, tracing::field::display(&key));
        let begun = clock::monotonic();
        // On the heap while it runs: many workers wait, and a look is large.
        let look = Box::pin(process(key.clone()));
        let result = look.instrument(span.clone()).await;
        actors::looked(what, clock::monotonic() - begun, result.is_err());
        match result {
            Ok(Next::Event) => queue.forget(&key),
            Ok(Next::After(delay)) => {
                queue.forget(&key);
                queue.add_after(key.clone(), delay);
            }
            Ok(Next::Backoff(hint)) => {
                queue.retry(key.clone(), hint);
            }
            Err(error) => {
                let delay = queue.retry(key.clone(), error.retry_after());
                tracing::debug!(parent: &span, %error, ?delay, "tried again");
            }
        }
        queue.done(&key);
    }
}
