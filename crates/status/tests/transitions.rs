//! What is news and what is not, as tables.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use windlass_api::member::MemberClusterStatus;
use windlass_api::placement::PlacementStatus;
use windlass_api::scoped::Scope;
use windlass_status::transitions::{NAMED, Transition, of_member, of_placement};

fn condition(type_: &str, status: &str, reason: &str) -> Value {
    json!({ "type": type_, "status": status, "reason": reason, "message": format!("{type_} is {status}"),
            "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

/// A status from words: `Scheduled=False/Why`, `index=3`, `a:Applied=False/Why`, `a:index=3`,
/// `a:object=Reason`.
fn placement(words: &str) -> PlacementStatus {
    let mut conditions = Vec::new();
    let mut clusters: BTreeMap<&str, Value> = BTreeMap::new();
    let mut index = None;
    for word in words.split_whitespace() {
        let (cluster, word) = match word.split_once(':') {
            Some((cluster, word)) => (Some(cluster), word),
            None => (None, word),
        };
        let (what, value) = word.split_once('=').unwrap();
        let (status, reason) = value.split_once('/').unwrap_or((value, ""));
        match (cluster, what) {
            (None, "index") => index = Some(value),
            (None, _) => conditions.push(condition(
                &format!("ClusterResourcePlacement{what}"),
                status,
                reason,
            )),
            (Some(cluster), what) => {
                let entry = clusters.entry(cluster).or_insert_with(
                    || json!({ "clusterName": cluster, "conditions": [], "failedPlacements": [] }),
                );
                match what {
                    "index" => entry["observedResourceIndex"] = json!(value),
                    "object" => push(
                        &mut entry["failedPlacements"],
                        json!({ "version": "v1", "kind": "ConfigMap", "name": "c",
                                "condition": condition("Available", "False", value) }),
                    ),
                    _ => push(&mut entry["conditions"], condition(what, status, reason)),
                }
            }
        }
    }
    serde_json::from_value(json!({
        "observedResourceIndex": index, "conditions": conditions,
        "placementStatuses": clusters.values().collect::<Vec<_>>(),
    }))
    .unwrap()
}

fn push(list: &mut Value, value: Value) {
    list.as_array_mut().unwrap().push(value);
}

fn shown(news: &[Transition]) -> Vec<String> {
    let one = |one: &Transition| {
        let severity = if one.is_warning { "Warning" } else { "Normal" };
        let mut text = format!("{severity} {}", one.reason);
        if let Some(cluster) = &one.cluster {
            text += &format!(" on {cluster}");
        }
        if !one.index.is_empty() {
            text += &format!(" index {}", one.index);
        }
        text
    };
    news.iter().map(one).collect()
}

fn check(rows: &[(&str, &str, &[&str])]) {
    for (old, new, expected) in rows {
        let state = placement(new);
        let news = of_placement(Scope::Cluster, Some(&placement(old)), &state);
        assert_eq!(shown(&news), *expected, "{old:?} to {new:?}");
        let again = of_placement(Scope::Cluster, Some(&state), &state);
        assert_eq!(again, [], "no news without a transition: {new:?}");
    }
}

#[test]
fn news_of_placements() {
    const EXTERNAL: &str = "RolloutStarted=Unknown/RolloutControlledByExternalController";
    check(&[
        // Scheduling.
        ("", "Scheduled=False/Few", &["Warning Few"]),
        ("Scheduled=True/Ok", "Scheduled=False/Few", &["Warning Few"]),
        ("Scheduled=False/Few", "Scheduled=False/Other", &[]),
        ("Scheduled=False/Few", "Scheduled=True/Ok", &["Normal Ok"]),
        ("", "Scheduled=True/Ok", &[]),
        ("Scheduled=True/Ok", "Scheduled=Unknown/Pending", &[]),
        // Rollouts.
        (
            "",
            "index=0 RolloutStarted=Unknown/Wait",
            &["Normal RolloutStarted index 0"],
        ),
        ("index=0", "index=1", &["Normal RolloutStarted index 1"]),
        ("index=1", "index=1", &[]),
        ("index=1", "", &[]),
        (
            EXTERNAL,
            "index=1 Available=True/Ready",
            &["Normal Ready index 1"],
        ),
        (
            "index=1 Available=False/NotYet",
            "index=1 Available=True/Ready",
            &["Normal Ready index 1"],
        ),
        (
            "index=1 Available=True/Ready",
            "index=1 Available=True/Ready",
            &[],
        ),
        (
            "index=1 Available=True/Ready",
            "index=2 Available=True/Ready",
            &["Normal RolloutStarted index 2", "Normal Ready index 2"],
        ),
        (
            "index=1 Available=True/Ready",
            "index=1 Available=False/NotYet",
            &[],
        ),
        (
            "index=1",
            "index=1 DiffReported=True/Told",
            &["Normal Told index 1"],
        ),
        // Deletion.
        ("", "Deleting=True/Removing", &[]),
        (
            "Deleting=True/Removing",
            "Deleting=True/WaitingForClusters",
            &["Warning WaitingForClusters"],
        ),
        (
            "Deleting=True/WaitingForClusters",
            "Deleting=True/WaitingForClusters",
            &[],
        ),
    ]);
}

#[test]
fn news_of_one_cluster() {
    check(&[
        (
            "a:Applied=Unknown/Wait",
            "a:index=1 a:Applied=False/Refused",
            &["Warning Refused on a index 1"],
        ),
        ("", "a:Applied=False/Refused", &["Warning Refused on a"]),
        ("a:Applied=False/Refused", "a:Applied=False/Refused", &[]),
        ("a:Applied=False/Refused", "a:Applied=False/Other", &[]),
        ("a:Applied=False/Refused", "a:Applied=True/Ok", &[]),
        ("a:Applied=False/Refused", "", &[]),
        ("", "a:Applied=False/ApplyInProgress", &[]),
        (
            "",
            "a:WorkSynchronized=False/SyncWorkFailed a:Applied=False/Refused",
            &["Warning SyncWorkFailed on a"],
        ),
        ("", "a:RolloutStarted=False/RolloutNotStartedYet", &[]),
        // Too long is news of its own, once.
        (
            "a:Applied=False/ApplyInProgress",
            "a:Applied=False/Timeout",
            &["Warning Timeout on a"],
        ),
        (
            "a:Applied=False/Refused",
            "a:Applied=False/Timeout",
            &["Warning Timeout on a"],
        ),
        ("a:Applied=False/Timeout", "a:Applied=False/Timeout", &[]),
        ("a:Applied=False/Timeout", "a:Applied=False/Refused", &[]),
        (
            "a:Applied=False/Timeout",
            "a:Applied=False/ApplyInProgress",
            &[],
        ),
    ]);
}

/// What is on its way to be available is no news; what was lost, or has failed, is.
#[test]
fn news_of_availability() {
    const READY: &str = "a:index=1 a:Available=True/Ready";
    const SOON: &str =
        "a:index=1 a:Available=False/NotAllWorkAreAvailable a:object=ManifestNotAvailableYet";
    check(&[
        ("", SOON, &[]),
        (READY, &SOON.replace("index=1", "index=2"), &[]),
        (
            READY,
            SOON,
            &["Warning NotAllWorkAreAvailable on a index 1"],
        ),
        (
            SOON,
            &SOON.replace("ManifestNotAvailableYet", "Failed"),
            &["Warning NotAllWorkAreAvailable on a index 1"],
        ),
        (
            SOON,
            &SOON.replace("NotAllWorkAreAvailable", "Timeout"),
            &["Warning Timeout on a index 1"],
        ),
    ]);
}

#[test]
fn many_clusters_are_named_up_to_a_limit() {
    let words = |status: &str| -> String {
        (0..NAMED + 7)
            .map(|n| format!("c{n:02}:Applied={status}/Refused "))
            .collect()
    };
    let (old, new) = (placement(&words("Unknown")), placement(&words("False")));
    let news = of_placement(Scope::Cluster, Some(&old), &new);
    assert_eq!(news.len(), NAMED + 1);
    assert_eq!(
        news[0].note,
        "Applied is False on cluster c00: Applied is False"
    );
    assert_eq!(news[NAMED].note, "Applied is False on 7 more cluster(s)");
    assert_eq!(news[NAMED].cluster, None);
}

#[test]
fn news_of_member_clusters() {
    let rows = [
        (
            "",
            "CredentialsValid=True Joined=True Healthy=True",
            vec!["Normal Joined"],
        ),
        ("", "Joined=Unknown Healthy=False", vec!["Warning Healthy"]),
        ("Healthy=True", "Healthy=False", vec!["Warning Healthy"]),
        ("Healthy=False", "Healthy=False", vec![]),
        ("Healthy=False", "Healthy=True", vec!["Normal Healthy"]),
        (
            "CredentialsValid=True",
            "CredentialsValid=False",
            vec!["Warning CredentialsValid"],
        ),
        (
            "CredentialsValid=False",
            "CredentialsValid=True",
            vec!["Normal CredentialsValid"],
        ),
        ("Joined=True", "Joined=False", vec!["Normal Joined"]),
        ("ReadyToJoin=True", "ReadyToJoin=False", vec![]),
    ];
    let status = |words: &str| -> MemberClusterStatus {
        let conditions: Vec<Value> = words
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
            .map(|(type_, status)| condition(type_, status, type_))
            .collect();
        serde_json::from_value(json!({ "conditions": conditions })).unwrap()
    };
    for (old, new, expected) in rows {
        let news = of_member(Some(&status(old)), &status(new));
        assert_eq!(shown(&news), expected, "{old:?} to {new:?}");
        assert_eq!(of_member(Some(&status(new)), &status(new)), []);
    }
}
