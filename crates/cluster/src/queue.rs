//! A work queue: keys, each at most once, each with one worker at a time.
//!
//! Rules: a key that is added while it waits is not added again; one that is added while it is worked on
//! comes again afterwards; changes overtake what the start-up put in; a failing key waits longer each
//! time, on its own.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{self, Instant};

/// First wait after a failure.
const BASE_DELAY: Duration = Duration::from_millis(20);
/// Longest wait after failures.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// See the module. Clones share the queue.
pub struct Queue<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    wake: Notify,
}

struct State<T> {
    live: VecDeque<T>,
    initial: VecDeque<T>,
    waiting: HashSet<T>,
    working: HashSet<T>,
    again: HashSet<T>,
    /// Delayed keys by time; the number keeps keys of one moment apart.
    delayed: BTreeMap<(Instant, u64), T>,
    delay_of: HashMap<T, (Instant, u64)>,
    failures: HashMap<T, u32>,
    sequence: u64,
    closed: bool,
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T: Clone + Eq + Hash> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone + Eq + Hash> Queue<T> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        let state = State {
            live: VecDeque::new(),
            initial: VecDeque::new(),
            waiting: HashSet::new(),
            working: HashSet::new(),
            again: HashSet::new(),
            delayed: BTreeMap::new(),
            delay_of: HashMap::new(),
            failures: HashMap::new(),
            sequence: 0,
            closed: false,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                wake: Notify::new(),
            }),
        }
    }

    /// Adds a key because something changed.
    pub fn add(&self, key: T) {
        self.lock().enqueue(key, false);
        self.shared.wake.notify_one();
    }

    /// Adds a key because the process has just started; changes overtake it.
    pub fn add_initial(&self, key: T) {
        self.lock().enqueue(key, true);
        self.shared.wake.notify_one();
    }

    /// Adds a key after a while. Of several delays of one key the earliest counts.
    pub fn add_after(&self, key: T, delay: Duration) {
        let at = clock::monotonic() + delay;
        self.lock().delay(key, at);
        self.shared.wake.notify_one();
    }

    /// Adds a key after its next backoff, and at least after `hint`; tells how long that is.
    pub fn retry(&self, key: T, hint: Option<Duration>) -> Duration {
        let mut state = self.lock();
        let failures = state.failures.entry(key.clone()).or_insert(0);
        let exponent = (*failures).min(16);
        *failures += 1;
        let delay = BASE_DELAY.saturating_mul(1 << exponent).min(MAX_DELAY);
        let delay = clock::jitter(delay, 0.2).max(hint.unwrap_or_default());
        state.delay(key, clock::monotonic() + delay);
        drop(state);
        self.shared.wake.notify_one();
        delay
    }

    /// Forgets the failures of a key: its next backoff is a short one.
    pub fn forget(&self, key: &T) {
        self.lock().failures.remove(key);
    }

    /// The next key to work on; none once the queue is closed. Every key taken is given back by [`Self::done`].
    pub async fn next(&self) -> Option<T> {
        loop {
            let notified = self.shared.wake.notified();
            let deadline = {
                let mut state = self.lock();
                if state.closed {
                    drop(state);
                    // The wake-up goes round to every worker.
                    self.shared.wake.notify_one();
                    return None;
                }
                state.promote(clock::monotonic());
                if let Some(key) = state.take() {
                    let more = !state.live.is_empty() || !state.initial.is_empty();
                    drop(state);
                    if more {
                        self.shared.wake.notify_one();
                    }
                    return Some(key);
                }
                state.delayed.first_key_value().map(|((at, _), _)| *at)
            };
            match deadline {
                Some(at) => {
                    tokio::select! {
                        () = notified => {}
                        () = clock::sleep_until(at) => {}
                    }
                }
                None => notified.await,
            }
        }
    }

    /// Ends the work on a key.
    pub fn done(&self, key: &T) {
        let mut state = self.lock();
        state.working.remove(key);
        if state.again.remove(key) {
            state.enqueue(key.clone(), false);
        }
        drop(state);
        self.shared.wake.notify_one();
    }

    /// How many keys wait for a worker, delayed ones left out.
    #[must_use]
    pub fn len(&self) -> usize {
        let state = self.lock();
        state.live.len() + state.initial.len()
    }

    /// Whether no key waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the queue: workers get nothing more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.shared.wake.notify_waiters();
        self.shared.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No code that can panic runs under the lock.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone + Eq + Hash> State<T> {
    fn enqueue(&mut self, key: T, initial: bool) {
        if self.working.contains(&key) {
            self.again.insert(key);
        } else if self.waiting.insert(key.clone()) {
            if initial {
                self.initial.push_back(key)
            } else {
                self.live.push_back(key)
            }
        }
    }

    fn delay(&mut self, key: T, at: Instant) {
        if let Some(earlier) = self.delay_of.get(&key) {
            if earlier.0 <= at {
                return;
            }
            let earlier = *earlier;
            self.delayed.remove(&earlier);
        }
        self.sequence += 1;
        let slot = (at, self.sequence);
        self.delay_of.insert(key.clone(), slot);
        self.delayed.insert(slot, key);
    }

    fn promote(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let key = entry.remove();
            self.delay_of.remove(&key);
            self.enqueue(key, false);
        }
    }

    fn take(&mut self) -> Option<T> {
        let key = self.live.pop_front().or_else(|| self.initial.pop_front())?;
        self.waiting.remove(&key);
        self.working.insert(key.clone());
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_once_and_has_one_worker() {
        let queue = Queue::new();
        queue.add("a");
        queue.add("a");
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.next().await, Some("a"));
        queue.add("a");
        assert_eq!(queue.len(), 0, "not handed out twice at once");
        queue.done(&"a");
        assert_eq!(
            queue.next().await,
            Some("a"),
            "what changed meanwhile is looked at again"
        );
        queue.done(&"a");
        assert_eq!(queue.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_overtake_the_start() {
        let queue = Queue::new();
        queue.add_initial(1);
        queue.add_initial(2);
        queue.add(3);
        assert_eq!(queue.next().await, Some(3));
        assert_eq!(queue.next().await, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_delay_counts() {
        let queue = Queue::new();
        let began = clock::monotonic();
        queue.add_after("a", Duration::from_secs(60));
        queue.add_after("a", Duration::from_secs(5));
        queue.add_after("a", Duration::from_secs(30));
        assert_eq!(queue.next().await, Some("a"));
        assert_eq!((clock::monotonic() - began).as_secs(), 5);
        queue.done(&"a");
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_per_key_and_honour_the_hint() {
        let queue = Queue::new();
        let first = queue.retry("a", None);
        for _ in 0..20 {
            queue.retry("a", None);
        }
        let later = queue.retry("a", None);
        assert!(
            first < Duration::from_millis(50) && later >= Duration::from_secs(45),
            "{first:?} {later:?}"
        );
        assert!(queue.retry("b", None) < Duration::from_millis(50));
        assert!(queue.retry("b", Some(Duration::from_secs(7))) >= Duration::from_secs(7));
        queue.forget(&"a");
        assert!(queue.retry("a", None) < Duration::from_millis(50));
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_every_worker() {
        let queue: Queue<u8> = Queue::new();
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                clock::spawn("test", async move { queue.next().await })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.close();
        for worker in workers {
            assert_eq!(worker.await.unwrap(), None);
        }
    }
}
