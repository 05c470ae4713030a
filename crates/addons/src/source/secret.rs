//! What stands in the Secrets of a repository. Messages name keys, never values.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};
use serde::Deserialize;
use std::collections::BTreeMap;
use url::Url;

use super::{Credentials, Hidden, SecretData, Tls};
use crate::failure::{Failure, Fault};
use crate::http::authorization;

const DOCKER: &str = ".dockerconfigjson";

/// As whom to read: `username` and `password`, else `token`, else the entry of the url's host in
/// `.dockerconfigjson`.
pub(super) fn credentials(data: &SecretData, url: &Url) -> Result<Credentials, Failure> {
    let found = match (text(data, "username")?, text(data, "password")?) {
        (Some(username), Some(password)) => basic(username, password)?,
        (Some(_), None) => return Err(invalid("the Secret has username but no password")),
        (None, Some(_)) => return Err(invalid("the Secret has password but no username")),
        (None, None) => match (text(data, "token")?, text(data, DOCKER)?) {
            (Some(token), _) => Credentials::Token(Hidden::new(token)),
            (None, Some(config)) => docker(&config, url)?,
            (None, None) => {
                return Err(invalid(
                    "the Secret has neither username and password, nor token, nor .dockerconfigjson",
                ));
            }
        },
    };
    authorization(&found)?;
    Ok(found)
}

/// Whom to trust and who we are: `ca.crt`, `tls.crt` with `tls.key`.
pub(super) fn tls(data: &SecretData) -> Result<Tls, Failure> {
    let ca = text(data, "ca.crt")?;
    if let Some(ca) = &ca {
        check_authorities(ca)?;
    }
    let identity = match (text(data, "tls.crt")?, text(data, "tls.key")?) {
        (Some(certificate), Some(key)) => {
            check_pair(&certificate, &key)?;
            Some((certificate, Hidden::new(key)))
        }
        (Some(_), None) => return Err(invalid("the Secret has tls.crt but no tls.key")),
        (None, Some(_)) => return Err(invalid("the Secret has tls.key but no tls.crt")),
        (None, None) => None,
    };
    if ca.is_none() && identity.is_none() {
        return Err(invalid(
            "the Secret has neither ca.crt nor tls.crt and tls.key",
        ));
    }
    Ok(Tls {
        ca,
        identity,
        skip_verify: false,
    })
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::terminal(Fault::InvalidCredentials, message)
}

/// The text under a key, without the line ends that `echo` leaves there; none for an absent or empty one.
fn text(data: &SecretData, key: &str) -> Result<Option<String>, Failure> {
    let Some(bytes) = data.get(key) else {
        return Ok(None);
    };
    let Ok(text) = str::from_utf8(bytes) else {
        return Err(invalid(format!("{key} of the Secret is no text")));
    };
    let text = text.trim_end_matches(['\r', '\n']);
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

fn basic(username: String, password: String) -> Result<Credentials, Failure> {
    if username.contains(':') {
        return Err(invalid("username must not hold a colon"));
    }
    Ok(Credentials::Basic {
        username,
        password: Hidden::new(password),
    })
}

#[derive(Deserialize)]
struct Docker {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    registrytoken: Option<String>,
    identitytoken: Option<String>,
}

fn docker(config: &str, url: &Url) -> Result<Credentials, Failure> {
    // serde_json's message could repeat a value.
    let config: Docker = serde_json::from_str(config)
        .map_err(|_| invalid(".dockerconfigjson of the Secret is not what docker writes"))?;
    let fitting = config.auths.into_iter().filter_map(|(key, entry)| {
        let length = fit(&key, url)?;
        Some((length, entry))
    });
    let Some((_, entry)) = fitting.max_by_key(|(length, _)| *length) else {
        return Err(invalid(
            ".dockerconfigjson of the Secret has no entry for the url's host",
        ));
    };
    let set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    if let Some(pair) = entry.auth.as_ref().filter(|auth| !auth.is_empty()) {
        let undecodable = || invalid("auth in .dockerconfigjson is no user name and password");
        let pair = STANDARD.decode(pair.trim()).map_err(|_| undecodable())?;
        let pair = String::from_utf8(pair).map_err(|_| undecodable())?;
        let (username, password) = pair.split_once(':').ok_or_else(undecodable)?;
        if !password.is_empty() {
            return basic(username.to_owned(), password.to_owned());
        }
    }
    match (entry.username, entry.password) {
        (Some(username), Some(password)) if !username.is_empty() && !password.is_empty() => {
            basic(username, password)
        }
        _ if set(&entry.registrytoken) => Ok(Credentials::Token(Hidden::new(
            entry.registrytoken.unwrap_or_default(),
        ))),
        _ if set(&entry.identitytoken) => Err(invalid(
            ".dockerconfigjson has only an identity token for the url's host; give username and password",
        )),
        _ => Err(invalid(
            ".dockerconfigjson has neither auth nor username and password for the url's host",
        )),
    }
}

/// How well a key of `.dockerconfigjson` fits a url: `host`, `https://host/v1/` and `host/path` are written
/// there, and the longest path wins. None if it does not.
fn fit(key: &str, url: &Url) -> Option<usize> {
    let key = key.split_once("://").map_or(key, |(_, rest)| rest);
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    let path = path.trim_end_matches('/');
    let path = if matches!(path, "v1" | "v2") {
        ""
    } else {
        path
    };
    let ours = url.path().trim_start_matches('/');
    let rest = ours.strip_prefix(path)?;
    let whole = path.is_empty() || rest.is_empty() || rest.starts_with('/');
    (whole && is_host(host, url)).then_some(path.len())
}

fn is_host(host: &str, url: &Url) -> bool {
    let name = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default();
    let same = |host: &str| host.eq_ignore_ascii_case(name);
    let (before, given) = match host.rsplit_once(':') {
        Some((before, port)) => (before, port.parse().ok()),
        None => (host, None),
    };
    (same(host) && url.port().is_none()) || (same(before) && given.is_some() && given == port)
}

fn check_authorities(ca: &str) -> Result<(), Failure> {
    let bad = || invalid("ca.crt of the Secret is no list of certificates in PEM");
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        store
            .add(certificate.map_err(|_| bad())?)
            .map_err(|_| bad())?;
    }
    if store.is_empty() { Err(bad()) } else { Ok(()) }
}

fn check_pair(certificate: &str, key: &str) -> Result<(), Failure> {
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
    let certificates = certificates
        .ok()
        .filter(|certificates| !certificates.is_empty())
        .ok_or_else(|| invalid("tls.crt of the Secret is no certificate in PEM"))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).ok();
    let key = key
        .and_then(|key| any_supported_type(&key).ok())
        .ok_or_else(|| invalid("tls.key of the Secret is no unencrypted private key in PEM"))?;
    match CertifiedKey::new(certificates, key).keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => {
            Err(invalid("tls.key of the Secret is not the key of tls.crt"))
        }
        Err(_) => Err(invalid("tls.crt of the Secret can't be read")),
    }
}
