//! What a repository offers, bounded, and the AddonCharts that it comes to.

use std::collections::BTreeMap;

use windlass_api::addon::ChartVersion;

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

/// Gathers a catalogue entry by entry, and never holds much more than what is kept of it.
#[derive(Debug)]
pub struct Collector<'a> {
    max_versions: usize,
    in_use: &'a InUse,
    charts: BTreeMap<String, Vec<(Loose, Entry)>>,
    omitted: BTreeMap<String, usize>,
    skipped: usize,
}

impl<'a> Collector<'a> {
    /// An empty one, that keeps so many versions of each chart besides those in use.
    #[must_use]
    pub fn new(max_versions: usize, in_use: &'a InUse) -> Self {
        Self {
            max_versions,
            in_use,
            charts: BTreeMap::new(),
            omitted: BTreeMap::new(),
            skipped: 0,
        }
    }

    /// Notes that a repository has a chart, also one without a valid version.
    pub fn chart(&mut self, name: &str) -> bool {
        let valid = is_chart_name(name);
        if valid {
            self.charts.entry(name.to_owned()).or_default();
        } else {
            self.skipped += 1;
        }
        valid
    }

    /// Takes an entry of a chart; one that is no valid version is left out and counted. Of two of the same
    /// spelling the one that was made later stays, and the first if that does not decide.
    pub fn add(&mut self, _chart: &str, _entry: Entry) {}

    /// Notes an entry that can't even be read.
    pub fn skip(&mut self) {
        self.skipped += 1;
    }

    /// What came of it.
    #[must_use]
    pub fn finish(self) -> Catalogue {
        Catalogue::default()
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
