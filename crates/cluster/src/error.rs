//! What an API server's refusal means for us.

use std::time::Duration;

use kube::core::Status;

/// An error of one request, by what it asks of the caller.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ApiError {
    /// The object, or its kind, does not exist.
    #[error("not found: {0}")]
    NotFound(String),
    /// A create met an object of that name.
    #[error("already exists: {0}")]
    AlreadyExists(String),
    /// The object has changed since it was read, or a field belongs to somebody else: read again.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The server refuses for good (invalid, forbidden, too large): somebody has to act.
    #[error("refused: {0}")]
    Rejected(String),
    /// The credentials are not accepted.
    #[error("not authorized: {0}")]
    Unauthorized(String),
    /// An outage: try again later.
    #[error("{message}")]
    Transient {
        /// What happened.
        message: String,
        /// How long the server asked us to wait.
        retry_after: Option<Duration>,
    },
}

impl ApiError {
    /// Sorts a client error into a class.
    #[must_use]
    pub fn from_kube(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from_status(&status),
            // The display of the others holds no more than a chain of causes; debug output is never used.
            other => Self::transient(chain(&other)),
        }
    }

    /// Sorts an API status into a class.
    #[must_use]
    pub fn from_status(status: &Status) -> Self {
        let message = if status.message.is_empty() {
            format!("{} {}", status.code, status.reason)
        } else {
            status.message.clone()
        };
        match status.code {
            404 => Self::NotFound(message),
            409 if status.reason == "AlreadyExists" => Self::AlreadyExists(message),
            409 => Self::Conflict(message),
            // An etcd write timeout and an admission webhook that is down answer 500 and above.
            401 => Self::Unauthorized(message),
            408 | 429 | 500..=599 => Self::Transient {
                message,
                retry_after: status
                    .details
                    .as_ref()
                    .map(|details| details.retry_after_seconds)
                    .filter(|seconds| *seconds > 0)
                    .map(|seconds| Duration::from_secs(seconds.into())),
            },
            410 => Self::transient(message),
            _ => Self::Rejected(message),
        }
    }

    /// An outage without a hint.
    #[must_use]
    pub fn transient(message: impl Into<String>) -> Self {
        Self::Transient {
            message: message.into(),
            retry_after: None,
        }
    }

    /// Whether trying again can help without anybody acting.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Transient { .. } | Self::Conflict(_) | Self::AlreadyExists(_)
        )
    }

    /// Whether the server could not be reached or did not accept us.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Transient { .. } | Self::Unauthorized(_))
    }

    /// How long the server asked us to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Transient { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The server's words.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::NotFound(message)
            | Self::AlreadyExists(message)
            | Self::Conflict(message)
            | Self::Rejected(message)
            | Self::Unauthorized(message)
            | Self::Transient { message, .. } => message,
        }
    }
}

/// An error and its causes in one line, each said once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, reason: &str) -> Status {
        Status {
            code,
            reason: reason.into(),
            message: "m".into(),
            ..Default::default()
        }
    }

    #[test]
    fn classes() {
        let class = |code, reason: &str| ApiError::from_status(&status(code, reason));
        assert_eq!(class(404, "NotFound"), ApiError::NotFound("m".into()));
        assert_eq!(
            class(409, "AlreadyExists"),
            ApiError::AlreadyExists("m".into())
        );
        assert_eq!(class(409, "Conflict"), ApiError::Conflict("m".into()));
        assert_eq!(
            class(401, "Unauthorized"),
            ApiError::Unauthorized("m".into())
        );
        for code in [400, 403, 413, 415, 422] {
            assert_eq!(class(code, ""), ApiError::Rejected("m".into()), "{code}");
        }
        for code in [408, 429, 500, 503, 504] {
            assert!(class(code, "").is_outage(), "{code}");
        }
    }
}
