//! What a repository offers, bounded, and the AddonCharts that it comes to.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::json;
use windlass_api::addon::chart::Unavailable;
use windlass_api::addon::{ChartSpec, ChartVersion};
use windlass_status::Digest;

use crate::version::Loose;

/// What one reading of a repository has found.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Catalogue {
    /// By name of the chart, as the repository spells it.
    pub charts: BTreeMap<String, Chart>,
    /// How many entries were left out, for they have no valid name or version.
    pub skipped: usize,
}

/// A chart.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Chart {
    /// What the newest version says of itself.
    pub description: Option<String>,
    /// Newest first; bounded.
    pub versions: Vec<ChartVersion>,
    /// How many versions there are besides.
    pub omitted: usize,
}

/// Which versions are in use, by chart: they are kept whatever the bound.
pub type InUse = BTreeMap<String, Vec<String>>;

/// One entry of a repository, as it says itself.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Entry {
    /// Version and what belongs to it; bounded by [`Collector::add`].
    pub version: ChartVersion,
    /// What it says of itself.
    pub description: Option<String>,
}

/// Gathers a catalogue entry by entry, and never holds more than what is kept of it.
#[derive(Debug)]
pub struct Collector<'a> {
    max_versions: usize,
    in_use: &'a InUse,
    charts: BTreeMap<String, Gathered>,
    skipped: usize,
}

/// The versions of one chart: in a map by their order, so that the lowest falls out first.
#[derive(Debug, Default)]
struct Gathered {
    kept: BTreeMap<Loose, Entry>,
    /// How many of them are kept for being in use alone.
    pinned: usize,
    omitted: usize,
}

impl<'a> Collector<'a> {
    /// An empty one, that keeps so many versions of each chart besides those in use.
    #[must_use]
    pub fn new(max_versions: usize, in_use: &'a InUse) -> Self {
        Self {
            max_versions,
            in_use,
            charts: BTreeMap::new(),
            skipped: 0,
        }
    }

    /// Notes that a repository has a chart, also one without a valid version. Says whether it may be called
    /// so; if not, it is left out and counted.
    pub fn chart(&mut self, name: &str) -> bool {
        let valid = is_chart_name(name);
        if !valid {
            self.skipped += 1;
        } else if !self.charts.contains_key(name) {
            self.charts.insert(name.to_owned(), Gathered::default());
        }
        valid
    }

    /// Takes an entry of a chart; one that is no valid version is left out and counted. Of two of the same
    /// spelling the one that was made later stays, and the first if that does not decide.
    pub fn add(&mut self, chart: &str, entry: Entry) {
        let version = Loose::parse(&entry.version.version);
        let (Some(version), true) = (version, self.chart(chart)) else {
            self.skipped += 1;
            return;
        };
        let in_use = self.in_use.get(chart).map_or(&[][..], Vec::as_slice);
        let Some(gathered) = self.charts.get_mut(chart) else {
            return;
        };
        gathered.add(version, entry, in_use, self.max_versions);
    }

    /// Notes an entry that can't even be read.
    pub fn skip(&mut self) {
        self.skipped += 1;
    }

    /// What came of it.
    #[must_use]
    pub fn finish(self) -> Catalogue {
        let charts = self.charts.into_iter();
        Catalogue {
            charts: charts
                .map(|(name, gathered)| (name, gathered.finish()))
                .collect(),
            skipped: self.skipped,
        }
    }
}

impl Gathered {
    fn add(&mut self, version: Loose, entry: Entry, in_use: &[String], max: usize) {
        let is_pinned = |version: &Loose| in_use.contains(&version.text);
        if let Some(known) = self.kept.get_mut(&version) {
            if entry.version.created.as_ref().map(|time| time.0)
                > known.version.created.as_ref().map(|time| time.0)
            {
                *known = entry;
            }
            return;
        }
        self.pinned += usize::from(is_pinned(&version));
        self.kept.insert(version, entry);
        if self.kept.len() > max + self.pinned {
            let lowest = self.kept.keys().find(|version| !is_pinned(version));
            if let Some(lowest) = lowest.cloned() {
                self.kept.remove(&lowest);
                self.omitted += 1;
            }
        }
    }

    fn finish(mut self) -> Chart {
        let description = self
            .kept
            .last_entry()
            .and_then(|newest| newest.get().description.clone());
        let versions = self.kept.into_values().rev();
        Chart {
            description,
            versions: versions.map(|entry| entry.version).collect(),
            omitted: self.omitted,
        }
    }
}

/// Whether a chart may be called so: a plain name, no path.
#[must_use]
pub fn is_chart_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 250
        && !name.contains(['/', '\\'])
        && name != "."
        && name != ".."
        && !name.chars().any(char::is_control)
}

/// Most of an AddonChart's JSON, in bytes: well below what etcd takes.
const CHART_LIMIT: usize = 512 * 1024;
/// Most characters of a description.
const DESCRIPTION_LIMIT: usize = 500;

/// Name of the AddonChart of a chart. It ends with a digest of both names, so that no two pairs have one name.
#[must_use]
pub fn object_name(repository: &str, chart: &str) -> String {
    let digest = Digest::of_json(&json!([repository, chart])).to_string();
    let plain = |text: &str| -> String {
        let lower = text.to_lowercase();
        let plain: String = lower
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .take(20)
            .collect();
        plain.trim_matches('-').to_owned()
    };
    let parts = [plain(repository), plain(chart), digest[..12].to_owned()];
    let parts: Vec<&str> = parts
        .iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("-")
}

/// What the AddonChart of a chart says. `before` is what it said; of a version in use that the repository does
/// not offer any more, that is kept and marked.
///
/// The list is bounded by its size, too: the oldest versions that are not in use are left out until it fits.
#[must_use]
pub fn chart_spec(
    repository: &str,
    name: &str,
    chart: Option<&Chart>,
    before: Option<&ChartSpec>,
    in_use: &[String],
) -> ChartSpec {
    let mut versions = chart.map_or_else(Vec::new, |chart| chart.versions.clone());
    let mut omitted = chart.map_or(0, |chart| chart.omitted);
    let gone = before
        .iter()
        .flat_map(|before| &before.versions)
        .filter(|known| {
            in_use.contains(&known.version)
                && !versions
                    .iter()
                    .any(|version| version.version == known.version)
        });
    let gone: Vec<ChartVersion> = gone
        .map(|known| ChartVersion {
            unavailable: Some(Unavailable::RemovedFromRepository),
            ..known.clone()
        })
        .collect();
    versions.extend(gone);
    versions.sort_by_key(|version| Reverse(Loose::parse(&version.version)));
    let mut size: usize = versions.iter().map(size_of).sum();
    let mut at = versions.len();
    while size > CHART_LIMIT && at > 0 {
        at -= 1;
        if !in_use.contains(&versions[at].version) {
            size -= size_of(&versions.remove(at));
            omitted += 1;
        }
    }
    let description = match chart {
        Some(chart) => chart.description.as_deref(),
        None => before.and_then(|before| before.description.as_deref()),
    };
    ChartSpec {
        repository: repository.to_owned(),
        chart: name.to_owned(),
        description: description.map(|text| text.chars().take(DESCRIPTION_LIMIT).collect()),
        latest: latest(&versions).map(|latest| latest.version.clone()),
        versions,
        omitted_versions: (omitted > 0).then(|| i32::try_from(omitted).unwrap_or(i32::MAX)),
    }
}

fn size_of(version: &ChartVersion) -> usize {
    serde_json::to_vec(version).map_or(0, |text| text.len())
}

/// The newest version that can be placed and is neither a prerelease nor deprecated; if there is none, the
/// newest that is no prerelease; then the newest. `versions` are in order, newest first.
#[must_use]
pub fn latest(versions: &[ChartVersion]) -> Option<&ChartVersion> {
    let available = || {
        versions
            .iter()
            .filter(|version| version.unavailable.is_none())
    };
    let is_stable = |version: &&ChartVersion| {
        Loose::parse(&version.version).is_some_and(|version| !version.is_prerelease())
    };
    let is_current = |version: &&ChartVersion| version.deprecated != Some(true);
    available()
        .find(|version| is_stable(version) && is_current(version))
        .or_else(|| available().find(is_stable))
        .or_else(|| available().next())
}

#[cfg(test)]
mod tests;
