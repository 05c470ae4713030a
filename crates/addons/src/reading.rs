//! Reading a repository of either kind.

use serde_json::json;
use windlass_status::Digest;

use crate::catalogue::InUse;
use crate::failure::Failure;
use crate::helm::{self, Reading, Validators};
use crate::oci::{self, KnownTags};
use crate::source::{Protocol, Source};

/// Reads a repository, within the source's timeout.
///
/// `validators` are those of the last reading, if its catalogue is still what the AddonCharts say; `known` is
/// what they say, for a registry. Without either everything is read anew.
///
/// # Errors
///
/// As [`helm::read`] and [`oci::read`] say.
pub async fn read(
    source: &Source,
    in_use: &InUse,
    validators: Option<&Validators>,
    known: &KnownTags,
) -> Result<Reading, Failure> {
    match source.protocol {
        Protocol::Helm => helm::read(source, in_use, validators, &helm::Limits::default()).await,
        Protocol::Oci => {
            let reading = oci::read(source, in_use, known, &oci::Limits::default()).await?;
            Ok(reading.into())
        }
    }
}

impl From<oci::Reading> for Reading {
    /// A registry has no document that could be the same: a reading of it is never unchanged, and what is
    /// spared is asking for each version again.
    fn from(reading: oci::Reading) -> Self {
        if let Some(cause) = &reading.cause {
            tracing::info!(pending = reading.pending, %cause, "some versions could not be looked at");
        }
        let charts = &reading.catalogue.charts;
        let versions = charts.iter().map(|(name, chart)| (name, &chart.versions));
        let digest = Digest::of_json(&json!(versions.collect::<Vec<_>>()));
        Self::Read {
            catalogue: reading.catalogue,
            validators: Validators::default(),
            digest,
            bytes: 0,
        }
    }
}
