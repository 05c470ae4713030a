//! Histories of many passes with any times, intervals and jitter, checked as the states of the model are; and
//! statuses that no pass of ours has written.

use jiff::SignedDuration;
use proptest::prelude::*;
use windlass_addons::evaluate::Attempt;
use windlass_api::Condition;
use windlass_api::addon::RepositoryStatus;
use windlass_status::conditions;

use crate::machine::{Inner, Machine, Remote, Secret, Step, Url};
use crate::support::{Case, at, not_ready, read, transient, unwritten};

fn remote() -> impl Strategy<Value = Remote> {
    prop_oneof![
        4 => Just(Remote::Transient),
        2 => Just(Remote::Ok),
        1 => Just(Remote::Unchanged),
        1 => Just(Remote::Unwritten),
        1 => Just(Remote::Terminal),
        1 => any::<u32>().prop_map(Remote::Busy),
    ]
}

fn pass() -> impl Strategy<Value = Step> {
    (remote(), -1.0..=1.0_f64, proptest::bool::weighted(0.1)).prop_map(|(remote, jitter, asked)| {
        Step::Pass {
            remote,
            jitter,
            asked,
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    let url = prop_oneof![Just(Url::One), Just(Url::Other), Just(Url::Bad)];
    let secret = prop_oneof![
        Just(Secret::One),
        Just(Secret::Other),
        Just(Secret::Missing)
    ];
    prop_oneof![
        10 => pass(),
        6 => Just(Step::Due),
        1 => Just(Step::Half),
        1 => url.prop_map(Step::Url),
        1 => secret.prop_map(Step::Secret),
        1 => any::<bool>().prop_map(Step::Suspend),
        1 => (30_000..86_400_000_i64).prop_map(|millis| {
            Step::Interval(SignedDuration::from_millis(millis))
        }),
        1 => Just(Step::Request),
        2 => (-20_000_000..20_000_000_i64).prop_map(|millis| {
            Step::Clock(SignedDuration::from_millis(millis))
        }),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    let statuses = prop_oneof![Just("True"), Just("False"), Just("Unknown"), Just("what")];
    let reasons = prop_oneof![
        Just("Success"),
        Just("Suspended"),
        Just("SyncFailed"),
        Just("Odd")
    ];
    (
        statuses,
        reasons,
        proptest::option::of(0..4_i64),
        0..200_000_i64,
    )
        .prop_map(|(status, reason, generation, ago)| Condition {
            type_: String::new(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: "written by hand".to_owned(),
            observed_generation: generation,
            last_transition_time: conditions::time(at("12:00:00") - SignedDuration::from_secs(ago)),
        })
}

/// Any conditions, times, digests and counts.
fn status() -> impl Strategy<Value = RepositoryStatus> {
    let own = Case::new().digest.unwrap().to_string();
    let digest = proptest::option::of(prop_oneof![
        3 => Just(own),
        1 => Just("of another spec".to_owned()),
    ]);
    let maybe = || proptest::option::of(condition());
    let list = [maybe(), maybe(), maybe(), maybe()].prop_map(|found| {
        let types = ["Ready", "Synced", "Reconciling", "Stalled"];
        let typed = types.into_iter().zip(found).filter_map(|(type_, found)| {
            found.map(|found| Condition {
                type_: type_.to_owned(),
                ..found
            })
        });
        typed.collect::<Vec<_>>()
    });
    let seconds = proptest::option::of(-900_000..900_000_i64);
    let numbers = proptest::option::of(-3..9_i32);
    let generation = proptest::option::of(-1..4_i64);
    (list, digest.clone(), digest, seconds, numbers, generation).prop_map(
        |(list, attempted, fetched, seconds, failures, generation)| RepositoryStatus {
            conditions: (!list.is_empty()).then_some(list),
            observed_generation: generation,
            attempted_spec_digest: attempted,
            fetched_spec_digest: fetched,
            next_sync_time: seconds.map(|seconds| {
                conditions::time(at("12:00:00") + SignedDuration::from_secs(seconds))
            }),
            consecutive_fetch_failures: failures,
            ..RepositoryStatus::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn any_history(steps in proptest::collection::vec(step(), 1..60)) {
        let mut machine = Machine::new(Inner::None);
        for step in steps {
            machine.step(step);
            machine.assert_unseen_is_in_progress();
        }
        machine.assert_recovers();
    }

    #[test]
    fn five_failures_stall_it_and_it_is_tried_again_for_ever(
        jitters in proptest::collection::vec(-1.0..=1.0_f64, 6..20), interval in 30..86_400_i64,
        was_read in any::<bool>(),
    ) {
        let mut machine = Machine::new(Inner::None);
        machine.step(Step::Interval(SignedDuration::from_secs(interval)));
        if was_read {
            machine.step(Step::Pass { remote: Remote::Ok, jitter: 0.0, asked: false });
        }
        for (before, jitter) in jitters.into_iter().enumerate() {
            machine.step(Step::Due);
            machine.step(Step::Pass { remote: Remote::Transient, jitter, asked: false });
            let stalled = crate::support::condition(&machine.case.current, "Stalled");
            let stalled = stalled.map(|stalled| stalled.reason.as_str());
            prop_assert_eq!(stalled, (before >= 4).then_some("RetriesExceeded"));
        }
        machine.assert_recovers();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_status_is_put_right(
        current in status(), generation in 1..4_i64, suspended in any::<bool>(),
        what in 0..5_u8, internal in 0..3_u8,
    ) {
        let mut case = Case::new();
        case.current = current;
        case.generation = generation;
        case.suspended = suspended && what == 0;
        if internal > 0 {
            case.internal = not_ready(internal == 2);
        }
        let attempt = match what {
            0 => Attempt::None,
            1 => transient("refused"),
            2 => unwritten(),
            3 => read(),
            _ => {
                case.digest = None;
                case.credentials = windlass_addons::evaluate::Credentials::NotReady("no".to_owned());
                Attempt::None
            }
        };
        let first = case.pass(attempt);
        let second = case.pass(Attempt::None);
        prop_assert_eq!(first.status, second.status);
    }
}
