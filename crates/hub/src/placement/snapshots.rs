//! Resource snapshots: which groups exist, and what has to be written so that the present selection is
//! the latest one (API §3.6, hub §1.6, design §2).
//!
//! A group is a master and its further parts. Parts are created first and the master last, so that a
//! group with a master is complete; the label of the old latest goes after that. Readers take the highest
//! complete group. A crash between any two writes therefore leaves the old latest, or two labels of which
//! the higher one counts; what was begun and not finished is removed by the next pass.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use windlass_api::labels;
use windlass_api::names;
use windlass_api::scoped::{Scope, Snapshot};
use windlass_cluster::ObjectKey;
use windlass_member::manifest::Manifest;
use windlass_render::envelopes;
use windlass_status::digest::Digest;

use super::packing::{Places, pack};
use crate::select::renders;

/// Metadata of a snapshot object, as the watch delivers it.
pub type SnapshotMeta = PartialObjectMeta<Snapshot>;

/// One version of a placement's resources.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The master, once it exists.
    pub master: Option<Arc<SnapshotMeta>>,
    /// The further parts by position.
    pub parts: BTreeMap<u64, Arc<SnapshotMeta>>,
}

impl Group {
    /// Whether every part that the master counts is there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let Some(master) = &self.master else {
            return false;
        };
        let count = annotation(master, labels::NUMBER_OF_RESOURCE_SNAPSHOTS);
        count.and_then(|text| text.parse::<usize>().ok()) == Some(self.parts.len() + 1)
    }

    /// Hash of the group's content.
    #[must_use]
    pub fn hash(&self) -> Option<&str> {
        self.master
            .as_deref()
            .and_then(|master| annotation(master, labels::RESOURCE_HASH))
    }

    /// Name of the master.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        self.master.as_ref().map(|master| master.name_any())
    }

    fn is_labelled_latest(&self) -> bool {
        self.master.as_ref().is_some_and(|master| {
            master
                .labels()
                .get(labels::IS_LATEST_SNAPSHOT)
                .is_some_and(|value| value == "true")
        })
    }

    /// Its snapshot objects, by the number of the part.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<SnapshotMeta>> {
        // The master goes first: without it the group does not exist for readers.
        self.master.iter().chain(self.parts.values())
    }
}

/// The groups of a placement, by index.
#[derive(Clone, Debug, Default)]
pub struct Groups(BTreeMap<u64, Group>);

impl Groups {
    /// Sorts the snapshots of one placement into groups.
    #[must_use]
    pub fn of(snapshots: &[Arc<SnapshotMeta>]) -> Self {
        let mut groups: BTreeMap<u64, Group> = BTreeMap::new();
        for snapshot in snapshots {
            let Some(index) = index_of(snapshot) else {
                continue;
            };
            let group = groups.entry(index).or_default();
            match annotation(snapshot, labels::SUBINDEX).and_then(|text| text.parse().ok()) {
                Some(part) => {
                    group.parts.insert(part, Arc::clone(snapshot));
                }
                None => group.master = Some(Arc::clone(snapshot)),
            }
        }
        Self(groups)
    }

    /// The highest complete group.
    #[must_use]
    pub fn latest(&self) -> Option<(u64, &Group)> {
        self.0
            .iter()
            .rev()
            .find(|(_, group)| group.is_complete())
            .map(|(index, group)| (*index, group))
    }

    /// The highest complete group, as what is rolled out.
    #[must_use]
    pub fn newest(&self) -> Option<LatestSnapshot> {
        let (index, group) = self.latest()?;
        Some(LatestSnapshot {
            name: group.name().unwrap_or_default(),
            index,
            hash: group.hash().unwrap_or_default().to_owned(),
        })
    }

    /// The group whose master has that name.
    #[must_use]
    pub fn by_name(&self, master: &str) -> Option<(u64, &Group)> {
        self.0
            .iter()
            .find(|(_, group)| group.name().as_deref() == Some(master))
            .map(|(index, group)| (*index, group))
    }

    /// Indexes of the complete groups, in order.
    #[must_use]
    pub fn complete(&self) -> Vec<u64> {
        let complete = self.0.iter().filter(|(_, group)| group.is_complete());
        complete.map(|(index, _)| *index).collect()
    }

    /// Every snapshot object.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<SnapshotMeta>> {
        self.0.values().flat_map(Group::objects)
    }
}

/// What to write, in this order.
#[derive(Debug, Default)]
pub struct SnapshotPlan {
    /// Left-overs of a group that was never finished, to be deleted first.
    pub unfinished: Vec<Arc<SnapshotMeta>>,
    /// A new group, its master last.
    pub create: Vec<Snapshot>,
    /// Masters whose latest label has to become this.
    pub relabel: Vec<(Arc<SnapshotMeta>, bool)>,
    /// Old groups beyond the history limit, master first.
    pub expired: Vec<Arc<SnapshotMeta>>,
    /// Name, index and hash of the latest group once all is written.
    pub latest: LatestSnapshot,
}

impl SnapshotPlan {
    /// Whether nothing is to be written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.unfinished.is_empty()
            && self.create.is_empty()
            && self.relabel.is_empty()
            && self.expired.is_empty()
    }
}

/// The snapshot that the present selection is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatestSnapshot {
    /// Name of the master.
    pub name: String,
    /// Its index.
    pub index: u64,
    /// Hash of its content.
    pub hash: String,
}

/// What [`plan`] needs.
pub struct SnapshotInputs<'a> {
    /// The placement.
    pub placement: &'a ObjectKey,
    /// UID of the placement, for the owner reference.
    pub placement_uid: &'a str,
    /// What exists.
    pub groups: &'a Groups,
    /// The present selection, in order.
    pub manifests: &'a [Arc<Manifest>],
    /// Its hash.
    pub hash: Digest,
    /// Where its objects are in the latest group.
    pub places: &'a Places,
    /// How many versions are kept.
    pub history_limit: usize,
    /// Masters that some binding names; they are kept whatever the limit (design §5.15).
    pub in_use: &'a BTreeSet<String>,
}

/// Decides what to write so that the present selection is the latest snapshot.
#[must_use]
pub fn plan(inputs: &SnapshotInputs<'_>) -> SnapshotPlan {
    let hash = inputs.hash.to_string();
    let mut plan = SnapshotPlan::default();
    let groups = &inputs.groups.0;
    plan.unfinished = groups
        .values()
        .filter(|group| !group.is_complete())
        .flat_map(Group::objects)
        .cloned()
        .collect();
    match inputs.groups.latest() {
        Some((index, group)) if group.hash() == Some(&hash) => {
            plan.latest = LatestSnapshot {
                name: group.name().unwrap_or_default(),
                index,
                hash,
            };
        }
        _ => {
            // Indexes are never used twice, not even those of unfinished groups.
            let index = groups.last_key_value().map_or(0, |(index, _)| index + 1);
            plan.create = new_group(inputs, index, &hash);
            plan.latest = LatestSnapshot {
                name: names::master_snapshot(&inputs.placement.name, index),
                index,
                hash,
            };
        }
    }
    for (index, group) in groups.iter().filter(|(_, group)| group.is_complete()) {
        let latest = *index == plan.latest.index;
        if let Some(master) = &group.master
            && group.is_labelled_latest() != latest
        {
            plan.relabel.push((Arc::clone(master), latest));
        }
    }
    plan.expired = expired(inputs, &plan);
    plan
}

fn expired(inputs: &SnapshotInputs<'_>, plan: &SnapshotPlan) -> Vec<Arc<SnapshotMeta>> {
    let complete: Vec<(&u64, &Group)> = inputs
        .groups
        .0
        .iter()
        .filter(|(_, group)| group.is_complete())
        .collect();
    let total = complete.len() + usize::from(!plan.create.is_empty());
    let surplus = total.saturating_sub(inputs.history_limit.max(1));
    complete
        .into_iter()
        .filter(|(index, _)| **index != plan.latest.index)
        .take(surplus)
        .filter(|(_, group)| {
            group
                .name()
                .is_some_and(|name| !inputs.in_use.contains(&name))
        })
        .flat_map(|(_, group)| group.objects().cloned().collect::<Vec<_>>())
        .collect()
}

/// The objects of a new group: further parts first, the master last.
fn new_group(inputs: &SnapshotInputs<'_>, index: u64, hash: &str) -> Vec<Snapshot> {
    let chunks = pack(inputs.manifests, inputs.places);
    let count = chunks.len();
    let mut objects = Vec::with_capacity(count);
    for (position, chunk) in chunks.into_iter().enumerate() {
        let (name, annotations) = if position == 0 {
            let mut annotations = BTreeMap::from([
                (labels::RESOURCE_HASH.to_owned(), hash.to_owned()),
                (
                    labels::NUMBER_OF_RESOURCE_SNAPSHOTS.to_owned(),
                    count.to_string(),
                ),
                (
                    labels::NUMBER_OF_ENVELOPED_OBJECT.to_owned(),
                    envelopes(inputs.manifests.iter().map(|m| &m.object)).to_string(),
                ),
            ]);
            let renders = renders::named(inputs.manifests.iter().map(|manifest| &**manifest));
            annotations.extend(renders.map(|named| (labels::ADDON_RENDERS.to_owned(), named)));
            (
                names::master_snapshot(&inputs.placement.name, index),
                annotations,
            )
        } else {
            let part = position as u64 - 1;
            let annotations = BTreeMap::from([(labels::SUBINDEX.to_owned(), part.to_string())]);
            (
                names::sub_snapshot(&inputs.placement.name, index, part),
                annotations,
            )
        };
        objects.push(snapshot(
            inputs,
            index,
            position == 0,
            &name,
            annotations,
            &chunk,
        ));
    }
    objects.rotate_left(1);
    objects
}

fn snapshot(
    inputs: &SnapshotInputs<'_>,
    index: u64,
    master: bool,
    name: &str,
    annotations: BTreeMap<String, String>,
    chunk: &[&Arc<Manifest>],
) -> Snapshot {
    use windlass_api::raw::RawObject;
    use windlass_api::snapshot::ResourceSnapshotSpec;
    let selected_resources = chunk
        .iter()
        .map(|manifest| RawObject(manifest.object.clone()))
        .collect();
    let mut object = Snapshot::new(name, ResourceSnapshotSpec { selected_resources })
        .within(&inputs.placement.namespace);
    let mut marks = BTreeMap::from([
        (
            labels::PARENT_PLACEMENT.to_owned(),
            inputs.placement.name.clone(),
        ),
        (labels::RESOURCE_INDEX.to_owned(), index.to_string()),
    ]);
    if master {
        marks.insert(labels::IS_LATEST_SNAPSHOT.to_owned(), "true".to_owned());
    }
    object.metadata.labels = Some(marks);
    object.metadata.annotations = Some(annotations);
    object.metadata.owner_references = Some(vec![super::owner_reference(
        inputs.placement,
        inputs.placement_uid,
    )]);
    object
}

/// The server's refusal of a snapshot, with what a person can do about it: the largest object is named.
#[must_use]
pub fn refused(
    snapshot: &Snapshot,
    error: windlass_cluster::ApiError,
) -> windlass_cluster::ApiError {
    use windlass_cluster::ApiError;
    let ApiError::Rejected(why) = error else {
        return error;
    };
    let objects = &snapshot.spec.selected_resources;
    let largest = objects
        .iter()
        .map(|object| (object.0.to_string().len(), object))
        .max_by_key(|(size, _)| *size)
        .map(|(size, object)| {
            let id = Manifest::of_snapshot(object.0.clone()).id;
            format!(
                "; the largest object in it, {id}, has {} KiB as JSON",
                size.div_ceil(1024)
            )
        })
        .unwrap_or_default();
    ApiError::Rejected(format!(
        "what is selected can't be stored: resource snapshot {} is refused: {why}{largest}",
        snapshot.name_any()
    ))
}

/// Index of the group that a snapshot belongs to.
#[must_use]
pub fn index_of(snapshot: &SnapshotMeta) -> Option<u64> {
    snapshot.labels().get(labels::RESOURCE_INDEX)?.parse().ok()
}

fn annotation<'a>(snapshot: &'a SnapshotMeta, key: &str) -> Option<&'a str> {
    snapshot.annotations().get(key).map(String::as_str)
}

/// Metadata as the watch would deliver it.
#[must_use]
pub fn meta_of(metadata: kube::core::ObjectMeta) -> SnapshotMeta {
    use kube::core::metadata::PartialObjectMetaExt;
    metadata.into_response_partial::<Snapshot>()
}

/// Moves the latest label of a master without sending its content; fails when it has changed meanwhile.
///
/// # Errors
/// See [`windlass_cluster::ApiError`].
pub async fn relabel(
    writer: &windlass_cluster::Writer,
    snapshot: &SnapshotMeta,
    latest: bool,
) -> Result<SnapshotMeta, windlass_cluster::ApiError> {
    use windlass_cluster::ApiError;
    let kind = kube::core::ApiResource::erase::<Snapshot>(&Scope::of(snapshot));
    let path = format!(
        "/metadata/labels/{}",
        labels::IS_LATEST_SNAPSHOT.replace('/', "~1")
    );
    let patch = serde_json::from_value(serde_json::json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": snapshot.resource_version()},
        {"op": "add", "path": path, "value": latest.to_string()},
    ]))
    .map_err(|error| ApiError::Rejected(error.to_string()))?;
    let live = writer
        .json_patch_dyn(
            &kind,
            snapshot.metadata.namespace.as_deref(),
            &snapshot.name_any(),
            &patch,
        )
        .await?;
    Ok(meta_of(live.metadata))
}
