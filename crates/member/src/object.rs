//! What is sent for a manifest, and what is read off a live object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::core::DynamicObject;
use serde_json::{Map, Value, json};
use windlass_api::labels;
use windlass_api::work::AppliedWork;

use crate::manifest::Manifest;

/// Field manager of every write on a member. It is the one that agents of this API use, so that what they
/// applied before stays ours.
pub const FIELD_MANAGER: &str = "work-api-agent";

/// Kind of the owner of everything that is placed.
pub const OWNER_KIND: &str = "AppliedWork";

/// Fields of metadata that the server sets (member §11.1).
const SERVER_SET: [&str; 10] = [
    "resourceVersion",
    "generation",
    "uid",
    "selfLink",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "ownerReferences",
    "generateName",
];

/// Annotations that tell how somebody else applied an object, and are not sent (member §11.1).
pub const UNSENT_ANNOTATIONS: [&str; 4] = [
    labels::SPEC_HASH,
    labels::LAST_APPLIED,
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
];

/// The AppliedWork as an owner: it blocks, but does not control (API §5.5).
#[must_use]
pub fn owner_reference(work: &AppliedWork) -> Value {
    json!({
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": OWNER_KIND,
        "name": work.metadata.name,
        "uid": work.metadata.uid,
        "blockOwnerDeletion": true,
    })
}

/// The object as it is applied: the manifest, marked and owned; none when its metadata is malformed.
#[must_use]
pub fn prepared(manifest: &Manifest, work: &AppliedWork) -> Option<DynamicObject> {
    let mut object = manifest.object.as_object()?.clone();
    object.remove("status");
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    for field in SERVER_SET {
        metadata.remove(field);
    }
    let annotations = map_of(metadata, "annotations")?;
    for key in UNSENT_ANNOTATIONS {
        annotations.remove(key);
    }
    annotations.insert(
        labels::SPEC_HASH.to_owned(),
        json!(manifest.digest.to_string()),
    );
    map_of(metadata, "labels")?.insert(labels::PLACED.to_owned(), json!(labels::PLACED_VALUE));
    metadata.insert("ownerReferences".to_owned(), json!([owner_reference(work)]));
    serde_json::from_value(Value::Object(object)).ok()
}

/// A map inside a map, made when it is absent or null.
fn map_of<'a>(
    parent: &'a mut Map<String, Value>,
    field: &str,
) -> Option<&'a mut Map<String, Value>> {
    let value = parent.entry(field).or_insert_with(|| json!({}));
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}

/// Whether an object is owned by that AppliedWork.
#[must_use]
pub fn is_owned_by(live: &DynamicObject, work_uid: &str) -> bool {
    live.metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.kind == OWNER_KIND && owner.uid == work_uid)
}

/// Whether an object is the one that an AppliedWork placed: it is owned by it, or it is the very object that
/// was applied (`noted`: the UID in the inventory) whose owner reference somebody took off. `exists` tells
/// whether there is an AppliedWork of a name and UID: what another one owns is not ours.
#[must_use]
pub fn is_ours(
    live: &DynamicObject,
    work_uid: &str,
    noted: Option<&str>,
    exists: impl Fn(&str, &str) -> bool,
) -> bool {
    let owners = live.metadata.owner_references.iter().flatten();
    is_owned_by(live, work_uid)
        || noted.is_some_and(|uid| !uid.is_empty() && live.metadata.uid.as_deref() == Some(uid))
            && !owners
                .filter(|owner| owner.kind == OWNER_KIND)
                .any(|owner| exists(&owner.name, &owner.uid))
}

/// Names of the AppliedWorks that own an object.
pub fn works_of(live: &DynamicObject) -> impl Iterator<Item = &str> {
    let owners = live.metadata.owner_references.iter().flatten();
    owners
        .filter(|owner| owner.kind == OWNER_KIND)
        .map(|owner| owner.name.as_str())
}

/// Whether an object carries the hash of that manifest.
#[must_use]
pub fn has_hash_of(live: &DynamicObject, manifest: &Manifest) -> bool {
    annotation(live, labels::SPEC_HASH).is_some_and(|hash| manifest.digest.is(hash))
}

/// An annotation of an object.
#[must_use]
pub fn annotation<'a>(live: &'a DynamicObject, key: &str) -> Option<&'a str> {
    live.metadata
        .annotations
        .as_ref()?
        .get(key)
        .map(String::as_str)
}

/// Whether an object is on its way out.
#[must_use]
pub fn is_going(live: &DynamicObject) -> bool {
    live.metadata.deletion_timestamp.is_some()
}

/// What tells two states of all objects of a name apart.
#[must_use]
pub fn state_of(live: &DynamicObject) -> (String, String) {
    state_of_meta(&live.metadata)
}

/// As [`state_of`], of the metadata.
#[must_use]
pub fn state_of_meta(metadata: &ObjectMeta) -> (String, String) {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    (text(&metadata.uid), text(&metadata.resource_version))
}

/// Takes our marks off an object, so that it is nobody's. Its fields are nobody's either: were they still
/// ours, taking it over once more would remove those that the manifest then does not have.
pub fn release(live: &mut DynamicObject, work_uid: &str) {
    let metadata = &mut live.metadata;
    if let Some(owners) = &mut metadata.owner_references {
        owners.retain(|owner| owner.uid != work_uid);
    }
    if let Some(labels) = &mut metadata.labels {
        labels.remove(labels::PLACED);
    }
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(labels::SPEC_HASH);
        annotations.remove(labels::LAST_APPLIED);
    }
    if let Some(managers) = &mut metadata.managed_fields {
        managers.retain(|entry| {
            entry.manager.as_deref() != Some(FIELD_MANAGER) || is_subresource(entry)
        });
        // The server takes an empty list for "unchanged", and one empty entry for "none".
        if managers.is_empty() {
            managers.push(ManagedFieldsEntry::default());
        }
    }
}

fn is_subresource(entry: &ManagedFieldsEntry) -> bool {
    entry
        .subresource
        .as_deref()
        .is_some_and(|subresource| !subresource.is_empty())
}

/// Whether nobody but us, or nobody that is known, owns fields of an object (member §11.3). `live` has its
/// managedFields.
#[must_use]
pub fn is_managed_by_us_only(live: &DynamicObject) -> bool {
    live.metadata.managed_fields.iter().flatten().all(|entry| {
        matches!(
            entry.manager.as_deref(),
            None | Some(FIELD_MANAGER | "before-first-apply")
        )
    })
}

/// An object as JSON.
#[must_use]
pub fn as_json(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::work::AppliedWorkSpec;

    fn work() -> AppliedWork {
        let mut work = AppliedWork::new("w", AppliedWorkSpec::default());
        work.metadata.uid = Some("u".into());
        work
    }

    #[test]
    fn what_is_sent() {
        let manifest = Manifest::of_snapshot(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}, "status": {"x": 1},
            "metadata": {"name": "a", "namespace": "n", "uid": "1", "resourceVersion": "1", "labels": null,
                "annotations": {"mine": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
                "ownerReferences": [{"kind": "X", "name": "x", "uid": "x", "apiVersion": "v1"}],
                "finalizers": ["f"]},
        }));
        let sent = prepared(&manifest, &work()).unwrap();
        assert_eq!(
            as_json(&sent),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
                "metadata": {"name": "a", "namespace": "n", "finalizers": ["f"],
                    "labels": {"windlass.dev/placed": "true"},
                    "annotations": {"mine": "1", "kubernetes-fleet.io/spec-hash": manifest.digest.to_string()},
                    "ownerReferences": [{"apiVersion": "placement.kubernetes-fleet.io/v1beta1", "kind": "AppliedWork",
                        "name": "w", "uid": "u", "blockOwnerDeletion": true}]},
            })
        );
        assert!(
            is_owned_by(&sent, "u") && !is_owned_by(&sent, "v") && has_hash_of(&sent, &manifest)
        );
        assert_eq!(works_of(&sent).collect::<Vec<_>>(), ["w"]);
    }

    #[test]
    fn whose_an_object_is() {
        let (us, them, dead, thing) = (
            ("AppliedWork", "us"),
            ("AppliedWork", "them"),
            ("AppliedWork", "dead"),
            ("Thing", "x"),
        );
        // owners; UID in the inventory; ours
        let rows = [
            (vec![us], None, true),
            (vec![us, them], None, true),
            (vec![], None, false),
            (vec![], Some(""), false),
            (vec![], Some("before"), false),
            (vec![], Some("live"), true),
            (vec![thing], Some("live"), true),
            (vec![them], Some("live"), false),
            (vec![dead], Some("live"), true),
        ];
        for (owners, noted, expected) in rows {
            let list: Vec<Value> = owners
                .iter()
                .map(|(kind, uid)| json!({"apiVersion": "g/v1", "kind": kind, "name": "o", "uid": uid}))
                .collect();
            let live: DynamicObject =
                serde_json::from_value(json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "uid": "live", "ownerReferences": list}}))
                .unwrap();
            assert_eq!(
                is_ours(&live, "us", noted, |_, uid| uid != "dead"),
                expected,
                "{owners:?} {noted:?}"
            );
        }
    }

    #[test]
    fn malformed_metadata_is_not_sent() {
        for metadata in [
            json!({"name": "a", "labels": "x"}),
            json!({"name": "a", "annotations": [1]}),
        ] {
            let manifest = Manifest::of_snapshot(
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}),
            );
            assert!(prepared(&manifest, &work()).is_none());
        }
    }

    #[test]
    fn a_released_object_bears_no_trace() {
        let manifest = Manifest::of_snapshot(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"l": "1"}}}));
        let mut live = prepared(&manifest, &work()).unwrap();
        let managers = json!([{"manager": "work-api-agent", "operation": "Apply"}]);
        live.metadata.managed_fields = serde_json::from_value(managers).unwrap();
        assert!(is_managed_by_us_only(&live));
        release(&mut live, "u");
        assert_eq!(
            as_json(&live)["metadata"],
            json!({"name": "a", "labels": {"l": "1"}, "annotations": {}, "ownerReferences": [], "managedFields": [{}]})
        );
        live.metadata.managed_fields =
            serde_json::from_value(json!([{"manager": "kubectl"}])).unwrap();
        assert!(!is_managed_by_us_only(&live));
    }
}
