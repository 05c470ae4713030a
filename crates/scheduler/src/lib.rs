//! Filter, score, spread, pick: which clusters a placement goes to.
//!
//! [`schedule`] is one function from a [`SchedulingView`] to a [`Schedule`]. Nothing is written in
//! between, so a crash can't leave half a decision, and the same view always gives the same decision,
//! whatever the order of its parts. Trouble (a property that isn't a number, a selector with an unknown
//! operator) makes the term that has it match nothing and is named in the decision's reason; it never
//! stops the placement.
//!
//! | policy | new clusters | clusters selected under this policy | clusters selected under an earlier policy |
//! |---|---|---|---|
//! | PickAll | all that pass the filters | stay | stay when they pass; a passing trouble of the cluster is forgiven |
//! | PickN | the best that pass, up to N | stay, trimmed when N shrinks | compete with the new ones and win ties; a passing trouble is forgiven when nothing else is left |
//! | PickFixed | those named, when eligible | stay while named | stay while named |
//!
//! A cluster that is gone or leaving is never selected. The rules are those of the hub reference §1.7,
//! with its traps T8, T9 and the cut-up batches of spread placements fixed.

mod affinity;
mod context;
pub mod eligibility;
mod pick_n;
mod pool;
mod property;
pub mod quantity;
mod reason;
mod schedule;
pub mod selector;
mod spread;
mod taint;
mod view;

pub use eligibility::{HEARTBEAT_TOLERANCE, UNHEALTHY_TOLERANCE};
pub use schedule::{MAX_DECISIONS, MAX_UNSELECTED, Schedule, schedule};
pub use taint::tolerates;
pub use view::{
    ClusterView, ExistingBinding, Health, Membership, NAMESPACES_COLLECTED, Namespaces,
    SchedulingView,
};
