//! The hub's credentials for a member: a bound token of its ServiceAccount there, in a kubeconfig that is
//! stored in a Secret on the hub (design §5.18), renewed at half its life.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec, TokenRequestStatus};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::Api;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use windlass_api::{labels, names};
use windlass_cluster::ApiError;

use crate::install::SERVICE_ACCOUNT;

/// Key of the kubeconfig in the Secret.
pub const KUBECONFIG_KEY: &str = "kubeconfig";
/// When the token was issued.
const ISSUED: &str = "windlass.dev/token-issued";
/// When the token expires.
const EXPIRES: &str = "windlass.dev/token-expires";
/// Life of a token that is asked for, in seconds; the server may give less or more.
const LIFE: i64 = 24 * 3600;

/// A bound token.
pub struct Token {
    /// The token itself.
    pub secret: String,
    /// When it expires, by our clock.
    pub expires: Timestamp,
}

/// Asks a member for a token of the hub's ServiceAccount; `now` is by our own clock.
///
/// # Errors
/// See [`ApiError`].
pub async fn request_token(member: &Client, now: Timestamp) -> Result<Token, ApiError> {
    let api: Api<ServiceAccount> = Api::namespaced(member.clone(), names::HUB_NAMESPACE);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(LIFE),
            ..Default::default()
        },
        ..Default::default()
    };
    // Not for the writer: the server answers with a token and stores nothing.
    let answer = api
        .create_token_request(SERVICE_ACCOUNT, &Default::default(), &request)
        .await
        .map_err(ApiError::from_kube)?;
    let status = answer
        .status
        .ok_or_else(|| ApiError::transient("the cluster gave no token"))?;
    let granted = answer.spec.expiration_seconds;
    Ok(Token {
        expires: expiry_here(&status, granted, now),
        secret: status.token,
    })
}

/// When a token that was given `now` expires, by our clock. The cluster says it by its own, which may be wrong
/// by hours: a token would look expired as it arrives, and be renewed for ever. How long it lives stands in
/// the token itself; in what was granted, if that can't be read.
fn expiry_here(status: &TokenRequestStatus, granted: Option<i64>, now: Timestamp) -> Timestamp {
    let life = life(&status.token)
        .or(granted)
        .filter(|seconds| *seconds > 0);
    life.and_then(|seconds| now.checked_add(SignedDuration::from_secs(seconds)).ok())
        .unwrap_or(status.expiration_timestamp.0)
}

/// How long a token lives, in seconds: from when it is issued to when it expires, both by one clock.
fn life(token: &str) -> Option<i64> {
    let claims = token.split('.').nth(1)?;
    let mut base64 = claims.replace('-', "+").replace('_', "/");
    base64.push_str(&"=".repeat((4 - base64.len() % 4) % 4));
    let claims: ByteString = serde_json::from_value(base64.into()).ok()?;
    let claims: Value = serde_json::from_slice(&claims.0).ok()?;
    Some(claims.get("exp")?.as_i64()? - claims.get("iat")?.as_i64()?)
}

/// Where a member's API server is, and how it proves to be that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// URL.
    pub server: String,
    /// Certificates of its CA, in PEM and base64; absent means those of the hub's system.
    pub ca_data: Option<String>,
    /// Name in its certificate, where that is not the URL's.
    pub tls_server_name: Option<String>,
    /// Nobody looks at its certificate.
    pub insecure_skip_tls_verify: bool,
    /// URL of the proxy on the way.
    pub proxy_url: Option<String>,
}

/// A kubeconfig with nothing but an endpoint and a token.
#[must_use]
pub fn kubeconfig(cluster: &str, endpoint: &Endpoint, token: &str) -> Value {
    let mut target = json!({ "server": endpoint.server });
    for (key, value) in [
        ("certificate-authority-data", &endpoint.ca_data),
        ("tls-server-name", &endpoint.tls_server_name),
        ("proxy-url", &endpoint.proxy_url),
    ] {
        if let Some(value) = value {
            target[key] = json!(value);
        }
    }
    if endpoint.insecure_skip_tls_verify {
        target["insecure-skip-tls-verify"] = json!(true);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster,
        "clusters": [{ "name": cluster, "cluster": target }],
        "users": [{ "name": "windlass-hub", "user": { "token": token } }],
        "contexts": [{ "name": cluster, "context": { "cluster": cluster, "user": "windlass-hub" } }],
    })
}

/// The Secret for a member.
#[must_use]
pub fn secret(cluster: &str, kubeconfig: &Value, token: &Token, now: Timestamp) -> Secret {
    let mut secret = Secret {
        data: Some(BTreeMap::from([(
            KUBECONFIG_KEY.to_owned(),
            ByteString(kubeconfig.to_string().into_bytes()),
        )])),
        type_: Some("Opaque".to_owned()),
        ..Default::default()
    };
    secret.metadata.name = Some(names::credentials_secret(cluster));
    secret.metadata.namespace = Some(names::HUB_NAMESPACE.to_owned());
    secret
        .labels_mut()
        .insert(labels::CREDENTIALS_CLUSTER.to_owned(), cluster.to_owned());
    stamp(&mut secret, token, now);
    secret
}

fn stamp(secret: &mut Secret, token: &Token, now: Timestamp) {
    let annotations = secret.annotations_mut();
    annotations.insert(ISSUED.to_owned(), now.to_string());
    annotations.insert(EXPIRES.to_owned(), token.expires.to_string());
}

fn time(secret: &Secret, key: &str) -> Option<Timestamp> {
    secret.annotations().get(key)?.parse().ok()
}

/// When the token in a Secret expires, as far as is known.
#[must_use]
pub fn expiry(secret: &Secret) -> Option<Timestamp> {
    time(secret, EXPIRES)
}

/// Whether half of the token's life is over.
#[must_use]
pub fn is_due(secret: &Secret, now: Timestamp) -> bool {
    let (Some(issued), Some(expires)) = (time(secret, ISSUED), expiry(secret)) else {
        return false;
    };
    now.duration_since(issued) * 2 >= expires.duration_since(issued)
}

/// The Secret with a new token; all else stays.
///
/// # Errors
/// When the member does not give one, or the Secret can't be read.
pub async fn renew(member: &Client, old: &Secret, now: Timestamp) -> Result<Secret, ApiError> {
    let unreadable = || {
        ApiError::Rejected(format!(
            "Secret {} holds no kubeconfig of ours",
            old.name_any()
        ))
    };
    let bytes = old
        .data
        .as_ref()
        .and_then(|data| data.get(KUBECONFIG_KEY))
        .ok_or_else(unreadable)?;
    let mut config: Value = serde_json::from_slice(&bytes.0).map_err(|_| unreadable())?;
    let token = request_token(member, now).await?;
    *config
        .pointer_mut("/users/0/user/token")
        .ok_or_else(unreadable)? = json!(token.secret);
    let mut renewed = old.clone();
    renewed.data.get_or_insert_default().insert(
        KUBECONFIG_KEY.to_owned(),
        ByteString(config.to_string().into_bytes()),
    );
    stamp(&mut renewed, &token, now);
    Ok(renewed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> Endpoint {
        Endpoint {
            server: "https://127.0.0.1:1".into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_stored_kubeconfig_is_one_that_the_hub_accepts() {
        let full = Endpoint {
            ca_data: Some("Y2E=".into()),
            tls_server_name: Some("kubernetes".into()),
            insecure_skip_tls_verify: true,
            proxy_url: Some("http://proxy:3128".into()),
            ..endpoint()
        };
        let text = kubeconfig("a", &full, "word").to_string();
        let parsed = windlass_cluster::parse_stored_kubeconfig(text.as_bytes()).unwrap();
        let cluster = parsed.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:1"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("Y2E="));
        assert_eq!(cluster.tls_server_name.as_deref(), Some("kubernetes"));
        assert_eq!(cluster.insecure_skip_tls_verify, Some(true));
        assert_eq!(cluster.proxy_url.as_deref(), Some("http://proxy:3128"));
        assert_eq!(parsed.auth_infos.len(), 1);

        let plain = kubeconfig("a", &endpoint(), "word");
        assert_eq!(
            plain["clusters"][0]["cluster"],
            json!({ "server": "https://127.0.0.1:1" })
        );
    }

    fn jwt(claims: &Value) -> String {
        let base64 = serde_json::to_value(ByteString(claims.to_string().into_bytes())).unwrap();
        let url_safe = base64.as_str().unwrap().replace('+', "-").replace('/', "_");
        format!("head.{}.signature", url_safe.trim_end_matches('='))
    }

    #[test]
    fn a_clusters_clock_does_not_matter_to_a_token() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let (day, now) = (86_400, 1_000_000);
        for (about, claims, granted, told, expected) in [
            (
                "right",
                json!({ "iat": now, "exp": now + day }),
                Some(day),
                now + day,
                now + day,
            ),
            (
                "2 days behind",
                json!({ "iat": now - 2 * day, "exp": now - day }),
                Some(day),
                now - day,
                now + day,
            ),
            (
                "9 hours ahead",
                json!({ "iat": now + 32_400, "exp": now + 32_400 + day }),
                Some(day),
                now + 32_400 + day,
                now + day,
            ),
            (
                "less than asked for",
                json!({ "iat": now, "exp": now + 3600 }),
                Some(day),
                now + 3600,
                now + 3600,
            ),
            (
                "not a JWT that we can read",
                json!("x"),
                Some(600),
                now - 5,
                now + 600,
            ),
            (
                "nothing known",
                json!({ "iat": 5, "exp": 5 }),
                None,
                now + 7,
                now + 7,
            ),
        ] {
            let status = TokenRequestStatus {
                token: jwt(&claims),
                expiration_timestamp: windlass_api::Time(at(told)),
            };
            assert_eq!(
                expiry_here(&status, granted, at(now)),
                at(expected),
                "{about}"
            );
        }
        for token in ["", "a.b", "a.%.c", "é.é.é"] {
            assert_eq!(life(token), None, "{token}");
        }
    }

    #[test]
    fn a_token_is_renewed_at_half_its_life() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let token = Token {
            secret: "t".into(),
            expires: at(1100),
        };
        let secret = secret("a", &kubeconfig("a", &endpoint(), "t"), &token, at(100));
        assert!(!is_due(&secret, at(599)));
        assert!(is_due(&secret, at(600)));
        assert_eq!(expiry(&secret), Some(at(1100)));
        assert!(
            !is_due(&Secret::default(), at(600)),
            "a Secret made by hand is left alone"
        );
    }
}
