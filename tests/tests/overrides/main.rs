//! What differs per cluster, on a real fleet: overrides, variables, envelopes, and what is wrong with them.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod envelopes;
mod unstored;

use windlass_tests::{Fleet, condition, eventually};

const MEMBERS: [&str; 3] = ["member-1", "member-2", "member-3"];

fn namespace(name: &str) -> String {
    format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}\n---\n")
}

fn config(namespace: &str, data: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c, namespace: {namespace}}}, data: {data}}}\n---\n"
    )
}

/// A placement of the namespace of its name, one cluster at a time.
fn placement(name: &str, more: &str) -> String {
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {{name: {name}}}
spec:
  resourceSelectors: [{{group: '', version: v1, kind: Namespace, name: {name}}}{more}]
  strategy: {{rollingUpdate: {{maxUnavailable: 1, unavailablePeriodSeconds: 1}}}}
---
"
    )
}

/// A ResourceOverride of ConfigMap c; `rules` as (value of the label env, patches).
fn on_config(namespace: &str, name: &str, rules: &[(&str, &str)]) -> String {
    let rules: String = rules
        .iter()
        .map(|(env, patches)| {
            format!(
                "
    - clusterSelector: {{clusterSelectorTerms: [{{labelSelector: {{matchLabels: {{env: {env}}}}}}}]}}
      {patches}"
            )
        })
        .collect();
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1
kind: ResourceOverride
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  resourceSelectors: [{{group: '', version: v1, kind: ConfigMap, name: c}}]
  policy:
    overrideRules:{rules}
---
"
    )
}

fn patch(op: &str, path: &str, value: &str) -> String {
    format!("jsonPatchOverrides: [{{op: {op}, path: {path}, value: '{value}'}}]")
}

fn data(fleet: &Fleet, member: &str, namespace: &str, key: &str) -> String {
    fleet.get(
        member,
        &format!("cm c -n {namespace}"),
        &format!("{{.data.{key}}}"),
    )
}

/// A field of a cluster's condition, as the placement shows it.
fn on_cluster(fleet: &Fleet, placement: &str, member: &str, type_: &str, field: &str) -> String {
    let path = format!(
        "{{.status.placementStatuses[?(@.clusterName==\"{member}\")].conditions[?(@.type==\"{type_}\")].{field}}}"
    );
    fleet.get("hub", &format!("crp {placement}"), &path)
}

fn is_available(fleet: &Fleet, placement: &str) -> bool {
    condition(fleet, placement, "Available", "status") == "True"
}

#[test]
fn clusters_differ_as_they_are_told_to() {
    let mut fleet = Fleet::up("overrides", 3);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    fleet.start_hub();
    for (member, env) in MEMBERS.iter().zip(["test", "prod", "prod"]) {
        fleet.join(member);
        fleet.kubectl(
            "hub",
            &format!("label membercluster {member} env={env} tier=t-{member}"),
        );
    }
    labels_and_variables(&fleet);
    a_label_of_a_cluster_changes(&fleet);
    left_out_and_back(&fleet);
    a_bad_patch_stops_its_cluster_only(&mut fleet);
    unstored::what_can_not_be_stored_stops_what_it_would_change(&fleet);
    an_override_that_goes_ends_clean(&fleet);
    envelopes::travel_and_take_no_effect_on_the_hub(&fleet);
    envelopes::bad_ones_are_told(&fleet);
    namespaced_placements_keep_to_their_rights(&fleet);
    at_rest_nothing_is_written(&mut fleet);
}

fn labels_and_variables(fleet: &Fleet) {
    fleet.apply(
        "hub",
        &(namespace("app") + &config("app", "{a: base, at: none}")),
    );
    let everywhere = "
apiVersion: placement.kubernetes-fleet.io/v1alpha1
kind: ClusterResourceOverride
metadata: {name: everywhere}
spec:
  placement: {name: app}
  clusterResourceSelectors: [{group: '', version: v1, kind: Namespace, name: app}]
  policy:
    overrideRules:
    - clusterSelector: {clusterSelectorTerms: []}
      jsonPatchOverrides:
      - {op: add, path: /metadata/labels, value: {at: '${MEMBER-CLUSTER-NAME}'}}
---
";
    let rules = [
        ("test", patch("replace", "/data/a", "for test")),
        (
            "prod",
            patch(
                "replace",
                "/data/at",
                "${MEMBER-CLUSTER-LABEL-KEY-tier} $5 $${MEMBER-CLUSTER-NAME}",
            ),
        ),
    ];
    let rules = rules.each_ref().map(|(env, patch)| (*env, patch.as_str()));
    fleet.apply(
        "hub",
        &(everywhere.to_owned() + &on_config("app", "per-env", &rules)),
    );
    fleet.apply("hub", &placement("app", ""));
    eventually("each cluster gets its own", || {
        data(fleet, "member-1", "app", "a") == "for test"
            && data(fleet, "member-2", "app", "at") == "t-member-2 $5 ${MEMBER-CLUSTER-NAME}"
            && data(fleet, "member-3", "app", "at") == "t-member-3 $5 ${MEMBER-CLUSTER-NAME}"
            && MEMBERS.iter().all(|member| {
                // What covers a namespace covers everything in it.
                ["ns app", "cm c -n app"]
                    .iter()
                    .all(|what| fleet.get(member, what, "{.metadata.labels.at}") == *member)
            })
    });
    assert_eq!(data(fleet, "member-1", "app", "at"), "none");
    assert_eq!(data(fleet, "member-2", "app", "a"), "base");
    eventually("the status says which overrides are in effect", || {
        let named = |path: &str| {
            let path = format!("{{.status.placementStatuses[*].{path}}}");
            fleet.get("hub", "crp app", &path)
        };
        is_available(fleet, "app")
            && named("applicableClusterResourceOverrides[*]") == ["everywhere-0"; 3].join(" ")
            && named("applicableResourceOverrides[*].name") == ["per-env-0"; 3].join(" ")
            && condition(fleet, "app", "Overridden", "reason") == "OverriddenSucceeded"
    });
    let labels = fleet.get(
        "hub",
        "resourceoverridesnapshot per-env-0 -n app",
        "{.metadata.labels}",
    );
    for label in [
        "\"kubernetes-fleet.io/override-index\":\"0\"",
        "\"kubernetes-fleet.io/is-latest-snapshot\":\"true\"",
        "\"kubernetes-fleet.io/parent-resource-override\":\"per-env\"",
    ] {
        assert!(labels.contains(label), "{labels}");
    }
}

fn a_label_of_a_cluster_changes(fleet: &Fleet) {
    fleet.kubectl("hub", "label membercluster member-2 tier=moved --overwrite");
    eventually("a variable follows the label", || {
        data(fleet, "member-2", "app", "at").starts_with("moved ")
    });
    fleet.kubectl("hub", "label membercluster member-3 env=test --overwrite");
    eventually("another rule applies", || {
        data(fleet, "member-3", "app", "a") == "for test"
            && data(fleet, "member-3", "app", "at") == "none"
    });
    fleet.kubectl("hub", "label membercluster member-3 env=prod --overwrite");
    eventually("and the first one again", || {
        data(fleet, "member-3", "app", "a") == "base" && is_available(fleet, "app")
    });
}

fn left_out_and_back(fleet: &Fleet) {
    fleet.apply(
        "hub",
        &on_config("app", "per-env", &[("prod", "overrideType: Delete")]),
    );
    eventually(
        "it goes where it is left out, and back to its base elsewhere",
        || {
            data(fleet, "member-1", "app", "a") == "base"
                && ["member-2", "member-3"]
                    .iter()
                    .all(|m| data(fleet, m, "app", "a").is_empty())
        },
    );
    assert!(
        !fleet
            .get("member-2", "ns app", "{.metadata.uid}")
            .is_empty()
    );
    fleet.apply(
        "hub",
        &on_config(
            "app",
            "per-env",
            &[("prod", &patch("add", "/data/a", "v2"))],
        ),
    );
    eventually("it comes back", || {
        ["member-2", "member-3"]
            .iter()
            .all(|m| data(fleet, m, "app", "a") == "v2")
            && is_available(fleet, "app")
    });
}

fn a_bad_patch_stops_its_cluster_only(fleet: &mut Fleet) {
    fleet.apply(
        "hub",
        &(namespace("three") + &config("three", "{a: v1, b: x}") + &placement("three", "")),
    );
    eventually("it is placed", || is_available(fleet, "three"));
    // Whoever holds /data/none on member-1 only.
    let rules = |path: &str| {
        let bad = patch("replace", path, "one");
        on_config(
            "three",
            "o",
            &[("test", &bad), ("prod", &patch("add", "/data/b", "two"))],
        )
    };
    fleet.apply("hub", &rules("/data/none"));
    eventually("the others go on, past the one that can't", || {
        ["member-2", "member-3"]
            .iter()
            .all(|m| data(fleet, m, "three", "b") == "two")
            && ["member-2", "member-3"]
                .iter()
                .all(|m| on_cluster(fleet, "three", m, "Available", "status") == "True")
    });
    let told = || {
        on_cluster(fleet, "three", "member-1", "Overridden", "reason") == "OverriddenFailed"
            && condition(fleet, "three", "Overridden", "status") == "False"
    };
    eventually("it is told", told);
    let message = on_cluster(fleet, "three", "member-1", "Overridden", "message");
    assert_eq!(
        message,
        "cluster member-1, ConfigMap three/c, ResourceOverrideSnapshot three/o-0, overrideRules[0], path \"/data/none\": \
         the object has no /data/none; use op add; nothing was changed on the cluster"
    );
    assert_eq!(
        data(fleet, "member-1", "three", "b"),
        "x",
        "what runs there is left alone"
    );
    // New content goes to the others, too, and not there.
    fleet.apply("hub", &config("three", "{a: v2, b: x}"));
    eventually("the others get the new content", || {
        ["member-2", "member-3"]
            .iter()
            .all(|m| data(fleet, m, "three", "a") == "v2")
    });
    // Nor does it after a restart.
    fleet.kill_hub();
    fleet.start_hub();
    eventually("it is still told", || {
        on_cluster(fleet, "three", "member-1", "Overridden", "reason") == "OverriddenFailed"
    });
    assert_eq!(data(fleet, "member-1", "three", "a"), "v1");
    fleet.apply("hub", &rules("/data/b"));
    eventually("mended, it catches up", || {
        data(fleet, "member-1", "three", "a") == "v2"
            && data(fleet, "member-1", "three", "b") == "one"
            && is_available(fleet, "three")
            && condition(fleet, "three", "Overridden", "status") == "True"
    });
}

fn an_override_that_goes_ends_clean(fleet: &Fleet) {
    // Nobody moves a binding under External: what it names stays, and the override goes all the same.
    fleet.apply("hub", &(namespace("ext") + &config("ext", "{a: base}")));
    let external = placement("ext", "");
    let (head, _) = external.split_once("  strategy:").unwrap();
    fleet.apply("hub", &format!("{head}  strategy: {{type: External}}"));
    fleet.apply(
        "hub",
        &on_config("ext", "o", &[("test", &patch("add", "/data/a", "over"))]),
    );
    let binding = || {
        let name = "{.items[?(@.spec.targetCluster==\"member-1\")].metadata.name}";
        fleet.get("hub", "crb -l kubernetes-fleet.io/parent-CRP=ext", name)
    };
    eventually("there is a binding, and a snapshot of the override", || {
        !binding().is_empty()
            && !fleet
                .get(
                    "hub",
                    "resourceoverridesnapshot o-0 -n ext",
                    "{.metadata.uid}",
                )
                .is_empty()
    });
    let named = "patch crb NAME --type merge -p {\"spec\":{\"state\":\"Bound\",\"resourceSnapshotName\":\"ext-0-snapshot\",\"resourceOverrideSnapshots\":[{\"name\":\"o-0\",\"namespace\":\"ext\"}]}}";
    fleet.kubectl("hub", &named.replace("NAME", &binding()));
    eventually("a hand-written binding is overridden", || {
        data(fleet, "member-1", "ext", "a") == "over"
    });
    fleet.kubectl("hub", "delete resourceoverride o -n ext --timeout=30s");
    fleet.kubectl(
        "hub",
        "delete resourceoverride per-env -n app --timeout=30s",
    );
    fleet.kubectl(
        "hub",
        "delete clusterresourceoverride everywhere --timeout=30s",
    );
    eventually("the clusters go back to the base", || {
        ["member-2", "member-3"]
            .iter()
            .all(|m| data(fleet, m, "app", "a") == "base")
            && MEMBERS.iter().all(|m| {
                fleet
                    .get(m, "cm c -n app", "{.metadata.labels.at}")
                    .is_empty()
            })
            && is_available(fleet, "app")
            && condition(fleet, "app", "Overridden", "reason") == "NoOverrideSpecified"
    });
    eventually("no snapshot is left that nobody names", || {
        fleet
            .get(
                "hub",
                "resourceoverridesnapshots -n app",
                "{.items[*].metadata.name}",
            )
            .is_empty()
            && fleet
                .get(
                    "hub",
                    "clusterresourceoverridesnapshots",
                    "{.items[*].metadata.name}",
                )
                .is_empty()
    });
    let left = fleet.get(
        "hub",
        "resourceoverridesnapshots -n ext",
        "{.items[*].metadata.name}",
    );
    assert_eq!(left, "o-0", "what a binding names stays");
    assert_eq!(data(fleet, "member-1", "ext", "a"), "over");
    fleet.kubectl("hub", &format!("delete crb {} --timeout=60s", binding()));
    eventually("and goes with the last binding that names it", || {
        fleet
            .get(
                "hub",
                "resourceoverridesnapshots -n ext",
                "{.items[*].metadata.name}",
            )
            .is_empty()
    });
    fleet.kubectl("hub", "delete crp ext --timeout=60s");
}

fn namespaced_placements_keep_to_their_rights(fleet: &Fleet) {
    for member in MEMBERS {
        fleet.apply(member, &namespace("team"));
    }
    fleet.apply("hub", &(namespace("team") + &config("team", "{a: base}")));
    let pinned = |name: &str, scope: &str, value: &str| {
        on_config("team", name, &[("test", &patch("add", "/data/a", value))]).replace(
            "spec:",
            &format!("spec:\n  placement: {{name: own, scope: {scope}}}"),
        )
    };
    fleet.apply(
        "hub",
        &(pinned("a", "Namespaced", "ours") + &pinned("b", "Cluster", "theirs")),
    );
    let placement = "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourcePlacement
metadata: {name: own, namespace: team}
spec:
  resourceSelectors:
  - {group: '', version: v1, kind: ConfigMap, name: c}
  - {group: placement.kubernetes-fleet.io, version: v1beta1, kind: ResourceEnvelope, name: e}
";
    fleet.apply("hub", placement);
    eventually(
        "the override that names it is worked in, and no other",
        || {
            data(fleet, "member-1", "team", "a") == "ours"
                && data(fleet, "member-2", "team", "a") == "base"
        },
    );
    fleet.apply(
        "hub",
        "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourceEnvelope
metadata: {name: e, namespace: team}
data:
  rights:
    apiVersion: rbac.authorization.k8s.io/v1
    kind: RoleBinding
    metadata: {name: all, namespace: team}
    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
    subjects: [{kind: User, name: eve, apiGroup: rbac.authorization.k8s.io}]
",
    );
    let message =
        "{.status.placementStatuses[*].conditions[?(@.type==\"WorkSynchronized\")].message}";
    eventually("what grants rights is refused", || {
        fleet.get("hub", "rp own -n team", message).contains(
            "RoleBinding team/all in ResourceEnvelope team/e: a ResourcePlacement or ResourceEnvelope does not place a RoleBinding",
        )
    });
    for member in MEMBERS {
        assert!(
            fleet
                .get(member, "rolebinding all -n team", "{.metadata.uid}")
                .is_empty()
        );
    }
    fleet.kubectl("hub", "delete resourceenvelope e -n team");
    eventually("and is over once it is taken out", || {
        fleet
            .get("hub", "rp own -n team", message)
            .matches("has been told")
            .count()
            == 3
    });
}

fn at_rest_nothing_is_written(fleet: &mut Fleet) {
    // Heartbeats go on.
    let counts = |line: &str| !line.contains("memberclusters");
    drop(fleet.settled(counts));
    fleet.kill_hub();
    fleet.start_hub();
    let after_restart = fleet.settled(counts);
    assert!(after_restart.is_empty(), "{after_restart:?}");
    // A new version that concerns member-1 only: its snapshot, the old one's label, a name on each binding
    // and its status, the placement's, and what member-1 gets.
    let version = |value: &str| {
        let (test, prod) = (
            patch("add", "/data/b", value),
            patch("add", "/data/b", "two"),
        );
        on_config("three", "o", &[("test", &test), ("prod", &prod)])
    };
    let on = |member: &str| fleet.get(member, "cm c -n three", "{.metadata.resourceVersion}");
    let before = (on("member-1"), on("member-2"), on("member-3"));
    fleet.apply("hub", &version("uno"));
    eventually("it arrives", || {
        data(fleet, "member-1", "three", "b") == "uno" && is_available(fleet, "three")
    });
    drop(fleet.settled(counts));
    let after = (on("member-1"), on("member-2"), on("member-3"));
    assert_ne!(before.0, after.0);
    assert_eq!(
        (before.1, before.2),
        (after.1, after.2),
        "nothing is sent elsewhere"
    );
    let latest = fleet.get(
        "hub",
        "resourceoverridesnapshots -n three -l kubernetes-fleet.io/is-latest-snapshot=true",
        "{.items[*].metadata.name}",
    );
    assert_eq!(latest, "o-2");
    let named = "{.status.placementStatuses[*].applicableResourceOverrides[*].name}";
    eventually("all bindings name it", || {
        fleet.get("hub", "crp three", named) == "o-2 o-2 o-2"
    });
}
