//! What the kinds are called, and what `kubectl get` shows of them.

use super::{crds, schema, twin_of};

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
            "ClusterResourcePlacementEviction",
            "placement",
            "clusterresourceplacementevictions",
            Some("crpe"),
            ["fleet", "fleet-placement"],
        ),
        (
            "ClusterResourcePlacementDisruptionBudget",
            "placement",
            "clusterresourceplacementdisruptionbudgets",
            Some("crpdb"),
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
        (
            "ClusterStagedUpdateRun",
            "placement",
            "clusterstagedupdateruns",
            Some("csur"),
            ["fleet", "fleet-placement"],
        ),
        (
            "StagedUpdateRun",
            "placement",
            "stagedupdateruns",
            Some("sur"),
            ["fleet", "fleet-placement"],
        ),
        (
            "ClusterStagedUpdateStrategy",
            "placement",
            "clusterstagedupdatestrategies",
            Some("csus"),
            ["fleet", "fleet-placement"],
        ),
        (
            "StagedUpdateStrategy",
            "placement",
            "stagedupdatestrategies",
            Some("sus"),
            ["fleet", "fleet-placement"],
        ),
        (
            "ClusterApprovalRequest",
            "placement",
            "clusterapprovalrequests",
            Some("careq"),
            ["fleet", "fleet-placement"],
        ),
        (
            "ApprovalRequest",
            "placement",
            "approvalrequests",
            Some("areq"),
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
    assert_eq!(crds.len(), 27);
}

/// Kinds that live in a namespace (API §1.1).
const NAMESPACED: [&str; 10] = [
    "ClusterResourcePlacementStatus",
    "InternalMemberCluster",
    "Work",
    "ResourcePlacement",
    "SchedulingPolicySnapshot",
    "ResourceSnapshot",
    "ResourceBinding",
    "StagedUpdateRun",
    "StagedUpdateStrategy",
    "ApprovalRequest",
];

/// Kinds of a namespace that have a schema of their own.
const NAMESPACED_OVERRIDES: [&str; 3] = [
    "ResourceOverride",
    "ResourceOverrideSnapshot",
    "ResourceEnvelope",
];

/// API §1.3: name, type, priority, path. `C(x)` and `G(x)` as there.
const COLUMNS: [(&str, &[(&str, &str, i64, &str)]); 20] = [
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
    (
        "ClusterResourcePlacementEviction",
        &[
            ("Valid", "string", 0, "C(Valid)"),
            ("Executed", "string", 0, "C(Executed)"),
        ],
    ),
    ("ClusterResourcePlacementDisruptionBudget", &[]),
    ("ClusterResourceEnvelope", &[]),
    ("ResourceEnvelope", &[]),
    (
        "ClusterStagedUpdateRun",
        &[
            ("Placement", "string", 0, ".spec.placementName"),
            (
                "Resource-Snapshot-Index",
                "string",
                0,
                ".spec.resourceSnapshotIndex",
            ),
            (
                "Policy-Snapshot-Index",
                "string",
                0,
                ".status.policySnapshotIndexUsed",
            ),
            ("Initialized", "string", 0, "C(Initialized)"),
            ("Progressing", "string", 0, "C(Progressing)"),
            ("Succeeded", "string", 0, "C(Succeeded)"),
            ("Age", "date", 0, ".metadata.creationTimestamp"),
            ("Strategy", "string", 1, ".spec.stagedRolloutStrategyName"),
        ],
    ),
    ("ClusterStagedUpdateStrategy", &[]),
    (
        "ClusterApprovalRequest",
        &[
            ("Update-Run", "string", 0, ".spec.parentStageRollout"),
            ("Stage", "string", 0, ".spec.targetStage"),
            ("Approved", "string", 0, "C(Approved)"),
            ("Age", "date", 0, ".metadata.creationTimestamp"),
        ],
    ),
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
