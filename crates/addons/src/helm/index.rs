//! What the pieces of an index mean: a state machine that takes them one by one and hands entries over.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::catalogue::{Catalogue, Collector, Entry, InUse, is_chart_name};
use crate::version::Loose;

/// How deep an index may be nested; real ones need ten levels at most.
const DEEPEST: usize = 64;
/// Most urls of a version.
const URLS: usize = 4;
/// Longest url that is kept, in bytes.
const URL: usize = 2048;
/// Longest text of a version that is kept, in characters.
const TEXT: usize = 256;
/// Longest description, in characters.
const DESCRIPTION: usize = 500;
/// Longest digest, in characters.
const DIGEST: usize = 140;

/// A piece of a YAML or JSON document. In a map, keys and values come by turns.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece<'a> {
    Map,
    List,
    End,
    /// A scalar in its own spelling.
    Text(&'a str),
    Null,
    /// A reference to what is not remembered.
    Unknown,
}

/// Why there is no catalogue.
#[derive(Debug)]
pub(super) enum Trouble {
    NoIndex(String),
    TooManyCharts,
}

impl Trouble {
    pub(super) fn no_index(message: impl Into<String>) -> Self {
        Self::NoIndex(message.into())
    }
}

/// A container that is open. In maps: the key whose value comes next, if one has come.
enum Frame {
    Root(Option<RootKey>),
    Entries(Option<Option<String>>),
    Versions,
    Entry(Option<Field>),
    Urls,
    Ignored,
}

#[derive(Clone, Copy)]
enum RootKey {
    ApiVersion,
    Entries,
    Other,
}

#[derive(Clone, Copy)]
enum Field {
    Name,
    Version,
    Description,
    AppVersion,
    KubeVersion,
    Created,
    Digest,
    Deprecated,
    Removed,
    Type,
    Urls,
    Other,
}

/// An entry as far as it has come.
#[derive(Default)]
struct Draft {
    entry: Entry,
    name: Option<String>,
    removed: bool,
    bad: bool,
}

/// How many versions of each chart are kept, and which ones besides.
#[derive(Clone, Copy)]
pub(super) struct Kept<'a> {
    pub(super) max_versions: usize,
    pub(super) in_use: &'a InUse,
}

/// Reads an index from its pieces.
pub(super) struct Index<'a> {
    kept: Kept<'a>,
    /// Of the charts before the present one: finished, they take half the memory.
    catalogue: Catalogue,
    collector: Collector<'a>,
    wanted: Option<&'a [String]>,
    most_charts: usize,
    charts: usize,
    open: Vec<Frame>,
    ended: bool,
    has_version: bool,
    has_entries: bool,
    /// Whether any of its entries is a list, and whether any is none.
    has_list: bool,
    has_other: bool,
    chart: String,
    newest: Option<Loose>,
    draft: Draft,
}

impl<'a> Index<'a> {
    pub(super) fn new(kept: Kept<'a>, wanted: Option<&'a [String]>, most_charts: usize) -> Self {
        Self {
            kept,
            catalogue: Catalogue::default(),
            collector: kept.collector(),
            wanted,
            most_charts,
            charts: 0,
            open: Vec::new(),
            ended: false,
            has_version: false,
            has_entries: false,
            has_list: false,
            has_other: false,
            chart: String::new(),
            newest: None,
            draft: Draft::default(),
        }
    }

    /// Takes the next piece. What follows the end of the first document is not looked at.
    pub(super) fn take(&mut self, piece: Piece<'_>) -> Result<(), Trouble> {
        if self.ended {
            return Ok(());
        }
        if matches!(piece, Piece::End) {
            self.close();
            return Ok(());
        }
        let inner = self.within(piece)?;
        if matches!(piece, Piece::Map | Piece::List) {
            if self.open.len() >= DEEPEST {
                return Err(Trouble::no_index(format!(
                    "it is nested more than {DEEPEST} levels deep"
                )));
            }
            self.open.push(inner.unwrap_or(Frame::Ignored));
        }
        Ok(())
    }

    /// The catalogue, if that was an index and it was whole.
    pub(super) fn finish(mut self) -> Result<Catalogue, Trouble> {
        self.finish_chart();
        let missing = match (self.ended, self.has_version, self.has_entries) {
            // Only one that has no entries offers nothing.
            (true, true, true) if self.has_other && !self.has_list => {
                "none of its entries is a list of versions"
            }
            (true, true, true) => return Ok(self.catalogue),
            (false, _, _) if self.open.is_empty() => "it is empty",
            (false, _, _) => "it ends in the middle",
            (_, false, _) => "it has no apiVersion",
            (_, _, false) => "it has no entries",
        };
        Err(Trouble::no_index(missing))
    }

    /// What a piece means where it stands; for a container, what it is.
    fn within(&mut self, piece: Piece<'_>) -> Result<Option<Frame>, Trouble> {
        let Some(frame) = self.open.last_mut() else {
            return match piece {
                Piece::Map => Ok(Some(Frame::Root(None))),
                _ => Err(Trouble::no_index("it is no map")),
            };
        };
        match frame {
            Frame::Ignored => Ok(None),
            Frame::Root(key) => match key.take() {
                Some(key) => Ok(self.root(key, piece)),
                None => {
                    *key = Some(RootKey::of(piece));
                    Ok(None)
                }
            },
            Frame::Entries(key) => match key.take() {
                Some(name) => self.versions(name, piece),
                None => {
                    *key = Some(text(piece));
                    Ok(None)
                }
            },
            Frame::Versions => self.entry(piece),
            Frame::Entry(key) => match key.take() {
                Some(field) => Ok(self.draft.take(field, piece)),
                None => {
                    *key = Some(Field::of(piece));
                    Ok(None)
                }
            },
            Frame::Urls => {
                self.draft.url(piece);
                Ok(None)
            }
        }
    }

    fn root(&mut self, key: RootKey, piece: Piece<'_>) -> Option<Frame> {
        match (key, piece) {
            (RootKey::ApiVersion, Piece::Text(text)) => self.has_version = !text.is_empty(),
            (RootKey::Entries, Piece::Map) => {
                self.has_entries = true;
                return Some(Frame::Entries(None));
            }
            _ => {}
        }
        None
    }

    fn versions(
        &mut self,
        name: Option<String>,
        piece: Piece<'_>,
    ) -> Result<Option<Frame>, Trouble> {
        is_known(piece)?;
        let (Some(name), Piece::List | Piece::Null) = (name, piece) else {
            self.collector.skip();
            self.has_other = true;
            return Ok(None);
        };
        self.has_list = true;
        self.finish_chart();
        let wanted = self.wanted.is_none_or(|wanted| wanted.contains(&name));
        if !wanted || !self.collector.chart(&name) {
            return Ok(None);
        }
        self.charts += 1;
        if self.charts > self.most_charts {
            return Err(Trouble::TooManyCharts);
        }
        self.chart = name;
        self.newest = None;
        Ok(Some(Frame::Versions))
    }

    fn finish_chart(&mut self) {
        let collector = std::mem::replace(&mut self.collector, self.kept.collector());
        let finished = collector.finish();
        self.catalogue.charts.extend(finished.charts);
        self.catalogue.skipped += finished.skipped;
    }

    fn entry(&mut self, piece: Piece<'_>) -> Result<Option<Frame>, Trouble> {
        is_known(piece)?;
        if matches!(piece, Piece::Map) {
            self.draft = Draft::default();
            return Ok(Some(Frame::Entry(None)));
        }
        self.collector.skip();
        Ok(None)
    }

    fn close(&mut self) {
        match self.open.pop() {
            Some(Frame::Root(_)) => self.ended = true,
            Some(Frame::Entry(_)) => self.hand_over(),
            _ => {}
        }
    }

    fn hand_over(&mut self) {
        let mut draft = std::mem::take(&mut self.draft);
        let named = draft.name.as_deref().is_none_or(is_chart_name);
        if draft.removed {
            return;
        }
        if draft.bad || !named || draft.entry.version.version.is_empty() {
            self.collector.skip();
            return;
        }
        if let Some(urls) = &mut draft.entry.version.urls {
            urls.shrink_to_fit();
        }
        if !self.is_newest(&draft.entry) {
            draft.entry.description = None;
        }
        self.collector.add(&self.chart, draft.entry);
    }

    /// Whether no newer version of the chart has come yet. Only the newest one's description is shown, and
    /// those of all would take more memory than all else that is kept.
    fn is_newest(&mut self, entry: &Entry) -> bool {
        let version = Loose::parse(&entry.version.version);
        let newest = version >= self.newest;
        if newest {
            self.newest = version;
        }
        newest
    }
}

impl<'a> Kept<'a> {
    fn collector(self) -> Collector<'a> {
        Collector::new(self.max_versions, self.in_use)
    }
}

impl RootKey {
    fn of(piece: Piece<'_>) -> Self {
        match piece {
            Piece::Text("apiVersion") => Self::ApiVersion,
            Piece::Text("entries") => Self::Entries,
            _ => Self::Other,
        }
    }
}

impl Field {
    fn of(piece: Piece<'_>) -> Self {
        let Piece::Text(key) = piece else {
            return Self::Other;
        };
        match key {
            "name" => Self::Name,
            "version" => Self::Version,
            "description" => Self::Description,
            "appVersion" => Self::AppVersion,
            "kubeVersion" => Self::KubeVersion,
            "created" => Self::Created,
            "digest" => Self::Digest,
            "deprecated" => Self::Deprecated,
            "removed" => Self::Removed,
            "type" => Self::Type,
            "urls" => Self::Urls,
            _ => Self::Other,
        }
    }
}

impl Draft {
    fn take(&mut self, field: Field, piece: Piece<'_>) -> Option<Frame> {
        match (field, piece) {
            (Field::Other, _) | (_, Piece::Null) => {}
            (Field::Urls, Piece::List) => return Some(Frame::Urls),
            (Field::Urls, _) => self.bad = true,
            (_, Piece::Text(text)) => self.text(field, text),
            _ => self.bad = true,
        }
        None
    }

    fn text(&mut self, field: Field, text: &str) {
        let version = &mut self.entry.version;
        let kept = |most| (!text.is_empty()).then(|| cut(text, most));
        let flag = || text.eq_ignore_ascii_case("true").then_some(true);
        match field {
            Field::Name => self.name = Some(cut(text, TEXT)),
            // One character more than fits: such a version is refused, not cut.
            Field::Version => version.version = cut(text, TEXT + 1),
            Field::Description => self.entry.description = kept(DESCRIPTION),
            Field::AppVersion => version.app_version = kept(TEXT),
            Field::KubeVersion => version.kube_version = kept(TEXT),
            Field::Created => version.created = time(text),
            Field::Digest => version.digest = kept(DIGEST),
            Field::Deprecated => version.deprecated = flag(),
            Field::Removed => self.removed = flag().is_some(),
            Field::Type => version.library = (text == "library").then_some(true),
            Field::Urls | Field::Other => {}
        }
    }

    fn url(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Text(url) => {
                let urls = self.entry.version.urls.get_or_insert_default();
                if urls.len() < URLS && !url.is_empty() && url.len() <= URL {
                    urls.push(url.to_owned());
                }
            }
            Piece::Null => {}
            _ => self.bad = true,
        }
    }
}

/// What charts or versions are behind a reference is not known: nothing may be pruned for want of them.
fn is_known(piece: Piece<'_>) -> Result<(), Trouble> {
    match piece {
        Piece::Unknown => Err(Trouble::no_index(
            "it has a reference in place of a chart's versions; such are not followed",
        )),
        _ => Ok(()),
    }
}

fn text(piece: Piece<'_>) -> Option<String> {
    match piece {
        Piece::Text(text) => Some(text.to_owned()),
        _ => None,
    }
}

/// The first characters of a text, in no more memory than they take.
fn cut(text: &str, most: usize) -> String {
    let end = text.char_indices().nth(most).map(|(end, _)| end);
    let kept = end.and_then(|end| text.get(..end)).unwrap_or(text);
    kept.to_owned()
}

/// A time of RFC 3339, to the second; none for what is not one.
fn time(text: &str) -> Option<Time> {
    let time: Timestamp = text.parse().ok()?;
    Timestamp::from_second(time.as_second()).ok().map(Time)
}
