//! ClusterResourcePlacementStatus: a copy of a placement's status, for those who may read in one namespace
//! only (API §3.4).

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube_core::{NamespaceResourceScope, Resource};
use serde::{Deserialize, Serialize};

use crate::placement::PlacementStatus;
use crate::{PLACEMENT_GROUP, STORAGE_VERSION};

/// See the module.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterResourcePlacementStatus {
    /// Standard metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The placement's status, but for its StatusSynced condition.
    pub source_status: PlacementStatus,
    /// When that was copied.
    pub last_updated_time: Time,
}

impl Resource for ClusterResourcePlacementStatus {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        "ClusterResourcePlacementStatus".into()
    }

    fn group(_: &()) -> Cow<'_, str> {
        PLACEMENT_GROUP.into()
    }

    fn version(_: &()) -> Cow<'_, str> {
        STORAGE_VERSION.into()
    }

    fn plural(_: &()) -> Cow<'_, str> {
        "clusterresourceplacementstatuses".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
