//! The decisions of the coordinator, which moves capacity between cells: pure functions of its replicated state and of what
//! cells last reported.
//!
//! A cell seen from here is a *shard*. It reports what it has and what it lacks; the [`pass`] serves a shortfall in the cheapest
//! way that helps: idle machines of another shard, then quota for machines that do not exist yet, then, rarely, a drain of
//! something that matters less. What is decided is written by
//! [`FleetState::apply`](plimsoll_model::fleet::FleetState::apply), which keeps a machine with one owner and the quota whole. Instructions follow from what is written, and are resent until
//! a shard has carried them out.
//!
//! No cell depends on this crate: with the coordinator gone, cells go on with the machines they have.

mod leader;
pub mod pass;
mod policy;
mod reports;

pub use leader::FleetLeader;
pub use pass::{FleetDecision, coordinate};
pub use policy::FleetPolicy;
pub use reports::{KnownShortfall, Reports, ShardReport};
