//! One version of an override, of either kind.

use std::sync::Arc;

use kube::Resource;
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
    /// Key of the snapshot.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Cluster(snapshot) => ObjectKey::of(&**snapshot),
            Self::Namespaced(snapshot) => ObjectKey::of(&**snapshot),
        }
    }

    /// Key of the override, by the name of the snapshot (API §5.4): labels can be edited.
    #[must_use]
    pub fn parent(&self) -> ObjectKey {
        self.parted().0
    }

    /// Kind and key of the override.
    pub(super) fn parent_text(&self) -> String {
        let kind = match self {
            Self::Cluster(_) => ClusterResourceOverride::kind(&()),
            Self::Namespaced(_) => ResourceOverride::kind(&()),
        };
        format!("{kind} {}", self.parent())
    }

    /// In this order versions are applied: those of ClusterResourceOverrides by the override's name, then those
    /// of ResourceOverrides by namespace and name. By the names of snapshots the order would change hands as
    /// overrides are edited: `a-3`, `a-1-0`, `a-0`.
    #[must_use]
    pub fn precedence(&self) -> impl Ord + use<> {
        self.parted()
    }

    /// Key of the override, and the index.
    fn parted(&self) -> (ObjectKey, u64) {
        let key = self.key();
        let parted = key.name.rsplit_once('-');
        match parted.and_then(|(name, index)| Some((name, index.parse().ok()?))) {
            Some((name, index)) => (ObjectKey::namespaced(&key.namespace, name), index),
            None => (key, 0),
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
