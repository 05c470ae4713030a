//! Moves objects between AppliedWorks of one placement: the hub keeps everything of a placement under one of
//! them, an agent has one per Work. Nothing else about the objects changes, and none is deleted.
//!
//! The order, so that a crash at any point leaves an object that somebody lists and owns: it is listed by the
//! new AppliedWork, its owner reference is moved, it is not listed by the old one any more; an AppliedWork
//! that lists nothing goes.

use std::collections::HashSet;

use futures::FutureExt;
use kube::ResourceExt;
use kube::core::{ApiResource, DynamicObject};
use serde_json::json;
use windlass_api::work::{AppliedResourceMeta, AppliedWork, AppliedWorkStatus};
use windlass_cluster::{ApiError, Propagation};

use crate::inventory::id_of;
use crate::manifest::ManifestId;
use crate::member::{Member, belongs_to_another};
use crate::object::owner_reference;
use crate::parent::Parent;

/// What one AppliedWork is to have.
#[derive(Clone, Debug)]
pub struct Share {
    /// Name of the AppliedWork.
    pub work: String,
    /// Its objects.
    pub objects: Vec<ManifestId>,
}

impl Member {
    /// Gives each share of what one AppliedWork has to another one; what is in no share stays.
    ///
    /// # Errors
    /// See [`ApiError`]. Tried again, it goes on where it stood.
    pub async fn split(
        &self,
        parent: &Parent,
        from: &str,
        namespace: &str,
        shares: &[Share],
    ) -> Result<(), ApiError> {
        let Some(mut source) = self.own_work(from, namespace).await? else {
            return Ok(());
        };
        for share in shares.iter().filter(|share| share.work != from) {
            let ids: HashSet<ManifestId> =
                share.objects.iter().map(ManifestId::any_version).collect();
            let entries = entries_of(&source, |id| ids.contains(&id.any_version()));
            if !entries.is_empty() {
                let target = self.made_work(parent, &share.work, namespace).await?;
                source = self.shift(source, target, entries).await?;
            }
        }
        Ok(())
    }

    /// Gives everything that some AppliedWorks have to another one; they go.
    ///
    /// # Errors
    /// See [`ApiError`]. Tried again, it goes on where it stood.
    pub async fn absorb(
        &self,
        parent: &Parent,
        into: &str,
        namespace: &str,
        others: &[String],
    ) -> Result<(), ApiError> {
        for name in others.iter().filter(|name| *name != into) {
            let Some(source) = self.own_work(name, namespace).await? else {
                continue;
            };
            let entries = entries_of(&source, |_| true);
            let target = self.made_work(parent, into, namespace).await?;
            let source = self.shift(source, target, entries).await?;
            // Should anything still point at it, it stays.
            let kind = ApiResource::erase::<AppliedWork>(&());
            let uid = source.uid();
            self.writer
                .delete_dyn(&kind, None, name, uid.as_deref(), Propagation::Orphan)
                .await?;
        }
        Ok(())
    }

    /// The AppliedWork of that name as it is on the server, if there is one and it is of this cluster.
    async fn own_work(&self, name: &str, namespace: &str) -> Result<Option<AppliedWork>, ApiError> {
        let work = self.read_work(name).await?;
        match work
            .as_ref()
            .and_then(|work| belongs_to_another(work, namespace))
        {
            Some(message) => Err(ApiError::Rejected(message)),
            None => Ok(work),
        }
    }

    /// The AppliedWork of that name, which is now the placement's whosever it was.
    async fn made_work(
        &self,
        parent: &Parent,
        name: &str,
        namespace: &str,
    ) -> Result<AppliedWork, ApiError> {
        match self.own_work(name, namespace).await? {
            Some(work) => self.marked(work, parent).await,
            None => self.ensure_work(parent, name, namespace).await,
        }
    }

    /// Moves entries and their objects; the source as it is then.
    async fn shift(
        &self,
        source: AppliedWork,
        target: AppliedWork,
        entries: Vec<AppliedResourceMeta>,
    ) -> Result<AppliedWork, ApiError> {
        let listed: HashSet<ManifestId> = entries_of(&target, |_| true)
            .iter()
            .map(|entry| id_of(entry).any_version())
            .collect();
        let mut all = entries_of(&target, |_| true);
        let new = |entry: &&AppliedResourceMeta| !listed.contains(&id_of(entry).any_version());
        all.extend(entries.iter().filter(new).cloned());
        let target = if all.len() > listed.len() {
            self.list(&target, all).await?
        } else {
            target
        };
        let moves = entries
            .iter()
            .map(|entry| self.move_owner(entry, &source, &target).boxed());
        for moved in self.all(moves.collect()).await {
            moved?;
        }
        let moved: HashSet<ManifestId> = entries
            .iter()
            .map(|entry| id_of(entry).any_version())
            .collect();
        let left = entries_of(&source, |id| !moved.contains(&id.any_version()));
        self.list(&source, left).await
    }

    /// Notes an inventory, unless it is noted already. What was applied in full before is not what is asked
    /// for after.
    async fn list(
        &self,
        work: &AppliedWork,
        entries: Vec<AppliedResourceMeta>,
    ) -> Result<AppliedWork, ApiError> {
        let status = AppliedWorkStatus {
            applied_resources: (!entries.is_empty()).then_some(entries),
            digest: None,
        };
        let mut changed = work.clone();
        if changed.status.clone().unwrap_or_default() == status {
            return Ok(changed);
        }
        changed.status = Some(status);
        self.put_work_status(&changed).await
    }

    async fn move_owner(
        &self,
        entry: &AppliedResourceMeta,
        source: &AppliedWork,
        target: &AppliedWork,
    ) -> Result<(), ApiError> {
        let id = id_of(entry);
        let Some(kind) = self.kind_of(entry, &id).await? else {
            return Ok(());
        };
        let namespace = id.namespace.as_deref();
        let Some(live) = self.writer.get_dyn(&kind, namespace, &id.name).await? else {
            return Ok(());
        };
        match moved(&live, source, target) {
            None => Ok(()),
            Some(patch) => self
                .writer
                .json_patch_dyn(&kind, namespace, &id.name, &patch)
                .await
                .map(drop),
        }
    }
}

fn entries_of(
    work: &AppliedWork,
    wanted: impl Fn(&ManifestId) -> bool,
) -> Vec<AppliedResourceMeta> {
    let status = work.status.as_ref();
    let entries = status.and_then(|status| status.applied_resources.as_deref());
    entries
        .unwrap_or_default()
        .iter()
        .filter(|entry| wanted(&id_of(entry)))
        .cloned()
        .collect()
}

/// The patch that makes an object of one AppliedWork one of another; none when it is not of the first.
fn moved(
    live: &DynamicObject,
    source: &AppliedWork,
    target: &AppliedWork,
) -> Option<json_patch::Patch> {
    let owners = live.metadata.owner_references.as_deref()?;
    let (from, to) = (source.uid()?, target.uid()?);
    if !owners.iter().any(|owner| owner.uid == from) {
        return None;
    }
    let mut next: Vec<_> = owners
        .iter()
        .filter(|owner| owner.uid != from && owner.uid != to)
        .map(|owner| json!(owner))
        .collect();
    next.push(owner_reference(target));
    serde_json::from_value(json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": live.metadata.resource_version},
        {"op": "replace", "path": "/metadata/ownerReferences", "value": next},
    ]))
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_moves() {
        let work = |name: &str, uid: &str| {
            let mut work = AppliedWork::new(name, Default::default());
            work.metadata.uid = Some(uid.into());
            work
        };
        let (source, target) = (work("web-0", "s"), work("web-work", "t"));
        let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "X", "name": "n", "uid": uid});
        let live = |owners: serde_json::Value| -> DynamicObject {
            serde_json::from_value(json!({"metadata": {"name": "a", "resourceVersion": "7",
                "ownerReferences": owners}}))
            .unwrap()
        };
        assert!(moved(&live(json!([owner("x")])), &source, &target).is_none());
        let patch = moved(&live(json!([owner("x"), owner("s")])), &source, &target).unwrap();
        let mut object = json!({"metadata": {"resourceVersion": "7", "ownerReferences": [],
            "labels": {"a": "b"}}});
        json_patch::patch(&mut object, &patch).unwrap();
        let owners = object["metadata"]["ownerReferences"].as_array().unwrap();
        let uids: Vec<_> = owners
            .iter()
            .map(|owner| owner["uid"].as_str().unwrap())
            .collect();
        assert_eq!(uids, ["x", "t"]);
        assert_eq!(object["metadata"]["labels"]["a"], "b");
        // Somebody was there in between: nothing is overwritten.
        let mut later = json!({"metadata": {"resourceVersion": "8", "ownerReferences": []}});
        assert!(json_patch::patch(&mut later, &patch).is_err());
    }
}
