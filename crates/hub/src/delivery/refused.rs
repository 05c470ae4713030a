//! What is said of a cluster that gets nothing new. The preview says the same.

use jiff::Timestamp;
use windlass_api::binding::BindingStatus;
use windlass_api::conditions::Stage;
use windlass_api::scoped::Binding;
use windlass_status::digest::Digest;

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
}
