//! Removing what was placed: created objects are deleted, adopted ones released (design §5.19). What
//! depends on others goes first: custom resources before the controllers that hold their finalizers,
//! everything before the Namespace or CustomResourceDefinition that holds it.

use std::time::Duration;

use futures::FutureExt;
use kube::ResourceExt;
use kube::core::{ApiResource, DynamicObject};
use windlass_api::conditions::ManifestReason;
use windlass_api::names::member_namespace;
use windlass_api::work::{AppliedResourceMeta, AppliedWork, AppliedWorkStatus, Origin};
use windlass_cluster::discovery::KnownKind;
use windlass_cluster::{ApiError, ObjectKey, Propagation, clock};
use windlass_status::digest::Digest;

use crate::install::is_own;
use crate::inventory::{Inventory, id_of};
use crate::manifest::{ManifestId, Problem};
use crate::member::{Member, belongs_to_another, gvk_of};
use crate::object::{is_going, is_ours, release};
use crate::parent::whose;
use crate::watches::is_container;
use crate::waves::{LAST, wave};

/// How long a wait lasts before the next look, should no change tell of it.
const WAIT: Duration = Duration::from_secs(2);

/// Why things are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalMode {
    /// The placement is gone or has left the cluster: what we made is deleted, what we adopted released.
    Placement,
    /// The placement is gone, and its deleteStrategy says Abandon: everything stays, unowned.
    Abandon,
    /// The cluster leaves the fleet: everything stays, unowned.
    Leave,
    /// The cluster leaves the fleet, and what was placed goes, as with [`Self::Placement`].
    Purge,
}

/// How a removal stands.
#[derive(Debug)]
pub enum Removal {
    /// Nothing of ours is left.
    Done,
    /// Something still has to happen.
    Waiting {
        /// What is waited for, sorted.
        for_what: Vec<String>,
        /// When to look again though nothing changes.
        retry: Option<Duration>,
    },
    /// The cluster could not be asked.
    Failed(ApiError),
}

/// How far the removal of some objects got.
#[derive(Default)]
pub(crate) struct Removed {
    /// Objects that are gone, or not ours any more.
    pub gone: Vec<ManifestId>,
    /// What is waited for, sorted.
    pub waits: Vec<String>,
    /// When to look again though nothing changes.
    pub retry: Option<Duration>,
}

/// How one object stands.
enum Stand {
    Gone,
    Waits(String, Duration),
}

impl Member {
    /// Takes the next step of removing a Work; every step is safe to repeat.
    pub async fn remove(&self, work: &str, placement: &ObjectKey, mode: RemovalMode) -> Removal {
        let turn = self.turn(work);
        let held = turn.lock().await;
        let result = self.remove_all(work, placement, mode).await;
        if result.is_ok() {
            self.note_contact();
        }
        drop(held);
        if matches!(result, Ok(Removal::Done)) {
            self.watches.mirror(work, false);
            self.watches.claim(work, &[]).await;
            self.memory.end(work);
            self.end_turns(work);
        }
        result.unwrap_or_else(Removal::Failed)
    }

    async fn remove_all(
        &self,
        name: &str,
        placement: &ObjectKey,
        mode: RemovalMode,
    ) -> Result<Removal, ApiError> {
        // Removals are rare, and what is removed has to be certain: the inventory is read anew.
        let Some(work) = self.read_work(name).await? else {
            return Ok(Removal::Done);
        };
        if whose(&work).is_some_and(|owner| owner != *placement) {
            return Ok(Removal::Done);
        }
        let keep = matches!(mode, RemovalMode::Abandon | RemovalMode::Leave);
        if let Some(message) = belongs_to_another(&work, &member_namespace(&self.cluster)) {
            // Leaving takes nothing away, and nothing there is this cluster's to release.
            return if keep {
                Ok(Removal::Done)
            } else {
                Err(ApiError::Rejected(message))
            };
        }
        let uid = work.uid().unwrap_or_default();
        let inventory = Inventory::of(
            work.status
                .as_ref()
                .and_then(|status| status.applied_resources.as_deref()),
        );
        if !keep {
            self.claim_kinds_of(name, &inventory).await?;
        }
        let about = Digest::of_bytes(b"removal");
        let removed = self
            .remove_entries(inventory.entries(), &work, keep, about)
            .await?;
        if !removed.waits.is_empty() {
            if !removed.gone.is_empty() {
                // The inventory says what is left, and the next step has less to ask.
                let mut changed = work;
                let digest = changed
                    .status
                    .as_ref()
                    .and_then(|status| status.digest.clone());
                let applied_resources = inventory.without(&removed.gone).into_status();
                changed.status = Some(AppliedWorkStatus {
                    applied_resources,
                    digest,
                });
                self.put_work_status(&changed).await?;
            }
            return Ok(Removal::Waiting {
                for_what: removed.waits,
                retry: removed.retry,
            });
        }
        // Should anything still point at the AppliedWork, it stays when it is to, and goes when it is to.
        let propagation = if keep {
            Propagation::Orphan
        } else {
            Propagation::Background
        };
        let kind = ApiResource::erase::<AppliedWork>(&());
        self.writer
            .delete_dyn(&kind, None, name, Some(&uid), propagation)
            .await?;
        Ok(Removal::Done)
    }

    /// Watches what is about to go, so that nobody has to ask whether it is gone.
    async fn claim_kinds_of(&self, work: &str, inventory: &Inventory) -> Result<(), ApiError> {
        let mut kinds: Vec<KnownKind> = Vec::new();
        for entry in inventory.entries() {
            let id = id_of(entry);
            let is_there = kinds
                .iter()
                .any(|kind| kind.resource.kind == id.kind && kind.resource.group == id.group);
            if !is_there && let Some(kind) = self.discovery.kind(&gvk_of(&id)).await? {
                kinds.push(kind);
            }
        }
        self.watches
            .claim(work, &kinds.iter().collect::<Vec<_>>())
            .await;
        Ok(())
    }

    /// Removes or releases the objects of some entries. `about` is what failures are filed under.
    ///
    /// # Errors
    /// When the cluster can't be asked.
    pub(crate) async fn remove_entries(
        &self,
        entries: &[AppliedResourceMeta],
        work: &AppliedWork,
        keep: bool,
        about: Digest,
    ) -> Result<Removed, ApiError> {
        let mut removed = Removed::default();
        let mut waves: Vec<u16> = entries.iter().map(|entry| wave(&id_of(entry))).collect();
        waves.sort_unstable();
        waves.dedup();
        for number in waves.into_iter().rev() {
            // What holds others waits until they are gone.
            let may_go = |id: &ManifestId| keep || removed.waits.is_empty() || !is_container(id);
            let batch: Vec<&AppliedResourceMeta> = entries
                .iter()
                .filter(|entry| wave(&id_of(entry)) == number && may_go(&id_of(entry)))
                .collect();
            let requests = batch
                .iter()
                .map(|entry| self.remove_entry(entry, work, keep, about).boxed());
            let answers = self.all(requests.collect()).await;
            for (entry, stand) in batch.into_iter().zip(answers) {
                self.note_removed(&mut removed, work, id_of(entry), stand, about)?;
            }
            // Somebody has to be there to let go of custom resources.
            if number == LAST && !removed.waits.is_empty() && !keep {
                break;
            }
        }
        removed.waits.sort();
        Ok(removed)
    }

    fn note_removed(
        &self,
        removed: &mut Removed,
        work: &AppliedWork,
        id: ManifestId,
        stand: Result<Stand, ApiError>,
        about: Digest,
    ) -> Result<(), ApiError> {
        match stand {
            Ok(Stand::Gone) => {
                self.memory.erase(&id);
                removed.gone.push(id);
            }
            Ok(Stand::Waits(what, wait)) => {
                removed.waits.push(what);
                removed.retry = removed.retry.into_iter().chain([wait]).min();
            }
            Err(error) if error.is_outage() => return Err(error),
            Err(error) => {
                let problem = Problem {
                    reason: ManifestReason::Failed,
                    message: format!("{id}, which can't be removed: {}", error.message()),
                };
                let wait = self.memory.failed(
                    name_of(work),
                    &id,
                    about,
                    &problem,
                    None,
                    clock::monotonic(),
                );
                removed.waits.push(problem.message);
                removed.retry = removed.retry.into_iter().chain([wait]).min();
            }
        }
        Ok(())
    }

    async fn remove_entry(
        &self,
        entry: &AppliedResourceMeta,
        work: &AppliedWork,
        keep: bool,
        about: Digest,
    ) -> Result<Stand, ApiError> {
        let id = id_of(entry);
        let work_uid = work.metadata.uid.as_deref().unwrap_or_default();
        let held = self
            .memory
            .held(name_of(work), &id, about, clock::monotonic());
        if let Some((problem, left)) = held {
            return Ok(Stand::Waits(problem.message, left));
        }
        let Some(kind) = self.kind_of(entry, &id).await? else {
            return Ok(Stand::Gone);
        };
        let Some(live) = self
            .writer
            .get_dyn(&kind, id.namespace.as_deref(), &id.name)
            .await?
        else {
            return Ok(Stand::Gone);
        };
        let is_work = |name: &str, uid: &str| self.is_work(name, uid);
        if !is_ours(&live, work_uid, entry.uid.as_deref(), is_work) {
            return Ok(Stand::Gone);
        }
        if is_own(&id) {
            // Earlier versions placed it. What we made of it stays, and is nobody's: owned, it would go too.
            return self.release(&kind, live, work_uid).await;
        }
        // Whoever else owns it keeps it, also when a step before has released it already.
        let owners = live.metadata.owner_references.iter().flatten();
        let shared = owners.into_iter().any(|owner| owner.uid != work_uid);
        if keep || shared || entry.origin == Some(Origin::Adopted) {
            return self.release(&kind, live, work_uid).await;
        }
        if is_going(&live) {
            return Ok(Stand::Waits(
                format!("{id} to be gone{}", finalizers(&live)),
                WAIT,
            ));
        }
        if let Some(held) = self.held_by_contents(&id, &live, work_uid).await? {
            let problem = Problem {
                reason: ManifestReason::Failed,
                message: held,
            };
            let wait = self.memory.failed(
                name_of(work),
                &id,
                about,
                &problem,
                None,
                clock::monotonic(),
            );
            return Ok(Stand::Waits(problem.message, wait));
        }
        self.delete(&kind, &id, &live).await
    }

    async fn delete(
        &self,
        kind: &ApiResource,
        id: &ManifestId,
        live: &DynamicObject,
    ) -> Result<Stand, ApiError> {
        let (namespace, uid) = (id.namespace.as_deref(), live.metadata.uid.as_deref());
        self.writer
            .delete_dyn(kind, namespace, &id.name, uid, Propagation::Background)
            .await?;
        // Without anything to wait for, an object is gone with the answer.
        let lingers = !live.finalizers().is_empty() || is_container(id) || id.kind == "Pod";
        if lingers
            && self
                .writer
                .get_dyn(kind, namespace, &id.name)
                .await?
                .is_some()
        {
            return Ok(Stand::Waits(
                format!("{id} to be gone{}", finalizers(live)),
                WAIT,
            ));
        }
        Ok(Stand::Gone)
    }

    async fn release(
        &self,
        kind: &ApiResource,
        mut live: DynamicObject,
        work_uid: &str,
    ) -> Result<Stand, ApiError> {
        let before = live.clone();
        release(&mut live, work_uid);
        if live == before {
            // It has been, before somebody came to note that.
            return Ok(Stand::Gone);
        }
        match self.writer.replace_dyn(kind, &live).await {
            Ok(_) | Err(ApiError::NotFound(_)) => Ok(Stand::Gone),
            // Somebody was faster; the next step reads again.
            Err(ApiError::Conflict(_)) => Ok(Stand::Waits(
                format!("{} {} to be released", kind.kind, live.name_any()),
                Duration::from_millis(200),
            )),
            Err(error) => Err(error),
        }
    }

    /// How to address an entry's kind. What the server once said is enough, and safer than to ask once
    /// more: a kind whose server is down for a while is not gone.
    pub(crate) async fn kind_of(
        &self,
        entry: &AppliedResourceMeta,
        id: &ManifestId,
    ) -> Result<Option<ApiResource>, ApiError> {
        match entry
            .resource
            .as_deref()
            .filter(|plural| !plural.is_empty())
        {
            Some(plural) => Ok(Some(ApiResource::from_gvk_with_plural(&gvk_of(id), plural))),
            None => Ok(self
                .discovery
                .kind(&gvk_of(id))
                .await?
                .map(|known| known.resource)),
        }
    }
}

fn name_of(work: &AppliedWork) -> &str {
    work.metadata.name.as_deref().unwrap_or_default()
}

fn finalizers(live: &DynamicObject) -> String {
    let list = live.finalizers();
    if list.is_empty() {
        String::new()
    } else {
        format!(" (finalizers: {})", list.join(", "))
    }
}
