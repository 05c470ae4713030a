//! What a person does to a run: start, stop, resume, approve. By patches, so that what this binary does not
//! know of an object stays.

use kube::Resource;
use kube::core::ApiResource;
use serde_json::{Value, json};
use windlass_api::Condition;
use windlass_api::conditions::{RunCondition, Status};
use windlass_api::run::{RunState, TaskType};
use windlass_api::scoped::{ApprovalRequest, Scope, UpdateRun};
use windlass_cluster::{ApiError, Writer, clock};
use windlass_hub::scoped::api_in;
use windlass_status::conditions;

use super::view::{self, Phase, TaskState, View};
use super::{FIELD_MANAGER, Which, is_under_way, text_of};
use crate::cli::{self, Failure, say, words};
use crate::table::line;

/// How often a change is tried again that met somebody else's.
const TRIES: usize = 5;

/// What a command has to do.
enum Step {
    /// Nothing: what is said is why.
    Nothing(String),
    /// The state changes to this.
    To(RunState),
}

pub async fn stop(of: &Which) -> Result<(), Failure> {
    let hub = of.at.hub(FIELD_MANAGER).await?;
    let flags = of.at.flags();
    let run = of.read(&hub).await?;
    match stopping(&run)? {
        Step::Nothing(why) => say(&why),
        Step::To(state) => {
            set_state(&hub, &run, state).await?;
            say(&format!(
                "{} is being stopped: no further cluster is begun with, those under way are waited for\n\
                 To see it stand: windlass run show {}{flags}\nTo go on: windlass run resume {1}{flags}",
                text_of(&of.key()),
                of.run
            ));
        }
    }
    Ok(())
}

fn stopping(run: &UpdateRun) -> Result<Step, Failure> {
    let view = view::of(run);
    let name = &view.run;
    if view.ended || view.state == Phase::Deleting {
        return Err(over(&view, "nothing to stop").into());
    }
    match run.spec.state.unwrap_or_default() {
        RunState::Run => Ok(Step::To(RunState::Stop)),
        RunState::Stop => Ok(Step::Nothing(match view.state {
            Phase::Stopped => format!("{name} is stopped already"),
            _ => format!("{name} is being stopped already: {}", line(&view.message)),
        })),
        RunState::Initialize => Err(format!(
            "{name} has not been started, so there is nothing to stop; to be rid of it, delete it"
        )
        .into()),
    }
}

pub async fn resume(of: &Which) -> Result<(), Failure> {
    let hub = of.at.hub(FIELD_MANAGER).await?;
    let flags = of.at.flags();
    let run = of.read(&hub).await?;
    match resuming(&run)? {
        Step::Nothing(why) => say(&why),
        Step::To(state) => {
            let others = others(&hub, &run).await;
            set_state(&hub, &run, state).await?;
            for other in others {
                say(&format!(
                    "{other} of the same placement is under way: it ends, for {} takes over from it",
                    of.run
                ));
            }
            let did = match run.spec.state.unwrap_or_default() {
                RunState::Stop => "goes on",
                _ => "starts",
            };
            say(&format!(
                "{} {did}\nTo follow it: windlass run watch {}{flags}",
                text_of(&of.key()),
                of.run
            ));
        }
    }
    Ok(())
}

fn resuming(run: &UpdateRun) -> Result<Step, Failure> {
    let view = view::of(run);
    if view.ended || view.state == Phase::Deleting {
        return Err(over(&view, "it can't go on; create another run").into());
    }
    Ok(match run.spec.state.unwrap_or_default() {
        RunState::Run => Step::Nothing(format!(
            "{} is told to run already: {}",
            view.run,
            view.state.text()
        )),
        RunState::Stop | RunState::Initialize => Step::To(RunState::Run),
    })
}

/// Other runs of the same placement that are under way. Not being allowed to look is no reason to stop.
async fn others(hub: &Writer, run: &UpdateRun) -> Vec<String> {
    let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
    let runs = api_in::<UpdateRun>(hub.client().clone(), namespace)
        .list(&kube::api::ListParams::default())
        .await;
    let mut names = Vec::new();
    for other in runs.into_iter().flat_map(|list| list.items) {
        if other.spec.placement_name == run.spec.placement_name
            && other.metadata.uid != run.metadata.uid
            && is_under_way(&other)
        {
            names.extend(other.metadata.name);
        }
    }
    names
}

fn over(view: &View, so: &str) -> String {
    let message = match view.message.as_str() {
        "" => String::new(),
        message => format!(" ({})", line(message)),
    };
    format!("{} is over: {}{message}; {so}", view.run, view.state.text())
}

async fn set_state(hub: &Writer, run: &UpdateRun, state: RunState) -> Result<(), Failure> {
    let mut patch = Vec::new();
    // Somebody else may have said something else meanwhile.
    if let Some(before) = run.spec.state {
        patch.push(json!({ "op": "test", "path": "/spec/state", "value": before }));
    }
    patch.push(json!({ "op": "add", "path": "/spec/state", "value": state }));
    let patch = serde_json::from_value(Value::Array(patch))?;
    let name = run.metadata.name.as_deref().unwrap_or_default();
    let kind = ApiResource::erase::<UpdateRun>(&Scope::of(run));
    let namespace = run.metadata.namespace.as_deref();
    match hub.json_patch_dyn(&kind, namespace, name, &patch).await {
        Ok(_) => Ok(()),
        Err(ApiError::Conflict(_)) => {
            Err("somebody else has changed the run's state just now; look at it again".into())
        }
        Err(error) => Err(words("changing the run's state", &error)),
    }
}

pub async fn approve(of: &Which, stage: Option<&str>) -> Result<(), Failure> {
    let hub = of.at.hub(FIELD_MANAGER).await?;
    let run = of.read(&hub).await?;
    let view = view::of(&run);
    let (stage, request) = match asked(&view, stage, &of.at.flags())? {
        Asked::Already(message) => return cli::print(&format!("{message}\n")),
        Asked::Pending(stage, request) => (stage, request),
    };
    for _ in 0..TRIES {
        let live = read_request(&hub, of, &request).await?;
        if live.spec.parent_stage_rollout != of.run {
            return Err(format!(
                "approval request {request} is of run {}, not of this one",
                live.spec.parent_stage_rollout
            )
            .into());
        }
        if is_of_another(&live, &run) {
            return Err(format!(
                "approval request {request} is left of an earlier run of that name: the hub makes it anew; try \
                 again in a moment"
            )
            .into());
        }
        let Some(patch) = approval(&live, clock::now()) else {
            say(&format!(
                "stage {stage} is approved already; the hub goes on in a moment"
            ));
            return Ok(());
        };
        let patch = serde_json::from_value(patch)?;
        let kind = ApiResource::erase::<ApprovalRequest>(&Scope::of(&live));
        let namespace = live.metadata.namespace.as_deref();
        let sent = hub.json_patch_status_dyn(&kind, namespace, &request, &patch);
        match sent.await {
            Ok(answer) => {
                let by = answer.data.pointer("/status/approvedBy");
                let by = by.and_then(Value::as_str);
                say(&approved(&stage, &request, by));
                if view.state == Phase::Stopped {
                    let flags = of.at.flags();
                    say(&format!(
                        "The run is stopped: that counts once it goes on (windlass run resume {}{flags})",
                        of.run
                    ));
                }
                return Ok(());
            }
            Err(ApiError::Conflict(_)) => {}
            Err(error) => return Err(words("approving", &error)),
        }
    }
    Err(format!("approval request {request} keeps changing").into())
}

fn approved(stage: &str, request: &str, by: Option<&str>) -> String {
    let by = by.map_or_else(
        || "; by whom is not recorded by this API server".to_owned(),
        |by| format!(" by {}", line(by)),
    );
    format!("{request} is approved{by} (stage {stage})")
}

async fn read_request(hub: &Writer, of: &Which, name: &str) -> Result<ApprovalRequest, Failure> {
    let api = api_in::<ApprovalRequest>(hub.client().clone(), &of.at.namespace);
    let found = api.get_opt(name).await.map_err(ApiError::from_kube);
    let found = found.map_err(|error| words("reading the approval request", &error))?;
    found.ok_or_else(|| {
        format!("there is no approval request {name} yet: the hub makes it; try again in a moment")
            .into()
    })
}

/// Whether a request belongs to a run that had the same name.
fn is_of_another(live: &ApprovalRequest, run: &UpdateRun) -> bool {
    let owners = live.metadata.owner_references.iter().flatten();
    let mut uids = owners.map(|owner| Some(&owner.uid));
    uids.next()
        .is_some_and(|uid| uid != run.metadata.uid.as_ref())
}

/// The approval that is meant.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// Of that stage, by the request of that name.
    Pending(String, String),
    /// It was given before.
    Already(String),
}

fn asked(view: &View, stage: Option<&str>, flags: &str) -> Result<Asked, Failure> {
    if view.ended || view.state == Phase::Deleting {
        return Err(over(view, "nothing to approve").into());
    }
    let pending = view::pending_approvals(view);
    let Some(stage) = stage else {
        return match pending.as_slice() {
            [(stage, request)] => Ok(Asked::Pending((*stage).to_owned(), (*request).to_owned())),
            [] => Err(format!(
                "{} waits for no approval: {}{}",
                view.run,
                view.state.text(),
                if view.message.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", line(&view.message))
                }
            )
            .into()),
            several => {
                let commands: Vec<String> = several
                    .iter()
                    .map(|(stage, _)| {
                        format!("\n  windlass run approve {} {stage}{flags}", view.run)
                    })
                    .collect();
                Err(format!(
                    "more than one stage waits; say which: {}",
                    commands.concat()
                )
                .into())
            }
        };
    };
    if let Some((stage, request)) = pending.iter().find(|(name, _)| *name == stage) {
        return Ok(Asked::Pending((*stage).to_owned(), (*request).to_owned()));
    }
    not_pending(view, stage)
}

/// Why there is nothing to approve in a stage.
fn not_pending(view: &View, stage: &str) -> Result<Asked, Failure> {
    let Some(known) = view.stages.iter().find(|known| known.name == stage) else {
        let names: Vec<&str> = view
            .stages
            .iter()
            .map(|known| known.name.as_str())
            .collect();
        return Err(format!(
            "{} has no stage {stage}; its stages are: {}",
            view.run,
            names.join(", ")
        )
        .into());
    };
    let mut approvals = known
        .tasks
        .iter()
        .filter(|task| task.type_ == TaskType::Approval)
        .peekable();
    if approvals.peek().is_none() {
        return Err(format!("stage {stage} asks for no approval").into());
    }
    let open = approvals
        .clone()
        .find(|task| task.state == TaskState::Pending);
    match open {
        Some(task) => Err(format!(
            "stage {stage} is not at its approval yet: that is asked for {} the stage; the run is: {}",
            task.when,
            view.state.text()
        )
        .into()),
        None => {
            let messages: Vec<String> = approvals.map(|task| line(&task.message)).collect();
            Ok(Asked::Already(format!(
                "stage {stage} is approved already: {}",
                messages.join("; ")
            )))
        }
    }
}

/// The patch that approves a request as it was read; none when it is approved.
fn approval(live: &ApprovalRequest, now: jiff::Timestamp) -> Option<Value> {
    let list = live
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let is_about = |condition: &&Condition| {
        condition.observed_generation.is_none()
            || condition.observed_generation == live.metadata.generation
    };
    let found = list.and_then(|list| conditions::find(list, RunCondition::Approved.as_str()));
    if found
        .filter(is_about)
        .is_some_and(|condition| conditions::status(condition) == Status::True)
    {
        return None;
    }
    let mut conditions: Vec<Condition> = list.unwrap_or_default().to_vec();
    conditions::set(
        &mut conditions,
        conditions::NewCondition {
            type_: RunCondition::Approved.as_str(),
            status: Status::True,
            // As upstream's plugin says it (API §4.10).
            reason: &format!("{}Approved", ApprovalRequest::kind(&Scope::of(live))),
            message: "Approved with windlass run approve".to_owned(),
            observed_generation: live.metadata.generation,
        },
        now,
    );
    let value = match (&live.status, list) {
        (None, _) => {
            json!({ "op": "add", "path": "/status", "value": { "conditions": conditions } })
        }
        (Some(_), _) => json!({ "op": "add", "path": "/status/conditions", "value": conditions }),
    };
    let mut patch = vec![
        json!({ "op": "test", "path": "/metadata/resourceVersion", "value": live.metadata.resource_version }),
        value,
    ];
    // One that was withdrawn may have left it.
    if live
        .status
        .as_ref()
        .is_some_and(|status| status.approved_by.is_some())
    {
        patch.push(json!({ "op": "remove", "path": "/status/approvedBy" }));
    }
    Some(Value::Array(patch))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{asks, request, run};
    use super::*;

    #[test]
    fn what_stop_and_resume_do() {
        const RUN: &str = "the state becomes Run";
        const STOP: &str = "the state becomes Stop";
        let done = |step: Result<Step, Failure>| match step {
            Ok(Step::To(RunState::Run)) => RUN.to_owned(),
            Ok(Step::To(state)) => format!("the state becomes {state:?}"),
            Ok(Step::Nothing(why)) => format!("nothing: {why}"),
            Err(error) => format!("refused: {error}"),
        };
        let failed = json!({ "conditions": [{ "type": "Succeeded", "status": "False", "reason": "UpdateRunFailed",
            "message": "2 of 3 failed", "lastTransitionTime": "2026-01-01T00:00:00Z" }] });
        let rows = [
            (
                "Initialize",
                json!({}),
                "refused: web-3 has not been started, so there is nothing to stop; to be rid of it, delete it",
                RUN,
            ),
            (
                "Run",
                asks(),
                STOP,
                "nothing: web-3 is told to run already: Waiting",
            ),
            (
                "Stop",
                asks(),
                "nothing: web-3 is being stopped already: Stage canary waits",
                RUN,
            ),
            (
                "Run",
                failed,
                "refused: web-3 is over: Failed (2 of 3 failed); nothing to stop",
                "refused: web-3 is over: Failed (2 of 3 failed); it can't go on; create another run",
            ),
        ];
        for (state, status, stop, resume) in rows {
            let run = run(state, &status);
            assert_eq!(done(stopping(&run)), stop);
            assert_eq!(done(resuming(&run)), resume);
        }
    }

    #[test]
    fn which_approval_is_meant() {
        let one = view::of(&run("Run", &asks()));
        let pending = Asked::Pending("canary".to_owned(), "web-3-after-canary".to_owned());
        assert_eq!(asked(&one, None, "").unwrap(), pending);
        assert_eq!(asked(&one, Some("canary"), "").unwrap(), pending);
        for (stage, expected) in [
            (
                "prod",
                "stage prod is not at its approval yet: that is asked for before the stage",
            ),
            (
                "nowhere",
                "web-3 has no stage nowhere; its stages are: canary, prod",
            ),
        ] {
            let error = asked(&one, Some(stage), "").unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let mut two = run("Run", &asks());
        let stages = two.status.as_mut().unwrap().stages_status.as_mut().unwrap();
        let waits = stages[0].after_stage_task_status.as_ref().unwrap()[1]
            .conditions
            .clone();
        stages[1].before_stage_task_status.as_mut().unwrap()[0].conditions = waits;
        let error = asked(&view::of(&two), None, " -n web")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("windlass run approve web-3 canary -n web\n")
                && error.ends_with("windlass run approve web-3 prod -n web"),
            "{error}"
        );
    }

    #[test]
    fn an_approval_is_as_the_peer_writes_it() {
        let now = "2026-01-01T00:05:00Z".parse().unwrap();
        for (namespace, reason) in [
            ("", "ClusterApprovalRequestApproved"),
            ("web", "ApprovalRequestApproved"),
        ] {
            let live = request().within(namespace);
            let patch = approval(&live, now).unwrap();
            let condition = patch.pointer("/1/value/conditions/0").unwrap();
            assert_eq!(condition["type"], "Approved");
            assert_eq!(condition["status"], "True");
            assert_eq!(condition["reason"], reason);
            assert_eq!(condition["observedGeneration"], 1);
            assert_eq!(patch.pointer("/0/value").unwrap(), "7");
            let mut approved = live;
            approved.status = serde_json::from_value(json!({ "conditions": [condition] })).unwrap();
            assert_eq!(approval(&approved, now), None);
        }
    }

    #[test]
    fn a_name_that_an_approval_has_left_goes() {
        let now = "2026-01-01T00:05:00Z".parse().unwrap();
        let mut left = request();
        left.status = serde_json::from_value(json!({ "approvedBy": "ann" })).unwrap();
        let patch = approval(&left, now).unwrap();
        let removed = json!({ "op": "remove", "path": "/status/approvedBy" });
        assert_eq!(patch.pointer("/2"), Some(&removed));
        assert_eq!(approval(&request(), now).unwrap().pointer("/2"), None);
    }
}
