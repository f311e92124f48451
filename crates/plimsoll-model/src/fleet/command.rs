//! What can be written to the coordinator's log, and how it is refused.

use std::collections::BTreeSet;
use std::fmt;

use crate::access::Digest;
use crate::{Millis, Term, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::fleet::ids::{InstructionId, MachineId, Pool, Profile, ShardId, TransferId};
use crate::fleet::instruction::Ack;
use crate::fleet::report::{Registration, ReportOrder};
use crate::fleet::state::TransferKind;

/// One entry of the log: it is made whole, or refused naming the change that could not be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetCommand {
    pub at: Timestamp,
    pub term: Term,
    pub batch: Vec<FleetChange>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetChange {
    /// This cell coordinates a fleet from now on, and deploys nothing.
    Begin,
    /// A cell may join the fleet with this token, once, as this shard. An older token for the shard is void.
    CreateToken { shard: ShardId, token: Digest, expires_at: Timestamp },
    /// A cell uses the token up. From now on the shard is known by this key, and by no other.
    Enrol { token: Digest, shard: ShardId, key: Digest },
    /// A shard says what it is.
    Register { shard: ShardId, registration: Registration },
    /// A shard is no longer in the fleet, from this moment on. What it owns stays its own; its slices of quota go with it, and
    /// transfers with it end.
    Expel { shard: ShardId },
    /// Nothing is begun any more; what is under way is finished.
    Pause { is_paused: bool },
    /// An operator cuts the quota anew.
    SetQuota { pool: Pool, shard: ShardId, slice: u32 },
    /// Machines are to change hands: the donor is asked.
    AskMachines {
        kind: TransferKind,
        donor: ShardId,
        recipient: ShardId,
        pool: Pool,
        count: u32,
        profile: Profile,
        /// What is drained must matter less than this.
        priority: i32,
        /// How long the donor has to answer.
        patience: Millis,
        /// How long it keeps what it has set aside.
        ttl: Millis,
        cooldown: Millis,
    },
    /// Quota changes hands, at once in the books.
    MoveQuota {
        donor: ShardId,
        recipient: ShardId,
        pool: Pool,
        count: u32,
        profile: Profile,
        cooldown: Millis,
    },
    /// What a shard says of an instruction, with the report it came in.
    Acknowledge {
        shard: ShardId,
        id: InstructionId,
        order: ReportOrder,
        ack: Ack,
        max_failures: u32,
        cooldown: Millis,
    },
    /// The donor has not answered in time.
    Expire { transfer: TransferId },
}

/// How a transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferEnd {
    Done,
    /// The donor would not.
    Refused,
    /// The donor did not answer in time.
    Expired,
    /// It failed too often.
    GivenUp,
    /// One of the two was expelled.
    Expelled,
}

impl TransferEnd {
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Expired => "expired",
            Self::GivenUp => "given_up",
            Self::Expelled => "expelled",
        }
    }
}

impl fmt::Display for TransferEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Refused => "refused by the donor",
            Self::Expired => "the donor did not answer in time",
            Self::GivenUp => "given up, it failed too often",
            Self::Expelled => "ended, a shard was expelled",
        })
    }
}

impl FleetChange {
    /// Its name, for logs and simulations.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Begin => "begin_fleet",
            Self::CreateToken { .. } => "create_shard_token",
            Self::Enrol { .. } => "enrol_shard",
            Self::Register { .. } => "register_shard",
            Self::Expel { .. } => "expel_shard",
            Self::Pause { .. } => "pause_fleet",
            Self::SetQuota { .. } => "set_fleet_quota",
            Self::AskMachines { .. } => "ask_machines",
            Self::MoveQuota { .. } => "move_quota",
            Self::Acknowledge { .. } => "acknowledge",
            Self::Expire { .. } => "expire_transfer",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum FleetRefusal {
    #[error("{shard} is not in the fleet")]
    UnknownShard { shard: ShardId },
    #[error("{shard} cannot give to itself")]
    SameShard { shard: ShardId },
    #[error("a transfer of nothing")]
    Nothing,
    #[error("{shard} has a quota of {slice} for {pool}, and {count} were to be taken")]
    Quota { shard: ShardId, pool: Pool, slice: u32, count: u32 },
    #[error("{what}: {found}, at most {max} are kept")]
    Full { what: String, found: usize, max: usize },
    #[error("the fleet knows no such token; make one with `plimsoll fleet token create NAME`")]
    TokenUnknown,
    #[error("this token was used by {by}; each serves one cell, make another")]
    TokenUsed { by: ShardId },
    #[error("this token ran out {ago} ago; make another")]
    TokenExpired { ago: Millis },
    #[error("this token is for {named}, not for {shard}")]
    TokenForAnother { named: ShardId, shard: ShardId },
    #[error("this key is enrolled as {by}")]
    KeyTaken { by: ShardId },
    #[error("there is no transfer {transfer} that waits for an answer")]
    NoTransfer { transfer: TransferId },
    #[error("transfer {transfer} may be answered until {until:?}")]
    NotExpired { transfer: TransferId, until: Timestamp },
    #[error("{pool} of {a} and {b} rests for another {left}")]
    Cooldown { pool: Pool, a: ShardId, b: ShardId, left: Millis },
    #[error("{shard} has {found} instructions pending; at most {max} are kept")]
    TooMany { shard: ShardId, found: usize, max: usize },
}

/// What a transfer moved, for those who keep the books of a shard.
pub(crate) type Machines = BTreeSet<MachineId>;
