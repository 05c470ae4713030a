//! The CRDs against the reference of the API, field by field (`schema.txt`), and against themselves.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::type_complexity,
    reason = "a test that can't go on fails; a table says what it is by its rows"
)]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use windlass_api::crd::all_crds;

/// Rows of a section: path and the sorted rest.
type Rows = BTreeMap<String, BTreeSet<String>>;

fn tables() -> BTreeMap<String, Rows> {
    let mut sections: BTreeMap<String, Rows> = BTreeMap::new();
    let mut current = String::new();
    for line in include_str!("schema.txt").lines() {
        if line.starts_with('#') || line.is_empty() {
        } else if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            current = name.to_owned();
        } else {
            let (path, rest) = line.split_once(' ').unwrap();
            let rest = rest.split(' ').map(str::to_owned).collect();
            let before = sections
                .entry(current.clone())
                .or_default()
                .insert(path.to_owned(), rest);
            assert_eq!(before, None, "{current}: {path} is there twice");
        }
    }
    sections
}

/// The rows of a section and of what it refers to, below `prefix`.
fn expand(sections: &BTreeMap<String, Rows>, section: &str, prefix: &str, rows: &mut Rows) {
    for (path, words) in &sections[section] {
        let path = format!("{prefix}{path}");
        let mut words = words.clone();
        let types: Vec<String> = words
            .iter()
            .filter_map(|word| word.strip_prefix("of=").map(str::to_owned))
            .collect();
        words.retain(|word| !word.starts_with("of=") && word != "extension");
        for name in types.iter().flat_map(|names| names.split(',')) {
            let inside = if words.contains("list-object") {
                "[]."
            } else {
                "."
            };
            expand(sections, name, &format!("{path}{inside}"), rows);
        }
        rows.insert(path, words);
    }
}

/// What a schema says, in the words of `schema.txt`.
fn describe(node: &Value, words: &mut BTreeSet<String>) -> String {
    let name = match node["type"].as_str() {
        None if node["x-kubernetes-int-or-string"] == true => {
            let any_of = serde_json::json!([{ "type": "integer" }, { "type": "string" }]);
            assert_eq!(node["anyOf"], any_of);
            "int-or-string".to_owned()
        }
        Some("array") => format!("list-{}", describe(&node["items"], words)),
        Some("object") if node.get("additionalProperties").is_some() => {
            format!("map-{}", describe(&node["additionalProperties"], words))
        }
        Some(name) => name.to_owned(),
        None if node["x-kubernetes-preserve-unknown-fields"] == true => "any".to_owned(),
        None => panic!("no type: {node}"),
    };
    let text = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    for (key, short) in [
        ("default", "default"),
        ("minimum", "min"),
        ("maximum", "max"),
        ("minItems", "minItems"),
        ("maxItems", "maxItems"),
        ("minProperties", "minProperties"),
        ("maxProperties", "maxProperties"),
        ("minLength", "minLength"),
        ("maxLength", "maxLength"),
        ("format", "format"),
        ("pattern", "pattern"),
    ] {
        if let Some(value) = node.get(key) {
            words.insert(format!("{short}={}", text(value)));
        }
    }
    if let Some(values) = node["enum"].as_array() {
        let values: BTreeSet<String> = values.iter().map(text).collect();
        words.insert(format!(
            "enum={}",
            values.into_iter().collect::<Vec<_>>().join("|")
        ));
    }
    if node["x-kubernetes-list-type"] == "map" {
        assert_eq!(
            node["x-kubernetes-list-map-keys"],
            serde_json::json!(["type"])
        );
        words.insert("list-map".to_owned());
    }
    for (key, value, word) in [
        ("x-kubernetes-list-type", Value::from("atomic"), "atomic"),
        ("x-kubernetes-map-type", Value::from("atomic"), "atomic"),
        (
            "x-kubernetes-preserve-unknown-fields",
            Value::from(true),
            "any-content",
        ),
        (
            "x-kubernetes-embedded-resource",
            Value::from(true),
            "embedded",
        ),
    ] {
        if node.get(key) == Some(&value) {
            words.insert(word.to_owned());
        }
    }
    name
}

fn walk(node: &Value, prefix: &str, rows: &mut Rows) {
    for key in ["nullable", "title", "$ref", "oneOf", "allOf"] {
        assert!(node.get(key).is_none(), "{prefix} has {key}");
    }
    let required: Vec<&str> = node["required"]
        .as_array()
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    for (name, child) in node["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        assert!(child["description"].is_string(), "{path} is not described");
        let mut words = BTreeSet::new();
        let kind = describe(child, &mut words);
        words.insert(kind);
        if required.contains(&name.as_str()) {
            words.insert("required".to_owned());
        }
        rows.insert(path.clone(), words);
        walk(child, &format!("{path}."), rows);
        walk(&child["items"], &format!("{path}[]."), rows);
        walk(
            &child["additionalProperties"],
            &format!("{path}{{}}."),
            rows,
        );
    }
}

fn crds() -> BTreeMap<String, Value> {
    let crds = all_crds().unwrap();
    crds.into_iter()
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
const WITHOUT_STATUS: [&str; 1] = ["ClusterResourcePlacementStatus"];

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
    let document = include_str!("../../../docs/extensions.md");
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
    assert_eq!(
        count,
        document.matches("| `status.").count(),
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
        _ if kind.contains("Override") => &["v1", "v1alpha1", "v1beta1"],
        _ if kind.contains("Envelope") || ONE_VERSION.contains(&kind) => &["v1beta1"],
        _ => &["v1", "v1beta1"],
    }
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

/// API §1.1.
#[test]
fn names() {
    let crds = crds();
    for (kind, group, plural, short, categories) in [
        (
            "MemberCluster",
            "cluster",
            "memberclusters",
            Some("cluster"),
            ["fleet", "fleet-cluster"],
        ),
        (
            "ClusterResourcePlacement",
            "placement",
            "clusterresourceplacements",
            Some("crp"),
            ["fleet", "fleet-placement"],
        ),
        (
            "ClusterSchedulingPolicySnapshot",
            "placement",
            "clusterschedulingpolicysnapshots",
            Some("csps"),
            ["fleet", "fleet-placement"],
        ),
        (
            "ClusterResourceSnapshot",
            "placement",
            "clusterresourcesnapshots",
            Some("crs"),
            ["fleet", "fleet-placement"],
        ),
        (
            "ClusterResourceBinding",
            "placement",
            "clusterresourcebindings",
            Some("crb"),
            ["fleet", "fleet-placement"],
        ),
        (
            "InternalMemberCluster",
            "cluster",
            "internalmemberclusters",
            Some("imc"),
            ["fleet", "fleet-cluster"],
        ),
        (
            "Work",
            "placement",
            "works",
            None,
            ["fleet", "fleet-placement"],
        ),
        (
            "AppliedWork",
            "placement",
            "appliedworks",
            None,
            ["fleet", "fleet-placement"],
        ),
        (
            "ResourcePlacement",
            "placement",
            "resourceplacements",
            Some("rp"),
            ["fleet", "fleet-placement"],
        ),
        (
            "ClusterResourcePlacementStatus",
            "placement",
            "clusterresourceplacementstatuses",
            Some("crps"),
            ["fleet", "fleet-placement"],
        ),
        (
            "SchedulingPolicySnapshot",
            "placement",
            "schedulingpolicysnapshots",
            Some("sps"),
            ["fleet", "fleet-placement"],
        ),
        (
            "ResourceSnapshot",
            "placement",
            "resourcesnapshots",
            Some("rs"),
            ["fleet", "fleet-placement"],
        ),
        (
            "ResourceBinding",
            "placement",
            "resourcebindings",
            Some("rb"),
            ["fleet", "fleet-placement"],
        ),
        (
            "ClusterResourceOverride",
            "placement",
            "clusterresourceoverrides",
            None,
            ["fleet", "fleet-placement"],
        ),
        (
            "ResourceOverride",
            "placement",
            "resourceoverrides",
            None,
            ["fleet", "fleet-placement"],
        ),
        (
            "ClusterResourceOverrideSnapshot",
            "placement",
            "clusterresourceoverridesnapshots",
            None,
            ["fleet", "fleet-placement"],
        ),
        (
            "ResourceOverrideSnapshot",
            "placement",
            "resourceoverridesnapshots",
            None,
            ["fleet", "fleet-placement"],
        ),
        (
            "ClusterResourceEnvelope",
            "placement",
            "clusterresourceenvelopes",
            None,
            ["fleet", "fleet-placement"],
        ),
        (
            "ResourceEnvelope",
            "placement",
            "resourceenvelopes",
            None,
            ["fleet", "fleet-placement"],
        ),
    ] {
        let spec = &crds[kind]["spec"];
        assert_eq!(
            spec["group"],
            format!("{group}.kubernetes-fleet.io"),
            "{kind}"
        );
        let scope = if NAMESPACED.contains(&kind) || NAMESPACED_OVERRIDES.contains(&kind) {
            "Namespaced"
        } else {
            "Cluster"
        };
        assert_eq!(spec["scope"], scope, "{kind}");
        let name = format!("{plural}.{group}.kubernetes-fleet.io");
        assert_eq!(crds[kind]["metadata"]["name"], name);
        assert_eq!(spec["names"]["plural"], plural);
        assert_eq!(spec["names"]["singular"], kind.to_lowercase());
        assert_eq!(spec["names"]["listKind"], format!("{kind}List"));
        assert_eq!(
            spec["names"]["shortNames"]
                .as_array()
                .map(|names| names[0].as_str().unwrap()),
            short,
            "{kind}"
        );
        assert_eq!(
            spec["names"]["categories"],
            serde_json::json!(categories),
            "{kind}"
        );
        let about = schema(&crds[kind])["description"].as_str().unwrap();
        assert!(about.starts_with(kind), "{kind} is described as {about}");
    }
    assert_eq!(crds.len(), 19);
}

/// Kinds that live in a namespace (API §1.1).
const NAMESPACED: [&str; 7] = [
    "ClusterResourcePlacementStatus",
    "InternalMemberCluster",
    "Work",
    "ResourcePlacement",
    "SchedulingPolicySnapshot",
    "ResourceSnapshot",
    "ResourceBinding",
];

/// Kinds of a namespace that have a schema of their own.
const NAMESPACED_OVERRIDES: [&str; 3] = [
    "ResourceOverride",
    "ResourceOverrideSnapshot",
    "ResourceEnvelope",
];

/// API §1.3: name, type, priority, path. `C(x)` and `G(x)` as there.
const COLUMNS: [(&str, &[(&str, &str, i64, &str)]); 15] = [
    (
        "ClusterResourcePlacementStatus",
        &[
            (
                "Resource-Index",
                "string",
                0,
                ".sourceStatus.observedResourceIndex",
            ),
            ("Last-Updated", "string", 0, ".lastUpdatedTime"),
            ("Age", "date", 0, ".metadata.creationTimestamp"),
        ],
    ),
    (
        "MemberCluster",
        &[
            ("Joined", "string", 0, "C(Joined)"),
            ("Age", "date", 0, ".metadata.creationTimestamp"),
            (
                "Member-Agent-Last-Seen",
                "date",
                0,
                r#".status.agentStatus[?(@.type=="MemberAgent")].lastReceivedHeartbeat"#,
            ),
            (
                "Node-Count",
                "string",
                0,
                r".status.properties.kubernetes-fleet\.io/node-count.value",
            ),
            (
                "Available-CPU",
                "string",
                0,
                ".status.resourceUsage.available.cpu",
            ),
            (
                "Available-Memory",
                "string",
                0,
                ".status.resourceUsage.available.memory",
            ),
            (
                "Allocatable-CPU",
                "string",
                1,
                ".status.resourceUsage.allocatable.cpu",
            ),
            (
                "Allocatable-Memory",
                "string",
                1,
                ".status.resourceUsage.allocatable.memory",
            ),
        ],
    ),
    (
        "ClusterResourcePlacement",
        &[
            ("Gen", "string", 0, ".metadata.generation"),
            ("Type", "string", 1, ".spec.policy.placementType"),
            (
                "Scheduled",
                "string",
                0,
                "C(ClusterResourcePlacementScheduled)",
            ),
            (
                "Scheduled-Gen",
                "string",
                0,
                "G(ClusterResourcePlacementScheduled)",
            ),
            (
                "Work-Synchronized",
                "string",
                1,
                "C(ClusterResourcePlacementWorkSynchronized)",
            ),
            (
                "Work-Synchronized-Gen",
                "string",
                1,
                "G(ClusterResourcePlacementWorkSynchronized)",
            ),
            (
                "Available",
                "string",
                0,
                "C(ClusterResourcePlacementAvailable)",
            ),
            (
                "Available-Gen",
                "string",
                0,
                "G(ClusterResourcePlacementAvailable)",
            ),
            ("Age", "date", 0, ".metadata.creationTimestamp"),
        ],
    ),
    ("ClusterSchedulingPolicySnapshot", SNAPSHOT_COLUMNS),
    ("ClusterResourceSnapshot", SNAPSHOT_COLUMNS),
    (
        "ClusterResourceBinding",
        &[
            ("WorkSynchronized", "string", 0, "C(WorkSynchronized)"),
            ("ResourcesApplied", "string", 0, "C(Applied)"),
            ("ResourceAvailable", "string", 1, "C(Available)"),
            ("Age", "date", 0, ".metadata.creationTimestamp"),
        ],
    ),
    (
        "InternalMemberCluster",
        &[("Age", "date", 0, ".metadata.creationTimestamp")],
    ),
    ("Work", &[]),
    ("AppliedWork", &[]),
    ("ClusterResourceOverride", &[]),
    ("ResourceOverride", &[]),
    ("ClusterResourceOverrideSnapshot", &[]),
    ("ResourceOverrideSnapshot", &[]),
    ("ClusterResourceEnvelope", &[]),
    ("ResourceEnvelope", &[]),
];

const SNAPSHOT_COLUMNS: &[(&str, &str, i64, &str)] = &[
    ("Gen", "string", 0, ".metadata.generation"),
    ("Age", "date", 0, ".metadata.creationTimestamp"),
];

#[test]
fn columns() {
    let crds = crds();
    let twins = NAMESPACED.into_iter().filter_map(|kind| {
        let twin = Some(twin_of(kind)).filter(|twin| *twin != kind)?;
        let of_twin = COLUMNS.iter().find(|(kind, _)| *kind == twin);
        Some((kind, of_twin.unwrap().1))
    });
    for (kind, expected) in COLUMNS.into_iter().chain(twins) {
        let none = Vec::new();
        let columns = crds[kind]["spec"]["versions"][0]["additionalPrinterColumns"]
            .as_array()
            .unwrap_or(&none);
        let actual: Vec<(&str, &str, i64, &str)> = columns
            .iter()
            .map(|column| {
                let word = |key: &str| column[key].as_str().unwrap();
                (
                    word("name"),
                    word("type"),
                    column["priority"].as_i64().unwrap_or(0),
                    word("jsonPath"),
                )
            })
            .collect();
        let written = |path: &str| {
            let inside = path.get(2..path.len() - 1).unwrap_or_default();
            let condition =
                |field: &str| format!(r#".status.conditions[?(@.type=="{inside}")].{field}"#);
            match path.get(..2) {
                Some("C(") => condition("status"),
                Some("G(") => condition("observedGeneration"),
                _ => path.to_owned(),
            }
        };
        assert_eq!(actual.len(), expected.len(), "{kind}");
        for (actual, expected) in actual.iter().zip(expected) {
            let path = written(expected.3);
            let path = if kind == "ResourcePlacement" {
                path.replace("ClusterResourcePlacement", kind)
            } else {
                path
            };
            assert_eq!(
                *actual,
                (expected.0, expected.1, expected.2, path.as_str()),
                "{kind}"
            );
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
    expected.extend(placement_rules("ClusterResourcePlacement", 8));
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
                "serverSideApplyConfig",
                "taint",
                "snapshot is immutable",
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
