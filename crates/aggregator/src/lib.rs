//! The roll-up of bindings into a placement's status. Pure.
