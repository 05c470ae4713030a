//! The apply engine for one member cluster, used by the hub (push).
//!
//! [`Member::deliver`] takes a desired state and does what is missing, in the order that a crash can't
//! hurt: own (AppliedWork), record what is about to be applied, apply by waves, prune, record the digest,
//! report. What is clean is skipped, so a settled cluster costs no request. Watches on what was placed,
//! scoped by a label, wake whoever delivers when something there changes.
//!
//! | module | what it decides, or does |
//! |---|---|
//! | [`manifest`], [`object`] | what is read from a snapshot, what is sent |
//! | [`waves`] | in which order |
//! | [`compare`], [`schema`], [`quantity`] | whether a live object has what a manifest asks for |
//! | [`takeover`], [`ownership`], [`merge`] | objects that others made, fields that others own |
//! | [`inventory`] | what was, or is about to be, applied |
//! | [`availability`], [`report`] | what is said about it |
//! | [`member`], `watches`, `memory` | the connection, and what is kept in memory |
//! | [`deliver`], `look`, `apply` | one pass |
//! | [`remove`], `contents` | removal, and what holds it up |
//! | [`regroup`] | objects change their AppliedWork, when a cluster changes its mode of delivery |
//! | [`install`], [`credentials`] | what joining needs |
//!
//! The modules of the first half are pure.

mod apply;
pub mod availability;
pub mod compare;
mod contents;
pub mod credentials;
pub mod deliver;
pub mod install;
pub mod inventory;
mod item;
mod look;
pub mod manifest;
pub mod member;
mod memory;
pub mod merge;
pub mod object;
pub mod outcome;
pub mod ownership;
mod parent;
pub mod quantity;
pub mod regroup;
pub mod remove;
pub mod report;
pub mod schema;
pub mod takeover;
mod watches;
pub mod waves;

pub use member::{Member, MemberOptions};
pub use outcome::{Desired, ManifestOutcome, Outcome};
pub use parent::{Parent, Rival, unique};
pub use remove::{Removal, RemovalMode};
