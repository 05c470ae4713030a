//! One placement: from what it selects to what its status says.
//!
//! The [`actor`] takes a placement's name from the queue, reads the world, asks the pure planners
//! ([`snapshots`], [`policy`], the scheduler, [`bindings`] with the rolling planner, the aggregator) and
//! sends what has changed, in an order of which every prefix is a valid state.

pub mod actor;
pub mod bindings;
pub mod deletion;
pub mod gathering;
pub mod policy;
mod report;
pub mod snapshots;
pub mod status;
#[cfg(test)]
mod tests;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use windlass_api::placement::ClusterResourcePlacement;

/// Marks an object as a placement's.
#[must_use]
pub fn owner_reference(placement: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: ClusterResourcePlacement::api_version(&()).into_owned(),
        kind: ClusterResourcePlacement::kind(&()).into_owned(),
        name: placement.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
