//! Overrides of which the API server takes no snapshot.

use windlass_tests::{Fleet, condition, eventually};

use super::{config, data, is_available, namespace, on_cluster, on_config, patch, placement};

/// No snapshot of an override whose name begins with `refused` is stored.
const POLICY: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-snapshots}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [placement.kubernetes-fleet.io], apiVersions: ['*'], operations: [CREATE], resources: [resourceoverridesnapshots]}]
  validations: [{expression: "!object.metadata.name.startsWith('refused')", message: no snapshots here}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-snapshots}
spec: {policyName: no-snapshots, validationActions: [Deny]}
"#;

/// A snapshot that is none of the hub's.
fn planted(name: &str) -> String {
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1
kind: ResourceOverrideSnapshot
metadata: {{name: {name}, namespace: stored}}
spec:
  overrideHash: ''
  overrideSpec:
    resourceSelectors: [{{group: '', version: v1, kind: ConfigMap, name: other}}]
    policy: {{overrideRules: [{{clusterSelector: {{clusterSelectorTerms: []}}, overrideType: Delete}}]}}
---
"
    )
}

pub fn what_can_not_be_stored_stops_what_it_would_change(fleet: &Fleet) {
    fleet.apply("hub", POLICY);
    let in_force = || {
        let request = "create -f - --dry-run=server";
        let refused = fleet.try_kubectl("hub", request, Some(&planted("refused-0")));
        refused.is_err_and(|error| error.contains("no snapshots here"))
    };
    let stored =
        namespace("stored") + &config("stored", "{a: v1, b: x}") + &placement("stored", "");
    fleet.apply("hub", &stored);
    eventually("it is placed", || is_available(fleet, "stored"));
    eventually("the policy is in force", in_force);

    fleet.apply(
        "hub",
        &on_config(
            "stored",
            "refused",
            &[("test", &patch("add", "/data/b", "one"))],
        ),
    );
    fleet.apply("hub", &config("stored", "{a: v2, b: x}"));
    eventually("the others get the new content", || {
        ["member-2", "member-3"]
            .iter()
            .all(|m| data(fleet, m, "stored", "a") == "v2")
    });
    let names = |text: &str| {
        text.contains("ResourceOverride stored/refused") && text.contains("no snapshots here")
    };
    eventually("the cluster says which override it is, and why", || {
        on_cluster(fleet, "stored", "member-1", "Overridden", "reason") == "OverriddenFailed"
            && names(&on_cluster(
                fleet,
                "stored",
                "member-1",
                "Overridden",
                "message",
            ))
    });
    eventually("the placement does", || {
        condition(fleet, "stored", "Overridden", "status") == "False"
            && names(&condition(fleet, "stored", "Scheduled", "message"))
    });
    assert_eq!(data(fleet, "member-1", "stored", "a"), "v1", "left alone");

    // One that does nothing anywhere holds nothing.
    fleet.kubectl("hub", "delete resourceoverride refused -n stored");
    fleet.apply(
        "hub",
        &on_config(
            "stored",
            "refused",
            &[("nowhere", &patch("add", "/data/b", "one"))],
        ),
    );
    eventually("all go on", || {
        data(fleet, "member-1", "stored", "a") == "v2" && is_available(fleet, "stored")
    });
    assert!(!names(&condition(fleet, "stored", "Scheduled", "message")));

    // Names that are taken are passed over.
    fleet.apply("hub", &(planted("o-0") + &planted("o-1")));
    fleet.apply(
        "hub",
        &on_config(
            "stored",
            "o",
            &[("test", &patch("add", "/data/b", "three"))],
        ),
    );
    eventually("it takes effect", || {
        data(fleet, "member-1", "stored", "b") == "three" && is_available(fleet, "stored")
    });

    // What was refused is stored once it may be, and takes effect by itself.
    fleet.apply(
        "hub",
        &on_config(
            "stored",
            "refused",
            &[("test", &patch("add", "/data/b", "four"))],
        ),
    );
    eventually("it is refused", || {
        names(&on_cluster(
            fleet,
            "stored",
            "member-1",
            "Overridden",
            "message",
        ))
    });
    fleet.kubectl(
        "hub",
        "delete validatingadmissionpolicybinding,validatingadmissionpolicy no-snapshots",
    );
    eventually("it takes effect", || {
        data(fleet, "member-1", "stored", "b") == "four" && is_available(fleet, "stored")
    });
    fleet.kubectl("hub", "delete crp stored");
}
