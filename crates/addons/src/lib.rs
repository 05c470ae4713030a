//! Add-ons: what a repository of Helm charts offers, whether that is known, and what a chart comes to.
//!
//! ```text
//! AddonRepository + Secrets ─▶ source ─▶ helm or oci (fetch) ─▶ catalogue ─▶ AddonCharts
//!                                               │ failure
//!                                               ▼
//!                        schedule ─────▶ evaluate ─▶ the whole status, and when to come again
//!
//! Addon + AddonChart ─▶ version (which) ─▶ archive (its bytes) ─▶ render (Helm) ─▶ pack ─▶ envelopes
//! ```
//!
//! [`evaluate`], [`schedule`], [`version`], [`catalogue`] and [`failure`] are pure: time and jitter come in
//! as parameters. The rest talks to repositories, never to an API server: `crates/hub/src/addons` does that.
//! The rules are those of the first seed document, with its holes mended as the reference recommends.

#![forbid(unsafe_code)]

pub mod archive;
pub mod catalogue;
pub mod evaluate;
pub mod failure;
pub mod helm;
pub mod http;
pub mod manifests;
pub mod oci;
pub mod pack;
pub mod placed;
pub mod range;
pub mod reading;
pub mod render;
pub mod schedule;
pub mod source;
pub mod version;

pub use self::failure::{Failure, Fault};
pub use self::reading::{Before, Reading, read};
pub use self::source::Source;
