//! How many events are sent. Pure: time comes in as a parameter.
//!
//! | news | outcome |
//! |---|---|
//! | the same within [`SERIES`] of the last time, object and process within their rates | its event counts one more |
//! | the same, but too frequent | counted here; the next one that is sent carries the number |
//! | new, object and process within their rates | an event |
//! | new, but too frequent | dropped |

use std::collections::HashMap;
use std::time::Duration;

use super::{NewEvent, Severity};
use crate::clock::Instant;

/// The same news within this time of the last is a repetition.
pub const SERIES: Duration = Duration::from_secs(6 * 60);

/// Events about one object at once.
const OBJECT_BURST: f64 = 20.0;
/// Events per second about one object.
const OBJECT_RATE: f64 = 0.1;
/// Events of the process at once, and per second.
const PROCESS_RATE: f64 = 50.0;
/// How often what is out of date is dropped, in admissions.
const SWEEP: u32 = 512;

/// What makes two pieces of news the same. The note does not: it may hold numbers that move.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    object: String,
    related: String,
    severity: Severity,
    reason: String,
    action: &'static str,
    about: String,
}

impl Key {
    pub(super) fn of(event: &NewEvent) -> Self {
        let id = |reference: &k8s_openapi::api::core::v1::ObjectReference| {
            let part = |part: &Option<String>| part.clone().unwrap_or_default();
            format!(
                "{}/{}/{}/{}",
                part(&reference.kind),
                part(&reference.namespace),
                part(&reference.name),
                part(&reference.uid)
            )
        };
        Self {
            object: id(&event.regarding),
            related: event.related.as_ref().map(id).unwrap_or_default(),
            severity: event.severity,
            reason: event.reason.clone(),
            action: event.action,
            about: event.about.clone(),
        }
    }
}

/// What becomes of a piece of news.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is an event of its own.
    First,
    /// The event of that name counts so many.
    Repeat { name: String, count: i32 },
    /// It is counted, and not sent.
    Counted,
    /// It is dropped.
    Refused,
}

/// Event that may be repeated.
struct Series {
    name: String,
    count: i32,
    last: Instant,
}

/// Tokens that come back with time.
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn refill(&mut self, burst: f64, rate: f64, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * rate).min(burst);
        self.at = now;
    }
}

/// See the module. What it keeps is bounded by the process' rate times the longest time that it is kept.
#[derive(Default)]
pub(super) struct Limits {
    series: HashMap<Key, Series>,
    objects: HashMap<String, Bucket>,
    process: Option<Bucket>,
    admissions: u32,
}

impl Limits {
    /// Decides on a piece of news.
    pub(super) fn admit(&mut self, key: &Key, now: Instant) -> Admission {
        self.admissions += 1;
        if self.admissions.is_multiple_of(SWEEP) {
            self.sweep(now);
        }
        let has_token = self.take(&key.object, now);
        let known = self
            .series
            .get_mut(key)
            .filter(|series| now.saturating_duration_since(series.last) < SERIES);
        match (known, has_token) {
            (Some(series), has_token) => {
                series.count = series.count.saturating_add(1);
                series.last = now;
                if has_token {
                    Admission::Repeat {
                        name: series.name.clone(),
                        count: series.count,
                    }
                } else {
                    Admission::Counted
                }
            }
            (None, true) => Admission::First,
            (None, false) => Admission::Refused,
        }
    }

    /// Notes an event that was created, to which repetitions belong.
    pub(super) fn sent(&mut self, key: &Key, name: String, now: Instant) {
        let series = Series {
            name,
            count: 1,
            last: now,
        };
        self.series.insert(key.clone(), series);
    }

    /// The event is not there: the next one of its kind is a new one.
    pub(super) fn forget(&mut self, key: &Key) {
        self.series.remove(key);
    }

    fn take(&mut self, object: &str, now: Instant) -> bool {
        let process = self.process.get_or_insert(Bucket {
            tokens: PROCESS_RATE,
            at: now,
        });
        process.refill(PROCESS_RATE, PROCESS_RATE, now);
        if process.tokens < 1.0 {
            return false;
        }
        let own = self.objects.entry(object.to_owned()).or_insert(Bucket {
            tokens: OBJECT_BURST,
            at: now,
        });
        own.refill(OBJECT_BURST, OBJECT_RATE, now);
        if own.tokens < 1.0 {
            return false;
        }
        own.tokens -= 1.0;
        process.tokens -= 1.0;
        true
    }

    fn sweep(&mut self, now: Instant) {
        self.series
            .retain(|_, series| now.saturating_duration_since(series.last) < SERIES);
        self.objects.retain(|_, bucket| {
            bucket.refill(OBJECT_BURST, OBJECT_RATE, now);
            bucket.tokens < OBJECT_BURST
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn key(object: &str, about: &str) -> Key {
        Key {
            object: object.into(),
            related: String::new(),
            severity: Severity::Warning,
            reason: "Unhealthy".into(),
            action: "Probe",
            about: about.into(),
        }
    }

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn the_same_news_is_a_series_until_it_has_been_silent() {
        let mut limits = Limits::default();
        let start = clock::monotonic();
        let (a, other) = (key("a", "1"), key("a", "2"));
        assert_eq!(limits.admit(&a, start), Admission::First);
        limits.sent(&a, "a.1".into(), start);
        let again = |count| Admission::Repeat {
            name: "a.1".into(),
            count,
        };
        assert_eq!(limits.admit(&a, start + seconds(10)), again(2));
        assert_eq!(limits.admit(&a, start + seconds(10 + 359)), again(3));
        assert_eq!(
            limits.admit(&other, start + seconds(369)),
            Admission::First,
            "about something else"
        );
        assert_eq!(
            limits.admit(&a, start + seconds(369 + 360)),
            Admission::First
        );
    }

    #[test]
    fn an_event_that_could_not_be_sent_begins_no_series() {
        let mut limits = Limits::default();
        let now = clock::monotonic();
        assert_eq!(limits.admit(&key("a", ""), now), Admission::First);
        assert_eq!(limits.admit(&key("a", ""), now), Admission::First);
    }

    #[test]
    fn a_flapping_object_is_bounded() {
        let mut limits = Limits::default();
        let start = clock::monotonic();
        let (mut sent, mut counted, mut last) = (0, 0, 0);
        // Ten minutes, twice a second, unhealthy and healthy again.
        for half in 0..1200u64 {
            let now = start + Duration::from_millis(500 * half);
            let key = key("a", if half % 2 == 0 { "down" } else { "up" });
            match limits.admit(&key, now) {
                Admission::First => {
                    limits.sent(&key, "n".into(), now);
                    sent += 1;
                }
                Admission::Repeat { count, .. } => {
                    sent += 1;
                    last = count;
                }
                Admission::Counted => counted += 1,
                Admission::Refused => panic!("a repetition is counted, not lost"),
            }
        }
        assert!((78..=81).contains(&sent), "20 and one each 10 s: {sent}");
        assert_eq!(counted, 1200 - sent);
        assert!(last > 500, "the number is told all the same: {last}");
    }

    #[test]
    fn a_whole_fleet_is_bounded_and_forgotten() {
        let mut limits = Limits::default();
        let start = clock::monotonic();
        let mut first = 0;
        for cluster in 0..5000 {
            let key = key(&format!("c{cluster}"), "");
            if limits.admit(&key, start) == Admission::First {
                limits.sent(&key, "n".into(), start);
                first += 1;
            }
        }
        assert_eq!(first, 50);
        assert_eq!(limits.objects.len(), 50, "what is refused costs no memory");
        limits.sweep(start + SERIES);
        assert!(limits.objects.is_empty() && limits.series.is_empty());
    }
}
