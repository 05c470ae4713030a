//! The selected objects themselves: each version is fetched once, and shared by all who select it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use windlass_api::labels;
use windlass_cluster::{ApiError, ObjectKey};
use windlass_member::manifest::Manifest;

use super::rules::{ApiFilter, holds_hub_token};
use super::watches::Meta;
use super::{SelectError, lock, renders, sanitise};

/// Requests at a time for one placement.
const PARALLEL: usize = 8;
/// From more than so many objects on, a list is cheaper than one request each.
const LIST_ABOVE: usize = 50;
/// Objects per page of a list.
const PAGE: u32 = 500;

/// Objects of one kind in one namespace (none: cluster-scoped) that are selected.
pub(super) struct Chosen {
    pub(super) kind: Arc<GroupVersionKind>,
    pub(super) resource: ApiResource,
    pub(super) namespace: Option<String>,
    pub(super) metas: Vec<Arc<Meta>>,
    /// How many there are, selected or not.
    pub(super) population: usize,
}

/// A version of an object.
pub(super) struct Entry {
    kind: Arc<GroupVersionKind>,
    key: ObjectKey,
    uid: Option<String>,
    version: Option<String>,
    /// None for an object that is passed over.
    pub(super) manifest: Option<Arc<Manifest>>,
}

pub(super) struct Store {
    client: Client,
    filter: Arc<ApiFilter>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<GroupVersionKind, HashMap<ObjectKey, Arc<Entry>>>,
    /// What the placements selected last.
    held: HashMap<ObjectKey, Vec<Arc<Entry>>>,
}

enum Request<'a> {
    Get(&'a Chosen, &'a Meta),
    List(&'a Chosen, HashSet<String>),
}

impl Store {
    pub(super) fn new(client: Client, filter: Arc<ApiFilter>) -> Self {
        Self {
            client,
            filter,
            state: Mutex::default(),
        }
    }

    /// The chosen objects, in no order; those that are gone meanwhile are left out.
    pub(super) async fn fetch(&self, chosen: &[Chosen]) -> Result<Vec<Arc<Entry>>, SelectError> {
        let mut found = Vec::new();
        let mut requests = Vec::new();
        for of_kind in chosen {
            let mut missing = Vec::new();
            for meta in &of_kind.metas {
                match self.known(of_kind, meta) {
                    Some(entry) => found.push(entry),
                    None => missing.push(&**meta),
                }
            }
            // A list also brings what is not wanted, or was fetched before.
            if missing.len() > LIST_ABOVE && missing.len() * 4 >= of_kind.population {
                let names = missing.iter().map(|meta| meta.name_any()).collect();
                requests.push(Request::List(of_kind, names));
            } else {
                requests.extend(missing.into_iter().map(|meta| Request::Get(of_kind, meta)));
            }
        }
        // Boxed, for the futures borrow from what they are made of.
        let answers: Vec<_> = requests
            .into_iter()
            .map(|request| self.send(request).boxed())
            .collect();
        let fetched: Vec<Vec<Arc<Entry>>> = stream::iter(answers)
            .buffer_unordered(PARALLEL)
            .try_collect()
            .await
            .inspect_err(|_| self.let_go(std::mem::take(&mut found)))?;
        found.extend(fetched.into_iter().flatten());
        Ok(found)
    }

    /// Keeps what a placement selects, and lets go of what nobody does any more.
    pub(super) fn hold(&self, placement: &ObjectKey, entries: Vec<Arc<Entry>>) {
        let mut state = lock(&self.state);
        let old = if entries.is_empty() {
            state.held.remove(placement)
        } else {
            state.held.insert(placement.clone(), entries)
        };
        for entry in old.into_iter().flatten() {
            let Some(of_kind) = state.entries.get_mut(&*entry.kind) else {
                continue;
            };
            // Of this version: the map and `entry`. Of a later one that nobody has come to hold: the map.
            let unheld = of_kind.get(&entry.key).is_some_and(|kept| {
                Arc::strong_count(kept) == 1 + usize::from(Arc::ptr_eq(kept, &entry))
            });
            if unheld {
                of_kind.remove(&entry.key);
            }
            if of_kind.is_empty() {
                state.entries.remove(&*entry.kind);
            }
        }
    }

    /// Lets go of what was fetched for a placement that does not come to hold it, together with `found`.
    fn let_go(&self, found: Vec<Arc<Entry>>) {
        drop(found);
        let mut state = lock(&self.state);
        state.entries.retain(|_, of_kind| {
            // Those of others who are still fetching have another holder.
            of_kind.retain(|_, entry| Arc::strong_count(entry) > 1);
            !of_kind.is_empty()
        });
    }

    /// Whether a namespace has no object of a kind, as far as the server says.
    pub(super) async fn is_empty(&self, resource: &ApiResource, namespace: &str) -> bool {
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, resource);
        let first = api.list_metadata(&ListParams::default().limit(1)).await;
        first.is_ok_and(|list| list.items.is_empty())
    }

    /// Whether a CRD defines a kind of that name, and is established.
    pub(super) async fn defines(&self, crd: &str, kind: &str) -> Result<bool, SelectError> {
        let resource = ApiResource::erase::<CustomResourceDefinition>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let found = api
            .get_opt(crd)
            .await
            .map_err(|error| refused(crd, error))?;
        Ok(found.is_some_and(|crd| {
            let conditions = crd.data["status"]["conditions"].as_array();
            crd.data["spec"]["names"]["kind"] == kind
                && conditions.into_iter().flatten().any(|condition| {
                    condition["type"] == "Established" && condition["status"] == "True"
                })
        }))
    }

    /// How many objects are kept.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.state).entries.values().map(HashMap::len).sum()
    }

    fn known(&self, chosen: &Chosen, meta: &Meta) -> Option<Arc<Entry>> {
        let state = lock(&self.state);
        let entry = state
            .entries
            .get(&*chosen.kind)?
            .get(&ObjectKey::of(meta))?;
        entry.is_at_least(meta).then(|| Arc::clone(entry))
    }

    async fn send(&self, request: Request<'_>) -> Result<Vec<Arc<Entry>>, SelectError> {
        match request {
            Request::Get(chosen, meta) => {
                let name = meta.name_any();
                let live = self.api(chosen).get_opt(&name).await.map_err(|error| {
                    refused(
                        &format!("{} {}", chosen.kind.kind, ObjectKey::of(meta)),
                        error,
                    )
                })?;
                Ok(live
                    .map(|live| self.keep(chosen, &live))
                    .into_iter()
                    .collect())
            }
            Request::List(chosen, names) => self.list(chosen, &names).await,
        }
    }

    async fn list(
        &self,
        chosen: &Chosen,
        names: &HashSet<String>,
    ) -> Result<Vec<Arc<Entry>>, SelectError> {
        let api = self.api(chosen);
        let mut params = ListParams::default().limit(PAGE);
        let mut entries = Vec::with_capacity(names.len());
        loop {
            let page = api
                .list(&params)
                .await
                .map_err(|error| refused(&chosen.resource.plural, error))?;
            let wanted = page
                .items
                .into_iter()
                .filter(|live| names.contains(&live.name_any()));
            entries.extend(wanted.map(|live| self.keep(chosen, &live)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(entries),
            }
        }
    }

    fn api(&self, chosen: &Chosen) -> Api<DynamicObject> {
        match &chosen.namespace {
            Some(namespace) => {
                Api::namespaced_with(self.client.clone(), namespace, &chosen.resource)
            }
            None => Api::all_with(self.client.clone(), &chosen.resource),
        }
    }

    fn keep(&self, chosen: &Chosen, live: &DynamicObject) -> Arc<Entry> {
        let key = ObjectKey::of(live);
        let (uid, version) = (live.uid(), live.resource_version());
        // It may have changed since its metadata was seen.
        let passed_over = self.filter.passes_over(&chosen.kind, &live.metadata);
        let mut object = serde_json::to_value(live).unwrap_or_default();
        let manifest = if passed_over || holds_hub_token(&chosen.kind, &object) {
            None
        } else {
            // Objects in lists come without these two.
            object["apiVersion"] = chosen.resource.api_version.clone().into();
            object["kind"] = chosen.resource.kind.clone().into();
            sanitise::sanitise(&mut object);
            if live.labels().contains_key(labels::ADDON) {
                renders::note_owner(&mut object, live.owner_references());
            }
            Some(Arc::new(Manifest::of_snapshot(object)))
        };
        let mut state = lock(&self.state);
        let of_kind = state.entries.entry((*chosen.kind).clone()).or_default();
        // What others hold is shared if only what is not placed has changed.
        let same = of_kind
            .get(&key)
            .and_then(|old| old.manifest.clone())
            .filter(|old| {
                manifest
                    .as_ref()
                    .is_some_and(|manifest| manifest.digest == old.digest)
            });
        let entry = Arc::new(Entry {
            kind: Arc::clone(&chosen.kind),
            key: key.clone(),
            uid,
            version,
            manifest: same.or(manifest),
        });
        of_kind.insert(key, Arc::clone(&entry));
        entry
    }
}

impl Entry {
    /// Whether this is the version that the metadata is of, or a later one, which the watch is yet to show.
    fn is_at_least(&self, meta: &Meta) -> bool {
        let number = |version: &str| version.parse::<u64>().ok();
        let later = |mine: &str, theirs: &str| match (number(mine), number(theirs)) {
            (Some(mine), Some(theirs)) => mine >= theirs,
            _ => mine == theirs,
        };
        let theirs = meta.metadata.resource_version.as_deref();
        self.uid == meta.metadata.uid
            && self
                .version
                .as_deref()
                .zip(theirs)
                .is_some_and(|(mine, theirs)| later(mine, theirs))
    }
}

fn refused(what: &str, error: kube::Error) -> SelectError {
    let error = ApiError::from_kube(error);
    SelectError::Api {
        message: format!("{what} can't be read on the hub: {}", error.message()),
        retry: error.is_transient(),
    }
}
