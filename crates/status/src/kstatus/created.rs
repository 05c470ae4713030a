//! When an object was created, read as Go's `time.Parse(time.RFC3339, …)` reads it.

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::text;

/// How long a pod that can't be scheduled is waited for.
const WINDOW: SignedDuration = SignedDuration::from_secs(15);

/// Whether an object is younger than the window. One that does not say when it was created is old.
pub(super) fn is_young(object: &Value, now: Timestamp) -> bool {
    let created = text(object, "/metadata/creationTimestamp").and_then(parse);
    created.is_some_and(|created| now.duration_since(created) < WINDOW)
}

/// Go takes an hour of one digit and a comma before the fraction; it takes no leap second, no lower-case
/// letters, and no time without seconds. A time that is too late for a [`Timestamp`] is the latest one.
fn parse(text: &str) -> Option<Timestamp> {
    let (date, clock) = text.split_once('T')?;
    let (year, month, day) = match *date.as_bytes() {
        [.., b'-', _, _, b'-', _, _] if date.len() == 10 => (
            digits(date.get(..4)?)?,
            digits(date.get(5..7)?)?,
            digits(date.get(8..)?)?,
        ),
        _ => return None,
    };
    let (hour, rest) = clock.split_once(':')?;
    let (minute, rest) = (digits(rest.get(..2)?)?, rest.get(2..)?.strip_prefix(':')?);
    let (second, rest) = (digits(rest.get(..2)?)?, rest.get(2..)?);
    if !(1..=2).contains(&hour.len()) {
        return None;
    }
    let (nanosecond, zone) = fraction(rest)?;
    let civil = DateTime::new(
        year,
        i8::try_from(month).ok()?,
        i8::try_from(day).ok()?,
        i8::try_from(digits(hour)?).ok()?,
        i8::try_from(minute).ok()?,
        i8::try_from(second).ok()?,
        nanosecond,
    )
    .ok()?;
    let ahead = offset(zone)?;
    let instant = Offset::UTC.to_timestamp(civil).unwrap_or(Timestamp::MAX);
    Some(instant.checked_sub(ahead).unwrap_or(Timestamp::MAX))
}

fn digits(text: &str) -> Option<i16> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok())?
}

/// Nanoseconds, and what stands behind the fraction; zero where there is none.
fn fraction(text: &str) -> Option<(i32, &str)> {
    let Some(rest) = text.strip_prefix(['.', ',']) else {
        return Some((0, text));
    };
    let length = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (fraction, zone) = rest.split_at_checked(length)?;
    let kept: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    (length > 0).then(|| kept.parse().ok().map(|nanos| (nanos, zone)))?
}

/// How far a time zone is ahead of UTC.
fn offset(zone: &str) -> Option<SignedDuration> {
    if zone == "Z" {
        return Some(SignedDuration::ZERO);
    }
    let (sign, rest) = match zone.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let long = hours.len() == 2 && minutes.len() == 2;
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    let fits = long && hours <= 24 && minutes <= 60;
    fits.then(|| SignedDuration::from_mins(sign * (i64::from(hours) * 60 + i64::from(minutes))))
}
