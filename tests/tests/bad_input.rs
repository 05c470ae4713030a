//! What is wrong is said where it is wrong, harms nothing else, and is over once it is mended.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::time::Duration;

use windlass_tests::{Fleet, condition, eventually, within};

const GOOD: &str = "good";
/// Refusals are tried again with a growing pause.
const AGAIN: Duration = Duration::from_secs(120);

fn placement(name: &str, selectors: &str) -> String {
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {{name: {name}}}
spec:
  resourceSelectors: [{selectors}]
  strategy: {{rollingUpdate: {{maxUnavailable: 100%, unavailablePeriodSeconds: 1}}}}
"
    )
}

fn of_namespace(name: &str) -> String {
    placement(
        name,
        &format!("{{group: '', version: v1, kind: Namespace, name: {name}}}"),
    )
}

fn namespace(name: &str) -> String {
    format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}\n---\n")
}

fn config(namespace: &str, name: &str, data: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: {namespace}}}, data: {{a: {data}}}}}\n---\n"
    )
}

fn is_available(fleet: &Fleet, name: &str) -> bool {
    condition(fleet, name, "Available", "status") == "True"
        && condition(fleet, name, "Scheduled", "status") == "True"
}

fn value(fleet: &Fleet, member: &str, namespace: &str, name: &str) -> String {
    fleet.get(member, &format!("cm {name} -n {namespace}"), "{.data.a}")
}

/// A change of another placement gets through, whatever goes on.
fn others_go_on(fleet: &Fleet, members: &[&str], change: &str) {
    fleet.apply("hub", &config(GOOD, "c", change));
    eventually(&format!("another placement goes on: {change}"), || {
        members
            .iter()
            .all(|member| value(fleet, member, GOOD, "c") == change)
    });
}

#[test]
fn bad_input_is_told_and_harms_nothing_else() {
    let mut fleet = Fleet::up("bad-input", 2);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    fleet.start_hub();
    fleet.join("member-1");
    fleet.join("member-2");
    fleet.apply("hub", &(namespace(GOOD) + &config(GOOD, "c", "first")));
    fleet.apply("hub", &of_namespace(GOOD));
    eventually("the good one is placed", || is_available(&fleet, GOOD));
    a_kind_that_there_is_not(&fleet);
    a_selector_that_matches_nothing(&fleet);
    reserved_namespaces(&fleet);
    more_than_can_be_stored(&fleet);
    what_a_member_refuses(&fleet);
    long_names(&fleet);
    a_member_that_hangs(&fleet);
}

fn a_kind_that_there_is_not(fleet: &Fleet) {
    let selector = "{group: example.com, version: v1, kind: Gadget, name: g}";
    fleet.apply("hub", &placement("unknown", selector));
    eventually("the kind is named", || {
        let message = condition(fleet, "unknown", "Scheduled", "message");
        condition(fleet, "unknown", "Scheduled", "status") == "False"
            && message.contains("Gadget (example.com/v1)")
            && message.contains("install the kind")
    });
    others_go_on(fleet, &["member-1", "member-2"], "unknown");
    fleet.apply("hub", GADGETS);
    fleet.kubectl(
        "hub",
        "wait --for=condition=Established crd gadgets.example.com",
    );
    eventually("an object of the new kind can be made", || {
        let gadget = "{apiVersion: example.com/v1, kind: Gadget, metadata: {name: g}}";
        let args = "apply --server-side -f -";
        fleet.try_kubectl("hub", args, Some(gadget)).is_ok()
    });
    eventually("it is scheduled", || {
        condition(fleet, "unknown", "Scheduled", "status") == "True"
    });
    eventually("each member says that it lacks the kind", || {
        let failed = "{.status.placementStatuses[*].failedPlacements[*].condition.message}";
        fleet.get("hub", "crp unknown", failed).contains("Gadget")
    });
    for member in ["member-1", "member-2"] {
        fleet.apply(member, GADGETS);
    }
    within(AGAIN, "and places it when it has it", || {
        is_available(fleet, "unknown")
            && fleet.get("member-1", "gadget g", "{.metadata.name}") == "g"
    });
    fleet.kubectl("hub", "delete crp unknown --timeout=60s");
}

fn a_selector_that_matches_nothing(fleet: &Fleet) {
    fleet.apply("hub", &of_namespace("nothing"));
    eventually("that nothing is selected is said", || {
        condition(fleet, "nothing", "Scheduled", "status") == "True"
            && fleet.get("hub", "crp nothing", "{.status.observedResourceIndex}") == "0"
            && fleet
                .get("hub", "crp nothing", "{.status.selectedResources}")
                .is_empty()
            && condition(fleet, "nothing", "Scheduled", "message").contains("matches nothing")
    });
    fleet.apply("hub", &namespace("nothing"));
    eventually("what comes later is placed", || {
        fleet.get("member-1", "ns nothing", "{.status.phase}") == "Active"
            && is_available(fleet, "nothing")
            && !condition(fleet, "nothing", "Scheduled", "message").contains("matches nothing")
    });
}

fn reserved_namespaces(fleet: &Fleet) {
    for name in ["kube-system", "fleet-system", "default"] {
        let selector = format!("{{group: '', version: v1, kind: Namespace, name: {name}}}");
        fleet.apply("hub", &placement("reserved", &selector));
        eventually(&format!("{name} is refused by name"), || {
            condition(fleet, "reserved", "Scheduled", "message")
                .contains(&format!("namespace {name} is reserved"))
        });
    }
    fleet.apply("hub", &namespace("allowed"));
    let selector = "{group: '', version: v1, kind: Namespace, name: allowed}";
    fleet.apply("hub", &placement("reserved", selector));
    eventually("another one is placed", || is_available(fleet, "reserved"));
}

/// Within the limit of a ConfigMap, but not as JSON, in which snapshots are stored: each newline has two
/// characters there.
fn more_than_can_be_stored(fleet: &Fleet) {
    fleet.apply(
        "hub",
        &(namespace("large") + &config("large", "c", "small")),
    );
    fleet.apply("hub", &of_namespace("large"));
    eventually("it is placed", || is_available(fleet, "large"));
    let large = format!("\"{}\"", "\\n".repeat(1_000_000));
    let manifest = format!(
        "{{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {{\"name\": \"c\", \"namespace\": \"large\"}}, \"data\": {{\"a\": {large}}}}}"
    );
    fleet.apply("hub", &manifest);
    eventually("what is too large is named", || {
        let message = condition(fleet, "large", "Scheduled", "message");
        message.contains("too large") && message.contains("ConfigMap large/c")
    });
    others_go_on(fleet, &["member-1", "member-2"], "large");
    assert_eq!(
        value(fleet, "member-1", "large", "c"),
        "small",
        "what runs stays"
    );
    // The policy counts all the same.
    fleet.kubectl("hub", "label cluster member-1 tier=large");
    let policy = r#"{"spec":{"policy":{"affinity":{"clusterAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"clusterSelectorTerms":[{"labelSelector":{"matchLabels":{"tier":"large"}}}]}}}}}}"#;
    fleet.kubectl("hub", &format!("patch crp large --type merge -p {policy}"));
    eventually("a cluster that is not selected any more is left", || {
        value(fleet, "member-2", "large", "c").is_empty()
            && condition(fleet, "large", "Scheduled", "status") == "True"
            && condition(fleet, "large", "Scheduled", "message")
                .contains("large-0-snapshot stays in place")
    });
    fleet.apply("hub", &config("large", "c", "mended"));
    eventually("it goes on once mended", || {
        value(fleet, "member-1", "large", "c") == "mended" && is_available(fleet, "large")
    });
}

fn what_a_member_refuses(fleet: &Fleet) {
    fleet.apply("member-1", POLICY);
    eventually("the member refuses", || {
        let probe = config("default", "probe", "forbidden");
        let args = "create --dry-run=server -f -";
        fleet.try_kubectl("member-1", args, Some(&probe)).is_err()
    });
    let content = namespace("refused")
        + &config("refused", "bad", "forbidden")
        + &config("refused", "fine", "x");
    fleet.apply("hub", &content);
    fleet.apply("hub", &of_namespace("refused"));
    eventually(
        "the object, the cluster and the member's words are shown",
        || {
            let failed = |field: &str| {
                let path = format!(
                    "{{.status.placementStatuses[?(@.clusterName==\"member-1\")].failedPlacements[*].{field}}}"
                );
                fleet.get("hub", "crp refused", &path)
            };
            failed("name") == "bad" && failed("condition.message").contains("not on this cluster")
        },
    );
    eventually("the other objects and the other cluster are served", || {
        value(fleet, "member-1", "refused", "fine") == "x"
            && value(fleet, "member-2", "refused", "bad") == "forbidden"
    });
    others_go_on(fleet, &["member-1", "member-2"], "refused");
    fleet.kubectl(
        "member-1",
        "delete validatingadmissionpolicybinding,validatingadmissionpolicy refuse",
    );
    within(AGAIN, "it is applied once the member takes it", || {
        is_available(fleet, "refused") && value(fleet, "member-1", "refused", "bad") == "forbidden"
    });
}

fn long_names(fleet: &Fleet) {
    let name = format!("{}.{}", "n".repeat(200), "m".repeat(52));
    for (what, manifest) in [
        ("placement", of_namespace(&name)),
        (
            "cluster",
            format!(
                "{{apiVersion: cluster.kubernetes-fleet.io/v1, kind: MemberCluster, metadata: {{name: {name}}}, spec: {{identity: {{kind: User, name: u}}}}}}"
            ),
        ),
    ] {
        let args = "create -f -";
        let error = fleet.try_kubectl("hub", args, Some(&manifest)).unwrap_err();
        assert!(
            error.contains("metadata.name must be shorter than 64"),
            "{what}: {error}"
        );
    }
    let content = namespace("long") + &config("long", &name, "x");
    fleet.apply("hub", &content);
    fleet.apply("hub", &of_namespace("long"));
    eventually("an object with the longest name is placed", || {
        value(fleet, "member-1", "long", &name) == "x" && is_available(fleet, "long")
    });
}

fn a_member_that_hangs(fleet: &Fleet) {
    let healthy = "{.status.conditions[?(@.type==\"Healthy\")].status}";
    fleet.control("pause", "member-1");
    // More than a lane holds: what waits for the silent one must not keep others from theirs.
    let names: Vec<String> = (0..20).map(|n| format!("hang-{n}")).collect();
    for name in &names {
        fleet.apply("hub", &(namespace(name) + &config(name, "c", "x")));
        fleet.apply("hub", &of_namespace(name));
    }
    eventually("the other member is served", || {
        names
            .iter()
            .all(|name| value(fleet, "member-2", name, "c") == "x")
    });
    others_go_on(fleet, &["member-2"], "hangs");
    eventually("the member is unhealthy, and why is said", || {
        let message = "{.status.conditions[?(@.type==\"Healthy\")].message}";
        fleet.get("hub", "cluster member-1", healthy) == "False"
            && fleet
                .get("hub", "cluster member-1", message)
                .contains("stopped answering")
    });
    fleet.control("resume", "member-1");
    within(AGAIN, "the member catches up", || {
        fleet.get("hub", "cluster member-1", healthy) == "True"
            && names
                .iter()
                .all(|name| value(fleet, "member-1", name, "c") == "x" && is_available(fleet, name))
    });
}

const GADGETS: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  names: {kind: Gadget, plural: gadgets, singular: gadget}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";

const POLICY: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuse}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]
  validations: [{expression: "!has(object.data) || !('a' in object.data) || object.data.a != 'forbidden'", message: not on this cluster}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refuse}
spec: {policyName: refuse, validationActions: [Deny]}
"#;
