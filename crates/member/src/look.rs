//! Finding out what each manifest needs: nothing, for most, which is told from the caches alone.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use futures::FutureExt;
use kube::core::DynamicObject;
use serde_json::Value;
use windlass_api::conditions::ManifestReason;
use windlass_api::work::Origin;
use windlass_cluster::{ApiError, clock};

use crate::compare::{first_difference, metadata_difference};
use crate::inventory::origin_of_absent;
use crate::item::{Basis, Facts, Item, Todo};
use crate::manifest::{Manifest, ManifestId, Problem};
use crate::member::{Member, gvk_of};
use crate::object::{has_hash_of, is_going, is_ours, is_owned_by, state_of};
use crate::ownership::migration;
use crate::takeover;

/// So often in a row a change of somebody else is undone before it is called a problem.
const PATIENT_FOR: u32 = 3;

impl Member {
    /// Finds out how the kinds are addressed.
    ///
    /// # Errors
    /// When the cluster can't be asked.
    pub(crate) async fn resolve(
        &self,
        items: &mut [Item<'_>],
        facts: &Facts,
    ) -> Result<(), ApiError> {
        let crds: Vec<&Manifest> = items
            .iter()
            .map(|item| item.manifest)
            .filter(|m| m.id.kind == "CustomResourceDefinition")
            .collect();
        for item in items.iter_mut().filter(|item| item.problem.is_none()) {
            let id = item.manifest.id.clone();
            match self.discovery.kind(&gvk_of(&id)).await? {
                None if crds.iter().any(|crd| defines(crd, &id)) => {
                    item.wait(format!(
                        "waiting for the kind {} to be established on the cluster",
                        id.kind
                    ));
                }
                None => {
                    let version = if id.group.is_empty() {
                        id.version.clone()
                    } else {
                        format!("{}/{}", id.group, id.version)
                    };
                    let message = format!(
                        "the kind {} of {version} is not known on this cluster; install it there, or place its CustomResourceDefinition too",
                        id.kind
                    );
                    self.set_aside(
                        item,
                        facts,
                        Problem {
                            reason: ManifestReason::DecodingErred,
                            message,
                        },
                    );
                }
                Some(known) if known.namespaced != id.namespace.is_some() => {
                    let message = if known.namespaced {
                        format!("{} lives in a namespace; the manifest names none", id.kind)
                    } else {
                        format!(
                            "{} is cluster-scoped; take the namespace out of the manifest",
                            id.kind
                        )
                    };
                    item.stop(ManifestReason::ManifestApplyFailed, message, None);
                }
                Some(known) => item.kind = Some(known),
            }
        }
        Ok(())
    }

    /// Sets an item aside that nothing but a change elsewhere will help; it is tried again, ever more rarely.
    fn set_aside(&self, item: &mut Item<'_>, facts: &Facts, problem: Problem) {
        let about = item.manifest.digest;
        let now = clock::monotonic();
        let work = facts.work_name();
        let wait = match self.memory.held(work, item.id(), about, now) {
            Some((_, left)) => left,
            None => self
                .memory
                .failed(work, item.id(), about, &problem, None, now),
        };
        item.stop(problem.reason, problem.message, Some(wait));
    }

    /// Finds out what each item needs.
    ///
    /// # Errors
    /// When the cluster can't be asked.
    pub(crate) async fn look(&self, items: &mut [Item<'_>], facts: &Facts) -> Result<(), ApiError> {
        for item in items.iter_mut().filter(|item| item.problem.is_none()) {
            self.look_in_cache(item, facts);
        }
        // Namespaces first: nothing is in one that does not exist, and nobody has to ask.
        self.look_at_all(items, facts, |item| item.manifest.id.kind == "Namespace")
            .await?;
        let absent: HashSet<String> = items
            .iter()
            .filter(|item| {
                item.manifest.id.kind == "Namespace" && item.manifest.id.group.is_empty()
            })
            .filter(|item| matches!(&item.todo, Todo::Apply(basis) if basis.absent))
            .map(|item| item.manifest.id.name.clone())
            .collect();
        for item in items
            .iter_mut()
            .filter(|item| matches!(item.todo, Todo::Look))
        {
            if item
                .id()
                .namespace
                .as_ref()
                .is_some_and(|namespace| absent.contains(namespace))
            {
                self.decide(item, Ok(None), facts);
            }
        }
        self.look_at_all(items, facts, |_| true).await
    }

    fn look_in_cache(&self, item: &mut Item<'_>, facts: &Facts) {
        let Some(kind) = item.kind.as_ref() else {
            return;
        };
        item.live = self.watches.get(kind, &item.manifest.id);
        if let Some((problem, left)) = self.memory.held(
            facts.work_name(),
            item.id(),
            facts.digest,
            clock::monotonic(),
        ) {
            item.stop(problem.reason, problem.message, Some(left));
            return;
        }
        item.todo = Todo::Look;
        let Some(live) = item.live.clone() else {
            return;
        };
        // What the inventory does not have is looked at whole, with who manages its fields.
        if is_owned_by(&live, &facts.work_uid)
            && !is_going(&live)
            && facts.inventory.get(item.id()).is_some()
        {
            self.needs(item, &live, None, facts);
        }
    }

    /// What an object needs that is ours: nothing when it is clean.
    fn needs(
        &self,
        item: &mut Item<'_>,
        live: &Arc<DynamicObject>,
        basis: Option<Basis>,
        facts: &Facts,
    ) {
        item.live = Some(Arc::clone(live));
        let basis = basis.unwrap_or_default();
        if basis.note.is_none()
            && basis.migration.is_none()
            && self.is_clean(item.manifest, live, facts)
        {
            item.todo = Todo::Nothing;
            return;
        }
        let put_back = has_hash_of(live, item.manifest);
        self.apply_unless_quarrel(item, Basis { put_back, ..basis });
    }

    /// Undoes what somebody keeps changing more and more slowly.
    fn apply_unless_quarrel(&self, item: &mut Item<'_>, basis: Basis) {
        let rest = basis
            .put_back
            .then(|| self.memory.quarrel(item.id(), clock::monotonic()))
            .flatten();
        let Some((left, count)) = rest else {
            item.todo = Todo::Apply(basis);
            return;
        };
        item.todo = Todo::Nothing;
        item.retry = Some(left);
        if count >= PATIENT_FOR || item.live.is_none() {
            let what = match item
                .live
                .as_deref()
                .and_then(|live| first_difference(item.manifest, live))
            {
                Some(path) => format!("{path} is changed"),
                None if item.live.is_some() => "it is changed".to_owned(),
                None => "it is deleted".to_owned(),
            };
            let message =
                format!("{what} on the cluster again and again; it is put back, ever more slowly");
            item.stop(ManifestReason::ManifestApplyFailed, message, Some(left));
        }
    }

    /// Whether nothing has to be sent for an object that is ours.
    fn is_clean(&self, manifest: &Manifest, live: &DynamicObject, facts: &Facts) -> bool {
        if !has_hash_of(live, manifest) || !has_label(live) {
            return false;
        }
        if first_difference(manifest, live).is_none()
            || self.memory.is_clean(&manifest.id, &state_of(live))
        {
            return true;
        }
        // The server may write a value in another way than the manifest does. As long as the generation is
        // the one that our apply left, the spec is what we applied; labels and annotations don't count in it.
        facts.inventory.get(&manifest.id).is_some_and(|entry| {
            live.metadata
                .generation
                .is_some_and(|generation| generation > 0)
                && entry.generation == live.metadata.generation
                && entry.uid == live.metadata.uid
                && entry
                    .digest
                    .as_deref()
                    .is_some_and(|digest| manifest.digest.is(digest))
                && metadata_difference(manifest, live).is_none()
        })
    }

    async fn look_at_all(
        &self,
        items: &mut [Item<'_>],
        facts: &Facts,
        which: impl Fn(&Item<'_>) -> bool,
    ) -> Result<(), ApiError> {
        let chosen: Vec<&mut Item<'_>> = items
            .iter_mut()
            .filter(|item| matches!(item.todo, Todo::Look) && which(item))
            .collect();
        let requests = chosen.iter().map(|item| self.read(item).boxed());
        let answers = self.all(requests.collect()).await;
        for (item, found) in chosen.into_iter().zip(answers) {
            if let Err(error @ ApiError::Unauthorized(_)) = found {
                return Err(error);
            }
            self.decide(item, found, facts);
        }
        Ok(())
    }

    async fn read(&self, item: &Item<'_>) -> Result<Option<DynamicObject>, ApiError> {
        let Some(kind) = &item.kind else {
            return Ok(None);
        };
        let id = item.id();
        self.writer
            .get_dyn(&kind.resource, id.namespace.as_deref(), &id.name)
            .await
    }

    /// What an object needs that was looked at itself.
    fn decide(
        &self,
        item: &mut Item<'_>,
        found: Result<Option<DynamicObject>, ApiError>,
        facts: &Facts,
    ) {
        let live = match found {
            Err(error) => {
                let message = error.message().to_owned();
                let reason = ManifestReason::FailedToFindObjInMemberCluster;
                self.failed(item, facts, reason, &error, message);
                return;
            }
            Ok(None) => return self.decide_absent(item, facts),
            Ok(Some(live)) => Arc::new(live),
        };
        item.live = Some(Arc::clone(&live));
        if is_going(&live) {
            let finalizers = live.metadata.finalizers.as_deref().unwrap_or_default();
            let held = match finalizers {
                [] => String::new(),
                list => format!(" (finalizers: {})", list.join(", ")),
            };
            item.wait(format!(
                "it is being deleted on the cluster{held}; it is made anew when that has ended"
            ));
            return;
        }
        let entry = facts.inventory.get(item.id());
        let note = entry.is_none().then_some(Origin::Created);
        if is_owned_by(&live, &facts.work_uid) {
            let migration = migration(&live, &BTreeSet::new());
            let basis = Basis {
                note,
                migration,
                ..Basis::default()
            };
            self.needs(item, &live, Some(basis), facts);
        } else if is_ours(
            &live,
            &facts.work_uid,
            entry.and_then(|entry| entry.uid.as_deref()),
            |name, uid| self.is_work(name, uid),
        ) {
            // Its owner reference was taken off, but it is the object that we applied.
            let migration = migration(&live, &BTreeSet::new());
            self.apply_unless_quarrel(
                item,
                Basis {
                    migration,
                    put_back: true,
                    ..Basis::default()
                },
            );
        } else {
            self.decide_foreign(item, &live, facts);
        }
    }

    fn decide_absent(&self, item: &mut Item<'_>, facts: &Facts) {
        item.live = None;
        let entry = facts.inventory.get(item.id());
        // It was there, as we made it: somebody has deleted it.
        let put_back = entry.is_some_and(|entry| {
            entry.uid.is_some()
                && entry
                    .digest
                    .as_deref()
                    .is_some_and(|digest| item.manifest.digest.is(digest))
        });
        let note = origin_of_absent(entry);
        self.apply_unless_quarrel(
            item,
            Basis {
                absent: true,
                note,
                put_back,
                ..Basis::default()
            },
        );
    }

    fn decide_foreign(&self, item: &mut Item<'_>, live: &DynamicObject, facts: &Facts) {
        let dead = takeover::dead_owners(live, |name, uid| self.is_work(name, uid));
        match takeover::check(item.manifest, live, &dead, facts.apply) {
            Ok(()) => {
                let note = Some(Origin::Adopted);
                let migration = migration(live, &dead);
                item.todo = Todo::Apply(Basis {
                    note,
                    migration,
                    ..Basis::default()
                });
            }
            Err(problem) => {
                let now = clock::monotonic();
                let wait = self.memory.failed(
                    facts.work_name(),
                    item.id(),
                    facts.digest,
                    &problem,
                    None,
                    now,
                );
                item.stop(problem.reason, problem.message, Some(wait));
            }
        }
    }

    /// Notes that a request about an item failed.
    pub(crate) fn failed(
        &self,
        item: &mut Item<'_>,
        facts: &Facts,
        reason: ManifestReason,
        error: &ApiError,
        message: String,
    ) {
        let problem = Problem { reason, message };
        let wait = self.memory.failed(
            facts.work_name(),
            item.id(),
            facts.digest,
            &problem,
            error.retry_after(),
            clock::monotonic(),
        );
        item.stop(problem.reason, problem.message, Some(wait));
        item.outage = error.is_outage();
    }
}

fn has_label(live: &DynamicObject) -> bool {
    use windlass_api::labels::{PLACED, PLACED_VALUE};
    live.metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(PLACED))
        .is_some_and(|value| value == PLACED_VALUE)
}

/// Whether a manifest is the CustomResourceDefinition of that kind in that version.
fn defines(crd: &Manifest, id: &ManifestId) -> bool {
    let text = |pointer: &str| crd.object.pointer(pointer).and_then(Value::as_str);
    let versions = crd
        .object
        .pointer("/spec/versions")
        .and_then(Value::as_array);
    text("/spec/group") == Some(&id.group)
        && text("/spec/names/kind") == Some(&id.kind)
        && versions
            .into_iter()
            .flatten()
            .any(|version| version["name"] == id.version.as_str() && version["served"] != false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_crd_defines_the_versions_that_it_serves() {
        let crd = Manifest::of_snapshot(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {"group": "example.com", "names": {"kind": "Thing"},
                     "versions": [{"name": "v1", "served": true}, {"name": "v2", "served": false}]}}));
        let id = |group: &str, version: &str, kind: &str| ManifestId {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            ..Default::default()
        };
        assert!(defines(&crd, &id("example.com", "v1", "Thing")));
        assert!(!defines(&crd, &id("example.com", "v2", "Thing")));
        assert!(!defines(&crd, &id("example.com", "v3", "Thing")));
        assert!(!defines(&crd, &id("example.org", "v1", "Thing")));
        assert!(!defines(&crd, &id("example.com", "v1", "Other")));
    }
}
