//! Which kinds a server knows.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use kube::Client;
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::{Discovery as Fetched, Scope, verbs};
use tokio::sync::Mutex;

use crate::clock::{self, Instant};
use crate::error::ApiError;

/// Shortest time between two looks for a kind that is not known.
const PAUSE: Duration = Duration::from_secs(1);

/// A kind that a server knows.
#[derive(Clone, Debug)]
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
    kinds: Arc<RwLock<Option<Kinds>>>,
    fetch: Arc<Mutex<()>>,
}

struct Kinds {
    known: HashMap<(String, String, String), KnownKind>,
    fetched: Instant,
}

impl Discovery {
    /// Nothing is sent yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            kinds: Arc::default(),
            fetch: Arc::default(),
        }
    }

    /// Looks a kind up; none when the server does not know it.
    ///
    /// # Errors
    /// When the server can't be asked.
    pub async fn resolve(&self, kind: &GroupVersionKind) -> Result<Option<KnownKind>, ApiError> {
        let key = (kind.group.clone(), kind.version.clone(), kind.kind.clone());
        if let Some(found) = self.read(|kinds| kinds.known.get(&key).cloned()).flatten() {
            return Ok(Some(found));
        }
        self.refresh(PAUSE).await?;
        Ok(self.read(|kinds| kinds.known.get(&key).cloned()).flatten())
    }

    /// Every kind in its preferred version.
    ///
    /// # Errors
    /// When the server can't be asked.
    pub async fn preferred(&self) -> Result<Vec<KnownKind>, ApiError> {
        if self.read(|_| ()).is_none() {
            self.refresh(Duration::ZERO).await?;
        }
        let mut all: Vec<KnownKind> = self
            .read(|kinds| {
                kinds
                    .known
                    .values()
                    .filter(|kind| kind.preferred)
                    .cloned()
                    .collect()
            })
            .unwrap_or_default();
        all.sort_by(|a, b| {
            (&a.resource.group, &a.resource.kind).cmp(&(&b.resource.group, &b.resource.kind))
        });
        Ok(all)
    }

    /// Forgets everything; the next question asks the server.
    pub fn invalidate(&self) {
        *self.kinds.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn read<T>(&self, f: impl FnOnce(&Kinds) -> T) -> Option<T> {
        self.kinds
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(f)
    }

    /// Asks the server, unless somebody did within `pause`.
    async fn refresh(&self, pause: Duration) -> Result<(), ApiError> {
        let _one_at_a_time = self.fetch.lock().await;
        if self
            .read(|kinds| kinds.fetched + pause > clock::monotonic())
            .unwrap_or(false)
        {
            return Ok(());
        }
        let fetched = Fetched::new(self.client.clone())
            .run_aggregated()
            .await
            .map_err(ApiError::from_kube)?;
        let mut known = HashMap::new();
        for group in fetched.groups() {
            let preferred: Vec<ApiResource> = group
                .recommended_resources()
                .into_iter()
                .map(|(resource, _)| resource)
                .collect();
            for version in group.versions() {
                for (resource, capabilities) in group.versioned_resources(version) {
                    let kind = KnownKind {
                        namespaced: capabilities.scope == Scope::Namespaced,
                        watchable: capabilities.supports_operation(verbs::WATCH)
                            && capabilities.supports_operation(verbs::LIST),
                        preferred: preferred.contains(&resource),
                        resource,
                    };
                    let r = &kind.resource;
                    known.insert((r.group.clone(), r.version.clone(), r.kind.clone()), kind);
                }
            }
        }
        *self.kinds.write().unwrap_or_else(PoisonError::into_inner) = Some(Kinds {
            known,
            fetched: clock::monotonic(),
        });
        Ok(())
    }
}
