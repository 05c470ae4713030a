//! What people see of runs.

use std::fmt::Write;

use jiff::Timestamp;
use windlass_api::Time;
use windlass_api::run::TaskType;
use windlass_cluster::ObjectKey;
use windlass_status::duration;

use super::view::{Cluster, ClusterState, Counts, Phase, Stage, StageState, Task, TaskState, View};
use crate::table::{age, cells, line, table};

/// What a command about the same hub needs besides its own words: ` -n web --kubeconfig hub.kubeconfig`.
pub type Flags = str;

/// A line per run.
pub fn list(runs: &[View], now: Timestamp) -> String {
    if runs.is_empty() {
        return "there are no update runs\n".to_owned();
    }
    let heads = [
        "RUN",
        "PLACEMENT",
        "INDEX",
        "STAGE",
        "DONE",
        "FAILED",
        "SKIPPED",
        "STATE",
        "SINCE",
    ];
    let mut rows = vec![cells(heads)];
    for run in runs {
        let counts = run.counts;
        rows.push(cells([
            &key(run).to_string(),
            &run.placement,
            run.index.as_deref().unwrap_or("-"),
            &format!("{}/{}", run.stage, run.stages_total),
            &format!("{}/{}", counts.done, counts.total),
            &counts.failed.to_string(),
            &counts.skipped.to_string(),
            run.state.text(),
            &since(run.since.as_ref(), now),
        ]));
    }
    table(&rows)
}

fn key(run: &View) -> ObjectKey {
    ObjectKey::namespaced(run.namespace.clone().unwrap_or_default(), &run.run)
}

fn since(time: Option<&Time>, now: Timestamp) -> String {
    time.map_or_else(|| "-".to_owned(), |time| age(time.0, now))
}

/// How far a run is, in one line.
pub fn progress(run: &View) -> String {
    let mut text = format!("{} {}", key(run), run.state.text());
    if !run.message.is_empty() {
        let _ = write!(text, ": {}", line(&run.message));
    }
    let _ = write!(text, "; {}", told(run.counts));
    text
}

fn told(counts: Counts) -> String {
    let mut text = format!("{} of {} clusters done", counts.done, counts.total);
    for (count, what) in [(counts.failed, "failed"), (counts.skipped, "skipped")] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    text
}

/// All of a run. With a limit, clusters that nothing has to be said of are left out first.
pub fn show(run: &View, flags: &Flags, now: Timestamp, limit: Option<usize>) -> String {
    let mut text = format!(
        "{}: placement {}, index {}, strategy {}\n{} for {}; {}\n",
        key(run),
        run.placement,
        run.index.as_deref().unwrap_or("-"),
        run.strategy,
        run.state.text(),
        since(run.since.as_ref(), now),
        told(run.counts),
    );
    if !run.message.is_empty() {
        let _ = writeln!(text, "  {}", line(&run.message));
    }
    if let Some(hint) = hint(run, flags) {
        let _ = writeln!(text, "  {hint}");
    }
    if !run.stages.is_empty() {
        text.push('\n');
        text.push_str(&stages(&run.stages, now));
    }
    if run.stages.iter().any(|stage| !stage.tasks.is_empty()) {
        text.push('\n');
        text.push_str(&tasks(run, flags, now));
    }
    text.push_str(&clusters(&run.stages, now, limit));
    if !run.joined_clusters.is_empty() {
        let names = run.joined_clusters.join(", ");
        let _ = writeln!(
            text,
            "\nJoined since, and waiting for the next run: {names}"
        );
    }
    if !run.rollback.is_empty() {
        let (mut back, mut all) = (0, 0);
        for stage in &run.rollback {
            back += stage.counts.done;
            all += stage.counts.total;
        }
        let _ = writeln!(text, "\nThe way back: {back} of {all} clusters are back");
        text.push_str(&clusters(&run.rollback, now, limit));
    }
    text
}

/// What a person can do about it.
fn hint(run: &View, flags: &Flags) -> Option<String> {
    let name = &run.run;
    match run.state {
        Phase::Pending => Some("the hub has not looked at it yet; is it running?".to_owned()),
        Phase::Initialized => Some(format!("to start it: windlass run start {name}{flags}")),
        Phase::Stopped => Some(format!("to go on: windlass run resume {name}{flags}")),
        _ => None,
    }
}

fn stages(stages: &[Stage], now: Timestamp) -> String {
    let mut rows = vec![cells([
        "STAGE", "STATE", "DONE", "FAILED", "SKIPPED", "SINCE",
    ])];
    for stage in stages {
        rows.push(cells([
            &stage.name,
            state(stage.state),
            &format!("{}/{}", stage.counts.done, stage.counts.total),
            &stage.counts.failed.to_string(),
            &stage.counts.skipped.to_string(),
            &since(stage.since.as_ref(), now),
        ]));
    }
    table(&rows)
}

const fn state(state: StageState) -> &'static str {
    match state {
        StageState::Pending => "Pending",
        StageState::Updating => "Updating",
        StageState::Waiting => "Waiting",
        StageState::Stopping => "Stopping",
        StageState::Stopped => "Stopped",
        StageState::Done => "Done",
        StageState::Empty => "Empty",
        StageState::Failed => "Failed",
    }
}

fn tasks(run: &View, flags: &Flags, now: Timestamp) -> String {
    let mut rows = vec![cells(["TASK", "STATE", "DETAILS"])];
    for stage in &run.stages {
        for task in &stage.tasks {
            let (state, details) = task_in_words(run, stage, task, flags, now);
            let what = match (task.type_, &task.wait_time) {
                (TaskType::Approval, _) => "approval".to_owned(),
                (TaskType::TimedWait, None) => "wait".to_owned(),
                (TaskType::TimedWait, Some(length)) => format!("wait of {length}"),
            };
            let what = format!("{} {}: {what}", task.when, stage.name);
            rows.push(cells([&what, state, &details]));
        }
    }
    table(&rows)
}

fn task_in_words(
    run: &View,
    stage: &Stage,
    task: &Task,
    flags: &Flags,
    now: Timestamp,
) -> (&'static str, String) {
    let message = line(&task.message);
    match (task.state, task.type_) {
        (TaskState::Done, _) => ("Done", message),
        (TaskState::Pending, _) => ("Pending", String::new()),
        (TaskState::Waiting, TaskType::Approval) => {
            let request = task.approval_request.as_deref().unwrap_or_default();
            let command = format!("windlass run approve {} {}{flags}", run.run, stage.name);
            ("Waiting", format!("{request}; to approve: {command}"))
        }
        (TaskState::Waiting, TaskType::TimedWait) => {
            let left = task.until.as_ref().map(|until| until.0.duration_since(now));
            let seconds = left.map_or(0, |left| left.as_secs());
            let left = jiff::SignedDuration::from_secs(seconds);
            ("Waiting", format!("{} left", duration::show(left)))
        }
    }
}

fn clusters(stages: &[Stage], now: Timestamp, limit: Option<usize>) -> String {
    let mut all: Vec<(&Stage, &Cluster)> = stages
        .iter()
        .flat_map(|stage| stage.clusters.iter().map(move |cluster| (stage, cluster)))
        .collect();
    if all.is_empty() {
        return String::new();
    }
    let limit = limit.filter(|limit| *limit < all.len());
    let more = limit.map_or(0, |limit| all.len() - limit);
    if let Some(limit) = limit {
        all.sort_by_key(|(_, cluster)| cluster.state.rank());
        all.truncate(limit);
    }
    let mut rows = vec![cells(["CLUSTER", "STAGE", "STATE", "SINCE", "MESSAGE"])];
    for (stage, cluster) in all {
        let is_plain = matches!(
            cluster.state,
            ClusterState::Updated | ClusterState::Removed | ClusterState::Back
        );
        let message = if is_plain {
            String::new()
        } else {
            line(&cluster.message)
        };
        rows.push(cells([
            &cluster.name,
            &stage.name,
            cluster.state.text(),
            &since(cluster.since.as_ref(), now),
            &message,
        ]));
    }
    let tail = match more {
        0 => String::new(),
        more => format!("and {more} more\n"),
    };
    format!("\n{}{tail}", table(&rows))
}
