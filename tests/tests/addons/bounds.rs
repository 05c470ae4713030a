//! What an Addon may touch, and who may touch what it has made.

use windlass_tests::charts::Chart;
use windlass_tests::eventually;

use crate::bed::{Bed, addon};

/// ConfigMaps that take so many KiB in all, and say which version they are of.
const LARGE: &str = "
{{- range $i, $e := until 3 }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ printf \"large-%d\" $i }}}
data: {version: {{ $.Values.value | quote }}, much: {{ repeat 350000 \"m\" | quote }}}
---
{{- end }}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ .Release.Name }}-large, labels: {version: {{ .Values.value | quote }}}}
";

const STRAY: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: stray, namespace: {{ .Values.other }}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: home}
";

pub fn publish(bed: &Bed) {
    for (name, template) in [("large", LARGE), ("stray", STRAY)] {
        let chart = Chart::new(name, "1.0.0");
        bed.pack(&chart.file("templates/a.yaml", template));
    }
}

/// A large Addon that hands itself to a placement `PLACEMENT`, or to one of its own.
pub fn large(name: &str, value: &str, placement: Option<&str>) -> String {
    let text = addon(
        name,
        "large",
        "1.0.0",
        &format!("  values: {{value: {value}}}"),
    );
    match placement {
        None => text,
        Some(placement) => {
            let (head, rest) = text.split_once("  placement:").unwrap();
            let (_, rest) = rest.split_once('\n').unwrap();
            format!("{head}  placement: {{ref: {{name: {placement}}}}}\n{rest}")
        }
    }
}

fn placement(name: &str, addon: &str, kinds: &[&str]) -> String {
    let selectors: String = kinds
        .iter()
        .map(|kind| {
            format!(
                "  - {{group: placement.kubernetes-fleet.io, version: v1beta1, kind: {kind}, \
                 labelSelector: {{matchLabels: {{addons.windlass.dev/addon: {addon}}}}}}}\n"
            )
        })
        .collect();
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {{name: {name}}}
spec:
  resourceSelectors:
  - {{group: '', version: v1, kind: Namespace, name: {addon}, selectionScope: NamespaceWithResourceSelectors}}
{selectors}"
    )
}

pub fn a_placement_of_the_users_own(bed: &Bed) {
    bed.apply(&large("big", "one", Some("mine")));
    bed.says("big", "PlacementNotFound", "mine");
    // It selects a part.
    bed.apply(&placement("mine", "big", &["ClusterResourceEnvelope"]));
    eventually("it says that this is not all", || {
        let told = bed.condition("big", "Ready", "message");
        told.contains("envelopes are selected")
    });
    assert!(bed.is_everywhere("clusterrole big-large", "{.metadata.name}", ""));
    let both = ["ClusterResourceEnvelope", "ResourceEnvelope"];
    bed.apply(&placement("mine", "big", &both));
    bed.ready("big");
    assert_eq!(bed.status("big", "envelopes[*].name").split(' ').count(), 3);
    let versions = "{.items[?(@.data.version)].data.version}";
    assert!(bed.is_everywhere("cm -n big", versions, "one one one"));
    assert_eq!(bed.get("crp addon-big", "{.metadata.name}"), "");
    bed.delete("big");
    eventually("it is gone from the members", || {
        bed.is_everywhere("clusterrole big-large", "{.metadata.name}", "")
            && bed.is_everywhere("cm -n big", versions, "")
    });
    assert_eq!(
        bed.get("crp mine", "{.metadata.name}"),
        "mine",
        "it is the user's"
    );
    bed.fleet.kubectl("hub", "delete crp mine --timeout=60s");
}

pub fn what_is_not_its_own_is_left_alone(bed: &Bed) {
    let reserved = addon("reserved", "small", "2.0.0", "")
        .replace("namespace: reserved", "namespace: kube-public");
    bed.apply(&reserved);
    bed.says("reserved", "NamespaceReserved", "kube-public");
    // Other namespaces.
    bed.apply(&addon(
        "stray",
        "stray",
        "1.0.0",
        "  values: {other: fleet-system}",
    ));
    bed.says("stray", "ObjectRejected", "fleet-system");
    bed.apply(&addon(
        "stray",
        "stray",
        "1.0.0",
        "  values: {other: elsewhere}",
    ));
    bed.says("stray", "OtherNamespaces", "elsewhere");
    assert_eq!(
        bed.get("ns elsewhere", "{.metadata.name}"),
        "",
        "it is not made"
    );
    assert_eq!(
        bed.get("resourceenvelope -n stray", "{.items}"),
        "[]",
        "nothing is written"
    );
    // Things of these names that somebody else has made.
    bed.apply(
        "
{apiVersion: v1, kind: Namespace, metadata: {name: taken}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: addon-taken}
spec:
  resourceSelectors: [{group: '', version: v1, kind: Namespace, name: taken}]
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourceEnvelope
metadata: {name: taken-0, namespace: taken}
data: {a: {apiVersion: v1, kind: ConfigMap, metadata: {name: theirs, namespace: taken}}}
",
    );
    let theirs = || {
        let envelope = bed.get(
            "resourceenvelope taken-0 -n taken",
            "{.metadata.uid}{.data}{.metadata.labels}",
        );
        let placement = bed.get(
            "crp addon-taken",
            "{.metadata.uid}{.spec}{.metadata.ownerReferences}",
        );
        format!("{envelope}{placement}")
    };
    let before = theirs();
    bed.apply(&addon("taken", "small", "2.0.0", ""));
    bed.says("taken", "EnvelopeConflict", "taken-0");
    assert_eq!(theirs(), before);
    bed.fleet
        .kubectl("hub", "delete resourceenvelope taken-0 -n taken");
    bed.says("taken", "PlacementConflict", "addon-taken");
    let placement = bed.get("crp addon-taken", "{.metadata.ownerReferences}");
    assert_eq!(placement, "");
    bed.fleet
        .kubectl("hub", "delete crp addon-taken --timeout=60s");
    bed.ready("taken");
    for name in ["reserved", "stray", "taken"] {
        bed.delete(name);
    }
}

pub fn edited_envelopes_are_restored(bed: &Bed) {
    bed.apply(&large("big", "one", None));
    bed.ready("big");
    let trace = bed.trace("big");
    let names = bed.status("big", "envelopes[*].name");
    let name = names.split(' ').next_back().unwrap();
    let what = format!("resourceenvelope {name} -n big");
    let data = || bed.get(&what, "{.data}");
    let before = data();
    let patch = r#"{"data":{"planted":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"planted","namespace":"big"}}}}"#;
    bed.fleet
        .kubectl("hub", &format!("patch {what} --type merge -p {patch}"));
    eventually("an edit is taken back", || data() == before);
    bed.fleet.kubectl("hub", &format!("delete {what}"));
    eventually("it is made again", || data() == before);
    bed.ready("big");
    drop(
        bed.fleet
            .settled(|line| !line.contains("memberclusters/status")),
    );
    assert_eq!(bed.trace("big"), trace, "no version was made of it");
    assert!(bed.is_everywhere("cm planted -n big", "{.metadata.name}", ""));
    // The placement, too.
    let patch = r#"{"spec":{"strategy":{"rollingUpdate":{"maxUnavailable":2}}}}"#;
    bed.fleet.kubectl(
        "hub",
        &format!("patch crp addon-big --type merge -p {patch}"),
    );
    eventually("an edit of the placement is taken back", || {
        bed.get(
            "crp addon-big",
            "{.spec.strategy.rollingUpdate.maxUnavailable}",
        ) == "1"
    });
    bed.delete("big");
}
