//! What a drain has to be allowed, asked for before it changes anything: else a cluster would stay cordoned
//! with nothing evicted.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use windlass_cluster::Writer;

const CLUSTERS: &str = "cluster.kubernetes-fleet.io";
const PLACEMENTS: &str = "placement.kubernetes-fleet.io";

/// API group, resource and verbs; docs/examples/drain-rights.yaml has the same.
const NEEDED: [(&str, &str, &[&str]); 5] = [
    (CLUSTERS, "memberclusters", &["get", "list", "update"]),
    (PLACEMENTS, "clusterresourceplacements", &["get", "list"]),
    (PLACEMENTS, "clusterresourcebindings", &["get", "list"]),
    (PLACEMENTS, "resourcebindings", &["list"]),
    (
        PLACEMENTS,
        "clusterresourceplacementevictions",
        &["get", "list", "watch", "create"],
    ),
];

/// Rights that are missing, in words. Where the API server does not say, what is tried will tell.
pub async fn missing(hub: &Writer) -> Vec<String> {
    let mut missing = Vec::new();
    for (group, resource, verbs) in NEEDED {
        for verb in verbs {
            let asked = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec {
                    resource_attributes: Some(ResourceAttributes {
                        group: Some(group.to_owned()),
                        resource: Some(resource.to_owned()),
                        verb: Some((*verb).to_owned()),
                        ..ResourceAttributes::default()
                    }),
                    ..SelfSubjectAccessReviewSpec::default()
                },
                ..SelfSubjectAccessReview::default()
            };
            let answer = hub.create(&asked).await;
            if answer.is_ok_and(|answer| answer.status.is_some_and(|status| !status.allowed)) {
                missing.push(format!("{verb} {resource}"));
            }
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_documented_rights_are_those_that_are_needed() {
        let text = include_str!("../../../../docs/examples/drain-rights.yaml");
        let role: serde_json::Value = yaml_serde::from_str(text).unwrap();
        let words = |value: &serde_json::Value| -> Vec<String> {
            let list = value.as_array().unwrap().iter();
            list.map(|word| word.as_str().unwrap().to_owned()).collect()
        };
        let mut documented = BTreeSet::new();
        for rule in role["rules"].as_array().unwrap() {
            for group in words(&rule["apiGroups"]) {
                for resource in words(&rule["resources"]) {
                    for verb in words(&rule["verbs"]) {
                        documented.insert(format!("{verb} {group}/{resource}"));
                    }
                }
            }
        }
        let needed = NEEDED.iter().flat_map(|(group, resource, verbs)| {
            verbs
                .iter()
                .map(move |verb| format!("{verb} {group}/{resource}"))
        });
        assert_eq!(documented, needed.collect());
    }
}
