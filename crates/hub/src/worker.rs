//! The loop around every actor: take a key, look, say when to look again.

use std::future::Future;
use std::time::Duration;

use windlass_cluster::{ApiError, Queue};

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

/// Works on a queue until it is closed.
pub async fn work<F>(queue: Queue<String>, what: &'static str, process: impl Fn(String) -> F)
where
    F: Future<Output = Result<Next, ApiError>>,
{
    while let Some(key) = queue.next().await {
        match process(key.clone()).await {
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
                tracing::debug!(what, key, %error, ?delay, "tried again");
            }
        }
        queue.done(&key);
    }
}
