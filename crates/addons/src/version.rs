//! Versions of charts: read loosely, ordered by what they mean, kept as they are spelled (reference, seed
//! systems A7).

use std::cmp::Ordering;

use semver::{BuildMetadata, Prerelease, Version};

/// Longest version that is read.
const LONGEST: usize = 256;

/// A version as a repository spells it, and what it means.
///
/// `v1.2`, `1` and `2024.01.15` are read as 1.2.0, 1.0.0 and 2024.1.15, as Helm does. The spelling is what
/// archives and tags are addressed by: what is normalised may not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loose {
    /// As it is spelled.
    pub text: String,
    /// What it means.
    pub parsed: Version,
}

impl Loose {
    /// Reads a version; none if it is not one even loosely.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let rest = text.strip_prefix('v').unwrap_or(text);
        let (rest, build) = split(rest, '+');
        let (core, pre) = split(rest, '-');
        let mut numbers = [0_u64; 3];
        let mut parts = core.split('.');
        for (at, number) in numbers.iter_mut().enumerate() {
            match parts.next() {
                Some(part) => *number = digits(part)?,
                None if at == 0 => return None,
                None => break,
            }
        }
        if parts.next().is_some() {
            return None;
        }
        let [major, minor, patch] = numbers;
        let mut parsed = Version::new(major, minor, patch);
        if let Some(pre) = pre {
            parsed.pre = Prerelease::new(pre).ok().filter(|pre| !pre.is_empty())?;
        }
        if let Some(build) = build {
            let build = BuildMetadata::new(build).ok();
            parsed.build = build.filter(|build| !build.is_empty())?;
        }
        Some(Self {
            text: text.to_owned(),
            parsed,
        })
    }

    /// Whether it is a prerelease.
    #[must_use]
    pub fn is_prerelease(&self) -> bool {
        !self.parsed.pre.is_empty()
    }
}

impl Ord for Loose {
    /// By what they mean; those that mean the same by their spelling, so that the order is total.
    fn cmp(&self, other: &Self) -> Ordering {
        let meaning = self.parsed.cmp_precedence(&other.parsed);
        meaning.then_with(|| self.text.cmp(&other.text))
    }
}

impl PartialOrd for Loose {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    match text.split_once(at) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}
