//! The vocabulary that every kind shares: conditions, digests, freshness, defaults, readiness, the processing
//! clock; and how any object stands, of whatever kind: [`kstatus`], [`health`].
//!
//! Pure: no client, no clock, no randomness. Time comes in as a parameter, and nothing here can fail.

pub mod addon_transitions;
pub mod conditions;
pub mod defaults;
pub mod digest;
pub mod duration;
pub mod freshness;
pub mod health;
pub mod kstatus;
pub mod processing;
pub mod ready;
pub mod run_transitions;
pub mod transitions;

pub use conditions::NewCondition;
pub use digest::Digest;
