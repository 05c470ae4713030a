//! Every state that a repository can come to: all steps and all outcomes from each, until nothing new appears.
//! What matters of a time is only whether it is none, has come, lies ahead, or lies further ahead than any that
//! is given; of a generation, whether it is the present one.

use std::collections::{HashSet, VecDeque};

use jiff::SignedDuration;
use windlass_addons::evaluate::STALLED;

use crate::machine::{Ghost, Inner, Machine, REMOTES, Remote, Secret, Step, Url};
use crate::support::condition;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Next {
    None,
    Come,
    Ahead,
    Beyond,
}

/// What of a machine its behaviour hangs on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    surroundings: (Url, Secret, Inner, bool),
    is_requested: bool,
    next: Next,
    observed: bool,
    failures: Option<i32>,
    digests: [Option<String>; 2],
    conditions: Vec<(String, String, String, String)>,
    is_stall_present: bool,
    ghost: Ghost,
}

fn key(machine: &Machine) -> Key {
    let case = &machine.case;
    let status = &case.current;
    let next = match machine.next().map(|next| next.duration_since(case.now)) {
        None => Next::None,
        Some(left) if !left.is_positive() => Next::Come,
        Some(left) if left.as_secs() > 66 * 60 => Next::Beyond,
        Some(_) => Next::Ahead,
    };
    let conditions = status.conditions.iter().flatten().map(|found| {
        (
            found.type_.clone(),
            found.status.clone(),
            found.reason.clone(),
            found.message.clone(),
        )
    });
    Key {
        surroundings: (machine.url, machine.secret, machine.inner, case.suspended),
        is_requested: case.request.is_some() && case.request != machine.ghost.answered,
        next,
        observed: status.observed_generation == Some(case.generation),
        failures: status.consecutive_fetch_failures,
        digests: [
            status.attempted_spec_digest.clone(),
            status.fetched_spec_digest.clone(),
        ],
        conditions: conditions.collect(),
        is_stall_present: condition(status, STALLED)
            .is_some_and(|found| found.observed_generation == Some(case.generation)),
        ghost: Ghost {
            answered: None,
            generation: i64::from(machine.ghost.generation == case.generation),
            ..machine.ghost.clone()
        },
    }
}

struct Found {
    states: usize,
    transitions: usize,
    passes: usize,
}

fn explore(start: Machine, steps: &[Step]) -> Found {
    let mut seen = HashSet::from([key(&start)]);
    let mut open = VecDeque::from([start]);
    let mut found = Found {
        states: 0,
        transitions: 0,
        passes: 0,
    };
    while let Some(machine) = open.pop_front() {
        found.states += 1;
        machine.assert_recovers();
        machine.assert_unseen_is_in_progress();
        for step in steps.iter().copied().chain(passes(&machine)) {
            let mut then = machine.clone();
            then.step(step);
            found.transitions += 1;
            found.passes += usize::from(then.passed);
            if seen.insert(key(&then)) {
                open.push_back(then);
            }
        }
    }
    found
}

/// The passes that differ from each other there: with each outcome where an attempt is made; and one without.
fn passes(machine: &Machine) -> Vec<Step> {
    let pass = |remote, asked| Step::Pass {
        remote,
        jitter: if asked { -1.0 } else { 1.0 },
        asked,
    };
    let wanted = machine.case.should_attempt();
    let mut passes: Vec<_> = REMOTES
        .into_iter()
        .map(|remote| pass(remote, !wanted))
        .collect();
    if !machine.can_be_read() {
        passes.truncate(1);
    }
    if !wanted {
        passes.push(pass(Remote::Ok, false));
    }
    passes
}

fn explored(what: &str, start: Machine, steps: &[Step], floor: usize) {
    let found = explore(start, steps);
    println!(
        "{what}: {} states, {} transitions, {} of them passes",
        found.states, found.transitions, found.passes
    );
    assert!(found.states > floor, "the model has lost its states");
}

/// Steps that every model has. A change of the spec that is not about where it is read is one of suspend.
const STEPS: [Step; 8] = [
    Step::Url(Url::One),
    Step::Secret(Secret::One),
    Step::Secret(Secret::Missing),
    Step::Suspend(true),
    Step::Suspend(false),
    Step::Request,
    Step::Due,
    Step::Clock(SignedDuration::from_hours(-3)),
];

// Two urls and two Secrets at once make nothing that one of them does not, for a digest is all that is seen of
// both: they are taken one by one here, and together at random in the other module.
#[test]
fn every_state_with_another_url() {
    let steps = [&STEPS[..], &[Url::Other, Url::Bad].map(Step::Url)].concat();
    explored("urls", Machine::new(Inner::None), &steps, 10_000);
}

#[test]
fn every_state_with_another_secret() {
    let steps = [&STEPS[..], &[Step::Secret(Secret::Other)]].concat();
    explored("Secrets", Machine::new(Inner::None), &steps, 5_500);
}

#[test]
fn every_state_with_an_internal_repository() {
    let inner = [Inner::None, Inner::Ready, Inner::NotReady, Inner::Stalled].map(Step::Inner);
    let left_out = [Step::Request, Step::Clock(SignedDuration::from_hours(-3))];
    let kept = STEPS.into_iter().filter(|step| !left_out.contains(step));
    let steps: Vec<_> = kept.chain(inner).collect();
    explored("internal", Machine::new(Inner::Ready), &steps, 5_000);
}
