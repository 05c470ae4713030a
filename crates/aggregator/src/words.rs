//! Reasons and messages, in one place (reference: hub §0.5, API §4.1 and §4.2).

use windlass_api::conditions::{Reason, Stage, Status};

/// Clusters that a message names before it only counts.
const NAMED: usize = 3;

/// Reason of a placement's condition. Of a cluster's entry only the Unknown ones are used; the others
/// are the binding's own.
pub const fn reason(stage: Stage, status: Status) -> Reason {
    match (stage, status) {
        (Stage::RolloutStarted, Status::Unknown) => Reason::RolloutStartedUnknown,
        (Stage::RolloutStarted, Status::False) => Reason::RolloutNotStartedYet,
        (Stage::RolloutStarted, Status::True) => Reason::RolloutStarted,
        (Stage::Overridden, Status::Unknown) => Reason::OverriddenPending,
        (Stage::Overridden, Status::False) => Reason::OverriddenFailed,
        (Stage::Overridden, Status::True) => Reason::OverriddenSucceeded,
        (Stage::WorkSynchronized, Status::Unknown) => Reason::WorkSynchronizedUnknown,
        (Stage::WorkSynchronized, Status::False) => Reason::WorkNotSynchronizedYet,
        (Stage::WorkSynchronized, Status::True) => Reason::WorkSynchronized,
        (Stage::Applied, Status::Unknown) => Reason::ApplyPending,
        (Stage::Applied, Status::False) => Reason::ApplyFailed,
        (Stage::Applied, Status::True) => Reason::ApplySucceeded,
        (Stage::Available, Status::Unknown) => Reason::ResourceAvailableUnknown,
        (Stage::Available, Status::False) => Reason::ResourceNotAvailableYet,
        (Stage::Available, Status::True) => Reason::ResourceAvailable,
        (Stage::DiffReported, Status::Unknown) => Reason::DiffReportingPending,
        (Stage::DiffReported, Status::False) => Reason::DiffReportingIncompleteOrFailed,
        (Stage::DiffReported, Status::True) => Reason::DiffReportingCompleted,
    }
}

/// What a placement's condition says about the clusters in `clusters` (as [`clusters`] puts them).
pub fn message(stage: Stage, status: Status, clusters: &str) -> String {
    let what = match (stage, status) {
        (Stage::RolloutStarted, Status::Unknown) => {
            "Not known yet whether the rollout has started on"
        }
        (Stage::RolloutStarted, Status::False) => "The rollout has not started yet on",
        (Stage::RolloutStarted, Status::True) => "The rollout has started on all",
        (Stage::Overridden, Status::Unknown) => "Overrides are not worked in yet for",
        (Stage::Overridden, Status::False) => "Overrides can't be worked in for",
        (Stage::Overridden, Status::True) => "Overrides are worked in for all",
        (Stage::WorkSynchronized, Status::Unknown) => "The desired state is not in place yet for",
        (Stage::WorkSynchronized, Status::False) => {
            "The desired state could not be put in place for"
        }
        (Stage::WorkSynchronized, Status::True) => "The desired state is in place for all",
        (Stage::Applied, Status::Unknown) => "No report yet whether resources are applied on",
        (Stage::Applied, Status::False) => {
            "Resources are not all applied (see failedPlacements) on"
        }
        (Stage::Applied, Status::True) => "Resources are applied on all",
        (Stage::Available, Status::Unknown) => "No report yet whether resources are available on",
        (Stage::Available, Status::False) => {
            "Resources are not all available (see failedPlacements) on"
        }
        (Stage::Available, Status::True) => "Resources are available on all",
        (Stage::DiffReported, Status::Unknown) => "No report yet about differences on",
        (Stage::DiffReported, Status::False) => "Differences are not all reported on",
        (Stage::DiffReported, Status::True) => "Differences are reported for all",
    };
    format!("{what} {clusters}")
}

/// "5 cluster(s): a, b, c and 2 more". The names come sorted.
pub fn clusters(sorted: &[&str]) -> String {
    let named = sorted[..sorted.len().min(NAMED)].join(", ");
    let count = sorted.len();
    if count > NAMED {
        format!("{count} cluster(s): {named} and {} more", count - NAMED)
    } else {
        format!("{count} cluster(s): {named}")
    }
}

/// "5 cluster(s)".
pub fn count(clusters: usize) -> String {
    format!("{clusters} cluster(s)")
}

/// Why a condition of a cluster's entry is Unknown.
#[derive(Clone, Copy)]
pub enum Gap {
    /// The cluster has no binding that counts.
    Unbound,
    /// The binding names no snapshot.
    NotRolledOut,
    /// The binding has not reported on what it asks for now.
    Unreported,
    /// The same, and the cluster does not answer.
    Unreachable,
}

impl Gap {
    /// In words.
    pub fn message(self, stage: Stage) -> String {
        match self {
            Self::Unbound => "The cluster has no binding of the present policy yet".to_owned(),
            Self::NotRolledOut => {
                "No resource snapshot has been rolled out to the cluster yet".to_owned()
            }
            Self::Unreported => {
                format!(
                    "The cluster's binding does not report {stage} for its present desired state yet"
                )
            }
            Self::Unreachable => {
                "The cluster does not answer, so that it can't be told of its present desired state; what its \
                 MemberCluster says of it tells why"
                    .to_owned()
            }
        }
    }
}
