use std::cell::RefCell;

use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_api::pull::ManifestCondition;
use windlass_cluster::clock;

use super::*;
use crate::pull::read::{Seen, read};
use crate::pull::work::WorkMeta;

const AT: &str = "2026-01-01T00:00:00Z";

/// An object of a Work: what was not reached for so many bytes of reasons, and what differs.
fn object(name: &str, message: &str, differences: &[(usize, usize)]) -> ManifestCondition {
    let details: Vec<Value> = differences
        .iter()
        .map(|(path, value)| {
            json!({"path": format!("/{}", "p".repeat(*path)), "valueInHub": "v".repeat(*value),
                   "valueInMember": "\u{1}".repeat(*value)})
        })
        .collect();
    serde_json::from_value(json!({
        "identifier": {"ordinal": 0, "version": "v1", "kind": "ConfigMap", "name": name, "namespace": "n"},
        "conditions": [{"type": "Applied", "status": "False", "reason": "ManifestApplyFailed",
                        "message": message, "lastTransitionTime": AT}],
        "driftDetails": {"observationTime": AT, "firstDriftedObservedTime": AT, "observedDrifts": details,
                         "observedInMemberClusterGeneration": 1},
        "diffDetails": {"observationTime": AT, "firstDiffedObservedTime": AT, "observedDiffs": details},
    }))
    .unwrap()
}

/// The status of a binding whose Work says that, with the last condition's message.
fn status(objects: Vec<ManifestCondition>, report_diff: bool) -> (BindingStatus, String) {
    let (type_, said) = if report_diff {
        ("DiffReported", "True")
    } else {
        ("Applied", "False")
    };
    let mut live: WorkMeta =
        serde_json::from_value(json!({"metadata": {"name": "w", "generation": 2},
        "status": {"conditions": [{"type": type_, "status": said, "reason": "R", "message": "m",
                                   "observedGeneration": 2, "lastTransitionTime": AT}]}}))
        .unwrap();
    live.status.as_mut().unwrap().manifest_conditions = Some(objects);
    let seen = [Seen {
        name: "w",
        live: Some(&live),
        is_current: true,
    }];
    let reading = read(&seen, report_diff);
    let message = reading.conditions.last().unwrap().3.clone();
    let status = BindingStatus {
        failed_placements: Some(reading.failed),
        drifted_placements: Some(reading.drifted),
        diffed_placements: Some(reading.diffed),
        ..BindingStatus::default()
    };
    (status, message)
}

fn objects(
    number: usize,
    message: usize,
    differences: &[(usize, usize)],
) -> Vec<ManifestCondition> {
    (0..number)
        .map(|n| object(&format!("m{n:03}"), &"é".repeat(message), differences))
        .collect()
}

/// How many objects of each list are left, and what is said of the others.
#[test]
fn messages_are_cut_then_values_then_objects() {
    let (kib, cm) = (1024, objects);
    for (about, given, left, cut, said) in [
        ("all is small", cm(100, 10, &[(5, 10)]), 100, false, None),
        ("messages", cm(100, 10 * kib, &[]), 100, true, None),
        ("values", cm(20, 10, &[(5, 100 * kib)]), 20, true, None),
        (
            "many differences of one object",
            cm(1, 10, &[(5, 10); 5000]),
            1,
            false,
            Some("9968 difference(s) left out"),
        ),
        (
            "all of it",
            cm(100, kib, &[(300, kib); 8]),
            74,
            true,
            Some("object(s) left out"),
        ),
    ] {
        let (status, message) = status(given, false);
        let failed = status.failed_placements.as_ref().unwrap();
        assert_eq!(failed.len(), left, "{about}");
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(text.contains('…'), cut, "{about}");
        match said {
            None => assert!(!message.contains("left out"), "{about}: {message}"),
            Some(said) => assert!(message.contains(said), "{about}: {message}"),
        }
    }
}

/// An agent looks again and again; that alone is no reason to write.
#[test]
fn what_is_cut_keeps_its_times() {
    let at = |time: &str| {
        let mut objects = objects(100, 10, &[(300, 2048); 20]);
        for object in &mut objects {
            let time: windlass_api::Time = serde_json::from_value(json!(time)).unwrap();
            object.drift_details.as_mut().unwrap().observation_time = time.clone();
            object.diff_details.as_mut().unwrap().observation_time = time;
        }
        objects
    };
    let (before, _) = status(at(AT), true);
    let (after, _) = status(at("2026-01-01T09:00:00Z"), true);
    let names = |status: &BindingStatus| {
        let list = status.diffed_placements.iter().flatten();
        list.map(|of| (of.identifier.name.clone(), of.observed_diffs.clone()))
            .collect::<Vec<_>>()
    };
    assert!(names(&before).len() < 100);
    assert_eq!(names(&before), names(&after));
}

/// What was written, if the server takes a status with lists or not, and one without or not.
#[tokio::test]
async fn a_status_that_is_refused_is_tried_once_without_lists() {
    let (mut full, _) = status(objects(1, 1, &[]), false);
    full.conditions = serde_json::from_value(json!([
        {"type": "Applied", "status": "False", "reason": "R", "message": "m", "lastTransitionTime": AT},
        {"type": "StatusReportedBack", "status": "True", "reason": "R", "message": "b",
         "lastTransitionTime": AT},
    ]))
    .unwrap();
    let refused = bare(full.clone(), "too large").unwrap();
    let messages = refused.conditions.as_ref().unwrap();
    let said = "m; the lists of objects are left out, with them it is refused: too large";
    assert_eq!(messages[0].message, said);
    assert_eq!(messages[1].message, "b");
    let none = BindingStatus::default();
    for (about, given, previous, with_lists, without, expected, tries) in [
        ("taken", &full, &none, true, true, Some(Some(&full)), 1),
        (
            "refused",
            &full,
            &none,
            false,
            true,
            Some(Some(&refused)),
            2,
        ),
        (
            "it is said already",
            &full,
            &refused,
            false,
            true,
            Some(None),
            1,
        ),
        ("also without", &full, &none, false, false, None, 2),
        ("there is no list", &none, &full, false, false, None, 1),
    ] {
        let sent = RefCell::new(Vec::new());
        let write = |status: BindingStatus| {
            let has_lists = status.failed_placements.is_some();
            let taken = if has_lists { with_lists } else { without };
            sent.borrow_mut().push(status.clone());
            async move {
                clock::sleep(std::time::Duration::ZERO).await;
                match taken {
                    true => Ok(status),
                    false => Err(ApiError::Rejected("too large".to_owned())),
                }
            }
        };
        let result = send(given.clone(), previous, write).await;
        match expected {
            Some(expected) => assert_eq!(result.unwrap().as_ref(), expected, "{about}"),
            None => assert!(matches!(result, Err(ApiError::Rejected(_))), "{about}"),
        }
        assert_eq!(sent.borrow().len(), tries, "{about}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Whatever Works say, the status can be stored, and no object is missing without a word.
    #[test]
    fn the_status_stays_below_the_bound(
        given in proptest::collection::vec(
            (0usize..20_000, 0usize..4, proptest::collection::vec((0usize..500, 0usize..3000), 0..30)),
            0..30,
        ),
        report_diff: bool,
    ) {
        let number = given.len();
        let objects = given
            .iter()
            .enumerate()
            .map(|(n, (bytes, wide, differences))| {
                object(&format!("m{n:03}"), &["m", "é", "\u{1}", "\""][*wide].repeat(*bytes), differences)
            })
            .collect();
        let (status, message) = status(objects, report_diff);
        let lists = BindingStatus { conditions: None, ..status.clone() };
        prop_assert!(size(&lists) <= BUDGET + 1024, "{}", size(&lists));
        let shown = if report_diff { &status.diffed_placements.map(|list| list.len()) }
            else { &status.failed_placements.map(|list| list.len()) };
        prop_assert!(shown.unwrap_or(0) == number || message.contains("left out"), "{message}");
    }
}
