//! What is said of a cluster that gets nothing new. The preview says the same.

use jiff::Timestamp;
use windlass_api::binding::BindingStatus;
use windlass_api::conditions::{BindingReason, Stage, Status};
use windlass_api::scoped::Binding;
use windlass_status::digest::Digest;
use windlass_status::ready::was_available;

use super::Report;
use crate::render::Refusal;

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
                self.sync_failed(format!("{why}; nothing was changed on the cluster"));
            }
        }
    }

    /// Nothing was sent, and nothing is watched. That what the cluster was given before was available is
    /// still worth something to the rollout, and no more than that is known.
    pub(super) fn override_failed(&mut self, why: &str) {
        self.started();
        let message = format!("{why}; nothing was changed on the cluster");
        self.condition(
            Stage::Overridden,
            Status::False,
            BindingReason::OverriddenFailed,
            message,
        );
        if was_available(self.binding) {
            self.condition(
                Stage::Available,
                Status::Unknown,
                BindingReason::OverriddenFailed,
                "What the cluster was given before was available; it is not watched until overrides can be worked in",
            );
        }
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

    /// Has the binding say that its override was refused.
    fn refuse(binding: &mut Binding, second: i64) {
        let previous = binding.status.clone().unwrap_or_default().conditions;
        let mut report = Report {
            binding,
            previous: previous.as_deref().unwrap_or_default(),
            now: Timestamp::from_second(second).unwrap(),
            status: BindingStatus::default(),
        };
        report.override_failed("no such path");
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

    #[test]
    fn what_is_not_watched_is_not_said_to_be_available() {
        use Readiness::{Failed, Undisturbed};
        let failed = Failed(Stage::Overridden);
        for (before, said, class) in [
            (Some(Status::True), Some(Status::Unknown), Undisturbed),
            (Some(Status::False), None, failed),
            (Some(Status::Unknown), None, failed),
            (None, None, failed),
        ] {
            let mut binding = binding(before);
            refuse(&mut binding, 10);
            let first = binding.status.clone().unwrap();
            // However often it is refused.
            refuse(&mut binding, 20);
            assert_eq!(binding.status, Some(first.clone()), "{before:?}");
            let conditions = first.conditions.unwrap();
            assert_eq!(
                find(&conditions, "Available").map(status),
                said,
                "{before:?}"
            );
            let facts = Facts {
                binding: &binding,
                desired_digest: None,
                unreachable: false,
                unavailable_period: SignedDuration::ZERO,
            };
            assert_eq!(classify(&facts, Timestamp::UNIX_EPOCH), class, "{before:?}");
        }
    }
}
