//! What is sent for a manifest, and what is read off a live object.

use kube::core::DynamicObject;
use serde_json::{Value, json};
use windlass_api::labels;
use windlass_api::work::AppliedWork;

use crate::manifest::Manifest;

/// Field manager of every write on a member. It is the one that agents of this API use, so that what they
/// applied before stays ours.
pub const FIELD_MANAGER: &str = "work-api-agent";

/// Fields of metadata that the server sets.
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

/// The AppliedWork as an owner.
#[must_use]
pub fn owner_reference(work: &AppliedWork) -> Value {
    json!({
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "AppliedWork",
        "name": work.metadata.name,
        "uid": work.metadata.uid,
        "blockOwnerDeletion": true,
    })
}

/// The object as it is applied: the manifest, marked and owned; none when its metadata is malformed.
#[must_use]
pub fn prepared(manifest: &Manifest, work: &AppliedWork) -> Option<DynamicObject> {
    let mut object = manifest.object.clone();
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    let metadata = &mut object["metadata"];
    if let Some(map) = metadata.as_object_mut() {
        for field in SERVER_SET {
            map.remove(field);
        }
    }
    metadata["labels"][labels::PLACED] = json!(labels::PLACED_VALUE);
    metadata["annotations"][labels::SPEC_HASH] = json!(manifest.digest.to_string());
    metadata["ownerReferences"] = json!([owner_reference(work)]);
    dynamic(object)
}

/// JSON as an object; none when it is not one.
#[must_use]
pub fn dynamic(object: Value) -> Option<DynamicObject> {
    serde_json::from_value(object).ok()
}

/// Whether an object is owned by that AppliedWork.
#[must_use]
pub fn is_owned_by(live: &DynamicObject, work_uid: &str) -> bool {
    live.metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.kind == "AppliedWork" && owner.uid == work_uid)
}

/// Whether an object carries the hash of that manifest.
#[must_use]
pub fn has_hash_of(live: &DynamicObject, manifest: &Manifest) -> bool {
    live.metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(labels::SPEC_HASH))
        .is_some_and(|hash| manifest.digest.is(hash))
}

/// Takes our marks off an object, so that it is nobody's.
pub fn release(live: &mut DynamicObject, work_uid: &str) {
    if let Some(owners) = &mut live.metadata.owner_references {
        owners.retain(|owner| owner.uid != work_uid);
    }
    if let Some(marks) = &mut live.metadata.labels {
        marks.remove(labels::PLACED);
    }
    if let Some(annotations) = &mut live.metadata.annotations {
        annotations.remove(labels::SPEC_HASH);
        annotations.remove(labels::LAST_APPLIED);
    }
}

/// An object as JSON.
#[must_use]
pub fn as_json(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
