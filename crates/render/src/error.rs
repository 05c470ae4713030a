//! Why a cluster gets nothing new.

use std::fmt;

use windlass_api::placement::EnvelopeIdentifier;

use crate::overrides::OverrideName;

/// Why a manifest can't be made for a cluster. Holds no value of the manifest or the patch: either may be
/// a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderError {
    /// The cluster.
    pub cluster: String,
    /// The object, in words; none where the whole override is at fault.
    pub object: Option<String>,
    /// The envelope that the object came in.
    pub envelope: Option<EnvelopeIdentifier>,
    /// The override that is at fault; none where the placement itself is.
    pub by: Option<OverrideName>,
    /// Position of the rule in the override, from 0.
    pub rule: Option<usize>,
    /// The JSON path that is at fault.
    pub path: Option<String>,
    /// What is wrong, and what to do.
    pub why: String,
}

impl fmt::Display for RenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster {}", self.cluster)?;
        if let Some(object) = &self.object {
            write!(f, ", {object}")?;
        }
        if let Some(envelope) = &self.envelope {
            write!(f, " in {}", crate::envelope::words(envelope))?;
        }
        if let Some(by) = &self.by {
            write!(f, ", {by}")?;
        }
        if let Some(rule) = self.rule {
            write!(f, ", overrideRules[{rule}]")?;
        }
        if let Some(path) = &self.path {
            write!(f, ", path {path:?}")?;
        }
        write!(f, ": {}", self.why)
    }
}

impl std::error::Error for RenderError {}
