//! What a placement's look has decided is written: snapshots, the policy with its decisions, bindings.

use std::sync::Arc;

use futures::{FutureExt, StreamExt, stream};
use kube::{Api, ResourceExt};
use windlass_api::conditions::SCHEDULED;
use windlass_api::scoped::{Binding, Placement, PolicySnapshot};
use windlass_api::snapshot::PolicySnapshotStatus;
use windlass_cluster::{ApiError, ObjectKey};
use windlass_scheduler::Schedule;
use windlass_status::conditions::NewCondition;

use super::actor::Actor;
use super::bindings::BindingPlan;
use super::policy::PolicyPlan;
use super::report::verdict;
use super::snapshots;
use crate::scoped::api_in;

/// Binding writes of one placement in flight at once.
const PARALLEL: usize = 16;

impl Actor {
    pub(super) async fn write_snapshots(
        &self,
        plan: &snapshots::SnapshotPlan,
    ) -> Result<(), ApiError> {
        for snapshot in &plan.unfinished {
            self.writer.delete(&**snapshot).await?;
            self.world.snapshots.observe_deleted(snapshot);
        }
        for snapshot in &plan.create {
            let live = self
                .writer
                .create(snapshot)
                .await
                .map_err(|error| snapshots::refused(snapshot, error))?;
            self.world
                .snapshots
                .observe(snapshots::meta_of(live.metadata));
        }
        for (snapshot, latest) in &plan.relabel {
            let live = snapshots::relabel(&self.writer, snapshot, *latest).await?;
            self.world.snapshots.observe(live);
        }
        for snapshot in &plan.expired {
            self.writer.delete(&**snapshot).await?;
            self.world.snapshots.observe_deleted(snapshot);
        }
        Ok(())
    }

    pub(super) async fn write_policy(
        &self,
        placement: &ObjectKey,
        plan: &PolicyPlan,
    ) -> Result<Arc<PolicySnapshot>, ApiError> {
        if let Some(new) = &plan.create {
            self.world.policies.observe(self.writer.create(new).await?);
        }
        for changed in &plan.update {
            self.world
                .policies
                .observe(self.writer.replace(changed).await?);
        }
        for old in &plan.expired {
            self.writer.delete(&**old).await?;
            self.world.policies.observe_deleted(old);
        }
        self.world
            .policies
            .get(&ObjectKey::namespaced(&placement.namespace, &plan.latest))
            .ok_or_else(|| {
                ApiError::transient(format!(
                    "policy snapshot {} is not in the cache",
                    plan.latest
                ))
            })
    }

    /// Writes the scheduler's decisions for people and other tools; nothing of ours reads them back.
    pub(super) async fn decisions(
        &self,
        placement: &Placement,
        policy: Arc<PolicySnapshot>,
        schedule: &Schedule,
        now: jiff::Timestamp,
    ) -> Result<Arc<PolicySnapshot>, ApiError> {
        let previous = policy.status.clone().unwrap_or_default();
        let (status, reason) = verdict(schedule);
        let condition = NewCondition {
            type_: SCHEDULED,
            status,
            reason: reason.as_str(),
            message: schedule.message.clone(),
            observed_generation: policy.metadata.generation,
        };
        let decisions = schedule.decisions();
        let next = PolicySnapshotStatus {
            observed_crp_generation: placement.metadata.generation.unwrap_or_default(),
            conditions: Some(vec![
                condition.build(previous.conditions.as_deref().unwrap_or_default(), now),
            ]),
            cluster_decisions: (!decisions.is_empty()).then_some(decisions),
        };
        if policy.status.as_ref() == Some(&next) {
            return Ok(policy);
        }
        let mut changed = (*policy).clone();
        changed.status = Some(next);
        let live = self.writer.replace_status(&changed).await?;
        self.world.policies.observe(live.clone());
        Ok(Arc::new(live))
    }

    /// Sends binding writes, some at a time. One that fails does not keep the others from being sent.
    pub(super) async fn write_bindings(&self, plan: &BindingPlan) -> Result<(), ApiError> {
        let creates = plan.create.iter().map(Write::Create);
        let replaces = plan.replace.iter().map(Write::Replace);
        let deletes = plan.delete.iter().map(|binding| Write::Delete(binding));
        let writes: Vec<_> = creates
            .chain(replaces)
            .chain(deletes)
            .map(|write| self.write_binding(write).boxed())
            .collect();
        let results: Vec<Result<(), ApiError>> = stream::iter(writes)
            .buffer_unordered(PARALLEL)
            .collect()
            .await;
        results.into_iter().collect()
    }

    async fn write_binding(&self, write: Write<'_>) -> Result<(), ApiError> {
        match write {
            Write::Create(binding) => self
                .world
                .bindings
                .observe(self.writer.create(binding).await?),
            Write::Replace(binding) => self
                .world
                .bindings
                .observe(self.writer.replace(binding).await?),
            Write::Delete(binding) => {
                self.writer.delete(binding).await?;
                self.see_deletion(binding).await;
            }
        }
        Ok(())
    }

    /// The cache knows of a deletion before anything else is decided: whoever is asked to go serves no more.
    pub(super) async fn see_deletion(&self, binding: &Binding) {
        let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Binding> = api_in(self.writer.client().clone(), namespace);
        match api.get_opt(&binding.name_any()).await {
            Ok(Some(live)) => self.world.bindings.observe(live),
            Ok(None) => {
                let mut gone = binding.clone();
                gone.metadata.finalizers = None;
                self.world.bindings.observe_deleted(&gone);
            }
            Err(error) => tracing::debug!(%error, "the watch will tell of the deletion"),
        }
    }
}

enum Write<'a> {
    Create(&'a Binding),
    Replace(&'a Binding),
    Delete(&'a Binding),
}
