//! `windlass rollback`: the update run that brings an earlier version of a placement back to its clusters.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::{ListParams, PartialObjectMeta};
use kube::core::ApiResource;
use kube::{Api, Resource, ResourceExt};
use windlass_api::binding::BindingState;
use windlass_api::conditions::RunCondition;
use windlass_api::placement::RolloutStrategyType;
use windlass_api::run::{RunState, UpdateRunSpec};
use windlass_api::scoped::{Binding, Placement, Scope, Snapshot, UpdateRun, UpdateStrategy};
use windlass_api::{labels, names};
use windlass_cluster::{ApiError, ObjectKey, Writer};
use windlass_hub::scoped::{Scoped, api_in};
use windlass_status::conditions::find;
use windlass_status::digest::Digest;

use crate::cli::{Failure, say, words};
use crate::run::{At, has_ended, is_under_way};

/// How we appear in managedFields.
const FIELD_MANAGER: &str = "windlass-rollback";
/// Longest name of a run (API §2.12, N1).
const LONGEST_NAME: usize = 63;
/// Characters that tell runs to one index apart.
const SUFFIX: usize = 6;

#[derive(clap::Args)]
pub struct Args {
    /// The placement.
    placement: String,
    #[command(flatten)]
    at: At,
    /// Index of the resource snapshot to go back to; without it, the newest one below what the clusters run
    /// that a run has brought to a cluster before.
    #[arg(long)]
    to: Option<u64>,
    /// The strategy that says in which stages; without it, that of the placement's newest run.
    #[arg(long)]
    strategy: Option<String>,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let hub = args.at.hub(FIELD_MANAGER).await?;
    let placement = read_placement(&hub, &args).await?;
    require_external(&placement)?;
    let runs = runs(&hub, &args).await?;
    let indexes = indexes(&hub, &args).await?;
    let running = running(&hub, &args).await?;
    let ran = ran(&args.placement, &runs, &running);
    let index = target(&args.placement, args.to, &indexes, &running, &ran)?;
    let flags = args.at.flags();
    let follow = |name: &str| format!("To follow it: windlass run watch {name}{flags}");
    if let Some(same) = runs.iter().find(|run| goes_to(run, index)) {
        let name = same.name_any();
        say(&format!(
            "{name} brings index {index} back already\n{}",
            follow(&name)
        ));
        return Ok(());
    }
    let strategy = strategy(&args, &runs)?;
    require_strategy(&hub, &args, &strategy).await?;
    let name = name(&placement, index, &runs);
    let new = UpdateRun::new(
        &name,
        UpdateRunSpec {
            placement_name: args.placement.clone(),
            resource_snapshot_index: Some(index.to_string()),
            staged_rollout_strategy_name: strategy.clone(),
            state: Some(RunState::Run),
            ..like_the_last(&runs)
        },
    )
    .within(&args.at.namespace);
    create(&hub, &new).await?;
    for other in runs.iter().filter(|run| is_under_way(run)) {
        say(&format!(
            "{} is under way: it ends, for the rollback takes over from it",
            other.name_any()
        ));
    }
    let had: Vec<String> = running.iter().map(u64::to_string).collect();
    say(&format!(
        "{} {name} brings placement {} from index {} back to {index}, by strategy {strategy}\n{}",
        new.kind_text(),
        ObjectKey::of(&placement),
        had.join(", "),
        follow(&name)
    ));
    Ok(())
}

async fn read_placement(hub: &Writer, args: &Args) -> Result<Placement, Failure> {
    let api: Api<Placement> = api_in(hub.client().clone(), &args.at.namespace);
    let found = api.get_opt(&args.placement).await;
    let found = found
        .map_err(ApiError::from_kube)
        .map_err(|error| words("reading the placement", &error))?;
    found.ok_or_else(|| {
        let scope = args.at.scope();
        format!("there is no {} {}", Placement::kind(&scope), args.placement).into()
    })
}

/// A run moves clusters under External only.
fn require_external(placement: &Placement) -> Result<(), Failure> {
    let type_ = placement
        .spec
        .strategy
        .as_ref()
        .and_then(|strategy| strategy.type_)
        .unwrap_or(RolloutStrategyType::RollingUpdate);
    match type_ {
        RolloutStrategyType::External => Ok(()),
        RolloutStrategyType::RollingUpdate => Err(format!(
            "placement {} rolls out by RollingUpdate: its clusters follow what it selects. To go back, put the \
             resources on the hub back to what they were (apply the earlier manifests); the hub rolls that out. \
             Rollbacks by index are for placements whose spec.strategy.type is External",
            ObjectKey::of(placement)
        )
        .into()),
    }
}

/// What of a placement there is of a kind, by its label.
async fn owned<K: Scoped>(hub: &Writer, args: &Args) -> Result<(Api<K>, ListParams), Failure> {
    let api: Api<K> = api_in(hub.client().clone(), &args.at.namespace);
    let selector = format!("{}={}", labels::PARENT_PLACEMENT, args.placement);
    Ok((api, ListParams::default().labels(&selector)))
}

/// The runs of the placement, the newest last.
async fn runs(hub: &Writer, args: &Args) -> Result<Vec<UpdateRun>, Failure> {
    let api: Api<UpdateRun> = api_in(hub.client().clone(), &args.at.namespace);
    let list = api.list(&ListParams::default()).await;
    let list = list
        .map_err(ApiError::from_kube)
        .map_err(|error| words("reading the update runs", &error))?;
    let mut runs = list.items;
    runs.retain(|run| run.spec.placement_name == args.placement);
    runs.sort_by_key(|run| {
        let created = run.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, run.metadata.name.clone())
    });
    Ok(runs)
}

/// Indexes of which every snapshot is there. Without their content, which may be large.
async fn indexes(hub: &Writer, args: &Args) -> Result<BTreeSet<u64>, Failure> {
    let (api, of) = owned::<Snapshot>(hub, args).await?;
    let list = api.list_metadata(&of).await;
    let list = list
        .map_err(ApiError::from_kube)
        .map_err(|error| words("reading the resource snapshots", &error))?;
    Ok(complete(&list.items))
}

fn complete(snapshots: &[PartialObjectMeta<Snapshot>]) -> BTreeSet<u64> {
    let mut groups: BTreeMap<u64, (usize, Option<usize>)> = BTreeMap::new();
    for snapshot in snapshots {
        let index = snapshot.labels().get(labels::RESOURCE_INDEX);
        let Some(index) = index.and_then(|index| index.parse().ok()) else {
            continue;
        };
        let parts = snapshot
            .annotations()
            .get(labels::NUMBER_OF_RESOURCE_SNAPSHOTS);
        let (there, of) = groups.entry(index).or_default();
        *there += 1;
        *of = of.or_else(|| parts.and_then(|parts| parts.parse().ok()));
    }
    let whole = groups
        .into_iter()
        .filter(|(_, (there, of))| of.is_some_and(|of| *there >= of));
    whole.map(|(index, _)| index).collect()
}

/// Indexes that clusters of the placement are to run.
async fn running(hub: &Writer, args: &Args) -> Result<BTreeSet<u64>, Failure> {
    let (api, of) = owned::<Binding>(hub, args).await?;
    let list = api.list(&of).await;
    let list = list
        .map_err(ApiError::from_kube)
        .map_err(|error| words("reading the bindings", &error))?;
    let bound = list
        .items
        .iter()
        .filter(|binding| binding.spec.state != BindingState::Unscheduled);
    Ok(bound
        .filter_map(|binding| index_of(&args.placement, &binding.spec.resource_snapshot_name))
        .collect())
}

/// Indexes that are known to have run on a cluster: by what clusters are to run, and by what runs say that they
/// have begun with, and that clusters had before.
fn ran(placement: &str, runs: &[UpdateRun], running: &BTreeSet<u64>) -> BTreeSet<u64> {
    let mut ran = running.clone();
    for status in runs.iter().filter_map(|run| run.status.as_ref()) {
        let stages = status.stages_status.iter().flatten();
        let clusters: Vec<_> = stages.flat_map(|stage| &stage.clusters).collect();
        let had = clusters
            .iter()
            .filter_map(|cluster| cluster.previous.as_ref());
        let had = had.filter_map(|had| had.resource_snapshot_name.as_deref());
        ran.extend(had.filter_map(|had| index_of(placement, had)));
        let has_begun = clusters.iter().any(|cluster| {
            let conditions = cluster.conditions.as_deref().unwrap_or_default();
            find(conditions, RunCondition::Started.as_str()).is_some_and(|c| c.status == "True")
        });
        let used = status.resource_snapshot_index_used.as_deref();
        ran.extend(
            used.filter(|_| has_begun)
                .and_then(|used| used.parse::<u64>().ok()),
        );
    }
    ran
}

/// What the newest run says of failures and of clusters that come and go.
fn like_the_last(runs: &[UpdateRun]) -> UpdateRunSpec {
    let last = runs.last().map(|run| run.spec.clone()).unwrap_or_default();
    UpdateRunSpec {
        failure_threshold: last.failure_threshold,
        membership_changes: last.membership_changes,
        ..UpdateRunSpec::default()
    }
}

/// The index in the name of a snapshot.
fn index_of(placement: &str, snapshot: &str) -> Option<u64> {
    let rest = snapshot.strip_prefix(placement)?.strip_prefix('-')?;
    let index = rest.strip_suffix("-snapshot")?.parse().ok()?;
    (names::master_snapshot(placement, index) == snapshot).then_some(index)
}

/// The index to go back to.
fn target(
    placement: &str,
    to: Option<u64>,
    indexes: &BTreeSet<u64>,
    running: &BTreeSet<u64>,
    ran: &BTreeSet<u64>,
) -> Result<u64, Failure> {
    let listed = || {
        let all: Vec<String> = indexes.iter().map(u64::to_string).collect();
        match all.as_slice() {
            [] => "there are no resource snapshots of it".to_owned(),
            all => format!("there are: {}", all.join(", ")),
        }
    };
    let Some(newest) = running.last() else {
        return Err(format!(
            "nothing of placement {placement} has been brought to a cluster yet, so there is nothing to go back from"
        )
        .into());
    };
    let Some(to) = to else {
        let earlier = |index: &&u64| ran.contains(*index);
        let earlier = indexes.range(..newest).rev().find(earlier).copied();
        return earlier.ok_or_else(|| {
            format!(
                "no earlier version of placement {placement} than index {newest}, which its clusters run, is known \
                 to have run on a cluster; name one with --to; {}",
                listed()
            )
            .into()
        });
    };
    if !indexes.contains(&to) {
        return Err(format!(
            "placement {placement} has no resource snapshot of index {to}; {}",
            listed()
        )
        .into());
    }
    if running.iter().eq([&to]) {
        return Err(format!("the clusters of placement {placement} run index {to} already").into());
    }
    Ok(to)
}

/// Whether a run that has not ended brings an index.
fn goes_to(run: &UpdateRun, index: u64) -> bool {
    let wanted = run.spec.resource_snapshot_index.as_deref();
    let is_told = run.spec.state == Some(RunState::Run);
    is_told
        && !has_ended(run)
        && run.metadata.deletion_timestamp.is_none()
        && wanted.and_then(|wanted| wanted.parse().ok()) == Some(index)
}

fn strategy(args: &Args, runs: &[UpdateRun]) -> Result<String, Failure> {
    if let Some(name) = &args.strategy {
        return Ok(name.clone());
    }
    let newest = runs
        .last()
        .map(|run| run.spec.staged_rollout_strategy_name.clone());
    newest.ok_or_else(|| {
        format!(
            "there is no update run of placement {} whose strategy could be used; name one with --strategy",
            args.placement
        )
        .into()
    })
}

/// Whether the strategy is there; one that may not be read is left to the hub.
async fn require_strategy(hub: &Writer, args: &Args, name: &str) -> Result<(), Failure> {
    let api: Api<UpdateStrategy> = api_in(hub.client().clone(), &args.at.namespace);
    match api.get_opt(name).await.map_err(ApiError::from_kube) {
        Ok(Some(_)) | Err(ApiError::Rejected(_)) => Ok(()),
        Ok(None) => {
            let scope = args.at.scope();
            let kind = UpdateStrategy::kind(&scope);
            Err(format!("there is no {kind} {name}; name another one with --strategy").into())
        }
        Err(error) => Err(words("reading the strategy", &error)),
    }
}

/// A name that the same placement, index and runs before give again, and others don't.
fn name(placement: &Placement, index: u64, runs: &[UpdateRun]) -> String {
    let mut seen: Vec<&str> = runs
        .iter()
        .filter_map(|run| run.metadata.uid.as_deref())
        .collect();
    seen.sort_unstable();
    let uid = placement.metadata.uid.as_deref().unwrap_or_default();
    let all = format!("{uid}/{index}/{}", seen.join(","));
    let digest = Digest::of_bytes(all.as_bytes()).to_string();
    let suffix = digest.get(..SUFFIX).unwrap_or(&digest);
    let tail = format!("-rollback-{index}-{suffix}");
    let of: String = placement
        .name_any()
        .chars()
        .take(LONGEST_NAME.saturating_sub(tail.len()))
        .collect();
    format!("{}{tail}", of.trim_end_matches(['-', '.']))
}

async fn create(hub: &Writer, new: &UpdateRun) -> Result<(), Failure> {
    let scope = Scope::of(new);
    let kind = ApiResource::erase::<UpdateRun>(&scope);
    let mut object = kube::core::DynamicObject::new(&new.name_any(), &kind);
    object.metadata.namespace = new.metadata.namespace.clone();
    object.data = serde_json::json!({ "spec": new.spec });
    match hub.create_dyn(&kind, &object).await {
        // Somebody did the same at the same moment.
        Ok(_) | Err(ApiError::AlreadyExists(_)) => Ok(()),
        Err(error) => Err(words("creating the run", &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn placement(name: &str, strategy: &serde_json::Value) -> Placement {
        serde_json::from_value(json!({
            "metadata": { "name": name, "uid": "p" },
            "spec": { "resourceSelectors": [], "strategy": strategy },
        }))
        .unwrap()
    }

    fn run_of(index: Option<&str>, state: &str, uid: &str) -> UpdateRun {
        serde_json::from_value(json!({
            "metadata": { "name": uid, "uid": uid },
            "spec": { "placementName": "web", "stagedRolloutStrategyName": "s",
                      "resourceSnapshotIndex": index, "state": state },
        }))
        .unwrap()
    }

    #[test]
    fn where_to_go_back_to() {
        type Row = (
            Option<u64>,
            &'static [u64],
            &'static [u64],
            &'static [u64],
            Result<u64, &'static str>,
        );
        // What is asked for, what is there, what the clusters run, what is known to have run.
        let rows: [Row; 10] = [
            (None, &[1, 2, 3], &[3], &[1, 2, 3], Ok(2)),
            (None, &[1, 3, 5], &[5], &[3, 5], Ok(3)),
            // 4 was applied and mended before any run: nobody wants it back.
            (None, &[3, 4, 5], &[5], &[3, 5], Ok(3)),
            // A rollout that is half done goes back to where it came from.
            (None, &[1, 2, 3], &[2, 3], &[2, 3], Ok(2)),
            (
                None,
                &[2, 3, 4],
                &[3],
                &[3],
                Err("is known to have run on a cluster; name one with --to; there are: 2, 3, 4"),
            ),
            (
                None,
                &[0, 1],
                &[],
                &[],
                Err("nothing of placement web has been brought"),
            ),
            (Some(1), &[1, 2, 3], &[3], &[3], Ok(1)),
            (
                Some(7),
                &[1, 3],
                &[3],
                &[3],
                Err("no resource snapshot of index 7; there are: 1, 3"),
            ),
            (Some(3), &[1, 3], &[3], &[3], Err("run index 3 already")),
            (Some(2), &[1, 2, 3], &[2, 3], &[2, 3], Ok(2)),
        ];
        for (to, there, running, ran, expected) in rows {
            let set = |list: &[u64]| list.iter().copied().collect();
            let found = target("web", to, &set(there), &set(running), &set(ran));
            let found = found.map_err(|error| error.to_string());
            match expected {
                Ok(index) => assert_eq!(found, Ok(index)),
                Err(text) => assert!(found.as_ref().is_err_and(|e| e.contains(text)), "{found:?}"),
            }
        }
    }

    #[test]
    fn what_has_run_is_what_runs_have_begun_with_and_clusters_had() {
        let run = |used: &str, started: bool, had: Option<&str>| -> UpdateRun {
            let mut run = run_of(None, "Run", used);
            let status = if started { "True" } else { "False" };
            run.status = serde_json::from_value(json!({
                "resourceSnapshotIndexUsed": used,
                "stagesStatus": [{ "stageName": "a", "clusters": [{
                    "clusterName": "east",
                    "previous": had.map(|name| json!({ "resourceSnapshotName": name })),
                    "conditions": [{ "type": "Started", "status": status, "reason": "R", "message": "",
                                     "lastTransitionTime": "2026-01-01T00:00:00Z" }],
                }] }],
            }))
            .unwrap();
            run
        };
        let runs = [
            run("3", true, Some("web-1-snapshot")),
            run("4", false, None),
            run("5", true, Some("other-2-snapshot")),
            run_of(Some("6"), "Initialize", "new"),
        ];
        assert_eq!(ran("web", &runs, &[7].into()), [1, 3, 5, 7].into());
    }

    #[test]
    fn failures_and_membership_are_treated_as_in_the_last_run() {
        let mut runs = [run_of(None, "Run", "a"), run_of(None, "Run", "b")];
        assert_eq!(like_the_last(&[]), UpdateRunSpec::default());
        runs[1].spec.failure_threshold =
            serde_json::from_value(json!({ "maxFailures": 1, "onExceeded": "Stop" })).unwrap();
        runs[1].spec.membership_changes = serde_json::from_value(json!("Fail")).unwrap();
        let like = like_the_last(&runs);
        assert_eq!(like.failure_threshold, runs[1].spec.failure_threshold);
        assert_eq!(like.membership_changes, runs[1].spec.membership_changes);
        assert_eq!(like.state, None, "nothing else");
    }

    #[test]
    fn a_placement_that_rolls_itself_is_refused_with_what_to_do() {
        for strategy in [json!(null), json!({}), json!({ "type": "RollingUpdate" })] {
            let error = require_external(&placement("web", &strategy)).unwrap_err();
            assert!(
                error.to_string().contains("apply the earlier manifests"),
                "{error}"
            );
        }
        require_external(&placement("web", &json!({ "type": "External" }))).unwrap();
    }

    #[test]
    fn snapshots_that_are_whole_count() {
        let snapshot = |index: &str, of: Option<&str>| -> PartialObjectMeta<Snapshot> {
            let mut meta = json!({ "name": "s", "labels": { labels::RESOURCE_INDEX: index } });
            if let Some(of) = of {
                meta["annotations"] = json!({ labels::NUMBER_OF_RESOURCE_SNAPSHOTS: of });
            }
            serde_json::from_value(json!({ "metadata": meta })).unwrap()
        };
        let all = [
            snapshot("0", Some("1")),
            snapshot("1", None),
            snapshot("1", Some("2")),
            snapshot("2", Some("2")),
            snapshot("3", None),
            snapshot("x", Some("1")),
        ];
        assert_eq!(complete(&all), [0, 1].into());
        for (name, expected) in [
            ("web-3-snapshot", Some(3)),
            ("web-3-1", None),
            ("web-03-snapshot", None),
            ("other-3-snapshot", None),
            ("", None),
        ] {
            assert_eq!(index_of("web", name), expected, "{name}");
        }
    }

    #[test]
    fn names_are_the_same_for_the_same_and_differ_else() {
        let web = placement("web", &json!({}));
        let runs = [run_of(None, "Run", "a"), run_of(None, "Run", "b")];
        let first = name(&web, 4, &runs);
        assert!(first.starts_with("web-rollback-4-"), "{first}");
        assert_eq!(first, name(&web, 4, &runs));
        assert_ne!(first, name(&web, 4, &runs[..1]));
        assert_ne!(first, name(&web, 3, &runs));
        let long = name(
            &placement(&format!("{}-x", "n".repeat(44)), &json!({})),
            1234,
            &[],
        );
        assert!(long.len() <= LONGEST_NAME && !long.contains("--"), "{long}");
    }

    #[test]
    fn a_run_that_does_it_already_is_found() {
        for (index, state, expected) in [
            (Some("4"), "Run", true),
            (Some("4"), "Stop", false),
            (Some("3"), "Run", false),
            (None, "Run", false),
        ] {
            assert_eq!(goes_to(&run_of(index, state, "a"), 4), expected);
        }
    }
}
