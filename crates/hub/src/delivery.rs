//! Delivery by push: what each binding asks for is applied on its cluster, and the binding's status says
//! how that went. The only writer of a binding's status, and the remover of its `work-cleanup` finalizer.
//!
//! A binding is looked at when its spec changes, when its cluster comes or goes, and when an object that
//! was placed there changes. Each look is level-triggered: the member engine does what is missing, and
//! nothing where nothing is.

pub(crate) mod clock;
pub(crate) mod lists;
mod migrate;
mod pull;
pub(crate) mod refused;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use windlass_api::binding::BindingStatus;
use windlass_api::conditions::{BindingReason, STATUS_REPORTED_BACK, Stage, Status};
use windlass_api::placement::ReportBackStrategy;
use windlass_api::scoped::Binding;
use windlass_api::{Condition, labels, names};
use windlass_cluster::{ApiError, ObjectKey, Writer};
use windlass_member::manifest::Manifest;
use windlass_member::{Desired, Outcome, Parent, Removal, RemovalMode, Rival, report};
use windlass_render::Confinement;
use windlass_status::conditions::{NewCondition, find};
use windlass_status::digest::{BindingInputs, Digest, binding_digest};

use self::clock::{About, sooner};
use self::lists::Lists;
use self::refused::UNCHANGED;
use crate::contents::{Content, Contents};
use crate::lanes::Lanes;
use crate::members::migrate::Mode;
use crate::members::{Members, is_push};
use crate::observe::log_binding;
use crate::overrides::leave::{self, Effect};
use crate::overrides::named_by;
use crate::overrides::resolve::effects_of;
use crate::pull::deliver::Pull;
use crate::pull::work::parent_of as owner_of;
use crate::removal;
use crate::render::{self, Refusal};
use crate::report_back::{self, ReportBack, Round, Wish};
use crate::worker::{Next, work};
use crate::works;
use crate::world::{World, placement_of};

/// Delivers bindings. Clones share everything.
#[derive(Clone)]
pub struct Delivery {
    world: World,
    contents: Contents,
    members: Members,
    writer: Writer,
    report_back: ReportBack,
    lanes: Lanes,
    confinement: Confinement,
    pull: Pull,
}

impl Delivery {
    /// Wires delivery up; nothing runs yet.
    #[must_use]
    pub fn new(
        world: World,
        contents: Contents,
        members: Members,
        writer: Writer,
        report_back: ReportBack,
        confinement: Confinement,
    ) -> Self {
        let queue = world.queues.bindings.clone();
        Self {
            pull: Pull::new(world.pull.clone(), writer.clone()),
            world,
            contents,
            members,
            writer,
            report_back,
            lanes: Lanes::new(move |key| queue.add(key)),
            confinement,
        }
    }

    /// Works until the queue is closed. There are many who do, so they share it.
    pub async fn work(self: Arc<Self>) {
        let queue = self.world.queues.bindings.clone();
        work(queue, "binding", |key| {
            let this = Arc::clone(&self);
            async move { this.process(&key).await }
        })
        .await;
    }

    async fn process(&self, key: &ObjectKey) -> Result<Next, ApiError> {
        let Some(binding) = self.world.bindings.get(key) else {
            self.members.note_held(key, false);
            return Ok(Next::Event);
        };
        log_binding(&binding);
        let Some(_place) = self.lanes.enter(&binding.spec.target_cluster, key) else {
            return Ok(Next::Event);
        };
        if binding.metadata.deletion_timestamp.is_some() {
            return self.remove(&binding).await;
        }
        // Nothing is placed before the finalizer stands that removes it; the placement's actor sets it.
        if !binding
            .finalizers()
            .iter()
            .any(|f| f == labels::WORK_FINALIZER)
        {
            return Ok(Next::Event);
        }
        // Under External a name that somebody wrote is all that it takes (design §2).
        if binding.spec.resource_snapshot_name.is_empty() {
            return Ok(Next::Event);
        }
        let cluster = &binding.spec.target_cluster;
        let member = match self.world.clusters.get(&ObjectKey::cluster(cluster)) {
            None => return Ok(Next::Event),
            Some(known) if !is_push(&known) => None,
            Some(_) => match self.members.get(cluster) {
                // What was reported last stays; the cluster's own condition says that it is not reachable.
                None => return Ok(Next::Event),
                reachable => reachable,
            },
        };
        let master = ObjectKey::namespaced(&key.namespace, &binding.spec.resource_snapshot_name);
        let Some(content) = self.contents.get(&master).await? else {
            let message = format!(
                "resource snapshot {} does not exist or is not complete; name an existing one; {UNCHANGED}",
                binding.spec.resource_snapshot_name
            );
            self.write_status(&binding, About::Nothing, |report| {
                report.sync_failed(message);
            })
            .await?;
            return Ok(Next::Backoff(Some(Duration::from_secs(1))));
        };
        let placement = parent(&binding);
        // Whoever may edit bindings is not allowed everything that is placed by others.
        if content.placement != placement {
            let message = format!(
                "resource snapshot {} belongs to another placement; name one of {placement}; {UNCHANGED}",
                content.name
            );
            self.write_status(&binding, About::Nothing, |report| {
                report.sync_failed(message);
            })
            .await?;
            return Ok(Next::Event);
        }
        let overridden = self.overridden(&binding, &content);
        // The placement's actor changes its leave when it is this cluster's turn, which is an event.
        let waits = !overridden.incomplete && leave::must_wait(&binding, overridden.effect);
        self.members.note_held(key, waits);
        if waits {
            return Ok(Next::Event);
        }
        let effect = leave::given(&binding).unwrap_or(overridden.effect);
        let digest = desired_digest(&binding, &content.hash, effect);
        let manifests = match overridden.manifests {
            Ok(manifests) => manifests,
            Err(refusal) => return self.refused(&binding, digest, &content, refusal).await,
        };
        let Some(member) = member else {
            return self
                .deliver_pull(&binding, &content, &manifests, digest)
                .await;
        };
        let mirror = self.is_mirrored(&placement);
        let parent = self.parent_of(cluster, placement);
        let named = match self.absorb(&member, &binding, &parent).await {
            Ok(()) => member.work_name(&parent).await,
            Err(error) => Err(error),
        };
        let desire = |work_name| Desired {
            work_name,
            parent,
            work_namespace: names::member_namespace(cluster),
            digest,
            strategy: binding.spec.apply_strategy.clone().unwrap_or_default(),
            mirror,
            manifests,
        };
        let outcome = match named {
            Ok(work_name) => member.deliver(&desire(work_name)).await,
            Err(error) => Outcome {
                error: Some(error),
                ..Outcome::default()
            },
        };
        self.report(&binding, &content, digest, &outcome).await
    }

    /// What the overrides that a binding names make of a snapshot.
    fn overridden(&self, binding: &Binding, content: &Content) -> Overridden {
        let versions = self.world.overrides.versions_of(&binding.spec);
        let cluster = &binding.spec.target_cluster;
        let known = self.world.clusters.get(&ObjectKey::cluster(cluster));
        let none = BTreeMap::new();
        let labels = known.as_deref().map_or(&none, ResourceExt::labels);
        Overridden {
            effect: Effect::of(&effects_of(&content.placement, &versions, cluster, labels)),
            incomplete: versions.iter().any(Result::is_err),
            manifests: render::manifests(content, &versions, cluster, labels, &self.confinement),
        }
    }

    /// Nothing is sent: what runs on the cluster stays as it is.
    async fn refused(
        &self,
        binding: &Binding,
        digest: Digest,
        content: &Content,
        refusal: Refusal,
    ) -> Result<Next, ApiError> {
        let about = About::Refused(digest, content);
        self.write_status(binding, about, |report| report.refused(&refusal))
            .await?;
        Ok(Next::Event)
    }

    async fn report(
        &self,
        binding: &Binding,
        content: &Content,
        digest: Digest,
        outcome: &Outcome,
    ) -> Result<Next, ApiError> {
        if let Some(error @ ApiError::Rejected(why)) = &outcome.error {
            let cluster = &binding.spec.target_cluster;
            let message = format!("cluster {cluster} refuses what the hub has to do there: {why}");
            let about = About::NotTaken(digest);
            self.write_status(binding, about, |report| report.sync_failed(message))
                .await?;
            return Ok(Next::Backoff(error.retry_after()));
        }
        if let Some(error) = &outcome.error {
            tracing::debug!(%error, "cluster can't be reached");
            self.note_trouble(binding, digest, error).await?;
            return Ok(Next::Backoff(
                error.retry_after().or(Some(Duration::from_secs(1))),
            ));
        }
        let copied = match self.is_mirrored(&content.placement) {
            true if outcome.unsupported.is_none() => {
                let key = ObjectKey::of(binding);
                let statuses = report_back::of_outcome(outcome);
                Some(
                    self.report_back
                        .copy(&key, &content.placement, statuses)
                        .await,
                )
            }
            _ => None,
        };
        let late = self
            .write_status(binding, About::Given(digest, content), |report| {
                report.outcome(outcome);
                report.reported_back(copied.as_ref());
            })
            .await?;
        let again = match copied {
            Some(Err(error)) => return Ok(Next::Backoff(error.retry_after())),
            Some(Ok((_, again))) => again,
            None => None,
        };
        let moments = outcome.retry.into_iter().chain(again).chain(late);
        Ok(sooner(Next::Event, moments.min()))
    }

    /// What an agent is told of statuses.
    fn report_back_strategy(&self, placement: &ObjectKey) -> Option<ReportBackStrategy> {
        let placement = self.world.placements.get(placement)?;
        match report_back::wish_of(&placement) {
            Wish::Off | Wish::OfSeveralClusters => None,
            Wish::Mirror | Wish::InWorks => placement
                .spec
                .strategy
                .as_ref()
                .and_then(|strategy| strategy.report_back_strategy.clone()),
        }
    }

    /// Whether a placement's statuses are copied onto the hub's objects.
    fn is_mirrored(&self, placement: &ObjectKey) -> bool {
        let placement = self.world.placements.get(placement);
        placement.is_some_and(|placement| report_back::wish_of(&placement) == Wish::Mirror)
    }

    /// Removes what a binding that is being deleted placed, then lets it go.
    async fn remove(&self, binding: &Binding) -> Result<Next, ApiError> {
        let ours =
            |f: &String| f == labels::WORK_FINALIZER || f == labels::SCHEDULER_BINDING_FINALIZER;
        if !binding.finalizers().iter().any(ours) {
            return Ok(Next::Event);
        }
        let cluster = &binding.spec.target_cluster;
        let placement = parent(binding);
        let known = self.world.clusters.get(&ObjectKey::cluster(cluster));
        let Some(known) = known.filter(|_| {
            !self.has_successor(binding, &placement) && !self.members.has_given_up(cluster)
        }) else {
            return self.let_go(binding).await;
        };
        let live = self.world.placements.get(&placement);
        let mode = removal::mode(&known, live.as_deref(), binding);
        match self.remover(binding, is_push(&known)) {
            Some(Mode::Pull) => return self.remove_pull(binding, mode).await,
            Some(Mode::Push) => {}
            None => {
                let message =
                    format!("waiting until cluster {cluster} has changed its mode of delivery");
                self.write_status(binding, About::Nothing, |report| report.removing(message))
                    .await?;
                return Ok(Next::Event);
            }
        }
        let Some(member) = self.members.get(cluster) else {
            let what = if mode == RemovalMode::Abandon {
                "release"
            } else {
                "remove"
            };
            let message = format!(
                "waiting for cluster {cluster} to be reachable, to {what} what was placed there"
            );
            self.write_status(binding, About::Nothing, |report| report.removing(message))
                .await?;
            return Ok(Next::Event);
        };
        let parent = self.parent_of(cluster, placement);
        self.absorb(&member, binding, &parent).await?;
        let removal = match member.work_name(&parent).await {
            Ok(work) => member.remove(&work, &parent.placement, mode).await,
            Err(error) => Removal::Failed(error),
        };
        match removal {
            Removal::Done => self.let_go(binding).await,
            Removal::Waiting { for_what, retry } => {
                let message = format!("removing; waiting for {}", for_what.join(", "));
                self.write_status(binding, About::Nothing, |report| report.removing(message))
                    .await?;
                Ok(retry.map_or(Next::Backoff(None), Next::After))
            }
            Removal::Failed(error) => {
                let message = format!(
                    "removing from cluster {cluster} failed: {}",
                    error.message()
                );
                self.write_status(binding, About::Nothing, |report| report.removing(message))
                    .await?;
                Ok(Next::Backoff(error.retry_after()))
            }
        }
    }

    /// A placement on a cluster. Where there are Works for its agent, they say whose a name is.
    fn parent_of(&self, cluster: &str, placement: ObjectKey) -> Parent {
        let namespace = names::member_namespace(cluster);
        let work = ObjectKey::namespaced(namespace, works::name_of(&placement));
        let told = self.world.pull.works.get(&work);
        let mut parent = works::parent(placement, |key| self.world.placements.get(key).is_some());
        if let (Some(_), Some(work)) = (parent.rival, told) {
            let is_ours = owner_of(&work) == parent.placement;
            parent.rival = Some(if is_ours { Rival::Loses } else { Rival::Wins });
        }
        parent
    }

    /// Whether another live binding of the same placement stands for the same cluster: then what is there
    /// is that one's.
    fn has_successor(&self, binding: &Binding, placement: &ObjectKey) -> bool {
        let cluster = &binding.spec.target_cluster;
        let all = self.world.bindings_to(placement, cluster);
        all.iter().any(|other| {
            other.metadata.deletion_timestamp.is_none()
                && other.metadata.uid != binding.metadata.uid
        })
    }

    async fn let_go(&self, binding: &Binding) -> Result<Next, ApiError> {
        self.report_back.forget(&ObjectKey::of(binding));
        let mut changed = binding.clone();
        changed
            .finalizers_mut()
            .retain(|f| f != labels::WORK_FINALIZER && f != labels::SCHEDULER_BINDING_FINALIZER);
        match self.writer.replace(&changed).await {
            Ok(live) => {
                self.world.bindings.observe_deleted(&live);
                Ok(Next::Event)
            }
            Err(ApiError::NotFound(_)) => Ok(Next::Event),
            Err(error) => Err(error),
        }
    }
}

/// The placement of a binding. One without a label has none, and matches no snapshot.
fn parent(binding: &Binding) -> ObjectKey {
    placement_of(binding).unwrap_or_else(|| ObjectKey::cluster(""))
}

/// A snapshot as one cluster gets it.
struct Overridden {
    effect: Effect,
    /// A snapshot that the binding names does not exist.
    incomplete: bool,
    manifests: Result<Arc<[Arc<Manifest>]>, Refusal>,
}

/// Digest of what a binding asks for, given the hash of the snapshot that it names, and what the override
/// snapshots that it names may do on its cluster. Their names don't count: a new version that does the same
/// there asks for the same.
#[must_use]
pub fn desired_digest(binding: &Binding, snapshot_hash: &str, effect: Effect) -> Digest {
    binding_digest(&BindingInputs {
        snapshot_hash,
        resource_overrides: &[],
        cluster_resource_overrides: &[],
        apply_strategy: binding.spec.apply_strategy.as_ref(),
        variables: &effect.variables(),
    })
}

/// Fills a binding's status.
struct Report<'a> {
    binding: &'a Binding,
    previous: &'a [Condition],
    now: jiff::Timestamp,
    status: BindingStatus,
}

impl Report<'_> {
    fn condition(
        &mut self,
        stage: Stage,
        status: Status,
        reason: BindingReason,
        message: impl Into<String>,
    ) {
        let condition = NewCondition {
            type_: stage.as_str(),
            status,
            reason: reason.as_str(),
            message: message.into(),
            observed_generation: self.binding.metadata.generation,
        };
        let built = condition.build(self.previous, self.now);
        self.status.conditions.get_or_insert_default().push(built);
    }

    /// RolloutStarted and Overridden follow from the spec.
    fn begun(&mut self) {
        self.started();
        let overrides = named_by(&self.binding.spec).len();
        let (reason, message) = match overrides {
            0 => (
                BindingReason::NoOverrideSpecified,
                "No override rules are configured for the selected resources".to_owned(),
            ),
            number => (
                BindingReason::OverriddenSucceeded,
                format!("{number} override(s) are worked in"),
            ),
        };
        self.condition(Stage::Overridden, Status::True, reason, message);
    }

    fn started(&mut self) {
        self.condition(
            Stage::RolloutStarted,
            Status::True,
            BindingReason::RolloutStarted,
            format!(
                "Rolling out resource snapshot {}",
                self.binding.spec.resource_snapshot_name
            ),
        );
    }

    fn not_synced(&mut self, message: String) {
        self.begun();
        self.condition(
            Stage::WorkSynchronized,
            Status::False,
            BindingReason::SyncWorkFailed,
            message,
        );
    }

    fn removing(&mut self, message: String) {
        self.condition(
            Stage::WorkSynchronized,
            Status::False,
            BindingReason::SyncWorkFailed,
            message,
        );
    }

    /// The cluster has what the spec asks for; what comes of it is said elsewhere.
    fn told(&mut self) {
        self.begun();
        self.condition(
            Stage::WorkSynchronized,
            Status::True,
            BindingReason::AllWorkSynced,
            "The cluster has been told of the snapshot",
        );
    }

    fn outcome(&mut self, outcome: &Outcome) {
        if let Some(unsupported) = &outcome.unsupported {
            self.sync_failed(unsupported.clone());
            return;
        }
        self.told();
        let reported = report::binding_conditions(outcome);
        let mut failed = reported.failed_placements(self.previous_failures(), self.now);
        let mut conditions = reported.conditions;
        let lists = Lists {
            failed: &mut failed,
            drifted: &mut Vec::new(),
            diffed: &mut Vec::new(),
        };
        if let (Some(left_out), Some(last)) = (lists.fit(), conditions.last_mut()) {
            last.3 = lists::and(&last.3, &left_out);
        }
        self.status.failed_placements = (!failed.is_empty()).then_some(failed);
        for (stage, status, reason, message) in conditions {
            self.condition(stage, status, reason, message);
        }
    }

    /// How copying statuses went; when that is not known, what was said of it before.
    fn reported_back(&mut self, copied: Option<&Round>) {
        let built = match copied {
            None => None,
            Some(Ok((Some(told), _))) => {
                let generation = self.binding.metadata.generation;
                let condition = told.condition(STATUS_REPORTED_BACK, generation);
                Some(condition.build(self.previous, self.now))
            }
            Some(Ok((None, _)) | Err(_)) => find(self.previous, STATUS_REPORTED_BACK).cloned(),
        };
        let list = self.status.conditions.get_or_insert_default();
        list.extend(built);
    }

    fn previous_failures(&self) -> &[windlass_api::placement::FailedResourcePlacement] {
        self.binding
            .status
            .as_ref()
            .and_then(|status| status.failed_placements.as_deref())
            .unwrap_or_default()
    }
}
