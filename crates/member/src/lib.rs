//! The apply engine: order, own, apply, compare, watch, report on one member cluster.
