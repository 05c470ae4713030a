//! What is to be delivered, and how that went.

use std::sync::Arc;
use std::time::Duration;

use kube::core::DynamicObject;
use windlass_api::placement::{ApplyStrategy, EnvelopeIdentifier};
use windlass_cluster::ApiError;
use windlass_status::digest::Digest;

use crate::availability::Availability;
use crate::manifest::{Manifest, ManifestId, Problem};
use crate::parent::Parent;

/// What a placement wants on a member.
pub struct Desired {
    /// The placement.
    pub parent: Parent,
    /// Name of the Work ([`crate::Member::work_name`]).
    pub work_name: String,
    /// The hub namespace that the Work would be in.
    pub work_namespace: String,
    /// Digest of all of it.
    pub digest: Digest,
    /// How to apply.
    pub strategy: ApplyStrategy,
    /// Whether the outcome is to hold the objects, whose every change of status then is told.
    pub mirror: bool,
    /// The manifests.
    pub manifests: Arc<[Arc<Manifest>]>,
}

/// How a delivery went.
#[derive(Debug, Default)]
pub struct Outcome {
    /// One per manifest, in order.
    pub manifests: Vec<ManifestOutcome>,
    /// What is no longer wanted and still there, and why; sorted.
    pub leftovers: Vec<String>,
    /// Nothing was touched, and why: the placement asks for something that is not done in push mode yet,
    /// or the cluster is not prepared, or is in a fleet under another name too.
    pub unsupported: Option<String>,
    /// When to deliver again though nothing changes.
    pub retry: Option<Duration>,
    /// The cluster could not be reached: nothing can be said.
    pub error: Option<ApiError>,
}

/// How one manifest fared.
#[derive(Debug, Clone)]
pub struct ManifestOutcome {
    /// Which object.
    pub id: ManifestId,
    /// The envelope that it came in.
    pub envelope: Option<Arc<EnvelopeIdentifier>>,
    /// Why it is not applied.
    pub problem: Option<Problem>,
    /// How available it is, once applied.
    pub available: Option<Availability>,
    /// Generation of the member's object; 0 when there is none, or it has none.
    pub generation: i64,
    /// The member's object, once applied, if that was asked for.
    pub live: Option<Arc<DynamicObject>>,
}

impl Outcome {
    /// Whether everything is applied.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        self.error.is_none()
            && self.unsupported.is_none()
            && self
                .manifests
                .iter()
                .all(|manifest| manifest.problem.is_none())
    }
}
