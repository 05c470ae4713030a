//! Snapshots and bindings that somebody writes by hand in a namespace of his own.

use windlass_tests::{Fleet, eventually};

/// Who may write snapshots and bindings in his namespace has them carry what is not his: another namespace's
/// objects, cluster-scoped ones, and rights (I10).
pub fn snapshots_carry_nothing_outside(fleet: &Fleet) {
    let as_tenant = |manifest: &serde_json::Value| {
        let manifest = manifest.to_string();
        fleet
            .try_kubectl("hub", "create -f - --as=tenant", Some(&manifest))
            .unwrap();
    };
    as_tenant(&serde_json::json!({
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1", "kind": "ResourcePlacement",
        "metadata": { "name": "trap", "namespace": "shop" },
        "spec": { "strategy": { "type": "External" }, "resourceSelectors":
            [{ "group": "", "version": "v1", "kind": "ConfigMap", "name": "settings" }] },
    }));
    let label = "resourcebindings -n shop -l kubernetes-fleet.io/parent-CRP=trap";
    let name = || fleet.get("hub", label, "{.items[0].metadata.name}");
    eventually("there is a binding", || !name().is_empty());
    let binding = name();
    let rights = serde_json::json!({ "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "cluster-admin" }, "subjects": [{ "kind": "User", "name": "tenant",
        "apiGroup": "rbac.authorization.k8s.io" }] });
    let rbac = "rbac.authorization.k8s.io/v1";
    let rows = [
        (
            "v1",
            "ConfigMap",
            "kube-system",
            "its own namespace, shop, only",
        ),
        ("v1", "ConfigMap", "", "its own namespace, shop, only"),
        ("v1", "Namespace", "", "its own namespace, shop, only"),
        ("v1", "Namespace", "shop", "its own namespace, shop, only"),
        (
            rbac,
            "ClusterRoleBinding",
            "",
            "its own namespace, shop, only",
        ),
        (
            rbac,
            "ClusterRoleBinding",
            "shop",
            "its own namespace, shop, only",
        ),
        (
            rbac,
            "RoleBinding",
            "shop",
            "unless an administrator allows it",
        ),
        (
            "scheduling.k8s.io/v1",
            "PriorityClass",
            "shop",
            "its own namespace, shop, only",
        ),
        (
            "placement.kubernetes-fleet.io/v1beta1",
            "AppliedWork",
            "shop",
            "is cluster-scoped",
        ),
    ];
    for (index, (version, kind, namespace, words)) in (100..).step_by(10).zip(rows) {
        let mut object = serde_json::json!({ "apiVersion": version, "kind": kind, "value": 1,
            "metadata": { "name": "planted" } });
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = namespace.into();
        }
        if let (Some(object), Some(rights)) = (object.as_object_mut(), rights.as_object()) {
            object.extend(rights.clone());
        }
        let snapshot = format!("trap-{index}-snapshot");
        as_tenant(&serde_json::json!({
            "apiVersion": "placement.kubernetes-fleet.io/v1beta1", "kind": "ResourceSnapshot",
            "metadata": { "name": snapshot, "namespace": "shop",
                "labels": { "kubernetes-fleet.io/parent-CRP": "trap",
                    "kubernetes-fleet.io/resource-index": index.to_string() },
                "annotations": { "kubernetes-fleet.io/resource-hash": "planted",
                    "kubernetes-fleet.io/number-of-resource-snapshots": "1" } },
            "spec": { "selectedResources": [object] },
        }));
        let patch = format!(
            "patch resourcebindings {binding} -n shop --as=tenant --type=merge -p \
             {{\"spec\":{{\"resourceSnapshotName\":\"{snapshot}\",\"state\":\"Bound\"}}}}"
        );
        fleet.kubectl("hub", &patch);
        let what = format!("{version} {kind} in {namespace:?}");
        eventually(&what, || {
            let said = fleet.get(
                "hub",
                &format!("resourcebindings {binding} -n shop"),
                "{.status}",
            );
            said.contains(&snapshot) && said.contains(words)
        });
    }
    let kinds = "cm,clusterrolebindings,rolebindings,priorityclasses -A --field-selector=metadata.name=planted";
    assert_eq!(
        fleet.get("member-1", kinds, "{.items[*].metadata.name}"),
        ""
    );
    assert_eq!(fleet.get("member-1", "ns planted", "{.metadata.name}"), "");
    fleet.kubectl("hub", "delete rp trap -n shop --timeout=60s");
}

/// With guard rails, nobody but the hub writes them.
pub fn is_refused_by_guard_rails(fleet: &Fleet) {
    let object = |kind: &str, rest: &str| {
        format!(
            "{{apiVersion: placement.kubernetes-fleet.io/v1beta1, kind: {kind}, metadata: {{name: planted, \
             namespace: shop}}, {rest}}}"
        )
    };
    let binding = "spec: {state: Bound, resourceSnapshotName: x, schedulingPolicySnapshotName: x, \
                   targetCluster: member-1, clusterDecision: {clusterName: member-1, selected: true, reason: ''}}";
    for manifest in [
        object("ResourceSnapshot", "spec: {selectedResources: []}"),
        object("SchedulingPolicySnapshot", "spec: {policyHash: eA==}"),
        object("ResourceBinding", binding),
        object(
            "ClusterResourcePlacementStatus",
            "sourceStatus: {}, lastUpdatedTime: '2026-01-01T00:00:00Z'",
        ),
    ] {
        let answer = fleet.try_kubectl("hub", "create -f - --as=tenant", Some(&manifest));
        let error = answer.err().unwrap_or_default();
        assert!(error.contains("only the hub does"), "{manifest}: {error}");
    }
}
