//! The replicated log.
//!
//! One trait, [`Engine`], stands between the cell's state and whatever makes it survive: [`embedded`] keeps a log and
//! snapshots on the local disk and replicates them by itself. Nothing above the trait knows which engine runs. What
//! a command means is settled in `plimsoll-model`; here it is only made durable, ordered and applied.

mod aside;
pub mod backup;
pub mod checked_file;
pub mod disk;
pub mod embedded;
pub mod engine;
pub mod fault;
pub mod keys;
pub mod level;
pub mod log;
pub mod machine;
pub mod migration;
pub mod recovery;

pub use aside::aside;
pub use embedded::{Embedded, Founding, Incarnation};
pub use engine::{
    Committed, Engine, Error, Leadership, LeadershipInfo, LogPosition, Member, Peer, ServerId,
    ServerRole,
};
pub use machine::{AppliedCommand, Lagged, Machine, Watcher};
