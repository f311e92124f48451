//! The background rescheduler: how it is set, and what it moved, with the score that decided it. Both go into the log as
//! they are.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::audit::Author;
use crate::ids::{NodeId, ReplicaId};
use crate::pressure::Pressure;
use crate::units::Timestamp;

/// How well a node suits a replica, from 0 to 10 000: the sum of four named parts. Placement takes the best score, and the
/// rescheduler compares the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Score {
    /// Evenness over zones.
    pub zone: u16,
    /// Evenness over the nodes of zones that are equally crowded.
    pub node: u16,
    /// The band its fullest dimension falls in once the replica is there.
    pub headroom: u16,
    /// The share of the service's preferences that the node meets.
    pub preferred: u16,
}

impl Score {
    pub fn total(self) -> u16 {
        self.zone + self.node + self.headroom + self.preferred
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>5} = zone {} + node {} + headroom {} + preferred {}",
            self.total(),
            self.zone,
            self.node,
            self.headroom,
            self.preferred
        )
    }
}

/// What an operator set for the whole cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RescheduleSettings {
    /// It still computes what it would move, and moves nothing.
    pub is_paused: bool,
    /// Joined and returned nodes are filled until every node has at most this share of its capacity reserved. None: until
    /// all have the same.
    pub target: Option<Pressure>,
}

/// Who gave it the settings it has, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingAuthor {
    pub at: Timestamp,
    pub by: Author,
}

impl fmt::Display for RescheduleSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_paused { "paused" } else { "running" })?;
        match self.target {
            None => Ok(()),
            Some(target) => write!(f, ", target {target}"),
        }
    }
}

/// Why a replica was moved though its node may keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RescheduleReason {
    /// Its node would be turned down for it now: it holds more than it has, or more of the service than it may.
    NoRoom,
    /// Another node beats its own by more than the threshold.
    BetterScore,
    /// A node that joined or came back after the replica was placed gets its share.
    Fill,
}

impl RescheduleReason {
    pub fn word(self) -> &'static str {
        match self {
            Self::NoRoom => "no_room",
            Self::BetterScore => "better_score",
            Self::Fill => "fill",
        }
    }
}

/// A replica that the rescheduler moves, with the numbers that decided it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RescheduledMove {
    pub replica: ReplicaId,
    pub src: NodeId,
    pub dst: NodeId,
    pub why: RescheduleReason,
    /// The score of the node it leaves, as if it were nowhere; none where that node would be turned down for it.
    pub before: Option<Score>,
    pub after: Score,
    /// What the difference has to be above; a node that is filled only has to be no worse.
    pub threshold: u16,
    /// The share of each node that is reserved, before and after.
    pub src_before: Pressure,
    pub src_after: Pressure,
    pub dst_before: Pressure,
    pub dst_after: Pressure,
}

impl fmt::Display for RescheduledMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { replica, src, dst, after, threshold, .. } = self;
        write!(f, "{replica} is rescheduled {src} → {dst} ({}): ", self.why.word())?;
        match self.before {
            None => write!(f, "{src} would be turned down for it, {dst} scores {}", after.total())?,
            Some(before) => {
                write!(f, "score {} → {}", before.total(), after.total())?;
                if self.why == RescheduleReason::BetterScore {
                    write!(f, ", threshold {threshold}")?;
                }
            }
        }
        write!(f, ", reserved on {src} {} → {}", self.src_before, self.src_after)?;
        write!(f, ", on {dst} {} → {}", self.dst_before, self.dst_after)
    }
}
