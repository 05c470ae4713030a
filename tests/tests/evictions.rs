//! Evictions, disruption budgets and drains on a real fleet.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::path::{Path, PathBuf};

use windlass_tests::pages::{commands, run};
use windlass_tests::{Fleet, condition, eventually, root};

const MEMBERS: [&str; 3] = ["member-1", "member-2", "member-3"];

/// What a namespaced placement places on one cluster.
const OWN: &str = "
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: own}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourcePlacement
metadata: {name: rp, namespace: own}
spec:
  resourceSelectors: [{group: '', version: v1, kind: ConfigMap, name: c}]
  policy: {placementType: PickFixed, clusterNames: [member-3]}
";

/// A namespace and its placement.
fn app(name: &str, policy: &str) -> String {
    format!(
        "
{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {{name: {name}}}
spec:
  resourceSelectors: [{{group: '', version: v1, kind: Namespace, name: {name}}}]
  policy: {policy}
"
    )
}

fn budget(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: placement.kubernetes-fleet.io/v1beta1, kind: ClusterResourcePlacementDisruptionBudget, \
         metadata: {{name: {name}}}, spec: {spec}}}"
    )
}

/// An eviction of its own name.
fn eviction(name: &str, placement: &str, cluster: &str, more: &str) -> String {
    format!(
        "{{apiVersion: placement.kubernetes-fleet.io/v1beta1, kind: ClusterResourcePlacementEviction, \
         metadata: {{name: {name}}}, spec: {{placementName: {placement}, clusterName: {cluster}{more}}}}}"
    )
}

/// `Valid` and `Executed` of an eviction.
fn outcome(fleet: &Fleet, name: &str) -> String {
    let valid = "{.status.conditions[?(@.type==\"Valid\")].status}";
    let executed = "{.status.conditions[?(@.type==\"Executed\")].status}";
    let of = |path| fleet.get("hub", &format!("crpe {name}"), path);
    format!("{} {}", of(valid), of(executed)).trim().to_owned()
}

fn message(fleet: &Fleet, name: &str, type_: &str) -> String {
    let path = format!("{{.status.conditions[?(@.type==\"{type_}\")].message}}");
    fleet.get("hub", &format!("crpe {name}"), &path)
}

/// UID of the binding of a placement on a cluster.
fn binding(fleet: &Fleet, placement: &str, cluster: &str) -> String {
    let what = format!("crb -l kubernetes-fleet.io/parent-CRP={placement}");
    let path = format!("{{.items[?(@.spec.targetCluster==\"{cluster}\")].metadata.uid}}");
    fleet.get("hub", &what, &path)
}

/// Whether a placement is available on so many clusters, all it wants.
fn is_whole(fleet: &Fleet, placement: &str, clusters: usize) -> bool {
    let path = "{.status.placementStatuses[*].conditions[?(@.type==\"Available\")].status}";
    fleet.get("hub", &format!("crp {placement}"), path) == vec!["True"; clusters].join(" ")
        && condition(fleet, placement, "Available", "status") == "True"
}

#[test]
fn evictions_keep_to_budgets() {
    let mut fleet = Fleet::up("evictions", 3);
    fleet.apply("hub", &fleet.windlass(&["crds"]).unwrap());
    fleet.start_hub();
    for member in MEMBERS {
        fleet.join(member);
    }
    fleet.apply(
        "hub",
        &app("web", "{placementType: PickN, numberOfClusters: 3}"),
    );
    fleet.apply("hub", &app("all", "{placementType: PickAll}"));
    let fixed = "{placementType: PickFixed, clusterNames: [member-3]}";
    fleet.apply("hub", &app("fixed", fixed));
    for (name, clusters) in [("web", 3), ("all", 3), ("fixed", 1)] {
        eventually("everything is placed", || is_whole(&fleet, name, clusters));
    }
    what_makes_no_sense_is_refused(&fleet);
    a_budget_is_kept(&fleet);
    an_eviction_can_wait(&fleet);
    what_is_on_its_way_does_not_get_around_a_budget(&fleet);
    evictions_work_under_external(&fleet);
    a_drain_says_what_it_leaves_and_goes_on_where_it_stopped(&fleet);
    a_cluster_is_drained_as_the_page_says(&fleet);
}

fn what_makes_no_sense_is_refused(fleet: &Fleet) {
    let refused = |manifest: &str, words: &str| {
        let error = fleet.try_kubectl("hub", "apply --server-side -f -", Some(manifest));
        let error = error.unwrap_err();
        assert!(error.contains(words), "{manifest}: {error}");
    };
    for (spec, words) in [
        ("{maxUnavailable: 1, minAvailable: 1}", "mutually exclusive"),
        ("{maxUnavailable: -1}", "maxUnavailable must be"),
        ("{minAvailable: '101%'}", "minAvailable must be"),
        ("{minAvailable: '1'}", "minAvailable must be"),
    ] {
        refused(&budget("web", spec), words);
    }
    for (name, placement, words) in [
        ("no-1", "none", "There is no ClusterResourcePlacement none"),
        (
            "no-2",
            "'Not/A?Name'",
            "There is no ClusterResourcePlacement",
        ),
        (
            "no-3",
            "fixed",
            "take member-3 out of its spec.policy.clusterNames",
        ),
    ] {
        fleet.apply("hub", &eviction(name, placement, "member-3", ""));
        eventually("it is said to be invalid", || {
            outcome(fleet, name) == "False"
        });
        let said = message(fleet, name, "Valid");
        assert!(said.contains(words), "{said}");
    }
    fleet.apply(
        "hub",
        &eviction("no-4", "web", "elsewhere", ", retry: WhenAllowed"),
    );
    eventually("it is said to be invalid", || {
        outcome(fleet, "no-4") == "False"
    });
    assert!(message(fleet, "no-4", "Valid").contains("nothing to evict"));
    refused(
        &eviction("no-4", "all", "elsewhere", ""),
        "placementName is immutable",
    );
    refused(
        &eviction("no-4", "web", "member-1", ""),
        "clusterName is immutable",
    );
    // As an older manifest has it.
    let old = eviction("no-5", "none", "member-3", "").replace("v1beta1", "v1alpha1");
    fleet.apply("hub", &old);
    eventually("it is said to be invalid", || {
        outcome(fleet, "no-5") == "False"
    });
}

fn a_budget_is_kept(fleet: &Fleet) {
    // Together, in one file: the budget counts.
    let first = binding(fleet, "web", "member-1");
    let manifests = [
        budget("web", "{minAvailable: 3}"),
        eviction("web-1", "web", "member-1", ""),
    ];
    fleet.apply("hub", &manifests.join("\n---\n"));
    eventually("it is not allowed", || {
        outcome(fleet, "web-1") == "True False"
    });
    let said = message(fleet, "web-1", "Executed");
    assert!(
        said.contains("3 of 3 cluster(s) available, 3 desired, minAvailable 3: 0 may be evicted"),
        "{said}"
    );
    let version = |name: &str| {
        fleet.get(
            "hub",
            &format!("crpe {name}"),
            "{.metadata.resourceVersion}",
        )
    };
    let before = version("web-1");
    fleet.apply("hub", &budget("web", "{minAvailable: 2}"));
    // Three at once: the second and the third would break it.
    let three: Vec<String> = MEMBERS
        .iter()
        .map(|member| eviction(&format!("web-of-{member}"), "web", member, ""))
        .collect();
    fleet.apply("hub", &three.join("\n---\n"));
    let outcomes = || -> Vec<String> {
        let of = |member| outcome(fleet, &format!("web-of-{member}"));
        MEMBERS.into_iter().map(of).collect()
    };
    eventually("one of them is executed", || {
        let mut outcomes = outcomes();
        outcomes.sort();
        // A later one may have found the first cluster chosen again.
        outcomes
            .iter()
            .all(|outcome| outcome.starts_with("True ") && !outcome.ends_with("Unknown"))
            && outcomes.contains(&"True True".to_owned())
    });
    assert_eq!(outcomes()[0], "True True", "the oldest goes first");
    eventually("the cluster is chosen again", || {
        let now = binding(fleet, "web", "member-1");
        !now.is_empty() && now != first && is_whole(fleet, "web", 3)
    });
    assert_eq!(
        version("web-1"),
        before,
        "what is over is not looked at again"
    );
    assert_eq!(outcome(fleet, "web-1"), "True False");
}

fn an_eviction_can_wait(fleet: &Fleet) {
    fleet.apply("hub", &budget("web", "{minAvailable: 100%}"));
    let before = binding(fleet, "web", "member-2");
    fleet.apply(
        "hub",
        &eviction("waits", "web", "member-2", ", retry: WhenAllowed"),
    );
    eventually("it waits, and says for what", || {
        outcome(fleet, "waits") == "True Unknown"
            && message(fleet, "waits", "Executed").contains("minAvailable 100%: 0 may be evicted")
    });
    let rest = fleet.settled(|_| true);
    assert_eq!(rest, fleet.settled(|_| true), "who waits writes nothing");
    let metrics = fleet.http("/metrics").unwrap();
    for line in [
        "windlass_evictions{state=\"waiting\"} 1",
        "windlass_evictions{state=\"invalid\"} 5",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    assert_eq!(binding(fleet, "web", "member-2"), before);
    let more = eviction("waits-2", "web", "member-1", ", retry: WhenAllowed");
    fleet.apply("hub", &more);
    eventually("another one waits", || {
        outcome(fleet, "waits-2") == "True Unknown"
    });
    fleet.kubectl(
        "hub",
        "patch crpe waits-2 --type merge -p {\"spec\":{\"retry\":\"Never\"}}",
    );
    eventually("it gives up", || outcome(fleet, "waits-2") == "True False");
    fleet.apply("hub", &budget("web", "{maxUnavailable: 34%}"));
    eventually("it is carried out", || {
        outcome(fleet, "waits") == "True True"
    });
    eventually("the cluster is chosen again", || {
        let now = binding(fleet, "web", "member-2");
        !now.is_empty() && now != before && is_whole(fleet, "web", 3)
    });
    let events = "events.events.k8s.io -n default";
    eventually("an event tells of it", || {
        let of =
            format!("{events} --field-selector reason=ClusterResourcePlacementEvictionExecuted");
        let about = fleet.kubectl(
            "hub",
            &format!("get {of} -o jsonpath={{.items[*].regarding.name}}"),
        );
        about.split(' ').any(|name| name == "waits")
    });
}

/// Trap T1.
fn what_is_on_its_way_does_not_get_around_a_budget(fleet: &Fleet) {
    let deployment = "
{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: slow}, spec: {selector: {matchLabels: {a: b}}, \
 template: {metadata: {labels: {a: b}}, spec: {nodeSelector: {no: node}, containers: [{name: c, image: c}]}}}}";
    fleet.apply(
        "hub",
        "{apiVersion: v1, kind: Namespace, metadata: {name: slow}}",
    );
    fleet.apply("hub", deployment);
    fleet.apply("hub", &app("slow", "{placementType: PickAll}"));
    fleet.apply("hub", &budget("slow", "{minAvailable: 1}"));
    eventually("it is on its way", || {
        let path = "{.status.placementStatuses[*].conditions[?(@.type==\"Available\")].reason}";
        fleet.get("hub", "crp slow", path) == ["NotAllWorkAreAvailable"; 3].join(" ")
    });
    fleet.apply("hub", &eviction("slow-1", "slow", "member-1", ""));
    eventually("it is not allowed", || {
        outcome(fleet, "slow-1") == "True False"
    });
    let said = message(fleet, "slow-1", "Executed");
    assert!(
        said.contains("0 of 3 cluster(s) available, minAvailable 1"),
        "{said}"
    );
    fleet.kubectl("hub", "delete crpdb slow");
    let before = binding(fleet, "slow", "member-1");
    fleet.apply("hub", &eviction("slow-2", "slow", "member-1", ""));
    eventually("without a budget it is allowed", || {
        outcome(fleet, "slow-2") == "True True"
    });
    eventually("the binding goes", || {
        binding(fleet, "slow", "member-1") != before
    });
    fleet.kubectl("hub", "delete crp slow");
}

fn evictions_work_under_external(fleet: &Fleet) {
    let manifests = app("ext", "{placementType: PickAll}") + "  strategy: {type: External}\n";
    fleet.apply("hub", &manifests);
    let of_first = || binding(fleet, "ext", "member-1");
    eventually("it is scheduled", || !of_first().is_empty());
    fleet.apply("hub", &eviction("ext-1", "ext", "member-1", ""));
    eventually("there is nothing to evict yet", || {
        outcome(fleet, "ext-1") == "True False"
            && message(fleet, "ext-1", "Executed").contains("nothing has been placed there yet")
    });
    let name = "{.items[?(@.spec.targetCluster==\"member-1\")].metadata.name}";
    let name = fleet.get("hub", "crb -l kubernetes-fleet.io/parent-CRP=ext", name);
    let wish = "{\"spec\":{\"state\":\"Bound\",\"resourceSnapshotName\":\"ext-0-snapshot\"}}";
    fleet.kubectl("hub", &format!("patch crb {name} --type merge -p {wish}"));
    eventually("somebody rolls it out", || {
        fleet.get("member-1", "ns ext", "{.status.phase}") == "Active"
    });
    let before = of_first();
    fleet.apply("hub", &eviction("ext-2", "ext", "member-1", ""));
    eventually("it is evicted", || outcome(fleet, "ext-2") == "True True");
    eventually("it is off, and scheduled anew", || {
        let now = of_first();
        !now.is_empty()
            && now != before
            && fleet
                .get("member-1", "ns ext", "{.metadata.name}")
                .is_empty()
    });
    fleet.kubectl("hub", "delete crp ext");
}

fn drain(fleet: &Fleet, more: &[&str]) -> Result<String, String> {
    drain_as(fleet, &fleet.kubeconfig("hub"), more)
}

fn drain_as(fleet: &Fleet, hub: &Path, more: &[&str]) -> Result<String, String> {
    let hub = hub.to_string_lossy();
    let mut args = vec!["drain", "member-3", "--hub-kubeconfig", &*hub];
    args.extend(more);
    fleet.windlass(&args)
}

/// An account that may do what its ClusterRole says.
const DRAINER: &str = "
{apiVersion: v1, kind: ServiceAccount, metadata: {name: drainer, namespace: fleet-system}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: drainer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fleet-drainer}
subjects: [{kind: ServiceAccount, name: drainer, namespace: fleet-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: fleet-drainer}
rules:
- {apiGroups: [cluster.kubernetes-fleet.io], resources: [memberclusters], verbs: [get, list, update]}
- {apiGroups: [placement.kubernetes-fleet.io], resources: [clusterresourceplacements], verbs: [get, list]}
";

/// Who may not evict does not cordon either. The account, with the rights that the page names.
fn without_rights_nothing_is_done(fleet: &Fleet) -> PathBuf {
    fleet.apply("hub", DRAINER);
    let account = fleet.account("drainer");
    let taints = || fleet.get("hub", "cluster member-3", "{.spec.taints}");
    let error = drain_as(fleet, &account, &[]).unwrap_err();
    for words in [
        "nothing was done",
        "list resourcebindings",
        "create clusterresourceplacementevictions",
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
    assert_eq!(taints(), "");
    let rights = root().join("docs/examples/drain-rights.yaml");
    fleet.apply("hub", &std::fs::read_to_string(rights).unwrap());
    account
}

fn a_drain_says_what_it_leaves_and_goes_on_where_it_stopped(fleet: &Fleet) {
    let tolerant = "{placementType: PickAll, tolerations: [{operator: Exists}]}";
    fleet.apply("hub", &app("tolerant", tolerant));
    let own = "{apiVersion: v1, kind: Namespace, metadata: {name: own}}";
    fleet.apply("member-3", own);
    fleet.apply("hub", own);
    fleet.apply("hub", OWN);
    eventually("both are placed", || {
        is_whole(fleet, "tolerant", 3)
            && fleet.get("member-3", "configmap c -n own", "{.metadata.name}") == "c"
    });
    fleet.apply("hub", &budget("web", "{maxUnavailable: 0}"));
    let account = without_rights_nothing_is_done(fleet);
    let error = drain_as(fleet, &account, &["--timeout", "3s"]).unwrap_err();
    for words in [
        "member-3 is cordoned",
        "all: evicted",
        "not drained within 3 s",
        "web: waits: Not allowed by the disruption budget: 3 of 3 cluster(s) available, 3 desired, maxUnavailable 0",
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
    let made = || {
        fleet
            .get("hub", "crpe", "{.items[*].metadata.name}")
            .split(' ')
            .count()
    };
    let before = made();
    fleet.apply("hub", &budget("web", "{maxUnavailable: 1}"));
    let error = drain(fleet, &[]).unwrap_err();
    for words in [
        "web: gone",
        "still there",
        "ClusterResourcePlacement fixed: names its clusters (PickFixed); take member-3 out",
        "ClusterResourcePlacement tolerant: is on every cluster and tolerates the taint",
        "ResourcePlacement own/rp: can't be evicted",
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
    assert_eq!(
        made(),
        before,
        "it went on with the evictions that there were"
    );
    assert_eq!(fleet.get("member-3", "ns all", "{.metadata.name}"), "");
    assert_eq!(
        fleet.get("member-3", "ns fixed", "{.metadata.name}"),
        "fixed"
    );
    fleet.kubectl("hub", "delete crp tolerant");
    let external = app(
        "later",
        "{placementType: PickAll, tolerations: [{operator: Exists}]}",
    );
    fleet.apply(
        "hub",
        &(external.trim_end().to_owned() + "\n  strategy: {type: External}\n"),
    );
    eventually("it is scheduled", || {
        let bindings = "crb -l kubernetes-fleet.io/parent-CRP=later";
        fleet
            .get("hub", bindings, "{.items[*].spec.targetCluster}")
            .contains("member-3")
    });
    let text = drain_as(fleet, &account, &["--ignore-fixed", "--ignore-namespaced"]).unwrap();
    for words in [
        "ResourcePlacement own/rp",
        "ClusterResourcePlacement later: is to be on member-3, but nothing of it is there",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    fleet.kubectl("hub", "delete crp later");
    let (hub, name) = (fleet.kubeconfig("hub"), "member-3");
    let hub = hub.to_string_lossy();
    fleet
        .windlass(&["uncordon", name, "--hub-kubeconfig", &hub])
        .unwrap();
    assert_eq!(fleet.get("hub", "cluster member-3", "{.spec.taints}"), "");
    for placement in ["web", "all"] {
        eventually("what wants the cluster comes back", || {
            is_whole(fleet, placement, 3)
        });
    }
    fleet.kubectl("hub", "delete crp fixed");
    fleet.kubectl("hub", "delete rp rp -n own");
}

fn a_cluster_is_drained_as_the_page_says(fleet: &Fleet) {
    let mut said = String::new();
    for command in commands("drain-a-cluster.md") {
        said.push_str(&run(fleet, &command));
    }
    for words in [
        "web: gone",
        "all: gone",
        "member-3 is drained: 2 placement(s) evicted, nothing is left",
        "member-3 is not cordoned",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}
