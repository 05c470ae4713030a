//! From what agents report in Works to what the binding says (API §4.3, hub §1.10.4): pure.
//!
//! A report counts when it is about the Work's present generation and the Work holds what the binding asks
//! for. First row that holds; a true failure is told before what is still missing:
//!
//! | of the Works | ReportDiff | condition | lists |
//! |---|---|---|---|
//! | some Applied False | no | Applied False, NotAllWorkHaveBeenApplied | failed, drifted, diffed |
//! | some not reported | no | Applied False, ApplyInProgress | |
//! | some Available False | no | Applied True; Available False, NotAllWorkAreAvailable | failed, drifted |
//! | some Available not reported | no | Applied True; Available False, NotAllWorkAreAvailable | drifted |
//! | all Available, some can't be tracked | no | Applied True; Available True, NotAllWorkAreAvailabilityTrackable | drifted |
//! | all Available | no | Applied True; Available True, AllWorkAreAvailable | drifted |
//! | some DiffReported False | yes | DiffReported False, NotAllWorkHaveDiffReported | |
//! | some not reported | yes | DiffReported False, DiffReportInProgress | |
//! | all DiffReported | yes | DiffReported True, AllWorkHaveDiffReported | diffed |
//!
//! Applied False counts as not reported while all that is wrong is that the agent prepares.

use windlass_api::Condition;
use windlass_api::binding::BindingStatus;
use windlass_api::conditions::{BindingReason as Reason, ManifestReason, Stage, Status};
use windlass_api::placement::{
    DiffedResourcePlacement, DriftedResourcePlacement, EnvelopeIdentifier, FailedResourcePlacement,
    ResourceIdentifier,
};
use windlass_api::pull::{ManifestCondition, WorkResourceIdentifier};
use windlass_status::conditions::{find, status};

use super::plan::envelope_of;
use super::work::WorkMeta;
use crate::delivery::lists::{self, Lists};

/// Objects listed at most.
const LIMIT: usize = 100;
/// Reasons with which agents say that availability can't be tracked.
const UNTRACKED: [&str; 2] = [
    "WorkNotTrackable",
    "SomeManifestsAreNotAvailabilityTrackable",
];

/// A Work that the binding needs.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its name.
    pub name: &'a str,
    /// As the cache has it; none while it does not.
    pub live: Option<&'a WorkMeta>,
    /// Whether its spec is what the binding asks for.
    pub is_current: bool,
}

impl Seen<'_> {
    /// The condition of a type, if it is about what the Work asks for now.
    fn condition(&self, stage: Stage) -> Option<&Condition> {
        let live = self.live.filter(|_| self.is_current)?;
        find(&live.status.as_ref()?.conditions, stage.as_str())
            .filter(|condition| condition.observed_generation == live.metadata.generation)
    }

    fn manifests(&self) -> impl Iterator<Item = &ManifestCondition> {
        self.live
            .filter(|_| self.is_current)
            .and_then(|live| live.status.as_ref()?.manifest_conditions.as_deref())
            .unwrap_or_default()
            .iter()
    }

    fn envelope(&self) -> Option<EnvelopeIdentifier> {
        self.live.and_then(envelope_of)
    }
}

/// What the binding says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// In the order in which they follow each other.
    pub conditions: Vec<(Stage, Status, Reason, String)>,
    /// Sorted, at most 100.
    pub failed: Vec<FailedResourcePlacement>,
    /// Sorted, at most 100.
    pub drifted: Vec<DriftedResourcePlacement>,
    /// Sorted, at most 100.
    pub diffed: Vec<DiffedResourcePlacement>,
    /// Whether every Work is reported on.
    pub is_complete: bool,
}

/// Where a Work stands with respect to one condition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    Missing,
    Bad,
    Good,
}

/// Reads. `seen` are the Works that the binding needs, sorted by name for messages that don't flip.
#[must_use]
pub fn read(seen: &[Seen<'_>], report_diff: bool) -> Reading {
    let mut reading = if report_diff {
        read_diffs(seen)
    } else {
        read_applied(seen)
    };
    // Only now: what is cut must not depend on the order in which Works are looked at.
    reading.failed.truncate(LIMIT);
    reading.drifted.truncate(LIMIT);
    reading.diffed.truncate(LIMIT);
    let lists = Lists {
        failed: &mut reading.failed,
        drifted: &mut reading.drifted,
        diffed: &mut reading.diffed,
    };
    if let (Some(left_out), Some(last)) = (lists.fit(), reading.conditions.last_mut()) {
        last.3 = lists::and(&last.3, &left_out);
    }
    reading
}

fn read_applied(seen: &[Seen<'_>]) -> Reading {
    let mut reading = Reading::default();
    let stands = stands(seen, Stage::Applied);
    reading.is_complete = !stands.contains(&Stand::Missing);
    if let Some(message) = worst(seen, &stands, Stand::Bad, "not applied") {
        reading.failed = failed(seen, &[Stage::Applied, Stage::Available]);
        reading.drifted = drifted(seen);
        reading.diffed = diffed(seen);
        let message = detail(&reading.failed, message, "applied");
        reading.tell(
            Stage::Applied,
            Status::False,
            Reason::NotAllWorkHaveBeenApplied,
            message,
        );
        return reading;
    }
    if let Some(message) = worst(
        seen,
        &stands,
        Stand::Missing,
        "not reported on by the agent yet",
    ) {
        reading.tell(
            Stage::Applied,
            Status::False,
            Reason::ApplyInProgress,
            message,
        );
        return reading;
    }
    let message = format!("All {} Work(s) are applied", seen.len());
    reading.tell(
        Stage::Applied,
        Status::True,
        Reason::AllWorkHaveBeenApplied,
        message,
    );
    reading.drifted = drifted(seen);
    available(seen, &mut reading);
    reading
}

fn available(seen: &[Seen<'_>], reading: &mut Reading) {
    let stands = stands(seen, Stage::Available);
    if let Some(message) = worst(seen, &stands, Stand::Bad, "not available") {
        reading.failed = failed(seen, &[Stage::Available]);
        let message = detail(&reading.failed, message, "available");
        reading.tell(
            Stage::Available,
            Status::False,
            Reason::NotAllWorkAreAvailable,
            message,
        );
        return;
    }
    let text = "applied; whether they are available is not reported yet";
    if let Some(message) = worst(seen, &stands, Stand::Missing, text) {
        reading.is_complete = false;
        reading.tell(
            Stage::Available,
            Status::False,
            Reason::NotAllWorkAreAvailable,
            message,
        );
        return;
    }
    let untracked = seen.iter().find(|work| {
        work.condition(Stage::Available)
            .is_some_and(|condition| UNTRACKED.contains(&condition.reason.as_str()))
    });
    let (reason, message) = match untracked {
        Some(work) => (
            Reason::NotAllWorkAreAvailabilityTrackable,
            format!(
                "All objects are in place; the availability of some can't be tracked, the first are in Work {}",
                work.name
            ),
        ),
        None => (
            Reason::AllWorkAreAvailable,
            "All objects are available".to_owned(),
        ),
    };
    reading.tell(Stage::Available, Status::True, reason, message);
}

fn read_diffs(seen: &[Seen<'_>]) -> Reading {
    let stands = stands(seen, Stage::DiffReported);
    let mut reading = Reading {
        is_complete: !stands.contains(&Stand::Missing),
        ..Reading::default()
    };
    let (status, reason, message) =
        if let Some(message) = worst(seen, &stands, Stand::Bad, "not compared in full") {
            let failed = failed(seen, &[Stage::DiffReported]);
            let message = detail(&failed, message, "compared");
            (Status::False, Reason::NotAllWorkHaveDiffReported, message)
        } else if let Some(message) = worst(
            seen,
            &stands,
            Stand::Missing,
            "not reported on by the agent yet",
        ) {
            (Status::False, Reason::DiffReportInProgress, message)
        } else {
            reading.diffed = diffed(seen);
            let message = match reading.diffed.len() {
                0 => "Nothing differs".to_owned(),
                number => format!("{number} object(s) differ"),
            };
            (Status::True, Reason::AllWorkHaveDiffReported, message)
        };
    reading.tell(Stage::DiffReported, status, reason, message);
    reading
}

impl Reading {
    /// Where nothing has changed but when it was looked at, the earlier time is kept: an agent looks again
    /// and again, and what has not changed is not worth a write. `before`: what the binding says so far.
    pub fn keep_times(&mut self, before: &BindingStatus) {
        for new in &mut self.drifted {
            let mut old = before.drifted_placements.iter().flatten();
            if let Some(old) = old.find(|old| old.identifier == new.identifier) {
                let observation_time = old.observation_time.clone();
                let earlier = DriftedResourcePlacement {
                    observation_time,
                    ..new.clone()
                };
                if earlier == *old {
                    *new = earlier;
                }
            }
        }
        for new in &mut self.diffed {
            let mut old = before.diffed_placements.iter().flatten();
            if let Some(old) = old.find(|old| old.identifier == new.identifier) {
                let observation_time = old.observation_time.clone();
                let earlier = DiffedResourcePlacement {
                    observation_time,
                    ..new.clone()
                };
                if earlier == *old {
                    *new = earlier;
                }
            }
        }
    }

    fn tell(&mut self, stage: Stage, status: Status, reason: Reason, message: String) {
        self.conditions.push((stage, status, reason, message));
    }
}

fn stands(seen: &[Seen<'_>], stage: Stage) -> Vec<Stand> {
    let stand = |work: &Seen<'_>| match work.condition(stage).map(status) {
        Some(Status::True) => Stand::Good,
        Some(Status::False) if stage == Stage::Applied && prepares(work) => Stand::Missing,
        Some(Status::False) => Stand::Bad,
        Some(Status::Unknown) | None => Stand::Missing,
    };
    seen.iter().map(stand).collect()
}

/// Whether all that keeps a Work from being applied is that the agent has not come to it.
fn prepares(work: &Seen<'_>) -> bool {
    let mut any = false;
    for manifest in work.manifests() {
        if let Some(applied) = find(&manifest.conditions, Stage::Applied.as_str())
            && status(applied) == Status::False
        {
            any = true;
            if applied.reason != ManifestReason::PreparingToProcess.as_str() {
                return false;
            }
        }
    }
    any
}

/// How many Works stand like that, and the first of them with what its agent says.
fn worst(seen: &[Seen<'_>], stands: &[Stand], stand: Stand, what: &str) -> Option<String> {
    let mut of = seen.iter().zip(stands).filter(|(_, s)| **s == stand);
    let (first, _) = of.next()?;
    let number = 1 + of.count();
    Some(format!(
        "{number} of {} Work(s) are {what}; the first is {}",
        seen.len(),
        first.name
    ))
}

/// The first object that failed says more than its Work does.
fn detail(failed: &[FailedResourcePlacement], works: String, what: &str) -> String {
    let Some(first) = failed.first() else {
        return works;
    };
    let id = &first.identifier;
    let name = match &id.namespace {
        Some(namespace) => format!("{} {namespace}/{}", id.kind, id.name),
        None => format!("{} {}", id.kind, id.name),
    };
    format!(
        "{} object(s) are not {what}; the first is {name}: {}",
        failed.len(),
        first.condition.message
    )
}

fn failed(seen: &[Seen<'_>], stages: &[Stage]) -> Vec<FailedResourcePlacement> {
    collect(seen, |identifier, manifest| {
        let condition = stages.iter().find_map(|stage| {
            find(&manifest.conditions, stage.as_str()).filter(|c| status(c) == Status::False)
        })?;
        Some(FailedResourcePlacement {
            identifier,
            condition: condition.clone(),
        })
    })
}

fn drifted(seen: &[Seen<'_>]) -> Vec<DriftedResourcePlacement> {
    collect(seen, |identifier, manifest| {
        let details = manifest.drift_details.as_ref()?;
        Some(DriftedResourcePlacement {
            identifier,
            observation_time: details.observation_time.clone(),
            target_cluster_observed_generation: details.observed_in_member_cluster_generation,
            first_drifted_observed_time: details.first_drifted_observed_time.clone(),
            observed_drifts: details.observed_drifts.clone(),
        })
    })
}

fn diffed(seen: &[Seen<'_>]) -> Vec<DiffedResourcePlacement> {
    collect(seen, |identifier, manifest| {
        let details = manifest.diff_details.as_ref()?;
        Some(DiffedResourcePlacement {
            identifier,
            observation_time: details.observation_time.clone(),
            target_cluster_observed_generation: details.observed_in_member_cluster_generation,
            first_diffed_observed_time: details.first_diffed_observed_time.clone(),
            observed_diffs: details.observed_diffs.clone(),
        })
    })
}

/// What `make` makes of the objects, sorted by object.
fn collect<T>(
    seen: &[Seen<'_>],
    make: impl Fn(ResourceIdentifier, &ManifestCondition) -> Option<T>,
) -> Vec<T> {
    let mut found: Vec<(ResourceIdentifier, T)> = Vec::new();
    for work in seen {
        let envelope = work.envelope();
        for manifest in work.manifests() {
            let identifier = identifier(&manifest.identifier, envelope.clone());
            if let Some(made) = make(identifier.clone(), manifest) {
                found.push((identifier, made));
            }
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found.into_iter().map(|(_, made)| made).collect()
}

fn identifier(
    id: &WorkResourceIdentifier,
    envelope: Option<EnvelopeIdentifier>,
) -> ResourceIdentifier {
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    ResourceIdentifier {
        group: some(&id.group),
        version: id.version.clone().unwrap_or_default(),
        kind: id.kind.clone().unwrap_or_default(),
        name: id.name.clone().unwrap_or_default(),
        namespace: some(&id.namespace),
        envelope,
    }
}

#[cfg(test)]
#[path = "read_test.rs"]
mod tests;
