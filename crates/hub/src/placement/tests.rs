//! Tables of the placement's pure planners.

mod bindings;
mod policy;
mod snapshots;
