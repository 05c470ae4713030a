//! Rolling planner. Pure.
