//! Plimsoll's decisions: pure functions from state and signals to batches of changes.
//!
//! No clock, no I/O, no chance: equal inputs give equal bytes. What the changes mean is settled in
//! `plimsoll-model`; how containers are started and stopped is left to the edges.

pub mod agent;
pub mod depends;
pub mod dirty;
pub mod explain;
pub mod level;
pub mod lint;
pub mod liveness;
pub mod moves;
pub mod place;
pub mod policy;
pub mod reconcile;
pub mod restart;
pub mod signals;
pub mod voters;

#[cfg(test)]
mod testkit;

pub use policy::Policy;
pub use reconcile::{Decision, Scope, reconcile};
pub use signals::Signals;
