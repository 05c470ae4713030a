//! The example from which the rules of the roll-up come: two clusters under RollingUpdate, one of them
//! on the latest snapshot and not available yet, the other waiting for its turn on the one before.

mod common;

use common::{World, check};

fn example() -> World {
    World::rolling("3")
        .bound("member1 snap=3 RS=T OV=T WS=T AP=T AV=F failed")
        .bound("member2 snap=2 RS=T OV=T WS=T AP=T AV=T")
}

#[test]
fn each_cluster_tells_its_own_index() {
    let result = check(
        "seed",
        &example(),
        "idx=3 res=r3 | Sch=T RS=F/RolloutNotStartedYet",
        &[
            "member1 idx=3 | Sch=T RS=T OV=T WS=T AP=T AV=F/NotAllWorkAreAvailable | failed=a,b",
            "member2 idx=2 | Sch=T RS=T OV=T WS=T AP=T AV=T",
        ],
    );
    assert!(!result.completed);
    assert_eq!((result.clusters.failing, result.clusters.changing), (1, 1));
    let conditions = result.status.conditions.unwrap_or_default();
    assert_eq!(
        conditions[1].message,
        "The rollout has not started yet on 1 cluster(s): member2"
    );
}

/// The indexes of the proposal: 4 is the latest, clusters are at 2, 2 and 3.
#[test]
fn external_has_no_index_while_clusters_differ() {
    let mut world = World::external("4");
    for (name, index) in [("a", 2), ("b", 2), ("c", 3)] {
        world = world.bound(&format!("{name} snap={index} RS=T OV=T WS=T AP=T AV=T"));
    }
    let status = world.run(1).status;
    assert_eq!(status.observed_resource_index, None);
    assert_eq!(status.selected_resources, None);
    let conditions = status.conditions.unwrap_or_default();
    assert_eq!(conditions.len(), 6);
    assert!(
        conditions[1..]
            .iter()
            .all(|condition| condition.status == "Unknown")
    );
}

/// "If any one is Unknown, Unknown; else if any one is False, False; if all are True, True."
#[test]
fn external_precedence() {
    let rows = [
        ("T", "T", "True"),
        ("T", "F", "False"),
        ("F", "U", "Unknown"),
        ("T", "U", "Unknown"),
    ];
    for (one, other, expected) in rows {
        let world = World::external("3")
            .bound(&format!("a snap=2 RS=T OV=T WS=T AP=T AV={one}"))
            .bound(&format!("b snap=2 RS=T OV=T WS=T AP=T AV={other}"));
        let status = world.run(1).status;
        assert_eq!(status.observed_resource_index.as_deref(), Some("2"));
        let conditions = status.conditions.unwrap_or_default();
        assert_eq!(conditions[5].status, expected, "{one} and {other}");
    }
}
