//! The axum server for /metrics, /healthz and /readyz.
