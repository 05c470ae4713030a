//! CEL rules for what upstream says in its webhooks (API §6.3, §6.4), so that no webhook is needed. The
//! numbers are those of the reference. What CEL can't say, or can't say at a bearable cost, the hub says in
//! a condition: kinds and their scopes (4 to 7), the rest of label selectors (3, 12, 13), property names
//! (14), and expressions that contradict each other (16).

use serde_json::{Value, json};

use super::rules::push;

/// A rule: where it stands, expression, message.
type Row = (&'static str, &'static str, &'static str);

const POLICY: &str = "/properties/spec/properties/policy";
const CLUSTER_NAMES: &str = "/properties/spec/properties/policy/properties/clusterNames";
const TOLERATIONS: &str = "/properties/spec/properties/policy/properties/tolerations";
const TOLERATION: &str = "/properties/spec/properties/policy/properties/tolerations/items";
const REQUIRED: &str = "/properties/spec/properties/policy/properties/affinity/properties/clusterAffinity/properties/requiredDuringSchedulingIgnoredDuringExecution/properties/clusterSelectorTerms";
const PREFERRED: &str = "/properties/spec/properties/policy/properties/affinity/properties/clusterAffinity/properties/preferredDuringSchedulingIgnoredDuringExecution/items/properties/preference";
const EXPRESSION: &str = "/items/properties/propertySelector/properties/matchExpressions/items";
const STRATEGY: &str = "/properties/spec/properties/strategy";
const ROLLING: &str = "/properties/spec/properties/strategy/properties/rollingUpdate";
const APPLY: &str = "/properties/spec/properties/strategy/properties/applyStrategy";
const TAINTS: &str = "/properties/spec/properties/taints";
const TAINT: &str = "/properties/spec/properties/taints/items";
const LABELS: &str = "/properties/labelSelector/properties/matchExpressions/items";
const LABEL_OPERATORS: [&str; 4] = ["DoesNotExist", "Exists", "In", "NotIn"];
/// What a quantity looks like, as controller-gen has it.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
/// Longest qualified name: a DNS subdomain, a slash and 63 characters more.
const QUALIFIED: usize = 317;

/// For both kinds of placement.
const PLACEMENT: [Row; 17] = [
    // 1. The name becomes the value of a label.
    (
        "",
        "size(self.metadata.name) < 64",
        "metadata.name must be shorter than 64 characters",
    ),
    // 8
    (
        CLUSTER_NAMES,
        "self.all(x, size(x) < 64 && x.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))",
        "clusterNames must be names of member clusters: at most 63 lower-case letters, digits, '-' and '.'",
    ),
    (
        CLUSTER_NAMES,
        "self.all(x, self.exists_one(y, x == y))",
        "clusterNames must not name a cluster twice",
    ),
    // 10
    (
        POLICY,
        "self.placementType != 'PickAll' || !has(self.affinity) || !has(self.affinity.clusterAffinity) || !has(self.affinity.clusterAffinity.preferredDuringSchedulingIgnoredDuringExecution) || size(self.affinity.clusterAffinity.preferredDuringSchedulingIgnoredDuringExecution) == 0",
        "preferredDuringSchedulingIgnoredDuringExecution is not allowed when placementType is PickAll: there is nothing to prefer",
    ),
    // 12
    (
        REQUIRED,
        "self.all(x, !has(x.propertySorter))",
        "propertySorter is not allowed in a required affinity term; it ranks clusters in preferred ones",
    ),
    // 13
    (
        PREFERRED,
        "!has(self.propertySelector)",
        "propertySelector is not allowed in a preferred affinity term; use propertySorter",
    ),
    // 18
    (
        TOLERATION,
        "!has(self.key) || self.key == '' || !format.qualifiedName().validate(self.key).hasValue()",
        "toleration key must be a qualified name: at most 63 letters, digits, '-', '_' and '.', with an optional DNS prefix and '/'",
    ),
    (
        TOLERATION,
        "!has(self.value) || !format.labelValue().validate(self.value).hasValue()",
        "toleration value must be a label value: at most 63 letters, digits, '-', '_' and '.'",
    ),
    (
        TOLERATIONS,
        "self.all(x, self.exists_one(y, x == y))",
        "tolerations must not be the same twice",
    ),
    // 19
    (
        STRATEGY,
        "self.type != 'External' || !has(self.rollingUpdate)",
        "rollingUpdate is not allowed when the strategy type is External",
    ),
    (
        ROLLING,
        "!has(self.maxUnavailable) || type(self.maxUnavailable) != int || self.maxUnavailable >= 0",
        "maxUnavailable must not be negative",
    ),
    (
        ROLLING,
        "!has(self.maxSurge) || type(self.maxSurge) != int || self.maxSurge >= 0",
        "maxSurge must not be negative",
    ),
    // 20
    (
        APPLY,
        "self.type == 'ServerSideApply' || !has(self.serverSideApplyConfig)",
        "serverSideApplyConfig is only allowed when the type of applyStrategy is ServerSideApply",
    ),
    // 22; the type of a policy that is there is frozen by P8.
    (
        "/properties/spec",
        "has(oldSelf.policy) || !has(self.policy) || self.policy.placementType == 'PickAll'",
        "placementType is immutable; a placement without a policy has PickAll",
    ),
    // P14 for a strategy that goes away as a whole: no webhook puts its defaults back.
    (
        "/properties/spec",
        "!has(oldSelf.strategy) || oldSelf.strategy.type != 'External' || has(self.strategy)",
        "strategy cannot be removed once its type is External",
    ),
    // 23
    (
        TOLERATIONS,
        "oldSelf.all(x, self.exists(y, x == y))",
        "tolerations can be added, but not removed or changed",
    ),
    (
        POLICY,
        "!has(oldSelf.tolerations) || size(oldSelf.tolerations) == 0 || has(self.tolerations)",
        "tolerations can be added, but not removed or changed",
    ),
];

const MEMBER_CLUSTER: [Row; 3] = [
    (
        "/properties/spec/properties/taints/items",
        "!format.qualifiedName().validate(self.key).hasValue()",
        "taint key must be a qualified name: at most 63 letters, digits, '-', '_' and '.', with an optional DNS prefix and '/'",
    ),
    (
        "/properties/spec/properties/taints/items",
        "!has(self.value) || !format.labelValue().validate(self.value).hasValue()",
        "taint value must be a label value: at most 63 letters, digits, '-', '_' and '.'",
    ),
    (
        TAINTS,
        "self.all(x, self.exists_one(y, x == y))",
        "taints must not be the same twice",
    ),
];

/// Adds the rules of a kind to its schema.
pub fn add(kind: &str, schema: &mut Value) {
    let rows: &[Row] = match kind {
        "ClusterResourcePlacement" | "ResourcePlacement" => {
            limit_placement(schema);
            &PLACEMENT
        }
        "MemberCluster" => {
            limit(schema, TAINT, "key", json!({"maxLength": QUALIFIED}));
            limit(schema, TAINT, "value", json!({"maxLength": 63}));
            &MEMBER_CLUSTER
        }
        _ => return,
    };
    for (path, rule, message) in rows {
        push(schema, path, rule, message);
    }
}

/// What the schema itself can say, and lengths without which the API server takes the rules for too dear.
fn limit_placement(schema: &mut Value) {
    extend(
        schema,
        &format!("{CLUSTER_NAMES}/items"),
        json!({"maxLength": 63}),
    );
    limit(schema, TOLERATION, "key", json!({"maxLength": QUALIFIED}));
    limit(schema, TOLERATION, "value", json!({"maxLength": 63}));
    // 3, 12, 13
    for terms in [
        "/properties/spec/properties/resourceSelectors/items".to_owned(),
        format!("{REQUIRED}/items"),
        PREFERRED.to_owned(),
    ] {
        let expression = format!("{terms}{LABELS}");
        limit(
            schema,
            &expression,
            "operator",
            json!({"enum": LABEL_OPERATORS}),
        );
    }
    // 15
    let expression = format!("{REQUIRED}{EXPRESSION}");
    let operators = ["Eq", "Ge", "Gt", "Le", "Lt", "Ne"];
    limit(schema, &expression, "operator", json!({"enum": operators}));
    limit(schema, &expression, "values", json!({"minItems": 1}));
    let values = format!("{expression}/properties/values/items");
    extend(schema, &values, json!({"pattern": QUANTITY}));
}

fn limit(schema: &mut Value, object: &str, field: &str, words: Value) {
    extend(schema, &format!("{object}/properties/{field}"), words);
}

fn extend(schema: &mut Value, path: &str, words: Value) {
    if let (Some(Value::Object(node)), Value::Object(words)) = (schema.pointer_mut(path), words) {
        node.extend(words);
    }
}
