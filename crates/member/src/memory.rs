//! What is remembered of objects between two passes. All of it may be lost: then a pass costs a few
//! requests more, and nothing else.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_cluster::clock::Instant;
use windlass_status::digest::Digest;

use crate::manifest::{ManifestId, Problem};

/// First pause after a failure, or between two times that a change of somebody else is undone.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// After so long without another change, a quarrel over an object is over.
const PEACE: Duration = Duration::from_secs(120);

/// See the module. Everything is filed under the object in any version; failures also under the name of the
/// AppliedWork that failed: two placements of equal content have equal digests, and fare differently.
#[derive(Default)]
pub(crate) struct Memory {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    clean: HashMap<ManifestId, (String, String)>,
    failures: HashMap<ManifestId, HashMap<String, Failure>>,
    quarrels: HashMap<ManifestId, Quarrel>,
}

struct Failure {
    /// Digest of the desired state that failed: another one is tried at once.
    about: Digest,
    count: u32,
    until: Instant,
    problem: Problem,
}

struct Quarrel {
    count: u32,
    until: Instant,
}

impl Memory {
    /// Whether an object is as our last apply left it.
    pub fn is_clean(&self, id: &ManifestId, state: &(String, String)) -> bool {
        self.lock().clean.get(&id.any_version()) == Some(state)
    }

    /// Notes that an apply of a Work went well. `put_back`: it undid what somebody else had changed.
    pub fn applied(
        &self,
        work: &str,
        id: &ManifestId,
        state: (String, String),
        put_back: bool,
        now: Instant,
    ) {
        let id = id.any_version();
        let mut memory = self.lock();
        memory.settle(work, &id);
        if put_back {
            let quarrel = memory.quarrels.entry(id.clone()).or_insert(Quarrel {
                count: 0,
                until: now,
            });
            quarrel.count = if now > quarrel.until + PEACE {
                1
            } else {
                quarrel.count + 1
            };
            quarrel.until = now + pause(quarrel.count);
        }
        memory.clean.insert(id, state);
    }

    /// How long a change of somebody else is left alone, and how often in a row such were undone; none when
    /// it may be undone now.
    pub fn quarrel(&self, id: &ManifestId, now: Instant) -> Option<(Duration, u32)> {
        let memory = self.lock();
        let quarrel = memory.quarrels.get(&id.any_version())?;
        (quarrel.until > now).then(|| (quarrel.until - now, quarrel.count))
    }

    /// Notes a failure of a Work; tells how long that one leaves the object alone now.
    pub fn failed(
        &self,
        work: &str,
        id: &ManifestId,
        about: Digest,
        problem: &Problem,
        hint: Option<Duration>,
        now: Instant,
    ) -> Duration {
        let mut memory = self.lock();
        let failures = memory.failures.entry(id.any_version()).or_default();
        let before = failures.get(work).filter(|failure| failure.about == about);
        let count = before.map_or(0, |failure| failure.count).saturating_add(1);
        let wait = pause(count).max(hint.unwrap_or_default());
        let failure = Failure {
            about,
            count,
            until: now + wait,
            problem: problem.clone(),
        };
        failures.insert(work.to_owned(), failure);
        wait
    }

    /// The last failure of a Work, while it leaves the object alone for it, and how long still.
    pub fn held(
        &self,
        work: &str,
        id: &ManifestId,
        about: Digest,
        now: Instant,
    ) -> Option<(Problem, Duration)> {
        let memory = self.lock();
        let failure = memory.failures.get(&id.any_version())?.get(work)?;
        (failure.about == about && failure.until > now)
            .then(|| (failure.problem.clone(), failure.until - now))
    }

    /// The Works that failed over an object, and wait to try it again.
    pub fn waiting(&self, id: &ManifestId) -> Vec<String> {
        let memory = self.lock();
        let failures = memory.failures.get(&id.any_version());
        failures
            .into_iter()
            .flat_map(|failures| failures.keys().cloned())
            .collect()
    }

    /// Forgets failures of an object, whoever's they are, because something about it has changed.
    pub fn retry(&self, id: &ManifestId) {
        self.lock().failures.remove(&id.any_version());
    }

    /// Forgets an object that is gone, or is not ours any more. A quarrel is kept: one that keeps deleting
    /// what we make is one, too.
    pub fn forget(&self, id: &ManifestId) {
        let id = id.any_version();
        let mut memory = self.lock();
        memory.failures.remove(&id);
        memory.clean.remove(&id);
    }

    /// Forgets all about an object.
    pub fn erase(&self, id: &ManifestId) {
        self.forget(id);
        self.lock().quarrels.remove(&id.any_version());
    }

    /// Forgets the failures of a Work that is no more.
    pub fn end(&self, work: &str) {
        self.lock().failures.retain(|_, failures| {
            failures.remove(work);
            !failures.is_empty()
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn settle(&mut self, work: &str, id: &ManifestId) {
        let Some(failures) = self.failures.get_mut(id) else {
            return;
        };
        failures.remove(work);
        if failures.is_empty() {
            self.failures.remove(id);
        }
    }
}

fn pause(count: u32) -> Duration {
    FIRST_PAUSE
        .saturating_mul(1 << count.saturating_sub(1).min(6))
        .min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::conditions::ManifestReason;
    use windlass_cluster::clock;

    fn id() -> ManifestId {
        ManifestId {
            kind: "ConfigMap".into(),
            version: "v1".into(),
            name: "a".into(),
            ..Default::default()
        }
    }

    fn state(version: &str) -> (String, String) {
        ("u".into(), version.into())
    }

    #[test]
    fn an_object_is_clean_until_its_version_changes() {
        let memory = Memory::default();
        memory.applied("w", &id(), state("1"), false, clock::monotonic());
        assert!(memory.is_clean(&id(), &state("1")));
        assert!(memory.is_clean(
            &ManifestId {
                version: "v2".into(),
                ..id()
            },
            &state("1")
        ));
        assert!(!memory.is_clean(&id(), &state("2")));
        memory.forget(&id());
        assert!(!memory.is_clean(&id(), &state("1")));
    }

    #[test]
    fn failures_wait_longer_each_time_and_only_for_the_same_desired_state() {
        let (memory, now) = (Memory::default(), clock::monotonic());
        let (one, other) = (Digest::of_bytes(b"1"), Digest::of_bytes(b"2"));
        let problem = Problem {
            reason: ManifestReason::ManifestApplyFailed,
            message: "m".into(),
        };
        let waits: Vec<u64> = (0..9)
            .map(|_| {
                memory
                    .failed("w", &id(), one, &problem, None, now)
                    .as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(
            memory.held("w", &id(), one, now),
            Some((problem.clone(), LONGEST_PAUSE))
        );
        assert_eq!(memory.held("w", &id(), one, now + LONGEST_PAUSE), None);
        assert_eq!(memory.held("w", &id(), other, now), None);
        assert_eq!(
            memory
                .failed("w", &id(), other, &problem, None, now)
                .as_secs(),
            1
        );
        let hint = Some(Duration::from_secs(99));
        assert_eq!(
            memory
                .failed("w", &id(), other, &problem, hint, now)
                .as_secs(),
            99
        );
        memory.retry(&id());
        assert_eq!(memory.held("w", &id(), other, now), None);
    }

    #[test]
    fn the_failure_of_one_work_is_not_that_of_another() {
        let (memory, now) = (Memory::default(), clock::monotonic());
        let same = Digest::of_bytes(b"1");
        let problem = Problem {
            reason: ManifestReason::FailedToTakeOver,
            message: "placed by another".into(),
        };
        memory.failed("loser", &id(), same, &problem, None, now);
        assert_eq!(memory.held("owner", &id(), same, now), None);
        memory.applied("owner", &id(), state("1"), false, now);
        assert_eq!(
            memory.held("loser", &id(), same, now),
            Some((problem.clone(), FIRST_PAUSE)),
            "the owner's apply says nothing about the loser"
        );
        let wait = memory.failed("loser", &id(), same, &problem, None, now);
        assert_eq!(wait, FIRST_PAUSE * 2);
        assert_eq!(memory.waiting(&id()), ["loser"]);
        memory.end("owner");
        assert!(memory.held("loser", &id(), same, now).is_some());
        memory.end("loser");
        assert_eq!(memory.held("loser", &id(), same, now), None);
        memory.failed("loser", &id(), same, &problem, None, now);
        memory.forget(&id());
        assert_eq!(
            memory.held("loser", &id(), same, now),
            None,
            "what is gone is in nobody's way"
        );
    }

    #[test]
    fn a_quarrel_slows_down_and_ends() {
        let (memory, now) = (Memory::default(), clock::monotonic());
        assert_eq!(memory.quarrel(&id(), now), None);
        memory.applied("w", &id(), state("1"), true, now);
        assert_eq!(memory.quarrel(&id(), now), Some((FIRST_PAUSE, 1)));
        memory.applied("w", &id(), state("2"), true, now);
        assert_eq!(memory.quarrel(&id(), now), Some((FIRST_PAUSE * 2, 2)));
        memory.applied("w", &id(), state("3"), false, now);
        assert_eq!(
            memory.quarrel(&id(), now).map(|(_, count)| count),
            Some(2),
            "other applies don't count"
        );
        let later = now + PEACE * 2;
        memory.applied("w", &id(), state("4"), true, later);
        assert_eq!(memory.quarrel(&id(), later), Some((FIRST_PAUSE, 1)));
    }
}
