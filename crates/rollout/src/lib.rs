//! The rolling planner, which says which bindings may move now, and the eviction planner. Pure.
//!
//! [`plan_rolling`] looks at all bindings of a placement and says which to update, bind and remove, so
//! that no more clusters than `maxUnavailable` allows are unavailable through our own doing (invariant
//! I1) and no more than `maxSurge` allows carry the resources at once. It is called again on every
//! change and waits for nothing by itself. [`plan_evictions`] does the same for evictions within a placement's
//! disruption budget (invariant I2).

mod budget;
mod eviction;
mod ledger;
mod rolling;
pub mod run;
mod strategy;
mod view;

pub use budget::{DEFAULT_BUDGET_PERCENT, resolve};
pub use eviction::{
    EvictionBinding, EvictionPlan, EvictionTarget, EvictionView, Outcome, Verdict, is_over,
    plan_evictions,
};
pub use rolling::{RollingPlan, plan_rolling};
pub use strategy::touches_no_object;
pub use view::{Readiness, RollingView, RolloutBinding, target_count};
