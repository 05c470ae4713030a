//! The actor of a repository: decides whether it is read now, reads it, writes what it offers, and then its
//! status. A death in between is a reading that was not made: the AddonCharts that are written stay true, and
//! the next reading is due as before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use windlass_addons::evaluate::{
    Attempt, Credentials, Decision, Found, Inputs, Internal, evaluate,
};
use windlass_addons::helm::Validators;
use windlass_addons::source::SecretData;
use windlass_addons::{Failure, Fault, Reading, Source, schedule};
use windlass_api::addon::{AddonRepository, RepositoryStatus, SecretReference};
use windlass_api::catalogue::InUse;
use windlass_api::{labels, names};
use windlass_cluster::{ApiError, ObjectKey, Writer, clock};
use windlass_status::Digest;

use super::{AddonCaches, catalogue};
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
    validators: Validators,
}

/// What a repository's spec and Secrets come to.
struct Look {
    source: Option<Source>,
    config: Option<(Fault, String)>,
    credentials: Credentials,
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
            return Ok(Next::Event);
        };
        let look = self.look(&repository).await?;
        let current = repository.status.clone().unwrap_or_default();
        let request = repository.annotations().get(labels::SYNC_REQUESTED_AT);
        let mut inputs = Inputs {
            generation: repository.metadata.generation.unwrap_or_default(),
            now: clock::now(),
            jitter: jitter(),
            interval: schedule::interval(repository.spec.interval.as_deref()),
            current: &current,
            spec_digest: look.source.as_ref().map(|source| source.digest),
            config: look.config,
            credentials: look.credentials,
            internal: Internal::None,
            suspended: repository.spec.suspend == Some(true),
            sync_request: request.map(String::as_str),
            attempt: Attempt::None,
        };
        let wanted = caches.take_wanted(name) && inputs.can_attempt();
        if let Some(source) = look.source.filter(|_| wanted || inputs.should_attempt()) {
            inputs.attempt = self.attempt(&repository, &source).await;
            inputs.now = clock::now();
        }
        let unwritten = matches!(&inputs.attempt, Attempt::Read { catalogue: Err(_), .. });
        let Decision {
            status,
            requeue_after,
        } = evaluate(&inputs);
        self.write(&repository, &status).await?;
        Ok(match requeue_after {
            _ if unwritten => Next::Backoff(None),
            Some(delay) => Next::After(compressed(delay).unsigned_abs()),
            None => Next::Event,
        })
    }

    /// What the spec and the Secrets come to. A Secret that can't be read for a reason that passes is an error:
    /// it says nothing about the repository.
    async fn look(&self, repository: &AddonRepository) -> Result<Look, ApiError> {
        let spec = &repository.spec;
        let references = [&spec.secret_ref, &spec.cert_secret_ref];
        let named = references.iter().any(|reference| reference.is_some());
        let mut found = [None, None];
        for (reference, found) in references.into_iter().zip(&mut found) {
            let Some(SecretReference { name }) = reference else {
                continue;
            };
            *found = self.secret(name).await?;
            if found.is_none() {
                let message = format!(
                    "Secret {name} is not in namespace {}; create it, or name another one",
                    names::HUB_NAMESPACE
                );
                return Ok(Look {
                    source: None,
                    config: None,
                    credentials: Credentials::NotReady(message),
                });
            }
        }
        let [credentials, certificates] = &found;
        let look = match Source::of(spec, credentials.as_ref(), certificates.as_ref()) {
            Ok(source) => Look {
                source: Some(source),
                config: None,
                credentials: if named { Credentials::Ready } else { Credentials::None },
            },
            Err(failure) => {
                let message = failure.to_string();
                let (config, credentials) = match failure.fault() {
                    Some(Fault::InvalidCredentials) | None => (None, Credentials::NotReady(message)),
                    Some(fault) => (Some((fault, message)), Credentials::None),
                };
                Look {
                    source: None,
                    config,
                    credentials,
                }
            }
        };
        Ok(look)
    }

    async fn secret(&self, name: &str) -> Result<Option<SecretData>, ApiError> {
        let key = ObjectKey::namespaced(names::HUB_NAMESPACE, name);
        if self.world.addons.secrets.get(&key).is_none() {
            return Ok(None);
        }
        let read = self.writer.get::<Secret>(Some(names::HUB_NAMESPACE), name);
        let data = read.await?.map(|secret| secret.data.unwrap_or_default());
        Ok(data.map(|data| data.into_iter().map(|(key, value)| (key, value.0)).collect()))
    }

    /// Reads the repository and writes what it offers.
    async fn attempt(&self, repository: &AddonRepository, source: &Source) -> Attempt {
        let caches = &self.world.addons;
        let name = repository.name_any();
        let in_use = caches.in_use(&name);
        let last = self.last().get(&name).cloned();
        // What the AddonCharts should say is known no more if any of these is not as it was.
        let known = last.filter(|last| {
            last.source == source.digest
                && last.in_use == in_use
                && last.charts == catalogue::digest(caches, &name)
        });
        let validators = known.as_ref().map(|known| &known.validators);
        let reading = windlass_addons::read(source, &in_use, validators, &catalogue::known(caches, &name)).await;
        let (catalogue, validators) = match reading {
            Err(failure) => {
                told(&failure);
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
                ..
            }) => (catalogue, validators),
        };
        let found = Some(Found {
            charts: catalogue.charts.len(),
            skipped: catalogue.skipped,
        });
        let written = catalogue::write(caches, &self.writer, repository, &catalogue, &in_use).await;
        match written {
            Ok(()) => {
                let charts = catalogue::digest(caches, &name);
                let last = Last {
                    source: source.digest,
                    in_use,
                    charts,
                    validators,
                };
                self.last().insert(name, last);
                Attempt::Read {
                    found,
                    catalogue: Ok(()),
                }
            }
            Err(error) => {
                self.last().remove(&name);
                let message = format!("The AddonCharts could not all be written: {}", error.message());
                Attempt::Read {
                    found,
                    catalogue: Err(message),
                }
            }
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
