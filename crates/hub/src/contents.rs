//! What resource snapshots hold, fetched when a binding needs it and shared while somebody does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use kube::{Client, ResourceExt};
use serde_json::Value;
use windlass_api::placement::ResourceIdentifier;
use windlass_api::scoped::Snapshot;
use windlass_cluster::{ApiError, ObjectKey};
use windlass_member::manifest::{Manifest, ManifestId};

use crate::placement::packing::Places;
use crate::placement::snapshots::{Group, SnapshotMeta};
use crate::render;
use crate::scoped::api_in;
use crate::select::order;
use crate::select::rules::ApiFilter;
use crate::world::{World, placement_of};

/// A complete snapshot group with its manifests.
#[derive(Debug)]
pub struct Content {
    /// The placement that it belongs to.
    pub placement: ObjectKey,
    /// Name of the master.
    pub name: String,
    /// Index of the group.
    pub index: u64,
    /// Hash of the content.
    pub hash: String,
    /// Every manifest, in order, envelopes opened. One that can't be read stands there as its error.
    pub manifests: Arc<[Arc<Manifest>]>,
    /// The objects that were selected, envelopes as themselves.
    pub selected: Vec<ResourceIdentifier>,
    /// What is wrong with envelopes; then nothing is placed.
    pub problems: Vec<String>,
}

impl Content {
    /// The objects that the snapshot holds.
    #[must_use]
    pub fn identifiers(&self) -> Vec<ResourceIdentifier> {
        self.selected.clone()
    }
}

fn id_of(object: &ResourceIdentifier) -> ManifestId {
    ManifestId {
        group: object.group.clone().unwrap_or_default(),
        version: object.version.clone(),
        kind: object.kind.clone(),
        namespace: object.namespace.clone(),
        name: object.name.clone(),
    }
}

/// Names a manifest's object the way a status does.
#[must_use]
pub fn identifier(manifest: &Manifest) -> ResourceIdentifier {
    let id = &manifest.id;
    ResourceIdentifier {
        group: Some(id.group.clone()).filter(|group| !group.is_empty()),
        version: id.version.clone(),
        kind: id.kind.clone(),
        name: id.name.clone(),
        namespace: id
            .namespace
            .clone()
            .filter(|namespace| !namespace.is_empty()),
        envelope: None,
    }
}

/// Fetches and shares contents. Clones share what was fetched.
#[derive(Clone)]
pub struct Contents {
    world: World,
    client: Client,
    /// What may not be in envelopes.
    filter: Arc<ApiFilter>,
    /// Contents by the UID of their master; alive while somebody uses them.
    shared: Arc<Mutex<HashMap<String, Weak<Content>>>>,
    /// The one used last per placement is kept, for it is the one that is asked for next.
    recent: Arc<Mutex<HashMap<ObjectKey, Arc<Content>>>>,
    /// Who fetches what, by UID: a content is asked for by all clusters of a placement at once.
    flights: Arc<Mutex<HashMap<String, Flight>>>,
}

/// Held while a content is fetched.
type Flight = Arc<tokio::sync::Mutex<()>>;

impl Contents {
    /// Nothing is fetched yet.
    #[must_use]
    pub fn new(world: World, client: Client, filter: Arc<ApiFilter>) -> Self {
        Self {
            world,
            client,
            filter,
            shared: Arc::default(),
            recent: Arc::default(),
            flights: Arc::default(),
        }
    }

    /// The content of the group with that master; none when there is no complete group of that name.
    ///
    /// # Errors
    /// When the hub's API server can't be asked.
    pub async fn get(&self, master: &ObjectKey) -> Result<Option<Arc<Content>>, ApiError> {
        let Some(meta) = self.world.snapshots.get(master) else {
            return Ok(None);
        };
        let uid = meta.uid().unwrap_or_default();
        if let Some(content) = self.shared(&uid) {
            return Ok(Some(content));
        }
        let flight = Arc::clone(lock(&self.flights).entry(uid.clone()).or_default());
        let landed = flight.lock().await;
        let content = match self.shared(&uid) {
            Some(content) => Ok(Some(content)),
            None => self.load(master, &meta, &uid).await,
        };
        lock(&self.flights).remove(&uid);
        drop(landed);
        content
    }

    fn shared(&self, uid: &str) -> Option<Arc<Content>> {
        lock(&self.shared).get(uid).and_then(Weak::upgrade)
    }

    async fn load(
        &self,
        master: &ObjectKey,
        meta: &SnapshotMeta,
        uid: &str,
    ) -> Result<Option<Arc<Content>>, ApiError> {
        let Some(placement) = placement_of(meta) else {
            return Ok(None);
        };
        let groups = self.world.groups_of(&placement);
        let Some((index, group)) = groups
            .by_name(&master.name)
            .filter(|(_, group)| group.is_complete())
        else {
            return Ok(None);
        };
        let mut objects = Vec::new();
        let mut part_of = Vec::new();
        for (number, part) in group.objects().enumerate() {
            let Some(part) = self.fetch(part).await? else {
                return Ok(None);
            };
            part_of.extend(part.spec.selected_resources.iter().map(|_| number));
            objects.extend(part.spec.selected_resources.into_iter().map(|raw| raw.0));
        }
        let mut opened = render::open(objects, &part_of, &self.filter);
        // Parts are not in the selection's order.
        opened
            .selected
            .sort_by_cached_key(|object| order::key(&id_of(object)));
        let content = Arc::new(Content {
            placement: placement.clone(),
            name: master.name.clone(),
            index,
            hash: group.hash().unwrap_or_default().to_owned(),
            manifests: opened.manifests,
            selected: opened.selected,
            problems: opened.problems,
        });
        self.keep(&placement, uid, &content);
        Ok(Some(content))
    }

    /// Which object is in which part of a group. What of it is gone meanwhile has no place.
    ///
    /// # Errors
    /// When the hub's API server can't be asked.
    pub async fn places(&self, group: &Group) -> Result<Places, ApiError> {
        let mut places = Places::new();
        for (number, part) in group.objects().enumerate() {
            let part = self.fetch(part).await?;
            let objects = part.map(|part| part.spec.selected_resources);
            for raw in objects.unwrap_or_default() {
                places.insert(Manifest::of_snapshot(raw.0).id.any_version(), number);
            }
        }
        Ok(places)
    }

    /// The objects of a group as they were selected, envelopes as themselves.
    ///
    /// # Errors
    /// When the hub's API server can't be asked.
    pub async fn objects(&self, group: &Group) -> Result<Vec<Value>, ApiError> {
        let mut objects = Vec::new();
        for part in group.objects() {
            let part = self.fetch(part).await?;
            let raw = part.map(|part| part.spec.selected_resources);
            objects.extend(raw.unwrap_or_default().into_iter().map(|raw| raw.0));
        }
        Ok(objects)
    }

    /// Forgets a placement that is gone.
    pub fn forget(&self, placement: &ObjectKey) {
        lock(&self.recent).remove(placement);
    }

    fn keep(&self, placement: &ObjectKey, uid: &str, content: &Arc<Content>) {
        let mut shared = lock(&self.shared);
        shared.retain(|_, weak| weak.strong_count() > 0);
        shared.insert(uid.to_owned(), Arc::downgrade(content));
        drop(shared);
        lock(&self.recent).insert(placement.clone(), Arc::clone(content));
    }

    async fn fetch(&self, meta: &SnapshotMeta) -> Result<Option<Snapshot>, ApiError> {
        let namespace = meta.metadata.namespace.as_deref().unwrap_or_default();
        api_in(self.client.clone(), namespace)
            .get_opt(&meta.name_any())
            .await
            .map_err(ApiError::from_kube)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
