//! The processing clock: its table, row by row, and what holds whatever happens.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use windlass_api::binding::BindingStatus;
use windlass_api::conditions::Stage::{self, Applied, Available, DiffReported, WorkSynchronized};
use windlass_api::member::MemberCluster;
use windlass_api::{Condition, Time};
use windlass_status::Digest;
use windlass_status::processing::{Contact, Facts, Wake, has_timed_out, reachable_since, tell};

const LIMIT: SignedDuration = SignedDuration::from_secs(100);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn digest(of: &str) -> Digest {
    Digest::of_bytes(of.as_bytes())
}

fn condition(stage: Stage, status: &str, since: i64) -> Condition {
    Condition {
        type_: stage.to_string(),
        status: status.to_owned(),
        reason: "Because".to_owned(),
        message: format!("{stage} is {status}"),
        observed_generation: Some(1),
        last_transition_time: Time(at(since)),
    }
}

/// A report: every condition before `open` is True, that one is `status`, and there is none behind it.
fn report(chain: &[Stage], open: Option<(Stage, &str)>, since: i64) -> BindingStatus {
    let mut list = Vec::new();
    for stage in chain {
        match open {
            Some((open, status)) if open == *stage => {
                list.push(condition(*stage, status, since));
                break;
            }
            _ => list.push(condition(*stage, "True", since)),
        }
    }
    BindingStatus {
        conditions: Some(list),
        ..BindingStatus::default()
    }
}

fn waiting(since: i64) -> BindingStatus {
    report(&Stage::APPLY, Some((Available, "False")), since)
}

fn ready() -> BindingStatus {
    report(&Stage::APPLY, None, 0)
}

/// The clock runs about `digest` since then; nothing else is said.
fn running(of: &str, since: i64) -> BindingStatus {
    BindingStatus {
        processing_since: Some(Time(at(since))),
        processing_digest: Some(digest(of).to_string()),
        ..BindingStatus::default()
    }
}

/// As [`running`], and it has taken too long.
fn late(of: &str, since: i64) -> BindingStatus {
    let mut condition = condition(Available, "False", since);
    condition.reason = "Timeout".to_owned();
    BindingStatus {
        conditions: Some(vec![condition]),
        ..running(of, since)
    }
}

struct Row {
    about: &'static str,
    previous: BindingStatus,
    digest: Option<&'static str>,
    timeout: Option<SignedDuration>,
    reachable: Option<i64>,
    heard: Option<i64>,
    now: i64,
    new: BindingStatus,
    since: Option<i64>,
    late: bool,
    wake: Wake,
}

/// In progress for all of the time, answering, and just past the limit.
fn row(about: &'static str) -> Row {
    Row {
        about,
        previous: running("a", 1000),
        digest: Some("a"),
        timeout: Some(LIMIT),
        reachable: Some(0),
        heard: Some(1100),
        now: 1100,
        new: waiting(1000),
        since: Some(1000),
        late: true,
        wake: Wake::Event,
    }
}

fn rows_of_starts() -> Vec<Row> {
    let (on_its_way, stands) = (false, None);
    let then = |second| Wake::At(at(second));
    vec![
        Row {
            digest: None,
            since: stands,
            late: on_its_way,
            ..row("nothing is under way")
        },
        Row {
            new: ready(),
            since: stands,
            late: on_its_way,
            ..row("ready ends it")
        },
        Row {
            new: ready(),
            previous: late("a", 1000),
            since: stands,
            late: on_its_way,
            ..row("ready ends it also when that took too long")
        },
        Row {
            previous: BindingStatus::default(),
            since: Some(1100),
            late: on_its_way,
            wake: then(1200),
            ..row("the first delivery starts it")
        },
        Row {
            previous: ready(),
            since: Some(1100),
            late: on_its_way,
            wake: then(1200),
            ..row("what was ready is not any more: it starts again")
        },
        Row {
            digest: Some("b"),
            since: Some(1100),
            late: on_its_way,
            wake: then(1200),
            ..row("something else starts it anew")
        },
        Row {
            previous: late("a", 1000),
            digest: Some("b"),
            since: Some(1100),
            late: on_its_way,
            wake: then(1200),
            ..row("also after too long a time")
        },
        Row {
            previous: BindingStatus::default(),
            timeout: None,
            since: Some(1100),
            late: on_its_way,
            ..row("it starts without a limit too: there may be one later")
        },
    ]
}

fn rows_of_limits() -> Vec<Row> {
    let on_its_way = false;
    let then = |second| Wake::At(at(second));
    vec![
        row("too long"),
        Row {
            now: 1099,
            heard: Some(1099),
            late: on_its_way,
            wake: then(1100),
            ..row("not too long yet")
        },
        Row {
            timeout: None,
            now: 999_999,
            late: on_its_way,
            ..row("no limit")
        },
        Row {
            timeout: None,
            previous: late("a", 1000),
            late: on_its_way,
            ..row("no limit any more")
        },
        Row {
            timeout: Some(LIMIT * 2),
            previous: late("a", 1000),
            late: on_its_way,
            wake: then(1200),
            ..row("a longer one")
        },
        Row {
            timeout: Some(SignedDuration::MAX),
            late: on_its_way,
            ..row("one beyond the end of time")
        },
        Row {
            reachable: None,
            late: on_its_way,
            ..row("not reachable: never too long")
        },
        Row {
            reachable: None,
            previous: late("a", 1000),
            ..row("not reachable, but it was too long before: nothing else is known")
        },
        Row {
            reachable: Some(1050),
            late: on_its_way,
            wake: then(1150),
            ..row("what it was away for does not count")
        },
        Row {
            reachable: Some(1050),
            previous: late("a", 1000),
            late: on_its_way,
            wake: then(1150),
            ..row("nor when it had taken too long before it was away")
        },
        Row {
            reachable: Some(1050),
            now: 1150,
            heard: Some(1150),
            ..row("it counts from its return")
        },
        Row {
            heard: Some(1099),
            late: on_its_way,
            wake: Wake::WhenHeard,
            ..row("it may be gone, only that nobody has noticed yet")
        },
        Row {
            heard: None,
            late: on_its_way,
            wake: Wake::WhenHeard,
            ..row("it was not heard of since the hub started")
        },
        Row {
            heard: None,
            previous: late("a", 1000),
            ..row("nor need it be, to repeat what was said")
        },
        Row {
            heard: None,
            previous: BindingStatus {
                observed_digest: Some(digest("b").to_string()),
                ..late("a", 1000)
            },
            late: on_its_way,
            wake: Wake::WhenHeard,
            ..row("but of this, not of what it had before")
        },
        Row {
            heard: None,
            previous: {
                let mut before = late("a", 1000);
                before.conditions.as_mut().unwrap()[0].observed_generation = Some(0);
                before
            },
            late: on_its_way,
            wake: Wake::WhenHeard,
            ..row("also where nothing tells the one from the other but the generation")
        },
    ]
}

#[test]
fn the_clock() {
    for row in rows_of_starts().into_iter().chain(rows_of_limits()) {
        let facts = Facts {
            previous: &row.previous,
            digest: row.digest.map(digest),
            chain: &Stage::APPLY,
            timeout: row.timeout,
            contact: Contact {
                reachable_since: row.reachable.map(at),
                heard: row.heard.map(at),
            },
            generation: Some(1),
            now: at(row.now),
        };
        let mut told = row.new.clone();
        let wake = tell(&mut told, &facts);
        let since = told.processing_since.as_ref().map(|since| since.0);
        assert_eq!(since, row.since.map(at), "{}", row.about);
        let of = told.processing_digest.as_deref();
        let expected = row.since.and(row.digest).map(|of| digest(of).to_string());
        assert_eq!(of, expected.as_deref(), "{}", row.about);
        assert_eq!(has_timed_out(&told), row.late, "{}", row.about);
        assert_eq!(wake, row.wake, "{}", row.about);
        // Told again at once, it is the same.
        let mut again = row.new.clone();
        let next = Facts {
            previous: &told,
            ..facts
        };
        assert_eq!(tell(&mut again, &next), row.wake, "{}", row.about);
        assert_eq!(again, told, "{}", row.about);
    }
}

/// What is said, where.
#[test]
fn the_first_condition_that_is_not_true_says_so() {
    for (chain, open, said, since) in [
        (
            &Stage::APPLY[..],
            (WorkSynchronized, Some("False")),
            "WorkSynchronized is False",
            1000,
        ),
        (
            &Stage::APPLY,
            (Applied, Some("False")),
            "Applied is False",
            1000,
        ),
        (
            &Stage::APPLY,
            (Available, Some("False")),
            "Available is False",
            1000,
        ),
        (
            &Stage::APPLY,
            (Available, Some("Unknown")),
            "Available is Unknown",
            1100,
        ),
        (&Stage::APPLY, (Applied, None), "nothing was reported", 1100),
        (
            &Stage::REPORT_DIFF,
            (DiffReported, Some("False")),
            "DiffReported is False",
            1000,
        ),
    ] {
        let (stage, status) = open;
        let mut new = report(chain, Some((stage, status.unwrap_or("False"))), 1000);
        if status.is_none() {
            new.conditions.as_mut().unwrap().pop();
        }
        let count = new.conditions.as_ref().unwrap().len() + usize::from(status.is_none());
        let facts = Facts {
            previous: &running("a", 1000),
            digest: Some(digest("a")),
            chain,
            timeout: Some(LIMIT),
            contact: Contact {
                reachable_since: Some(at(0)),
                heard: Some(at(1100)),
            },
            generation: Some(7),
            now: at(1100),
        };
        tell(&mut new, &facts);
        let list = new.conditions.unwrap();
        assert_eq!(list.len(), count);
        let told = list.last().unwrap();
        assert_eq!(told.type_, stage.to_string());
        assert_eq!((&*told.status, &*told.reason), ("False", "Timeout"));
        let message =
            format!("Not ready within 1m40s (the placement's spec.strategy.timeout): {said}");
        assert_eq!(told.message, message);
        // I11: the time moves only with the status.
        assert_eq!(told.last_transition_time.0, at(since), "{message}");
    }
}

#[test]
fn a_cluster_is_reachable_since_it_became_healthy() {
    for (status, expected) in [("True", Some(5)), ("False", None), ("Unknown", None)] {
        let mut cluster = MemberCluster::default();
        let mut healthy = condition(Available, status, 5);
        healthy.type_ = "Healthy".to_owned();
        let conditions = &mut cluster.status.get_or_insert_default().conditions;
        *conditions = Some(vec![healthy]);
        assert_eq!(reachable_since(&cluster), expected.map(at), "{status}");
    }
    assert_eq!(reachable_since(&MemberCluster::default()), None);
}

/// What a test knows of a cluster without the clock.
struct Truth {
    reachable_since: Option<i64>,
    heard: i64,
    /// Since when it has been on its way with what it has now.
    open_since: Option<i64>,
    version: u8,
}

proptest! {
    /// Nobody is late who did not have the whole time, and everybody who answers is, sooner or later.
    #[test]
    fn whatever_happens(steps in proptest::collection::vec((0..9_u8, 1..60_i64), 1..80)) {
        let mut now = 1000;
        let mut truth = Truth { reachable_since: Some(now), heard: now, open_since: None, version: 0 };
        let mut status = BindingStatus::default();
        for (kind, seconds) in steps {
            now += seconds;
            let mut is_told = true;
            match kind {
                0 => truth.reachable_since = None,
                1 => truth.reachable_since = truth.reachable_since.or(Some(now)),
                2 => { truth.version += 1; truth.open_since = Some(now); }
                3 => truth.open_since = None,
                // A restart of the hub, or nothing at all.
                4 => is_told = false,
                _ => truth.open_since = truth.open_since.or(Some(now)),
            }
            // A partition that nobody has noticed yet.
            if truth.reachable_since.is_some() && kind != 8 {
                truth.heard = now;
            }
            if !is_told {
                continue;
            }
            let facts = Facts {
                previous: &status,
                digest: Some(digest(&truth.version.to_string())),
                chain: &Stage::APPLY,
                timeout: Some(LIMIT),
                contact: Contact {
                    reachable_since: truth.reachable_since.map(at),
                    heard: Some(at(truth.heard)),
                },
                generation: Some(1),
                now: at(now),
            };
            let mut new = if truth.open_since.is_some() { waiting(now) } else { ready() };
            let wake = tell(&mut new, &facts);
            let was_late = has_timed_out(&status);
            let is_late = has_timed_out(&new);
            let span = LIMIT.as_secs();
            let had = |since: Option<i64>, until: i64| since.is_some_and(|since| until - since >= span);
            if is_late && !was_late {
                prop_assert!(had(truth.open_since, truth.heard));
                prop_assert!(had(truth.reachable_since, truth.heard));
            }
            let must = had(truth.open_since, truth.heard) && had(truth.reachable_since, truth.heard);
            prop_assert!(is_late || !must);
            prop_assert!(!is_late || truth.open_since.is_some());
            // Whoever is on the way and answers is looked at again, until it is late.
            let answers = truth.reachable_since.is_some();
            let open = truth.open_since.is_some();
            prop_assert_eq!(wake != Wake::Event, answers && open && !is_late);
            prop_assert_eq!(new.processing_since.is_some(), open);
            if let Wake::At(moment) = wake {
                prop_assert!(moment > at(now));
            }
            status = new;
        }
    }
}
