//! Numbers that may be percentages.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// `maxUnavailable` and `maxSurge` when they are absent (hub reference §0.6).
pub const DEFAULT_BUDGET_PERCENT: u8 = 25;

/// What `maxUnavailable` or `maxSurge` means for `total` clusters: the number itself, or the percentage
/// rounded up (hub reference §1.9.4). Absent, and text that the schema would refuse, mean
/// [`DEFAULT_BUDGET_PERCENT`]; a negative number means none.
#[must_use]
pub fn resolve(value: Option<&IntOrString>, total: usize) -> usize {
    let percent = match value {
        Some(IntOrString::Int(number)) => return usize::try_from(*number).unwrap_or(0),
        Some(IntOrString::String(text)) => match text.strip_suffix('%') {
            Some(percent) => percent.parse::<u16>().ok(),
            None => match text.parse() {
                Ok(number) => return number,
                Err(_) => None,
            },
        },
        None => None,
    };
    let percent = percent.map_or(usize::from(DEFAULT_BUDGET_PERCENT), usize::from);
    total.saturating_mul(percent).div_ceil(100)
}
