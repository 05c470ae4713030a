use serde_json::json;

use super::*;

/// A Work at generation 2 with conditions (type, status, reason, generation).
fn work(
    name: &str,
    conditions: &[(&str, &str, &str, i64)],
    manifests: &serde_json::Value,
) -> WorkMeta {
    let condition = |(type_, status, reason, generation): &(&str, &str, &str, i64)| {
        json!({"type": type_, "status": status, "reason": reason, "message": "m",
               "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let conditions: Vec<_> = conditions.iter().map(condition).collect();
    serde_json::from_value(json!({"metadata": {"name": name, "generation": 2},
        "status": {"conditions": conditions, "manifestConditions": manifests}}))
    .unwrap()
}

fn object(name: &str, type_: &str, status: &str, reason: &str) -> serde_json::Value {
    json!({"identifier": {"ordinal": 0, "version": "v1", "kind": "ConfigMap", "name": name, "namespace": "n"},
           "conditions": [{"type": type_, "status": status, "reason": reason, "message": format!("why {name}"),
                           "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
}

fn read_all(works: &[WorkMeta], report_diff: bool) -> Reading {
    let names: Vec<String> = works
        .iter()
        .map(|work| work.metadata.name.clone().unwrap())
        .collect();
    let seen: Vec<_> = works
        .iter()
        .zip(&names)
        .map(|(live, name)| Seen {
            name,
            live: Some(live),
            is_current: true,
        })
        .collect();
    read(&seen, report_diff)
}

fn told(reading: &Reading) -> Vec<(Stage, Status, Reason)> {
    let short =
        |(stage, status, reason, _): &(Stage, Status, Reason, String)| (*stage, *status, *reason);
    reading.conditions.iter().map(short).collect()
}

const APPLIED: (&str, &str, &str, i64) = ("Applied", "True", "AllManifestsApplied", 2);
const AVAILABLE: (&str, &str, &str, i64) = ("Available", "True", "AllManifestsAvailable", 2);
const NOT_APPLIED: (&str, &str, &str, i64) = ("Applied", "False", "SomeManifestsAreNotApplied", 2);
const NOT_AVAILABLE: (&str, &str, &str, i64) =
    ("Available", "False", "SomeManifestsAreNotAvailable", 2);
const UNTRACKED: (&str, &str, &str, i64) = ("Available", "True", "WorkNotTrackable", 2);
const STALE: (&str, &str, &str, i64) = ("Applied", "True", "AllManifestsApplied", 1);
const STALE_FAILURE: (&str, &str, &str, i64) =
    ("Applied", "False", "SomeManifestsAreNotApplied", 1);

/// Conditions of one Work, in a row of the table.
type Row = &'static [(&'static str, &'static str, &'static str, i64)];

#[test]
fn what_works_say_is_what_the_binding_says() {
    use Status::{False, True};
    let applied = (Stage::Applied, True, Reason::AllWorkHaveBeenApplied);
    let failed = (Stage::Applied, False, Reason::NotAllWorkHaveBeenApplied);
    let waits = (Stage::Applied, False, Reason::ApplyInProgress);
    let not_available = (Stage::Available, False, Reason::NotAllWorkAreAvailable);
    let available = (Stage::Available, True, Reason::AllWorkAreAvailable);
    let untracked = (
        Stage::Available,
        True,
        Reason::NotAllWorkAreAvailabilityTrackable,
    );
    let rows: [(&[Row], Vec<_>, bool); 11] = [
        (&[&[APPLIED, AVAILABLE]], vec![applied, available], true),
        (
            &[&[APPLIED, AVAILABLE], &[APPLIED, UNTRACKED]],
            vec![applied, untracked],
            true,
        ),
        (
            &[&[APPLIED, UNTRACKED], &[APPLIED, NOT_AVAILABLE]],
            vec![applied, not_available],
            true,
        ),
        (
            &[&[APPLIED, AVAILABLE], &[APPLIED]],
            vec![applied, not_available],
            false,
        ),
        (&[&[APPLIED, AVAILABLE], &[NOT_APPLIED]], vec![failed], true),
        (&[&[APPLIED, AVAILABLE], &[]], vec![waits], false),
        (&[&[STALE, AVAILABLE]], vec![waits], false),
        (&[&[STALE_FAILURE]], vec![waits], false),
        // What is certain is said before all is.
        (&[&[NOT_APPLIED], &[]], vec![failed], false),
        (
            &[&[APPLIED, NOT_AVAILABLE], &[NOT_APPLIED]],
            vec![failed],
            true,
        ),
        (&[], vec![applied, available], true),
    ];
    for (works, expected, is_complete) in rows {
        let works: Vec<_> = works
            .iter()
            .enumerate()
            .map(|(n, conditions)| work(&format!("w{n}"), conditions, &json!(null)))
            .collect();
        let reading = read_all(&works, false);
        assert_eq!(told(&reading), expected, "{works:?}");
        assert_eq!(reading.is_complete, is_complete, "{works:?}");
    }
}

#[test]
fn differences_are_told_when_all_are_known() {
    const REPORTED: (&str, &str, &str, i64) =
        ("DiffReported", "True", "AllManifestsDiffReported", 2);
    const NOT: (&str, &str, &str, i64) = (
        "DiffReported",
        "False",
        "SomeManifestsHaveNotReportedDiff",
        2,
    );
    let mut differs = object("a", "DiffReported", "True", "FoundDiff");
    differs["diffDetails"] = json!({"observationTime": "2026-01-01T00:00:00Z",
        "firstDiffedObservedTime": "2026-01-01T00:00:00Z",
        "observedDiffs": [{"path": "/data/a", "valueInHub": "1"}]});
    let rows: [(Row, Status, Reason, usize); 3] = [
        (
            &[REPORTED],
            Status::True,
            Reason::AllWorkHaveDiffReported,
            1,
        ),
        (&[NOT], Status::False, Reason::NotAllWorkHaveDiffReported, 0),
        (&[], Status::False, Reason::DiffReportInProgress, 0),
    ];
    for (conditions, status, reason, differing) in rows {
        let reading = read_all(&[work("w", conditions, &json!([differs]))], true);
        assert_eq!(told(&reading), [(Stage::DiffReported, status, reason)]);
        assert_eq!(reading.diffed.len(), differing, "{conditions:?}");
    }
}

#[test]
fn an_agent_that_prepares_has_not_failed() {
    let prepares = object("a", "Applied", "False", "PreparingToProcess");
    let fails = object("b", "Applied", "False", "ManifestApplyFailed");
    for (manifests, reason) in [
        (json!([prepares]), Reason::ApplyInProgress),
        (json!([prepares, fails]), Reason::NotAllWorkHaveBeenApplied),
    ] {
        let reading = read_all(&[work("w", &[NOT_APPLIED], &manifests)], false);
        assert_eq!(told(&reading)[0].2, reason);
    }
}

#[test]
fn lists_are_sorted_over_all_works_and_then_cut() {
    let objects = |numbers: std::ops::Range<usize>| -> serde_json::Value {
        let object = |n| {
            object(
                &format!("m{n:03}"),
                "Applied",
                "False",
                "ManifestApplyFailed",
            )
        };
        numbers.rev().map(object).collect()
    };
    let works = [
        work("w0", &[NOT_APPLIED], &objects(80..150)),
        work("w1", &[NOT_APPLIED], &objects(0..80)),
    ];
    let reading = read_all(&works, false);
    assert_eq!(reading.failed.len(), LIMIT);
    assert_eq!(reading.failed[0].identifier.name, "m000");
    assert_eq!(reading.failed[99].identifier.name, "m099");
    assert_eq!(
        reading.conditions[0].3,
        "150 object(s) are not applied; the first is ConfigMap n/m000: why m000"
    );
}

#[test]
fn objects_of_an_envelope_name_it() {
    let mut live = work(
        "w",
        &[NOT_APPLIED],
        &json!([object("a", "Applied", "False", "X")]),
    );
    for (key, value) in [
        (
            windlass_api::labels::ENVELOPE_KIND,
            "ClusterResourceEnvelope",
        ),
        (windlass_api::labels::ENVELOPE_NAME, "e"),
    ] {
        live.metadata
            .labels
            .get_or_insert_default()
            .insert(key.into(), value.into());
    }
    let reading = read_all(&[live], false);
    let envelope = reading.failed[0].identifier.envelope.clone().unwrap();
    assert_eq!((envelope.name.as_str(), envelope.namespace), ("e", None));
}

#[test]
fn a_report_about_something_else_is_none() {
    let live = work("w", &[APPLIED, AVAILABLE], &json!(null));
    for (live, is_current) in [(Some(&live), false), (None, true)] {
        let seen = [Seen {
            name: "w",
            live,
            is_current,
        }];
        let reading = read(&seen, false);
        assert_eq!(told(&reading)[0].2, Reason::ApplyInProgress);
        assert_eq!(
            reading.conditions[0].3,
            "1 of 1 Work(s) are not reported on by the agent yet; the first is w"
        );
    }
}

/// One that was seen at 1 o'clock and is seen again at 2; what is then written, as the hour.
#[test]
fn what_has_not_changed_keeps_the_time_at_which_it_was_seen() {
    let object = |name: &str, hour: u8, first: u8, generation: i64, value: &str| {
        let mut object = object(name, "Applied", "True", "Applied");
        let at = |hour: u8| format!("2026-01-01T0{hour}:00:00Z");
        let difference = json!([{"path": "/data/a", "valueInMember": value}]);
        object["driftDetails"] = json!({"observationTime": at(hour), "firstDriftedObservedTime": at(first),
            "observedInMemberClusterGeneration": generation, "observedDrifts": difference});
        object["diffDetails"] = json!({"observationTime": at(hour), "firstDiffedObservedTime": at(first),
            "observedInMemberClusterGeneration": generation, "observedDiffs": difference});
        object
    };
    let reported = |object: serde_json::Value, report_diff: bool| {
        let type_ = if report_diff {
            "DiffReported"
        } else {
            "Applied"
        };
        read_all(
            &[work("w", &[(type_, "True", "X", 2)], &json!([object]))],
            report_diff,
        )
    };
    for (about, again, expected) in [
        ("nothing", object("a", 2, 0, 5, "x"), 1),
        (
            "nothing, and the clock went back",
            object("a", 0, 0, 5, "x"),
            1,
        ),
        ("the value", object("a", 2, 0, 5, "y"), 2),
        ("the member's object", object("a", 2, 0, 6, "x"), 2),
        ("it is a new drift", object("a", 2, 2, 5, "x"), 2),
        ("it is another object", object("b", 2, 0, 5, "x"), 2),
    ] {
        let expected = format!("2026-01-01T0{expected}:00:00Z");
        for report_diff in [false, true] {
            let before = reported(object("a", 1, 0, 5, "x"), report_diff);
            let before = BindingStatus {
                drifted_placements: Some(before.drifted),
                diffed_placements: Some(before.diffed),
                ..BindingStatus::default()
            };
            let mut reading = reported(again.clone(), report_diff);
            reading.keep_times(&before);
            let drifted = reading.drifted.iter().map(|d| &d.observation_time);
            let diffed = reading.diffed.iter().map(|d| &d.observation_time);
            let times: Vec<String> = drifted
                .chain(diffed)
                .map(|time| time.0.to_string())
                .collect();
            assert_eq!(times, [expected.clone()], "{about}, {report_diff}");
        }
    }
}
