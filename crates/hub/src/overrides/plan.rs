//! Which snapshots of an override there have to be (hub §5.1). Pure.
//!
//! The new snapshot is made before the label of the old one goes, so that there is a latest at every moment
//! (trap T15). Of two that are labelled, the higher one counts.

/// Snapshots kept of one override.
pub const HISTORY: usize = 10;

/// A snapshot, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its index.
    pub index: u64,
    /// Whether it is a snapshot of the present version.
    pub is_current: bool,
    /// Whether it is labelled as the latest.
    pub is_labelled: bool,
    /// Whether the override owns it.
    pub is_owned: bool,
    /// Whether a binding, or a run that is not over, names it.
    pub in_use: bool,
}

/// What becomes of the override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays.
    Stays,
    /// It is being deleted, or is gone.
    Goes,
}

/// What to write, in this order. Positions are those in the list of facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Index of a new snapshot, which is the latest and owned.
    pub create: Option<u64>,
    /// Snapshots whose marks change: position, whether it is the latest, whether it is owned.
    pub mark: Vec<(usize, bool, bool)>,
    /// Snapshots that go.
    pub expired: Vec<usize>,
}

/// Decides what to write:
///
/// | the override | its snapshots |
/// |---|---|
/// | stays, the highest is of its version | that one is the latest |
/// | stays, otherwise | a new one is, with the next index |
/// | goes | none is; those that no binding names go with it, the others are let go, and go once the last binding has moved on |
///
/// More than [`HISTORY`] are not kept, but for those that a binding names.
#[must_use]
pub fn plan(fate: Fate, facts: &[Facts]) -> Plan {
    let highest = facts.iter().map(|fact| fact.index).max();
    let current = match fate {
        Fate::Goes => None,
        Fate::Stays => facts
            .iter()
            .position(|fact| Some(fact.index) == highest && fact.is_current),
    };
    let mut plan = Plan::default();
    let mut limit = HISTORY;
    match fate {
        Fate::Goes => limit = 0,
        Fate::Stays if current.is_none() => {
            plan.create = Some(highest.map_or(0, |index| index + 1));
            limit -= 1;
        }
        Fate::Stays => {}
    }
    let mut oldest: Vec<usize> = (0..facts.len())
        .filter(|at| !facts[*at].in_use && Some(*at) != current)
        .collect();
    oldest.sort_by_key(|at| facts[*at].index);
    oldest.truncate(facts.len().saturating_sub(limit));
    plan.expired = oldest;
    for (at, fact) in facts.iter().enumerate() {
        let marks = (Some(at) == current, fate == Fate::Stays);
        if marks != (fact.is_labelled, fact.is_owned) && !plan.expired.contains(&at) {
            plan.mark.push((at, marks.0, marks.1));
        }
    }
    plan
}
