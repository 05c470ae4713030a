//! The actor of an override: keeps its snapshots. The only writer of both.

use std::sync::Arc;

use kube::{Resource, ResourceExt};
use windlass_api::labels;
use windlass_api::overrides::{ClusterResourceOverride, ResourceOverride};
use windlass_cluster::{ApiError, ObjectKey, Writer};

use super::BY_PARENT;
use super::kind::Kind;
use super::next::{self, owner_reference};
use super::plan::{Facts, Fate, plan};
use crate::worker::{Next, work};
use crate::world::{BY_OVERRIDE, World};

/// Works on overrides. Clones share everything.
#[derive(Clone)]
pub struct OverrideActor {
    world: World,
    writer: Writer,
}

impl OverrideActor {
    /// Wires an actor up; nothing runs yet.
    #[must_use]
    pub const fn new(world: World, writer: Writer) -> Self {
        Self { world, writer }
    }

    /// Works until the queue is closed.
    pub async fn work(self) {
        let queue = self.world.queues.overrides.clone();
        work(queue, "override", |key| {
            let this = self.clone();
            async move {
                if key.namespace.is_empty() {
                    this.process::<ClusterResourceOverride>(&key).await
                } else {
                    this.process::<ResourceOverride>(&key).await
                }
            }
        })
        .await;
    }

    async fn process<K: Kind>(&self, key: &ObjectKey) -> Result<Next, ApiError> {
        let overrides = &self.world.overrides;
        let of = K::caches(overrides).0.get(key);
        let looked = self.look::<K>(key).await;
        match (&looked, &of) {
            (Err(error), Some(of)) => {
                if overrides.note_trouble(&**of, error) {
                    overrides.tell_stuck(&**of, &self.world.bindings);
                }
            }
            _ => overrides.no_trouble(key),
        }
        looked
    }

    async fn look<K: Kind>(&self, key: &ObjectKey) -> Result<Next, ApiError> {
        let (overrides, _) = K::caches(&self.world.overrides);
        let found = overrides.get(key);
        let Some(found) = found.filter(|found| found.meta().deletion_timestamp.is_none()) else {
            let going = overrides.get(key);
            self.snapshots::<K>(key, None).await?;
            if let Some(going) = going {
                self.let_go(&*going).await?;
            }
            return Ok(Next::Event);
        };
        let found = self.ensure_finalizer(found).await?;
        self.snapshots::<K>(key, Some(&found)).await?;
        Ok(Next::Event)
    }

    /// Brings the snapshots into the state that [`plan`] says.
    async fn snapshots<K: Kind>(&self, key: &ObjectKey, of: Option<&K>) -> Result<(), ApiError> {
        let (_, cache) = K::caches(&self.world.overrides);
        let existing = cache.by_index(BY_PARENT, &key.to_string());
        let fate = if of.is_some() {
            Fate::Stays
        } else {
            Fate::Goes
        };
        let facts: Vec<Facts> = existing
            .iter()
            .map(|snapshot| self.facts(of, &**snapshot))
            .collect();
        let plan = plan(fate, &facts);
        if let (Some(index), Some(of)) = (plan.create, of) {
            let new = next::snapshot(of, next::free(of, cache, index));
            cache.observe(self.writer.create(&new).await?);
        }
        for (at, latest, owned) in &plan.mark {
            let mut changed = (*existing[*at]).clone();
            changed
                .labels_mut()
                .insert(labels::IS_LATEST_SNAPSHOT.to_owned(), latest.to_string());
            changed.meta_mut().owner_references =
                of.filter(|_| *owned).map(|of| vec![owner_reference(of)]);
            cache.observe(self.writer.replace(&changed).await?);
        }
        for at in &plan.expired {
            self.writer.delete(&*existing[*at]).await?;
            cache.observe_deleted(&existing[*at]);
        }
        Ok(())
    }

    fn facts<K: Kind>(&self, of: Option<&K>, snapshot: &K::Snapshot) -> Facts {
        let key = ObjectKey::of(snapshot);
        let bindings = self.world.bindings.by_index(BY_OVERRIDE, &key.to_string());
        let in_use = !bindings.is_empty() || self.world.runs.name_override(&key);
        next::facts(of, snapshot, in_use)
    }

    async fn ensure_finalizer<K: Kind>(&self, found: Arc<K>) -> Result<Arc<K>, ApiError> {
        let ours = |finalizer: &String| finalizer == labels::OVERRIDE_FINALIZER;
        if found.finalizers().iter().any(ours) {
            return Ok(found);
        }
        let mut changed = (*found).clone();
        changed
            .finalizers_mut()
            .push(labels::OVERRIDE_FINALIZER.to_owned());
        let live = self.writer.replace(&changed).await?;
        K::caches(&self.world.overrides).0.observe(live.clone());
        Ok(Arc::new(live))
    }

    async fn let_go<K: Kind>(&self, going: &K) -> Result<(), ApiError> {
        let ours = |finalizer: &String| finalizer == labels::OVERRIDE_FINALIZER;
        if !going.finalizers().iter().any(ours) {
            return Ok(());
        }
        let mut changed = going.clone();
        changed
            .finalizers_mut()
            .retain(|finalizer| !ours(finalizer));
        match self.writer.replace(&changed).await {
            Ok(live) => {
                if live.finalizers().is_empty() {
                    K::caches(&self.world.overrides).0.observe_deleted(&live);
                }
                Ok(())
            }
            Err(ApiError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
