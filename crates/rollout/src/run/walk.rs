//! One pass over the clusters of a stage, forward or back.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use windlass_api::binding::{BindingSpec, BindingState};
use windlass_api::conditions::{RunCondition, RunReason, Status};
use windlass_api::run::{ClusterStatus, FailureThreshold, StageStatus};
use windlass_status::ready::Readiness;

use super::stamp::{self, Stamp};
use super::threshold::{Judgement, judge, said};
use super::view::{RunBinding, RunPlan, RunView, Version, is_fresh};

/// A cluster that takes longer is told of (hub §3.9).
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// Within so long a delivery that failed is tried again.
const TRIED_AGAIN: SignedDuration = SignedDuration::from_secs(65);

/// The clusters of a placement as a run sees them.
pub struct Clusters<'a> {
    bindings: BTreeMap<&'a str, &'a RunBinding<'a>>,
    members: BTreeSet<&'a str>,
    selected: &'a BTreeSet<&'a str>,
    is_settled: bool,
}

/// Where a cluster stands.
pub enum Place<'a> {
    /// It has a binding.
    Bound(&'a RunBinding<'a>),
    /// It is to get one.
    Coming,
    /// It doesn't take part any more, for this reason.
    Out(RunReason, &'static str),
}

impl<'a> Clusters<'a> {
    /// Reads a view. Of two bindings of one cluster it is the one that is rolled out, whatever their order.
    pub fn new(view: &RunView<'a>) -> Self {
        let mut bindings: BTreeMap<&str, &RunBinding<'a>> = BTreeMap::new();
        let live = view
            .bindings
            .iter()
            .filter(|binding| !binding.deleting && binding.spec.state != BindingState::Unscheduled);
        let order = |binding: &RunBinding<'a>| {
            let is_bound = binding.spec.state == BindingState::Bound;
            (!is_bound, binding.name)
        };
        for binding in live {
            let first = bindings
                .entry(binding.spec.target_cluster.as_str())
                .or_insert(binding);
            if order(binding) < order(first) {
                *first = binding;
            }
        }
        Self {
            bindings,
            members: view.members.iter().map(|member| member.name).collect(),
            selected: view.selected,
            is_settled: view.is_settled,
        }
    }

    /// Where a cluster stands.
    pub fn place(&self, cluster: &str) -> Place<'a> {
        if !self.is_member(cluster) {
            return Place::Out(
                RunReason::ClusterLeft,
                "The cluster has left the fleet, or is leaving it",
            );
        }
        if self.is_settled && !self.selected.contains(cluster) {
            return Place::Out(
                RunReason::ClusterNotSelected,
                "The placement no longer chooses the cluster",
            );
        }
        self.bindings
            .get(cluster)
            .map_or(Place::Coming, |binding| Place::Bound(binding))
    }

    /// Whether a cluster is in the fleet, and doesn't leave it.
    pub fn is_member(&self, cluster: &str) -> bool {
        self.members.contains(cluster)
    }

    /// The binding of a cluster, if it asks for nothing yet.
    pub fn bare(&self, cluster: &str) -> Option<&'a RunBinding<'a>> {
        let binding = self.bindings.get(cluster).copied();
        binding.filter(|binding| is_fresh(binding.spec))
    }

    /// Whether a cluster has a binding that is to stay.
    pub fn is_bound(&self, cluster: &str) -> bool {
        self.bindings.contains_key(cluster)
    }
}

/// What a walk goes by.
pub struct Walk<'a> {
    /// The clusters.
    pub clusters: &'a Clusters<'a>,
    /// Conditions get these.
    pub stamp: Stamp,
    /// How many clusters may be under way at once.
    pub limit: usize,
    /// Whether another cluster may be begun with.
    pub may_begin: bool,
    /// What counts as failed.
    pub threshold: Option<&'a FailureThreshold>,
    /// Whether it leads to what the run brings. On the way back a cluster that can't be reached holds no place
    /// among those under way: it keeps no other one on a version that has failed.
    pub is_forward: bool,
    /// How long a message about one cluster may be, in bytes of JSON.
    pub longest: usize,
}

/// Which way a walk leads.
pub trait Way {
    /// What a cluster is to get.
    fn version<'a>(&'a self, cluster: &'a ClusterStatus) -> Version<'a>;
    /// A cluster is begun with that has this now. Why it must not be, if so.
    fn begin(&self, cluster: &mut ClusterStatus, has: &BindingSpec) -> Result<(), &'static str>;
    /// Whether a cluster that was begun with, and doesn't have its version, was never written to, or has got
    /// a new binding since; otherwise somebody has changed it.
    fn is_unwritten(&self, cluster: &ClusterStatus, binding: &RunBinding<'_>) -> bool;
}

/// What a walk found.
#[derive(Debug, Default)]
pub struct Found {
    /// Clusters that are neither done nor failed nor skipped.
    pub unfinished: usize,
    /// Those of them that were begun with.
    pub under_way: usize,
    /// Those that can't be reached and hold no place.
    pub unreachable: usize,
    /// Clusters that are to get a binding first.
    pub coming: Vec<String>,
    /// Clusters that have failed, in order.
    pub failed: Vec<String>,
    /// Clusters under way for too long, and why.
    pub stuck: Vec<(String, String)>,
    /// A cluster that somebody else has changed, and what to say of it.
    pub changed: Option<(String, String)>,
}

/// Looks at the clusters of a stage that were begun with.
pub fn go_on(walk: &Walk<'_>, way: &dyn Way, stage: &mut StageStatus, plan: &mut RunPlan) -> Found {
    let mut found = Found::default();
    for cluster in &mut stage.clusters {
        if is_open(cluster) && is_started(cluster) {
            follow(walk, way, cluster, plan, &mut found);
        }
    }
    let failed = stage.clusters.iter().filter(|cluster| has_failed(cluster));
    found.failed = failed.map(|cluster| cluster.cluster_name.clone()).collect();
    found
}

/// Begins with as many others as may be under way, in order. Comes after [`go_on`]: whoever was begun with
/// holds a place, wherever in the order it stands, and what is found out about it may end the run.
pub fn begin(
    walk: &Walk<'_>,
    way: &dyn Way,
    stage: &mut StageStatus,
    plan: &mut RunPlan,
    found: &mut Found,
) {
    for cluster in &mut stage.clusters {
        if is_open(cluster) && !is_started(cluster) {
            begin_with(walk, way, cluster, plan, found);
            if is_started(cluster) {
                let now = windlass_status::conditions::time(walk.stamp.now);
                stage.start_time.get_or_insert(now);
            }
        }
    }
}

/// A cluster that was begun with before.
fn follow(
    walk: &Walk<'_>,
    way: &dyn Way,
    cluster: &mut ClusterStatus,
    plan: &mut RunPlan,
    found: &mut Found,
) {
    let binding = match walk.clusters.place(&cluster.cluster_name) {
        Place::Out(reason, message) => return skip(walk, cluster, reason, message),
        Place::Coming => {
            found.unfinished += 1;
            found.under_way += 1;
            in_reach(walk, cluster, Some(RunReason::BindingMissing));
            return note_time(walk.stamp, cluster, "it has no binding", plan, found);
        }
        Place::Bound(binding) => binding,
    };
    let version = way.version(cluster);
    if !version.is_asked_by(binding.spec) {
        if !way.is_unwritten(cluster, binding) {
            let message = format!(
                "Binding {} was changed by somebody else while the run was updating the cluster",
                binding.name
            );
            fail(walk, cluster, &message);
            found
                .changed
                .get_or_insert((cluster.cluster_name.clone(), message));
            return;
        }
        plan.moves.push(version.to_move(binding));
        found.unfinished += 1;
        found.under_way += 1;
        in_reach(walk, cluster, Some(RunReason::BindingUnwritten));
        return note_time(
            walk.stamp,
            cluster,
            "its binding is yet to be written",
            plan,
            found,
        );
    }
    if binding.unheard {
        found.unfinished += 1;
        found.under_way += 1;
        let why = "nothing was heard of it yet since the hub has started";
        return note_time(walk.stamp, cluster, why, plan, found);
    }
    let since = in_reach(walk, cluster, out_of_reach(binding));
    let mut judged = judge(binding, walk.threshold, since, walk.stamp.now);
    if walk.is_forward {
        judged = give_time(cluster, judged, since, walk.stamp.now);
    }
    match judged {
        Judgement::Done => succeed(walk, cluster),
        Judgement::Failed(why) => fail(walk, cluster, &why),
        Judgement::Going(at) => {
            found.unfinished += 1;
            if walk.is_forward || binding.readiness != Readiness::Unreachable {
                found.under_way += 1;
            } else {
                found.unreachable += 1;
            }
            at.into_iter().for_each(|at| plan.wake(at));
            note_time(walk.stamp, cluster, said(binding), plan, found);
        }
    }
}

/// One that had the version before the run and failed with it is tried again within a minute: what it said
/// before that is no news about the run.
fn give_time(
    cluster: &ClusterStatus,
    judged: Judgement,
    since: Timestamp,
    now: Timestamp,
) -> Judgement {
    let until = since.checked_add(TRIED_AGAIN).unwrap_or(Timestamp::MAX);
    match judged {
        Judgement::Failed(_) if cluster.previous.is_none() && until > now => {
            Judgement::Going(Some(until))
        }
        other => other,
    }
}

/// Notes what keeps a cluster from what the run brings, if something does. Since when nothing does: other time
/// is not held against it.
fn in_reach(walk: &Walk<'_>, cluster: &mut ClusterStatus, out: Option<RunReason>) -> Timestamp {
    let list = &mut cluster.conditions;
    let begun = stamp::since(list, RunCondition::Started).unwrap_or(walk.stamp.now);
    let (how, reason) = match out {
        Some(reason) => (Status::False, reason),
        None if stamp::find(list, RunCondition::InReach).is_none() => return begun,
        None => (Status::True, RunReason::ClusterInReach),
    };
    walk.stamp.set(list, RunCondition::InReach, how, reason, "");
    stamp::since(list, RunCondition::InReach).map_or(begun, |since| since.max(begun))
}

fn out_of_reach(binding: &RunBinding<'_>) -> Option<RunReason> {
    (binding.readiness == Readiness::Unreachable).then_some(RunReason::ClusterUnreachable)
}

/// A cluster that was not begun with.
fn begin_with(
    walk: &Walk<'_>,
    way: &dyn Way,
    cluster: &mut ClusterStatus,
    plan: &mut RunPlan,
    found: &mut Found,
) {
    let binding = match walk.clusters.place(&cluster.cluster_name) {
        Place::Out(reason, message) => return skip(walk, cluster, reason, message),
        Place::Coming => {
            found.unfinished += 1;
            found.coming.push(cluster.cluster_name.clone());
            return;
        }
        Place::Bound(binding) => binding,
    };
    let has = way.version(cluster).is_asked_by(binding.spec);
    let now = walk.stamp.now;
    if has && walk.may_begin && judge(binding, None, now, now) == Judgement::Done {
        start(walk, cluster);
        return succeed(walk, cluster);
    }
    if !walk.is_forward && binding.readiness == Readiness::Unreachable {
        found.unfinished += 1;
        found.unreachable += 1;
        return;
    }
    if !walk.may_begin || found.under_way >= walk.limit {
        found.unfinished += 1;
        return;
    }
    if !has {
        if let Err(why) = way.begin(cluster, binding.spec) {
            return skip(walk, cluster, RunReason::ClusterChangedByOthers, why);
        }
        plan.moves.push(way.version(cluster).to_move(binding));
    } else if let Readiness::Failed(_) = binding.readiness {
        // It has failed with that already, and nothing more may be heard of it.
        plan.wake(now.checked_add(TRIED_AGAIN).unwrap_or(Timestamp::MAX));
    }
    start(walk, cluster);
    in_reach(walk, cluster, out_of_reach(binding));
    found.unfinished += 1;
    found.under_way += 1;
    plan.wake(stuck_at(now));
}

/// Notes that a cluster takes its time, or when it will have.
pub fn note_time(
    stamp: Stamp,
    cluster: &ClusterStatus,
    why: &str,
    plan: &mut RunPlan,
    found: &mut Found,
) {
    let since = stamp::since(&cluster.conditions, RunCondition::Started).unwrap_or(stamp.now);
    let at = stuck_at(since);
    if at <= stamp.now {
        let stuck = (cluster.cluster_name.clone(), why.to_owned());
        found.stuck.push(stuck);
    } else {
        plan.wake(at);
    }
}

fn stuck_at(since: Timestamp) -> Timestamp {
    since.checked_add(STUCK_AFTER).unwrap_or(Timestamp::MAX)
}

/// Whether a cluster was begun with.
pub fn is_started(cluster: &ClusterStatus) -> bool {
    stamp::is(&cluster.conditions, RunCondition::Started)
}

/// Whether a cluster is neither done nor failed nor skipped.
pub fn is_open(cluster: &ClusterStatus) -> bool {
    stamp::find(&cluster.conditions, RunCondition::Succeeded).is_none() && !is_skipped(cluster)
}

/// Whether a cluster was passed over.
pub fn is_skipped(cluster: &ClusterStatus) -> bool {
    stamp::is(&cluster.conditions, RunCondition::Skipped)
}

/// Whether a cluster has got what the run brings.
pub fn is_done(cluster: &ClusterStatus) -> bool {
    stamp::is(&cluster.conditions, RunCondition::Succeeded)
}

/// Whether a cluster has failed.
pub fn has_failed(cluster: &ClusterStatus) -> bool {
    stamp::status(&cluster.conditions, RunCondition::Succeeded) == Some(Status::False)
}

/// When a cluster was done, failed or skipped.
pub fn finished_at(cluster: &ClusterStatus) -> Option<Timestamp> {
    stamp::since(&cluster.conditions, RunCondition::Succeeded)
        .max(stamp::since(&cluster.conditions, RunCondition::Skipped))
}

fn start(walk: &Walk<'_>, cluster: &mut ClusterStatus) {
    walk.stamp.set(
        &mut cluster.conditions,
        RunCondition::Started,
        Status::True,
        RunReason::ClusterUpdatingStarted,
        "",
    );
}

fn succeed(walk: &Walk<'_>, cluster: &mut ClusterStatus) {
    stamp::remove(&mut cluster.conditions, RunCondition::InReach);
    walk.stamp.set(
        &mut cluster.conditions,
        RunCondition::Succeeded,
        Status::True,
        RunReason::ClusterUpdatingSucceeded,
        "",
    );
}

fn fail(walk: &Walk<'_>, cluster: &mut ClusterStatus, why: &str) {
    stamp::remove(&mut cluster.conditions, RunCondition::InReach);
    walk.stamp.set(
        &mut cluster.conditions,
        RunCondition::Succeeded,
        Status::False,
        RunReason::ClusterUpdatingFailed,
        short(why, walk.longest),
    );
}

/// Passes a cluster over.
fn skip(walk: &Walk<'_>, cluster: &mut ClusterStatus, reason: RunReason, message: &str) {
    stamp::remove(&mut cluster.conditions, RunCondition::InReach);
    walk.stamp.set(
        &mut cluster.conditions,
        RunCondition::Skipped,
        Status::True,
        reason,
        message,
    );
}

/// Cuts a text to what takes so many bytes in JSON.
fn short(text: &str, longest: usize) -> String {
    let mut taken = 0;
    for (at, letter) in text.char_indices() {
        taken += match letter {
            '"' | '\\' => 2,
            letter if letter.is_control() => 6,
            letter => letter.len_utf8(),
        };
        if taken > longest {
            return format!("{}…", &text[..at]);
        }
    }
    text.to_owned()
}
