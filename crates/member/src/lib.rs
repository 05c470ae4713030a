//! The apply engine for one member cluster, used by the hub (push).
//!
//! [`Member::deliver`] takes a desired state and does what is missing, in the order that a crash can't
//! hurt: own (AppliedWork), record what is about to be applied, apply by waves, prune, record the digest,
//! report. What is clean is skipped, so a settled cluster costs no request. Watches on what was placed,
//! scoped by a label, wake whoever delivers when something there changes.

pub mod availability;
pub mod compare;
pub mod credentials;
pub mod deliver;
pub mod install;
pub mod inventory;
pub mod manifest;
pub mod member;
pub mod merge;
pub mod object;
pub mod ownership;
pub mod remove;
pub mod report;
pub mod takeover;
pub mod waves;

pub use deliver::{Desired, Outcome};
pub use member::{Member, MemberOptions};
pub use remove::{Removal, RemovalMode};
