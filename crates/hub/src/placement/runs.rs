//! Update runs of a placement: the pure planner decides ([`windlass_rollout::run`]), and what it says is
//! written in its order, each prefix of which is a valid state. Bindings are changed with everything else
//! that the placement's look changes about them, in one write each.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use windlass_api::binding::BindingSpec;
use windlass_api::conditions::{RunCondition, RunReason, Stage, Status};
use windlass_api::member::MemberCluster;
use windlass_api::placement::{ApplyStrategy, RolloutStrategyType};
use windlass_api::run::{ApprovalRequestSpec, UpdateRunStatus};
use windlass_api::scoped::{ApprovalRequest, Binding, Placement, Scope, UpdateRun, UpdateStrategy};
use windlass_api::{Condition, labels};
use windlass_cluster::{ApiError, ObjectKey};
use windlass_rollout::run::{
    Ask, InitView, Member, RunBinding, RunPlan, RunView, Snapshot, advance, init, is_initialized,
    superseded,
};
use windlass_scheduler::Schedule;
use windlass_status::conditions::NewCondition;
use windlass_status::defaults::rollout_type;
use windlass_status::freshness::{self, Freshness};
use windlass_status::ready::{Facts, classify};

use super::actor::Actor;
use super::bindings::{BindingPlan, Digests, apply_strategy};
use super::snapshots::{Groups, LatestSnapshot};
use crate::overrides::leave;
use crate::overrides::resolve::{Lists, Resolved};
use crate::scoped::api_in;

/// What the runs of a placement are looked at with.
pub(super) struct Around<'a> {
    pub placement: &'a Placement,
    pub schedule: &'a Schedule,
    /// Index of the latest policy snapshot.
    pub policy_index: &'a str,
    pub groups: &'a Groups,
    pub latest: &'a LatestSnapshot,
    /// Of the latest snapshot.
    pub overrides: &'a Resolved,
    pub unreachable: &'a BTreeSet<String>,
    pub now: Timestamp,
}

/// What a run has to know of bindings and clusters; the same for every run of a placement.
struct Picture {
    bindings: Vec<Arc<Binding>>,
    clusters: Vec<Arc<MemberCluster>>,
    apply: ApplyStrategy,
}

impl Actor {
    /// Takes the next step of every run of a placement. What that does to bindings is put into `plan`; when
    /// to look again though nothing is heard.
    ///
    /// # Errors
    /// When something could not be written or read; what was decided after that is not done.
    pub(super) async fn advance_runs(
        &self,
        around: &Around<'_>,
        plan: &mut BindingPlan,
    ) -> Result<Option<Timestamp>, ApiError> {
        let key = ObjectKey::of(around.placement);
        if self.world.runs.open(&key).is_empty() {
            return Ok(None);
        }
        let picture = Picture {
            bindings: self.world.bindings_of(&key),
            clusters: self.world.clusters.list(),
            apply: apply_strategy(around.placement.spec.strategy.as_ref()),
        };
        self.initialize_runs(&key, around, &picture).await?;
        let open = self.world.runs.open(&key);
        let refs: Vec<&UpdateRun> = open.iter().map(|run| &**run).collect();
        let yields = superseded(&refs);
        let by = |run: &UpdateRun| {
            let mut known = yields.iter();
            known.find(|(name, _)| run.metadata.name.as_deref() == Some(name))
        };
        // Those that were taken over from are over before the one that takes over begins.
        let (last, first): (Vec<_>, Vec<_>) = refs.iter().partition(|run| by(run).is_none());
        let mut wake = None;
        for run in first.into_iter().chain(last) {
            let decided = self.decide_run(around, &picture, run, by(run).map(|(_, by)| *by));
            self.write_run(run, &decided).await?;
            wake = wake.into_iter().chain(decided.wake_at).min();
            apply(plan, &picture.bindings, run, &decided);
        }
        Ok(wake)
    }

    async fn initialize_runs(
        &self,
        key: &ObjectKey,
        around: &Around<'_>,
        picture: &Picture,
    ) -> Result<(), ApiError> {
        for run in self.world.runs.open(key) {
            if !is_initialized(&run) {
                let status = self.init_run(key, around, picture, &run).await?;
                self.put_run_status(&run, status).await?;
            }
        }
        Ok(())
    }

    async fn init_run(
        &self,
        key: &ObjectKey,
        around: &Around<'_>,
        picture: &Picture,
        run: &UpdateRun,
    ) -> Result<UpdateRunStatus, ApiError> {
        let unfit = unfit(around.placement);
        let strategy = self.strategy_of(run).await?;
        let known = around.groups.complete();
        let (snapshot, name) = match run.spec.resource_snapshot_index.as_deref() {
            None | Some("") if around.latest.name.is_empty() => (Snapshot::Missing(&[]), None),
            None | Some("") => (
                Snapshot::Found(around.latest.index),
                Some(around.latest.name.clone()),
            ),
            Some(text) => {
                let index = text
                    .parse::<u64>()
                    .ok()
                    .filter(|index| known.contains(index));
                match index {
                    Some(index) => (
                        Snapshot::Found(index),
                        Some(windlass_api::names::master_snapshot(&key.name, index)),
                    ),
                    None => (Snapshot::Missing(&known), None),
                }
            }
        };
        let of_another;
        let overrides = match &name {
            Some(name) if *name != around.latest.name => {
                of_another = self.overrides(key, None, Some(name)).await?;
                &of_another
            }
            _ => around.overrides,
        };
        let selected = selected(around.schedule);
        let waits = waits(overrides, &selected, &picture.bindings);
        let members = members(&picture.clusters);
        let views = self.bindings_for_runs(around, picture);
        let view = InitView {
            run,
            unfit: unfit.as_deref(),
            waits: waits.as_deref(),
            strategy: strategy.as_ref().map(|strategy| &strategy.spec),
            apply_strategy: &picture.apply,
            policy_index: around.policy_index,
            unfulfilled: (!around.schedule.fulfilled).then_some(around.schedule.message.as_str()),
            snapshot,
            members: &members,
            selected: &selected,
            bindings: &views,
            overrides: &|cluster| {
                let lists = lists(overrides, cluster);
                (lists.cluster, lists.namespaced)
            },
        };
        Ok(init(&view, around.now).into_status())
    }

    async fn strategy_of(&self, run: &UpdateRun) -> Result<Option<UpdateStrategy>, ApiError> {
        let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
        let api = api_in::<UpdateStrategy>(self.writer.client().clone(), namespace);
        api.get_opt(&run.spec.staged_rollout_strategy_name)
            .await
            .map_err(ApiError::from_kube)
    }

    fn decide_run(
        &self,
        around: &Around<'_>,
        picture: &Picture,
        run: &UpdateRun,
        superseded_by: Option<&str>,
    ) -> RunPlan {
        let requests = self.world.runs.requests_of(&ObjectKey::of(run));
        let requests: Vec<&ApprovalRequest> = requests.iter().map(|request| &**request).collect();
        let unfit = unfit(around.placement);
        let members = members(&picture.clusters);
        let views = self.bindings_for_runs(around, picture);
        let view = RunView {
            run,
            bindings: &views,
            requests: &requests,
            members: &members,
            selected: &selected(around.schedule),
            policy_index: around.policy_index,
            apply_strategy: &picture.apply,
            unfit: unfit.as_deref(),
            superseded_by,
        };
        advance(&view, around.now)
    }

    fn bindings_for_runs<'a>(
        &self,
        around: &Around<'_>,
        picture: &'a Picture,
    ) -> Vec<RunBinding<'a>> {
        let mut digests = Digests::default();
        let all = picture.bindings.iter();
        all.map(|binding| {
            let desired = digests.of(binding, around.groups, around.latest, around.overrides);
            let facts = Facts {
                binding,
                desired_digest: desired,
                unreachable: around.unreachable.contains(&binding.spec.target_cluster),
                unavailable_period: SignedDuration::ZERO,
            };
            RunBinding {
                name: binding.metadata.name.as_deref().unwrap_or_default(),
                spec: &binding.spec,
                deleting: binding.metadata.deletion_timestamp.is_some(),
                moved_by: binding
                    .annotations()
                    .get(labels::MOVED_BY_RUN)
                    .map(String::as_str),
                readiness: classify(&facts, around.now),
                why: first_trouble(binding, Freshness::of(binding, desired)),
            }
        })
        .collect()
    }

    /// Writes what is to be written before bindings change, in order.
    async fn write_run(&self, run: &UpdateRun, plan: &RunPlan) -> Result<(), ApiError> {
        let requests = self.world.runs.requests_of(&ObjectKey::of(run));
        let named = |name: &String| requests.iter().find(|request| request.name_any() == *name);
        for stale in plan.discard.iter().filter_map(named) {
            self.writer.delete(&**stale).await?;
            self.world.runs.observe_request_deleted(stale);
        }
        for ask in &plan.ask {
            let request = self.writer.create(&request(run, ask)).await?;
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
            let status = if is_initialized(&run) {
                windlass_rollout::run::fail(&run, why, now)
            } else {
                windlass_rollout::run::refuse(&run, why, now)
            };
            self.put_run_status(&run, status).await?;
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

/// Why no run can be made for a placement.
fn unfit(placement: &Placement) -> Option<String> {
    let name = placement.name_any();
    match rollout_type(placement.spec.strategy.as_ref()) {
        RolloutStrategyType::External => None,
        RolloutStrategyType::RollingUpdate => Some(format!(
            "placement {name} does not have strategy type External, so the hub rolls it out itself"
        )),
    }
}

/// What a run has to wait for: versions of overrides that have no snapshot yet.
fn waits(
    overrides: &Resolved,
    selected: &BTreeSet<&str>,
    bindings: &[Arc<Binding>],
) -> Option<String> {
    let waits = selected.iter().any(|cluster| {
        overrides.waits(&BindingSpec {
            target_cluster: (*cluster).to_owned(),
            ..BindingSpec::default()
        })
    });
    waits.then(|| {
        let notes = overrides.notes(bindings).join("; ");
        format!("Waiting for the snapshots of overrides: {notes}")
    })
}

fn lists(overrides: &Resolved, cluster: &str) -> Lists {
    overrides.lists(&BindingSpec {
        target_cluster: cluster.to_owned(),
        ..BindingSpec::default()
    })
}

fn selected(schedule: &Schedule) -> BTreeSet<&str> {
    let all = schedule.selected.iter();
    all.map(|decision| decision.cluster_name.as_str()).collect()
}

/// The clusters that are there and don't leave.
fn members(clusters: &[Arc<MemberCluster>]) -> Vec<Member<'_>> {
    let staying = clusters
        .iter()
        .filter(|cluster| cluster.metadata.deletion_timestamp.is_none());
    staying
        .map(|cluster| Member {
            name: cluster.metadata.name.as_deref().unwrap_or_default(),
            labels: cluster.labels(),
        })
        .collect()
}

/// The first condition about the present version that is not True.
fn first_trouble(binding: &Binding, fresh: Freshness) -> Option<&Condition> {
    let stages = Stage::APPLY.into_iter().chain([Stage::DiffReported]);
    stages
        .filter_map(|stage| freshness::condition(binding, fresh, stage))
        .find(|condition| condition.status != Status::True.as_str())
}

/// A request belongs to its run, and goes with it.
fn request(run: &UpdateRun, ask: &Ask) -> ApprovalRequest {
    let name = run.name_any();
    let mut request = ApprovalRequest::new(
        &ask.name,
        ApprovalRequestSpec {
            parent_stage_rollout: name.clone(),
            target_stage: ask.stage.clone(),
        },
    )
    .within(run.metadata.namespace.as_deref().unwrap_or_default());
    let task = if ask.before {
        "beforeStage"
    } else {
        "afterStage"
    };
    let known = [
        (labels::TARGET_RUN, name.as_str()),
        (labels::TARGET_STAGE, &ask.stage),
        (labels::TASK_TYPE, task),
        (labels::IS_LATEST_APPROVAL, "true"),
    ];
    let pair = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    request.metadata.labels = Some(known.into_iter().map(pair).collect());
    let scope = Scope::of(run);
    request.metadata.owner_references = Some(vec![OwnerReference {
        api_version: UpdateRun::api_version(&scope).into_owned(),
        kind: UpdateRun::kind(&scope).into_owned(),
        name,
        uid: run.uid().unwrap_or_default(),
        ..OwnerReference::default()
    }]);
    request
}

/// Puts what a run does to bindings into what is written of them.
fn apply(plan: &mut BindingPlan, bindings: &[Arc<Binding>], run: &UpdateRun, decided: &RunPlan) {
    let live = |name: &str| {
        bindings
            .iter()
            .find(|b| b.metadata.name.as_deref() == Some(name))
    };
    for change in &decided.moves {
        if plan
            .delete
            .iter()
            .any(|gone| gone.name_any() == change.binding)
        {
            continue;
        }
        let mut known = plan.replace.iter_mut();
        let binding = match known.find(|binding| binding.name_any() == change.binding) {
            Some(binding) => binding,
            None => {
                let Some(binding) = live(&change.binding) else {
                    continue;
                };
                plan.replace.push((**binding).clone());
                let Some(last) = plan.replace.last_mut() else {
                    continue;
                };
                last
            }
        };
        change.target.set(&mut binding.spec);
        leave::give(binding, None);
        let mark = (
            labels::MOVED_BY_RUN.to_owned(),
            run.uid().unwrap_or_default(),
        );
        binding.annotations_mut().extend([mark]);
    }
    for name in &decided.remove {
        plan.replace.retain(|binding| binding.name_any() != *name);
        if !plan.delete.iter().any(|gone| gone.name_any() == *name) {
            plan.delete.extend(live(name).cloned());
        }
    }
}
