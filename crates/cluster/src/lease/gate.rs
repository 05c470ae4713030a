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

#[cfg(test)]
mod tests {
    use super::*;

    /// Lease 10 s, renew deadline 7 s.
    fn gate() -> Gate {
        Gate::closed(Timing::default())
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A request that is answered after so many seconds.
    async fn request(seconds: u64) -> Result<u64, Failure> {
        clock::sleep(secs(seconds)).await;
        Ok(seconds)
    }

    fn refused(result: &Result<u64, Failure>) -> bool {
        matches!(result, Err(Failure::Unsent(error)) if error.is_outage() && error.message() == NOT_LEADER)
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_open_from_a_renewal_to_the_deadline() {
        assert!(
            Gate::default().is_open(),
            "who needs no lease is let through"
        );
        assert_eq!(Gate::default().pass(request(99)).await.unwrap(), 99);
        let gate = gate();
        assert!(refused(&gate.pass(request(0)).await), "not led yet");
        gate.renewed(clock::monotonic());
        assert_eq!(gate.pass(request(6)).await.unwrap(), 6);
        clock::sleep(secs(1)).await;
        assert!(refused(&gate.pass(request(0)).await), "7 s are over");
        gate.renewed(clock::monotonic());
        assert!(gate.is_open());
        gate.renewed(clock::monotonic() - secs(7));
        assert!(
            gate.is_open(),
            "an older answer that is late changes nothing"
        );
        gate.close();
        gate.renewed(clock::monotonic());
        assert!(refused(&gate.pass(request(0)).await), "closed is closed");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_under_way_is_cut_at_the_end_of_the_lease_unless_that_moves_on() {
        let gate = gate();
        let began = clock::monotonic();
        gate.renewed(began);
        clock::sleep(secs(6)).await;
        let cut = gate.pass(request(60)).await;
        assert!(matches!(&cut, Err(Failure::Lost(error)) if error.message().contains(NOT_LEADER)));
        assert_eq!(clock::monotonic() - began, secs(10));

        gate.renewed(clock::monotonic());
        let renewals = async {
            for _ in 0..10 {
                clock::sleep(secs(2)).await;
                gate.renewed(clock::monotonic());
            }
        };
        let (slow, ()) = futures::join!(gate.pass(request(25)), renewals);
        assert_eq!(slow.unwrap(), 25);
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_gate_tells_when_nothing_is_under_way() {
        let gate = gate();
        gate.renewed(clock::monotonic());
        let closing = async {
            clock::sleep(secs(1)).await;
            gate.close();
            (gate.drained(secs(1)).await, gate.drained(secs(5)).await)
        };
        let (answer, drained) = futures::join!(gate.pass(request(4)), closing);
        assert_eq!(answer.unwrap(), 4, "it was let through before");
        assert_eq!(drained, (false, true));
    }
}
