//! What metrics need to know of one binding: a few words, so that counters move by the difference.

use std::sync::Arc;

use windlass_api::binding::BindingState;
use windlass_api::conditions::{Stage, Status};
use windlass_api::placement::ApplyStrategyType;
use windlass_api::scoped::Binding;
use windlass_status::conditions::{find, status};
use windlass_status::transitions::failing;

use crate::world::placement_of;

/// How one placement fares on one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The placement.
    pub placement: Arc<str>,
    /// The cluster.
    pub cluster: Arc<str>,
    /// Index of the snapshot that the cluster has reported on.
    pub index: Option<u64>,
    /// Status by stage, in the order of the mode's stages. What is not reported for the present desired
    /// state is Unknown.
    pub stages: Vec<(Stage, Status)>,
    /// The first stage that has failed.
    pub failing: Option<Stage>,
    /// Whether the cluster has yet to report on what its binding asks for.
    pub is_behind: bool,
}

impl Summary {
    /// Sums a binding up; none for one that places nothing (any more).
    #[must_use]
    pub fn of(binding: &Binding) -> Option<Self> {
        let placement = placement_of(binding)?;
        if binding.metadata.deletion_timestamp.is_some()
            || binding.spec.state == BindingState::Unscheduled
        {
            return None;
        }
        let told = binding.status.as_ref();
        let conditions = told.and_then(|told| told.conditions.as_deref());
        let conditions = conditions.unwrap_or_default();
        let generation = binding.metadata.generation;
        let wanted = &binding.spec.resource_snapshot_name;
        let snapshot = told.and_then(|told| told.observed_resource_snapshot_name.as_ref());
        // Each report is stamped with the generation that it is about, also when the digest is the same.
        let is_present = conditions
            .iter()
            .any(|condition| condition.observed_generation >= generation)
            && snapshot.is_none_or(|snapshot| snapshot == wanted);
        let reports_only = binding
            .spec
            .apply_strategy
            .as_ref()
            .is_some_and(|strategy| strategy.type_ == Some(ApplyStrategyType::ReportDiff));
        let stages: &[Stage] = if reports_only {
            &Stage::REPORT_DIFF
        } else {
            &Stage::APPLY
        };
        let stand = |stage: &Stage| {
            let known = find(conditions, stage.as_str()).filter(|_| is_present);
            (*stage, known.map_or(Status::Unknown, status))
        };
        let objects = told.and_then(|told| told.failed_placements.as_deref());
        let reported = snapshot.or_else(|| Some(wanted).filter(|_| is_present));
        Some(Self {
            index: reported.and_then(|name| index_of(&placement.name, name)),
            placement: placement.to_string().into(),
            cluster: binding.spec.target_cluster.as_str().into(),
            stages: stages.iter().map(stand).collect(),
            failing: failing(conditions, objects.unwrap_or_default())
                .map(|(stage, _)| stage)
                .filter(|_| is_present),
            is_behind: !wanted.is_empty() && !is_present,
        })
    }
}

/// The index in the name of a master snapshot ([`windlass_api::names::master_snapshot`]).
fn index_of(placement: &str, snapshot: &str) -> Option<u64> {
    snapshot
        .strip_prefix(placement)?
        .strip_prefix('-')?
        .strip_suffix("-snapshot")?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn summary(spec: &Value, status: Value) -> Option<Summary> {
        let mut binding: Binding = serde_json::from_value(json!({
            "metadata": { "name": "b", "generation": 2, "labels": { "kubernetes-fleet.io/parent-CRP": "web" } },
            "spec": { "state": "Bound", "resourceSnapshotName": "web-4-snapshot", "targetCluster": "east",
                      "schedulingPolicySnapshotName": "web-0",
                      "clusterDecision": { "clusterName": "east", "selected": true, "reason": "" } },
        }))
        .unwrap();
        let mut whole = serde_json::to_value(&binding.spec).unwrap();
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        binding.spec = serde_json::from_value(whole).unwrap();
        binding.status = serde_json::from_value(status).unwrap();
        Summary::of(&binding)
    }

    fn told(snapshot: &str, generation: i64, applied: &str) -> Value {
        json!({ "observedResourceSnapshotName": snapshot, "observedDigest": "d", "conditions": [{
            "type": "Applied", "status": applied, "reason": "R", "message": "", "observedGeneration": generation,
            "lastTransitionTime": "2026-01-01T00:00:00Z" }] })
    }

    #[test]
    fn only_what_is_reported_for_the_present_wish_counts() {
        let rows = [
            // status, index, Applied, failing, behind
            (
                told("web-4-snapshot", 2, "True"),
                Some(4),
                Status::True,
                None,
                false,
            ),
            (
                told("web-4-snapshot", 2, "False"),
                Some(4),
                Status::False,
                Some(Stage::Applied),
                false,
            ),
            (
                told("web-3-snapshot", 1, "False"),
                Some(3),
                Status::Unknown,
                None,
                true,
            ),
            (
                told("web-4-snapshot", 1, "True"),
                Some(4),
                Status::Unknown,
                None,
                true,
            ),
            (
                told("other-4-snapshot", 2, "True"),
                None,
                Status::Unknown,
                None,
                true,
            ),
            (Value::Null, None, Status::Unknown, None, true),
        ];
        for (status, index, applied, failing, is_behind) in rows {
            let found = summary(&json!({}), status.clone()).unwrap();
            assert_eq!(
                (
                    found.index,
                    found.stages[3].1,
                    found.failing,
                    found.is_behind
                ),
                (index, applied, failing, is_behind),
                "{status}"
            );
            assert_eq!((&*found.placement, &*found.cluster), ("web", "east"));
        }
    }

    #[test]
    fn another_implementations_report_has_only_a_generation() {
        let mut status = told("", 2, "True");
        status
            .as_object_mut()
            .unwrap()
            .remove("observedResourceSnapshotName");
        let found = summary(&json!({}), status).unwrap();
        assert_eq!((found.index, found.is_behind), (Some(4), false));
    }

    #[test]
    fn what_places_nothing_does_not_count() {
        assert_eq!(
            summary(&json!({ "state": "Unscheduled" }), Value::Null),
            None
        );
        let waiting = summary(&json!({ "resourceSnapshotName": "" }), Value::Null).unwrap();
        assert!(!waiting.is_behind, "nothing is asked for yet");
        let reports = summary(
            &json!({ "applyStrategy": { "type": "ReportDiff" } }),
            Value::Null,
        );
        assert_eq!(reports.unwrap().stages[3].0, Stage::DiffReported);
    }
}
