//! The actor of a placement. The queue sees to it that one placement is never worked on twice at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use futures::{FutureExt, StreamExt, stream};
use kube::{Api, ResourceExt};
use windlass_aggregator::{ExternalUnset, Scheduling};
use windlass_api::conditions::SCHEDULED;
use windlass_api::labels;
use windlass_api::placement::{ClusterResourcePlacement, ResourceIdentifier};
use windlass_api::snapshot::{ClusterSchedulingPolicySnapshot, PolicySnapshotStatus};
use windlass_cluster::clock::{self, Instant};
use windlass_cluster::{ApiError, ObjectKey, Writer};
use windlass_scheduler::{ClusterView, ExistingBinding, Schedule, SchedulingView, schedule};
use windlass_status::conditions::NewCondition;

use super::bindings::{self, BindingInputs, BindingPlan};
use super::policy::{self, PolicyInputs};
use super::report::{notes, verdict};
use super::snapshots::{self, Groups, LatestSnapshot, SnapshotInputs};
use crate::contents::{Contents, identifier};
use crate::members::Members;
use crate::select::{Resources, SelectError, Selection};
use crate::worker::{Next, work};
use crate::world::{BY_PLACEMENT, World};

/// Binding writes of one placement in flight at once.
const PARALLEL: usize = 16;
/// Snapshots kept when the placement does not say.
const DEFAULT_HISTORY: i32 = 10;
/// Longest time for which a stream of changes is gathered into one snapshot.
const LONGEST_GATHERING: Duration = Duration::from_secs(10);
/// First wait between two snapshots of one placement.
const SHORTEST_GATHERING: Duration = Duration::from_millis(200);

/// How soon what the API server has refused is tried again, at least; a change is tried at once.
const REFUSED_AGAIN: Duration = Duration::from_secs(30);

/// What an actor remembers between two looks. All of it may be lost.
#[derive(Default)]
pub(super) struct Memory {
    /// When the next status may be written.
    pub(super) status_from: Option<Instant>,
    /// When the last snapshot was made, and how long the next one waits.
    snapshot: Option<(Instant, Duration)>,
}

/// Works on placements. Clones share everything.
#[derive(Clone)]
pub struct Actor {
    pub(super) world: World,
    pub(super) writer: Writer,
    pub(super) contents: Contents,
    resources: Resources,
    members: Members,
    pub(super) external_unset: ExternalUnset,
    pub(super) memory: Arc<DashMap<String, Memory>>,
}

/// What is decided on the way, for the status.
pub(super) struct Decided {
    pub(super) schedule: Schedule,
    /// What a person should know beside the verdict of the scheduler.
    pub(super) notes: Vec<String>,
    pub(super) policy_snapshot: Arc<ClusterSchedulingPolicySnapshot>,
    pub(super) groups: Groups,
    pub(super) latest: LatestSnapshot,
    pub(super) resources: Vec<ResourceIdentifier>,
    pub(super) held: BTreeSet<String>,
    pub(super) unreachable: BTreeSet<String>,
}

impl Actor {
    /// Wires an actor up; nothing runs yet.
    #[must_use]
    pub fn new(
        world: World,
        writer: Writer,
        contents: Contents,
        resources: Resources,
        members: Members,
        external_unset: ExternalUnset,
    ) -> Self {
        Self {
            world,
            writer,
            contents,
            resources,
            members,
            external_unset,
            memory: Arc::default(),
        }
    }

    /// Works until the queue is closed.
    pub async fn work(self) {
        let queue = self.world.queues.placements.clone();
        work(queue, "placement", |name| {
            let this = self.clone();
            async move { this.process(&name).await }
        })
        .await;
    }

    pub(super) fn forget(&self, placement: &str) {
        self.memory.remove(placement);
        self.resources.forget(placement);
        self.contents.forget(placement);
    }

    async fn process(&self, name: &str) -> Result<Next, ApiError> {
        let Some(placement) = self.world.placements.get(&ObjectKey::cluster(name)) else {
            return self.gone(name).await;
        };
        if placement.metadata.deletion_timestamp.is_some() {
            return self.delete(&placement).await;
        }
        let placement = self.ensure_finalizer(placement).await?;
        let selection = match self
            .resources
            .select(name, &placement.spec.resource_selectors)
            .await
        {
            Ok(selection) => selection,
            Err(SelectError::Pending(what)) => {
                tracing::debug!(what, "selection waits for a watch");
                return Ok(Next::Event);
            }
            Err(SelectError::User(message)) => {
                self.stand(&placement, Scheduling::InvalidSelectors(&message))
                    .await?;
                return Ok(Next::Event);
            }
            Err(SelectError::Api { message, retry }) => {
                self.stand(&placement, Scheduling::Undecided(&message))
                    .await?;
                return Ok(Next::Backoff((!retry).then_some(REFUSED_AGAIN)));
            }
        };
        match self.place(&placement, &selection).await {
            // Somebody has to act: what runs stays, and the status says what is refused.
            Err(ApiError::Rejected(message)) => {
                self.stand(&placement, Scheduling::Undecided(&message))
                    .await?;
                Ok(Next::Backoff(Some(REFUSED_AGAIN)))
            }
            other => other,
        }
    }

    /// A placement that is gone though bindings are left: somebody took its finalizer off. What it placed
    /// is removed, but only when the API server itself says that the placement is gone.
    async fn gone(&self, name: &str) -> Result<Next, ApiError> {
        self.forget(name);
        let bindings = self.world.bindings_of(name);
        if bindings
            .iter()
            .any(|binding| binding.metadata.deletion_timestamp.is_none())
        {
            let api: Api<ClusterResourcePlacement> = Api::all(self.writer.client().clone());
            if api
                .get_metadata_opt(name)
                .await
                .map_err(ApiError::from_kube)?
                .is_none()
            {
                self.delete_bindings(&bindings).await?;
            }
        }
        Ok(Next::Event)
    }

    async fn ensure_finalizer(
        &self,
        placement: Arc<ClusterResourcePlacement>,
    ) -> Result<Arc<ClusterResourcePlacement>, ApiError> {
        if placement
            .finalizers()
            .iter()
            .any(|f| f == labels::PLACEMENT_FINALIZER)
        {
            return Ok(placement);
        }
        let mut changed = (*placement).clone();
        changed
            .finalizers_mut()
            .push(labels::PLACEMENT_FINALIZER.to_owned());
        let live = self.writer.replace(&changed).await?;
        self.world.placements.observe(live.clone());
        Ok(Arc::new(live))
    }

    async fn place(
        &self,
        placement: &ClusterResourcePlacement,
        selection: &Selection,
    ) -> Result<Next, ApiError> {
        let name = placement.name_any();
        let limit = usize::try_from(
            placement
                .spec
                .revision_history_limit
                .unwrap_or(DEFAULT_HISTORY),
        )
        .unwrap_or(1);
        let (latest, wait) = match self.snapshot(placement, selection, limit).await? {
            Snapshotted::Latest(latest) => (latest, None),
            Snapshotted::Later(wait, latest) => (latest, Some(wait)),
        };
        let now = clock::now();
        let groups = Groups::of(&self.world.snapshots.by_index(BY_PLACEMENT, &name));
        let unreachable = self.members.unreachable();
        let policy = self.policy(placement, limit).await?;
        let (plan, schedule) =
            self.bindings(placement, &policy, &latest, &groups, &unreachable, now);
        let policy = self.decisions(placement, policy, &schedule, now).await?;
        // One that is refused does not keep the status of the others from being written.
        let written = self.write_bindings(&plan).await;
        let resources = match wait {
            None => selection
                .manifests
                .iter()
                .map(|manifest| identifier(manifest))
                .collect(),
            Some(_) => self
                .contents
                .get(&latest.name)
                .await?
                .map(|content| content.identifiers())
                .unwrap_or_default(),
        };
        let decided = Decided {
            schedule,
            notes: notes(
                selection,
                placement,
                &self.world.bindings_of(&name),
                &written,
            ),
            policy_snapshot: policy,
            groups,
            latest,
            resources,
            held: plan.held,
            unreachable,
        };
        let hold = self.write_status(placement, &decided, now).await?;
        if let Err(error) = written {
            tracing::warn!(
                error = error.message(),
                "not every binding could be written"
            );
            return Ok(Next::Backoff(error.retry_after()));
        }
        let timers = [plan.wake_at, decided.schedule.wake_at]
            .into_iter()
            .flatten()
            .map(|at| until(at, now));
        Ok(timers
            .chain(wait)
            .chain(hold)
            .min()
            .map_or(Next::Event, Next::After))
    }

    /// Makes the selection the latest snapshot, at once when changes are rare; a stream of changes is
    /// gathered, longer and longer, and its last state always gets a snapshot.
    async fn snapshot(
        &self,
        placement: &ClusterResourcePlacement,
        selection: &Selection,
        history_limit: usize,
    ) -> Result<Snapshotted, ApiError> {
        let name = placement.name_any();
        let groups = Groups::of(&self.world.snapshots.by_index(BY_PLACEMENT, &name));
        let in_use: BTreeSet<String> = self
            .world
            .bindings_of(&name)
            .iter()
            .map(|b| b.spec.resource_snapshot_name.clone())
            .collect();
        let uid = placement.uid().unwrap_or_default();
        let plan = snapshots::plan(&SnapshotInputs {
            placement: &name,
            placement_uid: &uid,
            groups: &groups,
            manifests: &selection.manifests,
            hash: selection.hash,
            history_limit,
            in_use: &in_use,
        });
        if !plan.create.is_empty()
            && let Some(wait) = self.gathering(&name)
            && let Some((index, group)) = groups.latest()
        {
            let hash = group.hash().unwrap_or_default().to_owned();
            let latest = LatestSnapshot {
                name: group.name().unwrap_or_default(),
                index,
                hash,
            };
            return Ok(Snapshotted::Later(wait, latest));
        }
        self.write_snapshots(&plan).await?;
        Ok(Snapshotted::Latest(plan.latest))
    }

    /// How long a new snapshot has to wait; none when it may be made now, which is noted.
    fn gathering(&self, placement: &str) -> Option<Duration> {
        let now = clock::monotonic();
        let mut memory = self.memory.entry(placement.to_owned()).or_default();
        let pause = match memory.snapshot {
            Some((last, pause)) if last + pause > now => return Some(last + pause - now),
            // A change soon after the pause is part of a stream; later ones stand alone.
            Some((last, pause)) if last + pause * 4 > now => (pause * 2).min(LONGEST_GATHERING),
            _ => SHORTEST_GATHERING,
        };
        memory.snapshot = Some((now, pause));
        None
    }

    async fn write_snapshots(&self, plan: &snapshots::SnapshotPlan) -> Result<(), ApiError> {
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

    async fn policy(
        &self,
        placement: &ClusterResourcePlacement,
        history_limit: usize,
    ) -> Result<Arc<ClusterSchedulingPolicySnapshot>, ApiError> {
        let name = placement.name_any();
        let existing = self.world.policies.by_index(BY_PLACEMENT, &name);
        let uid = placement.uid().unwrap_or_default();
        let plan = policy::plan(&PolicyInputs {
            placement: &name,
            placement_uid: &uid,
            generation: placement.metadata.generation.unwrap_or_default(),
            policy: placement.spec.policy.as_ref(),
            snapshots: &existing,
            history_limit,
        });
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
            .get(&ObjectKey::cluster(&plan.latest))
            .ok_or_else(|| {
                ApiError::transient(format!(
                    "policy snapshot {} is not in the cache",
                    plan.latest
                ))
            })
    }

    fn bindings(
        &self,
        placement: &ClusterResourcePlacement,
        policy: &ClusterSchedulingPolicySnapshot,
        latest: &LatestSnapshot,
        groups: &Groups,
        unreachable: &BTreeSet<String>,
        now: jiff::Timestamp,
    ) -> (BindingPlan, Schedule) {
        let name = placement.name_any();
        let existing = self.world.bindings_of(&name);
        let clusters = self.world.clusters.list();
        let views: Vec<ClusterView<'_>> = clusters
            .iter()
            .map(|cluster| {
                let mut view = ClusterView::of(cluster);
                let heard = self.members.last_contact(view.name);
                view.membership.last_heartbeat = view.membership.last_heartbeat.max(heard);
                view
            })
            .collect();
        let policy_snapshot = policy.name_any();
        let bound: Vec<ExistingBinding<'_>> = existing
            .iter()
            .map(|binding| ExistingBinding {
                cluster: &binding.spec.target_cluster,
                state: binding.spec.state.clone(),
                deleting: binding.metadata.deletion_timestamp.is_some(),
                current_policy: binding.spec.scheduling_policy_snapshot_name == policy_snapshot,
                score: binding.spec.cluster_decision.cluster_score,
            })
            .collect();
        let view = SchedulingView {
            policy: placement.spec.policy.as_ref(),
            namespace: None,
            clusters: &views,
            existing: &bound,
        };
        let schedule = schedule(&view, now);
        let members = clusters
            .iter()
            .filter(|cluster| cluster.metadata.deletion_timestamp.is_none())
            .map(|cluster| cluster.name_any())
            .collect();
        let plan = bindings::plan(
            &BindingInputs {
                placement: &name,
                policy: placement.spec.policy.as_ref(),
                strategy: placement.spec.strategy.as_ref(),
                selected: &schedule.selected,
                members: &members,
                unreachable,
                policy_snapshot: &policy_snapshot,
                latest,
                groups,
                existing: &existing,
            },
            now,
        );
        (plan, schedule)
    }

    /// Writes the scheduler's decisions for people and other tools; nothing of ours reads them back.
    async fn decisions(
        &self,
        placement: &ClusterResourcePlacement,
        policy: Arc<ClusterSchedulingPolicySnapshot>,
        schedule: &Schedule,
        now: jiff::Timestamp,
    ) -> Result<Arc<ClusterSchedulingPolicySnapshot>, ApiError> {
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
    async fn write_bindings(&self, plan: &BindingPlan) -> Result<(), ApiError> {
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
            Write::Delete(binding) => self.writer.delete(binding).await?,
        }
        Ok(())
    }
}

enum Snapshotted {
    Latest(LatestSnapshot),
    /// The selection has changed, but its snapshot waits; until then the old one is the latest.
    Later(Duration, LatestSnapshot),
}

enum Write<'a> {
    Create(&'a windlass_api::binding::ClusterResourceBinding),
    Replace(&'a windlass_api::binding::ClusterResourceBinding),
    Delete(&'a windlass_api::binding::ClusterResourceBinding),
}

fn until(at: jiff::Timestamp, now: jiff::Timestamp) -> Duration {
    // A second more, for API times are whole seconds.
    Duration::try_from(at.duration_since(now)).unwrap_or_default() + Duration::from_secs(1)
}
