//! The words of a fleet: what cells report to the coordinator, what it tells them, and what it must not forget.
//!
//! A cell seen from the fleet is a *shard*. Both sides share these types; what the coordinator decides is in `plimsoll-fleet`, which
//! no cell depends on. [`FleetState::apply`] keeps two promises whatever it is given: a machine has one owner, and slices of quota
//! sum to the quota.

mod apply;
mod command;
mod event;
mod ids;
mod instruction;
mod membership;
mod message;
pub(crate) mod pairs;
mod report;
mod state;
mod summary;

pub use apply::{MAX_MOVED, MAX_PENDING, MAX_SHARDS};
pub use command::{FleetChange, FleetCommand, FleetRefusal, TransferEnd};
pub use event::FleetEvent;
pub use ids::{
    InstructionId, MachineId, MachineType, NameError, Pool, Profile, ShardId, TransferId, Zone,
};
pub use instruction::{Ack, AckError, Instruction, Order, PendingInstruction};
pub use membership::{FleetMembership, MembershipChange};
pub(crate) use membership::{MAX_KEY, MAX_KNOWN};
pub use message::{CoordinatorAnswer, ShardKinds, ShardMessage};
pub use report::{
    Accepts, Bucket, MAX_POOLS, MAX_SHORTFALLS, Preemptible, Registration, Report, ReportError,
    ReportOrder, Shortfall, Supply,
};
pub use state::{
    FleetState, Ownership, Shard, ShardToken, Transfer, TransferKind, TransferStep, pair,
};
pub use summary::{SummaryError, decode_summary, encode_summary};
