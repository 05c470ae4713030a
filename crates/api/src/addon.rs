//! Add-ons (`addons.windlass.dev/v1alpha1`, ours): repositories of Helm charts, what they offer, and what of
//! it is placed.
//!
//! An [`AddonRepository`] is watched; each chart that it offers stands as an [`AddonChart`], which the hub
//! alone writes; an [`Addon`](placed::Addon) renders one of them and places the result. Credentials stand
//! only in Secrets of the hub's own namespace, never in an object of these kinds.

pub mod chart;
pub mod placed;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::chart::{AddonChart, ChartSpec, ChartVersion};
pub use self::placed::{Addon, AddonSpec, AddonStatus, RenderedEnvelope};

/// API group of the three kinds.
pub const GROUP: &str = "addons.windlass.dev";
/// Their one version.
pub const VERSION: &str = "v1alpha1";

/// AddonRepository is a repository of Helm charts, classic (`https://`, `http://`) or OCI (`oci://`), that
/// the hub watches. What it offers stands as AddonCharts.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[kube(
    group = "addons.windlass.dev",
    version = "v1alpha1",
    kind = "AddonRepository",
    plural = "addonrepositories",
    shortname = "addonrepo",
    category = "windlass",
    status = "RepositoryStatus",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Synced",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Synced")].status"#
    ),
    printcolumn(name = "Charts", type_ = "integer", json_path = ".status.chartCount"),
    printcolumn(
        name = "Last Sync",
        type_ = "date",
        json_path = ".status.lastSuccessfulSyncTime"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Next Sync",
        type_ = "string",
        json_path = ".status.nextSyncTime",
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
pub struct RepositorySpec {
    /// Where it is: `https://host/path` or `http://host/path` of a classic repository, whose index is
    /// `index.yaml` below it; or `oci://host/path/chart` of one chart in a registry, `oci://host/path` with
    /// `charts` of several. Without user name or password: those stand in the Secret of `secretRef`.
    #[schemars(
        length(min = 1, max = 2048),
        regex(pattern = r"^(https?|oci)://.+$"),
        extend("x-kubernetes-validations" = [
            {"rule": "!self.matches('^[a-z]+://[^/?#]*@')",
             "message": "url must not hold a user name or password; put them into the Secret that secretRef names"}])
    )]
    pub url: String,
    /// Secret in the hub's namespace with `username` and `password`, or `token`, or `.dockerconfigjson`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
    /// Secret in the hub's namespace with `ca.crt`, and with `tls.crt` and `tls.key` where the server asks
    /// for a client's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<SecretReference>,
    /// Does not check the server's certificate; absent means it is checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
    /// OCI only: whether the registry speaks plain HTTP; absent means that it does on a loopback host alone.
    #[serde(skip_serializing_if = "Option::is_none", rename = "plainHTTP")]
    pub plain_http: Option<bool>,
    /// Which charts: of a classic repository only these are kept; below an OCI url these names are looked
    /// up. Absent means all that a classic repository has, and the one chart that an OCI url names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 500), inner(length(min = 1, max = 250)),
        extend("x-kubernetes-list-type" = "set"))]
    pub charts: Option<Vec<String>>,
    /// How often the repository is read, such as `10m`; absent means 5m. At least 30s, at most 24h.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 32),
        extend("x-kubernetes-validations" = [
            {"rule": "self.matches('^((0|[1-9][0-9]*)(\\\\.[0-9]+)?(s|m|h))+$') && duration(self) >= duration('30s') && duration(self) <= duration('24h')",
             "message": "interval must be a duration from 30s to 24h, such as 5m"}])
    )]
    pub interval: Option<String>,
    /// How long one reading may take, such as `2m`; absent means 60s. At least 1s, at most 10m.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 32),
        extend("x-kubernetes-validations" = [
            {"rule": "self.matches('^((0|[1-9][0-9]*)(\\\\.[0-9]+)?(s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('10m')",
             "message": "timeout must be a duration from 1s to 10m, such as 60s"}])
    )]
    pub timeout: Option<String>,
    /// Makes no attempt while true. What is placed stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// How many versions of each chart are kept, newest first; absent means 250. Those that Addons use are
    /// kept besides.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_versions: Option<i32>,
}

/// Names a Secret in the hub's own namespace.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default, JsonSchema)]
pub struct SecretReference {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// What the hub knows of a repository. Written by the hub alone.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryStatus {
    /// Ready, Synced, and at most one of Reconciling and Stalled; those two are absent when they do not
    /// apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Generation that the status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the repository was last read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_successful_fetch_time: Option<Time>,
    /// Digest of what decides where and as whom it was read then: url, charts, TLS options and the
    /// Secrets, of whose content it gives no hint. What was read with others is no evidence that these work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetched_spec_digest: Option<String>,
    /// The same of the last attempt, whatever came of it: with another one, an attempt is due at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempted_spec_digest: Option<String>,
    /// When the repository was last read and all AddonCharts written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_successful_sync_time: Option<Time>,
    /// When the next attempt is due. Absent means now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_sync_time: Option<Time>,
    /// How many attempts in a row have failed to read it; stays at 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive_fetch_failures: Option<i32>,
    /// Value of the annotation `windlass.dev/sync-requested-at` that the last attempt answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_handled_sync_request: Option<String>,
    /// How many charts it offers; absent until it was read once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chart_count: Option<i32>,
    /// How many entries were left out when it was last read, for they have no valid name or version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped_entries: Option<i32>,
}
