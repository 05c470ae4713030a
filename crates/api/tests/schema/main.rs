//! The CRDs against the reference of the API, field by field (`schema.txt`), and against themselves.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::type_complexity,
    reason = "a test that can't go on fails; a table says what it is by its rows"
)]

mod names;
mod reader;

use std::collections::BTreeMap;

use serde_json::Value;
use windlass_api::addon;
use windlass_api::conditions::{RunCondition, RunReason};
use windlass_api::crd::all_crds;

use self::reader::{Rows, expand, tables, walk};

/// Those of the reference.
fn crds() -> BTreeMap<String, Value> {
    by_kind(false)
}

/// Those that are ours alone, or the others.
fn by_kind(ours: bool) -> BTreeMap<String, Value> {
    let crds = all_crds().unwrap();
    crds.into_iter()
        .filter(|crd| (crd["spec"]["group"] == addon::GROUP) == ours)
        .map(|crd| {
            (
                crd["spec"]["names"]["kind"].as_str().unwrap().to_owned(),
                crd,
            )
        })
        .collect()
}

/// The kind that has the same schema (API §3.3, §3.5 to §3.7).
fn twin_of(kind: &str) -> &str {
    match kind {
        "ResourcePlacement" => "ClusterResourcePlacement",
        "SchedulingPolicySnapshot" => "ClusterSchedulingPolicySnapshot",
        "ResourceSnapshot" => "ClusterResourceSnapshot",
        "ResourceBinding" => "ClusterResourceBinding",
        "StagedUpdateRun" => "ClusterStagedUpdateRun",
        "StagedUpdateStrategy" => "ClusterStagedUpdateStrategy",
        "ApprovalRequest" => "ClusterApprovalRequest",
        other => other,
    }
}

/// Kinds that the API has in v1beta1 only (API §1.1).
const ONE_VERSION: [&str; 3] = [
    "SchedulingPolicySnapshot",
    "ResourceSnapshot",
    "ResourceBinding",
];

/// Kinds without the subresource (API §1.1).
const WITHOUT_STATUS: [&str; 3] = [
    "ClusterResourcePlacementStatus",
    "ClusterResourcePlacementDisruptionBudget",
    "StagedUpdateStrategy",
];

fn schema(crd: &Value) -> &Value {
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let storage = versions.iter().find(|version| version["name"] == "v1beta1");
    &storage.unwrap()["schema"]["openAPIV3Schema"]
}

/// What our schema asks for beyond the reference's.
fn checks<'a>(sections: &'a BTreeMap<String, Rows>, kind: &str) -> Option<&'a Rows> {
    let section = match kind {
        "ClusterResourcePlacement" | "ResourcePlacement" => "PlacementChecks",
        "MemberCluster" => "MemberClusterChecks",
        _ => return None,
    };
    sections.get(section)
}

#[test]
fn every_field_is_as_the_reference_says_and_there_is_no_other() {
    let sections = tables();
    for (kind, crd) in crds() {
        let mut expected = Rows::new();
        expand(&sections, twin_of(&kind), "", &mut expected);
        for (path, words) in checks(&sections, &kind).into_iter().flatten() {
            expected.get_mut(path).unwrap().extend(words.clone());
        }
        let mut root = schema(&crd).clone();
        let properties = root["properties"].as_object_mut().unwrap();
        for name in ["apiVersion", "kind", "metadata"] {
            assert!(properties.remove(name).is_some(), "{kind}: {name}");
        }
        let mut actual = Rows::new();
        walk(&root, "", &mut actual);
        for (path, words) in &expected {
            assert_eq!(actual.get(path), Some(words), "{kind}: {path}");
        }
        let extra: Vec<_> = actual
            .keys()
            .filter(|path| !expected.contains_key(*path))
            .collect();
        assert!(extra.is_empty(), "{kind}: not in the reference: {extra:?}");
    }
}

#[test]
fn every_extension_is_documented_and_optional() {
    let document = include_str!("../../../../docs/extensions.md");
    let mut count = 0;
    for (section, rows) in tables() {
        for (path, words) in rows.iter().filter(|(_, words)| words.contains("extension")) {
            assert!(!words.contains("required"), "{section}: {path}");
            assert!(
                !words.iter().any(|word| word.starts_with("default=")),
                "{section}: {path}"
            );
            assert!(
                document.contains(&format!("| {section} | `{path}` |")),
                "docs/extensions.md lacks {section} {path}"
            );
            count += 1;
        }
    }
    let fields = document
        .split("\n## ")
        .find(|part| part.starts_with("Fields"));
    let rows = fields
        .unwrap()
        .lines()
        .filter(|line| line.starts_with("| "));
    assert_eq!(
        count,
        // Without the heading.
        rows.count() - 1,
        "docs/extensions.md lists fields that do not exist"
    );
    for word in [
        windlass_api::conditions::placement_deleting(windlass_api::scoped::Scope::Cluster),
        windlass_api::conditions::placement_deleting(windlass_api::scoped::Scope::Namespaced),
        windlass_api::conditions::placement_reported_back(windlass_api::scoped::Scope::Cluster),
        windlass_api::conditions::placement_reported_back(windlass_api::scoped::Scope::Namespaced),
        windlass_api::conditions::STATUS_REPORTED_BACK,
        windlass_api::labels::DELETE_STRATEGY,
        windlass_api::labels::DELIVERY,
        windlass_api::labels::PURGE,
        windlass_api::labels::FORCE_LEAVE,
        windlass_api::labels::RIGHTS_ASKED_BACK,
        windlass_api::labels::MIGRATE_TO,
        windlass_api::labels::WRITTEN,
        windlass_api::labels::ALLOW_CASCADE,
        windlass_api::labels::PLACED,
        windlass_api::labels::CREDENTIALS_CLUSTER,
        windlass_api::labels::MOVED_BY_RUN,
        RunCondition::Skipped.as_str(),
        RunCondition::Superseded.as_str(),
        RunCondition::RolledBack.as_str(),
        RunReason::UpdateRunInitializing.as_str(),
        "CredentialsValid",
        "windlass.dev/token-issued",
        "windlass.dev/token-expires",
    ] {
        assert!(
            document.contains(&format!("`{word}`")),
            "docs/extensions.md lacks {word}"
        );
    }
}

/// API §1.1, §1.2.
fn served(kind: &str) -> &'static [&'static str] {
    match kind {
        _ if kind.contains("Override")
            || kind.starts_with("ClusterStaged")
            || kind == "ClusterApprovalRequest" =>
        {
            &["v1", "v1alpha1", "v1beta1"]
        }
        "ClusterResourcePlacementEviction" | "ClusterResourcePlacementDisruptionBudget" => {
            &["v1alpha1", "v1beta1"]
        }
        _ if kind.contains("Envelope") || ONE_VERSION.contains(&kind) => &["v1beta1"],
        _ => &["v1", "v1beta1"],
    }
}

#[test]
fn our_own_kinds_are_cluster_scoped_in_one_version_and_without_a_name_in_vain() {
    let all = by_kind(true);
    let kinds: Vec<&str> = all.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["Addon", "AddonChart", "AddonRepository"]);
    for (kind, crd) in &all {
        let spec = &crd["spec"];
        assert_eq!(spec["scope"], "Cluster", "{kind}");
        let [version] = spec["versions"].as_array().unwrap().as_slice() else {
            panic!("{kind} has one version");
        };
        assert_eq!(version["name"], addon::VERSION, "{kind}");
        assert_eq!(version["served"], true, "{kind}");
        assert_eq!(version["storage"], true, "{kind}");
        let written_by_people = kind != "AddonChart";
        assert_eq!(
            version.pointer("/subresources/status").is_some(),
            written_by_people,
            "{kind}"
        );
        // Before the hub has looked at it, kstatus must not take it for done.
        let unobserved = version.pointer("/schema/openAPIV3Schema/properties/status/default");
        let expected = serde_json::json!({"observedGeneration": -1});
        assert_eq!(unobserved, written_by_people.then_some(&expected), "{kind}");
        let about = version
            .pointer("/schema/openAPIV3Schema/description")
            .unwrap();
        assert!(
            about.as_str().unwrap().starts_with(kind.as_str()),
            "{kind}: {about}"
        );
    }
}

/// Name, path in the object, and whether only `-o wide` shows it.
#[test]
fn a_repository_shows_what_people_look_for() {
    let all = by_kind(true);
    let columns = all["AddonRepository"].pointer("/spec/versions/0/additionalPrinterColumns");
    let columns: Vec<(&str, bool)> = columns
        .and_then(Value::as_array)
        .unwrap()
        .iter()
        .map(|column| (column["name"].as_str().unwrap(), column["priority"] == 1))
        .collect();
    assert_eq!(
        columns,
        [
            ("Ready", false),
            ("Synced", false),
            ("Charts", false),
            ("Last Sync", false),
            ("Age", false),
            ("Next Sync", true),
            ("Message", true),
        ]
    );
}

#[test]
fn both_versions_are_served_with_one_schema() {
    for (kind, crd) in crds() {
        let versions = crd["spec"]["versions"].as_array().unwrap();
        let names: Vec<&str> = versions
            .iter()
            .map(|version| version["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, served(&kind), "{kind}");
        let stored: Vec<&str> = versions
            .iter()
            .filter(|version| version["storage"] == true)
            .map(|version| version["name"].as_str().unwrap())
            .collect();
        assert_eq!(stored, ["v1beta1"], "{kind}");
        for version in versions {
            assert_eq!(version["served"], true, "{kind}");
            let without_status = WITHOUT_STATUS.contains(&kind.as_str())
                || kind.contains("Override")
                || kind.contains("Envelope");
            assert_eq!(
                version.pointer("/subresources/status").is_some(),
                !without_status,
                "{kind}"
            );
            for part in ["schema", "additionalPrinterColumns"] {
                assert_eq!(version.get(part), versions[0].get(part), "{kind}: {part}");
            }
        }
    }
}

/// How many CEL rules stand where, for a kind of placement.
fn placement_rules(kind: &str, of_spec: usize) -> BTreeMap<String, usize> {
    let of = |path: &str| format!("{kind}.spec{path}");
    let affinity = ".policy.affinity.clusterAffinity";
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    [
        (kind.to_owned(), 1),            // §6.3 rule 1
        (of(""), of_spec),               // P1 to P6, P14 without a strategy, rule 22
        (of(".resourceSelectors"), 1),   // P7
        (of(".policy"), 9),              // P8; P9, P10, P11 in two each; rules 10, 23
        (of(".policy.clusterNames"), 2), // rule 8
        (
            of(&format!("{affinity}.{required}.clusterSelectorTerms")),
            1,
        ), // rule 12
        (of(&format!("{affinity}.{preferred}[].preference")), 1), // rule 13
        (of(".policy.tolerations"), 2),  // rules 18, 23
        (of(".policy.tolerations[]"), 4), // P12, P13, rule 18
        (of(".strategy"), 1),            // rule 19
        (of(".strategy.rollingUpdate"), 2), // rule 19
        (of(".strategy.applyStrategy"), 1), // rule 20
        (of(".strategy.type"), 1),       // P14
        (of(".strategy.reportBackStrategy"), 1), // P15
    ]
    .into()
}

/// How many CEL rules stand where, for the kinds of update runs.
fn run_rules() -> BTreeMap<String, usize> {
    let mut rules = BTreeMap::new();
    for prefix in ["Cluster", ""] {
        for (path, number) in [
            ("StagedUpdateRun", 1),                                       // N1
            ("StagedUpdateRun.spec", 4),                                  // U1 to U3, U5
            ("StagedUpdateRun.spec.placementName", 1),                    // U4
            ("StagedUpdateRun.spec.stagedRolloutStrategyName", 1),        // U6
            ("StagedUpdateRun.spec.failureThreshold.maxFailures", 1),     // ours
            ("StagedUpdateStrategy.spec.stages", 1),                      // ours: names differ
            ("StagedUpdateStrategy.spec.stages[].beforeStageTasks[]", 2), // S1, S3
            ("StagedUpdateStrategy.spec.stages[].afterStageTasks[]", 2),  // S1, S2
            ("StagedUpdateStrategy.spec.stages[].maxConcurrency", 1),     // S4
            (
                "StagedUpdateStrategy.spec.stages[].failureThreshold.maxFailures",
                1,
            ), // ours
            ("ApprovalRequest.spec", 1),                                  // A1
        ] {
            rules.insert(format!("{prefix}{path}"), number);
        }
    }
    rules
}

/// How many CEL rules stand where (API §2.12).
#[test]
fn rules_stand_where_the_reference_says_and_name_the_field() {
    let crds = crds();
    let mut found = BTreeMap::new();
    for (kind, crd) in &crds {
        collect_rules(schema(crd), kind, &mut found);
    }
    let mut expected: BTreeMap<String, usize> = [
        ("MemberCluster".to_owned(), 1),               // N1
        ("MemberCluster.spec.taints".to_owned(), 1),   // §6.4
        ("MemberCluster.spec.taints[]".to_owned(), 2), // §6.4
        (
            "ClusterSchedulingPolicySnapshot.spec.policy.tolerations[]".to_owned(),
            2,
        ),
        ("Work.spec.reportBackStrategy".to_owned(), 1), // the same type
        (
            "SchedulingPolicySnapshot.spec.policy.tolerations[]".to_owned(),
            2,
        ),
        ("ClusterResourceOverride".to_owned(), 2), // O1, §6.4
        ("ResourceOverride".to_owned(), 1),        // §6.4
        ("ClusterResourceEnvelope".to_owned(), 1), // a label's value
        ("ResourceEnvelope".to_owned(), 1),        // a label's value
        ("ClusterResourceOverride.spec".to_owned(), 1), // O2
        ("ResourceOverride.spec".to_owned(), 1),   // O2
        (
            "ClusterResourceOverrideSnapshot.spec.overrideSpec".to_owned(),
            1,
        ), // O2
        ("ResourceOverrideSnapshot.spec.overrideSpec".to_owned(), 1), // O2
        ("ClusterResourceOverrideSnapshot.spec".to_owned(), 1), // ours: immutable
        ("ResourceOverrideSnapshot.spec".to_owned(), 1), // ours: immutable
        (
            "ClusterResourceOverride.spec.clusterResourceSelectors[]".to_owned(),
            1,
        ),
        ("ResourceOverride.spec.resourceSelectors[]".to_owned(), 1),
    ]
    .into();
    for (path, number) in [
        ("Eviction.spec.clusterName", 1),            // E1
        ("Eviction.spec.placementName", 1),          // E2
        ("DisruptionBudget.spec", 1),                // D1
        ("DisruptionBudget.spec.maxUnavailable", 1), // D2
        ("DisruptionBudget.spec.minAvailable", 1),   // D2
    ] {
        expected.insert(format!("ClusterResourcePlacement{path}"), number);
    }
    expected.extend(placement_rules("ClusterResourcePlacement", 8));
    expected.extend(run_rules());
    // Without P2 and P3.
    expected.extend(placement_rules("ResourcePlacement", 6));
    // §6.4
    let rules = "spec.policy.overrideRules[]";
    for kind in ["ClusterResourceOverride", "ResourceOverride"] {
        for (at, number) in [
            ("", 1),
            (".clusterSelector.clusterSelectorTerms[]", 1),
            (".jsonPatchOverrides[]", 3),
        ] {
            expected.insert(format!("{kind}.{rules}{at}"), number);
        }
    }
    let counts: BTreeMap<String, usize> = found
        .iter()
        .map(|(path, rules)| (path.clone(), rules.len()))
        .collect();
    assert_eq!(counts, expected);
    for (path, rules) in &found {
        for message in rules {
            let names = [
                "policy",
                "placement",
                "overrideRules",
                "clusterSelectorTerms",
                "clusterResourceSelectors",
                "path of a JSON patch",
                "statusReportingScope",
                "resourceSelector",
                "name",
                "placementType",
                "strategy cannot",
                "toleration",
                "strategy type",
                "reportBackStrategy",
                "destination",
                "clusterNames",
                "preferred",
                "property",
                "rollingUpdate",
                "max",
                "minAvailable",
                "clusterName",
                "serverSideApplyConfig",
                "taint",
                "snapshot is immutable",
                "state cannot",
                "resourceSnapshotIndex",
                "stagedRolloutStrategyName",
                "stages",
                "waitTime",
                "StageTasks",
                "approval request",
            ];
            assert!(
                names.iter().any(|name| message.contains(name)),
                "{path}: {message}"
            );
        }
    }
}

fn collect_rules(node: &Value, path: &str, found: &mut BTreeMap<String, Vec<String>>) {
    for rule in node["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        found
            .entry(path.to_owned())
            .or_default()
            .push(rule["message"].as_str().unwrap().to_owned());
    }
    for (name, child) in node["properties"].as_object().into_iter().flatten() {
        collect_rules(child, &format!("{path}.{name}"), found);
    }
    if let Some(items) = node.get("items") {
        collect_rules(items, &format!("{path}[]"), found);
    }
}
