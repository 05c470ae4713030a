//! Staged update runs (hub reference §3): a version goes to the clusters of a placement stage by stage. Pure.
//!
//! ```text
//!   run ──init──▶ stages, clusters, overrides fixed in its status
//!    │
//!    └──advance──▶ its next status ──then──▶ bindings to change, bindings to delete
//! ```
//!
//! Both are called again on every change, and say all that is to be written. A cluster is recorded as begun
//! with before its binding is written, so that a run that resumes knows of every binding that it may have
//! touched; a binding that was moved says by which run, so that a write that never came to be is told from
//! one that somebody undid. Nothing is polled: [`RunPlan::wake_at`] is the next deadline, if there is any.

mod advance;
mod back;
mod holder;
mod init;
mod removal;
mod room;
mod stage;
mod stamp;
mod tasks;
mod threshold;
mod view;
mod walk;

pub use advance::{advance, fail, hold, is_initialized, is_over};
pub use holder::{holder, superseded};
pub use init::{Init, InitView, Overrides, Snapshot, init, refuse, wait};
pub use view::{Ask, Member, Move, RunBinding, RunPlan, RunView, Target};
