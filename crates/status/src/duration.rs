//! Durations as text: `90s`, `1h30m`, `1.5h` (API: `stages[].waitTime`; extension `spec.strategy.timeout`).

use jiff::SignedDuration;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// Reads a duration: one or more numbers, each with a unit of `s`, `m` or `h` right behind it, as in the
/// pattern `^(?:(?:0|[1-9][0-9]*)(\.[0-9]+)?(?:s|m|h))+$` of the schema. None for all other text, so that
/// nothing is made up from junk. What is beyond [`SignedDuration::MAX`] is that; what is finer than a
/// nanosecond is cut off.
#[must_use]
pub fn parse(text: &str) -> Option<SignedDuration> {
    let mut rest = text;
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (part, behind) = part(rest)?;
        nanos = nanos.saturating_add(part);
        rest = behind;
    }
    (!text.is_empty()).then(|| of_nanos(nanos))
}

/// Writes a duration in the same form, as people would: `10m`, `1h30m`, `1.5s`; `0s` for none and for
/// negative ones.
#[must_use]
pub fn show(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let nanos = duration.subsec_nanos();
    if seconds < 0 || nanos < 0 {
        return "0s".to_owned();
    }
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = String::new();
    for (number, unit) in [(hours, 'h'), (minutes, 'm')] {
        if number > 0 {
            text.push_str(&format!("{number}{unit}"));
        }
    }
    if nanos > 0 {
        let fraction = format!("{nanos:09}");
        text.push_str(&format!("{seconds}.{}s", fraction.trim_end_matches('0')));
    } else if seconds > 0 || text.is_empty() {
        text.push_str(&format!("{seconds}s"));
    }
    text
}

/// The first number with its unit, in nanoseconds, and what comes behind them.
fn part(text: &str) -> Option<(u128, &str)> {
    let (whole, rest) = digits(text)?;
    if whole.len() > 1 && whole.starts_with('0') {
        return None;
    }
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest)?,
        None => ("", rest),
    };
    let unit = rest.chars().next()?;
    let seconds: u128 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => return None,
    };
    let unit_nanos = seconds * NANOS_PER_SECOND;
    // The text is all digits: what does not fit is too large, not malformed.
    let whole = whole.parse::<u128>().unwrap_or(u128::MAX);
    let nanos = whole
        .saturating_mul(unit_nanos)
        .saturating_add(fraction_of(fraction, unit_nanos));
    Some((nanos, rest.get(1..).unwrap_or_default()))
}

/// Digits at the start, at least one, and what comes behind them.
fn digits(text: &str) -> Option<(&str, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at_checked(end)
        .filter(|(digits, _)| !digits.is_empty())
}

fn fraction_of(digits: &str, unit_nanos: u128) -> u128 {
    // An hour has 3.6 × 10^12 nanoseconds: digits beyond these make none.
    let digits = digits.get(..digits.len().min(15)).unwrap_or_default();
    let Ok(number) = digits.parse::<u128>() else {
        return 0;
    };
    let length = u32::try_from(digits.len()).unwrap_or_default();
    number * unit_nanos / 10_u128.pow(length)
}

fn of_nanos(nanos: u128) -> SignedDuration {
    let seconds = i64::try_from(nanos / NANOS_PER_SECOND);
    let rest = i32::try_from(nanos % NANOS_PER_SECOND).unwrap_or_default();
    seconds.map_or(SignedDuration::MAX, |seconds| {
        SignedDuration::new(seconds, rest)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_the_schema_lets_through_is_read() {
        let millis = SignedDuration::from_millis;
        for (text, expected) in [
            ("0s", millis(0)),
            ("0m", millis(0)),
            ("1s", millis(1_000)),
            ("10m", millis(600_000)),
            ("1h30m", millis(5_400_000)),
            ("1.5h", millis(5_400_000)),
            ("0.25s", millis(250)),
            ("2m0.5s", millis(120_500)),
            ("1h1h", millis(7_200_000)),
            ("1s1m", millis(61_000)),
            ("0.0000000001s", millis(0)),
            ("0.000000000001h", SignedDuration::from_nanos(3)),
            ("0.00000000000000000000000001h", millis(0)),
            ("9223372036854775807s", SignedDuration::from_secs(i64::MAX)),
            ("9223372036854775808s", SignedDuration::MAX),
            (
                "99999999999999999999999999999999999999999999h",
                SignedDuration::MAX,
            ),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn all_else_is_nothing() {
        for text in [
            "", "0", "5", "s", "5 s", " 5s", "5s ", "-5s", "+5s", "05s", "00s", ".5s", "5.s",
            "1..5s", "5ms", "5us", "5d", "5sx", "x5s", "5s5", "1e3s", "٣s", "5ſ", "5s\n",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_person_can_read_it() {
        for (millis, expected) in [
            (-5, "0s"),
            (0, "0s"),
            (1_500, "1.5s"),
            (60_000, "1m"),
            (600_000, "10m"),
            (5_400_000, "1h30m"),
            (3_600_001, "1h0.001s"),
            (86_400_000, "24h"),
        ] {
            assert_eq!(show(SignedDuration::from_millis(millis)), expected);
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_read(seconds in 0..i64::MAX, nanos in 0..1_000_000_000_i32) {
            let duration = SignedDuration::new(seconds, nanos);
            prop_assert_eq!(parse(&show(duration)), Some(duration));
        }

        #[test]
        fn any_text_is_survived(text in "[0-9.smhx]{0,40}") {
            let known = regex_like(&text);
            prop_assert_eq!(parse(&text).is_some(), known, "{}", text);
        }
    }

    /// The schema's pattern, by another road: split behind each unit.
    fn regex_like(text: &str) -> bool {
        let parts: Vec<&str> = text.split_inclusive(['s', 'm', 'h']).collect();
        !parts.is_empty()
            && parts.iter().all(|part| {
                let Some(number) = part.strip_suffix(['s', 'm', 'h']) else {
                    return false;
                };
                let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
                let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
                digits(whole) && digits(fraction) && (whole == "0" || !whole.starts_with('0'))
            })
    }
}
