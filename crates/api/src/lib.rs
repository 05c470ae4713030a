//! The placement API: kinds, conditions, reasons, names and labels.
//!
//! Every other crate speaks in these types. They mirror the API groups `placement.kubernetes-fleet.io`
//! and `cluster.kubernetes-fleet.io`, field by field (`docs/extensions.md` lists what we add), and
//! [`crd`] turns them into the CustomResourceDefinitions that `windlass crds` prints.
//!
//! Both served versions, `v1` and `v1beta1` (storage), share one schema: a field that upstream has in
//! only one of them exists in both here, so that a write through either never drops one. That is why
//! there is one Rust type per kind and no conversion.
//!
//! Nothing here talks to a server, reads a clock or decides anything.

#![allow(
    clippy::duplicated_attributes,
    reason = "printer columns repeat their keys"
)]

pub mod addon;
pub mod binding;
pub mod conditions;
pub mod crd;
pub mod eviction;
pub mod labels;
pub mod member;
pub mod names;
pub mod overrides;
pub mod placement;
pub mod profile;
pub mod pull;
pub mod raw;
pub mod run;
pub mod scoped;
pub mod snapshot;
pub mod status_copy;
pub mod work;

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
pub use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// API group of placements, snapshots, bindings and works.
pub const PLACEMENT_GROUP: &str = "placement.kubernetes-fleet.io";
/// API group of member clusters.
pub const CLUSTER_GROUP: &str = "cluster.kubernetes-fleet.io";
/// The version objects are stored and written in.
pub const STORAGE_VERSION: &str = "v1beta1";
/// Every served version; the first is the one that discovery prefers.
pub const SERVED_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
/// Those of overrides and their snapshots: many a manifest that people have still says v1alpha1 (API §1.1).
pub const SERVED_VERSIONS_OF_OVERRIDES: [&str; 3] = ["v1", "v1alpha1", "v1beta1"];
/// Those of the cluster-scoped kinds of update runs, for the same reason.
pub const SERVED_VERSIONS_OF_RUNS: [&str; 3] = SERVED_VERSIONS_OF_OVERRIDES;
/// Those of evictions and disruption budgets, which upstream has no v1 of (API §1.1).
pub const SERVED_VERSIONS_OF_EVICTIONS: [&str; 2] = ["v1alpha1", "v1beta1"];
