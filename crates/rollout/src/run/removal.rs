//! The stage that removes what is no longer placed (hub §3.5.3). All of it goes at once.

use windlass_api::binding::BindingState;
use windlass_api::conditions::{RunCondition, RunReason, Status};
use windlass_api::run::StageStatus;

use super::advance::{Pass, Verdict};
use super::stage::finish;
use super::stamp::{self, Stamp};
use super::view::RunPlan;
use super::walk::{Found, is_open, is_started};

/// The next step of that stage. One that was stopped before it began stands (trap T4).
pub fn step(pass: &Pass<'_>, stage: &mut StageStatus, plan: &mut RunPlan) -> Verdict {
    if stamp::is(&stage.conditions, RunCondition::Succeeded) {
        return Verdict::Done;
    }
    let stamp = pass.stamp;
    let mut found = Found::default();
    for cluster in &mut stage.clusters {
        if !is_open(cluster) {
            continue;
        }
        let mut bindings = pass
            .view
            .bindings
            .iter()
            .filter(|binding| binding.spec.target_cluster == cluster.cluster_name);
        let Some(binding) = bindings.next() else {
            set(
                stamp,
                cluster,
                RunCondition::Succeeded,
                RunReason::ClusterUpdatingSucceeded,
                "",
            );
            continue;
        };
        if !binding.deleting && binding.spec.state != BindingState::Unscheduled {
            let message = "The placement chooses the cluster again";
            set(
                stamp,
                cluster,
                RunCondition::Skipped,
                RunReason::ClusterUpdatingSucceeded,
                message,
            );
            continue;
        }
        found.unfinished += 1;
        if !is_started(cluster) {
            if !pass.may_begin && !binding.deleting {
                continue;
            }
            set(
                stamp,
                cluster,
                RunCondition::Started,
                RunReason::ClusterUpdatingStarted,
                "",
            );
            let now = windlass_status::conditions::time(stamp.now);
            stage.start_time.get_or_insert(now);
        }
        found.under_way += 1;
        if !binding.deleting {
            plan.remove.push(binding.name.to_owned());
        }
    }
    let list = &mut stage.conditions;
    let name = stage.stage_name.clone();
    match (found.unfinished, found.under_way, pass.may_begin) {
        (0, ..) => {
            let reason = if stage.clusters.is_empty() {
                RunReason::StageUpdatingSkippedNoClusters
            } else {
                RunReason::StageUpdatingSucceeded
            };
            finish(stamp, stage, reason, "");
            Verdict::Done
        }
        (_, 0, false) => {
            let reason = RunReason::StageUpdatingStopped;
            stamp.set(
                list,
                RunCondition::Progressing,
                Status::False,
                reason,
                "The run stands",
            );
            Verdict::Stopped(name)
        }
        (_, _, false) => {
            let reason = RunReason::StageUpdatingStopping;
            let message = "Waiting for removals under way";
            stamp.set(
                list,
                RunCondition::Progressing,
                Status::Unknown,
                reason,
                message,
            );
            Verdict::Stopping { stage: name, found }
        }
        _ => {
            let reason = RunReason::StageUpdatingStarted;
            let message = "What is no longer placed is being removed";
            stamp.set(
                list,
                RunCondition::Progressing,
                Status::True,
                reason,
                message,
            );
            Verdict::Moving { stage: name, found }
        }
    }
}

fn set(
    stamp: Stamp,
    cluster: &mut windlass_api::run::ClusterStatus,
    type_: RunCondition,
    reason: RunReason,
    message: &str,
) {
    stamp.set(
        &mut cluster.conditions,
        type_,
        Status::True,
        reason,
        message,
    );
}
