//! kstatus: the library's verdicts over recorded objects, and what holds for any object.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use windlass_status::kstatus::{Status, compute};

/// The library panics over this object; we pass the container over, which leaves a pod that is not ready.
const PANIC: (&str, &str, &str) = (
    "pod containerStatus state null",
    "InProgress",
    "PodRunningNotReady",
);

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Puts times into an object: `@now-20s` is 20 s ago.
fn set_times(value: &mut Value) {
    match value {
        Value::String(text) => {
            let ago = text.strip_prefix("@now-").and_then(|t| t.strip_suffix('s'));
            if let Some(ago) = ago {
                let ago = SignedDuration::from_secs(ago.parse().unwrap());
                *text = now().checked_sub(ago).unwrap().to_string();
            }
        }
        Value::Array(list) => list.iter_mut().for_each(set_times),
        Value::Object(map) => map.values_mut().for_each(set_times),
        _ => {}
    }
}

/// Status and reason of a recorded verdict, as ours says them; an error is Unknown.
fn recorded(verdict: &Value) -> (String, String) {
    if verdict["error"] != Value::Null {
        return ("Unknown".to_owned(), String::new());
    }
    let reason = verdict["conditions"][0]["reason"]
        .as_str()
        .unwrap_or_default();
    (
        verdict["status"].as_str().unwrap().to_owned(),
        reason.to_owned(),
    )
}

fn ours(object: &Value) -> (String, String) {
    let verdict = compute(object, now());
    let reason = verdict.reason.map(|reason| reason.to_string());
    (verdict.status.to_string(), reason.unwrap_or_default())
}

#[test]
fn the_recorded_verdicts_of_the_library() {
    let vectors = lines(include_str!("kstatus/vectors.jsonl"));
    let expected = lines(include_str!("kstatus/expected.jsonl"));
    assert_eq!((vectors.len(), expected.len()), (147, 147));
    let mut different = Vec::new();
    for (vector, expected) in vectors.into_iter().zip(expected) {
        assert_eq!(vector["id"], expected["id"]);
        let mut object = vector["object"].clone();
        set_times(&mut object);
        let expected = match vector["id"].as_str().unwrap() {
            id if id == PANIC.0 => (PANIC.1.to_owned(), PANIC.2.to_owned()),
            _ => recorded(&expected),
        };
        let ours = ours(&object);
        if ours != expected {
            different.push(format!("{}: {ours:?}, not {expected:?}", vector["id"]));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// The library's verdicts where a rule that is told in a few words leaves room for doubt; and what
/// `hack/kstatus-fuzz` found.
#[test]
fn the_corners_of_the_rules() {
    let vectors = lines(include_str!("kstatus/found.jsonl"));
    assert!(vectors.len() > 60);
    let different: Vec<String> = vectors
        .iter()
        .map(|vector| (vector, ours(&vector["object"]), recorded(vector)))
        .filter(|(_, ours, expected)| ours != expected)
        .map(|(vector, ours, expected)| format!("{}: {ours:?}, not {expected:?}", vector["id"]))
        .collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
}

proptest! {
    #[test]
    fn any_object_has_one_verdict(object in object(), other in "[a-z0-9]{0,8}") {
        let verdict = compute(&object, now());
        prop_assert_eq!(&verdict, &compute(&object.clone(), now()));
        let has_reason = matches!(verdict.status, Status::InProgress | Status::Failed);
        prop_assert_eq!(verdict.reason.is_some(), has_reason);

        let mut of_another_version = object.clone();
        if let Some(text) = object["apiVersion"].as_str() {
            let version = match text.rsplit_once('/') {
                Some((group, _)) => format!("{group}/{other}"),
                None => other,
            };
            of_another_version["apiVersion"] = json!(version);
        }
        prop_assert_eq!(verdict, compute(&of_another_version, now()));
    }

    #[test]
    fn any_value_has_a_verdict(value in junk(), at in any::<i32>()) {
        let now = Timestamp::from_second(i64::from(at)).unwrap();
        prop_assert_eq!(compute(&value, now), compute(&value, now));
    }
}

/// Values of every type.
fn junk() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-2_i64..4).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        "[0-9T:.,+Z-]{0,30}".prop_map(Value::from),
        Just(json!("2027-01-15T08:00:00+24:60")),
        Just(json!("9999-12-31T23:59:59.9-24:00")),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((word(), inner), 0..4)
                .prop_map(|list| Value::Object(list.into_iter().collect())),
        ]
    })
}

/// Words that mean something somewhere.
fn word() -> impl Strategy<Value = String> {
    const WORDS: [&str; 22] = [
        "Ready",
        "True",
        "False",
        "Reconciling",
        "Stalled",
        "Running",
        "Pending",
        "PodScheduled",
        "Unschedulable",
        "CrashLoopBackOff",
        "LoadBalancer",
        "Complete",
        "Failed",
        "Available",
        "Progressing",
        "Established",
        "name",
        "state",
        "waiting",
        "reason",
        "status",
        "type",
    ];
    prop::sample::select(&WORDS[..]).prop_map(str::to_owned)
}

/// Objects of the kinds that have rules, most fields of the type that they should have.
fn object() -> impl Strategy<Value = Value> {
    const KINDS: [(&str, &str); 12] = [
        ("apps/v1", "Deployment"),
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "DaemonSet"),
        ("batch/v1", "Job"),
        ("v1", "Pod"),
        ("v1", "Service"),
        ("v1", "PersistentVolumeClaim"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("x.io/v1", "Foo"),
        ("v1", "Secret"),
        ("a/b/c", "Pod"),
    ];
    let field =
        |of: BoxedStrategy<Value>| prop_oneof![6 => of, 1 => junk(), 1 => Just(Value::Null)];
    let count = || field((-1_i64..3).prop_map(Value::from).boxed());
    let said = || field(word().prop_map(Value::from).boxed());
    let condition = (said(), said(), said(), said()).prop_map(|(kind, status, reason, message)| {
        json!({"type": kind, "status": status, "reason": reason, "message": message})
    });
    let conditions = proptest::collection::vec(field(condition.boxed()), 0..4);
    let container = (said(), said())
        .prop_map(|(name, why)| json!({"name": name, "state": {"waiting": {"reason": why}}}));
    let metadata = (count(), junk()).prop_map(
        |(generation, created)| json!({"generation": generation, "creationTimestamp": created}),
    );
    let replicas = proptest::collection::vec(count(), 6);
    let status = (
        said(),
        count(),
        replicas,
        field(conditions.prop_map(Value::from).boxed()),
        field(container.prop_map(|one| json!([one])).boxed()),
    )
        .prop_map(|(phase, observed, counts, conditions, containers)| {
            let mut status = Map::new();
            let names = [
                "replicas",
                "readyReplicas",
                "updatedReplicas",
                "availableReplicas",
                "desiredNumberScheduled",
                "startTime",
            ];
            for (name, count) in names.into_iter().zip(counts) {
                status.insert(name.to_owned(), count);
            }
            status.insert("phase".to_owned(), phase);
            status.insert("observedGeneration".to_owned(), observed);
            status.insert("conditions".to_owned(), conditions);
            status.insert("containerStatuses".to_owned(), containers);
            Value::Object(status)
        });
    let spec = (count(), count(), said()).prop_map(|(replicas, partition, kind)| {
        json!({"replicas": replicas, "type": kind,
               "updateStrategy": {"rollingUpdate": {"partition": partition}}})
    });
    (
        prop::sample::select(&KINDS[..]),
        field(metadata.boxed()),
        field(spec.boxed()),
        field(status.boxed()),
    )
        .prop_map(|((version, kind), metadata, spec, status)| {
            json!({"apiVersion": version, "kind": kind,
                   "metadata": metadata, "spec": spec, "status": status})
        })
}
