//! One reading of a repository, of whichever protocol.

use crate::catalogue::{Catalogue, InUse};
use crate::failure::Failure;
use crate::helm::{self, Validators};
use crate::oci::{self, KnownTags};
use crate::source::{Protocol, Source};

/// What a reading came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// Nothing has changed since what the validators are of.
    Unchanged,
    /// It was read.
    Read {
        /// What it offers.
        catalogue: Catalogue,
        /// What the next reading may ask for news with; none for a registry.
        validators: Option<Validators>,
    },
}

/// What is known from before, to read less.
#[derive(Clone, Debug, Default)]
pub struct Before {
    /// Of a classic repository, if what was read of it still stands.
    pub validators: Option<Validators>,
    /// Of a registry; empty to look at everything anew.
    pub tags: KnownTags,
}

/// Reads what a repository offers.
///
/// # Errors
/// See [`Failure`].
pub async fn read(source: &Source, in_use: &InUse, before: &Before) -> Result<Reading, Failure> {
    match source.protocol {
        Protocol::Helm => {
            let known = before.validators.as_ref();
            let limits = helm::Limits::default();
            Ok(match helm::read(source, in_use, known, &limits).await? {
                helm::Reading::Unchanged => Reading::Unchanged,
                helm::Reading::Read {
                    catalogue,
                    validators,
                    ..
                } => Reading::Read {
                    catalogue,
                    validators: Some(validators),
                },
            })
        }
        Protocol::Oci => {
            let limits = oci::Limits::default();
            let reading = oci::read(source, in_use, &before.tags, &limits).await?;
            if let Some(cause) = &reading.cause {
                tracing::info!(pending = reading.pending, %cause, "some versions could not be looked at yet");
            }
            Ok(Reading::Read {
                catalogue: reading.catalogue,
                validators: None,
            })
        }
    }
}
