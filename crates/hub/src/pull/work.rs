//! A Work as it is kept: metadata, and of its status what is not in order. There is one for each binding, so
//! labels and annotations that the hub has put on are not kept as maps, and not at all if nobody reads them.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use windlass_api::conditions::Status;
use windlass_api::labels;
use windlass_api::pull::{ManifestCondition, Work, WorkStatus};
use windlass_cluster::ObjectKey;
use windlass_status::conditions::status;
use windlass_status::digest::Digest;

/// See the module.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
pub struct WorkMeta {
    /// Standard metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What the agent reported; [`trim`] leaves out objects that are in order.
    #[serde(default)]
    pub status: Option<WorkStatus>,
    /// Of the hub's own labels and annotations those in [`READ`], once [`trim`] has taken them out.
    #[serde(skip)]
    ours: Box<[(&'static str, Box<str>)]>,
}

/// Labels and annotations by which the hub knows a Work.
const READ: [&str; 7] = [
    labels::PARENT_BINDING,
    labels::PARENT_PLACEMENT,
    labels::PARENT_NAMESPACE,
    labels::ENVELOPE_KIND,
    labels::ENVELOPE_NAME,
    labels::ENVELOPE_NAMESPACE,
    labels::WRITTEN,
];
/// Those that are only there for others to read; the hub sets them with every write.
const UNREAD: [&str; 4] = [
    labels::PARENT_SNAPSHOT_INDEX,
    labels::PARENT_SNAPSHOT_NAME,
    labels::PARENT_OVERRIDES_HASH,
    labels::PARENT_CLUSTER_OVERRIDES_HASH,
];

impl WorkMeta {
    /// Value of a label or an annotation that is one of [`READ`].
    #[must_use]
    pub fn told(&self, key: &str) -> Option<&str> {
        let kept = self.ours.iter().find(|(known, _)| *known == key);
        let value = || {
            self.labels()
                .get(key)
                .or_else(|| self.annotations().get(key))
        };
        kept.map(|(_, value)| &**value)
            .or_else(|| value().map(String::as_str))
    }

    /// Whether labels and annotations are the same, but for those that nobody reads.
    #[must_use]
    pub fn is_marked_as(&self, other: &Self) -> bool {
        self.ours == other.ours
            && self.metadata.labels == other.metadata.labels
            && self.metadata.annotations == other.metadata.annotations
    }
}

impl Resource for WorkMeta {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Work::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Work::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Work::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Work::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl From<Work> for WorkMeta {
    fn from(work: Work) -> Self {
        Self {
            metadata: work.metadata,
            status: work.status,
            ours: Box::default(),
        }
    }
}

/// Drops what nobody asks for: in a settled fleet nearly everything that agents report.
pub fn trim(work: &mut WorkMeta) {
    trim_marks(work);
    let Some(status) = &mut work.status else {
        return;
    };
    status.conditions.shrink_to_fit();
    if let Some(list) = &mut status.manifest_conditions {
        list.retain(is_news);
        list.shrink_to_fit();
    }
    status.manifest_conditions.take_if(|list| list.is_empty());
}

fn trim_marks(work: &mut WorkMeta) {
    let marks = |key: &&'static str| Some((*key, Box::from(work.told(key)?)));
    work.ours = READ.iter().filter_map(marks).collect();
    for map in [&mut work.metadata.labels, &mut work.metadata.annotations] {
        if let Some(map) = map {
            map.retain(|key, _| !READ.contains(&&**key) && !UNREAD.contains(&&**key));
        }
        map.take_if(|map| map.is_empty());
    }
}

fn is_news(manifest: &ManifestCondition) -> bool {
    manifest.drift_details.is_some()
        || manifest.diff_details.is_some()
        || manifest.back_reported_status.is_some()
        || manifest
            .conditions
            .iter()
            .any(|c| status(c) != Status::True)
}

/// The placement that a Work is of.
#[must_use]
pub fn parent_of(work: &WorkMeta) -> ObjectKey {
    let label = |key: &str| work.told(key).unwrap_or_default();
    ObjectKey::namespaced(
        label(labels::PARENT_NAMESPACE),
        label(labels::PARENT_PLACEMENT),
    )
}

/// What a Work says of how the hub left it, as it stands in [`labels::WRITTEN`].
#[must_use]
pub fn written(generation: i64, digest: Digest) -> String {
    format!("{generation}/{digest}")
}

/// Whether a Work's spec is what has that digest, as the hub left it.
#[must_use]
pub fn is_current(work: &WorkMeta, digest: Digest) -> bool {
    let generation = work.metadata.generation.unwrap_or_default();
    work.told(labels::WRITTEN)
        .is_some_and(|text| text == written(generation, digest))
}

/// Whether a Work's spec is as the hub left it, whatever it asks for.
#[must_use]
pub fn is_untouched(work: &WorkMeta) -> bool {
    let generation = work.told(labels::WRITTEN).and_then(|text| {
        let (generation, _) = text.split_once('/')?;
        generation.parse::<i64>().ok()
    });
    generation.is_some() && generation == work.metadata.generation
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn neither_specs_nor_good_news_are_kept() {
        let good = json!({"type": "Applied", "status": "True", "reason": "Applied", "message": "",
                          "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let mut bad = good.clone();
        bad["status"] = json!("False");
        let object = |name: &str, condition: &serde_json::Value| {
            json!({
            "identifier": {"ordinal": 0, "name": name}, "conditions": [condition]})
        };
        let mut drifted = object("c", &good);
        drifted["driftDetails"] = json!({"observationTime": "2026-01-01T00:00:00Z",
            "firstDriftedObservedTime": "2026-01-01T00:00:00Z", "observedInMemberClusterGeneration": 1});
        let mut work: WorkMeta = serde_json::from_value(json!({
            "metadata": {"name": "w"},
            "spec": {"workload": {"manifests": [{"kind": "X"}]}},
            "status": {"conditions": [good],
                       "manifestConditions": [object("a", &good), object("b", &bad), drifted]},
        }))
        .unwrap();
        trim(&mut work);
        let kept: Vec<_> = work.status.unwrap().manifest_conditions.unwrap();
        let names: Vec<_> = kept
            .iter()
            .filter_map(|m| m.identifier.name.as_deref())
            .collect();
        assert_eq!(names, ["b", "c"]);
    }

    #[test]
    fn what_the_hub_put_on_is_known_by_its_value_and_what_others_did_stays_as_it_is() {
        let whole: WorkMeta = serde_json::from_value(json!({ "metadata": {
            "name": "w", "generation": 3,
            "labels": { labels::PARENT_BINDING: "b", labels::PARENT_PLACEMENT: "web",
                        labels::PARENT_NAMESPACE: "n", labels::PARENT_SNAPSHOT_INDEX: "7", "theirs": "x" },
            "annotations": { labels::PARENT_SNAPSHOT_NAME: "web-7-snapshot",
                             labels::WRITTEN: written(3, Digest::of_bytes(b"a")) },
        } }))
        .unwrap();
        let mut kept = whole.clone();
        trim(&mut kept);
        trim(&mut kept);
        assert_eq!(kept.labels().len(), 1, "{:?}", kept.labels());
        assert_eq!(kept.labels()["theirs"], "x");
        assert_eq!(kept.metadata.annotations, None);
        for work in [&whole, &kept] {
            assert_eq!(parent_of(work), ObjectKey::namespaced("n", "web"));
            assert_eq!(work.told(labels::PARENT_BINDING), Some("b"));
            assert_eq!(work.told(labels::ENVELOPE_NAME), None);
            assert!(is_current(work, Digest::of_bytes(b"a")) && is_untouched(work));
        }
        let mut another = whole.clone();
        let label = (labels::PARENT_BINDING.to_owned(), "c".to_owned());
        another.labels_mut().extend([label]);
        trim(&mut another);
        assert!(!another.is_marked_as(&kept) && kept.is_marked_as(&kept));
    }

    #[test]
    fn a_work_that_somebody_changed_is_not_current() {
        let digest = Digest::of_bytes(b"a");
        let mut work = WorkMeta::default();
        work.metadata.generation = Some(2);
        assert!(!is_current(&work, digest) && !is_untouched(&work));
        work.annotations_mut()
            .insert(labels::WRITTEN.into(), written(2, digest));
        assert!(is_current(&work, digest) && is_untouched(&work));
        assert!(!is_current(&work, Digest::of_bytes(b"b")));
        work.metadata.generation = Some(3);
        assert!(!is_current(&work, digest) && !is_untouched(&work));
    }
}
