//! What is written for the clusters that the scheduler chose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use windlass_api::binding::{BindingState, BindingStatus};
use windlass_api::conditions::Stage;
use windlass_api::member::MemberCluster;
use windlass_api::placement::{
    ApplyStrategy, RollingUpdateConfig, RolloutStrategy, RolloutStrategyType, WhenToApply,
    WhenToTakeOver,
};
use windlass_api::scoped::Binding;
use windlass_api::snapshot::ClusterDecision;
use windlass_api::{Condition, IntOrString, Time, labels};

use windlass_cluster::ObjectKey;

use crate::overrides::resolve::Resolved;
use crate::placement::bindings::{
    BindingInputs, BindingPlan, digest_of, of_leaving, plan, staying,
};
use crate::placement::snapshots::{Groups, LatestSnapshot};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// A placement's bindings, and what decides on them.
pub(super) struct Fleet {
    pub(super) live: BTreeMap<String, Binding>,
    pub(super) selected: Vec<&'static str>,
    pub(super) members: BTreeSet<String>,
    pub(super) unreachable: BTreeSet<String>,
    pub(super) latest: LatestSnapshot,
    pub(super) strategy: RolloutStrategy,
    pub(super) overrides: Resolved,
}

impl Fleet {
    pub(super) fn new(strategy: RolloutStrategyType) -> Self {
        Self {
            live: BTreeMap::new(),
            selected: vec!["a", "b", "c"],
            members: ["a", "b", "c"].map(str::to_owned).into(),
            unreachable: BTreeSet::new(),
            latest: snapshot(0),
            strategy: RolloutStrategy {
                type_: Some(strategy),
                rolling_update: Some(RollingUpdateConfig {
                    max_unavailable: Some(IntOrString::Int(1)),
                    ..Default::default()
                }),
                ..Default::default()
            },
            overrides: Resolved::default(),
        }
    }

    pub(super) fn plan(&self) -> BindingPlan {
        let existing: Vec<_> = self.live.values().cloned().map(Arc::new).collect();
        let selected: Vec<_> = self
            .selected
            .iter()
            .map(|cluster| ClusterDecision {
                cluster_name: (*cluster).to_owned(),
                selected: true,
                ..Default::default()
            })
            .collect();
        plan(
            &BindingInputs {
                placement: &ObjectKey::cluster("p"),
                policy: None,
                strategy: Some(&self.strategy),
                selected: &selected,
                members: &self.members,
                unreachable: &self.unreachable,
                policy_snapshot: "p-0",
                latest: &self.latest,
                groups: &Groups::default(),
                existing: &existing,
                overrides: &self.overrides,
            },
            NOW,
        )
    }

    pub(super) fn carry_out(&mut self) -> BindingPlan {
        let plan = self.plan();
        for new in plan.create.iter().chain(&plan.replace) {
            let mut new = new.clone();
            new.metadata.generation = Some(new.metadata.generation.unwrap_or_default() + 1);
            self.live.insert(new.spec.target_cluster.clone(), new);
        }
        for gone in &plan.delete {
            self.live.remove(&gone.spec.target_cluster);
        }
        plan
    }

    /// The clusters report their present content as available.
    pub(super) fn report(&mut self, clusters: &[&str]) {
        for cluster in clusters {
            let binding = self.live.get_mut(*cluster).unwrap();
            let digest = digest_of(binding, &Groups::default(), &self.latest, &self.overrides);
            let generation = binding.metadata.generation;
            let condition = |stage: Stage| Condition {
                type_: stage.to_string(),
                status: "True".to_owned(),
                reason: "AllWorkAreAvailable".to_owned(),
                message: String::new(),
                observed_generation: generation,
                last_transition_time: Time(NOW),
            };
            binding.status = Some(BindingStatus {
                conditions: Some(vec![condition(Stage::Applied), condition(Stage::Available)]),
                observed_digest: digest.map(|digest| digest.to_string()),
                ..Default::default()
            });
        }
    }

    /// What each cluster is to run, and in which state its binding is.
    pub(super) fn shown(&self) -> Vec<String> {
        self.live
            .values()
            .map(|binding| {
                format!(
                    "{} {} {}",
                    binding.spec.target_cluster,
                    binding.spec.state.as_str(),
                    binding.spec.resource_snapshot_name
                )
            })
            .collect()
    }
}

pub(super) fn snapshot(index: u64) -> LatestSnapshot {
    LatestSnapshot {
        name: format!("p-{index}-snapshot"),
        index,
        hash: format!("hash-{index}"),
    }
}

pub(super) fn is_quiet(plan: &BindingPlan) -> bool {
    plan.create.is_empty() && plan.replace.is_empty() && plan.delete.is_empty()
}

#[test]
fn a_new_placement_costs_one_write_per_cluster() {
    let mut fleet = Fleet::new(RolloutStrategyType::RollingUpdate);
    let first = fleet.carry_out();
    assert_eq!((first.create.len(), first.replace.len()), (3, 0));
    for binding in &first.create {
        assert_eq!(binding.finalizers(), [labels::WORK_FINALIZER]);
        assert!(binding.spec.apply_strategy.is_some());
        assert_eq!(binding.labels()[labels::PARENT_PLACEMENT], "p");
    }
    let all = [
        "a Bound p-0-snapshot",
        "b Bound p-0-snapshot",
        "c Bound p-0-snapshot",
    ];
    assert_eq!(fleet.shown(), all);
    assert!(is_quiet(&fleet.plan()), "a second look writes nothing");
}

#[test]
fn under_external_nothing_is_rolled_out_and_hand_edits_stand() {
    let mut fleet = Fleet::new(RolloutStrategyType::External);
    fleet.carry_out();
    assert_eq!(
        fleet.shown(),
        ["a Scheduled ", "b Scheduled ", "c Scheduled "]
    );
    let edited = fleet.live.get_mut("b").unwrap();
    edited.spec.resource_snapshot_name = "p-7-snapshot".to_owned();
    edited.spec.state = BindingState::Bound;
    fleet.latest = snapshot(8);
    assert!(is_quiet(&fleet.plan()));
    fleet.selected = vec!["b", "c"];
    fleet.carry_out();
    let left = ["b Bound p-7-snapshot", "c Scheduled "];
    assert_eq!(fleet.shown(), left, "what was never bound just goes");
}

#[test]
fn one_at_a_time_and_the_next_when_it_is_ready() {
    let mut fleet = Fleet::new(RolloutStrategyType::RollingUpdate);
    fleet.carry_out();
    fleet.report(&["a", "b", "c"]);
    fleet.latest = snapshot(1);
    let plan = fleet.carry_out();
    assert_eq!(plan.replace.len(), 1, "maxUnavailable is 1");
    assert_eq!(plan.held.len(), 2);
    assert!(is_quiet(&fleet.plan()), "it waits");
    fleet.report(&["a"]);
    assert_eq!(fleet.carry_out().replace.len(), 1);
    fleet.report(&["a", "b"]);
    fleet.carry_out();
    let all = [
        "a Bound p-1-snapshot",
        "b Bound p-1-snapshot",
        "c Bound p-1-snapshot",
    ];
    assert_eq!(fleet.shown(), all);
}

/// The clusters that a plan changes.
fn moved(plan: &BindingPlan) -> Vec<&str> {
    let clusters = plan.replace.iter().map(|b| b.spec.target_cluster.as_str());
    clusters.collect()
}

#[test]
fn another_way_to_apply_rolls_like_any_other_change() {
    let mut fleet = Fleet::new(RolloutStrategyType::RollingUpdate);
    fleet.carry_out();
    fleet.report(&["a", "b", "c"]);
    fleet.strategy.apply_strategy = Some(ApplyStrategy {
        when_to_apply: Some(WhenToApply::IfNotDrifted),
        ..Default::default()
    });
    assert_eq!(moved(&fleet.carry_out()), ["a"], "maxUnavailable is 1");
    assert!(is_quiet(&fleet.plan()), "it waits");
    fleet.report(&["a"]);
    assert_eq!(moved(&fleet.carry_out()), ["b"]);
    fleet.report(&["b"]);
    assert_eq!(moved(&fleet.carry_out()), ["c"]);
    // Nothing is taken over any more: no object can change by that.
    fleet.report(&["c"]);
    let apply = fleet.strategy.apply_strategy.get_or_insert_default();
    apply.when_to_take_over = Some(WhenToTakeOver::Never);
    assert_eq!(moved(&fleet.carry_out()), ["a", "b", "c"]);
}

#[test]
fn what_took_too_long_costs_nothing_and_what_is_away_does() {
    let mut fleet = Fleet::new(RolloutStrategyType::RollingUpdate);
    fleet.carry_out();
    fleet.report(&["a", "b", "c"]);
    for cluster in ["b", "c"] {
        let status = fleet.live.get_mut(cluster).unwrap().status.as_mut();
        let available = status.unwrap().conditions.as_mut().unwrap().last_mut();
        let available = available.unwrap();
        available.status = "False".to_owned();
        available.reason = "Timeout".to_owned();
    }
    fleet.unreachable = BTreeSet::from(["c".to_owned()]);
    fleet.strategy.apply_strategy = Some(ApplyStrategy {
        when_to_apply: Some(WhenToApply::IfNotDrifted),
        ..Default::default()
    });
    assert_eq!(moved(&fleet.carry_out()), ["b"]);
    // Its time was up before it was away.
    fleet.unreachable.clear();
    assert_eq!(moved(&fleet.carry_out()), ["c"]);
}

#[test]
fn clusters_that_go_and_come_back() {
    let mut fleet = Fleet::new(RolloutStrategyType::RollingUpdate);
    fleet.carry_out();
    // Only c serves, so it stays until another one does.
    fleet.report(&["c"]);
    let name = fleet.live["c"].name_any();
    // What others note on a binding is theirs (trap T10).
    let noted = |fleet: &Fleet| {
        fleet.live["c"]
            .annotations()
            .contains_key("example.com/note")
    };
    let note = ("example.com/note".to_owned(), "x".to_owned());
    fleet
        .live
        .get_mut("c")
        .unwrap()
        .annotations_mut()
        .extend([note]);

    fleet.selected = vec!["a", "b"];
    fleet.carry_out();
    assert_eq!(fleet.shown()[2], "c Unscheduled p-0-snapshot");
    let previous = &fleet.live["c"].annotations()[labels::PREVIOUS_BINDING_STATE];
    assert_eq!(previous, "Bound");
    assert!(noted(&fleet));

    fleet.selected = vec!["a", "b", "c"];
    fleet.carry_out();
    assert_eq!(
        fleet.shown()[2],
        "c Bound p-0-snapshot",
        "picked again before it went"
    );
    assert!(
        !fleet.live["c"]
            .annotations()
            .contains_key(labels::PREVIOUS_BINDING_STATE)
    );
    assert!(noted(&fleet));

    fleet.live.get_mut("c").unwrap().metadata.deletion_timestamp = Some(Time(NOW));
    let plan = fleet.plan();
    assert!(
        is_quiet(&plan),
        "a binding that is being removed has to be gone first"
    );

    fleet.live.remove("c");
    let again = fleet.carry_out();
    assert_eq!(
        again.create[0].name_any(),
        name,
        "its name follows from placement and cluster"
    );
}

#[test]
fn a_cluster_that_left_the_fleet_loses_its_binding_at_once() {
    let mut fleet = Fleet::new(RolloutStrategyType::RollingUpdate);
    fleet.carry_out();
    fleet.selected = vec!["b", "c"];
    fleet.members.remove("a");
    let plan = fleet.carry_out();
    assert_eq!(plan.delete.len(), 1);
    assert_eq!(fleet.shown().len(), 2);
}

#[test]
fn a_finalizer_that_was_taken_off_comes_back_first() {
    let mut fleet = Fleet::new(RolloutStrategyType::RollingUpdate);
    fleet.carry_out();
    fleet.live.get_mut("a").unwrap().metadata.finalizers = None;
    let plan = fleet.carry_out();
    assert_eq!(plan.replace[0].finalizers(), [labels::WORK_FINALIZER]);
}

/// Which bindings go with their cluster, whatever else is known of the placement.
#[test]
fn what_is_on_a_leaving_cluster_goes() {
    let binding = |cluster: &str, state: BindingState, is_going: bool| {
        let mut binding = Binding::default();
        binding.spec.target_cluster = cluster.to_owned();
        binding.spec.state = state;
        binding.metadata.deletion_timestamp = is_going.then_some(Time(NOW));
        Arc::new(binding)
    };
    let cluster = |name: &str, is_leaving: bool| {
        let mut cluster = MemberCluster::new(name, Default::default());
        cluster.metadata.deletion_timestamp = is_leaving.then_some(Time(NOW));
        Arc::new(cluster)
    };
    let members = staying(&[cluster("stays", false), cluster("leaves", true)]);
    for (what, binding, goes) in [
        (
            "it stays",
            binding("stays", BindingState::Bound, false),
            false,
        ),
        (
            "it leaves",
            binding("leaves", BindingState::Bound, false),
            true,
        ),
        (
            "not rolled out yet",
            binding("leaves", BindingState::Scheduled, false),
            true,
        ),
        (
            "not selected any more",
            binding("leaves", BindingState::Unscheduled, false),
            true,
        ),
        (
            "it is gone",
            binding("gone", BindingState::Bound, false),
            true,
        ),
        (
            "asked already",
            binding("leaves", BindingState::Bound, true),
            false,
        ),
    ] {
        let asked = of_leaving(&[binding], &members);
        assert_eq!(asked.len(), usize::from(goes), "{what}");
    }
}
