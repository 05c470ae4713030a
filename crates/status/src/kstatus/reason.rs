//! Why an object is in progress or failed.

use std::fmt;

macro_rules! reasons {
    ($($(#[$meta:meta])* $variant:ident = $text:literal,)*) => {
        /// Why an object is in progress or failed: the library's words.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[$meta])* $variant,)*
            /// The reason of a condition of the object itself; empty where that gives none.
            Reported(String),
        }
        impl Reason {
            /// The library's word.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self { $(Self::$variant => $text,)* Self::Reported(reason) => reason }
            }
        }
    };
}

reasons! {
    /// Its controller has not seen the latest generation.
    LatestGenerationNotObserved = "LatestGenerationNotObserved",
    /// A DaemonSet without `metadata.generation`.
    NoGeneration = "NoGeneration",
    /// A DaemonSet without `status.observedGeneration`.
    NoObservedGeneration = "NoObservedGeneration",
    /// A DaemonSet without `status.desiredNumberScheduled`.
    NoDesiredNumber = "NoDesiredNumber",
    /// A load balancer without a cluster IP.
    NoIpAssigned = "NoIPAssigned",
    /// A claim without a volume.
    NotBound = "NotBound",
    /// Containers of the pod crash over and over.
    ContainerCrashLooping = "ContainerCrashLooping",
    /// The pod runs, and is not ready.
    PodRunningNotReady = "PodRunningNotReady",
    /// The pod can't be scheduled, and is younger than the window.
    PodNotScheduled = "PodNotScheduled",
    /// The pod can't be scheduled.
    PodUnschedulable = "PodUnschedulable",
    /// The pod has not begun to run.
    PodPending = "PodPending",
    /// Nobody has looked at the pod yet.
    PodNotObserved = "PodNotObserved",
    /// The Deployment made no progress for its deadline.
    ProgressDeadlineExceeded = "ProgressDeadlineExceeded",
    /// Fewer replicas exist than are asked for.
    LessReplicas = "LessReplicas",
    /// Fewer are up to date.
    LessUpdated = "LessUpdated",
    /// Fewer are available.
    LessAvailable = "LessAvailable",
    /// Fewer are ready.
    LessReady = "LessReady",
    /// Fewer have all labels.
    LessLabelled = "LessLabelled",
    /// Fewer are of the current revision, or scheduled.
    LessCurrent = "LessCurrent",
    /// More replicas exist than are asked for.
    ExtraPods = "ExtraPods",
    /// The Deployment does not say that its new ReplicaSet is available.
    ReplicaSetNotAvailable = "ReplicaSetNotAvailable",
    /// The Deployment does not say that it is available.
    DeploymentNotAvailable = "DeploymentNotAvailable",
    /// The ReplicaSet can't make its pods.
    ReplicaFailure = "ReplicaFailure",
    /// The StatefulSet has not updated what lies behind its partition.
    PartitionRollout = "PartitionRollout",
    /// The StatefulSet's update is not over.
    RevisionMismatch = "RevisionMismatch",
    /// The Job failed.
    JobFailed = "JobFailed",
    /// The Job has not begun.
    JobNotStarted = "JobNotStarted",
    /// The definition is not established yet.
    Installing = "Installing",
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
