//! What update runs cost, measured with the release binary and played agents:
//!
//! ```text
//! cargo build --release
//! WINDLASS_BINARY=target/release/windlass cargo run --package windlass-tests --example run_figures
//! ```
//!
//! One run over 3 stages of 100 clusters each; 50 runs at once over 20 clusters each; and the time from an
//! approval to the first binding that is written. Writes are counted by the hub's own request counter, CPU
//! time is the process's.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a program for people who measure"
)]

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use windlass_tests::agents::Agents;
use windlass_tests::{Fleet, within};

/// Stages of each run.
const STAGES: usize = 3;
/// Clusters of the large run's stages.
const LARGE: usize = 100;
/// Runs at once, and their clusters.
const MANY: usize = 50;
const FEW: usize = 20;
/// Approvals measured.
const APPROVALS: usize = 20;
const LIMIT: Duration = Duration::from_secs(600);

fn main() {
    let mut fleet = Fleet::up("run-figures", 1);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    // The machine is for the runs: a lease that can't be renewed for a while ends the hub.
    fleet.start_hub_with(&["--leader-elect=false"]);
    let _agents = Agents::start(&fleet);
    let mut clusters = String::new();
    for at in 0..STAGES * LARGE {
        let few = if at < FEW { "few: 'yes', " } else { "" };
        writeln!(
            clusters,
            "---\napiVersion: cluster.kubernetes-fleet.io/v1beta1\nkind: MemberCluster\nmetadata: {{name: c-{at:03}, \
             labels: {{{few}stage: s{}, third: t{}}}}}\nspec: {{identity: {{kind: User, name: agent}}, heartbeatPeriodSeconds: 600}}",
            at / LARGE,
            at % STAGES,
        )
        .unwrap();
    }
    fleet.apply("hub", &clusters);
    within(LIMIT, "the clusters have joined", || {
        let path = "{.items[*].status.conditions[?(@.type==\"Joined\")].status}";
        fleet.get("hub", "cluster", path).split(' ').count() == STAGES * LARGE
    });
    fleet.apply("hub", &strategy("large", "stage", "s", ""));
    fleet.apply("hub", &strategy("few", "third", "t", ""));
    let gate = "beforeStageTasks: [{type: Approval}], ";
    fleet.apply("hub", &strategy("gated", "third", "t", gate));
    large(&fleet);
    many(&fleet);
    approvals(&fleet);
}

fn strategy(name: &str, key: &str, value: &str, more: &str) -> String {
    let stage = |at| {
        format!(
            "{{name: s{at}, labelSelector: {{matchLabels: {{{key}: {value}{at}}}}}, {more}maxConcurrency: 100%}}"
        )
    };
    let stages: Vec<String> = (0..STAGES).map(stage).collect();
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterStagedUpdateStrategy
metadata: {{name: {name}}}
spec: {{stages: [{}]}}
",
        stages.join(", ")
    )
}

/// A placement of a namespace of its name; on the few clusters, or on all.
fn placed(name: &str, on_few: bool) -> String {
    let terms = "{clusterSelectorTerms: [{labelSelector: {matchLabels: {few: 'yes'}}}]}";
    let affinity = format!(
        "affinity: {{clusterAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {terms}}}}}"
    );
    format!(
        "
---
{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: app, namespace: {name}}}, data: {{v: '1'}}}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {{name: {name}}}
spec:
  resourceSelectors: [{{group: '', version: v1, kind: Namespace, name: {name}}}]
  policy: {{placementType: PickAll, {}}}
  strategy: {{type: External}}
",
        if on_few { affinity.as_str() } else { "" }
    )
}

fn run(name: &str, placement: &str, strategy: &str) -> String {
    format!(
        "
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterStagedUpdateRun
metadata: {{name: {name}}}
spec: {{placementName: {placement}, stagedRolloutStrategyName: {strategy}, state: Run}}
"
    )
}

/// CPU seconds of the hub, and its writes to its API server.
fn spent(fleet: &Fleet) -> (f64, f64) {
    let text = fleet.http("/metrics").unwrap();
    let number = |line: &str| -> f64 { line.rsplit(' ').next().unwrap().parse().unwrap() };
    let cpu = text
        .lines()
        .find(|line| line.starts_with("process_cpu_seconds_total"))
        .map_or(0.0, number);
    let reads = ["get", "list", "watch", "discovery"].map(|verb| format!("verb=\"{verb}\""));
    let writes = text
        .lines()
        .filter(|line| {
            line.starts_with("windlass_api_requests_total") && line.contains("target=\"hub\"")
        })
        .filter(|line| !reads.iter().any(|verb| line.contains(verb)))
        .filter(|line| !line.contains("memberclusters/status") && !line.contains("\"leases\""))
        .map(number)
        .sum();
    (cpu, writes)
}

fn report(fleet: &Fleet, what: &str, clusters: usize, act: impl FnOnce()) {
    drop(fleet.settled(|line| !line.contains("memberclusters") && !line.contains("leases")));
    let before = spent(fleet);
    let begin = Instant::now();
    act();
    let took = begin.elapsed();
    drop(fleet.settled(|line| !line.contains("memberclusters") && !line.contains("leases")));
    let after = spent(fleet);
    let clusters = clusters as f64;
    println!(
        "{what}: {:.2} s, {:.2} hub writes per cluster, {:.2} ms of CPU per cluster",
        took.as_secs_f64(),
        (after.1 - before.1) / clusters,
        (after.0 - before.0) * 1000.0 / clusters
    );
    for line in fleet.http("/metrics").unwrap().lines() {
        if line.starts_with("process_resident_memory_bytes") {
            println!("    {line}");
        }
    }
}

fn succeeded(fleet: &Fleet) -> usize {
    let path = "{.items[*].status.conditions[?(@.type==\"Succeeded\")].status}";
    let found = fleet.get("hub", "csur", path);
    found.split(' ').filter(|status| *status == "True").count()
}

fn large(fleet: &Fleet) {
    fleet.apply("hub", &placed("large", false));
    within(LIMIT, "it is scheduled", || {
        let path = "{.items[*].spec.targetCluster}";
        fleet.get("hub", "crb", path).split(' ').count() == STAGES * LARGE
    });
    report(
        fleet,
        "a run over 3 stages of 100 clusters",
        STAGES * LARGE,
        || {
            fleet.apply("hub", &run("large-0", "large", "large"));
            within(LIMIT, "the run is done", || succeeded(fleet) == 1);
        },
    );
}

fn many(fleet: &Fleet) {
    let names: Vec<String> = (0..MANY).map(|at| format!("few-{at}")).collect();
    let all: String = names.iter().map(|name| placed(name, true)).collect();
    fleet.apply("hub", &all);
    let bindings = STAGES * LARGE + MANY * FEW;
    within(LIMIT, "all are scheduled", || {
        let path = "{.items[*].spec.targetCluster}";
        fleet.get("hub", "crb", path).split(' ').count() == bindings
    });
    let runs: String = names
        .iter()
        .map(|name| run(&format!("{name}-0"), name, "few"))
        .collect();
    report(
        fleet,
        "50 runs at once over 20 clusters each",
        MANY * FEW,
        || {
            fleet.apply("hub", &runs);
            within(LIMIT, "the runs are done", || succeeded(fleet) == 1 + MANY);
        },
    );
}

fn approvals(fleet: &Fleet) {
    let mut took = Vec::new();
    for at in 0..APPROVALS {
        let (name, placement) = (format!("gated-{at}"), format!("few-{at}"));
        let change =
            format!("patch cm app -n {placement} --type merge -p {{\"data\":{{\"v\":\"2\"}}}}");
        fleet.kubectl("hub", &change);
        fleet.apply("hub", &run(&name, &placement, "gated"));
        let request = format!("careq {name}-before-s0");
        within(LIMIT, "it asks", || {
            !fleet.get("hub", &request, "{.kind}").is_empty()
        });
        let patch = r#"{"status":{"conditions":[{"type":"Approved","status":"True","reason":"Yes","message":"","lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":1}]}}"#;
        let args = format!("patch {request} --subresource status --type merge -p {patch}");
        fleet.kubectl("hub", &args);
        let answered = Instant::now();
        let path = "{.items[*].spec.resourceSnapshotName}";
        let of = format!("crb -l kubernetes-fleet.io/parent-CRP={placement}");
        let wanted = format!("{placement}-1-snapshot");
        within(LIMIT, "a binding is written", || {
            fleet.get("hub", &of, path).contains(&wanted)
        });
        took.push(answered.elapsed());
    }
    took.sort();
    println!(
        "from the answer to an approval to the first binding seen written: median {:?}, longest {:?}",
        took[took.len() / 2],
        took[took.len() - 1]
    );
}
