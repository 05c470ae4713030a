//! What the hub puts on itself for a member's agent (API §3.1): pure.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use windlass_api::member::{Identity, MemberCluster};
use windlass_api::pull::{InternalMemberCluster, InternalMemberClusterSpec, MembershipState};
use windlass_api::{labels, names};

use crate::pull::caches::BYPASS_ROLE;

const RBAC: &str = "rbac.authorization.k8s.io";
/// Heartbeat period when the cluster does not say.
const DEFAULT_PERIOD: i32 = 60;

/// The member's namespace.
#[must_use]
pub fn namespace(cluster: &MemberCluster) -> Namespace {
    let name = names::member_namespace(&cluster.name_any());
    Namespace {
        metadata: ObjectMeta {
            namespace: None,
            ..metadata(cluster, name)
        },
        ..Namespace::default()
    }
}

/// What the agent may do there: what agents do, not everything in the fleet's groups as KubeFleet has it. The
/// hub has to have what it gives (deploy/base/rights.yaml), and is not to have the right to delete clusters.
#[must_use]
pub fn role(cluster: &MemberCluster) -> Role {
    let strings =
        |words: &[&str]| -> Vec<String> { words.iter().map(|w| (*w).to_owned()).collect() };
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| PolicyRule {
        api_groups: Some(strings(&[group])),
        resources: Some(strings(resources)),
        verbs: strings(verbs),
        ..PolicyRule::default()
    };
    let (cluster_group, placement_group) =
        (windlass_api::CLUSTER_GROUP, windlass_api::PLACEMENT_GROUP);
    let changes = ["get", "list", "watch", "update", "patch"];
    let says = ["get", "update", "patch"];
    Role {
        metadata: metadata(cluster, names::member_role(&cluster.name_any())),
        rules: Some(vec![
            rule(cluster_group, &["internalmemberclusters"], &changes),
            rule(cluster_group, &["internalmemberclusters/status"], &says),
            rule(placement_group, &["works"], &changes),
            rule(
                placement_group,
                &["works/status", "works/finalizers"],
                &says,
            ),
            rule("networking.fleet.azure.com", &["*"], &["*"]),
            rule(
                "",
                &["events"],
                &["get", "list", "update", "patch", "watch", "create"],
            ),
        ]),
    }
}

/// Gives the agent its Role.
#[must_use]
pub fn role_binding(cluster: &MemberCluster) -> RoleBinding {
    let name = cluster.name_any();
    bound(
        cluster,
        names::member_role_binding(&name),
        "Role",
        &names::member_role(&name),
    )
}

/// Lets the agent past the guard rails, in its own namespace.
#[must_use]
pub fn bypass(cluster: &MemberCluster) -> RoleBinding {
    let name = names::member_bypass(&cluster.name_any());
    bound(cluster, name, "ClusterRole", BYPASS_ROLE)
}

fn bound(cluster: &MemberCluster, name: String, kind: &str, role: &str) -> RoleBinding {
    RoleBinding {
        metadata: metadata(cluster, name),
        role_ref: RoleRef {
            api_group: RBAC.to_owned(),
            kind: kind.to_owned(),
            name: role.to_owned(),
        },
        subjects: Some(vec![subject(&cluster.spec.identity)]),
    }
}

/// Whether a live binding gives another role than is wanted: too few rights, or too many.
#[must_use]
pub fn is_of_another_role(live: &RoleBinding, wanted: &RoleBinding) -> bool {
    live.role_ref != wanted.role_ref
}

fn subject(identity: &Identity) -> Subject {
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    // What the server would fill in, so that what is read equals what is wanted.
    let group = match identity.kind.as_str() {
        "User" | "Group" => Some(RBAC.to_owned()),
        _ => None,
    };
    Subject {
        api_group: some(&identity.api_group).or(group),
        kind: identity.kind.clone(),
        name: identity.name.clone(),
        namespace: some(&identity.namespace),
    }
}

/// What the agent is told.
#[must_use]
pub fn internal(cluster: &MemberCluster, state: MembershipState) -> InternalMemberCluster {
    let name = cluster.name_any();
    let mut object = InternalMemberCluster::new(
        &name,
        InternalMemberClusterSpec {
            state,
            heartbeat_period_seconds: Some(period(cluster)),
        },
    );
    object.metadata = metadata(cluster, name.clone());
    object.metadata.labels = None;
    object
}

/// How often the agent is to report, in seconds.
#[must_use]
pub fn period(cluster: &MemberCluster) -> i32 {
    cluster
        .spec
        .heartbeat_period_seconds
        .unwrap_or(DEFAULT_PERIOD)
        .clamp(1, 600)
}

fn metadata(cluster: &MemberCluster, name: String) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(names::member_namespace(&cluster.name_any())),
        name: Some(name),
        labels: Some([(labels::IS_FLEET_RESOURCE.to_owned(), "true".to_owned())].into()),
        owner_references: Some(vec![OwnerReference {
            api_version: MemberCluster::api_version(&()).into_owned(),
            kind: MemberCluster::kind(&()).into_owned(),
            name: cluster.name_any(),
            uid: cluster.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        }]),
        ..ObjectMeta::default()
    }
}

/// Whether a live object has the labels and owners that are wanted.
#[must_use]
pub fn is_marked(live: &ObjectMeta, wanted: &ObjectMeta) -> bool {
    let labels = live.labels.as_ref();
    let owners = live.owner_references.as_deref().unwrap_or_default();
    wanted
        .labels
        .iter()
        .flatten()
        .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
        && wanted
            .owner_references
            .iter()
            .flatten()
            .all(|owner| owners.iter().any(|live| live.uid == owner.uid))
}

/// Puts the labels and owners that are wanted on an object; an owner of the same kind, say the cluster of
/// that name before this one, goes.
pub fn mark(live: &mut ObjectMeta, wanted: &ObjectMeta) {
    live.labels
        .get_or_insert_default()
        .extend(wanted.labels.clone().unwrap_or_default());
    let owners = live.owner_references.get_or_insert_default();
    let new = wanted.owner_references.clone().unwrap_or_default();
    owners.retain(|owner| new.iter().all(|new| new.kind != owner.kind));
    owners.extend(new);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(kind: &str) -> MemberCluster {
        let mut cluster = MemberCluster::default();
        cluster.metadata.name = Some("east".into());
        cluster.metadata.uid = Some("u1".into());
        cluster.spec.identity = Identity {
            kind: kind.into(),
            name: "agent".into(),
            ..Identity::default()
        };
        cluster
    }

    #[test]
    fn everything_lies_in_the_members_namespace_and_belongs_to_the_cluster() {
        let cluster = cluster("User");
        let all = [
            role(&cluster).metadata,
            role_binding(&cluster).metadata,
            bypass(&cluster).metadata,
            internal(&cluster, MembershipState::Join).metadata,
        ];
        for metadata in all {
            assert_eq!(metadata.namespace.as_deref(), Some("fleet-member-east"));
            let owner = &metadata.owner_references.unwrap()[0];
            assert_eq!((owner.uid.as_str(), owner.controller), ("u1", Some(true)));
            assert_eq!(owner.block_owner_deletion, None);
        }
        assert_eq!(namespace(&cluster).name_any(), "fleet-member-east");
        assert_eq!(namespace(&cluster).namespace(), None);
    }

    #[test]
    fn an_agent_may_write_its_works_and_its_report_alone() {
        let rules = role(&cluster("User")).rules.unwrap();
        let may = |verb: &str, group: &str, resource: &str| {
            let has =
                |list: &[String], what: &str| list.iter().any(|one| one == "*" || one == what);
            rules.iter().any(|rule| {
                has(rule.api_groups.as_deref().unwrap_or_default(), group)
                    && has(rule.resources.as_deref().unwrap_or_default(), resource)
                    && has(&rule.verbs, verb)
            })
        };
        let (of_cluster, of_placement) =
            (windlass_api::CLUSTER_GROUP, windlass_api::PLACEMENT_GROUP);
        for (verb, group, resource, expected) in [
            ("watch", of_placement, "works", true),
            ("patch", of_placement, "works", true),
            ("update", of_placement, "works/status", true),
            ("update", of_cluster, "internalmemberclusters/status", true),
            ("create", "", "events", true),
            (
                "create",
                "networking.fleet.azure.com",
                "endpointsliceexports",
                true,
            ),
            ("delete", of_placement, "works", false),
            ("create", of_placement, "resourceplacements", false),
            ("create", of_placement, "resourceoverrides", false),
            ("delete", of_cluster, "internalmemberclusters", false),
            ("get", of_cluster, "memberclusters", false),
            ("get", "", "secrets", false),
        ] {
            assert_eq!(may(verb, group, resource), expected, "{verb} {resource}");
        }
    }

    #[test]
    fn a_binding_of_another_role_is_known() {
        let wanted = role_binding(&cluster("User"));
        let given = |kind: &str, name: &str| {
            let mut live = wanted.clone();
            live.role_ref.kind = kind.to_owned();
            live.role_ref.name = name.to_owned();
            // Who is in it, and how it is marked, is another matter.
            live.subjects = None;
            live.metadata.labels = None;
            live
        };
        for (kind, name, expected) in [
            ("Role", "fleet-role-east", false),
            ("ClusterRole", "fleet-role-east", true),
            ("ClusterRole", "view", true),
            ("ClusterRole", "cluster-admin", true),
        ] {
            let other = is_of_another_role(&given(kind, name), &wanted);
            assert_eq!(other, expected, "{kind} {name}");
        }
    }

    #[test]
    fn subjects_are_what_the_server_makes_of_them() {
        for (kind, group) in [
            ("User", Some(RBAC)),
            ("Group", Some(RBAC)),
            ("ServiceAccount", None),
        ] {
            let subjects = role_binding(&cluster(kind)).subjects.unwrap();
            assert_eq!(subjects[0].api_group.as_deref(), group, "{kind}");
        }
    }

    #[test]
    fn a_namespace_of_an_earlier_cluster_changes_hands() {
        let (wanted, mut old) = (namespace(&cluster("User")), cluster("User"));
        old.metadata.uid = Some("u0".into());
        let mut live = namespace(&old).metadata;
        live.labels = None;
        assert!(!is_marked(&live, &wanted.metadata));
        mark(&mut live, &wanted.metadata);
        assert!(is_marked(&live, &wanted.metadata));
        assert_eq!(live.owner_references.unwrap().len(), 1);
    }
}
