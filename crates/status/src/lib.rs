//! Condition arithmetic, digests and freshness: the vocabulary that every kind shares. Pure.
