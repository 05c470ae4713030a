//! Filter, score, spread, pick. Pure.
