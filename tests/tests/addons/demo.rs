//! A chart as `helm create` makes it, with a CRD, roles and hooks besides.

use windlass_tests::eventually;

use crate::bed::{Bed, MEMBERS, addon};

const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: knots.demo.windlass.dev}
spec:
  group: demo.windlass.dev
  scope: Namespaced
  names: {kind: Knot, plural: knots}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";

const MORE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: demo-reader}
rules: [{apiGroups: [''], resources: [nodes], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: demo}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: demo}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: demo}
subjects: [{kind: ServiceAccount, name: demo, namespace: {{ .Release.Namespace }}}]
---
apiVersion: v1
kind: Namespace
metadata:
  name: {{ .Release.Namespace }}
  labels: {pod-security.kubernetes.io/warn: baseline, windlass.dev/allow-workloads: 'true'}
---
apiVersion: demo.windlass.dev/v1
kind: Knot
metadata: {name: bowline}
---
apiVersion: batch/v1
kind: Job
metadata: {name: migrate, annotations: {helm.sh/hook: pre-install}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}
";

pub fn publish(bed: &Bed) {
    std::fs::create_dir_all(bed.helm.path("made")).unwrap();
    bed.helm.run(&["create", "made/demo"]);
    let chart = bed.helm.path("made/demo");
    std::fs::create_dir_all(chart.join("crds")).unwrap();
    std::fs::write(chart.join("crds/knots.yaml"), CRD).unwrap();
    std::fs::write(chart.join("templates/more.yaml"), MORE).unwrap();
    bed.helm.run(&["package", "made/demo", "-d", "charts"]);
}

fn demo(values: &str) -> String {
    addon("demo", "demo", "0.1.0", &format!("  values: {values}"))
}

pub fn a_chart_of_helm_create_is_placed(bed: &Bed) {
    let before = writes(bed);
    bed.apply(&demo("{replicaCount: 2}"));
    let took = bed.ready("demo");
    println!("from apply to Ready on {} members: {took:?}", MEMBERS.len());
    println!("{}", since(bed, &before));
    for (what, path, expected) in [
        ("deploy demo -n demo", "{.status.availableReplicas}", "2"),
        ("svc demo -n demo", "{.metadata.name}", "demo"),
        ("role demo -n demo", "{.metadata.name}", "demo"),
        ("rolebinding demo -n demo", "{.roleRef.name}", "demo"),
        ("clusterrole demo-reader", "{.rules[0].verbs[0]}", "get"),
        ("knots bowline -n demo", "{.metadata.name}", "bowline"),
        ("jobs -n demo", "{.items}", "[]"),
        ("pods -n demo -l helm.sh/hook=test", "{.items}", "[]"),
        (
            "ns demo",
            "{.metadata.labels.pod-security\\.kubernetes\\.io/warn}",
            "baseline",
        ),
    ] {
        assert!(
            bed.is_everywhere(what, path, expected),
            "{what}: {:?}",
            MEMBERS.map(|member| bed.fleet.get(member, what, path))
        );
    }
    let allowed = "{.metadata.labels.windlass\\.dev/allow-workloads}";
    assert_eq!(
        bed.get("ns demo", allowed),
        "",
        "a chart does not speak for the hub"
    );
    assert_eq!(
        bed.status("demo", "skippedHooks"),
        r#"["Job/migrate (pre-install)"]"#
    );
    assert_eq!(bed.status("demo", "version"), "0.1.0");
    assert_eq!(bed.status("demo", "assumedKinds"), "");
    assert_eq!(bed.status("demo", "helmVersion"), "v3.22.0");
    assert!(bed.status("demo", "objects").contains(r#""Deployment":1"#));
    bed.says("demo", "Available", "available on all 2 cluster(s)");
    is_legible(bed);
}

/// What people and their tools read.
fn is_legible(bed: &Bed) {
    let table = bed.fleet.kubectl("hub", "get addons -o wide");
    for word in [
        "NAME",
        "CHART",
        "VERSION",
        "READY",
        "REASON",
        "AGE",
        "AVAILABLE VERSION",
        "MESSAGE",
        "Available",
        "available on all 2 cluster(s)",
    ] {
        assert!(table.contains(word), "{word}: {table}");
    }
    bed.fleet
        .kubectl("hub", "wait --for=condition=Ready addon/demo --timeout=10s");
    eventually("there is an event of it", || {
        let events = "events.events.k8s.io -A";
        let told = "{.items[?(@.regarding.kind==\"Addon\")].regarding.name}";
        bed.get(events, told).contains("demo")
    });
    let hub = bed.fleet.kubeconfig("hub");
    let hub = hub.to_string_lossy();
    let status = bed
        .fleet
        .windlass(&["status", "addon-demo", "--kubeconfig", &hub]);
    let status = status.unwrap();
    assert!(
        MEMBERS.iter().all(|member| status.contains(member)),
        "{status}"
    );
    let plan = bed
        .fleet
        .windlass(&["plan", "addon-demo", "--kubeconfig", &hub]);
    let plan = plan.unwrap();
    assert!(
        !plan.contains("not allowed") && !plan.contains("role.rbac"),
        "{plan}"
    );
    assert!(plan.contains("member-1"), "{plan}");
}

/// Nor with our words on it: only what the hub has rendered is vouched for.
pub fn a_tenant_may_place_no_roles(bed: &Bed) {
    bed.apply(
        "
{apiVersion: v1, kind: Namespace, metadata: {name: tenant}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: tenant}
spec:
  resourceSelectors: [{group: '', version: v1, kind: Namespace, name: tenant}]
",
    );
    for (words, more) in [
        ("nothing", ""),
        (
            "the annotation",
            "annotations: {addons.windlass.dev/vouched: 'true'}",
        ),
        ("the label", "labels: {addons.windlass.dev/addon: nobody}"),
        (
            "all of it",
            "labels: {addons.windlass.dev/addon: nobody}, annotations: {addons.windlass.dev/vouched: 'true', addons.windlass.dev/render: a}",
        ),
    ] {
        bed.apply(&format!(
            "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourceEnvelope
metadata: {{name: own, namespace: tenant, {more}}}
data:
  role:
    apiVersion: rbac.authorization.k8s.io/v1
    kind: Role
    metadata: {{name: power, namespace: tenant}}
    rules: [{{apiGroups: ['*'], resources: ['*'], verbs: ['*']}}]
"
        ));
        eventually(
            &format!("a Role in an envelope with {words} is refused"),
            || {
                let told = bed.get("crp tenant", "{.status}");
                told.contains("Role") && told.contains("False")
            },
        );
        assert!(
            bed.is_everywhere("role power -n tenant", "{.metadata.name}", ""),
            "{words}"
        );
        bed.fleet
            .kubectl("hub", "delete resourceenvelope own -n tenant");
    }
    bed.fleet.kubectl("hub", "delete crp tenant --timeout=60s");
}

pub fn changes_roll_within_the_strategy(bed: &Bed) {
    let index = || bed.get("crp addon-demo", "{.status.observedResourceIndex}");
    assert_eq!(index(), "0");
    let (old, before) = (bed.status("demo", "renderDigest"), writes(bed));
    bed.apply(&demo("{replicaCount: 3}"));
    bed.ready("demo");
    println!("an upgrade: {}", since(bed, &before));
    assert!(bed.is_everywhere("deploy demo -n demo", "{.status.availableReplicas}", "3"));
    assert_ne!(bed.status("demo", "renderDigest"), old);
    assert_eq!(index(), "1");
    // What never comes up stays on the one cluster that may be unavailable.
    bed.apply(&demo("{replicaCount: 3, nodeSelector: {nowhere: 'true'}}"));
    let updated = || {
        let selector = "{.spec.template.spec.nodeSelector.nowhere}";
        let on = |member: &&&str| bed.fleet.get(member, "deploy demo -n demo", selector) == "true";
        MEMBERS.iter().filter(on).count()
    };
    eventually("one cluster has it", || updated() == 1);
    bed.says("demo", "PlacementProgressing", "addon-demo");
    drop(
        bed.fleet
            .settled(|line| !line.contains("memberclusters/status")),
    );
    assert_eq!(updated(), 1, "the other one waits");
    bed.apply(&demo("{replicaCount: 3}"));
    bed.ready("demo");
    assert_eq!(updated(), 0);
    assert_eq!(index(), "3", "one version for each change");
}

/// Neither reading the repository again nor a restart.
pub fn nothing_moves_without_a_reason(bed: &mut Bed) {
    bed.ready("demo");
    let counts =
        |line: &str| !line.contains("memberclusters/status") && !line.contains("addonrepositories");
    let (trace, before) = (bed.trace("demo"), bed.fleet.settled(counts));
    bed.refresh();
    assert_eq!(bed.fleet.settled(counts), before, "a refresh");
    bed.restart();
    bed.sync();
    let sent = bed.fleet.settled(counts);
    assert!(sent.is_empty(), "a restart: {sent:?}");
    assert_eq!(bed.trace("demo"), trace);
}

/// Requests that the hub has sent so far, by verb and resource.
pub fn writes(bed: &Bed) -> Vec<(String, u64)> {
    let counts = |line: &str| !line.contains("memberclusters/status");
    let lines = bed.fleet.settled(counts);
    lines
        .iter()
        .filter_map(|line| {
            let (name, count) = line.rsplit_once(' ')?;
            Some((name.to_owned(), count.parse().ok()?))
        })
        .collect()
}

/// Those since then, for people.
pub fn since(bed: &Bed, before: &[(String, u64)]) -> String {
    let mut text = String::new();
    let mut sum = 0;
    for (name, count) in writes(bed) {
        let old = before.iter().find(|(known, _)| *known == name);
        let more = count - old.map_or(0, |(_, count)| *count);
        if more > 0 {
            sum += more;
            text.push_str(&format!("  {more} {name}\n"));
        }
    }
    format!("{sum} writes\n{text}")
}
