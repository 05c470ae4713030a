//! The kinds that have a rule of their own. A number that is missing, or not a whole one, has the default that
//! stands with it.

use jiff::Timestamp;
use serde_json::Value;

use super::field::{Conditions, Malformed, integer, nested_list, text};
use super::{Reason, Verdict, created, key};

/// What `progressDeadlineSeconds` says when there is no deadline.
const NO_DEADLINE: i64 = 2_147_483_647;

/// Judges an object by the rule of its kind; none if that has no rule.
pub(super) fn judge(
    object: &Value,
    conditions: &Conditions<'_>,
    now: Timestamp,
) -> Option<Result<Verdict, Malformed>> {
    let verdict = match key(object).as_ref() {
        "Secret" | "ConfigMap" | "batch/CronJob" => Verdict::current("it needs no controller"),
        "policy/PodDisruptionBudget" => Verdict::current("its controller has seen it"),
        "Service" => service(object),
        "PersistentVolumeClaim" => claim(object),
        "Pod" => return Some(pod(object, conditions, now)),
        "apps/Deployment" | "extensions/Deployment" => deployment(object, conditions),
        "apps/ReplicaSet" | "extensions/ReplicaSet" => replica_set(object, conditions),
        "apps/StatefulSet" => stateful_set(object),
        "apps/DaemonSet" | "extensions/DaemonSet" => daemon_set(object),
        "batch/Job" => job(object, conditions),
        "apiextensions.k8s.io/CustomResourceDefinition" => definition(conditions),
        _ => return None,
    };
    Some(Ok(verdict))
}

fn number(object: &Value, pointer: &str) -> i64 {
    integer(object, pointer).unwrap_or(0)
}

/// In progress if there are fewer than are wanted.
fn short(reason: Reason, what: &str, have: i64, want: i64) -> Option<Verdict> {
    (have < want).then(|| Verdict::in_progress(reason, format!("{have} of {want} {what}")))
}

/// In progress if there are more replicas than are wanted.
fn extra(have: i64, want: i64) -> Option<Verdict> {
    (have > want).then(|| {
        let message = format!("{have} replicas exist, {want} are wanted; the others have to go");
        Verdict::in_progress(Reason::ExtraPods, message)
    })
}

/// A load balancer without an address is Current.
fn service(object: &Value) -> Verdict {
    let is_balancer = text(object, "/spec/type") == Some("LoadBalancer");
    if is_balancer
        && text(object, "/spec/clusterIP")
            .unwrap_or_default()
            .is_empty()
    {
        return Verdict::in_progress(Reason::NoIpAssigned, "it has no cluster IP yet");
    }
    Verdict::current("the service is there")
}

/// One that lost its volume is InProgress too.
fn claim(object: &Value) -> Verdict {
    match text(object, "/status/phase") {
        Some("Bound") => Verdict::current("it is bound to a volume"),
        phase => Verdict::in_progress(
            Reason::NotBound,
            format!("it is not bound: {}", phase.unwrap_or("it has no phase")),
        ),
    }
}

/// | phase | what holds | verdict |
/// |---|---|---|
/// | Succeeded, Failed | | Current |
/// | Running | Ready=True | Current |
/// | Running | a container waits in CrashLoopBackOff | Failed |
/// | Running | else | InProgress |
/// | Pending | PodScheduled=False, Unschedulable, younger than 15 s | InProgress |
/// | Pending | PodScheduled=False, Unschedulable | Failed |
/// | Pending | else | InProgress |
/// | none | | InProgress |
/// | any other | | an error |
fn pod(object: &Value, conditions: &Conditions<'_>, now: Timestamp) -> Result<Verdict, Malformed> {
    match text(object, "/status/phase").unwrap_or_default() {
        "Succeeded" => Ok(Verdict::current("it has run to its end")),
        "Failed" => Ok(Verdict::current("it has run to its end, and failed")),
        "Running" => running_pod(object, conditions),
        "Pending" => Ok(pending_pod(object, conditions, now)),
        "" => Ok(Verdict::in_progress(
            Reason::PodNotObserved,
            "it has no phase yet",
        )),
        _ => Err(Malformed::new("phase", "one of a pod's")),
    }
}

fn running_pod(object: &Value, conditions: &Conditions<'_>) -> Result<Verdict, Malformed> {
    if conditions.find("Ready", "True").is_some() {
        return Ok(Verdict::current("it runs and is ready"));
    }
    let containers = nested_list(object, ["status", "containerStatuses"])?;
    let crashing: Vec<&str> = containers.iter().filter_map(crashing).collect();
    if crashing.is_empty() {
        return Ok(Verdict::in_progress(
            Reason::PodRunningNotReady,
            "it runs and is not ready",
        ));
    }
    Ok(Verdict::failed(
        Reason::ContainerCrashLooping,
        format!("containers crash over and over: {}", crashing.join(", ")),
    ))
}

/// The name of a container that crashes over and over. The library panics over one that has not the form that
/// it expects; here it does not count.
fn crashing(container: &Value) -> Option<&str> {
    let name = container.get("name")?.as_str()?;
    (text(container, "/state/waiting/reason") == Some("CrashLoopBackOff")).then_some(name)
}

fn pending_pod(object: &Value, conditions: &Conditions<'_>, now: Timestamp) -> Verdict {
    let unscheduled = conditions.find("PodScheduled", "False");
    match unscheduled.filter(|condition| condition.reason == "Unschedulable") {
        None => Verdict::in_progress(Reason::PodPending, "it has not begun to run"),
        Some(_) if created::is_young(object, now) => {
            Verdict::in_progress(Reason::PodNotScheduled, "it has not been scheduled yet")
        }
        Some(condition) => Verdict::failed(
            Reason::PodUnschedulable,
            format!("it can't be scheduled: {}", condition.message),
        ),
    }
}

/// A deadline that passed is a failure whatever the condition's status. A failure to make pods is not looked
/// at. One that is scaled to zero needs its conditions all the same.
fn deployment(object: &Value, conditions: &Conditions<'_>) -> Verdict {
    let progressing = || conditions.iter().filter(|c| c.kind == "Progressing");
    if let Some(late) = progressing().find(|c| c.reason == "ProgressDeadlineExceeded") {
        return Verdict::failed(Reason::ProgressDeadlineExceeded, late.message);
    }
    let want = integer(object, "/spec/replicas").unwrap_or(1);
    let have = number(object, "/status/replicas");
    let updated = number(object, "/status/updatedReplicas");
    let available = number(object, "/status/availableReplicas");
    let ready = number(object, "/status/readyReplicas");
    let deadline = integer(object, "/spec/progressDeadlineSeconds").unwrap_or(NO_DEADLINE);
    let through = deadline == NO_DEADLINE
        || progressing().any(|c| c.status == "True" && c.reason == "NewReplicaSetAvailable");
    let says_available = conditions.find("Available", "True").is_some();
    short(Reason::LessReplicas, "replicas exist", have, want)
        .or_else(|| {
            short(
                Reason::LessUpdated,
                "replicas are up to date",
                updated,
                want,
            )
        })
        .or_else(|| extra(have, want))
        .or_else(|| {
            let what = "updated replicas are available";
            short(Reason::LessAvailable, what, available, updated)
        })
        .or_else(|| short(Reason::LessReady, "replicas are ready", ready, want))
        .or_else(|| {
            let message = "its new ReplicaSet is not available";
            (!through).then(|| Verdict::in_progress(Reason::ReplicaSetNotAvailable, message))
        })
        .or_else(|| {
            let message = "it does not say that it is available";
            (!says_available).then(|| Verdict::in_progress(Reason::DeploymentNotAvailable, message))
        })
        .unwrap_or_else(|| Verdict::current(format!("it is available, with {have} replicas")))
}

fn replica_set(object: &Value, conditions: &Conditions<'_>) -> Verdict {
    if let Some(failure) = conditions.find("ReplicaFailure", "True") {
        let message = format!("it can't make or delete its pods: {}", failure.message);
        return Verdict::in_progress(Reason::ReplicaFailure, message);
    }
    let want = integer(object, "/spec/replicas").unwrap_or(1);
    let have = number(object, "/status/replicas");
    let labelled = number(object, "/status/fullyLabeledReplicas");
    let available = number(object, "/status/availableReplicas");
    let ready = number(object, "/status/readyReplicas");
    short(
        Reason::LessLabelled,
        "replicas have all labels",
        labelled,
        want,
    )
    .or_else(|| {
        short(
            Reason::LessAvailable,
            "replicas are available",
            available,
            want,
        )
    })
    .or_else(|| short(Reason::LessReady, "replicas are ready", ready, want))
    .or_else(|| extra(have, want))
    .unwrap_or_else(|| Verdict::current(format!("it is available, with {have} replicas")))
}

/// Never Failed. One whose pods are updated by hand is Current; one with a partition does not need the
/// revisions to agree, and a partition of 0 is one, but -1 is none.
fn stateful_set(object: &Value) -> Verdict {
    if text(object, "/spec/updateStrategy/type") == Some("OnDelete") {
        return Verdict::current("its pods are updated when they are deleted");
    }
    let want = integer(object, "/spec/replicas").unwrap_or(1);
    let have = number(object, "/status/replicas");
    let ready = number(object, "/status/readyReplicas");
    let current = number(object, "/status/currentReplicas");
    let updated = number(object, "/status/updatedReplicas");
    let partition = integer(object, "/spec/updateStrategy/rollingUpdate/partition");
    let scaling = short(Reason::LessReplicas, "replicas exist", have, want)
        .or_else(|| short(Reason::LessReady, "replicas are ready", ready, want))
        .or_else(|| extra(have, want));
    if let Some(verdict) = scaling {
        return verdict;
    }
    if let Some(partition) = partition.filter(|partition| *partition != -1) {
        let behind = want.wrapping_sub(partition);
        let what = "replicas behind the partition are up to date";
        return short(Reason::PartitionRollout, what, updated, behind)
            .unwrap_or_else(|| Verdict::current("all behind the partition are up to date"));
    }
    let revision = |pointer| text(object, pointer).unwrap_or_default();
    let settled = revision("/status/currentRevision") == revision("/status/updateRevision");
    short(Reason::LessCurrent, "replicas are current", current, want)
        .or_else(|| {
            let message = "its update is not over";
            (!settled).then(|| Verdict::in_progress(Reason::RevisionMismatch, message))
        })
        .unwrap_or_else(|| Verdict::current(format!("{have} replicas are as they should be")))
}

/// One whose pods are updated by hand has to have them all updated, too. A desired number of -1 is none.
fn daemon_set(object: &Value) -> Verdict {
    if integer(object, "/metadata/generation").is_none() {
        return Verdict::in_progress(Reason::NoGeneration, "it has no generation");
    }
    if integer(object, "/status/observedGeneration").is_none() {
        let message = "its controller has not seen it yet";
        return Verdict::in_progress(Reason::NoObservedGeneration, message);
    }
    let desired = integer(object, "/status/desiredNumberScheduled");
    let Some(want) = desired.filter(|desired| *desired != -1) else {
        let message = "its controller has not counted nodes yet";
        return Verdict::in_progress(Reason::NoDesiredNumber, message);
    };
    let count = |pointer| number(object, pointer);
    let current = count("/status/currentNumberScheduled");
    let updated = count("/status/updatedNumberScheduled");
    let available = count("/status/numberAvailable");
    let ready = count("/status/numberReady");
    short(Reason::LessCurrent, "pods are scheduled", current, want)
        .or_else(|| short(Reason::LessUpdated, "pods are up to date", updated, want))
        .or_else(|| short(Reason::LessAvailable, "pods are available", available, want))
        .or_else(|| short(Reason::LessReady, "pods are ready", ready, want))
        .unwrap_or_else(|| Verdict::current(format!("all {want} pods are ready")))
}

/// One that runs is Current.
fn job(object: &Value, conditions: &Conditions<'_>) -> Verdict {
    let ended = conditions
        .iter()
        .find(|c| c.status == "True" && ["Complete", "Failed"].contains(&c.kind));
    match ended {
        Some(c) if c.kind == "Complete" => Verdict::current("it is complete"),
        Some(c) => Verdict::failed(Reason::JobFailed, format!("it failed: {}", c.message)),
        None if text(object, "/status/startTime")
            .unwrap_or_default()
            .is_empty() =>
        {
            Verdict::in_progress(Reason::JobNotStarted, "it has not begun")
        }
        None => Verdict::current("it runs"),
    }
}

/// In the order of the list: names that are refused behind Established=True are not seen.
fn definition(conditions: &Conditions<'_>) -> Verdict {
    let decided = conditions.iter().find_map(|c| match (c.kind, c.status) {
        ("NamesAccepted", "False") => Some(Verdict::failed(c.reported(), c.message)),
        ("Established", "False") if c.reason != "Installing" => {
            Some(Verdict::failed(c.reported(), c.message))
        }
        ("Established", "True") => Some(Verdict::current("it is established")),
        _ => None,
    });
    let waiting = || Verdict::in_progress(Reason::Installing, "it is not established yet");
    decided.unwrap_or_else(waiting)
}
