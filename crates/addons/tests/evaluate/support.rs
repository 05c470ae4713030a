//! A repository that is evaluated pass by pass, and what holds after each of them.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass_addons::Source;
use windlass_addons::evaluate::{
    Attempt, Credentials, Decision, Found, Inputs, Internal, READY, RECONCILING, STALLED, SYNCED,
    evaluate,
};
use windlass_addons::failure::{Failure, Fault};
use windlass_addons::schedule;
use windlass_api::Condition;
use windlass_api::addon::{RepositorySpec, RepositoryStatus};
use windlass_status::kstatus::{self, Status};
use windlass_status::{Digest, conditions, duration};

/// Stands in the Secrets, and must never be seen.
pub const PASSWORD: &str = "hunter2-of-the-tests";

pub fn at(text: &str) -> Timestamp {
    format!("2026-11-30T{text}Z").parse().unwrap()
}

pub fn minutes(minutes: i64) -> SignedDuration {
    SignedDuration::from_mins(minutes)
}

/// Digest of a repository that is read with a password, as the hub computes it.
pub fn digest_of(url: &str, password: &str) -> Digest {
    source(url, password).unwrap().digest
}

/// What a url and a Secret with a password come to.
pub fn source(url: &str, password: &str) -> Result<Source, Failure> {
    let spec = RepositorySpec {
        url: url.to_owned(),
        ..RepositorySpec::default()
    };
    let secret = [("username", "somebody"), ("password", password)]
        .map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
    Source::of(&spec, Some(&secret.into()), None)
}

pub fn transient(message: &str) -> Attempt {
    Attempt::Failed(Failure::transient(message))
}

pub fn terminal(fault: Fault, message: &str) -> Attempt {
    Attempt::Failed(Failure::terminal(fault, message))
}

pub fn read() -> Attempt {
    Attempt::Read {
        found: Some(Found {
            charts: 3,
            skipped: 0,
        }),
        catalogue: Ok(()),
    }
}

pub fn unwritten() -> Attempt {
    Attempt::Read {
        found: None,
        catalogue: Err("AddonChart nginx: forbidden".to_owned()),
    }
}

pub fn not_ready(stalled: bool) -> Internal {
    Internal::NotReady {
        reason: "FetchFailed".to_owned(),
        message: "its own words".to_owned(),
        stalled,
    }
}

/// All that a pass goes by, owned.
#[derive(Clone, Debug)]
pub struct Case {
    pub generation: i64,
    pub now: Timestamp,
    pub jitter: f64,
    pub interval: SignedDuration,
    pub current: RepositoryStatus,
    pub digest: Option<Digest>,
    pub config: Option<(Fault, String)>,
    pub credentials: Credentials,
    pub internal: Internal,
    pub suspended: bool,
    pub request: Option<String>,
}

impl Case {
    /// A new repository at noon.
    pub fn new() -> Self {
        Self {
            generation: 1,
            now: at("12:00:00"),
            jitter: 0.0,
            interval: minutes(5),
            current: RepositoryStatus::default(),
            digest: Some(digest_of("https://charts.example.com", PASSWORD)),
            config: None,
            credentials: Credentials::Ready,
            internal: Internal::None,
            suspended: false,
            request: None,
        }
    }

    /// One that was read at noon, a minute ago.
    pub fn healthy() -> Self {
        Self::new().after(read())
    }

    /// What it is a minute after such an attempt, if nothing else happens.
    pub fn after(mut self, attempt: Attempt) -> Self {
        self.pass(attempt);
        self.now += minutes(1);
        self
    }

    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub fn inputs(&self, attempt: Attempt) -> Inputs<'_> {
        Inputs {
            generation: self.generation,
            now: self.now,
            jitter: self.jitter,
            interval: self.interval,
            current: &self.current,
            spec_digest: self.digest,
            config: self.config.clone(),
            credentials: self.credentials.clone(),
            internal: self.internal.clone(),
            suspended: self.suspended,
            sync_request: self.request.as_deref(),
            attempt,
        }
    }

    pub fn should_attempt(&self) -> bool {
        self.inputs(Attempt::None).should_attempt()
    }

    /// A pass: its decision is checked, written, and read back.
    pub fn pass(&mut self, attempt: Attempt) -> Decision {
        let tried = attempt != Attempt::None;
        let decision = evaluate(&self.inputs(attempt));
        check(self, tried, &decision);
        self.current = stored(&decision.status);
        assert_eq!(
            self.current, decision.status,
            "what is written is what is read back"
        );
        decision
    }

    /// How the repository reads to others, with the status that it has now.
    pub fn kstatus(&self) -> Status {
        kstatus::compute(&self.object(), self.now).status
    }

    fn object(&self) -> Value {
        json!({
            "apiVersion": "addons.windlass.dev/v1alpha1",
            "kind": "AddonRepository",
            "metadata": {"name": "charts", "generation": self.generation},
            "spec": {"url": "https://charts.example.com"},
            "status": self.current,
        })
    }
}

/// A status as it comes back from the API server.
fn stored(status: &RepositoryStatus) -> RepositoryStatus {
    let text = serde_json::to_string(status).unwrap();
    assert!(!text.contains(PASSWORD), "a credential is shown: {text}");
    serde_json::from_str(&text).unwrap()
}

pub fn condition<'a>(status: &'a RepositoryStatus, type_: &str) -> Option<&'a Condition> {
    conditions::find(status.conditions.as_deref().unwrap_or_default(), type_)
}

pub fn is_true(status: &RepositoryStatus, type_: &str) -> bool {
    conditions::is_true(status.conditions.as_deref().unwrap_or_default(), type_)
}

/// Ready and Synced: the repository is read, and its AddonCharts are what it offers.
pub fn is_healthy(status: &RepositoryStatus) -> bool {
    is_true(status, READY) && is_true(status, SYNCED)
}

/// What holds of every decision.
fn check(case: &Case, tried: bool, decision: &Decision) {
    let status = &decision.status;
    let told = || format!("{case:?}\n→ {decision:?}");
    let list = status.conditions.as_deref().unwrap_or_default();
    let mut types: Vec<_> = list.iter().map(|found| found.type_.as_str()).collect();
    let all = types.len();
    types.sort_unstable();
    types.dedup();
    assert_eq!(types.len(), all, "a type stands twice: {}", told());
    let known = [READY, SYNCED, RECONCILING, STALLED];
    assert!(
        types.iter().all(|type_| known.contains(type_)),
        "{}",
        told()
    );
    assert!(types.contains(&READY), "{}", told());

    let abnormal = [RECONCILING, STALLED].map(|type_| condition(status, type_));
    let count = abnormal.iter().flatten().count();
    assert!(
        abnormal
            .iter()
            .flatten()
            .all(|found| found.status == "True"),
        "abnormal and not True is absent: {}",
        told()
    );
    assert_eq!(
        count,
        usize::from(!is_healthy(status)),
        "healthy has no abnormal condition, all else exactly one: {}",
        told()
    );
    let stalled = abnormal[1].is_some();
    assert!(!(is_true(status, READY) && stalled), "{}", told());

    assert_eq!(
        status.observed_generation,
        Some(case.generation),
        "{}",
        told()
    );
    for found in list {
        // Synced is about the last attempt, and says of which generation that was.
        let is_kept = found.type_ == SYNCED && !tried;
        assert!(
            is_kept || found.observed_generation == Some(case.generation),
            "{}",
            told()
        );
        let word = found.reason.chars().all(|c| c.is_ascii_alphanumeric());
        assert!(word && !found.reason.is_empty(), "no reason: {}", told());
        assert!(!found.message.is_empty(), "no message: {}", told());
    }
    let written = Case {
        current: status.clone(),
        ..case.clone()
    };
    let expected = match (is_healthy(status), stalled) {
        (true, _) => Status::Current,
        (false, true) => Status::Failed,
        (false, false) => Status::InProgress,
    };
    assert_eq!(written.kstatus(), expected, "{}", told());
    check_schedule(case, tried, decision, &told);
}

fn check_schedule(case: &Case, tried: bool, decision: &Decision, told: &dyn Fn() -> String) {
    let status = &decision.status;
    let failures = status.consecutive_fetch_failures;
    assert!(
        failures.is_none_or(|n| (1..=schedule::MAX_FAILURES).contains(&n)),
        "{}",
        told()
    );
    if let Some(next) = &status.next_sync_time {
        let longest = schedule::cap(case.interval).as_nanos() * 11 / 10;
        let left = next.0.duration_since(case.now).as_nanos();
        assert!(left <= longest, "further than 1.1 caps: {}", told());
        assert_eq!(next.0.subsec_nanosecond(), 0, "{}", told());
        assert!(
            !tried || left > 0 || case.now == Timestamp::MAX,
            "{}",
            told()
        );
    }
    assert!(
        status.next_sync_time.is_some() || !tried,
        "an attempt has a next one: {}",
        told()
    );
    if let Some(after) = decision.requeue_after {
        let next = status.next_sync_time.as_ref().map(|next| next.0);
        let left = next.map_or(SignedDuration::ZERO, |next| next.duration_since(case.now));
        let soonest = SignedDuration::from_secs(1);
        assert!(after == left.max(soonest) || next.is_none(), "{}", told());
    }
}

/// The conditions in a line, such as `Ready=True/Success Synced=False/SyncFailed Reconciling=…`.
pub fn line(status: &RepositoryStatus) -> String {
    let list = status.conditions.as_deref().unwrap_or_default();
    let shown = list.iter().map(|found| {
        if [RECONCILING, STALLED].contains(&found.type_.as_str()) {
            format!("{}={}", found.type_, found.reason)
        } else {
            format!("{}={}/{}", found.type_, found.status, found.reason)
        }
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Failures, how far off the next attempt is, and when it is looked at again, such as `n=1 next=5m look=5m`.
pub fn times(now: Timestamp, decision: &Decision) -> String {
    let status = &decision.status;
    let next = status.next_sync_time.as_ref();
    let next = next.map_or("now".to_owned(), |next| {
        duration::show(next.0.duration_since(now))
    });
    let look = decision.requeue_after.map(duration::show);
    format!(
        "n={} next={next} look={}",
        status.consecutive_fetch_failures.unwrap_or(0),
        look.as_deref().unwrap_or("event")
    )
}
