//! The worked scenarios of the hub reference §1.9.5, and one row per rule of ours.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use windlass_api::binding::BindingState::{self, Bound, Scheduled, Unscheduled};
use windlass_rollout::Readiness::{
    DiffReported, Failed, InProgress, Ready, ReadyAt, Refused, Unreachable, Withheld,
};
use windlass_rollout::{Readiness, RollingPlan, RollingView, RolloutBinding, plan_rolling};

const NOW: Timestamp = Timestamp::constant(1_750_000_000, 0);
const LATER: Timestamp = Timestamp::constant(1_750_000_060, 0);

/// A binding on the cluster of its own name.
fn binding(name: &str, state: BindingState, readiness: Readiness) -> RolloutBinding<'_> {
    RolloutBinding {
        name,
        cluster: name,
        previously_bound: state == Unscheduled,
        state,
        deleting: false,
        on_target: false,
        settings_only: false,
        waits: false,
        readiness,
    }
}

/// What it is to get can't be said yet.
fn waiting(binding: RolloutBinding<'_>) -> RolloutBinding<'_> {
    RolloutBinding {
        waits: true,
        ..binding
    }
}

/// Bound with old content.
fn old(name: &str, readiness: Readiness) -> RolloutBinding<'_> {
    binding(name, Bound, readiness)
}

/// Bound with the wanted content.
fn current(name: &str, readiness: Readiness) -> RolloutBinding<'_> {
    RolloutBinding {
        on_target: true,
        ..old(name, readiness)
    }
}

fn scheduled(name: &str) -> RolloutBinding<'_> {
    binding(name, Scheduled, InProgress)
}

fn unscheduled(name: &str, readiness: Readiness) -> RolloutBinding<'_> {
    binding(name, Unscheduled, readiness)
}

fn deleting(binding: RolloutBinding<'_>) -> RolloutBinding<'_> {
    RolloutBinding {
        deleting: true,
        ..binding
    }
}

fn on<'a>(cluster: &'a str, binding: RolloutBinding<'a>) -> RolloutBinding<'a> {
    RolloutBinding { cluster, ..binding }
}

fn percent(text: &str) -> IntOrString {
    IntOrString::String(text.to_owned())
}

const fn number(value: i32) -> IntOrString {
    IntOrString::Int(value)
}

fn plan(
    target: usize,
    budgets: (&IntOrString, &IntOrString),
    bindings: &[RolloutBinding<'_>],
) -> RollingPlan {
    let view = RollingView {
        bindings,
        target,
        max_unavailable: Some(budgets.0),
        max_surge: Some(budgets.1),
    };
    plan_rolling(&view, NOW)
}

/// A row: target, maxUnavailable, maxSurge, bindings; update, bind, remove, held.
#[track_caller]
fn row(
    name: &str,
    (target, max_unavailable, max_surge): (usize, IntOrString, IntOrString),
    bindings: &[RolloutBinding<'_>],
    [update, bind, remove, held]: [&[&str]; 4],
) {
    let actual = plan(target, (&max_unavailable, &max_surge), bindings);
    let lists = [&actual.update, &actual.bind, &actual.remove, &actual.held];
    assert_eq!(
        lists.map(Vec::as_slice),
        [update, bind, remove, held],
        "{name}"
    );
}

fn quarter(target: usize) -> (usize, IntOrString, IntOrString) {
    (target, percent("25%"), percent("25%"))
}

#[test]
fn scenarios_of_the_reference() {
    row(
        "1 Scheduled, nothing else: bound at once",
        quarter(1),
        &[scheduled("a")],
        [&[], &["a"], &[], &[]],
    );
    row(
        "failed and out of date moves even with maxUnavailable 0",
        (1, number(0), number(1)),
        &[old("a", Failed)],
        [&["a"], &[], &[], &[]],
    );
    // Changed: with the reference the in-progress ones wait. Here one of them takes the second slot, so
    // that a first version that never becomes ready can be replaced.
    row(
        "1 failed and 4 in progress, out of date: the failed one and one more",
        quarter(5),
        &[
            old("a", InProgress),
            old("b", InProgress),
            old("c", Failed),
            old("d", InProgress),
            old("e", InProgress),
        ],
        [&["a", "c"], &[], &[], &["b", "d", "e"]],
    );
    row(
        "3 failed and 2 ready out of date: the failed ones",
        quarter(5),
        &[
            old("a", Failed),
            old("b", Ready),
            old("c", Failed),
            old("d", Ready),
            old("e", Failed),
        ],
        [&["a", "c", "e"], &[], &[], &["b", "d"]],
    );
    row(
        "maxUnavailable 0, all ready and out of date: all wait",
        (2, number(0), number(1)),
        &[old("a", Ready), old("b", Ready)],
        [&[], &[], &[], &["a", "b"]],
    );
    row(
        "2 ready Unscheduled, N=2: one goes",
        quarter(2),
        &[unscheduled("a", Ready), unscheduled("b", Ready)],
        [&[], &[], &["a"], &[]],
    );
    row(
        "only deleting bindings: nothing to do",
        quarter(2),
        &[deleting(old("a", Ready)), deleting(unscheduled("b", Ready))],
        [&[], &[], &[], &[]],
    );
    row(
        "surge 1, two loads of which one is going: one is bound",
        (2, number(1), number(1)),
        &[
            current("a", Ready),
            deleting(old("b", Ready)),
            scheduled("c"),
            scheduled("d"),
        ],
        [&[], &["c"], &[], &["d"]],
    );
    row(
        "N=2, maxUnavailable 2, one ready and one going: it may go too",
        (2, number(2), number(0)),
        &[unscheduled("a", Ready), deleting(unscheduled("b", Ready))],
        [&[], &[], &["a"], &[]],
    );
    row(
        "a cluster picked again waits for its old binding",
        quarter(2),
        &[
            deleting(on("x", old("a", Ready))),
            on("x", scheduled("b")),
            scheduled("c"),
        ],
        [&[], &["c"], &[], &["b"]],
    );
    row(
        "ReportDiff: ready, and no load",
        (2, number(1), number(0)),
        &[
            current("a", DiffReported),
            old("b", DiffReported),
            scheduled("c"),
            scheduled("d"),
        ],
        [&["b"], &["c", "d"], &[], &[]],
    );
}

#[test]
fn first_placement_binds_everything_at_once() {
    row(
        "N=3",
        quarter(3),
        &[scheduled("a"), scheduled("b"), scheduled("c")],
        [&[], &["a", "b", "c"], &[], &[]],
    );
    row(
        "even without any budget",
        (3, number(0), number(0)),
        &[scheduled("a"), scheduled("b"), scheduled("c")],
        [&[], &["a", "b", "c"], &[], &[]],
    );
    row(
        "a cluster joins a PickAll",
        (3, number(0), number(0)),
        &[current("a", Ready), current("b", Ready), scheduled("c")],
        [&[], &["c"], &[], &[]],
    );
}

#[test]
fn a_change_rolls_within_the_budget() {
    let all = ["a", "b", "c", "d", "e"];
    row(
        "all ready: 25% of 5 is 2",
        quarter(5),
        &all.map(|n| old(n, Ready)),
        [&["a", "b"], &[], &[], &["c", "d", "e"]],
    );
    row(
        "two on their way: wait",
        quarter(5),
        &[
            current("a", InProgress),
            current("b", InProgress),
            old("c", Ready),
            old("d", Ready),
            old("e", Ready),
        ],
        [&[], &[], &[], &["c", "d", "e"]],
    );
    row(
        "one there: the next",
        quarter(5),
        &[
            current("a", Ready),
            current("b", InProgress),
            old("c", Ready),
            old("d", Ready),
            old("e", Ready),
        ],
        [&["c"], &[], &[], &["d", "e"]],
    );
    row(
        "the new version fails on two: it stops",
        quarter(5),
        &[
            current("a", Failed),
            current("b", Failed),
            old("c", Ready),
            old("d", InProgress),
            old("e", Ready),
        ],
        [&[], &[], &[], &["c", "d", "e"]],
    );
    row(
        "a first version that never became ready is replaced, in portions",
        quarter(5),
        &all.map(|n| old(n, InProgress)),
        [&["a", "b"], &[], &[], &["c", "d", "e"]],
    );
    row(
        "also with maxUnavailable 0, one by one",
        (2, number(0), number(1)),
        &[old("a", InProgress), old("b", Ready)],
        [&["a"], &[], &[], &["b"]],
    );
    row(
        "settings that touch no object: at once",
        (2, number(0), number(0)),
        &[
            RolloutBinding {
                settings_only: true,
                ..old("a", Ready)
            },
            RolloutBinding {
                settings_only: true,
                ..old("b", Unreachable)
            },
        ],
        [&["a", "b"], &[], &[], &[]],
    );
}

#[test]
fn unreachable_is_never_free() {
    let names: Vec<String> = (0..100).map(|i| format!("c{i:02}")).collect();
    let fleet = |unreachable: usize| -> Vec<_> {
        let each = names.iter().enumerate();
        each.map(|(i, n)| old(n, if i < unreachable { Unreachable } else { Ready }))
            .collect()
    };
    let budgets = (&percent("25%"), &percent("25%"));
    assert_eq!(plan(100, budgets, &fleet(50)).update, Vec::<String>::new());
    // Half the fleet reconnects: the budget, no more.
    assert_eq!(plan(100, budgets, &fleet(0)).update.len(), 25);
    // They count as unavailable: 5 of 25 are used up, by them.
    assert_eq!(plan(100, budgets, &fleet(5)).update, names[..25]);
    assert_eq!(plan(100, budgets, &fleet(25)).update, names[..25]);
    assert_eq!(plan(100, budgets, &fleet(26)).update, Vec::<String>::new());
}

#[test]
fn removal_costs_only_what_is_available() {
    let none: [&[&str]; 4] = [&[], &[], &[], &[]];
    row(
        "to zero while nothing is ready",
        quarter(0),
        &[
            unscheduled("a", InProgress),
            unscheduled("b", Failed),
            unscheduled("c", Unreachable),
            unscheduled("d", ReadyAt(LATER)),
            unscheduled("e", Ready),
        ],
        [&[], &[], &["a", "b", "c", "d", "e"], &[]],
    );
    row(
        "surplus that isn't ready goes, also when nothing else is ready",
        (3, number(0), number(0)),
        &[
            current("a", InProgress),
            current("b", InProgress),
            current("c", InProgress),
            unscheduled("d", InProgress),
            unscheduled("e", Failed),
        ],
        [&[], &[], &["d", "e"], &[]],
    );
    row(
        "what may serve stays until others do",
        (1, number(0), number(1)),
        &[
            current("a", InProgress),
            unscheduled("b", Unreachable),
            unscheduled("c", ReadyAt(LATER)),
            unscheduled("d", Ready),
        ],
        [&[], &[], &["b", "c"], &[]],
    );
    row(
        "and goes when they do not suffice only if unavailable",
        (2, number(0), number(1)),
        &[
            current("a", InProgress),
            unscheduled("b", Unreachable),
            unscheduled("c", ReadyAt(LATER)),
            unscheduled("d", Ready),
        ],
        none,
    );
    row(
        "never bound: nothing is lost",
        (2, number(0), number(0)),
        &[
            current("a", Ready),
            RolloutBinding {
                previously_bound: false,
                ..unscheduled("b", Ready)
            },
        ],
        [&[], &[], &["b"], &[]],
    );
    row(
        "ready surplus goes before updates of ready ones",
        (2, number(1), number(0)),
        &[old("a", Ready), unscheduled("b", Ready)],
        [&[], &[], &["b"], &["a"]],
    );
}

#[test]
fn what_can_not_be_said_yet_holds_up_no_other() {
    row(
        "it stays, though it would move in every class",
        (3, number(3), number(3)),
        &[
            waiting(old("a", Ready)),
            waiting(old("b", Failed)),
            waiting(RolloutBinding {
                settings_only: true,
                ..old("c", Ready)
            }),
            waiting(scheduled("d")),
        ],
        [&[], &[], &[], &["a", "b", "c", "d"]],
    );
    row(
        "others go on, within the budget",
        (3, number(1), number(0)),
        &[waiting(old("a", Ready)), old("b", Ready), old("c", Ready)],
        [&["b"], &[], &[], &["a", "c"]],
    );
    row(
        "a cluster that has yet to get its first is not among what others keep up",
        (3, number(1), number(0)),
        &[old("a", Ready), old("b", Ready), waiting(scheduled("c"))],
        [&["a"], &[], &[], &["b", "c"]],
    );
    row(
        "one that is down is: it may be as well",
        (3, number(1), number(0)),
        &[old("a", Ready), old("b", Ready), waiting(old("c", Failed))],
        [&[], &[], &[], &["a", "b", "c"]],
    );
    row(
        "nor does anything go whose place it is to take",
        (2, number(0), number(1)),
        &[
            old("a", Ready),
            unscheduled("b", Ready),
            waiting(scheduled("c")),
        ],
        [&[], &[], &[], &["a", "c"]],
    );
    row(
        "it takes no place of those that may be bound",
        (3, number(1), number(0)),
        &[waiting(scheduled("a")), scheduled("b"), scheduled("c")],
        [&[], &["b", "c"], &[], &["a"]],
    );
}

#[test]
fn moving_house() {
    let olds = |r| {
        [
            unscheduled("a", r),
            unscheduled("b", r),
            unscheduled("c", r),
        ]
    };
    let news = || [scheduled("x"), scheduled("y"), scheduled("z")];
    let all = |r| [olds(r), news()].concat();
    row(
        "one out, one in",
        quarter(3),
        &all(Ready),
        [&[], &["x"], &["a"], &["y", "z"]],
    );
    row(
        "no surge: out first",
        (3, number(1), number(0)),
        &all(Ready),
        [&[], &[], &["a"], &["x", "y", "z"]],
    );
    row(
        "none unavailable: in first",
        (3, number(0), number(1)),
        &all(Ready),
        [&[], &["x"], &[], &["y", "z"]],
    );
    row(
        "the old clusters are dead: the new ones don't wait for them",
        quarter(3),
        &all(Unreachable),
        [&[], &["x", "y", "z"], &[], &[]],
    );
    row(
        "reachable ones first",
        (3, number(0), number(1)),
        &[
            olds(Ready).to_vec(),
            vec![
                RolloutBinding {
                    readiness: Unreachable,
                    ..scheduled("x")
                },
                scheduled("y"),
            ],
        ]
        .concat(),
        [&[], &["y"], &[], &["x"]],
    );
    row(
        "a revived failure is a load again",
        (2, number(0), number(0)),
        &[old("a", Failed), unscheduled("b", Ready), scheduled("c")],
        [&["a"], &[], &[], &["c"]],
    );
}

#[test]
fn waiting_periods() {
    let subject = [
        current("a", ReadyAt(LATER)),
        old("b", Ready),
        old("c", Ready),
    ];
    let budgets = (&number(1), &number(1));
    let now = plan(3, budgets, &subject);
    assert!(now.update.is_empty());
    assert_eq!(now.wake_at, Some(LATER));
    let view = RollingView {
        bindings: &subject,
        target: 3,
        max_unavailable: Some(&number(1)),
        max_surge: None,
    };
    let then = plan_rolling(&view, LATER);
    assert_eq!(then.update, ["b"]);
    assert_eq!(then.wake_at, None);
    // Nothing waits: no wake-up.
    let settled = plan(1, budgets, &[current("a", ReadyAt(LATER))]);
    assert_eq!(settled, RollingPlan::default());
    let past = NOW - SignedDuration::from_secs(1);
    assert_eq!(plan(1, budgets, &[old("a", ReadyAt(past))]).update, ["a"]);
}

#[test]
fn two_bindings_of_a_cluster() {
    row(
        "an update waits for the deletion of another",
        (1, number(1), number(1)),
        &[
            on("x", old("a", Failed)),
            deleting(on("x", old("b", Ready))),
        ],
        [&[], &[], &[], &["a"]],
    );
    row(
        "a second live one isn't bound",
        (1, number(1), number(1)),
        &[on("x", current("a", Ready)), on("x", scheduled("b"))],
        [&[], &[], &[], &["b"]],
    );
}

#[test]
fn a_cluster_that_refuses_costs_the_others_nothing() {
    let one = |target| (target, number(1), number(1));
    row(
        "the others move one at a time",
        one(3),
        &[current("a", Refused), old("b", Ready), old("c", Ready)],
        [&["b"], &[], &[], &["c"]],
    );
    row(
        "and wait for each other",
        one(3),
        &[
            current("a", Refused),
            current("b", InProgress),
            old("c", Ready),
        ],
        [&[], &[], &[], &["c"]],
    );
    row(
        "however many refuse, no more of the others move",
        one(5),
        &[
            current("a", Refused),
            current("b", Refused),
            current("c", Refused),
            old("d", Ready),
            old("e", Ready),
        ],
        [&["d"], &[], &[], &["e"]],
    );
    row(
        "given something else it may take that, and is one of them again",
        one(3),
        &[old("a", Refused), old("b", Ready), old("c", Ready)],
        [&["a"], &[], &[], &["b", "c"]],
    );
    row(
        "differences are reported by the others",
        one(3),
        &[
            current("a", Refused),
            old("b", DiffReported),
            old("c", DiffReported),
        ],
        [&["b"], &[], &[], &["c"]],
    );
    row(
        "it gives way to another cluster",
        (1, number(1), number(0)),
        &[current("a", Refused), scheduled("b")],
        [&[], &["b"], &[], &[]],
    );
}

#[test]
fn a_cluster_from_which_something_is_withheld_serves_and_has_had_its_turn() {
    let one = || (3, number(1), number(1));
    row(
        "the others wait: what can't be placed may be placed after all, and then at once",
        one(),
        &[current("a", Withheld), old("b", Ready), old("c", Ready)],
        [&[], &[], &[], &["b", "c"]],
    );
    row(
        "within the budget the next may follow",
        (3, number(2), number(1)),
        &[current("a", Withheld), old("b", Ready), old("c", Ready)],
        [&["b"], &[], &[], &["c"]],
    );
    row(
        "it is the first to get the next version: it takes nothing from the others",
        one(),
        &[old("a", Ready), old("b", Ready), old("c", Withheld)],
        [&["c"], &[], &[], &["a", "b"]],
    );
    row(
        "it serves: while another is down it stays as it is",
        one(),
        &[old("a", Withheld), old("b", Failed), old("c", Ready)],
        [&["b"], &[], &[], &["a", "c"]],
    );
    row(
        "nor is it removed then",
        one(),
        &[
            unscheduled("a", Withheld),
            current("b", Failed),
            current("c", Ready),
        ],
        [&[], &[], &[], &[]],
    );
    row(
        "it carries the resources, so that it counts against the surge",
        (2, number(1), number(0)),
        &[
            unscheduled("a", Withheld),
            current("b", Failed),
            scheduled("c"),
        ],
        [&[], &["c"], &[], &[]],
    );
}
