//! Tables of the placement's pure planners.

mod bindings;
mod overrides;
mod policy;
mod snapshots;
