//! What a machine is to its cell, and who may take it where.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::transition::{Edge, Writer};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineState {
    /// It does not exist, and could be made.
    Speculative,
    Creating,
    /// It exists, waits, and nobody needs it.
    Idle,
    /// It is told which cell to join.
    Configuring,
    /// It is a node of the cell.
    Configured,
    /// What runs on it leaves, then it leaves the cell.
    Draining,
    Deleting,
    /// Its provider could not do what was asked, or took too long.
    Failed,
}

impl MachineState {
    pub const ALL: [Self; 8] = [
        Self::Speculative,
        Self::Creating,
        Self::Idle,
        Self::Configuring,
        Self::Configured,
        Self::Draining,
        Self::Deleting,
        Self::Failed,
    ];

    pub const EDGES: &[Edge<Self>] = &[
        Edge { from: Self::Speculative, to: &[Self::Creating], by: Writer::Shard },
        // Somebody made it by hand.
        Edge { from: Self::Speculative, to: &[Self::Idle], by: Writer::Provider },
        Edge { from: Self::Creating, to: &[Self::Idle, Self::Failed], by: Writer::Provider },
        Edge { from: Self::Creating, to: &[Self::Failed], by: Writer::Shard },
        Edge { from: Self::Idle, to: &[Self::Configuring, Self::Deleting], by: Writer::Shard },
        // Its provider took it away, and could make it again; or it does not answer.
        Edge { from: Self::Idle, to: &[Self::Speculative, Self::Failed], by: Writer::Provider },
        Edge { from: Self::Configuring, to: &[Self::Configured], by: Writer::Agent },
        Edge { from: Self::Configuring, to: &[Self::Failed], by: Writer::Provider },
        Edge { from: Self::Configuring, to: &[Self::Failed], by: Writer::Shard },
        Edge { from: Self::Configured, to: &[Self::Draining], by: Writer::Shard },
        Edge { from: Self::Draining, to: &[Self::Idle, Self::Failed], by: Writer::Provider },
        // What runs there could not leave in time, and is never made to.
        Edge { from: Self::Draining, to: &[Self::Configured], by: Writer::Shard },
        Edge {
            from: Self::Deleting,
            to: &[Self::Speculative, Self::Idle, Self::Failed],
            by: Writer::Provider,
        },
        Edge { from: Self::Failed, to: &[Self::Deleting], by: Writer::Shard },
        // It joined after all, or answers again.
        Edge { from: Self::Failed, to: &[Self::Configured], by: Writer::Agent },
        Edge { from: Self::Failed, to: &[Self::Idle], by: Writer::Provider },
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Speculative => "speculative",
            Self::Creating => "creating",
            Self::Idle => "idle",
            Self::Configuring => "configuring",
            Self::Configured => "configured",
            Self::Draining => "draining",
            Self::Deleting => "deleting",
            Self::Failed => "failed",
        }
    }

    /// Whether it is, or may be, a node of the cell.
    pub fn is_in_use(self) -> bool {
        matches!(self, Self::Configuring | Self::Configured | Self::Draining)
    }

    /// Whether it counts against the quota: all but what could be made.
    pub fn exists(self) -> bool {
        self != Self::Speculative
    }
}

impl fmt::Display for MachineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}
