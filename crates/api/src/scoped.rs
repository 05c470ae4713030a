//! One shape for both scopes: placements, their snapshots and their bindings come as cluster-scoped kinds
//! and as kinds that live in a namespace, and differ in nothing else (API §3.3 to §3.7).
//!
//! An object's scope follows from its namespace: with one it is of the namespaced kind, without of the
//! cluster-scoped one. So whoever works on them needs to know of one type only.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::{DynamicResourceScope, Resource};
use serde::{Deserialize, Serialize};

use crate::binding::{BindingSpec, BindingStatus};
use crate::placement::{PlacementSpec, PlacementStatus};
use crate::run::{
    ApprovalRequestSpec, ApprovalRequestStatus, UpdateRunSpec, UpdateRunStatus, UpdateStrategySpec,
};
use crate::snapshot::{
    PolicySnapshotSpec, PolicySnapshotStatus, ResourceSnapshotSpec, ResourceSnapshotStatus,
};
use crate::{PLACEMENT_GROUP, STORAGE_VERSION};

/// Which of the two kinds an object is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The cluster-scoped kind.
    #[default]
    Cluster,
    /// The kind that lives in a namespace.
    Namespaced,
}

impl Scope {
    /// Both, in the order in which people are shown them.
    pub const BOTH: [Self; 2] = [Self::Cluster, Self::Namespaced];

    /// The scope of what lives in that namespace; none, or an empty one, is the cluster.
    #[must_use]
    pub fn of_namespace(namespace: Option<&str>) -> Self {
        match namespace {
            None | Some("") => Self::Cluster,
            Some(_) => Self::Namespaced,
        }
    }

    /// The scope of an object.
    #[must_use]
    pub fn of<K: Resource>(object: &K) -> Self {
        Self::of_namespace(object.meta().namespace.as_deref())
    }
}

/// Declares a kind in both scopes, with (kind, plural) of each.
macro_rules! scoped {
    ($(#[$meta:meta])* $name:ident, $spec:ident, $status:ident, $cluster:expr, $namespaced:expr) => {
        $(#[$meta])*
        #[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// Standard metadata.
            #[serde(default)]
            pub metadata: ObjectMeta,
            /// What is wanted.
            pub spec: $spec,
            /// What is.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub status: Option<$status>,
        }

        impl $name {
            /// A new object, cluster-scoped until it gets a namespace.
            #[must_use]
            pub fn new(name: &str, spec: $spec) -> Self {
                Self {
                    metadata: ObjectMeta {
                        name: Some(name.to_owned()),
                        ..ObjectMeta::default()
                    },
                    spec,
                    status: None,
                }
            }

            /// The object in a namespace; an empty one is the cluster.
            #[must_use]
            pub fn within(mut self, namespace: &str) -> Self {
                self.metadata.namespace =
                    (!namespace.is_empty()).then(|| namespace.to_owned());
                self
            }

            /// The kind that it is of.
            #[must_use]
            pub fn kind_text(&self) -> &'static str {
                Self::names(Scope::of(self)).0
            }

            const fn names(scope: Scope) -> (&'static str, &'static str) {
                match scope {
                    Scope::Cluster => $cluster,
                    Scope::Namespaced => $namespaced,
                }
            }
        }

        impl Resource for $name {
            type DynamicType = Scope;
            type Scope = DynamicResourceScope;

            fn kind(scope: &Scope) -> Cow<'_, str> {
                Self::names(*scope).0.into()
            }

            fn group(_: &Scope) -> Cow<'_, str> {
                PLACEMENT_GROUP.into()
            }

            fn version(_: &Scope) -> Cow<'_, str> {
                STORAGE_VERSION.into()
            }

            fn plural(scope: &Scope) -> Cow<'_, str> {
                Self::names(*scope).1.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

scoped!(
    /// What to place, where, and how to roll it out.
    Placement,
    PlacementSpec,
    PlacementStatus,
    ("ClusterResourcePlacement", "clusterresourceplacements"),
    ("ResourcePlacement", "resourceplacements")
);
scoped!(
    /// One version of a placement's policy, with the decisions made for it.
    PolicySnapshot,
    PolicySnapshotSpec,
    PolicySnapshotStatus,
    (
        "ClusterSchedulingPolicySnapshot",
        "clusterschedulingpolicysnapshots"
    ),
    ("SchedulingPolicySnapshot", "schedulingpolicysnapshots")
);
scoped!(
    /// One version of a placement's resources, or a part of one.
    Snapshot,
    ResourceSnapshotSpec,
    ResourceSnapshotStatus,
    ("ClusterResourceSnapshot", "clusterresourcesnapshots"),
    ("ResourceSnapshot", "resourcesnapshots")
);
scoped!(
    /// One placement on one cluster.
    Binding,
    BindingSpec,
    BindingStatus,
    ("ClusterResourceBinding", "clusterresourcebindings"),
    ("ResourceBinding", "resourcebindings")
);

scoped!(
    /// Brings one version of a placement to its clusters, stage by stage.
    UpdateRun,
    UpdateRunSpec,
    UpdateRunStatus,
    ("ClusterStagedUpdateRun", "clusterstagedupdateruns"),
    ("StagedUpdateRun", "stagedupdateruns")
);
scoped!(
    /// The stages of update runs.
    UpdateStrategy,
    UpdateStrategySpec,
    NoStatus,
    (
        "ClusterStagedUpdateStrategy",
        "clusterstagedupdatestrategies"
    ),
    ("StagedUpdateStrategy", "stagedupdatestrategies")
);
scoped!(
    /// Asks a person whether an update run may go on.
    ApprovalRequest,
    ApprovalRequestSpec,
    ApprovalRequestStatus,
    ("ClusterApprovalRequest", "clusterapprovalrequests"),
    ("ApprovalRequest", "approvalrequests")
);

/// Status of a kind that has none.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Default)]
pub struct NoStatus {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_decides_on_the_kind() {
        for (namespace, kind, path) in [
            (
                "",
                "ClusterResourceBinding",
                "/apis/placement.kubernetes-fleet.io/v1beta1/clusterresourcebindings",
            ),
            (
                "web",
                "ResourceBinding",
                "/apis/placement.kubernetes-fleet.io/v1beta1/namespaces/web/resourcebindings",
            ),
        ] {
            let binding = Binding::new("b", BindingSpec::default()).within(namespace);
            let scope = Scope::of(&binding);
            assert_eq!(binding.kind_text(), kind);
            let namespace = binding.metadata.namespace.as_deref();
            assert_eq!(Binding::url_path(&scope, namespace), path);
        }
    }
}
