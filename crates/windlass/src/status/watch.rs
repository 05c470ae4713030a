//! `windlass status NAME --watch`: follows a placement until it is where it is to be.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Api;
use kube::runtime::watcher;
use tokio::sync::watch;
use windlass_api::conditions::{Stage, placement_scheduled};
use windlass_api::placement::PerClusterPlacementStatus;
use windlass_api::scoped::{Placement, Scope};
use windlass_cluster::{Cache, CacheOptions, ObjectKey, clock};

use super::{counts, line, of_clusters, of_placement, selected, state, telling_of, view};
use super::{reason, text};
use crate::cli::Failure;
use crate::screen::{Output, Reader, Screen, Shown};

/// A placement that is complete may be so because the hub has yet to see a change that was just made: it
/// has to stay complete for so long.
const SETTLE: Duration = Duration::from_secs(1);
/// How often ages are drawn anew on a terminal.
const REDRAW: Duration = Duration::from_secs(1);
/// How long the first answer may take.
const FIRST: Duration = Duration::from_secs(30);
/// Clusters in the table on a terminal.
const ROWS: usize = 20;

/// Follows a placement.
pub async fn follow(
    api: Api<Placement>,
    key: &ObjectKey,
    output: Output,
    limit: Option<Duration>,
) -> Result<(), Failure> {
    let (tell, news) = watch::channel(());
    let options = CacheOptions {
        on_change: Arc::new(move |_: &windlass_cluster::Change<Placement>| {
            tell.send_replace(());
        }),
        ..CacheOptions::default()
    };
    let only = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
    let cache = Cache::start("placement", api, only, options);
    let screen = Screen::here(output);
    let followed = until_complete(&cache, key, news, screen);
    let result = match limit {
        None => followed.await,
        Some(limit) => tokio::time::timeout(limit, followed)
            .await
            .unwrap_or_else(|_| {
                let last = cache.get(key);
                let last = last.map_or_else(|| "it is not known".to_owned(), |p| progress(&p));
                Err(format!("not complete within {} s: {last}", limit.as_secs()).into())
            }),
    };
    cache.stop();
    result
}

async fn until_complete(
    cache: &Cache<Placement>,
    key: &ObjectKey,
    mut news: watch::Receiver<()>,
    mut screen: Screen,
) -> Result<(), Failure> {
    if tokio::time::timeout(FIRST, cache.wait_synced())
        .await
        .is_err()
    {
        let why = cache.last_error().unwrap_or_else(|| "no answer".to_owned());
        return Err(format!("watching the placement failed: {why}").into());
    }
    loop {
        news.mark_unchanged();
        let placement = cache
            .get(key)
            .ok_or_else(|| format!("{} has been deleted", text(key)))?;
        if screen.show(&*placement, clock::now())? == Reader::Gone {
            return Ok(());
        }
        let is_complete = is_complete(&placement);
        let pause = match (is_complete, screen.is_terminal) {
            (true, _) => SETTLE,
            (false, true) => REDRAW,
            (false, false) => Duration::MAX,
        };
        let is_quiet = tokio::time::timeout(pause, news.changed()).await.is_err();
        if is_quiet && is_complete {
            return Ok(());
        }
    }
}

/// Whether a placement's latest index is available, or reported on, on every cluster, and that is told of
/// the placement as it is now.
pub fn is_complete(placement: &Placement) -> bool {
    let Some(status) = &placement.status else {
        return false;
    };
    let generation = placement.metadata.generation;
    let scope = Scope::of(placement);
    let holds = |type_: &str| {
        let mut conditions = status.conditions.iter().flatten();
        conditions.any(|condition| {
            condition.type_ == type_
                && condition.status == "True"
                && condition.observed_generation >= generation
        })
    };
    let index = status.observed_resource_index.as_deref();
    placement.metadata.deletion_timestamp.is_none()
        && index.is_some_and(|index| !index.is_empty())
        && holds(placement_scheduled(scope))
        && [Stage::Available, Stage::DiffReported]
            .into_iter()
            .any(|stage| holds(stage.placement_type(scope)))
}

/// How far a placement is, in one line.
fn progress(placement: &Placement) -> String {
    let (available, total) = counts(placement);
    let latest = index(placement);
    let on = selected(placement)
        .into_iter()
        .filter(|entry| entry.observed_resource_index == latest)
        .count();
    let rest = if is_complete(placement) {
        "complete".to_owned()
    } else {
        trouble(placement)
    };
    format!(
        "{} {on}/{total} clusters on index {}; available {available}/{total}; {rest}",
        ObjectKey::of(placement),
        latest.as_deref().unwrap_or("-"),
    )
}

/// The index that is rolled out: the placement's; while clusters disagree, the highest of theirs.
fn index(placement: &Placement) -> Option<String> {
    let own = placement.status.as_ref()?.observed_resource_index.clone();
    own.filter(|index| !index.is_empty()).or_else(|| {
        let indexes = selected(placement).into_iter();
        let indexes = indexes.filter_map(|entry| entry.observed_resource_index.clone());
        indexes.max_by_key(|index| index.parse::<u64>().ok())
    })
}

/// The first cluster on which something is wrong, else the first that is not done, else the placement.
fn trouble(placement: &Placement) -> String {
    let mut open: Vec<&PerClusterPlacementStatus> = selected(placement)
        .into_iter()
        .filter(|entry| telling_of(entry).is_none_or(|shown| shown.status != "True"))
        .collect();
    open.sort_by_key(|entry| {
        let is_wrong = telling_of(entry).is_some_and(|shown| shown.status == "False");
        (!is_wrong, entry.cluster_name.as_deref())
    });
    let (who, shown) = match open.first() {
        Some(entry) => (entry.cluster_name.as_deref(), telling_of(entry)),
        None => (None, of_placement(placement)),
    };
    let message = shown.map(|condition| line(&condition.message));
    let said = format!(
        "{} {} {}",
        state(shown).replace(placement.kind_text(), ""),
        reason(shown),
        message.unwrap_or_default()
    );
    match who {
        Some(cluster) => format!("{cluster}: {}", said.trim_end()),
        None => said.trim_end().to_owned(),
    }
}

impl Shown for Placement {
    fn whole(&self, now: Timestamp) -> String {
        format!(
            "{}\n\n{}",
            progress(self),
            of_clusters(self, now, Some(ROWS))
        )
    }

    fn line(&self) -> String {
        progress(self)
    }

    fn json(&self) -> Result<String, Failure> {
        Ok(serde_json::to_string(&view::of(self))?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{condition, placement, rolling};
    use super::*;

    fn at(generation: i64, status: &Value) -> Placement {
        let mut placement = placement("web", status);
        placement.metadata.generation = Some(generation);
        placement
    }

    fn observed(type_: &str, status: &str, generation: i64) -> Value {
        let mut condition = condition(&format!("ClusterResourcePlacement{type_}"), status, "R", "");
        condition["observedGeneration"] = json!(generation);
        condition
    }

    #[test]
    fn a_rollout_is_complete_when_it_is_told_of_the_placement_as_it_is() {
        let scheduled = || observed("Scheduled", "True", 2);
        let rows = [
            (
                Some("3"),
                vec![scheduled(), observed("Available", "True", 2)],
                true,
            ),
            (
                Some("3"),
                vec![scheduled(), observed("DiffReported", "True", 2)],
                true,
            ),
            (
                Some("3"),
                vec![scheduled(), observed("Available", "True", 1)],
                false,
            ),
            (
                Some("3"),
                vec![scheduled(), observed("Available", "False", 2)],
                false,
            ),
            (
                Some("3"),
                vec![
                    observed("Scheduled", "False", 2),
                    observed("Available", "True", 2),
                ],
                false,
            ),
            (
                Some(""),
                vec![scheduled(), observed("Available", "True", 2)],
                false,
            ),
            (
                None,
                vec![scheduled(), observed("Available", "True", 2)],
                false,
            ),
            (Some("3"), vec![], false),
        ];
        for (index, conditions, expected) in rows {
            let status = json!({ "observedResourceIndex": index, "conditions": conditions });
            let mut placement = at(2, &status);
            assert_eq!(is_complete(&placement), expected, "{status}");
            placement.metadata.deletion_timestamp =
                serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
            assert!(!is_complete(&placement), "not while it is being deleted");
        }
    }

    #[test]
    fn progress_in_a_line() {
        assert_eq!(
            progress(&rolling()),
            "web 1/2 clusters on index 3; available 1/2; \
             east: Available=False ResourceNotAvailableYet Deployment web/app is not ready"
        );
        assert_eq!(
            progress(&placement("new", &json!({}))),
            "new 0/0 clusters on index -; available 0/0; Pending -"
        );
        let done = at(
            1,
            &json!({ "observedResourceIndex": "3",
                     "conditions": [observed("Scheduled", "True", 1), observed("Available", "True", 1)] }),
        );
        assert_eq!(
            progress(&done),
            "web 0/0 clusters on index 3; available 0/0; complete"
        );
        // External: clusters disagree, so the placement has no index.
        let entry = |name: &str, index: &str| {
            json!({ "clusterName": name, "observedResourceIndex": index,
                    "conditions": [condition("Applied", "Unknown", "Wait", "")] })
        };
        let external = placement(
            "web",
            &json!({ "placementStatuses": [entry("a", "9"), entry("b", "10")] }),
        );
        assert_eq!(
            progress(&external),
            "web 1/2 clusters on index 10; available 0/2; a: Applied=Unknown Wait"
        );
    }

    #[test]
    fn each_change_is_shown_once() {
        let now: Timestamp = "2026-01-01T12:00:05Z".parse().unwrap();
        let later = now + Duration::from_secs(1);
        let mut lines = Screen::new(Output::Table, false);
        let first = lines.next(&rolling(), now).unwrap().unwrap();
        assert!(first.starts_with("12:00:05 web 1/2 clusters"), "{first}");
        assert!(first.ends_with("is not ready\n") && first.lines().count() == 1);
        assert_eq!(lines.next(&rolling(), later).unwrap(), None);

        let mut json = Screen::new(Output::Json, true);
        let first = json.next(&rolling(), now).unwrap().unwrap();
        assert!(serde_json::from_str::<Value>(&first).is_ok() && first.lines().count() == 1);
        assert_eq!(json.next(&rolling(), later).unwrap(), None);

        let mut terminal = Screen::new(Output::Table, true);
        let first = terminal.next(&rolling(), now).unwrap().unwrap();
        assert!(first.starts_with("\x1b[?7l\x1b[Jweb 1/2"), "{first:?}");
        let drawn = first.matches('\n').count();
        let second = terminal
            .next(&placement("web", &json!({})), later)
            .unwrap()
            .unwrap();
        assert!(
            second.starts_with(&format!("\x1b[?7l\x1b[{drawn}A\x1b[J")),
            "{second:?}"
        );
    }
}
