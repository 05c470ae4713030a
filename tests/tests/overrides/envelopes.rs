//! What travels in envelopes, and what is wrong with it.

use windlass_tests::{Fleet, eventually};

use crate::{MEMBERS, data, is_available, namespace, on_cluster, on_config, patch, placement};

pub fn travel_and_take_no_effect_on_the_hub(fleet: &Fleet) {
    let envelopes = "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourceEnvelope
metadata: {name: guard}
data:
  webhook.yaml:
    apiVersion: admissionregistration.k8s.io/v1
    kind: ValidatingWebhookConfiguration
    metadata: {name: nothing-passes}
    webhooks:
    - name: guard.example.com
      admissionReviewVersions: [v1]
      sideEffects: None
      clientConfig: {url: 'https://127.0.0.1:1/guard'}
      rules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [things]}]
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourceEnvelope
metadata: {name: limits, namespace: wrapped}
data:
  quota:
    apiVersion: v1
    kind: ResourceQuota
    metadata: {name: small, namespace: wrapped, resourceVersion: '1', uid: abc}
    spec: {hard: {configmaps: '7'}}
    status: {hard: {configmaps: '7'}}
  config:
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: c, namespace: wrapped}
    data: {a: wrapped}
---
";
    fleet.apply("hub", &(namespace("wrapped") + envelopes));
    let rules = patch("add", "/data/a", "for prod");
    fleet.apply("hub", &on_config("wrapped", "o", &[("prod", &rules)]));
    let selector = ", {group: placement.kubernetes-fleet.io, version: v1beta1, kind: ClusterResourceEnvelope, name: guard}";
    fleet.apply("hub", &placement("wrapped", selector));
    eventually("what is inside arrives everywhere", || {
        MEMBERS.iter().all(|member| {
            let quota = fleet.get(
                member,
                "resourcequota small -n wrapped",
                "{.spec.hard.configmaps}",
            );
            let hook = fleet.get(
                member,
                "validatingwebhookconfiguration nothing-passes",
                "{.metadata.uid}",
            );
            quota == "7" && !hook.is_empty()
        }) && data(fleet, "member-1", "wrapped", "a") == "wrapped"
            && data(fleet, "member-2", "wrapped", "a") == "for prod"
            && is_available(fleet, "wrapped")
    });
    for what in [
        "resourcequota -n wrapped",
        "validatingwebhookconfiguration",
        "cm c -n wrapped",
    ] {
        let on_hub = fleet.get("hub", what, "{.items[*].metadata.name}{.metadata.name}");
        assert!(
            !on_hub.contains("small") && !on_hub.contains("nothing-passes") && on_hub != "c",
            "{what}: {on_hub}"
        );
    }
    let selected = fleet.get("hub", "crp wrapped", "{.status.selectedResources[*].kind}");
    assert_eq!(
        selected,
        "Namespace ClusterResourceEnvelope ResourceEnvelope"
    );
    let counted =
        "{.items[0].metadata.annotations.kubernetes-fleet\\.io/number-of-enveloped-object}";
    let of_placement = "clusterresourcesnapshots -l kubernetes-fleet.io/parent-CRP=wrapped";
    assert_eq!(fleet.get("hub", of_placement, counted), "2");
    eventually("neither envelope is placed itself", || {
        let api = fleet.try_kubectl("member-1", "get clusterresourceenvelope", None);
        api.is_err()
    });
}

pub fn bad_ones_are_told(fleet: &Fleet) {
    let before = fleet.get(
        "member-1",
        "resourcequota small -n wrapped",
        "{.metadata.uid}",
    );
    let broken = |namespace: &str, size: &str| {
        format!(
            "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourceEnvelope
metadata: {{name: limits, namespace: wrapped}}
data:
  quota:
    apiVersion: v1
    kind: ResourceQuota
    metadata: {{name: small, namespace: {namespace}}}
    spec: {{hard: {{configmaps: '{size}'}}}}
"
        )
    };
    fleet.apply("hub", &broken("elsewhere", "8"));
    let message = || on_cluster(fleet, "wrapped", "member-1", "WorkSynchronized", "message");
    eventually("envelope and key are named", || {
        message()
            == "ResourceEnvelope wrapped/limits, key \"quota\": ResourceQuota elsewhere/small is in another namespace \
                than the envelope; only wrapped is allowed; nothing was changed on the cluster"
    });
    assert_eq!(
        fleet.get(
            "member-1",
            "resourcequota small -n wrapped",
            "{.metadata.uid}"
        ),
        before
    );
    assert_eq!(
        data(fleet, "member-1", "wrapped", "a"),
        "wrapped",
        "what runs is left alone"
    );
    // What only the cluster can tell is told with the envelope that it came in.
    fleet.apply("hub", &broken("wrapped", "many"));
    eventually("the failed object names its envelope", || {
        let failed =
            "{.status.placementStatuses[?(@.clusterName==\"member-1\")].failedPlacements[0]}";
        let failed = fleet.get("hub", "crp wrapped", failed);
        failed.contains("\"kind\":\"ResourceQuota\"")
            && failed.contains("\"envelope\":{\"name\":\"limits\",\"namespace\":\"wrapped\",\"type\":\"ResourceEnvelope\"}")
    });
    fleet.apply("hub", &broken("wrapped", "9"));
    eventually("mended, it is applied", || {
        MEMBERS.iter().all(|m| {
            fleet.get(
                m,
                "resourcequota small -n wrapped",
                "{.spec.hard.configmaps}",
            ) == "9"
        }) && is_available(fleet, "wrapped")
    });
    // What was in the envelope and is not any more has gone.
    assert!(data(fleet, "member-1", "wrapped", "a").is_empty());
}
