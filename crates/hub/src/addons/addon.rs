//! The actor of an Addon: chooses a version, has it rendered if that is not done, and hands the render to a
//! placement.
//!
//! In this order, so that each prefix is a valid state: the status says which render is meant and what its
//! envelopes hold; the envelopes are written; the placement is made or changed; envelopes that are not listed
//! any more go. Until the envelopes hold what the status lists, selection leaves everything as it is
//! (`select::renders`). All that is made is owned by the Addon, and goes with it; the namespace stays.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::ResourceExt;
use windlass_addons::placed::{Inputs, Outcome, Placed, Why, evaluate};
use windlass_addons::render::{RenderError, Renderer};
use windlass_api::addon::{self, Addon, AddonStatus};
use windlass_cluster::{ApiError, Discovery, ObjectKey, Writer, clock};
use windlass_status::conditions::{self, time};
use windlass_status::digest::Digest;

use super::choice::{self, Chosen};
use super::making::{self, Made};
use super::{envelopes, jitter, placement};
use crate::select::Resources;
use crate::select::rules::ApiFilter;
use crate::worker::{Next, work};
use crate::world::World;

/// Works on Addons. Clones share everything.
#[derive(Clone)]
pub struct AddonActor {
    pub(super) world: World,
    pub(super) writer: Writer,
    pub(super) resources: Resources,
    pub(super) discovery: Discovery,
    pub(super) filter: Arc<ApiFilter>,
    pub(super) renderer: Arc<Renderer>,
    /// What is known of envelopes as they are, by version; may be lost.
    pub(super) seen: envelopes::Seen,
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
        discovery: Discovery,
        filter: Arc<ApiFilter>,
        renderer: Arc<Renderer>,
    ) -> Self {
        Self {
            world,
            writer,
            resources,
            discovery,
            filter,
            renderer,
            seen: envelopes::Seen::default(),
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
            // The API server collects what it owns; the placement then takes it off the clusters.
            self.refused().remove(name);
            self.seen.forget(name);
            return Ok(Next::Event);
        };
        let mut known = addon.status.clone().unwrap_or_default();
        let now = clock::now();
        if let Some(left) = waits(&addon, &known, now) {
            return Ok(Next::After(left));
        }
        known.placement = Some(placement::name_of(&addon));
        let outcome = self.pass(&addon, &mut known).await?;
        // What the pass has written by the way is the latest.
        let addon = self
            .world
            .addons
            .addons
            .get(&ObjectKey::cluster(name))
            .unwrap_or(addon);
        let (status, again) = decide(&addon, &known, &outcome);
        self.write(&addon, &status).await?;
        Ok(again.map_or(Next::Event, |delay| Next::After(delay.unsigned_abs())))
    }

    /// Brings everything to what the Addon asks for, as far as it can be. `known` gets what was found out.
    async fn pass(&self, addon: &Arc<Addon>, known: &mut AddonStatus) -> Result<Outcome, ApiError> {
        let namespace = &addon.spec.namespace;
        if self.filter.is_reserved(namespace) {
            let message = format!(
                "Namespace {namespace} is reserved, nothing is placed in it; use another one"
            );
            return Ok(Outcome::Refused(Why::new("NamespaceReserved", message)));
        }
        let chosen = match choice::choose(&self.world.addons, addon, known) {
            Ok(chosen) => chosen,
            Err(outcome) => return Ok(outcome),
        };
        known.available_version.clone_from(&chosen.held_back);
        let helm = match self.renderer.version().await {
            Ok(version) => version.to_owned(),
            Err(error) => return Ok(failed(&error)),
        };
        let mut archive = None;
        let digest = match making::input(addon, known, &chosen, &helm) {
            Some(request) => request.digest(&helm),
            // Only the archive itself tells which one it is.
            None => match self.archive(addon, &chosen).await? {
                Ok(fetched) => {
                    let request = making::request(addon, fetched.digest.to_string());
                    archive = Some(fetched);
                    request.digest(&helm)
                }
                Err(outcome) => return Ok(outcome),
            },
        };
        let listed = known.envelopes.clone().unwrap_or_default();
        let rendered = known
            .render_digest
            .as_deref()
            .is_some_and(|known| digest.is(known));
        if !rendered || !envelopes::hold(self, addon, &listed).await? {
            let made = match self.make(addon, &chosen, archive, &helm, digest).await? {
                Ok(made) => made,
                Err(outcome) => return Ok(outcome),
            };
            // Before anything is written: what is in other namespaces is not this Addon's affair then.
            if let Some(outcome) = making::strays(addon, &envelopes::list(&made.envelopes)) {
                return Ok(outcome);
            }
            if let Some(outcome) = envelopes::conflict(self, addon, &made.envelopes).await? {
                return Ok(outcome);
            }
            self.hand_over(addon, known, &chosen, made).await?;
        }
        self.place(addon, known).await
    }

    /// Renders and packs, unless that was refused before.
    async fn make(
        &self,
        addon: &Addon,
        chosen: &Chosen,
        archive: Option<windlass_addons::archive::Archive>,
        helm: &str,
        digest: Digest,
    ) -> Result<Result<Made, Outcome>, ApiError> {
        let name = addon.name_any();
        let before = self.refused().get(&name).cloned();
        if let Some((_, why)) = before.filter(|(of, _)| *of == digest) {
            return Ok(Err(Outcome::Refused(why)));
        }
        let archive = match archive {
            Some(archive) => archive,
            None => match self.archive(addon, chosen).await? {
                Ok(archive) => archive,
                Err(outcome) => return Ok(Err(outcome)),
            },
        };
        let made = making::make(self, addon, chosen, &archive, helm, digest).await?;
        if let Err(Outcome::Refused(why)) = &made {
            self.refused().insert(name, (digest, why.clone()));
        }
        Ok(made)
    }

    /// Says what is meant, then writes it.
    async fn hand_over(
        &self,
        addon: &Arc<Addon>,
        known: &mut AddonStatus,
        chosen: &Chosen,
        made: Made,
    ) -> Result<(), ApiError> {
        known.version = Some(chosen.version.version.clone());
        known.chosen_for = Some(addon.spec.chart.clone());
        known.chart_digest = Some(made.chart_digest);
        known.render_digest = Some(made.digest.to_string());
        known.rendered_at = Some(time(clock::now()));
        known.helm_version = Some(made.helm);
        known.envelopes = Some(envelopes::list(&made.envelopes));
        known.objects = Some(made.objects);
        known.skipped_hooks = (!made.skipped_hooks.is_empty()).then_some(made.skipped_hooks);
        known.assumed_kinds = (!made.assumed.is_empty()).then_some(made.assumed);
        known.not_reproducible = (!made.is_reproducible).then_some(true);
        let writing = Outcome::Rendered(Placed::Progressing(
            "The render is being written.".to_owned(),
        ));
        let (status, _) = decide(addon, known, &writing);
        let live = self.write(addon, &status).await?;
        known.conditions = status.conditions;
        envelopes::namespaces(self, addon, &made.envelopes, made.namespace.as_ref()).await?;
        envelopes::write(self, &live, &made.envelopes, made.digest).await?;
        for envelope in known.envelopes.iter().flatten() {
            self.resources.relisted(&addon.name_any(), envelope);
        }
        Ok(())
    }

    /// The placement, and what is left over of renders before.
    async fn place(&self, addon: &Addon, known: &AddonStatus) -> Result<Outcome, ApiError> {
        let listed = known.envelopes.clone().unwrap_or_default();
        if let Some(outcome) = making::strays(addon, &listed) {
            return Ok(outcome);
        }
        if let Err(outcome) = placement::ensure(&self.world, &self.writer, addon, &listed).await? {
            return Ok(outcome);
        }
        envelopes::prune(self, addon, &listed).await?;
        let render = known.render_digest.as_deref().unwrap_or_default();
        Ok(Outcome::Rendered(placement::state(
            &self.world,
            addon,
            render,
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
fn waits(addon: &Addon, known: &AddonStatus, now: Timestamp) -> Option<std::time::Duration> {
    let Time(next) = known.next_attempt_time.as_ref()?;
    let same = known.observed_generation == addon.metadata.generation;
    let left = next.duration_since(now);
    let left = std::time::Duration::try_from(left).ok()?;
    // A time far ahead was written under another clock.
    (same && !left.is_zero() && left < std::time::Duration::from_mins(12)).then_some(left)
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

/// Whether the status of an Addon says that its render is done.
#[must_use]
pub fn is_rendered(status: &AddonStatus) -> bool {
    conditions::is_true(
        status.conditions.as_deref().unwrap_or_default(),
        windlass_addons::placed::RENDERED,
    )
}
