//! What is said of a cluster that gets nothing new. The preview says the same.

use jiff::Timestamp;
use windlass_api::binding::BindingStatus;
use windlass_api::conditions::{BindingReason, Stage, Status};
use windlass_api::scoped::Binding;
use windlass_status::conditions::{find, status as status_of};
use windlass_status::digest::Digest;
use windlass_status::ready::{Left, left};

use super::Report;
use crate::render::Refusal;

/// Ends the message where nothing is sent to the cluster.
pub(crate) const UNCHANGED: &str = "nothing was changed on the cluster";

/// Why the cluster does not have what a binding asks for now, as its status says.
pub(crate) fn why(binding: &Binding) -> Option<&str> {
    let conditions = binding.status.as_ref()?.conditions.as_deref()?;
    let failed = |stage: Stage| {
        find(conditions, stage.as_str()).filter(|condition| {
            status_of(condition) == Status::False
                && condition.observed_generation == binding.metadata.generation
        })
    };
    let first = failed(Stage::Overridden).or_else(|| failed(Stage::WorkSynchronized))?;
    Some(&first.message)
}

/// Whether nothing is sent to the cluster for a binding, whoever delivers.
pub(crate) fn is_refused(binding: &Binding) -> bool {
    why(binding).is_some_and(|why| why.ends_with(UNCHANGED))
}

/// The status of a binding that asks for what can't be made. `snapshot` is the name of its snapshot.
pub(crate) fn status(
    binding: &Binding,
    digest: Digest,
    snapshot: &str,
    refusal: &Refusal,
    now: Timestamp,
) -> BindingStatus {
    filled(binding, Some((digest, snapshot)), now, |report| {
        report.refused(refusal);
    })
}

/// The status of a binding, filled anew. `about` is what it asks for, and the name of its snapshot.
pub(super) fn filled(
    binding: &Binding,
    about: Option<(Digest, &str)>,
    now: Timestamp,
    fill: impl FnOnce(&mut Report<'_>),
) -> BindingStatus {
    let previous = binding.status.clone().unwrap_or_default();
    let mut conditions = previous.conditions.unwrap_or_default();
    let observed = previous.observed_digest.as_deref();
    if let Some((digest, _)) = about
        && observed.is_none_or(|observed| !digest.is(observed))
    {
        // What was available is not what is asked for now: its clock starts anew.
        conditions.retain(|condition| condition.type_ != Stage::Available.as_str());
    }
    let mut report = Report {
        binding,
        previous: &conditions,
        now,
        status: BindingStatus::default(),
    };
    fill(&mut report);
    let mut status = report.status;
    if let Some((digest, snapshot)) = about {
        status.observed_digest = Some(digest.to_string());
        status.observed_resource_snapshot_name = Some(snapshot.to_owned());
    }
    status
}

impl Report<'_> {
    pub(super) fn refused(&mut self, refusal: &Refusal) {
        match refusal {
            Refusal::Override(why) => self.override_failed(why),
            Refusal::Content(why) => {
                self.not_synced(format!("{why}; {UNCHANGED}"));
                self.left(Some(BindingReason::SyncWorkFailed));
            }
        }
    }

    /// Nothing was sent, and nothing is watched.
    pub(super) fn override_failed(&mut self, why: &str) {
        self.started();
        let message = format!("{why}; {UNCHANGED}");
        let reason = BindingReason::OverriddenFailed;
        self.condition(Stage::Overridden, Status::False, reason, message);
        self.left(Some(reason));
    }

    /// The cluster could not be told, for another reason than that nothing can be made for it.
    pub(super) fn sync_failed(&mut self, message: String) {
        self.not_synced(message);
        self.left(None);
    }

    /// That what the cluster was given before was available is still worth something to the rollout, where
    /// nothing was sent since; that it was not costs it something. No more than that is known.
    fn left(&mut self, refused: Option<BindingReason>) {
        let (reason, was) = match (left(self.binding), refused) {
            (Left::Available, Some(refused)) => (refused, "was available"),
            (Left::Available, None) | (Left::Unavailable, _) => (
                BindingReason::NotAllWorkAreAvailable,
                "is not known to be available",
            ),
            (Left::Nothing, _) => return,
        };
        let message = format!(
            "What the cluster was given before {was}; it is not watched until what is wanted now can be made"
        );
        self.condition(Stage::Available, Status::Unknown, reason, message);
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use windlass_api::binding::BindingStatus;
    use windlass_api::scoped::Binding;
    use windlass_status::conditions::{find, status};
    use windlass_status::ready::{Facts, Readiness, classify};

    use super::*;

    /// Has the binding say that what it asks for was refused.
    fn refuse(binding: &mut Binding, refusal: &Refusal, second: i64) {
        let previous = binding.status.clone().unwrap_or_default().conditions;
        let mut report = Report {
            binding,
            previous: previous.as_deref().unwrap_or_default(),
            now: Timestamp::from_second(second).unwrap(),
            status: BindingStatus::default(),
        };
        report.refused(refusal);
        binding.status = Some(report.status);
    }

    fn binding(available: Option<Status>) -> Binding {
        let mut binding = Binding::default();
        binding.metadata.generation = Some(1);
        let empty = binding.clone();
        let mut report = Report {
            binding: &empty,
            previous: &[],
            now: Timestamp::UNIX_EPOCH,
            status: BindingStatus::default(),
        };
        if let Some(status) = available {
            report.condition(
                Stage::Available,
                status,
                BindingReason::AllWorkAreAvailable,
                "",
            );
        }
        binding.status = Some(report.status);
        binding
    }

    /// Whether that keeps the cluster from changing its mode, and what is said.
    #[test]
    fn what_is_refused_is_told_from_what_a_cluster_refuses() {
        let bad_override = Refusal::Override("no such path".to_owned());
        let bad_content = Refusal::Content("no such scope".to_owned());
        for (about, refusal, generation, expected) in [
            ("an override", Some(&bad_override), 1, Some("no such path")),
            ("the content", Some(&bad_content), 1, Some("no such scope")),
            ("what was wanted before", Some(&bad_override), 2, None),
            ("nothing", None, 1, None),
        ] {
            let mut binding = binding(Some(Status::True));
            if let Some(refusal) = refusal {
                refuse(&mut binding, refusal, 10);
            }
            binding.metadata.generation = Some(generation);
            let expected = expected.map(|why| format!("{why}; {UNCHANGED}"));
            assert_eq!(why(&binding), expected.as_deref(), "{about}");
            assert_eq!(is_refused(&binding), expected.is_some(), "{about}");
        }
        let mut binding = binding(None);
        let fill = |report: &mut Report<'_>| report.sync_failed("no rights".to_owned());
        let status = filled(&binding, None, Timestamp::UNIX_EPOCH, fill);
        binding.status = Some(status);
        assert_eq!(why(&binding), Some("no rights"));
        assert!(!is_refused(&binding), "another owner may have them");
    }

    #[test]
    fn what_is_not_watched_is_not_said_to_be_available() {
        use Readiness::{Failed, Undisturbed, Withheld};
        let bad_override = Refusal::Override("no such path".to_owned());
        let bad_content = Refusal::Content("no such scope".to_owned());
        let unknown = Some(Status::Unknown);
        let not_available = Failed(Stage::Available);
        let sync = Failed(Stage::WorkSynchronized);
        for (refusal, before, said, class) in [
            (&bad_override, Some(Status::True), unknown, Undisturbed),
            (&bad_override, Some(Status::False), unknown, not_available),
            (&bad_override, Some(Status::Unknown), unknown, not_available),
            (&bad_override, None, None, Failed(Stage::Overridden)),
            (&bad_content, Some(Status::True), unknown, Withheld),
            (&bad_content, Some(Status::False), unknown, sync),
            (&bad_content, Some(Status::Unknown), unknown, sync),
            (&bad_content, None, None, sync),
        ] {
            let mut binding = binding(before);
            refuse(&mut binding, refusal, 10);
            let first = binding.status.clone().unwrap();
            // However often it is refused.
            refuse(&mut binding, refusal, 20);
            assert_eq!(binding.status, Some(first.clone()), "{before:?}");
            let conditions = first.conditions.unwrap();
            assert_eq!(
                find(&conditions, "Available").map(status),
                said,
                "{refusal:?} {before:?}"
            );
            let facts = Facts {
                binding: &binding,
                desired_digest: None,
                unreachable: false,
                unavailable_period: SignedDuration::ZERO,
            };
            let found = classify(&facts, Timestamp::UNIX_EPOCH);
            assert_eq!(found, class, "{refusal:?} {before:?}");
        }
    }
}
