//! Condition types and reasons (API §4): enums, with one place that turns them into strings.

use crate::scoped::Scope;

/// Declares an enum of API strings.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant,)* }
        impl $name {
            /// The string in the API.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
            /// Reads the string in the API; none for a word of another implementation.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)* _ => None }
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Not known.
    Unknown,
}

impl Status {
    /// The string in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// Reads the string in the API; anything unexpected is Unknown.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

words! {
    /// Condition types of a binding and of a cluster's entry, in the order in which they follow each other.
    Stage {
        /// The cluster was told of its snapshot.
        RolloutStarted = "RolloutStarted",
        /// Overrides were worked in.
        Overridden = "Overridden",
        /// The desired state is where the member, or its agent, gets it.
        WorkSynchronized = "WorkSynchronized",
        /// Every object was applied.
        Applied = "Applied",
        /// Every object is available.
        Available = "Available",
        /// Differences were reported (ReportDiff).
        DiffReported = "DiffReported",
    }
}

impl Stage {
    /// The chain of a placement that applies.
    pub const APPLY: [Self; 5] = [
        Self::RolloutStarted,
        Self::Overridden,
        Self::WorkSynchronized,
        Self::Applied,
        Self::Available,
    ];
    /// The chain of a placement that only reports differences.
    pub const REPORT_DIFF: [Self; 4] = [
        Self::RolloutStarted,
        Self::Overridden,
        Self::WorkSynchronized,
        Self::DiffReported,
    ];

    /// Condition type on a placement: the kind, then the stage.
    #[must_use]
    pub const fn placement_type(self, scope: Scope) -> &'static str {
        match (self, scope) {
            (Self::RolloutStarted, Scope::Cluster) => "ClusterResourcePlacementRolloutStarted",
            (Self::Overridden, Scope::Cluster) => "ClusterResourcePlacementOverridden",
            (Self::WorkSynchronized, Scope::Cluster) => "ClusterResourcePlacementWorkSynchronized",
            (Self::Applied, Scope::Cluster) => "ClusterResourcePlacementApplied",
            (Self::Available, Scope::Cluster) => "ClusterResourcePlacementAvailable",
            (Self::DiffReported, Scope::Cluster) => "ClusterResourcePlacementDiffReported",
            (Self::RolloutStarted, Scope::Namespaced) => "ResourcePlacementRolloutStarted",
            (Self::Overridden, Scope::Namespaced) => "ResourcePlacementOverridden",
            (Self::WorkSynchronized, Scope::Namespaced) => "ResourcePlacementWorkSynchronized",
            (Self::Applied, Scope::Namespaced) => "ResourcePlacementApplied",
            (Self::Available, Scope::Namespaced) => "ResourcePlacementAvailable",
            (Self::DiffReported, Scope::Namespaced) => "ResourcePlacementDiffReported",
        }
    }
}

/// Condition type `Scheduled` of a cluster's entry and of a policy snapshot.
pub const SCHEDULED: &str = "Scheduled";
/// Condition type of a ClusterResourcePlacement: its status was copied into the selected namespace.
pub const STATUS_SYNCED: &str = "ClusterResourcePlacementStatusSynced";

/// Condition type of a placement: its policy is fulfilled.
#[must_use]
pub const fn placement_scheduled(scope: Scope) -> &'static str {
    match scope {
        Scope::Cluster => "ClusterResourcePlacementScheduled",
        Scope::Namespaced => "ResourcePlacementScheduled",
    }
}

/// Extension: condition type that tells what the deletion of a placement waits for.
#[must_use]
pub const fn placement_deleting(scope: Scope) -> &'static str {
    match scope {
        Scope::Cluster => "ClusterResourcePlacementDeleting",
        Scope::Namespaced => "ResourcePlacementDeleting",
    }
}

/// Extension: condition type of a binding: statuses were copied onto the hub's objects.
pub const STATUS_REPORTED_BACK: &str = "StatusReportedBack";

/// Extension: condition type of a placement: statuses are where its reportBackStrategy wants them.
#[must_use]
pub const fn placement_reported_back(scope: Scope) -> &'static str {
    match scope {
        Scope::Cluster => "ClusterResourcePlacementStatusReportedBack",
        Scope::Namespaced => "ResourcePlacementStatusReportedBack",
    }
}

words! {
    /// Reasons on placements and on cluster entries (API §4.1, §4.2).
    Reason {
        /// Selectors can't be acted on.
        InvalidResourceSelectors = "InvalidResourceSelectors",
        /// Not scheduled for this generation yet.
        SchedulePending = "SchedulePending",
        /// The status was copied.
        StatusSyncSucceeded = "StatusSyncSucceeded",
        /// The status could not be copied.
        StatusSyncFailed = "StatusSyncFailed",
        /// Enough clusters.
        SchedulingPolicyFulfilled = "SchedulingPolicyFulfilled",
        /// Fewer clusters than asked for.
        SchedulingPolicyUnfulfilled = "SchedulingPolicyUnfulfilled",
        /// The cluster was selected.
        Scheduled = "Scheduled",
        /// A slot found no cluster.
        ScheduleFailed = "ScheduleFailed",
        /// Some cluster has not been decided on.
        RolloutStartedUnknown = "RolloutStartedUnknown",
        /// Somebody else rolls out.
        RolloutControlledByExternalController = "RolloutControlledByExternalController",
        /// Held back by the rollout's bounds.
        RolloutNotStartedYet = "RolloutNotStartedYet",
        /// Rolled out.
        RolloutStarted = "RolloutStarted",
        /// Pending.
        OverriddenPending = "OverriddenPending",
        /// An override failed.
        OverriddenFailed = "OverriddenFailed",
        /// Nothing to override.
        NoOverrideSpecified = "NoOverrideSpecified",
        /// Overridden.
        OverriddenSucceeded = "OverriddenSucceeded",
        /// Pending.
        WorkSynchronizedUnknown = "WorkSynchronizedUnknown",
        /// Failing.
        WorkNotSynchronizedYet = "WorkNotSynchronizedYet",
        /// Done.
        WorkSynchronized = "WorkSynchronized",
        /// Pending.
        ApplyPending = "ApplyPending",
        /// Some object failed.
        ApplyFailed = "ApplyFailed",
        /// Done.
        ApplySucceeded = "ApplySucceeded",
        /// Pending.
        ResourceAvailableUnknown = "ResourceAvailableUnknown",
        /// Some object is not ready.
        ResourceNotAvailableYet = "ResourceNotAvailableYet",
        /// Ready.
        ResourceAvailable = "ResourceAvailable",
        /// Pending.
        DiffReportingPending = "DiffReportingPending",
        /// Failed, or running.
        DiffReportingIncompleteOrFailed = "DiffReportingIncompleteOrFailed",
        /// Done.
        DiffReportingCompleted = "DiffReportingCompleted",
    }
}

words! {
    /// Reasons on bindings (API §4.3).
    BindingReason {
        /// Rolled out.
        RolloutStarted = "RolloutStarted",
        /// Held back.
        RolloutNotStartedYet = "RolloutNotStartedYet",
        /// Overrides worked in.
        OverriddenSucceeded = "OverriddenSucceeded",
        /// No overrides.
        NoOverrideSpecified = "NoOverrideSpecified",
        /// An override failed.
        OverriddenFailed = "OverriddenFailed",
        /// The desired state is in place.
        AllWorkSynced = "AllWorkSynced",
        /// The desired state could not be put in place.
        SyncWorkFailed = "SyncWorkFailed",
        /// Just begun.
        ApplyInProgress = "ApplyInProgress",
        /// Some object failed.
        NotAllWorkHaveBeenApplied = "NotAllWorkHaveBeenApplied",
        /// All applied.
        AllWorkHaveBeenApplied = "AllWorkHaveBeenApplied",
        /// Some object is not ready.
        NotAllWorkAreAvailable = "NotAllWorkAreAvailable",
        /// All ready.
        AllWorkAreAvailable = "AllWorkAreAvailable",
        /// All ready, as far as can be told.
        NotAllWorkAreAvailabilityTrackable = "NotAllWorkAreAvailabilityTrackable",
        /// Just begun.
        DiffReportInProgress = "DiffReportInProgress",
        /// Some differences are not reported.
        NotAllWorkHaveDiffReported = "NotAllWorkHaveDiffReported",
        /// All reported.
        AllWorkHaveDiffReported = "AllWorkHaveDiffReported",
        /// Extension, on the first condition that is not True: the cluster answers, and was not ready in time
        /// (`spec.strategy.timeout` of the placement).
        Timeout = "Timeout",
    }
}

words! {
    /// Condition types of an eviction (API §4.10).
    EvictionCondition {
        /// It can be carried out at all.
        Valid = "Valid",
        /// It was carried out, or not.
        Executed = "Executed",
    }
}

words! {
    /// Reasons on an eviction (API §4.10).
    EvictionReason {
        /// The checks passed.
        Valid = "ClusterResourcePlacementEvictionValid",
        /// It can't be carried out, now or later.
        Invalid = "ClusterResourcePlacementEvictionInvalid",
        /// The binding was asked to go.
        Executed = "ClusterResourcePlacementEvictionExecuted",
        /// It was not allowed.
        NotExecuted = "ClusterResourcePlacementEvictionNotExecuted",
        /// Extension: it waits until it is allowed.
        Waiting = "ClusterResourcePlacementEvictionWaiting",
    }
}

words! {
    /// Reasons on one object on a member (API §4.6).
    ManifestReason {
        /// Applied.
        Applied = "Applied",
        /// Recorded, not applied yet.
        PreparingToProcess = "PreparingToProcess",
        /// The manifest can't be read, or its kind is not known on the cluster.
        DecodingErred = "DecodingErred",
        /// generateName without a name.
        FoundGenerateName = "FoundGenerateName",
        /// The same object twice.
        Duplicated = "Duplicated",
        /// The look-up failed.
        FailedToFindObjInMemberCluster = "FailedToFindObjInMemberCluster",
        /// The takeover failed or was refused.
        FailedToTakeOver = "FailedToTakeOver",
        /// It exists and may not be taken over.
        NotTakenOver = "NotTakenOver",
        /// The apply failed.
        ManifestApplyFailed = "ManifestApplyFailed",
        /// Ready.
        Available = "Available",
        /// Can't be tracked; taken for ready.
        NotTrackable = "NotTrackable",
        /// Not ready.
        ManifestNotAvailableYet = "ManifestNotAvailableYet",
        /// The check failed, or the object says that it failed.
        Failed = "Failed",
    }
}

words! {
    /// Condition types of an update run, its stages and clusters (API §4.9), of its tasks and of approval
    /// requests (API §4.10).
    RunCondition {
        /// Run: its stages are computed.
        Initialized = "Initialized",
        /// Run, stage: it moves.
        Progressing = "Progressing",
        /// Run, stage, cluster: it is done, or has failed.
        Succeeded = "Succeeded",
        /// Cluster: it was begun with.
        Started = "Started",
        /// Cluster (extension): the run passes it over.
        Skipped = "Skipped",
        /// Cluster (extension): what the run brings gets there, and is told of; recorded only of a cluster
        /// under way where once it was not so.
        InReach = "InReach",
        /// Run (extension): another run has taken over.
        Superseded = "Superseded",
        /// Run (extension): the clusters that it moved are back where they were.
        RolledBack = "RolledBack",
        /// Task: the request exists.
        ApprovalRequestCreated = "ApprovalRequestCreated",
        /// Task: the request was approved.
        ApprovalRequestApproved = "ApprovalRequestApproved",
        /// Task: the time is over.
        WaitTimeElapsed = "WaitTimeElapsed",
        /// Approval request: a person says so.
        Approved = "Approved",
        /// Approval request: the hub has seen it, and it can't be undone.
        ApprovalAccepted = "ApprovalAccepted",
    }
}

words! {
    /// Reasons on an update run, its stages, clusters, tasks and approval requests (API §4.9, §4.10).
    RunReason {
        /// The stages are computed.
        UpdateRunInitializedSuccessfully = "UpdateRunInitializedSuccessfully",
        /// They can't be; the run has ended.
        UpdateRunInitializedFailed = "UpdateRunInitializedFailed",
        /// Extension: something has to be there first.
        UpdateRunInitializing = "UpdateRunInitializing",
        /// Clusters are updated.
        UpdateRunProgressing = "UpdateRunProgressing",
        /// A task is waited for.
        UpdateRunWaiting = "UpdateRunWaiting",
        /// A cluster takes longer than it should.
        UpdateRunStuck = "UpdateRunStuck",
        /// Clusters under way are waited for, then it stands.
        UpdateRunStopping = "UpdateRunStopping",
        /// It stands.
        UpdateRunStopped = "UpdateRunStopped",
        /// It has ended before its end.
        UpdateRunFailed = "UpdateRunFailed",
        /// It is done.
        UpdateRunSucceeded = "UpdateRunSucceeded",
        /// Extension: another run has taken over.
        UpdateRunSuperseded = "UpdateRunSuperseded",
        /// Extension: clusters go back to what they had.
        UpdateRunRollingBack = "UpdateRunRollingBack",
        /// Extension: they are back.
        UpdateRunRolledBack = "UpdateRunRolledBack",
        /// Extension: the way back has failed, too.
        UpdateRunRollbackFailed = "UpdateRunRollbackFailed",
        /// Clusters of the stage are updated.
        StageUpdatingStarted = "StageUpdatingStarted",
        /// A task of the stage is waited for.
        StageUpdatingWaiting = "StageUpdatingWaiting",
        /// Clusters under way are waited for.
        StageUpdatingStopping = "StageUpdatingStopping",
        /// The stage stands.
        StageUpdatingStopped = "StageUpdatingStopped",
        /// The stage has failed.
        StageUpdatingFailed = "StageUpdatingFailed",
        /// The stage is done.
        StageUpdatingSucceeded = "StageUpdatingSucceeded",
        /// The stage has no cluster.
        StageUpdatingSkippedNoClusters = "StageUpdatingSkippedNoClusters",
        /// The cluster was begun with.
        ClusterUpdatingStarted = "ClusterUpdatingStarted",
        /// The cluster has its version.
        ClusterUpdatingSucceeded = "ClusterUpdatingSucceeded",
        /// The cluster has failed.
        ClusterUpdatingFailed = "ClusterUpdatingFailed",
        /// Extension: the cluster leaves or is gone.
        ClusterLeft = "ClusterLeft",
        /// Extension: the placement no longer chooses the cluster.
        ClusterNotSelected = "ClusterNotSelected",
        /// Extension: the placement chooses a cluster again that was to be removed.
        ClusterSelectedAgain = "ClusterSelectedAgain",
        /// Extension: the cluster doesn't report.
        ClusterUnreachable = "ClusterUnreachable",
        /// Extension: the cluster has no binding.
        BindingMissing = "BindingMissing",
        /// Extension: the cluster's binding was recorded as changed, and is not yet.
        BindingUnwritten = "BindingUnwritten",
        /// Extension: the cluster has what the run brings, and reports.
        ClusterInReach = "ClusterInReach",
        /// Extension: somebody else has changed the cluster's binding since.
        ClusterChangedByOthers = "ClusterChangedByOthers",
        /// Extension: the cluster has nothing to go back to.
        NothingToGoBackTo = "NothingToGoBackTo",
        /// The request exists.
        StageTaskApprovalRequestCreated = "StageTaskApprovalRequestCreated",
        /// The request was approved.
        StageTaskApprovalRequestApproved = "StageTaskApprovalRequestApproved",
        /// The time is over.
        AfterStageTaskWaitTimeElapsed = "AfterStageTaskWaitTimeElapsed",
        /// The hub has seen the approval.
        ApprovalRequestApprovalAccepted = "ApprovalRequestApprovalAccepted",
    }
}
