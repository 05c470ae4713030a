//! The inventory of an AppliedWork: what was, or is about to be, applied (design §2).

use windlass_api::work::{AppliedResourceMeta, Origin};

use crate::manifest::{Manifest, ManifestId};

/// The object that an entry names.
#[must_use]
pub fn id_of(entry: &AppliedResourceMeta) -> ManifestId {
    ManifestId {
        group: entry.group.clone().unwrap_or_default(),
        version: entry.version.clone().unwrap_or_default(),
        kind: entry.kind.clone().unwrap_or_default(),
        namespace: entry
            .namespace
            .clone()
            .filter(|namespace| !namespace.is_empty()),
        name: entry.name.clone().unwrap_or_default(),
    }
}

/// Whether two identities name the same object; the version is only a way of looking at it.
#[must_use]
pub fn same_object(a: &ManifestId, b: &ManifestId) -> bool {
    a.group == b.group && a.kind == b.kind && a.namespace == b.namespace && a.name == b.name
}

/// The entry of an object.
#[must_use]
pub fn find<'a>(
    entries: &'a [AppliedResourceMeta],
    id: &ManifestId,
) -> Option<&'a AppliedResourceMeta> {
    entries.iter().find(|entry| same_object(&id_of(entry), id))
}

/// Adds an object that is about to be applied, unless it stands there.
pub fn record(
    entries: &mut Vec<AppliedResourceMeta>,
    ordinal: usize,
    manifest: &Manifest,
    resource: &str,
    origin: Origin,
) {
    if find(entries, &manifest.id).is_some() {
        return;
    }
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    entries.push(AppliedResourceMeta {
        ordinal: i32::try_from(ordinal).unwrap_or(i32::MAX),
        group: some(&manifest.id.group),
        version: some(&manifest.id.version),
        kind: some(&manifest.id.kind),
        resource: some(resource),
        namespace: manifest.id.namespace.clone(),
        name: some(&manifest.id.name),
        uid: None,
        origin: Some(origin),
        generation: None,
        digest: None,
    });
}

/// Entries whose objects are no longer wanted.
#[must_use]
pub fn surplus(entries: &[AppliedResourceMeta], wanted: &[ManifestId]) -> Vec<AppliedResourceMeta> {
    entries
        .iter()
        .filter(|entry| !wanted.iter().any(|id| same_object(&id_of(entry), id)))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest(name: &str) -> Manifest {
        Manifest::of_snapshot(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}}),
        )
    }

    #[test]
    fn an_entry_keeps_its_origin_and_goes_when_it_is_not_wanted() {
        let mut entries = Vec::new();
        record(
            &mut entries,
            0,
            &manifest("a"),
            "configmaps",
            Origin::Created,
        );
        record(
            &mut entries,
            1,
            &manifest("b"),
            "configmaps",
            Origin::Adopted,
        );
        record(
            &mut entries,
            0,
            &manifest("a"),
            "configmaps",
            Origin::Adopted,
        );
        assert_eq!(entries.len(), 2);
        assert_eq!(
            find(&entries, &manifest("a").id).unwrap().origin,
            Some(Origin::Created)
        );
        let gone = surplus(&entries, &[manifest("b").id]);
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].name.as_deref(), Some("a"));
        let other_version = ManifestId {
            version: "v2".into(),
            ..manifest("a").id
        };
        assert_eq!(
            surplus(&entries, &[other_version, manifest("b").id]).len(),
            0
        );
    }
}
