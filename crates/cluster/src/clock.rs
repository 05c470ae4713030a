//! Real time, randomness and task spawning; nothing else in the project touches them.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the module that the other ones are sent to"
)]

use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinHandle;
pub use tokio::time::Instant;

/// Wall-clock time, truncated to seconds as API times are.
#[must_use]
pub fn now() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The local monotonic clock: what every deadline is measured with.
#[must_use]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// Runs a task. `name` appears in logs when it ends by a panic.
pub fn spawn<F>(name: &'static str, task: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tracing::trace!(task = name, "spawned");
    tokio::spawn(task)
}

/// Waits for a while.
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Waits until a moment of the monotonic clock.
pub async fn sleep_until(deadline: Instant) {
    tokio::time::sleep_until(deadline).await;
}

/// A duration within ± `fraction` of the given one, so that many clients don't act in step.
#[must_use]
pub fn jitter(duration: Duration, fraction: f64) -> Duration {
    let random = std::hash::RandomState::new().build_hasher().finish();
    // The upper 53 bits fill a f64's mantissa.
    let unit = (random >> 11) as f64 / (1u64 << 53) as f64;
    duration.mul_f64((1.0 + fraction * (2.0 * unit - 1.0)).max(0.0))
}

/// Chooses the TLS implementation of the process; call it first in `main`.
pub fn install_crypto() {
    // An error means that a provider is there already, which is all that is wanted.
    drop(rustls::crypto::ring::default_provider().install_default());
}
