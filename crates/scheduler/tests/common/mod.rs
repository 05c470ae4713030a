//! A small fleet for tests.
#![allow(dead_code)]

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use windlass_api::binding::BindingState;
use windlass_api::member::{PropertyValue, ResourceUsage, Taint};
use windlass_api::placement::PlacementPolicy;
use windlass_api::snapshot::{ClusterDecision, ClusterScore};
use windlass_scheduler::{
    ClusterView, ExistingBinding, Health, Membership, Namespaces, Schedule, SchedulingView,
    schedule,
};

pub const NOW: Timestamp = Timestamp::constant(1_750_000_000, 0);

pub fn ago(seconds: i64) -> Timestamp {
    NOW - SignedDuration::from_secs(seconds)
}

/// A cluster that owns its parts. Eligible unless told otherwise.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub name: String,
    pub deleting: bool,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub properties: BTreeMap<String, PropertyValue>,
    pub usage: ResourceUsage,
    /// `None`: it doesn't report them.
    pub namespaces: Option<Option<BTreeMap<String, String>>>,
    pub membership: Membership,
}

pub fn cluster(name: &str) -> Cluster {
    Cluster {
        name: name.to_owned(),
        deleting: false,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        properties: BTreeMap::new(),
        usage: ResourceUsage::default(),
        namespaces: None,
        membership: Membership {
            reported: true,
            joined: true,
            health: Some(Health {
                healthy: true,
                since: ago(9000),
            }),
            last_heartbeat: Some(ago(30)),
        },
    }
}

impl Cluster {
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    pub fn taint(mut self, key: &str, value: &str) -> Self {
        self.taints.push(Taint {
            key: key.to_owned(),
            value: Some(value.to_owned()),
            ..Taint::default()
        });
        self
    }

    pub fn property(mut self, name: &str, value: &str) -> Self {
        let value = PropertyValue {
            value: value.to_owned(),
            observation_time: Time(NOW),
        };
        self.properties.insert(name.to_owned(), value);
        self
    }

    pub fn allocatable(mut self, resource: &str, amount: &str) -> Self {
        self.usage
            .allocatable
            .get_or_insert_default()
            .insert(resource.to_owned(), Quantity(amount.to_owned()));
        self
    }

    pub fn leaving(mut self) -> Self {
        self.deleting = true;
        self
    }

    pub fn silent(mut self) -> Self {
        self.membership.last_heartbeat = Some(ago(301));
        self
    }

    pub fn view(&self) -> ClusterView<'_> {
        ClusterView {
            name: &self.name,
            deleting: self.deleting,
            labels: &self.labels,
            taints: &self.taints,
            properties: &self.properties,
            usage: Some(&self.usage),
            namespaces: match &self.namespaces {
                None => Namespaces::NotCollected,
                Some(None) => Namespaces::Missing,
                Some(Some(all)) => Namespaces::Known(all),
            },
            membership: self.membership,
        }
    }
}

/// A binding of the latest policy.
pub fn binding(cluster: &str, state: BindingState) -> ExistingBinding<'_> {
    ExistingBinding {
        cluster,
        state,
        deleting: false,
        current_policy: true,
        score: None,
    }
}

pub fn bound(cluster: &str) -> ExistingBinding<'_> {
    binding(cluster, BindingState::Bound)
}

pub fn obsolete(cluster: &str) -> ExistingBinding<'_> {
    ExistingBinding {
        current_policy: false,
        ..bound(cluster)
    }
}

pub fn scored(
    cluster: &str,
    state: BindingState,
    spread: i32,
    affinity: i32,
) -> ExistingBinding<'_> {
    ExistingBinding {
        score: Some(ClusterScore {
            affinity_score: Some(affinity),
            topology_spread_score: Some(spread),
        }),
        ..binding(cluster, state)
    }
}

pub fn policy(json: Value) -> PlacementPolicy {
    serde_json::from_value(json).unwrap_or_default()
}

pub fn run(
    policy: &PlacementPolicy,
    clusters: &[Cluster],
    existing: &[ExistingBinding<'_>],
) -> Schedule {
    let views: Vec<_> = clusters.iter().map(Cluster::view).collect();
    let view = SchedulingView {
        policy: Some(policy),
        namespace: None,
        clusters: &views,
        existing,
    };
    schedule(&view, NOW)
}

pub fn names(decisions: &[ClusterDecision]) -> Vec<&str> {
    decisions.iter().map(|d| d.cluster_name.as_str()).collect()
}
