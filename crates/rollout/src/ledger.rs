//! The arithmetic of a rolling plan (hub reference §1.9.4, with the classes of design §5.8).

use std::collections::BTreeSet;

use jiff::Timestamp;
use windlass_api::binding::BindingState;

use crate::budget::resolve;
use crate::view::{Readiness, RollingView, RolloutBinding};

/// What may still be spent in this plan.
pub(crate) struct Ledger<'a> {
    /// Clusters that are available now: a live binding there is ready, and none is being deleted.
    available: BTreeSet<&'a str>,
    /// Those of them that may get what they are to get at any moment, without another leave.
    withheld: BTreeSet<&'a str>,
    /// Clusters with a binding that is being deleted.
    leaving: BTreeSet<&'a str>,
    /// Clusters with a live binding that holds, or may hold, the resources.
    held: BTreeSet<&'a str>,
    /// Fewest clusters that have to stay available.
    floor: usize,
    /// Fewest clusters that would have to if none refused what is wanted.
    most: usize,
    /// Not-ready bindings that may be on their way to the target at once.
    slots: usize,
    /// Clusters that may get the resources anew.
    additions: usize,
    now: Timestamp,
}

impl<'a> Ledger<'a> {
    pub(crate) fn new(view: &RollingView<'a>, now: Timestamp) -> Self {
        let max_unavailable = resolve(view.max_unavailable, view.target);
        let max_surge = resolve(view.max_surge, view.target);
        let clusters = |wanted: &dyn Fn(&RolloutBinding<'_>) -> bool| -> BTreeSet<&'a str> {
            let bindings = view.bindings.iter().filter(|b| wanted(b));
            bindings.map(|b| b.cluster).collect()
        };
        let leaving = clusters(&|b| b.deleting);
        let held = clusters(&|b| !b.deleting && may_hold(b));
        let serves = |b: &RolloutBinding<'_>, as_what: &[Readiness]| {
            !b.deleting && may_hold(b) && as_what.contains(&settled(b, now))
        };
        let mut available = clusters(&|b| serves(b, &[Ready, DiffReported, Withheld]));
        available.retain(|cluster| !leaving.contains(cluster));
        let mut withheld = clusters(&|b| serves(b, &[Withheld]));
        withheld.retain(|cluster| available.contains(cluster));
        let refused = clusters(&|b| {
            b.state == BindingState::Bound && !b.deleting && settled(b, now) == Refused
        });
        let counted = |cluster: &&&str| leaving.contains(*cluster) || available.contains(*cluster);
        let refused = refused.iter().filter(|c| !counted(c)).count();
        let waiting = clusters(&|b| b.state == BindingState::Scheduled && !b.deleting && b.waits);
        let waiting = waiting.iter().filter(|c| !counted(c) && !held.contains(*c));
        // What is on its way out serves in the place of one that waits.
        let instead = clusters(&|b| b.state == BindingState::Unscheduled && !b.deleting);
        let instead = instead.intersection(&available).count();
        let waiting = waiting.count().saturating_sub(instead);
        let moving = view.bindings.iter().filter(|b| is_moving(b, now)).count();
        let loads = view.bindings.iter().filter(|b| is_load(b, now)).count();
        Ledger {
            // Mending an override may take for ever; the other clusters don't wait for that.
            floor: view
                .target
                .saturating_sub(refused)
                .saturating_sub(waiting)
                .saturating_sub(max_unavailable),
            most: view.target.saturating_sub(max_unavailable),
            // One at least: a cluster that isn't available loses nothing by moving, and with
            // maxUnavailable 0 a version that never becomes ready could never be replaced.
            slots: max_unavailable.max(1).saturating_sub(moving),
            additions: view.target.saturating_add(max_surge).saturating_sub(loads),
            available,
            withheld,
            leaving,
            held,
            now,
        }
    }

    /// How the binding is at this moment.
    pub(crate) fn readiness(&self, binding: &RolloutBinding<'_>) -> Readiness {
        settled(binding, self.now)
    }

    /// A binding of the same cluster is still being deleted: its removal would take the new content
    /// along. Its end is an event, so that nothing is polled.
    pub(crate) fn is_leaving(&self, cluster: &str) -> bool {
        self.leaving.contains(cluster)
    }

    /// The clusters that are available suffice, whatever happens to the others. Then those others, with
    /// what is on its way, are no more than maxUnavailable.
    pub(crate) fn is_floor_kept(&self) -> bool {
        self.lasting() >= self.floor
    }

    /// Gives up a cluster; `false` when it is available and none can be spared. One from which something is
    /// withheld is among those that may go down anyhow: to give it up takes nothing from the others.
    pub(crate) fn give_up(&mut self, cluster: &str) -> bool {
        if !self.available.contains(cluster) {
            return true;
        }
        let suffices = if self.withheld.contains(cluster) {
            self.available.len() > self.floor
        } else {
            self.lasting() > self.floor
        };
        if suffices {
            self.available.remove(cluster);
            self.withheld.remove(cluster);
        }
        suffices
    }

    /// How many clusters are available even if all that is withheld goes out now.
    fn lasting(&self) -> usize {
        self.available.len().saturating_sub(self.withheld.len())
    }

    /// Counts a failed binding that gets another chance: it is on its way, and a load again. One that
    /// refused what it had may take this: it is among those that count.
    pub(crate) fn note_second_chance(&mut self, was: Readiness) {
        if was == Refused {
            self.floor = self.floor.saturating_add(1).min(self.most);
        }
        self.slots = self.slots.saturating_sub(1);
        self.additions = self.additions.saturating_sub(1);
    }

    /// Takes one of the places for not-ready bindings on their way.
    pub(crate) fn take_slot(&mut self) -> bool {
        let free = self.slots > 0;
        self.slots = self.slots.saturating_sub(1);
        free
    }

    /// Puts the resources on another cluster.
    pub(crate) fn add(&mut self, cluster: &'a str) -> bool {
        if self.additions == 0 || !self.held.insert(cluster) {
            return false;
        }
        self.additions -= 1;
        true
    }
}

use Readiness::{DiffReported, Failed, Ready, ReadyAt, Refused, Unreachable, Withheld};

/// A waiting period that has ended is over.
fn settled(binding: &RolloutBinding<'_>, now: Timestamp) -> Readiness {
    match binding.readiness {
        ReadyAt(at) if at <= now => Ready,
        other => other,
    }
}

/// Whether the resources may be on the binding's cluster because of it.
fn may_hold(binding: &RolloutBinding<'_>) -> bool {
    match binding.state {
        BindingState::Scheduled => false,
        BindingState::Unscheduled => binding.previously_bound,
        BindingState::Bound | BindingState::Other(_) => true,
    }
}

/// Whether the binding is on its way to the target, or stuck there.
fn is_moving(binding: &RolloutBinding<'_>, now: Timestamp) -> bool {
    binding.state == BindingState::Bound
        && !binding.deleting
        && binding.on_target
        && !matches!(settled(binding, now), Ready | DiffReported | Refused)
}

/// Whether the binding counts against target + maxSurge. A true failure doesn't, so that it can be
/// replaced; nor does a cluster that is on its way out and isn't heard of: it may never come back, and
/// the clusters meant to replace it can't wait for that.
fn is_load(binding: &RolloutBinding<'_>, now: Timestamp) -> bool {
    let going = binding.deleting || binding.state == BindingState::Unscheduled;
    may_hold(binding)
        && match settled(binding, now) {
            Failed | Refused | DiffReported => false,
            Unreachable => !going,
            Ready | ReadyAt(_) | Readiness::InProgress | Withheld => true,
        }
}
