//! A placement with its clusters, bindings, requests and one run, and the writes of plans done to it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass_api::binding::{BindingSpec, BindingState};
use windlass_api::conditions::{RunCondition, RunReason, Stage, Status};
use windlass_api::placement::{ApplyStrategy, NamespacedName};
use windlass_api::run::{
    ClusterStatus, RunState, StageStatus, UpdateRunSpec, UpdateRunStatus, UpdateStrategySpec,
};
use windlass_api::scoped::{ApprovalRequest, UpdateRun};
use windlass_api::{Condition, Time};
use windlass_rollout::run::{
    Ask, Init, InitView, Member, Move, RunBinding, RunPlan, RunView, Snapshot, Target, advance,
    init,
};
use windlass_status::conditions;
use windlass_status::ready::Readiness;

/// Where the clock of every table begins.
pub const START: Timestamp = Timestamp::constant(1_750_000_000, 0);
/// What clusters have before a run.
pub const OLD: &str = "p-0-snapshot";
/// What a run brings.
pub const NEW: &str = "p-1-snapshot";
/// UID of the run.
pub const UID: &str = "run-uid";

/// A binding.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    pub name: String,
    pub spec: BindingSpec,
    pub deleting: bool,
    pub moved_by: Option<String>,
    pub readiness: Readiness,
    pub unheard: bool,
    pub why: Option<Condition>,
}

/// A placement named p, its clusters, and a run named r.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub now: Timestamp,
    pub run: UpdateRun,
    pub strategy: Option<UpdateStrategySpec>,
    pub apply: ApplyStrategy,
    pub bindings: Vec<Binding>,
    pub requests: Vec<ApprovalRequest>,
    pub members: BTreeMap<String, BTreeMap<String, String>>,
    pub selected: BTreeSet<String>,
    pub is_settled: bool,
    pub policy_index: String,
    pub unfit: Option<String>,
    pub waits: Option<String>,
    pub unfulfilled: Option<String>,
    pub superseded_by: Option<String>,
    /// Index to roll out, or the indexes that there are.
    pub snapshot: Result<u64, Vec<u64>>,
    pub overrides: BTreeMap<String, Vec<String>>,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    Discard(String),
    Ask(Ask),
    Accept(String),
    Status(Box<UpdateRunStatus>),
    Move(Move),
    Remove(String),
}

pub fn condition(type_: &str, status: Status, reason: &str, message: &str) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: status.as_str().to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: None,
        // Of a while ago.
        last_transition_time: Time(START - SignedDuration::from_secs(60)),
    }
}

impl Fleet {
    /// Clusters named `stage` and a number, labelled `stage: S`, all with the old version and well, under a
    /// strategy with these stages; each row is the fields of a stage without its name and selector.
    pub fn new(stages: &[(&str, usize, Value)]) -> Self {
        let mut fleet = Self::empty();
        let mut list = Vec::new();
        for (name, size, fields) in stages {
            let mut stage =
                json!({"name": name, "labelSelector": {"matchLabels": {"stage": name}}});
            let all = stage.as_object_mut().unwrap();
            all.extend(fields.as_object().unwrap().clone());
            list.push(stage);
            for number in 1..=*size {
                fleet.join(&format!("{name}{number}"), name);
            }
        }
        fleet.strategy(json!({"stages": list}));
        fleet
    }

    /// No cluster, no strategy.
    pub fn empty() -> Self {
        let mut run = UpdateRun::new(
            "r",
            UpdateRunSpec {
                placement_name: "p".to_owned(),
                staged_rollout_strategy_name: "s".to_owned(),
                state: Some(RunState::Run),
                ..UpdateRunSpec::default()
            },
        );
        run.metadata.uid = Some(UID.to_owned());
        run.metadata.generation = Some(1);
        run.metadata.creation_timestamp = Some(Time(START));
        Self {
            now: START,
            run,
            strategy: None,
            apply: ApplyStrategy::default(),
            bindings: Vec::new(),
            requests: Vec::new(),
            members: BTreeMap::new(),
            selected: BTreeSet::new(),
            is_settled: true,
            policy_index: "0".to_owned(),
            unfit: None,
            waits: None,
            unfulfilled: None,
            superseded_by: None,
            snapshot: Ok(1),
            overrides: BTreeMap::new(),
        }
    }

    pub fn strategy(&mut self, text: Value) {
        self.strategy = Some(serde_json::from_value(text).unwrap());
    }

    /// Sets fields of the run's spec.
    pub fn spec(&mut self, fields: &Value) {
        let mut spec = serde_json::to_value(&self.run.spec).unwrap();
        let all = spec.as_object_mut().unwrap();
        all.extend(fields.as_object().unwrap().clone());
        self.run.spec = serde_json::from_value(spec).unwrap();
    }

    /// The user says what the run is to do.
    pub fn state(&mut self, state: RunState) {
        if self.run.spec.state != Some(state) {
            self.run.spec.state = Some(state);
            self.run.metadata.generation = self.run.metadata.generation.map(|at| at + 1);
        }
    }

    /// A cluster joins, is chosen, and has the old version.
    pub fn join(&mut self, cluster: &str, stage: &str) {
        let labels = BTreeMap::from([("stage".to_owned(), stage.to_owned())]);
        self.members.insert(cluster.to_owned(), labels);
        self.selected.insert(cluster.to_owned());
        self.bind(cluster, OLD);
    }

    pub fn bind(&mut self, cluster: &str, snapshot: &str) {
        let state = if snapshot.is_empty() {
            BindingState::Scheduled
        } else {
            BindingState::Bound
        };
        self.bindings.push(Binding {
            name: format!("b-{cluster}"),
            spec: BindingSpec {
                state,
                resource_snapshot_name: snapshot.to_owned(),
                target_cluster: cluster.to_owned(),
                ..BindingSpec::default()
            },
            deleting: false,
            moved_by: None,
            readiness: Readiness::Ready,
            unheard: false,
            why: None,
        });
    }

    /// The placement no longer chooses a cluster.
    pub fn unselect(&mut self, cluster: &str) {
        self.selected.remove(cluster);
        for binding in &mut self.bindings {
            if binding.spec.target_cluster == cluster {
                binding.spec.state = BindingState::Unscheduled;
            }
        }
    }

    pub fn binding(&mut self, cluster: &str) -> &mut Binding {
        let mut all = self.bindings.iter_mut();
        all.find(|b| b.spec.target_cluster == cluster).unwrap()
    }

    /// Clusters that ask for a snapshot.
    pub fn asking(&self, snapshot: &str) -> Vec<&str> {
        let asking = self
            .bindings
            .iter()
            .filter(|b| b.spec.resource_snapshot_name == snapshot);
        asking.map(|b| b.spec.target_cluster.as_str()).collect()
    }

    pub fn later(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    // What clusters do.

    pub fn works(&mut self, clusters: &[&str]) {
        for cluster in clusters {
            let binding = self.binding(cluster);
            binding.readiness = Readiness::Ready;
            binding.why = None;
        }
    }

    pub fn fails(&mut self, cluster: &str, message: &str) {
        // For as long as it takes to count.
        self.later(5);
        let binding = self.binding(cluster);
        binding.readiness = Readiness::Failed(Stage::Applied);
        let reason = "NotAllWorkHaveBeenApplied";
        binding.why = Some(condition("Applied", Status::False, reason, message));
    }

    pub fn times_out(&mut self, cluster: &str) {
        let binding = self.binding(cluster);
        binding.readiness = Readiness::Failed(Stage::Available);
        binding.why = Some(condition("Available", Status::False, "Timeout", "10m over"));
    }

    pub fn hangs(&mut self, cluster: &str, message: &str) {
        let binding = self.binding(cluster);
        binding.readiness = Readiness::InProgress;
        let reason = "NotAllWorkAreAvailable";
        binding.why = Some(condition("Available", Status::False, reason, message));
    }

    pub fn unreachable(&mut self, cluster: &str) {
        self.binding(cluster).readiness = Readiness::Unreachable;
    }

    // What the hub does.

    pub fn initialize(&self) -> Init {
        let members: Vec<Member<'_>> = self.members();
        let selected = self.selected.iter().map(String::as_str).collect();
        let bindings = self.run_bindings();
        let overrides = |cluster: &str| {
            let cluster_wide = self.overrides.get(cluster).cloned();
            let namespaced = cluster_wide.as_ref().map(|names| {
                let one = |name: &String| NamespacedName {
                    name: name.clone(),
                    namespace: "ns".to_owned(),
                };
                names.iter().map(one).collect()
            });
            (cluster_wide, namespaced)
        };
        let view = InitView {
            run: &self.run,
            unfit: self.unfit.as_deref(),
            waits: self.waits.as_deref(),
            strategy: self.strategy.as_ref(),
            apply_strategy: &self.apply,
            policy_index: &self.policy_index,
            unfulfilled: self.unfulfilled.as_deref(),
            snapshot: match &self.snapshot {
                Ok(index) => Snapshot::Found(*index),
                Err(known) => Snapshot::Missing(known),
            },
            members: &members,
            selected: &selected,
            bindings: &bindings,
            overrides: &overrides,
        };
        init(&view, self.now)
    }

    /// Initializes the run, which has to work.
    #[track_caller]
    pub fn begun(mut self) -> Self {
        self.run.status = Some(self.initialize().into_status());
        assert!(
            windlass_rollout::run::is_initialized(&self.run),
            "{:?}",
            self.run.status
        );
        self
    }

    fn members(&self) -> Vec<Member<'_>> {
        let members = self.members.iter();
        members
            .map(|(name, labels)| Member { name, labels })
            .collect()
    }

    fn run_bindings(&self) -> Vec<RunBinding<'_>> {
        let bindings = self.bindings.iter().map(|b| RunBinding {
            name: &b.name,
            spec: &b.spec,
            deleting: b.deleting,
            moved_by: b.moved_by.as_deref(),
            readiness: b.readiness,
            unheard: b.unheard,
            why: b.why.as_ref(),
        });
        bindings.collect()
    }

    pub fn plan(&self) -> RunPlan {
        let members = self.members();
        let selected = self.selected.iter().map(String::as_str).collect();
        let bindings = self.run_bindings();
        let requests: Vec<&ApprovalRequest> = self.requests.iter().collect();
        let view = RunView {
            run: &self.run,
            bindings: &bindings,
            requests: &requests,
            members: &members,
            selected: &selected,
            is_settled: self.is_settled,
            policy_index: &self.policy_index,
            apply_strategy: &self.apply,
            unfit: self.unfit.as_deref(),
            superseded_by: self.superseded_by.as_deref(),
        };
        advance(&view, self.now)
    }

    /// The writes of a plan, in their order.
    pub fn writes(&self, plan: &RunPlan) -> Vec<Write> {
        let mut all: Vec<Write> = plan.discard.iter().cloned().map(Write::Discard).collect();
        all.extend(plan.ask.iter().cloned().map(Write::Ask));
        all.extend(plan.accept.iter().cloned().map(Write::Accept));
        if self.run.status.as_ref() != Some(&plan.status) {
            all.push(Write::Status(Box::new(plan.status.clone())));
        }
        all.extend(plan.moves.iter().cloned().map(Write::Move));
        all.extend(plan.remove.iter().cloned().map(Write::Remove));
        all
    }

    pub fn write(&mut self, write: Write) {
        match write {
            Write::Discard(name) => {
                self.requests
                    .retain(|request| request.metadata.name.as_ref() != Some(&name));
            }
            Write::Ask(ask) => self.request(&ask.name, &ask.stage),
            Write::Accept(name) => self.answer(&name, RunCondition::ApprovalAccepted),
            Write::Status(status) => self.run.status = Some(*status),
            Write::Move(Move { binding, target }) => self.moved(&binding, &target),
            Write::Remove(name) => {
                let mut all = self.bindings.iter_mut();
                all.find(|b| b.name == name).unwrap().deleting = true;
            }
        }
    }

    fn moved(&mut self, name: &str, target: &Target) {
        let uid = self.run.metadata.uid.clone();
        let mut all = self.bindings.iter_mut();
        let binding = all.find(|b| b.name == name).unwrap();
        target.set(&mut binding.spec);
        binding.moved_by = uid;
        if binding.readiness != Readiness::Unreachable {
            binding.readiness = Readiness::InProgress;
            binding.why = None;
        }
    }

    /// A request of this run.
    pub fn request(&mut self, name: &str, stage: &str) {
        let spec = windlass_api::run::ApprovalRequestSpec {
            parent_stage_rollout: "r".to_owned(),
            target_stage: stage.to_owned(),
        };
        let mut request = ApprovalRequest::new(name, spec);
        request.metadata.generation = Some(1);
        request.metadata.creation_timestamp = Some(Time(self.now));
        self.requests.push(request);
    }

    pub fn answer(&mut self, name: &str, type_: RunCondition) {
        let now = self.now;
        let request = self
            .requests
            .iter_mut()
            .find(|request| request.metadata.name.as_deref() == Some(name));
        let status = request.unwrap().status.get_or_insert_default();
        let new = conditions::NewCondition {
            type_: type_.as_str(),
            status: Status::True,
            reason: "Said",
            message: String::new(),
            observed_generation: Some(1),
        };
        conditions::set(status.conditions.get_or_insert_default(), new, now);
    }

    pub fn approve(&mut self, name: &str) {
        self.answer(name, RunCondition::Approved);
    }

    /// One look with all its writes. Bindings to change and to remove, in order.
    pub fn pass(&mut self) -> Vec<String> {
        let plan = self.plan();
        let moves = plan.moves.iter().map(|m| m.binding.clone());
        let done = moves.chain(plan.remove.iter().map(|name| format!("-{name}")));
        let done = done.collect();
        for write in self.writes(&plan) {
            self.write(write);
        }
        done
    }

    /// Looks, and lets every cluster in reach work, until nothing happens any more.
    pub fn run_on(&mut self) {
        for _ in 0..10 * self.bindings.len() + 50 {
            let before = (self.run.status.clone(), self.bindings.clone());
            self.pass();
            self.bindings.retain(|binding| !binding.deleting);
            for binding in &mut self.bindings {
                if binding.readiness == Readiness::InProgress {
                    binding.readiness = Readiness::Ready;
                }
            }
            if before == (self.run.status.clone(), self.bindings.clone()) {
                return;
            }
        }
        panic!("no end: {:#?}", self.run.status);
    }

    // What is to be read.

    pub fn status(&self) -> &UpdateRunStatus {
        self.run.status.as_ref().unwrap()
    }

    pub fn stage(&self, name: &str) -> &StageStatus {
        let mut all = self.status().stages_status.iter().flatten();
        all.find(|stage| stage.stage_name == name).unwrap()
    }

    pub fn back(&self, name: &str) -> &StageStatus {
        let mut all = self.status().rollback_status.iter().flatten();
        all.find(|stage| stage.stage_name == name).unwrap()
    }

    pub fn cluster(&self, name: &str) -> &ClusterStatus {
        let stages = self.status().stages_status.iter().flatten();
        let mut all = stages.flat_map(|stage| &stage.clusters);
        all.find(|cluster| cluster.cluster_name == name).unwrap()
    }

    /// "Progressing True UpdateRunProgressing", or "none".
    pub fn says(&self, type_: RunCondition) -> String {
        says(self.status().conditions.as_ref(), type_)
    }

    pub fn message(&self, type_: RunCondition) -> String {
        message(self.status().conditions.as_ref(), type_)
    }

    #[track_caller]
    pub fn expect(&self, status: Status, reason: RunReason) {
        assert_eq!(
            self.says(RunCondition::Progressing),
            format!("{} {reason}", status.as_str()),
            "{}",
            self.message(RunCondition::Progressing)
        );
    }
}

/// Status and reason of a condition.
pub fn says(list: Option<&Vec<Condition>>, type_: RunCondition) -> String {
    find(list, type_).map_or("none".to_owned(), |c| format!("{} {}", c.status, c.reason))
}

pub fn message(list: Option<&Vec<Condition>>, type_: RunCondition) -> String {
    find(list, type_).map_or(String::new(), |c| c.message.clone())
}

pub fn find(list: Option<&Vec<Condition>>, type_: RunCondition) -> Option<&Condition> {
    conditions::find(list?, type_.as_str())
}
