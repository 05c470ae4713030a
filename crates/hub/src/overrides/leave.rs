//! What overrides may do on a cluster now.
//!
//! What they do follows from their snapshots and from the cluster's labels, and labels change without any
//! write of ours. So that this keeps to the strategy's bounds as everything does, the placement's actor notes
//! on the binding what it last gave leave for, and delivery leaves a cluster as it is on which the overrides
//! would do anything else.
//!
//! Under strategy External there is no such note: what they do is what the labels of the moment say.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::json;
use windlass_api::labels;
use windlass_api::scoped::Binding;
use windlass_status::digest::Digest;

/// Text of [`Effect::Nothing`] in the annotation.
const NOTHING: &str = "none";

/// What overrides do on a cluster, as far as equal is told from different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// They leave everything as it is.
    Nothing,
    /// SHA-256 of what they do.
    Something(Digest),
}

impl Effect {
    /// Of what `effects_of` says.
    #[must_use]
    pub fn of(effects: &BTreeMap<String, String>) -> Self {
        if effects.is_empty() {
            Self::Nothing
        } else {
            Self::Something(Digest::of_json(&json!(effects)))
        }
    }

    /// As a part of a binding's digest.
    #[must_use]
    pub fn variables(self) -> BTreeMap<String, String> {
        match self {
            Self::Nothing => BTreeMap::new(),
            Self::Something(digest) => {
                BTreeMap::from([("overrides".to_owned(), digest.to_string())])
            }
        }
    }

    fn text(self) -> String {
        match self {
            Self::Nothing => NOTHING.to_owned(),
            Self::Something(digest) => digest.to_string(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            NOTHING => Some(Self::Nothing),
            digest => digest.parse().ok().map(Self::Something),
        }
    }
}

/// What the placement's actor gave leave for; none where it doesn't say, and the labels of the moment count.
#[must_use]
pub fn given(binding: &Binding) -> Option<Effect> {
    let text = binding.annotations().get(labels::OVERRIDES_MAY)?;
    Effect::parse(text)
}

/// Notes what a binding has leave for.
pub fn give(binding: &mut Binding, effect: Option<Effect>) {
    match effect {
        Some(effect) => {
            let text = effect.text();
            binding
                .annotations_mut()
                .insert(labels::OVERRIDES_MAY.to_owned(), text);
        }
        None => {
            if let Some(annotations) = &mut binding.metadata.annotations {
                annotations.remove(labels::OVERRIDES_MAY);
            }
        }
    }
}

/// Whether delivery has to leave the cluster as it is: its overrides, all of them known, would do what nobody
/// gave leave for.
#[must_use]
pub fn must_wait(binding: &Binding, would: Effect) -> bool {
    given(binding).is_some_and(|given| given != would)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn something(text: &str) -> Effect {
        Effect::of(&BTreeMap::from([(
            "override 00000".to_owned(),
            text.to_owned(),
        )]))
    }

    #[test]
    fn only_what_there_is_leave_for_is_delivered() {
        let (one, two) = (something("1"), something("2"));
        for (leave, would, waits) in [
            (None, one, false),
            (None, Effect::Nothing, false),
            (Some(one), one, false),
            (Some(one), two, true),
            (Some(one), Effect::Nothing, true),
            (Some(Effect::Nothing), Effect::Nothing, false),
            (Some(Effect::Nothing), one, true),
        ] {
            let mut binding = Binding::default();
            give(&mut binding, leave);
            assert_eq!(given(&binding), leave);
            assert_eq!(must_wait(&binding, would), waits, "{leave:?} {would:?}");
            give(&mut binding, None);
            assert_eq!(given(&binding), None);
        }
    }

    /// Somebody edited it: then it says nothing, and the actor writes it anew.
    #[test]
    fn what_is_no_digest_is_no_leave() {
        let mut binding = Binding::default();
        let annotations = binding.annotations_mut();
        annotations.insert(labels::OVERRIDES_MAY.to_owned(), "x".to_owned());
        assert_eq!(given(&binding), None);
    }
}
