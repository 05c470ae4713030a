//! Access to one API server, hub's or member's: the only crate that writes, reads the clock or spawns.
//!
//! Data flows one way. A [`cache::Cache`] keeps what a watch delivers and tells its owner of every change;
//! the owner puts a key into a [`queue::Queue`]; whoever takes the key reads the caches, decides, and
//! sends writes through the one [`writer::Writer`], whose answers go back into the cache at once, so that
//! the next look sees them.
//!
//! | module | what it is for |
//! |---|---|
//! | [`clock`] | real time, randomness, tasks: everybody else gets them as inputs |
//! | [`kubeconfig`], [`client`] | from stored credentials to a client with limits and counters |
//! | `rate` | how many requests a second, where somebody asked for a limit |
//! | [`requests`] | what was sent, by target, verb, resource and answer |
//! | [`discovery`] | which kinds the server knows |
//! | [`cache`], [`queue`] | see above |
//! | [`events`] | Kubernetes events, which never hold anything up |
//! | [`writer`], [`error`] | writes, and what their refusal means; `failpoint` makes them fail in tests |
//! | [`lease`] | one process at a time may write |

pub mod cache;
pub mod client;
pub mod clock;
pub mod discovery;
pub mod error;
pub mod events;
mod exchange;
mod failpoint;
mod kind_of;
pub mod kubeconfig;
pub mod lease;
pub mod queue;
mod rate;
pub mod requests;
mod transport;
pub mod writer;

pub use cache::{Cache, CacheOptions, Change, Index, ObjectKey};
pub use client::{ConnectError, ConnectOptions, connect};
pub use discovery::Discovery;
pub use error::ApiError;
pub use events::{Events, NewEvent};
pub use kind_of::KindOf;
pub use kubeconfig::parse_stored_kubeconfig;
pub use lease::gate::Gate;
pub use queue::Queue;
pub use rate::Rate;
pub use requests::RequestCounter;
pub use transport::TransportLayer;
pub use writer::{Propagation, Writer};
