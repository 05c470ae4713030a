//! Numbers that may be percentages.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use windlass_status::defaults::Amount;

/// `maxUnavailable` and `maxSurge` when they are absent (hub reference §0.6).
pub const DEFAULT_BUDGET_PERCENT: u8 = 25;

/// What `maxUnavailable` or `maxSurge` means for `total` clusters: the number itself, or the percentage
/// rounded up (hub reference §1.9.4). Absent, and text that the schema would refuse, mean
/// [`DEFAULT_BUDGET_PERCENT`]; a negative number means none.
#[must_use]
pub fn resolve(value: Option<&IntOrString>, total: usize) -> usize {
    if let Some(IntOrString::Int(number)) = value
        && *number < 0
    {
        return 0;
    }
    let amount = value
        .and_then(Amount::read)
        .unwrap_or(Amount::Percent(u32::from(DEFAULT_BUDGET_PERCENT)));
    let total = u32::try_from(total).unwrap_or(u32::MAX);
    usize::try_from(amount.of_total(total)).unwrap_or(usize::MAX)
}
