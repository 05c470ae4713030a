//! Staged update runs: tables that read like the hub reference §3, and worlds where anything may happen.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't go on fails"
)]

mod fleet;
mod gates;
mod init;
mod laws;
mod membership;
mod model;
mod rollback;
mod stages;
mod stop;
mod threshold;
mod world;
