//! What happens to an object that is there already and is not ours (member §14.1).

use kube::core::DynamicObject;
use windlass_api::conditions::ManifestReason;
use windlass_api::placement::WhenToTakeOver;
use windlass_status::defaults::EffectiveApply;

use crate::compare::first_difference;
use crate::manifest::{Manifest, Problem};
use crate::object::as_json;

/// Whether a live object that is not ours may be taken over.
///
/// | whenToTakeOver | other AppliedWork | other owner, co-ownership off | differs | otherwise |
/// |---|---|---|---|---|
/// | Never | NotTakenOver | NotTakenOver | NotTakenOver | NotTakenOver |
/// | IfNoDiff | FailedToTakeOver | FailedToTakeOver | FailedToTakeOver | taken over |
/// | Always | FailedToTakeOver | FailedToTakeOver | taken over | taken over |
///
/// # Errors
/// The refusal, with what to do.
pub fn check(
    manifest: &Manifest,
    live: &DynamicObject,
    apply: EffectiveApply,
) -> Result<(), Problem> {
    let refuse = |message: String| Problem {
        reason: ManifestReason::FailedToTakeOver,
        message,
    };
    if apply.when_to_take_over == WhenToTakeOver::Never {
        return Err(Problem {
            reason: ManifestReason::NotTakenOver,
            message: format!(
                "{} exists and is not ours; whenToTakeOver is Never",
                manifest.id
            ),
        });
    }
    let owners = live
        .metadata
        .owner_references
        .as_deref()
        .unwrap_or_default();
    if let Some(other) = owners.iter().find(|owner| owner.kind == "AppliedWork") {
        return Err(refuse(format!(
            "{} is placed here by another placement (AppliedWork {})",
            manifest.id, other.name
        )));
    }
    if let Some(other) = owners.first()
        && !apply.allow_co_ownership
    {
        return Err(refuse(format!(
            "{} is owned by {} {}; set allowCoOwnership to share it",
            manifest.id, other.kind, other.name
        )));
    }
    if apply.when_to_take_over == WhenToTakeOver::IfNoDiff
        && let Some(path) = first_difference(&manifest.object, &as_json(live))
    {
        return Err(refuse(format!(
            "{} exists and differs at {path}; whenToTakeOver is IfNoDiff",
            manifest.id
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use windlass_api::placement::ApplyStrategy;

    fn live(owner: Option<&str>, value: &str) -> DynamicObject {
        let owners: Vec<Value> = owner
            .map(|kind| json!({"apiVersion": "g/v1", "kind": kind, "name": "o", "uid": "u"}))
            .into_iter()
            .collect();
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "ownerReferences": owners}, "data": {"k": value}}))
        .unwrap()
    }

    #[test]
    fn the_table() {
        use ManifestReason::{FailedToTakeOver, NotTakenOver};
        use WhenToTakeOver::{Always, IfNoDiff, Never};
        let manifest = Manifest::of_snapshot(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}}),
        );
        let rows = [
            (Never, false, None, "1", Some(NotTakenOver)),
            (Never, true, Some("AppliedWork"), "2", Some(NotTakenOver)),
            (IfNoDiff, false, None, "1", None),
            (IfNoDiff, false, None, "2", Some(FailedToTakeOver)),
            (
                IfNoDiff,
                true,
                Some("AppliedWork"),
                "1",
                Some(FailedToTakeOver),
            ),
            (Always, false, None, "2", None),
            (Always, false, Some("Thing"), "1", Some(FailedToTakeOver)),
            (Always, true, Some("Thing"), "1", None),
            (
                Always,
                true,
                Some("AppliedWork"),
                "1",
                Some(FailedToTakeOver),
            ),
        ];
        for (when, share, owner, value, expected) in rows {
            let strategy = ApplyStrategy {
                when_to_take_over: Some(when),
                allow_co_ownership: Some(share),
                ..Default::default()
            };
            let found = check(
                &manifest,
                &live(owner, value),
                EffectiveApply::of(Some(&strategy)),
            );
            assert_eq!(
                found.err().map(|problem| problem.reason),
                expected,
                "{when:?} {share} {owner:?} {value}"
            );
        }
    }
}
