//! How long one scheduling pass takes, and how it grows: `cargo bench -p windlass-scheduler`.
//!
//! The counter gives clusters looked at per second: it stays about level when a pass grows no faster than
//! the fleet.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;

use divan::Bencher;
use divan::counter::ItemsCount;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass_api::binding::BindingState;
use windlass_api::member::PropertyValue;
use windlass_api::placement::PlacementPolicy;
use windlass_scheduler::{
    ClusterView, ExistingBinding, Health, Membership, Namespaces, SchedulingView, schedule,
};

const NOW: Timestamp = Timestamp::constant(1_750_000_000, 0);
const SIZES: [usize; 3] = [100, 1_000, 10_000];

fn main() {
    divan::main();
}

struct Cluster {
    name: String,
    labels: BTreeMap<String, String>,
    properties: BTreeMap<String, PropertyValue>,
}

/// Ten regions, thirty zones, a host label of its own for each, a property that differs.
fn fleet(size: usize) -> Vec<Cluster> {
    let cluster = |number: usize| Cluster {
        name: format!("cluster-{number:05}"),
        labels: BTreeMap::from([
            ("region".to_owned(), format!("region-{}", number % 10)),
            ("zone".to_owned(), format!("zone-{}", number % 30)),
            ("host".to_owned(), format!("host-{number}")),
            (
                "env".to_owned(),
                ["prod", "prod", "dev"][number % 3].to_owned(),
            ),
        ]),
        properties: BTreeMap::from([(
            "kubernetes-fleet.io/node-count".to_owned(),
            PropertyValue {
                value: (number * 7919 % 500).to_string(),
                observation_time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW),
            },
        )]),
    };
    (0..size).map(cluster).collect()
}

fn views(fleet: &[Cluster]) -> Vec<ClusterView<'_>> {
    fleet
        .iter()
        .map(|cluster| ClusterView {
            name: &cluster.name,
            deleting: false,
            labels: &cluster.labels,
            taints: &[],
            properties: &cluster.properties,
            usage: None,
            namespaces: Namespaces::NotCollected,
            membership: Membership {
                reported: true,
                joined: true,
                health: Some(Health {
                    healthy: true,
                    since: NOW - SignedDuration::from_hours(1),
                }),
                last_heartbeat: Some(NOW - SignedDuration::from_secs(5)),
            },
        })
        .collect()
}

fn pick_n(number: usize, spread: &Value) -> PlacementPolicy {
    serde_json::from_value(json!({
        "placementType": "PickN",
        "numberOfClusters": number,
        "topologySpreadConstraints": spread,
        "affinity": {"clusterAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms": [
                {"labelSelector": {"matchExpressions": [
                    {"key": "env", "operator": "In", "values": ["prod", "dev"]}]}}]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "preference":
                {"propertySorter": {"name": "kubernetes-fleet.io/node-count", "sortOrder": "Descending"}}}],
        }},
    }))
    .unwrap()
}

fn pass(bencher: Bencher<'_, '_>, size: usize, policy: &PlacementPolicy) {
    let fleet = fleet(size);
    let clusters = views(&fleet);
    let view = SchedulingView {
        policy: Some(policy),
        namespace: None,
        clusters: &clusters,
        existing: &[],
    };
    bencher
        .counter(ItemsCount::new(size))
        .bench_local(|| schedule(&view, NOW));
}

/// A tenth of the fleet over two spread constraints.
#[divan::bench(args = SIZES)]
fn pick_a_tenth_over_region_and_zone(bencher: Bencher<'_, '_>, size: usize) {
    let spread = json!([{"topologyKey": "region"},
        {"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]);
    pass(bencher, size, &pick_n(size / 10, &spread));
}

/// The hard case: as many domains as clusters.
#[divan::bench(args = SIZES)]
fn pick_a_tenth_over_region_and_host(bencher: Bencher<'_, '_>, size: usize) {
    let spread = json!([{"topologyKey": "region"}, {"topologyKey": "host"}]);
    pass(bencher, size, &pick_n(size / 10, &spread));
}

#[divan::bench(args = SIZES)]
fn pick_all(bencher: Bencher<'_, '_>, size: usize) {
    pass(bencher, size, &PlacementPolicy::default());
}

/// Nothing changes: what a look at an unchanged placement costs.
#[divan::bench(args = SIZES)]
fn keep_a_tenth(bencher: Bencher<'_, '_>, size: usize) {
    let fleet = fleet(size);
    let clusters = views(&fleet);
    let policy = pick_n(
        size / 10,
        &json!([{"topologyKey": "region"}, {"topologyKey": "zone"}]),
    );
    let existing: Vec<_> = fleet
        .iter()
        .step_by(10)
        .map(|cluster| ExistingBinding {
            cluster: &cluster.name,
            state: BindingState::Bound,
            deleting: false,
            current_policy: true,
            score: None,
        })
        .collect();
    let view = SchedulingView {
        policy: Some(&policy),
        namespace: None,
        clusters: &clusters,
        existing: &existing,
    };
    bencher
        .counter(ItemsCount::new(size))
        .bench_local(|| schedule(&view, NOW));
}
