//! Evictions and disruption budgets as they are now. What comes of them is decided where everything else
//! about their placement is (`placement::evict`).

use std::sync::Arc;

use kube::runtime::watcher;
use kube::{Api, Client};
use windlass_api::eviction::{
    ClusterResourcePlacementDisruptionBudget, ClusterResourcePlacementEviction,
};
use windlass_cluster::{Cache, CacheOptions, Change, Index, ObjectKey};
use windlass_rollout::is_over;

use crate::observe::Observer;
use crate::world::{BY_PLACEMENT, Queues, enqueue};

/// See the module. Clones share everything.
#[derive(Clone)]
pub struct Evictions {
    /// Evictions.
    pub all: Cache<ClusterResourcePlacementEviction>,
    /// Disruption budgets; each has the name of its placement.
    pub budgets: Cache<ClusterResourcePlacementDisruptionBudget>,
}

impl Evictions {
    /// Starts the watches.
    #[must_use]
    pub fn start(client: &Client, queues: &Queues, observer: &Observer) -> Self {
        let all = watcher::Config::default;
        let evictions = Cache::start(
            "evictions",
            Api::all(client.clone()),
            all(),
            eviction_options(queues, observer),
        );
        Self {
            budgets: Cache::start(
                "disruption budgets",
                Api::all(client.clone()),
                all(),
                budget_options(queues, evictions.clone()),
            ),
            all: evictions,
        }
    }

    /// Every eviction from a placement; none if it lives in a namespace.
    #[must_use]
    pub fn of(&self, placement: &ObjectKey) -> Vec<Arc<ClusterResourcePlacementEviction>> {
        if !placement.namespace.is_empty() {
            return Vec::new();
        }
        self.all.by_index(BY_PLACEMENT, &placement.name)
    }

    /// Waits until both have their first list.
    pub async fn wait_synced(&self) {
        self.all.wait_synced().await;
        self.budgets.wait_synced().await;
    }

    /// Which watches have not delivered their first list, and why.
    pub fn unsynced(&self) -> impl Iterator<Item = (String, Option<String>)> {
        let evictions =
            (!self.all.is_synced()).then(|| ("evictions".to_owned(), self.all.last_error()));
        let budgets = (!self.budgets.is_synced())
            .then(|| ("disruption budgets".to_owned(), self.budgets.last_error()));
        evictions.into_iter().chain(budgets)
    }

    /// Ends the watches.
    pub fn stop(&self) {
        self.all.stop();
        self.budgets.stop();
    }
}

/// An eviction that is not over is the affair of the placement that it names, also of one that there is not.
fn eviction_options(
    queues: &Queues,
    observer: &Observer,
) -> CacheOptions<ClusterResourcePlacementEviction> {
    let (queue, observer) = (queues.placements.clone(), observer.clone());
    CacheOptions {
        indexes: vec![Index {
            name: BY_PLACEMENT,
            values: |eviction| vec![eviction.spec.placement_name.clone()],
        }],
        on_change: Arc::new(move |change: &Change<ClusterResourcePlacementEviction>| {
            observer.eviction_changed(change);
            if let Some(new) = change.new.as_deref().filter(|new| !is_over(new)) {
                let placement = ObjectKey::cluster(&new.spec.placement_name);
                enqueue(&queue, placement, change.initial);
            }
        }),
        ..Default::default()
    }
}

/// A budget matters to evictions that wait.
fn budget_options(
    queues: &Queues,
    evictions: Cache<ClusterResourcePlacementEviction>,
) -> CacheOptions<ClusterResourcePlacementDisruptionBudget> {
    let queue = queues.placements.clone();
    CacheOptions {
        on_change: Arc::new(move |change| {
            let name = &change.key.name;
            let of = evictions.by_index(BY_PLACEMENT, name);
            if of.iter().any(|eviction| !is_over(eviction)) {
                enqueue(&queue, ObjectKey::cluster(name), change.initial);
            }
        }),
        ..Default::default()
    }
}
