//! AppliedWork: on the member, the owner and inventory of what one placement put there (API §3.11).

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// AppliedWork owns the objects that a placement put on this cluster.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "placement.kubernetes-fleet.io",
    version = "v1beta1",
    kind = "AppliedWork",
    plural = "appliedworks",
    category = "fleet",
    category = "fleet-placement",
    status = "AppliedWorkStatus",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct AppliedWorkSpec {
    /// Name of the Work.
    pub work_name: String,
    /// Namespace of the Work on the hub.
    pub work_namespace: String,
}

/// The inventory.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedWorkStatus {
    /// Every object that was, or is about to be, applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_resources: Option<Vec<AppliedResourceMeta>>,
    /// Extension: digest of the desired state that was applied in full (hex SHA-256).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// One object of the inventory.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedResourceMeta {
    /// Position among the manifests.
    #[schemars(transform = crate::raw::plain_integer)]
    pub ordinal: i32,
    /// API group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// API version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Plural name of the kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// UID on the member; absent until applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Extension: whether we made the object or took it over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Extension: generation on the member after our last apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Extension: digest of the manifest as last applied (hex SHA-256).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// Whether we made an object or took it over.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum Origin {
    /// We made it; removal deletes it.
    Created,
    /// It was there before; removal releases it.
    Adopted,
}
