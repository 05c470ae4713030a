//! A member's ClusterProfile, as a pure function of its MemberCluster (API §12).
//!
//! | the member agent's entry | ControlPlaneHealthy | reason |
//! |---|---|---|
//! | missing | Unknown | MemberAgentReportedNoStatus |
//! | without Healthy | Unknown | MemberAgentReportedNoHealthInfo |
//! | nothing heard for the threshold | False | MemberAgentHeartbeatLost |
//! | Healthy is Unknown | Unknown | MemberAgentReportedNoHealthInfo |
//! | Healthy is False | False | MemberClusterAPIServerUnhealthy |
//! | Healthy is True | True | MemberClusterAPIServerHealthy |

use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::{Resource, ResourceExt};
use windlass_api::conditions::Status;
use windlass_api::member::{AgentStatus, MemberCluster};
use windlass_api::names::HUB_NAMESPACE;
use windlass_api::profile::{
    AccessCluster, AccessProvider, CLUSTER_MANAGER, CLUSTER_MANAGER_LABEL, CONTROL_PLANE_HEALTHY,
    ClusterManager, ClusterProfile, ClusterProfileSpec, ClusterProfileStatus, ClusterVersion,
};
use windlass_status::conditions::{NewCondition, find, set, status};

use super::status::{CA_DATA, COLLECTED, ENTRYPOINT, MEMBER_AGENT, VERSION};

/// Whether a cluster is to have a profile: it has joined, and is not leaving.
#[must_use]
pub fn is_wanted(cluster: &MemberCluster) -> bool {
    cluster.metadata.deletion_timestamp.is_none() && is_true(cluster, "Joined")
}

/// Whether a profile is a fleet's, and not another manager's.
#[must_use]
pub fn is_ours(profile: &ClusterProfile) -> bool {
    profile.spec.cluster_manager.name == CLUSTER_MANAGER
}

/// The profile to create, or to replace the one that is there; none when that is as it should be.
#[must_use]
pub fn desired(cluster: &MemberCluster, live: Option<&ClusterProfile>) -> Option<ClusterProfile> {
    let name = cluster.name_any();
    let mut next = live.cloned().unwrap_or_else(|| {
        let mut profile = ClusterProfile::new(&name, ClusterProfileSpec::default());
        profile.metadata.namespace = Some(HUB_NAMESPACE.to_owned());
        profile.spec.cluster_manager = ClusterManager {
            name: CLUSTER_MANAGER.to_owned(),
        };
        profile
    });
    next.spec.display_name = Some(name);
    let labels = next.labels_mut();
    labels.insert(CLUSTER_MANAGER_LABEL.to_owned(), CLUSTER_MANAGER.to_owned());
    // It goes with the cluster, however that goes.
    if let Some(owner) = cluster.owner_ref(&()) {
        let owners = next.owner_references_mut();
        owners.retain(|other| other.kind != owner.kind || other.uid == owner.uid);
        if !owners.iter().any(|other| other.uid == owner.uid) {
            owners.push(owner);
        }
    }
    (live != Some(&next)).then_some(next)
}

/// The status to write; none when what is there says it all. `silent`: the cluster has not been heard of for
/// the threshold.
#[must_use]
pub fn desired_status(
    cluster: &MemberCluster,
    live: &ClusterProfile,
    silent: bool,
    now: Timestamp,
) -> Option<ClusterProfileStatus> {
    let previous = live.status.clone().unwrap_or_default();
    let mut next = previous.clone();
    if is_true(cluster, COLLECTED) {
        facts(cluster, &mut next);
    }
    let (health, reason, message) = health(cluster, silent);
    let new = NewCondition {
        type_: CONTROL_PLANE_HEALTHY,
        status: health,
        reason,
        message: message.to_owned(),
        observed_generation: live.metadata.generation,
    };
    set(next.conditions.get_or_insert_default(), new, now);
    (next != previous).then_some(next)
}

fn facts(cluster: &MemberCluster, next: &mut ClusterProfileStatus) {
    let properties = cluster
        .status
        .as_ref()
        .and_then(|status| status.properties.as_ref());
    let property = |name: &str| properties?.get(name).map(|property| property.value.clone());
    if let Some(version) = property(VERSION) {
        next.version = Some(ClusterVersion {
            kubernetes: Some(version),
        });
    }
    let Some(server) = property(ENTRYPOINT) else {
        return;
    };
    let providers = next.access_providers.get_or_insert_default();
    let position = providers
        .iter()
        .position(|provider| provider.name == CLUSTER_MANAGER);
    let position = position.unwrap_or_else(|| {
        providers.push(AccessProvider {
            name: CLUSTER_MANAGER.to_owned(),
            ..Default::default()
        });
        providers.len() - 1
    });
    let access = providers[position]
        .cluster
        .get_or_insert_with(AccessCluster::default);
    access.server = server;
    access.certificate_authority_data = property(CA_DATA).map(|pem| ByteString(pem.into_bytes()));
}

fn health(cluster: &MemberCluster, silent: bool) -> (Status, &'static str, &'static str) {
    let Some(agent) = agent_of(cluster) else {
        return (
            Status::Unknown,
            "MemberAgentReportedNoStatus",
            "The cluster has not reported its status yet",
        );
    };
    let reported = find(agent.conditions.as_deref().unwrap_or_default(), "Healthy").map(status);
    match reported {
        None => (
            Status::Unknown,
            "MemberAgentReportedNoHealthInfo",
            "The cluster has reported its status, but not its health",
        ),
        Some(_) if silent => (
            Status::False,
            "MemberAgentHeartbeatLost",
            "The cluster is not heard of any more",
        ),
        Some(Status::Unknown) => (
            Status::Unknown,
            "MemberAgentReportedNoHealthInfo",
            "The cluster reports that its health is not known",
        ),
        Some(Status::False) => (
            Status::False,
            "MemberClusterAPIServerUnhealthy",
            "The cluster's API server is not healthy",
        ),
        Some(Status::True) => (
            Status::True,
            "MemberClusterAPIServerHealthy",
            "The cluster's API server is healthy",
        ),
    }
}

/// What the member agent reported.
pub(super) fn agent_of(cluster: &MemberCluster) -> Option<&AgentStatus> {
    let agents = cluster.status.as_ref()?.agent_status.as_ref()?;
    agents.iter().find(|agent| agent.type_ == MEMBER_AGENT)
}

fn is_true(cluster: &MemberCluster, type_: &str) -> bool {
    let list = cluster
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    find(list.unwrap_or_default(), type_).is_some_and(|condition| status(condition) == Status::True)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1000).unwrap()
    }

    fn condition(type_: &str, status: &str) -> Value {
        json!({ "type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" })
    }

    fn cluster(conditions: &[Value], agents: &Value, properties: &Value) -> MemberCluster {
        let properties: Value = properties
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| {
                (
                    name.clone(),
                    json!({ "value": value, "observationTime": "2026-01-01T00:00:00Z" }),
                )
            })
            .collect();
        serde_json::from_value(json!({
            "metadata": { "name": "a", "uid": "u1" },
            "spec": { "identity": { "kind": "User", "name": "u" } },
            "status": { "conditions": conditions, "agentStatus": agents, "properties": properties },
        }))
        .unwrap()
    }

    fn agent(health: Option<&str>) -> Value {
        let conditions: Vec<Value> = health
            .iter()
            .map(|status| condition("Healthy", status))
            .collect();
        json!([{ "type": "MemberAgent", "conditions": conditions }])
    }

    #[test]
    fn health_as_the_table_says() {
        for (agents, silent, status, reason) in [
            (json!([]), false, "Unknown", "MemberAgentReportedNoStatus"),
            (json!([]), true, "Unknown", "MemberAgentReportedNoStatus"),
            (
                json!([{ "type": "Other" }]),
                false,
                "Unknown",
                "MemberAgentReportedNoStatus",
            ),
            (
                agent(None),
                true,
                "Unknown",
                "MemberAgentReportedNoHealthInfo",
            ),
            (
                agent(Some("True")),
                true,
                "False",
                "MemberAgentHeartbeatLost",
            ),
            (
                agent(Some("Unknown")),
                true,
                "False",
                "MemberAgentHeartbeatLost",
            ),
            (
                agent(Some("Unknown")),
                false,
                "Unknown",
                "MemberAgentReportedNoHealthInfo",
            ),
            (
                agent(Some("False")),
                false,
                "False",
                "MemberClusterAPIServerUnhealthy",
            ),
            (
                agent(Some("True")),
                false,
                "True",
                "MemberClusterAPIServerHealthy",
            ),
        ] {
            let cluster = cluster(&[], &agents, &json!({}));
            let profile = desired(&cluster, None).unwrap();
            let told = desired_status(&cluster, &profile, silent, now())
                .unwrap()
                .conditions
                .unwrap();
            assert_eq!(
                (told[0].status.as_str(), told[0].reason.as_str()),
                (status, reason),
                "{agents} {silent}"
            );
        }
    }

    #[test]
    fn a_profile_is_written_once() {
        let properties =
            json!({ VERSION: "v1.36.3", ENTRYPOINT: "https://a:6443", CA_DATA: "-----BEGIN" });
        let known = [condition("Joined", "True"), condition(COLLECTED, "True")];
        let cluster = cluster(&known, &agent(Some("True")), &properties);
        assert!(is_wanted(&cluster));
        let mut profile = desired(&cluster, None).unwrap();
        assert!(is_ours(&profile));
        profile.status = desired_status(&cluster, &profile, false, now());
        assert_eq!(desired(&cluster, Some(&profile)), None);
        assert_eq!(desired_status(&cluster, &profile, false, now()), None);
        let written = serde_json::to_value(&profile).unwrap();
        assert_eq!(written["metadata"]["namespace"], "fleet-system");
        assert_eq!(
            written["metadata"]["labels"],
            json!({ "x-k8s.io/cluster-manager": "KubeFleet" })
        );
        assert_eq!(written["metadata"]["ownerReferences"][0]["uid"], "u1");
        assert_eq!(
            written["spec"],
            json!({ "displayName": "a", "clusterManager": { "name": "KubeFleet" } })
        );
        assert_eq!(
            written["status"]["version"],
            json!({ "kubernetes": "v1.36.3" })
        );
        assert_eq!(
            written["status"]["accessProviders"],
            json!([{ "name": "KubeFleet", "cluster": { "server": "https://a:6443", "certificate-authority-data": "LS0tLS1CRUdJTg==" } }])
        );
    }

    #[test]
    fn what_others_put_into_a_profile_stays() {
        let joined = cluster(
            &[condition(COLLECTED, "True")],
            &agent(Some("True")),
            &json!({ ENTRYPOINT: "https://a" }),
        );
        let theirs: ClusterProfile = serde_json::from_value(json!({
            "metadata": { "name": "a", "namespace": "fleet-system", "ownerReferences": [
                { "apiVersion": "cluster.kubernetes-fleet.io/v1beta1", "kind": "MemberCluster", "name": "a", "uid": "earlier" },
                { "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x" },
            ] },
            "spec": { "clusterManager": { "name": "KubeFleet" }, "more": 1 },
            "status": {
                "properties": [{ "name": "cost", "value": "3" }],
                "conditions": [condition("Theirs", "True")],
                "accessProviders": [{ "name": "other", "cluster": { "server": "https://b" } }],
            },
        }))
        .unwrap();
        let profile = serde_json::to_value(desired(&joined, Some(&theirs)).unwrap()).unwrap();
        assert_eq!(profile["spec"]["more"], 1);
        let uids: Vec<&Value> = profile["metadata"]["ownerReferences"]
            .as_array()
            .unwrap()
            .iter()
            .map(|o| &o["uid"])
            .collect();
        assert_eq!(uids, ["x", "u1"]);
        let status = desired_status(&joined, &theirs, false, now()).unwrap();
        let status = serde_json::to_value(status).unwrap();
        assert_eq!(
            status["properties"],
            json!([{ "name": "cost", "value": "3" }])
        );
        assert_eq!(status["conditions"].as_array().unwrap().len(), 2);
        assert_eq!(
            status["accessProviders"][0]["cluster"]["server"],
            "https://b"
        );
        assert_eq!(
            status["accessProviders"][1]["cluster"],
            json!({ "server": "https://a" })
        );
    }

    #[test]
    fn what_was_not_collected_is_not_shown() {
        let cluster = cluster(
            &[condition(COLLECTED, "False")],
            &agent(Some("True")),
            &json!({ VERSION: "v1" }),
        );
        let profile = desired(&cluster, None).unwrap();
        assert_eq!(
            desired_status(&cluster, &profile, false, now())
                .unwrap()
                .version,
            None
        );
        assert!(!is_wanted(&cluster), "it has not joined");
    }
}
