//! The hub's picture of the world: caches over watches, with the indexes that the actors look things up by.
//!
//! Bindings are kept whole, for they are the durable state and the truth about clusters. Resource
//! snapshots are kept as metadata: their content may be hundreds of KiB each, and only that of snapshots
//! that some binding names is ever needed ([`crate::contents`]).

use std::hash::Hash;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use windlass_api::member::MemberCluster;
use windlass_api::scoped::{Binding, Placement, PolicySnapshot};
use windlass_api::status_copy::ClusterResourcePlacementStatus;
use windlass_api::{labels, names};
use windlass_cluster::{Cache, CacheOptions, Change, Index, ObjectKey, Queue};

use crate::matters::Matters;
use crate::observe::Observer;
use crate::overrides::{self, Overrides, leave};
use crate::pace::Pace;
use crate::placement::snapshots::{Groups, SnapshotMeta};
use crate::pull::PullCaches;
use crate::report_back;
use crate::scoped::ScopedCache;
use crate::update_runs::Runs;

/// Index of bindings, snapshots and policies: the placement that they belong to.
pub const BY_PLACEMENT: &str = "placement";
/// Index of status copies: their name, which is the placement's.
pub const BY_NAME: &str = "name";
/// Index of bindings: their cluster.
pub const BY_CLUSTER: &str = "cluster";
/// Index of bindings by what [`target`] makes of placement and cluster: at most a few under each.
const BY_TARGET: &str = "target";
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
        let bindings =
            ScopedCache::start("bindings", client, || binding_options(&queues, &observer));
        let placements = ScopedCache::start("placements", client, || {
            placement_options(&queues, &observer, bindings.clone())
        });
        let clusters = {
            let options = cluster_options(&queues, &observer, placements.clone(), bindings.clone());
            Cache::start("clusters", Api::all(client.clone()), all(), options)
        };
        Self {
            overrides: Overrides::start(client, &queues, &bindings),
            runs: Runs::start(client, &queues, &observer),
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
    }
}

/// The placement that a binding or snapshot belongs to: of the same namespace, if it lives in one.
#[must_use]
pub fn placement_of<K: kube::Resource>(object: &K) -> Option<ObjectKey> {
    let name = object.labels().get(labels::PARENT_PLACEMENT)?;
    let namespace = object.meta().namespace.as_deref().unwrap_or_default();
    Some(ObjectKey::namespaced(namespace, name))
}

pub(crate) fn enqueue<K: Clone + Eq + Hash>(queue: &Queue<K>, key: K, initial: bool) {
    if initial {
        queue.add_initial(key);
    } else {
        queue.add(key);
    }
}

fn enqueue_parents<K: kube::Resource>(queue: &Queue<ObjectKey>, change: &Change<K>) {
    // An object whose label was changed has two parents to tell.
    let old = change.old.as_deref().and_then(placement_of);
    let new = change.new.as_deref().and_then(placement_of);
    if old != new
        && let Some(old) = old
    {
        enqueue(queue, old, change.initial);
    }
    if let Some(new) = new.or_else(|| change.old.as_deref().and_then(placement_of)) {
        enqueue(queue, new, change.initial);
    }
}

/// The placement of a binding of which nothing but the status has changed.
fn paced(change: &Change<Binding>) -> Option<ObjectKey> {
    let (old, new) = (change.old.as_deref()?, change.new.as_deref()?);
    let is_same = old.spec == new.spec && rest(old) == rest(new);
    placement_of(new).filter(|_| is_same && old.status != new.status)
}

/// What a write of the status leaves as it is.
fn rest(binding: &Binding) -> ObjectMeta {
    ObjectMeta {
        resource_version: None,
        managed_fields: None,
        ..binding.metadata.clone()
    }
}

/// A decoded list has room for up to twice as much; of what there is one for each cluster that adds up.
fn tighten_placement(placement: &mut Placement) {
    let Some(status) = &mut placement.status else {
        return;
    };
    for cluster in status.placement_statuses.iter_mut().flatten() {
        cluster.conditions.iter_mut().for_each(Vec::shrink_to_fit);
    }
    status
        .placement_statuses
        .iter_mut()
        .for_each(Vec::shrink_to_fit);
}

/// As [`tighten_placement`].
fn tighten_binding(binding: &mut Binding) {
    if let Some(status) = &mut binding.status {
        status.conditions.iter_mut().for_each(Vec::shrink_to_fit);
    }
}

fn placement_options(
    queues: &Queues,
    observer: &Observer,
    bindings: ScopedCache<Binding>,
) -> CacheOptions<Placement> {
    let (queue, observer) = (queues.placements.clone(), observer.clone());
    let deliveries = queues.bindings.clone();
    CacheOptions {
        trim: Some(tighten_placement),
        on_change: Arc::new(move |change: &Change<Placement>| {
            observer.placement_changed(change);
            // A status that we wrote is no reason to look again.
            let same_wish = matches!((&change.old, &change.new), (Some(old), Some(new))
                if old.metadata.generation == new.metadata.generation
                    && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
                    && old.metadata.finalizers == new.metadata.finalizers
                    && old.metadata.uid == new.metadata.uid
                    && old.status == new.status);
            if !same_wish {
                enqueue(&queue, change.key.clone(), change.initial);
            }
            // Delivery reads statuses back if the placement wants that.
            if let (Some(old), Some(new)) = (&change.old, &change.new)
                && report_back::wish_of(old) != report_back::wish_of(new)
            {
                for binding in bindings.under(BY_PLACEMENT, &change.key) {
                    enqueue(&deliveries, ObjectKey::of(&*binding), change.initial);
                }
            }
        }),
        ..Default::default()
    }
}

/// Of what a placement owns: a change is its placement's affair.
fn owned_options<K: kube::Resource + 'static>(queues: &Queues) -> CacheOptions<K> {
    let queue = queues.placements.clone();
    CacheOptions {
        indexes: vec![by_placement()],
        on_change: Arc::new(move |change| enqueue_parents(&queue, change)),
        ..Default::default()
    }
}

/// A copy is its placement's affair: one that somebody changed or took away is written again.
fn copy_options(queues: &Queues) -> CacheOptions<ClusterResourcePlacementStatus> {
    let queue = queues.placements.clone();
    CacheOptions {
        indexes: vec![Index {
            name: BY_NAME,
            values: |copy| vec![copy.name_any()],
        }],
        on_change: Arc::new(move |change| {
            let placement = ObjectKey::cluster(&change.key.name);
            enqueue(&queue, placement, change.initial);
        }),
        ..Default::default()
    }
}

fn by_placement<K: kube::Resource>() -> Index<K> {
    Index {
        name: BY_PLACEMENT,
        values: |object| {
            let parent = placement_of(object);
            parent.iter().map(ObjectKey::to_string).collect()
        },
    }
}

fn by_target() -> Index<Binding> {
    Index {
        name: BY_TARGET,
        values: |object| {
            let parent = placement_of(object);
            let text = |parent: &ObjectKey| target(parent, &object.spec.target_cluster);
            parent.iter().map(text).collect()
        },
    }
}

/// A placement on a cluster, as [`BY_TARGET`] has it. Neither name has a space.
fn target(placement: &ObjectKey, cluster: &str) -> String {
    format!("{placement} {cluster}")
}

fn binding_options(queues: &Queues, observer: &Observer) -> CacheOptions<Binding> {
    let (queues, observer) = (queues.clone(), observer.clone());
    CacheOptions {
        trim: Some(tighten_binding),
        indexes: vec![
            by_placement(),
            Index {
                name: BY_CLUSTER,
                values: |object| vec![object.spec.target_cluster.clone()],
            },
            by_target(),
            Index {
                name: BY_OVERRIDE,
                values: |object| {
                    let named = overrides::named_by(&object.spec);
                    named.iter().map(ObjectKey::to_string).collect()
                },
            },
        ],
        on_change: Arc::new(move |change: &Change<Binding>| {
            observer.binding_changed(change);
            match paced(change) {
                Some(parent) => queues.pace.add(&queues.placements, parent),
                None => enqueue_parents(&queues.placements, change),
            }
            let spec_changed = match (&change.old, &change.new) {
                (Some(old), Some(new)) => {
                    old.spec != new.spec
                        || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
                        || old.metadata.uid != new.metadata.uid
                        || leave::given(old) != leave::given(new)
                        // Somebody else wrote the status: it has to be told right again.
                        || old.status != new.status
                }
                _ => true,
            };
            if spec_changed {
                enqueue(&queues.bindings, change.key.clone(), change.initial);
            }
            for parent in overrides::dropped(change) {
                queues.overrides.add(parent);
            }
            // A cluster that leaves waits for its last binding.
            if let (Some(old), None) = (&change.old, &change.new) {
                queues.clusters.add(old.spec.target_cluster.clone());
            }
        }),
    }
}

fn cluster_options(
    queues: &Queues,
    observer: &Observer,
    placements: ScopedCache<Placement>,
    bindings: ScopedCache<Binding>,
) -> CacheOptions<MemberCluster> {
    let (queues, observer) = (queues.clone(), observer.clone());
    CacheOptions {
        on_change: Arc::new(move |change: &Change<MemberCluster>| {
            observer.cluster_changed(change);
            enqueue(&queues.clusters, change.key.name.clone(), change.initial);
            let (old, new) = (change.old.as_deref(), change.new.as_deref());
            if delivery_differs(old, new) {
                for binding in bindings.by_index(BY_CLUSTER, &change.key.name) {
                    enqueue(&queues.bindings, ObjectKey::of(&*binding), change.initial);
                }
            }
            // What overrides do there depends on the labels. Delivery sees to it that they don't do what
            // nobody gave leave for.
            if old.map(ResourceExt::labels) != new.map(ResourceExt::labels) {
                let overridden = bindings.by_index(BY_CLUSTER, &change.key.name);
                for binding in overridden
                    .iter()
                    .filter(|b| !overrides::named_by(&b.spec).is_empty())
                {
                    enqueue(&queues.bindings, ObjectKey::of(&**binding), change.initial);
                }
            }
            let matters = Matters::of(old, new);
            if matters.to_none() {
                return;
            }
            for placement in placements.list() {
                let key = ObjectKey::of(&*placement);
                let is_namespaced = !key.namespace.is_empty();
                if matters.to(placement.spec.policy.as_ref(), is_namespaced) {
                    enqueue(&queues.placements, key, change.initial);
                }
            }
        }),
        ..Default::default()
    }
}

fn delivery_differs(old: Option<&MemberCluster>, new: Option<&MemberCluster>) -> bool {
    let (Some(old), Some(new)) = (old, new) else {
        return true;
    };
    old.annotations() != new.annotations()
        || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
}

fn secret_options(queues: &Queues) -> CacheOptions<Secret> {
    let queue = queues.clusters.clone();
    CacheOptions {
        on_change: Arc::new(move |change: &Change<Secret>| {
            for secret in [&change.old, &change.new].into_iter().flatten() {
                if let Some(cluster) = secret.labels().get(labels::CREDENTIALS_CLUSTER) {
                    enqueue(&queue, cluster.clone(), change.initial);
                }
            }
        }),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use windlass_api::binding::BindingSpec;

    use super::*;

    fn of(placement: Option<&str>) -> Option<Arc<Binding>> {
        let mut binding = Binding::new("b", BindingSpec::default());
        let label = |name: &str| (labels::PARENT_PLACEMENT.to_owned(), name.to_owned());
        binding.labels_mut().extend(placement.map(label));
        Some(Arc::new(binding))
    }

    #[test]
    fn a_binding_is_found_by_placement_and_cluster() {
        let index = by_target();
        let mut binding = Binding::clone(&of(Some("a")).unwrap());
        binding.spec.target_cluster = "east".to_owned();
        let values = (index.values)(&binding);
        assert_eq!(values, [target(&ObjectKey::cluster("a"), "east")]);
        assert_ne!(values, [target(&ObjectKey::cluster("a"), "west")]);
        binding.metadata.namespace = Some("n".to_owned());
        let values = (index.values)(&binding);
        assert_eq!(values, [target(&ObjectKey::namespaced("n", "a"), "east")]);
        binding.metadata.labels = None;
        assert!((index.values)(&binding).is_empty());
    }

    /// Whether its placement may wait a moment.
    #[test]
    fn only_the_status_of_a_binding_can_wait() {
        type Edit = fn(&mut Binding);
        let rows: [(&str, Edit, bool); 8] = [
            ("nothing", |_| (), false),
            ("the status", |b| b.status = Some(Default::default()), true),
            (
                "the status, with its version",
                |b| {
                    b.status = Some(Default::default());
                    b.metadata.resource_version = Some("2".to_owned());
                },
                true,
            ),
            (
                "the spec too",
                |b| {
                    b.status = Some(Default::default());
                    b.spec.target_cluster = "west".to_owned();
                },
                false,
            ),
            (
                "it is being deleted",
                |b| {
                    b.status = Some(Default::default());
                    b.metadata.deletion_timestamp =
                        Some(windlass_api::Time(jiff::Timestamp::UNIX_EPOCH));
                },
                false,
            ),
            (
                "its finalizers",
                |b| b.metadata.finalizers = Some(vec!["x/y".to_owned()]),
                false,
            ),
            ("its placement", |b| drop(b.metadata.labels.take()), false),
            (
                "it is another one",
                |b| {
                    b.status = Some(Default::default());
                    b.metadata.uid = Some("2".to_owned());
                },
                false,
            ),
        ];
        for (about, edit, expected) in rows {
            let old = of(Some("a"));
            let mut new = Binding::clone(old.as_ref().unwrap());
            edit(&mut new);
            let mut change = Change {
                key: ObjectKey::cluster("b"),
                old,
                new: Some(Arc::new(new)),
                initial: false,
            };
            let expected = expected.then(|| ObjectKey::cluster("a"));
            assert_eq!(paced(&change), expected, "{about}");
            change.old = None;
            assert_eq!(paced(&change), None, "{about}, and it is new");
        }
    }

    /// What was counts as much as what is (trap T2).
    #[tokio::test]
    async fn a_change_is_the_affair_of_who_had_it_and_who_has_it() {
        for (old, new, expected) in [
            (None, of(Some("a")), vec!["a"]),
            (of(Some("a")), of(Some("a")), vec!["a"]),
            (of(Some("a")), None, vec!["a"]),
            (of(Some("a")), of(Some("b")), vec!["a", "b"]),
            (of(Some("a")), of(None), vec!["a"]),
            (of(None), of(Some("b")), vec!["b"]),
            (of(None), of(None), vec![]),
        ] {
            let queue = Queue::<ObjectKey>::new();
            let change = Change {
                key: ObjectKey::cluster("b"),
                old,
                new,
                initial: false,
            };
            enqueue_parents(&queue, &change);
            let mut told = Vec::new();
            while !queue.is_empty() {
                let key = queue.next().await.unwrap();
                queue.done(&key);
                told.push(key.name);
            }
            told.sort();
            assert_eq!(told, expected);
        }
    }
}
