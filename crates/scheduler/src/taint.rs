//! Taints and tolerations (hub §1.7.4).

use windlass_api::member::Taint;
use windlass_api::placement::{TaintEffect, Toleration, TolerationOperator};

/// The first taint that keeps the placement away.
pub(crate) fn first_untolerated<'a>(
    taints: &'a [Taint],
    tolerations: &[Toleration],
) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect == TaintEffect::NoSchedule)
        .find(|taint| !tolerations.iter().any(|t| tolerates(t, taint)))
}

/// A toleration holds if the effect is the taint's or empty, and the key is the taint's (Exists), every
/// key (Exists without a key), or key and value are the taint's (Equal).
#[must_use]
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let value = toleration.value.as_deref().unwrap_or_default();
    let effect = toleration
        .effect
        .is_none_or(|effect| effect == taint.effect);
    effect
        && match toleration.operator.unwrap_or(TolerationOperator::Equal) {
            TolerationOperator::Exists => key.is_empty() || key == taint.key,
            TolerationOperator::Equal => {
                key == taint.key && value == taint.value.as_deref().unwrap_or_default()
            }
        }
}
