//! Namespaced placements on a real fleet: what a team sees that has rights in one namespace only.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use windlass_tests::{Fleet, eventually};

const APP: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: web}
---
apiVersion: v1
kind: Namespace
metadata: {name: api}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: web}
data: {a: '1'}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: extra, namespace: web}
data: {a: '1'}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: api}
data: {a: 'of another team'}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: web}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: shared}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get]}]
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: namespaces}
spec:
  statusReportingScope: NamespaceAccessible
  resourceSelectors:
  - {group: '', version: v1, kind: Namespace, name: web, selectionScope: NamespaceOnly}
";

const MEMBERS: [&str; 2] = ["member-1", "member-2"];

fn placement(namespace: &str, name: &str, selectors: &str) -> String {
    format!(
        "apiVersion: placement.kubernetes-fleet.io/v1beta1\nkind: ResourcePlacement\n\
         metadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  resourceSelectors: [{selectors}]\n"
    )
}

const CONFIG: &str = "{group: '', version: v1, kind: ConfigMap}";

/// A field of a condition of a ResourcePlacement, `namespace/name`.
fn condition(fleet: &Fleet, placement: &str, type_: &str, field: &str) -> String {
    let path = format!("{{.status.conditions[?(@.type==\"ResourcePlacement{type_}\")].{field}}}");
    rp(fleet, placement, &path)
}

fn rp(fleet: &Fleet, placement: &str, path: &str) -> String {
    let (namespace, name) = placement.split_once('/').unwrap();
    fleet.get("hub", &format!("rp {name} -n {namespace}"), path)
}

fn is_at(fleet: &Fleet, placement: &str, index: &str) -> bool {
    rp(fleet, placement, "{.status.observedResourceIndex}") == index
        && condition(fleet, placement, "Available", "status") == "True"
}

fn everywhere(fleet: &Fleet, what: &str, path: &str, expected: &str) -> bool {
    let mut members = MEMBERS.iter();
    members.all(|member| fleet.get(member, what, path) == expected)
}

#[test]
fn a_namespace_is_placed_by_those_who_own_it() {
    let mut fleet = Fleet::up("namespaced", MEMBERS.len());
    fleet.apply("hub", &fleet.windlass(&["crds"]).unwrap());
    fleet.start_hub();
    for member in MEMBERS {
        fleet.join(member);
    }
    fleet.apply("hub", APP);
    a_copy_of_the_status_can_be_read_in_the_namespace(&fleet);
    a_copy_that_is_refused_holds_nothing_up(&fleet);
    what_is_selected_is_placed(&fleet);
    changes_roll_and_what_is_gone_is_pruned(&fleet);
    what_is_refused(&fleet);
    what_goes_around_selection_is_refused(&fleet);
    two_placements_with_one_name_do_not_meet(&fleet);
    a_restart_writes_nothing(&mut fleet);
    an_administrator_may_allow_rights(&mut fleet);
    a_namespace_goes_with_its_placements(&fleet);
}

fn copy(fleet: &Fleet, path: &str) -> String {
    fleet.get("hub", "crps namespaces -n web", path)
}

const NO_COPIES: &str = r"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-copies}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [placement.kubernetes-fleet.io], apiVersions: ['*'], operations: [CREATE, UPDATE],
       resources: [clusterresourceplacementstatuses]}
  validations: [{expression: 'false', message: no copies here}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-copies}
spec: {policyName: no-copies, validationActions: [Deny]}
";

fn a_copy_that_is_refused_holds_nothing_up(fleet: &Fleet) {
    let said = |type_: &str, field: &str| {
        let path = format!(
            "{{.status.conditions[?(@.type==\"ClusterResourcePlacement{type_}\")].{field}}}"
        );
        fleet.get("hub", "crp namespaces", &path)
    };
    fleet.apply("hub", NO_COPIES);
    eventually("copies are refused", || {
        let touch = "annotate crps namespaces -n web a=b --overwrite --dry-run=server";
        fleet.try_kubectl("hub", touch, None).is_err()
    });
    fleet.kubectl("hub", "delete crps namespaces -n web");
    eventually("that is said, and nothing else", || {
        said("StatusSynced", "status") == "False"
            && said("StatusSynced", "message").contains("no copies here")
    });
    let _ = fleet.settled(|line| line.contains("resource=\"clusterresourceplacements/status\""));
    for type_ in ["Scheduled", "Available"] {
        assert_eq!(said(type_, "status"), "True", "{type_}");
    }
    let policy = "validatingadmissionpolicybinding,validatingadmissionpolicy";
    fleet.kubectl("hub", &format!("delete {policy} no-copies"));
    let mut limit = 5;
    eventually("the copy is back", || {
        // By itself it is tried every 30 s; a change is looked at at once.
        limit += 1;
        let patch = format!("{{\"spec\":{{\"revisionHistoryLimit\":{limit}}}}}");
        fleet.kubectl(
            "hub",
            &format!("patch crp namespaces --type=merge -p {patch}"),
        );
        said("StatusSynced", "status") == "True" && !copy(fleet, "{.sourceStatus}").is_empty()
    });
}

fn a_copy_of_the_status_can_be_read_in_the_namespace(fleet: &Fleet) {
    let available =
        "{.sourceStatus.conditions[?(@.type==\"ClusterResourcePlacementAvailable\")].status}";
    let synced = "{.status.conditions[?(@.type==\"ClusterResourcePlacementStatusSynced\")].status}";
    eventually("the copy says that the namespace is available", || {
        copy(fleet, available) == "True" && fleet.get("hub", "crp namespaces", synced) == "True"
    });
    assert_eq!(
        copy(fleet, "{.sourceStatus.placementStatuses[*].clusterName}"),
        "member-1 member-2"
    );
    assert!(!copy(fleet, "{.sourceStatus.conditions[*].type}").contains("StatusSynced"));
    assert_eq!(
        copy(fleet, "{.metadata.ownerReferences[0].kind}"),
        "ClusterResourcePlacement"
    );
    // Taken away, or changed, it comes back as it was.
    fleet.kubectl("hub", "delete crps namespaces -n web");
    eventually("the copy is back", || copy(fleet, available) == "True");
    let forged = "patch crps namespaces -n web --type=merge -p {\"sourceStatus\":{\"observedResourceIndex\":\"7\"}}";
    fleet.kubectl("hub", forged);
    eventually("the copy is right again", || {
        copy(fleet, "{.sourceStatus.observedResourceIndex}") == "0"
    });
    let moved = "patch crp namespaces --type=json -p \
                 [{\"op\":\"replace\",\"path\":\"/spec/resourceSelectors/0/name\",\"value\":\"api\"}]";
    fleet.kubectl("hub", moved);
    let said = "{.status.conditions[?(@.type==\"ClusterResourcePlacementScheduled\")].message}";
    eventually("the move is refused", || {
        fleet
            .get("hub", "crp namespaces", said)
            .contains("namespace web, and can't move to api")
    });
    assert!(
        fleet
            .get("hub", "crps -n api", "{.items[*].metadata.name}")
            .is_empty()
    );
    fleet.kubectl("hub", &moved.replace("\"api\"", "\"web\""));
    eventually("it goes on where it was", || {
        fleet.get("hub", "crp namespaces", synced) == "True"
            && copy(fleet, available) == "True"
            && fleet.get("hub", "crp namespaces", said).contains("found")
    });
}

fn what_is_selected_is_placed(fleet: &Fleet) {
    fleet.apply("hub", &placement("web", "x", CONFIG));
    eventually("the namespace's objects are available everywhere", || {
        is_at(fleet, "web/x", "0")
    });
    assert!(everywhere(fleet, "cm settings -n web", "{.data.a}", "1"));
    assert!(everywhere(fleet, "cm extra -n web", "{.data.a}", "1"));
    assert!(
        everywhere(fleet, "ns api", "{.metadata.name}", ""),
        "another team's namespace"
    );
    let kinds = [
        ("resourcesnapshots", "x-0-snapshot"),
        ("schedulingpolicysnapshots", "x-0"),
        ("rp", "x"),
    ];
    for (kind, name) in kinds {
        assert_eq!(
            fleet.get(
                "hub",
                &format!("{kind} -n web"),
                "{.items[*].metadata.name}"
            ),
            name
        );
    }
    let bindings = fleet.get(
        "hub",
        "resourcebindings -n web",
        "{.items[*].spec.targetCluster}",
    );
    assert_eq!(bindings.split(' ').count(), 2, "{bindings}");
    let owner = "{.metadata.ownerReferences[0].kind}";
    assert_eq!(
        fleet.get("hub", "resourcesnapshots x-0-snapshot -n web", owner),
        "ResourcePlacement"
    );
    assert!(
        fleet
            .get(
                "hub",
                "clusterresourcebindings",
                "{.items[*].metadata.name}"
            )
            .starts_with("namespaces-")
    );
    let table = fleet.kubectl("hub", "get rp -n web");
    for column in ["NAME", "SCHEDULED", "AVAILABLE-GEN", "AGE"] {
        assert!(table.contains(column), "{table}");
    }
    let hub = fleet.kubeconfig("hub");
    let hub = hub.to_string_lossy();
    let one = fleet
        .windlass(&["status", "x", "-n", "web", "--kubeconfig", &hub])
        .unwrap();
    assert!(
        one.starts_with("web/x: index 0, available on 2/2, Available "),
        "{one}"
    );
    let all = fleet.windlass(&["status", "--kubeconfig", &hub]).unwrap();
    assert!(
        all.contains("\nnamespaces ") && all.contains("\nweb/x "),
        "{all}"
    );
    eventually("events lie in the namespace", || {
        let about = "{.items[?(@.regarding.kind==\"ResourcePlacement\")].regarding.name}";
        fleet
            .get("hub", "events.v1.events.k8s.io -n web", about)
            .contains('x')
    });
    let metrics = fleet.http("/metrics").unwrap();
    let series = "windlass_placement_scheduled{placement=\"web/x\"} 1";
    assert!(metrics.contains(series), "{metrics}");
}

fn changes_roll_and_what_is_gone_is_pruned(fleet: &Fleet) {
    fleet.kubectl(
        "hub",
        "patch cm settings -n web --type=merge -p {\"data\":{\"a\":\"2\"}}",
    );
    eventually("the change is everywhere", || {
        is_at(fleet, "web/x", "1") && everywhere(fleet, "cm settings -n web", "{.data.a}", "2")
    });
    fleet.kubectl("hub", "delete cm extra -n web");
    eventually("what is gone is gone everywhere", || {
        is_at(fleet, "web/x", "2") && everywhere(fleet, "cm extra -n web", "{.metadata.name}", "")
    });
    fleet.kubectl(
        "member-1",
        "patch cm settings -n web --type=merge -p {\"data\":{\"a\":\"mine\"}}",
    );
    eventually("an edit on a member is put back", || {
        everywhere(fleet, "cm settings -n web", "{.data.a}", "2")
    });
}

fn what_is_refused(fleet: &Fleet) {
    let rows = [
        (
            "cluster-scoped",
            "{group: rbac.authorization.k8s.io, version: v1, kind: ClusterRole}",
            "is cluster-scoped",
        ),
        (
            "by-name",
            "{group: rbac.authorization.k8s.io, version: v1, kind: ClusterRole, name: shared}",
            "is cluster-scoped",
        ),
        (
            "its-namespace",
            "{group: '', version: v1, kind: Namespace, name: web}",
            "is cluster-scoped",
        ),
        (
            "another",
            "{group: '', version: v1, kind: Namespace, name: api}",
            "is cluster-scoped",
        ),
        (
            "bounded",
            "{group: '', version: v1, kind: Namespace, name: api, selectionScope: NamespaceWithResourceSelectors}",
            "is cluster-scoped",
        ),
        (
            "roles",
            "{group: rbac.authorization.k8s.io, version: v1, kind: Role}",
            "unless an administrator allows it",
        ),
        (
            "bindings",
            "{group: rbac.authorization.k8s.io, version: v1, kind: RoleBinding}",
            "unless an administrator allows it",
        ),
    ];
    for (name, selector, _) in rows {
        fleet.apply("hub", &placement("web", name, selector));
    }
    // Namespace default is reserved, as kube-system is.
    fleet.apply("hub", &placement("default", "reserved", CONFIG));
    fleet.apply("hub", &placement("kube-system", "reserved", CONFIG));
    let refused = |placement: &str, words: &str| {
        condition(fleet, placement, "Scheduled", "reason") == "InvalidResourceSelectors"
            && condition(fleet, placement, "Scheduled", "message").contains(words)
    };
    for (name, _, words) in rows {
        eventually(name, || refused(&format!("web/{name}"), words));
    }
    eventually("default", || refused("default/reserved", "is reserved"));
    eventually("kube-system", || {
        refused("kube-system/reserved", "is reserved")
    });
    let bindings = fleet.get(
        "hub",
        "resourcebindings -A",
        "{.items[*].metadata.labels.kubernetes-fleet\\.io/parent-CRP}",
    );
    assert_eq!(bindings, "x x", "nothing of that came so far");
    for (name, ..) in rows {
        fleet.kubectl("hub", &format!("delete rp {name} -n web --timeout=60s"));
    }
    fleet.kubectl("hub", "delete rp reserved -n default --timeout=60s");
    fleet.kubectl("hub", "delete rp reserved -n kube-system --timeout=60s");
}

const ATTACKS: &str = "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourceEnvelope
metadata: {name: role, namespace: web}
data:
  a: {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: sneaky, namespace: web}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourceEnvelope
metadata: {name: foreign, namespace: web}
data:
  a: {apiVersion: v1, kind: ConfigMap, metadata: {name: sneaky, namespace: kube-public}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourceOverride
metadata: {name: subjects, namespace: web}
spec:
  placement: {name: patched, scope: Namespaced}
  resourceSelectors: [{group: '', version: v1, kind: ConfigMap, name: settings}]
  policy:
    overrideRules:
    - clusterSelector: {clusterSelectorTerms: []}
      jsonPatchOverrides: [{op: add, path: /subjects, value: [{kind: User, name: eve}]}]
";

/// What is no kind to select, out of an envelope or by an override.
fn what_goes_around_selection_is_refused(fleet: &Fleet) {
    let version =
        |member: &str| fleet.get(member, "cm settings -n web", "{.metadata.resourceVersion}");
    let before = MEMBERS.map(version);
    fleet.apply("hub", ATTACKS);
    let envelope = |name: &str| {
        let group = "placement.kubernetes-fleet.io";
        format!("{{group: {group}, version: v1beta1, kind: ResourceEnvelope, name: {name}}}")
    };
    let settings = "{group: '', version: v1, kind: ConfigMap, name: settings}".to_owned();
    let rows = [
        (
            "role",
            envelope("role"),
            "WorkSynchronized",
            "Role web/sneaky in ResourceEnvelope web/role: a ResourcePlacement or ResourceEnvelope does not place a Role",
        ),
        (
            "foreign",
            envelope("foreign"),
            "WorkSynchronized",
            "ResourceEnvelope web/foreign, key \"a\": ConfigMap kube-public/sneaky is in another namespace",
        ),
        (
            "patched",
            settings,
            "Overridden",
            "ConfigMap web/settings, ResourceOverrideSnapshot web/subjects-0, overrideRules[0], path \"/subjects\": \
             it changes /subjects",
        ),
    ];
    for (name, selector, ..) in &rows {
        fleet.apply("hub", &placement("web", name, selector));
    }
    for (name, _, type_, words) in &rows {
        let path =
            format!("{{.status.placementStatuses[*].conditions[?(@.type==\"{type_}\")].message}}");
        eventually(name, || {
            rp(fleet, &format!("web/{name}"), &path).contains(words)
        });
    }
    assert!(everywhere(
        fleet,
        "role sneaky -n web",
        "{.metadata.name}",
        ""
    ));
    assert!(everywhere(
        fleet,
        "cm sneaky -n kube-public",
        "{.metadata.name}",
        ""
    ));
    assert_eq!(MEMBERS.map(version), before);
    for (name, ..) in &rows {
        fleet.kubectl("hub", &format!("delete rp {name} -n web --timeout=60s"));
    }
    fleet.kubectl(
        "hub",
        "delete resourceoverrides/subjects resourceenvelopes/role resourceenvelopes/foreign -n web",
    );
}

/// ClusterResourcePlacement `web.x` beside ResourcePlacement `web/x`: their AppliedWorks would have one name.
fn two_placements_with_one_name_do_not_meet(fleet: &Fleet) {
    let rival = "apiVersion: placement.kubernetes-fleet.io/v1beta1\nkind: ClusterResourcePlacement\n\
                 metadata: {name: web.x}\nspec:\n  resourceSelectors: \
                 [{group: rbac.authorization.k8s.io, version: v1, kind: ClusterRole, name: shared}]\n";
    let available = |fleet: &Fleet| {
        let path = "{.status.conditions[?(@.type==\"ClusterResourcePlacementAvailable\")].status}";
        fleet.get("hub", "crp web.x", path) == "True"
    };
    let shared =
        |expected: &str| everywhere(fleet, "clusterrole shared", "{.metadata.name}", expected);
    let settings =
        |expected: &str| everywhere(fleet, "cm settings -n web", "{.metadata.name}", expected);
    fleet.apply("hub", rival);
    eventually("both are there", || available(fleet) && shared("shared"));
    assert!(settings("settings"));
    let works = fleet.get("member-1", "appliedworks", "{.items[*].metadata.name}");
    let names: Vec<&str> = works
        .split(' ')
        .filter(|name| name.starts_with("web.x-"))
        .collect();
    assert_eq!(names.len(), 2, "{works}");
    assert_eq!(
        names.iter().filter(|name| **name == "web.x-work").count(),
        1,
        "{works}"
    );
    fleet.kubectl("hub", "delete crp web.x --timeout=60s");
    assert!(
        shared("") && settings("settings"),
        "each takes its own along"
    );
    fleet.apply("hub", rival);
    eventually("both are there again", || {
        available(fleet) && shared("shared")
    });
    fleet.kubectl("hub", "delete rp x -n web --timeout=60s");
    assert!(shared("shared") && settings(""), "each takes its own along");
    let left = fleet.get(
        "hub",
        "resourcesnapshots,schedulingpolicysnapshots,resourcebindings -n web",
        "{.items[*].metadata.name}",
    );
    assert_eq!(left, "");
    fleet.apply("hub", &placement("web", "x", CONFIG));
    eventually("the placement is back beside the other", || {
        is_at(fleet, "web/x", "0")
    });
    assert!(shared("shared") && settings("settings"));
}

fn a_restart_writes_nothing(fleet: &mut Fleet) {
    drop(fleet.settled(|_| true));
    let before = fleet.served_writes("member-1");
    fleet.kill_hub();
    fleet.start_hub();
    let cost: Vec<String> = fleet
        .settled(|line| !line.contains("memberclusters"))
        .into_iter()
        .filter(|line| line.contains("placement"))
        .collect();
    assert!(cost.is_empty(), "{cost:#?}");
    assert_eq!(fleet.served_writes("member-1"), before);
}

fn an_administrator_may_allow_rights(fleet: &mut Fleet) {
    fleet.kill_hub();
    fleet.start_hub_with(&["--allowed-in-namespaced-placements", "rbac"]);
    let roles = "{group: rbac.authorization.k8s.io, version: v1, kind: Role}";
    fleet.apply("hub", &placement("web", "roles", roles));
    eventually("the role is placed", || {
        is_at(fleet, "web/roles", "0")
            && everywhere(fleet, "role reader -n web", "{.metadata.name}", "reader")
    });
}

/// The namespace goes while its placements are there: they end with it, and what they placed goes, too.
fn a_namespace_goes_with_its_placements(fleet: &Fleet) {
    fleet.kubectl("hub", "delete ns web --timeout=120s");
    assert!(everywhere(
        fleet,
        "cm settings -n web",
        "{.metadata.name}",
        ""
    ));
    assert!(everywhere(
        fleet,
        "role reader -n web",
        "{.metadata.name}",
        ""
    ));
    eventually("the cluster-scoped placement has taken it away", || {
        everywhere(fleet, "ns web", "{.metadata.name}", "")
    });
    let failed = "{.status.conditions[?(@.type==\"ClusterResourcePlacementStatusSynced\")].status}";
    eventually("there is no place for the copy", || {
        fleet.get("hub", "crp namespaces", failed) == "False"
    });
    fleet.kubectl("hub", "create ns web");
    eventually("there is again", || {
        fleet.get("hub", "crp namespaces", failed) == "True"
            && !copy(fleet, "{.metadata.name}").is_empty()
    });
    fleet.kubectl("hub", "delete crp namespaces web.x --timeout=60s");
    eventually("the copy goes with its placement", || {
        copy(fleet, "{.metadata.name}").is_empty()
    });
    let works = fleet.get("member-1", "appliedworks", "{.items[*].metadata.name}");
    assert_eq!(works, "");
}
