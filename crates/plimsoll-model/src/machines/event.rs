//! What the audit tells of machines.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Deed, MachineState};
use crate::fleet::{Ack, InstructionId, MachineId, TransferId};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineEvent {
    Stepped {
        machine: MachineId,
        from: MachineState,
        to: MachineState,
    },
    /// What the cell made of an instruction, under the number that the coordinator's audit has too.
    Obeyed {
        transfer: TransferId,
        id: InstructionId,
        deed: Box<Deed>,
    },
    Finished {
        transfer: TransferId,
        id: InstructionId,
        ack: Ack,
    },
    Paused {
        is_paused: bool,
    },
}

impl MachineEvent {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Stepped { .. } => "machine_stepped",
            Self::Obeyed { .. } | Self::Finished { .. } => "machine_transfer",
            Self::Paused { .. } => "machines_paused",
        }
    }
}

impl fmt::Display for MachineEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stepped { machine, from, to } => write!(f, "machine {machine}: {from} → {to}"),
            Self::Obeyed { transfer, deed, .. } => write!(f, "transfer {transfer}: {deed}"),
            Self::Finished { transfer, ack, .. } => {
                write!(f, "transfer {transfer}: ")?;
                match ack {
                    Ack::Done => f.write_str("done"),
                    Ack::Reserved { machines } => write!(f, "{} machines reserved", machines.len()),
                    Ack::Refused { reason } => write!(f, "refused: {reason}"),
                    Ack::Failed { reason } => write!(f, "failed: {reason}"),
                }
            }
            Self::Paused { is_paused: true } => f.write_str("machines are paused"),
            Self::Paused { is_paused: false } => f.write_str("machines are resumed"),
        }
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserve { machines, .. } => write!(f, "{} machines reserved", machines.len()),
            Self::Drain { machines, .. } => write!(f, "draining {} machines", machines.len()),
            Self::Forget { machines } => write!(f, "{} machines given away", machines.len()),
            Self::Adopt { machines } => write!(f, "adopting {} machines", machines.len()),
            Self::Release { machines } => write!(f, "{} machines released", machines.len()),
            Self::SetQuota { pool, slice } => write!(f, "quota of {pool} is {slice}"),
            Self::Refuse { reason } => write!(f, "refused: {reason}"),
            Self::Fail { reason } => write!(f, "failed: {reason}"),
        }
    }
}
