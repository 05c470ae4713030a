//! Removing what was placed: created objects are deleted, adopted ones released (design §5.19).

use std::time::Duration;

use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::{Api, ResourceExt, api::ListParams};
use windlass_api::labels;
use windlass_api::work::{AppliedResourceMeta, AppliedWork, Origin};
use windlass_cluster::{ApiError, Propagation};

use crate::inventory::id_of;
use crate::manifest::ManifestId;
use crate::member::{Member, gvk_of};
use crate::object::{is_owned_by, release};
use crate::waves::wave;

/// How long a wait lasts before the next look; deletions wake it earlier.
const WAIT: Duration = Duration::from_secs(1);
/// How many objects of one kind are looked at before a Namespace counts as in use.
const SAMPLE: u32 = 50;

/// Why things are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalMode {
    /// The placement is gone or has left the cluster.
    Placement,
    /// The cluster leaves the fleet: everything stays, unowned.
    Leave,
    /// The cluster leaves the fleet, and what was placed goes.
    Purge,
}

/// How a removal stands.
#[derive(Debug)]
pub enum Removal {
    /// Nothing of ours is left.
    Done,
    /// Something still has to happen.
    Waiting {
        /// What is waited for.
        for_what: Vec<String>,
        /// When to look again though nothing changes.
        retry: Option<Duration>,
    },
    /// The cluster could not be asked.
    Failed(ApiError),
}

impl Member {
    /// Takes the next step of removing a Work; every step is safe to repeat.
    pub async fn remove(&self, work: &str, mode: RemovalMode) -> Removal {
        let state = self.work_state(work);
        let mut state = state.lock().await;
        // Removals are rare: the inventory is read anew each time.
        state.applied = None;
        let result = self.remove_all(work, mode).await;
        if matches!(result, Ok(Removal::Done)) {
            drop(state);
            self.works.remove(work);
        }
        result.unwrap_or_else(Removal::Failed)
    }

    async fn remove_all(&self, name: &str, mode: RemovalMode) -> Result<Removal, ApiError> {
        let api: Api<AppliedWork> = Api::all(self.writer.client().clone());
        let work = match api.get_opt(name).await {
            Ok(Some(work)) => work,
            Ok(None) => return Ok(Removal::Done),
            Err(error) => return Err(ApiError::from_kube(error)),
        };
        let uid = work.uid().unwrap_or_default();
        let mut entries = work
            .status
            .clone()
            .unwrap_or_default()
            .applied_resources
            .unwrap_or_default();
        // What others need goes last.
        entries.sort_by_key(|entry| std::cmp::Reverse(wave(&id_of(entry))));
        let (_, waits) = self
            .remove_entries(&entries, &uid, mode == RemovalMode::Leave)
            .await?;
        if !waits.is_empty() {
            return Ok(Removal::Waiting {
                for_what: waits,
                retry: Some(WAIT),
            });
        }
        for entry in &entries {
            self.disown(&id_of(entry));
        }
        // Released objects must not go with their former owner.
        let kind = ApiResource::erase::<AppliedWork>(&());
        self.writer
            .delete_dyn(&kind, None, name, Some(&uid), Propagation::Orphan)
            .await?;
        match api.get_opt(name).await.map_err(ApiError::from_kube)? {
            None => Ok(Removal::Done),
            Some(_) => {
                let for_what = vec![format!(
                    "AppliedWork {name} to be gone from cluster {}",
                    self.cluster
                )];
                Ok(Removal::Waiting {
                    for_what,
                    retry: Some(WAIT),
                })
            }
        }
    }

    /// Removes or releases the objects of some entries. Tells which are gone, and what is waited for.
    pub(crate) async fn remove_entries(
        &self,
        entries: &[AppliedResourceMeta],
        work_uid: &str,
        keep: bool,
    ) -> Result<(Vec<ManifestId>, Vec<String>), ApiError> {
        let (mut gone, mut waits) = (Vec::new(), Vec::new());
        for entry in entries {
            let id = id_of(entry);
            // A Namespace or CRD waits for what stands in it and goes first.
            let container = matches!(id.kind.as_str(), "Namespace" | "CustomResourceDefinition");
            if container && !waits.is_empty() && !keep {
                continue;
            }
            match self.remove_entry(entry, &id, work_uid, keep).await? {
                None => {
                    self.disown(&id);
                    gone.push(id);
                }
                Some(what) => waits.push(what),
            }
        }
        Ok((gone, waits))
    }

    /// Removes or releases one object; tells what is waited for.
    async fn remove_entry(
        &self,
        entry: &AppliedResourceMeta,
        id: &ManifestId,
        work_uid: &str,
        keep: bool,
    ) -> Result<Option<String>, ApiError> {
        let Some(kind) = self
            .discovery
            .kind(&gvk_of(id))
            .await?
            .map(|known| known.resource)
        else {
            // The kind is gone, and its objects with it.
            return Ok(None);
        };
        let namespace = id.namespace.as_deref();
        let Some(mut live) = self.writer.get_dyn(&kind, namespace, &id.name).await? else {
            return Ok(None);
        };
        if !is_owned_by(&live, work_uid) {
            return Ok(None);
        }
        let shared = live
            .metadata
            .owner_references
            .as_ref()
            .is_some_and(|owners| owners.len() > 1);
        if keep || shared || entry.origin == Some(Origin::Adopted) {
            release(&mut live, work_uid);
            self.writer.replace_dyn(&kind, &live).await?;
            return Ok(None);
        }
        if live.metadata.deletion_timestamp.is_some() {
            return Ok(Some(format!("{id} to be gone{}", finalizers(&live))));
        }
        if let Some(what) = self.holds(id, &live, work_uid).await? {
            return Ok(Some(what));
        }
        self.writer
            .delete_dyn(
                &kind,
                namespace,
                &id.name,
                live.metadata.uid.as_deref(),
                Propagation::Background,
            )
            .await?;
        match self.writer.get_dyn(&kind, namespace, &id.name).await? {
            None => Ok(None),
            Some(_) => Ok(Some(format!("{id} to be gone"))),
        }
    }

    /// What a Namespace or CRD holds that is not ours, unless it may go with it.
    async fn holds(
        &self,
        id: &ManifestId,
        live: &DynamicObject,
        work_uid: &str,
    ) -> Result<Option<String>, ApiError> {
        let cascade = live
            .annotations()
            .get(labels::ALLOW_CASCADE)
            .is_some_and(|value| value == "true");
        let found = match (id.group.as_str(), id.kind.as_str()) {
            _ if cascade => None,
            ("", "Namespace") => self.foreign_in_namespace(&id.name, work_uid).await?,
            ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                self.foreign_of_crd(live, work_uid).await?
            }
            _ => None,
        };
        Ok(found.map(|what| {
            format!("{id}, which holds {what} that was not placed by us; remove that, or set the annotation {} on {id}", labels::ALLOW_CASCADE)
        }))
    }

    async fn foreign_in_namespace(
        &self,
        namespace: &str,
        work_uid: &str,
    ) -> Result<Option<String>, ApiError> {
        for kind in self.discovery.preferred().await? {
            let made_by_the_cluster = matches!(
                (kind.resource.group.as_str(), kind.resource.kind.as_str()),
                ("", "Event" | "Endpoints")
                    | (
                        "events.k8s.io" | "coordination.k8s.io" | "metrics.k8s.io",
                        _
                    )
                    | ("discovery.k8s.io", "EndpointSlice")
            );
            if !kind.namespaced || !kind.watchable || made_by_the_cluster {
                continue;
            }
            let api: Api<PartialObjectMeta<DynamicObject>> =
                Api::namespaced_with(self.writer.client().clone(), namespace, &kind.resource);
            if let Some(what) = self.foreign(&api, &kind.resource, work_uid).await? {
                return Ok(Some(what));
            }
        }
        Ok(None)
    }

    async fn foreign_of_crd(
        &self,
        crd: &DynamicObject,
        work_uid: &str,
    ) -> Result<Option<String>, ApiError> {
        let text = |pointer: &str| {
            crd.data
                .pointer(pointer)
                .and_then(|v| v.as_str())
                .unwrap_or_default()
                .to_owned()
        };
        let (group, kind) = (text("/spec/group"), text("/spec/names/kind"));
        let known = self.discovery.preferred().await?;
        let Some(known) = known
            .iter()
            .find(|k| k.resource.group == group && k.resource.kind == kind)
        else {
            return Ok(None);
        };
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::all_with(self.writer.client().clone(), &known.resource);
        self.foreign(&api, &known.resource, work_uid).await
    }

    async fn foreign(
        &self,
        api: &Api<PartialObjectMeta<DynamicObject>>,
        kind: &ApiResource,
        work_uid: &str,
    ) -> Result<Option<String>, ApiError> {
        let list = match api
            .list_metadata(&ListParams::default().limit(SAMPLE))
            .await
            .map_err(ApiError::from_kube)
        {
            Ok(list) => list,
            // A kind that can't be listed for ever (no rights, its server is gone) holds nothing up.
            Err(ApiError::NotFound(_) | ApiError::Rejected(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let foreign = list.items.into_iter().find(|object| {
            let owners = object
                .metadata
                .owner_references
                .as_deref()
                .unwrap_or_default();
            let made_by_the_cluster = matches!(
                (kind.kind.as_str(), object.name_any().as_str()),
                ("ConfigMap", "kube-root-ca.crt") | ("ServiceAccount", "default")
            );
            let of_another_placement = owners
                .iter()
                .any(|owner| owner.kind == "AppliedWork" && owner.uid != work_uid);
            of_another_placement || (owners.is_empty() && !made_by_the_cluster)
        });
        Ok(foreign.map(|object| format!("{} {}", kind.kind, object.name_any())))
    }
}

fn finalizers(live: &DynamicObject) -> String {
    let list = live.finalizers();
    if list.is_empty() {
        String::new()
    } else {
        format!(" (finalizers {})", list.join(", "))
    }
}
