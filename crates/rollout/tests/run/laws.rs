//! What has to hold at every write of a run, reckoned without the planner's help.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use windlass_api::Condition;
use windlass_api::conditions::RunCondition::{
    self, ApprovalRequestApproved, InReach, RolledBack, Skipped, Started, Succeeded,
    WaitTimeElapsed,
};
use windlass_api::conditions::Status;
use windlass_api::run::{
    ClusterStatus, FailureThreshold, StageConfig, StageStatus, TaskType, UpdateRunStatus,
};
use windlass_status::conditions;
use windlass_status::ready::Readiness;

use super::fleet::{NEW, find, says};
use super::world::World;

impl World {
    /// Before a binding is written.
    pub fn check_move(&self, cluster: &str, snapshot: &str, back: bool) {
        let status = self.fleet.status();
        assert!(
            self.fleet.members.contains_key(cluster),
            "{cluster} is gone"
        );
        assert!(
            self.fleet.selected.contains(cluster),
            "{cluster} is not chosen"
        );
        if back {
            assert!(status.rollback_status.is_some());
            assert_eq!(Some(snapshot), self.had.get(cluster).map(String::as_str));
            return;
        }
        assert!(
            status.rollback_status.is_none(),
            "{cluster} goes on in a rollback"
        );
        let recorded = self.fleet.cluster(cluster);
        assert!(
            is(recorded.conditions.as_ref(), Started),
            "it is recorded first"
        );
        for stage in status.stages_status.iter().flatten() {
            let config = self.config(&stage.stage_name);
            let mut before = config.before_stage_tasks.iter().flatten();
            let is_this = stage.clusters.iter().any(|c| c.cluster_name == cluster);
            if is_this || !stage.clusters.is_empty() {
                let name = format!("r-before-{}", stage.stage_name);
                assert!(before.next().is_none() || self.approved.contains(&name));
            }
            if is_this {
                return;
            }
            self.check_behind(stage, config);
        }
    }

    /// A stage that others come after.
    pub fn check_behind(&self, stage: &StageStatus, config: &StageConfig) {
        let name = &stage.stage_name;
        assert!(stage.clusters.iter().all(is_closed), "{name} is not done");
        if stage.clusters.is_empty() {
            return;
        }
        let times = stage.clusters.iter().flat_map(|c| {
            let list = c.conditions.as_ref();
            [Succeeded, Skipped].map(|type_| find(list, type_).map(|c| c.last_transition_time.0))
        });
        let done = times.flatten().max().unwrap();
        for task in config.after_stage_tasks.iter().flatten() {
            match task.type_ {
                TaskType::Approval => {
                    assert!(self.approved.contains(&format!("r-after-{name}")));
                }
                TaskType::TimedWait => {
                    let waited = self.fleet.now.duration_since(done).as_secs();
                    assert!(waited >= 60, "{name} waited for {waited} s");
                }
            }
        }
    }

    /// Before a status is written.
    pub fn check_status(&self, old: &UpdateRunStatus, new: &UpdateRunStatus) {
        let pairs = |old: &[StageStatus], new: &[StageStatus], back: bool| {
            assert_eq!(old.len(), new.len());
            for (old, new) in old.iter().zip(new) {
                self.check_stage(old, new, back);
            }
        };
        let list = |list: &Option<Vec<StageStatus>>| list.clone().unwrap_or_default();
        pairs(&list(&old.stages_status), &list(&new.stages_status), false);
        let fresh = || {
            let mut fresh = list(&new.rollback_status);
            for stage in &mut fresh {
                stage.conditions = None;
                for cluster in &mut stage.clusters {
                    cluster.conditions = None;
                }
            }
            fresh
        };
        if new.rollback_status.is_some() || old.rollback_status.is_some() {
            let before = old.rollback_status.clone().unwrap_or_else(fresh);
            pairs(&before, &list(&new.rollback_status), true);
        }
        let removal = |status: &UpdateRunStatus| status.deletion_stage_status.clone().unwrap();
        check_times(
            removal(old).conditions.as_ref(),
            removal(new).conditions.as_ref(),
        );
        check_times(old.conditions.as_ref(), new.conditions.as_ref());
        self.check_threshold(old, new);
        if is(new.conditions.as_ref(), RolledBack) {
            self.check_rolled_back(new);
        }
    }

    pub fn check_stage(&self, old: &StageStatus, new: &StageStatus, back: bool) {
        check_times(old.conditions.as_ref(), new.conditions.as_ref());
        let tasks = |stage: &StageStatus| {
            let before = stage.before_stage_task_status.clone().unwrap_or_default();
            let after = stage.after_stage_task_status.clone().unwrap_or_default();
            [before, after].concat()
        };
        for (old, new) in tasks(old).iter().zip(&tasks(new)) {
            let (old, new) = (old.conditions.as_ref(), new.conditions.as_ref());
            check_times(old, new);
            for type_ in [ApprovalRequestApproved, WaitTimeElapsed] {
                assert!(!is(old, type_) || is(new, type_), "{type_} is lost");
            }
        }
        for (old, new) in old.clusters.iter().zip(&new.clusters) {
            assert_eq!(old.cluster_name, new.cluster_name);
            assert!(old.previous.is_none() || old.previous == new.previous);
            let (was, now) = (old.conditions.as_ref(), new.conditions.as_ref());
            check_times(was, now);
            for type_ in [Started, Succeeded, Skipped] {
                let word = says(was, type_);
                assert!(word == "none" || word == says(now, type_), "{word} is lost");
            }
            if is(now, Succeeded) && !is(was, Succeeded) {
                self.check_done(&new.cluster_name, back);
            }
        }
    }

    /// A cluster is recorded as done.
    pub fn check_done(&self, cluster: &str, back: bool) {
        let mut all = self.fleet.bindings.iter();
        let binding = all
            .find(|b| b.spec.target_cluster == cluster && !b.deleting)
            .unwrap();
        assert_eq!(binding.readiness, Readiness::Ready, "{cluster} is not done");
        let asks = &binding.spec.resource_snapshot_name;
        if back {
            assert_eq!(Some(asks), self.had.get(cluster), "{cluster} is not back");
        } else {
            assert_eq!(asks, NEW, "{cluster} is done with another version");
        }
    }

    /// Clusters are begun with only while few enough have failed, as they are counted here.
    pub fn check_threshold(&self, old: &UpdateRunStatus, new: &UpdateRunStatus) {
        let all = |status: &UpdateRunStatus| -> Vec<StageStatus> {
            status.stages_status.clone().unwrap_or_default()
        };
        let begun = |stage: &StageStatus| {
            let clusters = stage.clusters.iter();
            clusters
                .filter(|c| is(c.conditions.as_ref(), Started))
                .count()
        };
        let failed = |stage: &StageStatus| {
            let failed = |c: &&ClusterStatus| {
                says(c.conditions.as_ref(), Succeeded) == "False ClusterUpdatingFailed"
            };
            stage.clusters.iter().filter(failed).count()
        };
        let (before, after) = (all(old), all(new));
        let total: usize = after.iter().map(|stage| stage.clusters.len()).sum();
        let of_run: usize = after.iter().map(failed).sum();
        for (before, after) in before.iter().zip(&after) {
            if begun(after) == begun(before) {
                continue;
            }
            let config = self.config(&after.stage_name);
            let stage = config.failure_threshold.as_ref();
            assert!(stage.is_none_or(|t| failed(after) <= may(t, after.clusters.len())));
            let run = self.fleet.run.spec.failure_threshold.as_ref();
            assert!(run.is_none_or(|t| of_run <= may(t, total)));
        }
    }

    /// Everything that was moved, and that nobody else has a hand in, asks for what it had.
    pub fn check_rolled_back(&self, status: &UpdateRunStatus) {
        let stages = status.stages_status.iter().flatten();
        for cluster in stages.flat_map(|stage| &stage.clusters) {
            let name = &cluster.cluster_name;
            let had = self.had.get(name).filter(|had| !had.is_empty());
            let is_there = self.fleet.selected.contains(name)
                && self.fleet.members.contains_key(name)
                && !self.edited.contains(name);
            let mut skipped = status.rollback_status.iter().flatten();
            let skipped = skipped.any(|stage| {
                let mut all = stage.clusters.iter();
                all.any(|c| c.cluster_name == *name && is(c.conditions.as_ref(), Skipped))
            });
            if let (true, Some(had), Some(_), false) = (is_there, had, &cluster.previous, skipped) {
                let mut all = self.fleet.bindings.iter();
                let asks = all.find(|b| b.spec.target_cluster == *name && !b.deleting);
                let asks = asks.map(|b| &b.spec.resource_snapshot_name);
                // One that was evicted when it was back has nothing.
                assert!(
                    asks.is_none_or(|asks| asks == had || asks.is_empty()),
                    "{name}"
                );
            }
        }
    }

    /// After a status was written: never more clusters are under way than may be. On the way back one that was
    /// cut off does not count, and comes back when it likes.
    pub fn check_concurrency(&self) {
        let status = self.fleet.status();
        let there = status.stages_status.iter().flatten();
        let there = there.map(|stage| (stage, true));
        let back = status.rollback_status.iter().flatten();
        for (stage, is_forward) in there.chain(back.map(|stage| (stage, false))) {
            let size = self.fleet.stage(&stage.stage_name).clusters.len();
            let open = stage.clusters.iter().filter(|c| {
                let list = c.conditions.as_ref();
                let counts = is_forward || find(list, InReach).is_none();
                is(list, Started) && !is_closed(c) && counts
            });
            assert!(open.count() <= limit(self.config(&stage.stage_name), size));
        }
    }
}

/// A time moves only with its status, and never back; everything is about one generation.
fn check_times(old: Option<&Vec<Condition>>, new: Option<&Vec<Condition>>) {
    let new = new.map(Vec::as_slice).unwrap_or_default();
    for was in old.into_iter().flatten() {
        if let Some(is) = conditions::find(new, &was.type_) {
            let same = is.last_transition_time == was.last_transition_time;
            assert!(same || is.status != was.status, "{was:?} {is:?}");
            assert!(is.last_transition_time.0 >= was.last_transition_time.0);
        }
    }
}

pub fn is(list: Option<&Vec<Condition>>, type_: RunCondition) -> bool {
    find(list, type_).is_some_and(|c| c.status == Status::True.as_str())
}

pub fn is_closed(cluster: &ClusterStatus) -> bool {
    let list = cluster.conditions.as_ref();
    find(list, Succeeded).is_some() || find(list, Skipped).is_some()
}

fn share(field: &IntOrString, total: usize) -> usize {
    match field {
        IntOrString::Int(number) => usize::try_from(*number).unwrap(),
        IntOrString::String(text) => {
            let share: usize = text.strip_suffix('%').unwrap().parse().unwrap();
            total * share / 100
        }
    }
}

/// How many clusters of a stage may be under way.
pub fn limit(config: &StageConfig, size: usize) -> usize {
    let field = config.max_concurrency.as_ref();
    field.map_or(1, |field| share(field, size)).max(1)
}

/// How many may fail.
fn may(threshold: &FailureThreshold, total: usize) -> usize {
    share(&threshold.max_failures, total)
}
