//! Whether what is known of a placement's content is what the API server has.
//!
//! Watches tell of changes a moment after they happened, each in its own time: one that tells of an update run
//! may be ahead of the one that tells of the content that was written before it. What follows a change anyhow
//! need not care. Who takes the present content for good has to ask.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use windlass_cluster::{ApiError, Cache, ObjectKey};
use windlass_member::manifest::Manifest;

use super::Resources;
use super::watches::Meta;

/// Objects in one answer.
const PAGE: u32 = 500;

impl Resources {
    /// Compares what is selected with what the API server has of it now, and, in its namespaces, of the same
    /// kinds: one list of metadata for each kind and namespace, one read for each cluster-scoped object. And
    /// nothing that the watches have told since may speak against it.
    ///
    /// The first object of a kind in a namespace is not asked for: that would take a list for every kind that
    /// there is.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn is_current(
        &self,
        placement: &ObjectKey,
        manifests: &[Arc<Manifest>],
    ) -> Result<bool, ApiError> {
        let client = self.inner.watches.client();
        for (kind, resource, cache) in self.inner.watches.used_by(placement) {
            let is_of_kind = |manifest: &&Arc<Manifest>| {
                let id = &manifest.id;
                id.kind == kind.kind && id.group == kind.group && id.version == kind.version
            };
            let mut objects: BTreeMap<Option<&str>, BTreeSet<&str>> = BTreeMap::new();
            for manifest in manifests.iter().filter(is_of_kind) {
                let names = objects.entry(manifest.id.namespace.as_deref()).or_default();
                names.insert(&manifest.id.name);
            }
            for (namespace, names) in objects {
                let is_seen = match namespace {
                    Some(namespace) => {
                        let api: Api<DynamicObject> =
                            Api::namespaced_with(client.clone(), namespace, &resource);
                        is_list_seen(&api, &cache, (namespace, &names)).await?
                    }
                    None => {
                        let api = Api::all_with(client.clone(), &resource);
                        are_seen(&api, &cache, &names).await?
                    }
                };
                if !is_seen {
                    return Ok(false);
                }
            }
        }
        Ok(self.inner.kept.counts(placement))
    }
}

async fn is_list_seen(
    api: &Api<DynamicObject>,
    cache: &Cache<Meta>,
    (namespace, names): (&str, &BTreeSet<&str>),
) -> Result<bool, ApiError> {
    let mut listed_names = BTreeSet::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let listed = api
            .list_metadata(&page)
            .await
            .map_err(ApiError::from_kube)?;
        let is_seen = |object: &Meta| {
            let key = ObjectKey::namespaced(namespace, object.name_any());
            is_version_seen(cache, &key, object)
        };
        if !listed.items.iter().all(is_seen) {
            return Ok(false);
        }
        listed_names.extend(listed.items.iter().map(ResourceExt::name_any));
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            // What is not listed any more was deleted.
            None => return Ok(names.iter().all(|name| listed_names.contains(*name))),
        }
    }
}

async fn are_seen(
    api: &Api<DynamicObject>,
    cache: &Cache<Meta>,
    names: &BTreeSet<&str>,
) -> Result<bool, ApiError> {
    for name in names {
        let live = api
            .get_metadata_opt(name)
            .await
            .map_err(ApiError::from_kube)?;
        let key = ObjectKey::cluster(*name);
        let is_seen = match live {
            Some(object) => is_version_seen(cache, &key, &object),
            None => cache.get(&key).is_none(),
        };
        if !is_seen {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the watch has told of that version, or of a later one.
fn is_version_seen(cache: &Cache<Meta>, key: &ObjectKey, live: &Meta) -> bool {
    let number = |object: &Meta| object.resource_version()?.parse::<u64>().ok();
    cache.get(key).is_some_and(|known| {
        known.resource_version() == live.resource_version() || number(&known) > number(live)
    })
}
