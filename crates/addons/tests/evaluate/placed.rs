//! What an Addon's status says: every outcome, and what holds of each.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;
use windlass_addons::placed::{Inputs, Outcome, Placed, Why, evaluate};
use windlass_api::addon::AddonStatus;
use windlass_status::conditions;
use windlass_status::kstatus::{self, Status};

use crate::support::at;

const LONGEST: i64 = 600;

struct Addon {
    generation: i64,
    now: Timestamp,
    jitter: f64,
    status: AddonStatus,
}

impl Addon {
    fn new() -> Self {
        Self {
            generation: 1,
            now: at("12:00:00"),
            jitter: 0.0,
            status: AddonStatus {
                version: Some("1.2.3".to_owned()),
                objects: Some(BTreeMap::from([("ConfigMap".to_owned(), 2)])),
                ..AddonStatus::default()
            },
        }
    }

    /// A pass: what it says is checked and written.
    fn pass(&mut self, outcome: &Outcome) -> Option<SignedDuration> {
        let (status, requeue) = evaluate(&Inputs {
            generation: self.generation,
            now: self.now,
            jitter: self.jitter,
            known: &self.status,
            outcome,
        });
        let was = self.status.clone();
        let text = serde_json::to_string(&status).unwrap();
        self.status = serde_json::from_str(&text).unwrap();
        assert_eq!(self.status, status, "what is written is what is read back");
        self.check(&was, outcome, requeue);
        requeue
    }

    fn check(&self, was: &AddonStatus, outcome: &Outcome, requeue: Option<SignedDuration>) {
        let status = &self.status;
        let told = || format!("{outcome:?} {status:#?}");
        let list = status.conditions.as_deref().unwrap();
        let is = |type_| conditions::is_true(list, type_);
        let has = |type_| conditions::find(list, type_).is_some();
        let abnormal = usize::from(has("Reconciling")) + usize::from(has("Stalled"));
        assert_eq!(abnormal, usize::from(!is("Ready")), "{}", told());
        assert!(!has("Reconciling") || is("Reconciling"), "{}", told());
        assert!(!has("Stalled") || is("Stalled"), "{}", told());
        assert!(!is("Ready") || is("Rendered"), "{}", told());
        assert_eq!(status.observed_generation, Some(self.generation));
        for found in list {
            assert_eq!(found.observed_generation, Some(self.generation));
            let word = found.reason.chars().all(|c| c.is_ascii_alphanumeric());
            assert!(word && !found.reason.is_empty() && !found.message.is_empty());
        }
        let expected = match (is("Ready"), has("Stalled")) {
            (true, _) => Status::Current,
            (false, true) => Status::Failed,
            (false, false) => Status::InProgress,
        };
        assert_eq!(self.kstatus(), expected, "{}", told());
        // What runs stays: nothing that is known of the last render is touched.
        let bare = |status: &AddonStatus| AddonStatus {
            conditions: None,
            observed_generation: None,
            consecutive_failures: None,
            next_attempt_time: None,
            ..status.clone()
        };
        assert_eq!(bare(status), bare(was));
        let is_tried_again = matches!(outcome, Outcome::Failed(..));
        assert_eq!(requeue.is_some(), is_tried_again, "{}", told());
        assert_eq!(status.next_attempt_time.is_some(), is_tried_again);
        assert_eq!(status.consecutive_failures.is_some(), is_tried_again);
        if let (Some(requeue), Some(next)) = (requeue, &status.next_attempt_time) {
            assert!((4..=LONGEST + LONGEST / 10).contains(&requeue.as_secs()));
            let late = (self.now + requeue).duration_since(next.0);
            assert!(late < SignedDuration::from_secs(1) && !late.is_negative());
            assert!(status.consecutive_failures > Some(0), "{}", told());
        }
    }

    fn kstatus(&self) -> Status {
        let object = json!({
            "apiVersion": "addons.windlass.dev/v1alpha1",
            "kind": "Addon",
            "metadata": {"name": "nginx", "generation": self.generation},
            "spec": {},
            "status": self.status,
        });
        kstatus::compute(&object, self.now).status
    }

    fn line(&self) -> String {
        let list = self.status.conditions.as_deref().unwrap();
        let shown = list
            .iter()
            .map(|found| format!("{}={}/{}", found.type_, found.status, found.reason));
        shown.collect::<Vec<_>>().join(" ")
    }
}

fn why(reason: &'static str) -> Why {
    Why::new(reason, format!("{reason}, for people"))
}

fn failed() -> Outcome {
    Outcome::Failed(why("FetchFailed"), None)
}

fn busy(seconds: u64) -> Outcome {
    Outcome::Failed(why("FetchFailed"), Some(Duration::from_secs(seconds)))
}

fn rendered(placed: fn(String) -> Placed) -> Outcome {
    Outcome::Rendered(placed("2 of 3 clusters".to_owned()))
}

#[test]
fn every_outcome() {
    let rows = [
        (
            Outcome::Refused(why("HelmNotFound")),
            "Ready=False/HelmNotFound Rendered=False/HelmNotFound Stalled=True/HelmNotFound",
        ),
        (
            Outcome::Waits(why("RepositoryNotFound")),
            "Ready=False/RepositoryNotFound Rendered=Unknown/RepositoryNotFound \
             Reconciling=True/RepositoryNotFound",
        ),
        (
            failed(),
            "Ready=False/FetchFailed Rendered=False/FetchFailed \
             Reconciling=True/ProgressingWithRetry",
        ),
        (
            rendered(Placed::Failed),
            "Ready=False/PlacementFailed Rendered=True/Rendered Stalled=True/PlacementFailed",
        ),
        (
            rendered(Placed::Failing),
            "Ready=False/PlacementFailing Rendered=True/Rendered \
             Reconciling=True/ProgressingWithRetry",
        ),
        (
            Outcome::Rendered(Placed::Refused(why("PlacementConflict"))),
            "Ready=False/PlacementConflict Rendered=True/Rendered Stalled=True/PlacementConflict",
        ),
        (
            Outcome::Rendered(Placed::Waits(why("PlacementNotFound"))),
            "Ready=False/PlacementNotFound Rendered=True/Rendered \
             Reconciling=True/PlacementNotFound",
        ),
        (
            rendered(Placed::Progressing),
            "Ready=False/PlacementProgressing Rendered=True/Rendered \
             Reconciling=True/PlacementProgressing",
        ),
        (
            rendered(Placed::Available),
            "Ready=True/Available Rendered=True/Rendered",
        ),
    ];
    // Whatever came before.
    for (before, _) in &rows {
        for (outcome, expected) in &rows {
            let mut addon = Addon::new();
            addon.pass(before);
            addon.now += SignedDuration::from_mins(1);
            addon.pass(outcome);
            assert_eq!(addon.line(), *expected, "after {before:?}");
            if !matches!(outcome, Outcome::Failed(..)) {
                let status = addon.status.clone();
                addon.now += SignedDuration::from_mins(1);
                addon.pass(outcome);
                assert_eq!(addon.status, status, "the same again is no write");
            }
        }
    }
}

#[test]
fn failures_are_tried_again_after_5_s_to_2_min() {
    let mut addon = Addon::new();
    let bases = [5, 10, 20, 40, 80, 120, 120, 120, 120, 120];
    for (before, base) in bases.into_iter().enumerate() {
        let requeue = addon.pass(&failed()).unwrap().as_secs();
        assert_eq!(requeue, base, "{before}");
        let counted = addon.status.consecutive_failures.unwrap();
        assert_eq!(usize::try_from(counted).unwrap(), before + 1);
    }
    addon.generation += 1;
    let requeue = addon.pass(&failed()).unwrap().as_secs();
    assert_eq!(requeue, 5, "another spec begins anew");
    addon.pass(&failed());
    addon.pass(&rendered(Placed::Available));
    assert_eq!(addon.status.consecutive_failures, None);
    assert_eq!(
        addon.pass(&failed()).unwrap().as_secs(),
        5,
        "so does a success"
    );
}

#[test]
fn a_server_that_asks_us_to_stay_away_gets_that_up_to_the_bound() {
    // asked, jitter, distance
    let rows = [
        (0, 0.0, 5),
        (60, 0.0, 60),
        (60, 1.0, 66),
        (60, -1.0, 66),
        (600, -1.0, 660),
        (86_400, 0.0, 600),
        (86_400, 1.0, 660),
        (u64::MAX, 0.0, 600),
        (0, f64::NAN, 5),
        (0, 1e9, 6),
        (60, f64::NAN, 60),
    ];
    for (asked, jitter, expected) in rows {
        let mut addon = Addon::new();
        addon.jitter = jitter;
        let requeue = addon.pass(&busy(asked)).unwrap().as_secs();
        assert_eq!(requeue, expected, "{asked} {jitter}");
    }
}

#[test]
fn the_message_tells_what_is_rendered() {
    let mut addon = Addon::new();
    let message = |addon: &mut Addon| {
        addon.pass(&rendered(Placed::Available));
        let list = addon.status.conditions.as_deref().unwrap();
        conditions::find(list, "Rendered").unwrap().message.clone()
    };
    let plain = message(&mut addon);
    assert!(
        plain.contains("1.2.3") && plain.contains("2 objects"),
        "{plain}"
    );
    addon.status.not_reproducible = Some(true);
    assert!(message(&mut addon).contains("random values"));
    addon.status.skipped_hooks = Some(vec!["Job/a (pre-install)".to_owned()]);
    assert!(message(&mut addon).contains("status.skippedHooks"));
    addon.status.available_version = Some("1.3.0".to_owned());
    assert!(message(&mut addon).contains("1.3.0"));
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        1 => Just(Outcome::Refused(why("ValuesInvalid"))),
        1 => Just(Outcome::Waits(why("ChartNotFound"))),
        3 => Just(failed()),
        1 => any::<u64>().prop_map(busy),
        1 => Just(rendered(Placed::Available)),
        1 => Just(rendered(Placed::Progressing)),
        1 => Just(rendered(Placed::Failed)),
    ]
}

proptest! {
    #[test]
    fn any_history(
        steps in proptest::collection::vec(
            (outcome(), -1.0..=1.0_f64, -2_000_000..2_000_000_i64, proptest::bool::weighted(0.1)), 1..40),
        failures in proptest::option::of(any::<i32>()),
    ) {
        let mut addon = Addon::new();
        addon.status.consecutive_failures = failures;
        addon.status.observed_generation = Some(1);
        for (outcome, jitter, millis, edited) in steps {
            addon.now += SignedDuration::from_millis(millis);
            addon.generation += i64::from(edited);
            addon.jitter = jitter;
            let requeue = addon.pass(&outcome);
            if let (Outcome::Failed(_, asked), Some(requeue)) = (&outcome, requeue) {
                let asked = asked.map_or(0, |asked| asked.as_secs().min(600));
                prop_assert!(i64::try_from(asked).unwrap() <= requeue.as_secs());
                prop_assert!((4..=660).contains(&requeue.as_secs()));
            }
        }
        addon.pass(&rendered(Placed::Available));
        prop_assert_eq!(addon.kstatus(), Status::Current);
    }
}
