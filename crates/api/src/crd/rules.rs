//! CEL rules, by the ids of the reference (API §2.12). Rules that belong to one small type stand at it.

use serde_json::{Value, json};

/// A rule: kind, where it stands, expression, message.
type Row = (&'static str, &'static str, &'static str, &'static str);

const NAMESPACE: &str = "x.group == '' && x.version == 'v1' && x.kind == 'Namespace'";

const ROWS: [Row; 13] = [
    // Ours: `addon-NAME` is the name of a placement.
    (
        "Addon",
        "",
        "size(self.metadata.name) < 58",
        "metadata.name must be shorter than 58 characters",
    ),
    // N1
    (
        "MemberCluster",
        "",
        "size(self.metadata.name) < 64",
        "metadata.name must be shorter than 64 characters",
    ),
    // P1
    (
        "ClusterResourcePlacement",
        "/properties/spec",
        "!(has(oldSelf.policy) && !has(self.policy))",
        "policy cannot be removed once set",
    ),
    // P2
    (
        "ClusterResourcePlacement",
        "/properties/spec",
        "!has(self.statusReportingScope) || self.statusReportingScope != 'NamespaceAccessible' || size(self.resourceSelectors.filter(x, x.kind == 'Namespace')) == 1",
        "when statusReportingScope is NamespaceAccessible, resourceSelectors must have exactly one Namespace selector",
    ),
    // P3
    (
        "ClusterResourcePlacement",
        "/properties/spec",
        "!has(oldSelf.statusReportingScope) || (has(self.statusReportingScope) && self.statusReportingScope == oldSelf.statusReportingScope)",
        "statusReportingScope is immutable",
    ),
    // P4, P5, P6 are made below: they share an expression.
    // P7
    (
        "ClusterResourcePlacement",
        "/properties/spec/properties/resourceSelectors",
        "self.all(x, !(has(x.name) && x.name != '' && has(x.labelSelector)))",
        "name and labelSelector of a resourceSelector are mutually exclusive",
    ),
    // P8
    (
        "ClusterResourcePlacement",
        "/properties/spec/properties/policy",
        "self.placementType == oldSelf.placementType",
        "placementType is immutable",
    ),
    // P9
    (
        "ClusterResourcePlacement",
        "/properties/spec/properties/policy",
        "self.placementType != 'PickFixed' || !has(self.affinity)",
        "affinity is not allowed when placementType is PickFixed",
    ),
    (
        "ClusterResourcePlacement",
        "/properties/spec/properties/policy",
        "self.placementType != 'PickFixed' || (!has(self.numberOfClusters) && !has(self.topologySpreadConstraints) && !has(self.tolerations))",
        "numberOfClusters, topologySpreadConstraints and tolerations are not allowed when placementType is PickFixed",
    ),
    // P10
    (
        "ClusterResourcePlacement",
        "/properties/spec/properties/policy",
        "self.placementType != 'PickAll' || !has(self.clusterNames)",
        "clusterNames is not allowed when placementType is PickAll",
    ),
    (
        "ClusterResourcePlacement",
        "/properties/spec/properties/policy",
        "self.placementType != 'PickAll' || (!has(self.numberOfClusters) && !has(self.topologySpreadConstraints))",
        "numberOfClusters and topologySpreadConstraints are not allowed when placementType is PickAll",
    ),
    // P11
    (
        "ClusterResourcePlacement",
        "/properties/spec/properties/policy",
        "self.placementType != 'PickN' || !has(self.clusterNames)",
        "clusterNames is not allowed when placementType is PickN",
    ),
    (
        "ClusterResourcePlacement",
        "/properties/spec/properties/policy",
        "self.placementType != 'PickN' || has(self.numberOfClusters)",
        "numberOfClusters is required when placementType is PickN",
    ),
];

/// Where the overrides' rules stand, below the spec.
const RULE: &str = "/properties/spec/properties/policy/properties/overrideRules/items";
const TERM: &str = "/properties/clusterSelector/properties/clusterSelectorTerms/items";
const PATCH: &str = "/properties/jsonPatchOverrides/items";

/// What holds for overrides of both kinds: O2, and what is said by upstream's webhook (API §6.4). Strings
/// are only compared with literals: anything else is too dear for a list in a list.
const OVERRIDES: [(&str, &str, &str); 7] = [
    (
        "",
        "size(self.metadata.name) < 64",
        "metadata.name must be shorter than 64 characters",
    ),
    (
        RULE,
        "has(self.overrideType) && self.overrideType == 'Delete' ? !has(self.jsonPatchOverrides) : has(self.jsonPatchOverrides)",
        "overrideRules: a rule of type JSONPatch needs jsonPatchOverrides, one of type Delete has none",
    ),
    (
        TERM,
        "has(self.labelSelector) && !has(self.propertySelector) && !has(self.propertySorter)",
        "clusterSelectorTerms of an override need a labelSelector, and have neither propertySelector nor propertySorter",
    ),
    (
        PATCH,
        "self.path.startsWith('/') && !self.path.endsWith('/')",
        "path of a JSON patch must start with / and not end with it",
    ),
    (
        PATCH,
        "!(self.path in ['/kind', '/apiVersion', '/status']) && !self.path.startsWith('/kind/') && !self.path.startsWith('/apiVersion/') && !self.path.startsWith('/status/')",
        "path of a JSON patch must not be in kind, apiVersion or status",
    ),
    (
        PATCH,
        "self.path != '/metadata' && (!self.path.startsWith('/metadata/') || self.path in ['/metadata/labels', '/metadata/annotations'] || self.path.startsWith('/metadata/labels/') || self.path.startsWith('/metadata/annotations/'))",
        "path of a JSON patch in metadata must be in labels or annotations",
    ),
    (
        "/properties/spec",
        PLACEMENT_STAYS,
        "placement is immutable",
    ),
];

/// O2
const PLACEMENT_STAYS: &str = "has(oldSelf.placement) ? has(self.placement) && self.placement == oldSelf.placement : !has(self.placement)";

fn add_overrides(kind: &str, schema: &mut Value) {
    let selectors = match kind {
        "ClusterResourceOverride" => "/properties/spec/properties/clusterResourceSelectors/items",
        "ResourceOverride" => "/properties/spec/properties/resourceSelectors/items",
        "ClusterResourceOverrideSnapshot" | "ResourceOverrideSnapshot" => {
            let spec = "/properties/spec/properties/overrideSpec";
            push(schema, spec, PLACEMENT_STAYS, "placement is immutable");
            let message = "a snapshot is immutable; change the override";
            push(schema, "/properties/spec", "self == oldSelf", message);
            return;
        }
        _ => return,
    };
    for (path, rule, message) in OVERRIDES {
        let path = match path {
            TERM | PATCH => format!("{RULE}{path}"),
            _ => path.to_owned(),
        };
        push(schema, &path, rule, message);
    }
    if kind == "ClusterResourceOverride" {
        // O1
        push(
            schema,
            "",
            "!has(self.spec.placement) || !has(self.spec.placement.scope) || self.spec.placement.scope != 'Namespaced'",
            "placement of a ClusterResourceOverride must have scope Cluster",
        );
        push(
            schema,
            selectors,
            "has(self.name) && self.name != '' && !has(self.labelSelector)",
            "clusterResourceSelectors: objects are overridden by name; give a name and no labelSelector",
        );
    } else {
        push(
            schema,
            selectors,
            "self.name != ''",
            "resourceSelectors: objects are overridden by name; give a name",
        );
    }
}

/// What holds for update runs of both scopes.
const RUNS: [(&str, &str, &str); 7] = [
    // N1
    (
        "",
        "size(self.metadata.name) < 64",
        "metadata.name must be shorter than 64 characters",
    ),
    // U1
    (
        SPEC,
        "!has(oldSelf.state) || oldSelf.state != 'Initialize' || !has(self.state) || self.state != 'Stop'",
        "state cannot go from Initialize to Stop: nothing moves yet",
    ),
    // U2
    (
        SPEC,
        "!has(oldSelf.state) || oldSelf.state != 'Run' || (has(self.state) && self.state != 'Initialize')",
        "state cannot go from Run to Initialize; use Stop",
    ),
    // U3
    (
        SPEC,
        "!has(oldSelf.state) || oldSelf.state != 'Stop' || (has(self.state) && self.state != 'Initialize')",
        "state cannot go from Stop to Initialize; use Run",
    ),
    // U4
    (
        "/properties/spec/properties/placementName",
        "self == oldSelf",
        "placementName is immutable",
    ),
    // U5; ours holds also for a run that had none, for it has the latest then.
    (
        SPEC,
        "(has(self.resourceSnapshotIndex) ? self.resourceSnapshotIndex : '') == (has(oldSelf.resourceSnapshotIndex) ? oldSelf.resourceSnapshotIndex : '')",
        "resourceSnapshotIndex is immutable; create another run for another version",
    ),
    // U6
    (
        "/properties/spec/properties/stagedRolloutStrategyName",
        "self == oldSelf",
        "stagedRolloutStrategyName is immutable",
    ),
];

const SPEC: &str = "/properties/spec";
const STAGE: &str = "/properties/spec/properties/stages/items";

/// What holds for strategies of both scopes. In the copy that a run keeps of its strategy there is nothing to
/// check any more.
const STRATEGIES: [(&str, &str, &str); 5] = [
    // S1
    (
        "/properties/beforeStageTasks/items",
        "self.type != 'Approval' || !has(self.waitTime)",
        "waitTime is not allowed in a task of type Approval",
    ),
    (
        "/properties/afterStageTasks/items",
        "self.type != 'Approval' || !has(self.waitTime)",
        "waitTime is not allowed in a task of type Approval",
    ),
    // S2
    (
        "/properties/afterStageTasks/items",
        "self.type != 'TimedWait' || has(self.waitTime)",
        "waitTime is required in a task of type TimedWait",
    ),
    // S3
    (
        "/properties/beforeStageTasks/items",
        "self.type != 'TimedWait'",
        "beforeStageTasks can't have a task of type TimedWait",
    ),
    // S4
    (
        "/properties/maxConcurrency",
        "type(self) != int || self >= 1",
        "maxConcurrency must be 1 or more, or a percentage",
    ),
];

/// Of a number of failures, wherever it stands.
const FAILURES: (&str, &str) = (
    "type(self) != int || self >= 0",
    "maxFailures must not be negative",
);

fn add_runs(kind: &str, schema: &mut Value) {
    match kind {
        "ClusterStagedUpdateRun" | "StagedUpdateRun" => {
            for (path, rule, message) in RUNS {
                push(schema, path, rule, message);
            }
            let path = "/properties/spec/properties/failureThreshold/properties/maxFailures";
            push(schema, path, FAILURES.0, FAILURES.1);
        }
        "ClusterStagedUpdateStrategy" | "StagedUpdateStrategy" => {
            for (path, rule, message) in STRATEGIES {
                push(schema, &format!("{STAGE}{path}"), rule, message);
            }
            let path = format!("{STAGE}/properties/failureThreshold/properties/maxFailures");
            push(schema, &path, FAILURES.0, FAILURES.1);
            // Two of one name would share their approvals.
            push(
                schema,
                "/properties/spec/properties/stages",
                "self.all(x, self.exists_one(y, y.name == x.name))",
                "stages must not have the same name twice",
            );
        }
        "ClusterApprovalRequest" | "ApprovalRequest" => {
            // A1
            push(
                schema,
                SPEC,
                "self == oldSelf",
                "the spec of an approval request is immutable",
            );
        }
        _ => {}
    }
}

/// Adds the rules of a kind to its schema.
pub fn add(kind: &str, schema: &mut Value) {
    let like = if kind == "ResourcePlacement" {
        "ClusterResourcePlacement"
    } else {
        kind
    };
    for (_, path, rule, message) in ROWS.iter().filter(|(of, ..)| *of == like) {
        // P2 and P3: the field has no effect on a ResourcePlacement.
        if kind != "ResourcePlacement" || !rule.contains("statusReportingScope") {
            push(schema, path, rule, message);
        }
    }
    add_overrides(kind, schema);
    add_runs(kind, schema);
    if like == "ClusterResourcePlacement" {
        let scoped = format!("{NAMESPACE} && x.selectionScope == 'NamespaceWithResourceSelectors'");
        let path = "/properties/spec";
        // P4
        push(
            schema,
            path,
            &format!("size(self.resourceSelectors.filter(x, {scoped})) <= 1"),
            "at most one resourceSelector may have selectionScope NamespaceWithResourceSelectors",
        );
        // P5
        push(
            schema,
            path,
            &format!(
                "self.resourceSelectors.filter(x, {scoped}).all(x, has(x.name) && x.name != '' && !has(x.labelSelector))"
            ),
            "a resourceSelector with selectionScope NamespaceWithResourceSelectors needs a name and no labelSelector",
        );
        // P6
        push(
            schema,
            path,
            &format!(
                "!self.resourceSelectors.exists(x, {scoped}) || size(self.resourceSelectors.filter(x, {NAMESPACE})) == 1"
            ),
            "a resourceSelector with selectionScope NamespaceWithResourceSelectors must be the only Namespace selector",
        );
    }
}

/// Adds a rule at a place that the schema has.
pub(super) fn push(schema: &mut Value, path: &str, rule: &str, message: &str) {
    let Some(Value::Object(node)) = schema.pointer_mut(path) else {
        return;
    };
    let rules = node
        .entry("x-kubernetes-validations")
        .or_insert_with(|| json!([]));
    if let Value::Array(rules) = rules {
        rules.push(json!({ "rule": rule, "message": message }));
    }
}
