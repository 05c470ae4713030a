//! What runs have to know, read off the world; and what they change, put into what is written of bindings.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use windlass_api::binding::BindingSpec;
use windlass_api::conditions::{RunCondition, Stage, Status};
use windlass_api::member::MemberCluster;
use windlass_api::placement::RolloutStrategyType;
use windlass_api::run::{ApprovalRequestSpec, MembershipChanges, UpdateRunStatus};
use windlass_api::scoped::{ApprovalRequest, Binding, Placement, Scope, UpdateRun, UpdateStrategy};
use windlass_api::{Condition, labels};
use windlass_rollout::run::{Ask, Member, RunBinding, RunPlan, is_initialized};
use windlass_status::conditions::is_true;
use windlass_status::defaults::rollout_type;
use windlass_status::freshness::{self, Freshness, lag};
use windlass_status::processing::reachable_since;
use windlass_status::ready::{Facts, Readiness, classify};

use super::super::bindings::{BindingPlan, Digests};
use crate::overrides::leave;
use crate::overrides::resolve::{Lists, Resolved};

use super::Around;

/// How long what a run goes by may come after it.
const GRACE: SignedDuration = SignedDuration::from_secs(10);

/// Why no run can be made for a placement.
pub(super) fn unfit(placement: &Placement) -> Option<String> {
    let name = placement.name_any();
    match rollout_type(placement.spec.strategy.as_ref()) {
        RolloutStrategyType::External => None,
        RolloutStrategyType::RollingUpdate => Some(format!(
            "placement {name} does not have strategy type External, so the hub rolls it out itself"
        )),
    }
}

/// What a run has to wait for: versions of overrides that have no snapshot yet.
pub(super) fn unresolved(
    overrides: &Resolved,
    selected: &BTreeSet<&str>,
    bindings: &[Arc<Binding>],
) -> Option<String> {
    let waits = selected.iter().any(|cluster| overrides.waits(&on(cluster)));
    waits.then(|| {
        let notes = overrides.notes(bindings).join("; ");
        format!("Waiting for the snapshots of overrides: {notes}")
    })
}

/// The status of a run that ends here, for that reason.
pub(super) fn ended(run: &UpdateRun, why: &str, now: Timestamp) -> UpdateRunStatus {
    if is_initialized(run) {
        windlass_rollout::run::fail(run, why, now)
    } else {
        windlass_rollout::run::refuse(run, why, now)
    }
}

pub(super) fn is_initialized_by(status: &UpdateRunStatus) -> bool {
    let list = status.conditions.as_deref().unwrap_or_default();
    is_true(list, RunCondition::Initialized.as_str())
}

/// Whether a run is to bring whatever the content is when it begins.
pub(super) fn wants_latest(run: &UpdateRun) -> bool {
    let index = run.spec.resource_snapshot_index.as_deref();
    index.is_none_or(str::is_empty)
}

/// Until when what a run goes by may come after it, as with one `kubectl apply` of everything.
pub(super) fn grace(run: &UpdateRun) -> Option<Timestamp> {
    let created = run.metadata.creation_timestamp.as_ref()?.0;
    created.checked_add(GRACE).ok()
}

pub(super) fn unknown_strategy(
    run: &UpdateRun,
    strategy: Option<&UpdateStrategy>,
    now: Timestamp,
) -> Option<String> {
    let is_early = grace(run).is_some_and(|end| end > now);
    (strategy.is_none() && is_early).then(|| {
        let name = &run.spec.staged_rollout_strategy_name;
        format!("Waiting a moment for strategy {name}, which does not exist")
    })
}

/// A policy that is not fulfilled may be in a moment; only a strict run ends by it, as upstream's do.
pub(super) fn unfulfilled(run: &UpdateRun, around: &Around<'_>) -> Option<String> {
    let why = around.unfulfilled?;
    let is_strict = run.spec.membership_changes == Some(MembershipChanges::Fail);
    (!is_strict).then(|| format!("Waiting until the placement's policy is fulfilled: {why}"))
}

pub(super) fn on(cluster: &str) -> BindingSpec {
    BindingSpec {
        target_cluster: cluster.to_owned(),
        ..BindingSpec::default()
    }
}

/// The bindings as runs see them.
pub(super) fn bindings_for_runs<'a>(
    around: &Around<'_>,
    live: &'a [Arc<Binding>],
    clusters: &[Arc<MemberCluster>],
) -> Vec<RunBinding<'a>> {
    let mut digests = Digests::default();
    // A hub that has just started is not connected yet: what it wrote before it ended still says how they are.
    let well: HashSet<&str> = clusters
        .iter()
        .filter(|cluster| reachable_since(cluster).is_some())
        .filter_map(|cluster| cluster.metadata.name.as_deref())
        .collect();
    let mut view = |binding: &'a Arc<Binding>| {
        let desired = digests.of(binding, around.groups, around.latest, around.overrides);
        let facts = Facts {
            binding,
            desired_digest: desired,
            unreachable: around.unreachable.contains(&binding.spec.target_cluster),
            unavailable_period: SignedDuration::ZERO,
        };
        let unheard = facts.unreachable && well.contains(binding.spec.target_cluster.as_str());
        let annotations = binding.metadata.annotations.as_ref();
        let fresh = Freshness::of(binding, desired);
        RunBinding {
            name: binding.metadata.name.as_deref().unwrap_or_default(),
            spec: &binding.spec,
            deleting: binding.metadata.deletion_timestamp.is_some(),
            moved_by: annotations
                .and_then(|all| all.get(labels::MOVED_BY_RUN))
                .map(String::as_str),
            unheard,
            readiness: match classify(&facts, around.now) {
                Readiness::Unreachable if unheard => Readiness::InProgress,
                Readiness::Unreachable => Readiness::Unreachable,
                // What was asked for before something else, and is asked for again, was not seen to be there since.
                _ if lag(binding) != 0 => Readiness::InProgress,
                told => told,
            },
            why: first_trouble(binding, fresh),
        }
    };
    live.iter().map(&mut view).collect()
}

pub(super) fn lists(overrides: &Resolved, cluster: &str) -> Lists {
    overrides.lists(&on(cluster))
}

/// The clusters that are there and don't leave.
pub(super) fn members(clusters: &[Arc<MemberCluster>]) -> Vec<Member<'_>> {
    let staying = clusters
        .iter()
        .filter(|cluster| cluster.metadata.deletion_timestamp.is_none());
    staying
        .map(|cluster| Member {
            name: cluster.metadata.name.as_deref().unwrap_or_default(),
            labels: cluster.labels(),
        })
        .collect()
}

/// The first condition about the present version that is not True.
pub(super) fn first_trouble(binding: &Binding, fresh: Freshness) -> Option<&Condition> {
    let stages = Stage::APPLY.into_iter().chain([Stage::DiffReported]);
    stages
        .filter_map(|stage| freshness::condition(binding, fresh, stage))
        .find(|condition| condition.status != Status::True.as_str())
}

/// A request belongs to its run, and goes with it.
pub(super) fn request(run: &UpdateRun, ask: &Ask) -> ApprovalRequest {
    let name = run.name_any();
    let mut request = ApprovalRequest::new(
        &ask.name,
        ApprovalRequestSpec {
            parent_stage_rollout: name.clone(),
            target_stage: ask.stage.clone(),
        },
    )
    .within(run.metadata.namespace.as_deref().unwrap_or_default());
    let task = if ask.before {
        "beforeStage"
    } else {
        "afterStage"
    };
    let known = [
        (labels::TARGET_RUN, name.as_str()),
        (labels::TARGET_STAGE, &ask.stage),
        (labels::TASK_TYPE, task),
        (labels::IS_LATEST_APPROVAL, "true"),
    ];
    let pair = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    request.metadata.labels = Some(known.into_iter().map(pair).collect());
    let scope = Scope::of(run);
    request.metadata.owner_references = Some(vec![OwnerReference {
        api_version: UpdateRun::api_version(&scope).into_owned(),
        kind: UpdateRun::kind(&scope).into_owned(),
        name,
        uid: run.uid().unwrap_or_default(),
        ..OwnerReference::default()
    }]);
    request
}

/// Puts what a run does to bindings into what is written of them.
pub(super) fn apply(
    plan: &mut BindingPlan,
    bindings: &[Arc<Binding>],
    run: &UpdateRun,
    decided: &RunPlan,
) {
    if decided.moves.is_empty() && decided.remove.is_empty() {
        return;
    }
    let name_of = |binding: &Binding| binding.metadata.name.clone().unwrap_or_default();
    let live: HashMap<String, &Arc<Binding>> = bindings
        .iter()
        .map(|binding| (name_of(binding), binding))
        .collect();
    let removed: HashSet<&String> = decided.remove.iter().collect();
    plan.replace
        .retain(|binding| !removed.contains(&name_of(binding)));
    let mut gone: HashSet<String> = plan.delete.iter().map(|binding| name_of(binding)).collect();
    for binding in decided.remove.iter().filter_map(|name| live.get(name)) {
        if gone.insert(name_of(binding)) {
            plan.delete.push(Arc::clone(binding));
        }
    }
    let known = plan.replace.iter().enumerate();
    let mut place: HashMap<String, usize> =
        known.map(|(at, binding)| (name_of(binding), at)).collect();
    for change in &decided.moves {
        let Some(binding) = live
            .get(&change.binding)
            .filter(|_| !gone.contains(&change.binding))
        else {
            continue;
        };
        let at = *place.entry(change.binding.clone()).or_insert_with(|| {
            plan.replace.push((***binding).clone());
            plan.replace.len() - 1
        });
        let Some(binding) = plan.replace.get_mut(at) else {
            continue;
        };
        change.target.set(&mut binding.spec);
        leave::give(binding, None);
        let mark = (
            labels::MOVED_BY_RUN.to_owned(),
            run.uid().unwrap_or_default(),
        );
        binding.annotations_mut().extend([mark]);
    }
}

pub(super) fn sooner(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}
