//! The hub's picture of the world: caches over watches, with the indexes that the actors look things up by.
//!
//! Bindings are kept whole, for they are the durable state and the truth about clusters. Resource
//! snapshots are kept as metadata: their content may be hundreds of KiB each, and only that of snapshots
//! that some binding names is ever needed ([`crate::contents`]). Who is woken by what is in [`wake`].

mod wake;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use windlass_api::member::MemberCluster;
use windlass_api::scoped::{Binding, Placement, PolicySnapshot};
use windlass_api::status_copy::ClusterResourcePlacementStatus;
use windlass_api::{labels, names};
use windlass_cluster::{Cache, ObjectKey, Queue};

use crate::addons::AddonCaches;
use crate::evictions::Evictions;
use crate::observe::Observer;
use crate::overrides::Overrides;
use crate::pace::Pace;
use crate::placement::snapshots::{Groups, SnapshotMeta};
use crate::pull::PullCaches;
use crate::scoped::ScopedCache;
use crate::update_runs::Runs;

pub(crate) use self::wake::enqueue;
use self::wake::{
    binding_options, cluster_options, copy_options, owned_options, placement_options,
    secret_options, target,
};

/// Index of bindings, snapshots and policies: the placement that they belong to.
pub const BY_PLACEMENT: &str = "placement";
/// Index of status copies: their name, which is the placement's.
pub const BY_NAME: &str = "name";
/// Index of bindings: their cluster.
pub const BY_CLUSTER: &str = "cluster";
/// Index of bindings by what `target` makes of placement and cluster: at most a few under each.
pub(crate) const BY_TARGET: &str = "target";
/// Index of bindings: the override snapshots that they name.
pub const BY_OVERRIDE: &str = "override";

/// Which placements, bindings and clusters have to be looked at.
#[derive(Clone, Default)]
pub struct Queues {
    /// Placements.
    pub placements: Queue<ObjectKey>,
    /// Bindings, for delivery.
    pub bindings: Queue<ObjectKey>,
    /// Names of member clusters.
    pub clusters: Queue<String>,
    /// Overrides; those without a namespace are ClusterResourceOverrides.
    pub overrides: Queue<ObjectKey>,
    /// Names of add-on repositories.
    pub repositories: Queue<String>,
    /// Names of Addons.
    pub addons: Queue<String>,
    /// How often placements are looked at.
    pub(crate) pace: Pace,
}

/// See the module. Clones share everything.
#[derive(Clone)]
pub struct World {
    /// Placements.
    pub placements: ScopedCache<Placement>,
    /// Policy snapshots.
    pub policies: ScopedCache<PolicySnapshot>,
    /// Metadata of resource snapshots.
    pub snapshots: ScopedCache<SnapshotMeta>,
    /// Bindings.
    pub bindings: ScopedCache<Binding>,
    /// Copies of placements' statuses in the namespaces that they select.
    pub copies: Cache<ClusterResourcePlacementStatus>,
    /// Member clusters.
    pub clusters: Cache<MemberCluster>,
    /// Credentials of member clusters.
    pub secrets: Cache<Secret>,
    /// What is in the members' namespaces.
    pub pull: PullCaches,
    /// Overrides and their snapshots.
    pub overrides: Overrides,
    /// Update runs and their approval requests.
    pub runs: Runs,
    /// Evictions and disruption budgets.
    pub evictions: Evictions,
    /// Add-on repositories, what they offer, and what is placed of it.
    pub addons: AddonCaches,
    /// What has to be looked at.
    pub queues: Queues,
    /// Who shows it to the outside.
    pub observer: Observer,
}

impl World {
    /// Starts the watches. Wait for [`Self::wait_synced`] before deciding anything.
    #[must_use]
    pub fn start(client: &Client, queues: Queues, observer: Observer) -> Self {
        let all = watcher::Config::default;
        let addons = AddonCaches::start(client, &queues, &observer);
        let bindings =
            ScopedCache::start("bindings", client, || binding_options(&queues, &observer));
        let placements = ScopedCache::start("placements", client, || {
            placement_options(&queues, &observer, bindings.clone(), addons.clone())
        });
        let clusters = {
            let options = cluster_options(&queues, &observer, placements.clone(), bindings.clone());
            Cache::start("clusters", Api::all(client.clone()), all(), options)
        };
        Self {
            overrides: Overrides::start(client, &queues, &bindings),
            runs: Runs::start(client, &queues, &observer),
            evictions: Evictions::start(client, &queues, &observer),
            addons,
            policies: ScopedCache::start("policies", client, || owned_options(&queues)),
            snapshots: ScopedCache::start("snapshots", client, || owned_options(&queues)),
            secrets: Cache::start(
                "credentials",
                Api::namespaced(client.clone(), names::HUB_NAMESPACE),
                all().labels(labels::CREDENTIALS_CLUSTER),
                secret_options(&queues),
            ),
            copies: Cache::start(
                "status copies",
                Api::all(client.clone()),
                all(),
                copy_options(&queues),
            ),
            placements,
            bindings,
            clusters,
            pull: PullCaches::start(client, &queues),
            queues,
            observer,
        }
    }

    /// Waits until every watch has delivered its first list: before that, absence means nothing.
    pub async fn wait_synced(&self) {
        futures::join!(
            self.placements.wait_synced(),
            self.policies.wait_synced(),
            self.snapshots.wait_synced(),
            self.bindings.wait_synced(),
            self.copies.wait_synced(),
            self.clusters.wait_synced(),
            self.secrets.wait_synced(),
            self.pull.wait_synced(),
            self.overrides.wait_synced(),
            self.runs.wait_synced(),
            self.evictions.wait_synced(),
            self.addons.wait_synced(),
        );
    }

    /// Which watches have not delivered their first list, and why.
    pub fn unsynced(&self) -> Vec<String> {
        let copies = (!self.copies.is_synced())
            .then(|| ("status copies".to_owned(), self.copies.last_error()));
        let clusters = (!self.clusters.is_synced())
            .then(|| ("member clusters".to_owned(), self.clusters.last_error()));
        let secrets = (!self.secrets.is_synced())
            .then(|| ("credentials".to_owned(), self.secrets.last_error()));
        self.placements
            .unsynced()
            .chain(self.policies.unsynced())
            .chain(self.snapshots.unsynced())
            .chain(self.bindings.unsynced())
            .chain(copies)
            .chain(clusters)
            .chain(secrets)
            .chain(self.pull.unsynced())
            .chain(self.overrides.unsynced())
            .chain(self.runs.unsynced())
            .chain(self.evictions.unsynced())
            .chain(self.addons.unsynced())
            .map(|(name, error)| match error {
                Some(error) => format!("{name}: {error}"),
                None => format!("{name}: not listed yet"),
            })
            .collect()
    }

    /// Bindings of a placement, by name.
    #[must_use]
    pub fn bindings_of(&self, placement: &ObjectKey) -> Vec<Arc<Binding>> {
        self.bindings.under(BY_PLACEMENT, placement)
    }

    /// Bindings of a placement to one cluster: those of a large fleet are not looked through.
    #[must_use]
    pub fn bindings_to(&self, placement: &ObjectKey, cluster: &str) -> Vec<Arc<Binding>> {
        self.bindings
            .by_index(BY_TARGET, &target(placement, cluster))
    }

    /// The snapshot groups of a placement.
    #[must_use]
    pub fn groups_of(&self, placement: &ObjectKey) -> Groups {
        Groups::of(&self.snapshots.under(BY_PLACEMENT, placement))
    }

    /// Ends the watches.
    pub fn stop(&self) {
        self.placements.stop();
        self.policies.stop();
        self.snapshots.stop();
        self.bindings.stop();
        self.copies.stop();
        self.clusters.stop();
        self.secrets.stop();
        self.pull.stop();
        self.overrides.stop();
        self.runs.stop();
        self.evictions.stop();
        self.addons.stop();
    }
}

/// The placement that a binding or snapshot belongs to: of the same namespace, if it lives in one.
#[must_use]
pub fn placement_of<K: kube::Resource>(object: &K) -> Option<ObjectKey> {
    let name = object.labels().get(labels::PARENT_PLACEMENT)?;
    let namespace = object.meta().namespace.as_deref().unwrap_or_default();
    Some(ObjectKey::namespaced(namespace, name))
}
