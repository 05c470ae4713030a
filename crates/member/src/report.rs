//! From the outcome of a delivery to what the binding says (API §4.3, §4.6).

use jiff::Timestamp;
use windlass_api::conditions::{BindingReason, ManifestReason, Stage, Status};
use windlass_api::placement::{EnvelopeIdentifier, FailedResourcePlacement, ResourceIdentifier};
use windlass_status::conditions::{NewCondition, status};

use crate::availability::Availability;
use crate::manifest::ManifestId;
use crate::outcome::{ManifestOutcome, Outcome};

/// Objects listed at most.
const LIMIT: usize = 100;

/// What to say.
pub struct Told<'a> {
    /// Applied, and Available once everything is applied.
    pub conditions: Vec<(Stage, Status, BindingReason, String)>,
    /// Objects that are not as they should be, sorted.
    pub failed: Vec<Failure<'a>>,
}

/// An object that is not as it should be.
pub struct Failure<'a> {
    id: &'a ManifestId,
    envelope: Option<&'a EnvelopeIdentifier>,
    stage: Stage,
    reason: ManifestReason,
    message: String,
    generation: i64,
}

/// Sums the outcome up. Messages name the first object in order, so that they don't flip.
#[must_use]
pub fn binding_conditions(outcome: &Outcome) -> Told<'_> {
    let mut failed: Vec<Failure<'_>> = outcome.manifests.iter().filter_map(failure).collect();
    failed.sort_by(|a, b| a.id.cmp(b.id));
    let not_applied: Vec<&Failure<'_>> = failed
        .iter()
        .filter(|failure| failure.stage == Stage::Applied)
        .collect();
    let total = outcome.manifests.len();
    let mut conditions = Vec::new();
    if let Some(first) = not_applied.first() {
        let waits = not_applied
            .iter()
            .all(|failure| failure.reason == ManifestReason::PreparingToProcess);
        let reason = if waits {
            BindingReason::ApplyInProgress
        } else {
            BindingReason::NotAllWorkHaveBeenApplied
        };
        let message = format!(
            "{} of {total} object(s) are not applied; the first is {}: {}",
            not_applied.len(),
            first.id,
            first.message
        );
        conditions.push((Stage::Applied, Status::False, reason, message));
    } else {
        let message = format!(
            "All {total} object(s) are applied{}",
            left(&outcome.leftovers)
        );
        conditions.push((
            Stage::Applied,
            Status::True,
            BindingReason::AllWorkHaveBeenApplied,
            message,
        ));
        conditions.push(available(outcome, &failed));
    }
    Told { conditions, failed }
}

/// What is still there though it is no longer wanted.
fn left(leftovers: &[String]) -> String {
    let Some(first) = leftovers.first() else {
        return String::new();
    };
    let more = match leftovers.len() {
        1 => String::new(),
        number => format!(" and {} more", number - 1),
    };
    format!("; no longer wanted but still there: {first}{more}")
}

fn available(outcome: &Outcome, failed: &[Failure<'_>]) -> (Stage, Status, BindingReason, String) {
    if let Some(first) = failed.first() {
        let message = format!(
            "{} object(s) are not available; the first is {}: {}",
            failed.len(),
            first.id,
            first.message
        );
        return (
            Stage::Available,
            Status::False,
            BindingReason::NotAllWorkAreAvailable,
            message,
        );
    }
    let untracked = outcome
        .manifests
        .iter()
        .filter(|m| m.available == Some(Availability::NotTrackable))
        .map(|m| &m.id)
        .min();
    match untracked {
        Some(id) => {
            let message = format!(
                "All objects are in place; the availability of some can't be tracked, the first is {id}"
            );
            (
                Stage::Available,
                Status::True,
                BindingReason::NotAllWorkAreAvailabilityTrackable,
                message,
            )
        }
        None => {
            let message = "All objects are available".to_owned();
            (
                Stage::Available,
                Status::True,
                BindingReason::AllWorkAreAvailable,
                message,
            )
        }
    }
}

fn failure(manifest: &ManifestOutcome) -> Option<Failure<'_>> {
    let make = |stage, reason, message: &str| Failure {
        id: &manifest.id,
        envelope: manifest.envelope.as_deref(),
        stage,
        reason,
        message: message.to_owned(),
        generation: manifest.generation,
    };
    if let Some(problem) = &manifest.problem {
        return Some(make(Stage::Applied, problem.reason, &problem.message));
    }
    match &manifest.available {
        Some(Availability::NotYet(why)) => Some(make(
            Stage::Available,
            ManifestReason::ManifestNotAvailableYet,
            why,
        )),
        Some(Availability::Failed(why)) => {
            Some(make(Stage::Available, ManifestReason::Failed, why))
        }
        Some(Availability::Available | Availability::NotTrackable) | None => None,
    }
}

impl Told<'_> {
    /// The list for the binding; times stay where nothing has changed.
    #[must_use]
    pub fn failed_placements(
        &self,
        previous: &[FailedResourcePlacement],
        now: Timestamp,
    ) -> Vec<FailedResourcePlacement> {
        self.failed
            .iter()
            .take(LIMIT)
            .map(|failure| failure.placement(previous, now))
            .collect()
    }
}

impl Failure<'_> {
    fn placement(
        &self,
        previous: &[FailedResourcePlacement],
        now: Timestamp,
    ) -> FailedResourcePlacement {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let identifier = ResourceIdentifier {
            group: some(&self.id.group),
            version: self.id.version.clone(),
            kind: self.id.kind.clone(),
            name: self.id.name.clone(),
            namespace: self.id.namespace.clone(),
            envelope: self.envelope.cloned(),
        };
        let old: Vec<_> = previous
            .iter()
            .filter(|old| old.identifier == identifier && status(&old.condition) == Status::False)
            .map(|old| old.condition.clone())
            .collect();
        let condition = NewCondition {
            type_: self.stage.as_str(),
            status: Status::False,
            reason: self.reason.as_str(),
            message: self.message.clone(),
            observed_generation: Some(self.generation),
        };
        FailedResourcePlacement {
            identifier,
            condition: condition.build(&old, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Problem;

    fn manifest(
        name: &str,
        problem: Option<ManifestReason>,
        available: Option<Availability>,
    ) -> ManifestOutcome {
        ManifestOutcome {
            id: ManifestId {
                version: "v1".into(),
                kind: "ConfigMap".into(),
                name: name.into(),
                ..Default::default()
            },
            envelope: None,
            problem: problem.map(|reason| Problem {
                reason,
                message: format!("why {name}"),
            }),
            available,
            generation: 3,
            live: None,
        }
    }

    fn told(manifests: Vec<ManifestOutcome>) -> Vec<(Stage, Status, BindingReason)> {
        let outcome = Outcome {
            manifests,
            ..Default::default()
        };
        binding_conditions(&outcome)
            .conditions
            .into_iter()
            .map(|(stage, status, reason, _)| (stage, status, reason))
            .collect()
    }

    #[test]
    fn rows() {
        use Availability::{Available, NotTrackable, NotYet};
        use BindingReason as R;
        use ManifestReason::{ManifestApplyFailed, PreparingToProcess};
        let applied = (Stage::Applied, Status::True, R::AllWorkHaveBeenApplied);
        let rows = [
            (
                vec![],
                vec![
                    applied,
                    (Stage::Available, Status::True, R::AllWorkAreAvailable),
                ],
            ),
            (
                vec![manifest("a", None, Some(Available))],
                vec![
                    applied,
                    (Stage::Available, Status::True, R::AllWorkAreAvailable),
                ],
            ),
            (
                vec![
                    manifest("a", None, Some(Available)),
                    manifest("b", None, Some(NotTrackable)),
                ],
                vec![
                    applied,
                    (
                        Stage::Available,
                        Status::True,
                        R::NotAllWorkAreAvailabilityTrackable,
                    ),
                ],
            ),
            (
                vec![
                    manifest("a", None, Some(NotYet(String::new()))),
                    manifest("b", None, Some(NotTrackable)),
                ],
                vec![
                    applied,
                    (Stage::Available, Status::False, R::NotAllWorkAreAvailable),
                ],
            ),
            (
                vec![
                    manifest("a", Some(PreparingToProcess), None),
                    manifest("b", None, Some(Available)),
                ],
                vec![(Stage::Applied, Status::False, R::ApplyInProgress)],
            ),
            (
                vec![
                    manifest("a", Some(PreparingToProcess), None),
                    manifest("b", Some(ManifestApplyFailed), None),
                ],
                vec![(Stage::Applied, Status::False, R::NotAllWorkHaveBeenApplied)],
            ),
        ];
        for (manifests, expected) in rows {
            assert_eq!(told(manifests.clone()), expected, "{manifests:?}");
        }
    }

    #[test]
    fn messages_name_the_first_in_order() {
        let failed = Some(ManifestReason::ManifestApplyFailed);
        let outcome = Outcome {
            manifests: vec![manifest("b", failed, None), manifest("a", failed, None)],
            ..Default::default()
        };
        let message = &binding_conditions(&outcome).conditions[0].3;
        assert_eq!(
            message,
            "2 of 2 object(s) are not applied; the first is ConfigMap a: why a"
        );
        let left = Outcome {
            leftovers: vec!["x".into(), "y".into()],
            ..Default::default()
        };
        let message = &binding_conditions(&left).conditions[0].3;
        assert_eq!(
            message,
            "All 0 object(s) are applied; no longer wanted but still there: x and 1 more"
        );
    }

    #[test]
    fn failed_placements_are_sorted_bounded_and_keep_their_times() {
        let failed = Some(ManifestReason::ManifestApplyFailed);
        let manifests = (0..150)
            .rev()
            .map(|n| manifest(&format!("m{n:03}"), failed, None))
            .collect();
        let outcome = Outcome {
            manifests,
            ..Default::default()
        };
        let at = |second| Timestamp::from_second(second).unwrap();
        let told = binding_conditions(&outcome);
        let first = told.failed_placements(&[], at(1));
        assert_eq!(first.len(), LIMIT);
        assert_eq!(first[0].identifier.name, "m000");
        assert_eq!(first[0].condition.observed_generation, Some(3));
        assert_eq!(told.failed_placements(&first, at(9)), first);
    }
}
