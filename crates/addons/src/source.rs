//! Where a repository is and as whom it is read: what its spec and Secrets come to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::json;
use url::Url;
use windlass_api::addon::RepositorySpec;
use windlass_status::{Digest, duration};

use crate::failure::{Failure, Fault};

/// How long one reading may take, unless the spec says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(1);

/// A text that no log line, event, condition or error shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(String);

impl Hidden {
    /// Hides a text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for the wire.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Which protocol a repository speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// An `index.yaml` over HTTP.
    Helm,
    /// A registry.
    Oci,
}

/// As whom a repository is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// User name and password.
    Basic {
        /// User name.
        username: String,
        /// Password.
        password: Hidden,
    },
    /// A bearer token.
    Token(Hidden),
}

/// Whom to trust, and who we are.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Tls {
    /// Certificates of authorities in PEM, trusted instead of the system's.
    pub ca: Option<String>,
    /// Our certificate and its key, both in PEM.
    pub identity: Option<(String, Hidden)>,
    /// Whether the server's certificate goes unchecked.
    pub skip_verify: bool,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The url; its scheme is http or https, also for a registry.
    pub url: Url,
    /// Protocol.
    pub protocol: Protocol,
    /// As whom; none means anonymously.
    pub credentials: Option<Credentials>,
    /// TLS options.
    pub tls: Tls,
    /// Which charts; none means all (classic), or the one that the url names (OCI).
    pub charts: Option<Vec<String>>,
    /// How long one reading may take.
    pub timeout: Duration,
    /// How many versions of each chart are kept besides those in use.
    pub max_versions: usize,
    /// Digest of what decides where and as whom it is read.
    pub digest: Digest,
}

/// The data of a Secret, decoded.
pub type SecretData = BTreeMap<String, Vec<u8>>;
