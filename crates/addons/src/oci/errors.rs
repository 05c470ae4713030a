//! What a registry's answer comes to when it is a failure: the status decides (reference, seed systems A6),
//! and the error in the body tells the cause.

use jiff::Timestamp;
use serde::Deserialize;

use crate::failure::Failure;
use crate::http::{self, Answer};

/// Most of an error's body that is read.
const MOST: usize = 64 << 10;
/// Most characters of it that are shown.
const SHOWN: usize = 200;
/// Shorter texts are not looked for: hiding them would hide half of every message.
const SHORTEST_SECRET: usize = 4;

/// Codes that may pass whatever status they come with.
const PASSING: [&str; 3] = ["TOOMANYREQUESTS", "UNAVAILABLE", "UNKNOWN"];

/// Texts that no message may hold, should a server repeat what it was sent.
#[derive(Clone, Default)]
pub struct Secrets(Vec<String>);

impl Secrets {
    /// Adds one.
    pub fn add(&mut self, secret: &str) {
        if secret.len() >= SHORTEST_SECRET {
            self.0.push(secret.to_owned());
        }
    }

    fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.0 {
            text = text.replace(secret.as_str(), "(hidden)");
        }
        text
    }
}

#[derive(Deserialize)]
struct Body {
    errors: Vec<One>,
}

#[derive(Deserialize)]
struct One {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: Option<String>,
}

/// What the body of a failed answer says; none if it is no registry's error.
fn told(body: &[u8]) -> Option<One> {
    let body: Body = serde_json::from_slice(body).ok()?;
    body.errors.into_iter().next()
}

/// The failure that an answer is. The message names what was asked, the status, and the registry's own code
/// and words.
pub async fn failure(answer: Answer, now: Timestamp, secrets: &Secrets) -> Failure {
    let base = answer.failure().unwrap_or_else(|| {
        let message = format!(
            "{} answered {}, which makes no sense",
            answer.shown(),
            answer.status()
        );
        Failure::transient(message)
    });
    let wait = http::retry_after(answer.headers(), now);
    let body = answer.whole(MOST).await.unwrap_or_default();
    detailed(base, wait, &body, secrets)
}

fn detailed(
    base: Failure,
    wait: Option<std::time::Duration>,
    body: &[u8],
    secrets: &Secrets,
) -> Failure {
    let Some(one) = told(body) else {
        return base;
    };
    let message = match one.message.as_deref().unwrap_or_default() {
        "" => one.code.clone(),
        words => format!("{}: {words}", one.code),
    };
    let message = format!("{base}: {}", cut(&secrets.hide(&message)));
    match base {
        Failure::Terminal { fault, .. } if !PASSING.contains(&one.code.as_str()) => {
            Failure::Terminal { fault, message }
        }
        Failure::Terminal { .. } | Failure::Transient { .. } => Failure::Transient {
            message,
            retry_after: wait,
        },
    }
}

/// A server's words, fit for a condition.
fn cut(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = plain.clone().take(SHOWN).collect();
    if plain.count() > SHOWN {
        short.push('…');
    }
    short.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::Fault;

    #[test]
    fn the_registrys_code_decides_only_where_it_may_pass() {
        let cases = [
            (404, "NAME_UNKNOWN", Some(Fault::SourceNotFound)),
            (401, "UNAUTHORIZED", Some(Fault::AuthenticationFailed)),
            (403, "DENIED", Some(Fault::AuthenticationFailed)),
            (400, "NAME_INVALID", Some(Fault::SourceRejectedRequest)),
            (405, "UNSUPPORTED", Some(Fault::SourceRejectedRequest)),
            (429, "TOOMANYREQUESTS", None),
            (403, "TOOMANYREQUESTS", None),
            (404, "UNAVAILABLE", None),
            (400, "UNKNOWN", None),
            (500, "UNKNOWN", None),
            (503, "NAME_UNKNOWN", None),
        ];
        for (status, code, fault) in cases {
            let base = Failure::of_status(status, None, format!("answered {status}")).unwrap();
            let body = json!({"errors": [{"code": code, "message": "why", "detail": {"a": 1}}]});
            let wait = Some(Duration::from_secs(7));
            let found = detailed(base, wait, body.to_string().as_bytes(), &Secrets::default());
            assert_eq!(found.fault(), fault, "{status} {code}");
            assert_eq!(found.to_string(), format!("answered {status}: {code}: why"));
            assert_eq!(found.retry_after().is_some(), fault.is_none());
        }
    }

    #[test]
    fn a_body_that_is_no_registrys_changes_nothing() {
        for body in ["", "<html>", "{}", r#"{"errors":[]}"#, r#"{"errors":"x"}"#] {
            let base = Failure::of_status(404, None, "answered 404".to_owned()).unwrap();
            let found = detailed(base.clone(), None, body.as_bytes(), &Secrets::default());
            assert_eq!(found, base, "{body}");
        }
    }

    #[test]
    fn a_servers_words_are_cut_and_hold_no_secret() {
        let mut secrets = Secrets::default();
        secrets.add("hunter22");
        secrets.add("ok");
        let words = format!("no\r\n\u{7}hunter22 is not ok {}", "é".repeat(300));
        let body = json!({"errors": [{"code": "DENIED", "message": words}]});
        let base = Failure::of_status(403, None, "x".to_owned()).unwrap();
        let text = detailed(base, None, body.to_string().as_bytes(), &secrets).to_string();
        assert!(
            text.starts_with("x: DENIED: no   (hidden) is not ok é"),
            "{text}"
        );
        assert!(text.ends_with("é…"), "{text}");
        assert_eq!(text.chars().count(), "x: ".len() + SHOWN + 1);
    }
}
