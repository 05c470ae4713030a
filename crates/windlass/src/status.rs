//! `windlass status`: how placements fare, or one of them on each cluster.

mod view;
mod watch;

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};
use windlass_api::Condition;
use windlass_api::conditions::{SCHEDULED, Stage, placement_deleting, placement_scheduled};
use windlass_api::placement::PerClusterPlacementStatus;
use windlass_api::scoped::{Placement, Scope};
use windlass_cluster::{ApiError, ObjectKey, clock};
use windlass_hub::scoped::api_in;

use crate::cli::{self, Failure, words};
use crate::screen::Output;
use crate::table::{self, cells, line, table};

#[derive(clap::Args)]
pub struct Args {
    /// The placement; without it, all of them.
    placement: Option<String>,
    /// Namespace of a ResourcePlacement; without a placement, only those of the namespace. Without this,
    /// ClusterResourcePlacements, and in a list both.
    #[arg(
        long,
        short,
        env = "WINDLASS_NAMESPACE",
        default_value = "",
        hide_default_value = true
    )]
    namespace: String,
    /// Kubeconfig of the hub; without it, the one that kubectl uses.
    #[arg(long, env = "WINDLASS_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Form of the output.
    #[arg(long, short, env = "WINDLASS_OUTPUT", default_value = "table")]
    output: Output,
    /// Follow the placement until its latest index is available on every cluster: on a terminal the table
    /// is drawn anew, elsewhere each change is a line, with the time in UTC.
    #[arg(long, short, env = "WINDLASS_WATCH", requires = "placement")]
    watch: bool,
    /// With --watch: fail when that takes longer: 60, 60s, 5m or 1h.
    #[arg(long, env = "WINDLASS_TIMEOUT", requires = "watch", value_parser = cli::seconds)]
    timeout: Option<Duration>,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let kubeconfig = args.kubeconfig.clone().unwrap_or_else(cli::kubectls);
    let hub = cli::hub(&kubeconfig, "windlass-status").await?;
    let Some(name) = &args.placement else {
        let list = list(hub.client(), &args.namespace).await?;
        return cli::print(&match args.output {
            Output::Table => of_placements(&list, clock::now()),
            Output::Json => view::pretty(&list.iter().map(view::of).collect::<Vec<_>>())?,
        });
    };
    let key = ObjectKey::namespaced(&args.namespace, name);
    let api: Api<Placement> = api_in(hub.client().clone(), &key.namespace);
    let placement = api
        .get_opt(name)
        .await
        .map_err(ApiError::from_kube)
        .map_err(|error| words("reading the placement", &error))?;
    let placement = placement.ok_or_else(|| format!("there is no {}", text(&key)))?;
    if args.watch {
        return watch::follow(api, &key, args.output, args.timeout).await;
    }
    cli::print(&match args.output {
        Output::Table => of_clusters(&placement, clock::now(), None),
        Output::Json => view::pretty(&view::of(&placement))?,
    })
}

/// The placements of a namespace; without one, those of both scopes. A hub without ResourcePlacements has
/// none.
async fn list(client: &Client, namespace: &str) -> Result<Vec<Placement>, Failure> {
    let mut all = Vec::new();
    for scope in Scope::BOTH {
        let api: Api<Placement> = match (scope, namespace) {
            (Scope::Cluster, "") | (Scope::Namespaced, "") => Api::all_with(client.clone(), &scope),
            (Scope::Cluster, _) => continue,
            (Scope::Namespaced, namespace) => api_in(client.clone(), namespace),
        };
        match api
            .list(&ListParams::default())
            .await
            .map_err(ApiError::from_kube)
        {
            Ok(list) => all.extend(list.items),
            Err(ApiError::NotFound(_)) if scope == Scope::Namespaced => {}
            Err(error) => return Err(words("reading the placements", &error)),
        }
    }
    Ok(all)
}

/// A placement the way messages name it.
fn text(key: &ObjectKey) -> String {
    match Scope::of_namespace(Some(&key.namespace)) {
        Scope::Cluster => format!("ClusterResourcePlacement {key}"),
        Scope::Namespaced => format!("ResourcePlacement {key}"),
    }
}

/// One line per placement.
fn of_placements(placements: &[Placement], now: Timestamp) -> String {
    if placements.is_empty() {
        return "there are no placements\n".to_owned();
    }
    let mut rows = vec![cells([
        "PLACEMENT",
        "INDEX",
        "AVAILABLE",
        "STATE",
        "REASON",
        "AGE",
    ])];
    for placement in placements {
        let shown = of_placement(placement);
        rows.push(cells([
            &ObjectKey::of(placement).to_string(),
            index(
                placement
                    .status
                    .as_ref()
                    .and_then(|status| status.observed_resource_index.as_deref()),
            ),
            &available(placement),
            &state(shown).replace(placement.kind_text(), ""),
            reason(shown),
            &age(shown, now),
        ]));
    }
    table(&rows)
}

/// One line about the placement, then one per cluster. With a limit, clusters that are not done come first.
fn of_clusters(placement: &Placement, now: Timestamp, limit: Option<usize>) -> String {
    let shown = of_placement(placement);
    let observed = placement
        .status
        .as_ref()
        .and_then(|status| status.observed_resource_index.as_deref());
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{}: index {}, available on {}, {} ({}) for {}{}",
        ObjectKey::of(placement),
        index(observed),
        available(placement),
        state(shown).replace(placement.kind_text(), ""),
        reason(shown),
        age(shown, now),
        shown
            .map(|condition| format!("\n  {}", line(&condition.message)))
            .unwrap_or_default(),
    );
    let mut entries: Vec<&PerClusterPlacementStatus> = entries(placement).iter().collect();
    if entries.is_empty() {
        return text + "no cluster has been selected\n";
    }
    let limit = limit.filter(|limit| *limit < entries.len());
    entries.sort_by_key(|entry| {
        let is_done = limit.is_some() && telling_of(entry).is_some_and(|c| c.status == "True");
        (
            is_done,
            entry.cluster_name.is_none(),
            entry.cluster_name.as_deref(),
        )
    });
    let more = limit.map_or(0, |limit| entries.len() - limit);
    entries.truncate(limit.unwrap_or(entries.len()));
    let mut rows = vec![cells([
        "CLUSTER", "INDEX", "STATE", "REASON", "AGE", "MESSAGE",
    ])];
    for entry in entries {
        let shown = telling_of(entry);
        let trouble = shown.filter(|condition| condition.status != "True");
        rows.push(cells([
            entry.cluster_name.as_deref().unwrap_or("(none found)"),
            index(entry.observed_resource_index.as_deref()),
            &state(shown),
            reason(shown),
            &age(shown, now),
            &trouble
                .map(|condition| line(&condition.message))
                .unwrap_or_default(),
        ]));
    }
    let tail = match more {
        0 => String::new(),
        more => format!("and {more} more\n"),
    };
    text + "\n" + &table(&rows) + &tail
}

/// The condition that tells how a cluster stands.
fn telling_of(entry: &PerClusterPlacementStatus) -> Option<&Condition> {
    let conditions = entry.conditions.as_deref().unwrap_or_default();
    telling(
        conditions,
        &[&[SCHEDULED], chain(Stage::as_str).as_slice()].concat(),
    )
}

/// The condition that tells how a placement as a whole stands.
fn of_placement(placement: &Placement) -> Option<&Condition> {
    let conditions = placement
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    if placement.metadata.deletion_timestamp.is_some() {
        let deleting = conditions
            .iter()
            .find(|condition| condition.type_ == placement_deleting(Scope::of(placement)));
        return deleting.or_else(|| conditions.last());
    }
    let scope = Scope::of(placement);
    telling(
        conditions,
        &[
            &[placement_scheduled(scope)],
            chain(|stage| stage.placement_type(scope)).as_slice(),
        ]
        .concat(),
    )
}

fn entries(placement: &Placement) -> &[PerClusterPlacementStatus] {
    placement
        .status
        .as_ref()
        .and_then(|status| status.placement_statuses.as_deref())
        .unwrap_or_default()
}

/// On how many of the selected clusters everything is available.
fn available(placement: &Placement) -> String {
    let (available, selected) = counts(placement);
    format!("{available}/{selected}")
}

/// How many clusters have everything available, and how many are selected.
fn counts(placement: &Placement) -> (usize, usize) {
    let selected = selected(placement);
    let holds = |entry: &&&PerClusterPlacementStatus| {
        let mut conditions = entry.conditions.iter().flatten();
        conditions.any(|c| c.type_ == Stage::Available.as_str() && c.status == "True")
    };
    (selected.iter().filter(holds).count(), selected.len())
}

fn selected(placement: &Placement) -> Vec<&PerClusterPlacementStatus> {
    let named = |entry: &&PerClusterPlacementStatus| entry.cluster_name.is_some();
    entries(placement).iter().filter(named).collect()
}

/// The stages in the order in which they follow each other.
fn chain(name: impl Fn(Stage) -> &'static str) -> Vec<&'static str> {
    Stage::APPLY
        .into_iter()
        .chain([Stage::DiffReported])
        .map(name)
        .collect()
}

/// The first condition that does not hold, else the last that does.
fn telling<'a>(conditions: &'a [Condition], types: &[&str]) -> Option<&'a Condition> {
    let mut known = types
        .iter()
        .filter_map(|type_| conditions.iter().find(|c| c.type_ == *type_));
    let last = known.clone().next_back();
    known.find(|condition| condition.status != "True").or(last)
}

fn state(shown: Option<&Condition>) -> String {
    match shown {
        None => "Pending".to_owned(),
        Some(condition) if condition.status == "True" => condition.type_.clone(),
        Some(condition) => format!("{}={}", condition.type_, condition.status),
    }
}

fn reason(shown: Option<&Condition>) -> &str {
    shown.map_or("-", |condition| &condition.reason)
}

fn index(observed: Option<&str>) -> &str {
    observed.filter(|index| !index.is_empty()).unwrap_or("-")
}

/// How long it has been so, as kubectl writes ages.
fn age(shown: Option<&Condition>, now: Timestamp) -> String {
    let Some(condition) = shown else {
        return "-".to_owned();
    };
    table::age(condition.last_transition_time.0, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    pub(super) fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({ "type": type_, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
    }

    pub(super) fn placement(name: &str, status: &Value) -> Placement {
        serde_json::from_value(json!({
            "metadata": { "name": name }, "spec": { "resourceSelectors": [] }, "status": status,
        }))
        .unwrap()
    }

    /// The seed's example: one cluster fails on the new version, one waits its turn on the old one.
    pub(super) fn rolling() -> Placement {
        placement(
            "web",
            &json!({
                "observedResourceIndex": "3",
                "conditions": [
                    condition("ClusterResourcePlacementScheduled", "True", "SchedulingPolicyFulfilled", "found 2"),
                    condition("ClusterResourcePlacementRolloutStarted", "False", "RolloutNotStartedYet", "1 waits"),
                ],
                "placementStatuses": [
                    { "conditions": [condition("Scheduled", "False", "ScheduleFailed", "no\ncluster\u{1b}[2J fits")] },
                    { "clusterName": "west", "observedResourceIndex": "2", "conditions": [
                        condition("Scheduled", "True", "Scheduled", ""),
                        condition("Applied", "True", "ApplySucceeded", ""),
                        condition("Available", "True", "ResourceAvailable", "all are ready"),
                    ] },
                    { "clusterName": "east", "observedResourceIndex": "3", "conditions": [
                        condition("Scheduled", "True", "Scheduled", ""),
                        condition("Applied", "True", "ApplySucceeded", ""),
                        condition("Available", "False", "ResourceNotAvailableYet", "Deployment web/app is not ready"),
                    ] },
                ],
            }),
        )
    }

    fn now() -> Timestamp {
        "2026-01-01T00:05:00Z".parse().unwrap()
    }

    #[test]
    fn placements() {
        let list = [rolling(), placement("new", &json!({}))];
        let expected = "\
PLACEMENT   INDEX   AVAILABLE   STATE                  REASON                 AGE
web         3       1/2         RolloutStarted=False   RolloutNotStartedYet   5m
new         -       0/0         Pending                -                      -
";
        assert_eq!(of_placements(&list, now()), expected);
        assert_eq!(of_placements(&[], now()), "there are no placements\n");
    }

    #[test]
    fn clusters() {
        let expected = "\
web: index 3, available on 1/2, RolloutStarted=False (RolloutNotStartedYet) for 5m
  1 waits

CLUSTER        INDEX   STATE             REASON                    AGE   MESSAGE
east           3       Available=False   ResourceNotAvailableYet   5m    Deployment web/app is not ready
west           2       Available         ResourceAvailable         5m
(none found)   -       Scheduled=False   ScheduleFailed            5m    no cluster [2J fits
";
        assert_eq!(of_clusters(&rolling(), now(), None), expected);
        let short = of_clusters(&rolling(), now(), Some(2));
        assert!(
            short.contains("east") && short.ends_with("and 1 more\n") && !short.contains("west"),
            "what is done is left out first: {short}"
        );
        let text = of_clusters(&placement("new", &json!({})), now(), None);
        assert_eq!(
            text,
            "new: index -, available on 0/0, Pending (-) for -\nno cluster has been selected\n"
        );
    }

    #[test]
    fn a_deletion_says_what_it_waits_for() {
        let deleting = condition(
            placement_deleting(Scope::Cluster),
            "True",
            "Waiting",
            "east can't be reached",
        );
        let mut leaving = placement("web", &json!({ "conditions": [deleting] }));
        assert_eq!(
            state(of_placement(&leaving)),
            "Pending",
            "not while it is not being deleted"
        );
        leaving.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        let text = of_clusters(&leaving, now(), None);
        assert!(
            text.contains("Deleting (Waiting) for 5m\n  east can't be reached\n"),
            "{text}"
        );
    }

    #[test]
    fn ages() {
        let since = serde_json::from_value(condition("A", "True", "R", "")).unwrap();
        for (seconds, expected) in [
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7200, "2h"),
            (172_800, "2d"),
        ] {
            let now = Timestamp::from_second(1_767_225_600 + seconds).unwrap();
            assert_eq!(age(Some(&since), now), expected);
        }
    }
}
