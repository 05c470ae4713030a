//! The way back of a run on which too many clusters have failed: those that it moved get what they had, in
//! reverse order, under the same concurrency, each recorded. A way back that fails stops, and says so.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use windlass_api::binding::BindingSpec;
use windlass_api::conditions::{RunCondition, RunReason, Status};
use windlass_api::run::{ClusterStatus, FailureThreshold, StageStatus, UpdateRunStatus};

use super::advance::{Pass, Verdict};
use super::stage::{fail_stage, finish, limit_of};
use super::stamp;
use super::view::{RunBinding, RunPlan, Target};
use super::walk::{self, Walk, Way};

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
struct Back {
    ways: BTreeMap<String, (Target, Target)>,
    /// Of a cluster that is in no stage; it can't be.
    nowhere: Target,
}

impl Back {
    fn new(pass: &Pass<'_>, status: &UpdateRunStatus) -> Self {
        let stages = status.stages_status.iter().flatten();
        let clusters = stages.flat_map(|stage| &stage.clusters);
        let ways = clusters.filter_map(|cluster| {
            let to = Target::back(cluster.previous.as_ref()?, &pass.apply)?;
            let from = Target::of_run(&pass.snapshot, &pass.apply, cluster);
            Some((cluster.cluster_name.clone(), (from, to)))
        });
        Self {
            ways: ways.collect(),
            nowhere: Target::of_run(&pass.snapshot, &pass.apply, &ClusterStatus::default()),
        }
    }

    fn is_from(&self, cluster: &ClusterStatus, has: &BindingSpec) -> bool {
        let way = self.ways.get(&cluster.cluster_name);
        way.is_some_and(|(from, _)| from.is_asked_by(has))
    }
}

impl Way for Back {
    fn target(&self, cluster: &ClusterStatus) -> Target {
        let way = self.ways.get(&cluster.cluster_name);
        way.map_or(&self.nowhere, |(_, to)| to).clone()
    }

    fn begin(&self, cluster: &mut ClusterStatus, has: &BindingSpec) -> Result<(), String> {
        if self.is_from(cluster, has) {
            return Ok(());
        }
        Err("Somebody else has changed the cluster's binding since; it stays as it is".to_owned())
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
    let back = Back::new(pass, status);
    let mut stages = status.rollback_status.take().unwrap_or_default();
    let mut verdict = Verdict::Done;
    for stage in &mut stages {
        if !stamp::is(&stage.conditions, RunCondition::Succeeded) {
            verdict = one(pass, &back, stage, plan);
        }
        if !matches!(verdict, Verdict::Done) {
            break;
        }
    }
    status.rollback_status = Some(stages);
    let (how, reason, message) = match verdict {
        Verdict::Done => (
            Status::True,
            RunReason::UpdateRunRolledBack,
            format!("{why}; the clusters that the run moved are back where they were"),
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

fn one(pass: &Pass<'_>, back: &Back, stage: &mut StageStatus, plan: &mut RunPlan) -> Verdict {
    let name = stage.stage_name.clone();
    let status = pass.view.run.status.as_ref();
    let stages = status.and_then(|status| status.stages_status.as_ref());
    let size = stages
        .into_iter()
        .flatten()
        .find(|known| known.stage_name == name);
    let size = size.map_or(stage.clusters.len(), |stage| stage.clusters.len());
    let config = pass.stages.iter().find(|config| config.name == name);
    let limit = config
        .and_then(|config| limit_of(config, size))
        .unwrap_or(1);
    let any = FailureThreshold {
        max_failures: IntOrString::Int(0),
        count: Some(vec![
            windlass_api::run::FailureKind::ApplyFailed,
            windlass_api::run::FailureKind::Timeout,
        ]),
        ..FailureThreshold::default()
    };
    let walk = Walk {
        clusters: &pass.clusters,
        stamp: pass.stamp,
        limit,
        may_begin: pass.may_begin,
        threshold: Some(&any),
    };
    let mut found = walk::go_on(&walk, back, stage, plan);
    let failed = match (&found.changed, found.failed.first()) {
        (Some((cluster, why)), _) => Some(format!("cluster {cluster}: {why}")),
        (None, Some(first)) => {
            let cluster = stage.clusters.iter().find(|c| c.cluster_name == *first);
            let condition =
                cluster.and_then(|c| stamp::find(&c.conditions, RunCondition::Succeeded));
            let why = condition.map_or("", |condition| condition.message.as_str());
            Some(format!("cluster {first}: {why}"))
        }
        (None, None) => None,
    };
    if let Some(why) = failed {
        plan.moves.clear();
        fail_stage(pass.stamp, stage, &why);
        return Verdict::Failed(format!("stage {name}, {why}"));
    }
    walk::begin(&walk, back, stage, plan, &mut found);
    match (found.unfinished, found.under_way, pass.may_begin) {
        (0, ..) => {
            finish(pass.stamp, stage, RunReason::StageUpdatingSucceeded, "");
            Verdict::Done
        }
        (_, 0, false) => Verdict::Stopped(name),
        (_, _, false) => Verdict::Stopping { stage: name, found },
        _ => {
            pass.stamp.set(
                &mut stage.conditions,
                RunCondition::Progressing,
                Status::True,
                RunReason::StageUpdatingStarted,
                "Clusters go back to what they had",
            );
            Verdict::Moving { stage: name, found }
        }
    }
}
