//! One stage of a run, from its first task to its last (hub §3.5).

use windlass_api::binding::BindingSpec;
use windlass_api::conditions::{RunCondition, RunReason, Status};
use windlass_api::run::{ClusterStatus, FailureThreshold, OnExceeded, StageConfig, StageStatus};

use super::advance::{NAMED, Pass, Verdict};
use super::stamp::{self, Stamp};
use super::threshold::{exceeded, share};
use super::view::{RunBinding, RunPlan, Version, is_fresh, version_of};
use super::walk::{self, Found, Walk, Way, finished_at};
use super::{room, tasks};

/// The way there.
struct Forward<'a> {
    pass: &'a Pass<'a>,
}

impl Way for Forward<'_> {
    fn version<'a>(&'a self, cluster: &'a ClusterStatus) -> Version<'a> {
        Version::of_run(&self.pass.snapshot, &self.pass.apply, cluster)
    }

    fn begin(&self, cluster: &mut ClusterStatus, has: &BindingSpec) -> Result<(), &'static str> {
        cluster.previous = Some(version_of(has, &self.pass.apply));
        Ok(())
    }

    fn is_unwritten(&self, cluster: &ClusterStatus, binding: &RunBinding<'_>) -> bool {
        let as_before = || {
            let has = version_of(binding.spec, &self.pass.apply);
            cluster.previous.as_ref() == Some(&has)
        };
        is_fresh(binding.spec)
            || binding.moved_by != self.pass.view.run.metadata.uid.as_deref() && as_before()
    }
}

/// Whether more clusters have failed than may, of a stage or of the run.
fn too_many(
    pass: &Pass<'_>,
    config: &StageConfig,
    earlier: &[StageStatus],
    (stage, failed): (&StageStatus, &[String]),
) -> Option<(String, OnExceeded)> {
    let of_stage = config.failure_threshold.as_ref().and_then(|threshold| {
        let of_what = format!("stage {}", stage.stage_name);
        over(threshold, failed, stage.clusters.len(), &of_what)
    });
    of_stage.or_else(|| {
        let threshold = pass.view.run.spec.failure_threshold.as_ref()?;
        let before = earlier.iter().flat_map(|stage| &stage.clusters);
        let before = before.filter(|cluster| walk::has_failed(cluster));
        let mut all: Vec<String> = before.map(|c| c.cluster_name.clone()).collect();
        all.extend(failed.iter().cloned());
        over(threshold, &all, pass.total, "the run")
    })
}

fn over(
    threshold: &FailureThreshold,
    failed: &[String],
    total: usize,
    of_what: &str,
) -> Option<(String, OnExceeded)> {
    let then = exceeded(threshold, failed.len(), total)?;
    let named = failed.iter().take(NAMED).map(String::as_str);
    let mut names = named.collect::<Vec<_>>().join(", ");
    if failed.len() > NAMED {
        names += &format!(" and {} more", failed.len() - NAMED);
    }
    let allowed = super::threshold::allowed(&threshold.max_failures, total);
    Some((
        format!(
            "{} of {total} cluster(s) of {of_what} failed, {allowed} may: {names}",
            failed.len()
        ),
        then,
    ))
}

/// One stage, from its first task to its last.
pub(super) fn step(
    pass: &Pass<'_>,
    config: &StageConfig,
    earlier: &[StageStatus],
    stage: &mut StageStatus,
    plan: &mut RunPlan,
) -> Verdict {
    if stage.clusters.is_empty() {
        let reason = RunReason::StageUpdatingSkippedNoClusters;
        let message = "No cluster of the placement is in this stage";
        finish(pass.stamp, stage, reason, message);
        return Verdict::Done;
    }
    if stage.start_time.is_none() {
        if !pass.may_begin {
            return stand(pass.stamp, stage);
        }
        match tasks::before(pass.view, pass.stamp, stage, plan) {
            Err(why) => return break_off(pass.stamp, stage, &why),
            Ok(for_what) if !for_what.is_empty() => return wait(pass.stamp, stage, for_what),
            Ok(_) => {}
        }
    }
    let Some(limit) = limit_of(config, stage.clusters.len()) else {
        let why = "maxConcurrency is neither a number nor a share";
        return break_off(pass.stamp, stage, why);
    };
    let threshold = config.failure_threshold.as_ref();
    let walk = Walk {
        clusters: &pass.clusters,
        stamp: pass.stamp,
        limit,
        may_begin: pass.may_begin,
        is_forward: true,
        threshold: threshold.or(pass.view.run.spec.failure_threshold.as_ref()),
        longest: room::message_of(pass.total),
    };
    let way = Forward { pass };
    let mut found = walk::go_on(&walk, &way, stage, plan);
    if let Some((cluster, why)) = &found.changed {
        let why = format!("cluster {cluster}: {why}");
        plan.moves.clear();
        return break_off(pass.stamp, stage, &why);
    }
    let failed = (&*stage, found.failed.as_slice());
    if let Some((message, then)) = too_many(pass, config, earlier, failed) {
        fail_stage(pass.stamp, stage, &message);
        plan.moves.clear();
        return Verdict::Exceeded(message, then);
    }
    walk::begin(&walk, &way, stage, plan, &mut found);
    if found.unfinished == 0 {
        return after(pass, config, stage, plan);
    }
    under_way(pass, stage, found, "Clusters are being updated")
}

/// A stage of which some cluster is not done yet.
pub(super) fn under_way(
    pass: &Pass<'_>,
    stage: &mut StageStatus,
    found: Found,
    doing: &str,
) -> Verdict {
    let name = stage.stage_name.clone();
    if pass.may_begin {
        let reason = RunReason::StageUpdatingStarted;
        progress(pass.stamp, stage, Status::True, reason, doing);
        return Verdict::Moving { stage: name, found };
    }
    if found.under_way == 0 {
        return stand(pass.stamp, stage);
    }
    let reason = RunReason::StageUpdatingStopping;
    let message = "Waiting for clusters under way";
    progress(pass.stamp, stage, Status::Unknown, reason, message);
    Verdict::Stopping { stage: name, found }
}

/// A stage of which every cluster is done. One that is to stop stands here, too: the run goes on from what is
/// recorded.
fn after(
    pass: &Pass<'_>,
    config: &StageConfig,
    stage: &mut StageStatus,
    plan: &mut RunPlan,
) -> Verdict {
    if !pass.may_begin {
        return stand(pass.stamp, stage);
    }
    let finished = stage.clusters.iter().filter_map(finished_at).max();
    let finished = finished.unwrap_or(pass.stamp.now);
    match tasks::after(pass.view, pass.stamp, config, stage, finished, plan) {
        Err(why) => break_off(pass.stamp, stage, &why),
        Ok(for_what) if !for_what.is_empty() => wait(pass.stamp, stage, for_what),
        Ok(_) => {
            let reason = RunReason::StageUpdatingSucceeded;
            finish(pass.stamp, stage, reason, "");
            Verdict::Done
        }
    }
}

/// How many clusters of a stage may be under way; none for what is neither a number nor a share.
pub(super) fn limit_of(config: &StageConfig, total: usize) -> Option<usize> {
    match &config.max_concurrency {
        None => Some(1),
        Some(field) => share(field, total).map(|limit| limit.max(1)),
    }
}

fn wait(stamp: Stamp, stage: &mut StageStatus, for_what: Vec<String>) -> Verdict {
    let message = format!("Waiting {}", for_what.join(" and "));
    progress(
        stamp,
        stage,
        Status::False,
        RunReason::StageUpdatingWaiting,
        message,
    );
    Verdict::Waiting {
        stage: stage.stage_name.clone(),
        for_what,
    }
}

/// A stage in which nothing is under way, and nothing is to be begun with.
pub(super) fn stand(stamp: Stamp, stage: &mut StageStatus) -> Verdict {
    if stage.start_time.is_some()
        || stamp::find(&stage.conditions, RunCondition::Progressing).is_some()
    {
        progress(
            stamp,
            stage,
            Status::False,
            RunReason::StageUpdatingStopped,
            "The run stands",
        );
    }
    Verdict::Stopped(stage.stage_name.clone())
}

fn break_off(stamp: Stamp, stage: &mut StageStatus, why: &str) -> Verdict {
    fail_stage(stamp, stage, why);
    Verdict::Failed(format!("stage {}: {why}", stage.stage_name))
}

fn progress(
    stamp: Stamp,
    stage: &mut StageStatus,
    status: Status,
    reason: RunReason,
    message: impl Into<String>,
) {
    stamp.set(
        &mut stage.conditions,
        RunCondition::Progressing,
        status,
        reason,
        message,
    );
}

/// A stage that is done.
pub(super) fn finish(stamp: Stamp, stage: &mut StageStatus, reason: RunReason, message: &str) {
    close(stamp, stage, Status::True, reason, message);
}

/// A stage that has failed.
pub(super) fn fail_stage(stamp: Stamp, stage: &mut StageStatus, message: &str) {
    close(
        stamp,
        stage,
        Status::False,
        RunReason::StageUpdatingFailed,
        message,
    );
}

fn close(stamp: Stamp, stage: &mut StageStatus, how: Status, reason: RunReason, message: &str) {
    let list = &mut stage.conditions;
    stamp.set(
        list,
        RunCondition::Progressing,
        Status::False,
        reason,
        message,
    );
    stamp.set(list, RunCondition::Succeeded, how, reason, message);
    stage
        .end_time
        .get_or_insert_with(|| windlass_status::conditions::time(stamp.now));
}
