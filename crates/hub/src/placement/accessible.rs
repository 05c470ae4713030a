//! `statusReportingScope: NamespaceAccessible`: the placement's status is copied into the namespace that it
//! selects, for those who may not read cluster-scoped objects (API §3.4).
//!
//! The copy is written when what it says changes, before the placement's own status, whose condition
//! StatusSynced tells how that went. It is owned by the placement, and goes with it. One that is taken away
//! comes back.

use std::time::Duration;

use kube::ResourceExt;
use kube::core::ObjectMeta;
use windlass_api::Time;
use windlass_api::conditions::{Reason, STATUS_SYNCED, Status};
use windlass_api::placement::{PlacementStatus, ResourceSelectorTerm, StatusReportingScope};
use windlass_api::scoped::{Placement, Scope};
use windlass_api::status_copy::ClusterResourcePlacementStatus;
use windlass_cluster::{ApiError, ObjectKey, clock};
use windlass_status::conditions::{NewCondition, set};

use super::actor::{Actor, REFUSED_AGAIN};
use super::owner_reference;
use crate::world::BY_NAME;

/// How soon a copy is tried again that no one has refused.
const FAILED_AGAIN: Duration = Duration::from_secs(2);

/// Where a status is copied to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// Nowhere: the placement does not ask for it.
    None,
    /// Into this namespace.
    Namespace(&'a str),
    /// That can't be told: no namespace is selected by name.
    Unclear,
}

/// Where a placement wants its status copied to. On a ResourcePlacement the field has no effect: it lives
/// where its readers are.
#[must_use]
pub fn target(placement: &Placement) -> Target<'_> {
    let asked =
        placement.spec.status_reporting_scope == Some(StatusReportingScope::NamespaceAccessible);
    if !asked || Scope::of(placement) == Scope::Namespaced {
        return Target::None;
    }
    let of_namespaces = |term: &&ResourceSelectorTerm| term.kind == "Namespace";
    let mut selectors = placement
        .spec
        .resource_selectors
        .iter()
        .filter(of_namespaces);
    match (
        selectors.next().and_then(|term| term.name.as_deref()),
        selectors.next(),
    ) {
        (Some(name), None) if !name.is_empty() => Target::Namespace(name),
        _ => Target::Unclear,
    }
}

/// Why a placement's selectors can't be acted on, as far as the copy goes. `copied` is the namespace that
/// has a copy already.
#[must_use]
pub fn trouble(placement: &Placement, copied: Option<&str>) -> Option<String> {
    let wanted = match target(placement) {
        Target::None => return None,
        Target::Namespace(name) => name,
        Target::Unclear => {
            return Some(
                "statusReportingScope NamespaceAccessible needs exactly one Namespace, selected by name"
                    .to_owned(),
            );
        }
    };
    let selected = placement
        .status
        .iter()
        .flat_map(|status| status.selected_resources.iter().flatten())
        .find(|resource| resource.kind == "Namespace" && resource.group.is_none())
        .map(|resource| resource.name.as_str());
    let known = copied.or(selected).filter(|known| *known != wanted)?;
    Some(format!(
        "the status is reported in namespace {known}, and can't move to {wanted}; select {known} again, or make \
         another placement"
    ))
}

/// What the copy says: all but whether it was copied.
fn content(status: &PlacementStatus) -> PlacementStatus {
    let mut content = status.clone();
    if let Some(list) = &mut content.conditions {
        list.retain(|condition| condition.type_ != STATUS_SYNCED);
    }
    content
}

/// What is said of an attempt to copy, and when the next is due.
fn outcome(
    key: &ObjectKey,
    result: &Result<(), ApiError>,
    generation: Option<i64>,
) -> (NewCondition<'static>, Option<Duration>) {
    let (status, reason, message) = match result {
        Ok(()) => (
            Status::True,
            Reason::StatusSyncSucceeded,
            format!("The status is copied to ClusterResourcePlacementStatus {key}"),
        ),
        Err(error) => (
            Status::False,
            Reason::StatusSyncFailed,
            format!(
                "The status can't be copied to ClusterResourcePlacementStatus {key}: {}",
                error.message()
            ),
        ),
    };
    let again = match result {
        Ok(()) => None,
        Err(ApiError::Rejected(_)) => Some(REFUSED_AGAIN),
        Err(error) => Some(error.retry_after().unwrap_or(FAILED_AGAIN)),
    };
    let condition = NewCondition {
        type_: STATUS_SYNCED,
        status,
        reason: reason.as_str(),
        message,
        observed_generation: generation,
    };
    (condition, again)
}

impl Actor {
    /// The namespace that has a copy of the placement's status.
    pub(super) fn copied_to(&self, placement: &Placement) -> Option<String> {
        let copies = self.world.copies.by_index(BY_NAME, &placement.name_any());
        let ours = copies.iter().find(|copy| {
            let mut owners = copy.owner_references().iter();
            owners.any(|owner| Some(&owner.uid) == placement.metadata.uid.as_ref())
        });
        ours.and_then(|copy| copy.namespace())
    }

    /// Where the copy of a placement's status lies, or is to lie.
    fn copy_key(&self, placement: &Placement) -> Option<ObjectKey> {
        let wanted = match target(placement) {
            Target::None => return None,
            Target::Namespace(name) => Some(name.to_owned()),
            Target::Unclear => None,
        };
        let namespace = self.copied_to(placement).or(wanted)?;
        let reserved = self.filter.is_reserved(&namespace);
        (!reserved).then(|| ObjectKey::namespaced(namespace, placement.name_any()))
    }

    /// Whether the copy, if there is to be one, says what the status says.
    pub(super) fn is_copied(&self, placement: &Placement, status: &PlacementStatus) -> bool {
        let Some(key) = self.copy_key(placement) else {
            return true;
        };
        let copy = self.world.copies.get(&key);
        copy.is_some_and(|copy| copy.source_status == content(status))
    }

    /// Brings the copy up to date, and notes in the status how that went. One that fails is nobody's error: it
    /// keeps nothing else from going on. When to come again then.
    pub(super) async fn copy_status(
        &self,
        placement: &Placement,
        status: &mut PlacementStatus,
    ) -> Option<Duration> {
        let key = self.copy_key(placement)?;
        let result = if self.is_copied(placement, status) {
            Ok(())
        } else {
            self.write_copy(placement, &key, content(status)).await
        };
        if let Err(error) = &result {
            tracing::warn!(copy = %key, error = error.message(), "a status can't be copied");
        }
        let (new, again) = outcome(&key, &result, placement.metadata.generation);
        set(status.conditions.get_or_insert_default(), new, clock::now());
        again
    }

    async fn write_copy(
        &self,
        placement: &Placement,
        key: &ObjectKey,
        content: PlacementStatus,
    ) -> Result<(), ApiError> {
        let now = Time(clock::now());
        let owner = owner_reference(
            &ObjectKey::of(placement),
            &placement.uid().unwrap_or_default(),
        );
        let known = self.world.copies.get(key);
        let mut copy =
            known
                .as_deref()
                .cloned()
                .unwrap_or_else(|| ClusterResourcePlacementStatus {
                    metadata: ObjectMeta {
                        name: Some(key.name.clone()),
                        namespace: Some(key.namespace.clone()),
                        ..ObjectMeta::default()
                    },
                    source_status: PlacementStatus::default(),
                    last_updated_time: now.clone(),
                });
        copy.source_status = content;
        copy.last_updated_time = now;
        copy.metadata.owner_references = Some(vec![owner]);
        let live = if known.is_some() {
            self.writer.replace(&copy).await?
        } else {
            self.writer.create(&copy).await?
        };
        self.world.copies.observe(live);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn placement(selectors: &Value, selected: &str) -> Placement {
        let mut placement: Placement = serde_json::from_value(json!({
            "metadata": {"name": "p"},
            "spec": {"resourceSelectors": selectors, "statusReportingScope": "NamespaceAccessible"},
        }))
        .unwrap();
        if !selected.is_empty() {
            placement.status = serde_json::from_value(json!({"selectedResources": [
                {"version": "v1", "kind": "Namespace", "name": selected}]}))
            .unwrap();
        }
        placement
    }

    fn namespace(name: &str) -> Value {
        json!({"group": "", "version": "v1", "kind": "Namespace", "name": name})
    }

    #[test]
    fn a_copy_that_fails_is_told_and_tried_again() {
        let key = ObjectKey::namespaced("web", "p");
        let asked = Duration::from_secs(7);
        let busy = ApiError::Transient {
            message: "why".to_owned(),
            retry_after: Some(asked),
        };
        for (result, status, again) in [
            (Ok(()), Status::True, None),
            (
                Err(ApiError::Rejected("why".to_owned())),
                Status::False,
                Some(REFUSED_AGAIN),
            ),
            (Err(busy), Status::False, Some(asked)),
            (
                Err(ApiError::Conflict("why".to_owned())),
                Status::False,
                Some(FAILED_AGAIN),
            ),
        ] {
            let (condition, when) = outcome(&key, &result, Some(3));
            assert_eq!((condition.status, when), (status, again), "{result:?}");
            assert_eq!(condition.observed_generation, Some(3));
            assert_eq!(condition.message.contains("why"), result.is_err());
        }
    }

    #[test]
    fn where_the_copy_goes() {
        let role =
            json!({"group": "rbac.authorization.k8s.io", "version": "v1", "kind": "ClusterRole"});
        let labelled =
            json!({"group": "", "version": "v1", "kind": "Namespace", "labelSelector": {}});
        for (selectors, expected) in [
            (json!([namespace("web")]), Target::Namespace("web")),
            (json!([role, namespace("web")]), Target::Namespace("web")),
            (json!([namespace("web"), namespace("api")]), Target::Unclear),
            (json!([labelled]), Target::Unclear),
            (json!([namespace("")]), Target::Unclear),
            (json!([role]), Target::Unclear),
        ] {
            let mut placement = placement(&selectors, "");
            assert_eq!(target(&placement), expected, "{selectors}");
            assert_eq!(
                trouble(&placement, None).is_some(),
                expected == Target::Unclear
            );
            placement.spec.status_reporting_scope = None;
            assert_eq!(target(&placement), Target::None);
        }
        let own = placement(&json!([namespace("web")]), "").within("web");
        assert_eq!(target(&own), Target::None, "a ResourcePlacement");
    }

    #[test]
    fn it_does_not_move() {
        for (selected, copied, expected) in [
            ("", None, None),
            ("web", None, None),
            ("web", Some("web"), None),
            ("", Some("api"), Some("namespace api")),
            ("api", None, Some("namespace api")),
        ] {
            let told = trouble(&placement(&json!([namespace("web")]), selected), copied);
            match expected {
                None => assert_eq!(told, None),
                Some(words) => assert!(told.unwrap().contains(words)),
            }
        }
    }
}
