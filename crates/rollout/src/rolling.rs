//! The plan.

use std::collections::BTreeSet;

use jiff::Timestamp;
use windlass_api::binding::BindingState;

use crate::ledger::Ledger;
use crate::view::{Readiness, RollingView, RolloutBinding};

/// What to do now. Each list is in the order of binding names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RollingPlan {
    /// Bound bindings to give the wanted content to.
    pub update: Vec<String>,
    /// Scheduled bindings to bind.
    pub bind: Vec<String>,
    /// Unscheduled bindings to delete.
    pub remove: Vec<String>,
    /// Bound and Scheduled bindings that wait for their turn (RolloutStarted False).
    pub held: Vec<String>,
    /// When to plan again if nothing is heard until then: something waits, and the period of a binding
    /// that can't be tracked ends.
    pub wake_at: Option<Timestamp>,
}

/// Decides which bindings move now.
///
/// Available is a cluster with a ready live binding and without one that is being deleted. Let *spare*
/// be the available clusters beyond target − maxUnavailable, and *slots* be maxUnavailable (one at
/// least) less the bindings that are on target and not ready yet. In this order, each by name:
///
/// | step | bindings | limit |
/// |---|---|---|
/// | 1 | Bound, off target by settings that touch no object | none |
/// | 2 | Bound, off target, failed | none; takes a slot |
/// | 3 | Unscheduled, never bound, or failed, or in progress | none: no availability is lost |
/// | 4 | Unscheduled, unreachable or in its waiting period | spare is not negative |
/// | 5 | Unscheduled, ready | spare |
/// | 6 | Bound, off target, in progress | slots |
/// | 7 | Bound, off target, ready | spare |
/// | 8 | Bound, off target, unreachable or in its waiting period | spare is not negative |
/// | 9 | Scheduled; those that can be reached first | target + maxSurge − bindings that hold or may hold the resources |
///
/// Where spare must not be negative (4, 8), the binding may well serve although it isn't counted as
/// available: the others have to suffice without it, so that even if it does, no more than
/// maxUnavailable are disturbed.
///
/// A Bound or Scheduled binding waits while another binding of its cluster is being deleted.
///
/// The peer takes what is in progress for failed and moves it without limit (trap T1). Here it has the
/// slots: a first version that never becomes ready can be replaced, and yet no more clusters than
/// maxUnavailable go to the next version before one of them has shown that it works. Reconnecting half a
/// fleet moves no more than the budget, since what isn't heard of is never available.
///
/// Where it can't be said yet what is wanted, nothing moves. Such a cluster that has yet to get its first, and
/// that nothing on its way out serves in the place of, is no part of target in *spare*: the others don't wait.
///
/// A cluster that refused what it was given, with nothing known to serve there, counts as failed, and target
/// in *spare* is without it until it is given something else.
///
/// From a cluster that is on target something may be *withheld*: it can't be placed anywhere, so that nothing
/// was sent and the old content serves on. Such a cluster is available, and is moved and removed as a ready
/// one is. But the fault may be of the whole version, and may end without any write of a binding (the hub is
/// started with other flags): then every cluster that was given that version gets it at once. So it has its
/// slot until then, and *spare* for others is without it. No more than maxUnavailable clusters are thus given
/// what can't be placed; the rest lose nothing by waiting, since they could not get it either. (An override
/// that can't be worked in costs nothing at all: it ends by a change that needs leave, cluster by cluster.)
///
/// With maxUnavailable 0 a ready cluster can't be updated, and with maxSurge 0 as well none can be
/// replaced: those who ask for both wait for ever, as with the peer.
#[must_use]
pub fn plan_rolling(view: &RollingView<'_>, now: Timestamp) -> RollingPlan {
    let mut bindings: Vec<_> = view.bindings.iter().filter(|b| !b.deleting).collect();
    bindings.sort_by_key(|b| b.name);
    let mut ledger = Ledger::new(view, now);
    let mut plan = RollingPlan::default();

    let update: Vec<_> = bindings
        .iter()
        .copied()
        .filter(|b| b.state == BindingState::Bound && !b.on_target && !b.waits)
        .collect();
    update_unlimited(&update, &mut ledger, &mut plan);
    let removals_wait = remove(&bindings, &mut ledger, &mut plan);
    update_within_budget(&update, &mut ledger, &mut plan);
    bind(&bindings, &mut ledger, &mut plan);

    let chosen: BTreeSet<&str> = plan
        .update
        .iter()
        .chain(&plan.bind)
        .map(String::as_str)
        .collect();
    let held = bindings.iter().filter(|b| {
        let waits = match b.state {
            BindingState::Bound => !b.on_target,
            BindingState::Scheduled => true,
            BindingState::Unscheduled | BindingState::Other(_) => false,
        };
        waits && !chosen.contains(b.name)
    });
    let held: Vec<_> = held.map(|b| b.name.to_owned()).collect();
    if removals_wait || !held.is_empty() {
        plan.wake_at = bindings
            .iter()
            .filter_map(|b| match b.readiness {
                Readiness::ReadyAt(at) if at > now => Some(at),
                _ => None,
            })
            .min();
    }
    plan.held = held;
    for list in [&mut plan.update, &mut plan.bind, &mut plan.remove] {
        list.sort_unstable();
    }
    plan
}

/// Steps 1 and 2.
fn update_unlimited<'a>(
    candidates: &[&RolloutBinding<'a>],
    ledger: &mut Ledger<'a>,
    plan: &mut RollingPlan,
) {
    for binding in candidates.iter().filter(|b| !ledger.is_leaving(b.cluster)) {
        if binding.settings_only {
            plan.update.push(binding.name.to_owned());
        }
    }
    for binding in candidates {
        let was = ledger.readiness(binding);
        let failed = matches!(was, Readiness::Failed | Readiness::Refused);
        if failed && !binding.settings_only && !ledger.is_leaving(binding.cluster) {
            ledger.note_second_chance(was);
            plan.update.push(binding.name.to_owned());
        }
    }
}

/// Steps 3 to 5. Tells whether any has to wait.
fn remove<'a>(
    bindings: &[&RolloutBinding<'a>],
    ledger: &mut Ledger<'a>,
    plan: &mut RollingPlan,
) -> bool {
    let mut ready = Vec::new();
    let mut wait = false;
    for binding in bindings
        .iter()
        .filter(|b| b.state == BindingState::Unscheduled)
    {
        let may_go = match ledger.readiness(binding) {
            _ if !binding.previously_bound => true,
            Readiness::Failed | Readiness::Refused | Readiness::InProgress => {
                ledger.give_up(binding.cluster)
            }
            Readiness::Unreachable | Readiness::ReadyAt(_) => {
                ledger.is_floor_kept() && ledger.give_up(binding.cluster)
            }
            Readiness::Ready | Readiness::DiffReported | Readiness::Withheld => {
                ready.push(binding);
                continue;
            }
        };
        if may_go {
            plan.remove.push(binding.name.to_owned());
        } else {
            wait = true;
        }
    }
    for binding in ready {
        if ledger.give_up(binding.cluster) {
            plan.remove.push(binding.name.to_owned());
        } else {
            wait = true;
        }
    }
    wait
}

/// Steps 6 to 8.
fn update_within_budget<'a>(
    candidates: &[&RolloutBinding<'a>],
    ledger: &mut Ledger<'a>,
    plan: &mut RollingPlan,
) {
    for step in 6..=8 {
        for binding in candidates {
            if binding.settings_only || ledger.is_leaving(binding.cluster) {
                continue;
            }
            let may_go = match (step, ledger.readiness(binding)) {
                (6, Readiness::InProgress) => ledger.take_slot(),
                (7, Readiness::Ready | Readiness::DiffReported | Readiness::Withheld) => {
                    ledger.give_up(binding.cluster)
                }
                (8, Readiness::Unreachable | Readiness::ReadyAt(_)) => ledger.is_floor_kept(),
                _ => false,
            };
            if may_go {
                plan.update.push(binding.name.to_owned());
            }
        }
    }
}

/// Step 9.
fn bind<'a>(bindings: &[&RolloutBinding<'a>], ledger: &mut Ledger<'a>, plan: &mut RollingPlan) {
    let mut candidates: Vec<_> = bindings
        .iter()
        .filter(|b| b.state == BindingState::Scheduled && !b.waits)
        .collect();
    // Stable: by name within each class.
    candidates.sort_by_key(|b| b.readiness == Readiness::Unreachable);
    for binding in candidates {
        if !ledger.is_leaving(binding.cluster) && ledger.add(binding.cluster) {
            plan.bind.push(binding.name.to_owned());
        }
    }
}
