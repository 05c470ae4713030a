//! What happens to an object that is there already and is not ours (member §9, §14.1).

use std::collections::BTreeSet;

use kube::core::DynamicObject;
use windlass_api::conditions::ManifestReason;
use windlass_api::placement::WhenToTakeOver;
use windlass_status::defaults::EffectiveApply;

use crate::compare::first_difference;
use crate::manifest::{Manifest, Problem};
use crate::object::OWNER_KIND;

/// Owners of an object that are AppliedWorks which do not exist any more: they own nothing, and go when
/// the object is taken over.
#[must_use]
pub fn dead_owners(live: &DynamicObject, exists: impl Fn(&str, &str) -> bool) -> BTreeSet<String> {
    live.metadata
        .owner_references
        .iter()
        .flatten()
        .filter(|owner| owner.kind == OWNER_KIND && !exists(&owner.name, &owner.uid))
        .map(|owner| owner.uid.clone())
        .collect()
}

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
    dead_owners: &BTreeSet<String>,
    apply: EffectiveApply,
) -> Result<(), Problem> {
    let id = &manifest.id;
    let refuse = |message: String| {
        Err(Problem {
            reason: ManifestReason::FailedToTakeOver,
            message,
        })
    };
    if apply.when_to_take_over == WhenToTakeOver::Never {
        return Err(Problem {
            reason: ManifestReason::NotTakenOver,
            message: format!(
                "{id} exists and was not placed by this placement; remove it, or set whenToTakeOver to Always"
            ),
        });
    }
    let owners: Vec<_> = live
        .metadata
        .owner_references
        .iter()
        .flatten()
        .filter(|owner| !dead_owners.contains(&owner.uid))
        .collect();
    if let Some(other) = owners.iter().find(|owner| owner.kind == OWNER_KIND) {
        return refuse(format!(
            "{id} is placed here by another placement (AppliedWork {}); take it out of one of them",
            other.name
        ));
    }
    if let Some(other) = owners.first()
        && !apply.allow_co_ownership
    {
        return refuse(format!(
            "{id} is owned by {} {}; set allowCoOwnership to share it",
            other.kind, other.name
        ));
    }
    if apply.when_to_take_over == WhenToTakeOver::IfNoDiff
        && let Some(path) = first_difference(manifest, live)
    {
        return refuse(format!(
            "{id} exists and differs at {path}; make them equal, or set whenToTakeOver to Always"
        ));
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

    fn verdict(
        when: WhenToTakeOver,
        share: bool,
        owner: Option<&str>,
        value: &str,
        dead: bool,
    ) -> Option<ManifestReason> {
        let manifest = Manifest::of_snapshot(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}}),
        );
        let strategy = ApplyStrategy {
            when_to_take_over: Some(when),
            allow_co_ownership: Some(share),
            ..Default::default()
        };
        let live = live(owner, value);
        let dead = dead_owners(&live, |_, _| !dead);
        check(&manifest, &live, &dead, EffectiveApply::of(Some(&strategy)))
            .err()
            .map(|problem| problem.reason)
    }

    #[test]
    fn the_table() {
        use ManifestReason::{FailedToTakeOver, NotTakenOver};
        use WhenToTakeOver::{Always, IfNoDiff, Never};
        let rows = [
            (Never, false, None, "1", Some(NotTakenOver)),
            (Never, true, Some("AppliedWork"), "2", Some(NotTakenOver)),
            (Never, true, Some("Thing"), "1", Some(NotTakenOver)),
            (IfNoDiff, false, None, "1", None),
            (IfNoDiff, false, None, "2", Some(FailedToTakeOver)),
            (IfNoDiff, false, Some("Thing"), "1", Some(FailedToTakeOver)),
            (IfNoDiff, true, Some("Thing"), "1", None),
            (IfNoDiff, true, Some("Thing"), "2", Some(FailedToTakeOver)),
            (
                IfNoDiff,
                true,
                Some("AppliedWork"),
                "1",
                Some(FailedToTakeOver),
            ),
            (Always, false, None, "1", None),
            (Always, false, None, "2", None),
            (Always, false, Some("Thing"), "1", Some(FailedToTakeOver)),
            (Always, true, Some("Thing"), "2", None),
            (
                Always,
                true,
                Some("AppliedWork"),
                "1",
                Some(FailedToTakeOver),
            ),
        ];
        for (when, share, owner, value, expected) in rows {
            assert_eq!(
                verdict(when, share, owner, value, false),
                expected,
                "{when:?} {share} {owner:?} {value}"
            );
        }
    }

    #[test]
    fn an_applied_work_that_is_no_more_owns_nothing() {
        assert_eq!(
            verdict(
                WhenToTakeOver::Always,
                false,
                Some("AppliedWork"),
                "2",
                true
            ),
            None
        );
        let refused = verdict(WhenToTakeOver::Always, false, Some("Thing"), "1", true);
        assert_eq!(
            refused,
            Some(ManifestReason::FailedToTakeOver),
            "of other kinds nothing is known"
        );
    }
}
