//! The hub's credentials for a member: a bound token of its ServiceAccount there, in a kubeconfig that is
//! stored in a Secret on the hub (design §5.18), renewed at half its life.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Api, PostParams as TokenParams};
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
    /// When it expires.
    pub expires: Timestamp,
}

/// Asks a member for a token of the hub's ServiceAccount.
///
/// # Errors
/// See [`ApiError`].
pub async fn request_token(member: &Client) -> Result<Token, ApiError> {
    let api: Api<ServiceAccount> = Api::namespaced(member.clone(), names::HUB_NAMESPACE);
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(LIFE), ..Default::default() },
        ..Default::default()
    };
    let answer = api
        .create_token_request(SERVICE_ACCOUNT, &TokenParams::default(), &request)
        .await
        .map_err(ApiError::from_kube)?;
    let status = answer.status.ok_or_else(|| ApiError::transient("the cluster gave no token"))?;
    Ok(Token { secret: status.token, expires: status.expiration_timestamp.0 })
}

/// A kubeconfig with nothing but a server, its CA and a token.
#[must_use]
pub fn kubeconfig(cluster: &str, server: &str, ca_data: Option<&str>, token: &str) -> Value {
    let mut target = json!({ "server": server });
    if let Some(ca) = ca_data {
        target["certificate-authority-data"] = json!(ca);
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
        data: Some(BTreeMap::from([(KUBECONFIG_KEY.to_owned(), ByteString(kubeconfig.to_string().into_bytes()))])),
        type_: Some("Opaque".to_owned()),
        ..Default::default()
    };
    secret.metadata.name = Some(names::credentials_secret(cluster));
    secret.metadata.namespace = Some(names::HUB_NAMESPACE.to_owned());
    secret.labels_mut().insert(labels::CREDENTIALS_CLUSTER.to_owned(), cluster.to_owned());
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
    let (Some(issued), Some(expires)) = (time(secret, ISSUED), expiry(secret)) else { return false };
    now.duration_since(issued) * 2 >= expires.duration_since(issued)
}

/// The Secret with a new token; all else stays.
///
/// # Errors
/// When the member does not give one, or the Secret can't be read.
pub async fn renew(member: &Client, old: &Secret, now: Timestamp) -> Result<Secret, ApiError> {
    let unreadable = || ApiError::Rejected(format!("Secret {} holds no kubeconfig of ours", old.name_any()));
    let bytes = old.data.as_ref().and_then(|data| data.get(KUBECONFIG_KEY)).ok_or_else(unreadable)?;
    let mut config: Value = serde_json::from_slice(&bytes.0).map_err(|_| unreadable())?;
    let token = request_token(member).await?;
    *config.pointer_mut("/users/0/user/token").ok_or_else(unreadable)? = json!(token.secret);
    let mut renewed = old.clone();
    renewed
        .data
        .get_or_insert_default()
        .insert(KUBECONFIG_KEY.to_owned(), ByteString(config.to_string().into_bytes()));
    stamp(&mut renewed, &token, now);
    Ok(renewed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_at_half_its_life() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let token = Token { secret: "t".into(), expires: at(1100) };
        let secret = secret("a", &kubeconfig("a", "https://127.0.0.1:1", None, "t"), &token, at(100));
        assert!(!is_due(&secret, at(599)));
        assert!(is_due(&secret, at(600)));
        assert_eq!(expiry(&secret), Some(at(1100)));
        assert!(!is_due(&Secret::default(), at(600)), "a Secret made by hand is left alone");
    }
}
