//! How many evictions there are, by what has come of them. Which one, the objects tell: a series for each
//! would stay for ever, for nobody deletes them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, IntGaugeVec, Opts};
use windlass_api::conditions::{EvictionCondition, Status};
use windlass_api::eviction::ClusterResourcePlacementEviction;
use windlass_status::conditions::{find, status};

/// What has come of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Nothing yet.
    Pending,
    /// It waits until it is allowed.
    Waiting,
    /// It was executed.
    Executed,
    /// It was not allowed.
    Blocked,
    /// It can't be carried out.
    Invalid,
}

impl State {
    const ALL: [Self; 5] = [
        Self::Pending,
        Self::Waiting,
        Self::Executed,
        Self::Blocked,
        Self::Invalid,
    ];

    /// Reads it off the conditions.
    #[must_use]
    pub fn of(eviction: &ClusterResourcePlacementEviction) -> Self {
        let told = eviction
            .status
            .as_ref()
            .and_then(|s| s.conditions.as_deref());
        let status_of =
            |type_: EvictionCondition| find(told.unwrap_or_default(), type_.as_str()).map(status);
        if status_of(EvictionCondition::Valid) == Some(Status::False) {
            return Self::Invalid;
        }
        match status_of(EvictionCondition::Executed) {
            None => Self::Pending,
            Some(Status::True) => Self::Executed,
            Some(Status::False) => Self::Blocked,
            Some(Status::Unknown) => Self::Waiting,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Waiting => "waiting",
            Self::Executed => "executed",
            Self::Blocked => "blocked",
            Self::Invalid => "invalid",
        }
    }
}

/// State of each eviction, and when it was made, in Unix seconds.
type Known = BTreeMap<String, (State, i64)>;

/// See the module. Clones share everything.
#[derive(Clone, Default)]
pub struct EvictionTally(Arc<Mutex<Known>>);

impl EvictionTally {
    /// An eviction is so now; none when it is gone.
    pub fn eviction(&self, name: &str, new: Option<&ClusterResourcePlacementEviction>) {
        let mut known = self.lock();
        match new {
            None => drop(known.remove(name)),
            Some(new) => {
                let made = new.metadata.creation_timestamp.as_ref();
                let made = made.map_or(0, |time| time.0.as_second());
                known.insert(name.to_owned(), (State::of(new), made));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows a tally.
pub struct EvictionCollector {
    tally: EvictionTally,
    leads: Arc<AtomicBool>,
    states: IntGaugeVec,
    oldest: IntGauge,
}

impl EvictionCollector {
    /// Shows a tally while this process leads.
    ///
    /// # Errors
    /// Never in practice: the names are fixed.
    pub fn new(tally: EvictionTally, leads: Arc<AtomicBool>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            tally,
            leads,
            states: IntGaugeVec::new(
                Opts::new(
                    "windlass_evictions",
                    "Evictions by what has come of them: pending, waiting, executed, blocked or invalid.",
                ),
                &["state"],
            )?,
            oldest: IntGauge::new(
                "windlass_eviction_oldest_waiting_timestamp_seconds",
                "When the oldest eviction that is pending or waits was made, in Unix time; 0 if there is none.",
            )?,
        })
    }
}

impl Collector for EvictionCollector {
    fn desc(&self) -> Vec<&Desc> {
        [self.states.desc(), self.oldest.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.states.reset();
        self.oldest.set(0);
        if self.leads.load(Ordering::Relaxed) {
            let known = self.tally.lock();
            for state in State::ALL {
                let number = known.values().filter(|(is, _)| *is == state).count();
                let gauge = self.states.with_label_values(&[state.label()]);
                gauge.set(i64::try_from(number).unwrap_or(i64::MAX));
            }
            let open = |state: State| matches!(state, State::Pending | State::Waiting);
            let made = known
                .values()
                .filter(|(is, _)| open(*is))
                .map(|(_, at)| *at);
            self.oldest.set(made.min().unwrap_or(0));
        }
        [self.states.collect(), self.oldest.collect()].concat()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn eviction(conditions: &[(&str, &str)], made: i64) -> ClusterResourcePlacementEviction {
        let list: Vec<_> = conditions
            .iter()
            .map(|(type_, status)| {
                json!({ "type": type_, "status": status, "reason": "R", "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z" })
            })
            .collect();
        let made = jiff::Timestamp::from_second(made).unwrap();
        serde_json::from_value(json!({
            "metadata": { "name": "e", "creationTimestamp": made.to_string() },
            "spec": { "placementName": "web", "clusterName": "east" },
            "status": { "conditions": list },
        }))
        .unwrap()
    }

    #[test]
    fn evictions_are_counted_by_state_and_go_with_their_objects() {
        let (tally, leads) = (EvictionTally::default(), Arc::new(AtomicBool::new(false)));
        let collector = EvictionCollector::new(tally.clone(), Arc::clone(&leads)).unwrap();
        // By label, then the oldest.
        let shown = || -> Vec<i64> {
            let families = collector.collect();
            let mut metrics: Vec<_> = families.iter().flat_map(MetricFamily::get_metric).collect();
            let label = |metric: &prometheus::proto::Metric| {
                let first = metric.get_label().first();
                first.map_or("~".to_owned(), |label| label.value().to_owned())
            };
            metrics.sort_by_key(|metric| label(metric));
            metrics
                .iter()
                .map(|metric| metric.get_gauge().get_value() as i64)
                .collect()
        };
        for (name, conditions, made) in [
            ("a", &[][..], 30),
            ("b", &[("Valid", "True"), ("Executed", "Unknown")], 20),
            ("c", &[("Valid", "True"), ("Executed", "True")], 5),
            ("d", &[("Valid", "True"), ("Executed", "False")], 6),
            ("e", &[("Valid", "False")], 7),
        ] {
            tally.eviction(name, Some(&eviction(conditions, made)));
        }
        assert_eq!(shown(), [0], "a standby shows none");
        leads.store(true, Ordering::Relaxed);
        assert_eq!(shown(), [1, 1, 1, 1, 1, 20]);
        tally.eviction("b", Some(&eviction(&[("Executed", "True")], 20)));
        tally.eviction("d", None);
        assert_eq!(shown(), [0, 2, 1, 1, 0, 30]);
    }
}
