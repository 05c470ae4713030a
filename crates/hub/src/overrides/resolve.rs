//! Which override snapshots a binding has to name, and what those do that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt;
use windlass_api::binding::BindingSpec;
use windlass_api::member::MemberCluster;
use windlass_api::overrides::{ClusterResourceOverride, ResourceOverride};
use windlass_api::placement::NamespacedName;
use windlass_api::scoped::Binding;
use windlass_cluster::ObjectKey;
use windlass_render::{Cluster, ObjectId, Override, PlacementKey, effects};

use super::kind::Kind;
use super::leave::Effect;
use super::next::{Newest, newest};
use super::{BY_PARENT, Overrides, Version, named_by};

/// The key of a placement, for rendering.
#[must_use]
pub fn placement_key(placement: &ObjectKey) -> PlacementKey<'_> {
    PlacementKey {
        namespace: Some(placement.namespace.as_str()).filter(|namespace| !namespace.is_empty()),
        name: &placement.name,
    }
}

/// What overrides mean to the bindings of one placement. By default there are none.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// The placement.
    placement: Option<ObjectKey>,
    /// The present versions of the overrides that are for the placement and select something of its
    /// latest content, in order.
    current: Vec<Version>,
    /// Those, and every other version that a binding names.
    known: BTreeMap<ObjectKey, Version>,
    /// The member clusters, by name.
    clusters: Vec<Arc<MemberCluster>>,
    /// Overrides of which the present version has no snapshot yet. Until it has, nothing may move.
    pub pending: Vec<String>,
}

/// The lists of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// Snapshots of ClusterResourceOverrides, sorted; none rather than empty.
    pub cluster: Option<Vec<String>>,
    /// Snapshots of ResourceOverrides, sorted; none rather than empty.
    pub namespaced: Option<Vec<NamespacedName>>,
}

impl Lists {
    /// The lists of a binding as it is.
    #[must_use]
    pub fn of(spec: &BindingSpec) -> Self {
        let cluster = spec.cluster_resource_override_snapshots.clone();
        let namespaced = spec.resource_override_snapshots.clone();
        Self {
            cluster: cluster.filter(|list| !list.is_empty()),
            namespaced: namespaced.filter(|list| !list.is_empty()),
        }
    }

    /// Has a binding name them.
    pub fn set(self, spec: &mut BindingSpec) {
        spec.cluster_resource_override_snapshots = self.cluster;
        spec.resource_override_snapshots = self.namespaced;
    }
}

impl Resolved {
    /// Puts the picture together. `current` are present versions in any order; `named` those that bindings
    /// name.
    #[must_use]
    pub fn new(
        placement: ObjectKey,
        mut current: Vec<Version>,
        named: impl IntoIterator<Item = Version>,
        mut clusters: Vec<Arc<MemberCluster>>,
        pending: Vec<String>,
    ) -> Self {
        let by_name =
            |a: &Arc<MemberCluster>, b: &Arc<MemberCluster>| a.metadata.name.cmp(&b.metadata.name);
        clusters.sort_by(by_name);
        current.sort_by_key(Version::key);
        let known = current
            .iter()
            .cloned()
            .chain(named)
            .map(|version| (version.key(), version))
            .collect();
        Self {
            placement: Some(placement),
            current,
            known,
            clusters,
            pending,
        }
    }

    /// What the binding of a cluster has to name: the overrides of which a rule matches the cluster.
    #[must_use]
    pub fn lists(&self, cluster: &str) -> Lists {
        if self.current.is_empty() {
            return Lists::default();
        }
        let cluster = Cluster {
            name: cluster,
            labels: self.labels(cluster),
        };
        let mut lists = Lists::default();
        for version in &self.current {
            if !version.as_override().matches(cluster) {
                continue;
            }
            let key = version.key();
            match version {
                Version::Cluster(_) => lists.cluster.get_or_insert_default().push(key.name),
                Version::Namespaced(_) => {
                    lists
                        .namespaced
                        .get_or_insert_default()
                        .push(NamespacedName {
                            name: key.name,
                            namespace: key.namespace,
                        });
                }
            }
        }
        lists
    }

    /// The versions that a binding names, in order; in the place of one that is not known, its key.
    #[must_use]
    pub fn versions(&self, spec: &BindingSpec) -> Vec<Result<Version, ObjectKey>> {
        named_by(spec)
            .into_iter()
            .map(|key| self.known.get(&key).cloned().ok_or(key))
            .collect()
    }

    /// What the overrides that a binding names do on its cluster; none when it names none.
    #[must_use]
    pub fn effect(&self, spec: &BindingSpec) -> Option<Effect> {
        let found = self.versions(spec);
        let placement = self.placement.as_ref().filter(|_| !found.is_empty())?;
        let cluster = &spec.target_cluster;
        let effects = effects_of(placement, &found, cluster, self.labels(cluster));
        Some(Effect::of(&effects))
    }

    fn labels(&self, cluster: &str) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        let found = self
            .clusters
            .binary_search_by(|known| known.metadata.name.as_deref().cmp(&Some(cluster)));
        let known = found.ok().and_then(|at| self.clusters.get(at));
        known.map_or(&NONE, |known| known.labels())
    }
}

/// What versions do on a cluster; one that is missing counts by its key.
#[must_use]
pub fn effects_of(
    placement: &ObjectKey,
    versions: &[Result<Version, ObjectKey>],
    cluster: &str,
    labels: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let overrides: Vec<Override<'_>> = versions
        .iter()
        .flatten()
        .map(Version::as_override)
        .collect();
    let cluster = Cluster {
        name: cluster,
        labels,
    };
    let mut all = effects(&overrides, placement_key(placement), cluster);
    for missing in versions.iter().filter_map(|version| version.as_ref().err()) {
        all.insert(format!("missing {missing}"), String::new());
    }
    all
}

/// The overrides that are for a placement.
#[derive(Default)]
struct Seen {
    /// Present versions that have a snapshot.
    made: Vec<Version>,
    /// Present versions of which the hub is yet to make this snapshot.
    due: Vec<Version>,
    /// The overrides of these.
    pending: Vec<String>,
}

impl Overrides {
    /// What the overrides mean to a placement that holds these objects.
    #[must_use]
    pub fn resolve(
        &self,
        placement: &ObjectKey,
        objects: &[ObjectId<'_>],
        bindings: &[Arc<Binding>],
        clusters: &[Arc<MemberCluster>],
    ) -> Resolved {
        let seen = self.seen(placement, objects);
        self.resolved(placement, (seen.made, seen.pending), bindings, clusters)
    }

    /// What they will mean once the hub has made a snapshot of each; and those of which it has yet to.
    #[must_use]
    pub fn foresee(
        &self,
        placement: &ObjectKey,
        objects: &[ObjectId<'_>],
        bindings: &[Arc<Binding>],
        clusters: &[Arc<MemberCluster>],
    ) -> (Resolved, Vec<String>) {
        let mut seen = self.seen(placement, objects);
        seen.made.append(&mut seen.due);
        let resolved = self.resolved(placement, (seen.made, Vec::new()), bindings, clusters);
        (resolved, seen.pending)
    }

    fn seen(&self, placement: &ObjectKey, objects: &[ObjectId<'_>]) -> Seen {
        let key = placement_key(placement);
        let mut seen = Seen::default();
        for found in self.candidates::<ClusterResourceOverride>(placement, objects) {
            self.take(&*found, key, objects, &mut seen);
        }
        for found in self.candidates::<ResourceOverride>(placement, objects) {
            self.take(&*found, key, objects, &mut seen);
        }
        seen
    }

    fn resolved(
        &self,
        placement: &ObjectKey,
        (current, pending): (Vec<Version>, Vec<String>),
        bindings: &[Arc<Binding>],
        clusters: &[Arc<MemberCluster>],
    ) -> Resolved {
        let named: BTreeSet<ObjectKey> = bindings
            .iter()
            .flat_map(|binding| named_by(&binding.spec))
            .collect();
        if current.is_empty() && named.is_empty() && pending.is_empty() {
            return Resolved::default();
        }
        let named = named.iter().filter_map(|key| self.version(key));
        Resolved::new(
            placement.clone(),
            current,
            named,
            clusters.to_vec(),
            pending,
        )
    }

    fn take<K: Kind>(
        &self,
        found: &K,
        placement: PlacementKey<'_>,
        objects: &[ObjectId<'_>],
        seen: &mut Seen,
    ) {
        let view = found.as_override();
        let concerns = found.meta().deletion_timestamp.is_none()
            && view.is_for(placement)
            && objects.iter().any(|id| view.selects(id));
        if !concerns {
            return;
        }
        let key = ObjectKey::of(found);
        let snapshots = K::caches(self).1.by_index(BY_PARENT, &key.to_string());
        match newest(found, &snapshots) {
            Newest::Made(snapshot) => seen.made.push(K::into_version(snapshot)),
            Newest::Due(snapshot) => {
                seen.due.push(K::into_version(Arc::new(snapshot)));
                seen.pending.push(format!("{} {key}", K::kind(&())));
            }
        }
    }

    /// The versions that a binding names, in order; in the place of one that does not exist, its key.
    #[must_use]
    pub fn versions_of(&self, spec: &BindingSpec) -> Vec<Result<Version, ObjectKey>> {
        named_by(spec)
            .into_iter()
            .map(|key| self.version(&key).ok_or(key))
            .collect()
    }
}
