//! Members as ClusterProfiles.

use windlass_tests::{Fleet, eventually};

use super::{MEMBERS, condition, deliveries_go_on, stored};

/// The kind as far as a hub uses it, in the shape of SIG Multicluster's.
const CLUSTER_PROFILES: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterprofiles.multicluster.x-k8s.io, annotations: {api-approved.kubernetes.io: 'unapproved, a test'}}
spec:
  group: multicluster.x-k8s.io
  scope: Namespaced
  names: {plural: clusterprofiles, singular: clusterprofile, kind: ClusterProfile, listKind: ClusterProfileList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [clusterManager]
            properties:
              displayName: {type: string}
              clusterManager:
                type: object
                required: [name]
                properties: {name: {type: string}}
                x-kubernetes-validations: [{rule: self == oldSelf, message: immutable}]
          status:
            type: object
            properties:
              version: {type: object, properties: {kubernetes: {type: string}}}
              # Of an access provider, this version of the kind does not know the CA: what it drops must
              # not be sent for ever.
              accessProviders: {type: array, items: {type: object, required: [name], properties: {name: {type: string}, cluster: {type: object, properties: {server: {type: string}}}}}}
              conditions:
                type: array
                items:
                  type: object
                  properties:
                    type: {type: string}
                    status: {type: string}
                    reason: {type: string}
                    message: {type: string}
                    observedGeneration: {type: integer}
                    lastTransitionTime: {type: string, format: date-time}
";

/// A field of a cluster's profile.
pub fn field(fleet: &Fleet, cluster: &str, path: &str) -> String {
    fleet.get(
        "hub",
        &format!("clusterprofile {cluster} -n fleet-system"),
        path,
    )
}

/// Why a cluster counts as well or not.
pub fn health(fleet: &Fleet, cluster: &str) -> String {
    field(fleet, cluster, HEALTH)
}

const HEALTH: &str = "{.status.conditions[?(@.type==\"ControlPlaneHealthy\")].reason}";

/// They come with their CRD, say what the cluster is like, come back, and are not written for ever.
pub fn are_kept(fleet: &Fleet) {
    assert!(
        fleet
            .log()
            .contains("ClusterProfile (clusterprofiles.multicluster.x-k8s.io) is not installed")
    );
    fleet.apply("hub", CLUSTER_PROFILES);
    eventually("each member has a profile", || {
        MEMBERS
            .iter()
            .all(|member| field(fleet, member, HEALTH) == "MemberClusterAPIServerHealthy")
    });
    assert_eq!(
        field(
            fleet,
            "member-1",
            "{.spec.displayName}/{.spec.clusterManager.name}"
        ),
        "member-1/KubeFleet"
    );
    assert_eq!(
        field(fleet, "member-1", "{.metadata.labels}"),
        r#"{"x-k8s.io/cluster-manager":"KubeFleet"}"#
    );
    let version = fleet.get(
        "hub",
        "cluster member-1",
        "{.status.properties.k8s\\.io/k8s-version.value}",
    );
    assert_eq!(
        field(fleet, "member-1", "{.status.version.kubernetes}"),
        version
    );
    let server = stored(fleet, "member-1")["clusters"][0]["cluster"]["server"].clone();
    assert_eq!(
        field(
            fleet,
            "member-1",
            "{.status.accessProviders[0].cluster.server}"
        ),
        server.as_str().unwrap()
    );
    assert_eq!(
        condition(
            fleet,
            "member-1",
            "ClusterPropertyCollectionSucceeded",
            "reason"
        ),
        "PropertiesCollected"
    );
    let uid = field(fleet, "member-2", "{.metadata.uid}");
    fleet.kubectl("hub", "delete clusterprofile member-2 -n fleet-system");
    eventually("one that is deleted comes back", || {
        let new = field(fleet, "member-2", "{.metadata.uid}");
        !new.is_empty()
            && new != uid
            && field(fleet, "member-2", HEALTH) == "MemberClusterAPIServerHealthy"
    });
    let profiles = |line: &str| line.contains("clusterprofiles");
    let writes = fleet.settled(profiles);
    // A look later nothing was written again: what the CRD has dropped is not missed.
    fleet.kubectl("hub", "label cluster member-1 looked=at");
    deliveries_go_on(fleet, "member-1");
    let now: Vec<String> = fleet
        .writes()
        .into_iter()
        .filter(|line| profiles(line))
        .collect();
    assert_eq!(now, writes);
}
