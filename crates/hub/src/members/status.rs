//! What a MemberCluster's status says, as a pure function of what is known (design §5.21, API §4.8).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::config::Kubeconfig;
use windlass_api::conditions::Status;
use windlass_api::member::{
    AgentStatus, Leaving, MemberCluster, MemberClusterStatus, PropertyValue, ResourceUsage,
};
use windlass_api::{Condition, Time};
use windlass_status::conditions::{NewCondition, find, set};

use super::usage::Usage;

/// Type of the agent that delivers placements.
pub const MEMBER_AGENT: &str = "MemberAgent";
/// Condition of a cluster that leaves, and its reason.
const NOT_READY: (&str, &str) = ("ReadyToJoin", "MemberClusterNotReadyToJoin");
const NODE_COUNT: &str = "kubernetes-fleet.io/node-count";
/// Property: version of the API server.
pub const VERSION: &str = "k8s.io/k8s-version";
/// Property: URL of the API server.
pub const ENTRYPOINT: &str = "k8s.io/cluster-entrypoint";
/// Property: certificates of its CA, in PEM.
pub const CA_DATA: &str = "k8s.io/cluster-certificate-authority-data";
/// Condition: whether the properties are those of the cluster as it is.
pub const COLLECTED: &str = "ClusterPropertyCollectionSucceeded";

/// What is known of a cluster's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// They work, until then if they expire.
    Valid(Option<Timestamp>),
    /// They don't, and why; the text says what to do.
    Invalid(String),
}

/// Where a cluster's API server is, as the hub reaches it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// URL.
    pub server: String,
    /// Certificates of its CA, in PEM.
    pub ca: Option<String>,
}

impl Endpoint {
    /// That of the stored kubeconfig, whose first cluster is its only one.
    #[must_use]
    pub fn of(kubeconfig: &Kubeconfig) -> Option<Self> {
        let cluster = kubeconfig.clusters.first()?.cluster.as_ref()?;
        let pem = |base64: &String| -> Option<String> {
            let bytes: ByteString = serde_json::from_value(base64.as_str().into()).ok()?;
            String::from_utf8(bytes.0).ok()
        };
        Some(Self {
            server: cluster.server.clone()?,
            ca: cluster.certificate_authority_data.as_ref().and_then(pem),
        })
    }
}

/// Whether the properties and the usage could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collection {
    /// They are being read.
    Pending,
    /// They were.
    Done,
    /// They can't be, and why.
    Failed(String),
}

/// What is known of a cluster.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Whether the cluster answered within the threshold; none while that can't be told yet.
    pub healthy: Option<bool>,
    /// Why not.
    pub trouble: String,
    /// When it was last heard of.
    pub last_contact: Option<Timestamp>,
    /// Its credentials.
    pub credentials: Credentials,
    /// Where it is.
    pub endpoint: Option<Endpoint>,
    /// Whether the rest could be read.
    pub collection: Collection,
    /// Kubernetes version.
    pub version: Option<String>,
    /// Nodes and pods; none before they are known.
    pub usage: Option<Usage>,
    /// Shortest time between two heartbeat writes.
    pub heartbeat_every: Duration,
    /// Whether this process has known the cluster for long enough to write a heartbeat alone: right after a
    /// restart many would be due.
    pub is_settled: bool,
}

/// The status to write; none when what is there says it all.
#[must_use]
pub fn desired(
    cluster: &MemberCluster,
    facts: &Facts,
    now: Timestamp,
) -> Option<MemberClusterStatus> {
    let previous = cluster.status.clone().unwrap_or_default();
    let mut next = previous.clone();
    let generation = cluster.metadata.generation;
    cluster_conditions(&mut next, facts, generation, now);
    agent_conditions(&mut next, facts, generation, now);
    properties(&mut next, facts, now);
    usage(&mut next, facts, now);
    // The heartbeat alone is written at its pace; with anything else it comes along.
    let stale = agent_of(&previous)
        .and_then(|agent| agent.last_received_heartbeat.as_ref())
        .is_none_or(|last| {
            let age =
                SignedDuration::try_from(facts.heartbeat_every).unwrap_or(SignedDuration::MAX);
            facts.is_settled
                && facts
                    .last_contact
                    .is_some_and(|contact| contact.duration_since(last.0) >= age)
        });
    if stale || next != previous {
        let agent = next
            .agent_status
            .iter_mut()
            .flatten()
            .find(|agent| agent.type_ == MEMBER_AGENT);
        if let (Some(contact), Some(agent)) = (facts.last_contact, agent) {
            agent.last_received_heartbeat = Some(Time(contact));
        }
    }
    (next != previous).then_some(next)
}

/// Sets conditions in one list.
fn putter(
    list: &mut Vec<Condition>,
    observed_generation: Option<i64>,
    now: Timestamp,
) -> impl FnMut(&str, Status, &str, String) {
    move |type_, status, reason, message| {
        let new = NewCondition {
            type_,
            status,
            reason,
            message,
            observed_generation,
        };
        set(list, new, now);
    }
}

fn cluster_conditions(
    next: &mut MemberClusterStatus,
    facts: &Facts,
    generation: Option<i64>,
    now: Timestamp,
) {
    let list = next.conditions.get_or_insert_default();
    let was_reached = find(list, "Joined").is_some();
    let mut put = putter(list, generation, now);
    put(
        "ReadyToJoin",
        Status::True,
        "MemberClusterReadyToJoin",
        "The hub is ready for the cluster".to_owned(),
    );
    match &facts.credentials {
        Credentials::Valid(None) => {
            put(
                "CredentialsValid",
                Status::True,
                "CredentialsValid",
                "The credentials are accepted".to_owned(),
            );
        }
        Credentials::Valid(Some(until)) => put(
            "CredentialsValid",
            Status::True,
            "CredentialsValid",
            format!("The credentials are accepted; the token expires at {until}"),
        ),
        Credentials::Invalid(why) => put(
            "CredentialsValid",
            Status::False,
            "CredentialsInvalid",
            why.clone(),
        ),
    }
    match &facts.collection {
        Collection::Pending => {}
        Collection::Done => put(
            COLLECTED,
            Status::True,
            "PropertiesCollected",
            "The cluster's properties are up to date".to_owned(),
        ),
        Collection::Failed(why) => put(
            COLLECTED,
            Status::False,
            "PropertiesNotCollected",
            why.clone(),
        ),
    }
    match facts.healthy {
        Some(true) => {
            put(
                "Joined",
                Status::True,
                "MemberClusterJoined",
                "The cluster has joined".to_owned(),
            );
            put(
                "Healthy",
                Status::True,
                "MemberClusterHealthy",
                "The cluster answers".to_owned(),
            );
        }
        Some(false) => {
            put(
                "Healthy",
                Status::False,
                "MemberClusterUnreachable",
                facts.trouble.clone(),
            );
            if !was_reached {
                put(
                    "Joined",
                    Status::Unknown,
                    "MemberClusterJoinStateUnknown",
                    format!("The cluster has not been reached yet: {}", facts.trouble),
                );
            }
        }
        None => {}
    }
}

fn agent_of(status: &MemberClusterStatus) -> Option<&AgentStatus> {
    status
        .agent_status
        .as_ref()?
        .iter()
        .find(|agent| agent.type_ == MEMBER_AGENT)
}

/// The conditions that scheduling looks at, in the form in which an agent would report them.
fn agent_conditions(
    next: &mut MemberClusterStatus,
    facts: &Facts,
    generation: Option<i64>,
    now: Timestamp,
) {
    if facts.healthy.is_none() && agent_of(next).is_none() {
        return;
    }
    let agents = next.agent_status.get_or_insert_default();
    let position = agents
        .iter()
        .position(|agent| agent.type_ == MEMBER_AGENT)
        .unwrap_or_else(|| {
            agents.push(AgentStatus {
                type_: MEMBER_AGENT.to_owned(),
                ..Default::default()
            });
            agents.len() - 1
        });
    let agent = &mut agents[position];
    let list = agent.conditions.get_or_insert_default();
    let mut put = putter(list, generation, now);
    match facts.healthy {
        Some(true) => {
            put(
                "Joined",
                Status::True,
                "InternalMemberClusterJoined",
                "The cluster has joined".to_owned(),
            );
            put(
                "Healthy",
                Status::True,
                "InternalMemberClusterHealthy",
                "The cluster answers".to_owned(),
            );
        }
        Some(false) => {
            put(
                "Healthy",
                Status::False,
                "InternalMemberClusterUnhealthy",
                facts.trouble.clone(),
            );
        }
        None => {}
    }
}

fn properties(next: &mut MemberClusterStatus, facts: &Facts, now: Timestamp) {
    let mut put = |name: &str, value: String| {
        let properties = next.properties.get_or_insert_default();
        if properties.get(name).is_none_or(|old| old.value != value) {
            properties.insert(
                name.to_owned(),
                PropertyValue {
                    value,
                    observation_time: Time(now),
                },
            );
        }
    };
    if let Some(version) = &facts.version {
        put(VERSION, version.clone());
    }
    if let Some(usage) = &facts.usage {
        put(NODE_COUNT, usage.nodes.to_string());
    }
    if let Some(endpoint) = &facts.endpoint {
        put(ENTRYPOINT, endpoint.server.clone());
        if let Some(ca) = &endpoint.ca {
            put(CA_DATA, ca.clone());
        }
    }
}

fn usage(next: &mut MemberClusterStatus, facts: &Facts, now: Timestamp) {
    let Some(usage) = &facts.usage else { return };
    let quantities = |amounts: &BTreeMap<String, i128>| -> Option<BTreeMap<String, Quantity>> {
        Some(
            amounts
                .iter()
                .map(|(name, amount)| (name.clone(), super::usage::written(name, *amount)))
                .collect(),
        )
    };
    let fresh = ResourceUsage {
        capacity: quantities(&usage.capacity),
        allocatable: quantities(&usage.allocatable),
        available: quantities(&usage.available()),
        observation_time: Some(Time(now)),
    };
    let moved = match &next.resource_usage {
        None => true,
        Some(old) => {
            old.capacity != fresh.capacity
                || old.allocatable != fresh.allocatable
                || super::usage::moved(old.available.as_ref(), &usage.available())
        }
    };
    if moved {
        next.resource_usage = Some(fresh);
    }
}

/// The status of a cluster that is leaving.
#[must_use]
pub fn leaving(
    cluster: &MemberCluster,
    how: Leaving,
    message: &str,
    now: Timestamp,
) -> Option<MemberClusterStatus> {
    let previous = cluster.status.clone().unwrap_or_default();
    let mut next = previous.clone();
    for (type_, reason) in [NOT_READY, ("Joined", how.as_str())] {
        let list = next.conditions.get_or_insert_default();
        let mut put = putter(list, cluster.metadata.generation, now);
        put(type_, Status::False, reason, message.to_owned());
    }
    (next != previous).then_some(next)
}

/// The status that says what the leaving of a cluster waits for; what is left behind on it stays said.
#[must_use]
pub fn leaving_waits(
    cluster: &MemberCluster,
    message: &str,
    now: Timestamp,
) -> Option<MemberClusterStatus> {
    let mut next = leaving(cluster, Leaving::Left, message, now)?;
    if is_leaving(cluster) == Some(Leaving::LeftBehind) {
        let old = cluster.status.iter().flat_map(|status| &status.conditions);
        let said = old.flatten().find(|condition| condition.type_ == "Joined");
        for condition in next.conditions.iter_mut().flatten() {
            if let Some(said) = said.filter(|said| said.type_ == condition.type_) {
                condition.clone_from(said);
            }
        }
    }
    (cluster.status.as_ref() != Some(&next)).then_some(next)
}

/// How a cluster leaves, as far as that was said.
#[must_use]
pub fn is_leaving(cluster: &MemberCluster) -> Option<Leaving> {
    let list = cluster.status.as_ref()?.conditions.as_deref()?;
    Leaving::of(&find(list, "Joined")?.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn facts() -> Facts {
        Facts {
            healthy: Some(true),
            trouble: String::new(),
            last_contact: Some(at(100)),
            credentials: Credentials::Valid(None),
            version: Some("v1.36.3".into()),
            endpoint: Some(Endpoint {
                server: "https://a:6443".into(),
                ca: Some("-----BEGIN".into()),
            }),
            collection: Collection::Done,
            usage: Some(Usage {
                nodes: 2,
                ..Usage::default()
            }),
            heartbeat_every: Duration::from_secs(60),
            is_settled: true,
        }
    }

    fn is_healthy(cluster: &MemberCluster) -> bool {
        let list = cluster.status.as_ref().and_then(|s| s.conditions.as_ref());
        find(list.unwrap(), "Healthy").is_some_and(|healthy| healthy.status == "True")
    }

    fn cluster(status: Option<MemberClusterStatus>) -> MemberCluster {
        let mut cluster = MemberCluster::new("a", Default::default());
        cluster.status = status;
        cluster
    }

    #[test]
    fn what_a_leaving_waits_for_does_not_hide_what_is_left_behind() {
        let message = |status: &MemberClusterStatus, type_: &str| {
            let list = status.conditions.as_deref().unwrap();
            find(list, type_).unwrap().message.clone()
        };
        let now = Timestamp::UNIX_EPOCH;
        for (how, joined) in [
            (Leaving::Left, "waits"),
            (Leaving::LeftBehind, "said before"),
        ] {
            let mut cluster = MemberCluster::default();
            cluster.status = leaving(&cluster, how, "said before", now);
            let next = leaving_waits(&cluster, "waits", now).unwrap();
            assert_eq!(message(&next, "ReadyToJoin"), "waits", "{how:?}");
            assert_eq!(message(&next, "Joined"), joined, "{how:?}");
            cluster.status = Some(next);
            assert_eq!(is_leaving(&cluster), Some(how));
            assert!(
                leaving_waits(&cluster, "waits", now).is_none(),
                "{how:?}: once"
            );
        }
    }

    #[test]
    fn a_quiet_cluster_is_written_once_per_heartbeat() {
        let first = desired(&cluster(None), &facts(), at(100)).unwrap();
        let known = cluster(Some(first));
        assert!(is_healthy(&known));
        let later = Facts {
            last_contact: Some(at(159)),
            ..facts()
        };
        assert_eq!(desired(&known, &later, at(159)), None);
        let due = Facts {
            last_contact: Some(at(160)),
            ..facts()
        };
        let restarted = Facts {
            is_settled: false,
            ..due.clone()
        };
        assert_eq!(desired(&known, &restarted, at(160)), None);
        let next = desired(&known, &due, at(160)).unwrap();
        assert_eq!(
            agent_of(&next).unwrap().last_received_heartbeat,
            Some(Time(at(160)))
        );
        assert_eq!(next.conditions, known.status.unwrap().conditions);
    }

    #[test]
    fn a_silent_cluster_becomes_unhealthy_and_says_why() {
        let known = cluster(desired(&cluster(None), &facts(), at(100)));
        let silent = Facts {
            healthy: Some(false),
            trouble: "no answer for 60 s".into(),
            ..facts()
        };
        let next = desired(&known, &silent, at(200)).unwrap();
        let list = next.conditions.unwrap();
        assert_eq!(
            find(&list, "Healthy").unwrap().message,
            "no answer for 60 s"
        );
        assert_eq!(
            find(&list, "Joined").unwrap().status,
            "True",
            "it has not left"
        );
        assert!(!is_healthy(&cluster(Some(MemberClusterStatus {
            conditions: Some(list),
            ..Default::default()
        }))));
    }

    #[test]
    fn properties_are_those_that_an_agent_would_report() {
        let status = desired(&cluster(None), &facts(), at(100)).unwrap();
        let properties: BTreeMap<String, String> = status
            .properties
            .clone()
            .unwrap()
            .into_iter()
            .map(|(name, property)| (name, property.value))
            .collect();
        let expected = [
            ("k8s.io/cluster-certificate-authority-data", "-----BEGIN"),
            ("k8s.io/cluster-entrypoint", "https://a:6443"),
            ("k8s.io/k8s-version", "v1.36.3"),
            ("kubernetes-fleet.io/node-count", "2"),
        ];
        assert_eq!(
            properties,
            expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into()
        );
        let failed = Facts {
            collection: Collection::Failed("nodes can't be listed".into()),
            usage: None,
            ..facts()
        };
        let next = desired(&cluster(Some(status)), &failed, at(200)).unwrap();
        let told = find(next.conditions.as_ref().unwrap(), COLLECTED)
            .unwrap()
            .clone();
        assert_eq!(
            (told.status.as_str(), told.message.as_str()),
            ("False", "nodes can't be listed")
        );
        assert_eq!(
            next.properties.unwrap().len(),
            4,
            "what was known stays, with its time"
        );
    }

    #[test]
    fn an_endpoint_is_read_off_a_kubeconfig() {
        let read = |cluster: &str| {
            let text = format!("{{clusters: [{{name: c, cluster: {cluster}}}]}}");
            Endpoint::of(&Kubeconfig::from_yaml(&text).unwrap())
        };
        let with_ca = "{server: 'https://a', certificate-authority-data: LS0tLS1CRUdJTg==}";
        let endpoint = |ca: Option<&str>| Endpoint {
            server: "https://a".into(),
            ca: ca.map(str::to_owned),
        };
        assert_eq!(read(with_ca), Some(endpoint(Some("-----BEGIN"))));
        assert_eq!(read("{server: 'https://a'}"), Some(endpoint(None)));
        assert_eq!(
            read("{server: 'https://a', certificate-authority-data: '%'}"),
            Some(endpoint(None))
        );
        assert_eq!(read("{}"), None);
    }

    #[test]
    fn nothing_is_said_of_health_before_it_is_known() {
        let unknown = Facts {
            healthy: None,
            last_contact: None,
            usage: None,
            version: None,
            collection: Collection::Pending,
            ..facts()
        };
        let next = desired(&cluster(None), &unknown, at(1)).unwrap();
        assert!(find(next.conditions.as_ref().unwrap(), "Healthy").is_none());
        assert!(next.agent_status.is_none());
    }
}
