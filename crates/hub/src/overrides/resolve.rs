//! Which override snapshots a binding has to name, and what those do that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt;
use windlass_api::binding::{BindingSpec, BindingState};
use windlass_api::member::MemberCluster;
use windlass_api::overrides::{ClusterResourceOverride, ResourceOverride};
use windlass_api::placement::NamespacedName;
use windlass_api::scoped::Binding;
use windlass_cluster::ObjectKey;
use windlass_render::{Cluster, ObjectId, Override, PlacementKey, effects};

use super::kind::Kind;
use super::leave::Effect;
use super::next::{Newest, newest};
use super::pending::{Missing, Pending, Trouble};
use super::{Overrides, Version, named_by, parent_of_named};

/// How many versions without a snapshot are told of.
const TOLD: usize = 5;

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
    /// Overrides of which the present version has no snapshot yet, in order.
    pending: Vec<Pending>,
}

/// What a binding names of an override whose present version has no snapshot.
enum Instead<'a> {
    /// Nothing: the version does nothing on its cluster.
    Nothing,
    /// An earlier version that does the same there, or one that can't be stored.
    Named(&'a Version),
    /// It has to wait.
    Waits,
}

/// The lists of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// Snapshots of ClusterResourceOverrides, in order of precedence; none rather than empty.
    pub cluster: Option<Vec<String>>,
    /// Snapshots of ResourceOverrides, in order of precedence; none rather than empty.
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
        mut pending: Vec<Pending>,
    ) -> Self {
        let by_name =
            |a: &Arc<MemberCluster>, b: &Arc<MemberCluster>| a.metadata.name.cmp(&b.metadata.name);
        clusters.sort_by(by_name);
        current.sort_by_cached_key(Version::precedence);
        pending.sort_by_cached_key(|pending| pending.version.precedence());
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

    /// The same, but that these versions have no snapshot.
    #[cfg(test)]
    pub(crate) fn with_pending(self, pending: Vec<Pending>) -> Self {
        Self { pending, ..self }
    }

    /// What a binding has to name: the overrides of which a rule matches its cluster. Of one that is pending, the
    /// version that it names already, if that does the same there; or the one that can't be stored.
    #[must_use]
    pub fn lists(&self, spec: &BindingSpec) -> Lists {
        let mut lists = Lists::default();
        if self.current.is_empty() && self.pending.is_empty() {
            return lists;
        }
        let cluster = self.cluster(&spec.target_cluster);
        let matching = self.current.iter();
        let mut named: Vec<&Version> = matching
            .filter(|version| version.as_override().matches(cluster))
            .collect();
        if !self.pending.is_empty() {
            let instead = self
                .pending
                .iter()
                .map(|pending| self.instead(pending, spec));
            named.extend(instead.filter_map(|instead| match instead {
                Instead::Named(version) => Some(version),
                Instead::Nothing | Instead::Waits => None,
            }));
            named.sort_by_cached_key(|version| version.precedence());
        }
        for version in named {
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

    /// Whether a binding has to stay as it is: a version that has no snapshot yet would change something on
    /// its cluster.
    #[must_use]
    pub fn waits(&self, spec: &BindingSpec) -> bool {
        let mut pending = self.pending.iter();
        pending.any(|pending| matches!(self.instead(pending, spec), Instead::Waits))
    }

    /// What a person should know of the versions that have no snapshot: of those that keep any of these bindings
    /// from what is wanted.
    #[must_use]
    pub fn notes(&self, bindings: &[Arc<Binding>]) -> Vec<String> {
        let concerns = |pending: &&Pending| {
            bindings.iter().any(|binding| {
                let live = binding.metadata.deletion_timestamp.is_none()
                    && binding.spec.state != BindingState::Unscheduled;
                live && match self.instead(pending, &binding.spec) {
                    Instead::Waits => true,
                    Instead::Named(version) => version.key() == pending.version.key(),
                    Instead::Nothing => false,
                }
            })
        };
        let mut notes: Vec<String> = self
            .pending
            .iter()
            .filter(concerns)
            .take(TOLD + 1)
            .map(Pending::to_string)
            .collect();
        if notes.len() > TOLD {
            notes.truncate(TOLD);
            notes.push("more overrides can't be stored yet".to_owned());
        }
        notes
    }

    /// What a binding names while a version has no snapshot.
    fn instead<'a>(&'a self, pending: &'a Pending, spec: &BindingSpec) -> Instead<'a> {
        let cluster = self.cluster(&spec.target_cluster);
        if !pending.version.as_override().matches(cluster) {
            return Instead::Nothing;
        }
        let parent = pending.version.parent();
        let effect = |version: &Version| {
            let placement = self.placement.as_ref().map(placement_key);
            placement.map(|placement| effects(&[version.as_override()], placement, cluster))
        };
        let wanted = effect(&pending.version);
        let same = named_by(spec)
            .into_iter()
            .filter_map(|key| self.known.get(&key))
            .find(|earlier| earlier.parent() == parent && effect(earlier) == wanted);
        match (same, &pending.trouble) {
            (Some(earlier), _) => Instead::Named(earlier),
            (None, Trouble::Refused(_)) => Instead::Named(&pending.version),
            (None, Trouble::None | Trouble::ForNow(_)) => Instead::Waits,
        }
    }

    /// The versions that a binding names, in order; or what is missing in the place of one.
    #[must_use]
    pub fn versions(&self, spec: &BindingSpec) -> Vec<Result<Version, Missing>> {
        let missing = |key: ObjectKey| {
            let due = self
                .pending
                .iter()
                .find(|pending| pending.version.key() == key);
            Missing {
                key,
                why: due.map(Pending::to_string),
            }
        };
        let version = |key: ObjectKey| self.known.get(&key).cloned().ok_or_else(|| missing(key));
        named_by(spec).into_iter().map(version).collect()
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

    fn cluster<'a>(&'a self, name: &'a str) -> Cluster<'a> {
        Cluster {
            name,
            labels: self.labels(name),
        }
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
    versions: &[Result<Version, Missing>],
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
        all.insert(format!("missing {}", missing.key), String::new());
    }
    all
}

/// The overrides that are for a placement.
#[derive(Default)]
struct Seen {
    /// Present versions that have a snapshot.
    made: Vec<Version>,
    /// Present versions of which the hub is yet to make the snapshot.
    pending: Vec<Pending>,
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
        let pending = seen.pending.iter().map(Pending::of).collect();
        let due = seen.pending.into_iter().map(|pending| pending.version);
        seen.made.extend(due);
        let resolved = self.resolved(placement, (seen.made, Vec::new()), bindings, clusters);
        (resolved, pending)
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
        (current, pending): (Vec<Version>, Vec<Pending>),
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
        match newest(found, K::caches(self).1) {
            Newest::Made(snapshot) => seen.made.push(K::into_version(snapshot)),
            Newest::Due(snapshot) => seen.pending.push(self.pending(found, snapshot)),
        }
    }

    fn pending<K: Kind>(&self, of: &K, due: K::Snapshot) -> Pending {
        Pending {
            version: K::into_version(Arc::new(due)),
            trouble: self.trouble_with(of),
        }
    }

    /// The override whose present version has no snapshot yet, and is to have the one of this key.
    pub(super) fn due(&self, snapshot: &ObjectKey) -> Option<Pending> {
        fn of<K: Kind>(all: &Overrides, snapshot: &ObjectKey) -> Option<Pending> {
            let (overrides, snapshots) = K::caches(all);
            let found = overrides.get(&parent_of_named(snapshot)?)?;
            match newest(&*found, snapshots) {
                Newest::Due(due) if ObjectKey::of(&due) == *snapshot => {
                    Some(all.pending(&*found, due))
                }
                Newest::Due(_) | Newest::Made(_) => None,
            }
        }
        if snapshot.namespace.is_empty() {
            of::<ClusterResourceOverride>(self, snapshot)
        } else {
            of::<ResourceOverride>(self, snapshot)
        }
    }

    /// The versions that a binding names, in order; or what is missing in the place of one.
    #[must_use]
    pub fn versions_of(&self, spec: &BindingSpec) -> Vec<Result<Version, Missing>> {
        let version = |key: ObjectKey| self.version(&key).ok_or_else(|| self.missing(key));
        named_by(spec).into_iter().map(version).collect()
    }
}
