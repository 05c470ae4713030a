//! A Work as it is kept: metadata, and of its status what is not in order.

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
        }
    }
}

/// Drops what nobody asks for: in a settled fleet nearly everything that agents report.
pub fn trim(work: &mut WorkMeta) {
    let Some(status) = &mut work.status else {
        return;
    };
    if let Some(list) = &mut status.manifest_conditions {
        list.retain(is_news);
        list.shrink_to_fit();
    }
    status.manifest_conditions.take_if(|list| list.is_empty());
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
    let label = |key: &str| work.labels().get(key).cloned().unwrap_or_default();
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
    work.annotations()
        .get(labels::WRITTEN)
        .is_some_and(|text| *text == written(generation, digest))
}

/// Whether a Work's spec is as the hub left it, whatever it asks for.
#[must_use]
pub fn is_untouched(work: &WorkMeta) -> bool {
    let generation = work.annotations().get(labels::WRITTEN).and_then(|text| {
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
