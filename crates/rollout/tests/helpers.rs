//! Budgets, target counts and apply strategies.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;
use windlass_api::binding::BindingState::{self, Bound, Scheduled, Unscheduled};
use windlass_api::conditions::Stage;
use windlass_api::placement::PlacementPolicy;
use windlass_rollout::{Readiness, RolloutBinding, resolve, target_count, touches_no_object};

fn percent(text: &str) -> IntOrString {
    IntOrString::String(text.to_owned())
}

const fn number(value: i32) -> IntOrString {
    IntOrString::Int(value)
}

fn binding(cluster: &str, state: BindingState, deleting: bool) -> RolloutBinding<'_> {
    RolloutBinding {
        name: cluster,
        cluster,
        previously_bound: false,
        state,
        deleting,
        on_target: false,
        settings_only: false,
        waits: false,
        readiness: Readiness::Ready,
    }
}

#[test]
fn budgets() {
    let rows = [
        (Some(number(3)), 10, 3),
        (Some(number(-3)), 10, 0),
        (Some(number(30)), 10, 30),
        (Some(percent("25%")), 0, 0),
        (Some(percent("25%")), 1, 1),
        (Some(percent("25%")), 4, 1),
        (Some(percent("25%")), 5, 2),
        (Some(percent("0%")), 5, 0),
        (Some(percent("100%")), 5, 5),
        (Some(percent("1%")), 101, 2),
        (Some(percent("7")), 5, 7),
        (None, 5, 2),
        (Some(percent("half")), 5, 2),
        (Some(percent("-5%")), 5, 2),
    ];
    for (value, total, expected) in rows {
        assert_eq!(
            resolve(value.as_ref(), total),
            expected,
            "{value:?} of {total}"
        );
    }
}

#[test]
fn targets() {
    let bindings = [
        binding("a", Scheduled, false),
        binding("b", Bound, false),
        binding("c", Bound, true),
        binding("c", Scheduled, false),
        binding("d", Unscheduled, false),
    ];
    let rows = [
        (None, 3),
        (Some(json!({})), 3),
        (Some(json!({"placementType": "PickAll"})), 3),
        (
            Some(json!({"placementType": "PickN", "numberOfClusters": 7})),
            7,
        ),
        (Some(json!({"placementType": "PickN"})), 3),
        (
            Some(json!({"placementType": "PickFixed", "clusterNames": ["x", "y", "x"]})),
            2,
        ),
        (Some(json!({"placementType": "PickFixed"})), 0),
    ];
    for (text, expected) in rows {
        let policy: Option<PlacementPolicy> =
            text.clone().map(|t| serde_json::from_value(t).unwrap());
        assert_eq!(
            target_count(policy.as_ref(), &bindings),
            expected,
            "{text:?}"
        );
    }
}

#[test]
fn apply_strategies() {
    let rows = [
        (
            json!({}),
            json!({"type": "ClientSideApply", "whenToApply": "Always", "whenToTakeOver": "Always",
            "comparisonOption": "PartialComparison", "allowCoOwnership": false}),
            true,
        ),
        (
            json!({}),
            json!({"serverSideApplyConfig": {"force": true}}),
            true,
        ),
        (
            json!({}),
            json!({"comparisonOption": "FullComparison"}),
            true,
        ),
        (json!({}), json!({"whenToTakeOver": "Never"}), true),
        (json!({"whenToTakeOver": "Never"}), json!({}), false),
        (json!({}), json!({"type": "ServerSideApply"}), false),
        (json!({}), json!({"type": "ReportDiff"}), false),
        (json!({}), json!({"whenToApply": "IfNotDrifted"}), false),
        (json!({}), json!({"allowCoOwnership": true}), false),
        (
            json!({"type": "ServerSideApply"}),
            json!({"type": "ServerSideApply", "serverSideApplyConfig": {"force": true}}),
            false,
        ),
        (
            json!({"whenToApply": "IfNotDrifted"}),
            json!({"whenToApply": "IfNotDrifted", "comparisonOption": "FullComparison"}),
            false,
        ),
        (
            json!({"whenToTakeOver": "IfNoDiff"}),
            json!({"whenToTakeOver": "IfNoDiff", "comparisonOption": "FullComparison"}),
            false,
        ),
    ];
    for (from, to, harmless) in rows {
        let parsed = [&from, &to].map(|text| serde_json::from_value((*text).clone()).unwrap());
        let [before, after] = &parsed;
        assert_eq!(
            touches_no_object(Some(before), Some(after)),
            harmless,
            "{from} {to}"
        );
    }
    assert!(touches_no_object(
        None,
        Some(&windlass_api::placement::ApplyStrategy::default())
    ));
}

#[test]
fn classes_carry_over() {
    use windlass_status::ready::Readiness as Class;
    let rows = [
        (Class::Ready, false, Readiness::Ready),
        (Class::Ready, true, Readiness::DiffReported),
        (Class::Unreachable, true, Readiness::Unreachable),
        (Class::InProgress, false, Readiness::InProgress),
        (Class::Undisturbed, false, Readiness::Ready),
        (Class::Withheld, false, Readiness::Withheld),
        (Class::Failed(Stage::Overridden), false, Readiness::Refused),
        (Class::Failed(Stage::Applied), false, Readiness::Failed),
        // Only what took too long fails there.
        (Class::Failed(Stage::Available), false, Readiness::Failed),
        (Class::Failed(Stage::DiffReported), true, Readiness::Failed),
    ];
    for (class, report_diff, expected) in rows {
        assert_eq!(Readiness::of(class, report_diff), expected);
    }
}
