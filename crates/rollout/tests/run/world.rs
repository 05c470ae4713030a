//! A world in which anything may happen to a run: what happens, and what has to hold at every write.

use std::collections::{BTreeMap, BTreeSet};

use windlass_api::binding::BindingState;
use windlass_api::conditions::RunCondition;
use windlass_api::run::{ClusterStatus, RunState, StageConfig, StageStatus, UpdateRunStatus};
use windlass_rollout::run::is_over;
use windlass_status::conditions;
use windlass_status::ready::Readiness;

use super::fleet::{Fleet, NEW, Write};
use super::laws::{is_closed, limit};

/// What a version does on a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quality {
    #[default]
    Works,
    Fails,
    Hangs,
    TimesOut,
}

/// How often a binding was changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    pub there: usize,
    pub back: usize,
}

#[derive(Clone, Debug)]
pub struct World {
    pub fleet: Fleet,
    pub quality: BTreeMap<(String, String), Quality>,
    /// What each cluster asked for before the run.
    pub had: BTreeMap<String, String>,
    pub moved: BTreeMap<String, Moved>,
    /// Changed by the run, and not heard of since.
    pub in_flux: BTreeSet<String>,
    /// Requests that somebody has approved.
    pub approved: BTreeSet<String>,
    /// Somebody has changed these by hand.
    pub edited: BTreeSet<String>,
    /// Clusters that came or went, or whose policy did.
    pub changed: bool,
    serial: usize,
    /// Looks so far, and writes.
    pub looks: usize,
    pub written: usize,
    pub crashes: usize,
}

impl World {
    pub fn new(fleet: Fleet, quality: BTreeMap<(String, String), Quality>) -> Self {
        let had = fleet.bindings.iter().map(|b| {
            let spec = &b.spec;
            (
                spec.target_cluster.clone(),
                spec.resource_snapshot_name.clone(),
            )
        });
        Self {
            had: had.collect(),
            fleet,
            quality,
            moved: BTreeMap::new(),
            in_flux: BTreeSet::new(),
            approved: BTreeSet::new(),
            edited: BTreeSet::new(),
            changed: false,
            serial: 0,
            looks: 0,
            written: 0,
            crashes: 0,
        }
    }

    // What happens.

    /// One thing happens.
    pub fn happen(&mut self, kind: u8, index: usize) {
        let bindings = self.fleet.bindings.len();
        let at = index.checked_rem(bindings);
        match (kind, at) {
            (0..8, Some(at)) => self.report(at),
            (8, _) => self.fleet.later(1),
            (9, _) => self.fleet.later(47),
            (10, _) => self.fleet.later(700),
            (11, Some(at)) => self.lose(at),
            (12..14, Some(at)) => self.regain(at),
            (14, Some(at)) => self.leave(at),
            (15, _) => self.join(index),
            (16, Some(at)) => self.unselect(at),
            (17, _) => self.reselect(index),
            (18..22, _) => self.approve(index),
            (22, _) => self.take_back(index),
            (23, _) => drop_at(&mut self.fleet.requests, index),
            (24, _) => self.fleet.state(RunState::Stop),
            (25..28, _) => self.fleet.state(RunState::Run),
            (28, Some(at)) => self.edit(at, index),
            (29, Some(at)) => self.evict(at),
            (30, _) => self.fleet.bindings.retain(|b| !b.deleting),
            (31, _) => self.fleet.bindings.reverse(),
            _ => {}
        }
    }

    /// A cluster says how it is with what it was given.
    pub fn report(&mut self, at: usize) {
        let spec = &self.fleet.bindings[at].spec;
        let cluster = spec.target_cluster.clone();
        let key = (cluster.clone(), spec.resource_snapshot_name.clone());
        let quality = self.quality.get(&key).copied().unwrap_or_default();
        if spec.state != BindingState::Bound
            || self.fleet.bindings[at].readiness == Readiness::Unreachable
        {
            return;
        }
        let mut fleet = Fleet::empty();
        fleet.bindings.push(self.fleet.bindings[at].clone());
        match quality {
            Quality::Works => fleet.works(&[&cluster]),
            Quality::Fails => fleet.fails(&cluster, "no such kind"),
            Quality::Hangs => fleet.hangs(&cluster, "0 of 2"),
            Quality::TimesOut => fleet.times_out(&cluster),
        }
        self.fleet.bindings[at] = fleet.bindings.remove(0);
        if quality != Quality::Hangs {
            self.in_flux.remove(&cluster);
        }
    }

    fn lose(&mut self, at: usize) {
        let cluster = self.fleet.bindings[at].spec.target_cluster.clone();
        for binding in &mut self.fleet.bindings {
            if binding.spec.target_cluster == cluster {
                binding.readiness = Readiness::Unreachable;
                binding.why = None;
            }
        }
    }

    pub fn regain(&mut self, at: usize) {
        let binding = &mut self.fleet.bindings[at];
        if binding.readiness == Readiness::Unreachable {
            binding.readiness = Readiness::InProgress;
        }
    }

    fn leave(&mut self, at: usize) {
        let cluster = self.fleet.bindings[at].spec.target_cluster.clone();
        self.changed = true;
        self.fleet.members.remove(&cluster);
        self.in_flux.remove(&cluster);
        // Its bindings go a bit later, and what chose it notices then.
        if at.is_multiple_of(2) {
            self.fleet.selected.remove(&cluster);
            let others = |b: &super::fleet::Binding| b.spec.target_cluster != cluster;
            self.fleet.bindings.retain(others);
        }
    }

    fn join(&mut self, index: usize) {
        self.changed = true;
        self.serial += 1;
        let stage = ["a", "b", "c", "d", "nowhere"][index % 5];
        let name = format!("{stage}-new{}", self.serial);
        self.fleet.join(&name, stage);
    }

    fn unselect(&mut self, at: usize) {
        let cluster = self.fleet.bindings[at].spec.target_cluster.clone();
        self.changed = true;
        self.fleet.unselect(&cluster);
        self.in_flux.remove(&cluster);
    }

    /// Something that was unselected is chosen again, and as bound as it was.
    fn reselect(&mut self, index: usize) {
        let members = &self.fleet.members;
        let selected = &self.fleet.selected;
        let mut out = self.fleet.bindings.iter_mut().filter(|b| {
            let cluster = &b.spec.target_cluster;
            members.contains_key(cluster) && !selected.contains(cluster) && !b.deleting
        });
        if let Some(binding) = out.nth(index % 3) {
            self.changed = true;
            binding.spec.state = if binding.spec.resource_snapshot_name.is_empty() {
                BindingState::Scheduled
            } else {
                BindingState::Bound
            };
            let cluster = binding.spec.target_cluster.clone();
            self.fleet.selected.insert(cluster);
        }
    }

    fn approve(&mut self, index: usize) {
        let count = self.fleet.requests.len();
        if let Some(at) = index.checked_rem(count) {
            let name = self.fleet.requests[at].metadata.name.clone().unwrap();
            self.fleet.approve(&name);
            self.approved.insert(name);
        }
    }

    /// Somebody takes an approval back; if it was accepted, too late.
    fn take_back(&mut self, index: usize) {
        let count = self.fleet.requests.len();
        if let Some(at) = index.checked_rem(count)
            && let Some(status) = &mut self.fleet.requests[at].status
        {
            let list = status.conditions.get_or_insert_default();
            conditions::remove(list, RunCondition::Approved.as_str());
            if list.is_empty() {
                let name = self.fleet.requests[at].metadata.name.clone().unwrap();
                self.approved.remove(&name);
            }
        }
    }

    /// Somebody changes a binding by hand: to something new, or back to what it had.
    fn edit(&mut self, at: usize, index: usize) {
        let binding = &mut self.fleet.bindings[at];
        let cluster = binding.spec.target_cluster.clone();
        if binding.spec.state != BindingState::Bound {
            return;
        }
        let had = self.had.get(&cluster).filter(|had| !had.is_empty());
        let to = match had {
            Some(had) if index.is_multiple_of(3) => had.clone(),
            _ => "p-9-snapshot".to_owned(),
        };
        if binding.spec.resource_snapshot_name == to {
            return;
        }
        binding.spec.resource_snapshot_name = to;
        if binding.readiness != Readiness::Unreachable {
            binding.readiness = Readiness::InProgress;
        }
        self.in_flux.remove(&cluster);
        self.edited.insert(cluster);
    }

    /// An eviction: the binding goes, and the cluster gets a new one.
    fn evict(&mut self, at: usize) {
        let cluster = self.fleet.bindings[at].spec.target_cluster.clone();
        if self.fleet.bindings[at].deleting || !self.fleet.selected.contains(&cluster) {
            return;
        }
        self.fleet.bindings.remove(at);
        self.fleet.bind(&cluster, "");
        self.fleet.binding(&cluster).readiness = Readiness::InProgress;
        self.in_flux.remove(&cluster);
        self.moved.remove(&cluster);
    }

    // What the hub does.

    /// A look of which so many writes are done before the hub dies; whether all were.
    pub fn look(&mut self, kept: usize) -> bool {
        self.looks += 1;
        let plan = self.fleet.plan();
        let was_over = is_over(&self.fleet.run);
        let writes = self.fleet.writes(&plan);
        assert!(
            !was_over || writes.is_empty(),
            "a run over moves: {writes:?}"
        );
        let all = writes.len() <= kept;
        for write in writes.into_iter().take(kept) {
            self.written += 1;
            self.write(write);
        }
        self.crashes += usize::from(!all);
        if all && plan.wake_at.is_none_or(|at| at > self.fleet.now) {
            self.check_calm();
        }
        all
    }

    /// Whoever looks again finds nothing to do; but that a write is done now that was lost before is recorded.
    fn check_calm(&self) {
        let plan = self.fleet.plan();
        let again = self.fleet.writes(&plan);
        if again.is_empty() {
            return;
        }
        let text = serde_json::to_string(self.fleet.status()).unwrap();
        assert!(
            text.contains("BindingUnwritten"),
            "still\n{}",
            differences(self.fleet.status(), &plan.status)
        );
        assert!(plan.moves.is_empty() && plan.remove.is_empty(), "{plan:?}");
        let mut later = self.fleet.clone();
        later.run.status = Some(plan.status);
        let again = later.writes(&later.plan());
        assert!(again.is_empty(), "still {again:?}");
    }

    fn write(&mut self, write: Write) {
        match &write {
            Write::Status(new) => {
                if let Some(old) = self.fleet.run.status.clone() {
                    self.check_status(&old, new);
                    self.note_previous(&old, new);
                }
                self.fleet.write(write);
                self.check_concurrency();
            }
            Write::Move(change) => {
                let name = change.binding.clone();
                let back = change.target.snapshot != NEW;
                let cluster = name.strip_prefix("b-").unwrap().to_owned();
                let before = self.fleet.binding(&cluster).spec.clone();
                self.check_move(&cluster, &change.target.snapshot, back);
                self.fleet.write(write);
                if self.fleet.binding(&cluster).spec != before {
                    self.count_move(&cluster, back);
                }
            }
            Write::Remove(name) => {
                let mut all = self.fleet.bindings.iter();
                let binding = all.find(|b| b.name == *name).unwrap();
                assert_eq!(binding.spec.state, BindingState::Unscheduled);
                self.fleet.write(write);
            }
            Write::Discard(_) | Write::Ask(_) | Write::Accept(_) => self.fleet.write(write),
        }
    }

    /// What clusters have when it is recorded that they are begun with.
    fn note_previous(&mut self, old: &UpdateRunStatus, new: &UpdateRunStatus) {
        let clusters = |status: &UpdateRunStatus| -> Vec<ClusterStatus> {
            let stages = status.stages_status.clone().unwrap_or_default();
            stages
                .into_iter()
                .flat_map(|stage| stage.clusters)
                .collect()
        };
        for (old, new) in clusters(old).iter().zip(clusters(new)) {
            if old.previous.is_none() && new.previous.is_some() {
                let has = &self.fleet.binding(&new.cluster_name).spec;
                let has = has.resource_snapshot_name.clone();
                self.had.insert(new.cluster_name, has);
            }
        }
    }

    fn count_move(&mut self, cluster: &str, back: bool) {
        let moved = self.moved.entry(cluster.to_owned()).or_default();
        if back {
            moved.back += 1;
        } else {
            moved.there += 1;
        }
        let moved = *moved;
        assert!(
            moved.there <= 1 && moved.back <= 1,
            "{cluster} is moved twice: {moved:?}"
        );
        self.in_flux.insert(cluster.to_owned());
        let (stage, limit) = self.stage_of(cluster);
        let names = |c: &ClusterStatus| self.in_flux.contains(&c.cluster_name);
        let asks = if back { "p-0-snapshot" } else { NEW };
        let asking: BTreeSet<&str> = self.fleet.asking(asks).into_iter().collect();
        let flux = stage.clusters.iter().filter(|c| names(c) && !is_closed(c));
        let flux = flux.filter(|c| asking.contains(c.cluster_name.as_str()));
        let flux = flux.count();
        assert!(
            flux <= limit,
            "{flux} clusters of {} at once",
            stage.stage_name
        );
    }

    fn stage_of(&self, cluster: &str) -> (&StageStatus, usize) {
        let status = self.fleet.status();
        let mut stages = status.stages_status.iter().flatten();
        let is_in = |stage: &&StageStatus| {
            let mut all = stage.clusters.iter();
            all.any(|c| c.cluster_name == cluster)
        };
        let stage = stages.find(is_in).unwrap();
        (
            stage,
            limit(self.config(&stage.stage_name), stage.clusters.len()),
        )
    }

    pub fn config(&self, stage: &str) -> &StageConfig {
        let strategy = self.fleet.status().strategy_snapshot.as_ref().unwrap();
        let mut all = strategy.stages.iter();
        all.find(|config| config.name == stage).unwrap()
    }
}

fn drop_at<T>(list: &mut Vec<T>, index: usize) {
    if let Some(at) = index.checked_rem(list.len()) {
        list.remove(at);
    }
}

/// The lines in which two statuses differ.
fn differences(old: &UpdateRunStatus, new: &UpdateRunStatus) -> String {
    let lines = |status| -> Vec<String> {
        let text = serde_json::to_string_pretty(status).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let (old, new) = (lines(old), lines(new));
    let only = |mark: &str, list: &[String], other: &[String]| -> String {
        let lines = list.iter().filter(|line| !other.contains(line));
        lines.map(|line| format!("{mark}{line}\n")).collect()
    };
    only("-", &old, &new) + &only("+", &new, &old)
}
