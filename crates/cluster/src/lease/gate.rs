//! The gate that every write goes through: open only while the lease is ours beyond doubt.
//!
//! It closes by itself, by the clock, at the renew deadline, also in a process that was stopped meanwhile;
//! what was let through before is cut at the end of the lease, which moves on as the lease is renewed.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::poll_fn;
use tokio::sync::Notify;

use super::step::Timing;
use crate::clock::{self, Instant};
use crate::error::ApiError;
use crate::exchange::Failure;

/// What a write is refused with while the gate is closed.
pub const NOT_LEADER: &str = "not the leader";

/// See the module. Clones share the gate. The default one is always open, for who needs no lease.
#[derive(Clone, Default)]
pub struct Gate {
    inner: Option<Arc<Inner>>,
}

struct Inner {
    timing: Timing,
    base: Instant,
    /// When the last successful renewal was sent, in nanoseconds since `base`, plus 1; 0 before the first.
    renewed: AtomicU64,
    shut: AtomicBool,
    /// Requests that were let through and have not ended.
    running: AtomicUsize,
    idle: Notify,
}

impl Gate {
    /// A gate that is closed until the lease is ours.
    #[must_use]
    pub fn closed(timing: Timing) -> Self {
        let inner = Inner {
            timing,
            base: clock::monotonic(),
            renewed: AtomicU64::new(0),
            shut: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            idle: Notify::new(),
        };
        Self {
            inner: Some(Arc::new(inner)),
        }
    }

    /// Whether a write may be started.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| {
            !inner.shut.load(Ordering::SeqCst) && inner.holds_for(inner.timing.renew_deadline())
        })
    }

    /// Closes the gate for good; what was let through goes on.
    pub fn close(&self) {
        if let Some(inner) = &self.inner {
            inner.shut.store(true, Ordering::SeqCst);
        }
    }

    /// Waits, after [`Self::close`], until what was let through has ended; tells whether it has in time.
    pub async fn drained(&self, limit: Duration) -> bool {
        let Some(inner) = &self.inner else {
            return true;
        };
        let idle = async {
            while inner.running.load(Ordering::SeqCst) > 0 {
                inner.idle.notified().await;
            }
        };
        tokio::time::timeout(limit, idle).await.is_ok()
    }

    /// Opens the gate, or keeps it open: a renewal sent at that moment has succeeded.
    pub(super) fn renewed(&self, sent: Instant) {
        if let Some(inner) = &self.inner {
            let since = sent.saturating_duration_since(inner.base).as_nanos();
            let since = u64::try_from(since).unwrap_or(u64::MAX - 1);
            inner.renewed.fetch_max(since + 1, Ordering::SeqCst);
        }
    }

    /// Lets a request through, or refuses it; cuts it when the lease ends before its answer.
    pub(crate) async fn pass<T>(
        &self,
        request: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let Some(inner) = &self.inner else {
            return request.await;
        };
        // Counted before it is asked, so that nothing slips through behind `drained`.
        let _running = Running::begin(inner);
        if !self.is_open() {
            return Err(Failure::Unsent(ApiError::transient(NOT_LEADER)));
        }
        let mut request = pin!(request);
        let mut alarm = pin!(clock::sleep_until(inner.ends()));
        poll_fn(|context| {
            loop {
                // The clock first: a process that was stopped must not go on with what it had begun.
                if !inner.holds_for(inner.timing.lease()) {
                    let cut = format!("{NOT_LEADER} any more; the lease ended before the answer");
                    return Poll::Ready(Err(Failure::Lost(ApiError::transient(cut))));
                }
                if let Poll::Ready(answer) = request.poll_unpin(context) {
                    return Poll::Ready(answer);
                }
                if alarm.poll_unpin(context).is_pending() {
                    return Poll::Pending;
                }
                // The lease was renewed meanwhile.
                alarm.set(clock::sleep_until(inner.ends()));
            }
        })
        .await
    }
}

impl Inner {
    fn since(&self) -> Option<Instant> {
        let renewed = self.renewed.load(Ordering::SeqCst).checked_sub(1)?;
        Some(self.base + Duration::from_nanos(renewed))
    }

    fn holds_for(&self, time: Duration) -> bool {
        self.since()
            .is_some_and(|since| clock::monotonic() < since + time)
    }

    fn ends(&self) -> Instant {
        self.since().unwrap_or(self.base) + self.timing.lease()
    }
}

/// Counts a request for as long as it lives, however it ends.
struct Running<'a>(&'a Inner);

impl<'a> Running<'a> {
    fn begin(inner: &'a Inner) -> Self {
        inner.running.fetch_add(1, Ordering::SeqCst);
        Self(inner)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.idle.notify_one();
        }
    }
}
