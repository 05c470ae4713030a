//! One version of an override, of either kind.

use std::sync::Arc;

use kube::ResourceExt;
use windlass_api::overrides::{ClusterResourceOverrideSnapshot, ResourceOverrideSnapshot};
use windlass_cluster::ObjectKey;
use windlass_render::Override;

/// See the module.
#[derive(Clone, Debug)]
pub enum Version {
    /// Of a ClusterResourceOverride.
    Cluster(Arc<ClusterResourceOverrideSnapshot>),
    /// Of a ResourceOverride.
    Namespaced(Arc<ResourceOverrideSnapshot>),
}

impl Version {
    /// Key of the snapshot. In their order, versions of ClusterResourceOverrides go first.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Cluster(snapshot) => ObjectKey::of(&**snapshot),
            Self::Namespaced(snapshot) => ObjectKey::of(&**snapshot),
        }
    }

    /// What it says.
    #[must_use]
    pub fn as_override(&self) -> Override<'_> {
        match self {
            Self::Cluster(snapshot) => {
                Override::of_cluster(&snapshot.name_any(), &snapshot.spec.override_spec)
            }
            Self::Namespaced(snapshot) => Override::of_namespace(
                snapshot.metadata.namespace.as_deref().unwrap_or_default(),
                &snapshot.name_any(),
                &snapshot.spec.override_spec,
            ),
        }
    }
}
