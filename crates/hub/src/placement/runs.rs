//! Update runs of a placement: the pure planner decides ([`windlass_rollout::run`]), and what it says is
//! written in its order, each prefix of which is a valid state. Bindings are changed with everything else
//! that the placement's look changes about them, in one write each.

mod facts;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::{Api, ResourceExt};
use windlass_api::binding::BindingState;
use windlass_api::conditions::{RunCondition, RunReason, Status};
use windlass_api::labels;
use windlass_api::placement::ApplyStrategy;
use windlass_api::run::UpdateRunStatus;
use windlass_api::scoped::{ApprovalRequest, Binding, Placement, UpdateRun, UpdateStrategy};
use windlass_cluster::{ApiError, ObjectKey};
use windlass_member::manifest::Manifest;
use windlass_rollout::run::{
    Init, InitView, Member, RunBinding, RunPlan, RunView, Snapshot, advance, init, is_initialized,
    superseded,
};
use windlass_status::conditions::NewCondition;

use super::actor::{Actor, Decided, until};

use super::bindings::{self, BindingPlan, apply_strategy};
use super::evict::is_name;
use super::policy;
use super::snapshots::{Groups, LatestSnapshot};
use crate::overrides::resolve::Resolved;
use crate::scoped::api_in;
use crate::select::SelectError;
use crate::world::BY_PLACEMENT;

use self::facts::{
    apply, bindings_for_runs, ended, grace, is_initialized_by, lists, members, request, sooner,
    unfit, unfulfilled, unknown_strategy, unresolved, wants_latest,
};

/// What the runs of a placement are looked at with.
pub(super) struct Around<'a> {
    pub placement: &'a Placement,
    /// Whether it is known which clusters the placement chooses.
    pub is_settled: bool,
    /// They; while that isn't known, those that have a binding.
    pub selected: BTreeSet<&'a str>,
    /// Why the policy is not fulfilled, if it isn't.
    pub unfulfilled: Option<&'a str>,
    /// Why the latest snapshot may be of older content, if it may: no run begins with it.
    pub outdated: Option<String>,
    /// Whether runs may begin: not while it will be known in a moment what is selected.
    pub may_begin: bool,
    /// What is selected; none while that can't be told.
    pub content: Option<&'a [Arc<Manifest>]>,
    /// Index of the latest policy snapshot.
    pub policy_index: &'a str,
    pub groups: &'a Groups,
    pub latest: &'a LatestSnapshot,
    /// Of the latest snapshot.
    pub overrides: &'a Resolved,
    pub unreachable: &'a BTreeSet<String>,
    pub now: Timestamp,
}

impl<'a> Around<'a> {
    /// By what a look has decided. `outdated`: why the latest snapshot may be of older content, if it may.
    pub(super) fn of(
        placement: &'a Placement,
        decided: &'a Decided,
        content: &'a [Arc<Manifest>],
        outdated: Option<String>,
        now: Timestamp,
    ) -> Self {
        let schedule = &decided.schedule;
        let chosen = schedule.selected.iter();
        let index = decided.policy_snapshot.labels().get(labels::POLICY_INDEX);
        Self {
            placement,
            is_settled: true,
            selected: chosen
                .map(|decision| decision.cluster_name.as_str())
                .collect(),
            unfulfilled: (!schedule.fulfilled).then_some(schedule.message.as_str()),
            outdated,
            may_begin: true,
            content: Some(content),
            policy_index: index.map_or("", String::as_str),
            groups: &decided.groups,
            latest: &decided.latest,
            overrides: &decided.overrides,
            unreachable: &decided.unreachable,
            now,
        }
    }
}

/// What every run of a placement has to know of bindings and clusters.
struct Picture<'a> {
    live: &'a [Arc<Binding>],
    bindings: Vec<RunBinding<'a>>,
    members: Vec<Member<'a>>,
    apply: ApplyStrategy,
}

impl Actor {
    /// Takes the next step of every run of a placement. What that does to bindings is put into `plan`; when
    /// to look again though nothing is heard. A run that can't go on keeps no other one from it.
    ///
    /// # Errors
    /// The first thing that could not be written or read; what was decided about that run after it is not
    /// done.
    pub(super) async fn advance_runs(
        &self,
        around: &Around<'_>,
        plan: &mut BindingPlan,
    ) -> Result<Option<Timestamp>, ApiError> {
        let key = ObjectKey::of(around.placement);
        if self.world.runs.open(&key).is_empty() {
            return Ok(None);
        }
        let bindings = self.world.bindings_of(&key);
        let clusters = self.world.clusters.list();
        let picture = Picture {
            live: &bindings,
            bindings: bindings_for_runs(around, &bindings, &clusters),
            members: members(&clusters),
            apply: apply_strategy(around.placement.spec.strategy.as_ref()),
        };
        let mut trouble = Ok(());
        let mut wake = None;
        for run in self.world.runs.open(&key) {
            if around.may_begin && !is_initialized(&run) {
                match self.initialize_run(&key, around, &picture, &run).await {
                    Ok(at) => wake = sooner(wake, at),
                    Err(error) => trouble = trouble.and(Err(error)),
                }
            }
        }
        let open = self.world.runs.open(&key);
        let refs: Vec<&UpdateRun> = open.iter().map(|run| &**run).collect();
        let yields = superseded(&refs);
        let by = |run: &UpdateRun| {
            let mut known = yields.iter();
            known.find(|(name, _)| run.metadata.name.as_deref() == Some(name))
        };
        // Those that were taken over from are over before the one that takes over begins.
        let (last, first): (Vec<_>, Vec<_>) = refs.iter().partition(|run| by(run).is_none());
        for run in first {
            let decided = self.decide_run(around, &picture, run, by(run).map(|(_, by)| *by));
            if let Err(error) = self.write_run(run, &decided).await {
                let heir = by(run).map(|(_, by)| *by);
                let why = format!(
                    "update run {} can't be told that this one takes over: {}",
                    run.name_any(),
                    error.message()
                );
                for heir in last
                    .iter()
                    .filter(|run| run.metadata.name.as_deref() == heir)
                {
                    self.hold_run(heir, &why).await?;
                }
                return Err(error);
            }
        }
        for run in last {
            let decided = self.decide_run(around, &picture, run, None);
            match self.write_run(run, &decided).await {
                Ok(()) => {
                    wake = sooner(wake, decided.wake_at);
                    apply(plan, picture.live, run, &decided);
                }
                Err(error) => trouble = trouble.and(Err(error)),
            }
        }
        trouble.map(|()| wake)
    }

    /// Takes the next step of runs though nothing can be decided for their placement: what they bring and
    /// where is fixed, and a run that is stopped, approved or on its way back does not wait for a selector to
    /// be mended. How long until they are looked at again.
    ///
    /// # Errors
    /// As [`Self::advance_runs`].
    pub(super) async fn advance_runs_regardless(
        &self,
        placement: &Placement,
        why: &SelectError,
    ) -> Result<Option<Duration>, ApiError> {
        let key = ObjectKey::of(placement);
        if self.world.runs.open(&key).is_empty() {
            return Ok(None);
        }
        let is_final = !matches!(why, SelectError::Pending(_) | SelectError::Unwritten(_));
        let groups = self.world.groups_of(&key);
        let policies = self.world.policies.under(BY_PLACEMENT, &key);
        let (Some(latest), Some(policy)) = (groups.newest(), policy::latest_index(&policies))
        else {
            if !is_final {
                return Ok(None);
            }
            return self.hold_runs(&key, &why.to_string()).await.map(|()| None);
        };
        let overrides = self.overrides(&key, None, Some(&latest.name)).await?;
        let bindings = self.world.bindings_of(&key);
        let members = bindings::staying(&self.world.clusters.list());
        let chosen = bindings.iter().filter(|binding| {
            binding.metadata.deletion_timestamp.is_none()
                && binding.spec.state != BindingState::Unscheduled
                && members.contains(&binding.spec.target_cluster)
        });
        let now = windlass_cluster::clock::now();
        let mut plan = BindingPlan::default();
        let wake = self
            .advance_runs(
                &Around {
                    placement,
                    is_settled: false,
                    selected: chosen.map(|b| b.spec.target_cluster.as_str()).collect(),
                    unfulfilled: None,
                    outdated: Some(format!("what the placement selects can't be told: {why}")),
                    may_begin: is_final,
                    content: None,
                    policy_index: &policy.to_string(),
                    groups: &groups,
                    latest: &latest,
                    overrides: &overrides,
                    unreachable: &self.members.unreachable(),
                    now,
                },
                &mut plan,
            )
            .await?;
        self.write_bindings(&plan).await?;
        Ok(wake.map(|at| until(at, now)))
    }

    /// Initializes a run, or says why that has to wait; when to look again though nothing is heard.
    async fn initialize_run(
        &self,
        key: &ObjectKey,
        around: &Around<'_>,
        picture: &Picture<'_>,
        run: &UpdateRun,
    ) -> Result<Option<Timestamp>, ApiError> {
        let mut outcome = self.init_run(key, around, picture, run).await?;
        let mut wake = match &outcome {
            Init::Waits(_) => grace(run).filter(|end| *end > around.now),
            Init::Status(_) => None,
        };
        if let Some(content) = around.content.filter(|_| wants_latest(run))
            && matches!(&outcome, Init::Status(status) if is_initialized_by(status))
            && !self.resources.is_current(key, content).await?
        {
            let why = "Waiting until the hub has seen the present content";
            outcome = Init::Waits(Box::new(windlass_rollout::run::wait(run, why, around.now)));
            // The watch tells in a moment; should what it tells be no change to us, this does.
            wake = Some(around.now);
        }
        self.put_run_status(run, outcome.into_status()).await?;
        Ok(wake)
    }

    async fn init_run(
        &self,
        key: &ObjectKey,
        around: &Around<'_>,
        picture: &Picture<'_>,
        run: &UpdateRun,
    ) -> Result<Init, ApiError> {
        let unfit = unfit(around.placement);
        let strategy = self.strategy_of(run).await?;
        let known = around.groups.complete();
        let index = run.spec.resource_snapshot_index.as_deref();
        let index = match index.filter(|index| !index.is_empty()) {
            None => (!around.latest.name.is_empty()).then_some(around.latest.index),
            Some(text) => text
                .parse::<u64>()
                .ok()
                .filter(|index| known.contains(index)),
        };
        let snapshot = index.map_or(Snapshot::Missing(&known), Snapshot::Found);
        let of_another;
        let overrides = match index {
            Some(index) if index != around.latest.index => {
                let name = windlass_api::names::master_snapshot(&key.name, index);
                of_another = self.overrides(key, None, Some(&name)).await?;
                &of_another
            }
            _ => around.overrides,
        };
        let waits = around
            .outdated
            .as_ref()
            .filter(|_| wants_latest(run) || !around.is_settled)
            .cloned()
            .or_else(|| unresolved(overrides, &around.selected, picture.live))
            .or_else(|| unknown_strategy(run, strategy.as_ref(), around.now))
            .or_else(|| unfulfilled(run, around));
        let view = InitView {
            run,
            unfit: unfit.as_deref(),
            waits: waits.as_deref(),
            strategy: strategy.as_ref().map(|strategy| &strategy.spec),
            apply_strategy: &picture.apply,
            policy_index: around.policy_index,
            unfulfilled: around.unfulfilled,
            snapshot,
            members: &picture.members,
            selected: &around.selected,
            bindings: &picture.bindings,
            overrides: &|cluster| {
                let lists = lists(overrides, cluster);
                (lists.cluster, lists.namespaced)
            },
        };
        Ok(init(&view, around.now))
    }

    async fn strategy_of(&self, run: &UpdateRun) -> Result<Option<UpdateStrategy>, ApiError> {
        if !is_name(&run.spec.staged_rollout_strategy_name) {
            return Ok(None);
        }
        let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
        let api = api_in::<UpdateStrategy>(self.writer.client().clone(), namespace);
        api.get_opt(&run.spec.staged_rollout_strategy_name)
            .await
            .map_err(ApiError::from_kube)
    }

    fn decide_run(
        &self,
        around: &Around<'_>,
        picture: &Picture<'_>,
        run: &UpdateRun,
        superseded_by: Option<&str>,
    ) -> RunPlan {
        let requests = self.world.runs.requests_for(run);
        let requests: Vec<&ApprovalRequest> = requests.iter().map(|request| &**request).collect();
        let unfit = unfit(around.placement);
        let view = RunView {
            run,
            bindings: &picture.bindings,
            requests: &requests,
            members: &picture.members,
            selected: &around.selected,
            is_settled: around.is_settled,
            policy_index: around.policy_index,
            apply_strategy: &picture.apply,
            unfit: unfit.as_deref(),
            superseded_by,
        };
        advance(&view, around.now)
    }

    /// Writes what is to be written before bindings change, in order.
    async fn write_run(&self, run: &UpdateRun, plan: &RunPlan) -> Result<(), ApiError> {
        let requests = self.world.runs.requests_for(run);
        let named = |name: &String| requests.iter().find(|request| request.name_any() == *name);
        for stale in plan.discard.iter().filter_map(named) {
            self.writer.delete(&**stale).await?;
            self.world.runs.observe_request_deleted(stale);
        }
        for ask in &plan.ask {
            let request = match self.writer.create(&request(run, ask)).await {
                Ok(request) => request,
                // Whose it is, the next look says.
                Err(error @ ApiError::AlreadyExists(_)) => {
                    let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
                    let api: Api<ApprovalRequest> = api_in(self.writer.client().clone(), namespace);
                    let known = api.get_opt(&ask.name).await.map_err(ApiError::from_kube)?;
                    known.ok_or(error)?
                }
                Err(error) => return Err(error),
            };
            self.world.runs.observe_request(request);
        }
        for approved in plan.accept.iter().filter_map(named) {
            let mut accepted = (**approved).clone();
            let list = &mut accepted.status.get_or_insert_default().conditions;
            let new = NewCondition {
                type_: RunCondition::ApprovalAccepted.as_str(),
                status: Status::True,
                reason: RunReason::ApprovalRequestApprovalAccepted.as_str(),
                message: "The approval was accepted, and can't be taken back".to_owned(),
                observed_generation: approved.metadata.generation,
            };
            let now = windlass_cluster::clock::now();
            windlass_status::conditions::set(list.get_or_insert_default(), new, now);
            let live = self.writer.replace_status(&accepted).await?;
            self.world.runs.observe_request(live);
        }
        self.put_run_status(run, plan.status.clone()).await
    }

    async fn put_run_status(
        &self,
        run: &UpdateRun,
        status: UpdateRunStatus,
    ) -> Result<(), ApiError> {
        if run.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let mut changed = run.clone();
        changed.status = Some(status);
        let live = self.writer.replace_status(&changed).await?;
        self.world.observer.run_status(run, live.status.as_ref());
        self.world.runs.observe(live);
        Ok(())
    }

    /// Ends what can't go on: the runs of a placement that is gone or going.
    pub(super) async fn end_runs(&self, placement: &ObjectKey, why: &str) -> Result<(), ApiError> {
        for run in self.world.runs.open(placement) {
            let now = windlass_cluster::clock::now();
            self.put_run_status(&run, ended(&run, why, now)).await?;
        }
        Ok(())
    }

    /// Ends the runs of a placement that does not exist; one that has just been made waits for it a moment.
    /// How long.
    pub(super) async fn end_orphans(
        &self,
        placement: &ObjectKey,
    ) -> Result<Option<Duration>, ApiError> {
        let now = windlass_cluster::clock::now();
        let why = format!("placement {} does not exist", placement.name);
        let mut again = None;
        for run in self.world.runs.open(placement) {
            let end = grace(&run).filter(|end| *end > now && !is_initialized(&run));
            again = sooner(again, end);
            let status = match end {
                Some(_) => {
                    let why = format!("Waiting a moment: {why}");
                    windlass_rollout::run::wait(&run, &why, now)
                }
                None => ended(&run, &why, now),
            };
            self.put_run_status(&run, status).await?;
        }
        Ok(again.map(|at| until(at, now)))
    }

    /// Says of a run why it does not go on.
    async fn hold_run(&self, run: &UpdateRun, why: &str) -> Result<(), ApiError> {
        let now = windlass_cluster::clock::now();
        let status = windlass_rollout::run::hold(run, why, now);
        self.put_run_status(run, status).await
    }

    /// Says of the runs of a placement that nothing can be decided for it.
    pub(super) async fn hold_runs(&self, placement: &ObjectKey, why: &str) -> Result<(), ApiError> {
        for run in self.world.runs.open(placement) {
            self.hold_run(&run, why).await?;
        }
        Ok(())
    }

    /// Lets runs go that are being deleted, with their requests. What they did stays.
    pub(super) async fn release_runs(&self, placement: &ObjectKey) -> Result<(), ApiError> {
        for run in self.world.runs.of(placement) {
            let is_held = run.finalizers().iter().any(|f| f == labels::RUN_FINALIZER);
            if run.metadata.deletion_timestamp.is_none() || !is_held {
                continue;
            }
            for request in self.world.runs.requests_of(&ObjectKey::of(&*run)) {
                self.writer.delete(&*request).await?;
                self.world.runs.observe_request_deleted(&request);
            }
            let mut changed = (*run).clone();
            changed
                .finalizers_mut()
                .retain(|f| f != labels::RUN_FINALIZER);
            match self.writer.replace(&changed).await {
                Ok(live) => self.world.runs.observe(live),
                Err(ApiError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
