//! What is in the members' namespaces, kept: what agents report, and what the hub has put there for them.

use std::fmt::Debug;
use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use windlass_api::pull::InternalMemberCluster;
use windlass_api::{Time, labels, names};
use windlass_cluster::{Cache, CacheOptions, Change, Index, ObjectKey, clock};

use super::work::{WorkMeta, parent_of, trim};
use crate::members::heard::{Heard, Moment};
use crate::members::status::MEMBER_AGENT;
use crate::world::Queues;

/// Index of Works: the placement and the cluster that they are of.
const BY_OWNER: &str = "owner";
/// The ClusterRole that lets its subjects past the guard rails, if these are installed.
pub const BYPASS_ROLE: &str = "windlass-guard-rails-bypass";

/// Heartbeats of an agent, by the hub's clock.
pub type Heartbeats = Heard<Option<Time>>;

/// See the module. Clones share everything.
#[derive(Clone)]
pub struct PullCaches {
    /// Works, trimmed.
    pub works: Cache<WorkMeta>,
    /// What agents are told, and report.
    pub internal: Cache<InternalMemberCluster>,
    /// The fleet's namespaces.
    pub namespaces: Cache<PartialObjectMeta<Namespace>>,
    /// Roles of agents.
    pub roles: Cache<Role>,
    /// Bindings of these Roles, and of the one past the guard rails.
    pub role_bindings: Cache<RoleBinding>,
    /// Whether guard rails are installed.
    pub guard_rails: Cache<PartialObjectMeta<ClusterRole>>,
    heard: Arc<DashMap<String, Heartbeats>>,
}

impl PullCaches {
    /// Starts the watches.
    #[must_use]
    pub fn start(client: &Client, queues: &Queues) -> Self {
        let all = watcher::Config::default;
        let ours = || all().labels(&format!("{}=true", labels::IS_FLEET_RESOURCE));
        let heard = Arc::default();
        let namespaces = Cache::start(
            "namespaces",
            Api::all(client.clone()),
            ours(),
            of_cluster(queues, |namespace: &PartialObjectMeta<Namespace>| {
                namespace.name_any()
            }),
        );
        Self {
            works: Cache::start(
                "works",
                Api::all(client.clone()),
                all(),
                work_options(queues),
            ),
            internal: Cache::start(
                "agents",
                Api::all(client.clone()),
                all(),
                internal_options(queues, Arc::clone(&heard)),
            ),
            roles: Cache::start(
                "roles",
                Api::all(client.clone()),
                ours(),
                of_cluster(queues, |role: &Role| role.namespace().unwrap_or_default()),
            ),
            role_bindings: Cache::start(
                "role bindings",
                Api::all(client.clone()),
                ours(),
                of_cluster(queues, |binding: &RoleBinding| {
                    binding.namespace().unwrap_or_default()
                }),
            ),
            guard_rails: Cache::start(
                "guard rails",
                Api::all(client.clone()),
                all().fields(&format!("metadata.name={BYPASS_ROLE}")),
                guard_rail_options(queues, &namespaces),
            ),
            namespaces,
            heard,
        }
    }

    /// Waits until every watch has delivered its first list.
    pub async fn wait_synced(&self) {
        futures::join!(
            self.works.wait_synced(),
            self.internal.wait_synced(),
            self.namespaces.wait_synced(),
            self.roles.wait_synced(),
            self.role_bindings.wait_synced(),
            self.guard_rails.wait_synced(),
        );
    }

    /// What is not listed yet, and why if that is known.
    pub fn unsynced(&self) -> impl Iterator<Item = (String, Option<String>)> {
        fn of<K>(name: &str, cache: &Cache<K>) -> Option<(String, Option<String>)>
        where
            K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        {
            (!cache.is_synced()).then(|| (name.to_owned(), cache.last_error()))
        }
        [
            of("works", &self.works),
            of("internal member clusters", &self.internal),
            of("members' namespaces", &self.namespaces),
            of("members' roles", &self.roles),
            of("members' role bindings", &self.role_bindings),
            of("guard rails", &self.guard_rails),
        ]
        .into_iter()
        .flatten()
    }

    /// Ends the watches.
    pub fn stop(&self) {
        self.works.stop();
        self.internal.stop();
        self.namespaces.stop();
        self.roles.stop();
        self.role_bindings.stop();
        self.guard_rails.stop();
    }

    /// Works of a placement for a cluster, by name.
    #[must_use]
    pub fn works_of(&self, cluster: &str, placement: &ObjectKey) -> Vec<Arc<WorkMeta>> {
        let member = names::member_namespace(cluster);
        self.works.by_index(BY_OWNER, &owner(&member, placement))
    }

    /// What a cluster's agent is told, and has reported.
    #[must_use]
    pub fn agent(&self, cluster: &str) -> Option<Arc<InternalMemberCluster>> {
        self.internal.get(&ObjectKey::namespaced(
            names::member_namespace(cluster),
            cluster,
        ))
    }

    /// When the cluster's agent was heard of.
    #[must_use]
    pub fn heard(&self, cluster: &str) -> Heartbeats {
        let heard = self.heard.get(cluster);
        heard.map(|heard| heard.clone()).unwrap_or_default()
    }

    /// What was heard of a cluster's agent does not count any more.
    pub fn forget(&self, cluster: &str) {
        self.heard.remove(cluster);
    }

    /// Whether guard rails are installed.
    #[must_use]
    pub fn has_guard_rails(&self) -> bool {
        !self.guard_rails.is_empty()
    }
}

/// Guard rails that come later need every agent to be let past them.
fn guard_rail_options(
    queues: &Queues,
    namespaces: &Cache<PartialObjectMeta<Namespace>>,
) -> CacheOptions<PartialObjectMeta<ClusterRole>> {
    let (queue, namespaces) = (queues.clusters.clone(), namespaces.clone());
    CacheOptions {
        on_change: Arc::new(move |change: &Change<PartialObjectMeta<ClusterRole>>| {
            for namespace in namespaces.list() {
                if let Some(cluster) = names::cluster_of_namespace(&namespace.name_any())
                    && !change.initial
                {
                    queue.add(cluster.to_owned());
                }
            }
        }),
        ..Default::default()
    }
}

fn owner(member_namespace: &str, placement: &ObjectKey) -> String {
    format!("{member_namespace}/{placement}")
}

fn work_options(queues: &Queues) -> CacheOptions<WorkMeta> {
    let queues = queues.clone();
    CacheOptions {
        indexes: vec![Index {
            name: BY_OWNER,
            values: |work| {
                let member = work.namespace().unwrap_or_default();
                vec![owner(&member, &parent_of(work))]
            },
        }],
        trim: Some(trim),
        on_change: Arc::new(move |change: &Change<WorkMeta>| {
            if let (Some(old), Some(new)) = (&change.old, &change.new)
                && says_the_same(old, new)
            {
                return;
            }
            let (old, new) = (change.old.as_deref(), change.new.as_deref());
            let mut told = None;
            for work in [new, old].into_iter().flatten() {
                let key = binding_of(work);
                if told != key
                    && let Some(key) = key.clone()
                {
                    enqueue(&queues, key, change.initial);
                }
                told = key;
            }
            // A cluster that leaves waits for its last Work.
            if new.is_none()
                && let Some(cluster) = names::cluster_of_namespace(&change.key.namespace)
            {
                queues.clusters.add(cluster.to_owned());
            }
        }),
    }
}

fn enqueue(queues: &Queues, binding: ObjectKey, initial: bool) {
    // What is there at the start is looked at for its binding's sake.
    if !initial {
        queues.bindings.add(binding);
    }
}

/// An agent that puts its finalizer on says nothing with that.
fn says_the_same(old: &WorkMeta, new: &WorkMeta) -> bool {
    old.status == new.status
        && old.metadata.generation == new.metadata.generation
        && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        && old.metadata.uid == new.metadata.uid
        && old.is_marked_as(new)
}

/// Key of the binding that a Work is of.
fn binding_of(work: &WorkMeta) -> Option<ObjectKey> {
    let name = work.told(labels::PARENT_BINDING)?;
    Some(ObjectKey::namespaced(parent_of(work).namespace, name))
}

fn internal_options(
    queues: &Queues,
    heard: Arc<DashMap<String, Heartbeats>>,
) -> CacheOptions<InternalMemberCluster> {
    let queue = queues.clusters.clone();
    CacheOptions {
        on_change: Arc::new(move |change: &Change<InternalMemberCluster>| {
            let Some(cluster) = names::cluster_of_namespace(&change.key.namespace) else {
                return;
            };
            // Its silence goes on when it is gone.
            if let Some(agent) = &change.new {
                let now = Moment {
                    instant: clock::monotonic(),
                    time: clock::now(),
                };
                let mut heard = heard.entry(cluster.to_owned()).or_default();
                heard.observe_report(heartbeat(agent), now);
            }
            if change.initial {
                queue.add_initial(cluster.to_owned());
            } else {
                queue.add(cluster.to_owned());
            }
        }),
        ..Default::default()
    }
}

fn heartbeat(agent: &InternalMemberCluster) -> Option<Time> {
    let agents = agent.status.as_ref()?.agent_status.as_deref()?;
    let agent = agents.iter().find(|agent| agent.type_ == MEMBER_AGENT)?;
    agent.last_received_heartbeat.clone()
}

/// Of what the hub has put into a member's namespace: whatever happens to it is looked at.
fn of_cluster<K: Resource + 'static>(
    queues: &Queues,
    namespace: impl Fn(&K) -> String + Send + Sync + 'static,
) -> CacheOptions<K> {
    let queue = queues.clusters.clone();
    CacheOptions {
        on_change: Arc::new(move |change: &Change<K>| {
            let object = change.new.as_deref().or(change.old.as_deref());
            let namespace = object.map(&namespace).unwrap_or_default();
            if !change.initial
                && let Some(cluster) = names::cluster_of_namespace(&namespace)
            {
                queue.add(cluster.to_owned());
            }
        }),
        ..Default::default()
    }
}
