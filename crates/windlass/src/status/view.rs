//! `-o json`: what the tables show, for programs.

use serde::Serialize;
use windlass_api::placement::PerClusterPlacementStatus;
use windlass_api::scoped::Placement;
use windlass_api::{Condition, Time};

use super::{counts, entries, of_placement, telling_of, watch};
use crate::cli::Failure;

/// A placement.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View<'a> {
    placement: &'a str,
    /// Absent for a ClusterResourcePlacement.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    /// Index of the snapshot that it is at; null while clusters disagree.
    index: Option<&'a str>,
    /// Whether that is available, or reported on, everywhere, and reflects the placement as it is.
    complete: bool,
    available_clusters: usize,
    selected_clusters: usize,
    #[serde(flatten)]
    stand: Option<Stand<'a>>,
    clusters: Vec<Cluster<'a>>,
}

#[derive(Serialize)]
struct Cluster<'a> {
    /// Null for a slot that found none.
    cluster: Option<&'a str>,
    index: Option<&'a str>,
    #[serde(flatten)]
    stand: Option<Stand<'a>>,
}

/// The condition that tells how something stands.
#[derive(Serialize)]
struct Stand<'a> {
    condition: &'a str,
    status: &'a str,
    reason: &'a str,
    message: &'a str,
    since: &'a Time,
}

impl<'a> Stand<'a> {
    fn of(condition: &'a Condition) -> Self {
        Self {
            condition: &condition.type_,
            status: &condition.status,
            reason: &condition.reason,
            message: &condition.message,
            since: &condition.last_transition_time,
        }
    }
}

/// What is to be told of a placement.
pub fn of(placement: &Placement) -> View<'_> {
    let (available_clusters, selected_clusters) = counts(placement);
    let cluster =
        |entry: &'_ PerClusterPlacementStatus| -> Option<String> { entry.cluster_name.clone() };
    let mut sorted: Vec<&PerClusterPlacementStatus> = entries(placement).iter().collect();
    sorted.sort_by_key(|entry| (entry.cluster_name.is_none(), cluster(entry)));
    View {
        placement: placement.metadata.name.as_deref().unwrap_or_default(),
        namespace: placement.metadata.namespace.as_deref(),
        index: placement
            .status
            .as_ref()
            .and_then(|status| status.observed_resource_index.as_deref()),
        complete: watch::is_complete(placement),
        available_clusters,
        selected_clusters,
        stand: of_placement(placement).map(Stand::of),
        clusters: sorted
            .into_iter()
            .map(|entry| Cluster {
                cluster: entry.cluster_name.as_deref(),
                index: entry.observed_resource_index.as_deref(),
                stand: telling_of(entry).map(Stand::of),
            })
            .collect(),
    }
}

/// Text with a line per field.
pub fn pretty(view: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(view)? + "\n")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{placement, rolling};
    use super::*;

    #[test]
    fn programs_see_what_people_see() {
        let told: Value = serde_json::from_str(&pretty(&of(&rolling())).unwrap()).unwrap();
        for (pointer, expected) in [
            ("/placement", json!("web")),
            ("/index", json!("3")),
            ("/complete", json!(false)),
            ("/availableClusters", json!(1)),
            ("/selectedClusters", json!(2)),
            (
                "/condition",
                json!("ClusterResourcePlacementRolloutStarted"),
            ),
            ("/status", json!("False")),
            ("/clusters/0/cluster", json!("east")),
            ("/clusters/0/condition", json!("Available")),
            ("/clusters/0/status", json!("False")),
            ("/clusters/0/since", json!("2026-01-01T00:00:00Z")),
            ("/clusters/1/index", json!("2")),
            ("/clusters/2/cluster", json!(null)),
            ("/clusters/2/reason", json!("ScheduleFailed")),
        ] {
            assert_eq!(told.pointer(pointer), Some(&expected), "{pointer}");
        }
        let new = serde_json::to_value(of(&placement("new", &json!({})))).unwrap();
        assert_eq!(
            new,
            json!({ "placement": "new", "index": null, "complete": false,
                    "availableClusters": 0, "selectedClusters": 0, "clusters": [] })
        );
    }
}
