//! What is news about an update run; see [`crate::transitions`] for what news is.
//!
//! | of | transition | severity, reason |
//! |---|---|---|
//! | run | Initialized becomes False | Warning, the condition's |
//! | run | Initialized becomes True | Normal, the condition's |
//! | run | Progressing has another reason (of those before the end) | Warning if stuck, else Normal; the condition's |
//! | run | Superseded becomes True | Warning, the condition's |
//! | run | RolledBack changes | Normal when it is True, else Warning; the condition's |
//! | run | Succeeded becomes True, or False | Normal, or Warning; the condition's |
//! | stage | Succeeded becomes True, or False | Normal, or Warning; the condition's |
//! | task | the request is approved | Normal, the condition's |
//! | cluster | it has failed, there or on the way back | Warning, the condition's |
//! | cluster | it is skipped | Normal, the condition's |

use std::collections::HashMap;

use windlass_api::Condition;
use windlass_api::conditions::{RunCondition, RunReason, Status};
use windlass_api::run::{ClusterStatus, StageStatus, UpdateRunStatus};

use crate::conditions::{find, status};
use crate::transitions::{NAMED, Transition};

/// How many clusters get news of their own, of one change; the others are only counted by the run's message.
const CLUSTERS: usize = NAMED;

/// What is new about a run.
#[must_use]
pub fn of_run(old: Option<&UpdateRunStatus>, new: &UpdateRunStatus) -> Vec<Transition> {
    let empty = UpdateRunStatus::default();
    let old = old.unwrap_or(&empty);
    let mut news = run(old, new);
    let stages = old.stages_status.iter().flatten();
    let back = old.rollback_status.iter().flatten();
    let before: Vec<&StageStatus> = stages.chain(&old.deletion_stage_status).collect();
    let before_back: Vec<&StageStatus> = back.collect();
    let stages = new.stages_status.iter().flatten();
    for stage in stages.chain(&new.deletion_stage_status) {
        news.extend(of_stage(&before, stage));
    }
    for stage in new.rollback_status.iter().flatten() {
        news.extend(of_stage(&before_back, stage));
    }
    news
}

fn run(old: &UpdateRunStatus, new: &UpdateRunStatus) -> Vec<Transition> {
    let (before, after) = (&old.conditions, &new.conditions);
    let mut news = Vec::new();
    if let Some(told) = changed(before, after, RunCondition::Initialized)
        && status(told) != Status::Unknown
    {
        news.push(tell(
            told,
            status(told) == Status::False,
            "Initialize",
            None,
        ));
    }
    if let Some(told) = get(after, RunCondition::Progressing)
        && get(before, RunCondition::Progressing).is_none_or(|was| was.reason != told.reason)
        && get(after, RunCondition::Succeeded).is_none()
    {
        let is_stuck = told.reason == RunReason::UpdateRunStuck.as_str();
        news.push(tell(told, is_stuck, "Update", None));
    }
    for (type_, action) in [
        (RunCondition::Superseded, "Update"),
        (RunCondition::RolledBack, "RollBack"),
        (RunCondition::Succeeded, "Update"),
    ] {
        if let Some(told) = changed(before, after, type_) {
            let is_good = status(told) == Status::True && type_ != RunCondition::Superseded;
            news.push(tell(told, !is_good, action, None));
        }
    }
    news
}

fn of_stage(before: &[&StageStatus], stage: &StageStatus) -> Vec<Transition> {
    let empty = StageStatus::default();
    let old = before.iter().find(|old| old.stage_name == stage.stage_name);
    let old = old.copied().unwrap_or(&empty);
    let mut news = Vec::new();
    if let Some(told) = changed(&old.conditions, &stage.conditions, RunCondition::Succeeded) {
        let mut told = tell(told, status(told) == Status::False, "Update", None);
        told.note = match told.note.is_empty() {
            true => format!("Stage {} is done", stage.stage_name),
            false => format!("Stage {}: {}", stage.stage_name, told.note),
        };
        news.push(told);
    }
    let tasks = |stage: &StageStatus| {
        let before = stage.before_stage_task_status.iter().flatten();
        let all = before.chain(stage.after_stage_task_status.iter().flatten());
        all.cloned().collect::<Vec<_>>()
    };
    for (at, task) in tasks(stage).iter().enumerate() {
        let was = tasks(old).get(at).and_then(|task| task.conditions.clone());
        let approved = RunCondition::ApprovalRequestApproved;
        if let Some(told) = changed(&was, &task.conditions, approved) {
            let mut told = tell(told, false, "Approve", None);
            told.note = format!("Stage {}: {}", stage.stage_name, told.note);
            news.push(told);
        }
    }
    news.extend(of_clusters(old, stage));
    news
}

fn of_clusters(old: &StageStatus, stage: &StageStatus) -> Vec<Transition> {
    let before: HashMap<&str, &ClusterStatus> = old
        .clusters
        .iter()
        .map(|cluster| (cluster.cluster_name.as_str(), cluster))
        .collect();
    let none = None;
    let mut news = Vec::new();
    for cluster in &stage.clusters {
        let name = cluster.cluster_name.as_str();
        let was = before.get(name).map_or(&none, |old| &old.conditions);
        let failed = changed(was, &cluster.conditions, RunCondition::Succeeded)
            .filter(|told| status(told) == Status::False);
        let skipped = changed(was, &cluster.conditions, RunCondition::Skipped);
        if let Some(told) = failed.or(skipped) {
            news.push(tell(told, failed.is_some(), "Update", Some(name)));
        }
    }
    news.truncate(CLUSTERS);
    news
}

fn get(list: &Option<Vec<Condition>>, type_: RunCondition) -> Option<&Condition> {
    find(list.as_deref()?, type_.as_str())
}

/// The condition, if its status is another one than it was.
fn changed<'a>(
    before: &Option<Vec<Condition>>,
    after: &'a Option<Vec<Condition>>,
    type_: RunCondition,
) -> Option<&'a Condition> {
    let now = get(after, type_)?;
    let was = get(before, type_).map(status);
    (was != Some(status(now))).then_some(now)
}

fn tell(
    told: &Condition,
    is_warning: bool,
    action: &'static str,
    cluster: Option<&str>,
) -> Transition {
    Transition {
        is_warning,
        reason: told.reason.clone(),
        action,
        note: told.message.clone(),
        cluster: cluster.map(str::to_owned),
        index: String::new(),
    }
}
