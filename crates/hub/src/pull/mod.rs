//! Delivery by pull: what each binding asks for is written into Works, which the member's agent applies and
//! reports on (API §3.10).
//!
//! [`plan`] decides what to write and [`read`] what the reports mean; both are pure. [`caches`] holds what
//! is in the members' namespaces. Works are kept without their specs, and without what is in order about
//! their objects: whether one is as it should be is told by a digest in an annotation ([`work`]).

pub mod abandon;
pub mod caches;
pub mod deliver;
pub mod plan;
pub mod read;
pub mod work;

pub use self::caches::PullCaches;
