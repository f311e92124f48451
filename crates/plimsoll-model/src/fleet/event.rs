//! What happened to a fleet, for the audit: on the coordinator what it decided and what became of it, on a cell that it joined or
//! left. A transfer has one number on both sides.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::CellId;
use crate::Timestamp;
use crate::fleet::command::TransferEnd;
use crate::fleet::ids::{MachineId, Pool, Profile, ShardId, TransferId};
use crate::fleet::state::TransferKind;

/// How many machines an event names; the rest are counted.
pub(crate) const MAX_NAMED: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetEvent {
    Began,
    TokenCreated {
        shard: ShardId,
        expires_at: Timestamp,
    },
    Enrolled {
        shard: ShardId,
    },
    Expelled {
        shard: ShardId,
    },
    Paused {
        is_paused: bool,
    },
    QuotaSet {
        pool: Pool,
        shard: ShardId,
        slice: u32,
    },
    TransferStarted {
        transfer: TransferId,
        kind: TransferKind,
        donor: ShardId,
        recipient: ShardId,
        pool: Pool,
        count: u32,
        profile: Profile,
    },
    MachinesMoved {
        transfer: TransferId,
        recipient: ShardId,
        count: usize,
        named: BTreeSet<MachineId>,
    },
    TransferEnded {
        transfer: TransferId,
        end: TransferEnd,
    },
    /// This cell is a shard of that fleet.
    Joined {
        coordinator: CellId,
        shard: ShardId,
    },
    Left {
        coordinator: CellId,
        shard: ShardId,
    },
}

impl FleetEvent {
    /// Every word there is.
    pub const WORDS: [&'static str; 12] = [
        "fleet_began",
        "shard_token_created",
        "shard_enrolled",
        "shard_expelled",
        "fleet_paused",
        "fleet_resumed",
        "fleet_quota_set",
        "transfer_started",
        "machines_moved",
        "transfer_ended",
        "fleet_joined",
        "fleet_left",
    ];

    pub fn word(&self) -> &'static str {
        match self {
            Self::Began => "fleet_began",
            Self::TokenCreated { .. } => "shard_token_created",
            Self::Enrolled { .. } => "shard_enrolled",
            Self::Expelled { .. } => "shard_expelled",
            Self::Paused { is_paused: true } => "fleet_paused",
            Self::Paused { is_paused: false } => "fleet_resumed",
            Self::QuotaSet { .. } => "fleet_quota_set",
            Self::TransferStarted { .. } => "transfer_started",
            Self::MachinesMoved { .. } => "machines_moved",
            Self::TransferEnded { .. } => "transfer_ended",
            Self::Joined { .. } => "fleet_joined",
            Self::Left { .. } => "fleet_left",
        }
    }
}

impl fmt::Display for FleetEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Began => f.write_str("this cell coordinates a fleet"),
            Self::TokenCreated { shard, .. } => {
                write!(f, "a token was created that one cell can join the fleet with as {shard}")
            }
            Self::Enrolled { shard } => write!(f, "{shard} joined the fleet"),
            Self::Expelled { shard } => write!(f, "{shard} was expelled from the fleet"),
            Self::Paused { is_paused: true } => f.write_str("the fleet is paused"),
            Self::Paused { is_paused: false } => f.write_str("the fleet is resumed"),
            Self::QuotaSet { pool, shard, slice } => {
                write!(f, "quota of {shard} for {pool} set to {slice}")
            }
            Self::TransferStarted { transfer, kind, donor, recipient, pool, count, profile } => {
                let what = match kind {
                    TransferKind::Idle => "idle",
                    TransferKind::Quota => "quota for",
                    TransferKind::Preempt => "drained",
                };
                write!(f, "{transfer}: {count} {what} {pool}, {donor} → {recipient}, for {profile}")
            }
            Self::MachinesMoved { transfer, recipient, count, named } => {
                let names: Vec<&str> = named.iter().map(MachineId::as_str).collect();
                let more = count.saturating_sub(named.len());
                write!(
                    f,
                    "{transfer}: {count} machines belong to {recipient}: {}",
                    names.join(", ")
                )?;
                if more > 0 { write!(f, " and {more} more") } else { Ok(()) }
            }
            Self::TransferEnded { transfer, end } => write!(f, "{transfer}: {end}"),
            Self::Joined { coordinator, shard } => {
                write!(f, "this cell joined the fleet of {coordinator} as {shard}")
            }
            Self::Left { coordinator, shard } => {
                write!(f, "this cell, {shard}, left the fleet of {coordinator}")
            }
        }
    }
}
