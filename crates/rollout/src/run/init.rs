//! The beginning of a run: stages, clusters and overrides are fixed (hub §3.3).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use windlass_api::conditions::{RunCondition, RunReason, Status};
use windlass_api::placement::{ApplyStrategy, NamespacedName};
use windlass_api::run::{
    ClusterStatus, DELETION_STAGE, StageConfig, StageStatus, StageTask, TaskStatus, TaskType,
    UpdateRunStatus, UpdateStrategySpec,
};
use windlass_api::scoped::UpdateRun;
use windlass_scheduler::selector::Selector;
use windlass_status::duration;

use super::room;
use super::stage::limit_of;
use super::stamp::Stamp;
use super::tasks::request_name;
use super::view::{Member, RunBinding, is_fresh};

/// Clusters named in a message before the rest is only counted (hub §3.3).
const NAMED: usize = 10;
/// Everything that the stages of a run follow from.
#[derive(Clone, Copy)]
pub struct InitView<'a> {
    /// The run.
    pub run: &'a UpdateRun,
    /// Why no run can be made for the placement, if none can.
    pub unfit: Option<&'a str>,
    /// What has to be there first, if something has.
    pub waits: Option<&'a str>,
    /// The strategy; none when there is none of that name.
    pub strategy: Option<&'a UpdateStrategySpec>,
    /// How the placement has manifests applied.
    pub apply_strategy: &'a ApplyStrategy,
    /// Index of the latest policy snapshot.
    pub policy_index: &'a str,
    /// Why the policy is not fulfilled, if it isn't.
    pub unfulfilled: Option<&'a str>,
    /// The resource snapshot that is rolled out.
    pub snapshot: Snapshot<'a>,
    /// The member clusters.
    pub members: &'a [Member<'a>],
    /// The clusters that the placement chooses.
    pub selected: &'a BTreeSet<&'a str>,
    /// The bindings of the placement.
    pub bindings: &'a [RunBinding<'a>],
    /// Override snapshots for a cluster.
    pub overrides: &'a dyn Fn(&str) -> Overrides,
}

/// ClusterResourceOverride snapshots, and ResourceOverride snapshots.
pub type Overrides = (Option<Vec<String>>, Option<Vec<NamespacedName>>);

/// The resource snapshot that a run is to roll out.
#[derive(Clone, Copy, Debug)]
pub enum Snapshot<'a> {
    /// The one of that index.
    Found(u64),
    /// There is none; the indexes that there are.
    Missing(&'a [u64]),
}

/// What comes of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// The status to write; whether or not it could be initialized.
    Status(Box<UpdateRunStatus>),
    /// Something has to be there first; the status to write says so.
    Waits(Box<UpdateRunStatus>),
}

impl Init {
    /// The status to write.
    #[must_use]
    pub fn into_status(self) -> UpdateRunStatus {
        match self {
            Self::Status(status) | Self::Waits(status) => *status,
        }
    }
}

/// The status of a run that can't be initialized, for that reason.
#[must_use]
pub fn refuse(run: &UpdateRun, why: &str, now: Timestamp) -> UpdateRunStatus {
    let mut status = run.status.clone().unwrap_or_default();
    let reason = RunReason::UpdateRunInitializedFailed;
    say(&mut status, run, (Status::False, reason, why), now);
    status
}

/// The status of a run that has to wait before it can be initialized, for that reason.
#[must_use]
pub fn wait(run: &UpdateRun, why: &str, now: Timestamp) -> UpdateRunStatus {
    let mut status = run.status.clone().unwrap_or_default();
    let told = (Status::Unknown, RunReason::UpdateRunInitializing, why);
    say(&mut status, run, told, now);
    status
}

fn say(
    status: &mut UpdateRunStatus,
    run: &UpdateRun,
    (how, reason, message): (Status, RunReason, &str),
    now: Timestamp,
) {
    let stamp = Stamp {
        generation: run.metadata.generation,
        now,
    };
    let list = &mut status.conditions;
    stamp.set(list, RunCondition::Initialized, how, reason, message);
}

/// Initializes a run. What its maker has to mend ends it, as with the peer; what will be there in a moment is
/// waited for (trap T3).
#[must_use]
pub fn init(view: &InitView<'_>, now: Timestamp) -> Init {
    if let Some(why) = view.unfit {
        return Init::Status(Box::new(refuse(view.run, why, now)));
    }
    if let Some(waits) = view.waits {
        return Init::Waits(Box::new(wait(view.run, waits, now)));
    }
    let mut status = view.run.status.clone().unwrap_or_default();
    match begun(view) {
        Err(why) => Init::Status(Box::new(refuse(view.run, &why, now))),
        Ok(begun) => {
            let conditions = status.conditions.take();
            status = begun;
            status.conditions = conditions;
            let clusters = status.policy_observed_cluster_count.unwrap_or_default();
            let message = format!("{clusters} cluster(s) in {} stage(s)", stages_of(&status));
            let reason = RunReason::UpdateRunInitializedSuccessfully;
            say(&mut status, view.run, (Status::True, reason, &message), now);
            Init::Status(Box::new(status))
        }
    }
}

fn stages_of(status: &UpdateRunStatus) -> usize {
    status.stages_status.as_ref().map_or(0, Vec::len)
}

fn begun(view: &InitView<'_>) -> Result<UpdateRunStatus, String> {
    let run = view.run.metadata.name.as_deref().unwrap_or_default();
    if let Some(why) = view.unfulfilled {
        return Err(format!(
            "the placement's policy is not fulfilled ({why}); when it is, start another run"
        ));
    }
    let strategy = view.strategy.ok_or_else(|| {
        format!(
            "there is no strategy {}; make it, then start another run",
            view.run.spec.staged_rollout_strategy_name
        )
    })?;
    check(strategy)?;
    let removed = removed(view);
    if view.selected.is_empty() && removed.is_empty() {
        return Err("the placement has no cluster".to_owned());
    }
    let index = match view.snapshot {
        Snapshot::Found(index) => index,
        Snapshot::Missing(known) => return Err(missing(view.run, known)),
    };
    let assigned = assign(strategy, view.members, view.selected)?;
    let stages: Vec<StageStatus> = strategy
        .stages
        .iter()
        .zip(&assigned)
        .map(|(config, clusters)| stage(view, run, config, clusters))
        .collect();
    let status = UpdateRunStatus {
        policy_snapshot_index_used: Some(view.policy_index.to_owned()),
        policy_observed_cluster_count: i64::try_from(view.selected.len()).ok(),
        resource_snapshot_index_used: Some(index.to_string()),
        applied_strategy: Some(view.apply_strategy.clone()),
        strategy_snapshot: Some(strategy.clone()),
        stages_status: Some(stages),
        deletion_stage_status: Some(StageStatus {
            stage_name: DELETION_STAGE.to_owned(),
            clusters: removed.into_iter().map(named).collect(),
            ..StageStatus::default()
        }),
        ..UpdateRunStatus::default()
    };
    let bindings = view.bindings.iter();
    let has = bindings.map(|binding| (binding.spec.target_cluster.as_str(), binding.spec));
    if room::is_enough(view.run, &status, &has.collect()) {
        return Ok(status);
    }
    Err(format!(
        "{} clusters are too many for one run, whose status has to fit into one object; split the placement",
        view.selected.len()
    ))
}

fn named(cluster: &str) -> ClusterStatus {
    ClusterStatus {
        cluster_name: cluster.to_owned(),
        ..ClusterStatus::default()
    }
}

/// Clusters that have what is no longer placed there, by name. In the look at a new policy their bindings
/// don't say so yet.
fn removed<'a>(view: &InitView<'a>) -> BTreeSet<&'a str> {
    let members: BTreeSet<&str> = view.members.iter().map(|member| member.name).collect();
    let unwanted = view.bindings.iter().filter(|binding| {
        let cluster = binding.spec.target_cluster.as_str();
        !binding.deleting
            && !is_fresh(binding.spec)
            && members.contains(cluster)
            && !view.selected.contains(cluster)
    });
    unwanted
        .map(|binding| binding.spec.target_cluster.as_str())
        .collect()
}

fn missing(run: &UpdateRun, known: &[u64]) -> String {
    match run.spec.resource_snapshot_index.as_deref() {
        None | Some("") => "the placement has no resource snapshot yet".to_owned(),
        Some(text) if text.parse::<u64>().is_err() => {
            format!("resourceSnapshotIndex {text:?} is no number from 0")
        }
        Some(text) if known.is_empty() => {
            format!("there is no complete resource snapshot of index {text}, nor of any other")
        }
        Some(text) => {
            let known: Vec<String> = known.iter().map(u64::to_string).collect();
            format!(
                "there is no complete resource snapshot of index {text}; there are {}",
                known.join(", ")
            )
        }
    }
}

fn stage(view: &InitView<'_>, run: &str, config: &StageConfig, clusters: &[&str]) -> StageStatus {
    let clusters = clusters.iter().map(|name| {
        let (cluster, namespaced) = (view.overrides)(name);
        ClusterStatus {
            cluster_resource_override_snapshots: cluster,
            resource_override_snapshots: namespaced,
            ..named(name)
        }
    });
    let tasks = |tasks: &Option<Vec<StageTask>>, before| {
        let tasks = tasks.as_ref().filter(|tasks| !tasks.is_empty())?;
        let status = |task: &StageTask| TaskStatus {
            type_: task.type_,
            approval_request_name: (task.type_ == TaskType::Approval)
                .then(|| request_name(run, &config.name, before)),
            conditions: None,
        };
        Some(tasks.iter().map(status).collect())
    };
    StageStatus {
        stage_name: config.name.clone(),
        clusters: clusters.collect(),
        before_stage_task_status: tasks(&config.before_stage_tasks, true),
        after_stage_task_status: tasks(&config.after_stage_tasks, false),
        ..StageStatus::default()
    }
}

/// What is wrong with a strategy, if something is.
fn check(strategy: &UpdateStrategySpec) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for stage in &strategy.stages {
        let at = |what: String| format!("stage {}: {what}", stage.name);
        if !names.insert(&stage.name) {
            return Err(at("the name is there twice".to_owned()));
        }
        if limit_of(stage, 100).is_none() {
            return Err(at(
                "maxConcurrency is neither a number nor a percentage".to_owned()
            ));
        }
        let mut types = BTreeSet::new();
        for task in stage.after_stage_tasks.iter().flatten() {
            if !types.insert(task.type_) {
                return Err(at("afterStageTasks has a type twice".to_owned()));
            }
            let wait = task.wait_time.as_deref().and_then(duration::parse);
            if task.type_ == TaskType::TimedWait && wait.unwrap_or_default().is_zero() {
                return Err(at("a TimedWait needs a waitTime of more than 0".to_owned()));
            }
        }
        let before = stage.before_stage_tasks.as_deref().unwrap_or_default();
        if before.len() > 1 || before.iter().any(|task| task.type_ != TaskType::Approval) {
            return Err(at(
                "beforeStageTasks may have one Approval and nothing else".to_owned(),
            ));
        }
    }
    Ok(())
}

/// The chosen clusters of each stage, in the order in which they are updated.
///
/// # Errors
/// A selector that is none, a cluster in two stages or in none, a label that is no whole number.
pub(super) fn assign<'a>(
    strategy: &UpdateStrategySpec,
    members: &[Member<'a>],
    selected: &BTreeSet<&str>,
) -> Result<Vec<Vec<&'a str>>, String> {
    let chosen: Vec<&Member<'a>> = members
        .iter()
        .filter(|member| selected.contains(member.name))
        .collect();
    let mut stage_of: BTreeMap<&str, &str> = BTreeMap::new();
    let mut stages = Vec::with_capacity(strategy.stages.len());
    for stage in &strategy.stages {
        let mut clusters: Vec<(i64, &'a str)> = Vec::new();
        if let Some(selector) = &stage.label_selector {
            let selector = Selector::new(selector)
                .map_err(|error| format!("stage {}: labelSelector: {error}", stage.name))?;
            for member in chosen
                .iter()
                .filter(|member| selector.matches(member.labels))
            {
                if let Some(other) = stage_of.insert(member.name, &stage.name) {
                    return Err(format!(
                        "cluster {} is in two stages, {other} and {}",
                        member.name, stage.name
                    ));
                }
                clusters.push((rank(stage, member)?, member.name));
            }
        }
        clusters.sort_unstable();
        stages.push(clusters.into_iter().map(|(_, name)| name).collect());
    }
    let mut unplaced: Vec<&str> = selected
        .iter()
        .copied()
        .filter(|name| !stage_of.contains_key(name))
        .collect();
    unplaced.sort_unstable();
    if unplaced.is_empty() {
        return Ok(stages);
    }
    let count = unplaced.len();
    unplaced.truncate(NAMED);
    Err(format!(
        "{count} cluster(s) of the placement are in no stage: {}{}",
        unplaced.join(", "),
        if count > NAMED { ", ..." } else { "" }
    ))
}

/// Where the sorting label puts a cluster.
fn rank(stage: &StageConfig, member: &Member<'_>) -> Result<i64, String> {
    let Some(key) = stage
        .sorting_label_key
        .as_deref()
        .filter(|key| !key.is_empty())
    else {
        return Ok(0);
    };
    let value = member.labels.get(key).map(String::as_str);
    value.and_then(|text| text.parse().ok()).ok_or_else(|| {
        let found = value.map_or("has none".to_owned(), |text| format!("has {text:?}"));
        format!(
            "stage {}: label {key} of cluster {} has to be a whole number, and it {found}",
            stage.name, member.name
        )
    })
}
