//! How often a placement is looked at for the statuses of its bindings alone. A look costs as much as the
//! placement has bindings, and a rollout brings a few changes of each; if every one got a look, the work would
//! grow with the square of their number.
//!
//! Between the beginnings of two such looks there is a pause that grows with the number of bindings
//! ([`PER_BINDING`]), so that they cost the same share of the time whatever the size; a small placement has
//! none (design §5.5). A change that stands alone is looked at at once, and the last one always is.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use windlass_cluster::clock::Instant;
use windlass_cluster::{ObjectKey, Queue, clock};

/// So many bindings cost no pause.
const SMALL: usize = 64;
/// Pause for each binding of those that have more.
const PER_BINDING: Duration = Duration::from_micros(50);
/// Longest pause.
const LONGEST: Duration = Duration::from_secs(1);

/// When each placement may be looked at again. Clones share everything.
#[derive(Clone, Default)]
pub struct Pace {
    from: Arc<DashMap<ObjectKey, Instant>>,
}

impl Pace {
    /// A look at a placement begins; it has so many bindings.
    pub fn begins(&self, placement: &ObjectKey, bindings: usize) {
        match pause(bindings) {
            Duration::ZERO => drop(self.from.remove(placement)),
            pause => drop(
                self.from
                    .insert(placement.clone(), clock::monotonic() + pause),
            ),
        }
    }

    /// The placement is gone.
    pub fn forget(&self, placement: &ObjectKey) {
        self.from.remove(placement);
    }

    /// Adds a placement because the status of one of its bindings has changed, and nothing else.
    pub fn add(&self, queue: &Queue<ObjectKey>, placement: ObjectKey) {
        let from = self.from.get(&placement).map(|from| *from);
        let wait = from.map(|from| from.saturating_duration_since(clock::monotonic()));
        match wait.filter(|wait| !wait.is_zero()) {
            None => queue.add(placement),
            Some(wait) => queue.add_after(placement, wait),
        }
    }
}

fn pause(bindings: usize) -> Duration {
    if bindings <= SMALL {
        return Duration::ZERO;
    }
    let bindings = u32::try_from(bindings).unwrap_or(u32::MAX);
    PER_BINDING.saturating_mul(bindings).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    /// How many looks a rollout takes and when the last one began after the last change: each binding reports
    /// twice, `every` so often. A look takes 5 µs for each binding.
    async fn rollout(bindings: usize, every: Duration) -> (usize, Duration) {
        let (pace, queue) = (Pace::default(), Queue::<ObjectKey>::new());
        let (looks, dirty) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let key = ObjectKey::cluster("web");
        let worker = {
            let (pace, queue) = (pace.clone(), queue.clone());
            let (looks, dirty) = (Arc::clone(&looks), Arc::clone(&dirty));
            clock::spawn("worker", async move {
                while let Some(key) = queue.next().await {
                    pace.begins(&key, bindings);
                    looks.fetch_add(1, Ordering::SeqCst);
                    dirty.store(false, Ordering::SeqCst);
                    clock::sleep(Duration::from_micros(5) * bindings as u32).await;
                    queue.done(&key);
                }
            })
        };
        for _ in 0..2 * bindings {
            dirty.store(true, Ordering::SeqCst);
            pace.add(&queue, key.clone());
            clock::sleep(every).await;
        }
        let end = clock::monotonic();
        while dirty.load(Ordering::SeqCst) {
            clock::sleep(Duration::from_millis(1)).await;
        }
        let late = clock::monotonic() - end;
        queue.shutdown();
        worker.await.unwrap();
        (looks.load(Ordering::SeqCst), late)
    }

    #[tokio::test(start_paused = true)]
    async fn a_rollout_costs_no_more_looks_in_a_large_fleet() {
        let every = Duration::from_millis(1);
        // Twice as many clusters report for twice as long, and each look costs twice as much.
        for (bindings, bound) in [(375, 45), (750, 45), (1500, 45), (3000, 45), (5000, 45)] {
            let (looks, late) = rollout(bindings, every).await;
            assert!(looks <= bound, "{bindings} bindings: {looks} looks");
            assert!(looks >= 10, "{bindings} bindings: {looks} looks");
            assert!(late <= pause(bindings), "{bindings} bindings: {late:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_stands_alone_is_looked_at_at_once() {
        for (about, bindings, every, looks) in [
            ("a small placement", 40, Duration::from_millis(1), 80),
            (
                "one cluster at a time",
                1500,
                Duration::from_millis(100),
                3000,
            ),
        ] {
            let (found, late) = rollout(bindings, every).await;
            assert_eq!(found, looks, "{about}");
            assert_eq!(late, Duration::ZERO, "{about}");
        }
    }

    #[test]
    fn the_pause_grows_with_the_bindings() {
        for (bindings, millis) in [
            (0, 0.0),
            (SMALL, 0.0),
            (100, 5.0),
            (1500, 75.0),
            (5000, 250.0),
            (100_000, 1000.0),
            (usize::MAX, 1000.0),
        ] {
            let found = pause(bindings).as_secs_f64() * 1000.0;
            assert!((found - millis).abs() < 0.001, "{bindings}: {found}");
        }
    }
}
