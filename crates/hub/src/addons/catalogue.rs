//! What a repository offers, as AddonCharts: written one by one, and pruned only after all are.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use serde_json::json;
use windlass_addons::catalogue::{Catalogue, InUse, chart_spec, object_name};
use windlass_addons::oci::{Known, KnownTags};
use windlass_api::addon::{AddonChart, AddonRepository, ChartSpec};
use windlass_api::labels;
use windlass_cluster::{ApiError, ObjectKey, Writer};
use windlass_status::Digest;

use super::{AddonCaches, BY_REPOSITORY};

/// AddonCharts written at once.
const AT_ONCE: usize = 8;
/// Longest value of a label.
const LABEL_LIMIT: usize = 63;

/// Brings the AddonCharts of a repository to what it offers. Charts that it does not offer any more go, but for
/// those that an Addon uses.
///
/// # Errors
/// The first one; the rest was tried all the same, but nothing is pruned then.
pub(super) async fn write(
    caches: &AddonCaches,
    writer: &Writer,
    repository: &AddonRepository,
    catalogue: &Catalogue,
    in_use: &InUse,
) -> Result<(), ApiError> {
    let name = repository.name_any();
    let mut before: BTreeMap<String, Arc<AddonChart>> = of(caches, &name)
        .into_iter()
        .map(|chart| (chart.name_any(), chart))
        .collect();
    let mut due = Vec::new();
    let gone = before.values().map(|chart| chart.spec.chart.clone());
    let gone: Vec<String> = gone
        .filter(|chart| !catalogue.charts.contains_key(chart) && in_use.contains_key(chart))
        .collect();
    for chart in catalogue.charts.keys().chain(&gone) {
        let object = object_name(&name, chart);
        // One that somebody has given to another repository stands in the way, and is ours all the same.
        let known = before
            .remove(&object)
            .or_else(|| caches.charts.get(&ObjectKey::cluster(&object)));
        let used = in_use.get(chart).map_or(&[][..], Vec::as_slice);
        let offered = catalogue.charts.get(chart);
        let spec = chart_spec(
            &name,
            chart,
            offered,
            known.as_ref().map(|known| &known.spec),
            used,
        );
        // An Addon that only names a version has nothing to keep of a chart that is not offered.
        if offered.is_none() && spec.versions.is_empty() {
            before.extend(known.map(|known| (object, known)));
            continue;
        }
        let new = chart_of(repository, &object, spec, known.as_deref());
        if known.as_deref() != Some(&new) {
            due.push((new, known.is_some()));
        }
    }
    let writes = stream::iter(due).map(|(new, exists)| async move {
        let written = if exists {
            writer.replace(&new).await
        } else {
            writer.create(&new).await
        };
        caches.charts.observe(written?);
        Ok::<(), ApiError>(())
    });
    let results: Vec<_> = writes.buffer_unordered(AT_ONCE).collect().await;
    results.into_iter().collect::<Result<(), _>>()?;
    for (_, chart) in before {
        caches.wanted().pruning(&chart.name_any());
        if let Err(error) = writer.delete(&*chart).await {
            caches.wanted().not_pruned(&chart.name_any());
            return Err(error);
        }
        caches.charts.observe_deleted(&chart);
    }
    Ok(())
}

/// The AddonCharts of a repository.
pub(super) fn of(caches: &AddonCaches, repository: &str) -> Vec<Arc<AddonChart>> {
    caches.charts.by_index(BY_REPOSITORY, repository)
}

/// What they say, for a registry that is asked for news alone.
pub(super) fn tags(caches: &AddonCaches, repository: &str) -> KnownTags {
    let all = of(caches, repository).into_iter().map(|chart| {
        let known = Known {
            description: chart.spec.description.clone(),
            versions: chart.spec.versions.clone(),
        };
        (chart.spec.chart.clone(), known)
    });
    all.collect()
}

/// Digest of what the AddonCharts of a repository say and of what belongs to them: another one than after the
/// last writing means that somebody has changed them.
pub(super) fn digest(caches: &AddonCaches, repository: &str) -> Digest {
    let all = of(caches, repository);
    let specs: Vec<_> = all
        .iter()
        .map(|chart| {
            let label = chart.labels().get(labels::ADDON_REPOSITORY);
            json!([
                chart.name_any(),
                chart.spec,
                label,
                chart.owner_references()
            ])
        })
        .collect();
    Digest::of_json(&json!(specs))
}

fn chart_of(
    repository: &AddonRepository,
    object: &str,
    spec: ChartSpec,
    known: Option<&AddonChart>,
) -> AddonChart {
    let mut chart = AddonChart::new(object, spec);
    if let Some(known) = known {
        chart.metadata = known.metadata.clone();
    }
    let name = repository.name_any();
    if name.len() <= LABEL_LIMIT {
        chart
            .labels_mut()
            .insert(labels::ADDON_REPOSITORY.to_owned(), name.clone());
    }
    chart.metadata.owner_references = Some(vec![OwnerReference {
        api_version: format!(
            "{}/{}",
            windlass_api::addon::GROUP,
            windlass_api::addon::VERSION
        ),
        kind: "AddonRepository".to_owned(),
        name,
        uid: repository.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    chart
}

/// The AddonChart of a chart, whoever reads it.
pub(super) fn get(caches: &AddonCaches, repository: &str, chart: &str) -> Option<Arc<AddonChart>> {
    caches
        .charts
        .get(&ObjectKey::cluster(object_name(repository, chart)))
}
