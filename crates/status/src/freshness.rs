//! Whether a binding's status is about what the binding asks for now (design §5.7).
//!
//! | who wrote the status | it is fresh when |
//! |---|---|
//! | we: it carries a digest | the digest is that of the desired state, and the status is at most one change of the spec behind: what was asked for before something else, and is asked for again, was not seen to be there since |
//! | another implementation: no digest | the condition's observedGeneration is the binding's generation |

use windlass_api::Condition;
use windlass_api::conditions::Stage;
use windlass_api::scoped::Binding;

use crate::conditions;
use crate::digest::Digest;

/// What decides whether the conditions of one binding are fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// All are: the status is about the desired digest.
    All,
    /// None is: the status is about another digest, there is none, or what is desired can't be told.
    Nothing,
    /// Those with this generation are: another implementation wrote the status.
    AtGeneration(i64),
}

impl Freshness {
    /// Judges a binding. `desired` is the digest of what its spec asks for; none if that can't be told,
    /// say because the snapshot is gone.
    #[must_use]
    pub fn of(binding: &Binding, desired: Option<Digest>) -> Self {
        let Some(status) = &binding.status else {
            return Self::Nothing;
        };
        match (&status.observed_digest, desired) {
            (Some(observed), Some(desired)) if desired.is(observed) && lag(binding) <= 1 => {
                Self::All
            }
            (Some(_), _) => Self::Nothing,
            (None, _) => binding
                .metadata
                .generation
                .map_or(Self::Nothing, Self::AtGeneration),
        }
    }

    /// Whether this condition is fresh.
    #[must_use]
    pub fn covers(self, condition: &Condition) -> bool {
        match self {
            Self::All => true,
            Self::Nothing => false,
            Self::AtGeneration(generation) => condition.observed_generation == Some(generation),
        }
    }
}

/// A binding's condition, if it is there and fresh.
#[must_use]
pub fn condition(binding: &Binding, freshness: Freshness, stage: Stage) -> Option<&Condition> {
    let list = binding.status.as_ref()?.conditions.as_ref()?;
    conditions::find(list, stage.as_str()).filter(|condition| freshness.covers(condition))
}

/// How many changes of its spec a binding's status is behind; those that change nothing of what is asked for
/// count, too. 0 when the status has no conditions: then it is about nothing.
#[must_use]
pub fn lag(binding: &Binding) -> i64 {
    let conditions = binding
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let observed = conditions.into_iter().flatten();
    let observed = observed
        .filter_map(|condition| condition.observed_generation)
        .max();
    let generation = binding.metadata.generation;
    observed
        .zip(generation)
        .map_or(0, |(observed, generation)| {
            generation.saturating_sub(observed).max(0)
        })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use windlass_api::Time;
    use windlass_api::binding::BindingStatus;

    use super::*;

    fn binding(observed: Option<&str>, condition_generation: Option<i64>) -> Binding {
        let mut binding = Binding::default();
        binding.metadata.generation = Some(7);
        binding.status = Some(BindingStatus {
            observed_digest: observed.map(str::to_owned),
            conditions: Some(vec![Condition {
                type_: "Applied".to_owned(),
                status: "True".to_owned(),
                reason: "R".to_owned(),
                message: String::new(),
                observed_generation: condition_generation,
                last_transition_time: Time(Timestamp::UNIX_EPOCH),
            }]),
            ..BindingStatus::default()
        });
        binding
    }

    #[test]
    fn digest_first_generation_otherwise() {
        let wanted = Digest::of_bytes(b"wanted");
        let same = wanted.to_string();
        let other = Digest::of_bytes(b"other").to_string();
        let rows = [
            (Some(same.as_str()), Some(wanted), Some(7), true),
            // One change of the spec that changes nothing of the state.
            (Some(&same), Some(wanted), Some(6), true),
            // Something else may have been asked for in between, and be half done.
            (Some(&same), Some(wanted), Some(5), false),
            (Some(&other), Some(wanted), Some(7), false),
            (Some("junk"), Some(wanted), Some(7), false),
            (Some("junk"), None, Some(7), false),
            (Some(&same), None, Some(7), false),
            (None, Some(wanted), Some(7), true),
            (None, Some(wanted), Some(6), false),
            (None, None, None, false),
        ];
        for (row, (observed, desired, generation, fresh)) in rows.into_iter().enumerate() {
            let binding = binding(observed, generation);
            let freshness = Freshness::of(&binding, desired);
            let found = condition(&binding, freshness, Stage::Applied);
            assert_eq!(found.is_some(), fresh, "row {row}");
            assert!(
                condition(&binding, freshness, Stage::Available).is_none(),
                "row {row}"
            );
        }
    }

    #[test]
    fn no_status_is_not_fresh() {
        let mut binding = binding(None, Some(7));
        binding.status = None;
        assert_eq!(Freshness::of(&binding, None), Freshness::Nothing);
    }
}
