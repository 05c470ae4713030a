//! The way back of a run on which too many clusters have failed: those that it moved get what they had, in
//! reverse order, under the same concurrency, each recorded. A way back that fails stops, and says so.

use std::collections::BTreeMap;

use windlass_api::binding::BindingSpec;
use windlass_api::conditions::{RunCondition, RunReason, Status};
use windlass_api::run::{
    ClusterStatus, FailureKind, FailureThreshold, StageStatus, UpdateRunStatus,
};

use super::advance::{NAMED, Pass, Verdict};
use super::room;
use super::stage::{fail_stage, finish, limit_of, under_way};
use super::stamp::{self, Stamp};
use super::view::{RunBinding, RunPlan, Version, is_fresh};
use super::walk::{self, Found, Walk, Way};

/// Records the way back.
pub fn begin(pass: &Pass<'_>, status: &mut UpdateRunStatus, why: &str) {
    let stages = status.stages_status.as_deref().unwrap_or_default();
    let back = stages.iter().rev().filter_map(|stage| {
        let moved = stage.clusters.iter().filter(|c| c.previous.is_some());
        let clusters: Vec<ClusterStatus> =
            moved.rev().map(|cluster| way_back(pass, cluster)).collect();
        (!clusters.is_empty()).then(|| StageStatus {
            stage_name: stage.stage_name.clone(),
            clusters,
            ..StageStatus::default()
        })
    });
    status.rollback_status = Some(back.collect());
    let list = &mut status.conditions;
    let reason = RunReason::UpdateRunRollingBack;
    pass.stamp
        .set(list, RunCondition::RolledBack, Status::Unknown, reason, why);
}

fn way_back(pass: &Pass<'_>, cluster: &ClusterStatus) -> ClusterStatus {
    let previous = cluster.previous.clone().unwrap_or_default();
    let mut entry = ClusterStatus {
        cluster_name: cluster.cluster_name.clone(),
        resource_override_snapshots: previous.resource_override_snapshots.clone(),
        cluster_resource_override_snapshots: previous.cluster_resource_override_snapshots.clone(),
        ..ClusterStatus::default()
    };
    if previous.resource_snapshot_name.is_none() {
        let message = "The cluster had no version before this run, and keeps the one that it has";
        pass.stamp.set(
            &mut entry.conditions,
            RunCondition::Skipped,
            Status::True,
            RunReason::NothingToGoBackTo,
            message,
        );
    }
    entry
}

/// Where each cluster comes from and goes to.
struct Back<'a> {
    pass: &'a Pass<'a>,
    /// What the way there says of the clusters that go back.
    there: BTreeMap<&'a str, &'a ClusterStatus>,
}

impl<'a> Back<'a> {
    fn new(pass: &'a Pass<'a>, stages: &'a [StageStatus]) -> Self {
        let clusters = stages.iter().flat_map(|stage| &stage.clusters);
        let moved = clusters.filter(|cluster| cluster.previous.is_some());
        Self {
            pass,
            there: moved.map(|c| (c.cluster_name.as_str(), c)).collect(),
        }
    }

    fn is_from(&self, cluster: &ClusterStatus, has: &BindingSpec) -> bool {
        let there = self.there.get(cluster.cluster_name.as_str());
        is_fresh(has) || there.is_some_and(|there| self.brought(there).is_asked_by(has))
    }

    fn brought<'b>(&'b self, cluster: &'b ClusterStatus) -> Version<'b> {
        Version::of_run(&self.pass.snapshot, &self.pass.apply, cluster)
    }
}

impl Way for Back<'_> {
    fn version<'b>(&'b self, cluster: &'b ClusterStatus) -> Version<'b> {
        let there = self.there.get(cluster.cluster_name.as_str());
        let previous = there.and_then(|there| there.previous.as_ref());
        previous
            .and_then(|previous| Version::back(previous, &self.pass.apply))
            // Whoever had nothing is passed over, so nobody gets here.
            .unwrap_or_else(|| self.brought(cluster))
    }

    fn begin(&self, cluster: &mut ClusterStatus, has: &BindingSpec) -> Result<(), &'static str> {
        if self.is_from(cluster, has) {
            return Ok(());
        }
        Err("Somebody else has changed the cluster's binding since; it stays as it is")
    }

    fn is_unwritten(&self, cluster: &ClusterStatus, binding: &RunBinding<'_>) -> bool {
        self.is_from(cluster, binding.spec)
    }
}

/// The next step back.
pub fn step(pass: &Pass<'_>, status: &mut UpdateRunStatus, plan: &mut RunPlan) -> Verdict {
    let why = stamp::find(&status.conditions, RunCondition::RolledBack)
        .map(|condition| condition.message.clone())
        .unwrap_or_default();
    let stages = status.stages_status.as_deref().unwrap_or_default();
    let back = Back::new(pass, stages);
    let mut verdict = Verdict::Done;
    let mut cut_off = None;
    for stage in status.rollback_status.iter_mut().flatten() {
        if !stamp::is(&stage.conditions, RunCondition::Succeeded) {
            let size = stages
                .iter()
                .find(|there| there.stage_name == stage.stage_name)
                .map_or(0, |there| there.clusters.len());
            verdict = one(&back, size, stage, plan);
        }
        if let Verdict::Moving { found, .. } = &verdict
            && found.unfinished == found.unreachable
        {
            let waits = std::mem::replace(&mut verdict, Verdict::Done);
            cut_off.get_or_insert(waits);
        }
        if !matches!(verdict, Verdict::Done) {
            break;
        }
    }
    if let (Verdict::Done, Some(waits)) = (&verdict, cut_off) {
        return waits;
    }
    let (how, reason, message) = match verdict {
        Verdict::Done => (
            Status::True,
            RunReason::UpdateRunRolledBack,
            format!("{why}; {}", outcome(status)),
        ),
        Verdict::Failed(trouble) => (
            Status::False,
            RunReason::UpdateRunRollbackFailed,
            format!("{why}; going back has failed, too: {trouble}"),
        ),
        other => return other,
    };
    let list = &mut status.conditions;
    pass.stamp
        .set(list, RunCondition::RolledBack, how, reason, &message);
    Verdict::Failed(message)
}

/// What the way back has come to.
fn outcome(status: &UpdateRunStatus) -> String {
    let stages = status.rollback_status.iter().flatten();
    let all = stages.flat_map(|stage| &stage.clusters);
    let (skipped, back): (Vec<_>, Vec<_>) = all.partition(|cluster| walk::is_skipped(cluster));
    let mut text = format!("{} cluster(s) are back where they were", back.len());
    if !skipped.is_empty() {
        let named = skipped.iter().take(NAMED).map(|c| c.cluster_name.as_str());
        let more = if skipped.len() > NAMED { ", ..." } else { "" };
        text += &format!(
            ", {} were passed over: {}{more}",
            skipped.len(),
            named.collect::<Vec<_>>().join(", ")
        );
    }
    text
}

/// A way back that is not gone to its end because the run ends.
pub fn break_off(stamp: Stamp, status: &mut UpdateRunStatus, why: &str) {
    let list = &mut status.conditions;
    let Some(open) = stamp::find(list, RunCondition::RolledBack)
        .filter(|condition| condition.status == Status::Unknown.as_str())
    else {
        return;
    };
    let message = format!("{}; going back was broken off: {why}", open.message);
    let reason = RunReason::UpdateRunRollbackFailed;
    let type_ = RunCondition::RolledBack;
    stamp.set(list, type_, Status::False, reason, message);
}

/// The next step back in one stage, which has `size` clusters.
fn one(back: &Back<'_>, size: usize, stage: &mut StageStatus, plan: &mut RunPlan) -> Verdict {
    let pass = back.pass;
    let mut configs = pass.stages.iter();
    let config = configs.find(|config| config.name == stage.stage_name);
    let failures = FailureThreshold {
        count: Some(vec![FailureKind::ApplyFailed, FailureKind::Timeout]),
        ..FailureThreshold::default()
    };
    let walk = Walk {
        clusters: &pass.clusters,
        stamp: pass.stamp,
        limit: config
            .and_then(|config| limit_of(config, size))
            .unwrap_or(1),
        may_begin: pass.may_begin,
        is_forward: false,
        threshold: Some(&failures),
        longest: room::message_of(pass.total),
    };
    let mut found = walk::go_on(&walk, back, stage, plan);
    if let Some(why) = trouble(stage, &found) {
        plan.moves.clear();
        fail_stage(pass.stamp, stage, &why);
        return Verdict::Failed(format!("stage {}, {why}", stage.stage_name));
    }
    walk::begin(&walk, back, stage, plan, &mut found);
    if found.unfinished == 0 {
        finish(pass.stamp, stage, RunReason::StageUpdatingSucceeded, "");
        return Verdict::Done;
    }
    under_way(pass, stage, found, "Clusters go back to what they had")
}

/// What keeps clusters from going back, if something does.
fn trouble(stage: &StageStatus, found: &Found) -> Option<String> {
    if let Some((cluster, why)) = &found.changed {
        return Some(format!("cluster {cluster}: {why}"));
    }
    let first = found.failed.first()?;
    let cluster = stage.clusters.iter().find(|c| c.cluster_name == *first);
    let condition = cluster.and_then(|c| stamp::find(&c.conditions, RunCondition::Succeeded));
    let why = condition.map_or("", |condition| condition.message.as_str());
    Some(format!("cluster {first}: {why}"))
}
