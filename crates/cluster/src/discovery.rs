//! Which kinds a server knows.
//!
//! Everything is fetched once, in two requests (aggregated discovery, Kubernetes 1.30 or newer). A kind
//! that is not there is looked for in its own group and version, at most once a second each: its CRD may
//! just have been installed, and asking for one group is cheap while asking for all of them is not.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use kube::client::{APIGroupDiscoveryList, APIResourceDiscovery};
use kube::core::discovery::v2::ACCEPT_AGGREGATED_DISCOVERY_V2;
use kube::core::{ApiResource, GroupVersion, GroupVersionKind};
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use crate::clock::{self, Instant};
use crate::error::ApiError;
use crate::exchange::{Failure, exchange};

/// Shortest time between two looks for the same thing, whether it is there or not.
const PAUSE: Duration = Duration::from_secs(1);
/// Limit for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A kind that a server knows.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownKind {
    /// How to address it.
    pub resource: ApiResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether it can be listed and watched.
    pub watchable: bool,
    /// Whether this is the version that the server prefers for the kind.
    pub preferred: bool,
}

/// The kinds of one server: fetched when first needed, again when an unknown one is asked for. Clones
/// share what was fetched.
#[derive(Clone)]
pub struct Discovery {
    client: Client,
    kinds: Arc<RwLock<Kinds>>,
    /// See [`Self::news`].
    news: Arc<AtomicU64>,
    /// One fetch at a time; others wait for it and use what it brought.
    fetch: Arc<Mutex<Asked>>,
}

#[derive(Default)]
struct Kinds {
    known: HashMap<GroupVersionKind, KnownKind>,
    /// Whether everything was fetched, and nothing was found since that it did not have.
    complete: bool,
    /// Whether everything was fetched.
    fetched: bool,
}

/// What was asked last, and how it went: whoever waited for the same takes that for an answer.
#[derive(Default)]
struct Asked {
    all: Option<(Instant, Result<(), ApiError>)>,
    versions: HashMap<(String, String), (Instant, Result<(), ApiError>)>,
}

impl Discovery {
    /// Nothing is sent yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            kinds: Arc::default(),
            news: Arc::default(),
            fetch: Arc::default(),
        }
    }

    /// How to address a kind, and whether its objects live in namespaces; none when the server does not
    /// know it.
    ///
    /// # Errors
    /// When the server can't be asked.
    pub async fn resolve(
        &self,
        kind: &GroupVersionKind,
    ) -> Result<Option<(ApiResource, bool)>, ApiError> {
        Ok(self
            .kind(kind)
            .await?
            .map(|known| (known.resource, known.namespaced)))
    }

    /// Looks a kind up; none when the server does not know it.
    ///
    /// # Errors
    /// When the server can't be asked.
    pub async fn kind(&self, kind: &GroupVersionKind) -> Result<Option<KnownKind>, ApiError> {
        if let Some(found) = self.known(kind) {
            return Ok(Some(found));
        }
        let mut asked = self.fetch.lock().await;
        if !self.read(|kinds| kinds.fetched) {
            self.fetch_all(&mut asked).await?;
        }
        if let Some(found) = self.known(kind) {
            return Ok(Some(found));
        }
        self.fetch_version(&mut asked, &kind.group, &kind.version)
            .await?;
        Ok(self.known(kind))
    }

    /// Every kind in its preferred version, by group and kind. Kinds that are gone are still there until
    /// [`Self::invalidate`]; whoever needs to know watches the CRDs.
    ///
    /// # Errors
    /// When the server can't be asked.
    pub async fn preferred(&self) -> Result<Vec<KnownKind>, ApiError> {
        if !self.read(|kinds| kinds.complete) {
            let mut asked = self.fetch.lock().await;
            if !self.read(|kinds| kinds.complete) {
                self.fetch_all(&mut asked).await?;
            }
        }
        let mut all: Vec<KnownKind> = self.read(|kinds| {
            kinds
                .known
                .values()
                .filter(|kind| kind.preferred)
                .cloned()
                .collect()
        });
        all.sort_by(|a, b| {
            (&a.resource.group, &a.resource.kind).cmp(&(&b.resource.group, &b.resource.kind))
        });
        Ok(all)
    }

    /// Moves whenever an answer may differ from an earlier one: what was found before may be gone, or
    /// something else is there.
    #[must_use]
    pub fn news(&self) -> u64 {
        self.news.load(Ordering::Acquire)
    }

    /// Forgets everything; the next question asks the server.
    pub fn invalidate(&self) {
        // First: an answer to what was asked before does not count as all there is.
        self.news.fetch_add(1, Ordering::AcqRel);
        self.write(|kinds| *kinds = Kinds::default());
        // Last: who has seen this number has seen what it stands for.
        self.news.fetch_add(1, Ordering::AcqRel);
    }

    /// Looks a kind up in what was fetched last; asks nobody.
    #[must_use]
    pub fn known(&self, kind: &GroupVersionKind) -> Option<KnownKind> {
        self.read(|kinds| kinds.known.get(kind).cloned())
    }

    fn read<T>(&self, f: impl FnOnce(&Kinds) -> T) -> T {
        f(&self.kinds.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, f: impl FnOnce(&mut Kinds)) {
        f(&mut self.kinds.write().unwrap_or_else(PoisonError::into_inner));
    }

    async fn fetch_all(&self, asked: &mut Asked) -> Result<(), ApiError> {
        // A failure counts for those who wait in line, not for who asks later; a success was invalidated.
        if let Some((at, Err(error))) = &asked.all
            && clock::monotonic().saturating_duration_since(*at) < PAUSE
        {
            return Err(error.clone());
        }
        let news = self.news();
        let fetched = match self.groups("/apis").await {
            Ok(groups) => self.groups("/api").await.map(|core| [groups, core]),
            Err(error) => Err(error),
        };
        asked.all = Some((
            clock::monotonic(),
            fetched.as_ref().map(|_| ()).map_err(Clone::clone),
        ));
        let mut known = HashMap::new();
        for group in fetched?.into_iter().flat_map(|list| list.items) {
            let name = group
                .metadata
                .and_then(|metadata| metadata.name)
                .unwrap_or_default();
            let mut version_of = HashMap::<String, String>::new();
            // Versions come in order of preference, so the first that has a kind is preferred for it.
            for version in group.versions {
                let gv = GroupVersion::gv(&name, version.version.as_deref().unwrap_or_default());
                for mut kind in version
                    .resources
                    .iter()
                    .filter_map(|resource| of_aggregated(&gv, resource))
                {
                    let preferred = version_of
                        .entry(kind.resource.kind.clone())
                        .or_insert_with(|| gv.version.clone());
                    kind.preferred = *preferred == gv.version;
                    insert(&mut known, kind);
                }
            }
        }
        self.write(|kinds| {
            *kinds = Kinds {
                known,
                complete: news == self.news(),
                fetched: true,
            }
        });
        Ok(())
    }

    async fn fetch_version(
        &self,
        asked: &mut Asked,
        group: &str,
        version: &str,
    ) -> Result<(), ApiError> {
        let now = clock::monotonic();
        asked
            .versions
            .retain(|_, (at, _)| now.saturating_duration_since(*at) < PAUSE);
        let key = (group.to_owned(), version.to_owned());
        if let Some((_, outcome)) = asked.versions.get(&key) {
            return outcome.clone();
        }
        let gv = GroupVersion::gv(group, version);
        let root = if group.is_empty() { "/api" } else { "/apis" };
        let list = match self
            .get::<APIResourceList>(&format!("{root}/{}", gv.api_version()), "application/json")
            .await
        {
            Ok(list) => Ok(list.resources),
            Err(ApiError::NotFound(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        asked.versions.insert(
            key,
            (
                clock::monotonic(),
                list.as_ref().map(|_| ()).map_err(Clone::clone),
            ),
        );
        for resource in list?
            .into_iter()
            .filter(|resource| !resource.name.contains('/'))
        {
            let kind = known_kind(
                &gv,
                &resource.kind,
                &resource.name,
                resource.namespaced,
                &resource.verbs,
            );
            self.write(|kinds| {
                if !kinds.known.contains_key(&gvk(&kind.resource)) {
                    // Which of its versions is preferred, this answer does not tell.
                    kinds.complete = false;
                    insert(&mut kinds.known, kind);
                    self.news.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        Ok(())
    }

    async fn groups(&self, path: &str) -> Result<APIGroupDiscoveryList, ApiError> {
        let answer: serde_json::Value = self.get(path, ACCEPT_AGGREGATED_DISCOVERY_V2).await?;
        // A server that does not know the form answers in the old one.
        if answer.get("kind").and_then(serde_json::Value::as_str) != Some("APIGroupDiscoveryList") {
            return Err(ApiError::Rejected(
                "the server does not offer aggregated discovery; Kubernetes 1.30 or newer is needed".to_owned(),
            ));
        }
        serde_json::from_value(answer).map_err(|error| ApiError::unreadable(&error))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, accept: &str) -> Result<T, ApiError> {
        let request = Request::get(path)
            .header(http::header::ACCEPT, accept)
            .body(Vec::new())
            .map_err(|error| ApiError::Rejected(error.to_string()))?;
        exchange(&self.client, request, REQUEST_TIMEOUT)
            .await
            .map_err(Failure::into_error)
    }
}

fn of_aggregated(gv: &GroupVersion, resource: &APIResourceDiscovery) -> Option<KnownKind> {
    let kind = resource.response_kind.as_ref()?.kind.as_deref()?;
    let namespaced = resource.scope.as_deref() == Some("Namespaced");
    Some(known_kind(
        gv,
        kind,
        resource.resource.as_deref()?,
        namespaced,
        &resource.verbs,
    ))
}

fn known_kind(
    gv: &GroupVersion,
    kind: &str,
    plural: &str,
    namespaced: bool,
    verbs: &[String],
) -> KnownKind {
    let can = |verb: &str| verbs.iter().any(|known| known == verb);
    KnownKind {
        resource: ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(&gv.group, &gv.version, kind),
            plural,
        ),
        namespaced,
        watchable: can("list") && can("watch"),
        preferred: false,
    }
}

fn gvk(resource: &ApiResource) -> GroupVersionKind {
    GroupVersionKind::gvk(&resource.group, &resource.version, &resource.kind)
}

/// Of two resources of one kind, the one that can be watched is the kind's own.
fn insert(known: &mut HashMap<GroupVersionKind, KnownKind>, kind: KnownKind) {
    let key = gvk(&kind.resource);
    if kind.watchable || !known.contains_key(&key) {
        known.insert(key, kind);
    }
}
