//! Tables of the placement's pure planners, and what its actor does not do.

mod bindings;
mod held;
mod overrides;
mod pending;
mod policy;
mod snapshots;
