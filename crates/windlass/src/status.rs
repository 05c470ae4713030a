//! `windlass status`.

use std::path::PathBuf;

use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use windlass_api::Condition;
use windlass_api::conditions::{PLACEMENT_SCHEDULED, Stage};
use windlass_api::placement::{ClusterResourcePlacement, PerClusterPlacementStatus};
use windlass_cluster::{ApiError, clock};

use crate::{Failure, join};

#[derive(clap::Args)]
pub struct Args {
    /// The placement; without it, all of them.
    placement: Option<String>,
    /// Kubeconfig of the hub.
    #[arg(long, env = "WINDLASS_KUBECONFIG")]
    kubeconfig: PathBuf,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let api: Api<ClusterResourcePlacement> = Api::all(join::client(&args.kubeconfig).await?);
    let now = clock::now();
    let rows = match &args.placement {
        Some(name) => {
            let placement = api.get(name).await.map_err(ApiError::from_kube)?;
            of_clusters(&placement, now)
        }
        None => {
            let list = api
                .list(&ListParams::default())
                .await
                .map_err(ApiError::from_kube)?;
            of_placements(&list.items, now)
        }
    };
    print!("{}", table(&rows));
    Ok(())
}

fn of_placements(placements: &[ClusterResourcePlacement], now: Timestamp) -> Vec<Vec<String>> {
    let mut rows = vec![header(&[
        "PLACEMENT",
        "INDEX",
        "CLUSTERS",
        "STATE",
        "REASON",
        "AGE",
    ])];
    for placement in placements {
        let status = placement.status.clone().unwrap_or_default();
        let clusters = status
            .placement_statuses
            .iter()
            .flatten()
            .filter(|entry| entry.cluster_name.is_some())
            .count();
        let conditions = status.conditions.unwrap_or_default();
        let types: Vec<&str> = std::iter::once(PLACEMENT_SCHEDULED)
            .chain(
                Stage::APPLY
                    .iter()
                    .chain(&[Stage::DiffReported])
                    .map(|stage| stage.placement_type()),
            )
            .collect();
        let (state, reason, age) = summary(&conditions, &types, now);
        let state = state
            .trim_start_matches("ClusterResourcePlacement")
            .to_owned();
        rows.push(vec![
            placement.name_any(),
            status
                .observed_resource_index
                .unwrap_or_else(|| "-".to_owned()),
            clusters.to_string(),
            state,
            reason,
            age,
        ]);
    }
    rows
}

fn of_clusters(placement: &ClusterResourcePlacement, now: Timestamp) -> Vec<Vec<String>> {
    let mut rows = vec![header(&[
        "CLUSTER", "INDEX", "STATE", "REASON", "AGE", "MESSAGE",
    ])];
    let entries = placement
        .status
        .as_ref()
        .and_then(|status| status.placement_statuses.as_deref())
        .unwrap_or_default();
    let mut entries: Vec<&PerClusterPlacementStatus> = entries.iter().collect();
    entries.sort_by_key(|entry| (entry.cluster_name.is_none(), entry.cluster_name.clone()));
    for entry in entries {
        let conditions = entry.conditions.as_deref().unwrap_or_default();
        let types: Vec<&str> = std::iter::once("Scheduled")
            .chain(
                Stage::APPLY
                    .iter()
                    .chain(&[Stage::DiffReported])
                    .map(|stage| stage.as_str()),
            )
            .collect();
        let (state, reason, age) = summary(conditions, &types, now);
        let trouble = conditions
            .iter()
            .find(|c| c.status != "True")
            .map(|c| c.message.clone())
            .unwrap_or_default();
        rows.push(vec![
            entry
                .cluster_name
                .clone()
                .unwrap_or_else(|| "(none found)".to_owned()),
            entry
                .observed_resource_index
                .clone()
                .unwrap_or_else(|| "-".to_owned()),
            state,
            reason,
            age,
            trouble,
        ]);
    }
    rows
}

/// The first condition that does not hold, or the last one that does.
fn summary(conditions: &[Condition], types: &[&str], now: Timestamp) -> (String, String, String) {
    let known: Vec<&Condition> = types
        .iter()
        .filter_map(|type_| {
            conditions
                .iter()
                .find(|condition| condition.type_ == *type_)
        })
        .collect();
    let Some(shown) = known
        .iter()
        .find(|condition| condition.status != "True")
        .or(known.last())
    else {
        return (
            "Unknown".to_owned(),
            "not looked at yet".to_owned(),
            "-".to_owned(),
        );
    };
    let state = match shown.status.as_str() {
        "True" => shown.type_.clone(),
        "False" => format!("{}=False", shown.type_),
        _ => format!("{}=Unknown", shown.type_),
    };
    (
        state,
        shown.reason.clone(),
        age(shown.last_transition_time.0, now),
    )
}

fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Columns wide enough for what is in them, three spaces apart.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(cells.join("   ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = vec![header(&["A", "LONG"]), header(&["longer", "x"])];
        assert_eq!(table(&rows), "A        LONG\nlonger   x\n");
    }

    #[test]
    fn ages() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (seconds, expected) in [
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (7200, "2h"),
            (172_800, "2d"),
        ] {
            assert_eq!(age(at(0), at(seconds)), expected);
        }
    }
}
