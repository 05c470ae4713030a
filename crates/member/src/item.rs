//! One manifest on its way through a pass.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kube::core::DynamicObject;
use windlass_api::conditions::ManifestReason;
use windlass_api::work::{AppliedWork, Origin};
use windlass_cluster::discovery::KnownKind;
use windlass_status::defaults::EffectiveApply;
use windlass_status::digest::Digest;

use crate::availability::assess;
use crate::install::is_own;
use crate::inventory::Inventory;
use crate::manifest::{Manifest, ManifestId, Problem};
use crate::outcome::{Desired, ManifestOutcome};

/// How long a wait for another object lasts before the next look, should no change tell of it.
pub(crate) const WAIT: Duration = Duration::from_millis(500);

/// What is the same for all manifests of a pass.
pub(crate) struct Facts {
    pub work: AppliedWork,
    pub work_uid: String,
    pub inventory: Inventory,
    pub apply: EffectiveApply,
    pub digest: Digest,
}

impl Facts {
    /// Name of the AppliedWork: what failures are filed under.
    pub fn work_name(&self) -> &str {
        self.work.metadata.name.as_deref().unwrap_or_default()
    }
}

/// What an item needs.
pub(crate) enum Todo {
    /// Nothing: it is clean, or can't be helped now.
    Nothing,
    /// A look at the object itself.
    Look,
    /// An apply.
    Apply(Basis),
}

/// What an apply starts from.
#[derive(Default)]
pub(crate) struct Basis {
    /// The object does not exist.
    pub absent: bool,
    /// What to note of it before.
    pub note: Option<Origin>,
    /// What moves ownership to us before.
    pub migration: Option<json_patch::Patch>,
    /// It undoes what somebody else has changed.
    pub put_back: bool,
}

/// See the module.
pub(crate) struct Item<'a> {
    pub ordinal: usize,
    pub manifest: &'a Manifest,
    pub kind: Option<KnownKind>,
    pub live: Option<Arc<DynamicObject>>,
    pub todo: Todo,
    /// It was applied in this pass.
    pub applied: bool,
    /// It was there when we thought that we made it.
    pub met: bool,
    pub problem: Option<Problem>,
    /// When to look again though nothing changes.
    pub retry: Option<Duration>,
    /// An error that may mean that the cluster can't be reached.
    pub outage: bool,
}

/// The manifests of a desired state. Of two for one object the first counts (member §5).
pub(crate) fn items(desired: &Desired) -> Vec<Item<'_>> {
    let mut seen: HashMap<ManifestId, usize> = HashMap::new();
    let mut items = Vec::with_capacity(desired.manifests.len());
    for (ordinal, manifest) in desired.manifests.iter().enumerate() {
        let mut item = Item {
            ordinal,
            manifest,
            kind: None,
            live: None,
            todo: Todo::Nothing,
            applied: false,
            met: false,
            problem: manifest.problem.clone(),
            retry: None,
            outage: false,
        };
        if item.problem.is_none() {
            let first = *seen.entry(manifest.id.any_version()).or_insert(ordinal);
            if first != ordinal {
                let message = format!(
                    "{} is there more than once; the one at position {first} counts",
                    manifest.id
                );
                item.stop(ManifestReason::Duplicated, message, None);
            }
        }
        if item.problem.is_none() && is_own(&manifest.id) {
            let message = format!(
                "{} is what the hub stands on there, and is not placed; take it out of the placement",
                manifest.id
            );
            item.stop(ManifestReason::ManifestApplyFailed, message, None);
        }
        items.push(item);
    }
    items
}

impl Item<'_> {
    /// Sets the item aside.
    pub fn stop(&mut self, reason: ManifestReason, message: String, retry: Option<Duration>) {
        self.problem = Some(Problem { reason, message });
        self.todo = Todo::Nothing;
        self.retry = retry;
    }

    /// Sets the item aside until something else has happened.
    pub fn wait(&mut self, message: String) {
        self.stop(ManifestReason::PreparingToProcess, message, Some(WAIT));
    }

    pub fn id(&self) -> &ManifestId {
        &self.manifest.id
    }

    /// How it fared.
    pub fn outcome(&self) -> ManifestOutcome {
        let live = self.live.as_deref();
        ManifestOutcome {
            id: self.id().clone(),
            envelope: self.manifest.envelope.clone(),
            problem: self.problem.clone(),
            available: live
                .filter(|_| self.problem.is_none())
                .map(|live| assess(self.id(), live)),
            generation: live.and_then(|live| live.metadata.generation).unwrap_or(0),
            live: None,
        }
    }

    /// The object as it is on the member, once applied.
    pub fn applied_object(&self) -> Option<Arc<DynamicObject>> {
        self.live.clone().filter(|_| self.problem.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use windlass_api::placement::ApplyStrategy;
    use windlass_cluster::ObjectKey;

    use crate::parent::Parent;

    #[test]
    fn the_first_of_two_counts() {
        let object = |version: &str, name: &str| {
            Arc::new(Manifest::of_snapshot(
                json!({"apiVersion": format!("example.com/{version}"), "kind": "Thing",
                "metadata": {"name": name}}),
            ))
        };
        let nameless = Arc::new(Manifest::of_snapshot(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}),
        ));
        let desired = Desired {
            parent: Parent {
                placement: ObjectKey::cluster("w"),
                rival: None,
            },
            work_name: "w".into(),
            work_namespace: "n".into(),
            digest: Digest::of_bytes(b""),
            strategy: ApplyStrategy::default(),
            mirror: false,
            manifests: [
                object("v1", "a"),
                object("v1", "b"),
                object("v2", "a"),
                Arc::clone(&nameless),
                nameless,
            ]
            .into(),
        };
        let reasons: Vec<_> = items(&desired)
            .iter()
            .map(|item| item.problem.as_ref().map(|p| p.reason))
            .collect();
        let erred = Some(ManifestReason::DecodingErred);
        assert_eq!(
            reasons,
            [None, None, Some(ManifestReason::Duplicated), erred, erred]
        );
    }

    #[test]
    fn what_the_hub_stands_on_is_refused_and_the_rest_is_not() {
        let role = |name: &str| {
            Arc::new(Manifest::of_snapshot(
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": name}}),
            ))
        };
        let desired = Desired {
            parent: Parent {
                placement: ObjectKey::cluster("w"),
                rival: None,
            },
            work_name: "w".into(),
            work_namespace: "n".into(),
            digest: Digest::of_bytes(b""),
            strategy: ApplyStrategy::default(),
            mirror: false,
            manifests: [role("windlass-hub"), role("web")].into(),
        };
        let items = items(&desired);
        let refused = items[0].problem.as_ref().unwrap();
        assert_eq!(refused.reason, ManifestReason::ManifestApplyFailed);
        assert!(
            refused.message.starts_with("ClusterRole windlass-hub is "),
            "{}",
            refused.message
        );
        assert_eq!(items[1].problem, None);
    }
}
