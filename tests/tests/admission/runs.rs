//! Update runs, their strategies and approval requests: what is taken and refused (API §2.12), and who
//! approved.

use windlass_tests::{Fleet, eventually, root};

use super::Batch;
use super::tables::OK;

/// Specs of strategies: a stage beside its name.
const STAGES: &[(&str, &str)] = &[
    ("{name: a}", OK),
    ("{name: a}, {name: b}", OK),
    ("{name: a}, {name: b}, {name: a}", "same name twice"),
    ("{name: A}", "name"),
    ("{name: a, maxConcurrency: 3}", OK),
    ("{name: a, maxConcurrency: 25%}", OK),
    (
        "{name: a, maxConcurrency: 0}",
        "maxConcurrency must be 1 or more",
    ),
    ("{name: a, maxConcurrency: '3'}", "maxConcurrency"),
    ("{name: a, maxConcurrency: 0%}", "maxConcurrency"),
    ("{name: a, beforeStageTasks: [{type: Approval}]}", OK),
    (
        "{name: a, beforeStageTasks: [{type: Approval, waitTime: 1m}]}",
        "waitTime is not allowed",
    ),
    (
        "{name: a, beforeStageTasks: [{type: TimedWait, waitTime: 1m}]}",
        "can't have a task of type TimedWait",
    ),
    (
        "{name: a, beforeStageTasks: [{type: Approval}, {type: Approval}]}",
        "beforeStageTasks",
    ),
    (
        "{name: a, afterStageTasks: [{type: TimedWait, waitTime: 1h30m}, {type: Approval}]}",
        OK,
    ),
    (
        "{name: a, afterStageTasks: [{type: TimedWait}]}",
        "waitTime is required",
    ),
    (
        "{name: a, afterStageTasks: [{type: TimedWait, waitTime: soon}]}",
        "waitTime",
    ),
    (
        "{name: a, afterStageTasks: [{type: Approval, waitTime: 1m}]}",
        "waitTime is not allowed",
    ),
    ("{name: a, failureThreshold: {maxFailures: 0}}", OK),
    (
        "{name: a, failureThreshold: {maxFailures: 20%, count: [Unavailable], unavailableAfter: 90s, onExceeded: Rollback}}",
        OK,
    ),
    (
        "{name: a, failureThreshold: {maxFailures: -1}}",
        "must not be negative",
    ),
    (
        "{name: a, failureThreshold: {maxFailures: 101%}}",
        "maxFailures",
    ),
    ("{name: a, failureThreshold: {}}", "maxFailures"),
    (
        "{name: a, failureThreshold: {maxFailures: 1, count: []}}",
        "count",
    ),
    (
        "{name: a, failureThreshold: {maxFailures: 1, count: [Slow]}}",
        "Unsupported value",
    ),
];

/// Specs of runs.
const RUNS: &[(&str, &str)] = &[
    ("placementName: p, stagedRolloutStrategyName: s", OK),
    (
        "placementName: p, stagedRolloutStrategyName: s, resourceSnapshotIndex: '3', state: Run",
        OK,
    ),
    (
        "placementName: p, stagedRolloutStrategyName: s, state: Stop",
        OK,
    ),
    (
        "placementName: p, stagedRolloutStrategyName: s, state: Pause",
        "Unsupported value",
    ),
    ("placementName: p", "stagedRolloutStrategyName"),
    ("stagedRolloutStrategyName: s", "placementName"),
    (
        "placementName: p, stagedRolloutStrategyName: s, membershipChanges: Fail",
        OK,
    ),
    (
        "placementName: p, stagedRolloutStrategyName: s, membershipChanges: Maybe",
        "Unsupported value",
    ),
    (
        "placementName: p, stagedRolloutStrategyName: s, failureThreshold: {maxFailures: 10%}",
        OK,
    ),
    (
        "placementName: p, stagedRolloutStrategyName: s, failureThreshold: {maxFailures: -1}",
        "must not be negative",
    ),
];

/// Changes of a run's spec (U1 to U6): before, after, what a refusal says.
const CHANGES: &[(&str, &str, &str)] = &[
    ("", "", OK),
    ("", "state: Run", OK),
    ("", "state: Stop", "state cannot go from Initialize to Stop"),
    ("state: Run", "state: Stop", OK),
    (
        "state: Run",
        "state: Initialize",
        "state cannot go from Run to Initialize",
    ),
    ("state: Run", "", "state cannot go from Run to Initialize"),
    ("state: Stop", "state: Run", OK),
    (
        "state: Stop",
        "state: Initialize",
        "state cannot go from Stop to Initialize",
    ),
    ("", "placementName: other", "placementName is immutable"),
    (
        "",
        "stagedRolloutStrategyName: other",
        "stagedRolloutStrategyName is immutable",
    ),
    (
        "resourceSnapshotIndex: '1'",
        "resourceSnapshotIndex: '2'",
        "resourceSnapshotIndex is immutable",
    ),
    (
        "resourceSnapshotIndex: '1'",
        "",
        "resourceSnapshotIndex is immutable",
    ),
    (
        "",
        "resourceSnapshotIndex: '1'",
        "resourceSnapshotIndex is immutable",
    ),
    ("", "failureThreshold: {maxFailures: 1}", OK),
];

fn object(kind: &str, version: &str, spec: &str) -> String {
    format!(
        "apiVersion: placement.kubernetes-fleet.io/{version}\nkind: {kind}\nmetadata: {{name: NAME}}\nspec: {{{spec}}}\n"
    )
}

fn run_spec(changes: &str) -> String {
    let mut fields = vec!["placementName: p", "stagedRolloutStrategyName: s"];
    let changed = changes.split(':').next().unwrap_or_default();
    fields.retain(|field| !field.starts_with(&format!("{changed}:")));
    fields.extend([changes].into_iter().filter(|changes| !changes.is_empty()));
    fields.join(", ")
}

/// What the API server does not treat as it should, of all kinds and versions.
pub fn faults(fleet: &Fleet) -> Vec<String> {
    let mut faults = Vec::new();
    let mut note = |kind: &str, version: &str, found: Vec<String>| {
        faults.extend(
            found
                .iter()
                .map(|fault| format!("{kind} {version} {fault}")),
        );
    };
    for (prefix, version) in [("Cluster", "v1"), ("Cluster", "v1alpha1"), ("", "v1beta1")] {
        let kind = format!("{prefix}StagedUpdateStrategy");
        let mut batch = Batch::default();
        for (stages, expected) in STAGES {
            let spec = format!("stages: [{stages}]");
            batch.add(&object(&kind, version, &spec), stages, expected);
        }
        note(&kind, version, batch.faults(fleet, "create"));
        let kind = format!("{prefix}StagedUpdateRun");
        let mut batch = Batch::default();
        for (spec, expected) in RUNS {
            batch.add(&object(&kind, version, spec), spec, expected);
        }
        let long = "n".repeat(64);
        let run = object(&kind, version, &run_spec(""));
        batch.named(&long, &run, "a long name", "shorter than 64");
        note(&kind, version, batch.faults(fleet, "create"));
        let (mut before, mut after) = (Batch::default(), Batch::default());
        for (from, to, expected) in CHANGES {
            before.add(&object(&kind, version, &run_spec(from)), from, OK);
            let what = format!("{from} to {to}");
            after.add(&object(&kind, version, &run_spec(to)), &what, expected);
        }
        let kind = format!("{prefix}ApprovalRequest");
        let request = |stage: &str| {
            let spec = format!("parentStageRollout: r, targetStage: {stage}");
            object(&kind, version, &spec)
        };
        before.named("request", &request("a"), "a request", OK);
        after.named(
            "request",
            &request("b"),
            "another stage",
            "approval request is immutable",
        );
        let stored = before.manifests.join("\n---\n");
        let kubectl = |args: &str| fleet.try_kubectl("hub", args, Some(&stored));
        kubectl("create -f -").unwrap();
        note("changes", version, after.faults(fleet, "replace"));
        kubectl("delete -f -").unwrap();
    }
    faults
}

/// People who may approve, and nothing else.
const APPROVERS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: approver}
rules:
- {apiGroups: [placement.kubernetes-fleet.io], resources: [clusterapprovalrequests], verbs: [get]}
- {apiGroups: [placement.kubernetes-fleet.io], resources: [clusterapprovalrequests/status], verbs: [get, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: approver}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: approver}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]
";

/// Patches the status of an approval request as a user.
fn patch(fleet: &Fleet, user: &str, request: &str, status: &str) -> Result<String, String> {
    let body = format!(r#"{{"status":{}}}"#, status.replace(' ', ""));
    let args =
        format!("patch careq {request} --subresource=status --type=merge -p {body} --as={user}");
    fleet.try_kubectl("hub", &args, None)
}

fn conditions(words: &[(&str, &str)]) -> String {
    let rows: Vec<String> = words
        .iter()
        .map(|(type_, status)| {
            format!(
                r#"{{"type":"{type_}","status":"{status}","reason":"Checked","message":"","lastTransitionTime":"2026-01-02T03:04:05Z","observedGeneration":1}}"#
            )
        })
        .collect();
    format!(r#""conditions":[{}]"#, rows.join(","))
}

fn new_request(fleet: &Fleet, name: &str) {
    let request = object(
        "ClusterApprovalRequest",
        "v1beta1",
        "parentStageRollout: r, targetStage: a",
    );
    fleet.apply("hub", &request.replace("NAME", name));
}

fn approved_by(fleet: &Fleet, name: &str) -> String {
    fleet.get("hub", &format!("careq {name}"), "{.status.approvedBy}")
}

/// Without a policy that records him, an approver stands as unrecorded, whatever he says of himself; with it,
/// as the API server knows him.
pub fn who_approved(fleet: &Fleet) {
    fleet.apply("hub", APPROVERS);
    let manifest = |file: &str| root().join("deploy").join(file).display().to_string();
    fleet.kubectl(
        "hub",
        &format!("apply -f {}", manifest("guard-rails/approvals.yaml")),
    );
    let approved = conditions(&[("Approved", "True")]);
    let says = |name: &str| format!(r#"{{"approvedBy":"{name}",{approved}}}"#);
    new_request(fleet, "refused");
    let fresh = format!(r#"{{"approvedBy":null,{}}}"#, conditions(&[]));
    eventually("the guard rail is in force", || {
        // One that came too early was taken.
        patch(fleet, "ann", "refused", &fresh).unwrap();
        patch(fleet, "ann", "refused", &says("bob"))
            .is_err_and(|error| error.contains("ann may not set status.approvedBy"))
    });
    new_request(fleet, "plain");
    patch(fleet, "ann", "plain", &format!("{{{approved}}}")).unwrap();
    assert_eq!(approved_by(fleet, "plain"), "");
    let late = patch(fleet, "ann", "plain", r#"{"approvedBy":"ann"}"#).unwrap_err();
    assert!(late.contains("may not set status.approvedBy"), "{late}");
    let accepted = format!("{{{}}}", conditions(&[("ApprovalAccepted", "True")]));
    let unnamed = patch(fleet, "ann", "refused", &accepted).unwrap_err();
    assert!(unnamed.contains("nobody has approved"), "{unnamed}");
    unrecorded(fleet, &approved, &says);

    fleet.kubectl("hub", &format!("apply -k {}", manifest("approvers")));
    new_request(fleet, "probe");
    eventually("approvers are recorded", || {
        let waits = format!("{{{}}}", conditions(&[("Approved", "False")]));
        let again = |status: &str| patch(fleet, "ann", "probe", status).is_ok();
        again(&waits) && again(&says("bob")) && approved_by(fleet, "probe") == "ann"
    });
    recorded(fleet, &approved, &says);
}

/// Takes the steps in turn, each: who patches with what, and who stands there afterwards, or what a refusal
/// says.
fn steps(fleet: &Fleet, request: &str, rows: Vec<(&str, String, Result<&str, &str>)>) {
    new_request(fleet, request);
    for (step, (user, status, expected)) in rows.into_iter().enumerate() {
        let what = format!("{request}, step {step}: {user} {status}");
        match (patch(fleet, user, request, &status), expected) {
            (Ok(_), Ok(name)) => assert_eq!(approved_by(fleet, request), name, "{what}"),
            (Err(error), Err(text)) => assert!(error.contains(text), "{what}: {error}"),
            (answer, expected) => {
                assert_eq!(answer.is_ok(), expected.is_ok(), "{what}: {answer:?}");
            }
        }
    }
}

const REFUSED: Result<&str, &str> = Err("may not set status.approvedBy");
const KEPT: Result<&str, &str> = Err("can't be taken back");

/// Where nothing records the name: it is nobody else's than the approver's, and not that of an earlier one.
fn unrecorded(fleet: &Fleet, approved: &str, says: &dyn Fn(&str) -> String) {
    let withdrawn = conditions(&[("Approved", "False")]);
    let accepted = conditions(&[("Approved", "True"), ("ApprovalAccepted", "True")]);
    let rows = vec![
        ("ann", says("ann"), Ok("ann")),
        ("bob", format!("{{{withdrawn}}}"), Ok("ann")),
        ("bob", format!("{{{approved}}}"), REFUSED),
        ("bob", says("ann"), REFUSED),
        (
            "bob",
            format!(r#"{{"approvedBy":null,{approved}}}"#),
            Ok(""),
        ),
        ("bob", format!("{{{accepted}}}"), Ok("")),
        ("ann", format!("{{{withdrawn}}}"), KEPT),
    ];
    steps(fleet, "named", rows);
}

/// What happens to the name where it is recorded.
fn recorded(fleet: &Fleet, approved: &str, says: &dyn Fn(&str) -> String) {
    let withdrawn = conditions(&[("Approved", "False")]);
    let accepted = conditions(&[("Approved", "True"), ("ApprovalAccepted", "True")]);
    let rows = vec![
        ("ann", says("bob"), Ok("ann")),
        ("bob", says("bob"), Ok("ann")),
        ("bob", r#"{"approvedBy":null}"#.to_owned(), Ok("ann")),
        ("ann", format!("{{{withdrawn}}}"), Ok("")),
        ("ann", r#"{"approvedBy":"ann"}"#.to_owned(), Ok("")),
        ("bob", format!("{{{approved}}}"), Ok("bob")),
        ("ann", format!("{{{accepted}}}"), Ok("bob")),
        ("ann", format!("{{{withdrawn}}}"), KEPT),
    ];
    steps(fleet, "stamped", rows);
    // One for another generation approves nothing.
    let elsewhere = approved.replace(r#""observedGeneration":1"#, r#""observedGeneration":2"#);
    let rows = vec![
        ("ann", format!("{{{elsewhere}}}"), Ok("")),
        ("bob", format!("{{{approved}}}"), Ok("bob")),
    ];
    steps(fleet, "elsewhere", rows);
    // The hub takes ApprovalAccepted alone for an answer; the guard rail, which refuses it, may be missing.
    let rail = "validatingadmissionpolicybinding windlass-approvals";
    fleet.kubectl("hub", &format!("delete {rail}"));
    let alone = conditions(&[("ApprovalAccepted", "True")]);
    eventually("the guard rail is off", || {
        new_request(fleet, "alone");
        patch(fleet, "ann", "alone", &format!("{{{alone}}}")).is_ok()
    });
    assert_eq!(approved_by(fleet, "alone"), "ann");
}
