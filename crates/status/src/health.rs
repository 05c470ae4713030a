//! Health: kstatus, with the places where it is too kind named and overruled.
//!
//! kstatus calls a Job that still runs Current, and a pod that failed, and a load balancer without an address.
//! That is the convention, and [`kstatus::compute`] keeps to it to the letter. Who rolls something out wants to
//! know more: [`assess`] asks kstatus first, and then the [`Override`]s, each with its name in the answer.
//!
//! # How this stands to the availability of placements
//!
//! The API has rules of its own for when an object on a member is available; they are in `availability.rs` of
//! `crates/member`, and decide for the kinds that they know. All others they call NotTrackable, which is
//! Available=True after a while; among them Jobs, pods, claims and all custom resources. Health does not change
//! that contract, and is not asked there yet: it is what judges these kinds where somebody wants more than "it
//! was applied". A kind that both know may stand differently with them: a Deployment with a replica too many is
//! available, and not yet Current.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

use crate::kstatus::{self, Conditions, Reason, Status, Verdict, group_kind, integer, text};

/// Where kstatus is overruled. The first that applies decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Override {
    /// A Job is Current when it is complete, not while it runs.
    JobMustComplete,
    /// A pod that ran to its end and failed is Failed.
    PodFailed,
    /// A Service of type LoadBalancer is InProgress until it has an address.
    LoadBalancerAddress,
    /// A claim that lost its volume is Failed: it does not come back by itself.
    ClaimLost,
    /// One of our own kinds (`*.windlass.dev`) that says Degraded=True is Failed.
    Degraded,
    /// A custom resource whose Ready or Available condition is of an older generation than the object is
    /// InProgress: that condition speaks of something else.
    StaleCondition,
    /// A custom resource without a Ready condition that says Available=False or Unknown is InProgress.
    NotAvailable,
}

impl Override {
    /// All of them, in the order in which they are asked.
    pub const ALL: [Self; 7] = [
        Self::JobMustComplete,
        Self::PodFailed,
        Self::LoadBalancerAddress,
        Self::ClaimLost,
        Self::Degraded,
        Self::StaleCondition,
        Self::NotAvailable,
    ];

    /// Its name, which is also the reason that it gives where the object gives none.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::JobMustComplete => "JobNotComplete",
            Self::PodFailed => "PodFailed",
            Self::LoadBalancerAddress => "NoLoadBalancerAddress",
            Self::ClaimLost => "ClaimLost",
            Self::Degraded => "Degraded",
            Self::StaleCondition => "StaleCondition",
            Self::NotAvailable => "NotAvailable",
        }
    }
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How healthy an object is, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// How it stands.
    pub verdict: Verdict,
    /// What overruled kstatus; none where its verdict stands.
    pub by: Option<Override>,
}

impl Health {
    /// Why it is in progress or failed, in one word; empty where nothing is given.
    #[must_use]
    pub fn reason(&self) -> &str {
        let own = self.verdict.reason.as_ref().map_or("", Reason::as_str);
        match self.by {
            Some(by) if own.is_empty() => by.as_str(),
            _ => own,
        }
    }
}

/// Says how healthy an object is. An override is asked only where it can be right: never of an object that is
/// being deleted, that can't be read, that failed, or whose controller has not seen its latest generation.
///
/// `object` and `now` are those of [`kstatus::compute`].
#[must_use]
pub fn assess(object: &Value, now: Timestamp) -> Health {
    let verdict = kstatus::compute(object, now);
    match overrule(object, &verdict) {
        Some((by, verdict)) => Health {
            verdict,
            by: Some(by),
        },
        None => Health { verdict, by: None },
    }
}

fn overrule(object: &Value, verdict: &Verdict) -> Option<(Override, Verdict)> {
    let is_open = matches!(verdict.status, Status::Current | Status::InProgress)
        && verdict.reason != Some(Reason::LatestGenerationNotObserved);
    if !is_open {
        return None;
    }
    // What could be read once can be read again.
    let conditions = Conditions::of(object).unwrap_or_default();
    Override::ALL.into_iter().find_map(|by| {
        let overruled = match by {
            Override::JobMustComplete => job(object, verdict, &conditions),
            Override::PodFailed => pod(object, verdict),
            Override::LoadBalancerAddress => load_balancer(object, verdict),
            Override::ClaimLost => claim(object, verdict),
            Override::Degraded => degraded(object, &conditions),
            Override::StaleCondition => stale(object, verdict),
            Override::NotAvailable => unavailable(object, verdict, &conditions),
        };
        overruled.map(|verdict| (by, verdict))
    })
}

/// A verdict of InProgress whose reason is that of its override.
fn waiting(message: impl Into<String>) -> Verdict {
    Verdict::in_progress(Reason::Reported(String::new()), message)
}

/// A verdict of Failed whose reason is that of its override.
fn broken(message: impl Into<String>) -> Verdict {
    Verdict::failed(Reason::Reported(String::new()), message)
}

fn is_current(verdict: &Verdict) -> bool {
    verdict.status == Status::Current
}

fn job(object: &Value, verdict: &Verdict, conditions: &Conditions<'_>) -> Option<Verdict> {
    let runs = group_kind(object) == ("batch", "Job")
        && is_current(verdict)
        && conditions.find("Complete", "True").is_none();
    runs.then(|| waiting("it runs, and is not complete"))
}

fn pod(object: &Value, verdict: &Verdict) -> Option<Verdict> {
    let failed = group_kind(object) == ("", "Pod")
        && is_current(verdict)
        && text(object, "/status/phase") == Some("Failed");
    failed.then(|| match text(object, "/status/message") {
        Some(why) => broken(format!("it has failed: {why}")),
        None => broken("it has failed"),
    })
}

fn load_balancer(object: &Value, verdict: &Verdict) -> Option<Verdict> {
    let is_balancer = group_kind(object) == ("", "Service")
        && is_current(verdict)
        && text(object, "/spec/type") == Some("LoadBalancer");
    let ingress = object.pointer("/status/loadBalancer/ingress");
    let addresses = ingress.and_then(Value::as_array).into_iter().flatten();
    let has_address = addresses
        .flat_map(|one| [one.get("ip"), one.get("hostname")])
        .any(|address| {
            address
                .and_then(Value::as_str)
                .is_some_and(|a| !a.is_empty())
        });
    (is_balancer && !has_address).then(|| waiting("its load balancer has no address yet"))
}

fn claim(object: &Value, verdict: &Verdict) -> Option<Verdict> {
    let lost = group_kind(object) == ("", "PersistentVolumeClaim")
        && verdict.reason == Some(Reason::NotBound)
        && text(object, "/status/phase") == Some("Lost");
    lost.then(|| broken("it has lost its volume"))
}

fn degraded(object: &Value, conditions: &Conditions<'_>) -> Option<Verdict> {
    if !is_ours(group_kind(object).0) {
        return None;
    }
    let degraded = conditions.find("Degraded", "True")?;
    Some(Verdict::failed(degraded.reported(), degraded.message))
}

/// Only a verdict of Current is overruled: what already says that it is not ready needs no second reason.
fn stale(object: &Value, verdict: &Verdict) -> Option<Verdict> {
    if !is_custom(group_kind(object).0) || !is_current(verdict) {
        return None;
    }
    let generation = integer(object, "/metadata/generation")?;
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let stale = conditions.iter().find_map(|condition| {
        let kind = text(condition, "/type").filter(|kind| ["Ready", "Available"].contains(kind))?;
        let of = integer(condition, "/observedGeneration").filter(|of| *of < generation)?;
        Some((kind, of))
    });
    stale.map(|(kind, of)| {
        waiting(format!(
            "{kind} is of generation {of}, and the latest is {generation}"
        ))
    })
}

fn unavailable(object: &Value, verdict: &Verdict, conditions: &Conditions<'_>) -> Option<Verdict> {
    let is_asked = is_custom(group_kind(object).0)
        && is_current(verdict)
        && conditions.iter().all(|condition| condition.kind != "Ready");
    let available = conditions
        .iter()
        .find(|condition| condition.kind == "Available")
        .filter(|condition| ["False", "Unknown"].contains(&condition.status))?;
    is_asked.then(|| Verdict::in_progress(available.reported(), available.message))
}

/// Whether a group is of the kinds of this project.
fn is_ours(group: &str) -> bool {
    group == "windlass.dev" || group.ends_with(".windlass.dev")
}

/// Whether a group is not one that the API server itself serves: those have no dot, or are listed. Others that
/// end in `.k8s.io`, such as the Gateway API's, come from CRDs.
fn is_custom(group: &str) -> bool {
    let served = group.strip_suffix(".k8s.io");
    group.contains('.') && !served.is_some_and(|group| SERVED.contains(&group))
}

/// Groups that the API server serves (Kubernetes 1.36), without `.k8s.io`.
const SERVED: [&str; 18] = [
    "admissionregistration",
    "apiextensions",
    "apiregistration",
    "authentication",
    "authorization",
    "certificates",
    "coordination",
    "discovery",
    "events",
    "flowcontrol.apiserver",
    "internal.apiserver",
    "networking",
    "node",
    "rbac.authorization",
    "resource",
    "scheduling",
    "storage",
    "storagemigration",
];
