//! What the rebalancer did or left, with the numbers it decided on. It goes into the audit as it is.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, ReplicaId};
use crate::pressure::Pressure;
use crate::units::Timestamp;

/// What a node is hot in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    Cpu,
    Memory,
}

impl Dimension {
    pub fn word(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }
}

/// Why nothing moves, where something is hot: the gate that said no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Skip {
    CooldownReplica,
    CooldownNode,
    ResourceLimits,
    AntiAffinity,
    DstCap,
    ReliefFloor,
    /// Every destination is blocked, not all for one reason.
    NoEligibleDst,
    /// Nothing on the node may move at all.
    NoCandidate,
    /// Too many moves of late did not bring what was predicted.
    SlowedDown,
}

impl Skip {
    pub fn word(self) -> &'static str {
        match self {
            Self::CooldownReplica => "cooldown_replica",
            Self::CooldownNode => "cooldown_node",
            Self::ResourceLimits => "resource_limits",
            Self::AntiAffinity => "anti_affinity",
            Self::DstCap => "dst_cap",
            Self::ReliefFloor => "relief_floor",
            Self::NoEligibleDst => "no_eligible_dst",
            Self::NoCandidate => "no_candidate",
            Self::SlowedDown => "slowed_down",
        }
    }
}

/// A move off a hot node, taken or only weighed, and what comes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relief {
    pub replica: ReplicaId,
    pub src: NodeId,
    pub dst: NodeId,
    pub dominant: Dimension,
    /// How much cooler the source is afterwards, by the hotter of its two dimensions.
    pub relief: Pressure,
    /// Relief less the cost of a move, in millionths.
    pub score: i64,
    pub move_cost: Pressure,
    pub src_before: Pressure,
    pub src_after: Pressure,
    pub dst_before: Pressure,
    pub dst_after: Pressure,
    /// Those that would have relieved it more and were refused.
    pub refused: Vec<RefusedCandidate>,
}

/// The most refused candidates that one entry names: those that would relieve the node most. What a full node has beyond
/// them was refused for the same few reasons.
pub const MAX_REFUSED: usize = 16;

/// A replica that was not moved off a hot node, and the gate that said no.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCandidate {
    pub replica: ReplicaId,
    pub why: Skip,
}

impl fmt::Display for Relief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { replica, src, dst, dominant, relief, src_before, dst_before, dst_after, .. } =
            self;
        let (src_after, score) = (self.src_after, self.score);
        write!(f, "{replica} relieves {src} of {relief} {} and goes to {dst}: ", dominant.word())?;
        write!(f, "{src} {src_before} → {src_after}, {dst} {dst_before} → {dst_after}, ")?;
        write!(f, "score {}", Signed(score))
    }
}

/// Millionths as people write them, with a sign where they are below nothing.
struct Signed(i64);

impl fmt::Display for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = u32::try_from(self.0.unsigned_abs()).unwrap_or(u32::MAX);
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}", Pressure::from_millionths(share))
    }
}

/// A cycle in which a node was hot and nothing moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub src: NodeId,
    pub dominant: Dimension,
    pub pressure: Pressure,
    pub why: Skip,
    /// The move that came nearest, where one was weighed.
    pub nearest: Option<Relief>,
    /// What was weighed, and the gate that said no to each.
    pub refused: Vec<RefusedCandidate>,
}

impl Skipped {
    /// Whether the other says the same again, be its numbers a little different.
    pub fn repeats(&self, other: &Self) -> bool {
        let named = |it: &Self| {
            it.nearest.as_ref().map(|nearest| (nearest.replica.clone(), nearest.dst.clone()))
        };
        (&self.src, self.dominant, self.why) == (&other.src, other.dominant, other.why)
            && named(self) == named(other)
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { src, dominant, pressure, why, nearest, .. } = self;
        write!(
            f,
            "{src} is hot ({} {pressure}) and nothing moves: {}",
            dominant.word(),
            why.word()
        )?;
        let Some(nearest) = nearest else { return Ok(()) };
        let Relief { replica, dst, relief, dst_after, .. } = nearest;
        write!(f, "; {replica} to {dst} would relieve {relief} and bring it to {dst_after}")
    }
}

/// How often in a row a cycle ended the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepeatCount {
    pub count: u32,
    pub last_at: Timestamp,
}
