//! What is sent, and what a refusal says.

pub const SELECTORS: &str =
    "resourceSelectors: [{group: '', version: v1, kind: Namespace, name: web}]";
/// What an accepted row expects.
pub const OK: &str = "";

/// Fields of a placement's spec beside one selector, and what a refusal says.
pub const FIELDS: &[(&str, &str)] = &[
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
pub const TERMS: &[(char, &str, &str)] = &[
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
pub const CHOICES: &[(&str, &str)] = &[
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
pub const CHANGES: &[(&str, &str, &str)] = &[
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
pub const CLUSTERS: &[(&str, &str)] = &[
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
