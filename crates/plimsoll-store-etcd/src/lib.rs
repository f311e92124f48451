//! The log of a cell on an etcd that somebody runs already: the same [`Engine`](plimsoll_store::Engine), with etcd in
//! place of a disk and of consensus.
//!
//! One server leads: it holds a key under a lease, and the revision that created that key is its term. Every entry it
//! writes is guarded by that key and by the index that comes next, so one that was deposed without knowing writes
//! nothing. The others watch the log, apply it as it comes, and campaign as soon as the key is gone. What is stored
//! where is in [`layout`], what is decided in [`rules`]; the rest carries it out.

mod append;
mod core;
mod engine;
#[cfg(test)]
mod fuzz;
mod layout;
mod lead;
pub mod migrate;
mod rules;
mod seal;
mod session;
mod shared;
mod snapshot;
mod start;
mod sync;
mod tip;

pub use engine::Etcd;
pub use rules::{MAX_TTL, MIN_TTL};
pub use start::{EtcdEngineConfig, FoundCell, StartError, cell_at};

/// The most bytes one command may take when it is written, as in the embedded engine.
pub const MAX_COMMAND: usize = plimsoll_store::embedded::MAX_COMMAND;
