//! The eviction planner: which evictions may be carried out now, and what is said of the others (hub
//! reference §4). Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use windlass_api::binding::BindingState;
use windlass_api::conditions::{EvictionCondition, EvictionReason, Status};
use windlass_api::eviction::{ClusterResourcePlacementEviction, DisruptionBudgetSpec};
use windlass_api::placement::{PlacementPolicy, PlacementType};
use windlass_status::conditions::{NewCondition, find, status};
use windlass_status::defaults::{Amount, placement_type};

use crate::view::Readiness;

/// The placement that evictions name.
#[derive(Clone, Copy, Debug)]
pub enum EvictionTarget<'a> {
    /// There is none.
    Missing,
    /// It is being deleted.
    Deleting,
    /// It stays; its policy.
    Stays(Option<&'a PlacementPolicy>),
}

/// Everything that decides about the evictions of one placement.
#[derive(Clone, Copy, Debug)]
pub struct EvictionView<'a> {
    /// The placement.
    pub placement: EvictionTarget<'a>,
    /// Every binding of it, in any order.
    pub bindings: &'a [EvictionBinding<'a>],
    /// Its disruption budget.
    pub budget: Option<&'a DisruptionBudgetSpec>,
    /// Its evictions, in any order; those that are over ([`is_over`]) are passed by.
    pub evictions: &'a [&'a ClusterResourcePlacementEviction],
}

/// What the planner looks at in a binding.
#[derive(Clone, Debug)]
pub struct EvictionBinding<'a> {
    /// Its UID.
    pub uid: &'a str,
    /// Its target cluster.
    pub cluster: &'a str,
    /// Its state.
    pub state: BindingState,
    /// Unscheduled, and was Bound before: its cluster may still carry the resources.
    pub previously_bound: bool,
    /// It has been asked to go.
    pub deleting: bool,
    /// How it is with what it was last given.
    pub readiness: Readiness,
    /// It only reports differences, and has done so, or failed to, for what it was last given.
    pub diff_reported: bool,
}

/// What to do, in the order in which evictions were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionPlan {
    /// What is said of each eviction that is not over.
    pub verdicts: Vec<Verdict>,
    /// When to look again though nothing is heard: an eviction waits, and the period of a binding that can't
    /// be tracked ends.
    pub wake_at: Option<Timestamp>,
}

/// What is said of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Name of the eviction.
    pub eviction: String,
    /// What comes of it.
    pub outcome: Outcome,
    /// Why, and what to do, for people.
    pub message: String,
}

/// What comes of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It can't be carried out, now or later.
    Invalid,
    /// The binding of that UID is to be deleted, if it is still as it was seen; then it is executed.
    Evict(String),
    /// The binding has been asked to go.
    Executed,
    /// It was not allowed, and that is the end of it.
    NotExecuted,
    /// It is not allowed yet.
    Waiting,
}

/// Whether nothing will come of an eviction any more: Valid is False, or Executed is True or False, of
/// whatever generation.
#[must_use]
pub fn is_over(eviction: &ClusterResourcePlacementEviction) -> bool {
    let status_of = |type_: EvictionCondition| {
        let conditions = eviction.status.as_ref()?.conditions.as_deref()?;
        find(conditions, type_.as_str()).map(status)
    };
    status_of(EvictionCondition::Valid) == Some(Status::False)
        || matches!(
            status_of(EvictionCondition::Executed),
            Some(Status::True | Status::False)
        )
}

impl Verdict {
    /// The conditions that say so.
    #[must_use]
    pub fn conditions(&self, generation: Option<i64>) -> Vec<NewCondition<'static>> {
        let condition =
            |type_: EvictionCondition, status, reason: EvictionReason, message: &str| {
                NewCondition {
                    type_: type_.as_str(),
                    status,
                    reason: reason.as_str(),
                    message: message.to_owned(),
                    observed_generation: generation,
                }
            };
        let valid = |status, reason, message: &str| {
            condition(EvictionCondition::Valid, status, reason, message)
        };
        let (is, reason) = match self.outcome {
            Outcome::Invalid => {
                return vec![valid(Status::False, EvictionReason::Invalid, &self.message)];
            }
            Outcome::Evict(_) | Outcome::Waiting => (Status::Unknown, EvictionReason::Waiting),
            Outcome::Executed => (Status::True, EvictionReason::Executed),
            Outcome::NotExecuted => (Status::False, EvictionReason::NotExecuted),
        };
        vec![
            valid(Status::True, EvictionReason::Valid, "The eviction is valid"),
            condition(EvictionCondition::Executed, is, reason, &self.message),
        ]
    }
}

/// Decides about every eviction that is not over, by age and then by name. First row that holds:
///
/// | what holds | outcome |
/// |---|---|
/// | a binding was noted for it, and that one goes or is gone | Executed |
/// | the placement is missing, is being deleted, is PickFixed | Invalid |
/// | the cluster has several bindings, or none | Invalid |
/// | its binding has been asked to go, in this plan or before | Executed |
/// | nothing has been placed there yet | not allowed |
/// | the placement has truly failed there, or only reports differences | evict |
/// | there is no budget | evict |
/// | the budget can't be used with PickAll | not allowed |
/// | the budget has something left | evict |
/// | otherwise | not allowed |
///
/// What is not allowed is NotExecuted, or Waiting if the eviction is to wait.
///
/// What the budget has left, with a percentage of *desired* rounded up; PickN has N desired, PickAll 0:
///
/// | budget | left |
/// |---|---|
/// | maxUnavailable | that − (all − available), all being the bindings in any state, and *desired* at least |
/// | minAvailable | available − that |
/// | neither | 0 |
///
/// Available is a ready binding that has not been asked to go. What is on its way, or isn't heard of, is
/// unavailable, and evicting it needs something left of the budget like any other: only the peer takes it for
/// failed (trap T1). Where a PickN has fewer bindings than it wants, the missing ones are unavailable, as they
/// are in a rollout: else the same budget would be spent again whenever an evicted cluster can't be replaced.
/// Each victim counts for the evictions after it, so that no plan spends a budget twice (invariant I2).
#[must_use]
pub fn plan_evictions(view: &EvictionView<'_>, now: Timestamp) -> EvictionPlan {
    let mut open: Vec<_> = view.evictions.iter().filter(|e| !is_over(e)).collect();
    let age = |e: &ClusterResourcePlacementEviction| {
        e.metadata.creation_timestamp.as_ref().map(|time| time.0)
    };
    open.sort_by(|a, b| (age(a), &a.metadata.name).cmp(&(age(b), &b.metadata.name)));
    let mut ledger = Ledger {
        view,
        now,
        going: view
            .bindings
            .iter()
            .filter(|b| b.deleting)
            .map(|b| b.uid)
            .collect(),
    };
    let verdicts: Vec<Verdict> = open
        .into_iter()
        .map(|eviction| {
            let (outcome, message) = ledger.decide(eviction);
            Verdict {
                eviction: eviction.metadata.name.clone().unwrap_or_default(),
                outcome,
                message,
            }
        })
        .collect();
    let waits = verdicts.iter().any(|v| v.outcome == Outcome::Waiting);
    let periods = view.bindings.iter().filter_map(|b| match b.readiness {
        Readiness::ReadyAt(at) if at > now => Some(at),
        _ => None,
    });
    EvictionPlan {
        wake_at: periods.min().filter(|_| waits),
        verdicts,
    }
}

struct Ledger<'a> {
    view: &'a EvictionView<'a>,
    now: Timestamp,
    /// UIDs of the bindings that have been asked to go, in this plan or before.
    going: Vec<&'a str>,
}

impl<'a> Ledger<'a> {
    fn decide(&mut self, eviction: &ClusterResourcePlacementEviction) -> (Outcome, String) {
        let (placement, cluster) = (&eviction.spec.placement_name, &eviction.spec.cluster_name);
        let noted = eviction.status.as_ref().and_then(|s| s.evicting.as_deref());
        if let Some(uid) = noted
            && !self.stands(uid)
        {
            let message = said(eviction)
                .unwrap_or_else(|| format!("Evicted: {placement} from cluster {cluster}"));
            return (Outcome::Executed, message);
        }
        let policy = match self.policy(placement, cluster) {
            Ok(policy) => policy,
            Err(why) => return (Outcome::Invalid, why),
        };
        let view = self.view;
        let there: Vec<_> = view
            .bindings
            .iter()
            .filter(|b| b.cluster == cluster)
            .collect();
        let binding = match there[..] {
            [binding] => binding,
            [] => {
                let why = format!(
                    "ClusterResourcePlacement {placement} is not on cluster {cluster}: there is nothing to evict"
                );
                return (Outcome::Invalid, why);
            }
            [..] => {
                let why = format!(
                    "ClusterResourcePlacement {placement} has {} bindings for cluster {cluster}; create another \
                     eviction once there is only one",
                    there.len()
                );
                return (Outcome::Invalid, why);
            }
        };
        if self.going.contains(&binding.uid) {
            let message = format!(
                "What {placement} has placed on cluster {cluster} is being removed already"
            );
            return (Outcome::Executed, message);
        }
        match self.may_go(binding, placement, policy) {
            Ok(why) => {
                self.going.push(binding.uid);
                (Outcome::Evict(binding.uid.to_owned()), why)
            }
            Err(why) if eviction.spec.waits() => (Outcome::Waiting, why),
            Err(why) => {
                let hint = "create another eviction to try again, or one with spec.retry: WhenAllowed, which waits";
                (Outcome::NotExecuted, format!("{why}; {hint}"))
            }
        }
    }

    /// Whether a binding is there, and has not been asked to go.
    fn stands(&self, uid: &str) -> bool {
        self.view.bindings.iter().any(|b| b.uid == uid) && !self.going.contains(&uid)
    }

    /// The placement's policy, or why nothing of it can be evicted.
    fn policy(
        &self,
        placement: &str,
        cluster: &str,
    ) -> Result<Option<&'a PlacementPolicy>, String> {
        let policy = match self.view.placement {
            EvictionTarget::Missing => {
                return Err(format!(
                    "There is no ClusterResourcePlacement {placement}; create another eviction with the right \
                     placementName"
                ));
            }
            EvictionTarget::Deleting => {
                return Err(format!(
                    "ClusterResourcePlacement {placement} is being deleted: what it has placed is removed from \
                     every cluster"
                ));
            }
            EvictionTarget::Stays(policy) => policy,
        };
        if placement_type(policy) == PlacementType::PickFixed {
            return Err(format!(
                "ClusterResourcePlacement {placement} names its clusters (PickFixed), so it can't be evicted; take \
                 {cluster} out of its spec.policy.clusterNames instead"
            ));
        }
        Ok(policy)
    }

    /// Whether the binding may go, and why.
    fn may_go(
        &self,
        binding: &EvictionBinding<'_>,
        placement: &str,
        policy: Option<&PlacementPolicy>,
    ) -> Result<String, String> {
        let cluster = binding.cluster;
        let is_placed = match binding.state {
            BindingState::Bound => true,
            BindingState::Unscheduled => binding.previously_bound,
            BindingState::Scheduled | BindingState::Other(_) => false,
        };
        if !is_placed {
            return Err(format!(
                "Not allowed: {placement} has been scheduled to cluster {cluster}, and nothing has been placed there \
                 yet"
            ));
        }
        if matches!(binding.readiness, Readiness::Failed | Readiness::Refused) {
            return Ok(format!(
                "Evicted: {placement} has failed on cluster {cluster}, so that its budget does not count"
            ));
        }
        if binding.diff_reported || binding.readiness == Readiness::DiffReported {
            return Ok(format!(
                "Evicted: {placement} only reports differences on cluster {cluster}, so that its budget does not count"
            ));
        }
        let Some(budget) = self.view.budget else {
            return Ok(format!(
                "Evicted: there is no ClusterResourcePlacementDisruptionBudget {placement}"
            ));
        };
        let left = self.left(budget, placement, policy)?;
        if left.number > 0 {
            Ok(format!("Evicted: {}", left.sum))
        } else {
            Err(format!(
                "Not allowed by the disruption budget: {}",
                left.sum
            ))
        }
    }

    fn left(
        &self,
        budget: &DisruptionBudgetSpec,
        placement: &str,
        policy: Option<&PlacementPolicy>,
    ) -> Result<Left, String> {
        let picks_all = placement_type(policy) == PlacementType::PickAll;
        let share = |value: &IntOrString| matches!(Amount::read(value), Some(Amount::Percent(_)));
        if picks_all
            && (budget.max_unavailable.is_some()
                || budget.min_available.as_ref().is_some_and(share))
        {
            return Err(format!(
                "Not allowed: ClusterResourcePlacementDisruptionBudget {placement} can't be used with PickAll, which \
                 has no number of clusters to start from; give minAvailable as a number"
            ));
        }
        let desired = policy
            .filter(|_| !picks_all)
            .and_then(|policy| policy.number_of_clusters)
            .and_then(|number| u32::try_from(number).ok())
            .unwrap_or(0);
        let bindings = self.view.bindings;
        let is_available = |b: &&EvictionBinding<'_>| {
            !self.going.contains(&b.uid) && serves(b.readiness, self.now)
        };
        let available = count(bindings.iter().filter(is_available).count());
        let total = count(bindings.len());
        // The schema refuses what is neither a number nor a percentage.
        let scaled = |value: &IntOrString| {
            i64::from(Amount::read(value).map_or(0, |amount| amount.of_total(desired)))
        };
        let (number, rule) = match (&budget.max_unavailable, &budget.min_available) {
            (Some(most), _) => {
                let unavailable = total.max(i64::from(desired)) - available;
                let rule = format!("maxUnavailable {}", shown(most));
                (scaled(most) - unavailable, rule)
            }
            (None, Some(fewest)) => {
                let rule = format!("minAvailable {}", shown(fewest));
                (available - scaled(fewest), rule)
            }
            (None, None) => (0, "neither maxUnavailable nor minAvailable".to_owned()),
        };
        let wanted = if picks_all {
            String::new()
        } else {
            format!(", {desired} desired")
        };
        let sum = format!(
            "{available} of {total} cluster(s) available{wanted}, {rule}: {} may be evicted",
            number.max(0)
        );
        Ok(Left { number, sum })
    }
}

/// What the eviction says of its execution.
fn said(eviction: &ClusterResourcePlacementEviction) -> Option<String> {
    let conditions = eviction.status.as_ref()?.conditions.as_deref()?;
    find(conditions, EvictionCondition::Executed.as_str()).map(|c| c.message.clone())
}

/// What is left of a budget.
struct Left {
    number: i64,
    /// How that comes about.
    sum: String,
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn shown(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    }
}

/// Whether what was placed is available now.
fn serves(readiness: Readiness, now: Timestamp) -> bool {
    match readiness {
        Readiness::Ready | Readiness::Withheld => true,
        Readiness::ReadyAt(at) => at <= now,
        Readiness::DiffReported
        | Readiness::InProgress
        | Readiness::Failed
        | Readiness::Refused
        | Readiness::Unreachable => false,
    }
}
