//! Whether an object on a member is available (member §15).

use kube::core::DynamicObject;
use serde_json::Value;

use crate::manifest::ManifestId;

/// How available an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It is.
    Available,
    /// It can't be told; it counts as available after a while.
    NotTrackable,
    /// Not yet, and why.
    NotYet(String),
    /// It says itself that it failed.
    Failed(String),
}

/// Kinds that are available as soon as they exist.
const DATA: [(&str, &str); 18] = [
    ("", "Namespace"),
    ("", "Secret"),
    ("", "ConfigMap"),
    ("", "ServiceAccount"),
    ("", "LimitRange"),
    ("", "ResourceQuota"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("networking.k8s.io", "IngressClass"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "CSIStorageCapacity"),
    ("apps", "ControllerRevision"),
    ("scheduling.k8s.io", "PriorityClass"),
];

/// Judges a live object. Only version v1 of the kinds is tracked, as in the API's rules.
#[must_use]
pub fn assess(id: &ManifestId, live: &DynamicObject) -> Availability {
    if id.version != "v1" {
        return Availability::NotTrackable;
    }
    match (id.group.as_str(), id.kind.as_str()) {
        ("apps", "Deployment") => deployment(live),
        ("apps", "StatefulSet") => stateful_set(live),
        ("apps", "DaemonSet") => daemon_set(live),
        ("", "Service") => service(live),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crd(live),
        ("policy", "PodDisruptionBudget") => disruption_budget(live),
        ("batch", "Job") => job(live),
        pair if DATA.contains(&pair) => Availability::Available,
        _ => Availability::NotTrackable,
    }
}

fn number(live: &DynamicObject, pointer: &str) -> i64 {
    live.data
        .pointer(pointer)
        .and_then(Value::as_i64)
        .unwrap_or(0)
}

fn is_observed(live: &DynamicObject) -> bool {
    number(live, "/status/observedGeneration") == live.metadata.generation.unwrap_or(0)
}

fn verdict(available: bool, why: impl FnOnce() -> String) -> Availability {
    if available {
        Availability::Available
    } else {
        Availability::NotYet(why())
    }
}

fn not_observed() -> Availability {
    Availability::NotYet("its controller has not seen the change yet".to_owned())
}

fn deployment(live: &DynamicObject) -> Availability {
    if !is_observed(live) {
        return not_observed();
    }
    let wanted = live
        .data
        .pointer("/spec/replicas")
        .and_then(Value::as_i64)
        .unwrap_or(1);
    let (available, updated) = (
        number(live, "/status/availableReplicas"),
        number(live, "/status/updatedReplicas"),
    );
    let ready = available == wanted
        && updated == wanted
        && number(live, "/status/unavailableReplicas") == 0;
    verdict(ready, || {
        format!("{available} of {wanted} replicas are available, {updated} are up to date")
    })
}

fn stateful_set(live: &DynamicObject) -> Availability {
    if !is_observed(live) {
        return not_observed();
    }
    let wanted = live
        .data
        .pointer("/spec/replicas")
        .and_then(Value::as_i64)
        .unwrap_or(1);
    let available = number(live, "/status/availableReplicas");
    let settled = number(live, "/status/currentReplicas")
        == number(live, "/status/updatedReplicas")
        && live.data.pointer("/status/currentRevision")
            == live.data.pointer("/status/updateRevision");
    verdict(available == wanted && settled, || {
        let update = if settled {
            ""
        } else {
            ", its update is under way"
        };
        format!("{available} of {wanted} replicas are available{update}")
    })
}

fn daemon_set(live: &DynamicObject) -> Availability {
    if !is_observed(live) {
        return not_observed();
    }
    let (available, wanted) = (
        number(live, "/status/numberAvailable"),
        number(live, "/status/desiredNumberScheduled"),
    );
    let updated = number(live, "/status/currentNumberScheduled")
        == number(live, "/status/updatedNumberScheduled");
    verdict(available == wanted && updated, || {
        format!("{available} of {wanted} pods are available")
    })
}

fn service(live: &DynamicObject) -> Availability {
    match live
        .data
        .pointer("/spec/type")
        .and_then(Value::as_str)
        .unwrap_or("ClusterIP")
    {
        "ExternalName" => Availability::NotTrackable,
        "LoadBalancer" => {
            let ingress = live.data.pointer("/status/loadBalancer/ingress/0");
            let known = ingress.is_some_and(|i| {
                ["ip", "hostname"].iter().any(|key| {
                    i.get(key)
                        .and_then(Value::as_str)
                        .is_some_and(|v| !v.is_empty())
                })
            });
            verdict(known, || "its load balancer has no address yet".to_owned())
        }
        _ => {
            let ip = live
                .data
                .pointer("/spec/clusterIPs/0")
                .and_then(Value::as_str);
            verdict(ip.is_some_and(|ip| !ip.is_empty()), || {
                "it has no cluster IP yet".to_owned()
            })
        }
    }
}

fn condition<'a>(live: &'a DynamicObject, type_: &str) -> Option<&'a Value> {
    let list = live.data.pointer("/status/conditions")?.as_array()?;
    list.iter().find(|condition| condition["type"] == type_)
}

fn holds(live: &DynamicObject, type_: &str) -> bool {
    condition(live, type_).is_some_and(|condition| condition["status"] == "True")
}

fn crd(live: &DynamicObject) -> Availability {
    verdict(
        holds(live, "Established") && holds(live, "NamesAccepted"),
        || "it is not established yet".to_owned(),
    )
}

fn disruption_budget(live: &DynamicObject) -> Availability {
    if !is_observed(live) {
        return not_observed();
    }
    let allowed = number(live, "/status/disruptionsAllowed") > 0;
    let (status, reason) = if allowed {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    let consistent = condition(live, "DisruptionAllowed")
        .is_some_and(|condition| condition["status"] == status && condition["reason"] == reason);
    verdict(consistent, || "its status is not up to date yet".to_owned())
}

/// Untracked by the API's rules, but one that says it failed is not passed over (design §5.23).
fn job(live: &DynamicObject) -> Availability {
    match condition(live, "Failed").filter(|condition| condition["status"] == "True") {
        Some(condition) => Availability::Failed(
            condition["message"]
                .as_str()
                .unwrap_or("the job failed")
                .to_owned(),
        ),
        None => Availability::NotTrackable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn judge(id: &ManifestId, live: &Value) -> Availability {
        assess(id, &serde_json::from_value(live.clone()).unwrap())
    }

    fn id(group: &str, kind: &str) -> ManifestId {
        ManifestId {
            group: group.into(),
            version: "v1".into(),
            kind: kind.into(),
            ..Default::default()
        }
    }

    #[test]
    fn deployments() {
        let live = |observed: i64, available: i64, updated: i64, unavailable: i64| {
            json!({"metadata": {"generation": 2}, "spec": {"replicas": 3},
                   "status": {"observedGeneration": observed, "availableReplicas": available,
                              "updatedReplicas": updated, "unavailableReplicas": unavailable}})
        };
        for (live, expected) in [
            (live(2, 3, 3, 0), true),
            (live(1, 3, 3, 0), false),
            (live(2, 2, 3, 1), false),
            (live(2, 3, 2, 0), false),
            (live(2, 3, 3, 1), false),
            (json!({"metadata": {"generation": 1}}), false),
        ] {
            assert_eq!(
                judge(&id("apps", "Deployment"), &live) == Availability::Available,
                expected,
                "{live}"
            );
        }
    }

    #[test]
    fn the_rest() {
        use Availability::{Available, NotTrackable};
        let established = json!({"status": {"conditions": [
            {"type": "Established", "status": "True"}, {"type": "NamesAccepted", "status": "True"}]}});
        let rows = [
            ("", "ConfigMap", json!({"metadata": {}}), Some(Available)),
            (
                "",
                "Service",
                json!({"spec": {"clusterIPs": ["None"]}}),
                Some(Available),
            ),
            ("", "Service", json!({"spec": {}}), None),
            (
                "",
                "Service",
                json!({"spec": {"type": "ExternalName"}}),
                Some(NotTrackable),
            ),
            (
                "",
                "Service",
                json!({"spec": {"type": "LoadBalancer"}}),
                None,
            ),
            (
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                established,
                Some(Available),
            ),
            (
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                json!({"metadata": {}}),
                None,
            ),
            ("batch", "Job", json!({"metadata": {}}), Some(NotTrackable)),
            (
                "example.com",
                "Thing",
                json!({"metadata": {}}),
                Some(NotTrackable),
            ),
            (
                "apps",
                "DaemonSet",
                json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1}}),
                Some(Available),
            ),
        ];
        for (group, kind, live, expected) in rows {
            let found = judge(&id(group, kind), &live);
            match expected {
                Some(expected) => assert_eq!(found, expected, "{kind} {live}"),
                None => assert!(matches!(found, Availability::NotYet(_)), "{kind} {live}"),
            }
        }
        let failed = json!({"status": {"conditions": [{"type": "Failed", "status": "True", "message": "m"}]}});
        assert_eq!(
            judge(&id("batch", "Job"), &failed),
            Availability::Failed("m".into())
        );
    }
}
