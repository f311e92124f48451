//! What can be written about machines, and why it is refused.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{LedgerEntry, MachineClass, MachineState};
use crate::fleet::{Ack, AckError, InstructionId, MachineId, Pool, Profile, TransferId};
use crate::ids::NodeId;
use crate::units::{Term, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineChange {
    /// The provider has this machine for the cell: one it did not know, or one that is described anew. A machine in another state
    /// than it was is a [`Step`](Self::Step).
    Put { machine: MachineId, class: MachineClass, state: MachineState, epoch: u32 },
    /// The provider has no such machine any more, and cannot make it.
    Drop { machine: MachineId },
    /// From one state to another, as its table has it.
    Step { machine: MachineId, from: MachineState, to: MachineState },
    /// It is set aside for another cell, also while it is still in use.
    Reserve { machine: MachineId, transfer: TransferId, until: Timestamp },
    /// What was set aside is the cell's own again: whoever was to get it took too long.
    Unreserve { machine: MachineId },
    /// Nothing is carried out from now on, or again.
    Pause { is_paused: bool },
    /// What is missing at the end of this cycle. What was missing before is a cycle older, what is not named is met.
    CloseCycle { cycle: u64, ledger: BTreeMap<Profile, LedgerEntry> },
    /// What was made of an instruction of the coordinator.
    Obey { term: Term, id: InstructionId, transfer: TransferId, deed: Deed },
    /// An instruction that took a while has ended.
    Finish { id: InstructionId, ack: Ack },
    /// The provider described a machine that the cell was given.
    Adopted { id: InstructionId, machine: MachineId, class: MachineClass },
    /// The coordinator has heard these answers: it does not send the instructions any more.
    Heard { ids: BTreeSet<InstructionId> },
}

/// What a cell does about an instruction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    Reserve {
        machines: BTreeSet<MachineId>,
        until: Timestamp,
    },
    Drain {
        machines: BTreeSet<MachineId>,
        until: Timestamp,
    },
    Forget {
        machines: BTreeSet<MachineId>,
    },
    Adopt {
        machines: BTreeMap<MachineId, u32>,
    },
    Release {
        machines: BTreeSet<MachineId>,
    },
    SetQuota {
        pool: Pool,
        slice: u32,
    },
    Refuse {
        reason: AckError,
    },
    /// It is tried again when the coordinator says it again.
    Fail {
        reason: AckError,
    },
}

impl MachineChange {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Put { .. } => "put_machine",
            Self::Drop { .. } => "drop_machine",
            Self::Step { .. } => "step_machine",
            Self::Reserve { .. } => "reserve_machine",
            Self::Unreserve { .. } => "unreserve_machine",
            Self::Pause { .. } => "pause_machines",
            Self::CloseCycle { .. } => "close_shard_cycle",
            Self::Obey { .. } => "obey_instruction",
            Self::Finish { .. } => "finish_instruction",
            Self::Adopted { .. } => "adopt_machine",
            Self::Heard { .. } => "forget_acks",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineRefusal {
    #[error("the cell has no machine {machine}")]
    Unknown { machine: MachineId },
    #[error("machine {machine} is {found}, and it was decided on {decided}")]
    Moved { machine: MachineId, decided: MachineState, found: MachineState },
    #[error("machine {machine} is {state}, and cannot be put there so")]
    NotNew { machine: MachineId, state: MachineState },
    #[error("machine {machine} is {state}, and somebody may use it")]
    InUse { machine: MachineId, state: MachineState },
    #[error("machine {machine} was given away at epoch {gave}, this says {epoch}")]
    GivenAway { machine: MachineId, gave: u32, epoch: u32 },
    #[error("machine {machine} is owned under epoch {owned}, this says {epoch}")]
    Epoch { machine: MachineId, owned: u32, epoch: u32 },
    #[error("machine {machine} is set aside for {transfer}")]
    Reserved { machine: MachineId, transfer: TransferId },
    #[error("machine {machine} is not set aside")]
    NotReserved { machine: MachineId },
    #[error("machine {machine} is malformed: {why}")]
    Malformed { machine: MachineId, why: String },
    #[error("node {node} is a machine already: {machine}")]
    OtherNode { machine: MachineId, node: NodeId },
    #[error("it is cycle {found}, and the next one is {next}")]
    Cycle { found: u64, next: u64 },
    #[error("shortfall {profile} lacks nothing")]
    Nothing { profile: Profile },
    #[error("instruction {id} is of term {}, and the coordinator is at term {}", term.0, seen.0)]
    OldTerm { id: InstructionId, term: Term, seen: Term },
    #[error("instruction {id} was carried out before")]
    Obeyed { id: InstructionId },
    #[error("instruction {id} is not under way")]
    NotUnderWay { id: InstructionId },
    #[error("the slice of {pool} is {slice}, and {used} are in use")]
    Quota { pool: Pool, slice: u32, used: u32 },
}
