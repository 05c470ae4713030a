//! Applying what needs it, wave by wave.

use std::sync::Arc;

use futures::FutureExt;
use kube::core::{ApiResource, DynamicObject};
use serde_json::Value;
use windlass_api::conditions::ManifestReason;
use windlass_api::labels;
use windlass_api::placement::ApplyStrategyType;
use windlass_cluster::{ApiError, clock};

use crate::item::{Basis, Facts, Item, Todo};
use crate::manifest::{Manifest, ManifestId};
use crate::member::Member;
use crate::merge;
use crate::object::{annotation, as_json, is_managed_by_us_only, prepared, state_of};
use crate::schema::Schema;
use crate::waves::wave;

/// How an apply failed.
enum Refusal {
    /// The server's answer.
    Answer(ApiError),
    /// The object has changed since it was looked at; the next look sees it.
    Raced,
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::Answer(error)
    }
}

impl Member {
    /// Applies what needs it. A failure stops nothing else (member §7).
    ///
    /// # Errors
    /// When the cluster does not accept us any more.
    pub(crate) async fn apply_waves(
        &self,
        items: &mut [Item<'_>],
        facts: &Facts,
    ) -> Result<(), ApiError> {
        let is_due = |item: &Item<'_>| matches!(item.todo, Todo::Apply(_));
        let mut waves: Vec<u16> = items
            .iter()
            .filter(|item| is_due(item))
            .map(|item| wave(item.id()))
            .collect();
        waves.sort_unstable();
        waves.dedup();
        for number in waves {
            let batch: Vec<&mut Item<'_>> = items
                .iter_mut()
                .filter(|item| is_due(item) && wave(item.id()) == number)
                .collect();
            let requests = batch.iter().map(|item| self.apply(item, facts).boxed());
            let answers = self.all(requests.collect()).await;
            for (item, answer) in batch.into_iter().zip(answers) {
                self.settle(item, answer, facts)?;
            }
        }
        Ok(())
    }

    fn settle(
        &self,
        item: &mut Item<'_>,
        answer: Result<DynamicObject, Refusal>,
        facts: &Facts,
    ) -> Result<(), ApiError> {
        let Todo::Apply(basis) = std::mem::replace(&mut item.todo, Todo::Nothing) else {
            return Ok(());
        };
        match answer {
            Ok(live) => {
                let before = item.live.as_deref().map(state_of);
                let changed = before.as_ref() != Some(&state_of(&live));
                self.memory.applied(
                    facts.work_name(),
                    item.id(),
                    state_of(&live),
                    basis.put_back && changed,
                    clock::monotonic(),
                );
                item.met = basis.absent && !is_managed_by_us_only(&live);
                item.applied = true;
                item.live = Some(Arc::new(live.clone()));
                if let Some(kind) = &item.kind {
                    self.watches.observe(kind, live);
                }
                Ok(())
            }
            Err(Refusal::Raced) => {
                item.wait(
                    "it has changed on the cluster while it was applied; it is looked at again"
                        .to_owned(),
                );
                Ok(())
            }
            Err(Refusal::Answer(error @ ApiError::Unauthorized(_))) => Err(error),
            Err(Refusal::Answer(error)) => {
                if is_unknown_kind(&error) {
                    self.discovery.invalidate();
                }
                let message = explain(item.id(), &error);
                self.failed(
                    item,
                    facts,
                    ManifestReason::ManifestApplyFailed,
                    &error,
                    message,
                );
                Ok(())
            }
        }
    }

    async fn apply(&self, item: &Item<'_>, facts: &Facts) -> Result<DynamicObject, Refusal> {
        let (Some(kind), Todo::Apply(basis)) =
            (item.kind.as_ref().map(|kind| &kind.resource), &item.todo)
        else {
            return Err(Refusal::Raced);
        };
        self.migrate(kind, item.id(), basis).await?;
        let object = prepared(item.manifest, &facts.work)
            .ok_or_else(|| ApiError::Rejected("the manifest's metadata is malformed".to_owned()))?;
        // The API's client-side apply takes every field that the manifest has, as a forced apply does.
        let force =
            facts.apply.type_ != ApplyStrategyType::ServerSideApply || facts.apply.force_conflicts;
        // A record of a merge owns fields by updates: they have to become ours by apply first.
        let merged = item
            .live
            .as_deref()
            .is_some_and(|live| annotation(live, labels::LAST_APPLIED).is_some());
        if merged && basis.migration.is_none() {
            self.migrate_live(kind, item.id()).await?;
        }
        match self.writer.apply_dyn(kind, &object, force).await {
            Err(error) if repeats_a_key(&error) => self.merge(kind, item.manifest, &object).await,
            Err(error @ ApiError::Conflict(_)) if !force => {
                // Nobody else is there to be in conflict with but earlier selves (member §11.3).
                let live = self
                    .writer
                    .get_dyn(kind, item.id().namespace.as_deref(), &item.id().name)
                    .await?;
                if live.is_some_and(|live| is_managed_by_us_only(&live)) {
                    Ok(self.writer.apply_dyn(kind, &object, true).await?)
                } else {
                    Err(Refusal::Answer(error))
                }
            }
            other => Ok(other?),
        }
    }

    async fn migrate(
        &self,
        kind: &ApiResource,
        id: &ManifestId,
        basis: &Basis,
    ) -> Result<(), Refusal> {
        let Some(patch) = &basis.migration else {
            return Ok(());
        };
        match self
            .writer
            .json_patch_dyn(kind, id.namespace.as_deref(), &id.name, patch)
            .await
        {
            Ok(_) => Ok(()),
            Err(ApiError::Conflict(_) | ApiError::NotFound(_)) => Err(Refusal::Raced),
            Err(error) => Err(Refusal::Answer(error)),
        }
    }

    async fn migrate_live(&self, kind: &ApiResource, id: &ManifestId) -> Result<(), Refusal> {
        let live = self
            .writer
            .get_dyn(kind, id.namespace.as_deref(), &id.name)
            .await?;
        let none = std::collections::BTreeSet::new();
        let migration = live.and_then(|live| crate::ownership::migration(&live, &none));
        self.migrate(
            kind,
            id,
            &Basis {
                migration,
                ..Basis::default()
            },
        )
        .await
    }

    /// For objects that server-side apply can't take, because a list in them repeats a key.
    async fn merge(
        &self,
        kind: &ApiResource,
        manifest: &Manifest,
        object: &DynamicObject,
    ) -> Result<DynamicObject, Refusal> {
        let id = &manifest.id;
        let wanted = merge::recorded(as_json(object));
        let Some(live) = self
            .writer
            .get_dyn(kind, id.namespace.as_deref(), &id.name)
            .await?
        else {
            return match self.writer.create_dyn(kind, &sendable(wanted)?).await {
                Err(ApiError::AlreadyExists(_)) => Err(Refusal::Raced),
                other => Ok(other?),
            };
        };
        let record = annotation(&live, labels::LAST_APPLIED);
        let last = record.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let live = as_json(&live);
        let merged = merge::three_way(Schema::of(id), last.as_ref(), &live, &wanted);
        if merged == live {
            return Ok(sendable(live)?);
        }
        match self.writer.replace_dyn(kind, &sendable(merged)?).await {
            Err(ApiError::Conflict(_)) => Err(Refusal::Raced),
            other => Ok(other?),
        }
    }
}

fn sendable(object: Value) -> Result<DynamicObject, ApiError> {
    serde_json::from_value(object)
        .map_err(|_| ApiError::Rejected("the merged object is malformed".to_owned()))
}

/// Whether server-side apply can't take an object because a list in it repeats a key.
fn repeats_a_key(error: &ApiError) -> bool {
    matches!(error, ApiError::Rejected(_) | ApiError::Transient { .. })
        && error.message().contains("duplicate entries for key")
}

/// Whether the server has forgotten a kind that it knew.
fn is_unknown_kind(error: &ApiError) -> bool {
    matches!(error, ApiError::NotFound(message) if message.contains("could not find the requested resource"))
}

/// The server's words, with what to do, and without what nobody may read.
fn explain(id: &ManifestId, error: &ApiError) -> String {
    let message = error.message();
    // The server answers an object that does not fit its schema with what it found in place.
    if id.group.is_empty() && id.kind == "Secret" && message.contains("typed patch object") {
        return "the manifest does not fit the schema of a Secret; its values have to be texts in base64".to_owned();
    }
    match (error, &id.namespace) {
        (ApiError::NotFound(_), Some(namespace)) if message.starts_with("namespaces ") => {
            format!(
                "the namespace {namespace} does not exist on this cluster; place it too, or create it there"
            )
        }
        (ApiError::Conflict(_), _) => {
            format!(
                "{message}; set serverSideApplyConfig.force to take the fields, or take them out of the manifest"
            )
        }
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(kind: &str) -> ManifestId {
        ManifestId {
            version: "v1".into(),
            kind: kind.into(),
            namespace: Some("n".into()),
            name: "a".into(),
            ..Default::default()
        }
    }

    #[test]
    fn messages_say_what_to_do_and_hold_no_secret() {
        let typed = "failed to create typed patch object (n/a; /v1, Kind=Secret): .data.k: expected string, got 12345";
        let rows = [
            (
                "ConfigMap",
                ApiError::NotFound("namespaces \"n\" not found".into()),
                "the namespace n does not exist on this cluster; place it too, or create it there",
            ),
            (
                "Secret",
                ApiError::transient(typed),
                "the manifest does not fit the schema of a Secret; its values have to be texts in base64",
            ),
            (
                "ConfigMap",
                ApiError::Rejected("field is immutable".into()),
                "field is immutable",
            ),
        ];
        for (kind, error, expected) in rows {
            assert_eq!(explain(&id(kind), &error), expected);
        }
    }

    #[test]
    fn repeated_keys_are_told_from_the_answer() {
        let text = "failed to create typed patch object: .spec.env: duplicate entries for key [name=\"A\"]";
        assert!(repeats_a_key(&ApiError::transient(text)));
        assert!(repeats_a_key(&ApiError::Rejected(text.into())));
        assert!(!repeats_a_key(&ApiError::Conflict(text.into())));
        assert!(!repeats_a_key(&ApiError::Rejected(
            "field is immutable".into()
        )));
    }
}
