//! Health: each override where it decides and where it does not, and what it never changes.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use windlass_status::health::{Override, assess};
use windlass_status::kstatus::Status::{self, Current, Failed, InProgress, Terminating, Unknown};
use windlass_status::kstatus::compute;

/// What is looked at, apiVersion, kind, the rest of the object, what it is, why, what overruled kstatus.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    Value,
    Status,
    &'static str,
    Option<Override>,
);

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn check(rows: Vec<Row>) {
    for (what, version, kind, rest, status, reason, by) in rows {
        let mut object = rest;
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        let health = assess(&object, now());
        let is = (health.verdict.status, health.reason(), health.by);
        assert_eq!(is, (status, reason, by), "{what}");
        if by.is_none() {
            assert_eq!(health.verdict, compute(&object, now()), "{what}");
        }
    }
}

/// An object with these conditions: type, status, reason.
fn says(list: &[(&str, &str, &str)]) -> Value {
    let conditions: Vec<Value> = list
        .iter()
        .map(|(kind, status, reason)| json!({"type": kind, "status": status, "reason": reason}))
        .collect();
    json!({"status": {"conditions": conditions}})
}

/// Of generation 2, with one condition of generation `of`.
fn condition_of(kind: &str, status: &str, of: i64) -> Value {
    json!({"metadata": {"generation": 2}, "status": {"conditions": [
        {"type": kind, "status": status, "reason": "R", "observedGeneration": of}]}})
}

#[test]
fn built_in_kinds() {
    use Override::{ClaimLost, JobMustComplete, LoadBalancerAddress, PodFailed};
    let started = json!({"status": {"startTime": "2026-01-01T00:00:00Z"}});
    let phase = |phase: &str| json!({"status": {"phase": phase}});
    let balancer = |ingress: Value| {
        json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1"},
               "status": {"loadBalancer": {"ingress": ingress}}})
    };
    let (job, pod, claim) = ("Job", "Pod", "PersistentVolumeClaim");
    let no_address = "NoLoadBalancerAddress";
    check(vec![
        (
            "a job that runs",
            "batch/v1",
            job,
            started.clone(),
            InProgress,
            "JobNotComplete",
            Some(JobMustComplete),
        ),
        (
            "a job that has not begun",
            "batch/v1",
            job,
            json!({}),
            InProgress,
            "JobNotStarted",
            None,
        ),
        (
            "a complete job",
            "batch/v1",
            job,
            says(&[("Complete", "True", "")]),
            Current,
            "",
            None,
        ),
        (
            "a failed job",
            "batch/v1",
            job,
            says(&[("Failed", "True", "")]),
            Failed,
            "JobFailed",
            None,
        ),
        (
            "another group's job",
            "x.io/v1",
            job,
            started,
            Current,
            "",
            None,
        ),
        (
            "a failed pod",
            "v1",
            pod,
            phase("Failed"),
            Failed,
            "PodFailed",
            Some(PodFailed),
        ),
        (
            "a pod that has succeeded",
            "v1",
            pod,
            phase("Succeeded"),
            Current,
            "",
            None,
        ),
        (
            "a pod in an unknown phase",
            "v1",
            pod,
            phase("Unknown"),
            Unknown,
            "",
            None,
        ),
        (
            "a balancer with an ip",
            "v1",
            "Service",
            balancer(json!([{"ip": "192.0.2.1"}])),
            Current,
            "",
            None,
        ),
        (
            "a balancer with a name",
            "v1",
            "Service",
            balancer(json!([{}, {"hostname": "a"}])),
            Current,
            "",
            None,
        ),
        (
            "a balancer with an empty address",
            "v1",
            "Service",
            balancer(json!([{"ip": ""}])),
            InProgress,
            no_address,
            Some(LoadBalancerAddress),
        ),
        (
            "a balancer without one",
            "v1",
            "Service",
            balancer(Value::Null),
            InProgress,
            no_address,
            Some(LoadBalancerAddress),
        ),
        (
            "a balancer without a cluster ip",
            "v1",
            "Service",
            json!({"spec": {"type": "LoadBalancer"}}),
            InProgress,
            "NoIPAssigned",
            None,
        ),
        (
            "a plain service",
            "v1",
            "Service",
            json!({"spec": {"type": "ClusterIP"}}),
            Current,
            "",
            None,
        ),
        (
            "a lost claim",
            "v1",
            claim,
            phase("Lost"),
            Failed,
            "ClaimLost",
            Some(ClaimLost),
        ),
        (
            "a claim that waits",
            "v1",
            claim,
            phase("Pending"),
            InProgress,
            "NotBound",
            None,
        ),
        (
            "a bound claim",
            "v1",
            claim,
            phase("Bound"),
            Current,
            "",
            None,
        ),
    ]);
}

#[test]
fn custom_resources() {
    use Override::{Degraded, NotAvailable, StaleCondition};
    let ours = "addons.windlass.dev/v1alpha1";
    let broken = [("Degraded", "True", "Lost"), ("Ready", "False", "R")];
    let unavailable = says(&[("Available", "False", "R")]);
    let both = says(&[("Available", "False", "R"), ("Ready", "True", "")]);
    check(vec![
        (
            "one of ours that is degraded",
            ours,
            "Addon",
            says(&broken),
            Failed,
            "Lost",
            Some(Degraded),
        ),
        (
            "degraded and ready",
            ours,
            "Addon",
            says(&[("Ready", "True", ""), ("Degraded", "True", "")]),
            Failed,
            "Degraded",
            Some(Degraded),
        ),
        (
            "one of ours that is not",
            ours,
            "Addon",
            says(&[("Degraded", "False", "")]),
            Current,
            "",
            None,
        ),
        (
            "somebody else's",
            "windlass.dev.x.io/v1",
            "Addon",
            says(&broken),
            InProgress,
            "R",
            None,
        ),
        (
            "of a group that ends alike",
            "notwindlass.dev/v1",
            "Addon",
            says(&broken),
            InProgress,
            "R",
            None,
        ),
        (
            "stalled and degraded",
            ours,
            "Addon",
            says(&[("Stalled", "True", "S"), ("Degraded", "True", "D")]),
            Failed,
            "S",
            None,
        ),
        (
            "ready, of an older generation",
            "x.io/v1",
            "Foo",
            condition_of("Ready", "True", 1),
            InProgress,
            "StaleCondition",
            Some(StaleCondition),
        ),
        (
            "available, of an older generation",
            "x.io/v1",
            "Foo",
            condition_of("Available", "True", 1),
            InProgress,
            "StaleCondition",
            Some(StaleCondition),
        ),
        (
            "ready, of this generation",
            "x.io/v1",
            "Foo",
            condition_of("Ready", "True", 2),
            Current,
            "",
            None,
        ),
        (
            "not ready, of an older generation",
            "x.io/v1",
            "Foo",
            condition_of("Ready", "False", 1),
            InProgress,
            "R",
            None,
        ),
        (
            "another condition of an older generation",
            "x.io/v1",
            "Foo",
            condition_of("Synced", "True", 1),
            Current,
            "",
            None,
        ),
        (
            "not available",
            "x.io/v1",
            "Foo",
            unavailable.clone(),
            InProgress,
            "R",
            Some(NotAvailable),
        ),
        (
            "perhaps available",
            "x.io/v1",
            "Foo",
            says(&[("Available", "Unknown", "")]),
            InProgress,
            "NotAvailable",
            Some(NotAvailable),
        ),
        (
            "not available, but ready",
            "x.io/v1",
            "Foo",
            both,
            Current,
            "",
            None,
        ),
        (
            "no conditions",
            "x.io/v1",
            "Foo",
            json!({}),
            Current,
            "",
            None,
        ),
        (
            "one of Kubernetes' own",
            "apiregistration.k8s.io/v1",
            "APIService",
            unavailable.clone(),
            Current,
            "",
            None,
        ),
        (
            "from a CRD, whatever its group ends in",
            "gateway.networking.k8s.io/v1",
            "Gateway",
            unavailable,
            InProgress,
            "R",
            Some(NotAvailable),
        ),
    ]);
}

#[test]
fn where_no_override_is_asked() {
    let pod = |metadata: Value| json!({"metadata": metadata, "status": {"phase": "Failed", "observedGeneration": 1}});
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let unseen = "LatestGenerationNotObserved";
    let degraded = json!({"metadata": {"generation": 2},
        "status": {"observedGeneration": 1, "conditions": [{"type": "Degraded", "status": "True"}]}});
    check(vec![
        (
            "being deleted",
            "v1",
            "Pod",
            pod(deleted),
            Terminating,
            "",
            None,
        ),
        (
            "not observed",
            "v1",
            "Pod",
            pod(json!({"generation": 2})),
            InProgress,
            unseen,
            None,
        ),
        (
            "degraded as it was before",
            "a.windlass.dev/v1",
            "A",
            degraded,
            InProgress,
            unseen,
            None,
        ),
        (
            "not readable",
            "batch/v1",
            "Job",
            json!({"status": {"conditions": 5}}),
            Unknown,
            "",
            None,
        ),
    ]);
}

/// Over everything that is recorded of the library: an override never makes an object look better.
#[test]
fn an_override_never_makes_better() {
    let recorded = [
        include_str!("kstatus/vectors.jsonl"),
        include_str!("kstatus/found.jsonl"),
    ];
    let rank = |status| match status {
        Current => 0,
        InProgress => 1,
        Failed => 2,
        Terminating | Unknown => 3,
    };
    let mut used = BTreeSet::new();
    for line in recorded.into_iter().flat_map(str::lines) {
        let vector: Value = serde_json::from_str(line).unwrap();
        let (health, plain) = (
            assess(&vector["object"], now()),
            compute(&vector["object"], now()),
        );
        used.extend(health.by);
        let worse = rank(health.verdict.status) > rank(plain.status);
        assert_eq!(worse, health.by.is_some(), "{}", vector["id"]);
    }
    assert!(used.len() > 4, "{used:?}");
}
