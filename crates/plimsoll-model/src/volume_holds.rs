//! Volumes that somebody reads or replaces as a whole. While one is held nothing that uses it runs; whoever holds it says again
//! and again that they are still there, and when they do not, what was stopped starts again.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::units::{Generation, Millis, Timestamp};

/// How long a hold lasts that nobody renews. Long enough for a new leader to be elected and a slow client to be heard; short
/// enough that a service whose backup was killed is not missed for long.
pub const HOLD_LEASE: Millis = Millis::seconds(60);

/// A volume that is backed up or restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeHold {
    /// By which nodes, clients and the log tell this hold from another.
    pub order: Generation,
    pub volume: String,
    /// Whose copy.
    pub node: NodeId,
    pub purpose: HoldPurpose,
    pub phase: VolumeHoldPhase,
    /// There was no such volume before it. If nothing comes of it, none is left.
    pub is_new: bool,
    pub since: Timestamp,
    /// It is over then, unless it is renewed.
    pub until: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldPurpose {
    Backup,
    /// What uses the volume runs on, and may write while it is read.
    LiveBackup,
    Restore,
}

impl HoldPurpose {
    pub fn word(self) -> &'static str {
        match self {
            Self::Backup => "backup",
            Self::LiveBackup => "live_backup",
            Self::Restore => "restore",
        }
    }

    /// Whether what uses the volume is stopped.
    pub fn stops(self) -> bool {
        self != Self::LiveBackup
    }

    /// What is done, as a noun.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Backup => "backup",
            Self::LiveBackup => "live backup",
            Self::Restore => "restore",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeHoldPhase {
    /// What uses the volume is being stopped.
    Stopping,
    /// It may be read or replaced.
    Open,
}

impl VolumeHoldPhase {
    pub fn word(self) -> &'static str {
        match self {
            Self::Stopping => "stopping",
            Self::Open => "open",
        }
    }
}

/// Why nothing came of a backup or a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeHoldFailure {
    /// The node that has the volume went down.
    NodeLost,
    /// What uses it did not stop in time.
    NotStopped,
    /// Whoever held it was not heard of any more.
    Lapsed,
    /// They could not do it.
    Client { error: String },
    /// The volume is to be removed.
    Removed,
}

impl fmt::Display for VolumeHoldFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeLost => f.write_str("the node that has the volume went down"),
            Self::NotStopped => f.write_str("what uses the volume did not stop in time"),
            Self::Lapsed => {
                write!(f, "no word from the client for {} s", HOLD_LEASE.0 / 1_000)
            }
            Self::Client { error } => f.write_str(error),
            Self::Removed => f.write_str("the volume is to be removed"),
        }
    }
}
