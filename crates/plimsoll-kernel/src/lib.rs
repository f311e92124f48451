//! Plimsoll's decisions: pure functions from state and signals to batches of changes.
//!
//! No clock, no I/O, no chance: equal inputs give equal bytes. What the changes mean is settled in
//! `plimsoll-model`; how containers are started and stopped is left to the edges.

pub mod agent;
pub mod batch;
mod budget;
pub mod certificates;
pub mod condition;
mod data;
mod declared;
pub mod depends;
pub mod dirty;
pub mod drain;
pub mod endpoints;
pub mod explain;
pub mod leader;
pub mod level;
pub mod lint;
pub mod liveness;
pub mod moves;
pub mod optimize;
pub mod orders;
pub mod place;
pub mod plan;
pub mod policy;
pub mod preempt;
pub mod progress;
pub mod rebalance;
pub mod reconcile;
pub mod reschedule;
pub mod restart;
pub mod review;
mod rollout;
pub mod rotation;
pub mod shard;
pub mod signals;
pub mod volume_moves;
pub mod voters;
pub mod what_if;

#[cfg(test)]
mod testkit;

pub use leader::{Leader, LeaderStep};
pub use policy::Policy;
pub use reconcile::{Decision, Scope, reconcile};
pub use signals::{PressureSample, Signals};
