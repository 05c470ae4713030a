//! What is told of a run, to people and programs alike, from its status alone.

use jiff::Timestamp;
use serde::Serialize;
use windlass_api::conditions::{RunCondition, RunReason, Status};
use windlass_api::run::{
    ClusterStatus, RunState, StageStatus, TaskStatus, TaskType, UpdateRunStatus,
};
use windlass_api::scoped::UpdateRun;
use windlass_api::{Condition, Time};
use windlass_status::{conditions, duration};

type List = Option<Vec<Condition>>;

/// A run.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    pub run: String,
    /// Absent for a ClusterStagedUpdateRun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub placement: String,
    pub strategy: String,
    /// Index of the snapshot that it brings; null while that is not known.
    pub index: Option<String>,
    pub state: Phase,
    /// Whether it has ended.
    pub ended: bool,
    pub message: String,
    /// Since when it is in that state.
    pub since: Option<Time>,
    /// How many stages are done or begun, of how many.
    pub stage: usize,
    pub stages_total: usize,
    #[serde(flatten)]
    pub counts: Counts,
    pub stages: Vec<Stage>,
    /// Clusters that wait for the next run.
    pub joined_clusters: Vec<String>,
    /// The way back.
    pub rollback: Vec<Stage>,
}

/// How a run stands, in a word or two.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Initializing,
    InitializationFailed,
    Initialized,
    Starting,
    Running,
    Waiting,
    Stuck,
    Stopping,
    Stopped,
    RollingBack,
    Succeeded,
    Failed,
    Superseded,
    RolledBack,
    RollbackFailed,
    Deleting,
}

impl Phase {
    pub const fn text(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Initializing => "Initializing",
            Self::InitializationFailed => "Initialization failed",
            Self::Initialized => "Initialized, not started",
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::Waiting => "Waiting",
            Self::Stuck => "Stuck",
            Self::Stopping => "Stopping",
            Self::Stopped => "Stopped",
            Self::RollingBack => "Rolling back",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Superseded => "Superseded",
            Self::RolledBack => "Failed, rolled back",
            Self::RollbackFailed => "Failed, rollback failed",
            Self::Deleting => "Deleting",
        }
    }
}

/// How many clusters there are, and what became of them.
#[derive(Serialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    #[serde(rename = "doneClusters")]
    pub done: usize,
    #[serde(rename = "failedClusters")]
    pub failed: usize,
    #[serde(rename = "skippedClusters")]
    pub skipped: usize,
    #[serde(rename = "totalClusters")]
    pub total: usize,
}

/// What becomes of the clusters of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Forward,
    Removal,
    Back,
}

#[derive(Serialize)]
pub struct Stage {
    pub name: String,
    pub state: StageState,
    pub since: Option<Time>,
    pub message: String,
    #[serde(flatten)]
    pub counts: Counts,
    pub tasks: Vec<Task>,
    pub clusters: Vec<Cluster>,
}

#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageState {
    Pending,
    Updating,
    Waiting,
    Stopping,
    Stopped,
    Done,
    Empty,
    Failed,
}

/// A gate of a stage.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// `before` or `after`.
    pub when: &'static str,
    #[serde(rename = "type")]
    pub type_: TaskType,
    pub state: TaskState,
    /// Name of the request, of an approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_request: Option<String>,
    /// When the time is over, of a wait that has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// How long is waited, of a wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_time: Option<String>,
    pub message: String,
}

#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// It is not its turn.
    Pending,
    /// It is waited for.
    Waiting,
    Done,
}

#[derive(Serialize)]
pub struct Cluster {
    pub name: String,
    pub state: ClusterState,
    pub since: Option<Time>,
    pub reason: String,
    pub message: String,
}

#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterState {
    Pending,
    Updating,
    Updated,
    Removing,
    Removed,
    GoingBack,
    Back,
    Skipped,
    Failed,
}

impl ClusterState {
    /// Where it comes in a list that has no room for all: what is wrong, what goes on, what is to come, what
    /// is done.
    pub const fn rank(self) -> u8 {
        match self {
            Self::Failed => 0,
            Self::Updating | Self::Removing | Self::GoingBack => 1,
            Self::Pending => 2,
            Self::Skipped => 3,
            Self::Updated | Self::Removed | Self::Back => 4,
        }
    }

    pub const fn text(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Updating => "Updating",
            Self::Updated => "Updated",
            Self::Removing => "Removing",
            Self::Removed => "Removed",
            Self::GoingBack => "Going back",
            Self::Back => "Back",
            Self::Skipped => "Skipped",
            Self::Failed => "Failed",
        }
    }
}

/// What is to be told of a run.
pub fn of(run: &UpdateRun) -> View {
    let empty = UpdateRunStatus::default();
    let status = run.status.as_ref().unwrap_or(&empty);
    let (state, telling) = phase(run, status);
    let mut stages: Vec<Stage> = status
        .stages_status
        .iter()
        .flatten()
        .map(|stage| of_stage(stage, status, Way::Forward))
        .collect();
    let mut counts = Counts::default();
    for stage in &stages {
        counts.done += stage.counts.done;
        counts.failed += stage.counts.failed;
        counts.skipped += stage.counts.skipped;
        counts.total += stage.counts.total;
    }
    let stages_total = stages.len();
    let begun = |stage: &&Stage| stage.state != StageState::Pending;
    let stage = stages.iter().filter(begun).count();
    let removal = status.deletion_stage_status.as_ref();
    stages.extend(
        removal
            .filter(|stage| !stage.clusters.is_empty())
            .map(|stage| of_stage(stage, status, Way::Removal)),
    );
    let index = status.resource_snapshot_index_used.clone();
    View {
        run: run.metadata.name.clone().unwrap_or_default(),
        namespace: run.metadata.namespace.clone(),
        placement: run.spec.placement_name.clone(),
        strategy: run.spec.staged_rollout_strategy_name.clone(),
        index: index
            .or_else(|| run.spec.resource_snapshot_index.clone())
            .filter(|index| !index.is_empty()),
        state,
        ended: has_ended(status),
        message: telling.map(|c| c.message.clone()).unwrap_or_default(),
        since: telling.map(|c| c.last_transition_time.clone()),
        stage,
        stages_total,
        counts,
        stages,
        joined_clusters: status.joined_clusters.clone().unwrap_or_default(),
        rollback: status
            .rollback_status
            .iter()
            .flatten()
            .map(|stage| of_stage(stage, status, Way::Back))
            .collect(),
    }
}

fn find(list: &List, type_: RunCondition) -> Option<&Condition> {
    conditions::find(list.as_deref()?, type_.as_str())
}

fn status_of(list: &List, type_: RunCondition) -> Option<Status> {
    find(list, type_).map(conditions::status)
}

fn is(list: &List, type_: RunCondition) -> bool {
    status_of(list, type_) == Some(Status::True)
}

fn is_reason(condition: &Condition, reason: RunReason) -> bool {
    condition.reason == reason.as_str()
}

/// Whether a run has ended, well or not.
pub fn has_ended(status: &UpdateRunStatus) -> bool {
    let list = &status.conditions;
    status_of(list, RunCondition::Initialized) == Some(Status::False)
        || matches!(
            status_of(list, RunCondition::Succeeded),
            Some(Status::True | Status::False)
        )
}

/// How a run stands, and the condition that says so. In this order: it is being deleted, it has ended and
/// how, it goes, it is yet to begin.
fn phase<'a>(run: &UpdateRun, status: &'a UpdateRunStatus) -> (Phase, Option<&'a Condition>) {
    let list = &status.conditions;
    let initialized = find(list, RunCondition::Initialized);
    let progressing = find(list, RunCondition::Progressing);
    let succeeded = find(list, RunCondition::Succeeded);
    let back = find(list, RunCondition::RolledBack);
    if run.metadata.deletion_timestamp.is_some() && !has_ended(status) {
        return (Phase::Deleting, progressing.or(initialized));
    }
    if let Some(condition) = initialized.filter(|c| conditions::status(c) == Status::False) {
        return (Phase::InitializationFailed, Some(condition));
    }
    match succeeded.map(|c| (c, conditions::status(c))) {
        Some((condition, Status::True)) => return (Phase::Succeeded, Some(condition)),
        Some((condition, Status::False)) => {
            if let Some(by) = find(list, RunCondition::Superseded) {
                return (Phase::Superseded, Some(by));
            }
            return match back.map(|c| (c, conditions::status(c))) {
                Some((back, Status::True)) => (Phase::RolledBack, Some(back)),
                Some((back, Status::False)) => (Phase::RollbackFailed, Some(back)),
                _ => (Phase::Failed, Some(condition)),
            };
        }
        _ => {}
    }
    let Some(progressing) = progressing else {
        let is_told = run.spec.state.unwrap_or_default() == RunState::Run;
        return match initialized.map(conditions::status) {
            None => (Phase::Pending, None),
            Some(Status::True) if is_told => (Phase::Starting, initialized),
            Some(Status::True) => (Phase::Initialized, initialized),
            Some(_) => (Phase::Initializing, initialized),
        };
    };
    (going(run, progressing, back.is_some()), Some(progressing))
}

/// How a run goes that was begun. What it was told and has not looked at yet comes first.
fn going(run: &UpdateRun, progressing: &Condition, is_back: bool) -> Phase {
    let is_told = progressing.observed_generation < run.metadata.generation;
    let is_stopped = is_reason(progressing, RunReason::UpdateRunStopped);
    match run.spec.state.unwrap_or_default() {
        RunState::Stop if is_told && !is_stopped => return Phase::Stopping,
        RunState::Run if is_told && is_stopped => return Phase::Starting,
        _ => {}
    }
    let words = [
        (RunReason::UpdateRunWaiting, Phase::Waiting),
        (RunReason::UpdateRunStuck, Phase::Stuck),
        (RunReason::UpdateRunStopping, Phase::Stopping),
        (RunReason::UpdateRunStopped, Phase::Stopped),
    ];
    let said = words
        .into_iter()
        .find(|(reason, _)| is_reason(progressing, *reason));
    match said {
        Some((_, phase)) => phase,
        None if is_back => Phase::RollingBack,
        None => Phase::Running,
    }
}

fn of_stage(stage: &StageStatus, status: &UpdateRunStatus, way: Way) -> Stage {
    let clusters: Vec<Cluster> = stage
        .clusters
        .iter()
        .map(|cluster| of_cluster(cluster, way))
        .collect();
    let count = |states: &[ClusterState]| {
        let of = clusters.iter().filter(|c| states.contains(&c.state));
        of.count()
    };
    let counts = Counts {
        done: count(&[
            ClusterState::Updated,
            ClusterState::Removed,
            ClusterState::Back,
        ]),
        failed: count(&[ClusterState::Failed]),
        skipped: count(&[ClusterState::Skipped]),
        total: clusters.len(),
    };
    let (state, telling) = stage_state(stage);
    let name = match way {
        Way::Removal => "(removal)".to_owned(),
        _ => stage.stage_name.clone(),
    };
    Stage {
        name,
        state,
        since: telling.map(|c| c.last_transition_time.clone()),
        message: telling.map(|c| c.message.clone()).unwrap_or_default(),
        counts,
        tasks: tasks(stage, status),
        clusters,
    }
}

fn stage_state(stage: &StageStatus) -> (StageState, Option<&Condition>) {
    let progressing = find(&stage.conditions, RunCondition::Progressing);
    if let Some(end) = find(&stage.conditions, RunCondition::Succeeded) {
        let state = match conditions::status(end) {
            Status::False => StageState::Failed,
            _ if is_reason(end, RunReason::StageUpdatingSkippedNoClusters) => StageState::Empty,
            _ => StageState::Done,
        };
        return (state, Some(end));
    }
    let Some(progressing) = progressing else {
        return (StageState::Pending, None);
    };
    let words = [
        (RunReason::StageUpdatingWaiting, StageState::Waiting),
        (RunReason::StageUpdatingStopping, StageState::Stopping),
        (RunReason::StageUpdatingStopped, StageState::Stopped),
    ];
    let said = words
        .into_iter()
        .find(|(reason, _)| is_reason(progressing, *reason));
    let state = said.map_or(StageState::Updating, |(_, state)| state);
    (state, Some(progressing))
}

fn of_cluster(cluster: &ClusterStatus, way: Way) -> Cluster {
    let list = &cluster.conditions;
    let skipped =
        find(list, RunCondition::Skipped).filter(|c| conditions::status(c) == Status::True);
    let ended = find(list, RunCondition::Succeeded);
    let started = find(list, RunCondition::Started);
    let telling = skipped.or(ended).or(started);
    let by_way = |forward, removal, back| match way {
        Way::Forward => forward,
        Way::Removal => removal,
        Way::Back => back,
    };
    let state = match (skipped, ended.map(conditions::status), started) {
        (Some(_), ..) => ClusterState::Skipped,
        (_, Some(Status::False), _) => ClusterState::Failed,
        (_, Some(_), _) => by_way(
            ClusterState::Updated,
            ClusterState::Removed,
            ClusterState::Back,
        ),
        (_, None, Some(_)) => by_way(
            ClusterState::Updating,
            ClusterState::Removing,
            ClusterState::GoingBack,
        ),
        (_, None, None) => ClusterState::Pending,
    };
    Cluster {
        name: cluster.cluster_name.clone(),
        state,
        since: telling.map(|c| c.last_transition_time.clone()),
        reason: telling.map(|c| c.reason.clone()).unwrap_or_default(),
        message: telling.map(|c| c.message.clone()).unwrap_or_default(),
    }
}

fn tasks(stage: &StageStatus, status: &UpdateRunStatus) -> Vec<Task> {
    let of = |when: &'static str, list: &Option<Vec<TaskStatus>>| -> Vec<Task> {
        let each = list.iter().flatten();
        each.map(|task| of_task(when, task, stage, status))
            .collect()
    };
    let mut all = of("before", &stage.before_stage_task_status);
    all.extend(of("after", &stage.after_stage_task_status));
    all
}

fn of_task(
    when: &'static str,
    task: &TaskStatus,
    stage: &StageStatus,
    status: &UpdateRunStatus,
) -> Task {
    let list = &task.conditions;
    let done = [
        RunCondition::ApprovalRequestApproved,
        RunCondition::WaitTimeElapsed,
    ]
    .into_iter()
    .find_map(|type_| find(list, type_).filter(|c| conditions::status(c) == Status::True));
    let asked = is(list, RunCondition::ApprovalRequestCreated);
    let wait_time = (task.type_ == TaskType::TimedWait)
        .then(|| wait_time(&stage.stage_name, status))
        .flatten();
    let has_failed = status_of(&stage.conditions, RunCondition::Succeeded) == Some(Status::False);
    let until = match (&wait_time, done) {
        (Some(length), None) if !has_failed => until(stage, length),
        _ => None,
    };
    let state = match done {
        Some(_) => TaskState::Done,
        None if has_failed => TaskState::Pending,
        None if asked || until.is_some() => TaskState::Waiting,
        None => TaskState::Pending,
    };
    Task {
        when,
        type_: task.type_,
        state,
        approval_request: task.approval_request_name.clone(),
        until,
        wait_time,
        message: done.map(|c| c.message.clone()).unwrap_or_default(),
    }
}

/// How long a stage is waited after, as its strategy says.
fn wait_time(stage: &str, status: &UpdateRunStatus) -> Option<String> {
    let stages = &status.strategy_snapshot.as_ref()?.stages;
    let config = stages.iter().find(|config| config.name == stage)?;
    let mut tasks = config.after_stage_tasks.iter().flatten();
    let wait = tasks.find(|task| task.type_ == TaskType::TimedWait)?;
    wait.wait_time.clone()
}

/// When a wait is over: it begins when the last cluster of the stage is done.
fn until(stage: &StageStatus, length: &str) -> Option<Time> {
    let finished = |cluster: &ClusterStatus| -> Option<Timestamp> {
        let list = &cluster.conditions;
        let ends = [RunCondition::Succeeded, RunCondition::Skipped];
        ends.into_iter()
            .filter_map(|type_| find(list, type_))
            .map(|condition| condition.last_transition_time.0)
            .max()
    };
    let each: Option<Vec<Timestamp>> = stage.clusters.iter().map(finished).collect();
    let last = each?.into_iter().max()?;
    last.checked_add(duration::parse(length)?).ok().map(Time)
}

/// An approval that is waited for: the stage, and the name of the request.
pub fn pending_approvals(view: &View) -> Vec<(&str, &str)> {
    let mut all = Vec::new();
    for stage in &view.stages {
        for task in &stage.tasks {
            if let (TaskType::Approval, TaskState::Waiting, Some(request)) =
                (task.type_, task.state, &task.approval_request)
            {
                all.push((stage.name.as_str(), request.as_str()));
            }
        }
    }
    all
}
