//! Every branch of the four conditions. A row names the branches that it goes through as the reference does
//! (seed systems A4): S1 to S6, R1 to R6, C1 to C7, Y1 to Y3. Ours besides: `S3-` a Stalled that is not kept,
//! `Rs` and `Cs` suspended, `Y0` Synced left alone.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use windlass_addons::evaluate::{Attempt, Credentials, Internal};
use windlass_addons::failure::Fault;
use windlass_status::kstatus::Status::{self, Current, Failed, InProgress};

use crate::support::{
    Case, PASSWORD, digest_of, line, minutes, not_ready, read, source, terminal, times, transient,
    unwritten,
};

/// Branches, what it is, the repository before, what is tried, conditions, times, kstatus.
type Row = (
    &'static str,
    &'static str,
    Case,
    Attempt,
    &'static str,
    &'static str,
    Status,
);

const BRANCHES: [&str; 28] = [
    "S1", "S2", "S3", "S3-", "S4", "S5", "S6", "R1", "R2", "R3", "R4", "R5", "Rs", "R6", "C1",
    "C2", "C3", "C4", "C4b", "C5", "Cs", "C6", "C7", "Y0", "Y1", "Y2", "Y3", "Y3u",
];

fn none() -> Attempt {
    Attempt::None
}

fn unchanged() -> Attempt {
    Attempt::Read {
        found: None,
        catalogue: Ok(()),
    }
}

fn secret_missing(case: &mut Case) {
    case.digest = None;
    case.credentials = Credentials::NotReady("Secret login is not there".to_owned());
}

fn bad_url(case: &mut Case) {
    let url = format!("https://somebody:{PASSWORD}@charts.example.com");
    let failure = source(&url, PASSWORD).unwrap_err();
    case.generation += 1;
    case.digest = None;
    case.credentials = Credentials::None;
    case.config = Some((failure.fault().unwrap(), failure.to_string()));
}

fn bad_scheme(case: &mut Case) {
    bad_url(case);
    let failure = source("ftp://charts.example.com", PASSWORD).unwrap_err();
    case.config = Some((failure.fault().unwrap(), failure.to_string()));
}

fn other_url(case: &mut Case) {
    case.generation += 1;
    case.digest = Some(digest_of("https://other.example.com", PASSWORD));
}

fn other_password(case: &mut Case) {
    case.digest = Some(digest_of("https://charts.example.com", "another"));
}

fn suspend(case: &mut Case) {
    case.generation += 1;
    case.suspended = true;
}

fn refused() -> Attempt {
    transient("connection refused")
}

fn not_found() -> Attempt {
    terminal(Fault::SourceNotFound, "404 of charts.example.com")
}

fn failed(times: u8) -> Case {
    (0..times).fold(Case::healthy(), |case, _| case.after(refused()))
}

#[rustfmt::skip]
fn stalled_rows() -> Vec<Row> {
    let healthy = Case::healthy;
    let internal = |case: Case, stalled| case.with(|case| case.internal = not_ready(stalled));
    vec![
        ("S1 R3 C1 Y0", "a url that holds a password, new", Case::new().with(bad_url), none(),
         "Ready=False/InvalidRepositoryURL Stalled=InvalidRepositoryURL", "n=0 next=now look=event", Failed),
        ("S1 R3 C1 Y0", "the same, of one that was read", healthy().with(bad_url), none(),
         "Ready=False/InvalidRepositoryURL Synced=True/Success Stalled=InvalidRepositoryURL",
         "n=0 next=now look=event", Failed),
        ("S1 R3 C1 Y0", "a scheme that is not known", healthy().with(bad_scheme), none(),
         "Ready=False/UnsupportedRepositoryType Synced=True/Success Stalled=UnsupportedRepositoryType",
         "n=0 next=now look=event", Failed),
        ("S1 R3 C1 Y0", "a bad url outranks a stalled internal repository",
         internal(healthy().with(bad_url), true).with(|case| case.internal = Internal::Ready), none(),
         "Ready=False/InvalidRepositoryURL Synced=True/Success Stalled=InvalidRepositoryURL",
         "n=0 next=now look=event", Failed),
        ("S1 R1 C1 Y0", "a bad url, and the Secret is missing", healthy().with(bad_url).with(secret_missing),
         none(), "Ready=False/AuxiliaryResourcesFailed Synced=True/Success Stalled=InvalidRepositoryURL",
         "n=0 next=now look=event", Failed),
        ("S1 R2 C1 Y0", "a bad url, and the internal repository has given up",
         internal(healthy().with(bad_url), true), none(),
         "Ready=False/FetchFailed Synced=True/Success Stalled=InvalidRepositoryURL",
         "n=0 next=now look=event", Failed),
        ("S2 R2 C1 Y0", "the internal repository has given up", internal(healthy(), true), none(),
         "Ready=False/FetchFailed Synced=True/Success Stalled=FetchFailed", "n=0 next=4m look=4m", Failed),
        ("S2 R2 C1 Y3", "it has given up, and we could read", internal(healthy(), true), read(),
         "Ready=False/FetchFailed Synced=True/Success Stalled=FetchFailed", "n=0 next=5m look=5m", Failed),
        ("S2 R2 C1 Y1", "it has given up, and we could not read either", internal(healthy(), true), not_found(),
         "Ready=False/FetchFailed Synced=False/SyncFailed Stalled=FetchFailed", "n=5 next=1h look=1h", Failed),
        ("S2 R1 C1 Y0", "it has given up, and the Secret is missing",
         internal(healthy().with(secret_missing), true), none(),
         "Ready=False/AuxiliaryResourcesFailed Synced=True/Success Stalled=FetchFailed",
         "n=0 next=4m look=event", Failed),
        ("S3 R3 C1 Y0", "nothing new since the 404", healthy().after(not_found()), none(),
         "Ready=False/SourceNotFound Synced=False/SyncFailed Stalled=SourceNotFound",
         "n=5 next=59m look=59m", Failed),
        ("S3 R3 C1 Y0", "nothing new since the fifth failure", failed(5), none(),
         "Ready=False/RetriesExceeded Synced=False/SyncFailed Stalled=RetriesExceeded",
         "n=5 next=59m look=59m", Failed),
        ("S3 R1 C1 Y0", "the Secret is missing after a 401",
         healthy().after(terminal(Fault::AuthenticationFailed, "401")).with(secret_missing), none(),
         "Ready=False/AuxiliaryResourcesFailed Synced=False/SyncFailed Stalled=AuthenticationFailed",
         "n=5 next=59m look=event", Failed),
        ("S3 R2 C1 Y0", "the internal repository is not ready after a 404",
         internal(healthy().after(not_found()), false), none(),
         "Ready=False/FetchFailed Synced=False/SyncFailed Stalled=SourceNotFound",
         "n=5 next=59m look=59m", Failed),
        ("S3 R3 C1 Y0", "the internal repository is in order again, and nothing was tried since",
         internal(healthy(), true).after(none()).with(|case| case.internal = Internal::Ready), none(),
         "Ready=False/FetchFailed Synced=True/Success Stalled=FetchFailed", "n=0 next=3m look=3m", Failed),
        ("S3- R1 C3 Y0", "stalled by another spec, and the Secret is missing",
         healthy().after(not_found()).with(other_url).with(secret_missing), none(),
         "Ready=False/AuxiliaryResourcesFailed Synced=False/SyncFailed Reconciling=ProgressingWithRetry",
         "n=0 next=now look=event", InProgress),
        ("S3- Rs Cs Y0", "stalled, then suspended", failed(5).with(suspend), none(),
         "Ready=True/Suspended Synced=False/SyncFailed Reconciling=Suspended",
         "n=0 next=now look=event", InProgress),
        ("S3- Rs C7 Y0", "the internal repository is in order again while suspended",
         internal(healthy(), true).with(suspend).after(none()).with(|case| case.internal = Internal::Ready),
         none(), "Ready=True/Suspended Synced=True/Success", "n=0 next=now look=event", Current),
        ("S3- R6 C4b Y0", "stalled by another password, and not tried yet",
         Case::new().after(not_found()).with(other_password), none(),
         "Ready=Unknown/AwaitingInitialSync Synced=False/SyncFailed Reconciling=ProgressingWithRetry",
         "n=0 next=now look=0s", InProgress),
        ("S3- R6 C6 Y0", "the url was bad, and is another one",
         healthy().with(bad_url).after(none()).with(|case| {
             case.config = None;
             other_url(case);
         }), none(),
         "Ready=Unknown/AwaitingInitialSync Synced=True/Success Reconciling=AwaitingInitialSync",
         "n=0 next=now look=0s", InProgress),
    ]
}

#[rustfmt::skip]
fn attempt_rows() -> Vec<Row> {
    let healthy = Case::healthy;
    let mut rows = vec![
        ("S5 R3 C1 Y1", "the fifth failure in a row", failed(4), refused(),
         "Ready=False/RetriesExceeded Synced=False/SyncFailed Stalled=RetriesExceeded",
         "n=5 next=1h look=1h", Failed),
        ("S5 R3 C1 Y1", "the sixth", failed(5), refused(),
         "Ready=False/RetriesExceeded Synced=False/SyncFailed Stalled=RetriesExceeded",
         "n=5 next=1h look=1h", Failed),
        ("S5 R3 C1 Y1", "an outage after a 404", healthy().after(not_found()), refused(),
         "Ready=False/RetriesExceeded Synced=False/SyncFailed Stalled=RetriesExceeded",
         "n=5 next=1h look=1h", Failed),
        ("S6 R4 C7 Y3", "the first reading", Case::new(), read(),
         "Ready=True/Success Synced=True/Success", "n=0 next=5m look=5m", Current),
        ("S6 R4 C7 Y3", "the first reading, with jitter", Case::new().with(|case| case.jitter = 1.0), read(),
         "Ready=True/Success Synced=True/Success", "n=0 next=5m30s look=5m30s", Current),
        ("S6 R4 C7 Y3", "without credentials", Case::new().with(|case| case.credentials = Credentials::None),
         read(), "Ready=True/Success Synced=True/Success", "n=0 next=5m look=5m", Current),
        ("S6 R4 C7 Y3", "with an internal repository in order",
         Case::new().with(|case| case.internal = Internal::Ready), read(),
         "Ready=True/Success Synced=True/Success", "n=0 next=5m look=5m", Current),
        ("S6 R4 C7 Y3", "it recovers from a 404", healthy().after(not_found()), read(),
         "Ready=True/Success Synced=True/Success", "n=0 next=5m look=5m", Current),
        ("S6 R4 C7 Y3", "it recovers from five failures", failed(5), read(),
         "Ready=True/Success Synced=True/Success", "n=0 next=5m look=5m", Current),
        ("S6 R4 C7 Y3", "it recovers from AddonCharts that could not be written", healthy().after(unwritten()),
         read(), "Ready=True/Success Synced=True/Success", "n=0 next=5m look=5m", Current),
        ("S6 R4 C7 Y3", "another url", healthy().after(not_found()).with(other_url), read(),
         "Ready=True/Success Synced=True/Success", "n=0 next=5m look=5m", Current),
        ("S6 R4 C7 Y3u", "nothing has changed there", healthy(), unchanged(),
         "Ready=True/Success Synced=True/Success", "n=0 next=5m look=5m", Current),
        ("S6 R4 C4 Y2", "AddonCharts that could not be written", healthy(), unwritten(),
         "Ready=True/Success Synced=False/CatalogUpdateFailed Reconciling=ProgressingWithRetry",
         "n=0 next=30s look=30s", InProgress),
        ("S6 R4 C4 Y2", "the same at the first reading", Case::new(), unwritten(),
         "Ready=True/Success Synced=False/CatalogUpdateFailed Reconciling=ProgressingWithRetry",
         "n=0 next=30s look=30s", InProgress),
        ("S6 R4 C4 Y2", "the same after five failures", failed(5), unwritten(),
         "Ready=True/Success Synced=False/CatalogUpdateFailed Reconciling=ProgressingWithRetry",
         "n=0 next=30s look=30s", InProgress),
        ("S6 R5 C5 Y1", "the first failure", healthy(), refused(),
         "Ready=True/Success Synced=False/SyncFailed Reconciling=ProgressingWithRetry",
         "n=1 next=5m look=5m", InProgress),
        ("S6 R5 C5 Y1", "the fourth", failed(3), refused(),
         "Ready=True/Success Synced=False/SyncFailed Reconciling=ProgressingWithRetry",
         "n=4 next=40m look=40m", InProgress),
        ("S6 R5 C5 Y1", "a failure after AddonCharts that could not be written", healthy().after(unwritten()),
         refused(), "Ready=True/Success Synced=False/SyncFailed Reconciling=ProgressingWithRetry",
         "n=1 next=5m look=5m", InProgress),
        ("S6 R6 C5 Y1", "a failure, never read", Case::new(), refused(),
         "Ready=Unknown/AwaitingInitialSync Synced=False/SyncFailed Reconciling=ProgressingWithRetry",
         "n=1 next=5m look=5m", InProgress),
        ("S6 R6 C5 Y1", "a failure of another url: what was read says nothing about it",
         healthy().with(other_url), refused(),
         "Ready=Unknown/AwaitingInitialSync Synced=False/SyncFailed Reconciling=ProgressingWithRetry",
         "n=1 next=5m look=5m", InProgress),
        ("S6 R6 C5 Y1", "a failure with another password: nor about that", failed(4).with(other_password),
         refused(), "Ready=Unknown/AwaitingInitialSync Synced=False/SyncFailed Reconciling=ProgressingWithRetry",
         "n=1 next=5m look=5m", InProgress),
        ("S6 R5 C5 Y1", "another interval after four failures: the count begins anew",
         failed(4).with(|case| case.generation += 1), refused(),
         "Ready=True/Success Synced=False/SyncFailed Reconciling=ProgressingWithRetry",
         "n=1 next=5m look=5m", InProgress),
        ("S6 R2 C2 Y1", "a failure, and the internal repository is not ready",
         healthy().with(|case| case.internal = not_ready(false)), refused(),
         "Ready=False/FetchFailed Synced=False/SyncFailed Reconciling=Reconciling",
         "n=1 next=5m look=5m", InProgress),
        ("S6 R2 C2 Y2", "AddonCharts could not be written, and it is not ready",
         healthy().with(|case| case.internal = not_ready(false)), unwritten(),
         "Ready=False/FetchFailed Synced=False/CatalogUpdateFailed Reconciling=Reconciling",
         "n=0 next=30s look=30s", InProgress),
    ];
    let faults = [
        (Fault::AuthenticationFailed, "Ready=False/AuthenticationFailed Synced=False/SyncFailed Stalled=AuthenticationFailed"),
        (Fault::SourceNotFound, "Ready=False/SourceNotFound Synced=False/SyncFailed Stalled=SourceNotFound"),
        (Fault::SourceRejectedRequest, "Ready=False/SourceRejectedRequest Synced=False/SyncFailed Stalled=SourceRejectedRequest"),
        (Fault::InvalidRepositoryUrl, "Ready=False/InvalidRepositoryURL Synced=False/SyncFailed Stalled=InvalidRepositoryURL"),
        (Fault::UnsupportedRepositoryType, "Ready=False/UnsupportedRepositoryType Synced=False/SyncFailed Stalled=UnsupportedRepositoryType"),
        (Fault::InvalidCredentials, "Ready=False/InvalidCredentials Synced=False/SyncFailed Stalled=InvalidCredentials"),
        (Fault::IndexTooLarge, "Ready=False/IndexTooLarge Synced=False/SyncFailed Stalled=IndexTooLarge"),
    ];
    for (fault, line) in faults {
        for case in [Case::new(), healthy(), failed(2)] {
            rows.push(("S4 R3 C1 Y1", fault.reason(), case, terminal(fault, "what happened"), line,
                "n=5 next=1h look=1h", Failed));
        }
    }
    rows
}

#[rustfmt::skip]
fn idle_rows() -> Vec<Row> {
    let healthy = Case::healthy;
    let again = |attempt| healthy().after(attempt);
    vec![
        ("S6 R6 C6 Y0", "never read", Case::new(), none(),
         "Ready=Unknown/AwaitingInitialSync Reconciling=AwaitingInitialSync", "n=0 next=now look=0s", InProgress),
        ("S6 R5 C7 Y0", "nothing new", healthy(), none(),
         "Ready=True/Success Synced=True/Success", "n=0 next=4m look=4m", Current),
        ("S6 R5 C7 Y0", "overdue", healthy().with(|case| case.now += minutes(60)), none(),
         "Ready=True/Success Synced=True/Success", "n=0 next=0s look=1s", Current),
        ("S6 R5 C4b Y0", "nothing new since AddonCharts could not be written", again(unwritten()), none(),
         "Ready=True/Success Synced=False/CatalogUpdateFailed Reconciling=ProgressingWithRetry",
         "n=0 next=0s look=1s", InProgress),
        ("S6 R5 C5 Y0", "nothing new since a failure", again(refused()), none(),
         "Ready=True/Success Synced=False/SyncFailed Reconciling=ProgressingWithRetry",
         "n=1 next=4m look=4m", InProgress),
        ("S6 R6 C5 Y0", "the same, never read", Case::new().after(refused()), none(),
         "Ready=Unknown/AwaitingInitialSync Synced=False/SyncFailed Reconciling=ProgressingWithRetry",
         "n=1 next=4m look=4m", InProgress),
        ("S6 R1 C3 Y0", "the Secret is missing, new", Case::new().with(secret_missing), none(),
         "Ready=False/AuxiliaryResourcesFailed Reconciling=ProgressingWithRetry",
         "n=0 next=now look=event", InProgress),
        ("S6 R1 C3 Y0", "the Secret is missing, of one that was read", healthy().with(secret_missing), none(),
         "Ready=False/AuxiliaryResourcesFailed Synced=True/Success Reconciling=ProgressingWithRetry",
         "n=0 next=4m look=event", InProgress),
        ("S6 R1 C3 Y0", "the same, and the spec is another", healthy().with(other_url).with(secret_missing),
         none(), "Ready=False/AuxiliaryResourcesFailed Synced=True/Success Reconciling=ProgressingWithRetry",
         "n=0 next=now look=event", InProgress),
        ("S6 R1 C2 Y0", "the Secret is missing, and the internal repository is not ready",
         healthy().with(secret_missing).with(|case| case.internal = not_ready(false)), none(),
         "Ready=False/AuxiliaryResourcesFailed Synced=True/Success Reconciling=Reconciling",
         "n=0 next=4m look=event", InProgress),
        ("S6 R5 C7 Y0", "the Secret is back as it was",
         healthy().with(secret_missing).after(none()).with(|case| {
             case.credentials = Credentials::Ready;
             case.digest = healthy().digest;
         }), none(), "Ready=True/Success Synced=True/Success", "n=0 next=3m look=3m", Current),
        ("S6 R5 C5 Y0", "the same in an outage: what was read before still holds",
         again(refused()).with(secret_missing).after(none()).with(|case| {
             case.credentials = Credentials::Ready;
             case.digest = healthy().digest;
         }), none(), "Ready=True/Success Synced=False/SyncFailed Reconciling=ProgressingWithRetry",
         "n=1 next=3m look=3m", InProgress),
        ("S6 R2 C2 Y0", "the internal repository is not ready",
         healthy().with(|case| case.internal = not_ready(false)), none(),
         "Ready=False/FetchFailed Synced=True/Success Reconciling=Reconciling",
         "n=0 next=4m look=4m", InProgress),
        ("S6 R5 C7 Y0", "it was not ready, and is",
         healthy().with(|case| case.internal = not_ready(false)).after(none())
             .with(|case| case.internal = Internal::Ready), none(),
         "Ready=True/Success Synced=True/Success", "n=0 next=3m look=3m", Current),
        ("S6 Rs C7 Y0", "suspended while healthy", healthy().with(suspend), none(),
         "Ready=True/Suspended Synced=True/Success", "n=0 next=now look=event", Current),
        ("S6 Rs Cs Y0", "suspended in an outage", failed(2).with(suspend), none(),
         "Ready=True/Suspended Synced=False/SyncFailed Reconciling=Suspended",
         "n=0 next=now look=event", InProgress),
        ("S6 Rs Cs Y0", "suspended after AddonCharts could not be written", again(unwritten()).with(suspend),
         none(), "Ready=True/Suspended Synced=False/CatalogUpdateFailed Reconciling=Suspended",
         "n=0 next=now look=event", InProgress),
        ("S6 R6 Cs Y0", "suspended from the start", Case::new().with(suspend), none(),
         "Ready=Unknown/AwaitingInitialSync Reconciling=Suspended", "n=0 next=now look=event", InProgress),
        ("S6 R6 Cs Y0", "another url, and suspended", healthy().with(other_url).with(suspend), none(),
         "Ready=Unknown/AwaitingInitialSync Synced=True/Success Reconciling=Suspended",
         "n=0 next=now look=event", InProgress),
        ("S6 R6 Cs Y0", "suspended, and then another password",
         healthy().with(suspend).after(none()).with(other_password), none(),
         "Ready=Unknown/AwaitingInitialSync Synced=True/Success Reconciling=Suspended",
         "n=0 next=now look=event", InProgress),
        ("S6 R1 C3 Y0", "suspended, and the Secret is missing", healthy().with(suspend).with(secret_missing),
         none(), "Ready=False/AuxiliaryResourcesFailed Synced=True/Success Reconciling=ProgressingWithRetry",
         "n=0 next=now look=event", InProgress),
        ("S6 R5 C7 Y0", "resumed, and not tried yet",
         healthy().with(suspend).after(none()).with(|case| {
             case.generation += 1;
             case.suspended = false;
         }), none(), "Ready=True/Success Synced=True/Success", "n=0 next=now look=0s", Current),
    ]
}

fn rows() -> Vec<Row> {
    [stalled_rows(), attempt_rows(), idle_rows()].concat()
}

#[test]
fn every_row() {
    for (branches, name, mut case, attempt, expected, expected_times, kstatus) in rows() {
        let tried = attempt != Attempt::None;
        let decision = case.pass(attempt);
        let told = format!("{branches}: {name}: {:#?}", case.current);
        assert_eq!(line(&case.current), expected, "{told}");
        assert_eq!(times(case.now, &decision), expected_times, "{told}");
        assert_eq!(case.kstatus(), kstatus, "{told}");
        let again = case.pass(Attempt::None);
        assert_eq!(
            again.status, decision.status,
            "it says another thing: {told}"
        );
        if tried {
            assert_eq!(case.current.last_handled_sync_request, case.request);
        }
    }
}

#[test]
fn every_branch_has_rows() {
    let rows = rows();
    let mut counts: BTreeMap<&str, usize> = BRANCHES.iter().map(|branch| (*branch, 0)).collect();
    for (branches, name, ..) in &rows {
        assert_eq!(branches.split(' ').count(), 4, "{name}");
        for branch in branches.split(' ') {
            *counts.get_mut(branch).unwrap() += 1;
        }
    }
    println!("{} rows; per branch: {counts:?}", rows.len());
    assert!(counts.values().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn times_digests_and_counts_of_each_outcome() {
    let case = Case::healthy();
    let was = case.current.clone();
    let own = case.digest.unwrap().to_string();
    assert_eq!(was.attempted_spec_digest.as_ref(), Some(&own));
    assert_eq!(was.fetched_spec_digest.as_ref(), Some(&own));
    assert_eq!(was.chart_count, Some(3));
    // attempt, was it fetched, was it synced
    let rows = [
        (none(), false, false),
        (refused(), false, false),
        (not_found(), false, false),
        (unwritten(), true, false),
        (unchanged(), true, true),
        (read(), true, true),
    ];
    for (attempt, fetched, synced) in rows {
        let told = format!("{attempt:?}");
        let mut case = case.clone();
        let now = windlass_status::conditions::time(case.now);
        case.pass(attempt);
        let is_now = |time: &Option<_>| *time == Some(now.clone());
        assert_eq!(
            is_now(&case.current.last_successful_fetch_time),
            fetched,
            "{told}"
        );
        assert_eq!(
            is_now(&case.current.last_successful_sync_time),
            synced,
            "{told}"
        );
        assert_eq!(case.current.chart_count, Some(3), "{told}");
    }
    let mut case = case.with(other_password);
    case.pass(refused());
    assert_ne!(case.current.attempted_spec_digest, Some(own.clone()));
    assert_eq!(case.current.fetched_spec_digest, Some(own));
}

#[test]
fn a_request_is_answered_once_by_the_attempt_that_follows_it() {
    let mut case = Case::healthy();
    assert!(!case.should_attempt());
    case.request = Some("10:00".to_owned());
    assert!(case.should_attempt());
    case.pass(Attempt::None);
    assert!(
        case.should_attempt(),
        "it is not lost while nothing is tried"
    );
    case.pass(refused());
    assert!(!case.should_attempt(), "a failed attempt answers it too");
    case.request = Some("10:01".to_owned());
    assert!(case.should_attempt());
    suspend(&mut case);
    assert!(!case.should_attempt(), "suspended means no attempt");
    case.pass(Attempt::None);
    case.suspended = false;
    assert!(case.should_attempt());
    case.pass(read());
    case.request = None;
    assert!(!case.should_attempt(), "taking it away asks for nothing");
}

#[test]
fn nothing_is_tried_that_cant_work() {
    type Row = (&'static str, fn(&mut Case), bool);
    let rows: [Row; 9] = [
        ("new", |_| {}, true),
        ("bad url", bad_url, false),
        ("no Secret", secret_missing, false),
        ("suspended", suspend, false),
        ("no digest", |case| case.digest = None, false),
        (
            "internal stalled",
            |case| case.internal = not_ready(true),
            true,
        ),
        ("other url", other_url, true),
        ("other password", other_password, true),
        (
            "requested",
            |case| case.request = Some("now".to_owned()),
            true,
        ),
    ];
    for (name, change, expected) in rows {
        let mut case = Case::new().with(change);
        assert_eq!(case.should_attempt(), expected, "{name}");
        let looks = case.pass(Attempt::None).requeue_after.is_some();
        assert_eq!(looks, expected, "{name}");
    }
}

#[test]
fn the_last_cause_is_what_people_read() {
    let mut case = Case::new();
    for cause in ["refused", "reset", "timed out", "500", "the last cause"] {
        case.pass(transient(cause));
        let list = case.current.conditions.as_deref().unwrap();
        for type_ in ["Synced", "Reconciling", "Stalled"] {
            let found = windlass_status::conditions::find(list, type_);
            assert!(
                found.is_none_or(|found| found.message.contains(cause)),
                "{list:?}"
            );
        }
    }
    let mut case = Case::healthy().with(suspend).with(secret_missing);
    case.pass(Attempt::None);
    let ready = case.current.conditions.as_deref().unwrap()[0]
        .message
        .clone();
    assert!(
        ready.contains("Secret login") && ready.contains("spec.suspend"),
        "{ready}"
    );
}

#[test]
fn a_next_time_that_no_schedule_gives_does_not_stay() {
    let mut case = Case::healthy().with(suspend);
    case.pass(Attempt::None);
    let mut case = Case::healthy().with(secret_missing);
    case.now -= SignedDuration::from_hours(3);
    case.pass(Attempt::None);
    assert_eq!(case.current.next_sync_time, None);
}

#[test]
fn what_another_hand_wrote_is_no_word_of_ours() {
    let mut case = Case::healthy()
        .after(not_found())
        .with(|case| case.generation += 1);
    case.current.observed_generation = Some(case.generation);
    case.pass(Attempt::None);
    assert!(
        !line(&case.current).contains("Stalled"),
        "of another generation, whatever the status is said to be about"
    );
    let mut case = Case::healthy();
    case.current.attempted_spec_digest = None;
    assert!(case.should_attempt(), "nobody knows what was tried");
    assert_eq!(case.pass(Attempt::None).status.next_sync_time, None);
    // What a new object has where the schema gives a default.
    let mut case = Case::new();
    case.current.observed_generation = Some(-1);
    assert!(case.should_attempt());
    assert_eq!(case.kstatus(), InProgress);
    case.pass(read());
    assert_eq!(case.kstatus(), Current);
}
