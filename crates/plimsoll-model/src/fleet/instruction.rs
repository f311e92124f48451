//! What shards are told to do. An instruction follows from what is written, is sent with every answer to its shard until that has
//! carried it out, and keeps its number, so that a shard does it once however often it hears it.

use std::collections::BTreeSet;

use crate::{Millis, Term};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::fleet::ids::{InstructionId, MachineId, Pool, TransferId};

/// As it is sent. A shard refuses a term older than the newest it has seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instruction {
    pub term: Term,
    pub id: InstructionId,
    pub transfer: TransferId,
    pub order: Order,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Set aside so many idle machines, those of least value to keep first, and say which.
    Reserve { pool: Pool, count: u32, ttl: Millis },
    /// Drain so many machines whose work matters less than this, set them aside, and say which.
    Drain { pool: Pool, count: u32, below_priority: i32, ttl: Millis },
    /// They are somebody else's now.
    Forget { machines: BTreeSet<MachineId> },
    /// They are yours, each under this ownership epoch: fetch them from the provider.
    Adopt { machines: Vec<(MachineId, u64)> },
    /// What was set aside is not needed: it is yours as before.
    Release { machines: BTreeSet<MachineId> },
    /// So many machines of this kind may exist in this shard.
    SetQuota { pool: Pool, slice: u32 },
}

impl Order {
    /// Whether it says whose machines are, which no failure changes.
    pub fn is_about_ownership(&self) -> bool {
        matches!(self, Self::Forget { .. } | Self::Adopt { .. } | Self::Release { .. })
    }
}

/// What a shard answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ack {
    Done,
    /// Set aside: these.
    Reserved {
        machines: BTreeSet<MachineId>,
    },
    /// It cannot, and will not.
    Refused {
        reason: AckError,
    },
    /// It tried, and may try again.
    Failed {
        reason: AckError,
    },
}

/// Why a shard did not do what it was told.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Error,
)]
#[serde(rename_all = "snake_case")]
pub enum AckError {
    #[error("its operator has paused it")]
    Paused,
    #[error("it has no machine to give any more")]
    NothingToGive,
    #[error("it has more in use than that")]
    InUse,
    #[error("the provider does not answer")]
    Provider,
    #[error("it is not known there")]
    Unknown,
}

/// One that has not been carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingInstruction {
    pub transfer: TransferId,
    pub order: Order,
    /// How often the shard has tried in vain.
    pub failures: u32,
}
