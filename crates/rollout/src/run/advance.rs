//! The next step of a run that is initialized (hub §3.2, §3.5, §3.6).

use std::collections::BTreeSet;

use jiff::Timestamp;
use windlass_api::conditions::{RunCondition, RunReason, Status};
use windlass_api::names;
use windlass_api::placement::ApplyStrategy;
use windlass_api::run::{
    ClusterStatus, MembershipChanges, OnExceeded, RunState, StageConfig, UpdateRunStatus,
};
use windlass_api::scoped::UpdateRun;

use super::stage::fail_stage;
use super::stamp::{self, Stamp};
use super::view::{RunPlan, RunView};
use super::walk::{self, Clusters, Found, is_skipped};
use super::{back, init, removal, stage};

/// Clusters named in a message before the rest is only counted.
pub(super) const NAMED: usize = 3;
/// Longest list of clusters that have joined.
const JOINED: usize = 1000;

/// Whether the stages of a run are computed.
#[must_use]
pub fn is_initialized(run: &UpdateRun) -> bool {
    run.status
        .as_ref()
        .is_some_and(|status| stamp::is(&status.conditions, RunCondition::Initialized))
}

/// Whether a run has ended, well or not; nothing of it changes any more.
#[must_use]
pub fn is_over(run: &UpdateRun) -> bool {
    run.status.as_ref().is_some_and(|status| {
        let initialized = stamp::status(&status.conditions, RunCondition::Initialized);
        initialized == Some(Status::False)
            || matches!(
                stamp::status(&status.conditions, RunCondition::Succeeded),
                Some(Status::True | Status::False)
            )
    })
}

/// The status of a run that ends here, for that reason.
#[must_use]
pub fn fail(run: &UpdateRun, why: &str, now: Timestamp) -> UpdateRunStatus {
    let stamp = Stamp {
        generation: run.metadata.generation,
        now,
    };
    let mut status = run.status.clone().unwrap_or_default();
    end(stamp, &mut status, Err(why.to_owned()));
    status
}

/// The status of a run that can't go on for now, for a reason that lies in its placement.
#[must_use]
pub fn hold(run: &UpdateRun, why: &str, now: Timestamp) -> UpdateRunStatus {
    let stamp = Stamp {
        generation: run.metadata.generation,
        now,
    };
    let mut status = run.status.clone().unwrap_or_default();
    let (type_, how, reason) = if !is_initialized(run) {
        let reason = RunReason::UpdateRunInitializing;
        (RunCondition::Initialized, Status::Unknown, reason)
    } else if run.spec.state.unwrap_or_default() == RunState::Initialize {
        return status;
    } else {
        let reason = RunReason::UpdateRunStuck;
        (RunCondition::Progressing, Status::False, reason)
    };
    let message = format!("Nothing moves for now: {why}");
    stamp.set(&mut status.conditions, type_, how, reason, message);
    status
}

/// What a pass comes to, for the run as a whole.
pub(super) enum Verdict {
    /// Everything of this step is done.
    Done,
    /// Clusters are under way in a stage.
    Moving { stage: String, found: Found },
    /// Tasks of a stage are waited for.
    Waiting {
        stage: String,
        for_what: Vec<String>,
    },
    /// Clusters under way are waited for, then the run stands.
    Stopping { stage: String, found: Found },
    /// The run stands.
    Stopped(String),
    /// The run ends.
    Failed(String),
    /// More clusters have failed than may.
    Exceeded(String, OnExceeded),
}

/// What does not change during a pass.
pub(super) struct Pass<'a> {
    pub view: &'a RunView<'a>,
    pub clusters: Clusters<'a>,
    pub stamp: Stamp,
    /// Name of the resource snapshot that is rolled out.
    pub snapshot: String,
    pub apply: ApplyStrategy,
    pub stages: &'a [StageConfig],
    /// How many clusters are in the run.
    pub total: usize,
    pub may_begin: bool,
}

/// Decides the next step. In this order:
///
/// | the run | what happens |
/// |---|---|
/// | is not initialized, or over | nothing |
/// | was taken over from | it fails, and says by which run |
/// | its placement can't be rolled out any more | it fails |
/// | state Initialize | nothing |
/// | membershipChanges Fail, and something has changed | it fails |
/// | is on its way back | the next step back |
/// | otherwise | its stages in order, then the stage that removes |
///
/// State Stop begins with no further cluster; those under way are waited for, then the run stands. Nothing
/// that was done becomes undone by it, and a wait goes on.
#[must_use]
pub fn advance(view: &RunView<'_>, now: Timestamp) -> RunPlan {
    let mut plan = RunPlan {
        status: view.run.status.clone().unwrap_or_default(),
        ..RunPlan::default()
    };
    if !is_initialized(view.run) || is_over(view.run) {
        return plan;
    }
    let stamp = Stamp {
        generation: view.run.metadata.generation,
        now,
    };
    let mut status = std::mem::take(&mut plan.status);
    stamp.renew(&mut status);
    decide(view, stamp, &mut status, &mut plan);
    plan.status = status;
    plan
}

fn decide(view: &RunView<'_>, stamp: Stamp, status: &mut UpdateRunStatus, plan: &mut RunPlan) {
    if let Some(by) = view.superseded_by {
        let message = format!(
            "Update run {by} has taken over placement {}",
            view.run.spec.placement_name
        );
        stamp.set(
            &mut status.conditions,
            RunCondition::Superseded,
            Status::True,
            RunReason::UpdateRunSuperseded,
            &message,
        );
        return end(stamp, status, Err(message));
    }
    if let Some(why) = view.unfit {
        return end(stamp, status, Err(why.to_owned()));
    }
    let state = view.run.spec.state.unwrap_or_default();
    if state == RunState::Initialize {
        return;
    }
    let strict = view.run.spec.membership_changes == Some(MembershipChanges::Fail);
    // A way back is gone to its end, whoever comes and goes.
    if strict
        && view.is_settled
        && status.rollback_status.is_none()
        && let Some(why) = changed(view, status)
    {
        return end(stamp, status, Err(why));
    }
    let strategy = view.run.status.as_ref();
    let strategy = strategy.and_then(|status| status.strategy_snapshot.as_ref());
    let index = status.resource_snapshot_index_used.as_deref();
    let Some(index) = index.and_then(|index| index.parse().ok()) else {
        let message = "status.resourceSnapshotIndexUsed is no number; start another run";
        return end(stamp, status, Err(message.to_owned()));
    };
    let pass = Pass {
        view,
        clusters: Clusters::new(view),
        stamp,
        snapshot: names::master_snapshot(&view.run.spec.placement_name, index),
        apply: status.applied_strategy.clone().unwrap_or_default(),
        stages: strategy.map_or(&[], |strategy| strategy.stages.as_slice()),
        total: status
            .stages_status
            .iter()
            .flatten()
            .map(|stage| stage.clusters.len())
            .sum(),
        may_begin: state == RunState::Run,
    };
    let verdict = if status.rollback_status.is_some() {
        back::step(&pass, status, plan)
    } else {
        forward(&pass, status, plan)
    };
    let verdict = match verdict {
        Verdict::Exceeded(message, OnExceeded::Rollback) => {
            back::begin(&pass, status, &message);
            back::step(&pass, status, plan)
        }
        Verdict::Exceeded(message, OnExceeded::Stop) => Verdict::Failed(message),
        other => other,
    };
    note_joined(&pass, status, plan);
    conclude(&pass, status, verdict);
}

fn conclude(pass: &Pass<'_>, status: &mut UpdateRunStatus, verdict: Verdict) {
    let is_back = status.rollback_status.is_some();
    let going = if is_back {
        RunReason::UpdateRunRollingBack
    } else {
        RunReason::UpdateRunProgressing
    };
    let doing = if is_back { "Rolling back" } else { "Updating" };
    let (state, reason, message) = match verdict {
        Verdict::Done => return end(pass.stamp, status, Ok(())),
        Verdict::Failed(message) | Verdict::Exceeded(message, _) => {
            return end(pass.stamp, status, Err(message));
        }
        Verdict::Moving { stage, found } if found.stuck.is_empty() => {
            let mut message = format!(
                "{doing} stage {stage}: {} cluster(s) under way, {} to go",
                found.under_way,
                found.unfinished - found.under_way
            );
            if found.unreachable > 0 {
                message += &format!("; {} can't be reached", found.unreachable);
            }
            if let Some(first) = found.coming.first() {
                let count = found.coming.len();
                message += &format!("; {count} have no binding yet, the first is {first}");
            }
            (Status::True, going, message)
        }
        Verdict::Moving { stage, found } => {
            let message = format!("{doing} stage {stage} takes long: {}", stuck(&found));
            (Status::False, RunReason::UpdateRunStuck, message)
        }
        Verdict::Waiting { stage, for_what } => {
            let message = format!("Stage {stage} waits {}", for_what.join(" and "));
            (Status::False, RunReason::UpdateRunWaiting, message)
        }
        Verdict::Stopping { stage, found } if found.stuck.is_empty() => {
            let message = format!(
                "Stage {stage}: waiting for {} cluster(s) under way before the run stands",
                found.under_way
            );
            (Status::Unknown, RunReason::UpdateRunStopping, message)
        }
        Verdict::Stopping { stage, found } => {
            let message = format!("Stopping in stage {stage} takes long: {}", stuck(&found));
            (Status::False, RunReason::UpdateRunStuck, message)
        }
        Verdict::Stopped(stage) => {
            let message =
                format!("The run stands before or in stage {stage}; state Run resumes it");
            (Status::False, RunReason::UpdateRunStopped, message)
        }
    };
    let list = &mut status.conditions;
    pass.stamp
        .set(list, RunCondition::Progressing, state, reason, message);
}

/// The run is over.
pub(super) fn end(stamp: Stamp, status: &mut UpdateRunStatus, how: Result<(), String>) {
    let (done, reason, message) = match how {
        Ok(()) => {
            let message = summary(status);
            (Status::True, RunReason::UpdateRunSucceeded, message)
        }
        Err(message) => {
            back::break_off(stamp, status, &message);
            let stages = status.stages_status.iter_mut().flatten();
            let back = status.rollback_status.iter_mut().flatten();
            for stage in stages.chain(&mut status.deletion_stage_status).chain(back) {
                if stamp::find(&stage.conditions, RunCondition::Progressing).is_some()
                    && stamp::find(&stage.conditions, RunCondition::Succeeded).is_none()
                {
                    fail_stage(stamp, stage, &message);
                }
            }
            (Status::False, RunReason::UpdateRunFailed, message)
        }
    };
    let list = &mut status.conditions;
    stamp.set(
        list,
        RunCondition::Progressing,
        Status::False,
        reason,
        &message,
    );
    stamp.set(list, RunCondition::Succeeded, done, reason, message);
}

/// What a run that has succeeded has done.
fn summary(status: &UpdateRunStatus) -> String {
    let all = || {
        let stages = status.stages_status.iter().flatten();
        stages.flat_map(|stage| &stage.clusters)
    };
    let failed = all().filter(|cluster| walk::has_failed(cluster)).count();
    // Who lost it again waits for the next run, and is counted there.
    let waits = status.joined_clusters.as_deref().unwrap_or_default();
    let lost =
        |cluster: &&ClusterStatus| walk::is_done(cluster) && waits.contains(&cluster.cluster_name);
    let lost = all().filter(lost).count();
    let skipped = all().filter(|cluster| is_skipped(cluster)).count();
    let mut message = format!(
        "{} cluster(s) updated",
        all().count() - failed - skipped - lost
    );
    for (count, what) in [
        (failed, "failed, which the threshold allows"),
        (skipped, "skipped"),
        (
            status.joined_clusters.as_ref().map_or(0, Vec::len),
            "joined since and wait for the next run",
        ),
    ] {
        if count > 0 {
            message += &format!(", {count} {what}");
        }
    }
    message
}

fn stuck(found: &Found) -> String {
    let named = found.stuck.iter().take(NAMED);
    let mut parts: Vec<String> = named
        .map(|(cluster, why)| format!("{cluster} ({why})"))
        .collect();
    if found.stuck.len() > NAMED {
        parts.push(format!("{} more", found.stuck.len() - NAMED));
    }
    parts.join(", ")
}

/// What has changed since the run was initialized; upstream's runs end by it (hub §3.4).
fn changed(view: &RunView<'_>, status: &UpdateRunStatus) -> Option<String> {
    if status.policy_snapshot_index_used.as_deref() != Some(view.policy_index) {
        return Some(format!(
            "the placement's policy has changed: the run was initialized with policy snapshot {}, the latest \
             is {}",
            status.policy_snapshot_index_used.as_deref().unwrap_or("?"),
            view.policy_index
        ));
    }
    let effective = windlass_status::defaults::EffectiveApply::of;
    if effective(status.applied_strategy.as_ref()) != effective(Some(view.apply_strategy)) {
        return Some(
            "the placement's apply strategy has changed since the run was initialized".into(),
        );
    }
    let strategy = status.strategy_snapshot.as_ref()?;
    let recorded = status.stages_status.as_deref().unwrap_or_default();
    match init::assign(strategy, view.members, view.selected) {
        Err(why) => Some(why),
        Ok(now) => now.iter().zip(recorded).find_map(|(now, then)| {
            let then_names = then.clusters.iter().map(|c| c.cluster_name.as_str());
            let same = now.iter().copied().eq(then_names);
            (!same).then(|| {
                format!(
                    "the clusters of stage {} have changed since the run was initialized",
                    then.stage_name
                )
            })
        }),
    }
}

/// Clusters that were chosen since, those that were passed over and are back, and those that lost what they
/// had got (an eviction).
fn note_joined(pass: &Pass<'_>, status: &mut UpdateRunStatus, plan: &RunPlan) {
    if !pass.view.is_settled {
        return;
    }
    let moved: BTreeSet<&str> = plan
        .moves
        .iter()
        .map(|change| change.binding.as_str())
        .collect();
    let lost = |cluster: &str| {
        let bare = pass.clusters.bare(cluster);
        bare.is_some_and(|binding| !moved.contains(binding.name))
    };
    let stages = status.stages_status.iter().flatten();
    let taking_part: BTreeSet<&str> = stages
        .flat_map(|stage| &stage.clusters)
        .filter(|cluster| !is_skipped(cluster))
        .filter(|cluster| walk::is_open(cluster) || !lost(&cluster.cluster_name))
        .map(|cluster| cluster.cluster_name.as_str())
        .collect();
    let joined: Vec<String> = pass
        .view
        .selected
        .iter()
        .filter(|cluster| !taking_part.contains(**cluster) && pass.clusters.is_member(cluster))
        .take(JOINED)
        .map(|cluster| (*cluster).to_owned())
        .collect();
    status.joined_clusters = (!joined.is_empty()).then_some(joined);
}

fn forward(pass: &Pass<'_>, status: &mut UpdateRunStatus, plan: &mut RunPlan) -> Verdict {
    let mut stages = status.stages_status.take().unwrap_or_default();
    let mut verdict = Verdict::Done;
    for at in 0..stages.len() {
        let (earlier, rest) = stages.split_at_mut(at);
        let Some(current) = rest.first_mut() else {
            break;
        };
        if stamp::is(&current.conditions, RunCondition::Succeeded) {
            continue;
        }
        verdict = match pass.stages.get(at) {
            Some(config) => stage::step(pass, config, earlier, current, plan),
            None => Verdict::Failed("status.stagedUpdateStrategySnapshot lacks a stage".into()),
        };
        if !matches!(verdict, Verdict::Done) {
            break;
        }
    }
    status.stages_status = Some(stages);
    match (verdict, &mut status.deletion_stage_status) {
        (Verdict::Done, Some(stage)) => removal::step(pass, stage, plan),
        (verdict, _) => verdict,
    }
}
