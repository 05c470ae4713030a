//! The bytes of a chart's archive, from either kind of repository.
//!
//! What comes is held against the digest that the catalogue has. A mismatch may pass: an index can be newer
//! than the mirror that serves its archives, and the next reading of the repository brings both together.
//!
//! Credentials and our certificate go to the repository's own origin only. There is no switch to send them
//! further (Helm's `--pass-credentials`), so that a foreign url in an index is fetched as a stranger; and it
//! is not fetched over http if the repository is https, nor from a link-local address, nor from a loopback
//! address if the repository is elsewhere.

use std::time::Duration;

use reqwest::Method;
use url::Url;
use windlass_api::addon::ChartVersion;
use windlass_status::Digest;

use crate::failure::{Failure, Fault};
use crate::http::{self, Ask, Http, same_origin};
use crate::oci::registry::{Registry, Repository, sha256};
use crate::oci::{challenge, manifest, repositories, tags};
use crate::source::{Protocol, Source, is_repository_name};

/// Bounds of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of an archive.
    pub bytes: usize,
    /// Most bytes of a manifest.
    pub manifest_bytes: usize,
    /// How long to wait before something is asked for again.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 20 << 20,
            manifest_bytes: 4 << 20,
            pause: http::PAUSE,
        }
    }
}

/// A chart's archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// A gzipped tar.
    pub bytes: Vec<u8>,
    /// Digest of the bytes.
    pub digest: Digest,
    /// The version, as the repository spells it.
    pub version: String,
}

/// Where an archive is.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// At a url.
    Url(Url),
    /// In a registry: its url, the repository, and tag or digest.
    Registry(Url, String, String),
}

/// Fetches the archive of one version of a chart.
///
/// # Errors
///
/// As the status codes say. Terminal besides: SourceNotFound if the version has no url;
/// SourceRejectedRequest for a url that is not asked. Transient: a digest that does not fit, an answer that
/// is no archive or larger than what is read of one.
pub async fn fetch(
    source: &Source,
    chart: &str,
    version: &ChartVersion,
    limits: &Limits,
) -> Result<Archive, Failure> {
    let http = Http::new(source)?.with_pause(limits.pause);
    let place = place(source, chart, version)?;
    let (bytes, shown) = match &place {
        Place::Url(url) => (by_url(&http, source, url, limits).await?, http::shown(url)),
        Place::Registry(url, name, reference) => (
            by_manifest(&http, source, (url, name, reference), limits).await?,
            format!("{name} {reference} at {}", http::shown(url)),
        ),
    };
    let digest = Digest::of_bytes(&bytes);
    if source.protocol == Protocol::Helm
        && let Some(told) = version.digest.as_deref()
        && !digest.is(told.to_ascii_lowercase().trim_start_matches("sha256:"))
    {
        return Err(Failure::transient(format!(
            "{shown}: the archive has the digest {digest}, the index says {told}; one of them may be \
             newer than the other"
        )));
    }
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        let message = format!("{shown}: what came back is no gzipped archive");
        return Err(Failure::transient(message));
    }
    Ok(Archive {
        bytes,
        digest,
        version: version.version.clone(),
    })
}

async fn by_url(
    http: &Http,
    source: &Source,
    url: &Url,
    limits: &Limits,
) -> Result<Vec<u8>, Failure> {
    let mut ask = Ask::get(url.clone());
    if same_origin(url, &source.url) {
        let given = source.credentials.as_ref();
        ask.authorization = given.map(http::authorization).transpose()?;
    }
    http.retrying(async || {
        let answer = http.send(&ask).await?;
        match answer.failure() {
            Some(failure) => Err(failure),
            None => answer.whole(limits.bytes).await,
        }
    })
    .await
}

async fn by_manifest(
    http: &Http,
    source: &Source,
    (url, name, reference): (&Url, &str, &str),
    limits: &Limits,
) -> Result<Vec<u8>, Failure> {
    let credentials = source
        .credentials
        .as_ref()
        .filter(|_| same_origin(url, &source.url));
    let registry = Registry::open(http, url, credentials).await?;
    let repository = registry.repository(name);
    let body = http
        .retrying(|| manifest_body(&repository, reference, limits.manifest_bytes))
        .await?;
    let shown = http::shown(&repository.url(&format!("manifests/{reference}"))?);
    if sha256(reference).is_some_and(|wanted| wanted != Digest::of_bytes(&body)) {
        let message = format!("{shown}: what came back has another digest");
        return Err(Failure::transient(message));
    }
    let Some(manifest) = manifest::read(&body) else {
        let message = format!("{shown} is no Helm chart");
        return Err(Failure::terminal(Fault::SourceRejectedRequest, message));
    };
    if manifest.content.size > limits.bytes as u64 {
        return Err(Failure::transient(format!(
            "{shown}: the archive has {} bytes; at most {} are read",
            manifest.content.size, limits.bytes
        )));
    }
    http.retrying(|| repository.blob(&manifest.content.digest, limits.bytes))
        .await
}

async fn manifest_body(
    repository: &Repository<'_>,
    reference: &str,
    most: usize,
) -> Result<Vec<u8>, Failure> {
    let url = repository.url(&format!("manifests/{reference}"))?;
    let answer = repository.send(Method::GET, url, manifest::ACCEPT).await?;
    if answer.status() != 200 {
        return Err(repository.failure(answer).await);
    }
    answer.whole(most).await
}

/// Where the archive of a version is.
fn place(source: &Source, chart: &str, version: &ChartVersion) -> Result<Place, Failure> {
    match source.protocol {
        Protocol::Oci => {
            let all = repositories(source)?;
            let (_, name) = all
                .into_iter()
                .find(|(name, _)| name == chart)
                .ok_or_else(|| {
                    let message = format!("the repository does not name the chart {chart}");
                    Failure::terminal(Fault::SourceNotFound, message)
                })?;
            // The digest, where it is known: the tag may have moved since.
            let digest = version
                .digest
                .as_deref()
                .filter(|digest| sha256(digest).is_some());
            let reference = digest.map_or_else(|| tags::tag_of(&version.version), str::to_owned);
            Ok(Place::Registry(source.url.clone(), name, reference))
        }
        Protocol::Helm => indexed(&source.url, chart, version),
    }
}

/// Where the first url of an index's entry leads.
fn indexed(base: &Url, chart: &str, version: &ChartVersion) -> Result<Place, Failure> {
    let urls = version.urls.as_deref().unwrap_or_default();
    let Some(text) = urls.first() else {
        let message = format!("the index has no url for {chart} {}", version.version);
        return Err(Failure::terminal(Fault::SourceNotFound, message));
    };
    let rejected = |why: &str| {
        let message = format!(
            "the archive of {chart} {} is not fetched: its url {why}",
            version.version
        );
        Failure::terminal(Fault::SourceRejectedRequest, message)
    };
    let (url, place) = match text.strip_prefix("oci://") {
        Some(rest) => referenced(rest, &version.version).ok_or_else(|| rejected("is no url"))?,
        None => {
            let url = resolve(base, text).ok_or_else(|| rejected("is no url"))?;
            (url.clone(), Place::Url(url))
        }
    };
    match url.scheme() {
        "https" => {}
        "http" if base.scheme() == "http" => {}
        "http" => return Err(rejected("is http, and the repository https")),
        _ => return Err(rejected("has another scheme than https and http")),
    }
    if !same_origin(&url, base) {
        challenge::reachable(&url, base).map_err(rejected)?;
    }
    Ok(place)
}

/// A url of an index, as Helm resolves it: relative to the repository as to a directory; the repository's
/// query goes with it, for it may be what opens the door.
fn resolve(base: &Url, text: &str) -> Option<Url> {
    let mut directory = base.clone();
    let path = base.path().trim_end_matches('/');
    let path = path.strip_suffix("/index.yaml").unwrap_or(path);
    directory.set_path(&format!("{path}/"));
    directory.set_query(None);
    directory.set_fragment(None);
    let mut url = directory.join(text).ok()?;
    // What an index holds is nobody's credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    if Url::parse(text).is_err() && same_origin(&url, base) && url.query().is_none() {
        url.set_query(base.query());
    }
    Some(url)
}

/// A chart in a registry, `host/path/chart:tag`; without a tag it is that of the version.
fn referenced(rest: &str, version: &str) -> Option<(Url, Place)> {
    let (name, tag) = match rest.rsplit_once(':') {
        // A colon before the last slash is the port's.
        Some((name, tag)) if !tag.contains('/') => (name, tag.to_owned()),
        _ => (rest, tags::tag_of(version)),
    };
    let mut url = Url::parse(&format!("https://{name}")).ok()?;
    if challenge::is_loopback(&url) {
        url = Url::parse(&format!("http://{name}")).ok()?;
    }
    let path = url.path().trim_matches('/').to_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let valid = is_repository_name(&path) && !tag.is_empty() && tag.chars().all(plain);
    let place = Place::Registry(url.clone(), path, tag);
    valid.then_some((url, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(base: &str, text: &str) -> Result<String, String> {
        let version = ChartVersion {
            version: "1.0.0+a".to_owned(),
            urls: Some(vec![text.to_owned()]),
            ..ChartVersion::default()
        };
        match indexed(&Url::parse(base).unwrap(), "web", &version) {
            Ok(Place::Url(url)) => Ok(url.into()),
            Ok(Place::Registry(url, name, reference)) => Ok(format!(
                "{} {name} {reference}",
                url.origin().ascii_serialization()
            )),
            Err(failure) => {
                assert_eq!(
                    failure.fault(),
                    Some(Fault::SourceRejectedRequest),
                    "{text}"
                );
                let text = failure.to_string();
                Err(text.rsplit("its url ").next().unwrap().to_owned())
            }
        }
    }

    #[test]
    fn where_a_url_of_an_index_leads() {
        let base = "https://charts.example/stable";
        let cases = [
            (base, "web-1.tgz", "https://charts.example/stable/web-1.tgz"),
            (
                "https://charts.example/stable/",
                "web-1.tgz",
                "https://charts.example/stable/web-1.tgz",
            ),
            (
                "https://charts.example/stable/index.yaml",
                "charts/web-1.tgz",
                "https://charts.example/stable/charts/web-1.tgz",
            ),
            (
                "https://charts.example",
                "web-1.tgz",
                "https://charts.example/web-1.tgz",
            ),
            (
                base,
                "../other/web.tgz",
                "https://charts.example/other/web.tgz",
            ),
            (base, "/web.tgz", "https://charts.example/web.tgz"),
            (
                "https://charts.example/s?key=1",
                "web.tgz",
                "https://charts.example/s/web.tgz?key=1",
            ),
            (
                "https://charts.example/s?key=1",
                "https://cdn.example/web.tgz",
                "https://cdn.example/web.tgz",
            ),
            (
                "https://charts.example/s?key=1",
                "//cdn.example/web.tgz",
                "https://cdn.example/web.tgz",
            ),
            (
                base,
                "https://u:p@cdn.example/web.tgz",
                "https://cdn.example/web.tgz",
            ),
            (
                "http://charts.example",
                "http://cdn.example/a.tgz",
                "http://cdn.example/a.tgz",
            ),
            (
                base,
                "oci://ghcr.io/a/web:1.0.0",
                "https://ghcr.io a/web 1.0.0",
            ),
            (base, "oci://ghcr.io/a/web", "https://ghcr.io a/web 1.0.0_a"),
            (
                base,
                "oci://ghcr.io:444/a/web",
                "https://ghcr.io:444 a/web 1.0.0_a",
            ),
            (
                "http://127.0.0.1:1",
                "oci://127.0.0.1:2/web:1",
                "http://127.0.0.1:2 web 1",
            ),
        ];
        for (base, text, expected) in cases {
            assert_eq!(at(base, text), Ok(expected.to_owned()), "{base} {text}");
        }
    }

    #[test]
    fn urls_that_are_not_fetched() {
        let base = "https://charts.example/stable";
        let cases = [
            (
                base,
                "http://charts.example/web.tgz",
                "is http, and the repository https",
            ),
            (
                base,
                "file:///etc/passwd",
                "has another scheme than https and http",
            ),
            (base, "https://[", "is no url"),
            (
                base,
                "https://169.254.169.254/a.tgz",
                "is a link-local address",
            ),
            (base, "https://127.0.0.1/a.tgz", "is a loopback address"),
            (base, "oci://", "is no url"),
            (base, "oci://ghcr.io", "is no url"),
            (base, "oci://ghcr.io/A/web:1", "is no url"),
            (
                base,
                "oci://localhost/a/web:1",
                "is http, and the repository https",
            ),
            (
                "http://charts.example",
                "oci://localhost/a/web:1",
                "is a loopback address",
            ),
        ];
        for (base, text, expected) in cases {
            assert_eq!(at(base, text), Err(expected.to_owned()), "{base} {text}");
        }
    }
}
