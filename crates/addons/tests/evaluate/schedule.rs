//! When a repository is read next (reference, seed systems A5).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use windlass_addons::evaluate::Attempt;
use windlass_addons::failure::{Failure, Fault};
use windlass_addons::schedule::{
    DEFAULT_INTERVAL, LONGEST_INTERVAL, SHORTEST_INTERVAL, cap, delay, interval, is_due, next,
    until,
};

use crate::support::{Case, at, line, minutes, read, terminal, times, transient, unwritten};

const HOUR: SignedDuration = SignedDuration::from_hours(1);

fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

fn distance(interval: SignedDuration, failures: i32, jitter: f64) -> SignedDuration {
    let now = at("12:00:00");
    next(now, interval, failures, None, jitter).duration_since(now)
}

#[test]
fn five_minutes_as_in_the_reference() {
    // failures, base, shortest, longest; cumulative since the first failure: base, shortest, longest
    let rows = [
        (0, 300, 270, 330, None),
        (1, 300, 270, 330, Some((0, 0, 0))),
        (2, 600, 540, 660, Some((300, 270, 330))),
        (3, 1200, 1080, 1320, Some((900, 810, 990))),
        (4, 2400, 2160, 2640, Some((2100, 1890, 2310))),
        (5, 3600, 3240, 3960, Some((4500, 4050, 4950))),
        (6, 3600, 3240, 3960, Some((8100, 7290, 8910))),
    ];
    let mut passed = (0, 0, 0);
    for (n, base, shortest, longest, since) in rows {
        assert_eq!(delay(minutes(5), n), seconds(base), "{n}");
        let at_jitter = |jitter| distance(minutes(5), n, jitter).as_secs();
        let (base, shortest, longest) = {
            assert_eq!(at_jitter(-1.0), shortest, "{n}");
            assert_eq!(at_jitter(0.0), base, "{n}");
            assert_eq!(at_jitter(1.0), longest, "{n}");
            (base, shortest, longest)
        };
        if let Some(since) = since {
            assert_eq!(passed, since, "{n}");
            passed = (passed.0 + base, passed.1 + shortest, passed.2 + longest);
        }
    }
}

#[test]
fn other_intervals_as_in_the_reference() {
    let bases = |interval| (1..=6).map(|n| delay(interval, n).as_secs() / 60).collect();
    let rows: [(i64, Vec<i64>); 5] = [
        (5, vec![5, 10, 20, 40, 60, 60]),
        (10, vec![10, 20, 40, 60, 60, 60]),
        (60, vec![60; 6]),
        (120, vec![120; 6]),
        (1440, vec![1440; 6]),
    ];
    for (interval, expected) in rows {
        let found: Vec<i64> = bases(minutes(interval));
        assert_eq!(found, expected, "{interval}");
        assert_eq!(delay(minutes(interval), 0), minutes(interval));
    }
    let until_stall: i64 = bases(minutes(10)).iter().take(4).sum();
    assert_eq!(until_stall, 130, "an interval of 10m stalls at +130m");
    assert_eq!(cap(minutes(5)), HOUR);
    assert_eq!(cap(minutes(120)), minutes(120));
}

#[test]
fn the_third_failure_at_noon_is_tried_again_at_12_19_12() {
    let mut case = Case::healthy();
    case.pass(transient("refused"));
    case.pass(transient("refused"));
    case.now = at("12:00:00");
    case.jitter = -0.4;
    let decision = case.pass(transient("refused"));
    assert_eq!(case.current.consecutive_fetch_failures, Some(3));
    assert_eq!(case.current.next_sync_time.unwrap().0, at("12:19:12"));
    assert_eq!(decision.requeue_after, Some(seconds(19 * 60 + 12)));
}

#[test]
fn a_terminal_401_at_noon_is_tried_again_at_13_00_and_one_success_ends_it() {
    let mut case = Case::healthy().with(|case| case.now = at("12:00:00"));
    let decision = case.pass(terminal(Fault::AuthenticationFailed, "401"));
    assert_eq!(times(case.now, &decision), "n=5 next=1h look=1h");
    assert_eq!(
        line(&case.current),
        "Ready=False/AuthenticationFailed Synced=False/SyncFailed Stalled=AuthenticationFailed"
    );
    case.now = at("13:00:00");
    assert!(case.should_attempt(), "the very second counts");
    let decision = case.pass(read());
    assert_eq!(times(case.now, &decision), "n=0 next=5m look=5m");
    assert_eq!(
        line(&case.current),
        "Ready=True/Success Synced=True/Success"
    );
}

#[test]
fn retry_after_is_kept_between_the_delay_and_the_cap() {
    // asked, failures before, jitter, distance
    let rows = [
        (0, 0, 0.0, 300),
        (60, 0, 0.0, 300),
        (60, 0, -1.0, 270),
        (420, 0, 0.0, 420),
        (420, 0, 1.0, 462),
        // Never sooner than asked, whatever jitter says.
        (420, 0, -1.0, 462),
        (300, 0, -1.0, 330),
        (290, 0, -1.0, 319),
        (420, 2, 0.0, 1200),
        (3600, 0, 0.0, 3600),
        (86_400, 0, 0.0, 3600),
        (86_400, 0, 1.0, 3960),
        (u64::MAX, 0, 1.0, 3960),
    ];
    for (asked, before, jitter, expected) in rows {
        let mut case = Case::healthy();
        for _ in 0..before {
            case.pass(transient("refused"));
        }
        case.jitter = jitter;
        case.pass(Attempt::Failed(Failure::Transient {
            message: "429".to_owned(),
            retry_after: Some(Duration::from_secs(asked)),
        }));
        let found = case.current.next_sync_time.unwrap().0;
        let found = found.duration_since(case.now).as_secs();
        assert_eq!(found, expected, "{asked} {before} {jitter}");
    }
}

#[test]
fn retry_after_counts_from_the_answer_and_not_from_the_second_that_it_came_in() {
    let now = at("12:00:00.900");
    let asked = Some(seconds(420));
    let found = next(now, minutes(5), 1, asked, 0.0);
    assert_eq!(found, at("12:07:01"));
}

#[test]
fn due_is_what_has_come_and_what_no_schedule_gives() {
    let now = at("12:00:00");
    let rows = [
        (None, minutes(5), true),
        (Some(at("11:59:59")), minutes(5), true),
        (Some(at("12:00:00")), minutes(5), true),
        (Some(at("12:00:01")), minutes(5), false),
        (Some(at("13:06:00")), minutes(5), false),
        // The clock was set back, or the interval was longer.
        (Some(at("13:06:02")), minutes(5), true),
        (Some(at("13:06:02")), minutes(120), false),
        (Some(at("14:12:00")), minutes(120), false),
        (Some(at("14:12:02")), minutes(120), true),
        (Some(Timestamp::MAX), minutes(5), true),
        (Some(Timestamp::MIN), minutes(5), true),
    ];
    for (next, interval, expected) in rows {
        assert_eq!(is_due(now, next, interval), expected, "{next:?} {interval}");
    }
}

#[test]
fn a_look_is_at_least_a_second_off() {
    let now = at("12:00:00");
    assert_eq!(until(now, now), seconds(1));
    assert_eq!(until(now, at("11:00:00")), seconds(1));
    assert_eq!(until(now, at("12:00:00.5")), seconds(1));
    assert_eq!(until(now, at("12:00:02")), seconds(2));
}

#[test]
fn intervals_of_specs() {
    let rows = [
        (None, DEFAULT_INTERVAL),
        (Some("10m"), minutes(10)),
        (Some("30s"), seconds(30)),
        (Some("1.5h"), minutes(90)),
        // The schema refuses these, and so nothing may come of them.
        (Some("29s"), SHORTEST_INTERVAL),
        (Some("0s"), SHORTEST_INTERVAL),
        (Some("25h"), LONGEST_INTERVAL),
        (Some("999999999999999999999h"), LONGEST_INTERVAL),
        (Some(""), DEFAULT_INTERVAL),
        (Some("soon"), DEFAULT_INTERVAL),
        (Some("-5m"), DEFAULT_INTERVAL),
        (Some("5"), DEFAULT_INTERVAL),
    ];
    for (text, expected) in rows {
        assert_eq!(interval(text), expected, "{text:?}");
    }
}

#[test]
fn nothing_overflows() {
    for failures in [i32::MIN, -1, 0, 1, 63, 64, i32::MAX] {
        for given in [
            SignedDuration::MIN,
            SignedDuration::ZERO,
            SignedDuration::MAX,
        ] {
            let found = delay(given, failures);
            assert!(found <= cap(given));
            for now in [Timestamp::MIN, at("12:00:00"), Timestamp::MAX] {
                for asked in [None, Some(SignedDuration::MIN), Some(SignedDuration::MAX)] {
                    for jitter in [-1.0, 1.0] {
                        let found = next(now, given, failures, asked, jitter);
                        let longest = cap(given).saturating_add(cap(given) / 10);
                        assert!(found.duration_since(now) <= longest, "{given} {failures}");
                    }
                }
            }
        }
    }
    // What can't be written is no reason to come at once.
    let far = next(at("12:00:00"), SignedDuration::MAX, 1, None, 0.0);
    assert!(far > at("23:00:00"));
    for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
        let found = distance(minutes(5), 0, odd).as_secs();
        assert!((270..=330).contains(&found), "{odd}: {found}");
    }
}

#[test]
fn addoncharts_that_could_not_be_written_are_tried_again_soon() {
    let mut case = Case::healthy();
    for _ in 0..20 {
        let decision = case.pass(unwritten());
        // Not at once: the status that is written is itself a reason to look.
        assert_eq!(times(case.now, &decision), "n=0 next=30s look=30s");
        assert!(!case.should_attempt());
        case.now += seconds(30);
        assert!(case.should_attempt());
    }
}

proptest! {
    #[test]
    fn next_is_within_its_bounds(
        nanos in 0..1_000_000_000_i64, given in 30_000..86_400_000_i64, failures in 0..9_i32,
        asked in proptest::option::of(0..200_000_000_i64), jitter in -1.0..=1.0_f64,
    ) {
        let now = at("12:00:00") + SignedDuration::from_nanos(nanos);
        let interval = SignedDuration::from_millis(given);
        let asked = asked.map(SignedDuration::from_millis);
        let found = next(now, interval, failures, asked, jitter);
        let left = found.duration_since(now);
        let (delay, cap) = (delay(interval, failures), cap(interval));
        prop_assert_eq!(found.subsec_nanosecond(), 0);
        // Whole seconds are stored: up to one is lost.
        prop_assert!((left + seconds(1)).as_nanos() > delay.as_nanos() * 9 / 10);
        prop_assert!(left.as_nanos() <= cap.as_nanos() * 11 / 10);
        match asked {
            Some(asked) => prop_assert!(left + seconds(1) > asked.min(cap)),
            None => prop_assert!(left.as_nanos() <= delay.as_nanos() * 11 / 10),
        }
        prop_assert!(!is_due(now, Some(found), interval));
        prop_assert!(is_due(found, Some(found), interval));
    }

    #[test]
    fn delays_grow_with_failures_and_never_pass_the_cap(given in 30..86_400_i64) {
        let interval = seconds(given);
        for n in 1..9 {
            prop_assert!(delay(interval, n) <= delay(interval, n + 1));
            prop_assert!(delay(interval, n) <= cap(interval));
            prop_assert!(delay(interval, n) >= interval);
        }
    }

    #[test]
    fn any_text_is_an_interval_within_bounds(text in ".{0,20}") {
        let found = interval(Some(&text));
        prop_assert!((SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&found));
    }
}
