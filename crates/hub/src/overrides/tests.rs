//! Which snapshots of an override there have to be.

use proptest::prelude::*;

use serde_json::json;
use windlass_api::overrides::ResourceOverride;

use super::kind::Kind;
use super::plan::{Facts, Fate, HISTORY, Plan, plan};

fn fact(index: u64, marks: &str) -> Facts {
    Facts {
        index,
        is_current: marks.contains('c'),
        is_labelled: marks.contains('l'),
        is_owned: marks.contains('o'),
        in_use: marks.contains('u'),
    }
}

/// Marks: c of the present version, l labelled, o owned, u used by a binding.
#[test]
fn rows() {
    use Fate::{Goes, Stays};
    let create = |index, mark: &[(usize, bool, bool)]| Plan {
        create: Some(index),
        mark: mark.to_vec(),
        expired: vec![],
    };
    let mark = |mark: &[(usize, bool, bool)]| Plan {
        mark: mark.to_vec(),
        ..Plan::default()
    };
    let expire = |expired: &[usize]| Plan {
        expired: expired.to_vec(),
        ..Plan::default()
    };
    let rows: Vec<(&str, Fate, Vec<Facts>, Plan)> = vec![
        ("the first", Stays, vec![], create(0, &[])),
        (
            "nothing to do",
            Stays,
            vec![fact(0, "clo")],
            Plan::default(),
        ),
        (
            "a change",
            Stays,
            vec![fact(0, "lo")],
            create(1, &[(0, false, true)]),
        ),
        (
            "back to an earlier version is a new one",
            Stays,
            vec![fact(0, "co"), fact(1, "lo")],
            create(2, &[(1, false, true)]),
        ),
        (
            "a crash before the old label went",
            Stays,
            vec![fact(0, "lo"), fact(1, "clo")],
            mark(&[(0, false, true)]),
        ),
        (
            "a label that was taken off",
            Stays,
            vec![fact(0, "co")],
            mark(&[(0, true, true)]),
        ),
        (
            "made anew under its old name",
            Stays,
            vec![fact(4, "cu")],
            mark(&[(0, true, true)]),
        ),
        (
            "it goes",
            Goes,
            vec![fact(0, "o"), fact(1, "lo")],
            expire(&[0, 1]),
        ),
        (
            "it goes, but is used",
            Goes,
            vec![fact(0, "o"), fact(1, "lou")],
            Plan {
                expired: vec![0],
                ..mark(&[(1, false, false)])
            },
        ),
        (
            "it is gone, and still used",
            Goes,
            vec![fact(1, "u")],
            Plan::default(),
        ),
        (
            "it is gone, and not used any more",
            Goes,
            vec![fact(1, "")],
            expire(&[0]),
        ),
    ];
    for (what, fate, facts, expected) in rows {
        assert_eq!(plan(fate, &facts), expected, "{what}");
    }
}

#[test]
fn history_is_bounded_and_keeps_what_is_used() {
    let mut facts: Vec<Facts> = (0..HISTORY as u64).map(|index| fact(index, "o")).collect();
    facts[0].in_use = true;
    facts[HISTORY - 1].is_labelled = true;
    let plan = plan(Fate::Stays, &facts);
    assert_eq!(plan.create, Some(HISTORY as u64));
    assert_eq!(plan.expired, [1], "the oldest that nothing uses");
}

/// An override with its snapshots, as the plans leave them.
#[derive(Default)]
struct Life {
    version: u8,
    snapshots: Vec<(u64, u8, bool, bool, bool)>,
}

impl Life {
    fn look(&mut self, fate: Fate, writes: usize) {
        let facts: Vec<Facts> = self
            .snapshots
            .iter()
            .map(|(index, version, labelled, owned, in_use)| Facts {
                index: *index,
                is_current: fate == Fate::Stays && *version == self.version,
                is_labelled: *labelled,
                is_owned: *owned,
                in_use: *in_use,
            })
            .collect();
        let plan = plan(fate, &facts);
        // Each write may be the last one.
        let mut left = writes;
        let mut may = || {
            let may = left > 0;
            left = left.saturating_sub(1);
            may
        };
        if let Some(index) = plan.create.filter(|_| may()) {
            self.snapshots
                .push((index, self.version, true, true, false));
        } else if plan.create.is_some() {
            return;
        }
        for (at, latest, owned) in plan.mark {
            if may() {
                (self.snapshots[at].2, self.snapshots[at].3) = (latest, owned);
            }
        }
        let expired: Vec<u64> = plan
            .expired
            .iter()
            .map(|at| facts[*at].index)
            .filter(|_| may())
            .collect();
        self.snapshots
            .retain(|snapshot| !expired.contains(&snapshot.0));
    }

    fn latest(&self) -> Option<&(u64, u8, bool, bool, bool)> {
        self.snapshots.iter().max_by_key(|snapshot| snapshot.0)
    }
}

proptest! {
    /// Changes, uses and deaths in any order: what is used is never removed, once there was a latest there
    /// always is one, and at rest it is of the present version, alone and labelled.
    #[test]
    fn any_life(steps in proptest::collection::vec((0..3u8, 0..4usize, any::<bool>()), 1..40)) {
        let mut life = Life::default();
        let mut used = None;
        for (version, writes, uses) in steps {
            life.version = version;
            let had_one = life.snapshots.iter().any(|snapshot| snapshot.2);
            life.look(Fate::Stays, writes);
            prop_assert!(!had_one || life.snapshots.iter().any(|snapshot| snapshot.2));
            if uses && let Some(latest) = life.latest().map(|latest| latest.0) {
                used = Some(latest);
                for snapshot in &mut life.snapshots {
                    snapshot.4 = snapshot.0 == latest;
                }
            }
            prop_assert!(used.is_none_or(|used| life.snapshots.iter().any(|snapshot| snapshot.0 == used)));
        }
        life.look(Fate::Stays, 99);
        life.look(Fate::Stays, 99);
        let labelled: Vec<u64> = life.snapshots.iter().filter(|s| s.2).map(|s| s.0).collect();
        let latest = *life.latest().unwrap();
        prop_assert_eq!(labelled, vec![latest.0]);
        prop_assert_eq!(latest.1, life.version);
        prop_assert!(life.snapshots.len() <= HISTORY + 1);
        life.look(Fate::Goes, 99);
        prop_assert!(life.snapshots.iter().all(|s| s.4 && !s.2 && !s.3));
    }
}

/// Somebody may have written over a snapshot, or left the hash of another implementation in it.
#[test]
fn what_a_snapshot_says_makes_it_the_version() {
    let of: ResourceOverride = serde_json::from_value(json!({"metadata": {"name": "o"}, "spec": {
        "resourceSelectors": [{"group": "", "version": "v1", "kind": "ConfigMap", "name": "c"}],
        "policy": {"overrideRules": [{"jsonPatchOverrides": [{"op": "add", "path": "/data/a", "value": "1"}]}]}}}))
    .unwrap();
    let snapshot = of.snapshot("o-0");
    assert!(of.is_in(&snapshot));
    let mut foreign = snapshot.clone();
    foreign.spec.override_hash.0.clear();
    assert!(of.is_in(&foreign));
    let mut changed = serde_json::to_value(&snapshot).unwrap();
    changed["spec"]["overrideSpec"]["policy"]["overrideRules"][0]["jsonPatchOverrides"][0]["value"] =
        "2".into();
    assert!(!of.is_in(&serde_json::from_value(changed).unwrap()));
}
