//! What is placed on a cluster, and what a drain can do about it.

use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use windlass_api::binding::BindingState;
use windlass_api::labels;
use windlass_api::member::Taint;
use windlass_api::placement::{
    ClusterResourcePlacement, PlacementPolicy, PlacementType, RolloutStrategy, RolloutStrategyType,
};
use windlass_api::scoped::{Binding, Scope};
use windlass_cluster::{ApiError, Writer};
use windlass_scheduler::tolerates;
use windlass_status::defaults::placement_type;

use super::Args;
use crate::table::line;

/// Bindings that are read at once.
const PAGE: u32 = 500;

/// What a drain has to do with.
#[derive(Debug, Default)]
pub struct Survey {
    /// What goes.
    pub items: Vec<Item>,
    /// What stays.
    pub stays: Vec<Stays>,
}

/// A placement that goes from the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The ClusterResourcePlacement.
    pub placement: String,
    /// Its binding.
    pub binding: String,
    /// UID of that.
    pub uid: String,
    /// Whether it has to be evicted; else it goes anyhow.
    pub evict: bool,
    /// Whether it may come back.
    pub tolerates: bool,
}

/// A placement that stays, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stays {
    what: String,
    why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    /// It names its clusters.
    Fixed,
    /// There are no evictions from ResourcePlacements.
    Namespaced,
    /// It is on all clusters, and tolerates the taint.
    EverywhereAnyhow,
    /// It was evicted, and has come back.
    Back,
    /// Nothing of it is there, for only a run would bring it.
    NotThere,
    /// Nothing came of its eviction.
    Failed(String),
}

impl Stays {
    /// It was evicted, and is there again.
    pub fn back(placement: &str) -> Self {
        Self::of(placement, Why::Back)
    }

    /// Nothing came of its eviction.
    pub fn failed(placement: &str, why: &str) -> Self {
        Self::of(placement, Why::Failed(why.to_owned()))
    }

    fn of(placement: &str, why: Why) -> Self {
        Self {
            what: format!("ClusterResourcePlacement {placement}"),
            why,
        }
    }

    /// Whether that is as it was asked for.
    pub fn is_ignored(&self, args: &Args) -> bool {
        match self.why {
            Why::Fixed => args.ignore_fixed,
            Why::Namespaced => args.ignore_namespaced,
            Why::NotThere => true,
            Why::EverywhereAnyhow | Why::Back | Why::Failed(_) => false,
        }
    }

    /// For people: why, and what to do.
    pub fn in_words(&self, cluster: &str) -> String {
        let why = match &self.why {
            Why::Fixed => format!(
                "names its clusters (PickFixed); take {cluster} out of its spec.policy.clusterNames, or go on with \
                 --ignore-fixed"
            ),
            Why::Namespaced => format!(
                "can't be evicted, as ClusterResourcePlacements can; exclude {cluster} by its spec.policy, or go on \
                 with --ignore-namespaced"
            ),
            Why::EverywhereAnyhow => format!(
                "is on every cluster and tolerates the taint, so it would come back at once; exclude {cluster} by \
                 its spec.policy.affinity"
            ),
            Why::Back => format!(
                "was evicted and is there again, for it tolerates the taint; exclude {cluster} by its \
                 spec.policy.affinity"
            ),
            Why::NotThere => format!(
                "is to be on {cluster}, but nothing of it is there: an update run would bring it; to keep it off, \
                 exclude {cluster} by its spec.policy"
            ),
            Why::Failed(why) => line(why),
        };
        format!("{}: {why}", self.what)
    }
}

/// Looks at everything that is bound to a cluster.
pub async fn look(hub: &Writer, cluster: &str, taint: &Taint) -> Result<Survey, ApiError> {
    let mut survey = Survey::default();
    for binding in bound(hub.client(), Scope::Cluster, cluster).await? {
        let name = placement_of(&binding);
        let placement = hub
            .get::<ClusterResourcePlacement>(None, &name)
            .await?
            .filter(|placement| placement.metadata.deletion_timestamp.is_none());
        let strategy = placement.as_ref().and_then(|p| p.spec.strategy.as_ref());
        if waits_for_a_run(&binding, strategy) {
            survey.stays.push(Stays::of(&name, Why::NotThere));
            continue;
        }
        let policy = placement.map(|placement| placement.spec.policy);
        match sort(&binding, policy.as_ref().map(Option::as_ref), taint) {
            Ok(item) => survey.items.push(item),
            Err(why) => survey.stays.push(Stays::of(&name, why)),
        }
    }
    let namespaced = bound(hub.client(), Scope::Namespaced, cluster).await?;
    for binding in namespaced
        .iter()
        .filter(|b| b.metadata.deletion_timestamp.is_none())
    {
        let namespace = binding.namespace().unwrap_or_default();
        survey.stays.push(Stays {
            what: format!("ResourcePlacement {namespace}/{}", placement_of(binding)),
            why: Why::Namespaced,
        });
    }
    survey.items.sort_by(|a, b| a.placement.cmp(&b.placement));
    survey.stays.sort_by(|a, b| a.what.cmp(&b.what));
    Ok(survey)
}

/// Whether nothing is there before a run brings it: an eviction would wait for that run.
fn waits_for_a_run(binding: &Binding, strategy: Option<&RolloutStrategy>) -> bool {
    let external = Some(RolloutStrategyType::External);
    binding.spec.state == BindingState::Scheduled
        && binding.spec.resource_snapshot_name.is_empty()
        && binding.metadata.deletion_timestamp.is_none()
        && strategy.is_some_and(|strategy| strategy.type_ == external)
}

/// What is done about a binding. `policy`: that of its placement, if that stays.
fn sort(
    binding: &Binding,
    policy: Option<Option<&PlacementPolicy>>,
    taint: &Taint,
) -> Result<Item, Why> {
    let mut item = Item {
        placement: placement_of(binding),
        binding: binding.name_any(),
        uid: binding.uid().unwrap_or_default(),
        evict: false,
        tolerates: false,
    };
    let (Some(policy), None) = (policy, &binding.metadata.deletion_timestamp) else {
        return Ok(item);
    };
    let tolerations = policy.and_then(|policy| policy.tolerations.as_deref());
    item.tolerates = tolerations
        .unwrap_or_default()
        .iter()
        .any(|toleration| tolerates(toleration, taint));
    item.evict = true;
    match placement_type(policy) {
        PlacementType::PickFixed => Err(Why::Fixed),
        PlacementType::PickAll if item.tolerates => Err(Why::EverywhereAnyhow),
        PlacementType::PickAll | PlacementType::PickN => Ok(item),
    }
}

fn placement_of(binding: &Binding) -> String {
    let label = binding.labels().get(labels::PARENT_PLACEMENT);
    label.cloned().unwrap_or_else(|| binding.name_any())
}

/// The bindings of a cluster.
async fn bound(client: &Client, scope: Scope, cluster: &str) -> Result<Vec<Binding>, ApiError> {
    let api: Api<Binding> = Api::all_with(client.clone(), &scope);
    let (mut found, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let page = api.list(&params).await.map_err(ApiError::from_kube)?;
        let of_it = |binding: &Binding| binding.spec.target_cluster == cluster;
        found.extend(page.items.into_iter().filter(of_it));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::drain::taint;

    fn binding(deleting: bool) -> Binding {
        let mut binding: Binding = serde_json::from_value(json!({
            "metadata": { "name": "web-east-1", "uid": "u", "labels": { labels::PARENT_PLACEMENT: "web" } },
            "spec": { "state": "Bound", "resourceSnapshotName": "", "schedulingPolicySnapshotName": "",
                      "targetCluster": "east",
                      "clusterDecision": { "clusterName": "east", "selected": true, "reason": "" } },
        }))
        .unwrap();
        if deleting {
            binding.metadata.deletion_timestamp =
                serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        }
        binding
    }

    fn policy(type_: &str, tolerations: &serde_json::Value) -> PlacementPolicy {
        serde_json::from_value(json!({ "placementType": type_, "tolerations": tolerations }))
            .unwrap()
    }

    #[test]
    fn what_a_drain_does_about_a_binding() {
        let cordon = json!([{ "key": "cordon-key", "operator": "Equal", "value": "cordon-value" }]);
        let (other, none) = (json!([{ "key": "other", "operator": "Exists" }]), json!([]));
        // Policy; whether it is evicted, and whether it may come back; or why it stays.
        for (policy, expected) in [
            (None, Ok((true, false))),
            (Some(policy("PickAll", &none)), Ok((true, false))),
            (Some(policy("PickAll", &other)), Ok((true, false))),
            (Some(policy("PickAll", &cordon)), Err(Why::EverywhereAnyhow)),
            (Some(policy("PickN", &cordon)), Ok((true, true))),
            (Some(policy("PickN", &none)), Ok((true, false))),
            (Some(policy("PickFixed", &json!(null))), Err(Why::Fixed)),
        ] {
            let sorted = sort(&binding(false), Some(policy.as_ref()), &taint());
            let sorted = sorted.map(|item| (item.evict, item.tolerates));
            assert_eq!(sorted, expected, "{policy:?}");
            // What goes anyhow is waited for, whatever its policy.
            let goes = sort(&binding(true), Some(policy.as_ref()), &taint()).unwrap();
            assert!(!goes.evict);
        }
        let gone = sort(&binding(false), None, &taint()).unwrap();
        assert_eq!((gone.placement.as_str(), gone.evict), ("web", false));
    }

    #[test]
    fn what_only_a_run_would_bring_is_not_evicted() {
        for (state, snapshot, strategy, expected) in [
            ("Scheduled", "", "External", true),
            ("Scheduled", "", "RollingUpdate", false),
            ("Bound", "web-0-snapshot", "External", false),
            ("Scheduled", "web-0-snapshot", "External", false),
        ] {
            let mut binding = binding(false);
            binding.spec.state = serde_json::from_value(json!(state)).unwrap();
            binding.spec.resource_snapshot_name = snapshot.to_owned();
            let strategy = serde_json::from_value(json!({ "type": strategy })).unwrap();
            assert_eq!(
                waits_for_a_run(&binding, Some(&strategy)),
                expected,
                "{state} {snapshot}"
            );
        }
    }

    #[test]
    fn whoever_stays_is_told_what_to_do() {
        for why in [
            Why::Fixed,
            Why::Namespaced,
            Why::EverywhereAnyhow,
            Why::Back,
            Why::NotThere,
        ] {
            let text = Stays::of("web", why).in_words("east");
            assert!(text.contains("web") && text.contains("east"), "{text}");
        }
    }
}
