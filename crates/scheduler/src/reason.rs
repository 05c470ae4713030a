//! The words of decisions (API §4.4, shape of seed 004).

use windlass_api::member::Taint;
use windlass_api::placement::TopologySpreadConstraint;
use windlass_api::snapshot::{ClusterDecision, ClusterScore};

use crate::eligibility::Ineligible;

/// Status that a filter gives to a cluster that it rejects.
const UNSCHEDULABLE: &str = "ClusterUnschedulable";
const PICKED: &str = "picked by scheduling policy";

pub(crate) fn score(affinity: i32, spread: i32) -> ClusterScore {
    ClusterScore {
        affinity_score: Some(affinity),
        topology_spread_score: Some(spread),
    }
}

fn parts(score: ClusterScore) -> (i32, i32) {
    (
        score.affinity_score.unwrap_or_default(),
        score.topology_spread_score.unwrap_or_default(),
    )
}

/// Picked by PickAll or PickN.
pub(crate) fn picked(cluster: &str, cluster_score: ClusterScore) -> ClusterDecision {
    let (affinity, spread) = parts(cluster_score);
    ClusterDecision {
        cluster_name: cluster.to_owned(),
        selected: true,
        cluster_score: Some(score(affinity, spread)),
        reason: format!(
            "Successfully scheduled resources for placement in \"{cluster}\" (affinity score: {affinity}, topology spread score: {spread}): {PICKED}"
        ),
    }
}

/// Picked by PickFixed.
pub(crate) fn picked_by_name(cluster: &str) -> ClusterDecision {
    ClusterDecision {
        cluster_name: cluster.to_owned(),
        selected: true,
        cluster_score: None,
        reason: format!(
            "Successfully scheduled resources for placement in \"{cluster}\": {PICKED}"
        ),
    }
}

/// It could have been picked, others are better.
pub(crate) fn outscored(cluster: &str, affinity: i32, spread: i32) -> ClusterDecision {
    ClusterDecision {
        cluster_name: cluster.to_owned(),
        selected: false,
        cluster_score: Some(score(affinity, spread)),
        reason: format!(
            "cluster \"{cluster}\" does not score high enough (affinity score: {affinity}, topology spread score: {spread})"
        ),
    }
}

fn unselected(cluster: &str, reason: String) -> ClusterDecision {
    ClusterDecision {
        cluster_name: cluster.to_owned(),
        selected: false,
        cluster_score: None,
        reason,
    }
}

/// A filter rejects it.
pub(crate) fn filtered(cluster: &str, why: &str) -> ClusterDecision {
    unselected(cluster, format!("{UNSCHEDULABLE}, {why}"))
}

/// PickFixed names it, but it can't take anything.
pub(crate) fn not_eligible(cluster: &str, why: Ineligible) -> ClusterDecision {
    unselected(
        cluster,
        format!("cluster \"{cluster}\" can't take resources yet: {why}"),
    )
}

/// PickFixed names it, but the fleet has no such cluster.
pub(crate) fn not_found(cluster: &str) -> ClusterDecision {
    unselected(
        cluster,
        format!("cluster \"{cluster}\" is named by the policy but is not in the fleet"),
    )
}

/// The cluster says that it reports its namespaces, and doesn't.
pub(crate) const NAMESPACES_MISSING: &str =
    "cluster has not reported which namespaces it has, so that the placement's may be missing";

pub(crate) fn namespace_absent(namespace: &str) -> String {
    format!(
        "cluster does not have the placement's namespace {namespace:?}; place the namespace first"
    )
}

pub(crate) fn taint(taint: &Taint) -> String {
    let value = taint.value.as_deref().unwrap_or_default();
    format!(
        "taint {{key: {:?}, value: {value:?}, effect: {:?}}} is not tolerated",
        taint.key, taint.effect
    )
}

pub(crate) fn topology(constraint: &TopologySpreadConstraint) -> String {
    format!(
        "cluster would break the topology spread constraint on {:?} (max skew {})",
        constraint.topology_key,
        constraint.max_skew.unwrap_or(1)
    )
}

pub(crate) fn fulfilled(found: usize) -> String {
    format!(
        "found all cluster needed as specified by the scheduling policy, found {found} cluster(s)"
    )
}

pub(crate) fn unfulfilled(found: usize, wanted: usize) -> String {
    format!(
        "could not find all clusters needed as specified by the scheduling policy, found {found} of {wanted} cluster(s)"
    )
}

pub(crate) fn number_missing(found: usize) -> String {
    format!(
        "the policy is PickN without a usable numberOfClusters, set one; the {found} cluster(s) selected so far are kept"
    )
}
