//! A cell's place in a fleet: whom it reports to, as which shard, and the key that proves it. It is kept in the cell's replicated
//! state, so that whichever server leads can report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::acme::SecretKey;
use crate::fleet::ids::ShardId;
use crate::{CellId, NodeId, Timestamp};

/// The most bytes of a key, and of a certificate: ours have some hundred.
pub(crate) const MAX_KEY: usize = 4 << 10;

/// The most servers of a coordinator that a cell remembers, and the most authorities: it has at most seven and two.
pub(crate) const MAX_KNOWN: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetMembership {
    pub shard: ShardId,
    /// The cell that coordinates.
    pub coordinator: CellId,
    /// Its servers, and where each is reached.
    pub servers: BTreeMap<NodeId, String>,
    /// What proves that this cell is the shard.
    pub key: SecretKey,
    pub certificate: Vec<u8>,
    /// Its authorities, the one that signs first.
    pub authorities: Vec<Vec<u8>>,
    pub joined_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MembershipChange {
    /// The cell joins, or knows something new of its coordinator.
    Set { membership: Box<FleetMembership> },
    /// It reports no more. What the coordinator knows of it is the coordinator's to forget.
    Leave,
}

impl MembershipChange {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Set { .. } => "set_fleet_membership",
            Self::Leave => "leave_fleet",
        }
    }
}
