//! What is refused on a cluster that is to change its mode.

use windlass_tests::{Fleet, condition, eventually};

/// Nobody can work this in.
const REFUSED: &str = r"
apiVersion: placement.kubernetes-fleet.io/v1
kind: ClusterResourceOverride
metadata: {name: refused}
spec:
  placement: {name: web}
  clusterResourceSelectors: [{group: '', version: v1, kind: Namespace, name: web}]
  policy:
    overrideRules:
    - clusterSelector: {clusterSelectorTerms: []}
      jsonPatchOverrides: [{op: replace, path: /metadata/labels/none, value: x}]
";

/// Whoever delivered goes on: after the change nobody would look after what runs.
pub fn a_change_waits_for_what_is_refused(fleet: &Fleet, to: &str) {
    let said = || {
        let path = "{.status.conditions[?(@.type==\"Migrating\")].message}";
        fleet.get("hub", "cluster member-1", path)
    };
    let mode = "{.metadata.annotations.windlass\\.dev/delivery}";
    let before = fleet.get("hub", "cluster member-1", mode);
    fleet.apply("hub", REFUSED);
    eventually("the override is refused", || {
        condition(fleet, "web", "Overridden", "status") == "False"
    });
    let annotate = "annotate cluster member-1 windlass.dev/migrate-to";
    fleet.kubectl("hub", &format!("{annotate}={to}"));
    eventually("what it waits for is named", || {
        let said = said();
        ["delivering as before", "delivers as before"]
            .iter()
            .any(|words| said.contains(words))
            && said.contains("/metadata/labels/none")
            && said.contains("take web off the cluster")
    });
    assert_eq!(fleet.get("hub", "cluster member-1", mode), before);
    fleet.kubectl("hub", &format!("{annotate}-"));
    fleet.kubectl("hub", "delete clusterresourceoverride refused");
    eventually("nothing is refused any more", || {
        said().is_empty() && condition(fleet, "web", "Available", "status") == "True"
    });
}
