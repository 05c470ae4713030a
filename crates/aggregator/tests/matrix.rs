//! The reference's table of placement statuses (hub §2.8), row by row. Rows that a decision of ours
//! changes say so. The reference's return value has no counterpart: nothing here steers a requeue.
//! Rows R1 to R5 are about namespaced placements, which do not exist yet.

mod common;

use common::{World, at, check};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

const FULFILLED: &str = "RS=T OV=T WS=T AP=T AV=T";

#[test]
fn rows_1_to_4_scheduling_is_pending() {
    let pending = "idx=0 res=r0 | Sch=U/SchedulePending";
    let mut row_1 = World::rolling("0").chosen("member-1");
    row_1.policy_snapshot.status = None;
    check("1", &row_1, pending, &[]);

    check(
        "2",
        &World::rolling("0").scheduled("Unknown", 1),
        pending,
        &[],
    );

    let mut row_3 = World::rolling("0").chosen("member-1");
    if let Some(status) = &mut row_3.policy_snapshot.status {
        status.observed_crp_generation -= 1;
    }
    check("3", &row_3, pending, &[]);

    let mut row_4 = World::rolling("0");
    row_4.policy_snapshot.metadata.generation = Some(2);
    check("4", &row_4, pending, &[]);
}

#[test]
fn rows_5_to_10_selection_without_bindings() {
    let member = |n: u8| format!("member-{n} idx= | Sch=T RS=U/RolloutStartedUnknown");
    let slot = "- idx= | Sch=F/ScheduleFailed";
    let no_cluster = "idx=0 res=r0 | Sch=T";

    let row_5 = World::rolling("0")
        .pick_n(Some(3))
        .chosen("member-2 member-1 member-3");
    check(
        "5",
        &row_5,
        "idx=0 res=r0 | Sch=T RS=U/RolloutStartedUnknown",
        &[&member(1), &member(2), &member(3)],
    );
    check("6", &World::rolling("0"), no_cluster, &[]);
    // CHANGED: no index under External, which takes it from clusters alone (design §5.2).
    check("7", &World::external("0"), "idx= res=r0 | Sch=T", &[]);

    let row_8 = World::rolling("0").pick_n(Some(3)).scheduled("False", 1);
    check(
        "8",
        &row_8
            .clone()
            .chosen("member-1")
            .refused("member-2 member-3"),
        "idx=0 res=r0 | Sch=F/SchedulingPolicyUnfulfilled RS=U/RolloutStartedUnknown",
        &[&member(1), slot, slot],
    );
    check("9", &World::rolling("0").pick_n(Some(0)), no_cluster, &[]);
    check(
        "10",
        &row_8.refused("member-2 member-3"),
        "idx=0 res=r0 | Sch=F/SchedulingPolicyUnfulfilled",
        &[slot, slot],
    );
}

#[test]
fn rows_11_and_12_complete() {
    let row_11 = World::rolling("0").bound(&format!("member-1 snap=0 {FULFILLED} cro ro"));
    let result = check(
        "11",
        &row_11,
        "idx=0 res=r0 | Sch=T RS=T OV=T/OverriddenSucceeded WS=T AP=T AV=T",
        &["member-1 idx=0 | Sch=T RS=T OV=T WS=T AP=T AV=T | cro ro"],
    );
    assert!(result.completed);

    let row_12 = World::rolling("0")
        .bound(&format!("member-1 snap=0 {FULFILLED}"))
        .bound(&format!("member-2 snap=0 {FULFILLED}"));
    let result = check(
        "12",
        &row_12,
        "idx=0 res=r0 | Sch=T RS=T OV=T/NoOverrideSpecified WS=T AP=T AV=T",
        &[
            "member-1 idx=0 | Sch=T RS=T OV=T WS=T AP=T AV=T",
            "member-2 idx=0 | Sch=T RS=T OV=T WS=T AP=T AV=T",
        ],
    );
    assert_eq!((result.clusters.settled, result.completed), (2, true));
}

#[test]
fn row_13_seven_clusters() {
    let six = World::rolling("1")
        .bound(&format!("a snap=1 {FULFILLED} deleting"))
        .bound("b snap=1 RS=T OV=T@0 WS=T AP=T AV=T")
        .bound("c snap=1 RS=T OV=T WS=U AP=T AV=T")
        .chosen("d")
        .bound("e snap=1 RS=T OV=T WS=T")
        .bound(&format!("g snap=1 {FULFILLED} oldpolicy"));
    let seven = six.clone().bound("f snap=0 RS=T");
    let none = |name: &str| format!("{name} idx= | Sch=T RS=U/RolloutStartedUnknown");
    let entries = [
        none("a"),
        "b idx=1 | Sch=T RS=T OV=U/OverriddenPending".to_owned(),
        "c idx=1 | Sch=T RS=T OV=T WS=U/WorkSynchronizedUnknown".to_owned(),
        none("d"),
        "e idx=1 | Sch=T RS=T OV=T WS=T AP=U/ApplyPending".to_owned(),
        // CHANGED: it shows its own index, and how it fares there (design §5.1).
        "f idx=0 | Sch=T RS=T OV=U/OverriddenPending".to_owned(),
        none("g"),
    ];
    let entries: Vec<_> = entries.iter().map(String::as_str).collect();
    // CHANGED: f is not on the latest snapshot, which is False, and False outweighs Unknown (T6).
    check(
        "13",
        &seven,
        "idx=1 res=r1 | Sch=T RS=F/RolloutNotStartedYet",
        &entries,
    );

    let mut without_f = entries;
    without_f.remove(5);
    check(
        "13, no f",
        &six,
        "idx=1 res=r1 | Sch=T RS=U/RolloutStartedUnknown",
        &without_f,
    );
}

#[test]
fn rows_14_to_16_false() {
    check(
        "14",
        &World::rolling("1").bound("member-1 snap=0 RS=F"),
        "idx=1 res=r1 | Sch=T RS=F/RolloutNotStartedYet",
        // CHANGED: its own index (design §5.1).
        &["member-1 idx=0 | Sch=T RS=F/RolloutNotStartedYet"],
    );
    check(
        "15",
        &World::rolling("0")
            .bound("a snap=0 RS=T OV=T WS=T AP=F failed")
            .bound("b snap=0 RS=T OV=T WS=T AP=T"),
        "idx=0 res=r0 | Sch=T RS=T OV=T/NoOverrideSpecified WS=T AP=F/ApplyFailed",
        &[
            "a idx=0 | Sch=T RS=T OV=T WS=T AP=F/NotAllWorkHaveBeenApplied | failed=a,b",
            "b idx=0 | Sch=T RS=T OV=T WS=T AP=T AV=U/ResourceAvailableUnknown",
        ],
    );
    check(
        // CHANGED: a cluster that has not reported does not hide one that failed (T6).
        "15, with Unknown",
        &World::rolling("0")
            .bound("a snap=0 RS=T OV=T WS=T AP=F failed")
            .bound("b snap=0 RS=T OV=T WS=T"),
        "idx=0 res=r0 | Sch=T RS=T OV=T/NoOverrideSpecified WS=T AP=F/ApplyFailed",
        &[
            "a idx=0 | Sch=T RS=T OV=T WS=T AP=F/NotAllWorkHaveBeenApplied | failed=a,b",
            "b idx=0 | Sch=T RS=T OV=T WS=T AP=U/ApplyPending",
        ],
    );
    check(
        "16",
        &World::rolling("0").bound("a snap=0 RS=T OV=T WS=T AP=T AV=F failed"),
        "idx=0 res=r0 | Sch=T RS=T OV=T/NoOverrideSpecified WS=T AP=T AV=F/ResourceNotAvailableYet",
        &["a idx=0 | Sch=T RS=T OV=T WS=T AP=T AV=F/NotAllWorkAreAvailable | failed=a,b"],
    );
}

#[test]
fn row_17_an_old_status_is_wiped() {
    let old = World::rolling("-1")
        .bound(&format!("member-1 snap=-1 {FULFILLED} cro ro"))
        .run(900);
    assert_eq!(old.status.observed_resource_index.as_deref(), Some("-1"));
    check(
        "17",
        &World::rolling("0").chosen("member-1").previous(&old),
        "idx=0 res=r0 | Sch=T RS=U/RolloutStartedUnknown",
        &["member-1 idx= | Sch=T RS=U/RolloutStartedUnknown"],
    );
}

#[test]
fn rows_18_to_20_slots() {
    let member = "member-1 idx= | Sch=T RS=U/RolloutStartedUnknown";
    let slot = "- idx= | Sch=F/ScheduleFailed";
    let expected = "idx=0 res=r0 | Sch=F/SchedulingPolicyUnfulfilled RS=U/RolloutStartedUnknown";
    let base = World::rolling("0")
        .scheduled("False", 1)
        .chosen("member-1")
        .refused("member-2");
    check(
        "18",
        &base.clone().pick_fixed("member-1 member-2"),
        expected,
        &[member, slot],
    );
    let row_19 = base.pick_n(Some(3));
    check("19", &row_19, expected, &[member, slot]);
    let old = World::rolling("-1")
        .bound(&format!("member-1 snap=-1 {FULFILLED} cro"))
        .bound("member-2 snap=-1 RS=T OV=T WS=T AP=F failed")
        .run(900);
    check("20", &row_19.previous(&old), expected, &[member, slot]);
}

#[test]
fn rows_21_to_26_report_diff() {
    let base = || World::rolling("0").report_diff();
    let start = "idx=0 res=r0 | Sch=T RS=T OV=T/NoOverrideSpecified";
    check(
        "21",
        &base().bound("a snap=0 RS=T OV=T WS=T DR=T AP=F diffed failed"),
        &format!("{start} WS=T DR=T"),
        &["a idx=0 | Sch=T RS=T OV=T WS=T DR=T | diffed=a,b"],
    );
    check(
        "22",
        &base()
            .bound("a snap=0 RS=T OV=T WS=T DR=T")
            .bound("b snap=0 RS=T OV=T WS=T AP=T"),
        &format!("{start} WS=T DR=U/DiffReportingPending"),
        &[
            "a idx=0 | Sch=T RS=T OV=T WS=T DR=T",
            "b idx=0 | Sch=T RS=T OV=T WS=T DR=U/DiffReportingPending",
        ],
    );
    check(
        "23",
        &base().bound("a snap=0 RS=T OV=T WS=T DR=F diffed"),
        &format!("{start} WS=T DR=F/DiffReportingIncompleteOrFailed"),
        &["a idx=0 | Sch=T RS=T OV=T WS=T DR=F/NotAllWorkHaveDiffReported"],
    );
    check(
        "24",
        &base().bound("a snap=0 RS=T OV=T WS=F DR=T"),
        &format!("{start} WS=F/WorkNotSynchronizedYet"),
        &["a idx=0 | Sch=T RS=T OV=T WS=F/SyncWorkFailed"],
    );

    let applied = World::rolling("0")
        .bound(&format!("a snap=0 {FULFILLED}"))
        .run(800);
    let row_25 = base()
        .bound("a snap=0 RS=T OV=T WS=T DR=T diffed")
        .previous(&applied);
    let reported = check(
        "25",
        &row_25,
        &format!("{start} WS=T DR=T"),
        &["a idx=0 | Sch=T RS=T OV=T WS=T DR=T | diffed=a,b"],
    );
    check(
        "26",
        &World::rolling("0")
            .bound(&format!("a snap=0 {FULFILLED}"))
            .previous(&reported),
        &format!("{start} WS=T AP=T AV=T"),
        &["a idx=0 | Sch=T RS=T OV=T WS=T AP=T AV=T"],
    );
}

/// What External shows while clusters do not agree: as the reference has it, and
/// CHANGED: later types are there and Unknown, unless the hub is told to omit them (design §5.2).
#[track_caller]
fn check_unset(row: &str, world: &World, entries: &[&str]) -> String {
    let omitted = "idx= res= | Sch=T RS=U/RolloutControlledByExternalController";
    check(row, &world.clone().omit(), omitted, entries);
    let all = format!(
        "{omitted} OV=U/OverriddenPending WS=U/WorkSynchronizedUnknown AP=U/ApplyPending \
         AV=U/ResourceAvailableUnknown"
    );
    let status = check(row, world, &all, entries).status;
    status.conditions.unwrap_or_default()[1].message.clone()
}

#[test]
fn rows_27_to_29_external_disagreement() {
    let old = World::external("0")
        .bound(&format!("a snap=0 {FULFILLED}"))
        .run(900);
    let row_27 = World::external("0").bound("a snap=").previous(&old);
    let message = check_unset(
        "27",
        &row_27,
        &["a idx= | Sch=T RS=U/RolloutStartedUnknown"],
    );
    assert!(
        message.contains("a ClusterStagedUpdateRun with state Run"),
        "{message}"
    );

    let rolled = format!("a snap=0 {FULFILLED}");
    let row_28 = World::external("0").bound(&rolled).bound("b snap=");
    let message = check_unset(
        "28",
        &row_28,
        &[
            "a idx=0 | Sch=T RS=T OV=T WS=T AP=T AV=T",
            "b idx= | Sch=T RS=U/RolloutStartedUnknown",
        ],
    );
    assert!(
        message.ends_with("index 0 on 1 cluster(s), none on 1 cluster(s)"),
        "{message}"
    );

    let row_29 = World::external("1")
        .bound(&format!("a snap=1 {FULFILLED}"))
        .bound(&format!("b snap=0 {FULFILLED}"))
        .bound(&format!("c snap=0 {FULFILLED}"));
    let message = check_unset(
        "29",
        &row_29,
        &[
            "a idx=1 | Sch=T RS=T OV=T WS=T AP=T AV=T",
            "b idx=0 | Sch=T RS=T OV=T WS=T AP=T AV=T",
            "c idx=0 | Sch=T RS=T OV=T WS=T AP=T AV=T",
        ],
    );
    assert!(
        message.ends_with("index 0 on 2 cluster(s), index 1 on 1 cluster(s)"),
        "{message}"
    );
}

#[test]
fn external_disagreement_in_report_diff() {
    check(
        "29, ReportDiff",
        &World::external("1")
            .report_diff()
            .bound("a snap=1 RS=T")
            .chosen("b"),
        "idx= res= | Sch=T RS=U/RolloutControlledByExternalController OV=U/OverriddenPending \
         WS=U/WorkSynchronizedUnknown DR=U/DiffReportingPending",
        &[
            "a idx=1 | Sch=T RS=T OV=U/OverriddenPending",
            "b idx= | Sch=T RS=U/RolloutStartedUnknown",
        ],
    );
}

#[test]
fn rows_30_and_31_external_agreement() {
    for (row, index) in [("30", "1"), ("31", "0")] {
        let world = World::external("1")
            .bound(&format!("a snap={index} {FULFILLED}"))
            .bound(&format!("b snap={index} {FULFILLED}"));
        let entry = |name: &str| format!("{name} idx={index} | Sch=T RS=T OV=T WS=T AP=T AV=T");
        check(
            row,
            &world,
            &format!(
                "idx={index} res=r{index} | Sch=T RS=T OV=T/NoOverrideSpecified WS=T AP=T AV=T"
            ),
            &[&entry("a"), &entry("b")],
        );
    }
}

/// Hub §2.6: the last two rows of the External table.
#[test]
fn external_agreement_with_an_unknown() {
    let failing = "a snap=0 RS=T OV=T WS=T AP=F failed";
    let failed = "a idx=0 | Sch=T RS=T OV=T WS=T AP=F/NotAllWorkHaveBeenApplied | failed=a,b";
    check(
        "RolloutStarted unknown",
        &World::external("0")
            .bound(failing)
            .bound("b snap=0 digest=other RS=T"),
        "idx=0 res=r0 | Sch=T RS=U/RolloutControlledByExternalController",
        &[failed, "b idx=0 | Sch=T RS=U/RolloutStartedUnknown"],
    );
    check(
        "any Unknown, else any False",
        &World::external("0")
            .bound(failing)
            .bound("b snap=0 RS=T OV=T WS=T"),
        "idx=0 res=r0 | Sch=T RS=T OV=T/NoOverrideSpecified WS=T AP=U/ApplyPending",
        &[failed, "b idx=0 | Sch=T RS=T OV=T WS=T AP=U/ApplyPending"],
    );
    check(
        "any False, else True",
        &World::external("0")
            .bound(failing)
            .bound(&format!("b snap=0 {FULFILLED}")),
        "idx=0 res=r0 | Sch=T RS=T OV=T/NoOverrideSpecified WS=T AP=F/ApplyFailed",
        &[failed, "b idx=0 | Sch=T RS=T OV=T WS=T AP=T AV=T"],
    );
    check_unset(
        "a snapshot that is gone has no index",
        &World::external("0").bound("a snap=gone RS=T OV=T WS=T AP=T AV=T"),
        &["a idx= | Sch=T RS=T OV=T WS=T AP=T AV=T"],
    );
}

/// Hub §2.7: a user error touches Scheduled alone; a pending pass keeps conditions, not entries.
#[test]
fn leftovers_tell_their_age() {
    let mut done = World::rolling("0")
        .bound(&format!("a snap=0 {FULFILLED}"))
        .run(900);
    for condition in done.status.conditions.iter_mut().flatten() {
        condition.observed_generation = Some(common::G - 1);
    }
    let old = "RS=T(old) OV=T/NoOverrideSpecified(old) WS=T(old) AP=T(old) AV=T(old)";
    let mut invalid = World::rolling("1").previous(&done);
    invalid.invalid = Some("selector 1 names no kind".to_owned());
    let result = check(
        "2.7",
        &invalid,
        &format!("idx=0 res=r0 | Sch=F/InvalidResourceSelectors {old}"),
        &["a idx=0 | Sch=T RS=T OV=T WS=T AP=T AV=T"],
    );
    assert!(!result.completed);
    check(
        "2.2 step 4",
        &World::rolling("1").scheduled("True", 0).previous(&done),
        &format!("idx=1 res=r1 | Sch=U/SchedulePending {old}"),
        &[],
    );
    let mut nothing = World::rolling("0");
    nothing.invalid = Some("no".to_owned());
    check(
        "no history",
        &nothing,
        "idx= res= | Sch=F/InvalidResourceSelectors",
        &[],
    );
}

/// While nothing can be selected, what clusters report goes on being told: of the generation that it was
/// decided for. Only Scheduled says what is the matter, and of the present one. What found no cluster stays.
#[test]
fn what_is_in_force_is_told_while_nothing_can_be_decided() {
    let healthy = format!("a snap=0 {FULFILLED}");
    let before = World::rolling("0")
        .pick_n(Some(2))
        .bound(&healthy)
        .refused("z")
        .run(900);
    let crashed = "a snap=0 RS=T OV=T WS=T AP=T AV=F failed";
    let slot = "- idx= | Sch=F/ScheduleFailed";
    for (what, generation, invalid) in [
        ("the API server does not tell", common::G, false),
        ("new selectors are wrong", common::G - 1, true),
    ] {
        let mut world = World::rolling("0").bound(crashed).previous(&before);
        world.in_force = Some(generation);
        world.undecided = !invalid;
        world.invalid = invalid.then(|| "selector 1 names no kind".to_owned());
        let (scheduled, old) = if invalid {
            ("Sch=F/InvalidResourceSelectors", "(old)")
        } else {
            ("Sch=U/SchedulePending", "")
        };
        let result = check(
            what,
            &world,
            &format!(
                "idx=0 res=r0 | {scheduled} RS=T{old} OV=T/NoOverrideSpecified{old} WS=T{old} AP=T{old} \
                 AV=F/ResourceNotAvailableYet{old}"
            ),
            &[
                &format!(
                    "a idx=0 | Sch=T{old} RS=T{old} OV=T{old} WS=T{old} AP=T{old} \
                     AV=F/NotAllWorkAreAvailable{old} | failed=a,b"
                ),
                slot,
            ],
        );
        assert!(!result.completed, "{what}");
        world.bindings.clear();
        world.decisions.clear();
        let row = format!("idx=0 res=r0 | {scheduled}");
        check("without its cluster", &world, &row, &[slot]);
    }
}

/// Conditions of types that others own outlive every pass.
#[test]
fn conditions_of_others_stay() {
    let mut done = World::rolling("0").run(900);
    done.status.conditions.get_or_insert_default().insert(
        0,
        Condition {
            type_: "ClusterResourcePlacementStatusSynced".to_owned(),
            status: "True".to_owned(),
            reason: "StatusSyncSucceeded".to_owned(),
            message: String::new(),
            observed_generation: Some(common::G),
            last_transition_time: Time(at(3)),
        },
    );
    check(
        "StatusSynced",
        &World::rolling("0").chosen("a").previous(&done),
        "idx=0 res=r0 | Sch=T RS=U/RolloutStartedUnknown ClusterResourcePlacementStatusSynced=T",
        &["a idx= | Sch=T RS=U/RolloutStartedUnknown"],
    );
}

/// Design §5.1 beyond snapshots: a cluster whose overrides are out of date waits as well.
#[test]
fn held_back_on_the_latest_snapshot() {
    let world = World::rolling("0").bound(&format!("a snap=0 {FULFILLED} held"));
    let result = check(
        "held",
        &world,
        "idx=0 res=r0 | Sch=T RS=F/RolloutNotStartedYet",
        &["a idx=0 | Sch=T RS=T OV=T WS=T AP=T AV=T"],
    );
    assert_eq!(result.clusters.changing, 1);
}

/// No snapshot yet: nothing can be known about the latest.
#[test]
fn no_latest_snapshot() {
    let mut world = World::rolling("0").bound("a snap=0 RS=T");
    world.latest = None;
    check(
        "none",
        &world,
        "idx= res= | Sch=T RS=U/RolloutStartedUnknown",
        &["a idx=0 | Sch=T RS=T OV=U/OverriddenPending"],
    );
}

/// A message counts all clusters, and names the first three.
#[test]
fn messages_name_clusters() {
    let mut world = World::rolling("1");
    for name in ["e", "d", "c", "b", "a"] {
        world = world.bound(&format!("{name} snap=0 {FULFILLED}"));
    }
    let conditions = world.run(1).status.conditions.unwrap_or_default();
    assert_eq!(
        conditions[1].message,
        "The rollout has not started yet on 5 cluster(s): a, b, c and 2 more"
    );
}
