//! World, actors and planners wired together: the hub.
