//! One chart of a registry: its tags, and what stands under those that are kept.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt, stream};
use reqwest::Method;
use reqwest::header::LINK;
use windlass_api::addon::ChartVersion;
use windlass_api::addon::chart::Unavailable;
use windlass_status::Digest;

use super::manifest::{self, Manifest, Metadata};
use super::registry::{AT_ONCE, Repository, sha256};
use super::tags::{self, Kind, Tag};
use super::{Known, Pass};
use crate::catalogue::Entry;
use crate::failure::{Failure, Fault};
use crate::http::{self, Answer};

/// What a chart's repository holds.
#[derive(Default)]
pub struct Found {
    /// Its versions.
    pub entries: Vec<Entry>,
    /// How many tags are no versions.
    pub skipped: usize,
    /// How many versions could not be looked at.
    pub pending: usize,
    /// Why the last of them could not.
    pub cause: Option<Failure>,
}

/// What became of one tag.
enum Seen {
    /// It is gone since the list was made.
    Gone,
    /// It is known what it is.
    Entry(Entry),
    /// It is not known what it is, and why, if it was asked for at all.
    Pending(Option<Failure>),
}

/// What stands under a tag.
enum Content {
    Chart(Manifest),
    Other,
}

impl Pass<'_> {
    /// Reads one chart.
    pub async fn chart(
        &self,
        repository: Repository<'_>,
        name: &str,
        known: &Known,
        in_use: &[String],
    ) -> Result<Found, Failure> {
        let repository = &repository;
        let listed = self.tags(repository, name).await?;
        let mut found = Found::default();
        let mut versions = Vec::new();
        for tag in &listed {
            match tags::kind(tag) {
                Kind::Version(tag) => versions.push(tag),
                Kind::Companion => {}
                Kind::Other => found.skipped += 1,
            }
        }
        let (kept, rest) = tags::kept(versions, self.max_versions, in_use);
        let recorded: BTreeMap<_, _> = known
            .versions
            .iter()
            .map(|version| (version.version.as_str(), version))
            .collect();
        let look = |(at, tag): (usize, &Tag)| {
            let text = tag.version.text.as_str();
            let recorded = recorded.get(text).copied();
            let watched = at < self.limits.watched || in_use.iter().any(|used| used == text);
            let tag = tag.clone();
            async move {
                let seen = self.look(repository, &tag, recorded, watched).await?;
                Ok::<_, Failure>((tag, seen))
            }
        };
        // Collected first: see `read`.
        let looks: Vec<_> = kept.iter().enumerate().map(look).collect();
        let seen: Vec<_> = stream::iter(looks).buffered(AT_ONCE).try_collect().await?;
        for (tag, seen) in seen {
            found.take(tag, seen, known);
        }
        // They make the number of those that are left out come true; should there be room for one after all,
        // since another is gone, the next reading looks at it.
        found.entries.extend(rest.into_iter().map(pending));
        Ok(found)
    }

    /// All tags.
    async fn tags(&self, repository: &Repository<'_>, chart: &str) -> Result<Vec<String>, Failure> {
        let mut page = repository.url("tags/list")?;
        page.set_query(Some("n=1000"));
        let mut seen = BTreeSet::new();
        let mut all = Vec::new();
        for _ in 0..self.limits.pages {
            if !seen.insert(page.clone()) {
                let message = format!("{}: the list of tags goes in a circle", http::shown(&page));
                return Err(Failure::transient(message));
            }
            let (tags, next) = self
                .http
                .retrying(|| self.page(repository, chart, &page))
                .await?;
            all.extend(tags);
            if all.len() > self.limits.tags {
                break;
            }
            match next {
                Some(next) => page = next,
                None => return Ok(all),
            }
        }
        let message = format!(
            "{} lists {} tags and more; at most {} tags on {} pages are read",
            http::shown(&page),
            all.len(),
            self.limits.tags,
            self.limits.pages
        );
        Err(Failure::terminal(Fault::IndexTooLarge, message))
    }

    async fn page(
        &self,
        repository: &Repository<'_>,
        chart: &str,
        page: &url::Url,
    ) -> Result<(Vec<String>, Option<url::Url>), Failure> {
        let answer = repository
            .send(Method::GET, page.clone(), "application/json")
            .await?;
        if answer.status() != 200 {
            let failure = repository.failure(answer).await;
            return Err(named(failure, chart));
        }
        let shown = answer.shown();
        let links = answer.headers().get_all(LINK).iter();
        let next = tags::next_page(page, links.filter_map(|value| value.to_str().ok()));
        let next = next.map_err(|why| {
            let message =
                format!("{shown}: the list of tags goes on at what {why}; that is not followed");
            Failure::terminal(Fault::SourceRejectedRequest, message)
        })?;
        let body = answer.whole(self.limits.page_bytes).await?;
        let page: tags::Page = serde_json::from_slice(&body)
            .map_err(|_| Failure::transient(format!("{shown} answered with no list of tags")))?;
        Ok((page.tags.unwrap_or_default(), next))
    }

    async fn look(
        &self,
        repository: &Repository<'_>,
        tag: &Tag,
        recorded: Option<&ChartVersion>,
        watched: bool,
    ) -> Result<Seen, Failure> {
        let settled = recorded.filter(|version| {
            version.digest.is_some()
                && matches!(
                    version.unavailable,
                    None | Some(Unavailable::UnsupportedMediaType)
                )
        });
        let Some(version) = settled else {
            return self.resolve(repository, tag).await;
        };
        let same = || {
            Seen::Entry(Entry {
                version: version.clone(),
                description: None,
            })
        };
        if !watched || !self.may_watch() {
            return Ok(same());
        }
        let answer = match self.manifest(repository, Method::HEAD, &tag.tag).await {
            Ok(answer) => answer,
            Err(failure) => return if_passing(failure).map(|_| same()),
        };
        match (answer.status(), digest_of(&answer)) {
            (200, Some(digest)) if version.digest.as_deref() == Some(digest) => Ok(same()),
            // Moved, or a registry that has no HEAD or no digest to show.
            (200 | 405, _) => self.resolve(repository, tag).await,
            (404, _) => Ok(Seen::Gone),
            (status, _) => {
                self.mind(status);
                // What is known of it stays true as far as anybody knows.
                if_passing(refusal(repository, answer).await).map(|_| same())
            }
        }
    }

    /// Looks at a tag anew.
    async fn resolve(&self, repository: &Repository<'_>, tag: &Tag) -> Result<Seen, Failure> {
        if !self.may_look() {
            return Ok(Seen::Pending(None));
        }
        match self.resolved(repository, tag).await {
            Ok(seen) => Ok(seen),
            Err(failure) => if_passing(failure).map(|failure| Seen::Pending(Some(failure))),
        }
    }

    async fn resolved(&self, repository: &Repository<'_>, tag: &Tag) -> Result<Seen, Failure> {
        let answer = self.manifest(repository, Method::GET, &tag.tag).await?;
        match answer.status() {
            200 => {}
            404 => return Ok(Seen::Gone),
            status => {
                self.mind(status);
                return Err(refusal(repository, answer).await);
            }
        }
        let (digest, content) = read_manifest(answer, self.limits.manifest_bytes).await?;
        let mut entry = bare(tag.clone());
        entry.version.digest = Some(format!("sha256:{digest}"));
        match content {
            Content::Other => entry.version.unavailable = Some(Unavailable::UnsupportedMediaType),
            Content::Chart(manifest) => {
                entry.version.created.clone_from(&manifest.created);
                let metadata = self.metadata(repository, &manifest).await?;
                metadata.fill(&mut entry.version);
                entry.description = metadata.description.or(manifest.description);
            }
        }
        Ok(Seen::Entry(entry))
    }

    /// Chart.yaml; empty if it is too large or makes no sense.
    async fn metadata(
        &self,
        repository: &Repository<'_>,
        manifest: &Manifest,
    ) -> Result<Metadata, Failure> {
        let most = self.limits.config_bytes;
        if manifest.config.size > most as u64 || sha256(&manifest.config.digest).is_none() {
            return Ok(Metadata::default());
        }
        let body = repository.blob(&manifest.config.digest, most).await?;
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn manifest(
        &self,
        repository: &Repository<'_>,
        method: Method,
        reference: &str,
    ) -> Result<Answer, Failure> {
        let url = repository.url(&format!("manifests/{reference}"))?;
        repository.send(method, url, manifest::ACCEPT).await
    }

    fn mind(&self, status: u16) {
        if status == 429 {
            self.stop();
        }
    }
}

impl Found {
    fn take(&mut self, tag: Tag, seen: Seen, known: &Known) {
        match seen {
            Seen::Gone => {}
            Seen::Entry(mut entry) => {
                // Which version it is from is not recorded; it is the newest one's word, or was.
                if entry.description.is_none() {
                    entry.description.clone_from(&known.description);
                }
                self.entries.push(entry);
            }
            Seen::Pending(cause) => {
                let mut entry = pending(tag);
                entry.description.clone_from(&known.description);
                self.entries.push(entry);
                self.pending += 1;
                self.cause = cause.or(self.cause.take());
            }
        }
    }
}

/// A version that was not looked at.
fn pending(tag: Tag) -> Entry {
    let mut entry = bare(tag);
    entry.version.unavailable = Some(Unavailable::ResolvePending);
    entry
}

/// A version of which only the tag is known.
fn bare(tag: Tag) -> Entry {
    Entry {
        version: ChartVersion {
            version: tag.version.text,
            ..ChartVersion::default()
        },
        description: None,
    }
}

/// One tag's failure: a refusal ends the reading, anything else only leaves the tag as it is.
fn if_passing(failure: Failure) -> Result<Failure, Failure> {
    match failure.fault() {
        Some(Fault::AuthenticationFailed) => Err(failure),
        _ => Ok(failure),
    }
}

async fn refusal(repository: &Repository<'_>, answer: Answer) -> Failure {
    repository.failure(answer).await
}

fn named(failure: Failure, chart: &str) -> Failure {
    match failure {
        Failure::Terminal { fault, message } => Failure::Terminal {
            fault,
            message: format!("chart {chart}: {message}"),
        },
        Failure::Transient {
            message,
            retry_after,
        } => Failure::Transient {
            message: format!("chart {chart}: {message}"),
            retry_after,
        },
    }
}

fn digest_of(answer: &Answer) -> Option<&str> {
    answer.header("docker-content-digest")
}

/// Reads a manifest, and whether it is the one that the registry says it is.
async fn read_manifest(answer: Answer, most: usize) -> Result<(Digest, Content), Failure> {
    let told = digest_of(&answer).and_then(sha256);
    let shown = answer.shown();
    let body = answer.whole(most).await?;
    let digest = Digest::of_bytes(&body);
    if told.is_some_and(|told| told != digest) {
        let message = format!("{shown}: the manifest has another digest than the registry says");
        return Err(Failure::transient(message));
    }
    let content = match manifest::read(&body) {
        Some(manifest) => Content::Chart(manifest),
        None => Content::Other,
    };
    Ok((digest, content))
}
