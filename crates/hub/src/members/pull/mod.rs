//! Member clusters in pull mode: what an agent needs on the hub is put there, and what it reports is read.
//!
//! A join costs five writes of objects and one of the status: ReadyToJoin alone is written only when the
//! agent takes its time.

pub mod leave;
mod namespace;
pub mod objects;
pub mod status;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::core::PartialObjectMetaExt;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_api::member::MemberCluster;
use windlass_api::pull::{InternalMemberCluster, MembershipState};
use windlass_cluster::clock::{self, Instant};
use windlass_cluster::{ApiError, Cache, ObjectKey};

use self::status::Facts;
use super::Members;
use super::facts::KnownSince;
use super::heard::Verdict;
use crate::observe::{Skipped, skipped};
use crate::worker::Next;

/// How long an agent may take until its cluster is said to be merely ready to join.
const ARRIVAL: Duration = Duration::from_secs(2);
/// Missed heartbeats after which an agent is silent.
const MISSED: u32 = 3;

/// What is kept of a cluster with an agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agent {
    /// Since when the agent is waited for.
    known_since: KnownSince,
    /// Whether it has been silent for too long.
    silent: bool,
    /// Since when nothing has come of what it was told of its leaving, and how many Works it had then.
    told: Option<(Instant, usize)>,
}

impl Members {
    /// One look at a cluster in pull mode.
    pub(super) async fn process_pull(&self, cluster: Arc<MemberCluster>) -> Result<Next, ApiError> {
        let name = cluster.name_any();
        if self.changes_to(&cluster).is_none() && self.disconnect(&name).is_some() {
            self.forget_series(&name);
        }
        if !self.writer.gate().is_open() {
            let (_, check) = self.listen(&name, &cluster);
            return Ok(Next::After(check));
        }
        if cluster.metadata.deletion_timestamp.is_some() {
            return self.leave_pull(&cluster).await;
        }
        let cluster = &*self.ensure_marks(cluster).await?;
        let not_ready = match self.prepare(cluster).await {
            Ok(waits) => waits,
            Err(ApiError::Rejected(why)) => Some(format!(
                "The hub can't prepare for the cluster's agent: {why}"
            )),
            Err(error) => return Err(error),
        };
        let (silent, check) = self.listen(&name, cluster);
        let internal = self.world.pull.agent(&name);
        let report = internal.as_deref().and_then(|agent| agent.status.as_ref());
        let agent = self.agent(&name);
        let now = clock::monotonic();
        let waited = now.saturating_duration_since(agent.known_since.moment.instant);
        if report.is_none() && not_ready.is_none() && waited < ARRIVAL && cluster.status.is_none() {
            return Ok(Next::After(ARRIVAL.saturating_sub(waited)));
        }
        let retry = not_ready.is_some();
        let heartbeat_every = self.heartbeat_every(cluster);
        let facts = Facts {
            report,
            told: internal
                .as_deref()
                .and_then(|agent| agent.metadata.generation),
            not_ready,
            heard: self.world.pull.heard(&name).at().map(|heard| heard.time),
            silent,
            heartbeat_every,
            is_settled: agent.known_since.is_settled(now, heartbeat_every),
        };
        match status::desired(cluster, &facts, clock::now()) {
            Some(status) => {
                self.put_status(cluster, status).await?;
            }
            None => skipped(Skipped::Cluster),
        }
        Ok(if retry {
            Next::Backoff(None)
        } else {
            Next::After(check)
        })
    }

    /// Puts everything there that the agent needs. None when it is; otherwise what that waits for.
    pub(super) async fn prepare(
        &self,
        cluster: &MemberCluster,
    ) -> Result<Option<String>, ApiError> {
        let name = cluster.name_any();
        let pull = &self.world.pull;
        if let Some(waits) = self.await_namespace(cluster).await? {
            return Ok(Some(waits));
        }
        self.ensure_namespace(cluster).await?;
        self.ensure(
            &pull.roles,
            objects::role(cluster),
            |live, wanted: &Role| {
                std::mem::replace(&mut live.rules, wanted.rules.clone()) != wanted.rules
            },
        )
        .await?;
        self.ensure_bound(objects::role_binding(cluster)).await?;
        if pull.has_guard_rails() {
            self.ensure_bound(objects::bypass(cluster)).await?;
        }
        let known = pull.agent(&name).is_some();
        self.ensure(
            &pull.internal,
            objects::internal(cluster, MembershipState::Join),
            |live, wanted: &InternalMemberCluster| {
                std::mem::replace(&mut live.spec, wanted.spec.clone()) != wanted.spec
            },
        )
        .await?;
        if !known {
            // Works can be written from now on.
            self.wake(&name);
        }
        Ok(None)
    }

    async fn ensure_namespace(&self, cluster: &MemberCluster) -> Result<(), ApiError> {
        let cache = &self.world.pull.namespaces;
        let wanted = objects::namespace(cluster);
        if let Some(live) = cache.get(&ObjectKey::of(&wanted))
            && objects::is_marked(&live.metadata, &wanted.metadata)
        {
            return Ok(());
        }
        let live = match self.writer.create(&wanted).await {
            Err(ApiError::AlreadyExists(_)) => {
                let name = wanted.name_any();
                let found = self.writer.get::<Namespace>(None, &name).await?;
                let Some(mut live) = found else {
                    return Err(ApiError::transient("the namespace has just gone"));
                };
                objects::mark(&mut live.metadata, &wanted.metadata);
                self.writer.replace(&live).await?
            }
            other => other?,
        };
        cache.observe(live.metadata.into_response_partial());
        Ok(())
    }

    /// As [`Self::ensure`]; one of another role is made anew, since a binding's role can't be changed.
    async fn ensure_bound(&self, wanted: RoleBinding) -> Result<(), ApiError> {
        let cache = &self.world.pull.role_bindings;
        let live = match cache.get(&ObjectKey::of(&wanted)) {
            Some(live) => Some((*live).clone()),
            None => match self.writer.create(&wanted).await {
                // Without our label, which the cache goes by.
                Err(ApiError::AlreadyExists(_)) => {
                    let namespace = wanted.namespace();
                    let name = wanted.name_any();
                    self.writer.get(namespace.as_deref(), &name).await?
                }
                made => {
                    cache.observe(made?);
                    return Ok(());
                }
            },
        };
        if let Some(live) = live.filter(|live| objects::is_of_another_role(live, &wanted)) {
            self.writer.delete(&live).await?;
            cache.observe_deleted(&live);
        }
        self.ensure(cache, wanted, |live, wanted: &RoleBinding| {
            std::mem::replace(&mut live.subjects, wanted.subjects.clone()) != wanted.subjects
        })
        .await
    }

    /// Creates an object, or brings it up to date; `edit` does and tells whether that changes anything.
    async fn ensure<K>(
        &self,
        cache: &Cache<K>,
        wanted: K,
        edit: impl Fn(&mut K, &K) -> bool,
    ) -> Result<(), ApiError>
    where
        K: Resource<DynamicType = ()>
            + Serialize
            + DeserializeOwned
            + Clone
            + std::fmt::Debug
            + Send
            + Sync
            + 'static,
    {
        let mut live = match cache.get(&ObjectKey::of(&wanted)) {
            Some(live) => live,
            None => match self.writer.create(&wanted).await {
                Err(ApiError::AlreadyExists(_)) => {
                    let namespace = wanted.namespace();
                    let found = self
                        .writer
                        .get::<K>(namespace.as_deref(), &wanted.name_any())
                        .await?;
                    Arc::new(found.ok_or_else(|| ApiError::transient("it has just gone"))?)
                }
                Ok(live) => {
                    cache.observe(live);
                    return Ok(());
                }
                Err(error) => return Err(error),
            },
        };
        let next = Arc::make_mut(&mut live);
        let marked = objects::is_marked(next.meta(), wanted.meta());
        if !marked {
            objects::mark(next.meta_mut(), wanted.meta());
        }
        if edit(next, &wanted) || !marked {
            let live = self.writer.replace(next).await?;
            cache.observe(live);
        }
        Ok(())
    }

    fn agent(&self, name: &str) -> Agent {
        *self.agents.entry(name.to_owned()).or_insert_with(|| Agent {
            known_since: KnownSince::now(),
            silent: false,
            told: None,
        })
    }

    /// For how long at least an agent has been silent, if that is too long; and when to ask again.
    pub(super) fn listen(
        &self,
        name: &str,
        cluster: &MemberCluster,
    ) -> (Option<Duration>, Duration) {
        let (mut heard, now) = (self.world.pull.heard(name), clock::monotonic());
        if status::has_reported(cluster) {
            // What it reported may have gone before this process began.
            heard.expect(None, self.agent(name).known_since.moment);
        }
        let period = Duration::from_secs(objects::period(cluster).unsigned_abs().into());
        let limit = self.policy.unhealthy_threshold.max(period * MISSED);
        let silent = heard.verdict(now, limit) == Verdict::Silent;
        if silent != self.agent(name).silent {
            if let Some(mut entry) = self.agents.get_mut(name) {
                entry.silent = silent;
            }
            self.wake(name);
        }
        self.healthy
            .with_label_values(&[name])
            .set(i64::from(!silent));
        // A moment more, so that the limit is over by then.
        let check = heard.until_silent(now, limit).unwrap_or(period) + Duration::from_millis(10);
        (silent.then_some(limit), check)
    }

    /// Whether a cluster's agent has stopped reporting.
    pub(crate) fn is_silent(&self, name: &str) -> bool {
        self.agents.get(name).is_some_and(|agent| agent.silent)
    }
}
