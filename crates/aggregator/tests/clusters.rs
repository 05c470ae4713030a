//! The reference's tables of helpers (hub §2.9) and of a cluster's entry (hub §2.10), row by row, with
//! the latest snapshot at index 1. P19 to P21 are about namespaced placements, which do not exist yet.

mod common;

use common::{World, entry, parse, placement};
use windlass_aggregator::{bindings_by_cluster, unfilled_slots};

const FULFILLED: &str = "RS=T OV=T WS=T AP=T AV=T";

#[track_caller]
fn check(row: &str, world: World, binding: &str, expected: &str) {
    let world = if binding.is_empty() {
        world.chosen("c")
    } else {
        world.bound(&format!("c {binding}"))
    };
    let status = world.run(1_000).status;
    let entries: Vec<_> = status
        .placement_statuses
        .iter()
        .flatten()
        .map(entry)
        .collect();
    assert_eq!(entries, [format!("c {expected}")], "row {row}");
}

#[test]
fn rolling_update() {
    let none = "idx= | Sch=T RS=U/RolloutStartedUnknown";
    let rows = [
        ("P1", "", none),
        // CHANGED: the index is its own, reason and message are the binding's (design §5.1).
        (
            "P2",
            "snap=0 RS=F",
            "idx=0 | Sch=T RS=F/RolloutNotStartedYet",
        ),
        // CHANGED: it shows its own index, and how it fares there (design §5.1).
        (
            "P3",
            "snap=0 RS=T",
            "idx=0 | Sch=T RS=T OV=U/OverriddenPending",
        ),
        (
            "P4",
            "snap=1 RS=T OV=T WS=T AP=T AV=T cro ro",
            "idx=1 | Sch=T RS=T OV=T WS=T AP=T AV=T | cro ro",
        ),
        (
            "P5",
            "snap=1 RS=T@0 OV=T",
            "idx=1 | Sch=T RS=U/RolloutStartedUnknown",
        ),
        (
            "P6",
            "snap=1 RS=T OV=F WS=T cro ro",
            "idx=1 | Sch=T RS=T OV=F/OverriddenFailed | cro ro",
        ),
        (
            "P7",
            "snap=1 RS=T OV=T WS=U AP=T",
            "idx=1 | Sch=T RS=T OV=T WS=U/WorkSynchronizedUnknown",
        ),
        (
            "P8",
            "snap=1 RS=T OV=T WS=T AP=F AV=T failed",
            "idx=1 | Sch=T RS=T OV=T WS=T AP=F/NotAllWorkHaveBeenApplied | failed=a,b",
        ),
        (
            "P9",
            "snap=1 RS=T OV=T WS=T AP=T AV=F failed",
            "idx=1 | Sch=T RS=T OV=T WS=T AP=T AV=F/NotAllWorkAreAvailable | failed=a,b",
        ),
        (
            "P10",
            "snap=1 RS=T OV=T WS=T AP=F failed drifted diffed",
            "idx=1 | Sch=T RS=T OV=T WS=T AP=F/NotAllWorkHaveBeenApplied | failed=a,b drifted=a,b diffed=a,b",
        ),
        (
            "P11",
            "snap=1 RS=T OV=T WS=T AP=T AV=T drifted",
            "idx=1 | Sch=T RS=T OV=T WS=T AP=T AV=T | drifted=a,b",
        ),
    ];
    for (row, binding, expected) in rows {
        check(row, World::rolling("1"), binding, expected);
    }
}

/// What the table leaves open.
#[test]
fn without_a_snapshot_or_by_digest() {
    let none = "idx= | Sch=T RS=U/RolloutStartedUnknown";
    let rows = [
        ("names no snapshot", "snap=", none),
        ("names no snapshot, True", "snap= RS=T OV=T", none),
        (
            "names no snapshot, held back",
            "snap= RS=F",
            "idx= | Sch=T RS=F/RolloutNotStartedYet",
        ),
        (
            "no status list",
            "snap=1",
            "idx=1 | Sch=T RS=U/RolloutStartedUnknown",
        ),
        (
            "digest of now, older generation",
            "snap=1 digest=same RS=T@6 OV=F@6",
            "idx=1 | Sch=T RS=T OV=F/OverriddenFailed",
        ),
        (
            "digest of now, of before something else was asked for",
            "snap=1 digest=same RS=T@5 OV=F@5",
            "idx=1 | Sch=T RS=U/RolloutStartedUnknown",
        ),
        (
            "digest of before, same generation",
            "snap=1 digest=other RS=T OV=T",
            "idx=1 | Sch=T RS=U/RolloutStartedUnknown",
        ),
    ];
    for (row, binding, expected) in rows {
        check(row, World::rolling("1"), binding, expected);
    }
}

/// A cluster says that it took too long, the placement what the reference has for a failure there.
#[test]
fn what_took_too_long() {
    for (mode, binding, of_cluster, of_placement) in [
        ("", "WS=late", "WS=F/Timeout", "WS=F/WorkNotSynchronizedYet"),
        (
            "",
            "WS=T AP=late failed",
            "WS=T AP=F/Timeout | failed=a,b",
            "WS=T AP=F/ApplyFailed",
        ),
        (
            "",
            "WS=T AP=T AV=late failed",
            "WS=T AP=T AV=F/Timeout | failed=a,b",
            "WS=T AP=T AV=F/ResourceNotAvailableYet",
        ),
        (
            "ReportDiff",
            "WS=T DR=late",
            "WS=T DR=F/Timeout",
            "WS=T DR=F/DiffReportingIncompleteOrFailed",
        ),
    ] {
        let world = World::rolling("1").bound(&format!("c snap=1 RS=T OV=T {binding}"));
        let world = match mode {
            "" => world,
            _ => world.report_diff(),
        };
        let status = world.run(1_000).status;
        let entries = status.placement_statuses.as_deref().unwrap();
        assert_eq!(
            entry(&entries[0]),
            format!("c idx=1 | Sch=T RS=T OV=T {of_cluster}")
        );
        let shown = placement(&status);
        assert!(shown.ends_with(of_placement), "{shown}");
    }
}

#[test]
fn report_diff() {
    let rows = [
        (
            "P12",
            "snap=1 RS=T OV=T WS=T AP=F DR=T diffed failed",
            "DR=T | diffed=a,b",
        ),
        (
            "P13 missing",
            "snap=1 RS=T OV=T WS=T diffed",
            "DR=U/DiffReportingPending",
        ),
        (
            "P13 stale",
            "snap=1 RS=T OV=T WS=T DR=T@0 diffed",
            "DR=U/DiffReportingPending",
        ),
        (
            "P14",
            "snap=1 RS=T OV=T WS=T DR=F diffed",
            "DR=F/NotAllWorkHaveDiffReported",
        ),
    ];
    for (row, binding, expected) in rows {
        let expected = format!("idx=1 | Sch=T RS=T OV=T WS=T {expected}");
        check(row, World::rolling("1").report_diff(), binding, &expected);
    }
}

#[test]
fn external() {
    let rows = [
        (
            "P15",
            String::new(),
            "idx= | Sch=T RS=U/RolloutStartedUnknown",
        ),
        (
            "P16",
            "snap=0 RS=F".to_owned(),
            "idx=0 | Sch=T RS=F/RolloutNotStartedYet",
        ),
        (
            "P17",
            "snap=0 RS=T OV=T@0".to_owned(),
            "idx=0 | Sch=T RS=T OV=U/OverriddenPending",
        ),
        (
            "P18",
            format!("snap=0 {FULFILLED}"),
            "idx=0 | Sch=T RS=T OV=T WS=T AP=T AV=T",
        ),
    ];
    for (row, binding, expected) in rows {
        check(row, World::external("1"), &binding, expected);
    }
}

#[test]
fn helper_bindings_by_cluster() {
    let rows: [(&[&str], &[&str]); 5] = [
        (&["a deleting"], &[]),
        (&["a oldpolicy"], &[]),
        (&[], &[]),
        (&["b", "a"], &["a", "b"]),
        (&["b deleting", "a"], &["a"]),
    ];
    for (row, (bindings, expected)) in rows.into_iter().enumerate() {
        let bound: Vec<_> = bindings.iter().map(|text| parse(text)).collect();
        let map = bindings_by_cluster(bound.iter().map(common::Bound::view));
        let names: Vec<_> = map.into_keys().collect();
        assert_eq!(names, expected, "row {row}");
    }
    let mut missing_target = parse("a");
    missing_target.binding.spec.target_cluster.clear();
    assert!(bindings_by_cluster([missing_target.view()]).is_empty());

    let mut twice = [parse("a snap=1"), parse("a snap=0")];
    twice[1].binding.metadata.name = Some("earlier".to_owned());
    for bound in [twice.clone(), {
        twice.reverse();
        twice
    }] {
        let map = bindings_by_cluster(bound.iter().map(common::Bound::view));
        assert_eq!(map["a"].snapshot_index, Some("0"));
    }
}

#[test]
fn helper_failed_count() {
    let n = |number| World::rolling("0").pick_n(number).policy;
    let fixed = |names| World::rolling("0").pick_fixed(names).policy;
    let rows = [
        ("nil policy", None, 2, 3, 0),
        (
            "PickAll",
            Some(windlass_api::placement::PlacementPolicy::default()),
            2,
            3,
            0,
        ),
        ("N=3 sel 2", n(Some(3)), 2, 4, 1),
        ("N=sel", n(Some(3)), 3, 4, 0),
        // CHANGED: not an error; there is just no slot to fill.
        ("sel>N", n(Some(3)), 4, 4, 0),
        ("PickFixed 3 sel 2", fixed("a b c"), 2, 1, 1),
        ("PickFixed exact", fixed("a b c"), 3, 1, 0),
        ("N=5 sel 1 unsel 1", n(Some(5)), 1, 1, 1),
        ("Fixed 5 sel 2 unsel 1", fixed("a b c d e"), 2, 1, 1),
        ("nil N", n(None), 1, 1, 0),
    ];
    for (row, policy, selected, unselected, expected) in rows {
        assert_eq!(
            unfilled_slots(policy.as_ref(), selected, unselected),
            expected,
            "{row}"
        );
    }
}

/// Hub §2.9, previous-status map, and W1: a slot has no name, but keeps its time all the same.
#[test]
fn transition_times_are_found_again() {
    let world = World::rolling("0")
        .pick_n(Some(4))
        .scheduled("False", 1)
        .bound("a snap=0 RS=T OV=F")
        .refused("y z");
    let first = world.run(1_000);
    let times = |status: &windlass_api::placement::PlacementStatus| -> Vec<i64> {
        let entries = status.placement_statuses.iter().flatten();
        let conditions = entries.flat_map(|entry| entry.conditions.iter().flatten());
        conditions
            .map(|condition| condition.last_transition_time.0.as_second())
            .collect()
    };
    // Copied conditions come with the binding's time, others with now.
    assert_eq!(times(&first.status), [1_000, 500, 500, 1_000, 1_000]);

    let again = world.clone().previous(&first).run(2_000);
    assert_eq!(again, first);

    // Another reason, the same status: the time stays. A further slot is new.
    let mut moved = world.clone().previous(&first).refused("x");
    moved.bindings[0] = parse("a snap=0 RS=T OV=T");
    let moved = moved.run(3_000);
    assert_eq!(
        times(&moved.status),
        [1_000, 500, 3_000, 3_000, 1_000, 1_000, 3_000]
    );

    // Entries without conditions are nothing to go by.
    let mut bare = first;
    for entry in bare.status.placement_statuses.iter_mut().flatten() {
        entry.conditions = None;
    }
    let fresh = world.previous(&bare).run(4_000);
    assert_eq!(times(&fresh.status), [4_000, 500, 500, 4_000, 4_000]);
}
