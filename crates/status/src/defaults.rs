//! What absent fields mean (API §2.3, §2.5, §2.6), so that nobody else needs to know.

use jiff::SignedDuration;
use windlass_api::IntOrString;
use windlass_api::placement::{
    ApplyStrategy, ApplyStrategyType, ComparisonOption, PlacementPolicy, PlacementType,
    RollingUpdateConfig, RolloutStrategy, RolloutStrategyType, ServerSideApplyConfig, WhenToApply,
    WhenToTakeOver,
};

use crate::duration;

/// An apply strategy with nothing left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectiveApply {
    /// Which fields count as drift.
    pub comparison: ComparisonOption,
    /// Whether drifted objects are overwritten.
    pub when_to_apply: WhenToApply,
    /// How manifests reach the member.
    pub type_: ApplyStrategyType,
    /// Whether owners other than ours are permitted.
    pub allow_co_ownership: bool,
    /// Whether server-side apply takes contested fields.
    pub force_conflicts: bool,
    /// What happens to objects that exist already and are not ours.
    pub when_to_take_over: WhenToTakeOver,
}

impl EffectiveApply {
    /// Fills the gaps of a strategy; an absent one is all gaps.
    #[must_use]
    pub fn of(strategy: Option<&ApplyStrategy>) -> Self {
        let given = strategy.cloned().unwrap_or_default();
        Self {
            comparison: given
                .comparison_option
                .unwrap_or(ComparisonOption::PartialComparison),
            when_to_apply: given.when_to_apply.unwrap_or(WhenToApply::Always),
            type_: given.type_.unwrap_or(ApplyStrategyType::ClientSideApply),
            allow_co_ownership: given.allow_co_ownership.unwrap_or(false),
            force_conflicts: given
                .server_side_apply_config
                .and_then(|config| config.force_conflicts)
                .unwrap_or(false),
            when_to_take_over: given.when_to_take_over.unwrap_or(WhenToTakeOver::Always),
        }
    }

    /// Whether nothing is applied and differences are reported instead.
    #[must_use]
    pub const fn reports_diff(self) -> bool {
        matches!(self.type_, ApplyStrategyType::ReportDiff)
    }

    /// The strategy with every field spelled out.
    #[must_use]
    pub fn to_strategy(self) -> ApplyStrategy {
        ApplyStrategy {
            comparison_option: Some(self.comparison),
            when_to_apply: Some(self.when_to_apply),
            type_: Some(self.type_),
            allow_co_ownership: Some(self.allow_co_ownership),
            server_side_apply_config: Some(ServerSideApplyConfig {
                force_conflicts: Some(self.force_conflicts),
            }),
            when_to_take_over: Some(self.when_to_take_over),
        }
    }
}

/// Bounds of a rolling update with nothing left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectiveRolling {
    /// Clusters that may be not ready.
    pub max_unavailable: Amount,
    /// Clusters allowed above the target.
    pub max_surge: Amount,
    /// How long resources whose readiness can't be tracked are waited for.
    pub unavailable_period: SignedDuration,
}

impl EffectiveRolling {
    /// Fills the gaps with 25 %, 25 % and 60 s.
    #[must_use]
    pub fn of(config: Option<&RollingUpdateConfig>) -> Self {
        const QUARTER: Amount = Amount::Percent(25);
        let amount = |field: Option<&IntOrString>| field.and_then(Amount::read).unwrap_or(QUARTER);
        let seconds = config.and_then(|c| c.unavailable_period_seconds);
        Self {
            max_unavailable: amount(config.and_then(|c| c.max_unavailable.as_ref())),
            max_surge: amount(config.and_then(|c| c.max_surge.as_ref())),
            unavailable_period: SignedDuration::from_secs(seconds.unwrap_or(60).max(0)),
        }
    }
}

/// A number of clusters, or a share of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many.
    Count(u32),
    /// So many in a hundred.
    Percent(u32),
}

impl Amount {
    /// Reads a field; none if it is neither a number from 0 nor a percentage.
    #[must_use]
    pub fn read(field: &IntOrString) -> Option<Self> {
        match field {
            IntOrString::Int(number) => u32::try_from(*number).ok().map(Self::Count),
            IntOrString::String(text) => match text.strip_suffix('%') {
                Some(share) => share.parse().ok().map(Self::Percent),
                None => text.parse().ok().map(Self::Count),
            },
        }
    }

    /// How many of `total` this is; a share is rounded up.
    #[must_use]
    pub fn of_total(self, total: u32) -> u32 {
        match self {
            Self::Count(number) => number,
            Self::Percent(share) => {
                let scaled = (u64::from(share) * u64::from(total)).div_ceil(100);
                u32::try_from(scaled).unwrap_or(u32::MAX)
            }
        }
    }
}

/// Who rolls out; the hub unless the placement says otherwise.
#[must_use]
pub fn rollout_type(strategy: Option<&RolloutStrategy>) -> RolloutStrategyType {
    strategy
        .and_then(|strategy| strategy.type_)
        .unwrap_or(RolloutStrategyType::RollingUpdate)
}

/// How long a cluster that answers may take to be ready, unless the placement says otherwise.
pub const TIMEOUT: SignedDuration = SignedDuration::from_mins(10);

/// How long a cluster that answers may take to be ready: [`TIMEOUT`] unless the placement says otherwise; none
/// if it may take as long as it likes. Text that the schema would refuse says nothing.
#[must_use]
pub fn timeout(strategy: Option<&RolloutStrategy>) -> Option<SignedDuration> {
    let text = strategy.and_then(|strategy| strategy.timeout.as_deref());
    let timeout = text.and_then(duration::parse).unwrap_or(TIMEOUT);
    (!timeout.is_zero()).then_some(timeout)
}

/// How clusters are chosen; every one unless the policy says otherwise.
#[must_use]
pub fn placement_type(policy: Option<&PlacementPolicy>) -> PlacementType {
    policy
        .and_then(|policy| policy.placement_type)
        .unwrap_or(PlacementType::PickAll)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(text: &str) -> IntOrString {
        IntOrString::String(text.to_owned())
    }

    #[test]
    fn timeouts() {
        for (text, expected) in [
            (None, Some(TIMEOUT)),
            (Some("0s"), None),
            (Some("0h0m"), None),
            (Some("90s"), Some(SignedDuration::from_secs(90))),
            (Some("junk"), Some(TIMEOUT)),
        ] {
            let strategy = RolloutStrategy {
                timeout: text.map(str::to_owned),
                ..Default::default()
            };
            assert_eq!(timeout(Some(&strategy)), expected, "{text:?}");
        }
        assert_eq!(timeout(None), Some(TIMEOUT));
    }

    #[test]
    fn amounts() {
        let rows = [
            (text("25%"), 5, Some(2)),
            (text("25%"), 4, Some(1)),
            (text("0%"), 5, Some(0)),
            (text("1%"), 1, Some(1)),
            (text("100%"), 7, Some(7)),
            (text("25%"), 0, Some(0)),
            (text("3"), 5, Some(3)),
            (IntOrString::Int(9), 5, Some(9)),
            (IntOrString::Int(-1), 5, None),
            (text("half"), 5, None),
            (text("%"), 5, None),
            (text(""), 5, None),
        ];
        for (field, total, expected) in rows {
            assert_eq!(
                Amount::read(&field).map(|amount| amount.of_total(total)),
                expected,
                "{field:?} of {total}"
            );
        }
        assert_eq!(Amount::Percent(u32::MAX).of_total(u32::MAX), u32::MAX);
    }

    #[test]
    fn absent_fields() {
        let rolling = EffectiveRolling::of(None);
        assert_eq!(
            rolling,
            EffectiveRolling::of(Some(&RollingUpdateConfig::default()))
        );
        assert_eq!(rolling.max_unavailable, Amount::Percent(25));
        assert_eq!(rolling.max_surge, Amount::Percent(25));
        assert_eq!(rolling.unavailable_period, SignedDuration::from_secs(60));
        let given = RollingUpdateConfig {
            max_unavailable: Some(IntOrString::Int(0)),
            max_surge: Some(text("junk")),
            unavailable_period_seconds: Some(-5),
        };
        let rolling = EffectiveRolling::of(Some(&given));
        assert_eq!(rolling.max_unavailable, Amount::Count(0));
        assert_eq!(rolling.max_surge, Amount::Percent(25));
        assert_eq!(rolling.unavailable_period, SignedDuration::ZERO);

        let apply = EffectiveApply::of(None);
        assert_eq!(apply, EffectiveApply::of(Some(&apply.to_strategy())));
        assert_eq!(apply.type_, ApplyStrategyType::ClientSideApply);
        assert!(!apply.reports_diff() && !apply.force_conflicts && !apply.allow_co_ownership);
        assert_eq!(rollout_type(None), RolloutStrategyType::RollingUpdate);
        assert_eq!(placement_type(None), PlacementType::PickAll);
    }

    proptest! {
        #[test]
        fn a_share_is_the_smallest_number_that_covers_it(share in 0..=100_u32, total in 0..100_000_u32) {
            let number = u64::from(Amount::Percent(share).of_total(total));
            let exact = u64::from(share) * u64::from(total);
            prop_assert!(number * 100 >= exact);
            prop_assert!(number == 0 || (number - 1) * 100 < exact);
            prop_assert!(number <= u64::from(total));
        }
    }
}
