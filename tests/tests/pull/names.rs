//! ClusterResourcePlacement `twin.x` and ResourcePlacement `twin/x` want Works, and AppliedWorks, of one name
//! on one cluster, which changes its mode.

use windlass_tests::{Fleet, eventually};

const TWINS: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: twin}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: own, namespace: twin}
data: {a: '1'}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: twin.x}
spec:
  resourceSelectors: [{group: '', version: v1, kind: Namespace, name: twin, selectionScope: NamespaceOnly}]
  policy: {placementType: PickAll}
";

const SECOND: &str = r"
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourcePlacement
metadata: {name: x, namespace: twin}
spec:
  resourceSelectors: [{group: '', version: v1, kind: ConfigMap, name: own}]
  policy: {placementType: PickAll}
";

const OBJECTS: [&str; 2] = ["ns twin", "cm own -n twin"];

/// What is on the cluster of them.
pub struct Twins {
    uids: [String; 2],
}

/// What owns an object, by name.
fn owner(fleet: &Fleet, what: &str) -> String {
    fleet.get("member-1", what, "{.metadata.ownerReferences[*].name}")
}

fn uids(fleet: &Fleet) -> [String; 2] {
    OBJECTS.map(|what| fleet.get("member-1", what, "{.metadata.uid}"))
}

/// Whether both are said to be everywhere.
fn are_available(fleet: &Fleet) -> bool {
    let path = |kind| format!("{{.status.conditions[?(@.type==\"{kind}Available\")].status}}");
    let first = fleet.get("hub", "crp twin.x", &path("ClusterResourcePlacement"));
    let second = fleet.get("hub", "rp x -n twin", &path("ResourcePlacement"));
    first == "True" && second == "True"
}

pub fn place_two_of_one_name(fleet: &Fleet) -> Twins {
    fleet.apply("hub", TWINS);
    eventually("the first has the name", || {
        owner(fleet, "ns twin") == "twin.x-work"
    });
    fleet.apply("hub", SECOND);
    eventually("the second is placed", || {
        let owner = owner(fleet, "cm own -n twin");
        owner.starts_with("twin.x-") && owner != "twin.x-work" && are_available(fleet)
    });
    Twins { uids: uids(fleet) }
}

impl Twins {
    /// Nothing was deleted, and each is its own placement's.
    pub fn are_as_they_were(&self, fleet: &Fleet) {
        eventually("both are available", || are_available(fleet));
        assert_eq!(uids(fleet), self.uids);
        let [first, second] = OBJECTS.map(|what| owner(fleet, what));
        assert!(
            !first.is_empty() && !second.is_empty() && first != second,
            "{first} {second}"
        );
    }

    /// The one takes nothing of the other along.
    pub fn go(self, fleet: &Fleet) {
        fleet.kubectl("hub", "delete rp x -n twin --timeout=60s");
        let [first, _] = self.uids;
        eventually("the second is gone", || {
            uids(fleet) == [first.clone(), String::new()]
        });
        fleet.kubectl("hub", "delete crp twin.x --timeout=60s");
        eventually("both are gone", || uids(fleet).iter().all(String::is_empty));
    }
}
