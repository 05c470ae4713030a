//! What a placement goes through between its making and its end: floods of changes, deletion in every
//! state, statuses that come back.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that can't go on fails, and tells how long it took"
)]

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use windlass_tests::agents::Agents;
use windlass_tests::{Fleet, condition, eventually, root, within};

const MEMBERS: [&str; 2] = ["member-1", "member-2"];
/// How long the flood of the test lasts; `WINDLASS_TEST_FLOOD` sets another number of seconds.
const FLOOD_SECONDS: u64 = 10;
const EDIT_EVERY: Duration = Duration::from_millis(20);

fn placement(name: &str, fields: &str) -> String {
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {{name: {name}}}
spec:
  resourceSelectors: [{{group: '', version: v1, kind: Namespace, name: {name}}}]
  {fields}
"
    )
}

/// A namespace of that name with a ConfigMap.
fn content(name: &str, value: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}\n---\n\
         {{apiVersion: v1, kind: ConfigMap, metadata: {{name: c, namespace: {name}}}, data: {{a: '{value}'}}}}\n"
    )
}

fn value(fleet: &Fleet, member: &str, namespace: &str) -> String {
    fleet.get(member, &format!("cm c -n {namespace}"), "{.data.a}")
}

fn is_available(fleet: &Fleet, name: &str) -> bool {
    condition(fleet, name, "Available", "status") == "True"
}

fn place(fleet: &Fleet, name: &str, fields: &str) {
    fleet.apply("hub", &content(name, "1"));
    fleet.apply("hub", &placement(name, fields));
    eventually(&format!("{name} is placed"), || is_available(fleet, name));
}

/// Nothing of a placement is left on the hub.
fn is_gone(fleet: &Fleet, name: &str) -> bool {
    let left = |what: &str| {
        let label = format!("{what} -l kubernetes-fleet.io/parent-CRP={name}");
        fleet.get("hub", &label, "{.items[*].metadata.name}")
    };
    fleet
        .get("hub", &format!("crp {name}"), "{.metadata.name}")
        .is_empty()
        && left("crb,crs,csps").is_empty()
}

/// One part of a placement's life.
type Step = fn(&Fleet);

#[test]
fn a_placement_ends_clean_whatever_goes_on() {
    let mut fleet = Fleet::up("lifecycle", 2);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    fleet.apply("hub", THINGS);
    fleet.apply("member-1", THINGS);
    fleet.start_hub();
    for member in MEMBERS {
        fleet.join(member);
    }
    let steps: [(&str, Step); 13] = [
        ("flood", a_flood_makes_few_snapshots_and_ends_everywhere),
        ("history", history_is_bounded),
        ("abandon", abandoned_objects_stay_and_are_nobodys),
        (
            "deselect",
            a_cluster_that_is_not_selected_any_more_is_cleaned_up_all_the_same,
        ),
        ("force", abandoned_without_its_finalizer),
        ("roll", deleted_while_it_rolls),
        ("again", deleted_and_made_anew_at_once),
        ("kind", deleted_without_the_kind_that_it_selects),
        ("refused status", a_status_without_the_right_to_write_it),
        ("status", a_status_comes_back_to_its_origin),
        (
            "conversion",
            a_kind_that_cannot_be_converted_stops_who_selects_it,
        ),
        ("down", deleted_while_a_member_is_down),
        ("agent", the_same_through_an_agent),
    ];
    for (name, step) in steps {
        eprintln!("{name}");
        step(&fleet);
    }
}

/// A kind with a status, of both scopes.
const THINGS: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// Fifty edits a second of one object: at most 7 snapshots, and one more for every ten seconds that it took.
fn a_flood_makes_few_snapshots_and_ends_everywhere(fleet: &Fleet) {
    let seconds =
        std::env::var("WINDLASS_TEST_FLOOD").map_or(FLOOD_SECONDS, |s| s.parse().unwrap());
    place(fleet, "flood", "revisionHistoryLimit: 1000");
    let edits = 50 * seconds;
    let begin = Instant::now();
    flood(fleet, "flood", edits);
    eventually("the last state is everywhere", || {
        MEMBERS
            .iter()
            .all(|member| value(fleet, member, "flood") == edits.to_string())
    });
    eventually("the status says so", || {
        let latest = "crs -l kubernetes-fleet.io/parent-CRP=flood,kubernetes-fleet.io/is-latest-snapshot=true";
        let index = "{.items[*].metadata.labels.kubernetes-fleet\\.io/resource-index}";
        is_available(fleet, "flood")
            && fleet.get("hub", latest, index)
                == fleet.get("hub", "crp flood", "{.status.observedResourceIndex}")
    });
    let snapshots = fleet.get(
        "hub",
        "crs -l kubernetes-fleet.io/parent-CRP=flood",
        "{.items[*].metadata.name}",
    );
    let count = snapshots.split(' ').count() as u64;
    let took = begin.elapsed();
    eprintln!("{edits} edits, {took:?} to the last status, made {count} snapshots");
    // The first one was made before the flood.
    assert!(
        count <= 8 + took.as_secs() / 10,
        "{count} in {took:?}: {snapshots}"
    );
    fleet.kubectl("hub", "delete crp flood --timeout=60s");
}

/// Edits a ConfigMap over and over through one connection; its value counts the edits.
fn flood(fleet: &Fleet, namespace: &str, edits: u64) {
    drop(rustls::crypto::ring::default_provider().install_default());
    let kubeconfig = Kubeconfig::read_from(fleet.kubeconfig("hub")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .unwrap();
        let maps = Api::<ConfigMap>::namespaced(Client::try_from(config).unwrap(), namespace);
        let mut turns = tokio::time::interval(EDIT_EVERY);
        for edit in 2..=edits {
            turns.tick().await;
            let patch = Patch::Merge(serde_json::json!({"data": {"a": edit.to_string()}}));
            maps.patch("c", &PatchParams::default(), &patch)
                .await
                .unwrap();
        }
    });
}

/// How many versions are kept, of resources and of the policy.
fn history_is_bounded(fleet: &Fleet) {
    place(
        fleet,
        "history",
        "revisionHistoryLimit: 2\n  policy: {placementType: PickFixed, clusterNames: [member-1]}",
    );
    for (number, clusters) in ["member-2", "member-1", "member-2"].iter().enumerate() {
        let edited = number + 2;
        let fields = format!(
            "revisionHistoryLimit: 2\n  policy: {{placementType: PickFixed, clusterNames: [{clusters}]}}"
        );
        fleet.apply("hub", &content("history", &edited.to_string()));
        fleet.apply("hub", &placement("history", &fields));
        eventually("it has moved", || {
            value(fleet, clusters, "history") == edited.to_string()
                && fleet.get(
                    "hub",
                    "crp history",
                    "{.status.placementStatuses[*].clusterName}",
                ) == *clusters
                && is_available(fleet, "history")
        });
    }
    let label = "-l kubernetes-fleet.io/parent-CRP=history";
    let names = |kind: &str| {
        fleet.get(
            "hub",
            &format!("{kind} {label}"),
            "{.items[*].metadata.name}",
        )
    };
    eventually("two policies and two contents are kept", || {
        names("csps") == "history-2 history-3" && names("crs").split(' ').count() == 2
    });
    fleet.kubectl("hub", "delete crp history --timeout=60s");
    assert!(is_gone(fleet, "history"));
}

const ABANDON: &str = "strategy: {deleteStrategy: {propagationPolicy: Abandon}}";

/// What Abandon leaves on a member: the object, with nothing of ours.
fn is_nobodys(fleet: &Fleet, member: &str, namespace: &str) -> bool {
    let marks = "{.metadata.ownerReferences}{.metadata.labels.windlass\\.dev/placed}{.metadata.annotations}";
    value(fleet, member, namespace) == "1"
        && fleet
            .get(member, &format!("cm c -n {namespace}"), marks)
            .is_empty()
        && fleet
            .get(
                member,
                &format!("ns {namespace}"),
                "{.metadata.ownerReferences}",
            )
            .is_empty()
        && !fleet
            .get(member, "appliedworks", "{.items[*].metadata.name}")
            .contains(&format!("{namespace}-work"))
}

fn abandoned_objects_stay_and_are_nobodys(fleet: &Fleet) {
    place(fleet, "kept", ABANDON);
    fleet.kubectl("hub", "delete crp kept --timeout=60s");
    assert!(is_gone(fleet, "kept"));
    for member in MEMBERS {
        assert!(is_nobodys(fleet, member, "kept"), "{member}");
    }
    // What was abandoned can be taken over again, and then goes with its placement, being adopted.
    place(fleet, "kept", "");
    fleet.apply("hub", &content("kept", "2"));
    eventually("it is managed again", || {
        value(fleet, "member-1", "kept") == "2"
    });
    fleet.kubectl("hub", "delete crp kept --timeout=60s");
    assert_eq!(
        value(fleet, "member-1", "kept"),
        "2",
        "adopted objects are released"
    );
}

fn a_cluster_that_is_not_selected_any_more_is_cleaned_up_all_the_same(fleet: &Fleet) {
    let fixed = |clusters: &str| {
        format!("policy: {{placementType: PickFixed, clusterNames: [{clusters}]}}\n  {ABANDON}")
    };
    place(fleet, "moved", &fixed("member-1, member-2"));
    fleet.apply("hub", &placement("moved", &fixed("member-1")));
    eventually("the other cluster is cleaned up", || {
        fleet
            .get("member-2", "ns moved", "{.status.phase}")
            .is_empty()
    });
    fleet.kubectl("hub", "delete crp moved --timeout=60s");
    assert!(is_nobodys(fleet, "member-1", "moved"));
}

/// Somebody takes the finalizer off: the wish is on the bindings, too.
fn abandoned_without_its_finalizer(fleet: &Fleet) {
    place(fleet, "forced", ABANDON);
    fleet.kubectl("hub", "delete crp forced --wait=false");
    drop(fleet.try_kubectl(
        "hub",
        "patch crp forced --type merge -p {\"metadata\":{\"finalizers\":null}}",
        None,
    ));
    eventually("nothing is left on the hub", || is_gone(fleet, "forced"));
    for member in MEMBERS {
        eventually("what was placed stays", || {
            is_nobodys(fleet, member, "forced")
        });
    }
}

/// One cluster has the new version, and is not ready; the other one waits for its turn.
fn deleted_while_it_rolls(fleet: &Fleet) {
    let deployment = |cpu: &str| {
        format!(
            "{}---\n{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d, namespace: rolls}}, spec: {{replicas: 1,
              selector: {{matchLabels: {{a: b}}}}, template: {{metadata: {{labels: {{a: b}}}},
              spec: {{containers: [{{name: c, image: i, resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}}}}}}}\n",
            content("rolls", "1")
        )
    };
    fleet.apply("hub", &deployment("1m"));
    let strategy = "strategy: {rollingUpdate: {maxUnavailable: 1, maxSurge: 0}}";
    fleet.apply("hub", &placement("rolls", strategy));
    eventually("it is placed", || is_available(fleet, "rolls"));
    // No node has so many processors.
    fleet.apply("hub", &deployment("9999"));
    eventually("it rolls, and is stuck", || {
        condition(fleet, "rolls", "RolloutStarted", "status") == "False"
            && condition(fleet, "rolls", "Available", "status") != "True"
    });
    fleet.kubectl("hub", "delete crp rolls --timeout=60s");
    assert!(is_gone(fleet, "rolls"));
    for member in MEMBERS {
        assert_eq!(fleet.get(member, "ns rolls", "{.status.phase}"), "");
    }
}

fn deleted_and_made_anew_at_once(fleet: &Fleet) {
    place(fleet, "again", "");
    let uid = fleet.get("hub", "crp again", "{.metadata.uid}");
    fleet.kubectl("hub", "delete crp again --wait=false");
    eventually("it can be made again", || {
        let manifest = placement("again", "");
        fleet
            .try_kubectl("hub", "create -f -", Some(&manifest))
            .is_ok()
    });
    eventually("the new one is placed", || {
        fleet.get("hub", "crp again", "{.metadata.uid}") != uid
            && is_available(fleet, "again")
            && MEMBERS
                .iter()
                .all(|member| value(fleet, member, "again") == "1")
    });
    let owners = fleet.get(
        "hub",
        "crs,csps -l kubernetes-fleet.io/parent-CRP=again",
        "{.items[*].metadata.ownerReferences[*].uid}",
    );
    assert!(!owners.contains(&uid), "nothing is the old one's: {owners}");
    fleet.kubectl("hub", "delete crp again --timeout=60s");
    assert!(is_gone(fleet, "again"));
}

/// The CRD goes, on the hub and on one of the members; the other one never had it.
fn deleted_without_the_kind_that_it_selects(fleet: &Fleet) {
    let gauge = THINGS.replace("things", "gauges").replace("Thing", "Gauge");
    for plane in ["hub", "member-1"] {
        fleet.apply(plane, &gauge);
    }
    fleet.apply("hub", &content("kindless", "1"));
    eventually("an object of the kind can be made", || {
        let object =
            "{apiVersion: example.com/v1, kind: Gauge, metadata: {name: g, namespace: kindless}}";
        fleet
            .try_kubectl("hub", "apply --server-side -f -", Some(object))
            .is_ok()
    });
    let strategy = "strategy: {rollingUpdate: {maxUnavailable: 100%}}";
    fleet.apply("hub", &placement("kindless", strategy));
    eventually("it is on the cluster that knows the kind", || {
        fleet.get("member-1", "gauge g -n kindless", "{.metadata.name}") == "g"
            && value(fleet, "member-2", "kindless") == "1"
    });
    for plane in ["hub", "member-1"] {
        fleet.kubectl(plane, "delete crd gauges.example.com --timeout=60s");
    }
    fleet.kubectl("hub", "delete crp kindless --timeout=60s");
    assert!(is_gone(fleet, "kindless"));
    for member in MEMBERS {
        assert_eq!(fleet.get(member, "ns kindless", "{.status.phase}"), "");
    }
}

const MIRROR: &str = "policy: {placementType: PickFixed, clusterNames: [member-1]}
  strategy: {reportBackStrategy: {type: Mirror, destination: OriginalResource}}";
const THING: &str = "{apiVersion: example.com/v1, kind: Thing, metadata: {name: t, namespace: mirror}, spec: {size: 3}}";

fn a_status_without_the_right_to_write_it(fleet: &Fleet) {
    fleet.apply("hub", &format!("{}---\n{THING}\n", content("mirror", "1")));
    fleet.apply("hub", &placement("mirror", MIRROR));
    eventually("it is placed", || {
        fleet.get("member-1", "thing t -n mirror", "{.spec.size}") == "3"
    });
    set_status(fleet, "one");
    eventually("the right that is missing is told", || {
        condition(fleet, "mirror", "StatusReportedBack", "status") == "False"
            && condition(fleet, "mirror", "StatusReportedBack", "message")
                .contains("deploy/report-back")
    });
}

fn set_status(fleet: &Fleet, phase: &str) {
    let patch = format!("{{\"status\":{{\"phase\":\"{phase}\"}}}}");
    fleet.kubectl(
        "member-1",
        &format!("patch thing t -n mirror --subresource=status --type=merge -p {patch}"),
    );
}

fn a_status_comes_back_to_its_origin(fleet: &Fleet) {
    let rights = root().join("deploy/report-back/rights.yaml");
    fleet.kubectl("hub", &format!("apply -f {}", rights.display()));
    let phase = || fleet.get("hub", "thing t -n mirror", "{.status.phase}");
    within(Duration::from_secs(90), "it comes once it may", || {
        phase() == "one"
    });
    set_status(fleet, "two");
    eventually("a change comes, too", || phase() == "two");
    eventually("that is said", || {
        condition(fleet, "mirror", "StatusReportedBack", "status") == "True"
    });
    assert_eq!(
        fleet.get("hub", "crp mirror", "{.status.observedResourceIndex}"),
        "0",
        "a status is no new content"
    );
    // With several clusters there is no one status.
    let several = MIRROR.replace("[member-1]", "[member-1, member-2]");
    fleet.apply("hub", &placement("mirror", &several));
    eventually("why not is told", || {
        condition(fleet, "mirror", "StatusReportedBack", "reason") == "NotOneCluster"
    });
    set_status(fleet, "three");
    let works = MIRROR.replace("OriginalResource", "WorkAPI");
    fleet.apply("hub", &placement("mirror", &works));
    eventually("a cluster in push mode has no Work", || {
        condition(fleet, "mirror", "StatusReportedBack", "reason") == "NoWork"
    });
    assert_eq!(phase(), "two", "what was copied stays, and nothing more is");
    fleet.apply("hub", &placement("mirror", MIRROR));
    eventually("and goes on when it is asked for again", || {
        phase() == "three"
    });
    fleet.kubectl("hub", "delete crp mirror --timeout=60s");
}

/// A kind whose conversion webhook is down stops the placement that has an object of it, says so, and
/// stops no other one.
fn a_kind_that_cannot_be_converted_stops_who_selects_it(fleet: &Fleet) {
    let broken = |webhook: &str| {
        format!(
            "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: relics.example.com}}
spec:
  group: example.com
  names: {{kind: Relic, plural: relics}}
  scope: Namespaced
  conversion: {webhook}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
  - name: v2
    served: true
    storage: false
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"
        )
    };
    fleet.apply("hub", &broken("{strategy: None}"));
    for name in ["relic", "whole"] {
        fleet.apply("hub", &content(name, "1"));
    }
    eventually("an object of the kind can be made", || {
        let object =
            "{apiVersion: example.com/v1, kind: Relic, metadata: {name: r, namespace: relic}}";
        fleet
            .try_kubectl("hub", "apply --server-side -f -", Some(object))
            .is_ok()
    });
    let down = "{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: 'https://127.0.0.1:1/convert'}}}";
    fleet.apply("hub", &broken(down));
    eventually("it can't be converted", || {
        fleet
            .try_kubectl("hub", "get relics.v2.example.com -A", None)
            .is_err()
    });
    fleet.apply("hub", &placement("relic", ""));
    fleet.apply("hub", &placement("whole", ""));
    eventually("who selects it says why nothing is placed", || {
        condition(fleet, "relic", "Scheduled", "status") == "Unknown"
            && condition(fleet, "relic", "Scheduled", "message")
                .contains("Relic (example.com/v2) can't be listed")
    });
    eventually("another placement goes on", || {
        is_available(fleet, "whole") && value(fleet, "member-1", "whole") == "1"
    });
    fleet.kubectl("hub", "delete crd relics.example.com --wait=false");
    drop(fleet.try_kubectl("hub", "patch relics.v1.example.com r -n relic --type merge -p {\"metadata\":{\"finalizers\":null}}", None));
    eventually("without the kind it goes on", || {
        value(fleet, "member-1", "relic") == "1"
    });
    for name in ["relic", "whole"] {
        fleet.kubectl("hub", &format!("delete crp {name} --timeout=60s"));
    }
}

fn deleted_while_a_member_is_down(fleet: &Fleet) {
    place(fleet, "down", "");
    fleet.control("stop", "member-2");
    eventually("the cluster is known to be down", || {
        fleet.get(
            "hub",
            "cluster member-2",
            "{.status.conditions[?(@.type==\"Healthy\")].status}",
        ) == "False"
    });
    fleet.kubectl("hub", "delete crp down --wait=false");
    eventually(
        "it says what it waits for, and the other cluster is clean",
        || {
            condition(fleet, "down", "Deleting", "message")
                .contains("member-2 (waiting for cluster member-2 to be reachable")
                && fleet
                    .get("member-1", "ns down", "{.status.phase}")
                    .is_empty()
        },
    );
    fleet.control("start", "member-2");
    within(
        Duration::from_secs(120),
        "it ends when the cluster is back",
        || is_gone(fleet, "down"),
    );
    assert_eq!(fleet.get("member-2", "ns down", "{.status.phase}"), "");
}

const AGENT: &str = "
apiVersion: cluster.kubernetes-fleet.io/v1beta1
kind: MemberCluster
metadata: {name: agent-1}
spec: {identity: {kind: User, name: agent-1}, heartbeatPeriodSeconds: 600}
";

/// A cluster that an agent serves is told by Works: what is abandoned stays there, and statuses come back.
fn the_same_through_an_agent(fleet: &Fleet) {
    let agents = Agents::start(fleet);
    fleet.apply("hub", AGENT);
    eventually("it has joined", || {
        let path = "{.status.conditions[?(@.type==\"Joined\")].status}";
        fleet.get("hub", "cluster agent-1", path) == "True"
    });
    let to_agent = |fields: &str| {
        format!("policy: {{placementType: PickFixed, clusterNames: [agent-1]}}\n  {fields}")
    };
    place(fleet, "left", &to_agent(ABANDON));
    fleet.kubectl("hub", "delete crp left --timeout=60s");
    assert!(is_gone(fleet, "left"));
    let works = |fleet: &Fleet| {
        fleet.get(
            "hub",
            "works -n fleet-member-agent-1",
            "{.items[*].metadata.name}",
        )
    };
    assert_eq!(works(fleet), "");
    assert_eq!(agents.removed().len(), 0, "nothing was taken away");
    let mirror = |to: &str| {
        let mirror = MIRROR.replace("OriginalResource", to);
        placement("mirror", &mirror.replace("member-1", "agent-1"))
    };
    fleet.apply("hub", &mirror("OriginalResource"));
    eventually(
        "the status that the agent reports is on the hub's object",
        || {
            fleet.get("hub", "thing t -n mirror", "{.status.phase}") == "reported"
                && condition(fleet, "mirror", "StatusReportedBack", "status") == "True"
        },
    );
    fleet.apply("hub", &mirror("WorkAPI"));
    eventually("or in the Work alone", || {
        let path = "{.spec.reportBackStrategy.destination}";
        condition(fleet, "mirror", "StatusReportedBack", "reason") == "InWorks"
            && fleet.get("hub", "works mirror-work -n fleet-member-agent-1", path) == "WorkAPI"
    });
    fleet.kubectl("hub", "delete crp mirror --timeout=60s");
    assert_eq!(agents.removed().len(), 1);
}
