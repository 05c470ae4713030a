//! One version of an override, of either kind.

use std::sync::Arc;

use windlass_api::overrides::{
    ClusterResourceOverride, ClusterResourceOverrideSnapshot, ResourceOverride,
    ResourceOverrideSnapshot,
};
use windlass_cluster::ObjectKey;
use windlass_render::Override;

use super::kind::Kind;

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
            Self::Cluster(snapshot) => ClusterResourceOverride::override_in(snapshot),
            Self::Namespaced(snapshot) => ResourceOverride::override_in(snapshot),
        }
    }
}
