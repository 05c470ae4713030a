//! Conditions of a run, stamped.

use jiff::Timestamp;
use windlass_api::Condition;
use windlass_api::conditions::{RunCondition, RunReason, Status};
use windlass_api::run::UpdateRunStatus;
use windlass_status::conditions::{self, NewCondition};

/// A list of conditions as the API has it.
pub type List = Option<Vec<Condition>>;

/// Stamps conditions with a generation and a time.
#[derive(Clone, Copy)]
pub struct Stamp {
    /// Generation of the run.
    pub generation: Option<i64>,
    /// Now.
    pub now: Timestamp,
}

impl Stamp {
    /// Sets a condition.
    pub fn set(
        self,
        list: &mut List,
        type_: RunCondition,
        status: Status,
        reason: RunReason,
        message: impl Into<String>,
    ) {
        let new = NewCondition {
            type_: type_.as_str(),
            status,
            reason: reason.as_str(),
            message: message.into(),
            observed_generation: self.generation,
        };
        conditions::set(list.get_or_insert_default(), new, self.now);
    }

    /// Every condition is about the present generation: a change of the state does not make what was done
    /// undone (hub §3.2).
    pub fn renew(self, status: &mut UpdateRunStatus) {
        let renew = |list: &mut List| {
            for condition in list.iter_mut().flatten() {
                condition.observed_generation = self.generation;
            }
        };
        renew(&mut status.conditions);
        let stages = status.stages_status.iter_mut().flatten();
        let back = status.rollback_status.iter_mut().flatten();
        for stage in stages.chain(&mut status.deletion_stage_status).chain(back) {
            renew(&mut stage.conditions);
            for cluster in &mut stage.clusters {
                renew(&mut cluster.conditions);
            }
            let before = stage.before_stage_task_status.iter_mut().flatten();
            for task in before.chain(stage.after_stage_task_status.iter_mut().flatten()) {
                renew(&mut task.conditions);
            }
        }
    }
}

/// Takes a condition out.
pub fn remove(list: &mut List, type_: RunCondition) {
    if let Some(list) = list {
        conditions::remove(list, type_.as_str());
    }
}

/// The condition of a type.
pub fn find(list: &List, type_: RunCondition) -> Option<&Condition> {
    conditions::find(list.as_deref()?, type_.as_str())
}

/// Its status.
pub fn status(list: &List, type_: RunCondition) -> Option<Status> {
    find(list, type_).map(conditions::status)
}

/// Whether it is True.
pub fn is(list: &List, type_: RunCondition) -> bool {
    status(list, type_) == Some(Status::True)
}

/// Since when it has the status that it has.
pub fn since(list: &List, type_: RunCondition) -> Option<Timestamp> {
    find(list, type_).map(|condition| condition.last_transition_time.0)
}
