//! Delivering a desired state.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt};
use serde_json::json;
use windlass_api::conditions::ManifestReason;
use windlass_api::labels;
use windlass_api::placement::{ApplyStrategy, ApplyStrategyType, ComparisonOption, WhenToApply};
use windlass_api::work::{AppliedWork, AppliedWorkSpec, AppliedWorkStatus, Origin};
use windlass_cluster::{ApiError, Cache, clock};
use windlass_status::defaults::EffectiveApply;
use windlass_status::digest::Digest;

use crate::availability::{Availability, assess};
use crate::compare::first_difference;
use crate::inventory;
use crate::manifest::{Manifest, ManifestId, Problem};
use crate::member::{Member, WorkState, gvk_of, key_of};
use crate::object::{as_json, dynamic, has_hash_of, is_owned_by, prepared};
use crate::waves::wave;
use crate::{merge, ownership, takeover};

/// How long a wait for another object (a CRD to be established) lasts before the next look.
const WAIT: Duration = Duration::from_secs(2);
/// How long a manifest that was refused waits before it is tried again.
const RETRY_REFUSED: Duration = Duration::from_secs(30);

/// What a placement wants on a member.
pub struct Desired {
    /// Name of the Work.
    pub work_name: String,
    /// The hub namespace that the Work would be in.
    pub work_namespace: String,
    /// Digest of all of it.
    pub digest: Digest,
    /// How to apply.
    pub strategy: ApplyStrategy,
    /// The manifests.
    pub manifests: Arc<[Arc<Manifest>]>,
}

/// How a delivery went.
#[derive(Debug, Default)]
pub struct Outcome {
    /// One per manifest, in order.
    pub manifests: Vec<ManifestOutcome>,
    /// The placement asks for something that is not done in push mode yet; nothing was touched.
    pub unsupported: Option<String>,
    /// When to deliver again though nothing changes.
    pub retry: Option<Duration>,
    /// The cluster could not be reached: nothing can be said.
    pub error: Option<ApiError>,
}

/// How one manifest fared.
#[derive(Debug, Clone)]
pub struct ManifestOutcome {
    /// Which object.
    pub id: ManifestId,
    /// Why it is not applied.
    pub problem: Option<Problem>,
    /// How available it is, once applied.
    pub available: Option<Availability>,
    /// Generation of the member's object; 0 when there is none.
    pub generation: i64,
}

/// One manifest on its way.
struct Item<'a> {
    ordinal: usize,
    manifest: &'a Manifest,
    kind: Option<ApiResource>,
    cache: Option<Cache<DynamicObject>>,
    live: Option<Arc<DynamicObject>>,
    problem: Option<Problem>,
    /// The problem may go away without anybody acting.
    waits: bool,
    dirty: bool,
}

impl Member {
    /// Does what is missing. Call it whenever something may have changed.
    pub async fn deliver(&self, desired: &Desired) -> Outcome {
        let apply = EffectiveApply::of(Some(&desired.strategy));
        if let Some(message) = unsupported(apply) {
            return Outcome {
                unsupported: Some(message),
                ..Default::default()
            };
        }
        let state = self.work_state(&desired.work_name);
        let mut state = state.lock().await;
        match self.deliver_all(desired, apply, &mut state).await {
            Ok(outcome) => outcome,
            Err(error) => {
                // Somebody else may have written the AppliedWork: it is read again.
                state.applied = None;
                Outcome {
                    error: Some(error),
                    ..Default::default()
                }
            }
        }
    }

    async fn deliver_all(
        &self,
        desired: &Desired,
        apply: EffectiveApply,
        state: &mut WorkState,
    ) -> Result<Outcome, ApiError> {
        let mut work = self.ensure_work(desired, state).await?;
        let mut items = self.items(desired).await?;
        let uid = work.uid().unwrap_or_default();
        for item in &mut items {
            self.own(&item.manifest.id, &desired.work_name);
            item.dirty = item.problem.is_none() && !is_clean(item, &work, &uid, state);
        }
        if items.iter().any(|item| item.dirty) {
            work = self
                .write_ahead(work, &mut items, apply, &uid, state)
                .await?;
            self.apply_waves(&mut items, &work, apply, state).await?;
        }
        let pruned = self.prune(&mut work, &items).await?;
        let retry = [pruned, self.waits(&items, state)]
            .into_iter()
            .flatten()
            .min();
        self.record(work, &items, desired.digest, state).await?;
        Ok(Outcome {
            manifests: items.iter().map(outcome_of).collect(),
            retry,
            ..Default::default()
        })
    }

    async fn ensure_work(
        &self,
        desired: &Desired,
        state: &mut WorkState,
    ) -> Result<AppliedWork, ApiError> {
        if let Some(work) = &state.applied {
            return Ok(work.clone());
        }
        let api: Api<AppliedWork> = Api::all(self.writer.client().clone());
        let work = match api
            .get_opt(&desired.work_name)
            .await
            .map_err(ApiError::from_kube)?
        {
            Some(work) => work,
            None => {
                let spec = AppliedWorkSpec {
                    work_name: desired.work_name.clone(),
                    work_namespace: desired.work_namespace.clone(),
                };
                self.writer
                    .create(&AppliedWork::new(&desired.work_name, spec))
                    .await?
            }
        };
        if work.metadata.deletion_timestamp.is_some() {
            return Err(ApiError::transient(format!(
                "AppliedWork {} is still being deleted",
                desired.work_name
            )));
        }
        state.applied = Some(work.clone());
        Ok(work)
    }

    async fn items<'a>(&self, desired: &'a Desired) -> Result<Vec<Item<'a>>, ApiError> {
        let mut items = Vec::with_capacity(desired.manifests.len());
        let mut seen: HashMap<&ManifestId, usize> = HashMap::new();
        for (ordinal, manifest) in desired.manifests.iter().enumerate() {
            let mut item = Item {
                ordinal,
                manifest,
                kind: None,
                cache: None,
                live: None,
                problem: manifest.problem.clone(),
                waits: false,
                dirty: false,
            };
            if let Some(first) = seen
                .insert(&manifest.id, ordinal)
                .filter(|_| item.problem.is_none())
            {
                let message = format!("{} is there twice, first at position {first}", manifest.id);
                item.problem = Some(Problem {
                    reason: ManifestReason::Duplicated,
                    message,
                });
            }
            if item.problem.is_none() {
                self.resolve(&mut item, desired).await?;
            }
            items.push(item);
        }
        Ok(items)
    }

    async fn resolve(&self, item: &mut Item<'_>, desired: &Desired) -> Result<(), ApiError> {
        let id = &item.manifest.id;
        match self.discovery.kind(&gvk_of(id)).await? {
            Some(known) => {
                let cache = self.watched(&known.resource).await?;
                item.live = cache.get(&key_of(id));
                item.cache = Some(cache);
                item.kind = Some(known.resource);
            }
            None => {
                let coming = desired.manifests.iter().any(|other| defines(other, id));
                item.waits = true;
                item.problem = Some(if coming {
                    let message = format!("waiting for the kind {} to be established", id.kind);
                    Problem {
                        reason: ManifestReason::PreparingToProcess,
                        message,
                    }
                } else {
                    let message = format!(
                        "the kind {} of {}/{} is not known on this cluster; install it there, or place its CustomResourceDefinition too",
                        id.kind, id.group, id.version
                    );
                    Problem {
                        reason: ManifestReason::DecodingErred,
                        message,
                    }
                });
            }
        }
        Ok(())
    }

    /// Looks at objects that are not known to be ours, and records what is about to be applied.
    async fn write_ahead(
        &self,
        work: AppliedWork,
        items: &mut [Item<'_>],
        apply: EffectiveApply,
        uid: &str,
        state: &mut WorkState,
    ) -> Result<AppliedWork, ApiError> {
        let mut entries = work
            .status
            .clone()
            .unwrap_or_default()
            .applied_resources
            .unwrap_or_default();
        let before = entries.len();
        for item in items.iter_mut().filter(|item| item.dirty) {
            let Some(kind) = item.kind.clone() else {
                continue;
            };
            let id = &item.manifest.id;
            let known = item
                .live
                .as_ref()
                .is_some_and(|live| is_owned_by(live, uid));
            if known && inventory::find(&entries, id).is_some() {
                continue;
            }
            let live = self
                .writer
                .get_dyn(&kind, id.namespace.as_deref(), &id.name)
                .await?;
            let origin = match &live {
                None => Origin::Created,
                Some(live) if live.metadata.deletion_timestamp.is_some() => {
                    item.dirty = false;
                    item.waits = true;
                    let message =
                        format!("{id} is being deleted on the cluster; waiting for that to end");
                    item.problem = Some(Problem {
                        reason: ManifestReason::PreparingToProcess,
                        message,
                    });
                    continue;
                }
                Some(live) if is_owned_by(live, uid) => Origin::Created,
                Some(live) => match self.may_take_over(item.manifest, live, apply).await? {
                    Ok(()) => Origin::Adopted,
                    Err(problem) => {
                        item.dirty = false;
                        item.waits = true;
                        item.problem = Some(problem);
                        continue;
                    }
                },
            };
            if let Some(patch) = live.as_ref().and_then(ownership::migration) {
                self.writer
                    .json_patch_dyn(&kind, id.namespace.as_deref(), &id.name, &patch)
                    .await?;
            }
            inventory::record(
                &mut entries,
                item.ordinal,
                item.manifest,
                &kind.plural,
                origin,
            );
        }
        if entries.len() == before {
            return Ok(work);
        }
        let mut changed = work;
        changed.status.get_or_insert_default().applied_resources = Some(entries);
        let live = self.writer.replace_status(&changed).await?;
        state.applied = Some(live.clone());
        Ok(live)
    }

    /// As [`takeover::check`]; an AppliedWork that does not exist any more is no owner.
    async fn may_take_over(
        &self,
        manifest: &Manifest,
        live: &DynamicObject,
        apply: EffectiveApply,
    ) -> Result<Result<(), Problem>, ApiError> {
        let mut live = live.clone();
        let mut kept = Vec::new();
        for owner in live.metadata.owner_references.take().unwrap_or_default() {
            if owner.kind == "AppliedWork" {
                let api: Api<AppliedWork> = Api::all(self.writer.client().clone());
                let found = api
                    .get_opt(&owner.name)
                    .await
                    .map_err(ApiError::from_kube)?;
                if found.is_none_or(|found| found.metadata.uid.as_deref() != Some(&owner.uid)) {
                    continue;
                }
            }
            kept.push(owner);
        }
        live.metadata.owner_references = Some(kept);
        Ok(takeover::check(manifest, &live, apply))
    }

    async fn apply_waves(
        &self,
        items: &mut [Item<'_>],
        work: &AppliedWork,
        apply: EffectiveApply,
        state: &mut WorkState,
    ) -> Result<(), ApiError> {
        let mut waves: Vec<u16> = items
            .iter()
            .filter(|item| item.dirty)
            .map(|item| wave(&item.manifest.id))
            .collect();
        waves.sort_unstable();
        waves.dedup();
        for number in waves {
            let batch: Vec<&mut Item<'_>> = items
                .iter_mut()
                .filter(|item| item.dirty && wave(&item.manifest.id) == number)
                .collect();
            let due: Vec<&mut Item<'_>> = batch
                .into_iter()
                .filter_map(|item| is_due(item, state).then_some(item))
                .collect();
            let requests: Vec<_> = due
                .iter()
                .map(|item| self.apply(item, work, apply).boxed())
                .collect();
            let results: Vec<Result<DynamicObject, ApiError>> = stream::iter(requests)
                .buffered(self.concurrency)
                .collect()
                .await;
            for (item, result) in due.into_iter().zip(results) {
                settle(item, result, state)?;
            }
        }
        Ok(())
    }

    async fn apply(
        &self,
        item: &Item<'_>,
        work: &AppliedWork,
        apply: EffectiveApply,
    ) -> Result<DynamicObject, ApiError> {
        let Some(kind) = &item.kind else {
            return Err(ApiError::Rejected("the kind is not known".to_owned()));
        };
        let id = &item.manifest.id;
        let Some(object) = prepared(item.manifest, work) else {
            return Err(ApiError::Rejected(
                "the manifest's metadata is malformed".to_owned(),
            ));
        };
        let force = apply.type_ != ApplyStrategyType::ServerSideApply || apply.force_conflicts;
        let result = self.writer.apply_dyn(kind, &object, force).await;
        match result {
            Err(ApiError::Rejected(message) | ApiError::Transient { message, .. })
                if message.contains("duplicate entries for key") =>
            {
                self.merge(kind, id, as_json(&object)).await
            }
            other => other,
        }
    }

    /// For objects that server-side apply can't take.
    async fn merge(
        &self,
        kind: &ApiResource,
        id: &ManifestId,
        mut wanted: serde_json::Value,
    ) -> Result<DynamicObject, ApiError> {
        let record = wanted.to_string();
        wanted["metadata"]["annotations"][labels::LAST_APPLIED] = json!(record);
        let Some(live) = self
            .writer
            .get_dyn(kind, id.namespace.as_deref(), &id.name)
            .await?
        else {
            return self.writer.create_dyn(kind, &sendable(wanted)?).await;
        };
        let last = live
            .annotations()
            .get(labels::LAST_APPLIED)
            .and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
        let merged = merge::three_way(last.as_ref(), &as_json(&live), &wanted);
        self.writer.replace_dyn(kind, &sendable(merged)?).await
    }

    /// Removes what is no longer wanted; tells when to look again.
    async fn prune(
        &self,
        work: &mut AppliedWork,
        items: &[Item<'_>],
    ) -> Result<Option<Duration>, ApiError> {
        // What can't be read may be what the inventory names: nothing is pruned on such ground (I4).
        if items.iter().any(|item| item.manifest.problem.is_some()) {
            return Ok(None);
        }
        let wanted: Vec<ManifestId> = items.iter().map(|item| item.manifest.id.clone()).collect();
        let entries = work
            .status
            .clone()
            .unwrap_or_default()
            .applied_resources
            .unwrap_or_default();
        let surplus = inventory::surplus(&entries, &wanted);
        if surplus.is_empty() {
            return Ok(None);
        }
        let uid = work.uid().unwrap_or_default();
        let (gone, waits) = self.remove_entries(&surplus, &uid, false).await?;
        if let Some(list) = work
            .status
            .as_mut()
            .and_then(|status| status.applied_resources.as_mut())
        {
            list.retain(|entry| !gone.contains(&inventory::id_of(entry)));
        }
        Ok((!waits.is_empty()).then_some(WAIT))
    }

    fn waits(&self, items: &[Item<'_>], state: &WorkState) -> Option<Duration> {
        let now = clock::monotonic();
        let waiting = items
            .iter()
            .filter(|item| item.waits)
            .map(|item| match &item.problem {
                Some(problem) if problem.reason == ManifestReason::PreparingToProcess => WAIT,
                _ => RETRY_REFUSED,
            });
        let fights = state
            .fights
            .values()
            .filter(|(_, until)| *until > now)
            .map(|(_, until)| *until - now);
        waiting.chain(fights).min()
    }

    /// Records what was applied, if that says anything new.
    async fn record(
        &self,
        work: AppliedWork,
        items: &[Item<'_>],
        digest: Digest,
        state: &mut WorkState,
    ) -> Result<(), ApiError> {
        let previous = state
            .applied
            .as_ref()
            .and_then(|work| work.status.clone())
            .unwrap_or_default();
        let mut entries = work
            .status
            .clone()
            .unwrap_or_default()
            .applied_resources
            .unwrap_or_default();
        for item in items.iter().filter(|item| item.problem.is_none()) {
            let Some(live) = &item.live else { continue };
            if let Some(entry) = entries
                .iter_mut()
                .find(|e| inventory::same_object(&inventory::id_of(e), &item.manifest.id))
            {
                let same = entry.uid == live.metadata.uid
                    && entry
                        .digest
                        .as_deref()
                        .is_some_and(|d| item.manifest.digest.is(d));
                if !same {
                    entry.uid.clone_from(&live.metadata.uid);
                    entry.digest = Some(item.manifest.digest.to_string());
                    entry.generation = live.metadata.generation;
                    entry.ordinal = i32::try_from(item.ordinal).unwrap_or(i32::MAX);
                }
            }
        }
        let complete = items.iter().all(|item| item.problem.is_none());
        let next = AppliedWorkStatus {
            applied_resources: (!entries.is_empty()).then_some(entries),
            digest: if complete {
                Some(digest.to_string())
            } else {
                previous.digest.clone()
            },
        };
        if next != previous {
            let mut changed = work;
            changed.status = Some(next);
            state.applied = Some(self.writer.replace_status(&changed).await?);
        }
        Ok(())
    }
}

fn unsupported(apply: EffectiveApply) -> Option<String> {
    let what = if apply.reports_diff() {
        "applyStrategy.type ReportDiff"
    } else if apply.comparison == ComparisonOption::FullComparison {
        "applyStrategy.comparisonOption FullComparison"
    } else if apply.when_to_apply == WhenToApply::IfNotDrifted {
        "applyStrategy.whenToApply IfNotDrifted"
    } else {
        return None;
    };
    Some(format!(
        "{what} is not supported for clusters in push mode yet; nothing was changed there"
    ))
}

/// Whether a manifest is the CustomResourceDefinition of that kind.
fn defines(manifest: &Manifest, id: &ManifestId) -> bool {
    manifest.id.kind == "CustomResourceDefinition"
        && manifest
            .object
            .pointer("/spec/group")
            .and_then(|v| v.as_str())
            == Some(&id.group)
        && manifest
            .object
            .pointer("/spec/names/kind")
            .and_then(|v| v.as_str())
            == Some(&id.kind)
}

/// Whether nothing has to be sent for an object.
fn is_clean(item: &Item<'_>, work: &AppliedWork, work_uid: &str, state: &WorkState) -> bool {
    let Some(live) = &item.live else { return false };
    if !is_owned_by(live, work_uid)
        || !has_hash_of(live, item.manifest)
        || live.metadata.deletion_timestamp.is_some()
    {
        return false;
    }
    let id = &item.manifest.id;
    let version = (
        live.uid().unwrap_or_default(),
        live.resource_version().unwrap_or_default(),
    );
    if state.clean.get(id) == Some(&version) {
        return true;
    }
    let text = as_json(live);
    if first_difference(&item.manifest.object, &text).is_none() {
        return true;
    }
    // The server may write a value differently than the manifest does. As long as the generation is the
    // one that our apply left, the spec is what we applied; labels and annotations don't count in it.
    let entries = work
        .status
        .as_ref()
        .and_then(|status| status.applied_resources.as_deref())
        .unwrap_or_default();
    let metadata = json!({ "metadata": item.manifest.object["metadata"] });
    inventory::find(entries, id).is_some_and(|entry| {
        live.metadata
            .generation
            .is_some_and(|generation| generation > 0)
            && entry.generation == live.metadata.generation
            && entry.uid == live.metadata.uid
            && entry
                .digest
                .as_deref()
                .is_some_and(|digest| item.manifest.digest.is(digest))
            && first_difference(&metadata, &text).is_none()
    })
}

/// Whether an object that somebody keeps changing is applied again already.
fn is_due(item: &mut Item<'_>, state: &WorkState) -> bool {
    let due = state
        .fights
        .get(&item.manifest.id)
        .is_none_or(|(_, until)| *until <= clock::monotonic());
    if !due {
        item.dirty = false;
    }
    due
}

/// Takes note of how an apply went. An outage ends the pass.
fn settle(
    item: &mut Item<'_>,
    result: Result<DynamicObject, ApiError>,
    state: &mut WorkState,
) -> Result<(), ApiError> {
    let id = item.manifest.id.clone();
    match result {
        Ok(live) => {
            let drifted = item
                .live
                .as_ref()
                .is_some_and(|old| has_hash_of(old, item.manifest));
            if drifted {
                // It had our manifest and was changed: put back, more slowly each time.
                let (count, _) = state
                    .fights
                    .get(&id)
                    .copied()
                    .unwrap_or((0, clock::monotonic()));
                let pause = Duration::from_secs(1 << count.min(6)).min(Duration::from_secs(60));
                state
                    .fights
                    .insert(id.clone(), (count + 1, clock::monotonic() + pause));
            } else {
                state.fights.remove(&id);
            }
            state.clean.insert(
                id,
                (
                    live.uid().unwrap_or_default(),
                    live.resource_version().unwrap_or_default(),
                ),
            );
            if let Some(cache) = &item.cache {
                cache.observe(live.clone());
            }
            item.live = Some(Arc::new(live));
        }
        Err(error @ ApiError::Unauthorized(_)) => return Err(error),
        Err(error @ ApiError::Transient { .. }) => {
            // One object's webhook may be down; that is no outage of the cluster.
            item.waits = true;
            item.problem = Some(apply_failed(&error));
        }
        Err(error) => {
            item.waits = true;
            item.problem = Some(apply_failed(&error));
        }
    }
    Ok(())
}

fn sendable(object: serde_json::Value) -> Result<DynamicObject, ApiError> {
    dynamic(object).ok_or_else(|| ApiError::Rejected("the merged object is malformed".to_owned()))
}

fn apply_failed(error: &ApiError) -> Problem {
    Problem {
        reason: ManifestReason::ManifestApplyFailed,
        message: error.message().to_owned(),
    }
}

fn outcome_of(item: &Item<'_>) -> ManifestOutcome {
    let available = match (&item.problem, &item.live) {
        (None, Some(live)) => Some(assess(&item.manifest.id, &as_json(live))),
        (None, None) => Some(Availability::NotYet("it is not there yet".to_owned())),
        (Some(_), _) => None,
    };
    ManifestOutcome {
        id: item.manifest.id.clone(),
        problem: item.problem.clone(),
        available,
        generation: item
            .live
            .as_ref()
            .and_then(|live| live.metadata.generation)
            .unwrap_or(0),
    }
}
