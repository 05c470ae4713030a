//! Tables of the placement's pure planners.

mod bindings;
mod overrides;
mod pending;
mod policy;
mod snapshots;
