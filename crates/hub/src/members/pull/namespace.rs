//! A member's namespace that is going away: it is helped along, and what holds it is told.
//!
//! | the namespace goes | what happens |
//! |---|---|
//! | since its cluster leaves, or changes its mode | as [`super::leave`] and [`crate::members::migrate`] say |
//! | its cluster stays, or has come back under its name | its Works go; it is made anew when it is gone |
//! | its cluster is gone without the hub | its Works go |
//!
//! The agent's rights go with the first things in it, so that even one that works may not take its finalizers
//! off the Works any more: without the hub the namespace would stay for ever. What the Works placed stays.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use windlass_api::member::MemberCluster;
use windlass_api::names;
use windlass_cluster::{ApiError, ObjectKey};

use super::super::Members;
use crate::worker::Next;

impl Members {
    /// Helps along the namespace of a cluster that stays, if it is going away: what is waited for then.
    pub(super) async fn await_namespace(
        &self,
        cluster: &MemberCluster,
    ) -> Result<Option<String>, ApiError> {
        let name = names::member_namespace(&cluster.name_any());
        let cached = self.world.pull.namespaces.get(&ObjectKey::cluster(&name));
        let Some(cached) = cached.filter(|cached| is_going(&cached.metadata)) else {
            return Ok(None);
        };
        self.clear_namespace(&name).await?;
        let whose = whose(&cached.metadata, cluster);
        let waits = self.waits_for_namespace(&name).await?;
        Ok(Some(format!("{waits}; it is {whose}, and is made anew")))
    }

    /// Helps along a namespace that is going away and whose cluster is gone.
    pub(in crate::members) async fn clear_orphan(&self, cluster: &str) -> Result<Next, ApiError> {
        let name = names::member_namespace(cluster);
        let cached = self.world.pull.namespaces.get(&ObjectKey::cluster(&name));
        // That a cluster is not in the cache tells something only once all are.
        if self.writer.gate().is_open()
            && self.world.clusters.is_synced()
            && cached.is_some_and(|cached| is_going(&cached.metadata))
        {
            self.clear_namespace(&name).await?;
        }
        Ok(Next::Event)
    }

    /// Clusters whose namespaces are going away.
    pub(in crate::members) fn with_going_namespaces(&self) -> Vec<String> {
        let all = self.world.pull.namespaces.list();
        let going = all.iter().filter(|live| is_going(&live.metadata));
        going
            .filter_map(|live| names::cluster_of_namespace(&live.name_any()).map(str::to_owned))
            .collect()
    }

    /// That a namespace is waited for, and what holds it.
    pub(in crate::members) async fn waits_for_namespace(
        &self,
        name: &str,
    ) -> Result<String, ApiError> {
        let live = self.writer.get::<Namespace>(None, name).await?;
        let waits = format!("Waiting for Namespace {name} to be gone");
        Ok(match live.as_ref().and_then(held_by) {
            Some(why) => format!("{waits}: {why}"),
            None => waits,
        })
    }
}

fn is_going(namespace: &ObjectMeta) -> bool {
    namespace.deletion_timestamp.is_some()
}

/// Whose a namespace of the cluster's is, in words.
fn whose(namespace: &ObjectMeta, cluster: &MemberCluster) -> &'static str {
    let owners = namespace.owner_references.as_deref().unwrap_or_default();
    let mut clusters = owners
        .iter()
        .filter(|owner| owner.kind == MemberCluster::kind(&()));
    match clusters.all(|owner| Some(&owner.uid) == cluster.metadata.uid.as_ref()) {
        true => "this cluster's",
        false => "an earlier cluster's",
    }
}

/// What a namespace that is being deleted waits for, by its own word.
fn held_by(namespace: &Namespace) -> Option<String> {
    let conditions = namespace.status.as_ref()?.conditions.as_deref()?;
    let mut messages: Vec<&str> = conditions
        .iter()
        .filter(|condition| condition.status == "True")
        .filter_map(|condition| condition.message.as_deref())
        .collect();
    messages.sort_unstable();
    (!messages.is_empty()).then(|| messages.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_namespace_tells_what_holds_it() {
        let condition = |type_: &str, status: &str, message: &str| json!({ "type": type_, "status": status, "message": message });
        let content = "Some resources are remaining: works has 1 resource instances";
        let finalizers =
            "Some content in the namespace has finalizers remaining: x in 1 resource instances";
        for (conditions, expected) in [
            (Value::Null, None),
            (
                json!([condition(
                    "NamespaceDeletionDiscoveryFailure",
                    "False",
                    "all well"
                )]),
                None,
            ),
            (
                json!([
                    condition("NamespaceFinalizersRemaining", "True", finalizers),
                    condition("NamespaceContentRemaining", "True", content),
                ]),
                Some(format!("{finalizers}; {content}")),
            ),
        ] {
            let namespace = json!({ "status": { "conditions": conditions } });
            let namespace: Namespace = serde_json::from_value(namespace).unwrap();
            assert_eq!(held_by(&namespace), expected);
        }
    }

    #[test]
    fn a_namespace_is_this_clusters_or_an_earlier_ones() {
        let mut cluster = MemberCluster::default();
        cluster.metadata.uid = Some("u1".into());
        for (owner, expected) in [("u1", "this cluster's"), ("u0", "an earlier cluster's")] {
            let namespace = json!({ "ownerReferences": [
                { "apiVersion": "v1", "kind": "Other", "name": "a", "uid": "u7" },
                { "apiVersion": "v1", "kind": "MemberCluster", "name": "a", "uid": owner },
            ] });
            let namespace: ObjectMeta = serde_json::from_value(namespace).unwrap();
            assert_eq!(whose(&namespace, &cluster), expected);
        }
    }
}
