//! Changes of the apply strategy that need no rollout.

use windlass_api::placement::{
    ApplyStrategy, ApplyStrategyType, ComparisonOption, WhenToApply, WhenToTakeOver,
};

/// Whether going from one apply strategy to the other can't touch an object on a member.
///
/// A change of the apply strategy rolls like any other change, within the same budgets: it may rewrite
/// every object everywhere. (The peer pushes it to all clusters at once.) Exempt is only what has no
/// effect on objects by its nature:
///
/// | field | harmless when |
/// |---|---|
/// | any | it was absent and now spells out the default, or the other way round |
/// | `serverSideApplyConfig` | server-side apply isn't used |
/// | `comparisonOption` | drift isn't looked for, nor takeovers compared |
/// | `whenToTakeOver` | it becomes Never: what is ours stays ours |
#[must_use]
pub fn touches_no_object(old: Option<&ApplyStrategy>, new: Option<&ApplyStrategy>) -> bool {
    let (old, new) = (Settings::of(old), Settings::of(new));
    let same_force = old.force == new.force || old.kind != ApplyStrategyType::ServerSideApply;
    let same_comparison = old.comparison == new.comparison || !old.compares() && !new.compares();
    let same_takeover = old.takeover == new.takeover || new.takeover == WhenToTakeOver::Never;
    old.kind == new.kind
        && old.apply == new.apply
        && old.co_ownership == new.co_ownership
        && same_force
        && same_comparison
        && same_takeover
}

/// An apply strategy with its defaults filled in.
struct Settings {
    kind: ApplyStrategyType,
    apply: WhenToApply,
    comparison: ComparisonOption,
    takeover: WhenToTakeOver,
    co_ownership: bool,
    force: bool,
}

impl Settings {
    fn of(strategy: Option<&ApplyStrategy>) -> Self {
        Settings {
            kind: strategy
                .and_then(|s| s.type_)
                .unwrap_or(ApplyStrategyType::ClientSideApply),
            apply: strategy
                .and_then(|s| s.when_to_apply)
                .unwrap_or(WhenToApply::Always),
            comparison: strategy
                .and_then(|s| s.comparison_option)
                .unwrap_or(ComparisonOption::PartialComparison),
            takeover: strategy
                .and_then(|s| s.when_to_take_over)
                .unwrap_or(WhenToTakeOver::Always),
            co_ownership: strategy.and_then(|s| s.allow_co_ownership).unwrap_or(false),
            force: strategy
                .and_then(|s| s.server_side_apply_config.as_ref())
                .and_then(|c| c.force_conflicts)
                .unwrap_or(false),
        }
    }

    /// Whether objects are compared in full or in part anywhere.
    fn compares(&self) -> bool {
        self.kind == ApplyStrategyType::ReportDiff
            || self.apply == WhenToApply::IfNotDrifted
            || self.takeover == WhenToTakeOver::IfNoDiff
    }
}
