//! Which Works a binding needs, and what has to be written for that: pure.
//!
//! | what there is under the name | what happens |
//! |---|---|
//! | nothing | created |
//! | a Work of this placement with the content that is wanted, as the hub left it | kept |
//! | another one of this placement | replaced |
//! | one of this placement that is being deleted | waited for |
//! | one of another placement | the hashed name ([`names::hashed`]) is taken, and kept from then on |
//!
//! Works of this placement that are not wanted are deleted after the others are written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde_json::json;
use windlass_api::placement::{
    ApplyStrategy, EnvelopeIdentifier, EnvelopeType, ReportBackStrategy,
};
use windlass_api::pull::{Work, WorkSpec, WorkloadTemplate};
use windlass_api::raw::RawObject;
use windlass_api::{labels, names};
use windlass_cluster::ObjectKey;
use windlass_member::manifest::Manifest;
use windlass_member::unique;
use windlass_status::digest::Digest;

use super::work::{WorkMeta, is_current, is_untouched, parent_of, written};

/// Digits of a hash in a name.
const HASH_DIGITS: usize = 16;

/// The manifests of one Work.
#[derive(Clone, Debug)]
pub struct Group {
    /// Part of the resource snapshot that they are from.
    pub part: usize,
    /// The envelope that they came in.
    pub envelope: Option<EnvelopeIdentifier>,
    /// In order; shared with every cluster that gets them as they are.
    pub manifests: Vec<Arc<Manifest>>,
}

/// What a binding asks for.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The member's namespace.
    pub namespace: String,
    /// The placement.
    pub placement: ObjectKey,
    /// Name of the binding.
    pub binding: String,
    /// Name of the resource snapshot.
    pub snapshot: String,
    /// Index of the resource snapshot.
    pub index: u64,
    /// Hash of the ResourceOverride snapshots.
    pub overrides_hash: String,
    /// Hash of the ClusterResourceOverride snapshots.
    pub cluster_overrides_hash: String,
    /// How the manifests are applied.
    pub strategy: Option<ApplyStrategy>,
    /// Where their statuses go.
    pub report_back: Option<ReportBackStrategy>,
    /// Whether the usual names are known to be another placement's, by what is on the cluster.
    pub is_hashed: bool,
    /// One per Work.
    pub groups: Vec<Group>,
}

/// What becomes of a Work.
#[derive(Clone, Debug)]
pub enum Act {
    /// It is as it should be.
    Keep,
    /// It does not exist.
    Create,
    /// It is written anew.
    Replace(Arc<WorkMeta>),
    /// It is of an earlier binding, and being deleted.
    Wait,
}

/// One Work.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// Which of the groups it holds.
    pub group: usize,
    /// Digest of its spec.
    pub digest: Digest,
    /// What to do.
    pub act: Act,
}

/// What to do.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// One per group.
    pub items: Vec<Item>,
    /// Not wanted any more, and not being deleted yet.
    pub delete: Vec<Arc<WorkMeta>>,
}

impl Plan {
    /// Whether nothing has to be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.delete.is_empty()
            && self
                .items
                .iter()
                .all(|item| matches!(item.act, Act::Keep | Act::Wait))
    }
}

/// Decides. `existing` are the Works of the placement in the member's namespace; `find` looks one up by its
/// name, whoever's it is.
pub fn plan(
    wish: &Wish,
    existing: &[Arc<WorkMeta>],
    find: impl Fn(&str) -> Option<Arc<WorkMeta>>,
) -> Plan {
    let mut plan = Plan::default();
    let mut wanted = BTreeSet::new();
    for (at, group) in wish.groups.iter().enumerate() {
        let name = name_of(wish, group, existing, &find);
        let digest = digest_of(group, wish);
        let act = match existing.iter().find(|work| work.name_any() == name) {
            None => Act::Create,
            Some(live) if live.metadata.deletion_timestamp.is_some() => Act::Wait,
            Some(live) if is_current(live, digest) && is_of(live, wish) => Act::Keep,
            Some(live) => Act::Replace(Arc::clone(live)),
        };
        wanted.insert(name.clone());
        plan.items.push(Item {
            name,
            group: at,
            digest,
            act,
        });
    }
    plan.delete = existing
        .iter()
        .filter(|work| {
            work.metadata.deletion_timestamp.is_none() && !wanted.contains(&work.name_any())
        })
        .cloned()
        .collect();
    plan
}

fn is_of(work: &WorkMeta, wish: &Wish) -> bool {
    work.told(labels::PARENT_BINDING) == Some(&wish.binding)
}

/// A Work keeps the name that it has got: under another one everything in it would be made anew.
fn name_of(
    wish: &Wish,
    group: &Group,
    existing: &[Arc<WorkMeta>],
    find: &impl Fn(&str) -> Option<Arc<WorkMeta>>,
) -> String {
    if let Some(envelope) = &group.envelope {
        let same = |work: &&Arc<WorkMeta>| envelope_of(work).as_ref() == Some(envelope);
        if let Some(live) = existing.iter().find(same) {
            return live.name_any();
        }
    }
    let placement = &wish.placement;
    let base = names::work_base(&placement.namespace, &placement.name);
    let part = names::part_work(&base, group.part);
    let name = match &group.envelope {
        None => part,
        Some(envelope) => names::envelope_work(&part, &envelope_hash(envelope)),
    };
    let other = names::hashed(&name, &unique(placement));
    let has = |name: &str| existing.iter().any(|work| work.name_any() == name);
    let is_taken = || find(&name).is_some_and(|work| parent_of(&work) != *placement);
    if !has(&name) && (wish.is_hashed || has(&other) || is_taken()) {
        other
    } else {
        name
    }
}

fn envelope_hash(envelope: &EnvelopeIdentifier) -> String {
    short_hash(&json!([
        envelope.type_,
        envelope.namespace.as_deref().unwrap_or_default(),
        envelope.name
    ]))
}

fn short_hash(value: &serde_json::Value) -> String {
    let mut text = Digest::of_json(value).to_string();
    text.truncate(HASH_DIGITS);
    text
}

/// The envelope that a Work is of, by its labels.
#[must_use]
pub fn envelope_of(work: &WorkMeta) -> Option<EnvelopeIdentifier> {
    let kind: EnvelopeType =
        serde_json::from_value(json!(work.told(labels::ENVELOPE_KIND)?)).ok()?;
    Some(EnvelopeIdentifier {
        name: work.told(labels::ENVELOPE_NAME)?.to_owned(),
        namespace: work.told(labels::ENVELOPE_NAMESPACE).map(str::to_owned),
        type_: Some(kind),
    })
}

fn digest_of(group: &Group, wish: &Wish) -> Digest {
    let manifests: Vec<&Digest> = group.manifests.iter().map(|m| &m.digest).collect();
    let mut inputs = json!({ "manifests": manifests, "strategy": wish.strategy });
    if let Some(report_back) = &wish.report_back {
        inputs["reportBack"] = json!(report_back);
    }
    Digest::of_json(&inputs)
}

/// The Work of an item as it is sent. Copies the manifests, so one is made at a time.
#[must_use]
pub fn build(wish: &Wish, item: &Item) -> Work {
    let group = &wish.groups[item.group];
    let (live, generation) = match &item.act {
        Act::Replace(live) => {
            let now = live.metadata.generation.unwrap_or_default();
            // Only what says where and how it was written changes if the spec is as we left it and asks
            // for the same.
            let same = live
                .told(labels::WRITTEN)
                .is_some_and(|text| text.ends_with(&item.digest.to_string()));
            let stays = same && is_untouched(live);
            (Some(live), if stays { now } else { now + 1 })
        }
        Act::Keep | Act::Create | Act::Wait => (None, 1),
    };
    let mut metadata = live.map_or_else(
        || ObjectMeta {
            name: Some(item.name.clone()),
            namespace: Some(wish.namespace.clone()),
            ..ObjectMeta::default()
        },
        |live| live.metadata.clone(),
    );
    metadata
        .labels
        .get_or_insert_default()
        .extend(labels_of(wish, group));
    metadata
        .annotations
        .get_or_insert_default()
        .extend(annotations_of(wish, written(generation, item.digest)));
    let manifests = group
        .manifests
        .iter()
        .map(|manifest| RawObject(manifest.object.clone()))
        .collect();
    Work {
        metadata,
        spec: WorkSpec {
            workload: Some(WorkloadTemplate {
                manifests: Some(manifests),
            }),
            apply_strategy: wish.strategy.clone(),
            report_back_strategy: wish.report_back.clone(),
        },
        status: None,
    }
}

fn labels_of(wish: &Wish, group: &Group) -> BTreeMap<String, String> {
    let mut pairs = vec![
        (labels::PARENT_BINDING, wish.binding.clone()),
        (labels::PARENT_PLACEMENT, wish.placement.name.clone()),
        (labels::PARENT_SNAPSHOT_INDEX, wish.index.to_string()),
    ];
    if !wish.placement.namespace.is_empty() {
        pairs.push((labels::PARENT_NAMESPACE, wish.placement.namespace.clone()));
    }
    if let Some(envelope) = &group.envelope {
        let kind = json!(envelope.type_);
        pairs.push((
            labels::ENVELOPE_KIND,
            kind.as_str().unwrap_or_default().to_owned(),
        ));
        pairs.push((labels::ENVELOPE_NAME, envelope.name.clone()));
        if let Some(namespace) = &envelope.namespace {
            pairs.push((labels::ENVELOPE_NAMESPACE, namespace.clone()));
        }
    }
    pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
}

fn annotations_of(wish: &Wish, written: String) -> BTreeMap<String, String> {
    [
        (labels::PARENT_SNAPSHOT_NAME, wish.snapshot.clone()),
        (
            labels::PARENT_CLUSTER_OVERRIDES_HASH,
            wish.cluster_overrides_hash.clone(),
        ),
        (labels::PARENT_OVERRIDES_HASH, wish.overrides_hash.clone()),
        (labels::WRITTEN, written),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), v))
    .collect()
}

#[cfg(test)]
#[path = "plan_test.rs"]
mod tests;
