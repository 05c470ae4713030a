//! Status and schedule of a repository and of an Addon: tables of every branch, the worked examples of the
//! reference, and models of many passes.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod failure;
mod machine;
mod model;
mod placed;
mod random;
mod schedule;
mod support;
mod table;
