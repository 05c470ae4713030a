//! The stage that removes what is no longer placed (hub §3.5.3). All of it goes at once.

use std::collections::BTreeMap;

use windlass_api::conditions::{RunCondition, RunReason, Status};
use windlass_api::run::{ClusterStatus, StageStatus};

use super::advance::{Pass, Verdict};
use super::stage::{finish, stand, under_way};
use super::stamp::{self, Stamp};
use super::view::{RunBinding, RunPlan};
use super::walk::{Found, is_open, is_started, note_time};

/// The next step of that stage. One that was stopped before it began stands (trap T4).
pub fn step(pass: &Pass<'_>, stage: &mut StageStatus, plan: &mut RunPlan) -> Verdict {
    if stamp::is(&stage.conditions, RunCondition::Succeeded) {
        return Verdict::Done;
    }
    if stage.clusters.is_empty() {
        let reason = RunReason::StageUpdatingSkippedNoClusters;
        finish(pass.stamp, stage, reason, "");
        return Verdict::Done;
    }
    // What is wanted can't be told: nothing is concluded from that.
    let found = if pass.view.is_settled {
        remove(pass, stage, plan)
    } else {
        Found {
            unfinished: stage.clusters.iter().filter(|c| is_open(c)).count(),
            ..Found::default()
        }
    };
    match (found.unfinished, pass.may_begin) {
        (0, true) => {
            finish(pass.stamp, stage, RunReason::StageUpdatingSucceeded, "");
            Verdict::Done
        }
        (0, false) => stand(pass.stamp, stage),
        _ => {
            let doing = "What is no longer placed is being removed";
            under_way(pass, stage, found, doing)
        }
    }
}

fn remove(pass: &Pass<'_>, stage: &mut StageStatus, plan: &mut RunPlan) -> Found {
    let mut doomed: BTreeMap<&str, Vec<&RunBinding<'_>>> = BTreeMap::new();
    for binding in pass.view.bindings {
        let cluster = binding.spec.target_cluster.as_str();
        // What is chosen again in this very look is not unwanted, whatever its binding still says.
        if binding.deleting || !pass.view.selected.contains(cluster) {
            doomed.entry(cluster).or_default().push(binding);
        }
    }
    let mut found = Found::default();
    for cluster in stage.clusters.iter_mut().filter(|cluster| is_open(cluster)) {
        let Some(bindings) = doomed.get(cluster.cluster_name.as_str()) else {
            close(pass, cluster);
            continue;
        };
        found.unfinished += 1;
        let goes_anyway = bindings.iter().all(|binding| binding.deleting);
        if !is_started(cluster) {
            if !pass.may_begin && !goes_anyway {
                continue;
            }
            let reason = RunReason::ClusterUpdatingStarted;
            set(pass.stamp, cluster, RunCondition::Started, reason, "");
            let now = windlass_status::conditions::time(pass.stamp.now);
            stage.start_time.get_or_insert(now);
        }
        found.under_way += 1;
        note_time(
            pass.stamp,
            cluster,
            "its removal has not ended",
            plan,
            &mut found,
        );
        let left = bindings.iter().filter(|binding| !binding.deleting);
        plan.remove
            .extend(left.map(|binding| binding.name.to_owned()));
    }
    found
}

/// A cluster that has no binding any more that is to go.
fn close(pass: &Pass<'_>, cluster: &mut ClusterStatus) {
    let (type_, reason, message) = if pass.clusters.is_bound(&cluster.cluster_name) {
        (
            RunCondition::Skipped,
            RunReason::ClusterSelectedAgain,
            "The placement chooses the cluster again",
        )
    } else {
        let reason = RunReason::ClusterUpdatingSucceeded;
        (RunCondition::Succeeded, reason, "")
    };
    set(pass.stamp, cluster, type_, reason, message);
}

fn set(
    stamp: Stamp,
    cluster: &mut ClusterStatus,
    type_: RunCondition,
    reason: RunReason,
    message: &str,
) {
    let list = &mut cluster.conditions;
    stamp.set(list, type_, Status::True, reason, message);
}
