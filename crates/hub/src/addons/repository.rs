//! The actor of a repository: decides whether it is read now, reads it, writes what it offers, and then its
//! status. A death in between is a reading that was not made: the AddonCharts that are written stay true, and
//! the next reading is due as before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::SignedDuration;
use kube::ResourceExt;
use windlass_addons::catalogue::InUse;
use windlass_addons::evaluate::{
    Attempt, Credentials, Decision, Found, Inputs, Internal, evaluate,
};
use windlass_addons::helm::Validators;
use windlass_addons::oci::KnownTags;
use windlass_addons::{Before, Reading, Source, schedule};
use windlass_api::addon::{AddonRepository, RepositoryStatus};
use windlass_api::labels;
use windlass_cluster::{ApiError, ObjectKey, Writer, clock};
use windlass_status::Digest;

use super::source::{self, Trouble};
use super::{catalogue, jitter};
use crate::worker::{Next, work};
use crate::world::World;

/// Works on repositories. Clones share everything.
#[derive(Clone)]
pub struct RepositoryActor {
    world: World,
    writer: Writer,
    /// What the last reading of each was, so that the next one may ask for news alone.
    last: Arc<Mutex<HashMap<String, Last>>>,
}

/// A reading whose AddonCharts were written.
#[derive(Clone)]
struct Last {
    source: Digest,
    in_use: InUse,
    charts: Digest,
    validators: Option<Validators>,
}

impl RepositoryActor {
    /// Wires an actor up; nothing runs yet.
    #[must_use]
    pub fn new(world: World, writer: Writer) -> Self {
        Self {
            world,
            writer,
            last: Arc::default(),
        }
    }

    /// Works until the queue is closed.
    pub async fn work(self) {
        let queue = self.world.queues.repositories.clone();
        work(queue, "repository", |name| {
            let this = self.clone();
            async move { this.process(&name).await }
        })
        .await;
    }

    async fn process(&self, name: &str) -> Result<Next, ApiError> {
        let caches = &self.world.addons;
        let found = caches.repositories.get(&ObjectKey::cluster(name));
        let Some(repository) = found.filter(|found| found.metadata.deletion_timestamp.is_none())
        else {
            // The API server collects the AddonCharts, for they are owned.
            self.last().remove(name);
            caches.wanted().read(name);
            return Ok(Next::Event);
        };
        let (source, config, credentials) =
            match source::of(caches, &self.writer, &repository).await? {
                Ok(found) => (Some(found.source), None, found.credentials),
                Err(Trouble::Config(fault, message)) => {
                    (None, Some((fault, message)), Credentials::None)
                }
                Err(Trouble::Credentials(message)) => (None, None, Credentials::NotReady(message)),
            };
        let current = repository.status.clone().unwrap_or_default();
        let request = repository.annotations().get(labels::SYNC_REQUESTED_AT);
        let mut inputs = Inputs {
            generation: repository.metadata.generation.unwrap_or_default(),
            now: clock::now(),
            jitter: jitter(),
            interval: interval(repository.spec.interval.as_deref()),
            current: &current,
            spec_digest: source.as_ref().map(|source| source.digest),
            config,
            credentials,
            internal: Internal::None,
            suspended: repository.spec.suspend == Some(true),
            sync_request: request.map(String::as_str),
            attempt: Attempt::None,
        };
        // One that fails is read again when it is due, and in full.
        let fails = current.consecutive_fetch_failures.unwrap_or_default() > 0;
        let wanted = !inputs.suspended && !fails && caches.wanted().is(name);
        let forced =
            request.is_some_and(|at| current.last_handled_sync_request.as_ref() != Some(at));
        if let Some(source) = source.filter(|_| wanted || inputs.should_attempt()) {
            caches.wanted().read(name);
            inputs.attempt = self.attempt(&repository, &source, forced).await;
            inputs.now = clock::now();
        }
        let Decision {
            status,
            requeue_after,
        } = evaluate(&inputs);
        self.write(&repository, &status).await?;
        Ok(match requeue_after {
            Some(delay) => Next::After(delay.unsigned_abs()),
            None => Next::Event,
        })
    }

    /// Reads the repository and writes what it offers.
    async fn attempt(
        &self,
        repository: &AddonRepository,
        source: &Source,
        forced: bool,
    ) -> Attempt {
        let in_use = self.world.addons.in_use(&repository.name_any());
        let before = self.before(repository, source, &in_use, forced);
        let reading = windlass_addons::read(source, &in_use, &before).await;
        let (catalogue, validators) = match reading {
            Err(failure) => {
                tracing::info!(%failure, "the repository could not be read");
                return Attempt::Failed(failure);
            }
            Ok(Reading::Unchanged) => {
                return Attempt::Read {
                    found: None,
                    catalogue: Ok(()),
                };
            }
            Ok(Reading::Read {
                catalogue,
                validators,
            }) => (catalogue, validators),
        };
        let found = Some(Found {
            charts: catalogue.charts.len(),
            skipped: catalogue.skipped,
        });
        let (caches, name) = (&self.world.addons, repository.name_any());
        let written = catalogue::write(caches, &self.writer, repository, &catalogue, &in_use).await;
        let catalogue = match written {
            Ok(()) => {
                let last = Last {
                    source: source.digest,
                    in_use,
                    charts: catalogue::digest(caches, &name),
                    validators,
                };
                self.last().insert(name, last);
                Ok(())
            }
            Err(error) => {
                self.last().remove(&name);
                Err(format!(
                    "The AddonCharts could not all be written: {}",
                    error.message()
                ))
            }
        };
        Attempt::Read { found, catalogue }
    }

    /// What the next reading may take from those before: all of it is asked anew if an attempt is forced, or if
    /// what the AddonCharts should say is known no more.
    fn before(
        &self,
        repository: &AddonRepository,
        source: &Source,
        in_use: &InUse,
        forced: bool,
    ) -> Before {
        let caches = &self.world.addons;
        let name = repository.name_any();
        let last = self.last().get(&name).cloned();
        let charts = catalogue::digest(caches, &name);
        let is_edited = last.as_ref().is_some_and(|last| last.charts != charts);
        let stands = last.filter(|last| {
            last.source == source.digest && last.in_use == *in_use && last.charts == charts
        });
        let status = repository.status.as_ref();
        let fetched = status.and_then(|status| status.fetched_spec_digest.as_deref());
        let is_same = fetched.is_some_and(|fetched| source.digest.is(fetched));
        Before {
            validators: stands.and_then(|last| last.validators).filter(|_| !forced),
            // Digests of another place are none of this one's, and those that somebody wrote are nobody's.
            tags: if forced || is_edited || !is_same {
                KnownTags::new()
            } else {
                catalogue::tags(caches, &name)
            },
        }
    }

    async fn write(
        &self,
        repository: &AddonRepository,
        status: &RepositoryStatus,
    ) -> Result<(), ApiError> {
        if repository.status.as_ref() == Some(status) {
            return Ok(());
        }
        let changed = AddonRepository {
            status: Some(status.clone()),
            ..repository.clone()
        };
        let live = self.writer.replace_status(&changed).await?;
        self.world.observer.repository_status(repository, status);
        self.world.addons.repositories.observe(live);
        Ok(())
    }

    fn last(&self) -> MutexGuard<'_, HashMap<String, Last>> {
        // No code that can panic runs under the lock.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(not(debug_assertions))]
fn interval(text: Option<&str>) -> SignedDuration {
    schedule::interval(text)
}

/// As the spec says. Debug builds take another one for all repositories from `WINDLASS_ADDON_INTERVAL`, in
/// seconds, so that a test need not wait for hours.
#[cfg(debug_assertions)]
fn interval(text: Option<&str>) -> SignedDuration {
    let given = std::env::var("WINDLASS_ADDON_INTERVAL").ok();
    let given = given.and_then(|seconds| seconds.parse().ok());
    given.map_or_else(|| schedule::interval(text), SignedDuration::from_secs)
}
