//! The actor of an Addon: chooses a version, has it rendered if that is not done, and hands the render to a
//! placement.
//!
//! In this order, so that each prefix is a valid state: the status says which render is meant and what its
//! envelopes hold; the envelopes are written; the placement is made or changed; envelopes that are not listed
//! any more go. Until the envelopes hold what the status lists, selection leaves everything as it is
//! (`select::renders`). All that is made is owned by the Addon, and goes with it; the namespace stays.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::ResourceExt;
use windlass_addons::placed::{Inputs, Outcome, Placed, Why, evaluate};
use windlass_addons::render::{RenderError, RenderRequest, Renderer};
use windlass_api::addon::{self, Addon, AddonStatus, RenderedEnvelope};
use windlass_cluster::{ApiError, Discovery, ObjectKey, Writer, clock};
use windlass_status::conditions::time;
use windlass_status::digest::Digest;

use super::choice::{self, Chosen};
use super::making::{self, Held, Made, Turns};
use super::{envelopes, jitter, placement};
use crate::contents::Contents;
use crate::select::Resources;
use crate::select::renders::identity;
use crate::select::rules::ApiFilter;
use crate::worker::{Next, work};
use crate::world::World;

/// See [`untold`].
const UNTOLD: Duration = Duration::from_secs(20);
/// As that, where trying costs more.
const LATER: Duration = Duration::from_mins(5);

/// Works on Addons. Clones share everything.
#[derive(Clone)]
pub struct AddonActor {
    pub(super) world: World,
    pub(super) writer: Writer,
    pub(super) resources: Resources,
    contents: Contents,
    pub(super) discovery: Discovery,
    pub(super) filter: Arc<ApiFilter>,
    pub(super) renderer: Arc<Renderer>,
    /// What is known of envelopes as they are, by version; may be lost.
    pub(super) seen: envelopes::Seen,
    /// Who fetches from a repository: a few at once.
    pub(super) turns: Turns,
    /// Renders that were refused: trying them again would come to the same.
    refused: Arc<Mutex<HashMap<String, (Digest, Why)>>>,
}

impl AddonActor {
    /// Wires an actor up; nothing runs yet.
    #[must_use]
    pub fn new(
        world: World,
        writer: Writer,
        resources: Resources,
        contents: Contents,
        discovery: Discovery,
        filter: Arc<ApiFilter>,
        renderer: Arc<Renderer>,
    ) -> Self {
        Self {
            world,
            writer,
            resources,
            contents,
            discovery,
            filter,
            renderer,
            seen: envelopes::Seen::default(),
            turns: Turns::default(),
            refused: Arc::default(),
        }
    }

    /// Works until the queue is closed.
    pub async fn work(self) {
        let queue = self.world.queues.addons.clone();
        work(queue, "addon", |name| {
            let this = self.clone();
            async move { this.process(&name).await }
        })
        .await;
    }

    async fn process(&self, name: &str) -> Result<Next, ApiError> {
        let found = self.world.addons.addons.get(&ObjectKey::cluster(name));
        let Some(addon) = found.filter(|found| found.metadata.deletion_timestamp.is_none()) else {
            self.forget(name);
            return Ok(Next::Event);
        };
        let mut known = addon.status.clone().unwrap_or_default();
        let now = clock::now();
        if let Some(left) = waits(&addon, &known, now) {
            return Ok(Next::After(left));
        }
        known.placement = Some(placement::name_of(&addon));
        // What this pass has read and written itself, never what came meanwhile: that is another pass's.
        let mut live = addon;
        let (outcome, later) = self.pass(&mut live, &mut known).await?;
        let (status, again) = decide(&live, &known, &outcome);
        self.write(&live, &status).await?;
        let again = again.map(SignedDuration::unsigned_abs);
        let again = again.into_iter().chain(later).chain(untold(&outcome)).min();
        Ok(again.map_or(Next::Event, Next::After))
    }

    /// The API server collects what a gone Addon owns, and the placement takes it off the clusters.
    fn forget(&self, name: &str) {
        self.refused().remove(name);
        self.seen.forget(name);
        self.world.addons.wanted().forget(name);
        // What these hold is nobody's render any more, though nothing about them has changed.
        for (namespaced, meta) in self.world.addons.envelopes_of(name) {
            let envelope = RenderedEnvelope {
                namespace: meta.namespace().filter(|_| namespaced),
                name: meta.name_any(),
                digest: String::new(),
            };
            self.resources.relisted(name, &envelope);
        }
    }

    /// Brings everything to what the Addon asks for, as far as it can be, and says when to look again if nothing
    /// changes. `known` gets what was found out.
    async fn pass(
        &self,
        live: &mut Arc<Addon>,
        known: &mut AddonStatus,
    ) -> Result<(Outcome, Option<Duration>), ApiError> {
        let addon = Arc::clone(live);
        let addon = &*addon;
        let namespace = &addon.spec.namespace;
        if self.filter.is_reserved(namespace) {
            let message = format!(
                "Namespace {namespace} is reserved, nothing is placed in it; use another one"
            );
            let why = Why::new("NamespaceReserved", message);
            return Ok((Outcome::Refused(why), None));
        }
        let chosen = match choice::choose(&self.world.addons, addon, known) {
            Ok(chosen) => chosen,
            Err(outcome) => {
                self.keep_what_runs(live, known).await?;
                return Ok((outcome, None));
            }
        };
        known.available_version.clone_from(&chosen.held_back);
        let Err(outcome) = self.render(live, known, &chosen).await? else {
            return Ok((self.place(live, known).await?, None));
        };
        let holds = self.keep_what_runs(live, known).await?;
        // Nobody's wish has changed: it is Helm that did, or a version that is followed. What runs is as good.
        if !holds || !serves(live, known) {
            return Ok((outcome, None));
        }
        tracing::warn!(
            ?outcome,
            "what runs stays: what would come after it can't be rendered"
        );
        if !chosen.is_kept {
            known.available_version = Some(chosen.version.version.clone());
        }
        Ok((self.place(live, known).await?, Some(LATER)))
    }

    /// Whatever is asked for and can't be had: the envelopes of what runs are mended, if they have to be. Whether
    /// they are all there.
    async fn keep_what_runs(&self, addon: &Addon, known: &AddonStatus) -> Result<bool, ApiError> {
        match &known.envelopes {
            Some(listed) if !listed.is_empty() => self.holds(addon, known, listed).await,
            _ => Ok(false),
        }
    }

    /// Brings the envelopes to what the Addon asks for, if they are not there yet.
    async fn render(
        &self,
        live: &mut Arc<Addon>,
        known: &mut AddonStatus,
        chosen: &Chosen,
    ) -> Result<Result<(), Outcome>, ApiError> {
        let helm = match self.renderer.version().await {
            Ok(version) => version,
            Err(error) => return Ok(Err(failed(&error))),
        };
        let wish = match self.wish(live, known, chosen).await? {
            Ok(wish) => wish,
            Err(outcome) => return Ok(Err(outcome)),
        };
        let digest = wish.request.digest(&helm);
        let listed = known.envelopes.clone().unwrap_or_default();
        if is_told(known, digest)
            && !self.has_learned(known).await?
            && self.holds(live, known, &listed).await?
        {
            return Ok(Ok(()));
        }
        self.renew(live, known, chosen, wish, (&helm, digest)).await
    }

    /// Whether the hub knows a kind now of which it was assumed where its objects live.
    async fn has_learned(&self, known: &AddonStatus) -> Result<bool, ApiError> {
        let Some(assumed) = &known.assumed_kinds else {
            return Ok(false);
        };
        let kinds = self.discovery.preferred().await?;
        Ok(kinds.iter().any(|kind| {
            let (name, group) = (&kind.resource.kind, &kind.resource.group);
            assumed.contains(&format!("{name}.{group}"))
        }))
    }

    /// What is to be rendered; with the archive, if only that tells which chart it is.
    async fn wish(
        &self,
        addon: &Addon,
        known: &AddonStatus,
        chosen: &Chosen,
    ) -> Result<Result<Wish, Outcome>, ApiError> {
        if let Some(request) = making::input(addon, known, chosen) {
            return Ok(Ok(Wish {
                request,
                archive: None,
            }));
        }
        Ok(self.archive(addon, chosen).await?.map(|held| Wish {
            request: making::request(addon, held.archive.digest.to_string()),
            archive: Some(held),
        }))
    }

    /// Whether the envelopes hold what is listed, or do again.
    async fn holds(
        &self,
        addon: &Addon,
        known: &AddonStatus,
        listed: &[RenderedEnvelope],
    ) -> Result<bool, ApiError> {
        Ok(envelopes::hold(self, addon, listed).await?
            || self.restore(addon, known, listed).await?)
    }

    /// Has it rendered, and writes that.
    async fn renew(
        &self,
        live: &mut Arc<Addon>,
        known: &mut AddonStatus,
        chosen: &Chosen,
        wish: Wish,
        (helm, digest): (&str, Digest),
    ) -> Result<Result<(), Outcome>, ApiError> {
        let made = match self.make(live, chosen, wish.archive, helm, digest).await? {
            Ok(made) => made,
            Err(outcome) => return Ok(Err(outcome)),
        };
        // Before anything is written: what is in other namespaces is not this Addon's affair then.
        if let Some(placed) = making::strays(live, &envelopes::list(&made.envelopes)) {
            return Ok(Err(Outcome::Rendered(placed)));
        }
        if let Some(outcome) = envelopes::conflict(self, live, &made.envelopes).await? {
            return Ok(Err(outcome));
        }
        self.hand_over(live, known, chosen, made).await
    }

    /// Writes the envelopes as they were, from what the placement has of them: neither the repository nor Helm is
    /// needed for it, and random values stay what they are. False if that has not all of them.
    async fn restore(
        &self,
        addon: &Addon,
        known: &AddonStatus,
        listed: &[RenderedEnvelope],
    ) -> Result<bool, ApiError> {
        let placement = ObjectKey::cluster(known.placement.as_deref().unwrap_or_default());
        let groups = self.world.groups_of(&placement);
        let render = known.render_digest.as_deref().map(str::parse);
        let (Some((_, group)), Some(Ok(render))) = (groups.latest(), render) else {
            return Ok(false);
        };
        let objects = self.contents.objects(group).await?;
        let found = listed
            .iter()
            .map(|listed| envelopes::found(&objects, listed));
        let Some(envelopes) = found.collect::<Option<Vec<_>>>() else {
            return Ok(false);
        };
        if envelopes::conflict(self, addon, &envelopes)
            .await?
            .is_some()
        {
            return Ok(false);
        }
        Ok(envelopes::write(self, addon, &envelopes, render, None)
            .await?
            .is_ok())
    }

    /// Renders and packs, unless that was refused before.
    async fn make(
        &self,
        addon: &Addon,
        chosen: &Chosen,
        archive: Option<Held>,
        helm: &str,
        digest: Digest,
    ) -> Result<Result<Made, Outcome>, ApiError> {
        let name = addon.name_any();
        let before = self.refused().get(&name).cloned();
        if let Some((_, why)) = before.filter(|(of, _)| *of == digest) {
            return Ok(Err(Outcome::Refused(why)));
        }
        let held = match archive {
            Some(held) => held,
            None => match self.archive(addon, chosen).await? {
                Ok(held) => held,
                Err(outcome) => return Ok(Err(outcome)),
            },
        };
        let made = making::make(self, addon, chosen, &held.archive, helm, digest).await?;
        // A Helm that was away for a moment says nothing about the chart.
        if let Err(Outcome::Refused(why)) = &made
            && !["HelmNotFound", "HelmNotUsable"].contains(&why.reason)
        {
            self.refused().insert(name, (digest, why.clone()));
        }
        Ok(made)
    }

    /// Says what is meant, then writes it.
    async fn hand_over(
        &self,
        live: &mut Arc<Addon>,
        known: &mut AddonStatus,
        chosen: &Chosen,
        made: Made,
    ) -> Result<Result<(), Outcome>, ApiError> {
        known.version = Some(chosen.version.version.clone());
        known.chosen_for = Some(live.spec.chart.clone());
        known.chart_digest = Some(made.chart_digest);
        let (digest, listed) = (made.digest.to_string(), envelopes::list(&made.envelopes));
        // A hub that died before it had written them all says nothing new.
        if known.render_digest.as_ref() != Some(&digest)
            || known.envelopes.as_ref() != Some(&listed)
        {
            known.rendered_at = Some(time(clock::now()));
        }
        known.render_digest = Some(digest);
        known.helm_version = Some(made.helm);
        known.envelopes = Some(listed);
        known.objects = Some(made.objects);
        known.skipped_hooks = (!made.skipped_hooks.is_empty()).then_some(made.skipped_hooks);
        known.assumed_kinds = (!made.assumed.is_empty()).then_some(made.assumed);
        known.not_reproducible = (!made.is_reproducible).then_some(true);
        let writing = Outcome::Rendered(Placed::Progressing(
            "The render is being written.".to_owned(),
        ));
        let (status, _) = decide(live, known, &writing);
        *live = self.write(live, &status).await?;
        known.conditions = status.conditions;
        known.observed_generation = status.observed_generation;
        let own = made.namespace.as_ref();
        let written = envelopes::write(self, live, &made.envelopes, made.digest, own).await?;
        for envelope in known.envelopes.iter().flatten() {
            self.resources.relisted(&live.name_any(), envelope);
        }
        Ok(written)
    }

    /// The placement, and what is left over of renders before.
    async fn place(&self, addon: &Addon, known: &AddonStatus) -> Result<Outcome, ApiError> {
        let listed = known.envelopes.clone().unwrap_or_default();
        if let Some(placed) = making::strays(addon, &listed) {
            return Ok(Outcome::Rendered(placed));
        }
        if let Err(placed) = placement::ensure(&self.world, &self.writer, addon, &listed).await? {
            return Ok(Outcome::Rendered(placed));
        }
        envelopes::prune(self, addon, &listed).await?;
        let render = identity(&listed).to_string();
        Ok(Outcome::Rendered(placement::state(
            &self.world,
            addon,
            &render,
        )))
    }

    async fn write(
        &self,
        addon: &Arc<Addon>,
        status: &AddonStatus,
    ) -> Result<Arc<Addon>, ApiError> {
        if addon.status.as_ref() == Some(status) {
            return Ok(Arc::clone(addon));
        }
        let changed = Addon {
            status: Some(status.clone()),
            ..(**addon).clone()
        };
        let live = self.writer.replace_status(&changed).await?;
        self.world.observer.addon_status(addon, status);
        self.world.addons.addons.observe(live.clone());
        Ok(Arc::new(live))
    }

    fn refused(&self) -> MutexGuard<'_, HashMap<String, (Digest, Why)>> {
        // No code that can panic runs under the lock.
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a render is the one that the status tells of.
fn is_told(known: &AddonStatus, digest: Digest) -> bool {
    let told = known.render_digest.as_deref();
    told.is_some_and(|told| digest.is(told))
}

/// Whether what is rendered is what is asked for, but for Helm's version and for what a followed range offers.
fn serves(addon: &Addon, known: &AddonStatus) -> bool {
    let (Some(chart), Some(helm)) = (&known.chart_digest, &known.helm_version) else {
        return false;
    };
    known.chosen_for.as_ref() == Some(&addon.spec.chart)
        && is_told(known, making::request(addon, chart.clone()).digest(helm))
}

/// What is asked of Helm.
struct Wish {
    request: RenderRequest,
    archive: Option<Held>,
}

/// How soon to look again at what nobody tells when it is mended: somebody else's object, which is not watched, Helm,
/// a repository, an admission policy.
fn untold(outcome: &Outcome) -> Option<Duration> {
    match outcome {
        Outcome::Refused(why)
            if matches!(
                why.reason,
                "EnvelopeConflict" | "HelmNotFound" | "HelmNotUsable"
            ) =>
        {
            Some(UNTOLD)
        }
        Outcome::Waits(why) if why.reason == choice::LOOKED_FOR => Some(UNTOLD),
        Outcome::Refused(_) | Outcome::Rendered(Placed::Refused(_) | Placed::Failed(_)) => {
            Some(LATER)
        }
        _ => None,
    }
}

/// What a render that failed comes to.
pub(super) fn failed(error: &RenderError) -> Outcome {
    let why = Why::new(error.fault.reason(), &error.message);
    if error.fault.is_terminal() {
        Outcome::Refused(why)
    } else {
        Outcome::Failed(why, None)
    }
}

fn decide(
    addon: &Addon,
    known: &AddonStatus,
    outcome: &Outcome,
) -> (AddonStatus, Option<jiff::SignedDuration>) {
    evaluate(&Inputs {
        generation: addon.metadata.generation.unwrap_or_default(),
        now: clock::now(),
        jitter: jitter(),
        known,
        outcome,
    })
}

/// How long an attempt that failed is to be left alone, unless something is asked anew.
fn waits(addon: &Addon, known: &AddonStatus, now: Timestamp) -> Option<Duration> {
    let Time(next) = known.next_attempt_time.as_ref()?;
    let same = known.observed_generation == addon.metadata.generation;
    let left = next.duration_since(now);
    let left = Duration::try_from(left).ok()?;
    // A time far ahead was written under another clock.
    (same && !left.is_zero() && left < Duration::from_mins(12)).then_some(left)
}

/// Owner reference to an Addon.
pub(super) fn owner_of(addon: &Addon) -> OwnerReference {
    OwnerReference {
        api_version: format!("{}/{}", addon::GROUP, addon::VERSION),
        kind: "Addon".to_owned(),
        name: addon.name_any(),
        uid: addon.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
