//! A limit on how many requests a second are sent to an API server, for those who have asked for one.
//!
//! A token bucket: so many requests may go at once, so many more each second. Who comes too soon waits for
//! its turn, in order of arrival, before it takes a place among the requests in flight.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use tower::{Layer, Service};

use crate::clock::{self, Instant};

/// How many requests a second, and how many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Time after which one more may go.
    period: Duration,
    /// How many may go at once after a rest.
    burst: u32,
}

impl Rate {
    /// A limit of `qps` requests a second on average, and `burst` at once.
    ///
    /// # Errors
    /// When either is not above 0, or `burst` is below `qps`.
    pub fn new(qps: f64, burst: u32) -> Result<Self, &'static str> {
        if !qps.is_finite() || qps <= 0.0 || qps > 1e6 {
            return Err("the number of requests per second is above 0, and at most a million");
        }
        if f64::from(burst) < qps || burst == 0 {
            return Err("the burst is at least the number of requests per second");
        }
        Ok(Self {
            period: Duration::from_secs_f64(1.0 / qps),
            burst,
        })
    }
}

/// When the next request may go: the bucket is full again at `full`.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: Rate,
    full: Instant,
}

impl Bucket {
    fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, full: now }
    }

    /// Takes a place; how long its owner waits.
    fn take(&mut self, now: Instant) -> Duration {
        self.full = self.full.max(now) + self.rate.period;
        let room = self.rate.period * self.rate.burst;
        self.full.saturating_duration_since(now + room)
    }
}

/// See the module. Without a rate, requests pass.
#[derive(Clone, Copy)]
pub(crate) struct RateLayer(pub(crate) Option<Rate>);

impl<S> Layer<S> for RateLayer {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        let bucket = self.0.map(|rate| Bucket::new(rate, clock::monotonic()));
        Limited {
            inner,
            bucket,
            turn: Turn::Idle,
        }
    }
}

/// The service that [`RateLayer`] makes. The client has one, and asks it whether it is ready for one request
/// after the other.
pub(crate) struct Limited<S> {
    inner: S,
    bucket: Option<Bucket>,
    turn: Turn,
}

/// How the request stands that asks.
enum Turn {
    /// None asks.
    Idle,
    /// It waits.
    Waits(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// It may go.
    May,
}

impl<S, A> Service<Request<A>> for Limited<S>
where
    S: Service<Request<A>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if let Some(bucket) = &mut self.bucket {
            if matches!(self.turn, Turn::Idle) {
                let wait = bucket.take(clock::monotonic());
                self.turn = match wait.is_zero() {
                    true => Turn::May,
                    false => Turn::Waits(Box::pin(clock::sleep(wait))),
                };
            }
            if let Turn::Waits(wait) = &mut self.turn {
                std::task::ready!(wait.as_mut().poll(context));
                self.turn = Turn::May;
            }
        }
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> S::Future {
        self.turn = Turn::Idle;
        self.inner.call(request)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn limits_that_make_sense() {
        for (qps, burst) in [(1.0, 1), (250.0, 1000), (0.5, 1)] {
            assert!(Rate::new(qps, burst).is_ok(), "{qps} {burst}");
        }
        for (qps, burst) in [
            (0.0, 1),
            (-1.0, 1),
            (f64::NAN, 1),
            (10.0, 9),
            (0.5, 0),
            (1e9, u32::MAX),
        ] {
            assert!(Rate::new(qps, burst).is_err(), "{qps} {burst}");
        }
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_its_pace() {
        let start = clock::monotonic();
        let mut bucket = Bucket::new(Rate::new(10.0, 20).unwrap(), start);
        let waits: Vec<u128> = (0..22).map(|_| bucket.take(start).as_millis()).collect();
        assert_eq!(waits[..20], [0; 20]);
        assert_eq!(waits[20..], [100, 200]);
        // After a rest, a burst again.
        let later = start + Duration::from_secs(60);
        assert_eq!(
            (0..20)
                .map(|_| bucket.take(later).as_millis())
                .sum::<u128>(),
            0
        );
    }

    proptest! {
        /// In no span of time do more requests go than the burst and what the rate gives for that span.
        #[test]
        fn the_rate_is_kept(pauses in proptest::collection::vec(0u64..400, 1..60), burst in 10u32..20) {
            let start = clock::monotonic();
            let mut bucket = Bucket::new(Rate::new(10.0, burst).unwrap(), start);
            let mut now = start;
            let mut went = Vec::new();
            for pause in pauses {
                now += Duration::from_millis(pause);
                went.push(now + bucket.take(now));
            }
            prop_assert!(went.is_sorted(), "in order of arrival");
            for (first, from) in went.iter().enumerate() {
                for (last, until) in went.iter().enumerate().skip(first) {
                    let span = until.duration_since(*from).as_secs_f64();
                    prop_assert!((last - first + 1) as f64 <= f64::from(burst) + 1.0 + span * 10.0 + 1e-6);
                }
            }
        }
    }
}
