//! AddonChart: one chart that a repository offers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// AddonChart is one chart that an AddonRepository offers, and its versions. Written by the hub alone.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "addons.windlass.dev",
    version = "v1alpha1",
    kind = "AddonChart",
    plural = "addoncharts",
    category = "windlass",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Repository", type_ = "string", json_path = ".spec.repository"),
    printcolumn(name = "Chart", type_ = "string", json_path = ".spec.chart"),
    printcolumn(name = "Latest", type_ = "string", json_path = ".spec.latest"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Description",
        type_ = "string",
        json_path = ".spec.description",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ChartSpec {
    /// The AddonRepository.
    #[schemars(length(max = 253))]
    pub repository: String,
    /// Name of the chart, as the repository spells it.
    #[schemars(length(max = 250))]
    pub chart: String,
    /// What the newest version says of itself, at most 500 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub description: Option<String>,
    /// The newest version that is neither a prerelease nor deprecated; if all are, the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub latest: Option<String>,
    /// Newest first, by semantic version.
    #[schemars(length(max = 2000))]
    pub versions: Vec<ChartVersion>,
    /// How many versions the repository has besides, for the list is bounded: those that Addons use are
    /// kept first, then the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted_versions: Option<i32>,
}

/// One version of a chart.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChartVersion {
    /// As the repository spells it.
    #[schemars(length(max = 256))]
    pub version: String,
    /// SHA-256 of the chart's archive (classic), or digest of its manifest with `sha256:` before it (OCI).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 140))]
    pub digest: Option<String>,
    /// When it was made, by the repository's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Time>,
    /// Version of what is in the chart.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub app_version: Option<String>,
    /// Versions of Kubernetes that it says it runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub kube_version: Option<String>,
    /// The repository says that it should not be used any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<bool>,
    /// A library chart: it can't be placed by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library: Option<bool>,
    /// Where its archive is, relative to the repository's url or absolute; the first is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4), inner(length(max = 2048)))]
    pub urls: Option<Vec<String>>,
    /// Why it can't be placed although the repository lists it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<Unavailable>,
}

/// Why a listed version can't be placed.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum Unavailable {
    /// An Addon uses it and the repository does not offer it any more.
    RemovedFromRepository,
    /// What stands under its tag in the registry is no Helm chart.
    UnsupportedMediaType,
    /// It could not be looked at yet; the next reading tries again.
    ResolvePending,
}
