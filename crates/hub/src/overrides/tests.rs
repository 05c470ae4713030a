//! Which snapshots there are, and which of them a binding names.
