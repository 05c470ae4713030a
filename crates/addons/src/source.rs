//! Where a repository is and as whom it is read: what its spec and Secrets come to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use url::{Host, Url};
use windlass_api::addon::RepositorySpec;
use windlass_status::{Digest, duration};

use crate::failure::{Failure, Fault};
use crate::http;

mod secret;
#[cfg(test)]
mod tests;

/// How long one reading may take, unless the spec says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(1);
/// How many versions of each chart are kept, unless the spec says otherwise.
pub const DEFAULT_VERSIONS: usize = 250;

const TIMEOUTS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(10));
const MOST_VERSIONS: i32 = 1000;

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
#[derive(Clone, PartialEq, Eq)]
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

impl fmt::Debug for Source {
    /// Without the url's query, which may hold a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("url", &http::shown(&self.url))
            .field("protocol", &self.protocol)
            .field("credentials", &self.credentials)
            .field("charts", &self.charts)
            .finish_non_exhaustive()
    }
}

/// The data of a Secret, decoded.
pub type SecretData = BTreeMap<String, Vec<u8>>;

impl Source {
    /// What a spec comes to, with the Secrets of `secretRef` and `certSecretRef`.
    ///
    /// # Errors
    ///
    /// Terminal: UnsupportedRepositoryType, InvalidRepositoryUrl or InvalidCredentials. No message repeats
    /// any of the url or of a Secret's values.
    pub fn of(
        spec: &RepositorySpec,
        credentials: Option<&SecretData>,
        certificates: Option<&SecretData>,
    ) -> Result<Self, Failure> {
        let (protocol, url) = read_url(spec)?;
        let credentials_of = |data| secret::credentials(data, &url);
        let tls_of = |data| secret::tls(data);
        let mut tls = certificates.map(tls_of).transpose()?.unwrap_or_default();
        tls.skip_verify = spec.insecure_skip_verify.unwrap_or(false);
        Ok(Self {
            credentials: credentials.map(credentials_of).transpose()?,
            tls,
            charts: spec.charts.clone(),
            timeout: timeout(spec),
            max_versions: max_versions(spec),
            digest: digest(spec, &url, credentials, certificates),
            protocol,
            url,
        })
    }
}

fn read_url(spec: &RepositorySpec) -> Result<(Protocol, Url), Failure> {
    let (scheme, rest) = spec.url.split_once("://").unwrap_or(("", &spec.url));
    let protocol = match scheme.to_ascii_lowercase().as_str() {
        "http" | "https" => Protocol::Helm,
        "oci" => Protocol::Oci,
        _ => {
            return Err(Failure::terminal(
                Fault::UnsupportedRepositoryType,
                "url begins with neither https://, http:// nor oci://",
            ));
        }
    };
    let text = match protocol {
        Protocol::Helm => spec.url.clone(),
        Protocol::Oci => format!("https://{rest}"),
    };
    if holds_user(rest) {
        return Err(invalid(
            "url holds a user name or password; they belong into the Secret that secretRef names \
             (an @ of the path itself is written %40)",
        ));
    }
    let mut url = Url::parse(&text).map_err(|error| invalid(&format!("url is none: {error}")))?;
    if url.host_str().is_none_or(str::is_empty) {
        return Err(invalid("url has no host"));
    }
    if http::is_link_local(&url) {
        return Err(invalid(
            "url's host is a link-local address, which is not asked",
        ));
    }
    url.set_fragment(None);
    match protocol {
        Protocol::Helm => Ok((protocol, url)),
        Protocol::Oci => Ok((protocol, registry_url(spec, url)?)),
    }
}

/// Whether what follows `://` seems to hold a user name or password. One with a slash in it makes its url's
/// `@` part of the path: so a path's `@` is believed only behind a full host name without a port.
fn holds_user(rest: &str) -> bool {
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    let behind = behind.split(['?', '#']).next().unwrap_or_default();
    let plain = authority.contains('.') && !authority.contains(':');
    authority.contains('@') || (behind.contains('@') && !plain)
}

/// Checks what a registry wants of a name, and chooses between https and plain http.
fn registry_url(spec: &RepositorySpec, mut url: Url) -> Result<Url, Failure> {
    if url.query().is_some() {
        return Err(invalid("an oci url has no query"));
    }
    let path = url.path().trim_matches('/').to_owned();
    if path.is_empty() && spec.charts.is_none() {
        return Err(invalid(
            "url names no chart: it wants oci://host/path/chart, or charts beside it",
        ));
    }
    if !path.is_empty() && !is_repository_name(&path) {
        return Err(invalid(
            "url's path is no name in a registry: lower-case letters and digits, single separators",
        ));
    }
    url.set_path(&path);
    if spec.plain_http.unwrap_or_else(|| is_loopback(&url)) {
        // The one scheme becomes the other: both are of the kind that can.
        let _ = url.set_scheme("http");
    }
    Ok(url)
}

/// Whether a registry may have a repository of that name (distribution specification).
#[must_use]
pub fn is_repository_name(name: &str) -> bool {
    name.len() <= 255 && name.split('/').all(is_component)
}

fn is_component(component: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let plain = |c: char| alphanumeric(c) || matches!(c, '.' | '_' | '-');
    let separators = component
        .split(alphanumeric)
        .filter(|text| !text.is_empty());
    component.starts_with(alphanumeric)
        && component.ends_with(alphanumeric)
        && component.chars().all(plain)
        && separators
            .into_iter()
            .all(|text| matches!(text, "." | "_" | "__") || text.bytes().all(|byte| byte == b'-'))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

fn invalid(message: &str) -> Failure {
    Failure::terminal(Fault::InvalidRepositoryUrl, message)
}

fn timeout(spec: &RepositorySpec) -> Duration {
    let given = spec.timeout.as_deref().and_then(duration::parse);
    let given = given.and_then(|given| Duration::try_from(given).ok());
    let (least, most) = TIMEOUTS;
    given.map_or(DEFAULT_TIMEOUT, |given| given.clamp(least, most))
}

fn max_versions(spec: &RepositorySpec) -> usize {
    let given = spec.max_versions.map(|given| given.clamp(1, MOST_VERSIONS));
    given
        .and_then(|given| usize::try_from(given).ok())
        .unwrap_or(DEFAULT_VERSIONS)
}

fn digest(
    spec: &RepositorySpec,
    url: &Url,
    credentials: Option<&SecretData>,
    certificates: Option<&SecretData>,
) -> Digest {
    let charts: Option<BTreeSet<&String>> =
        spec.charts.as_ref().map(|charts| charts.iter().collect());
    let content = |data: &SecretData| {
        let hashed = |(key, value): (&String, &Vec<u8>)| {
            (key.clone(), json!(Digest::of_bytes(value).to_string()))
        };
        Value::Object(data.iter().map(hashed).collect::<Map<_, _>>())
    };
    Digest::of_json(&json!({
        "url": spec.url,
        "charts": charts,
        "insecureSkipVerify": spec.insecure_skip_verify.unwrap_or(false),
        // What plainHTTP comes to depends on the host.
        "scheme": url.scheme(),
        "credentials": credentials.map(content),
        "certificates": certificates.map(content),
    }))
}
