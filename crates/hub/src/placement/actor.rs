//! The actor of a placement. The queue sees to it that one placement is never worked on twice at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use kube::{Api, ResourceExt};
use windlass_aggregator::{ExternalUnset, Scheduling};
use windlass_api::labels;
use windlass_api::placement::ResourceIdentifier;
use windlass_api::scoped::{Placement, PolicySnapshot};
use windlass_cluster::clock::{self, Instant};
use windlass_cluster::{ApiError, ObjectKey, Writer};
use windlass_scheduler::Schedule;

use super::accessible::trouble;
use super::bindings;
use super::evict::{is_name, sooner};
use super::gathering::Gathering;
use super::packing::{Places, needs_places};
use super::plan::{self, PlacementPlan, PlacementView};
use super::report::notes;
use super::runs::Around;
use super::snapshots::{Group, Groups, LatestSnapshot};
use crate::contents::{Contents, identifier};
use crate::members::Members;
use crate::overrides::resolve::Resolved;
use crate::scoped::api_in;
use crate::select::rules::ApiFilter;
use crate::select::{Known, Resources, SelectError, Selection};
use crate::worker::{Next, work};
use crate::world::{BY_PLACEMENT, World};

/// How soon what the API server has refused is tried again, at least; a change is tried at once.
pub(super) const REFUSED_AGAIN: Duration = Duration::from_secs(30);

/// How long an Addon may take to write its render before its placements say that they wait for it.
const WRITING: Duration = Duration::from_secs(3);

/// What an actor remembers between two looks. All of it may be lost.
#[derive(Default)]
pub(super) struct Memory {
    /// When the next status may be written.
    pub(super) status_from: Option<Instant>,
    /// When the numbers of evictions that wait may be told anew.
    pub(super) numbers_from: Option<Instant>,
    /// How snapshots are spaced.
    gathering: Option<Gathering>,
    /// Since when an Addon's render has not been whole.
    unwritten_since: Option<Instant>,
}

/// Works on placements. Clones share everything.
#[derive(Clone)]
pub struct Actor {
    pub(super) world: World,
    pub(super) writer: Writer,
    pub(super) contents: Contents,
    pub(super) resources: Resources,
    pub(super) members: Members,
    pub(super) external_unset: ExternalUnset,
    pub(super) filter: Arc<ApiFilter>,
    pub(super) memory: Arc<DashMap<ObjectKey, Memory>>,
}

/// What a look begins with, read once.
struct Look<'a> {
    placement: &'a Placement,
    selection: &'a Selection,
    /// Where the objects are in the latest snapshot, if a new one has to go by that.
    places: Places,
    groups: Groups,
    overrides: Resolved,
    /// How long a new snapshot has to wait, if it has to.
    wait: Option<Duration>,
    unreachable: BTreeSet<String>,
    now: jiff::Timestamp,
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
        self.world.queues.pace.forget(placement);
        self.forget_content(placement);
    }

    /// Forgets what is selected and stored; when a status may be written is known on.
    pub(super) fn forget_content(&self, placement: &ObjectKey) {
        self.resources.forget(placement);
        self.contents.forget(placement);
        self.world.overrides.forget(placement);
    }

    async fn process(&self, key: &ObjectKey) -> Result<Next, ApiError> {
        // What can't be let go keeps nothing else from going on.
        if let Err(error) = self.release_runs(key).await {
            tracing::warn!(error = error.message(), "a deleted update run is held");
        }
        let Some(placement) = self.world.placements.get(key) else {
            return self.gone(key).await;
        };
        let next = self.act_on(key, Arc::clone(&placement)).await;
        self.evict(&placement, next).await
    }

    async fn act_on(&self, key: &ObjectKey, placement: Arc<Placement>) -> Result<Next, ApiError> {
        let bindings = self.world.bindings_of(key).len();
        self.world.queues.pace.begins(key, bindings);
        if placement.metadata.deletion_timestamp.is_some() {
            let why = format!("placement {} is being deleted", key.name);
            self.end_runs(key, &why).await?;
            return self.delete(&placement).await;
        }
        let placement = self.ensure_finalizer(placement).await?;
        let known = self.select(&placement).await;
        let wait = known.wait();
        let selection = match known.outcome {
            Ok(selection) => {
                if let Some(mut memory) = self.memory.get_mut(key) {
                    memory.unwritten_since = None;
                }
                selection
            }
            Err(error) => {
                let left = self.let_leave(key).await;
                let runs = self.advance_runs_regardless(&placement, &error).await;
                let next = self.unselected(&placement, error, wait).await?;
                left?;
                return runs.map(|wake| sooner(next, wake));
            }
        };
        match self.place(&placement, &selection, wait).await {
            // Somebody has to act: what runs stays, and the status says what is refused.
            Err(ApiError::Rejected(message)) => {
                let left = self.let_leave(key).await;
                let runs = self
                    .advance_runs_regardless(&placement, &SelectError::User(message.clone()))
                    .await;
                let again = self
                    .stand(&placement, Scheduling::Undecided(&message))
                    .await?;
                left?;
                let next = again.map_or(Next::Backoff(Some(REFUSED_AGAIN)), Next::After);
                runs.map(|wake| sooner(next, wake))
            }
            other => other,
        }
    }

    /// What the placement selects, if its selectors can be acted on at all.
    async fn select(&self, placement: &Placement) -> Known {
        if let Some(message) = trouble(placement, self.copied_to(placement).as_deref()) {
            return Known {
                outcome: Err(SelectError::User(message)),
                again: None,
            };
        }
        let selectors = &placement.spec.resource_selectors;
        let key = ObjectKey::of(placement);
        let before = selected_before(placement);
        let mut known = self.resources.selected(&key, selectors, before).await;
        if known.outcome.is_ok()
            && let Some(addon) = self.lost_addon(&key)
        {
            known.outcome = Err(SelectError::Unwritten(format!(
                "Addon {addon} does not say any more what it has rendered; until it does, what is placed stays as it is"
            )));
        }
        known
    }

    /// An Addon whose render is placed, and whose status is lost.
    fn lost_addon(&self, placement: &ObjectKey) -> Option<String> {
        let groups = self.world.groups_of(placement);
        let (_, group) = groups.latest()?;
        let annotations = group.master.as_ref()?.metadata.annotations.as_ref()?;
        let named = annotations.get(labels::ADDON_RENDERS)?;
        self.filter.renders().lost(placement, named)
    }

    /// What runs stays, and the status says why nothing can be decided. `wait`: how long until that is
    /// looked at again.
    async fn unselected(
        &self,
        placement: &Placement,
        error: SelectError,
        wait: Option<Duration>,
    ) -> Result<Next, ApiError> {
        let scheduling = match &error {
            SelectError::Pending(what) => {
                tracing::debug!(what, "selection waits for a watch");
                return Ok(Next::Event);
            }
            SelectError::Unwritten(message) => {
                if let Some(pause) = self.is_being_written(&ObjectKey::of(placement)) {
                    tracing::debug!(message, "selection waits for an Addon");
                    return Ok(Next::After(pause));
                }
                Scheduling::Undecided(message)
            }
            SelectError::User(message) => Scheduling::InvalidSelectors(message),
            SelectError::Api { message, .. } => Scheduling::Undecided(message),
        };
        let hold = self.stand(placement, scheduling).await?;
        let again = wait.into_iter().chain(hold).min();
        Ok(again.map_or(Next::Event, Next::After))
    }

    /// How long an Addon may still take to write its render before that is told; none: it has taken too long.
    fn is_being_written(&self, placement: &ObjectKey) -> Option<Duration> {
        let now = clock::monotonic();
        let mut memory = self.memory.entry(placement.clone()).or_default();
        let since = *memory.unwritten_since.get_or_insert(now);
        drop(memory);
        let left = WRITING.saturating_sub(now.saturating_duration_since(since));
        (!left.is_zero()).then_some(left)
    }

    /// Asks the bindings of leaving clusters to go, though nothing else is decided for the placement: else
    /// whoever may edit it could keep a cluster from leaving.
    async fn let_leave(&self, placement: &ObjectKey) -> Result<(), ApiError> {
        let members = bindings::staying(&self.world.clusters.list());
        let leaving = bindings::of_leaving(&self.world.bindings_of(placement), &members);
        let deleted = self.delete_bindings(&leaving).await;
        for binding in &leaving {
            self.see_deletion(binding).await;
        }
        deleted
    }

    /// A placement that is gone though bindings are left: somebody took its finalizer off. What it placed
    /// is removed, but only when the API server itself says that the placement is gone.
    async fn gone(&self, key: &ObjectKey) -> Result<Next, ApiError> {
        self.forget(key);
        let bindings = self.world.bindings_of(key);
        let is_live = |binding: &Arc<windlass_api::scoped::Binding>| {
            binding.metadata.deletion_timestamp.is_none()
        };
        let mut again = None;
        if (bindings.iter().any(is_live) || !self.world.runs.open(key).is_empty())
            && !self.exists(key).await?
        {
            again = self.end_orphans(key).await?;
            self.delete_bindings(&bindings).await?;
        }
        self.refuse_evictions(key).await?;
        Ok(again.map_or(Next::Event, Next::After))
    }

    /// Whether the API server has a placement.
    pub(super) async fn exists(&self, key: &ObjectKey) -> Result<bool, ApiError> {
        if !is_name(&key.name) {
            return Ok(false);
        }
        let api: Api<Placement> = api_in(self.writer.client().clone(), &key.namespace);
        let live = api.get_metadata_opt(&key.name).await;
        Ok(live.map_err(ApiError::from_kube)?.is_some())
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

    /// `again`: how long until the selection is looked at again though nothing is heard.
    async fn place(
        &self,
        placement: &Placement,
        selection: &Selection,
        again: Option<Duration>,
    ) -> Result<Next, ApiError> {
        let key = ObjectKey::of(placement);
        let mut look = self.look(&key, placement, selection).await?;
        let (plan, refused) = self.store(&key, &mut look).await?;
        let Look {
            groups,
            overrides,
            wait,
            unreachable,
            now,
            ..
        } = look;
        let PlacementPlan {
            latest,
            policy,
            schedule,
            bindings: mut plan,
            ..
        } = plan;
        let policy = self.write_policy(&key, &policy).await?;
        let policy_snapshot = self.decisions(placement, policy, &schedule, now).await?;
        let mut decided = Decided {
            schedule,
            notes: Vec::new(),
            policy_snapshot,
            groups,
            latest,
            overrides,
            resources: Vec::new(),
            held: std::mem::take(&mut plan.held),
            unreachable,
        };
        let outdated = match (&refused, wait) {
            (Some(why), _) => Some(format!("the present content can't be stored: {why}")),
            (None, Some(_)) => Some("Waiting for a snapshot of the present content".to_owned()),
            (None, None) => None,
        };
        let around = Around::of(placement, &decided, &selection.manifests, outdated, now);
        // A run that can't be written keeps neither the other bindings nor the status from it.
        let runs = self.advance_runs(&around, &mut plan).await;
        // One that is refused does not keep the status of the others from being written.
        let written = self.write_bindings(&plan).await;
        decided.resources = match wait {
            None => selection
                .manifests
                .iter()
                .map(|manifest| identifier(manifest))
                .collect(),
            Some(_) => self.stored(&key, &decided.latest).await?,
        };
        let bindings = self.world.bindings_of(&key);
        let mut notes = notes(selection, placement, &bindings, &written);
        notes.extend(decided.schedule.trouble.iter().cloned());
        notes.extend(decided.overrides.notes(&bindings));
        notes.extend(refused.map(|why| format!("{} stays in place: {why}", decided.latest.name)));
        decided.notes = notes;
        let hold = match self.write_status(placement, &decided, now).await {
            // What was decided is done; only why not all of it can be told is.
            Err(ApiError::Rejected(why)) => {
                let again = self.stand(placement, Scheduling::Undecided(&why)).await?;
                Some(again.unwrap_or(REFUSED_AGAIN))
            }
            hold => hold?,
        };
        if let Err(error) = written {
            tracing::warn!(
                error = error.message(),
                "not every binding could be written"
            );
            return Ok(Next::Backoff(error.retry_after()));
        }
        let next_step = match runs {
            Ok(at) => at,
            Err(error) => {
                tracing::warn!(error = error.message(), "an update run could not go on");
                return Ok(Next::Backoff(error.retry_after()));
            }
        };
        let timers = [plan.wake_at, decided.schedule.wake_at, next_step]
            .into_iter()
            .flatten()
            .map(|at| until(at, now));
        Ok(timers
            .chain(wait)
            .chain(hold)
            .chain(again)
            .min()
            .map_or(Next::Event, Next::After))
    }

    /// What is in a snapshot.
    async fn stored(
        &self,
        placement: &ObjectKey,
        snapshot: &LatestSnapshot,
    ) -> Result<Vec<ResourceIdentifier>, ApiError> {
        let key = ObjectKey::namespaced(&placement.namespace, &snapshot.name);
        let content = self.contents.get(&key).await?;
        Ok(content
            .map(|content| content.identifiers())
            .unwrap_or_default())
    }

    /// Reads what a look begins with.
    async fn look<'a>(
        &self,
        key: &ObjectKey,
        placement: &'a Placement,
        selection: &'a Selection,
    ) -> Result<Look<'a>, ApiError> {
        let now = clock::now();
        let unreachable = self.members.unreachable();
        let groups = self.world.groups_of(key);
        let latest = groups.latest().map(|(_, group)| group);
        let stands = latest.and_then(Group::name);
        let hash = selection.hash.to_string();
        let changed = latest.and_then(Group::hash) != Some(&hash);
        // Only a snapshot that is wanted waits.
        let is_due = self.world.runs.want_latest(key);
        let wait = self
            .pause(key)
            .filter(|_| changed && stands.is_some() && !is_due);
        let earlier = stands.as_deref().filter(|_| wait.is_some());
        let overrides = self.overrides(key, Some(selection), earlier).await?;
        let places = match latest {
            Some(group)
                if changed
                    && wait.is_none()
                    && needs_places(&selection.manifests, group.parts.len()) =>
            {
                self.contents.places(group).await?
            }
            _ => Places::new(),
        };
        Ok(Look {
            placement,
            selection,
            places,
            groups,
            overrides,
            wait,
            unreachable,
            now,
        })
    }

    /// Decides, and writes the resource snapshots. Why a new one is refused, if it is: then the decision is
    /// about the one that stands.
    async fn store(
        &self,
        key: &ObjectKey,
        look: &mut Look<'_>,
    ) -> Result<(PlacementPlan, Option<String>), ApiError> {
        let plan = self.plan(key, look);
        let Some(snapshots) = plan.snapshots.as_ref().filter(|plan| !plan.is_empty()) else {
            return Ok((plan, None));
        };
        if !snapshots.create.is_empty() {
            self.note_snapshot(key);
        }
        let stands = look.groups.latest().and_then(|(_, group)| group.name());
        let written = self.write_snapshots(snapshots).await;
        look.groups = self.world.groups_of(key);
        match (written, stands) {
            // What is too large to be stored does not keep the policy from counting.
            (Err(ApiError::Rejected(why)), Some(earlier)) => {
                look.overrides = self
                    .overrides(key, Some(look.selection), Some(&earlier))
                    .await?;
                look.wait = Some(REFUSED_AGAIN);
                Ok((self.plan(key, look), Some(why)))
            }
            (written, _) => written.map(|()| (plan, None)),
        }
    }

    fn plan(&self, key: &ObjectKey, look: &Look<'_>) -> PlacementPlan {
        plan::plan(
            &PlacementView {
                placement: look.placement,
                manifests: &look.selection.manifests,
                places: &look.places,
                hash: look.selection.hash,
                snapshot_waits: look.wait.is_some(),
                groups: &look.groups,
                pinned: &self.world.runs.pinned(key),
                policies: &self.world.policies.under(BY_PLACEMENT, key),
                bindings: &self.world.bindings_of(key),
                clusters: &self.world.clusters.list(),
                heard: &|cluster| self.members.last_contact(cluster),
                unreachable: &look.unreachable,
                overrides: &look.overrides,
            },
            look.now,
        )
    }

    /// How long a new snapshot has to wait. It is made at once when changes are rare (see [`Gathering`]).
    fn pause(&self, placement: &ObjectKey) -> Option<Duration> {
        let gathering = self.memory.get(placement)?.gathering?;
        gathering.wait(clock::monotonic())
    }

    /// A snapshot is made now.
    fn note_snapshot(&self, placement: &ObjectKey) {
        let now = clock::monotonic();
        let mut memory = self.memory.entry(placement.clone()).or_default();
        memory.gathering = Some(match memory.gathering {
            None => Gathering::begin(now),
            Some(gathering) => gathering.next(now),
        });
    }
}

/// What the status says is selected.
pub(crate) fn selected_before(placement: &Placement) -> &[ResourceIdentifier] {
    placement
        .status
        .as_ref()
        .and_then(|status| status.selected_resources.as_deref())
        .unwrap_or_default()
}

pub(super) fn until(at: jiff::Timestamp, now: jiff::Timestamp) -> Duration {
    // A second more, for API times are whole seconds.
    Duration::try_from(at.duration_since(now)).unwrap_or_default() + Duration::from_secs(1)
}
