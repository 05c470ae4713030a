//! Staged update runs and their approval requests, as the hub knows them. A change is the affair of the
//! placement that a run is about: its actor decides on both.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::{Client, ResourceExt};
use windlass_api::names;
use windlass_api::run::{ClusterStatus, ClusterVersion};
use windlass_api::scoped::{ApprovalRequest, UpdateRun};
use windlass_cluster::{CacheOptions, Change, Index, ObjectKey};
use windlass_rollout::run::{holder, is_initialized, is_over};

use crate::observe::Observer;
use crate::overrides::parent_of_named;
use crate::scoped::ScopedCache;
use crate::world::{BY_OVERRIDE, BY_PLACEMENT, Queues, enqueue};

/// Index of approval requests: the run that asks.
const BY_RUN: &str = "run";

/// See the module. Clones share everything.
#[derive(Clone)]
pub struct Runs {
    runs: ScopedCache<UpdateRun>,
    requests: ScopedCache<ApprovalRequest>,
}

impl Runs {
    /// Starts the watches.
    #[must_use]
    pub fn start(client: &Client, queues: &Queues, observer: &Observer) -> Self {
        let runs = ScopedCache::start("update runs", client, || run_options(queues, observer));
        let requests = {
            let of = runs.clone();
            ScopedCache::start("approval requests", client, || {
                request_options(queues, of.clone())
            })
        };
        Self { runs, requests }
    }

    /// Waits for both lists.
    pub async fn wait_synced(&self) {
        futures::join!(self.runs.wait_synced(), self.requests.wait_synced());
    }

    /// Which of them have not been delivered, and why.
    pub fn unsynced(&self) -> impl Iterator<Item = (String, Option<String>)> {
        self.runs.unsynced().chain(self.requests.unsynced())
    }

    /// Ends the watches.
    pub fn stop(&self) {
        self.runs.stop();
        self.requests.stop();
    }

    /// The runs of a placement.
    #[must_use]
    pub fn of(&self, placement: &ObjectKey) -> Vec<Arc<UpdateRun>> {
        self.runs.under(BY_PLACEMENT, placement)
    }

    /// Those that something may still become of.
    #[must_use]
    pub fn open(&self, placement: &ObjectKey) -> Vec<Arc<UpdateRun>> {
        let mut runs = self.of(placement);
        runs.retain(|run| run.metadata.deletion_timestamp.is_none() && !is_over(run));
        runs.sort_by_key(|run| run.name_any());
        runs
    }

    /// Name of the run that rolls out a placement at present.
    #[must_use]
    pub fn rolling(&self, placement: &ObjectKey) -> Option<String> {
        let open = self.open(placement);
        let refs: Vec<&UpdateRun> = open.iter().map(|run| &**run).collect();
        holder(&refs).map(ResourceExt::name_any)
    }

    /// The approval requests that name a run.
    #[must_use]
    pub fn requests_of(&self, run: &ObjectKey) -> Vec<Arc<ApprovalRequest>> {
        self.requests.under(BY_RUN, run)
    }

    /// The approval requests that a run looks at: those that name it, and those of the names that it asks
    /// under, whosever they are.
    #[must_use]
    pub fn requests_for(&self, run: &UpdateRun) -> Vec<Arc<ApprovalRequest>> {
        let mut requests = self.requests_of(&ObjectKey::of(run));
        let stages = run
            .status
            .iter()
            .flat_map(|status| status.stages_status.iter().flatten());
        let tasks = stages.flat_map(|stage| {
            let before = stage.before_stage_task_status.iter().flatten();
            before.chain(stage.after_stage_task_status.iter().flatten())
        });
        let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
        for name in tasks.filter_map(|task| task.approval_request_name.as_ref()) {
            let is_known = |known: &Arc<ApprovalRequest>| known.name_any() == *name;
            if !requests.iter().any(is_known) {
                requests.extend(self.requests.get(&ObjectKey::namespaced(namespace, name)));
            }
        }
        requests
    }

    /// Whether a run is to be initialized with the latest content: that isn't gathered for it any longer.
    #[must_use]
    pub fn want_latest(&self, placement: &ObjectKey) -> bool {
        let mut open = self.open(placement).into_iter();
        open.any(|run| {
            !is_initialized(&run)
                && run
                    .spec
                    .resource_snapshot_index
                    .as_deref()
                    .is_none_or(str::is_empty)
        })
    }

    /// Names of the resource snapshots that a run of the placement needs: the one that it brings, and those
    /// that clusters may go back to.
    #[must_use]
    pub fn pinned(&self, placement: &ObjectKey) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for run in self.open(placement) {
            let status = run.status.as_ref();
            let index = status
                .and_then(|status| status.resource_snapshot_index_used.as_ref())
                .or(run.spec.resource_snapshot_index.as_ref());
            if let Some(index) = index.and_then(|text| text.parse().ok()) {
                names.insert(names::master_snapshot(&placement.name, index));
            }
            for version in clusters(&run).filter_map(|cluster| cluster.previous.as_ref()) {
                names.extend(version.resource_snapshot_name.clone());
            }
        }
        names
    }

    /// Whether an open run names that override snapshot.
    #[must_use]
    pub fn name_override(&self, snapshot: &ObjectKey) -> bool {
        !self
            .runs
            .by_index(BY_OVERRIDE, &snapshot.to_string())
            .is_empty()
    }

    /// See `Cache::observe`.
    pub fn observe(&self, run: UpdateRun) {
        self.runs.observe(run);
    }

    /// As [`Self::observe`].
    pub fn observe_request(&self, request: ApprovalRequest) {
        self.requests.observe(request);
    }

    /// See `Cache::observe_deleted`.
    pub fn observe_request_deleted(&self, request: &ApprovalRequest) {
        self.requests.observe_deleted(request);
    }
}

/// The placement that a run is about: of the same namespace, if it lives in one.
#[must_use]
pub fn placement_of(run: &UpdateRun) -> ObjectKey {
    let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
    ObjectKey::namespaced(namespace, &run.spec.placement_name)
}

/// The run that a request belongs to.
fn run_of(request: &ApprovalRequest) -> ObjectKey {
    let namespace = request.metadata.namespace.as_deref().unwrap_or_default();
    ObjectKey::namespaced(namespace, &request.spec.parent_stage_rollout)
}

fn clusters(run: &UpdateRun) -> impl Iterator<Item = &ClusterStatus> {
    let status = run.status.iter();
    status
        .flat_map(|status| status.stages_status.iter().flatten())
        .flat_map(|stage| &stage.clusters)
}

/// The override snapshots that a run that is not over needs.
fn overrides_of(run: &UpdateRun) -> BTreeSet<ObjectKey> {
    let mut keys = BTreeSet::new();
    if is_over(run) {
        return keys;
    }
    for cluster in clusters(run) {
        let now = ClusterVersion {
            resource_override_snapshots: cluster.resource_override_snapshots.clone(),
            cluster_resource_override_snapshots: cluster
                .cluster_resource_override_snapshots
                .clone(),
            ..ClusterVersion::default()
        };
        for version in [Some(&now), cluster.previous.as_ref()]
            .into_iter()
            .flatten()
        {
            let namespaced = version.resource_override_snapshots.iter().flatten();
            keys.extend(namespaced.map(|name| ObjectKey::namespaced(&name.namespace, &name.name)));
            let cluster = version.cluster_resource_override_snapshots.iter().flatten();
            keys.extend(cluster.map(ObjectKey::cluster));
        }
    }
    keys
}

fn run_options(queues: &Queues, observer: &Observer) -> CacheOptions<UpdateRun> {
    let (queues, observer) = (queues.clone(), observer.clone());
    CacheOptions {
        indexes: vec![
            Index {
                name: BY_PLACEMENT,
                values: |run| vec![placement_of(run).to_string()],
            },
            Index {
                name: BY_OVERRIDE,
                values: |run| overrides_of(run).iter().map(ObjectKey::to_string).collect(),
            },
        ],
        on_change: Arc::new(move |change: &Change<UpdateRun>| {
            observer.run_changed(change);
            // The name of the placement does not change, but a run may be another one of the same name.
            let of = [&change.old, &change.new].into_iter().flatten();
            let placements: BTreeSet<ObjectKey> = of.map(|run| placement_of(run)).collect();
            for placement in placements {
                enqueue(&queues.placements, placement, change.initial);
            }
            let needs =
                |run: &Option<Arc<UpdateRun>>| run.as_deref().map(overrides_of).unwrap_or_default();
            // What nobody needs any more may go.
            if change.new.as_deref().is_none_or(is_over) {
                for snapshot in needs(&change.old) {
                    parent_of_named(&snapshot)
                        .into_iter()
                        .for_each(|parent| queues.overrides.add(parent));
                }
            }
        }),
        ..CacheOptions::default()
    }
}

fn request_options(queues: &Queues, runs: ScopedCache<UpdateRun>) -> CacheOptions<ApprovalRequest> {
    let queue = queues.placements.clone();
    CacheOptions {
        indexes: vec![Index {
            name: BY_RUN,
            values: |request| vec![run_of(request).to_string()],
        }],
        on_change: Arc::new(move |change: &Change<ApprovalRequest>| {
            let request = change.new.as_deref().or(change.old.as_deref());
            // A run that comes later enqueues its placement itself.
            if let Some(run) = request.and_then(|request| runs.get(&run_of(request))) {
                enqueue(&queue, placement_of(&run), change.initial);
            }
        }),
        ..CacheOptions::default()
    }
}
