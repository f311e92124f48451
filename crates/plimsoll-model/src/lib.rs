//! Plimsoll's words as types.
//!
//! Ids and units that cannot be mixed up, specs as people wrote them, closed enums for every state and reason,
//! and the one replicated [`State`] with the one function that changes it, [`State::apply`]. Nothing here reads a
//! clock, a file or a random number, and nothing here decides: decisions are made in `plimsoll-kernel`.

pub mod access;
pub mod apply;
pub mod audit;
pub mod command;
mod hex;
pub mod ids;
pub mod level;
pub mod lookup;
pub mod node;
pub mod privilege;
pub mod reason;
pub mod rebalance;
pub mod replica;
pub mod rollout;
pub mod spec;
pub mod state;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
pub mod transition;
pub mod units;
pub mod volumes;

pub use audit::{Author, Happening};
pub use command::{Change, Command, Deed, Event, Guarded, Refusal, Rejection, Require};
pub use ids::{ClusterId, DeploymentName, NodeId, ReplicaId, ServiceKey, ServiceName, Slot, Zone};
pub use level::Level;
pub use lookup::Lookup;
pub use node::{Availability, Node, NodeFacts, NodeStatus};
pub use replica::{
    Assignment, MoveCause, Observation, ObservedCode, ObservedState, Replica, Successor,
};
pub use rollout::Rollout;
pub use spec::{ContainerSpec, Mode, Placement, ServiceSpec, SpecHash};
pub use state::State;
pub use transition::Writer;
pub use units::{
    Bytes, Generation, MilliCpus, Millis, Pressure, Resources, Revision, Term, Timestamp,
};
