//! Which version of its chart an Addon gets: pure, over what the AddonCharts say.

use jiff::SignedDuration;
use kube::ResourceExt;
use windlass_addons::placed::{Outcome, Why};
use windlass_addons::range::{ChoiceError, choose as newest};
use windlass_addons::version::Loose;
use windlass_api::addon::placed::UpdatePolicy;
use windlass_api::addon::{Addon, AddonChart, AddonStatus, ChartVersion};
use windlass_cluster::{ObjectKey, clock};
use windlass_status::conditions::{find, is_true};

use super::{AddonCaches, catalogue};

/// Reason while a version is looked for that an AddonChart leaves out.
pub(super) const LOOKED_FOR: &str = "VersionLookedFor";

/// How long a reading for it may take before that is told otherwise.
const LOOKING: SignedDuration = SignedDuration::from_mins(2);

/// What an Addon gets.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chosen {
    /// The version. Of one that the catalogue does not list any more only the spelling is known.
    pub version: ChartVersion,
    /// It is the one that is rendered already, whatever else the repository offers.
    pub is_kept: bool,
    /// The repository offers another chart under the name of the version that is kept.
    pub is_republished: bool,
    /// What could be rolled out instead, and is not.
    pub held_back: Option<String>,
}

/// A version that was chosen for the same words stays, unless the Addon follows what is new. A repository or
/// chart that is not there any more changes nothing about that.
///
/// # Errors
/// What is waited for, or has to be mended.
pub(super) fn choose(
    caches: &AddonCaches,
    addon: &Addon,
    known: &AddonStatus,
) -> Result<Chosen, Outcome> {
    let asked = &addon.spec.chart;
    let chart = catalogue::get(caches, &asked.repository, &asked.name);
    let versions = chart
        .as_ref()
        .map_or(&[][..], |chart| chart.spec.versions.as_slice());
    among(addon, known, versions).map_err(|error| why_not(caches, addon, chart.as_deref(), &error))
}

/// The same, of these versions.
fn among(
    addon: &Addon,
    known: &AddonStatus,
    versions: &[ChartVersion],
) -> Result<Chosen, ChoiceError> {
    let asked = &addon.spec.chart;
    let follows = addon.spec.update_policy == Some(UpdatePolicy::Automatic);
    let offered = newest(asked.version.as_deref(), versions);
    let same = known.chosen_for.as_ref() == Some(asked);
    let kept = known.version.as_deref().filter(|_| same);
    match (kept, offered) {
        (Some(kept), Ok(offered)) => {
            let is_news = is_newer(offered, kept)
                || offered.version == kept && is_republished(offered, known);
            Ok(if is_news && follows {
                fresh(offered)
            } else {
                Chosen {
                    held_back: is_news.then(|| offered.version.clone()),
                    ..stays(kept, versions, known)
                }
            })
        }
        (Some(kept), Err(_)) => Ok(stays(kept, versions, known)),
        (None, Ok(offered)) => Ok(fresh(offered)),
        (None, Err(error)) => Err(error),
    }
}

fn fresh(offered: &ChartVersion) -> Chosen {
    Chosen {
        version: offered.clone(),
        is_kept: false,
        is_republished: false,
        held_back: None,
    }
}

/// What is rendered is pinned: the same chart is fetched if it has to be rendered again, or none.
fn stays(kept: &str, versions: &[ChartVersion], known: &AddonStatus) -> Chosen {
    let listed = versions.iter().find(|version| version.version == kept);
    Chosen {
        version: ChartVersion {
            version: kept.to_owned(),
            digest: known.chart_digest.clone(),
            ..listed.cloned().unwrap_or_default()
        },
        is_kept: true,
        is_republished: listed.is_some_and(|listed| is_republished(listed, known)),
        held_back: None,
    }
}

/// Whether a version is higher than the one that is kept. A repository that takes one back makes nobody go back.
fn is_newer(offered: &ChartVersion, kept: &str) -> bool {
    match (Loose::parse(&offered.version), Loose::parse(kept)) {
        (Some(offered), Some(kept)) => offered.parsed.cmp_precedence(&kept.parsed).is_gt(),
        _ => offered.version != kept,
    }
}

/// Whether what stands under a version's name is another chart than the one that was rendered.
fn is_republished(offered: &ChartVersion, known: &AddonStatus) -> bool {
    let bare = |digest: &str| digest.trim_start_matches("sha256:").to_ascii_lowercase();
    matches!((&offered.digest, &known.chart_digest), (Some(is), Some(was)) if bare(is) != bare(was))
}

fn leaves_out(chart: &AddonChart) -> bool {
    chart.spec.omitted_versions.is_some()
}

fn why_not(
    caches: &AddonCaches,
    addon: &Addon,
    chart: Option<&AddonChart>,
    error: &ChoiceError,
) -> Outcome {
    let asked = &addon.spec.chart;
    let name = &asked.repository;
    let Some(repository) = caches.repositories.get(&ObjectKey::cluster(name)) else {
        let message = format!(
            "AddonRepository {name} does not exist; create it, or correct spec.chart.repository"
        );
        return Outcome::Waits(Why::new("RepositoryNotFound", message));
    };
    if let ChoiceError::NotARange(_) = error {
        return Outcome::Refused(Why::new("InvalidVersion", error.to_string()));
    }
    let status = repository.status.as_ref();
    let conditions = status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    if !is_true(conditions, "Synced") {
        let told = find(conditions, "Synced").or_else(|| find(conditions, "Ready"));
        let why = told.map_or("it was not read yet", |told| told.message.as_str());
        let message = format!("AddonRepository {name} does not say what it offers: {why}");
        return Outcome::Waits(Why::new("RepositoryNotReady", message));
    }
    if let (ChoiceError::NoMatch(..), true) = (error, chart.is_some_and(leaves_out))
        && let Some(exact) = asked.version.as_deref().and_then(Loose::parse)
    {
        let generation = addon.metadata.generation.unwrap_or_default();
        let uid = addon.uid().unwrap_or_default();
        let words = format!("{uid} {generation} {}", exact.text);
        let asked_at = caches.wanted().ask(name, &addon.name_any(), words);
        let read = status.and_then(|status| status.last_successful_sync_time.as_ref());
        let was_read = read.is_some_and(|read| read.0 > asked_at);
        let is_read = repository.spec.suspend != Some(true)
            && clock::now().duration_since(asked_at) < LOOKING;
        if is_read && !was_read {
            let message = format!(
                "Version {} is looked for among those that the AddonChart leaves out.",
                exact.text
            );
            return Outcome::Waits(Why::new(LOOKED_FOR, message));
        }
    }
    if chart.is_none() {
        let message = format!(
            "AddonRepository {name} offers no chart {}; see kubectl get addoncharts",
            asked.name
        );
        return Outcome::Refused(Why::new("ChartNotFound", message));
    }
    let mut message = error.to_string();
    if let (ChoiceError::NoMatch(..), Some(omitted)) =
        (error, chart.and_then(|chart| chart.spec.omitted_versions))
    {
        message = format!(
            "{message}; of what the AddonChart lists, that is: it leaves out {omitted} older versions. Name one exactly \
             as the repository spells it, or raise spec.maxVersions of AddonRepository {name}"
        );
    }
    Outcome::Refused(Why::new("VersionNotFound", message))
}

#[cfg(test)]
mod tests {
    use windlass_api::addon::placed::ChartChoice;

    use super::*;

    /// What is chosen of these versions (`VERSION DIGEST`) for that range, when this runs: the version with its
    /// digest, and what is held back.
    fn chosen(
        range: &str,
        policy: UpdatePolicy,
        runs: Option<(&str, &str)>,
        offers: &[&str],
    ) -> String {
        let mut addon = Addon::default();
        addon.spec.chart = ChartChoice {
            version: Some(range.to_owned()),
            ..ChartChoice::default()
        };
        addon.spec.update_policy = Some(policy);
        let mut known = AddonStatus::default();
        if let Some((of, what)) = runs {
            let (version, digest) = what.split_once(' ').expect("two words");
            known.version = Some(version.to_owned());
            known.chart_digest = Some(digest.to_owned());
            known.chosen_for = Some(ChartChoice {
                version: Some(of.to_owned()),
                ..ChartChoice::default()
            });
        }
        let versions: Vec<ChartVersion> = offers
            .iter()
            .map(|offer| {
                let (version, digest) = offer.split_once(' ').expect("two words");
                ChartVersion {
                    version: version.to_owned(),
                    digest: Some(digest.to_owned()),
                    ..ChartVersion::default()
                }
            })
            .collect();
        let Ok(chosen) = among(&addon, &known, &versions) else {
            return "none".to_owned();
        };
        let mut words = vec![
            chosen.version.version,
            chosen.version.digest.unwrap_or_default(),
        ];
        words.extend(chosen.is_kept.then(|| "kept".to_owned()));
        words.extend(chosen.is_republished.then(|| "republished".to_owned()));
        words.extend(chosen.held_back.map(|other| format!("not {other}")));
        words.join(" ")
    }

    #[test]
    fn which_version_it_gets() {
        use UpdatePolicy::{Automatic, Manual};
        let both = ["1.1.0 b", "1.0.0 a"];
        let runs = |of, what| Some((of, what));
        for (what, range, policy, runs, offers, expected) in [
            ("nothing runs", "^1", Manual, None, &both[..], "1.1.0 b"),
            ("one version", "1.0.0", Manual, None, &both, "1.0.0 a"),
            ("none fits", "^2", Manual, None, &both, "none"),
            (
                "news",
                "^1",
                Manual,
                runs("^1", "1.0.0 a"),
                &both,
                "1.0.0 a kept not 1.1.0",
            ),
            (
                "news, followed",
                "^1",
                Automatic,
                runs("^1", "1.0.0 a"),
                &both,
                "1.1.0 b",
            ),
            (
                "asked for anew",
                "~1.1",
                Manual,
                runs("^1", "1.0.0 a"),
                &both,
                "1.1.0 b",
            ),
            (
                "no news",
                "^1",
                Automatic,
                runs("^1", "1.1.0 b"),
                &both,
                "1.1.0 b kept",
            ),
            (
                "a pin",
                "1.0.0",
                Automatic,
                runs("1.0.0", "1.0.0 a"),
                &both,
                "1.0.0 a kept",
            ),
            (
                "no catalogue",
                "^1",
                Automatic,
                runs("^1", "1.0.0 a"),
                &[],
                "1.0.0 a kept",
            ),
            (
                "no catalogue, asked for anew",
                "^2",
                Automatic,
                runs("^1", "1.0.0 a"),
                &[],
                "none",
            ),
            (
                "published anew",
                "^1",
                Manual,
                runs("^1", "1.1.0 was"),
                &both,
                "1.1.0 was kept republished not 1.1.0",
            ),
            (
                "published anew, followed",
                "^1",
                Automatic,
                runs("^1", "1.1.0 was"),
                &both,
                "1.1.0 b",
            ),
        ] {
            assert_eq!(chosen(range, policy, runs, offers), expected, "{what}");
        }
    }
}
