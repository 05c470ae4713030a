//! A work queue: keys, each at most once, each with one worker at a time.
//!
//! Rules: a key that is added while it waits is not added again; one that is added while it is worked on
//! comes again afterwards; changes overtake what the start-up put in, also for a key that the start-up
//! put in; a failing key waits longer each time, on its own.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{self, Instant};

/// First wait after a failure.
const BASE_DELAY: Duration = Duration::from_millis(5);
/// Longest wait after failures, give or take the jitter.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// Fraction by which a backoff varies.
const JITTER: f64 = 0.2;

/// How many keys are where: for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Keys that wait because something changed.
    pub live: usize,
    /// Keys that wait because the process has just started.
    pub initial: usize,
    /// Keys that a worker has.
    pub working: usize,
    /// Keys that come later.
    pub delayed: usize,
}

/// See the module. Clones share the queue.
pub struct Queue<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    wake: Notify,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    Live,
    Initial,
}

struct State<T> {
    live: VecDeque<T>,
    /// May hold keys that have moved to the other lane since; `waiting` decides.
    initial: VecDeque<T>,
    waiting: HashMap<T, Lane>,
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
            waiting: HashMap::new(),
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
        self.lock().enqueue(key, Lane::Live);
        self.shared.wake.notify_one();
    }

    /// Adds a key because the process has just started; changes overtake it.
    pub fn add_initial(&self, key: T) {
        self.lock().enqueue(key, Lane::Initial);
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
        let backoff = BASE_DELAY
            .saturating_mul(1 << (*failures).min(16))
            .min(MAX_DELAY);
        *failures += 1;
        let delay = clock::jitter(backoff, JITTER).max(hint.unwrap_or_default());
        state.delay(key, clock::monotonic() + delay);
        drop(state);
        self.shared.wake.notify_one();
        delay
    }

    /// Forgets the failures of a key: its next backoff is a short one. Due when a key has succeeded, and
    /// when what it names is gone.
    pub fn forget(&self, key: &T) {
        self.lock().failures.remove(key);
    }

    /// The next key to work on; none once the queue is shut down. Every key taken is given back by
    /// [`Self::done`]. May be dropped while it waits, without losing a key.
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
                    let more = !state.waiting.is_empty();
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
            state.enqueue(key.clone(), Lane::Live);
        }
        drop(state);
        self.shared.wake.notify_one();
    }

    /// How many keys wait for a worker, delayed ones left out.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Whether no key waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys are where.
    #[must_use]
    pub fn depth(&self) -> Depth {
        let state = self.lock();
        Depth {
            live: state.live.len(),
            initial: state.waiting.len() - state.live.len(),
            working: state.working.len(),
            delayed: state.delayed.len(),
        }
    }

    /// Ends the queue: workers get nothing more.
    pub fn shutdown(&self) {
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
    fn enqueue(&mut self, key: T, lane: Lane) {
        if self.working.contains(&key) {
            self.again.insert(key);
            return;
        }
        match (self.waiting.get(&key), lane) {
            (Some(Lane::Live), _) | (Some(Lane::Initial), Lane::Initial) => {}
            (_, Lane::Live) => {
                self.waiting.insert(key.clone(), Lane::Live);
                self.live.push_back(key);
            }
            (None, Lane::Initial) => {
                self.waiting.insert(key.clone(), Lane::Initial);
                self.initial.push_back(key);
            }
        }
    }

    fn delay(&mut self, key: T, at: Instant) {
        if let Some(known) = self.delay_of.get(&key).copied() {
            if known.0 <= at {
                return;
            }
            self.delayed.remove(&known);
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
            self.enqueue(key, Lane::Live);
        }
    }

    fn take(&mut self) -> Option<T> {
        let key = self.live.pop_front().or_else(|| self.take_initial())?;
        self.waiting.remove(&key);
        self.working.insert(key.clone());
        Some(key)
    }

    fn take_initial(&mut self) -> Option<T> {
        while let Some(key) = self.initial.pop_front() {
            if self.waiting.get(&key) == Some(&Lane::Initial) {
                return Some(key);
            }
        }
        None
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
        queue.add_after("a", Duration::ZERO);
        let other = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
        assert!(other.is_err(), "not handed out twice at once");
        queue.done(&"a");
        assert_eq!(
            queue.next().await,
            Some("a"),
            "what changed meanwhile is looked at again, once"
        );
        queue.done(&"a");
        assert_eq!(queue.depth(), Depth::default());
    }

    #[tokio::test(start_paused = true)]
    async fn changes_overtake_the_start() {
        let queue = Queue::new();
        for key in [1, 2, 3] {
            queue.add_initial(key);
        }
        queue.add(4);
        queue.add(2);
        queue.add_initial(4);
        assert_eq!(
            queue.depth(),
            Depth {
                live: 2,
                initial: 2,
                ..Depth::default()
            }
        );
        let mut order = Vec::new();
        while !queue.is_empty() {
            order.extend(queue.next().await);
        }
        assert_eq!(order, [4, 2, 1, 3]);
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
        assert_eq!(queue.depth(), Depth::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_added_while_a_worker_waits_is_heard() {
        let queue = Queue::new();
        queue.add_after("late", Duration::from_secs(60));
        let worker = clock::spawn("test", {
            let queue = queue.clone();
            async move { (queue.next().await, clock::monotonic()) }
        });
        tokio::task::yield_now().await;
        let began = clock::monotonic();
        queue.add_after("soon", Duration::from_secs(1));
        let (key, at) = worker.await.unwrap();
        assert_eq!((key, (at - began).as_secs()), (Some("soon"), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_per_key_and_honour_the_hint() {
        let queue = Queue::new();
        let mut last = Duration::ZERO;
        for failure in 0..13 {
            let delay = queue.retry("a", None);
            let exact = BASE_DELAY * (1 << failure);
            assert!(
                delay >= exact.mul_f64(0.79) && delay <= exact.mul_f64(1.21),
                "{failure}: {delay:?}"
            );
            last = delay;
        }
        assert!(last > Duration::from_secs(15));
        for _ in 0..20 {
            last = queue.retry("a", None);
        }
        assert!(
            last >= Duration::from_secs(48) && last <= Duration::from_secs(72),
            "{last:?}"
        );
        assert!(
            queue.retry("b", None) < Duration::from_millis(7),
            "on its own"
        );
        assert!(queue.retry("b", Some(Duration::from_secs(7))) >= Duration::from_secs(7));
        queue.forget(&"a");
        assert!(queue.retry("a", None) < Duration::from_millis(7));
    }

    #[tokio::test(start_paused = true)]
    async fn shutting_down_ends_every_worker() {
        let queue: Queue<u8> = Queue::new();
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                clock::spawn("test", async move { queue.next().await })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.shutdown();
        for worker in workers {
            assert_eq!(worker.await.unwrap(), None);
        }
        queue.add(1);
        assert_eq!(queue.next().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn no_wake_up_is_lost_among_workers() {
        let queue: Queue<u32> = Queue::new();
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..4 {
            let (queue, told) = (queue.clone(), told.clone());
            clock::spawn("test", async move {
                while let Some(key) = queue.next().await {
                    tokio::task::yield_now().await;
                    told.send(key).unwrap();
                    queue.done(&key);
                }
            });
        }
        tokio::task::yield_now().await;
        for key in 0..100 {
            if key % 3 == 0 {
                queue.add_after(key, Duration::from_millis(key.into()));
            } else {
                queue.add(key);
            }
        }
        let mut keys = Vec::new();
        for _ in 0..100 {
            keys.extend(heard.recv().await);
        }
        keys.sort_unstable();
        assert_eq!(keys, (0..100).collect::<Vec<_>>());
        queue.shutdown();
    }
}
