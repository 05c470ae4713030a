//! The hub: the World, the actors and the planners wired together.
//!
//! Watches fill the [`world`]; changes put names into queues; the actor of a placement
//! ([`placement::actor`]) selects ([`select`]), makes snapshots, schedules, rolls out and writes the
//! status; [`delivery`] applies what bindings ask for on their clusters, which [`members`] keeps connected.
//! [`observe`] shows all that to people and monitoring.

pub mod contents;
pub mod delivery;
pub mod members;
pub mod observe;
pub mod placement;
pub mod run;
pub mod select;
pub mod worker;
pub mod world;

pub use run::{HubError, HubOptions, run};
pub use windlass_aggregator::ExternalUnset;
