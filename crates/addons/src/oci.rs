//! Reading an OCI registry: which versions of a chart it has, and what they are (reference, seed systems A8).
//!
//! A client of our own on [`crate::http`]: the crate `oci-client` (0.18) builds its HTTP client itself, so
//! that neither our rules for redirects and client certificates nor a bound on a body apply; it sends
//! credentials to whichever realm it is told, drops `Retry-After`, and does not follow `Link`.
//!
//! **What is read.** The one chart that the url names, or each of `charts` below it. A chart that is missing
//! ends the reading with SourceNotFound, which names the first missing one of the list: what was known of
//! the others stands as it was.
//!
//! **As whom.** `GET /v2/` tells what the registry asks for. The credentials come first; if they are refused
//! (401, 403, or by the token endpoint) it is tried once anonymously, for expired credentials are no reason
//! to do without a public chart; AuthenticationFailed names both refusals. A token that is refused later is
//! exchanged once more per request. A token of the user's own is sent as it is, and never exchanged.
//! Since every reading asks for the list and for manifests, what it finds is what may really be pulled.
//!
//! **Who is trusted.** The registry gets the credentials, and whichever token endpoint it names in its own
//! challenge (see [`challenge::realm`] for those that are never asked). Hosts that an answer redirects to
//! get neither credentials nor a say in who does. A list of tags goes on only at the same origin.
//!
//! **Which tags.** Those that are versions, read loosely; `_` stands for `+`. Signatures, attestations and
//! lists of referrers are no versions and not counted; everything else that is no version (`latest`) is
//! counted as skipped.
//!
//! **How often a tag is looked at.** A version that is new, was pending or has come back: its manifest and
//! its Chart.yaml. One that is in use, and the [`Limits::watched`] newest: its digest in each reading, and the
//! rest if that has changed, for a tag may move. All others: not again, unless the reading is forced, which
//! the caller says by giving nothing as known.

pub mod challenge;
mod chart;
mod errors;
pub mod manifest;
pub mod registry;
pub mod tags;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use windlass_api::addon::{ChartSpec, ChartVersion};
use windlass_cluster::clock::{self, Instant};

use self::chart::Found;
use self::registry::{AT_ONCE, Registry};
use crate::catalogue::{Catalogue, Collector, InUse, is_chart_name};
use crate::failure::{Failure, Fault};
use crate::http::{self, Http};
use crate::source::{Source, is_repository_name};

/// Bounds of a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of one page of tags.
    pub page_bytes: usize,
    /// Most pages of one chart's tags.
    pub pages: usize,
    /// Most tags of one chart.
    pub tags: usize,
    /// Most bytes of a manifest.
    pub manifest_bytes: usize,
    /// Most bytes of a Chart.yaml as JSON; of a larger one nothing is read.
    pub config_bytes: usize,
    /// Most versions that are looked at anew in one reading; what is left is pending until the next one.
    pub manifests: usize,
    /// How many of the newest versions are looked at each time.
    pub watched: usize,
    /// How long to wait before a list is asked for again.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            page_bytes: 8 << 20,
            pages: 200,
            tags: 100_000,
            manifest_bytes: 4 << 20,
            config_bytes: 64 << 10,
            manifests: 2_000,
            watched: 10,
            pause: http::PAUSE,
        }
    }
}

/// What is known of a chart from before: what its AddonChart holds.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Known {
    /// What it says of itself.
    pub description: Option<String>,
    /// Its versions.
    pub versions: Vec<ChartVersion>,
}

impl From<&ChartSpec> for Known {
    fn from(spec: &ChartSpec) -> Self {
        Self {
            description: spec.description.clone(),
            versions: spec.versions.clone(),
        }
    }
}

/// What is known from before, by name of the chart. Empty for a forced reading, and where the source was
/// another one then: the same tags mean something else at another url.
pub type KnownTags = BTreeMap<String, Known>;

/// What a reading has found.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Reading {
    /// The charts.
    pub catalogue: Catalogue,
    /// How many versions could not be looked at; the next reading tries again.
    pub pending: usize,
    /// Why the last one of them could not, if it was asked for at all.
    pub cause: Option<Failure>,
}

/// Reads a registry. One answer of another kind to one tag keeps nothing from being read: that version is
/// [pending](Reading::pending), or stays as it is known.
///
/// # Errors
///
/// Terminal: InvalidRepositoryURL, before anything is asked; AuthenticationFailed, also if one manifest is
/// refused; SourceNotFound and SourceRejectedRequest as the registry says; IndexTooLarge for a list past its
/// bounds. Transient: everything else that keeps a list of tags from being read.
pub async fn read(
    source: &Source,
    in_use: &InUse,
    known: &KnownTags,
    limits: &Limits,
) -> Result<Reading, Failure> {
    let names = repositories(source)?;
    let http = Http::new(source)?.with_pause(limits.pause);
    let registry = Registry::open(&http, &source.url, source.credentials.as_ref()).await?;
    let pass = Pass {
        http: &http,
        limits,
        max_versions: source.max_versions,
        // The last quarter is for what is under way.
        until: http.deadline() - source.timeout / 4,
        asked: AtomicUsize::new(0),
        stopped: AtomicBool::new(false),
    };
    let nothing = Known::default();
    // Collected first: a stream over closures that borrow is not Send in the compiler's eyes.
    let mut readings = Vec::with_capacity(names.len());
    for (chart, path) in &names {
        let known = known.get(chart).unwrap_or(&nothing);
        let in_use = in_use.get(chart).map_or(&[][..], Vec::as_slice);
        readings.push(pass.chart(registry.repository(path), chart, known, in_use));
    }
    let found: Vec<Found> = stream::iter(readings)
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let mut collector = Collector::new(source.max_versions, in_use);
    let mut reading = Reading::default();
    for (found, (name, _)) in found.into_iter().zip(&names) {
        collector.chart(name);
        for entry in found.entries {
            collector.add(name, entry);
        }
        for _ in 0..found.skipped {
            collector.skip();
        }
        reading.pending += found.pending;
        reading.cause = found.cause.or(reading.cause);
    }
    reading.catalogue = collector.finish();
    Ok(reading)
}

/// What one reading shares between its charts.
struct Pass<'a> {
    http: &'a Http,
    limits: &'a Limits,
    max_versions: usize,
    until: Instant,
    asked: AtomicUsize,
    stopped: AtomicBool,
}

impl Pass<'_> {
    /// Whether there is time, and the registry bears it.
    fn may_watch(&self) -> bool {
        !self.stopped.load(Ordering::Relaxed) && clock::monotonic() < self.until
    }

    /// Whether one more version may be looked at. Those that are only watched don't count, lest the many of
    /// one chart keep the new ones of another from ever being looked at.
    fn may_look(&self) -> bool {
        self.may_watch() && self.asked.fetch_add(1, Ordering::Relaxed) < self.limits.manifests
    }

    /// The registry has asked to be left alone.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// The charts of a source and where they are, each as name and repository.
///
/// # Errors
///
/// InvalidRepositoryURL if the url or `charts` hold what no registry can have.
pub fn repositories(source: &Source) -> Result<Vec<(String, String)>, Failure> {
    let invalid = |message: String| Failure::terminal(Fault::InvalidRepositoryUrl, message);
    let base = source.url.path().trim_matches('/');
    let paths: Vec<String> = match &source.charts {
        None if base.is_empty() => {
            return Err(invalid(
                "the url names no chart: it must be oci://host/path/chart, or the charts must be \
                 listed in spec.charts"
                    .to_owned(),
            ));
        }
        None => vec![base.to_owned()],
        Some(charts) => {
            let join = |chart: &String| match base {
                "" => chart.clone(),
                base => format!("{base}/{chart}"),
            };
            let odd = charts.iter().find(|chart| !is_chart_name(chart));
            if let Some(odd) = odd {
                return Err(invalid(format!(
                    "{odd:?} in spec.charts is no chart's name"
                )));
            }
            charts.iter().map(join).collect()
        }
    };
    let named = |path: String| {
        if !is_repository_name(&path) {
            return Err(invalid(format!(
                "{path:?} is no name that a registry can have: lower-case letters, digits, and . _ - \
                 between them"
            )));
        }
        let chart = path.rsplit('/').next().unwrap_or_default().to_owned();
        Ok((chart, path))
    };
    paths.into_iter().map(named).collect()
}
