//! What the API server takes and refuses by schema and CEL, in both served versions (API §2.12, §6.3, §6.4).
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use windlass_tests::{Fleet, eventually};

const SELECTORS: &str = "resourceSelectors: [{group: '', version: v1, kind: Namespace, name: web}]";
/// What an accepted row expects.
const OK: &str = "";

/// Fields of a placement's spec beside one selector, and what a refusal says.
const FIELDS: &[(&str, &str)] = &[
    ("", OK),
    ("revisionHistoryLimit: 1", OK),
    ("revisionHistoryLimit: 1000", OK),
    ("revisionHistoryLimit: 0", "spec.revisionHistoryLimit"),
    ("revisionHistoryLimit: 1001", "spec.revisionHistoryLimit"),
    ("statusReportingScope: NamespaceAccessible", OK),
    ("statusReportingScope: Everybody", "Unsupported value"),
    // The policy (P9, P10, P11; 8, 10).
    ("policy: {}", OK),
    ("policy: {placementType: PickSome}", "Unsupported value"),
    (
        "policy: {placementType: PickN}",
        "numberOfClusters is required",
    ),
    ("policy: {placementType: PickN, numberOfClusters: 0}", OK),
    (
        "policy: {placementType: PickN, numberOfClusters: -1}",
        "numberOfClusters",
    ),
    (
        "policy: {placementType: PickN, numberOfClusters: 1, clusterNames: [a]}",
        "clusterNames is not allowed",
    ),
    (
        "policy: {placementType: PickFixed, clusterNames: [a, b.c-1]}",
        OK,
    ),
    ("policy: {placementType: PickFixed, clusterNames: []}", OK),
    (
        "policy: {placementType: PickFixed, clusterNames: [a, b, a]}",
        "must not name a cluster twice",
    ),
    (
        "policy: {placementType: PickFixed, clusterNames: [A]}",
        "clusterNames must be names of member clusters",
    ),
    (
        "policy: {placementType: PickFixed, clusterNames: ['']}",
        "clusterNames must be names of member clusters",
    ),
    (
        "policy: {placementType: PickFixed, clusterNames: [-a]}",
        "clusterNames must be names of member clusters",
    ),
    (
        "policy: {placementType: PickFixed, clusterNames: [aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]}",
        "Too long",
    ),
    (
        "policy: {placementType: PickFixed, clusterNames: [a], affinity: {}}",
        "affinity is not allowed",
    ),
    (
        "policy: {placementType: PickFixed, clusterNames: [a], numberOfClusters: 1}",
        "not allowed when placementType is PickFixed",
    ),
    (
        "policy: {placementType: PickFixed, clusterNames: [a], tolerations: []}",
        "not allowed when placementType is PickFixed",
    ),
    (
        "policy: {placementType: PickFixed, clusterNames: [a], topologySpreadConstraints: [{topologyKey: k}]}",
        "not allowed when placementType is PickFixed",
    ),
    (
        "policy: {clusterNames: [a]}",
        "clusterNames is not allowed when placementType is PickAll",
    ),
    (
        "policy: {numberOfClusters: 1}",
        "not allowed when placementType is PickAll",
    ),
    (
        "policy: {topologySpreadConstraints: [{topologyKey: k}]}",
        "not allowed when placementType is PickAll",
    ),
    (
        "policy: {affinity: {clusterAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {}}]}}}",
        "preferredDuringSchedulingIgnoredDuringExecution is not allowed when placementType is PickAll",
    ),
    (
        "policy: {affinity: {clusterAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {clusterSelectorTerms: [{}]}}}}",
        OK,
    ),
    (
        "policy: {placementType: PickN, numberOfClusters: 1, topologySpreadConstraints: [{topologyKey: k, maxSkew: 0}]}",
        "maxSkew",
    ),
    (
        "policy: {placementType: PickN, numberOfClusters: 1, topologySpreadConstraints: [{topologyKey: k, whenUnsatisfiable: Maybe}]}",
        "Unsupported value",
    ),
    // Tolerations (P12, P13; 18).
    (
        "policy: {tolerations: [{key: example.com/a, value: b}, {key: a, operator: Exists}, {operator: Exists}]}",
        OK,
    ),
    (
        "policy: {tolerations: [{key: a, operator: Exists, value: b}]}",
        "toleration value needs to be empty",
    ),
    (
        "policy: {tolerations: [{value: b}]}",
        "toleration key needs to be set",
    ),
    (
        "policy: {tolerations: [{key: a, operator: Like}]}",
        "Unsupported value",
    ),
    (
        "policy: {tolerations: [{key: a, effect: NoExecute}]}",
        "Unsupported value",
    ),
    (
        "policy: {tolerations: [{key: 'a b', value: c}]}",
        "toleration key must be a qualified name",
    ),
    (
        "policy: {tolerations: [{key: a/b/c, value: c}]}",
        "toleration key must be a qualified name",
    ),
    (
        "policy: {tolerations: [{key: a, value: 'b c'}]}",
        "toleration value must be a label value",
    ),
    (
        "policy: {tolerations: [{key: a, value: b}, {key: a, value: b}]}",
        "tolerations must not be the same twice",
    ),
    // The strategy (P14, P15; 19, 20).
    ("strategy: {type: External}", OK),
    ("strategy: {type: Sometimes}", "Unsupported value"),
    (
        "strategy: {type: External, rollingUpdate: {}}",
        "rollingUpdate is not allowed when the strategy type is External",
    ),
    (
        "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 100%, unavailablePeriodSeconds: 0}}",
        OK,
    ),
    ("strategy: {rollingUpdate: {maxSurge: 200%}}", "maxSurge"),
    (
        "strategy: {rollingUpdate: {maxUnavailable: half}}",
        "maxUnavailable",
    ),
    (
        "strategy: {rollingUpdate: {maxUnavailable: -1}}",
        "maxUnavailable must not be negative",
    ),
    (
        "strategy: {rollingUpdate: {maxSurge: -1}}",
        "maxSurge must not be negative",
    ),
    (
        "strategy: {rollingUpdate: {unavailablePeriodSeconds: -1}}",
        "unavailablePeriodSeconds",
    ),
    (
        "strategy: {applyStrategy: {type: ServerSideApply, serverSideApplyConfig: {force: true}}}",
        OK,
    ),
    (
        "strategy: {applyStrategy: {serverSideApplyConfig: {force: true}}}",
        "only allowed when the type of applyStrategy is ServerSideApply",
    ),
    (
        "strategy: {applyStrategy: {type: Guess}}",
        "Unsupported value",
    ),
    (
        "strategy: {applyStrategy: {whenToApply: Never}}",
        "Unsupported value",
    ),
    (
        "strategy: {applyStrategy: {whenToTakeOver: Sometimes}}",
        "Unsupported value",
    ),
    (
        "strategy: {applyStrategy: {comparisonOption: Some}}",
        "Unsupported value",
    ),
    (
        "strategy: {deleteStrategy: {propagationPolicy: Abandon}}",
        OK,
    ),
    (
        "strategy: {deleteStrategy: {propagationPolicy: Orphan}}",
        "Unsupported value",
    ),
    (
        "strategy: {reportBackStrategy: {type: Mirror, destination: OriginalResource}}",
        OK,
    ),
    ("strategy: {reportBackStrategy: {type: Disabled}}", OK),
    (
        "strategy: {reportBackStrategy: {type: Mirror}}",
        "a destination must be specified",
    ),
    (
        "strategy: {reportBackStrategy: {type: Mirror, destination: Elsewhere}}",
        "Unsupported value",
    ),
];

/// Required (R) and preferred (P) affinity terms of a PickN (12 to 15).
const TERMS: &[(char, &str, &str)] = &[
    ('R', "{labelSelector: {matchLabels: {a: b}}}", OK),
    (
        'R',
        "{labelSelector: {matchExpressions: [{key: a, operator: Like}]}}",
        "Unsupported value",
    ),
    (
        'R',
        "{propertySelector: {matchExpressions: [{name: kubernetes-fleet.io/node-count, operator: Ge, values: ['3']}]}}",
        OK,
    ),
    (
        'R',
        "{propertySelector: {matchExpressions: [{name: cpu, operator: Gt, values: [1500Mi]}]}}",
        OK,
    ),
    (
        'R',
        "{propertySelector: {matchExpressions: [{name: cpu, operator: Above, values: ['3']}]}}",
        "Unsupported value",
    ),
    (
        'R',
        "{propertySelector: {matchExpressions: [{name: cpu, operator: Ge, values: []}]}}",
        "values",
    ),
    (
        'R',
        "{propertySelector: {matchExpressions: [{name: cpu, operator: Ge, values: ['1', '2']}]}}",
        "values",
    ),
    (
        'R',
        "{propertySelector: {matchExpressions: [{name: cpu, operator: Ge, values: [many]}]}}",
        "values",
    ),
    (
        'R',
        "{propertySorter: {name: cpu, sortOrder: Ascending}}",
        "propertySorter is not allowed in a required affinity term",
    ),
    (
        'P',
        "{propertySorter: {name: cpu, sortOrder: Descending}}",
        OK,
    ),
    (
        'P',
        "{propertySorter: {name: cpu, sortOrder: Sideways}}",
        "Unsupported value",
    ),
    (
        'P',
        "{labelSelector: {matchExpressions: [{key: a, operator: Like}]}}",
        "Unsupported value",
    ),
    (
        'P',
        "{propertySelector: {matchExpressions: [{name: cpu, operator: Ge, values: ['3']}]}}",
        "propertySelector is not allowed in a preferred affinity term",
    ),
];

/// Selectors, with further fields of the spec (P2, P4 to P7; 3).
const CHOICES: &[(&str, &str)] = &[
    ("[]", "resourceSelectors"),
    ("[{group: '', version: v1, kind: Namespace}]", OK),
    (
        "[{group: '', version: v1, kind: Namespace, name: a, labelSelector: {}}]",
        "mutually exclusive",
    ),
    (
        "[{group: '', version: v1, kind: Namespace, name: '', labelSelector: {}}]",
        OK,
    ),
    (
        "[{version: v1, kind: Namespace}]",
        "resourceSelectors[0].group",
    ),
    (
        "[{group: '', kind: Namespace}]",
        "resourceSelectors[0].version",
    ),
    ("[{group: '', version: v1}]", "resourceSelectors[0].kind"),
    (
        "[{group: '', version: v1, kind: Namespace, selectionScope: NamespaceAndMore}]",
        "Unsupported value",
    ),
    (
        "[{group: '', version: v1, kind: Namespace, labelSelector: {matchExpressions: [{key: a, operator: Like}]}}]",
        "Unsupported value",
    ),
    (
        "[{group: '', version: v1, kind: Namespace, name: a, selectionScope: NamespaceWithResourceSelectors}]",
        OK,
    ),
    (
        "[{group: '', version: v1, kind: Namespace, name: a, selectionScope: NamespaceWithResourceSelectors}, {group: apps, version: v1, kind: Deployment}]",
        OK,
    ),
    (
        "[{group: '', version: v1, kind: Namespace, selectionScope: NamespaceWithResourceSelectors}]",
        "needs a name and no labelSelector",
    ),
    (
        "[{group: '', version: v1, kind: Namespace, name: '', selectionScope: NamespaceWithResourceSelectors}]",
        "needs a name and no labelSelector",
    ),
    (
        "[{group: '', version: v1, kind: Namespace, labelSelector: {}, selectionScope: NamespaceWithResourceSelectors}]",
        "needs a name and no labelSelector",
    ),
    (
        "[{group: '', version: v1, kind: Namespace, name: a, selectionScope: NamespaceWithResourceSelectors}, {group: '', version: v1, kind: Namespace, name: b, selectionScope: NamespaceWithResourceSelectors}]",
        "at most one resourceSelector",
    ),
    (
        "[{group: '', version: v1, kind: Namespace, name: a, selectionScope: NamespaceWithResourceSelectors}, {group: '', version: v1, kind: Namespace, name: b}]",
        "must be the only Namespace selector",
    ),
];

/// What may follow on what (P1, P3, P8, P14; 22, 23).
const CHANGES: &[(&str, &str, &str)] = &[
    ("", "policy: {placementType: PickAll}", OK),
    (
        "",
        "policy: {placementType: PickN, numberOfClusters: 1}",
        "placementType is immutable",
    ),
    (
        "policy: {placementType: PickAll}",
        "",
        "policy cannot be removed",
    ),
    (
        "policy: {placementType: PickAll}",
        "policy: {placementType: PickN, numberOfClusters: 1}",
        "placementType is immutable",
    ),
    (
        "policy: {placementType: PickN, numberOfClusters: 1}",
        "policy: {placementType: PickFixed, clusterNames: [a]}",
        "placementType is immutable",
    ),
    (
        "policy: {placementType: PickN, numberOfClusters: 1}",
        "policy: {placementType: PickN, numberOfClusters: 5}",
        OK,
    ),
    (
        "policy: {placementType: PickFixed, clusterNames: [a]}",
        "policy: {placementType: PickFixed, clusterNames: [b]}",
        OK,
    ),
    (
        "policy: {tolerations: [{key: a, value: b}]}",
        "policy: {tolerations: [{key: a, value: b}, {key: c, value: d}]}",
        OK,
    ),
    (
        "policy: {tolerations: [{key: a, value: b}]}",
        "policy: {tolerations: [{key: a, value: c}]}",
        "tolerations can be added",
    ),
    (
        "policy: {tolerations: [{key: a, value: b}]}",
        "policy: {tolerations: []}",
        "tolerations can be added",
    ),
    (
        "policy: {tolerations: [{key: a, value: b}]}",
        "policy: {}",
        "tolerations can be added",
    ),
    (
        "policy: {}",
        "policy: {tolerations: [{key: a, value: b}]}",
        OK,
    ),
    (
        "strategy: {type: RollingUpdate}",
        "strategy: {type: External}",
        OK,
    ),
    (
        "strategy: {type: External}",
        "strategy: {type: RollingUpdate}",
        "cannot change rollout strategy type from 'External'",
    ),
    (
        "strategy: {type: External}",
        "",
        "strategy cannot be removed",
    ),
    (
        "statusReportingScope: NamespaceAccessible",
        "statusReportingScope: ClusterScopeOnly",
        "statusReportingScope is immutable",
    ),
    (
        "statusReportingScope: ClusterScopeOnly",
        "statusReportingScope: NamespaceAccessible",
        "statusReportingScope is immutable",
    ),
];

/// Name and spec of a MemberCluster (N1; §6.4).
const CLUSTERS: &[(&str, &str)] = &[
    ("identity: {kind: User, name: a}", OK),
    ("identity: {name: a}", "spec.identity.kind"),
    (
        "identity: {kind: User, name: a}, heartbeatPeriodSeconds: 0",
        "heartbeatPeriodSeconds",
    ),
    (
        "identity: {kind: User, name: a}, heartbeatPeriodSeconds: 601",
        "heartbeatPeriodSeconds",
    ),
    (
        "identity: {kind: User, name: a}, taints: [{key: example.com/a, value: b, effect: NoSchedule}]",
        OK,
    ),
    (
        "identity: {kind: User, name: a}, taints: [{key: a, effect: NoExecute}]",
        "Unsupported value",
    ),
    (
        "identity: {kind: User, name: a}, taints: [{key: 'a b', effect: NoSchedule}]",
        "taint key must be a qualified name",
    ),
    (
        "identity: {kind: User, name: a}, taints: [{key: a, value: 'b c', effect: NoSchedule}]",
        "taint value must be a label value",
    ),
    (
        "identity: {kind: User, name: a}, taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]",
        "taints must not be the same twice",
    ),
    (
        "identity: {kind: User, name: a}, deleteOptions: {validationMode: Skip}",
        OK,
    ),
    (
        "identity: {kind: User, name: a}, deleteOptions: {validationMode: Lax}",
        "Unsupported value",
    ),
];

/// Requests that are sent together, and what is expected of each.
#[derive(Default)]
struct Batch {
    manifests: Vec<String>,
    rows: Vec<(String, String, &'static str)>,
}

impl Batch {
    /// A manifest of the object `row-N`, or of that name; what it is about, and what a refusal says.
    fn add(&mut self, manifest: &str, what: &str, expected: &'static str) {
        let name = format!("row-{}", self.rows.len());
        self.named(&name, &manifest.replace("NAME", &name), what, expected);
    }

    fn named(&mut self, name: &str, manifest: &str, what: &str, expected: &'static str) {
        self.manifests.push(manifest.replace("NAME", name));
        self.rows.push((name.to_owned(), what.to_owned(), expected));
    }

    /// Which rows the API server does not treat as expected.
    fn faults(&self, fleet: &Fleet, verb: &str) -> Vec<String> {
        let input = self.manifests.join("\n---\n");
        let args = format!("{verb} --dry-run=server -f -");
        let answer = fleet.try_kubectl("hub", &args, Some(&input));
        let text = answer.unwrap_or_else(|error| error);
        let faults = self.rows.iter().filter_map(|(name, what, expected)| {
            let accepted = text.contains(&format!("/{name} {verb}d"));
            let refusal = refusal(&text, name);
            let fault = match (accepted, *expected) {
                (true, OK) => return None,
                (true, _) => format!("accepted, though {expected:?}"),
                (false, OK) => format!("refused: {refusal}"),
                (false, _) if refusal.contains(expected) => return None,
                (false, _) => format!("refused, but without {expected:?}: {refusal}"),
            };
            Some(format!("{what}: {fault}"))
        });
        faults.collect()
    }
}

/// The lines of an answer that are about an object.
fn refusal(text: &str, name: &str) -> String {
    let mut about = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.starts_with("The ") || line.starts_with("Error from server") {
            about = line.contains(&format!("{name}\""));
        }
        if about {
            lines.push(line);
        }
    }
    lines.join("\n")
}

fn placement(kind: &str, version: &str, spec: &str) -> String {
    format!(
        "apiVersion: placement.kubernetes-fleet.io/{version}\nkind: {kind}\nmetadata: {{name: NAME}}\nspec:\n  {}\n",
        spec.trim_end()
    )
}

fn creates(kind: &str, version: &str) -> Batch {
    let mut batch = Batch::default();
    let mut add = |spec: &str, expected| batch.add(&placement(kind, version, spec), spec, expected);
    for (fields, expected) in FIELDS {
        add(&format!("{SELECTORS}\n  {fields}"), expected);
    }
    for (of, term, expected) in TERMS {
        let terms = match of {
            'R' => format!(
                "requiredDuringSchedulingIgnoredDuringExecution: {{clusterSelectorTerms: [{term}]}}"
            ),
            _ => format!(
                "preferredDuringSchedulingIgnoredDuringExecution: [{{weight: 1, preference: {term}}}]"
            ),
        };
        let policy = format!(
            "policy: {{placementType: PickN, numberOfClusters: 1, affinity: {{clusterAffinity: {{{terms}}}}}}}"
        );
        add(&format!("{SELECTORS}\n  {policy}"), expected);
    }
    for (selectors, expected) in CHOICES {
        add(&format!("resourceSelectors: {selectors}"), expected);
    }
    let accessible = "statusReportingScope: NamespaceAccessible\n  resourceSelectors: \
         [{group: '', version: v1, kind: ConfigMap}]";
    let refusal = match kind {
        "ClusterResourcePlacement" => "must have exactly one Namespace selector",
        // P2: on a ResourcePlacement the field has no effect.
        _ => OK,
    };
    add(accessible, refusal);
    let manifest = placement(kind, version, SELECTORS);
    let (long, longest) = ("x".repeat(64), "x".repeat(63));
    let refusal = "metadata.name must be shorter than 64";
    batch.named(&long, &manifest, "64 characters", refusal);
    batch.named(&longest, &manifest, "63 characters", OK);
    batch
}

/// What the changes begin with, and they themselves.
fn changes(kind: &str, version: &str) -> (Batch, Batch) {
    let (mut before, mut after) = (Batch::default(), Batch::default());
    // P3: on a ResourcePlacement the field has no effect.
    let counts = |fields: &str| {
        kind == "ClusterResourcePlacement" || !fields.contains("statusReportingScope")
    };
    for (old, new, expected) in CHANGES.iter().filter(|(old, ..)| counts(old)) {
        let manifest = |fields| placement(kind, version, &format!("{SELECTORS}\n  {fields}"));
        before.add(&manifest(old), old, OK);
        after.add(&manifest(new), &format!("{old} -> {new}"), expected);
    }
    (before, after)
}

fn clusters(version: &str) -> Batch {
    let mut batch = Batch::default();
    let manifest = |spec: &str| {
        format!(
            "{{apiVersion: cluster.kubernetes-fleet.io/{version}, kind: MemberCluster, metadata: {{name: NAME}}, spec: {{{spec}}}}}"
        )
    };
    for (spec, expected) in CLUSTERS {
        batch.add(&manifest(spec), spec, expected);
    }
    let refusal = "metadata.name must be shorter than 64";
    let anyone = manifest("identity: {kind: User, name: a}");
    batch.named(&"x".repeat(64), &anyone, "64 characters", refusal);
    batch
}

#[test]
fn what_the_api_server_takes_and_refuses() {
    let fleet = Fleet::up("admission", 0);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    eventually("the kinds are served", || {
        ["crp", "rp", "cluster"].iter().all(|kind| {
            fleet
                .try_kubectl("hub", &format!("get {kind}"), None)
                .is_ok()
        })
    });
    let mut faults = Vec::new();
    for kind in ["ClusterResourcePlacement", "ResourcePlacement"] {
        for version in ["v1", "v1beta1"] {
            let mut found = creates(kind, version).faults(&fleet, "create");
            let (before, after) = changes(kind, version);
            let stored = before.manifests.join("\n---\n");
            let kubectl = |args: &str| fleet.try_kubectl("hub", args, Some(&stored));
            kubectl("create -f -").unwrap();
            found.extend(after.faults(&fleet, "replace"));
            kubectl("delete -f -").unwrap();
            faults.extend(
                found
                    .iter()
                    .map(|fault| format!("{kind} {version} {fault}")),
            );
        }
    }
    for version in ["v1", "v1beta1"] {
        let found = clusters(version).faults(&fleet, "create");
        faults.extend(
            found
                .iter()
                .map(|fault| format!("MemberCluster {version} {fault}")),
        );
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
