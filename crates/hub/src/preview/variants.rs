//! What each cluster gets: the content with the overrides worked in, as delivery does it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt;
use windlass_api::binding::BindingSpec;
use windlass_cluster::ObjectKey;
use windlass_member::manifest::Manifest;
use windlass_scheduler::Schedule;
use windlass_status::digest::Digest;

use super::{Fault, Live, Resource, Variant};
use crate::contents::{Content, identifier};
use crate::placement::snapshots::LatestSnapshot;
use crate::render::{self, Refusal};
use crate::select::Selection;

/// What decides whether two clusters get the same.
type Form = Result<Vec<Digest>, Refusal>;

/// What the selected clusters get; those that get the same stand together, in the order of their first.
pub(super) fn of(
    live: &Live,
    schedule: &Schedule,
    latest: &LatestSnapshot,
    selection: &Selection,
) -> Vec<Variant> {
    let content = content(live, latest, selection);
    let labels: BTreeMap<String, &BTreeMap<String, String>> = live
        .clusters
        .iter()
        .map(|cluster| (cluster.name_any(), cluster.labels()))
        .collect();
    let none = BTreeMap::new();
    let mut variants: Vec<Variant> = Vec::new();
    let mut known: BTreeMap<Form, usize> = BTreeMap::new();
    for decision in &schedule.selected {
        let cluster = &decision.cluster_name;
        let mut spec = BindingSpec {
            target_cluster: cluster.clone(),
            ..BindingSpec::default()
        };
        live.overrides.lists(&spec).set(&mut spec);
        let versions = live.overrides.versions(&spec);
        let labels = labels.get(cluster).copied().unwrap_or(&none);
        let confinement = live.filter.confinement();
        let rendered = render::manifests(&content, &versions, cluster, labels, confinement);
        let form = match &rendered {
            Ok(manifests) => Ok(manifests.iter().map(|manifest| manifest.digest).collect()),
            Err(refusal) => Err(refusal.clone()),
        };
        let at = *known.entry(form).or_insert(variants.len());
        match variants.get_mut(at) {
            Some(variant) => variant.clusters.push(cluster.clone()),
            None => variants.push(variant(cluster, &content, rendered)),
        }
    }
    variants
}

/// The content as the hub reads it back from the snapshot: envelopes opened.
pub(super) fn content(live: &Live, latest: &LatestSnapshot, selection: &Selection) -> Content {
    let objects = selection.manifests.iter();
    let objects = objects.map(|manifest| manifest.object.clone()).collect();
    let opened = render::open(objects, &[], &live.filter);
    Content {
        placement: ObjectKey::of(&live.placement),
        name: latest.name.clone(),
        index: latest.index,
        hash: latest.hash.clone(),
        manifests: opened.manifests,
        selected: opened.selected,
        problems: opened.problems,
    }
}

fn variant(
    cluster: &str,
    content: &Content,
    rendered: Result<Arc<[Arc<Manifest>]>, Refusal>,
) -> Variant {
    let mut variant = Variant {
        clusters: vec![cluster.to_owned()],
        resources: Vec::new(),
        left_out: Vec::new(),
        manifests: None,
        fault: None,
    };
    let manifests = match rendered {
        Ok(manifests) => manifests,
        Err(refusal) => {
            variant.fault = Some(Fault::of(refusal));
            return variant;
        }
    };
    let as_they_are: BTreeSet<Digest> = content.manifests.iter().map(|m| m.digest).collect();
    for manifest in manifests.iter() {
        variant.resources.push(Resource {
            id: identifier(manifest),
            changed: !as_they_are.contains(&manifest.digest),
        });
    }
    let kept: BTreeSet<_> = manifests.iter().map(|manifest| &manifest.id).collect();
    let left_out = content.manifests.iter();
    let left_out = left_out.filter(|manifest| !kept.contains(&manifest.id));
    variant.left_out = left_out.map(|manifest| identifier(manifest)).collect();
    let objects = manifests.iter().map(|manifest| manifest.object.clone());
    variant.manifests = Some(objects.collect());
    variant
}
