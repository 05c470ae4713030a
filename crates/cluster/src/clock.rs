//! Real time, randomness and task spawning; nothing else in the project touches them.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the module that the other ones are sent to"
)]

use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use tokio::task::JoinHandle;
pub use tokio::time::Instant;

/// Tasks that are running.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Wall-clock time, truncated to seconds as API times are.
#[must_use]
pub fn now() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Wall-clock time in full, for what orders or names things within a second: logs and events.
#[must_use]
pub fn precise_now() -> Timestamp {
    Timestamp::now()
}

/// The local monotonic clock: what every deadline is measured with.
#[must_use]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// Runs a task. Its name is logged should it panic, for nobody may be waiting for its result.
pub fn spawn<F>(name: &'static str, task: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(async move {
        let _running = Running::begin();
        match AssertUnwindSafe(task).catch_unwind().await {
            Ok(output) => output,
            Err(panic) => {
                tracing::error!(task = name, "a task has panicked");
                resume_unwind(panic)
            }
        }
    })
}

/// Runs what blocks or computes for long, on a thread for such work. It can't be stopped from outside: see to
/// it that the work ends by itself when nobody waits any more. Its name is logged should it panic.
pub fn spawn_blocking<F, T>(name: &'static str, work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    tokio::task::spawn_blocking(move || {
        let _running = Running::begin();
        std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            tracing::error!(task = name, "a task has panicked");
            resume_unwind(panic)
        })
    })
}

/// How many tasks are running: a number that only grows tells of a leak.
#[must_use]
pub fn running_tasks() -> usize {
    RUNNING.load(Ordering::Relaxed)
}

/// Counts a task for as long as it lives, however it ends.
struct Running;

impl Running {
    fn begin() -> Self {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for a while.
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Waits until a moment of the monotonic clock.
pub async fn sleep_until(deadline: Instant) {
    tokio::time::sleep_until(deadline).await;
}

/// A random number. Not for secrets.
#[must_use]
pub fn random() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

/// A duration within ± `fraction` of the given one, so that many clients don't act in step.
#[must_use]
pub fn jitter(duration: Duration, fraction: f64) -> Duration {
    // The upper 53 bits fill a f64's mantissa.
    let unit = (random() >> 11) as f64 / (1u64 << 53) as f64;
    let factor = (1.0 + fraction * (2.0 * unit - 1.0)).max(0.0);
    Duration::try_from_secs_f64(duration.as_secs_f64() * factor).unwrap_or(duration)
}

/// Chooses the TLS implementation of the process; call it first in `main`.
pub fn install_crypto() {
    // An error means that a provider is there already, which is all that is wanted.
    drop(rustls::crypto::ring::default_provider().install_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_its_fraction() {
        let second = Duration::from_secs(1);
        for _ in 0..1000 {
            let jittered = jitter(second, 0.2);
            assert!(
                jittered >= Duration::from_millis(800) && jittered <= Duration::from_millis(1200)
            );
        }
        assert_eq!(jitter(second, 0.0), second);
        assert!(
            jitter(Duration::MAX, 1.0) > Duration::ZERO,
            "does not overflow"
        );
    }

    #[tokio::test]
    async fn a_panic_reaches_whoever_waits() {
        let handle = spawn("test", async { panic!("on purpose") });
        assert!(handle.await.unwrap_err().is_panic());
        let handle = spawn_blocking("test", || panic!("on purpose"));
        assert!(handle.await.unwrap_err().is_panic());
    }
}
