//! Gates before and after a stage: approvals and waits, each looked at by itself (hub §3.5.1, §3.5.2).

use jiff::Timestamp;
use windlass_api::conditions::{RunCondition, RunReason, Status};
use windlass_api::run::{StageConfig, StageStatus, TaskStatus, TaskType};
use windlass_api::scoped::ApprovalRequest;
use windlass_status::duration;

use super::stamp::{self, Stamp};
use super::view::{Ask, RunPlan, RunView};

/// Looks at the tasks before a stage. What is still waited for; empty when nothing is.
pub fn before(
    view: &RunView<'_>,
    stamp: Stamp,
    stage: &mut StageStatus,
    plan: &mut RunPlan,
) -> Result<Vec<String>, String> {
    let mut waits = Vec::new();
    let name = stage.stage_name.clone();
    for task in stage.before_stage_task_status.iter_mut().flatten() {
        waits.extend(approval(view, stamp, task, (&name, true), plan)?);
    }
    Ok(waits)
}

/// Looks at the tasks after a stage, of which the last cluster was done at `finished`.
pub fn after(
    view: &RunView<'_>,
    stamp: Stamp,
    config: &StageConfig,
    stage: &mut StageStatus,
    finished: Timestamp,
    plan: &mut RunPlan,
) -> Result<Vec<String>, String> {
    let mut waits = Vec::new();
    let name = stage.stage_name.clone();
    for task in stage.after_stage_task_status.iter_mut().flatten() {
        match task.type_ {
            TaskType::Approval => {
                waits.extend(approval(view, stamp, task, (&name, false), plan)?);
            }
            TaskType::TimedWait => waits.extend(wait(stamp, config, task, finished, plan)),
        }
    }
    Ok(waits)
}

/// The time counts from when the stage's last cluster was done: neither a stop nor a restart makes it longer.
fn wait(
    stamp: Stamp,
    config: &StageConfig,
    task: &mut TaskStatus,
    finished: Timestamp,
    plan: &mut RunPlan,
) -> Option<String> {
    if stamp::is(&task.conditions, RunCondition::WaitTimeElapsed) {
        return None;
    }
    let tasks = config.after_stage_tasks.as_deref().unwrap_or_default();
    let text = tasks
        .iter()
        .find(|task| task.type_ == TaskType::TimedWait)
        .and_then(|task| task.wait_time.as_deref());
    let length = text.and_then(duration::parse).unwrap_or_default();
    let until = finished.checked_add(length).unwrap_or(Timestamp::MAX);
    if until > stamp.now {
        plan.wake(until);
        let until = Timestamp::from_second(until.as_second()).unwrap_or(until);
        return Some(format!("until {until} ({})", duration::show(length)));
    }
    stamp.set(
        &mut task.conditions,
        RunCondition::WaitTimeElapsed,
        Status::True,
        RunReason::AfterStageTaskWaitTimeElapsed,
        format!("{} have passed", duration::show(length)),
    );
    None
}

fn approval(
    view: &RunView<'_>,
    stamp: Stamp,
    task: &mut TaskStatus,
    (stage, before): (&str, bool),
    plan: &mut RunPlan,
) -> Result<Option<String>, String> {
    if stamp::is(&task.conditions, RunCondition::ApprovalRequestApproved) {
        return Ok(None);
    }
    let run = view.run.metadata.name.as_deref().unwrap_or_default();
    let name = task
        .approval_request_name
        .get_or_insert_with(|| request_name(run, stage, before))
        .clone();
    let waits = Ok(Some(format!("for approval request {name}")));
    let found = view
        .requests
        .iter()
        .find(|request| request.metadata.name.as_deref() == Some(&name));
    match found {
        None => plan.ask.push(Ask {
            name: name.clone(),
            stage: stage.to_owned(),
            before,
        }),
        Some(request) if is_of_another(view, request) => {
            if request.metadata.deletion_timestamp.is_none() {
                plan.discard.push(name);
            }
            return waits;
        }
        Some(request) => {
            let spec = &request.spec;
            if spec.parent_stage_rollout != run || spec.target_stage != stage {
                return Err(format!(
                    "approval request {name} is about stage {} of run {}, not about stage {stage} of this \
                     one; delete it and start another run",
                    spec.target_stage, spec.parent_stage_rollout
                ));
            }
            if let Some(accepted) = answer(request) {
                if !accepted {
                    plan.accept.push(name.clone());
                }
                stamp.set(
                    &mut task.conditions,
                    RunCondition::ApprovalRequestApproved,
                    Status::True,
                    RunReason::StageTaskApprovalRequestApproved,
                    told(request),
                );
                return Ok(None);
            }
        }
    }
    stamp.set(
        &mut task.conditions,
        RunCondition::ApprovalRequestCreated,
        Status::True,
        RunReason::StageTaskApprovalRequestCreated,
        format!("Approval request {name} waits for an answer"),
    );
    waits
}

/// Name of the request of a stage (hub §0.4).
pub(super) fn request_name(run: &str, stage: &str, before: bool) -> String {
    let when = if before { "before" } else { "after" };
    format!("{run}-{when}-{stage}")
}

/// Of an earlier run of the same name: what was approved then is not approved now.
fn is_of_another(view: &RunView<'_>, request: &ApprovalRequest) -> bool {
    let owners = request.metadata.owner_references.as_deref();
    let created = |time: &Option<windlass_api::Time>| time.as_ref().map(|time| time.0);
    match owners.unwrap_or_default() {
        [] => {
            created(&request.metadata.creation_timestamp)
                < created(&view.run.metadata.creation_timestamp)
        }
        owners => owners
            .iter()
            .all(|owner| Some(&owner.uid) != view.run.metadata.uid.as_ref()),
    }
}

/// Whether a request is approved; then, whether that was accepted, which can't be undone.
fn answer(request: &ApprovalRequest) -> Option<bool> {
    let conditions = &request.status.as_ref()?.conditions;
    let holds = |type_| {
        stamp::find(conditions, type_).is_some_and(|condition| {
            let about = condition.observed_generation;
            condition.status == Status::True.as_str()
                && (about.is_none() || about == request.metadata.generation)
        })
    };
    if holds(RunCondition::ApprovalAccepted) {
        return Some(true);
    }
    holds(RunCondition::Approved).then_some(false)
}

/// When it was approved, and by whom if that was recorded.
fn told(request: &ApprovalRequest) -> String {
    let status = request.status.as_ref();
    let by = status.and_then(|status| status.approved_by.as_deref());
    let at = status.and_then(|status| stamp::since(&status.conditions, RunCondition::Approved));
    let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
    match by.filter(|by| !by.is_empty()) {
        Some(by) => format!("Approved by {by}{at}"),
        None => format!("Approved{at}; by whom is not recorded"),
    }
}
