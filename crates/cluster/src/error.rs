//! What an API server's refusal means for us.

use std::time::Duration;

use kube::core::Status;

/// Longest message that is kept: a proxy may answer with a page.
const LONGEST_MESSAGE: usize = 1024;

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
        use kube::Error;
        match error {
            // Its display repeats the status by Debug.
            Error::Api(status) => Self::from_status(&status),
            // Its display may quote what was read, which may be a secret.
            Error::SerdeError(error) => Self::unreadable(&error),
            // Nothing was sent, and nothing will be until the request or the configuration changes.
            error @ (Error::BuildRequest(_)
            | Error::HttpError(_)
            | Error::TlsRequired
            | Error::RustlsTls(_)
            | Error::ProxyProtocolUnsupported { .. }
            | Error::ProxyProtocolDisabled { .. }
            | Error::InferConfig(_)
            | Error::InferKubeconfig(_)) => Self::Rejected(chain(&error)),
            // The wrapper says no more than that it wraps.
            Error::Service(error) => Self::transient(chain(error.as_ref())),
            other => Self::transient(chain(&other)),
        }
    }

    /// Sorts an API status into a class. Ordered; the first row that fits counts:
    ///
    /// | status | class |
    /// |---|---|
    /// | any, caused by a namespace that is going away | transient: it ends without anybody acting |
    /// | 500, the object is too large for etcd | rejected |
    /// | 401 | unauthorized |
    /// | 404 | not found |
    /// | 409 AlreadyExists | already exists |
    /// | 409 | conflict |
    /// | 408, 410, 429, 5xx | transient, with the server's hint |
    /// | anything else | rejected |
    #[must_use]
    pub fn from_status(status: &Status) -> Self {
        let details = status.details.as_ref();
        let message = message_of(status);
        let transient = |message| Self::Transient {
            message,
            retry_after: details
                .map(|details| details.retry_after_seconds)
                .filter(|seconds| *seconds > 0)
                .map(|seconds| Duration::from_secs(seconds.into())),
        };
        let caused_by = |reason| {
            details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == reason))
        };
        match status.code {
            _ if caused_by("NamespaceTerminating") => transient(message),
            500 if message.contains("request is too large") => Self::Rejected(message),
            401 => Self::Unauthorized(message),
            404 => Self::NotFound(message),
            409 if status.reason == "AlreadyExists" => Self::AlreadyExists(message),
            409 => Self::Conflict(message),
            408 | 410 | 429 | 500..=599 => transient(message),
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

    /// An answer that is not what was asked for. Where, not what: it may hold a secret.
    pub(crate) fn unreadable(error: &serde_json::Error) -> Self {
        Self::transient(format!(
            "the server's answer can't be read ({:?} error at line {}, column {})",
            error.classify(),
            error.line(),
            error.column()
        ))
    }

    /// The error with a hint that came beside the status; the status' own hint goes first.
    pub(crate) fn hinted(self, hint: Option<Duration>) -> Self {
        match self {
            Self::Transient {
                message,
                retry_after,
            } => Self::Transient {
                message,
                retry_after: retry_after.or(hint),
            },
            other => other,
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

fn message_of(status: &Status) -> String {
    if status.message.is_empty() {
        return format!("{} {}", status.code, status.reason)
            .trim_end()
            .to_owned();
    }
    match status.message.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => format!("{}…", &status.message[..end]),
        None => status.message.clone(),
    }
}

/// An error and its causes in one line, each said once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
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
    use kube::core::response::{StatusCause, StatusDetails};

    fn status(code: u16, reason: &str) -> Status {
        Status {
            code,
            reason: reason.into(),
            message: "m".into(),
            ..Default::default()
        }
    }

    fn no_details() -> StatusDetails {
        serde_json::from_str("{}").unwrap()
    }

    #[test]
    fn classes() {
        let class = |code, reason: &str| ApiError::from_status(&status(code, reason));
        let m = || "m".to_owned();
        assert_eq!(class(404, "NotFound"), ApiError::NotFound(m()));
        assert_eq!(class(409, "AlreadyExists"), ApiError::AlreadyExists(m()));
        assert_eq!(class(409, "Conflict"), ApiError::Conflict(m()));
        assert_eq!(class(401, "Unauthorized"), ApiError::Unauthorized(m()));
        for code in [302, 400, 403, 405, 413, 415, 422] {
            assert_eq!(class(code, ""), ApiError::Rejected(m()), "{code}");
        }
        for code in [408, 410, 429, 500, 503, 504] {
            assert_eq!(class(code, ""), ApiError::transient("m"), "{code}");
        }
    }

    #[test]
    fn a_namespace_that_goes_away_is_waited_for() {
        let cause = StatusCause {
            reason: "NamespaceTerminating".into(),
            message: String::new(),
            field: String::new(),
        };
        let details = StatusDetails {
            causes: vec![cause],
            ..no_details()
        };
        let error = ApiError::from_status(&status(403, "Forbidden").with_details(details));
        assert_eq!(error, ApiError::transient("m"));
    }

    #[test]
    fn an_object_too_large_for_etcd_is_for_somebody_to_act_on() {
        let mut status = status(500, "");
        status.message = "etcdserver: request is too large".into();
        assert!(matches!(
            ApiError::from_status(&status),
            ApiError::Rejected(_)
        ));
    }

    #[test]
    fn the_status_own_hint_goes_first() {
        let details = StatusDetails {
            retry_after_seconds: 3,
            ..no_details()
        };
        let with = ApiError::from_status(&status(429, "").with_details(details));
        let hint = Some(Duration::from_secs(9));
        assert_eq!(
            with.hinted(hint).retry_after(),
            Some(Duration::from_secs(3))
        );
        assert_eq!(
            ApiError::from_status(&status(429, ""))
                .hinted(hint)
                .retry_after(),
            hint
        );
        assert_eq!(
            ApiError::Conflict("m".into()).hinted(hint).retry_after(),
            None
        );
    }

    #[test]
    fn messages_are_never_empty_nor_endless() {
        let mut status = status(503, "ServiceUnavailable");
        status.message.clear();
        assert_eq!(
            ApiError::from_status(&status).message(),
            "503 ServiceUnavailable"
        );
        status.message = "é".repeat(5000);
        assert_eq!(
            ApiError::from_status(&status).message().chars().count(),
            LONGEST_MESSAGE + 1
        );
    }

    #[test]
    fn what_was_read_is_never_quoted() {
        let error = serde_json::from_str::<u8>("\"hunter2\"").unwrap_err();
        let error = ApiError::from_kube(kube::Error::SerdeError(error));
        assert!(
            error.is_transient() && !error.message().contains("hunter2"),
            "{error}"
        );
    }
}
