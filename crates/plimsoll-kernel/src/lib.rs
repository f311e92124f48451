//! Plimsoll's decisions: pure functions from state and signals to batches of changes.
//!
//! No clock, no I/O, no chance: equal inputs give equal bytes. What the changes mean is settled in
//! `plimsoll-model`; how containers are started and stopped is left to the edges.

pub mod agent;
mod budget;
pub mod depends;
pub mod dirty;
pub mod drain;
pub mod explain;
pub mod foresee;
pub mod level;
pub mod lint;
pub mod liveness;
pub mod moves;
pub mod place;
pub mod policy;
pub mod rebalance;
pub mod reconcile;
pub mod restart;
mod rollout;
pub mod signals;
pub mod voters;

#[cfg(test)]
mod testkit;

pub use foresee::{Foresight, foresee};
pub use policy::Policy;
pub use reconcile::{Decision, Scope, reconcile};
pub use signals::Signals;
