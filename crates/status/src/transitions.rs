//! What is news: from the old and the new status of an object to what people should be told.
//!
//! Only transitions are news, never states; what happens in every healthy rollout on every cluster (not
//! reported yet, not ready yet) is none.
//!
//! | object | transition | severity, reason |
//! |---|---|---|
//! | placement | Scheduled becomes False | Warning, the condition's |
//! | placement | Scheduled becomes True after False | Normal, the condition's |
//! | placement | another index is rolled out (not one that External clusters came to agree on) | Normal, RolloutStarted |
//! | placement | Available or DiffReported becomes True, or is True for another index | Normal, the condition's |
//! | placement | what its deletion waits for is not just work in progress | Warning, the condition's |
//! | cluster of a placement | Overridden, WorkSynchronized, Applied or DiffReported becomes False, not in progress | Warning, the condition's |
//! | cluster of a placement | any of them has taken too long, whatever was said of it before | Warning, Timeout |
//! | cluster of a placement | Available becomes False though it was True for the same index, or an object has failed | Warning, the condition's |
//! | member cluster | Joined becomes True | Normal, the condition's |
//! | member cluster | Joined becomes False after True | Normal, the condition's |
//! | member cluster | Healthy becomes False | Warning, the condition's |
//! | member cluster | Healthy becomes True after False | Normal, the condition's |
//! | member cluster | CredentialsValid becomes False | Warning, the condition's |
//! | member cluster | CredentialsValid becomes True after False | Normal, the condition's |

use std::collections::{BTreeMap, HashMap};

use windlass_api::Condition;
use windlass_api::conditions::{
    BindingReason, ManifestReason, Reason, Stage, Status, placement_deleting, placement_scheduled,
};
use windlass_api::member::MemberClusterStatus;
use windlass_api::placement::{
    FailedResourcePlacement, PerClusterPlacementStatus, PlacementStatus,
};
use windlass_api::scoped::Scope;

use crate::conditions::{find, status};
use crate::processing::is_timeout;

/// Clusters of one change that get news of their own; the others are only counted.
pub const NAMED: usize = 10;

/// Reason of [`placement_deleting`] while nothing stands in the way.
pub const DELETION_IN_PROGRESS: &str = "Removing";

/// One piece of news about a placement or a member cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Whether somebody may have to act.
    pub is_warning: bool,
    /// Why, one CamelCase word.
    pub reason: String,
    /// What was done, or failed, one CamelCase word.
    pub action: &'static str,
    /// What happened.
    pub note: String,
    /// The cluster of a placement that it is about.
    pub cluster: Option<String>,
    /// Index of the snapshot that it is about; empty where there is none.
    pub index: String,
}

/// What is new about a placement. Without an old status, what holds now is new.
#[must_use]
pub fn of_placement(
    scope: Scope,
    old: Option<&PlacementStatus>,
    new: &PlacementStatus,
) -> Vec<Transition> {
    let empty = PlacementStatus::default();
    let old = old.unwrap_or(&empty);
    let mut news = Vec::new();
    news.extend(scheduled(scope, old, new));
    news.extend(rollout_started(scope, old, new));
    news.extend(clusters(old, new));
    news.extend(complete(scope, old, new));
    news.extend(deletion(scope, old, new));
    news
}

/// What is new about a member cluster. Without an old status, what holds now is new.
#[must_use]
pub fn of_member(old: Option<&MemberClusterStatus>, new: &MemberClusterStatus) -> Vec<Transition> {
    let before = old.and_then(|status| status.conditions.as_deref());
    let before = before.unwrap_or_default();
    let after = new.conditions.as_deref().unwrap_or_default();
    let changed = |type_: &str| {
        let condition = find(after, type_)?;
        let was = find(before, type_).map(status);
        (was != Some(status(condition))).then_some((was, status(condition), condition))
    };
    let mut news = Vec::new();
    for (type_, action) in [
        ("CredentialsValid", "Authenticate"),
        ("Joined", "Join"),
        ("Healthy", "Probe"),
    ] {
        let Some((was, is, condition)) = changed(type_) else {
            continue;
        };
        let is_joined = type_ == "Joined";
        let (is_warning, action) = match (was, is) {
            (_, Status::True) if is_joined => (false, action),
            (Some(Status::True), Status::False) if is_joined => (false, "Leave"),
            (_, Status::False) if !is_joined => (true, action),
            (Some(Status::False), Status::True) => (false, action),
            _ => continue,
        };
        news.push(told(condition, is_warning, action, ""));
    }
    news
}

fn told(condition: &Condition, is_warning: bool, action: &'static str, index: &str) -> Transition {
    Transition {
        is_warning,
        reason: condition.reason.clone(),
        action,
        note: condition.message.clone(),
        cluster: None,
        index: index.to_owned(),
    }
}

fn list(status: &PlacementStatus) -> &[Condition] {
    status.conditions.as_deref().unwrap_or_default()
}

fn index(status: &PlacementStatus) -> &str {
    status
        .observed_resource_index
        .as_deref()
        .unwrap_or_default()
}

fn status_in(list: &[Condition], type_: &str) -> Option<Status> {
    find(list, type_).map(status)
}

fn scheduled(scope: Scope, old: &PlacementStatus, new: &PlacementStatus) -> Option<Transition> {
    let was = status_in(list(old), placement_scheduled(scope));
    let condition = find(list(new), placement_scheduled(scope))?;
    match (was, status(condition)) {
        (Some(Status::False), Status::False) => None,
        (_, Status::False) => Some(told(condition, true, "Schedule", "")),
        (Some(Status::False), Status::True) => Some(told(condition, false, "Schedule", "")),
        _ => None,
    }
}

fn rollout_started(
    scope: Scope,
    old: &PlacementStatus,
    new: &PlacementStatus,
) -> Option<Transition> {
    let (was, is) = (index(old), index(new));
    // Under External clusters come to agree: nothing starts then.
    let agreed =
        find(list(old), Stage::RolloutStarted.placement_type(scope)).is_some_and(|condition| {
            condition.reason == Reason::RolloutControlledByExternalController.as_str()
        });
    if is.is_empty() || is == was || (was.is_empty() && agreed) {
        return None;
    }
    let number = entries(new).count();
    Some(Transition {
        is_warning: false,
        reason: Reason::RolloutStarted.as_str().to_owned(),
        action: "RollOut",
        note: format!("Rolling out resource snapshot {is} to {number} cluster(s)"),
        cluster: None,
        index: is.to_owned(),
    })
}

fn complete(scope: Scope, old: &PlacementStatus, new: &PlacementStatus) -> Option<Transition> {
    let is = index(new);
    [
        (Stage::Available, "Available"),
        (Stage::DiffReported, "Differences are reported"),
    ]
    .into_iter()
    .find_map(|(stage, what)| {
        let condition = find(list(new), stage.placement_type(scope))?;
        let was_true = status_in(list(old), stage.placement_type(scope)) == Some(Status::True);
        if status(condition) != Status::True || is.is_empty() || (was_true && index(old) == is) {
            return None;
        }
        let number = entries(new).count();
        let note = format!("{what}: resource snapshot {is}, on {number} cluster(s)");
        Some(Transition {
            note,
            ..told(condition, false, "RollOut", is)
        })
    })
}

fn deletion(scope: Scope, old: &PlacementStatus, new: &PlacementStatus) -> Option<Transition> {
    let condition = find(list(new), placement_deleting(scope))?;
    let was = find(list(old), placement_deleting(scope)).map(|condition| condition.reason.as_str());
    let news = condition.reason != DELETION_IN_PROGRESS && was != Some(&condition.reason);
    news.then(|| told(condition, true, "Delete", ""))
}

fn entries(status: &PlacementStatus) -> impl Iterator<Item = (&str, &PerClusterPlacementStatus)> {
    let entries = status.placement_statuses.iter().flatten();
    entries.filter_map(|entry| Some((entry.cluster_name.as_deref()?, entry)))
}

/// Failures that are new, by condition, each cluster once: a stage follows from the one before.
fn clusters(old: &PlacementStatus, new: &PlacementStatus) -> Vec<Transition> {
    let before: HashMap<&str, &PerClusterPlacementStatus> = entries(old).collect();
    let mut failures: BTreeMap<Stage, BTreeMap<&str, (&PerClusterPlacementStatus, &Condition)>> =
        BTreeMap::new();
    for (cluster, entry) in entries(new) {
        let is = failing_entry(entry);
        let was = before.get(cluster).and_then(|entry| failing_entry(entry));
        let Some((stage, condition)) = is.or_else(|| lost(before.get(cluster).copied(), entry))
        else {
            continue;
        };
        let is_known = |(known, before): (Stage, &Condition)| {
            known == stage && (is_timeout(before) || !is_timeout(condition))
        };
        if !was.is_some_and(is_known) {
            let of_stage = failures.entry(stage).or_default();
            of_stage.insert(cluster, (entry, condition));
        }
    }
    let mut news = Vec::new();
    for (stage, clusters) in failures {
        for (cluster, (entry, condition)) in clusters.iter().take(NAMED) {
            let index = entry.observed_resource_index.as_deref().unwrap_or_default();
            news.push(Transition {
                note: format!(
                    "{stage} is False on cluster {cluster}: {}",
                    condition.message
                ),
                cluster: Some((*cluster).to_owned()),
                ..told(condition, true, action(stage), index)
            });
        }
        if let (Some(more), Some((_, condition))) = (
            clusters.len().checked_sub(NAMED).filter(|more| *more > 0),
            clusters.values().next(),
        ) {
            news.push(Transition {
                note: format!("{stage} is False on {more} more cluster(s)"),
                ..told(condition, true, action(stage), index(new))
            });
        }
    }
    news
}

fn action(stage: Stage) -> &'static str {
    match stage {
        Stage::RolloutStarted => "RollOut",
        Stage::Overridden => "Override",
        Stage::WorkSynchronized => "Synchronize",
        Stage::Applied => "Apply",
        Stage::Available => "CheckAvailability",
        Stage::DiffReported => "ReportDiff",
    }
}

/// The first stage on a cluster that has failed, in the order in which stages follow each other, given
/// its conditions and the objects that are not as they should be. What is in progress has not failed.
#[must_use]
pub fn failing<'a>(
    list: &'a [Condition],
    objects: &[FailedResourcePlacement],
) -> Option<(Stage, &'a Condition)> {
    [
        Stage::Overridden,
        Stage::WorkSynchronized,
        Stage::Applied,
        Stage::Available,
        Stage::DiffReported,
    ]
    .into_iter()
    .find_map(|stage| {
        let condition = find(list, stage.as_str())?;
        (status(condition) == Status::False && has_failed(stage, condition, objects))
            .then_some((stage, condition))
    })
}

fn has_failed(stage: Stage, condition: &Condition, objects: &[FailedResourcePlacement]) -> bool {
    let reason = BindingReason::parse(&condition.reason);
    match stage {
        Stage::Available => {
            reason != Some(BindingReason::NotAllWorkAreAvailable)
                || objects.iter().any(|object| {
                    object.condition.reason != ManifestReason::ManifestNotAvailableYet.as_str()
                })
        }
        _ => !matches!(
            reason,
            Some(BindingReason::ApplyInProgress | BindingReason::DiffReportInProgress)
        ),
    }
}

fn failing_entry(entry: &PerClusterPlacementStatus) -> Option<(Stage, &Condition)> {
    failing(
        entry.conditions.as_deref().unwrap_or_default(),
        entry.failed_placements.as_deref().unwrap_or_default(),
    )
}

/// Availability that was there, and is gone though nothing was rolled out.
fn lost<'a>(
    old: Option<&PerClusterPlacementStatus>,
    new: &'a PerClusterPlacementStatus,
) -> Option<(Stage, &'a Condition)> {
    let old = old?;
    let was = old.conditions.as_deref().unwrap_or_default();
    let is = find(
        new.conditions.as_deref().unwrap_or_default(),
        Stage::Available.as_str(),
    )?;
    let lost = status_in(was, Stage::Available.as_str()) == Some(Status::True)
        && status(is) == Status::False
        && old.observed_resource_index == new.observed_resource_index;
    lost.then_some((Stage::Available, is))
}
