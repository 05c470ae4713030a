//! What differs for clusters with an agent: the way to them. What the binding says has the same form.

use std::sync::Arc;

use kube::ResourceExt;
use serde_json::json;
use windlass_api::names;
use windlass_api::placement::ApplyStrategyType;
use windlass_api::scoped::Binding;
use windlass_cluster::{ApiError, ObjectKey};
use windlass_member::RemovalMode;
use windlass_member::manifest::Manifest;
use windlass_status::digest::Digest;

use super::clock::{About, sooner};
use super::{Delivery, Report, parent};
use crate::contents::Content;
use crate::pull::deliver::{Delivered, Removing};
use crate::pull::plan::{Group, Wish};
use crate::pull::read::Reading;
use crate::report_back;
use crate::worker::Next;

impl Delivery {
    /// Has a binding's Works be as they should be, and passes on what their agent says.
    pub(super) async fn deliver_pull(
        &self,
        binding: &Binding,
        content: &Content,
        manifests: &[Arc<Manifest>],
        digest: Digest,
    ) -> Result<Next, ApiError> {
        let cluster = &binding.spec.target_cluster;
        let mut wish = wish(binding, content, manifests);
        wish.report_back = self.report_back_strategy(&content.placement);
        let report_diff = wish
            .strategy
            .as_ref()
            .is_some_and(|strategy| strategy.type_ == Some(ApplyStrategyType::ReportDiff));
        if !self.split(binding, &mut wish).await? {
            return Ok(Next::Event);
        }
        let key = ObjectKey::of(binding);
        match self.pull.deliver(&key, cluster, &wish, report_diff).await {
            Ok(Delivered::NotPrepared) => Ok(Next::Event),
            Ok(Delivered::Waits(moment)) => Ok(Next::After(moment)),
            Ok(Delivered::Told(reading)) => {
                let copied = if self.is_mirrored(&content.placement) {
                    let works = self.pull.current(cluster, &wish);
                    let statuses = report_back::of_works(&works, manifests);
                    Some(
                        self.report_back
                            .copy(&key, &content.placement, statuses)
                            .await,
                    )
                } else {
                    None
                };
                let late = self
                    .write_status(binding, About::Given(digest, content), |report| {
                        report.reading(reading);
                        report.reported_back(copied.as_ref());
                    })
                    .await?;
                let next = match copied {
                    Some(Err(error)) => Next::Backoff(error.retry_after()),
                    Some(Ok((_, Some(again)))) => Next::After(again),
                    Some(Ok((_, None))) | None => Next::Event,
                };
                Ok(sooner(next, late))
            }
            Err(error @ ApiError::Rejected(_)) => {
                let message = format!("writing the Works failed: {}", error.message());
                let about = About::NotTaken(digest);
                self.write_status(binding, about, |report| report.sync_failed(message))
                    .await?;
                Ok(Next::Backoff(error.retry_after()))
            }
            Err(error) => Err(error),
        }
    }

    /// Removes a binding's Works, with or without what is in them, and then lets the binding go.
    pub(super) async fn remove_pull(
        &self,
        binding: &Binding,
        mode: RemovalMode,
    ) -> Result<Next, ApiError> {
        let cluster = &binding.spec.target_cluster;
        let what = match mode {
            RemovalMode::Placement | RemovalMode::Purge => Removing::Content,
            RemovalMode::Leave | RemovalMode::Abandon => Removing::WorkOnly,
        };
        if mode == RemovalMode::Leave && !self.members.agent_is_gone(cluster) {
            let message = self.waits_for_agent(cluster, &[]);
            self.write_status(binding, About::Nothing, |report| report.removing(message))
                .await?;
            return Ok(Next::Event);
        }
        let placement = parent(binding);
        let key = ObjectKey::of(binding);
        let left = self.pull.remove(&key, cluster, &placement, what).await?;
        if left.is_empty() {
            return self.let_go(binding).await;
        }
        let left: Vec<String> = left.into_iter().collect();
        let message = self.waits_for_agent(cluster, &left);
        self.write_status(binding, About::Nothing, |report| report.removing(message))
            .await?;
        Ok(Next::Event)
    }
}

impl Delivery {
    fn waits_for_agent(&self, cluster: &str, works: &[String]) -> String {
        match self.members.is_silent(cluster) {
            true => {
                format!("waiting for cluster {cluster} to be reachable: its agent does not report")
            }
            false => agent_works(cluster, works),
        }
    }
}

/// What an agent that is at work has to do yet.
fn agent_works(cluster: &str, works: &[String]) -> String {
    match works {
        [] => format!("waiting for the agent of cluster {cluster} to let go"),
        [work] => format!("removing; waiting for Work {work} of cluster {cluster} to be gone"),
        [first, rest @ ..] => format!(
            "removing; waiting for Work {first} and {} more of cluster {cluster} to be gone",
            rest.len()
        ),
    }
}

impl Report<'_> {
    /// What the agent reported.
    fn reading(&mut self, mut reading: Reading) {
        if let Some(before) = &self.binding.status {
            reading.keep_times(before);
        }
        self.told();
        let some = |empty: bool| (!empty).then_some(());
        self.status.failed_placements = some(reading.failed.is_empty()).map(|()| reading.failed);
        self.status.drifted_placements = some(reading.drifted.is_empty()).map(|()| reading.drifted);
        self.status.diffed_placements = some(reading.diffed.is_empty()).map(|()| reading.diffed);
        for (stage, status, reason, message) in reading.conditions {
            self.condition(stage, status, reason, message);
        }
    }
}

fn wish(binding: &Binding, content: &Content, manifests: &[Arc<Manifest>]) -> Wish {
    let spec = &binding.spec;
    Wish {
        namespace: names::member_namespace(&spec.target_cluster),
        placement: content.placement.clone(),
        binding: binding.name_any(),
        snapshot: content.name.clone(),
        index: content.index,
        overrides_hash: hash(&json!(spec.resource_override_snapshots)),
        cluster_overrides_hash: hash(&json!(spec.cluster_resource_override_snapshots)),
        strategy: spec.apply_strategy.clone(),
        report_back: None,
        is_hashed: false,
        groups: groups(manifests),
    }
}

/// One per part of the snapshot and one per envelope; an agent that gets nothing has to report on that, too.
fn groups(manifests: &[Arc<Manifest>]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for manifest in manifests {
        let envelope = manifest.envelope.as_deref();
        let same =
            |group: &&mut Group| group.part == manifest.part && group.envelope.as_ref() == envelope;
        if let Some(group) = groups.iter_mut().find(same) {
            group.manifests.push(Arc::clone(manifest));
        } else {
            groups.push(Group {
                part: manifest.part,
                envelope: envelope.cloned(),
                manifests: vec![Arc::clone(manifest)],
            });
        }
    }
    if groups.is_empty() {
        groups.push(Group {
            part: 0,
            envelope: None,
            manifests: Vec::new(),
        });
    }
    groups
}

fn hash(list: &serde_json::Value) -> String {
    Digest::of_json(list).to_string()
}

#[cfg(test)]
mod tests {
    use super::agent_works;
    use crate::placement::deletion::is_routine;

    /// No warning each time that an agent does its work.
    #[test]
    fn what_an_agent_does_is_routine() {
        for works in [&[][..], &["a-work"], &["a-work", "b-work", "c-work"]] {
            let works: Vec<String> = works.iter().map(|&work| work.to_owned()).collect();
            let message = agent_works("east", &works);
            assert!(is_routine(&message), "{message}");
        }
    }
}
