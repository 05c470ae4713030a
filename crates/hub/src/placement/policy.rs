//! Policy snapshots: versions of a placement's policy (API §3.5, hub §1.5).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use kube::ResourceExt;
use windlass_api::placement::PlacementPolicy;
use windlass_api::scoped::PolicySnapshot;
use windlass_api::snapshot::PolicySnapshotSpec;
use windlass_api::{labels, names};
use windlass_cluster::ObjectKey;
use windlass_status::digest::Digest;

/// What to write, in this order.
#[derive(Debug, Default)]
pub struct PolicyPlan {
    /// A new snapshot.
    pub create: Option<PolicySnapshot>,
    /// Snapshots whose labels or annotations change.
    pub update: Vec<PolicySnapshot>,
    /// Snapshots beyond the history limit.
    pub expired: Vec<Arc<PolicySnapshot>>,
    /// Name of the latest once all is written.
    pub latest: String,
}

/// What [`plan`] needs.
pub struct PolicyInputs<'a> {
    /// The placement.
    pub placement: &'a ObjectKey,
    /// UID of the placement.
    pub placement_uid: &'a str,
    /// Generation of the placement.
    pub generation: i64,
    /// Its policy.
    pub policy: Option<&'a PlacementPolicy>,
    /// The snapshots that exist.
    pub snapshots: &'a [Arc<PolicySnapshot>],
    /// How many are kept.
    pub history_limit: usize,
}

/// Decides what to write so that the present policy is the latest snapshot. PickN's number is left out of
/// the hash: scaling changes an annotation in place.
#[must_use]
pub fn plan(inputs: &PolicyInputs<'_>) -> PolicyPlan {
    let policy = inputs.policy.cloned().map(|policy| PlacementPolicy {
        number_of_clusters: None,
        ..policy
    });
    let hash = hash(policy.as_ref());
    let mut known: Vec<(u64, &Arc<PolicySnapshot>)> = inputs
        .snapshots
        .iter()
        .filter_map(|snapshot| Some((index_of(snapshot)?, snapshot)))
        .collect();
    known.sort_by_key(|(index, _)| *index);
    let mut plan = PolicyPlan::default();
    let current = known
        .last()
        .copied()
        .filter(|(_, snapshot)| snapshot.spec.policy_hash == hash);
    let latest_index = match current {
        Some((index, _)) => index,
        None => {
            let index = known.last().map_or(0, |(index, _)| index + 1);
            let name = names::policy_snapshot(&inputs.placement.name, index);
            let mut object = PolicySnapshot::new(
                &name,
                PolicySnapshotSpec {
                    policy,
                    policy_hash: hash,
                },
            )
            .within(&inputs.placement.namespace);
            object.metadata.labels = Some(BTreeMap::from([
                (
                    labels::PARENT_PLACEMENT.to_owned(),
                    inputs.placement.name.clone(),
                ),
                (labels::IS_LATEST_SNAPSHOT.to_owned(), "true".to_owned()),
                (labels::POLICY_INDEX.to_owned(), index.to_string()),
            ]));
            object.metadata.annotations = Some(annotations(inputs, BTreeMap::new()));
            object.metadata.owner_references = Some(vec![super::owner_reference(
                inputs.placement,
                inputs.placement_uid,
            )]);
            plan.create = Some(object);
            index
        }
    };
    plan.latest = names::policy_snapshot(&inputs.placement.name, latest_index);
    for (index, snapshot) in &known {
        if let Some(changed) = relabelled(inputs, snapshot, *index == latest_index) {
            plan.update.push(changed);
        }
    }
    let total = known.len() + usize::from(plan.create.is_some());
    let surplus = total.saturating_sub(inputs.history_limit.max(1));
    plan.expired = known
        .into_iter()
        .filter(|(index, _)| *index != latest_index)
        .take(surplus)
        .map(|(_, snapshot)| Arc::clone(snapshot))
        .collect();
    plan.update.retain(|changed| {
        !plan
            .expired
            .iter()
            .any(|gone| gone.name_any() == changed.name_any())
    });
    plan
}

/// The generation of its placement that was decided for last, by some policy snapshots: one may have been
/// written and not decided for. None if nothing was decided yet.
#[must_use]
pub fn decided_generation(snapshots: &[Arc<PolicySnapshot>]) -> Option<i64> {
    let known = snapshots
        .iter()
        .filter_map(|snapshot| Some((index_of(snapshot)?, snapshot.status.as_ref()?)));
    let (_, latest) = known.max_by_key(|(index, _)| *index)?;
    Some(latest.observed_crp_generation)
}

/// Index of the latest policy snapshot.
#[must_use]
pub fn latest_index(snapshots: &[Arc<PolicySnapshot>]) -> Option<u64> {
    snapshots
        .iter()
        .filter_map(|snapshot| index_of(snapshot))
        .max()
}

fn relabelled(
    inputs: &PolicyInputs<'_>,
    snapshot: &PolicySnapshot,
    latest: bool,
) -> Option<PolicySnapshot> {
    let mut changed = snapshot.clone();
    changed
        .labels_mut()
        .insert(labels::IS_LATEST_SNAPSHOT.to_owned(), latest.to_string());
    if latest {
        let existing = snapshot.annotations().clone();
        changed.metadata.annotations = Some(annotations(inputs, existing));
    }
    (changed.metadata != snapshot.metadata).then_some(changed)
}

fn annotations(
    inputs: &PolicyInputs<'_>,
    mut existing: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    existing.insert(
        labels::PLACEMENT_GENERATION.to_owned(),
        inputs.generation.to_string(),
    );
    match inputs.policy.and_then(|policy| policy.number_of_clusters) {
        Some(number) => existing.insert(labels::NUMBER_OF_CLUSTERS.to_owned(), number.to_string()),
        None => existing.remove(labels::NUMBER_OF_CLUSTERS),
    };
    existing
}

/// Hex SHA-256 text of the policy; the API shows it in base64.
fn hash(policy: Option<&PlacementPolicy>) -> ByteString {
    let value = serde_json::to_value(policy).unwrap_or_default();
    ByteString(Digest::of_json(&value).to_string().into_bytes())
}

fn index_of(snapshot: &PolicySnapshot) -> Option<u64> {
    snapshot.labels().get(labels::POLICY_INDEX)?.parse().ok()
}
