//! Statuses of placed objects, copied onto the hub's own objects (API §2.5, `reportBackStrategy`).
//!
//! The API has it for a placement that selects exactly one cluster: with several, whose status would the
//! hub's object show? To the destination WorkAPI statuses travel in Works, which clusters in push mode don't
//! have.
//!
//! A status is written when it differs from what the hub's object has, and only once for each status of the
//! member's object: should somebody else on the hub write it too, there is no quarrel.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::core::GroupVersionKind;
use serde_json::Value;
use windlass_api::conditions::{self, Status};
use windlass_api::placement::{
    PlacementPolicy, PlacementType, ReportBackDestination, ReportBackStrategyType, RolloutStrategy,
};
use windlass_api::pull::WorkResourceIdentifier;
use windlass_api::scoped::{Binding, Placement, Scope};
use windlass_api::{CLUSTER_GROUP, PLACEMENT_GROUP};
use windlass_cluster::clock::{self, Instant};
use windlass_cluster::{ApiError, Discovery, ObjectKey, Writer};
use windlass_member::manifest::{Manifest, ManifestId};
use windlass_member::{ManifestOutcome, Outcome};
use windlass_status::conditions::{NewCondition, find};
use windlass_status::digest::Digest;

use crate::pull::plan::envelope_of;
use crate::pull::work::WorkMeta;

/// Shortest time between two rounds of writes of one placement.
const PAUSE: Duration = Duration::from_secs(1);
/// How soon what the API server has refused is tried again.
const REFUSED: Duration = Duration::from_secs(10);

/// What a placement asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing.
    Off,
    /// That the statuses on its only cluster are copied onto the hub's objects.
    Mirror,
    /// The same, but it does not select exactly one cluster.
    OfSeveralClusters,
    /// That the statuses come in Works.
    InWorks,
}

/// Reads a placement's wish.
#[must_use]
pub fn wish(policy: Option<&PlacementPolicy>, strategy: Option<&RolloutStrategy>) -> Wish {
    let Some(wanted) = strategy
        .and_then(|strategy| strategy.report_back_strategy.as_ref())
        .filter(|wanted| wanted.type_ == ReportBackStrategyType::Mirror)
    else {
        return Wish::Off;
    };
    match wanted.destination {
        // The schema refuses that.
        None => Wish::Off,
        Some(ReportBackDestination::WorkAPI) => Wish::InWorks,
        Some(ReportBackDestination::OriginalResource) if selects_one(policy) => Wish::Mirror,
        Some(ReportBackDestination::OriginalResource) => Wish::OfSeveralClusters,
    }
}

/// As [`wish`], of a placement.
#[must_use]
pub fn wish_of(placement: &Placement) -> Wish {
    let spec = &placement.spec;
    wish(spec.policy.as_ref(), spec.strategy.as_ref())
}

fn selects_one(policy: Option<&PlacementPolicy>) -> bool {
    let Some(policy) = policy else { return false };
    match policy.placement_type {
        Some(PlacementType::PickFixed) => policy
            .cluster_names
            .as_ref()
            .is_some_and(|names| names.len() == 1),
        Some(PlacementType::PickN) => policy.number_of_clusters == Some(1),
        Some(PlacementType::PickAll) | None => false,
    }
}

/// How copying went; a condition of the binding and of the placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Whether every status is where it belongs.
    pub status: Status,
    /// In one word.
    pub reason: &'static str,
    /// In words for a person.
    pub message: String,
}

impl Told {
    fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            status: Status::False,
            reason,
            message: message.into(),
        }
    }

    /// As a condition.
    #[must_use]
    pub fn condition<'a>(&self, type_: &'a str, generation: Option<i64>) -> NewCondition<'a> {
        NewCondition {
            type_,
            status: self.status,
            reason: self.reason,
            message: self.message.clone(),
            observed_generation: generation,
        }
    }
}

/// What a placement's status says; none when nothing is asked for. `pushed`: the selected clusters that are
/// in push mode.
#[must_use]
pub fn of_placement(
    placement: &Placement,
    bindings: &[Arc<Binding>],
    pushed: &[&str],
) -> Option<Told> {
    match wish_of(placement) {
        Wish::Off => None,
        Wish::OfSeveralClusters => Some(Told::no(
            "NotOneCluster",
            "statuses are copied onto the hub's objects only for a placement of exactly one cluster: \
             PickFixed with one name, or PickN with numberOfClusters 1",
        )),
        Wish::InWorks => Some(match pushed.first() {
            None => Told {
                status: Status::True,
                reason: "InWorks",
                message: "Statuses come in the Works of the clusters".to_owned(),
            },
            Some(cluster) => Told::no(
                "NoWork",
                format!(
                    "cluster {cluster} is in push mode, where there is no Work that could hold statuses; \
                     set destination to OriginalResource"
                ),
            ),
        }),
        Wish::Mirror => Some(of_binding(bindings)),
    }
}

fn of_binding(bindings: &[Arc<Binding>]) -> Told {
    let told = bindings
        .iter()
        .filter(|binding| binding.metadata.deletion_timestamp.is_none())
        .filter_map(|binding| binding.status.as_ref()?.conditions.as_deref())
        .find_map(|list| find(list, conditions::STATUS_REPORTED_BACK));
    match told {
        Some(told) => Told {
            status: Status::parse(&told.status),
            reason: if told.status == "True" {
                COPIED
            } else {
                FAILED
            },
            message: told.message.clone(),
        },
        None => Told {
            status: Status::Unknown,
            reason: "StatusReportPending",
            message: "No status has been copied yet".to_owned(),
        },
    }
}

/// Type of a placement's condition.
#[must_use]
pub fn condition_type(placement: &Placement) -> &'static str {
    conditions::placement_reported_back(Scope::of(placement))
}

const COPIED: &str = "StatusReportedBack";
const FAILED: &str = "StatusReportFailed";

/// The status of an object on a member.
#[derive(Clone, Debug, PartialEq)]
pub struct Reported {
    /// Which object.
    pub id: ManifestId,
    /// Its status.
    pub status: Value,
}

/// What a delivery by push has seen. What came in an envelope is not the hub's object of that name.
#[must_use]
pub fn of_outcome(outcome: &Outcome) -> Vec<Reported> {
    let selected = |manifest: &&ManifestOutcome| manifest.envelope.is_none();
    let report = |manifest: &ManifestOutcome| {
        Some(Reported {
            id: manifest.id.clone(),
            status: manifest.live.as_ref()?.data.get("status")?.clone(),
        })
    };
    let manifests = outcome.manifests.iter().filter(selected);
    manifests.filter_map(report).collect()
}

/// What an agent has reported in the Works that hold what is wanted now. An agent may write whatever it likes
/// there: what is `placed` counts, each object once, and nothing else. What came in an envelope is not the
/// hub's object of that name.
#[must_use]
pub fn of_works(works: &[Arc<WorkMeta>], placed: &[Arc<Manifest>]) -> Vec<Reported> {
    let mut open: HashMap<ManifestId, &ManifestId> = placed
        .iter()
        .filter(|manifest| manifest.envelope.is_none())
        .map(|manifest| (manifest.id.any_version(), &manifest.id))
        .collect();
    let manifests = works
        .iter()
        .filter(|work| envelope_of(work).is_none())
        .filter_map(|work| work.status.as_ref()?.manifest_conditions.as_deref())
        .flatten();
    manifests
        .filter_map(|manifest| {
            let reported = manifest.back_reported_status.as_ref()?;
            let status = reported.observed_status.as_ref()?.0.get("status")?.clone();
            let id = open.remove(&named(&manifest.identifier))?.clone();
            Some(Reported { id, status })
        })
        .collect()
}

/// Which object an agent means, whatever the version.
fn named(id: &WorkResourceIdentifier) -> ManifestId {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    ManifestId {
        group: text(&id.group),
        version: String::new(),
        kind: text(&id.kind),
        namespace: id
            .namespace
            .clone()
            .filter(|namespace| !namespace.is_empty()),
        name: text(&id.name),
    }
}

/// How a round of copying went, unless it is not time for one; and when to come again.
pub type Round = Result<(Option<Told>, Option<Duration>), ApiError>;

/// Copies statuses. Clones share what was copied.
#[derive(Clone)]
pub struct ReportBack {
    writer: Writer,
    discovery: Discovery,
    copied: Arc<Mutex<HashMap<ObjectKey, Copied>>>,
}

/// What was copied of a binding.
#[derive(Default)]
struct Copied {
    /// Of each object, the member's status.
    of: HashMap<ManifestId, Digest>,
    /// When the next round may begin.
    next: Option<Instant>,
}

impl ReportBack {
    /// Nothing is copied yet. `discovery` is the hub's.
    #[must_use]
    pub fn new(writer: Writer, discovery: Discovery) -> Self {
        Self {
            writer,
            discovery,
            copied: Arc::default(),
        }
    }

    /// Forgets a binding.
    pub fn forget(&self, binding: &ObjectKey) {
        self.lock().remove(binding);
    }

    /// Copies the statuses that have changed. Tells how that went, unless it is not time to try, and when to
    /// come again.
    ///
    /// # Errors
    /// When the hub's API server can't be asked; what it refuses for good is told instead.
    pub async fn copy(
        &self,
        binding: &ObjectKey,
        placement: &ObjectKey,
        statuses: Vec<Reported>,
    ) -> Round {
        // A namespaced placement touches nothing outside (design §6, I10).
        let own = &placement.namespace;
        let mine = |reported: &Reported| {
            let id = &reported.id;
            !steers(id) && (own.is_empty() || id.namespace.as_ref() == Some(own))
        };
        let mut count = 0;
        let mut changed = Vec::new();
        for reported in statuses.into_iter().filter(mine) {
            count += 1;
            let digest = Digest::of_json(&reported.status);
            if !self.is_copied(binding, &reported.id, digest) {
                changed.push((reported, digest));
            }
        }
        if !changed.is_empty()
            && let Some(wait) = self.pause(binding)
        {
            return Ok((None, Some(wait)));
        }
        let mut refused = Vec::new();
        for (Reported { id, status }, digest) in changed {
            match self.put(&id, &status).await {
                Ok(()) => self.note(binding, &id, digest),
                Err(ApiError::Rejected(why)) => refused.push(format!("{id}: {why}")),
                Err(error) => return Err(error),
            }
        }
        refused.sort();
        Ok(match refused.first() {
            None => {
                let told = Told {
                    status: Status::True,
                    reason: COPIED,
                    message: message(count),
                };
                (Some(told), None)
            }
            Some(first) => {
                let more = match refused.len() - 1 {
                    0 => String::new(),
                    more => format!(" (and {more} more)"),
                };
                let message = format!(
                    "the hub's API server refuses a status; does the hub have the rights of \
                     deploy/report-back? {first}{more}"
                );
                self.rest(binding, REFUSED);
                (Some(Told::no(FAILED, message)), Some(REFUSED))
            }
        })
    }

    /// Puts a status on the hub's object, if there is one and it does not have it.
    async fn put(&self, id: &ManifestId, status: &Value) -> Result<(), ApiError> {
        let kind = GroupVersionKind::gvk(&id.group, &id.version, &id.kind);
        let Some(known) = self.discovery.kind(&kind).await? else {
            return Ok(());
        };
        let namespace = id.namespace.as_deref();
        let found = self
            .writer
            .get_dyn(&known.resource, namespace, &id.name)
            .await?;
        let Some(mut live) = found else { return Ok(()) };
        if live.metadata.deletion_timestamp.is_some() || live.data.get("status") == Some(status) {
            return Ok(());
        }
        live.data["status"] = status.clone();
        match self.writer.replace_status_dyn(&known.resource, &live).await {
            // The kind has no status of its own to be written.
            Ok(_) | Err(ApiError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn is_copied(&self, binding: &ObjectKey, id: &ManifestId, status: Digest) -> bool {
        self.lock()
            .get(binding)
            .is_some_and(|copied| copied.of.get(id) == Some(&status))
    }

    fn note(&self, binding: &ObjectKey, id: &ManifestId, status: Digest) {
        let mut all = self.lock();
        let copied = all.entry(binding.clone()).or_default();
        copied.of.insert(id.clone(), status);
    }

    /// How long the next round has to wait; none when it may begin, which is noted.
    fn pause(&self, binding: &ObjectKey) -> Option<Duration> {
        let now = clock::monotonic();
        let mut all = self.lock();
        let copied = all.entry(binding.clone()).or_default();
        if let Some(next) = copied.next.filter(|next| *next > now) {
            return Some(next - now);
        }
        copied.next = Some(now + PAUSE);
        None
    }

    fn rest(&self, binding: &ObjectKey, time: Duration) {
        let mut all = self.lock();
        let copied = all.entry(binding.clone()).or_default();
        copied.next = Some(clock::monotonic() + time);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ObjectKey, Copied>> {
        self.copied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn message(count: usize) -> String {
    format!("The hub's objects have the statuses of {count} object(s) on the cluster")
}

/// Kinds whose status steers something on the hub itself: what is in it, what may be made there, the fleet.
fn steers(id: &ManifestId) -> bool {
    matches!(
        (id.group.as_str(), id.kind.as_str()),
        (CLUSTER_GROUP | PLACEMENT_GROUP, _)
            | (
                "",
                "Namespace"
                    | "Node"
                    | "ResourceQuota"
                    | "PersistentVolume"
                    | "PersistentVolumeClaim"
            )
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
            | ("apiregistration.k8s.io", "APIService")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_api::binding::BindingSpec;
    use windlass_api::labels;
    use windlass_api::placement::PlacementSpec;

    use super::*;

    fn placement(policy: &Value, strategy: &Value) -> Placement {
        let spec = json!({"resourceSelectors": [], "policy": policy, "strategy": {"reportBackStrategy": strategy}});
        let spec: PlacementSpec = serde_json::from_value(spec).unwrap();
        Placement::new("p", spec)
    }

    #[test]
    fn wishes() {
        let original = json!({"type": "Mirror", "destination": "OriginalResource"});
        let one = json!({"placementType": "PickFixed", "clusterNames": ["a"]});
        for (policy, strategy, expected) in [
            (one.clone(), json!(null), Wish::Off),
            (one.clone(), json!({"type": "Disabled"}), Wish::Off),
            (one.clone(), original.clone(), Wish::Mirror),
            (
                json!({"placementType": "PickN", "numberOfClusters": 1}),
                original.clone(),
                Wish::Mirror,
            ),
            (
                json!({"placementType": "PickFixed", "clusterNames": ["a", "b"]}),
                original.clone(),
                Wish::OfSeveralClusters,
            ),
            (
                json!({"placementType": "PickN", "numberOfClusters": 2}),
                original.clone(),
                Wish::OfSeveralClusters,
            ),
            (json!({}), original.clone(), Wish::OfSeveralClusters),
            (json!(null), original, Wish::OfSeveralClusters),
            (
                json!(null),
                json!({"type": "Mirror", "destination": "WorkAPI"}),
                Wish::InWorks,
            ),
        ] {
            let placement = placement(&policy, &strategy);
            assert_eq!(wish_of(&placement), expected, "{policy} {strategy}");
        }
    }

    fn manifest(object: Value) -> Arc<Manifest> {
        Arc::new(Manifest::of_snapshot(object))
    }

    /// A Work with the statuses that its agent reports.
    fn work(labels: &Value, identifiers: &[Value]) -> Arc<WorkMeta> {
        let reported: Vec<Value> = identifiers
            .iter()
            .enumerate()
            .map(|(at, id)| {
                json!({"identifier": id, "conditions": [], "backReportedStatus": {
                    "observationTime": "2026-01-01T00:00:00Z",
                    "observedStatus": {"apiVersion": "v1", "kind": "x", "status": {"at": at}}}})
            })
            .collect();
        let status = json!({"conditions": [], "manifestConditions": reported});
        let work = json!({"metadata": {"name": "w", "labels": labels}, "status": status});
        Arc::new(serde_json::from_value(work).unwrap())
    }

    #[test]
    fn an_agent_tells_of_what_was_placed_and_of_nothing_else() {
        let id = |group: &str, kind: &str, namespace: &str, name: &str| {
            json!({"ordinal": 0, "group": group, "version": "v1", "kind": kind, "namespace": namespace,
                   "name": name})
        };
        let service = id("", "Service", "n", "s");
        let mut enveloped = Manifest::of_snapshot(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "e", "namespace": "n"}}),
        );
        let envelope = json!({"type": "ResourceEnvelope", "namespace": "n", "name": "e"});
        enveloped.envelope = Some(Arc::new(serde_json::from_value(envelope).unwrap()));
        let placed = [
            manifest(
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "n"}}),
            ),
            Arc::new(enveloped),
        ];
        let forged = [
            id("cluster.kubernetes-fleet.io", "MemberCluster", "", "other"),
            id("", "Node", "", "node-1"),
            id("", "Service", "m", "s"),
            id("", "Service", "n", "other"),
            id("", "Service", "n", "e"),
        ];
        let in_envelope =
            json!({labels::ENVELOPE_KIND: "ResourceEnvelope", labels::ENVELOPE_NAME: "e"});
        let told = |works: &[Arc<WorkMeta>]| -> Vec<(String, Value)> {
            let told = of_works(works, &placed).into_iter();
            told.map(|reported| (reported.id.to_string(), reported.status))
                .collect()
        };
        let plain = json!({});
        assert_eq!(told(&[work(&plain, &forged)]), []);
        assert_eq!(
            told(&[work(&in_envelope, std::slice::from_ref(&service))]),
            []
        );
        let twice = [service.clone(), service];
        let only = vec![("Service n/s".to_owned(), json!({"at": 0}))];
        assert_eq!(told(&[work(&plain, &twice), work(&plain, &twice)]), only);
    }

    #[test]
    fn what_steers_the_hub_is_not_copied() {
        for (group, kind, expected) in [
            (CLUSTER_GROUP, "MemberCluster", true),
            (PLACEMENT_GROUP, "ClusterResourcePlacement", true),
            (PLACEMENT_GROUP, "Work", true),
            ("", "Namespace", true),
            ("", "Node", true),
            ("apiextensions.k8s.io", "CustomResourceDefinition", true),
            ("", "Service", false),
            ("apps", "Deployment", false),
        ] {
            let id = ManifestId {
                group: group.to_owned(),
                kind: kind.to_owned(),
                ..ManifestId::default()
            };
            assert_eq!(steers(&id), expected, "{group} {kind}");
        }
    }

    #[test]
    fn what_the_placement_says() {
        let one = json!({"placementType": "PickN", "numberOfClusters": 1});
        let mirror = |to: &str| placement(&one, &json!({"type": "Mirror", "destination": to}));
        let says = |placement: &Placement, bindings: &[Arc<Binding>], pushed: &[&str]| {
            of_placement(placement, bindings, pushed).map(|told| (told.status, told.reason))
        };
        let off = placement(&one, &json!(null));
        assert_eq!(says(&off, &[], &["a"]), None);
        let (original, works) = (mirror("OriginalResource"), mirror("WorkAPI"));
        assert_eq!(
            says(&original, &[], &[]),
            Some((Status::Unknown, "StatusReportPending"))
        );
        assert_eq!(says(&works, &[], &["a"]), Some((Status::False, "NoWork")));
        assert_eq!(says(&works, &[], &[]), Some((Status::True, "InWorks")));
        let mut binding = Binding::new("b", BindingSpec::default());
        let condition = json!({"conditions": [{"type": "StatusReportedBack", "status": "False", "reason": "x",
            "message": "why", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        binding.status = serde_json::from_value(condition).unwrap();
        let told = of_placement(&original, &[Arc::new(binding)], &[]).unwrap();
        assert_eq!((told.status, told.message.as_str()), (Status::False, "why"));
    }
}
