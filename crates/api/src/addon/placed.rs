//! Addon: a chart that is rendered and placed.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::placement::{PlacementPolicy, RolloutStrategy};
use crate::raw::any_object;

/// Addon is a chart of an AddonRepository, rendered with the values given and placed on member clusters.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "addons.windlass.dev",
    version = "v1alpha1",
    kind = "Addon",
    plural = "addons",
    category = "windlass",
    status = "AddonStatus",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Chart", type_ = "string", json_path = ".spec.chart.name"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Available Version",
        type_ = "string",
        json_path = ".status.availableVersion",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#,
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.releaseName) == has(oldSelf.releaseName) && (!has(self.releaseName) || self.releaseName == oldSelf.releaseName)",
     "message": "releaseName is immutable; create another Addon"}]))]
pub struct AddonSpec {
    /// The chart.
    pub chart: ChartChoice,
    /// Namespace that the chart is rendered for, on the hub and on the members. The hub makes it if it is
    /// not there, and never removes it.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
        extend("x-kubernetes-validations" = [
        {"rule": "self == oldSelf", "message": "namespace is immutable; create another Addon"}]))]
    pub namespace: String,
    /// Name that the chart is rendered with, Helm's release name; absent means that of the Addon.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 53),
        regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
    )]
    pub release_name: Option<String>,
    /// Values, over those of the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub values: Option<Value>,
    /// What becomes of a newer version within the range, and of a version that the repository has
    /// published anew; absent means Manual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_policy: Option<UpdatePolicy>,
    /// What the chart is told about the clusters; absent means what Helm assumes by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities>,
    /// Where it goes.
    pub placement: AddonPlacement,
}

/// Which chart, and which versions of it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChartChoice {
    /// The AddonRepository.
    #[schemars(length(min = 1, max = 253))]
    pub repository: String,
    /// Name of the chart, as the repository spells it.
    #[schemars(length(min = 1, max = 250))]
    pub name: String,
    /// One version, such as `1.2.3`, or a range, such as `^1.2`, `~1.2.0`, `>=1.2 <2`, `1.2.x`; absent
    /// means the newest that is no prerelease.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub version: Option<String>,
}

/// What becomes of newer versions.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum UpdatePolicy {
    /// They show in the status. What is placed stays until the spec asks for another version.
    Manual,
    /// They are rolled out.
    Automatic,
}

/// What `helm template` is told about the clusters.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    /// Version of Kubernetes, such as `1.34`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^v?[0-9]+\.[0-9]+(\.[0-9]+)?$"))]
    pub kubernetes_version: Option<String>,
    /// API versions that the clusters have besides those of Kubernetes, such as `monitoring.coreos.com/v1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 200),
        inner(length(min = 1, max = 256), regex(pattern = r"^[^,]+$"))
    )]
    pub api_versions: Option<Vec<String>>,
}

/// Where an Addon goes: one of the two.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.ref) != has(self.inline)", "message": "exactly one of ref and inline must be set"},
    {"rule": "has(self.ref) == has(oldSelf.ref) && (!has(self.ref) || self.ref.name == oldSelf.ref.name)",
     "message": "which placement it is is immutable, for another one would take off what this one has placed; create another Addon"}]))]
pub struct AddonPlacement {
    /// A ClusterResourcePlacement of the user's that selects what the Addon makes, by the label
    /// `addons.windlass.dev/addon`.
    #[serde(skip_serializing_if = "Option::is_none", rename = "ref")]
    pub reference: Option<PlacementReference>,
    /// The hub makes a ClusterResourcePlacement with this, of the Addon's name with `addon-` before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline: Option<InlinePlacement>,
}

/// Names a ClusterResourcePlacement.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default, JsonSchema)]
pub struct PlacementReference {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Which clusters, and how a change gets there; as in a ClusterResourcePlacement.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InlinePlacement {
    /// Which clusters; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PlacementPolicy>,
    /// How a change rolls out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<RolloutStrategy>,
}

/// What the hub knows of an Addon. Written by the hub alone.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddonStatus {
    /// Ready, Rendered, and at most one of Reconciling and Stalled; those two are absent when they do not
    /// apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Generation that the status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Version of the chart that is rendered and handed to the placement, as the repository spells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The repository, chart and range that [`Self::version`] was chosen for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen_for: Option<ChartChoice>,
    /// SHA-256 of that chart's archive, or digest of its manifest (OCI).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chart_digest: Option<String>,
    /// A newer version within the range, or that version published anew, that `updatePolicy: Manual` holds
    /// back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_version: Option<String>,
    /// Digest of all that the render depends on: chart, values, names, Helm's version, capabilities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub render_digest: Option<String>,
    /// When that was rendered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rendered_at: Option<Time>,
    /// Version of Helm that rendered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub helm_version: Option<String>,
    /// The envelopes that hold the render. Only what is in them as listed here is placed; while one of them is
    /// not so yet, its placement keeps what it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    pub envelopes: Option<Vec<RenderedEnvelope>>,
    /// How many objects of each kind the render has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<BTreeMap<String, i32>>,
    /// Hooks of the chart that are left out, as `kind/name (events)`; at most 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped_hooks: Option<Vec<String>>,
    /// Kinds in the render, as `kind.group`, of which neither Kubernetes, nor the chart, nor the hub knows whether
    /// they live in a namespace: it is assumed that they do. Their CRDs on the hub would tell. At most 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assumed_kinds: Option<Vec<String>>,
    /// The chart renders differently each time it is asked: random values or dates are in it. They change
    /// only when something else does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_reproducible: Option<bool>,
    /// How many attempts in a row have failed for a passing reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive_failures: Option<i32>,
    /// When the next attempt is due, after a failed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_time: Option<Time>,
    /// The ClusterResourcePlacement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<String>,
}

/// An envelope that an Addon has made: a ResourceEnvelope, or without a namespace a ClusterResourceEnvelope.
#[derive(
    Serialize, Deserialize, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default, JsonSchema,
)]
pub struct RenderedEnvelope {
    /// Its namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// SHA-256 of what it holds.
    pub digest: String,
}
