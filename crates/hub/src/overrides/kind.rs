//! What the two kinds of overrides have in common.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::ByteString;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_api::overrides::{
    ClusterResourceOverride, ClusterResourceOverrideSnapshot, ClusterResourceOverrideSnapshotSpec,
    ResourceOverride, ResourceOverrideSnapshot, ResourceOverrideSnapshotSpec,
};
use windlass_cluster::Cache;
use windlass_render::Override;
use windlass_status::digest::Digest;

use super::{Overrides, Version};

/// An object as caches and the writer want it.
pub trait Object:
    Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType = ()>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
        + Send
        + Sync
        + 'static
{
}

/// A kind of overrides.
pub trait Kind: Object {
    /// Its snapshots.
    type Snapshot: Object;

    /// Where both are kept.
    fn caches(all: &Overrides) -> (&Cache<Self>, &Cache<Self::Snapshot>);
    /// A snapshot of the present version.
    fn snapshot(&self, name: &str) -> Self::Snapshot;
    /// Whether a snapshot is of the present version: by what it says, not by the hash that stands in it.
    fn is_in(&self, snapshot: &Self::Snapshot) -> bool;
    /// Whether two snapshots say the same.
    fn same_content(a: &Self::Snapshot, b: &Self::Snapshot) -> bool;
    /// What it says.
    fn as_override(&self) -> Override<'_>;
    /// What a snapshot says.
    fn override_in(snapshot: &Self::Snapshot) -> Override<'_>;
    /// A snapshot as one of either kind.
    fn into_version(snapshot: Arc<Self::Snapshot>) -> Version;
}

/// Hash of a spec as it stands in a snapshot. Base64 of the text of the hash: that is what the API's `byte` makes of it (API §3.9).
fn hash_of_spec(spec: &impl Serialize) -> ByteString {
    let value = serde_json::to_value(spec).unwrap_or_default();
    ByteString(Digest::of_json(&value).to_string().into_bytes())
}

impl Kind for ClusterResourceOverride {
    type Snapshot = ClusterResourceOverrideSnapshot;

    fn caches(all: &Overrides) -> (&Cache<Self>, &Cache<Self::Snapshot>) {
        (&all.of_cluster, &all.cluster_snapshots)
    }

    fn snapshot(&self, name: &str) -> Self::Snapshot {
        let spec = ClusterResourceOverrideSnapshotSpec {
            override_spec: self.spec.clone(),
            override_hash: hash_of_spec(&self.spec),
        };
        ClusterResourceOverrideSnapshot::new(name, spec)
    }

    fn is_in(&self, snapshot: &Self::Snapshot) -> bool {
        self.spec == snapshot.spec.override_spec
    }

    fn same_content(a: &Self::Snapshot, b: &Self::Snapshot) -> bool {
        a.spec == b.spec
    }

    fn as_override(&self) -> Override<'_> {
        Override::of_cluster(&self.name_any(), &self.spec)
    }

    fn override_in(snapshot: &Self::Snapshot) -> Override<'_> {
        Override::of_cluster(&snapshot.name_any(), &snapshot.spec.override_spec)
    }

    fn into_version(snapshot: Arc<Self::Snapshot>) -> Version {
        Version::Cluster(snapshot)
    }
}

impl Kind for ResourceOverride {
    type Snapshot = ResourceOverrideSnapshot;

    fn caches(all: &Overrides) -> (&Cache<Self>, &Cache<Self::Snapshot>) {
        (&all.of_namespace, &all.snapshots)
    }

    fn snapshot(&self, name: &str) -> Self::Snapshot {
        let spec = ResourceOverrideSnapshotSpec {
            override_spec: self.spec.clone(),
            override_hash: hash_of_spec(&self.spec),
        };
        let mut snapshot = ResourceOverrideSnapshot::new(name, spec);
        snapshot
            .metadata
            .namespace
            .clone_from(&self.metadata.namespace);
        snapshot
    }

    fn is_in(&self, snapshot: &Self::Snapshot) -> bool {
        self.spec == snapshot.spec.override_spec
    }

    fn same_content(a: &Self::Snapshot, b: &Self::Snapshot) -> bool {
        a.spec == b.spec
    }

    fn as_override(&self) -> Override<'_> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        Override::of_namespace(namespace, &self.name_any(), &self.spec)
    }

    fn override_in(snapshot: &Self::Snapshot) -> Override<'_> {
        let namespace = snapshot.metadata.namespace.as_deref().unwrap_or_default();
        Override::of_namespace(
            namespace,
            &snapshot.name_any(),
            &snapshot.spec.override_spec,
        )
    }

    fn into_version(snapshot: Arc<Self::Snapshot>) -> Version {
        Version::Namespaced(snapshot)
    }
}
