//! What each placement selected last, for as long as nothing can have changed it.
//!
//! A look at a placement is mostly due to a report of one of its clusters, which changes nothing of what it
//! selects. What was selected last counts still, unless
//!
//! | what | how that is known |
//! |---|---|
//! | an object, a namespace, a CRD or the state of a watch that matters has changed | whoever wakes the placement for it says so first ([`Kept::outdate`]) |
//! | the selectors have changed | they are compared |
//! | other kinds are known | [`Discovery::news`](windlass_cluster::Discovery::news) moved |
//! | nobody would tell, or it failed | its time is over |

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass_api::placement::ResourceSelectorTerm;
use windlass_cluster::ObjectKey;
use windlass_cluster::clock::{self, Instant};

use super::{BLIND, SelectError, Selection, lock};

/// When what failed is tried again for the first time; from then on after twice the time before.
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// The longest such time, and the shortest after a refusal.
const REFUSED_RETRY: Duration = Duration::from_secs(30);

/// What a placement selects, or why that can't be told.
#[derive(Clone, Debug)]
pub struct Known {
    /// See [`super::Resources::select`].
    pub outcome: Result<Arc<Selection>, SelectError>,
    /// When to look again though nothing is heard.
    pub again: Option<Instant>,
}

impl Known {
    /// How long to wait until then.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        let now = clock::monotonic();
        self.again.map(|at| at.saturating_duration_since(now))
    }
}

/// What an outcome follows from, beside what is told of.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Basis {
    pub(super) selectors: Vec<ResourceSelectorTerm>,
    pub(super) news: u64,
}

#[derive(Default)]
pub(super) struct Kept {
    slots: Mutex<HashMap<ObjectKey, Slot>>,
}

#[derive(Default)]
struct Slot {
    outdated: bool,
    /// How often in a row it failed.
    failures: u32,
    last: Option<Last>,
}

struct Last {
    basis: Basis,
    known: Known,
    /// It does not count from then on.
    until: Option<Instant>,
}

impl Kept {
    /// What was selected last, if that still counts.
    pub(super) fn get(&self, placement: &ObjectKey, basis: &Basis, now: Instant) -> Option<Known> {
        let slots = lock(&self.slots);
        let slot = slots.get(placement).filter(|slot| !slot.outdated)?;
        let last = slot.last.as_ref()?;
        let counts = last.basis == *basis && last.until.is_none_or(|until| now < until);
        counts.then(|| last.known.clone())
    }

    /// Whether what was selected last still counts: nothing was heard since that may change it.
    pub(super) fn counts(&self, placement: &ObjectKey) -> bool {
        let slots = lock(&self.slots);
        slots.get(placement).is_some_and(|slot| !slot.outdated)
    }

    /// A look begins: what changes from now on may be seen by it or not.
    pub(super) fn begin(&self, placement: &ObjectKey) {
        let mut slots = lock(&self.slots);
        let slot = slots.entry(placement.clone()).or_default();
        slot.outdated = false;
        slot.last = None;
    }

    /// Keeps what has come of it.
    pub(super) fn keep(
        &self,
        placement: &ObjectKey,
        basis: Basis,
        outcome: Result<Arc<Selection>, SelectError>,
        now: Instant,
    ) -> Known {
        let mut slots = lock(&self.slots);
        let slot = slots.entry(placement.clone()).or_default();
        let (again, until) = match &outcome {
            Ok(selection) => {
                let again = selection.again.map(|pause| now + pause);
                (again, again)
            }
            // A kind that is served by an API server of its own comes without a word.
            Err(SelectError::User(_)) => (None, Some(now + BLIND)),
            // Whoever wakes the placement does not say that anything has changed: it may just be synced.
            Err(SelectError::Pending(_) | SelectError::Unwritten(_)) => (None, Some(now)),
            Err(SelectError::Api { retry, .. }) => {
                let again = now + pause(slot.failures, *retry);
                (Some(again), Some(again))
            }
        };
        slot.failures = match &outcome {
            Err(SelectError::Api { .. }) => slot.failures.saturating_add(1),
            _ => 0,
        };
        let known = Known { outcome, again };
        slot.last = Some(Last {
            basis,
            known: known.clone(),
            until,
        });
        known
    }

    /// Something has changed that matters to these.
    pub(super) fn outdate(&self, placements: &BTreeSet<ObjectKey>) {
        let mut slots = lock(&self.slots);
        for placement in placements {
            if let Some(slot) = slots.get_mut(placement) {
                slot.outdated = true;
                // Not needed any more.
                slot.last = None;
            }
        }
    }

    pub(super) fn forget(&self, placement: &ObjectKey) {
        lock(&self.slots).remove(placement);
    }
}

fn pause(failures: u32, retry: bool) -> Duration {
    if !retry {
        return REFUSED_RETRY;
    }
    let doubled = FIRST_RETRY.saturating_mul(1 << failures.min(16));
    clock::jitter(doubled.min(REFUSED_RETRY), 0.2)
}

#[cfg(test)]
mod tests {
    use windlass_status::digest::Digest;

    use super::*;

    fn basis(kind: &str, news: u64) -> Basis {
        let selector = ResourceSelectorTerm {
            kind: kind.to_owned(),
            ..Default::default()
        };
        Basis {
            selectors: vec![selector],
            news,
        }
    }

    fn selection(again: Option<Duration>) -> Result<Arc<Selection>, SelectError> {
        Ok(Arc::new(Selection {
            manifests: Vec::new(),
            hash: Digest::of_bytes(b""),
            idle: Vec::new(),
            again,
        }))
    }

    fn failed(retry: bool) -> Result<Arc<Selection>, SelectError> {
        let message = "no".to_owned();
        Err(SelectError::Api { message, retry })
    }

    /// What is kept counts after so many milliseconds, with that basis; or not.
    #[test]
    fn how_long_it_counts() {
        let (p, own) = (ObjectKey::cluster("p"), basis("a", 1));
        let pending = Err(SelectError::Pending(String::new()));
        let user = Err(SelectError::User(String::new()));
        let day = 86_400_000;
        for (what, outcome, after, with, counts) in [
            ("for ever", selection(None), day, basis("a", 1), true),
            ("other selectors", selection(None), 0, basis("b", 1), false),
            ("other kinds", selection(None), 0, basis("a", 2), false),
            ("blind", selection(Some(BLIND)), 29_999, basis("a", 1), true),
            (
                "and over",
                selection(Some(BLIND)),
                30_000,
                basis("a", 1),
                false,
            ),
            ("a user's error", user.clone(), 29_999, basis("a", 1), true),
            ("is looked at again", user, 30_000, basis("a", 1), false),
            ("what is under way", pending, 0, basis("a", 1), false),
            ("a failure", failed(true), 39, basis("a", 1), true),
            (
                "is tried again soon",
                failed(true),
                60,
                basis("a", 1),
                false,
            ),
            ("a refusal", failed(false), 29_999, basis("a", 1), true),
            ("not so soon", failed(false), 30_000, basis("a", 1), false),
        ] {
            let (kept, now) = (Kept::default(), clock::monotonic());
            kept.begin(&p);
            kept.keep(&p, own.clone(), outcome, now);
            let later = now + Duration::from_millis(after);
            assert_eq!(kept.get(&p, &with, later).is_some(), counts, "{what}");
        }
    }

    #[test]
    fn failures_in_a_row_are_tried_ever_more_rarely() {
        let (p, kept, now) = (ObjectKey::cluster("p"), Kept::default(), clock::monotonic());
        let keep = |outcome| {
            kept.begin(&p);
            let known = kept.keep(&p, basis("a", 1), outcome, now);
            known.again.map(|at| at.saturating_duration_since(now))
        };
        for (at, most) in (0..14).zip([60, 120, 240, 480, 960, 1920, 3840, 7680, 15_360, 30_720]) {
            let pause = keep(failed(true)).unwrap().as_millis();
            assert!(pause <= most && pause * 10 >= most * 6, "{at}: {pause} ms");
        }
        for _ in 0..40 {
            assert!(keep(failed(true)).unwrap() <= Duration::from_secs(36));
        }
        assert_eq!(keep(selection(None)), None);
        assert!(keep(failed(true)).unwrap() <= Duration::from_millis(60));
    }

    /// A change counts whenever it is told: before, during or after a look; and a look that was given up
    /// leaves nothing.
    #[test]
    fn a_change_is_never_missed() {
        let (p, now) = (ObjectKey::cluster("p"), clock::monotonic());
        let told = BTreeSet::from([p.clone()]);
        let own = basis("a", 1);
        for at in 0..4 {
            let kept = Kept::default();
            let counts = || {
                kept.begin(&p);
                if at == 0 {
                    kept.outdate(&told);
                }
                kept.keep(&p, own.clone(), selection(None), now);
                match at {
                    1 => kept.outdate(&told),
                    2 => kept.begin(&p),
                    _ => {}
                }
                kept.get(&p, &own, now).is_some()
            };
            assert_eq!(counts(), at == 3, "{at}");
            kept.outdate(&BTreeSet::from([ObjectKey::cluster("q")]));
            assert_eq!(kept.get(&p, &own, now).is_some(), at == 3, "{at}");
            kept.forget(&p);
            assert!(kept.get(&p, &own, now).is_none());
        }
    }
}
