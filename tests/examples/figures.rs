//! What things cost, measured on a real fleet with the release binary:
//!
//! ```text
//! cargo build --release
//! WINDLASS_BINARY=target/release/windlass cargo run --package windlass-tests --example figures
//! ```
//!
//! Counts come from the hub's own request counter, at rest before and after; heartbeats and the lease are
//! left out. Memory is the process's resident set.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a program for people who measure"
)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use windlass_tests::{Fleet, within};

const MEMBERS: [&str; 3] = ["member-1", "member-2", "member-3"];
const MANY: usize = 100;
const ROUNDS: usize = 10;

#[tokio::main]
async fn main() {
    rustls::crypto::ring::default_provider()
        .install_default()
        .unwrap();
    let mut fleet = Fleet::up("figures", MEMBERS.len());
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    fleet.start_hub();
    for member in MEMBERS {
        fleet.join(member);
    }
    within(Duration::from_secs(60), "the members are healthy", || {
        let metrics = fleet.http("/metrics").unwrap_or_default();
        MEMBERS.iter().all(|member| {
            metrics.contains(&format!(
                "windlass_member_healthy{{cluster=\"{member}\"}} 1"
            ))
        })
    });
    memory(&fleet, "hub memory, 3 clusters, no placement");
    requests(&fleet);
    latency(&fleet).await;
    many(&fleet);
    memory(&fleet, "hub memory, 100 placements on 3 clusters");
    series(&fleet);
    restart(&mut fleet);
    memory(&fleet, "hub memory, the same after a restart");
    at_rest(&fleet);
}

fn app(name: &str, value: &str) -> String {
    format!(
        "
{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings, namespace: {name}}}, data: {{a: '{value}'}}}}
---
{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: app, namespace: {name}}}, spec: {{replicas: 0,
  selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}},
  spec: {{containers: [{{name: web, image: 'example/web:1'}}]}}}}}}}}
---
{{apiVersion: v1, kind: Service, metadata: {{name: app, namespace: {name}}}, spec: {{selector: {{app: web}}, ports: [{{port: 80}}]}}}}
"
    )
}

fn placement(name: &str) -> String {
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {{name: {name}}}
spec:
  resourceSelectors: [{{group: '', version: v1, kind: Namespace, name: {name}}}]
  strategy: {{rollingUpdate: {{maxUnavailable: 100%, unavailablePeriodSeconds: 1}}}}
"
    )
}

/// Requests by target (hub or member), verb and resource.
type Counts = BTreeMap<(bool, String, String), u64>;

fn is_background(line: &str) -> bool {
    [
        "memberclusters/status",
        "\"leases\"",
        "\"/version\"",
        "verb=\"watch\"",
        "\"discovery\"",
    ]
    .iter()
    .any(|mark| line.contains(mark))
}

fn counts(fleet: &Fleet) -> Counts {
    drop(fleet.settled(|line| !is_background(line)));
    let text = fleet.http("/metrics").unwrap();
    let mut counts = Counts::new();
    for line in text
        .lines()
        .filter(|line| line.starts_with("windlass_api_requests_total"))
    {
        if is_background(line) {
            continue;
        }
        let label = |name: &str| -> String {
            let value = line.split_once(&format!("{name}=\"")).unwrap().1;
            value.split_once('"').unwrap().0.to_owned()
        };
        let key = (label("target") == "hub", label("verb"), label("resource"));
        let number: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        *counts.entry(key).or_default() += number;
    }
    counts
}

fn difference(before: &Counts, after: &Counts) -> Counts {
    let grown = after.iter().map(|(key, number)| {
        let old = before.get(key).copied().unwrap_or_default();
        (key.clone(), number - old)
    });
    grown.filter(|(_, number)| *number > 0).collect()
}

/// Requests to the hub or to members, that change something or don't.
fn total(counts: &Counts, hub: bool, write: bool) -> u64 {
    let chosen = counts.iter().filter(|((to_hub, verb, _), _)| {
        *to_hub == hub && write != matches!(verb.as_str(), "get" | "list")
    });
    chosen.map(|(_, number)| number).sum()
}

fn sums(counts: &Counts, clusters: f64) -> String {
    let each = |hub, write| total(counts, hub, write) as f64 / clusters;
    format!(
        "hub writes {:.2}, hub reads {:.2}, member writes {:.2}, member reads {:.2}",
        each(true, true),
        each(true, false),
        each(false, true),
        each(false, false)
    )
}

fn print_cost(what: &str, before: &Counts, after: &Counts) {
    let cost = difference(before, after);
    println!("{what}, per cluster: {}", sums(&cost, MEMBERS.len() as f64));
    for ((hub, verb, resource), number) in &cost {
        let target = if *hub { "hub" } else { "members" };
        println!("    {number:3} {target} {verb} {resource}");
    }
}

fn is_settled(fleet: &Fleet, name: &str, index: &str) -> bool {
    let available = "{.status.conditions[?(@.type==\"ClusterResourcePlacementAvailable\")].status}";
    fleet.get(
        "hub",
        &format!("crp {name}"),
        "{.status.observedResourceIndex}",
    ) == index
        && fleet.get("hub", &format!("crp {name}"), available) == "True"
}

fn requests(fleet: &Fleet) {
    // A first placement makes the hub watch the kinds; the second one shows what a placement costs.
    for name in ["warm", "web"] {
        fleet.apply("hub", &app(name, "1"));
        let before = counts(fleet);
        fleet.apply("hub", &placement(name));
        within(Duration::from_secs(60), "it is placed", || {
            is_settled(fleet, name, "0")
        });
        let after = counts(fleet);
        if name == "web" {
            print_cost(
                "first placement of 4 objects on 3 clusters",
                &before,
                &after,
            );
        }
    }
    let before = counts(fleet);
    fleet.kubectl(
        "hub",
        "patch cm settings -n web --type merge -p {\"data\":{\"a\":\"2\"}}",
    );
    within(Duration::from_secs(60), "it has rolled", || {
        is_settled(fleet, "web", "1")
    });
    print_cost(
        "a change of one object on 3 clusters",
        &before,
        &counts(fleet),
    );
}

async fn client(fleet: &Fleet, name: &str) -> Client {
    let kubeconfig = Kubeconfig::read_from(fleet.kubeconfig(name)).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1000.0
}

/// From the change on the hub to the last member's having it; next to it, as many raw writes as the hub
/// sends for it, one after the other.
async fn latency(fleet: &Fleet) {
    let mut all = Vec::new();
    for name in ["hub", "member-1", "member-2", "member-3"] {
        fleet.kubectl(name, "create namespace scratch");
        all.push(client(fleet, name).await);
    }
    let apis = |namespace: &str| -> Vec<Api<ConfigMap>> {
        let api = |client: &Client| Api::namespaced(client.clone(), namespace);
        all.iter().map(api).collect()
    };
    let (placed, scratched) = (apis("web"), apis("scratch"));
    let (hub, members) = (&placed[0], &placed[1..]);
    let mut told = Vec::new();
    let mut raw = Vec::new();
    for round in 0..ROUNDS {
        drop(fleet.settled(|line| !is_background(line)));
        let value = format!("round {round}");
        let mut changed = hub.get("settings").await.unwrap();
        changed.data = Some([("a".to_owned(), value.clone())].into());
        let begin = Instant::now();
        hub.replace("settings", &PostParams::default(), &changed)
            .await
            .unwrap();
        for member in members {
            loop {
                let there = member
                    .get("settings")
                    .await
                    .unwrap()
                    .data
                    .unwrap_or_default();
                if there.get("a") == Some(&value) {
                    break;
                }
            }
        }
        told.push(begin.elapsed());
        // A snapshot, its predecessor's label, and per cluster a binding's spec, the inventory before and
        // after, the object, and the binding's status.
        let begin = Instant::now();
        for n in 0..2 {
            scratched[0]
                .create(&PostParams::default(), &scratch(round, n))
                .await
                .unwrap();
        }
        for (n, member) in scratched[1..].iter().enumerate() {
            scratched[0]
                .create(&PostParams::default(), &scratch(round, 10 + n))
                .await
                .unwrap();
            for m in 0..3 {
                member
                    .create(&PostParams::default(), &scratch(round, m))
                    .await
                    .unwrap();
            }
            scratched[0]
                .create(&PostParams::default(), &scratch(round, 20 + n))
                .await
                .unwrap();
        }
        raw.push(begin.elapsed());
    }
    println!(
        "from a change to all 3 members told: median {:.0} ms of {ROUNDS} (as many raw API writes one by one: {:.0} ms)",
        median(told),
        median(raw)
    );
}

fn scratch(round: usize, n: usize) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(format!("scratch-{round}-{n}"));
    object.metadata.namespace = Some("scratch".to_owned());
    object
}

fn many(fleet: &Fleet) {
    let apps: Vec<String> = (0..MANY)
        .map(|n| {
            format!(
                "{}---\n{}",
                app(&format!("many-{n}"), "1"),
                placement(&format!("many-{n}"))
            )
        })
        .collect();
    let begin = Instant::now();
    fleet.apply("hub", &apps.join("---\n"));
    let sent = begin.elapsed();
    within(Duration::from_secs(300), "all are available", || {
        let all = fleet.get(
            "hub",
            "crp",
            "{.items[*].status.conditions[?(@.type==\"ClusterResourcePlacementAvailable\")].status}",
        );
        all.split(' ').filter(|status| *status == "True").count() >= MANY
    });
    println!(
        "{MANY} placements of 4 objects on 3 clusters: sent in {:.1} s, all available after {:.1} s",
        sent.as_secs_f64(),
        begin.elapsed().as_secs_f64()
    );
    drop(fleet.settled(|line| !is_background(line)));
}

fn memory(fleet: &Fleet, what: &str) {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", fleet.hub_pid().unwrap())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    println!("{what}: {:.1} MiB", kib / 1024.0);
}

fn series(fleet: &Fleet) {
    let metrics = fleet.http("/metrics").unwrap();
    let count = metrics
        .lines()
        .filter(|line| !line.starts_with('#'))
        .count();
    println!("series on /metrics: {count}, {} KiB", metrics.len() / 1024);
}

fn restart(fleet: &mut Fleet) {
    fleet.kill_hub();
    let begin = Instant::now();
    fleet.start_hub();
    let ready = begin.elapsed();
    let after = counts(fleet);
    println!(
        "restart with {MANY} placements: ready after {:.1} s; {}",
        ready.as_secs_f64(),
        sums(&after, 1.0)
    );
}

fn at_rest(fleet: &Fleet) {
    let before = counts(fleet);
    std::thread::sleep(Duration::from_secs(60));
    let cost = difference(&before, &counts(fleet));
    println!("60 s at rest: {}", sums(&cost, 1.0));
}
