//! What a change wakes: which placements, bindings and clusters have to be looked at because of it.

use std::hash::Hash;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use windlass_api::labels;
use windlass_api::member::MemberCluster;
use windlass_api::scoped::{Binding, Placement};
use windlass_api::status_copy::ClusterResourcePlacementStatus;
use windlass_cluster::{CacheOptions, Change, Index, ObjectKey, Queue};
use windlass_status::processing::reachable_since;

use super::{BY_CLUSTER, BY_NAME, BY_OVERRIDE, BY_PLACEMENT, BY_TARGET, Queues, placement_of};
use crate::addons::AddonCaches;
use crate::delivery::clock::{is_under_way, timeout_of};
use crate::matters::Matters;
use crate::observe::Observer;
use crate::overrides::{self, leave};
use crate::report_back;
use crate::scoped::ScopedCache;

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

pub(super) fn placement_options(
    queues: &Queues,
    observer: &Observer,
    bindings: ScopedCache<Binding>,
    addons: AddonCaches,
) -> CacheOptions<Placement> {
    let (queue, observer) = (queues.placements.clone(), observer.clone());
    let deliveries = queues.bindings.clone();
    CacheOptions {
        trim: Some(tighten_placement),
        on_change: Arc::new(move |change: &Change<Placement>| {
            observer.placement_changed(change);
            if change.key.namespace.is_empty() {
                addons.placement_changed(&change.key.name, change.initial);
            }
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
            let (Some(old), Some(new)) = (&change.old, &change.new) else {
                return;
            };
            // Delivery reads statuses back if the placement wants that, and says who takes too long.
            let all = report_back::wish_of(old) != report_back::wish_of(new);
            let late = timeout_of(old) != timeout_of(new);
            if all || late {
                for binding in bindings.under(BY_PLACEMENT, &change.key) {
                    if all || is_under_way(&binding) {
                        enqueue(&deliveries, ObjectKey::of(&*binding), change.initial);
                    }
                }
            }
        }),
        ..Default::default()
    }
}

/// Of what a placement owns: a change is its placement's affair.
pub(super) fn owned_options<K: kube::Resource + 'static>(queues: &Queues) -> CacheOptions<K> {
    let queue = queues.placements.clone();
    CacheOptions {
        indexes: vec![by_placement()],
        on_change: Arc::new(move |change| enqueue_parents(&queue, change)),
        ..Default::default()
    }
}

/// A copy is its placement's affair: one that somebody changed or took away is written again.
pub(super) fn copy_options(queues: &Queues) -> CacheOptions<ClusterResourcePlacementStatus> {
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
pub(super) fn target(placement: &ObjectKey, cluster: &str) -> String {
    format!("{placement} {cluster}")
}

pub(super) fn binding_options(queues: &Queues, observer: &Observer) -> CacheOptions<Binding> {
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

pub(super) fn cluster_options(
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
            // Clocks stand still while a cluster is away.
            if new.and_then(reachable_since) > old.and_then(reachable_since) {
                let all = bindings.by_index(BY_CLUSTER, &change.key.name);
                for binding in all.iter().filter(|binding| is_under_way(binding)) {
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

pub(super) fn secret_options(queues: &Queues) -> CacheOptions<Secret> {
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
