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
use windlass_api::placement::ResourceIdentifier;
use windlass_api::scoped::{Placement, PolicySnapshot};
use windlass_api::snapshot::PolicySnapshotStatus;
use windlass_cluster::clock::{self, Instant};
use windlass_cluster::{ApiError, ObjectKey, Writer};
use windlass_scheduler::{ClusterView, ExistingBinding, Schedule, SchedulingView, schedule};
use windlass_status::conditions::NewCondition;

use super::accessible::trouble;
use super::bindings::{self, BindingInputs, BindingPlan};
use super::gathering::Gathering;
use super::policy::{self, PolicyInputs};
use super::report::{notes, verdict};
use super::snapshots::{self, Groups, LatestSnapshot, SnapshotInputs};
use crate::contents::{Contents, identifier};
use crate::members::Members;
use crate::overrides::resolve::Resolved;
use crate::scoped::api_in;
use crate::select::rules::ApiFilter;
use crate::select::{Resources, SelectError, Selection};
use crate::worker::{Next, work};
use crate::world::{BY_PLACEMENT, World};

/// Binding writes of one placement in flight at once.
const PARALLEL: usize = 16;
/// Snapshots kept when the placement does not say.
const DEFAULT_HISTORY: i32 = 10;
/// How soon what the API server has refused is tried again, at least; a change is tried at once.
const REFUSED_AGAIN: Duration = Duration::from_secs(30);

/// What an actor remembers between two looks. All of it may be lost.
#[derive(Default)]
pub(super) struct Memory {
    /// When the next status may be written.
    pub(super) status_from: Option<Instant>,
    /// How snapshots are spaced.
    gathering: Option<Gathering>,
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
    pub(super) filter: Arc<ApiFilter>,
    pub(super) memory: Arc<DashMap<ObjectKey, Memory>>,
}

/// What is decided on the way, for the status.
pub(super) struct Decided {
    pub(super) schedule: Schedule,
    /// What a person should know beside the verdict of the scheduler.
    pub(super) notes: Vec<String>,
    pub(super) policy_snapshot: Arc<PolicySnapshot>,
    pub(super) groups: Groups,
    pub(super) latest: LatestSnapshot,
    pub(super) overrides: Resolved,
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
        filter: Arc<ApiFilter>,
    ) -> Self {
        Self {
            world,
            writer,
            contents,
            resources,
            members,
            external_unset,
            filter,
            memory: Arc::default(),
        }
    }

    /// Works until the queue is closed.
    pub async fn work(self) {
        let queue = self.world.queues.placements.clone();
        work(queue, "placement", |key| {
            let this = self.clone();
            async move { this.process(&key).await }
        })
        .await;
    }

    pub(super) fn forget(&self, placement: &ObjectKey) {
        self.memory.remove(placement);
        self.resources.forget(placement);
        self.contents.forget(placement);
    }

    async fn process(&self, key: &ObjectKey) -> Result<Next, ApiError> {
        let Some(placement) = self.world.placements.get(key) else {
            return self.gone(key).await;
        };
        if placement.metadata.deletion_timestamp.is_some() {
            return self.delete(&placement).await;
        }
        let placement = self.ensure_finalizer(placement).await?;
        if let Some(message) = trouble(&placement, self.copied_to(&placement).as_deref()) {
            self.stand(&placement, Scheduling::InvalidSelectors(&message))
                .await?;
            return Ok(Next::Event);
        }
        let selection = match self
            .resources
            .select(
                key,
                &placement.spec.resource_selectors,
                selected_before(&placement),
            )
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
    async fn gone(&self, key: &ObjectKey) -> Result<Next, ApiError> {
        self.forget(key);
        let bindings = self.world.bindings_of(key);
        if bindings
            .iter()
            .any(|binding| binding.metadata.deletion_timestamp.is_none())
        {
            let api: Api<Placement> = api_in(self.writer.client().clone(), &key.namespace);
            if api
                .get_metadata_opt(&key.name)
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
        placement: Arc<Placement>,
    ) -> Result<Arc<Placement>, ApiError> {
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

    async fn place(&self, placement: &Placement, selection: &Selection) -> Result<Next, ApiError> {
        let key = ObjectKey::of(placement);
        let limit = usize::try_from(
            placement
                .spec
                .revision_history_limit
                .unwrap_or(DEFAULT_HISTORY),
        )
        .unwrap_or(1);
        let (latest, wait, refused) = match self.snapshot(placement, selection, limit).await? {
            Snapshotted::Latest(latest) => (latest, None, None),
            Snapshotted::Later(wait, latest) => (latest, Some(wait), None),
            Snapshotted::Refused(why, latest) => (latest, Some(REFUSED_AGAIN), Some(why)),
        };
        let now = clock::now();
        let groups = self.world.groups_of(&key);
        let unreachable = self.members.unreachable();
        let policy = self.policy(placement, limit).await?;
        let overrides = self
            .overrides(&key, selection, wait.map(|_| latest.name.as_str()))
            .await?;
        let facts = Facts {
            latest: &latest,
            groups: &groups,
            unreachable: &unreachable,
            overrides: &overrides,
        };
        let (plan, schedule) = self.bindings(placement, &policy, &facts, now);
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
                .get(&ObjectKey::namespaced(&key.namespace, &latest.name))
                .await?
                .map(|content| content.identifiers())
                .unwrap_or_default(),
        };
        let bindings = self.world.bindings_of(&key);
        let mut notes = notes(selection, placement, &bindings, &written);
        notes.extend(refused.map(|why| format!("{} stays in place: {why}", latest.name)));
        let decided = Decided {
            schedule,
            notes,
            policy_snapshot: policy,
            groups,
            latest,
            overrides,
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
            .chain(selection.again)
            .min()
            .map_or(Next::Event, Next::After))
    }

    /// Makes the selection the latest snapshot, at once when changes are rare (see [`Gathering`]).
    async fn snapshot(
        &self,
        placement: &Placement,
        selection: &Selection,
        history_limit: usize,
    ) -> Result<Snapshotted, ApiError> {
        let key = ObjectKey::of(placement);
        let groups = self.world.groups_of(&key);
        let in_use: BTreeSet<String> = self
            .world
            .bindings_of(&key)
            .iter()
            .map(|b| b.spec.resource_snapshot_name.clone())
            .collect();
        let uid = placement.uid().unwrap_or_default();
        let plan = snapshots::plan(&SnapshotInputs {
            placement: &key,
            placement_uid: &uid,
            groups: &groups,
            manifests: &selection.manifests,
            hash: selection.hash,
            history_limit,
            in_use: &in_use,
        });
        if !plan.create.is_empty()
            && let Some(wait) = self.gathering(&key)
            && let Some(latest) = latest_of(&groups)
        {
            return Ok(Snapshotted::Later(wait, latest));
        }
        match (self.write_snapshots(&plan).await, latest_of(&groups)) {
            (Err(ApiError::Rejected(why)), Some(latest)) => Ok(Snapshotted::Refused(why, latest)),
            (written, _) => written.map(|()| Snapshotted::Latest(plan.latest)),
        }
    }

    /// How long a new snapshot has to wait; none when it may be made now, which is noted.
    fn gathering(&self, placement: &ObjectKey) -> Option<Duration> {
        let now = clock::monotonic();
        let mut memory = self.memory.entry(placement.clone()).or_default();
        let next = match memory.gathering {
            None => Gathering::begin(now),
            Some(gathering) => {
                if let Some(wait) = gathering.wait(now) {
                    return Some(wait);
                }
                gathering.next(now)
            }
        };
        memory.gathering = Some(next);
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
        placement: &Placement,
        history_limit: usize,
    ) -> Result<Arc<PolicySnapshot>, ApiError> {
        let key = ObjectKey::of(placement);
        let existing = self.world.policies.under(BY_PLACEMENT, &key);
        let uid = placement.uid().unwrap_or_default();
        let plan = policy::plan(&PolicyInputs {
            placement: &key,
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
            .get(&ObjectKey::namespaced(&key.namespace, &plan.latest))
            .ok_or_else(|| {
                ApiError::transient(format!(
                    "policy snapshot {} is not in the cache",
                    plan.latest
                ))
            })
    }

    fn bindings(
        &self,
        placement: &Placement,
        policy: &PolicySnapshot,
        facts: &Facts<'_>,
        now: jiff::Timestamp,
    ) -> (BindingPlan, Schedule) {
        let key = ObjectKey::of(placement);
        let existing = self.world.bindings_of(&key);
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
                placement: &key,
                policy: placement.spec.policy.as_ref(),
                strategy: placement.spec.strategy.as_ref(),
                selected: &schedule.selected,
                members: &members,
                unreachable: facts.unreachable,
                policy_snapshot: &policy_snapshot,
                latest: facts.latest,
                groups: facts.groups,
                existing: &existing,
                overrides: facts.overrides,
            },
            now,
        );
        (plan, schedule)
    }

    /// Writes the scheduler's decisions for people and other tools; nothing of ours reads them back.
    async fn decisions(
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

/// What decides on bindings beside the schedule.
struct Facts<'a> {
    latest: &'a LatestSnapshot,
    groups: &'a Groups,
    unreachable: &'a BTreeSet<String>,
    overrides: &'a Resolved,
}

enum Snapshotted {
    Latest(LatestSnapshot),
    /// The selection has changed, but its snapshot waits; until then the old one is the latest.
    Later(Duration, LatestSnapshot),
    /// The API server refuses the selection, and why; the old one stays the latest, and the policy counts.
    Refused(String, LatestSnapshot),
}

enum Write<'a> {
    Create(&'a windlass_api::scoped::Binding),
    Replace(&'a windlass_api::scoped::Binding),
    Delete(&'a windlass_api::scoped::Binding),
}

/// The latest snapshot that there is.
fn latest_of(groups: &Groups) -> Option<LatestSnapshot> {
    let (index, group) = groups.latest()?;
    Some(LatestSnapshot {
        name: group.name()?,
        index,
        hash: group.hash().unwrap_or_default().to_owned(),
    })
}

/// What the status says is selected.
fn selected_before(placement: &Placement) -> &[ResourceIdentifier] {
    placement
        .status
        .as_ref()
        .and_then(|status| status.selected_resources.as_deref())
        .unwrap_or_default()
}

fn until(at: jiff::Timestamp, now: jiff::Timestamp) -> Duration {
    // A second more, for API times are whole seconds.
    Duration::try_from(at.duration_since(now)).unwrap_or_default() + Duration::from_secs(1)
}
