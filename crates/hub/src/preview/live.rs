//! Reads of the hub what decides about one placement. Nothing here can write: there is no writer.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use windlass_api::addon::Addon;
use windlass_api::conditions::Status;
use windlass_api::member::{AgentStatus, MemberCluster};
use windlass_api::scoped::{Binding, Placement, Snapshot};
use windlass_api::status_copy::ClusterResourcePlacementStatus;
use windlass_api::{Time, labels};
use windlass_cluster::{ApiError, Discovery, ObjectKey, clock};

use super::Live;
use crate::addons::is_for;
use crate::members::facts::heartbeat_every;
use crate::members::is_push;
use crate::overrides::Overrides;
use crate::overrides::resolve::Resolved;
use crate::placement::accessible::{Target, target, trouble};
use crate::placement::actor::selected_before;
use crate::placement::snapshots::{Groups, SnapshotMeta, meta_of};
use crate::scoped::api_in;
use crate::select::renders::{Listing, Renders};
use crate::select::rules::ApiFilter;
use crate::select::{Resources, SelectError, Selection};

/// Longest wait for what the selectors choose from.
const LONGEST: Duration = Duration::from_secs(30);
/// Objects per page of a list.
const PAGE: u32 = 500;
/// Type of the agent entry that tells how a cluster is.
const MEMBER_AGENT: &str = "MemberAgent";

/// What somebody wants.
pub struct Wish {
    /// The placement as it would be. Its metadata is that of the existing one, if there is one.
    pub placement: Placement,
    /// Whether there is one.
    pub exists: bool,
    /// What may be placed, as the hub has been told.
    pub filter: ApiFilter,
}

/// Reads the hub.
///
/// # Errors
/// When the hub can't be asked. A selection that can't be made is part of the answer.
pub async fn read(client: &Client, wish: Wish) -> Result<Live, ApiError> {
    let placement = wish.placement;
    let key = ObjectKey::of(&placement);
    let clusters: Vec<Arc<MemberCluster>> = list(&Api::all(client.clone()), None).await?;
    let clusters = heard_of(&clusters, clock::now());
    let (groups, policies, bindings) = if wish.exists {
        let label = format!("{}={}", labels::PARENT_PLACEMENT, key.name);
        (
            Groups::of(&snapshots(client, &key, &label).await?),
            list(&api_in(client.clone(), &key.namespace), Some(&label)).await?,
            list(&api_in(client.clone(), &key.namespace), Some(&label)).await?,
        )
    } else {
        (Groups::default(), Vec::new(), Vec::new())
    };
    let filter = wish.filter.with_renders(renders(client).await?);
    let selection = selected(client, &key, &placement, filter.clone()).await?;
    let (overrides, pending) = match &selection {
        Ok(selection) => overrides(client, &key, selection, &bindings, &clusters).await?,
        Err(_) => (Resolved::default(), Vec::new()),
    };
    let unreachable = clusters
        .iter()
        .filter(|cluster| !answers(cluster))
        .map(|cluster| cluster.name_any())
        .collect();
    Ok(Live {
        placement,
        exists: wish.exists,
        selection,
        groups,
        policies,
        bindings,
        clusters,
        unreachable,
        overrides,
        pending,
        filter,
    })
}

/// What the hub's Addons list: envelopes that are theirs are placed as the hub would.
async fn renders(client: &Client) -> Result<Renders, ApiError> {
    let all = match list::<Addon>(&Api::all(client.clone()), None).await {
        Err(ApiError::Rejected(_)) => return Ok(Renders::hidden()),
        Err(ApiError::NotFound(_)) => Vec::new(),
        other => other?,
    };
    Ok(Renders::new(Arc::new(move |placement| {
        let own = all.iter().filter(|addon| is_for(addon, placement));
        own.map(|addon| Listing::of(addon)).collect()
    })))
}

/// Every object, page by page.
async fn list<K>(api: &Api<K>, label: Option<&str>) -> Result<Vec<Arc<K>>, ApiError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut params = ListParams::default().limit(PAGE);
    params.label_selector = label.map(str::to_owned);
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await.map_err(ApiError::from_kube)?;
        all.extend(page.items.into_iter().map(Arc::new));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

async fn snapshots(
    client: &Client,
    key: &ObjectKey,
    label: &str,
) -> Result<Vec<Arc<SnapshotMeta>>, ApiError> {
    let api: Api<Snapshot> = api_in(client.clone(), &key.namespace);
    let params = ListParams::default().labels(label);
    let found = api.list_metadata(&params).await;
    let found = found.map_err(ApiError::from_kube)?.items.into_iter();
    Ok(found.map(|meta| Arc::new(meta_of(meta.metadata))).collect())
}

/// The namespace that has a copy of the placement's status.
async fn copied_to(client: &Client, placement: &Placement) -> Result<Option<String>, ApiError> {
    if placement.metadata.uid.is_none() || target(placement) == Target::None {
        return Ok(None);
    }
    let api: Api<ClusterResourcePlacementStatus> = Api::all(client.clone());
    let params = ListParams::default().fields(&format!("metadata.name={}", placement.name_any()));
    let copies = api
        .list_metadata(&params)
        .await
        .map_err(ApiError::from_kube)?;
    let ours = copies.items.into_iter().find(|copy| {
        let mut owners = copy.owner_references().iter();
        owners.any(|owner| Some(&owner.uid) == placement.metadata.uid.as_ref())
    });
    Ok(ours.and_then(|copy| copy.namespace()))
}

/// What the placement selects, or why that is not asked.
async fn selected(
    client: &Client,
    key: &ObjectKey,
    placement: &Placement,
    filter: ApiFilter,
) -> Result<Result<Selection, SelectError>, ApiError> {
    if placement.metadata.deletion_timestamp.is_some() {
        // The kinds of what it selected may be gone.
        let message = "the placement is being deleted".to_owned();
        return Ok(Err(SelectError::User(message)));
    }
    let copied_to = copied_to(client, placement).await?;
    Ok(match trouble(placement, copied_to.as_deref()) {
        Some(message) => Err(SelectError::User(message)),
        None => select(client, key, placement, filter).await,
    })
}

/// What the placement selects. The watches that this needs end with it.
async fn select(
    client: &Client,
    key: &ObjectKey,
    placement: &Placement,
    filter: ApiFilter,
) -> Result<Selection, SelectError> {
    let news = Arc::new(Notify::new());
    let tell = Arc::clone(&news);
    let resources = Resources::with_filter(
        client.clone(),
        Discovery::new(client.clone()),
        filter,
        Arc::new(move |_: &ObjectKey| tell.notify_one()),
    );
    let until = clock::monotonic() + LONGEST;
    loop {
        let selection = resources
            .select(
                key,
                &placement.spec.resource_selectors,
                selected_before(placement),
            )
            .await;
        let Err(SelectError::Pending(what)) = selection else {
            return selection;
        };
        tokio::select! {
            () = news.notified() => {}
            () = clock::sleep_until(until) => {
                return Err(SelectError::Api {
                    message: format!("{what}, after {} seconds", LONGEST.as_secs()),
                    retry: true,
                });
            }
        }
    }
}

/// What overrides do to what is selected once each has a snapshot, and which have none yet.
async fn overrides(
    client: &Client,
    key: &ObjectKey,
    selection: &Selection,
    bindings: &[Arc<Binding>],
    clusters: &[Arc<MemberCluster>],
) -> Result<(Resolved, Vec<String>), ApiError> {
    let overrides = Overrides::look(client);
    let resolved = tokio::select! {
        () = overrides.wait_synced() => {
            let manifests = selection.manifests.iter();
            let objects = windlass_render::placed(manifests.map(|manifest| &manifest.object));
            Ok(overrides.foresee(key, &objects, bindings, clusters))
        }
        () = clock::sleep(LONGEST) => {
            let missing: Vec<String> = overrides
                .unsynced()
                .map(|(what, why)| why.map_or(what.clone(), |why| format!("{what}: {why}")))
                .collect();
            Err(ApiError::transient(missing.join("; ")))
        }
    };
    overrides.stop();
    resolved
}

/// The clusters, with the heartbeats that the hub may know of. It writes them down rarely: a cluster that is
/// well may have been heard of until the next one would be written, for which a restart takes its time again.
fn heard_of(clusters: &[Arc<MemberCluster>], now: Timestamp) -> Vec<Arc<MemberCluster>> {
    let heard = |cluster: &Arc<MemberCluster>| {
        let mut cluster = Arc::clone(cluster);
        if !is_well(&cluster) {
            return cluster;
        }
        let every = heartbeat_every(&cluster, clusters.len());
        let every = SignedDuration::try_from(every).unwrap_or(SignedDuration::MAX);
        let status = Arc::make_mut(&mut cluster).status.as_mut();
        let agents = status.and_then(|status| status.agent_status.as_mut());
        let agent = agents.and_then(|agents| agents.iter_mut().find(|a| a.type_ == MEMBER_AGENT));
        if let Some(Time(written)) = agent.and_then(|a| a.last_received_heartbeat.as_mut()) {
            let latest = written
                .checked_add(every)
                .and_then(|next| next.checked_add(every))
                .unwrap_or(Timestamp::MAX);
            *written = latest.min(now).max(*written);
        }
        cluster
    };
    clusters.iter().map(heard).collect()
}

/// Whether a cluster answered when its status was written; the hub knows later news than that. An agent that
/// has never reported is no silent one; a cluster that the hub delivers to has to be connected.
fn answers(cluster: &MemberCluster) -> bool {
    match agent_of(cluster) {
        None => !is_push(cluster),
        Some(_) => is_well(cluster),
    }
}

/// Whether the cluster is healthy, as far as its status says.
fn is_well(cluster: &MemberCluster) -> bool {
    let conditions = agent_of(cluster).and_then(|agent| agent.conditions.as_deref());
    let conditions = conditions.unwrap_or_default();
    let mut healthy = conditions.iter().filter(|c| c.type_ == "Healthy");
    healthy.any(|c| Status::parse(&c.status) == Status::True)
}

fn agent_of(cluster: &MemberCluster) -> Option<&AgentStatus> {
    let agents = cluster.status.as_ref()?.agent_status.as_ref()?;
    agents.iter().find(|agent| agent.type_ == MEMBER_AGENT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_scheduler::ClusterView;
    use windlass_scheduler::eligibility::check;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_750_000_000, 0);

    fn member(period: i32, silent: i64, healthy: &str) -> Arc<MemberCluster> {
        let at = NOW - SignedDuration::from_secs(silent);
        let condition = |type_: &str, status: &str| {
            json!({"type": type_, "status": status, "reason": "R", "message": "",
                "lastTransitionTime": NOW})
        };
        let member = json!({
            "metadata": {"name": "m", "annotations": {"windlass.dev/delivery": "push"}},
            "spec": {"identity": {"kind": "User", "name": "x"}, "heartbeatPeriodSeconds": period},
            "status": {"agentStatus": [{"type": "MemberAgent", "lastReceivedHeartbeat": at,
                "conditions": [condition("Joined", "True"), condition("Healthy", healthy)]}]},
        });
        Arc::new(serde_json::from_value(member).unwrap())
    }

    #[test]
    fn a_heartbeat_is_as_good_as_it_is_written_rarely() {
        // Period, seconds since the written heartbeat, Healthy, clusters; whether anything new goes there.
        let rows = [
            (60, 10, "True", 1, true),
            (60, 299, "True", 1, true),
            (60, 600, "True", 1, false),
            (600, 590, "True", 1, true),
            (600, 620, "True", 1, true),
            (600, 1490, "True", 1, true),
            (600, 1510, "True", 1, false),
            (600, 590, "False", 1, false),
            (600, 590, "Unknown", 1, false),
            (60, 400, "True", 3000, true),
            (60, 400, "True", 500, true),
            (60, 430, "True", 500, false),
        ];
        for (period, silent, healthy, fleet, expected) in rows {
            let clusters = vec![member(period, silent, healthy); fleet];
            let heard = heard_of(&clusters, NOW);
            let eligible = check(&ClusterView::of(&heard[0]), NOW).is_ok();
            assert_eq!(eligible, expected, "{period} {silent} {healthy} {fleet}");
        }
    }
}
