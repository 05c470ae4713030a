//! The roll-up: from the bindings of a placement to its status, per cluster and in total
//! (design §5.1 to §5.3).
//!
//! [`aggregate`] is one pure function. What goes in is borrowed from caches ([`AggregateView`]); what
//! comes out is the status to write. It never fails, does not depend on the order of its inputs, and
//! leaves every transition time alone whose status stays.
//!
//! ```text
//! view ─▶ cluster: one entry per selected cluster ─▶ rollup: the placement's conditions ─▶ budget: what fits
//! ```
//!
//! The two strategies differ in the roll-up alone:
//!
//! | | RollingUpdate | External |
//! |---|---|---|
//! | index | the latest snapshot's | that of all selected clusters, if it is the same; else none |
//! | conditions are about | the latest snapshot | that index |
//! | of False and Unknown | False wins | Unknown wins |

mod aggregate;
mod budget;
mod cluster;
mod rollup;
mod view;
mod words;

pub use aggregate::{Aggregate, Counts, aggregate};
pub use view::{
    AggregateView, BindingView, Budget, DEFAULT_BUDGET, ExternalUnset, Mode, Scheduling,
    SnapshotView, bindings_by_cluster, unfilled_slots,
};
