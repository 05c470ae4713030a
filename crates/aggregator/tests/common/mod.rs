//! A small language for worlds and for what is expected of them.
//!
//! A binding reads `east snap=0 RS=T OV=T WS=U`: cluster, snapshot index (`snap=` for none,
//! `snap=gone` for one that does not exist), conditions by status, each fresh unless `@0` follows.
//! Words: `failed`, `drifted`, `diffed` (two entries each, unsorted), `cro`, `ro` (overrides),
//! `deleting`, `oldpolicy`, `held`, `digest=same`, `digest=other`.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use windlass_aggregator::{
    Aggregate, AggregateView, BindingView, Budget, ExternalUnset, Mode, Scheduling, SnapshotView,
    aggregate, bindings_by_cluster,
};
use windlass_api::binding::BindingStatus;
use windlass_api::conditions::{Stage, Status, placement_scheduled};
use windlass_api::placement::{
    DiffedResourcePlacement, DriftedResourcePlacement, FailedResourcePlacement, NamespacedName,
    PerClusterPlacementStatus, PlacementPolicy, PlacementStatus, PlacementType, ResourceIdentifier,
    RolloutStrategyType,
};
use windlass_api::scoped::{Binding, PolicySnapshot, Scope};
use windlass_api::snapshot::{ClusterDecision, PolicySnapshotStatus};
use windlass_status::Digest;

/// Generation of the placement.
pub const G: i64 = 25;
/// Generation of every binding.
const BINDING_G: i64 = 7;
/// Moment at which bindings changed last.
pub const BINDING_TIME: i64 = 500;

const SHORT: [(&str, Stage); 6] = [
    ("RS", Stage::RolloutStarted),
    ("OV", Stage::Overridden),
    ("WS", Stage::WorkSynchronized),
    ("AP", Stage::Applied),
    ("AV", Stage::Available),
    ("DR", Stage::DiffReported),
];

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub fn desired() -> Digest {
    Digest::of_bytes(b"desired")
}

/// Everything that a view borrows.
#[derive(Clone, Debug)]
pub struct World {
    pub strategy: RolloutStrategyType,
    pub mode: Mode,
    pub policy: Option<PlacementPolicy>,
    pub previous: Option<PlacementStatus>,
    pub invalid: Option<String>,
    /// The API server refuses to say what is selected.
    pub undecided: bool,
    pub in_force: Option<i64>,
    pub policy_snapshot: PolicySnapshot,
    pub decisions: Vec<ClusterDecision>,
    pub bindings: Vec<Bound>,
    /// Index of the latest snapshot.
    pub latest: Option<String>,
    pub unset: ExternalUnset,
    pub budget: Budget,
}

#[derive(Clone, Debug)]
pub struct Bound {
    pub binding: Binding,
    pub index: Option<String>,
    pub current_policy: bool,
    pub held_back: bool,
}

impl World {
    pub fn rolling(latest: &str) -> Self {
        let world = Self {
            strategy: RolloutStrategyType::RollingUpdate,
            mode: Mode::Apply,
            policy: None,
            previous: None,
            invalid: None,
            undecided: false,
            in_force: None,
            policy_snapshot: PolicySnapshot::default(),
            decisions: Vec::new(),
            bindings: Vec::new(),
            latest: Some(latest.to_owned()),
            unset: ExternalUnset::Unknown,
            budget: Budget::default(),
        };
        world.scheduled("True", 1)
    }

    pub fn external(latest: &str) -> Self {
        Self {
            strategy: RolloutStrategyType::External,
            ..Self::rolling(latest)
        }
    }

    pub fn report_diff(mut self) -> Self {
        self.mode = Mode::ReportDiff;
        self
    }

    pub fn omit(mut self) -> Self {
        self.unset = ExternalUnset::Omit;
        self
    }

    pub fn previous(mut self, aggregate: &Aggregate) -> Self {
        self.previous = Some(aggregate.status.clone());
        self
    }

    /// The policy snapshot's Scheduled, of the given generation of the snapshot (which is at 1).
    pub fn scheduled(mut self, status: &str, observed: i64) -> Self {
        self.policy_snapshot.metadata.generation = Some(1);
        let reason = if status == "True" {
            "SchedulingPolicyFulfilled"
        } else {
            "SchedulingPolicyUnfulfilled"
        };
        self.policy_snapshot.status = Some(PolicySnapshotStatus {
            observed_crp_generation: G,
            conditions: Some(vec![condition("Scheduled", status, reason, observed)]),
            cluster_decisions: None,
        });
        self
    }

    /// PickN with this number, or PickFixed with these names.
    pub fn pick_n(mut self, number: Option<i32>) -> Self {
        self.policy = Some(PlacementPolicy {
            placement_type: Some(PlacementType::PickN),
            number_of_clusters: number,
            ..PlacementPolicy::default()
        });
        self
    }

    pub fn pick_fixed(mut self, names: &str) -> Self {
        self.policy = Some(PlacementPolicy {
            placement_type: Some(PlacementType::PickFixed),
            cluster_names: Some(names.split_whitespace().map(str::to_owned).collect()),
            ..PlacementPolicy::default()
        });
        self
    }

    pub fn chosen(mut self, names: &str) -> Self {
        self.decisions
            .extend(names.split_whitespace().map(|name| decision(name, true)));
        self
    }

    pub fn refused(mut self, names: &str) -> Self {
        self.decisions
            .extend(names.split_whitespace().map(|name| decision(name, false)));
        self
    }

    /// A selected cluster with a binding.
    pub fn bound(mut self, text: &str) -> Self {
        let bound = parse(text);
        let cluster = bound.binding.spec.target_cluster.clone();
        self.bindings.push(bound);
        self.chosen(&cluster)
    }

    pub fn run(&self, now: i64) -> Aggregate {
        let views = self.bindings.iter().map(Bound::view);
        let bindings = bindings_by_cluster(views);
        let resources: BTreeMap<String, Vec<ResourceIdentifier>> = ["-1", "0", "1", "2", "3", "4"]
            .map(|index| (snapshot_name(index), vec![identifier(&format!("r{index}"))]))
            .into();
        let lookup = |name: &str| resources.get(name).map(Vec::as_slice);
        let latest = self
            .latest
            .as_ref()
            .map(|index| (snapshot_name(index), index));
        let view = AggregateView {
            scope: Scope::Cluster,
            generation: G,
            strategy: self.strategy,
            mode: self.mode,
            policy: self.policy.as_ref(),
            previous: self.previous.as_ref(),
            scheduling: match &self.invalid {
                Some(message) => Scheduling::InvalidSelectors(message),
                None if self.undecided => Scheduling::Undecided("can't be listed"),
                None => Scheduling::read(&self.policy_snapshot, G),
            },
            in_force: self.in_force,
            decisions: &self.decisions,
            bindings: &bindings,
            latest: latest.as_ref().map(|(name, index)| SnapshotView {
                name,
                index,
                resources: lookup(name).unwrap_or_default(),
            }),
            resources_of: &lookup,
            external_unset: self.unset,
            run: None,
            budget: self.budget,
        };
        aggregate(&view, at(now))
    }
}

impl Bound {
    pub fn view(&self) -> BindingView<'_> {
        BindingView {
            binding: &self.binding,
            desired_digest: Some(desired()),
            snapshot_index: self.index.as_deref(),
            current_policy: self.current_policy,
            held_back: self.held_back,
            unreachable: false,
        }
    }
}

pub fn parse(text: &str) -> Bound {
    let mut words = text.split_whitespace();
    let cluster = words.next().unwrap();
    let mut bound = Bound {
        binding: Binding::default(),
        index: None,
        current_policy: true,
        held_back: false,
    };
    bound.binding.metadata.name = Some(format!("web-{cluster}"));
    bound.binding.metadata.generation = Some(BINDING_G);
    bound.binding.spec.target_cluster = cluster.to_owned();
    let mut status = BindingStatus::default();
    for word in words {
        apply_word(&mut bound, &mut status, word);
    }
    bound.binding.status = Some(status);
    bound
}

fn apply_word(bound: &mut Bound, status: &mut BindingStatus, word: &str) {
    let spec = &mut bound.binding.spec;
    match word.split_once('=') {
        Some(("snap", index)) => {
            if !index.is_empty() {
                spec.resource_snapshot_name = snapshot_name(index);
                bound.index = (index != "gone").then(|| index.to_owned());
            }
        }
        Some(("digest", "same")) => status.observed_digest = Some(desired().to_string()),
        Some(("digest", _)) => status.observed_digest = Some(Digest::of_bytes(b"x").to_string()),
        Some((short, value)) => {
            let stage = SHORT.iter().find(|(name, _)| *name == short).unwrap().1;
            let (value, generation) = match value.split_once('@') {
                Some((value, generation)) => (value, generation.parse().unwrap()),
                None => (value, BINDING_G),
            };
            let list = status.conditions.get_or_insert_default();
            list.push(binding_condition(stage, value, generation));
        }
        None => match word {
            "deleting" => bound.binding.metadata.deletion_timestamp = Some(Time(at(1))),
            "oldpolicy" => bound.current_policy = false,
            "held" => bound.held_back = true,
            "cro" => spec.cluster_resource_override_snapshots = Some(vec!["cro-0".to_owned()]),
            "ro" => {
                spec.resource_override_snapshots = Some(vec![NamespacedName {
                    name: "ro-0".to_owned(),
                    namespace: "app".to_owned(),
                }]);
            }
            "failed" => status.failed_placements = Some(["b", "a"].map(failed).into()),
            "drifted" => status.drifted_placements = Some(["b", "a"].map(drifted).into()),
            "diffed" => status.diffed_placements = Some(["b", "a"].map(diffed).into()),
            _ => panic!("unknown word {word}"),
        },
    }
}

fn binding_condition(stage: Stage, value: &str, generation: i64) -> Condition {
    let (status, reason) = match (value, stage) {
        ("T", Stage::RolloutStarted) => ("True", "RolloutStarted"),
        ("T", Stage::Overridden) => ("True", "OverriddenSucceeded"),
        ("T", Stage::WorkSynchronized) => ("True", "AllWorkSynced"),
        ("T", Stage::Applied) => ("True", "AllWorkHaveBeenApplied"),
        ("T", Stage::Available) => ("True", "AllWorkAreAvailable"),
        ("T", Stage::DiffReported) => ("True", "AllWorkHaveDiffReported"),
        ("F", Stage::RolloutStarted) => ("False", "RolloutNotStartedYet"),
        ("F", Stage::Overridden) => ("False", "OverriddenFailed"),
        ("F", Stage::WorkSynchronized) => ("False", "SyncWorkFailed"),
        ("F", Stage::Applied) => ("False", "NotAllWorkHaveBeenApplied"),
        ("F", Stage::Available) => ("False", "NotAllWorkAreAvailable"),
        ("F", Stage::DiffReported) => ("False", "NotAllWorkHaveDiffReported"),
        ("late", _) => ("False", "Timeout"),
        _ => ("Unknown", "Unheard"),
    };
    condition(stage.as_str(), status, reason, generation)
}

fn condition(type_: &str, status: &str, reason: &str, generation: i64) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: format!("message of {type_}"),
        observed_generation: Some(generation),
        last_transition_time: Time(at(BINDING_TIME)),
    }
}

fn decision(cluster: &str, selected: bool) -> ClusterDecision {
    ClusterDecision {
        cluster_name: cluster.to_owned(),
        selected,
        cluster_score: None,
        reason: format!("reason of {cluster}"),
    }
}

pub fn snapshot_name(index: &str) -> String {
    format!("web-{index}-snapshot")
}

fn identifier(name: &str) -> ResourceIdentifier {
    ResourceIdentifier {
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: name.to_owned(),
        ..ResourceIdentifier::default()
    }
}

pub fn failed(name: &str) -> FailedResourcePlacement {
    FailedResourcePlacement {
        identifier: identifier(name),
        condition: condition("Applied", "False", "ManifestApplyFailed", 1),
    }
}

fn drifted(name: &str) -> DriftedResourcePlacement {
    DriftedResourcePlacement {
        identifier: identifier(name),
        observation_time: Time(at(1)),
        target_cluster_observed_generation: 1,
        first_drifted_observed_time: Time(at(1)),
        observed_drifts: None,
    }
}

fn diffed(name: &str) -> DiffedResourcePlacement {
    DiffedResourcePlacement {
        identifier: identifier(name),
        observation_time: Time(at(1)),
        target_cluster_observed_generation: None,
        first_diffed_observed_time: Time(at(1)),
        observed_diffs: None,
    }
}

/// `idx=0 res=r0 | Sch=T RS=U/RolloutStartedUnknown`: reasons where not True, and always of OV.
pub fn placement(status: &PlacementStatus) -> String {
    let resources = status.selected_resources.iter().flatten();
    let names: Vec<_> = resources.map(|id| id.name.as_str()).collect();
    format!(
        "idx={} res={} | {}",
        status
            .observed_resource_index
            .as_deref()
            .unwrap_or_default(),
        names.join(","),
        conditions(status.conditions.as_deref().unwrap_or_default(), true)
    )
}

/// `east idx=0 | Sch=T RS=T OV=U/OverriddenPending | failed=a,b`.
pub fn entry(entry: &PerClusterPlacementStatus) -> String {
    let mut text = format!(
        "{} idx={} | {}",
        entry.cluster_name.as_deref().unwrap_or("-"),
        entry.observed_resource_index.as_deref().unwrap_or_default(),
        conditions(entry.conditions.as_deref().unwrap_or_default(), false)
    );
    let names = |ids: Vec<&ResourceIdentifier>| -> String {
        let names: Vec<_> = ids.iter().map(|id| id.name.as_str()).collect();
        names.join(",")
    };
    let mut extras = Vec::new();
    if let Some(list) = &entry.failed_placements {
        extras.push(format!(
            "failed={}",
            names(list.iter().map(|i| &i.identifier).collect())
        ));
    }
    if let Some(list) = &entry.drifted_placements {
        extras.push(format!(
            "drifted={}",
            names(list.iter().map(|i| &i.identifier).collect())
        ));
    }
    if let Some(list) = &entry.diffed_placements {
        extras.push(format!(
            "diffed={}",
            names(list.iter().map(|i| &i.identifier).collect())
        ));
    }
    if entry.applicable_cluster_resource_overrides.is_some() {
        extras.push("cro".to_owned());
    }
    if entry.applicable_resource_overrides.is_some() {
        extras.push("ro".to_owned());
    }
    if !extras.is_empty() {
        text += &format!(" | {}", extras.join(" "));
    }
    text
}

fn conditions(list: &[Condition], of_placement: bool) -> String {
    let words = list.iter().map(|condition| {
        let stage = SHORT.iter().find(|(_, stage)| {
            let type_ = if of_placement {
                stage.placement_type(Scope::Cluster)
            } else {
                stage.as_str()
            };
            condition.type_ == type_
        });
        let scheduled = if of_placement {
            placement_scheduled(Scope::Cluster)
        } else {
            "Scheduled"
        };
        let name = match stage {
            Some((name, _)) => *name,
            None if condition.type_ == scheduled => "Sch",
            None => &condition.type_,
        };
        let status = Status::parse(&condition.status);
        let mut word = format!("{name}={}", &status.as_str()[..1]);
        if status != Status::True || of_placement && name == "OV" {
            word += &format!("/{}", condition.reason);
        }
        // Left over from before: about an older generation.
        if condition.observed_generation != Some(G) {
            word += "(old)";
        }
        word
    });
    words.collect::<Vec<_>>().join(" ")
}

/// One row of a table: the placement, and its entries.
#[track_caller]
pub fn check(row: &str, world: &World, expected: &str, entries: &[&str]) -> Aggregate {
    let result = world.run(1_000);
    assert_eq!(placement(&result.status), expected, "row {row}");
    let listed = result.status.placement_statuses.iter().flatten();
    let listed: Vec<_> = listed.map(entry).collect();
    assert_eq!(listed, entries, "row {row}");
    result
}
