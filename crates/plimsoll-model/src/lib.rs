//! Plimsoll's words as types.
//!
//! Ids and units that cannot be mixed up, specs as people wrote them, closed enums for every state and reason,
//! and the one replicated [`State`] with the one function that changes it, [`State::apply`]. Nothing here reads a
//! clock, a file or a random number, and nothing here decides: decisions are made in `plimsoll-kernel`.

pub mod access;
pub mod acme;
pub mod apply;
pub mod audit;
pub mod capability;
pub mod ceilings;
pub mod cell_files;
pub mod command;
pub mod fleet;
mod hex;
pub mod ids;
pub mod level;
pub mod lookup;
pub mod machines;
pub mod node;
pub mod optimize;
pub mod preemption;
pub mod pressure;
pub mod privilege;
pub mod reason;
pub mod rebalance;
pub mod registries;
pub mod replica;
pub mod reschedule;
pub mod review;
pub mod rollout;
pub mod rotation;
pub mod schedule;
pub mod shape;
pub mod spec;
pub mod state;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
pub mod transition;
pub mod units;
pub mod volume_holds;
pub mod volumes;

pub use audit::{AuditKind, Author};
pub use capability::{Capability, RuntimeFacts};
pub use command::{AuditEntry, Change, Command, Event, Guarded, Refusal, Rejection, Require};
pub use ids::{
    CellId, DeploymentName, FileName, NodeId, RegistryHost, ReplicaId, ServiceKey, ServiceName,
    Slot, Zone,
};
pub use level::Level;
pub use lookup::Lookup;
pub use node::{Availability, Node, NodeFacts, NodeRole, NodeStatus, Roles, RuntimeOutage};
pub use pressure::{NodePressure, Pressure};
pub use replica::{
    Assignment, MoveCause, Observation, ObservedCode, ObservedState, Replica, Successor,
};
pub use reschedule::Score;
pub use rollout::Rollout;
pub use spec::{ContainerSpec, Mode, Placement, ServiceSpec, SpecHash};
pub use state::State;
pub use transition::Writer;
pub use units::{Bytes, Generation, MilliCpus, Millis, Resources, Revision, Term, Timestamp};
