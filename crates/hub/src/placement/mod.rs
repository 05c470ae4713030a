//! One placement: from what it selects to what its status says.
//!
//! The [`actor`] takes a placement's name from the queue, reads the world, asks the pure [`plan`]
//! ([`snapshots`], [`policy`], the scheduler, [`bindings`] with the rolling planner) and the aggregator, and
//! sends what has changed, in an order of which every prefix is a valid state.

pub mod accessible;
pub mod actor;
pub mod bindings;
pub mod deletion;
mod evict;
pub mod gathering;
mod overrides;
pub mod packing;
pub mod plan;
pub mod policy;
pub(crate) mod report;
mod runs;
pub mod snapshots;
pub mod status;
#[cfg(test)]
mod tests;
mod write;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use windlass_api::scoped::{Placement, Scope};
use windlass_cluster::ObjectKey;

/// Marks an object as a placement's: one of the same namespace, if the placement lives in one.
#[must_use]
pub fn owner_reference(placement: &ObjectKey, uid: &str) -> OwnerReference {
    let scope = Scope::of_namespace(Some(&placement.namespace));
    OwnerReference {
        api_version: Placement::api_version(&scope).into_owned(),
        kind: Placement::kind(&scope).into_owned(),
        name: placement.name.clone(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
