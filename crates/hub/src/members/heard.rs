//! When something that a member dates by its own clock was heard of, by the hub's clock.
//!
//! A member's clock may be wrong by hours, so that its timestamps say nothing about when. That one *differs*
//! from the one before does: it was written since the hub last looked. What is kept here is when the hub saw
//! the last difference; deadlines count from there, with the monotonic clock.
//!
//! | seen | known | verdict |
//! |---|---|---|
//! | never | nothing | [`Verdict::Unknown`] |
//! | once, for less than the threshold | it may have been written long ago, or just now | [`Verdict::Unknown`] |
//! | once, for the threshold or longer | nobody writes it | [`Verdict::Silent`] |
//! | to change, less than the threshold ago | somebody writes it | [`Verdict::Alive`] |
//! | to change, the threshold ago or longer | nobody writes it any more | [`Verdict::Silent`] |
//!
//! So after a restart no cluster is silent before one full threshold, and none is alive on the strength of
//! what was written before (design §5.21).

use std::time::Duration;

use jiff::Timestamp;
use windlass_cluster::clock::Instant;
use windlass_scheduler::HEARTBEAT_TOLERANCE;

/// A moment, by both of the hub's clocks: deadlines are measured with the one, people are told the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// By the monotonic clock.
    pub instant: Instant,
    /// By the wall clock.
    pub time: Timestamp,
}

/// What can be told about who writes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing can be told yet.
    Unknown,
    /// It was written within the threshold.
    Alive,
    /// It was not.
    Silent,
}

/// See the module. `T` is what the member writes: `lastReceivedHeartbeat`, or the status of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard<T> {
    seen: Option<Seen<T>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen<T> {
    value: T,
    first: Moment,
    changed: Option<Moment>,
}

impl<T> Default for Heard<T> {
    fn default() -> Self {
        Self { seen: None }
    }
}

impl<T: PartialEq> Heard<T> {
    /// Takes note of what is there now. Tells whether that is a change, which a first look never is: who
    /// wrote it may have stopped since..
    pub fn observe(&mut self, value: T, now: Moment) -> bool {
        match &mut self.seen {
            None => {
                self.seen = Some(Seen {
                    value,
                    first: now,
                    changed: None,
                });
                false
            }
            Some(seen) if seen.value == value => false,
            Some(seen) => {
                seen.value = value;
                seen.changed = Some(now);
                true
            }
        }
    }

    /// Somebody writes it, if all is well, even if nothing was ever seen: silence counts from then on.
    pub fn expect(&mut self, value: T, since: Moment) {
        self.seen.get_or_insert(Seen {
            value,
            first: since,
            changed: None,
        });
    }

    /// When the value was last seen to change; none before that.
    #[must_use]
    pub fn at(&self) -> Option<Moment> {
        self.seen.as_ref()?.changed
    }

    /// See the module's table. `threshold` is how long silence may last.
    #[must_use]
    pub fn verdict(&self, now: Instant, threshold: Duration) -> Verdict {
        let Some(seen) = &self.seen else {
            return Verdict::Unknown;
        };
        let since = seen.changed.unwrap_or(seen.first).instant;
        if now.saturating_duration_since(since) >= threshold {
            return Verdict::Silent;
        }
        match seen.changed {
            Some(_) => Verdict::Alive,
            None => Verdict::Unknown,
        }
    }

    /// How long it takes until the verdict is Silent if nothing is heard: when to look again. None when it is
    /// Silent already, or nothing was ever seen.
    #[must_use]
    pub fn until_silent(&self, now: Instant, threshold: Duration) -> Option<Duration> {
        let seen = self.seen.as_ref()?;
        let since = seen.changed.unwrap_or(seen.first).instant;
        let silent = now.saturating_duration_since(since);
        threshold.checked_sub(silent).filter(|left| !left.is_zero())
    }
}

impl<T: PartialEq> Heard<Option<T>> {
    /// Takes note of what a report says that may say nothing. That is no sign of life: the hub itself makes
    /// an empty one when the one before is gone.
    pub fn observe_report(&mut self, value: Option<T>, now: Moment) -> bool {
        (value.is_some() || self.seen.is_none()) && self.observe(value, now)
    }
}

/// The time of a member's last heartbeat that may be judged by: when the hub saw it change, and before it has,
/// what the member wrote, as far as that is not in the future by the hub's clock. So a clock that runs ahead
/// never makes a silent member look alive, and one that is behind costs at most one heartbeat period after a
/// restart of the hub.
#[must_use]
pub fn heartbeat(
    heard: Option<Timestamp>,
    reported: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    heard.or_else(|| reported.map(|reported| reported.min(now)))
}

/// Whether a cluster may get new placements again since it was heard of: eligibility judges by the last time
/// that it was, `before` and by `now`. One that was never heard of becomes eligible with its first status.
#[must_use]
pub fn ends_silence(before: Option<Timestamp>, now: Timestamp) -> bool {
    before.is_some_and(|before| now.duration_since(before) > HEARTBEAT_TOLERANCE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use windlass_api::member::MemberCluster;
    use windlass_cluster::clock;

    use super::*;
    use crate::matters::Matters;

    const THRESHOLD: Duration = Duration::from_secs(60);

    fn at(start: Instant, seconds: u64) -> Moment {
        Moment {
            instant: start + Duration::from_secs(seconds),
            time: Timestamp::from_second(i64::try_from(seconds).unwrap()).unwrap(),
        }
    }

    #[test]
    fn the_table_of_the_module() {
        let start = clock::monotonic();
        // What is seen when; then the verdict at a second.
        type Row = (
            &'static [(u64, &'static str)],
            &'static [(u64, Verdict)],
            Option<u64>,
        );
        let rows: [Row; 5] = [
            (&[], &[(0, Verdict::Unknown), (999, Verdict::Unknown)], None),
            (
                &[(0, "a"), (30, "a")],
                &[
                    (0, Verdict::Unknown),
                    (59, Verdict::Unknown),
                    (60, Verdict::Silent),
                ],
                None,
            ),
            (
                &[(0, "a"), (30, "b")],
                &[
                    (30, Verdict::Alive),
                    (89, Verdict::Alive),
                    (90, Verdict::Silent),
                ],
                Some(30),
            ),
            // Back again: its clock was put right, and that is a sign of life, too.
            (&[(0, "b"), (70, "a")], &[(70, Verdict::Alive)], Some(70)),
            (
                &[(0, "a"), (10, "b"), (20, "b")],
                &[(69, Verdict::Alive), (70, Verdict::Silent)],
                Some(10),
            ),
        ];
        for (seen, verdicts, changed) in rows {
            let mut heard = Heard::default();
            for (second, value) in seen {
                heard.observe(*value, at(start, *second));
            }
            for (second, verdict) in verdicts {
                let now = at(start, *second).instant;
                assert_eq!(
                    heard.verdict(now, THRESHOLD),
                    *verdict,
                    "{seen:?} at {second}"
                );
            }
            let changed = changed.map(|second| at(start, second));
            assert_eq!(heard.at(), changed, "{seen:?}");
        }
    }

    #[test]
    fn one_looks_again_when_silence_begins_to_count() {
        let start = clock::monotonic();
        let mut heard = Heard::default();
        let left = |heard: &Heard<u8>, second| {
            heard
                .until_silent(at(start, second).instant, THRESHOLD)
                .map(|left| left.as_secs())
        };
        assert_eq!(left(&heard, 0), None);
        heard.observe(1, at(start, 0));
        assert_eq!(left(&heard, 20), Some(40));
        assert_eq!(left(&heard, 60), None);
        assert!(heard.observe(2, at(start, 70)));
        assert_eq!(left(&heard, 70), Some(60));
    }

    #[test]
    fn a_report_that_is_gone_is_silence() {
        let start = clock::monotonic();
        let verdict =
            |heard: &Heard<Option<u8>>, second| heard.verdict(at(start, second).instant, THRESHOLD);
        // It has gone, and the hub has made an empty one.
        let mut heard = Heard::default();
        heard.observe_report(Some(1), at(start, 0));
        heard.observe_report(Some(2), at(start, 10));
        assert!(!heard.observe_report(None, at(start, 60)));
        heard.expect(None, at(start, 60));
        assert_eq!(verdict(&heard, 69), Verdict::Alive);
        assert_eq!(verdict(&heard, 70), Verdict::Silent);
        assert!(heard.observe_report(Some(3), at(start, 80)));
        assert_eq!(verdict(&heard, 80), Verdict::Alive);
        // It had gone before the hub started, and there is none.
        let mut heard = Heard::default();
        heard.expect(None, at(start, 5));
        assert_eq!(verdict(&heard, 64), Verdict::Unknown);
        assert_eq!(verdict(&heard, 65), Verdict::Silent);
        assert!(heard.observe_report(Some(3), at(start, 70)));
        assert_eq!(verdict(&heard, 70), Verdict::Alive);
        // A new one is waited for from its making on.
        let mut heard = Heard::default();
        heard.observe_report(None, at(start, 5));
        assert_eq!(verdict(&heard, 64), Verdict::Unknown);
        assert_eq!(verdict(&heard, 65), Verdict::Silent);
    }

    #[test]
    fn a_heartbeat_is_judged_by_the_hubs_clock() {
        let time = |second| Timestamp::from_second(second).unwrap();
        let hour = 3600;
        let now = 100 * hour;
        for (about, heard, reported, expected) in [
            ("never heard of", None, None, None),
            (
                "heard, whatever it says",
                Some(now - 5),
                Some(now + 9 * hour),
                Some(now - 5),
            ),
            (
                "heard, though it says long ago",
                Some(now - 5),
                Some(now - 9 * hour),
                Some(now - 5),
            ),
            ("not heard yet", None, Some(now - 30), Some(now - 30)),
            (
                "not heard yet, and ahead",
                None,
                Some(now + 9 * hour),
                Some(now),
            ),
        ] {
            let heard = heartbeat(heard.map(time), reported.map(time), time(now));
            assert_eq!(heard, expected.map(time), "{about}");
        }
    }

    #[test]
    fn a_silence_ends_once() {
        let time = |second| Timestamp::from_second(second).unwrap();
        for (about, before, now, expected) in [
            ("never heard of", None, 0, false),
            ("in time", Some(0), 60, false),
            ("just in time", Some(0), 300, false),
            ("after a silence", Some(0), 301, true),
            ("heard of already", Some(301), 301, false),
        ] {
            assert_eq!(
                ends_silence(before.map(time), time(now)),
                expected,
                "{about}"
            );
        }
    }

    proptest! {
        /// However rarely the heartbeats of a large fleet are written: placements look neither at what is
        /// written nor at what is heard.
        #[test]
        fn heartbeats_in_time_wake_nobody(
            beats in proptest::collection::vec(1i64..=300, 1..60),
            fleet in 1usize..10_000,
        ) {
            let every = crate::members::facts::heartbeat_every(&MemberCluster::default(), fleet);
            let written = |second: i64| {
                let time = Timestamp::from_second(second).unwrap().to_string();
                let status = serde_json::json!({ "status": { "agentStatus": [
                    { "type": "MemberAgent", "lastReceivedHeartbeat": time, "conditions": [] }] },
                    "metadata": { "name": "a" }, "spec": { "identity": { "kind": "User", "name": "u" } } });
                serde_json::from_value::<MemberCluster>(status).unwrap()
            };
            let (mut second, mut last) = (0, 0);
            for pause in beats {
                let heard = |second| Timestamp::from_second(second).unwrap();
                prop_assert!(!ends_silence(Some(heard(second)), heard(second + pause)));
                second += pause;
                if second - last >= i64::try_from(every.as_secs()).unwrap() {
                    let matters = Matters::of(Some(&written(last)), Some(&written(second)));
                    prop_assert!(matters.to_none(), "written after {} s", second - last);
                    last = second;
                }
            }
        }

        /// However wrong the member's clock is, and however it jumps, the verdict is that of a right one.
        #[test]
        fn the_members_clock_does_not_matter(
            beats in proptest::collection::vec(1u64..200, 1..20),
            skew in -1_000_000i64..1_000_000,
        ) {
            let start = clock::monotonic();
            let (mut right, mut wrong) = (Heard::default(), Heard::default());
            let mut second = 0;
            for pause in beats {
                let (before, silent) = (at(start, second + pause - 1).instant, pause > 60);
                if right.at().is_some() {
                    prop_assert_eq!(right.verdict(before, THRESHOLD) == Verdict::Silent, silent);
                }
                prop_assert_eq!(right.verdict(before, THRESHOLD), wrong.verdict(before, THRESHOLD));
                second += pause;
                let written = i64::try_from(second).unwrap();
                right.observe(written, at(start, second));
                wrong.observe(written + skew, at(start, second));
                prop_assert_eq!(right.at(), wrong.at());
            }
        }
    }
}
