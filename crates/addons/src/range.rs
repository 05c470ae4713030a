//! Which version of a chart is asked for: one, or a range in Helm's notation (`^1.2`, `~1.2.0`, `>=1 <2`,
//! `1.2.x`, `1.0 - 1.4`, `1.x || 3.x`).
//!
//! A version by its very spelling always matches itself. Prereleases are in a range only if it names one
//! (`>=1.0.0-0`), as with Helm.

use semver::{Prerelease, Version};
use windlass_api::addon::ChartVersion;

use crate::catalogue::latest;
use crate::version::Loose;

/// Why no version is chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// It is neither a version nor a range.
    #[error("spec.chart.version {0:?} is neither a version nor a range such as ^1.2 or >=1.0 <2.0")]
    NotARange(String),
    /// No version matches.
    #[error("the repository offers no version of the chart that matches {0:?}; the newest is {1}")]
    NoMatch(String, String),
    /// The chart has no version that can be placed.
    #[error("the repository offers no version of the chart that can be placed")]
    NoVersion,
    /// The one that matches can't be placed.
    #[error("version {0} can't be placed: {1}")]
    Unusable(String, &'static str),
}

/// The version that is meant; `versions` are in order, newest first.
///
/// # Errors
/// When there is none.
pub fn choose<'a>(
    asked: Option<&str>,
    versions: &'a [ChartVersion],
) -> Result<&'a ChartVersion, ChoiceError> {
    let Some(asked) = asked.map(str::trim).filter(|text| !text.is_empty()) else {
        let newest = latest(versions).ok_or(ChoiceError::NoVersion)?;
        return usable(newest);
    };
    if let Some(exact) = versions.iter().find(|version| version.version == asked) {
        return usable(exact);
    }
    let range = Range::parse(asked).ok_or_else(|| ChoiceError::NotARange(asked.to_owned()))?;
    let is_offered = |version: &&ChartVersion| {
        version.unavailable.is_none()
            && version.library != Some(true)
            && Loose::parse(&version.version).is_some_and(|loose| range.has(&loose.parsed))
    };
    let mut matching = versions.iter().filter(is_offered);
    let newest = matching
        .clone()
        .find(|version| version.deprecated != Some(true));
    newest.or_else(|| matching.next()).ok_or_else(|| {
        let newest = latest(versions).map_or("none", |latest| &latest.version);
        ChoiceError::NoMatch(asked.to_owned(), newest.to_owned())
    })
}

fn usable(version: &ChartVersion) -> Result<&ChartVersion, ChoiceError> {
    use windlass_api::addon::chart::Unavailable;
    let why = match version.unavailable {
        _ if version.library == Some(true) => "it is a library chart, which only other charts use",
        None | Some(Unavailable::ResolvePending) => return Ok(version),
        Some(Unavailable::RemovedFromRepository) => "the repository does not offer it any more",
        Some(Unavailable::UnsupportedMediaType) => "what stands under its tag is no Helm chart",
    };
    Err(ChoiceError::Unusable(version.version.clone(), why))
}

/// Alternatives, each a list of conditions that all hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Range(Vec<Vec<Condition>>);

/// A condition on a version.
#[derive(Clone, Debug, PartialEq)]
struct Condition {
    /// Not below this, or above it.
    from: Option<(Version, bool)>,
    /// Below this, or not above it.
    to: Option<(Version, bool)>,
    /// Not within the two, instead of within.
    negated: bool,
    /// It names a prerelease.
    names_prerelease: bool,
}

impl Range {
    /// Reads a range; none if it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let groups = text.split("||").map(group).collect::<Option<Vec<_>>>()?;
        Some(Self(groups))
    }

    /// Whether a version is in it.
    #[must_use]
    pub fn has(&self, version: &Version) -> bool {
        self.0.iter().any(|group| {
            let named = group.iter().any(|condition| condition.names_prerelease);
            (version.pre.is_empty() || named)
                && group.iter().all(|condition| condition.has(version))
        })
    }
}

impl Condition {
    fn has(&self, version: &Version) -> bool {
        let above = self.from.as_ref().is_none_or(|(from, inclusive)| {
            let order = version.cmp_precedence(from);
            order.is_gt() || (*inclusive && order.is_eq())
        });
        let below = self.to.as_ref().is_none_or(|(to, inclusive)| {
            let order = version.cmp_precedence(to);
            order.is_lt() || (*inclusive && order.is_eq())
        });
        (above && below) != self.negated
    }
}

fn group(text: &str) -> Option<Vec<Condition>> {
    if let Some((from, to)) = text.split_once(" - ") {
        return Some(vec![
            condition(">=", from.trim())?,
            condition("<=", to.trim())?,
        ]);
    }
    let mut conditions = Vec::new();
    let mut operator = String::new();
    for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
        let end = word
            .find(|c: char| !"=!<>~^".contains(c))
            .unwrap_or(word.len());
        operator.push_str(&word[..end]);
        if end < word.len() {
            conditions.push(condition(&operator, &word[end..])?);
            operator.clear();
        }
    }
    (operator.is_empty() && !conditions.is_empty()).then_some(conditions)
}

/// A version of which parts may be missing.
struct Partial {
    numbers: Vec<u64>,
    pre: Prerelease,
}

impl Partial {
    fn parse(text: &str) -> Option<Self> {
        let bare = text.strip_prefix('v').unwrap_or(text);
        let bare = bare.split('+').next().unwrap_or_default();
        let (core, pre) = match bare.split_once('-') {
            Some((core, pre)) => (core, Prerelease::new(pre).ok()?),
            None => (bare, Prerelease::EMPTY),
        };
        let mut numbers = Vec::new();
        let mut is_open = false;
        for part in core.split('.') {
            if matches!(part, "x" | "X" | "*") {
                is_open = true;
            } else if is_open || numbers.len() == 3 {
                return None;
            } else {
                numbers.push(
                    part.bytes()
                        .all(|byte| byte.is_ascii_digit())
                        .then(|| part.parse().ok())??,
                );
            }
        }
        (pre.is_empty() || numbers.len() == 3).then_some(Self { numbers, pre })
    }

    fn at(&self, place: usize) -> u64 {
        self.numbers.get(place).copied().unwrap_or(0)
    }

    /// With what is missing as zero.
    fn lowest(&self) -> Version {
        let mut version = Version::new(self.at(0), self.at(1), self.at(2));
        version.pre = self.pre.clone();
        version
    }

    /// The first version that differs in one of the first `places` numbers, its prereleases included; none
    /// if there is no end.
    fn after(&self, places: usize) -> Option<Version> {
        let mut numbers = [self.at(0), self.at(1), self.at(2)];
        let place = places.checked_sub(1)?;
        numbers[place] = numbers[place].saturating_add(1);
        numbers[place + 1..].fill(0);
        let mut version = Version::new(numbers[0], numbers[1], numbers[2]);
        version.pre = Prerelease::new("0").ok()?;
        Some(version)
    }
}

fn condition(operator: &str, text: &str) -> Option<Condition> {
    let partial = Partial::parse(text)?;
    let given = partial.numbers.len();
    let lowest = partial.lowest();
    let whole = given == 3;
    let within = |places: usize| {
        let to = partial.after(places).map(|to| (to, false));
        (Some((lowest.clone(), true)), to)
    };
    let exactly = || {
        if whole {
            (Some((lowest.clone(), true)), Some((lowest.clone(), true)))
        } else {
            within(given)
        }
    };
    let (from, to) = match operator {
        "" | "=" | "==" | "!=" => exactly(),
        "~" | "~>" => within(given.min(2)),
        "^" => {
            let first = partial.numbers.iter().position(|number| *number > 0);
            within(first.map_or(given, |first| first + 1))
        }
        ">=" | "=>" => (Some((lowest, true)), None),
        "<" => (None, Some((lowest, false))),
        ">" if whole => (Some((lowest, false)), None),
        ">" => (Some((partial.after(given)?, true)), None),
        "<=" | "=<" if whole => (None, Some((lowest, true))),
        "<=" | "=<" => (None, partial.after(given).map(|to| (to, false))),
        _ => return None,
    };
    Some(Condition {
        from,
        to,
        negated: operator == "!=",
        names_prerelease: !partial.pre.is_empty(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::addon::chart::Unavailable;

    #[test]
    fn ranges_mean_what_they_mean_to_helm() {
        let rows: &[(&str, &[&str], &[&str])] = &[
            ("1.2.3", &["1.2.3", "v1.2.3"], &["1.2.4", "1.2.3-rc.1"]),
            ("v1.2.3", &["1.2.3"], &["1.2.4"]),
            ("=1.2.3", &["1.2.3"], &["1.2.4"]),
            ("1.2", &["1.2.0", "1.2.9"], &["1.3.0", "1.1.9"]),
            ("1.2.x", &["1.2.0", "1.2.9"], &["1.3.0"]),
            ("1.x", &["1.0.0", "1.9.9"], &["2.0.0", "0.9.0"]),
            ("*", &["0.0.1", "9.9.9"], &["1.0.0-rc.1"]),
            ("!=1.2.3", &["1.2.4"], &["1.2.3"]),
            ("!=1.2", &["1.3.0"], &["1.2.0", "1.2.7"]),
            (">1.2.3", &["1.2.4"], &["1.2.3"]),
            (">1.2", &["1.3.0"], &["1.2.9"]),
            (">=1.2", &["1.2.0", "2.0.0"], &["1.1.9"]),
            ("<1.2", &["1.1.9"], &["1.2.0"]),
            ("<=1.2", &["1.2.9"], &["1.3.0"]),
            ("<=1.2.3", &["1.2.3"], &["1.2.4"]),
            ("~1.2.3", &["1.2.3", "1.2.9"], &["1.2.2", "1.3.0"]),
            ("~1", &["1.0.0", "1.9.0"], &["2.0.0"]),
            ("^1.2.3", &["1.2.3", "1.9.0"], &["1.2.2", "2.0.0"]),
            ("^0.2.3", &["0.2.3", "0.2.9"], &["0.3.0", "1.0.0"]),
            ("^0.0.3", &["0.0.3"], &["0.0.4"]),
            ("^0.0", &["0.0.0", "0.0.9"], &["0.1.0"]),
            ("^0", &["0.9.0"], &["1.0.0"]),
            (">=1.0 <2.0", &["1.5.0"], &["2.0.0", "0.9.0"]),
            (">= 1.0, < 2.0", &["1.5.0"], &["2.0.0", "0.9.0"]),
            ("1.2 - 1.4.5", &["1.2.0", "1.4.5"], &["1.4.6", "1.1.0"]),
            ("1.x || >=3", &["1.5.0", "3.0.0"], &["2.0.0"]),
            (
                ">=1.0.0-0",
                &["1.0.0-rc.1", "1.1.0-beta", "1.1.0"],
                &["0.9.0"],
            ),
            (
                "^1.2.3-0",
                &["1.2.3-rc.1", "1.5.0-rc.1"],
                &["2.0.0-rc.1", "2.0.0"],
            ),
            ("<2.0.0-0", &["1.9.0"], &["2.0.0-rc.1"]),
            (
                "~1.2.3-rc.1",
                &["1.2.3-rc.2", "1.2.9"],
                &["1.3.0-rc.1", "1.2.3-beta"],
            ),
        ];
        for (text, inside, outside) in rows {
            let range = Range::parse(text).unwrap_or_else(|| panic!("{text} is a range"));
            let has = |version: &str| range.has(&Loose::parse(version).expect("a version").parsed);
            for version in *inside {
                assert!(has(version), "{version} is in {text}");
            }
            for version in *outside {
                assert!(!has(version), "{version} is not in {text}");
            }
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "latest", "1.2.3.4", ">", "", "1.x.3", "a || 1", ">>1", "1.2-rc", "1.2.3 ||", "^^1",
            "-1",
        ] {
            assert_eq!(Range::parse(text), None, "{text:?}");
        }
    }

    fn version(text: &str) -> ChartVersion {
        ChartVersion {
            version: text.to_owned(),
            ..ChartVersion::default()
        }
    }

    #[test]
    fn the_newest_that_matches_is_chosen() {
        let mut offered: Vec<ChartVersion> = ["3.0.0-rc.1", "v2.1", "2.0.0", "1.1.0", "1.0.0"]
            .map(version)
            .into();
        offered[2].deprecated = Some(true);
        let chosen = |asked| choose(asked, &offered).map(|version| version.version.as_str());
        for (asked, expected) in [
            (None, "v2.1"),
            (Some("  "), "v2.1"),
            (Some("*"), "v2.1"),
            (Some("2.1.0"), "v2.1"),
            (Some("~2.0"), "2.0.0"),
            (Some("1.x"), "1.1.0"),
            (Some("3.0.0-rc.1"), "3.0.0-rc.1"),
            (Some(">=2.0.0-0"), "3.0.0-rc.1"),
        ] {
            assert_eq!(chosen(asked), Ok(expected), "{asked:?}");
        }
        assert_eq!(
            chosen(Some("newest")),
            Err(ChoiceError::NotARange("newest".into()))
        );
        assert_eq!(
            chosen(Some(">=4")),
            Err(ChoiceError::NoMatch(">=4".into(), "v2.1".into()))
        );
        assert_eq!(choose(None, &[]), Err(ChoiceError::NoVersion));
    }

    #[test]
    fn what_cannot_be_placed_is_not_chosen() {
        let mut offered: Vec<ChartVersion> = ["3.0.0", "2.0.0", "1.0.0"].map(version).into();
        offered[0].unavailable = Some(Unavailable::UnsupportedMediaType);
        offered[1].library = Some(true);
        assert_eq!(
            choose(Some("*"), &offered).map(|v| v.version.as_str()),
            Ok("1.0.0")
        );
        for asked in ["3.0.0", "2.0.0"] {
            let refused = choose(Some(asked), &offered);
            assert!(
                matches!(refused, Err(ChoiceError::Unusable(..))),
                "{refused:?}"
            );
        }
    }
}
