//! Why a repository could not be read, and whether trying again can help (reference, seed systems A6).

use std::time::Duration;

/// What somebody has to mend: trying again does not help by itself. It is tried again all the same, at the
/// longest distance, so that it recovers without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 401, 403, or a token endpoint that refuses.
    AuthenticationFailed,
    /// 404.
    SourceNotFound,
    /// Any other 4xx but 408, 425 and 429; a redirect that must not be followed.
    SourceRejectedRequest,
    /// The url has no host or no chart's name, or holds credentials.
    InvalidRepositoryUrl,
    /// A scheme that is neither http, https nor oci.
    UnsupportedRepositoryType,
    /// A Secret has no usable credentials, certificate or key.
    InvalidCredentials,
    /// The index is larger than what is read of one.
    IndexTooLarge,
}

impl Fault {
    /// The reason in a condition.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::AuthenticationFailed => "AuthenticationFailed",
            Self::SourceNotFound => "SourceNotFound",
            Self::SourceRejectedRequest => "SourceRejectedRequest",
            Self::InvalidRepositoryUrl => "InvalidRepositoryURL",
            Self::UnsupportedRepositoryType => "UnsupportedRepositoryType",
            Self::InvalidCredentials => "InvalidCredentials",
            Self::IndexTooLarge => "IndexTooLarge",
        }
    }
}

/// What every message says that tells of another digest than the one that was promised.
pub(crate) const MISMATCH: &str = "digest";

/// A reading that has failed. The message is for people: it says what was asked of which host, what came
/// back and what to do, and never holds a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Somebody has to mend something.
    #[error("{message}")]
    Terminal {
        /// What.
        fault: Fault,
        /// For people.
        message: String,
    },
    /// It may pass: 408, 425, 429, 5xx, a connection that failed, an answer that makes no sense.
    #[error("{message}")]
    Transient {
        /// For people: the last real cause.
        message: String,
        /// How long the server asked us to stay away.
        retry_after: Option<Duration>,
    },
}

impl Failure {
    /// A terminal one.
    #[must_use]
    pub fn terminal(fault: Fault, message: impl Into<String>) -> Self {
        Self::Terminal {
            fault,
            message: message.into(),
        }
    }

    /// One that may pass.
    #[must_use]
    pub fn transient(message: impl Into<String>) -> Self {
        Self::Transient {
            message: message.into(),
            retry_after: None,
        }
    }

    /// What an answer's status code comes to; none for a code that is no failure.
    ///
    /// `message` says what was asked, of whom, and what came back.
    #[must_use]
    pub fn of_status(code: u16, retry_after: Option<Duration>, message: String) -> Option<Self> {
        let fault = match code {
            ..=399 => return None,
            401 | 403 => Fault::AuthenticationFailed,
            404 => Fault::SourceNotFound,
            408 | 425 | 429 | 500.. => {
                return Some(Self::Transient {
                    message,
                    retry_after,
                });
            }
            _ => Fault::SourceRejectedRequest,
        };
        Some(Self::Terminal { fault, message })
    }

    /// Whether what came is not what it was said to be: its digest is another one.
    #[must_use]
    pub fn is_mismatch(&self) -> bool {
        self.to_string().contains(MISMATCH)
    }

    /// What it is, if somebody has to mend something.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Terminal { fault, .. } => Some(*fault),
            Self::Transient { .. } => None,
        }
    }

    /// How long the server asked us to stay away.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Terminal { .. } => None,
            Self::Transient { retry_after, .. } => *retry_after,
        }
    }
}
