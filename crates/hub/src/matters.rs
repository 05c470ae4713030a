//! To which placements a change of a member cluster can matter.
//!
//! | what has changed | whose decision may differ |
//! |---|---|
//! | whether the cluster is there, its labels, taints, deletion | every placement's |
//! | whether it takes part: joined, healthy, ever heard of | every placement's |
//! | the value of a property, its capacity and use | those that select or rank clusters by properties |
//! | its namespaces | those in a namespace |
//! | its heartbeat, texts, times of observations | none's |
//!
//! That it is heard of again after a silence matters to every placement, too. What is written does not tell
//! that: in a large fleet heartbeats are written more rarely than a silence lasts. Who hears it does
//! ([`crate::members::heard::ends_silence`]).
//!
//! What is available on a cluster moves all day long. With P placements over C clusters, looking at each for
//! each move would cost P × C² an hour.

use std::collections::BTreeMap;

use kube::ResourceExt;
use windlass_api::member::MemberCluster;
use windlass_api::placement::{ClusterSelectorTerm, PlacementPolicy};
use windlass_scheduler::{ClusterView, Membership, NAMESPACES_COLLECTED};
use windlass_status::conditions::find;

/// What of a cluster has changed, as far as that can change where anything goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matters {
    /// To every placement.
    pub to_all: bool,
    /// To placements that look at properties.
    pub to_properties: bool,
    /// To placements in a namespace.
    pub to_namespaced: bool,
}

impl Matters {
    /// Compares a cluster with what it was; none: it was not there, or is not any more.
    #[must_use]
    pub fn of(old: Option<&MemberCluster>, new: Option<&MemberCluster>) -> Self {
        let (Some(old), Some(new)) = (old, new) else {
            return Self {
                to_all: true,
                ..Self::default()
            };
        };
        Self {
            to_all: old.labels() != new.labels()
                || old.spec.taints != new.spec.taints
                || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
                || takes_part_differently(old, new),
            to_properties: properties_differ(old, new),
            to_namespaced: namespaces(old) != namespaces(new),
        }
    }

    /// Whether a placement has to decide again: one with this policy, in a namespace or not.
    #[must_use]
    pub fn to(self, policy: Option<&PlacementPolicy>, is_namespaced: bool) -> bool {
        self.to_all
            || self.to_namespaced && is_namespaced
            || self.to_properties && policy.is_some_and(looks_at_properties)
    }

    /// Whether no placement has to.
    #[must_use]
    pub fn to_none(self) -> bool {
        self == Self::default()
    }
}

fn takes_part_differently(old: &MemberCluster, new: &MemberCluster) -> bool {
    let membership = |cluster| ClusterView::of(cluster).membership;
    let (old, new) = (membership(old), membership(new));
    let timeless = |membership| Membership {
        last_heartbeat: None,
        ..membership
    };
    old.last_heartbeat.is_some() != new.last_heartbeat.is_some() || timeless(old) != timeless(new)
}

fn properties_differ(old: &MemberCluster, new: &MemberCluster) -> bool {
    let (old, new) = (ClusterView::of(old), ClusterView::of(new));
    let values = |view: &ClusterView<'_>| -> BTreeMap<String, String> {
        let value = |(name, property): (&String, &windlass_api::member::PropertyValue)| {
            (name.clone(), property.value.clone())
        };
        view.properties.iter().map(value).collect()
    };
    let usage = |view: &ClusterView<'_>| {
        view.usage.map(|usage| {
            let amounts = [&usage.capacity, &usage.allocatable, &usage.available];
            amounts.map(Clone::clone)
        })
    };
    values(&old) != values(&new) || usage(&old) != usage(&new)
}

/// The names, and whether they are told at all.
fn namespaces(cluster: &MemberCluster) -> Option<(bool, Option<Vec<&String>>)> {
    let status = cluster.status.as_ref()?;
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let names = status.namespaces.as_ref().map(|all| all.keys().collect());
    Some((find(conditions, NAMESPACES_COLLECTED).is_some(), names))
        .filter(|told| *told != (false, None))
}

fn looks_at_properties(policy: &PlacementPolicy) -> bool {
    let Some(affinity) = policy
        .affinity
        .as_ref()
        .and_then(|all| all.cluster_affinity.as_ref())
    else {
        return false;
    };
    let looks = |term: &ClusterSelectorTerm| {
        term.property_selector.is_some() || term.property_sorter.is_some()
    };
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .iter()
        .flat_map(|required| &required.cluster_selector_terms);
    let preferred = affinity
        .preferred_during_scheduling_ignored_during_execution
        .iter()
        .flatten()
        .map(|preferred| &preferred.preference);
    required.chain(preferred).any(looks)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn base() -> Value {
        json!({
            "metadata": { "name": "a", "labels": { "zone": "x" } },
            "spec": { "identity": { "kind": "User", "name": "u" } },
            "status": {
                "conditions": [condition("Joined", "True", "")],
                "agentStatus": [{
                    "type": "MemberAgent", "lastReceivedHeartbeat": "2026-01-01T00:00:00Z",
                    "conditions": [condition("Joined", "True", ""), condition("Healthy", "True", "fine")],
                }],
                "properties": { "kubernetes-fleet.io/node-count": { "value": "3", "observationTime": "2026-01-01T00:00:00Z" } },
                "resourceUsage": { "available": { "cpu": "5" }, "observationTime": "2026-01-01T00:00:00Z" },
                "namespaces": { "web": "" },
            },
        })
    }

    fn condition(type_: &str, status: &str, message: &str) -> Value {
        json!({ "type": type_, "status": status, "reason": "R", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
    }

    fn with(pointer: &str, value: Value) -> MemberCluster {
        let mut cluster = base();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        cluster.pointer_mut(parent).unwrap()[key] = value;
        serde_json::from_value(cluster).unwrap()
    }

    #[test]
    fn the_table_of_the_module() {
        let (none, all) = (
            Matters::default(),
            Matters {
                to_all: true,
                ..Matters::default()
            },
        );
        let properties = Matters {
            to_properties: true,
            ..none
        };
        let namespaced = Matters {
            to_namespaced: true,
            ..none
        };
        let agent = "/status/agentStatus/0";
        let health = |status: &str, message: &str| {
            json!([
                condition("Joined", "True", ""),
                condition("Healthy", status, message)
            ])
        };
        let taint = json!([{ "key": "k", "effect": "NoSchedule" }]);
        let nodes = |count: &str, second: u8| {
            json!({ "kubernetes-fleet.io/node-count":
            { "value": count, "observationTime": format!("2026-01-01T00:00:0{second}Z") } })
        };
        let rows = [
            (
                "/metadata/annotations".to_owned(),
                json!({ "a": "b" }),
                none,
            ),
            (
                format!("{agent}/lastReceivedHeartbeat"),
                json!("2026-01-01T00:05:00Z"),
                none,
            ),
            // As written in a fleet of 5,000.
            (
                format!("{agent}/lastReceivedHeartbeat"),
                json!("2026-01-01T00:10:20Z"),
                none,
            ),
            (
                format!("{agent}/conditions"),
                health("True", "other words"),
                none,
            ),
            ("/status/properties".to_owned(), nodes("3", 9), none),
            ("/metadata/labels".to_owned(), json!({ "zone": "y" }), all),
            ("/spec/taints".to_owned(), taint, all),
            (
                "/metadata/deletionTimestamp".to_owned(),
                json!("2026-01-01T00:00:00Z"),
                all,
            ),
            (format!("{agent}/conditions"), health("False", "fine"), all),
            (format!("{agent}/lastReceivedHeartbeat"), Value::Null, all),
            ("/status/properties".to_owned(), nodes("4", 0), properties),
            (
                "/status/resourceUsage".to_owned(),
                json!({ "available": { "cpu": "4" } }),
                properties,
            ),
            (
                "/status/namespaces".to_owned(),
                json!({ "web": "", "app": "" }),
                namespaced,
            ),
            (
                "/status/namespaces".to_owned(),
                json!({ "web": "web-work" }),
                none,
            ),
            (
                "/status/conditions".to_owned(),
                json!([condition("NamespaceCollectionSucceeded", "True", "")]),
                namespaced,
            ),
        ];
        let old: MemberCluster = serde_json::from_value(base()).unwrap();
        for (pointer, value, expected) in rows {
            let new = with(&pointer, value.clone());
            assert_eq!(
                Matters::of(Some(&old), Some(&new)),
                expected,
                "{pointer} {value}"
            );
        }
        assert!(Matters::of(Some(&old), Some(&old)).to_none());
        assert_eq!(Matters::of(None, Some(&old)), all);
        assert_eq!(Matters::of(Some(&old), None), all);
    }

    #[test]
    fn who_looks_at_properties() {
        let term = |part: &str, value: Value| json!({ part: value });
        let selector =
            json!({ "matchExpressions": [{ "name": "n", "operator": "Gt", "values": ["1"] }] });
        let sorter = json!({ "name": "n", "sortOrder": "Ascending" });
        let required = |term: Value| json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "clusterSelectorTerms": [term] } });
        let preferred = |term: Value| json!({ "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "preference": term }] });
        let labels = json!({ "matchLabels": { "a": "b" } });
        for (affinity, expected) in [
            (required(term("propertySelector", selector)), true),
            (preferred(term("propertySorter", sorter)), true),
            (required(term("labelSelector", labels.clone())), false),
            (preferred(term("labelSelector", labels)), false),
            (json!({}), false),
        ] {
            let policy =
                json!({ "placementType": "PickN", "affinity": { "clusterAffinity": affinity } });
            let policy: PlacementPolicy = serde_json::from_value(policy).unwrap();
            let moved = Matters {
                to_properties: true,
                ..Matters::default()
            };
            assert_eq!(moved.to(Some(&policy), false), expected, "{affinity}");
            assert!(!moved.to(None, true));
            let all = Matters {
                to_all: true,
                ..Matters::default()
            };
            assert!(all.to(Some(&policy), false) && all.to(None, true));
            let named = Matters {
                to_namespaced: true,
                ..Matters::default()
            };
            assert!(named.to(Some(&policy), true) && !named.to(Some(&policy), false));
        }
    }
}
