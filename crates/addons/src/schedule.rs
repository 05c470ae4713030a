//! When a repository is read next (reference, seed systems A5).
//!
//! The distance is `min(interval · 2^(n−1), cap)` after n failures in a row, and the interval itself after
//! none, with `cap = max(1 h, interval)`. Jitter comes after the cap, so that two repositories that failed
//! together do not stay together; it is a number from −1 to 1, that means up to a tenth.

use jiff::{SignedDuration, Timestamp};
use windlass_status::{conditions, duration};

/// How often a repository is read unless its spec says otherwise.
pub const DEFAULT_INTERVAL: SignedDuration = SignedDuration::from_mins(5);
/// No repository is read more often.
pub const SHORTEST_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// Nor more rarely, by its spec.
pub const LONGEST_INTERVAL: SignedDuration = SignedDuration::from_hours(24);
/// After so many failures in a row it is stalled. They are counted no further.
pub const MAX_FAILURES: i32 = 5;
/// The longest distance, for intervals that are not longer themselves.
const CAP: SignedDuration = SignedDuration::from_hours(1);
/// What jitter adds or takes at most: a tenth.
const JITTER: f64 = 0.1;
/// The shortest time to the next look.
const FLOOR: SignedDuration = SignedDuration::from_secs(1);

/// The interval of a spec: what the schema lets through and is out of bounds all the same is brought into
/// them, and what is no duration is the default.
#[must_use]
pub fn interval(text: Option<&str>) -> SignedDuration {
    text.and_then(duration::parse)
        .map_or(DEFAULT_INTERVAL, |given| {
            given.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
        })
}

/// The longest distance between two attempts, but for jitter.
#[must_use]
pub fn cap(interval: SignedDuration) -> SignedDuration {
    interval.max(CAP)
}

/// The distance to the next attempt after so many failures in a row, without jitter.
#[must_use]
pub fn delay(interval: SignedDuration, failures: i32) -> SignedDuration {
    let doublings = failures.clamp(1, MAX_FAILURES) - 1;
    let grown = interval.checked_mul(1 << doublings);
    grown.map_or(cap(interval), |grown| grown.min(cap(interval)))
}

/// The longest distance with all the jitter there is. None that [`next`] gives is longer.
fn longest(interval: SignedDuration) -> SignedDuration {
    let cap = cap(interval);
    cap.saturating_add(cap / 10)
}

/// When the next attempt is due, in whole seconds, as it is stored. A server that asks us to stay away gets
/// that, up to the cap: jitter only adds to it.
#[must_use]
pub fn next(
    now: Timestamp,
    interval: SignedDuration,
    failures: i32,
    retry_after: Option<SignedDuration>,
    jitter: f64,
) -> Timestamp {
    let own = after(now, stretch(delay(interval, failures), jitter));
    let latest = whole(after(now, longest(interval)));
    let Some(asked) = retry_after else {
        return whole(own).min(latest);
    };
    let asked = after(now, stretch(asked.min(cap(interval)), jitter.abs()));
    // Rounded up: a moment too early is refused again.
    let asked = whole(after(asked, SignedDuration::from_nanos(999_999_999)));
    whole(own).max(asked).min(latest)
}

/// A distance with up to a tenth more or less, in milliseconds.
pub(crate) fn stretch(distance: SignedDuration, jitter: f64) -> SignedDuration {
    let jitter = if jitter.is_nan() { 0.0 } else { jitter };
    let seconds = distance.as_secs_f64() * (1.0 + JITTER * jitter.clamp(-1.0, 1.0));
    SignedDuration::from_millis((seconds * 1e3).round() as i64)
}

fn after(now: Timestamp, distance: SignedDuration) -> Timestamp {
    let bound = if distance.is_negative() {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    };
    now.checked_add(distance).unwrap_or(bound)
}

fn whole(at: Timestamp) -> Timestamp {
    conditions::time(at).0
}

/// Whether the time of the next attempt has come. One that lies further ahead than any that [`next`] gives
/// was written under another clock or interval, and counts as come.
#[must_use]
pub fn is_due(now: Timestamp, next: Option<Timestamp>, interval: SignedDuration) -> bool {
    next.is_none_or(|next| next <= now || is_beyond(now, next, interval))
}

/// Whether it lies further ahead than any that [`next`] gives.
pub(crate) fn is_beyond(now: Timestamp, next: Timestamp, interval: SignedDuration) -> bool {
    next.duration_since(now) > longest(interval)
}

/// How long until then, at least a second.
#[must_use]
pub fn until(now: Timestamp, next: Timestamp) -> SignedDuration {
    next.duration_since(now).max(FLOOR)
}
