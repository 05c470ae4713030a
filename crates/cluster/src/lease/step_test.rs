//! What a contender does, row by row.

use super::*;
use crate::clock;

fn contender(identity: &str) -> Contender {
    Contender {
        namespace: "n".into(),
        name: "l".into(),
        identity: identity.into(),
        timing: Timing::default(),
    }
}

fn wall(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// A lease as the server has it.
fn lease(holder: &str, version: &str, promised: i32) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some("l".into()),
            namespace: Some("n".into()),
            resource_version: Some(version.into()),
            ..Default::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(promised),
            lease_transitions: Some(3),
            acquire_time: Some(MicroTime(wall(-100))),
            renew_time: Some(MicroTime(wall(0))),
            ..Default::default()
        }),
    }
}

/// What happens to a contender, each at a second.
#[derive(Clone, Copy)]
enum On {
    /// It has read a lease: holder, version, promised seconds.
    Read(&'static str, &'static str, i32),
    /// It has read that there is none.
    None,
    /// A write that it sent then has succeeded, and has that version.
    Wrote(&'static str),
    Raced,
    Outage,
    News,
}

#[derive(Debug, PartialEq)]
enum Does {
    WaitUntil(f64),
    Look,
    Create,
    Replace(&'static str),
    StepDown,
}

/// What it is about, what has happened, when it is asked, and what it does.
type Row<'a> = (&'a str, &'a [(f64, On)], f64, Does);

fn does(history: &[(f64, On)], at: f64) -> Does {
    let base = clock::monotonic();
    let mut state = LeaseState::new(contender("me"));
    for (when, on) in history {
        let when = base + secs(*when);
        match *on {
            On::Read(holder, version, promised) => {
                state.looked(Some(lease(holder, version, promised)), when);
            }
            On::None => state.looked(None, when),
            On::Wrote(version) => state.wrote(lease("me", version, 10), when),
            On::Raced => state.failed(Failed::Raced, when),
            On::Outage => state.failed(Failed::Outage, when),
            On::News => state.news(),
        }
    }
    match step(&state, base + secs(at), wall(5)) {
        Step::Wait(until) => Does::WaitUntil((until - base).as_secs_f64()),
        Step::Look => Does::Look,
        Step::StepDown(_) => Does::StepDown,
        Step::Write(lease) => match lease.metadata.resource_version.as_deref() {
            None => Does::Create,
            Some("1") => Does::Replace("1"),
            Some("2") => Does::Replace("2"),
            other => panic!("{other:?}"),
        },
    }
}

#[test]
fn what_is_done_when() {
    use Does::{Create, Look, Replace, StepDown, WaitUntil};
    use On::{None, Outage, Raced, Read, Wrote};
    let theirs = Read("other", "1", 10);
    let renewed = Read("other", "2", 10);
    let rows: &[Row] = &[
        ("knows nothing", &[], 0.0, Look),
        ("no lease, never one", &[(0.0, None)], 0.0, Create),
        ("given back", &[(0.0, Read("", "1", 1))], 0.0, Replace("1")),
        (
            "ours by a lost answer",
            &[(0.0, Read("me", "1", 10))],
            0.0,
            Replace("1"),
        ),
        ("held: looks again", &[(0.0, theirs)], 1.0, WaitUntil(2.0)),
        ("held: the time has come", &[(0.0, theirs)], 2.0, Look),
        (
            "held: unchanged so far",
            &[(0.0, theirs), (9.0, theirs)],
            9.5,
            WaitUntil(10.0),
        ),
        (
            "held: unchanged for long",
            &[(0.0, theirs), (9.0, theirs)],
            10.0,
            Replace("1"),
        ),
        (
            "held: renewed late",
            &[(0.0, theirs), (9.0, renewed)],
            10.0,
            WaitUntil(11.0),
        ),
        (
            "held: renewed late, then silence",
            &[(0.0, theirs), (9.0, renewed), (18.0, renewed)],
            18.9,
            WaitUntil(19.0),
        ),
        (
            "held: now it is over",
            &[(0.0, theirs), (9.0, renewed), (18.0, renewed)],
            19.0,
            Replace("2"),
        ),
        (
            "the holder has promised longer",
            &[(0.0, Read("other", "1", 60))],
            12.0,
            Look,
        ),
        (
            "the holder's longer promise is over",
            &[
                (0.0, Read("other", "1", 60)),
                (59.0, Read("other", "1", 60)),
            ],
            60.0,
            Replace("1"),
        ),
        (
            "the holder promises nothing: ours counts",
            &[(0.0, Read("other", "1", 0)), (9.0, Read("other", "1", 0))],
            9.9,
            WaitUntil(10.0),
        ),
        (
            "deleted while held",
            &[(0.0, theirs), (2.0, None)],
            2.0,
            WaitUntil(4.0),
        ),
        (
            "deleted, and the holder's time is over",
            &[(0.0, theirs), (9.0, None)],
            10.0,
            Create,
        ),
        (
            "news are looked at",
            &[(0.0, theirs), (0.5, On::News)],
            0.5,
            Look,
        ),
        (
            "somebody was first",
            &[(0.0, Read("", "1", 1)), (0.0, Raced)],
            0.1,
            WaitUntil(0.2),
        ),
        (
            "somebody was first: who?",
            &[(0.0, Read("", "1", 1)), (0.0, Raced)],
            0.2,
            Look,
        ),
        ("no answer: patience", &[(0.0, Outage)], 1.0, WaitUntil(2.0)),
        ("no answer: again", &[(0.0, Outage)], 2.0, Look),
        (
            "leads",
            &[(0.0, None), (0.0, Wrote("1"))],
            1.0,
            WaitUntil(2.0),
        ),
        (
            "leads: renews",
            &[(0.0, None), (0.0, Wrote("1"))],
            2.0,
            Replace("1"),
        ),
        (
            "leads: has renewed",
            &[(0.0, Wrote("1")), (2.0, Wrote("2"))],
            3.0,
            WaitUntil(4.0),
        ),
        (
            "leads: no answer",
            &[(0.0, Wrote("1")), (2.0, Outage)],
            3.0,
            WaitUntil(4.0),
        ),
        (
            "leads: looks before it renews again",
            &[(0.0, Wrote("1")), (2.0, Outage)],
            4.0,
            Look,
        ),
        (
            "leads: the lost renewal was done",
            &[(0.0, Wrote("1")), (2.0, Outage), (4.0, Read("me", "2", 10))],
            4.0,
            Replace("2"),
        ),
        (
            "leads: waits no longer than it may",
            &[(0.0, Wrote("1")), (6.0, Outage)],
            6.5,
            WaitUntil(7.0),
        ),
        (
            "leads: the deadline is over",
            &[(0.0, Wrote("1")), (6.0, Outage)],
            7.0,
            StepDown,
        ),
        (
            "leads: woken up late",
            &[(0.0, Wrote("1"))],
            1000.0,
            StepDown,
        ),
        (
            "leads: seeing its lease is no renewal",
            &[(0.0, Wrote("1")), (2.0, Raced), (6.9, Read("me", "2", 10))],
            7.0,
            StepDown,
        ),
        (
            "leads: taken",
            &[(0.0, Wrote("1")), (2.0, Raced), (2.1, renewed)],
            2.1,
            StepDown,
        ),
        (
            "leads: somebody has emptied it",
            &[(0.0, Wrote("1")), (2.0, Raced), (2.1, Read("", "2", 1))],
            2.1,
            StepDown,
        ),
        (
            "leads: somebody has deleted it",
            &[(0.0, Wrote("1")), (2.0, Raced), (2.1, None)],
            2.1,
            Create,
        ),
    ];
    for (what, history, at, expected) in rows {
        assert_eq!(does(history, *at), *expected, "{what}");
    }
}

fn spec(lease: &Lease) -> LeaseSpec {
    lease.spec.clone().unwrap()
}

fn written(state: &LeaseState, now: Instant, at: Timestamp) -> Lease {
    match step(state, now, at) {
        Step::Write(lease) => *lease,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_written() {
    let now = clock::monotonic();
    let mut state = LeaseState::new(contender("me"));
    state.looked(None, now);
    let new = written(&state, now, wall(1));
    assert_eq!(new.metadata.name.as_deref(), Some("l"));
    assert_eq!(new.metadata.namespace.as_deref(), Some("n"));
    assert_eq!(spec(&new).lease_transitions, Some(0));
    assert_eq!(spec(&new).lease_duration_seconds, Some(10));
    assert_eq!(spec(&new).acquire_time, Some(MicroTime(wall(1))));

    let mut old = lease("", "1", 1);
    old.metadata.labels = Some([("kept".to_owned(), "yes".to_owned())].into());
    let mut state = LeaseState::new(contender("me"));
    state.looked(Some(old.clone()), now);
    let taken = written(&state, now, wall(1));
    assert_eq!(taken.metadata, old.metadata);
    assert_eq!(spec(&taken).holder_identity.as_deref(), Some("me"));
    assert_eq!(spec(&taken).lease_transitions, Some(4));

    state.wrote(taken.clone(), now);
    let due = now + Timing::default().retry();
    let renewed = written(&state, due, wall(1));
    assert_eq!(spec(&renewed).acquire_time, spec(&taken).acquire_time);
    assert_eq!(spec(&renewed).lease_transitions, Some(4));
    assert_ne!(
        spec(&renewed).renew_time,
        spec(&taken).renew_time,
        "a wall clock that stands still makes no renewal that nobody sees"
    );

    let released = state.released(wall(3)).unwrap();
    assert_eq!(spec(&released).holder_identity.as_deref(), Some(""));
    assert_eq!(spec(&released).lease_duration_seconds, Some(1));
    assert_eq!(spec(&released).lease_transitions, Some(4));
    state.looked(Some(lease("other", "9", 10)), now);
    assert_eq!(
        state.released(wall(3)),
        None,
        "what is another's is left alone"
    );
}

#[test]
fn times_that_do_not_go_together_are_refused() {
    let timing = |lease, renew, retry| Timing::new(secs(lease), secs(renew), secs(retry));
    assert_eq!(timing(10.0, 7.0, 2.0), Ok(Timing::default()));
    assert!(timing(4.0, 3.0, 1.0).is_ok());
    for (lease, renew, retry, word) in [
        (0.0, 0.0, 0.0, "lease duration"),
        (1.5, 1.0, 0.1, "lease duration"),
        (1e10, 1.0, 0.1, "lease duration"),
        (10.0, 10.0, 2.0, "nine tenths"),
        (10.0, 2.0, 2.0, "retry period"),
        (10.0, 7.0, 0.0, "retry period"),
    ] {
        let error = timing(lease, renew, retry).unwrap_err();
        assert!(error.contains(word), "{lease} {renew} {retry}: {error}");
    }
}
