//! `windlass plan` says what the hub then does, and does nothing itself.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::path::PathBuf;

use serde_json::Value;
use windlass_tests::pages::{commands, run};
use windlass_tests::{Fleet, eventually, root};

const NAMESPACE: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: web}}";

fn config(version: u8) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c, namespace: web}}, data: {{v: '{version}'}}}}"
    )
}

fn placement(number: u8) -> String {
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1
kind: ClusterResourcePlacement
metadata: {{name: web}}
spec:
  resourceSelectors: [{{group: '', version: v1, kind: Namespace, name: web}}]
  policy: {{placementType: PickN, numberOfClusters: {number}}}
  strategy: {{rollingUpdate: {{maxUnavailable: 1}}}}
"
    )
}

fn file(fleet: &Fleet, name: &str, text: &str) -> PathBuf {
    let path = fleet.kubeconfig(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn plan(fleet: &Fleet, args: &[&str]) -> Result<String, String> {
    let hub = fleet.kubeconfig("hub");
    let mut all = vec!["plan", "--kubeconfig", hub.to_str().unwrap()];
    all.extend(args);
    fleet.windlass(&all)
}

fn json(fleet: &Fleet, args: &[&str]) -> Value {
    let mut all = args.to_vec();
    all.extend(["-o", "json"]);
    let told: Value = serde_json::from_str(&plan(fleet, &all).unwrap()).unwrap();
    let sent = told["requests"].as_object().unwrap();
    assert!(!sent.is_empty());
    for verb in sent.keys() {
        assert!(
            matches!(verb.as_str(), "get" | "list" | "watch"),
            "{sent:?}"
        );
    }
    told
}

/// What is said of each cluster: `NAME FATE`.
fn fates(told: &Value) -> Vec<String> {
    let clusters = told["decided"]["clusters"].as_array().unwrap();
    let of = |c: &Value| {
        format!(
            "{} {}",
            c["name"].as_str().unwrap(),
            c["fate"].as_str().unwrap()
        )
    };
    let mut fates: Vec<String> = clusters.iter().map(of).collect();
    fates.sort();
    fates
}

/// What changes, step by step: `KIND NAME, …`.
fn steps(told: &Value) -> Vec<String> {
    let steps = told["decided"]["rollout"]["steps"].as_array().unwrap();
    let step = |step: &Value| {
        let changes = step.as_array().unwrap().iter();
        let text = |c: &Value| {
            format!(
                "{} {}",
                c["kind"].as_str().unwrap(),
                c["cluster"].as_str().unwrap()
            )
        };
        changes.map(text).collect::<Vec<_>>().join(", ")
    };
    steps.iter().map(step).collect()
}

fn available(fleet: &Fleet, index: &str) -> bool {
    let path = "{.status.conditions[?(@.type==\"ClusterResourcePlacementAvailable\")].status}";
    let generation = fleet.get("hub", "crp web", "{.metadata.generation}");
    let observed =
        "{.status.conditions[?(@.type==\"ClusterResourcePlacementScheduled\")].observedGeneration}";
    fleet.get("hub", "crp web", observed) == generation
        && fleet.get("hub", "crp web", path) == "True"
        && fleet.get("hub", "crp web", "{.status.observedResourceIndex}") == index
}

/// Clusters of the bindings, in the order in which they were written last.
fn by_last_write(fleet: &Fleet) -> Vec<String> {
    let text = fleet.kubectl("hub", "get clusterresourcebindings -o json");
    let list: Value = serde_json::from_str(&text).unwrap();
    let mut all: Vec<(u64, String)> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|binding| {
            let text = |path: &str| binding.pointer(path).unwrap().as_str().unwrap();
            let version = text("/metadata/resourceVersion").parse().unwrap();
            (version, text("/spec/targetCluster").to_owned())
        })
        .collect();
    all.sort();
    all.into_iter().map(|(_, cluster)| cluster).collect()
}

#[test]
fn the_hub_does_what_the_plan_says() {
    let mut fleet = Fleet::up("plan", 3);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    fleet.start_hub();
    for member in ["member-1", "member-2", "member-3"] {
        fleet.join(member);
    }
    eventually("every cluster is healthy", || {
        let healthy = "{.items[*].status.agentStatus[*].conditions[?(@.type==\"Healthy\")].status}";
        fleet.get("hub", "memberclusters", healthy) == "True True True"
    });
    a_new_placement(&fleet);
    a_changed_one(&mut fleet);
    what_the_hub_would_not_do(&fleet);
    a_namespaced_one(&fleet);
    what_overrides_change(&fleet);
    one_that_is_being_deleted(&mut fleet);
}

fn what_overrides_change(fleet: &Fleet) {
    let manifest = "
apiVersion: placement.kubernetes-fleet.io/v1
kind: ResourceOverride
metadata: {name: data, namespace: web}
spec:
  placement: {name: web}
  resourceSelectors: [{group: '', version: v1, kind: ConfigMap, name: c}]
  policy:
    overrideRules:
    - clusterSelector:
        clusterSelectorTerms: [{labelSelector: {matchLabels: {fleet.windlass.dev/tier: gold}}}]
      jsonPatchOverrides: [{op: replace, path: /data/v, value: gold}]
";
    fleet.kubectl(
        "hub",
        "label membercluster member-2 fleet.windlass.dev/tier=gold",
    );
    fleet.apply("hub", manifest);
    eventually("the change is everywhere", || {
        fleet.get("member-2", "configmap c -n web", "{.data.v}") == "gold"
    });
    let told = json(fleet, &["web", "--manifests"]);
    assert_eq!(steps(&told), Vec::<String>::new());
    let variants = told["decided"]["variants"].as_array().unwrap();
    for variant in variants {
        for cluster in variant["clusters"].as_array().unwrap() {
            let told = &variant["manifests"][1]["data"]["v"];
            let there = fleet.get(cluster.as_str().unwrap(), "configmap c -n web", "{.data.v}");
            assert_eq!(told, &Value::from(there), "{cluster}");
        }
    }
    assert_eq!(variants.len(), 2);
}

/// As docs/preview-a-change.md has it.
fn a_new_placement(fleet: &Fleet) {
    fleet.apply("hub", NAMESPACE);
    fleet.apply("hub", &config(1));
    let two = fleet.kubeconfig("hub").with_file_name("placement.yaml");
    std::fs::write(&two, placement(2)).unwrap();
    let two = two.to_str().unwrap();
    let told = json(fleet, &["-f", two]);
    assert_eq!(
        fates(&told),
        ["member-1 unpicked", "member-2 picked", "member-3 picked"]
    );
    assert_eq!(steps(&told), ["add member-2, add member-3"]);

    let mut said = Vec::new();
    for command in commands("preview-a-change.md") {
        if command == "windlass plan -f placement.yaml" && said.is_empty() {
            assert_eq!(fleet.get("hub", "crp", "{.items[*].metadata.name}"), "");
        }
        said.push(run(fleet, &command));
        if command.starts_with("kubectl apply") {
            eventually("the placement is available", || available(fleet, "0"));
        }
    }
    // The page shows the first answer as it is.
    let page = std::fs::read_to_string(root().join("docs/preview-a-change.md")).unwrap();
    for line in said[0].lines() {
        assert!(
            page.contains(line),
            "{line} is not on the page: {}",
            said[0]
        );
    }
    let words = [
        "does not score high enough",
        "",
        "nothing changes on any cluster",
        "1. add member-1",
        "kind: ConfigMap",
        "\"requests\"",
    ];
    for (text, words) in said.iter().zip(words) {
        assert!(text.contains(words), "{words} is missing: {text}");
    }
    let clusters = fleet.get(
        "hub",
        "crp web",
        "{.status.placementStatuses[*].clusterName}",
    );
    assert_eq!(clusters, "member-2 member-3");
    let message = "{.status.conditions[?(@.type==\"ClusterResourcePlacementScheduled\")].message}";
    assert_eq!(
        told["scheduled"]["message"],
        fleet.get("hub", "crp web", message)
    );
}

fn a_changed_one(fleet: &mut Fleet) {
    fleet.kill_hub();
    fleet.apply("hub", &config(2));
    let before = fleet.served_writes("hub");
    let told = json(fleet, &["web", "--set", "spec.policy.numberOfClusters=3"]);
    let three = file(fleet, "three.yaml", &placement(3));
    let by_file = json(fleet, &["web", "-f", three.to_str().unwrap()]);
    assert_eq!(fleet.served_writes("hub"), before, "a plan wrote something");
    assert_eq!(told["decided"], by_file["decided"]);
    assert_eq!(
        fates(&told),
        ["member-1 picked", "member-2 kept", "member-3 kept"]
    );
    assert_eq!(
        steps(&told),
        ["add member-1", "update member-2", "update member-3"]
    );
    assert_eq!(told["decided"]["snapshot"]["new"], true);

    fleet.apply("hub", &placement(3));
    fleet.start_hub();
    eventually("the change has rolled out", || available(fleet, "1"));
    assert_eq!(by_last_write(fleet), ["member-1", "member-2", "member-3"]);
    for member in ["member-1", "member-2", "member-3"] {
        assert_eq!(fleet.get(member, "configmap c -n web", "{.data.v}"), "2");
    }
}

fn what_the_hub_would_not_do(fleet: &Fleet) {
    let refused = plan(
        fleet,
        &["web", "--set", "spec.policy.placementType=PickAll"],
    )
    .unwrap_err();
    assert!(refused.contains("placementType is immutable"), "{refused}");
    let odd = placement(1)
        .replace("name: web}\n", "name: odd}\n")
        .replace("kind: Namespace, name: web", "kind: Gadget, name: web");
    let path = file(fleet, "odd.yaml", &odd);
    let answer = plan(fleet, &["-f", path.to_str().unwrap()]).unwrap_err();
    fleet.apply("hub", &odd);
    let condition = |field: &str| {
        let path = format!(
            "{{.status.conditions[?(@.type==\"ClusterResourcePlacementScheduled\")].{field}}}"
        );
        fleet.get("hub", "crp odd", &path)
    };
    eventually("the hub says so too", || condition("status") == "False");
    let said = format!(
        "ClusterResourcePlacementScheduled=False ({}): {}",
        condition("reason"),
        condition("message")
    );
    assert!(answer.contains(&said), "{said} is not in {answer}");
}

fn a_namespaced_one(fleet: &Fleet) {
    let manifest = "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourcePlacement
metadata: {name: config, namespace: web}
spec:
  resourceSelectors: [{group: '', version: v1, kind: ConfigMap, name: c}]
  policy: {placementType: PickFixed, clusterNames: [member-2]}
";
    let path = file(fleet, "namespaced.yaml", manifest);
    let told = json(fleet, &["-f", path.to_str().unwrap()]);
    assert_eq!(
        (&told["kind"], &told["namespace"]),
        (&"ResourcePlacement".into(), &"web".into())
    );
    assert_eq!(fates(&told), ["member-2 picked"]);
    assert_eq!(told["decided"]["resources"].as_array().unwrap().len(), 1);
}

fn one_that_is_being_deleted(fleet: &mut Fleet) {
    fleet.kill_hub();
    fleet.kubectl("hub", "delete crp web --wait=false");
    let told = json(fleet, &["web"]);
    assert_eq!(told["decided"], Value::Null);
    let of = |told: &Value, field: &str| -> Vec<String> {
        let clusters = told["deleting"]["clusters"].as_array().unwrap().iter();
        clusters
            .map(|c| c[field].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(of(&told, "name"), ["member-1", "member-2", "member-3"]);
    assert_eq!(of(&told, "outcome"), ["removed"; 3]);
    let abandon = "spec.strategy.deleteStrategy.propagationPolicy=Abandon";
    let left = json(fleet, &["web", "--set", abandon]);
    assert_eq!(of(&left, "outcome"), ["left"; 3]);
    let text = plan(fleet, &["web"]).unwrap();
    assert!(
        text.contains("ClusterResourcePlacement web: is being deleted"),
        "{text}"
    );
    fleet.start_hub();
    eventually("it is gone", || {
        fleet
            .kubectl("hub", "get crp web --ignore-not-found")
            .is_empty()
    });
    for member in ["member-1", "member-2", "member-3"] {
        let found = fleet.kubectl(member, "get configmap c -n web --ignore-not-found");
        assert!(found.is_empty(), "{member}: {found}");
    }
}
