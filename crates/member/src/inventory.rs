//! The inventory of an AppliedWork: what was, or is about to be, applied (design §2).

use std::collections::{HashMap, HashSet};

use windlass_api::work::{AppliedResourceMeta, Origin};

use crate::manifest::ManifestId;

/// Entries, found by object.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    entries: Vec<AppliedResourceMeta>,
    index: HashMap<ManifestId, usize>,
}

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

impl Inventory {
    /// Of entries as they stand in a status.
    #[must_use]
    pub fn of(entries: Option<&[AppliedResourceMeta]>) -> Self {
        let entries = entries.unwrap_or_default().to_vec();
        let index = entries
            .iter()
            .enumerate()
            .map(|(at, entry)| (id_of(entry).any_version(), at))
            .collect();
        Self { entries, index }
    }

    /// The entry of an object, whatever version it was applied in.
    #[must_use]
    pub fn get(&self, id: &ManifestId) -> Option<&AppliedResourceMeta> {
        self.entries.get(*self.index.get(&id.any_version())?)
    }

    /// The entry of an object, to be changed.
    pub fn get_mut(&mut self, id: &ManifestId) -> Option<&mut AppliedResourceMeta> {
        self.entries.get_mut(*self.index.get(&id.any_version())?)
    }

    /// Notes an object that is about to be applied. What was noted of another object of that name is
    /// forgotten. Tells whether it is not noted already.
    pub fn record(
        &mut self,
        ordinal: usize,
        id: &ManifestId,
        resource: &str,
        origin: Origin,
    ) -> bool {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let entry = AppliedResourceMeta {
            ordinal: i32::try_from(ordinal).unwrap_or(i32::MAX),
            group: some(&id.group),
            version: some(&id.version),
            kind: some(&id.kind),
            resource: some(resource),
            namespace: id.namespace.clone(),
            name: some(&id.name),
            uid: None,
            origin: Some(origin),
            generation: None,
            digest: None,
        };
        match self.get_mut(id) {
            Some(old) if *old == entry => return false,
            Some(old) => *old = entry,
            None => {
                self.index.insert(id.any_version(), self.entries.len());
                self.entries.push(entry);
            }
        }
        true
    }

    /// Entries whose objects are not among those that are wanted.
    #[must_use]
    pub fn surplus<'a>(
        &self,
        wanted: impl Iterator<Item = &'a ManifestId>,
    ) -> Vec<AppliedResourceMeta> {
        let wanted: HashSet<ManifestId> = wanted.map(ManifestId::any_version).collect();
        self.entries
            .iter()
            .filter(|entry| !wanted.contains(&id_of(entry).any_version()))
            .cloned()
            .collect()
    }

    /// The inventory without some objects.
    #[must_use]
    pub fn without(self, gone: &[ManifestId]) -> Self {
        let gone: HashSet<ManifestId> = gone.iter().map(ManifestId::any_version).collect();
        let left: Vec<_> = self
            .entries
            .into_iter()
            .filter(|entry| !gone.contains(&id_of(entry).any_version()))
            .collect();
        Self::of(Some(&left))
    }

    /// All entries.
    #[must_use]
    pub fn entries(&self) -> &[AppliedResourceMeta] {
        &self.entries
    }

    /// The entries as they stand in a status.
    #[must_use]
    pub fn into_status(self) -> Option<Vec<AppliedResourceMeta>> {
        (!self.entries.is_empty()).then_some(self.entries)
    }
}

/// What to note before an object is applied that does not exist, given what is noted.
#[must_use]
pub fn origin_of_absent(entry: Option<&AppliedResourceMeta>) -> Option<Origin> {
    match entry.map(|entry| entry.origin) {
        // An entry without origin is that of another implementation, which knows no other.
        Some(Some(Origin::Created) | None) => None,
        // It was adopted once and is gone: what will be there then is ours.
        Some(Some(Origin::Adopted)) | None => Some(Origin::Created),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(name: &str) -> ManifestId {
        ManifestId {
            version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: Some("n".into()),
            name: name.into(),
            ..Default::default()
        }
    }

    fn of(names: &[&str]) -> Inventory {
        let mut inventory = Inventory::default();
        for (ordinal, name) in names.iter().enumerate() {
            inventory.record(ordinal, &id(name), "configmaps", Origin::Created);
        }
        inventory
    }

    fn names(entries: &[AppliedResourceMeta]) -> Vec<String> {
        entries
            .iter()
            .filter_map(|entry| entry.name.clone())
            .collect()
    }

    #[test]
    fn an_object_has_one_entry_whatever_its_version() {
        let mut inventory = of(&["a", "b"]);
        inventory.record(
            5,
            &ManifestId {
                version: "v2".into(),
                ..id("a")
            },
            "configmaps",
            Origin::Adopted,
        );
        assert_eq!(inventory.entries().len(), 2);
        let entry = inventory.get(&id("a")).unwrap();
        assert_eq!(
            (entry.origin, entry.ordinal, entry.version.as_deref()),
            (Some(Origin::Adopted), 5, Some("v2"))
        );
        let other_version = ManifestId {
            version: "v3".into(),
            ..id("a")
        };
        assert_eq!(names(&inventory.surplus([other_version].iter())), ["b"]);
    }

    #[test]
    fn what_is_noted_is_not_noted_again() {
        let mut inventory = of(&["a"]);
        for (about, name, origin, expected) in [
            ("it is", "a", Origin::Created, false),
            ("another origin", "a", Origin::Adopted, true),
            ("now it is", "a", Origin::Adopted, false),
            ("another object", "b", Origin::Adopted, true),
        ] {
            let ordinal = usize::from(name == "b");
            let is_new = inventory.record(ordinal, &id(name), "configmaps", origin);
            assert_eq!(is_new, expected, "{about}");
        }
        inventory.get_mut(&id("a")).unwrap().digest = Some("applied".into());
        assert!(inventory.record(0, &id("a"), "configmaps", Origin::Adopted));
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let inventory = of(&["a", "b", "c"]).without(&[id("b")]);
        assert_eq!(names(inventory.entries()), ["a", "c"]);
        assert!(inventory.get(&id("b")).is_none() && inventory.get(&id("c")).is_some());
        assert_eq!(Inventory::default().into_status(), None);
    }

    #[test]
    fn origins_of_objects_that_do_not_exist() {
        let entry = |origin| AppliedResourceMeta {
            origin,
            ..Default::default()
        };
        assert_eq!(origin_of_absent(None), Some(Origin::Created));
        assert_eq!(origin_of_absent(Some(&entry(Some(Origin::Created)))), None);
        assert_eq!(origin_of_absent(Some(&entry(None))), None);
        assert_eq!(
            origin_of_absent(Some(&entry(Some(Origin::Adopted)))),
            Some(Origin::Created)
        );
    }

    proptest! {
        #[test]
        fn surplus_and_wanted_make_up_the_whole(all in proptest::collection::btree_set("[a-f]", 0..6),
                                                wanted in proptest::collection::btree_set("[a-f]", 0..6)) {
            let inventory = of(&all.iter().map(String::as_str).collect::<Vec<_>>());
            let ids: Vec<ManifestId> = wanted.iter().map(|name| id(name)).collect();
            let surplus: std::collections::BTreeSet<String> = names(&inventory.surplus(ids.iter())).into_iter().collect();
            prop_assert_eq!(surplus, all.difference(&wanted).cloned().collect());
        }
    }
}
