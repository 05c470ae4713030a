//! When a repository is read next (reference, seed systems A5).
//!
//! The distance is `min(interval · 2^(n−1), cap)` after n failures in a row, and the interval itself after
//! none, with `cap = max(1 h, interval)`. Jitter comes after the cap, so that two repositories that failed
//! together do not stay together; it is a number from −1 to 1, that means up to a tenth.

use jiff::{SignedDuration, Timestamp};
use windlass_status::duration;

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

/// When the next attempt is due. A server that asks us to stay away for longer than the delay gets that, up
/// to the cap, and jitter only adds to it.
#[must_use]
pub fn next(
    now: Timestamp,
    interval: SignedDuration,
    failures: i32,
    retry_after: Option<SignedDuration>,
    jitter: f64,
) -> Timestamp {
    let delay = delay(interval, failures);
    let jitter = jitter.clamp(-1.0, 1.0);
    let (base, jitter) = match retry_after {
        Some(asked) if asked > delay => (asked.min(cap(interval)), jitter.abs()),
        _ => (delay, jitter),
    };
    let distance = base.as_secs_f64() * (1.0 + JITTER * jitter);
    // Whole seconds, as they are stored: what is computed from the stored value is the same.
    let seconds = SignedDuration::from_secs(distance.round() as i64);
    now.checked_add(seconds).unwrap_or(now)
}

/// Whether the time of the next attempt has come. One that lies further ahead than any that [`next`] gives
/// was written under another clock or interval, and counts as come.
#[must_use]
pub fn is_due(now: Timestamp, next: Option<Timestamp>, interval: SignedDuration) -> bool {
    let Some(next) = next else { return true };
    let left = next.duration_since(now);
    let longest = cap(interval).as_secs_f64() * (1.0 + JITTER) + 1.0;
    left <= SignedDuration::ZERO || left.as_secs_f64() > longest
}

/// How long until then, at least a second.
#[must_use]
pub fn until(now: Timestamp, next: Timestamp) -> SignedDuration {
    next.duration_since(now).max(FLOOR)
}
