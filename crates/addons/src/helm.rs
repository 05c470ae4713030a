//! Reading a classic repository: its `index.yaml`, as a stream (reference, seed systems A7 and A12).
//!
//! ```text
//! server ─▶ chunks ─▶ a few at a time ─▶ thread: unpack ─▶ count, hash ─▶ YAML or JSON ─▶ pieces ─▶ Collector
//! ```
//!
//! The document is never in memory as a whole: what is held is a few chunks, the entry that is being read and
//! what the [`Collector`](crate::catalogue::Collector) keeps. An answer that is no index is a failure that
//! may pass, never an empty catalogue.

mod body;
mod feed;
mod index;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, ETAG, HeaderName, HeaderValue,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use tokio::sync::mpsc;
use tokio::time::timeout_at;
use url::Url;
use windlass_cluster::clock;
use windlass_status::Digest;

use self::body::{Body, Chunk, Decoded};
use self::index::{Index, Kept, Trouble};
use crate::catalogue::{Catalogue, InUse};
use crate::failure::{Failure, Fault};
use crate::http::{self, Answer, Ask, Http};
use crate::source::Source;

/// How much of an index is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a document, packed and unpacked.
    pub bytes: u64,
    /// Most charts.
    pub charts: usize,
    /// How long to wait before the second try; twice as long before the third.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 100 * 1024 * 1024,
            charts: 10_000,
            pause: http::PAUSE,
        }
    }
}

/// What a server calls the state of a document, to be asked whether that has changed.
///
/// They are about the document alone: when `charts`, `maxVersions` or the versions in use change, read
/// without them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Validators {
    /// `ETag`.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub last_modified: Option<String>,
}

/// What a reading came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// The document is the one that the validators are of.
    Unchanged,
    /// It was read.
    Read {
        /// What it offers.
        catalogue: Catalogue,
        /// For the next reading.
        validators: Validators,
        /// Digest of the unpacked document.
        digest: Digest,
        /// Size of the unpacked document.
        bytes: u64,
    },
}

/// Reads a repository's index, within the source's timeout and with up to three tries. Cancel safe: nothing
/// goes on when the future is dropped.
///
/// # Errors
///
/// Terminal by the answer's status, IndexTooLarge beyond the limits; transient for all else, an answer that
/// is no index among them.
pub async fn read(
    source: &Source,
    in_use: &InUse,
    known: Option<&Validators>,
    limits: &Limits,
) -> Result<Reading, Failure> {
    let http = Http::new(source)?.with_pause(limits.pause);
    let ask = ask(source, known)?;
    let job = Job {
        in_use: Arc::new(in_use.clone()),
        charts: source.charts.clone().map(Arc::new),
        max_versions: source.max_versions,
        limits: *limits,
    };
    let outcome = http.retrying(|| once(&http, &ask, known.is_some(), &job));
    outcome.await?
}

/// Where the index of a repository is: `index.yaml` below its url's path, whose query is kept; a url that
/// names the index already is taken as it is.
#[must_use]
pub fn index_url(base: &Url) -> Url {
    let path = base.path();
    if path.ends_with("/index.yaml") {
        return base.clone();
    }
    let path = format!("{}/index.yaml", path.trim_end_matches('/'));
    let mut url = base.clone();
    url.set_path(&path);
    url
}

/// What the thread that parses works with.
#[derive(Clone)]
struct Job {
    in_use: Arc<InUse>,
    charts: Option<Arc<Vec<String>>>,
    max_versions: usize,
    limits: Limits,
}

/// What it has found.
struct Parsed {
    catalogue: Catalogue,
    digest: Digest,
    bytes: u64,
}

fn ask(source: &Source, known: Option<&Validators>) -> Result<Ask, Failure> {
    let mut ask = Ask::get(index_url(&source.url));
    let credentials = source.credentials.as_ref();
    ask.authorization = credentials.map(http::authorization).transpose()?;
    ask.headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    ask.headers
        .insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let mut condition = |name: HeaderName, value: Option<&String>| {
        let value = value.and_then(|value| HeaderValue::from_str(value).ok());
        if let Some(value) = value {
            ask.headers.insert(name, value);
        }
    };
    condition(IF_NONE_MATCH, known.and_then(|known| known.etag.as_ref()));
    let since = known.and_then(|known| known.last_modified.as_ref());
    condition(IF_MODIFIED_SINCE, since);
    Ok(ask)
}

/// One try. The outer failure is one of the way to the server, which is worth another try; the inner one is
/// what the whole document came to.
async fn once(
    http: &Http,
    ask: &Ask,
    conditional: bool,
    job: &Job,
) -> Result<Result<Reading, Failure>, Failure> {
    let answer = http.send(ask).await?;
    if let Some(failure) = answer.failure() {
        return Err(failure);
    }
    if answer.status() == 304 {
        return Ok(if conditional {
            Ok(Reading::Unchanged)
        } else {
            let shown = answer.shown();
            let message = format!("{shown} answered 304 Not Modified, which was not asked for");
            Err(Failure::transient(message))
        });
    }
    if let Err(failure) = check(&answer, &job.limits) {
        return Ok(Err(failure));
    }
    let text = |name: &HeaderName| answer.header(name.as_str()).map(str::to_owned);
    let validators = Validators {
        etag: text(&ETAG),
        last_modified: text(&LAST_MODIFIED),
    };
    let parsed = parse(http, answer, job).await?;
    Ok(parsed.map(|parsed| Reading::Read {
        catalogue: parsed.catalogue,
        validators,
        digest: parsed.digest,
        bytes: parsed.bytes,
    }))
}

fn check(answer: &Answer, limits: &Limits) -> Result<(), Failure> {
    let encoding = answer.header(CONTENT_ENCODING.as_str()).unwrap_or_default();
    let encoding = encoding.trim().to_ascii_lowercase();
    if !matches!(encoding.as_str(), "" | "identity" | "gzip" | "x-gzip") {
        let shown = answer.shown();
        let message = format!("{shown} answered in an encoding that was not asked for");
        return Err(Failure::transient(message));
    }
    let length = answer.header(CONTENT_LENGTH.as_str());
    let length = length.and_then(|length| length.parse::<u64>().ok());
    if length.is_some_and(|length| length > limits.bytes) {
        return Err(too_large(&answer.shown(), limits));
    }
    Ok(())
}

/// Hands the body to a thread that parses it. Whatever ends this future, the thread's next read fails and
/// it ends too.
async fn parse(
    http: &Http,
    mut answer: Answer,
    job: &Job,
) -> Result<Result<Parsed, Failure>, Failure> {
    let shown = answer.shown();
    let (sender, receiver) = mpsc::channel(body::CHUNKS);
    let work = {
        let (job, shown) = (job.clone(), shown.clone());
        move || job.parse(&shown, Body::new(receiver))
    };
    let thread = clock::spawn_blocking("parse an index", work);
    let late = || Failure::transient(format!("{shown} could not be parsed in time"));
    loop {
        let chunk = answer.chunk().await?;
        let last = chunk.is_none();
        let over = answer.received() > job.limits.bytes;
        let chunk = chunk.map_or(Chunk::End, Chunk::Bytes);
        let sent = timeout_at(http.deadline(), sender.send(chunk)).await;
        // A thread that takes no more has come to an end of its own: it says why.
        if sent.map_err(|_| late())?.is_err() || last {
            break;
        }
        if over {
            return Ok(Err(too_large(&shown, &job.limits)));
        }
    }
    match timeout_at(http.deadline(), thread).await {
        Ok(Ok(parsed)) => Ok(parsed),
        Ok(Err(_)) => Ok(Err(Failure::transient(format!(
            "{shown} could not be parsed: the parser broke down"
        )))),
        Err(_) => Err(late()),
    }
}

fn too_large(shown: &str, limits: &Limits) -> Failure {
    let message = format!(
        "{shown} has more than {} bytes, packed or unpacked; an index of that size is not read",
        limits.bytes
    );
    Failure::terminal(Fault::IndexTooLarge, message)
}

impl Job {
    fn parse(&self, shown: &str, body: Body) -> Result<Parsed, Failure> {
        let no_index = |message: String| {
            Failure::transient(format!("{shown} answered with what is no index: {message}"))
        };
        let mut decoded =
            Decoded::new(body, self.limits.bytes).map_err(|error| no_index(error.to_string()))?;
        let wanted = self.charts.as_deref().map(Vec::as_slice);
        let kept = Kept {
            max_versions: self.max_versions,
            in_use: &self.in_use,
        };
        let mut index = Index::new(kept, wanted, self.limits.charts);
        let fed = feed::feed(&mut decoded, &mut index);
        if decoded.is_over() {
            return Err(too_large(shown, &self.limits));
        }
        let finished = fed.and_then(|()| index.finish());
        let catalogue = finished.map_err(|trouble| match trouble {
            Trouble::NoIndex(message) => no_index(message),
            Trouble::TooManyCharts => {
                let most = self.limits.charts;
                let message = format!("{shown} lists more than {most} charts; give spec.charts");
                Failure::terminal(Fault::IndexTooLarge, message)
            }
        })?;
        let (digest, bytes) = decoded.finish();
        Ok(Parsed {
            catalogue,
            digest,
            bytes,
        })
    }
}
