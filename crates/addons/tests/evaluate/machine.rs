//! A repository in its surroundings: steps that change these, passes that go by them, and what holds after
//! each pass. What the hub does between two passes is what its actor does: nothing but the status survives.

use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use windlass_addons::evaluate::{
    Attempt, Credentials, Internal, READY, RECONCILING, STALLED, evaluate,
};
use windlass_addons::failure::{Failure, Fault};
use windlass_addons::schedule::{self, MAX_FAILURES};
use windlass_status::Digest;
use windlass_status::kstatus::Status;

use crate::support::{
    Case, PASSWORD, condition, digest_of, is_healthy, is_true, not_ready, read, source, terminal,
    transient, unwritten,
};

/// Of each url with each password.
static DIGESTS: LazyLock<[Digest; 4]> = LazyLock::new(|| {
    let (one, other) = ("https://charts.example.com", "https://other.example.com");
    [
        (one, PASSWORD),
        (one, "another"),
        (other, PASSWORD),
        (other, "another"),
    ]
    .map(|(url, password)| digest_of(url, password))
});
/// Of the bad url.
static FAULT: LazyLock<(Fault, String)> = LazyLock::new(|| {
    let url = format!("https://somebody:{PASSWORD}@charts.example.com");
    let failure = source(&url, PASSWORD).unwrap_err();
    (failure.fault().unwrap(), failure.to_string())
});

/// What the spec asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Url {
    One,
    Other,
    Bad,
}

/// What stands in the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Secret {
    One,
    Other,
    Missing,
}

/// The state of an internal repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Inner {
    None,
    Ready,
    NotReady,
    Stalled,
}

/// What comes of an attempt, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Remote {
    Ok,
    Unchanged,
    Unwritten,
    Transient,
    /// 429 with a Retry-After of so many seconds.
    Busy(u32),
    Terminal,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    Url(Url),
    Secret(Secret),
    Inner(Inner),
    /// Suspends or resumes.
    Suspend(bool),
    /// Another interval; also any other change of the spec that is not about where it is read.
    Interval(SignedDuration),
    /// The annotation has a new value.
    Request,
    /// Time passes until the next attempt is due.
    Due,
    /// Half of that time passes.
    Half,
    /// Time passes, or the clock is set.
    Clock(SignedDuration),
    /// A pass. `asked` is an attempt that the hub wants for reasons of its own.
    Pass {
        remote: Remote,
        jitter: f64,
        asked: bool,
    },
}

/// What is known without the status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ghost {
    /// What the last attempt was made with, and whether the catalogue is what is offered there.
    pub last: Option<(String, bool)>,
    /// What it was last read with.
    pub read: Option<String>,
    /// Failures in a row, of the same spec and credentials.
    pub failures: i32,
    /// The generation of the last pass.
    pub generation: i64,
    /// The request that the last attempt answered.
    pub answered: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Machine {
    pub case: Case,
    pub url: Url,
    pub secret: Secret,
    pub inner: Inner,
    pub ghost: Ghost,
    /// Whether the last step was a pass.
    pub passed: bool,
}

impl Machine {
    pub fn new(internal: Inner) -> Self {
        let mut new = Self {
            case: Case::new(),
            url: Url::One,
            secret: Secret::One,
            inner: internal,
            ghost: Ghost::default(),
            passed: false,
        };
        new.look();
        new
    }

    /// What the spec and the Secret come to, as the hub finds it out.
    fn look(&mut self) {
        let case = &mut self.case;
        (case.digest, case.config, case.credentials) = match (self.url, self.secret) {
            (_, Secret::Missing) => {
                let message = "Secret login is not there".to_owned();
                (None, None, Credentials::NotReady(message))
            }
            (Url::Bad, _) => (None, Some(FAULT.clone()), Credentials::None),
            (Url::One, Secret::One) => (Some(DIGESTS[0]), None, Credentials::Ready),
            (Url::One, Secret::Other) => (Some(DIGESTS[1]), None, Credentials::Ready),
            (Url::Other, Secret::One) => (Some(DIGESTS[2]), None, Credentials::Ready),
            (Url::Other, Secret::Other) => (Some(DIGESTS[3]), None, Credentials::Ready),
        };
        case.internal = match self.inner {
            Inner::None => Internal::None,
            Inner::Ready => Internal::Ready,
            Inner::NotReady => not_ready(false),
            Inner::Stalled => not_ready(true),
        };
    }

    pub fn next(&self) -> Option<Timestamp> {
        self.case.current.next_sync_time.as_ref().map(|next| next.0)
    }

    fn digest(&self) -> Option<String> {
        self.case.digest.map(|digest: Digest| digest.to_string())
    }

    /// Whether it is suspended, or what it is read by is not there.
    pub fn can_be_read(&self) -> bool {
        !self.case.suspended && self.url != Url::Bad && self.secret != Secret::Missing
    }

    /// Whether the last attempt was made with the present spec and credentials, and the catalogue is what it
    /// should be.
    pub fn is_catalogue_good(&self) -> bool {
        let last = self.ghost.last.as_ref();
        last.is_some_and(|(digest, good)| *good && Some(digest) == self.digest().as_ref())
    }

    pub fn step(&mut self, step: Step) {
        self.passed = false;
        let case = &mut self.case;
        match step {
            Step::Url(url) if url != self.url => {
                self.url = url;
                case.generation += 1;
            }
            Step::Secret(secret) => self.secret = secret,
            Step::Inner(inner) => self.inner = inner,
            Step::Suspend(wanted) if wanted != case.suspended => {
                case.suspended = wanted;
                case.generation += 1;
            }
            Step::Url(_) | Step::Suspend(_) => {}
            Step::Interval(interval) => {
                case.interval = interval;
                case.generation += 1;
            }
            Step::Request => {
                let used = [case.request.as_deref(), self.ghost.answered.as_deref()];
                let new = ["10:00", "10:01", "10:02"].map(Some);
                let new = new.into_iter().find(|new| !used.contains(new));
                case.request = new.flatten().map(str::to_owned);
            }
            Step::Due => {
                let next = self.next();
                self.case.now = next.unwrap_or(self.case.now).max(self.case.now);
            }
            Step::Half => {
                let left = self.next().map(|next| next.duration_since(self.case.now));
                let half = left.unwrap_or_default().max(SignedDuration::ZERO) / 2;
                self.case.now += half;
            }
            Step::Clock(by) => self.case.now += by,
            Step::Pass {
                remote,
                jitter,
                asked,
            } => self.pass(remote, jitter, asked),
        }
        self.look();
    }

    fn pass(&mut self, remote: Remote, jitter: f64, asked: bool) {
        self.passed = true;
        self.case.jitter = jitter;
        let wanted = self.case.should_attempt();
        self.check_wanted(wanted);
        let was = self.clone();
        self.count(None);
        let attempt = if wanted || (asked && self.can_be_read()) {
            self.count(Some(remote));
            attempt_of(remote)
        } else {
            Attempt::None
        };
        let tried = attempt != Attempt::None;
        let decision = self.case.pass(attempt);
        assert_eq!(decision.status, self.case.current);
        self.check(&was, tried);
        // The same pass again, with nothing tried: what one pass says the next one says too.
        let inputs = self.case.inputs(Attempt::None);
        let repeated = evaluate(&inputs);
        assert_eq!(
            repeated.status, self.case.current,
            "it says another thing: {was:#?}"
        );
        assert_eq!(repeated.requeue_after, decision.requeue_after);
        // So a restart or a new leader makes no attempt of its own.
        assert!(!tried || !inputs.should_attempt(), "tried twice: {was:#?}");
        assert_eq!(
            decision.requeue_after.is_some(),
            self.can_be_read(),
            "it is looked at again if that can be of use: {was:#?}"
        );
    }

    /// Counts failures by the rule, and not by the status.
    fn count(&mut self, tried: Option<Remote>) {
        let digest = self.digest();
        let last = self.ghost.last.as_ref().map(|(digest, _)| digest);
        let is_other = digest.is_some() && digest.as_ref() != last;
        if is_other || self.ghost.generation != self.case.generation {
            self.ghost.failures = 0;
        }
        self.ghost.generation = self.case.generation;
        let Some(remote) = tried else { return };
        let digest = digest.unwrap();
        self.ghost.answered.clone_from(&self.case.request);
        let good = matches!(remote, Remote::Ok | Remote::Unchanged);
        if good || remote == Remote::Unwritten {
            self.ghost.read = Some(digest.clone());
        }
        self.ghost.failures = match remote {
            Remote::Ok | Remote::Unchanged | Remote::Unwritten => 0,
            Remote::Terminal => MAX_FAILURES,
            Remote::Transient | Remote::Busy(_) => (self.ghost.failures + 1).min(MAX_FAILURES),
        };
        self.ghost.last = Some((digest, good));
    }

    /// When an attempt is made, and when not.
    fn check_wanted(&self, wanted: bool) {
        let case = &self.case;
        let status = &case.current;
        let last = self.ghost.last.as_ref().map(|(digest, _)| digest);
        let is_changed = self.ghost.generation != case.generation
            || last.is_none()
            || (self.digest().is_some() && self.digest().as_ref() != last);
        let is_asked = case.request.is_some() && case.request != self.ghost.answered;
        let longest = schedule::cap(case.interval).as_nanos() * 11 / 10;
        let is_due = self.next().is_none_or(|next| {
            let left = next.duration_since(case.now).as_nanos();
            left <= 0 || left > longest
        });
        let expected = self.can_be_read() && (is_changed || is_asked || is_due);
        assert_eq!(wanted, expected, "{status:#?} {self:#?}");
    }

    /// What holds after a pass, besides what holds of every decision.
    fn check(&self, was: &Self, tried: bool) {
        let case = &self.case;
        let status = &case.current;
        let told = || format!("{was:#?}\n→ {status:#?}");
        let kstatus = case.kstatus();
        assert!(
            kstatus != Status::Current || self.is_catalogue_good(),
            "a broken catalogue reads as Current: {}",
            told()
        );
        let failures = status.consecutive_fetch_failures.unwrap_or(0);
        assert_eq!(failures, self.ghost.failures, "{}", told());
        let is_spent = failures == MAX_FAILURES;
        let stalled = condition(status, STALLED);
        if is_spent {
            assert!(
                stalled.is_some(),
                "five failures and not stalled: {}",
                told()
            );
        }
        let has_evidence = self.ghost.read.is_some() && self.ghost.read == self.digest();
        let is_whole = matches!(self.inner, Inner::None | Inner::Ready);
        let latched = has_evidence && is_whole && self.secret != Secret::Missing;
        if latched && stalled.is_none() {
            assert!(
                is_true(status, READY),
                "the latch does not hold: {}",
                told()
            );
        }
        // What an internal repository stalled stays so until the next attempt.
        let is_other = stalled.is_some_and(|stalled| stalled.reason == "FetchFailed");
        if !is_other && self.url != Url::Bad && !is_spent {
            assert!(stalled.is_none(), "stalled for nothing: {}", told());
        }
        if case.suspended {
            assert!(!tried, "{}", told());
            let ready = condition(status, READY).unwrap();
            assert!(ready.message.contains("spec.suspend"), "{}", told());
            let good = is_whole && self.is_catalogue_good();
            assert!(!good || kstatus == Status::Current, "{}", told());
        }
        if self.can_be_read() {
            let next = self.next();
            assert!(
                next.is_some_and(|next| next > case.now) || !tried,
                "{}",
                told()
            );
        }
        let is_busy = condition(status, RECONCILING).is_some();
        assert!(
            is_healthy(status) || is_busy || stalled.is_some(),
            "{}",
            told()
        );
    }

    /// All is well again, and time passes: two due passes suffice.
    pub fn assert_recovers(&self) {
        let mut mended = self.clone();
        mended.step(Step::Inner(match self.inner {
            Inner::None => Inner::None,
            _ => Inner::Ready,
        }));
        if self.url == Url::Bad {
            mended.step(Step::Url(Url::One));
        }
        if self.secret == Secret::Missing {
            mended.step(Step::Secret(Secret::Other));
        }
        mended.step(Step::Suspend(false));
        for _ in 0..2 {
            mended.step(Step::Due);
            mended.step(Step::Pass {
                remote: Remote::Ok,
                jitter: 1.0,
                asked: false,
            });
        }
        let status = &mended.case.current;
        assert!(is_healthy(status), "{self:#?}\n→ {status:#?}");
        assert!(condition(status, STALLED).is_none());
        assert!(condition(status, RECONCILING).is_none());
        assert_eq!(mended.case.kstatus(), Status::Current);
        assert_eq!(status.consecutive_fetch_failures, None);
    }

    /// A change that no pass has seen yet: nobody takes the old status for the answer to it. (An object without
    /// any status is Current to kstatus, whatever we do.)
    pub fn assert_unseen_is_in_progress(&self) {
        let is_new = self.ghost.generation == 0;
        if !is_new && self.ghost.generation != self.case.generation {
            assert_ne!(self.case.kstatus(), Status::Current, "{self:#?}");
        }
    }
}

fn attempt_of(remote: Remote) -> Attempt {
    match remote {
        Remote::Ok => read(),
        Remote::Unchanged => Attempt::Read {
            found: None,
            catalogue: Ok(()),
        },
        Remote::Unwritten => unwritten(),
        Remote::Transient => transient("connection refused"),
        Remote::Busy(seconds) => Attempt::Failed(Failure::Transient {
            message: "connection refused".to_owned(),
            retry_after: Some(std::time::Duration::from_secs(seconds.into())),
        }),
        Remote::Terminal => terminal(Fault::SourceNotFound, "404"),
    }
}

/// What an attempt may come to.
pub const REMOTES: [Remote; 6] = [
    Remote::Ok,
    Remote::Unchanged,
    Remote::Unwritten,
    Remote::Transient,
    Remote::Busy(1200),
    Remote::Terminal,
];
