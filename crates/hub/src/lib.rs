//! The hub: the World, the actors and the planners wired together.
//!
//! Watches fill the [`world`]; changes put names into queues; the actor of a placement
//! ([`placement::actor`]) selects ([`select`]), makes snapshots, schedules, rolls out and writes the
//! status; [`delivery`] applies what bindings ask for on their clusters, which [`members`] keeps connected.
//! Of several processes one does so at a time ([`lead`]).
//! [`observe`] shows all that to people and monitoring; [`preview`] says what would happen.

pub mod addons;
pub mod contents;
pub mod delivery;
pub mod evictions;
pub mod installed;
mod lanes;
pub mod lead;
mod matters;
pub mod members;
pub mod observe;
pub mod overrides;
mod pace;
pub mod placement;
pub mod preview;
pub mod pull;
pub mod removal;
pub mod render;
pub mod report_back;
pub mod run;
pub mod scoped;
pub mod select;
pub mod update_runs;
mod worker;
pub mod works;
pub mod world;

pub use run::{HubError, HubOptions, run};
pub use select::rules::ApiFilter;
pub use windlass_aggregator::ExternalUnset;
pub use windlass_cluster::lease::step::Timing;
pub use windlass_render::Confinement;
