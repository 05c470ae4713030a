//! The tags of a registry: how their list goes on, and which of them are versions of a chart.

use std::collections::BTreeSet;

use serde::Deserialize;
use url::Url;

use crate::version::Loose;

/// A tag that is a version of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// As the registry spells it.
    pub tag: String,
    /// The version: a `+` where the tag has `_`.
    pub version: Loose,
}

/// What a tag is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A version of the chart.
    Version(Tag),
    /// Something that belongs to a version: a signature, an attestation, a list of what refers to it. It is
    /// nobody's mistake, so that it is not counted.
    Companion,
    /// No version, such as `latest`: left out and counted.
    Other,
}

/// What a tag is. Helm writes `_` for the `+` of a version, which no tag may have.
#[must_use]
pub fn kind(tag: &str) -> Kind {
    let companion = [".sig", ".att", ".sbom"];
    if companion.iter().any(|suffix| tag.ends_with(suffix)) || tag.starts_with("sha256-") {
        return Kind::Companion;
    }
    if tag.len() > 128 {
        return Kind::Other;
    }
    match Loose::parse(&tag.replace('_', "+")) {
        Some(version) => Kind::Version(Tag {
            tag: tag.to_owned(),
            version,
        }),
        None => Kind::Other,
    }
}

/// The tag that a version stands under.
#[must_use]
pub fn tag_of(version: &str) -> String {
    version.replace('+', "_")
}

/// Of all versions those that are looked at, newest first, and the rest: those in use, and so many others, as
/// [`Collector`](crate::catalogue::Collector) keeps them.
#[must_use]
pub fn kept(mut all: Vec<Tag>, newest: usize, in_use: &[String]) -> (Vec<Tag>, Vec<Tag>) {
    all.sort_by(|a, b| b.version.cmp(&a.version));
    all.dedup_by(|a, b| a.tag == b.tag);
    let in_use: BTreeSet<_> = in_use.iter().map(String::as_str).collect();
    let mut others = 0;
    all.into_iter().partition(|tag| {
        let used = in_use.contains(tag.version.text.as_str());
        others += usize::from(!used);
        used || others <= newest
    })
}

/// One page of the list.
#[derive(Debug, Deserialize)]
pub struct Page {
    /// Null in a repository without tags, as some registries say it.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
}

/// Where the list goes on, by the `Link` headers of a page (RFC 8288); none if it ends here.
///
/// # Errors
///
/// Says what is wrong with the address: the list goes on only on the same scheme, host and port, for the
/// credentials go with it.
pub fn next_page<'a>(
    page: &Url,
    headers: impl Iterator<Item = &'a str>,
) -> Result<Option<Url>, String> {
    let Some(target) = headers.filter_map(next_target).next() else {
        return Ok(None);
    };
    let next = page.join(target).map_err(|_| "is no url".to_owned())?;
    if next.origin() != page.origin() {
        let host = next.host_str().unwrap_or("nowhere");
        return Err(format!("is elsewhere ({}://{host})", next.scheme()));
    }
    if !next.username().is_empty() || next.password().is_some() {
        return Err("holds a user name".to_owned());
    }
    Ok(Some(next))
}

fn next_target(header: &str) -> Option<&str> {
    let mut rest = header;
    loop {
        let (_, after) = rest.split_once('<')?;
        let (target, after) = after.split_once('>')?;
        // The parameters of a link end where the next link begins.
        let end = after.find('<').unwrap_or(after.len());
        let (params, after) = after.split_at(end);
        let next = params.split([';', ',']).any(|param| {
            param.split_once('=').is_some_and(|(name, value)| {
                let mut relations = value.trim().trim_matches('"').split(' ');
                name.trim().eq_ignore_ascii_case("rel")
                    && relations.any(|rel| rel.eq_ignore_ascii_case("next"))
            })
        });
        if next {
            return Some(target);
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tag_is() {
        let versions = [
            ("1.2.3", "1.2.3"),
            ("v1.0.1", "v1.0.1"),
            ("1.0.0_build.5", "1.0.0+build.5"),
            ("1.2.3-rc.1_k3s1", "1.2.3-rc.1+k3s1"),
            ("2024.01.15", "2024.01.15"),
            ("1", "1"),
        ];
        for (tag, version) in versions {
            let Kind::Version(found) = kind(tag) else {
                panic!("{tag} is a version");
            };
            assert_eq!(
                (found.tag.as_str(), found.version.text.as_str()),
                (tag, version)
            );
            assert_eq!(tag_of(version), tag);
        }
        let companions = [
            "sha256-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08.sig",
            "1.2.3.att",
            "1.2.3.sbom",
            "sha256-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        ];
        for tag in companions {
            assert_eq!(kind(tag), Kind::Companion, "{tag}");
        }
        let long = format!("1.2.3-{}", "a".repeat(128));
        for tag in ["latest", "main", "1.2.x", "1.2.3_a_b", "V1.2.3", "", &long] {
            assert_eq!(kind(tag), Kind::Other, "{tag}");
        }
    }

    #[test]
    fn the_newest_are_kept_and_those_in_use_besides() {
        let tags = [
            "1.2.0",
            "0.9.0",
            "1.10.0",
            "1.10.0",
            "2.0.0-rc.1",
            "v0.1.0",
            "0.8.0_a",
        ];
        let all = tags.iter().filter_map(|tag| match kind(tag) {
            Kind::Version(tag) => Some(tag),
            _ => None,
        });
        let in_use = ["v0.1.0", "0.8.0+a", "1.10.0", "7.0.0"].map(str::to_owned);
        let (kept, rest) = kept(all.collect(), 2, &in_use);
        let tags = |list: &[Tag]| list.iter().map(|tag| tag.tag.clone()).collect::<Vec<_>>();
        assert_eq!(
            tags(&kept),
            ["2.0.0-rc.1", "1.10.0", "1.2.0", "0.8.0_a", "v0.1.0"]
        );
        assert_eq!(tags(&rest), ["0.9.0"]);
    }

    #[test]
    fn where_the_list_goes_on() {
        let page = "https://reg.example:5000/v2/a/b/tags/list?n=1000";
        let next = "https://reg.example:5000/v2/a/b/tags/list?n=1000&last=1.0";
        type Next = Result<Option<&'static str>, &'static str>;
        let cases: &[(&[&str], Next)] = &[
            (&[], Ok(None)),
            (&[""], Ok(None)),
            (
                &["</v2/a/b/tags/list?n=1000&last=1.0>; rel=\"next\""],
                Ok(Some(next)),
            ),
            (&["<?n=1000&last=1.0>; rel=next"], Ok(Some(next))),
            (
                &["<https://reg.example:5000/v2/a/b/tags/list?n=1000&last=1.0>;REL=\"Next\""],
                Ok(Some(next)),
            ),
            (
                &["</v2/>; rel=\"prev\", </v2/a/b/tags/list?n=1000&last=1.0>; rel=\"last next\""],
                Ok(Some(next)),
            ),
            (
                &[
                    "</v2/>; rel=prev",
                    "</v2/a/b/tags/list?n=1000&last=1.0>; title=x; rel=next",
                ],
                Ok(Some(next)),
            ),
            (&["</v2/>; rel=\"prev\""], Ok(None)),
            (&["</v2/x"], Ok(None)),
            (
                &["<https://evil.example/v2/>; rel=\"next\""],
                Err("is elsewhere (https://evil.example)"),
            ),
            (
                &["<//evil.example/v2/>; rel=\"next\""],
                Err("is elsewhere (https://evil.example)"),
            ),
            (
                &["<http://reg.example:5000/v2/>; rel=\"next\""],
                Err("is elsewhere (http://reg.example)"),
            ),
            (
                &["<https://reg.example/v2/>; rel=\"next\""],
                Err("is elsewhere (https://reg.example)"),
            ),
            (
                &["<https://u@reg.example:5000/>; rel=next"],
                Err("holds a user name"),
            ),
            (&["<https://[>; rel=next"], Err("is no url")),
        ];
        let page = Url::parse(page).unwrap();
        for (headers, expected) in cases {
            let found = next_page(&page, headers.iter().copied());
            let found = found.map(|url| url.map(String::from));
            let expected = expected
                .map(|url| url.map(str::to_owned))
                .map_err(str::to_owned);
            assert_eq!(found, expected, "{headers:?}");
        }
    }

    #[test]
    fn a_page_may_have_no_tags() {
        let cases = [
            (r#"{"name":"a","tags":["1.0"]}"#, Some(1)),
            (r#"{"name":"a","tags":null}"#, None),
            (r#"{"name":"a"}"#, None),
        ];
        for (text, expected) in cases {
            let page: Page = serde_json::from_str(text).unwrap();
            assert_eq!(page.tags.map(|tags| tags.len()), expected, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_header_of_a_registry_leads_astray(header in "[<>;,\" =a-z/:?.@-]{0,60}") {
            let page = Url::parse("https://reg.example/v2/a/tags/list").unwrap();
            if let Ok(Some(next)) = next_page(&page, std::iter::once(header.as_str())) {
                proptest::prop_assert_eq!(next.origin(), page.origin());
            }
        }

        #[test]
        fn a_tag_and_its_version_name_each_other(tag in "v?[0-9]{1,3}(\\.[0-9]{1,3}){0,2}(-[a-z]{1,5})?(_[a-z]{1,5})?") {
            if let Kind::Version(found) = kind(&tag) {
                proptest::prop_assert_eq!(tag_of(&found.version.text), tag);
            }
        }
    }
}
