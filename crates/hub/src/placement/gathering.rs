//! How often a placement makes snapshots. A change that stands alone gets one at once; a stream of changes
//! is gathered, longer and longer, and its last state always gets one.
//!
//! Each snapshot doubles the pause before the next one, and time halves it: by half for every
//! [`LONGEST`] that passes. So whatever comes, however it is timed, in a time of T at most
//! 7 + T / [`LONGEST`] snapshots are made: at first a few in quick succession, then one in ten seconds.

use std::time::Duration;

use windlass_cluster::clock::Instant;

/// Shortest time between two snapshots.
const SHORTEST: Duration = Duration::from_millis(200);
/// Longest time for which changes are gathered.
pub const LONGEST: Duration = Duration::from_secs(10);

/// What is remembered of the last snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Gathering {
    last: Instant,
    pause: Duration,
}

impl Gathering {
    /// Of the first snapshot.
    #[must_use]
    pub fn begin(now: Instant) -> Self {
        Self {
            last: now,
            pause: SHORTEST,
        }
    }

    /// How long a snapshot has to wait; none when it may be made now.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let elapsed = now.saturating_duration_since(self.last);
        self.pause
            .checked_sub(elapsed)
            .filter(|left| !left.is_zero())
    }

    /// After another snapshot.
    #[must_use]
    pub fn next(&self, now: Instant) -> Self {
        let elapsed = now.saturating_duration_since(self.last);
        let halvings = elapsed.as_secs_f64() / LONGEST.as_secs_f64();
        let pause = self.pause.as_secs_f64() * 2.0 * (-halvings).exp2();
        Self {
            last: now,
            pause: Duration::from_secs_f64(pause).clamp(SHORTEST, LONGEST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use windlass_cluster::clock;

    /// When snapshots are made, if the content changes at these moments (milliseconds).
    fn snapshots(changes: &[u64]) -> Vec<u64> {
        let start = clock::monotonic();
        let at = |moment: u64| start + Duration::from_millis(moment);
        let mut made: Vec<u64> = Vec::new();
        let mut gathering: Option<Gathering> = None;
        for change in changes {
            // One that waits takes in every change up to its moment.
            if made.last().is_some_and(|last| last >= change) {
                continue;
            }
            let wait = gathering.and_then(|gathering| gathering.wait(at(*change)));
            let moment = change + wait.map_or(0, |wait| wait.as_micros().div_ceil(1000) as u64);
            gathering = Some(gathering.map_or_else(
                || Gathering::begin(at(moment)),
                |gathering| gathering.next(at(moment)),
            ));
            made.push(moment);
        }
        made
    }

    fn stream(every: u64, seconds: u64) -> Vec<u64> {
        (0..seconds * 1000).step_by(every as usize).collect()
    }

    #[test]
    fn rows() {
        for (what, changes, bound) in [
            ("50 changes a second for a minute", stream(20, 60), 13),
            ("one a second for a minute", stream(1000, 60), 13),
            (
                "one every two seconds for ten minutes",
                stream(2000, 600),
                67,
            ),
            ("one every ten seconds for a minute", stream(10_000, 60), 6),
        ] {
            let made = snapshots(&changes);
            assert!(made.len() <= bound, "{what}: {made:?}");
        }
        assert_eq!(snapshots(&[0, 30_000, 60_000]), [0, 30_000, 60_000]);
        assert_eq!(snapshots(&[0, 100]), [0, 200], "the last state gets one");
    }

    proptest! {
        /// The bound of the module, for any stretch of any stream; and no change waits longer than the
        /// longest time.
        #[test]
        fn whatever_comes(gaps in proptest::collection::vec(1u64..15_000, 1..200)) {
            let changes: Vec<u64> = gaps
                .iter()
                .scan(0, |moment, gap| { *moment += gap; Some(*moment) })
                .collect();
            let made = snapshots(&changes);
            for (first, from) in made.iter().enumerate() {
                for (count, to) in made[first..].iter().enumerate() {
                    let bound = 7.0 + (to - from) as f64 / LONGEST.as_millis() as f64;
                    prop_assert!((count + 1) as f64 <= bound, "{} in {} ms", count + 1, to - from);
                }
            }
            for change in &changes {
                let taken = made.iter().find(|moment| *moment >= change);
                prop_assert!(taken.is_some_and(|moment| moment - change <= 10_001), "{change}: {made:?}");
            }
        }
    }
}
