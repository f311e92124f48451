//! A better layout that an operator asked for, as far as the log has it: that it began, each of its moves with what decided it,
//! and how it ended.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, ReplicaId};

/// Why a plan for a better layout moves a replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizeReason {
    /// The other node scores more for it, or both nodes keep more headroom.
    BetterPlace,
    /// It is in the way of another, which is better off where it was.
    MakesRoom { of: ReplicaId },
    /// Its node is to run nothing that is packed any more.
    FreesNode,
}

impl OptimizeReason {
    pub fn word(&self) -> &'static str {
        match self {
            Self::BetterPlace => "better_place",
            Self::MakesRoom { .. } => "makes_room",
            Self::FreesNode => "frees_node",
        }
    }
}

/// One move of such a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptimizedMove {
    pub replica: ReplicaId,
    pub src: NodeId,
    pub dst: NodeId,
    pub why: OptimizeReason,
    /// What it alone brings, in points of the score; less than nothing where it only makes room.
    pub gain: i64,
}

/// Why the rest of a plan is dropped. What was done of it stays done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizeDrop {
    /// The replica is gone, is elsewhere or may not be moved any more.
    Changed { replica: ReplicaId },
    /// The node takes it no more, by the filters of placement.
    NoRoom { replica: ReplicaId, node: NodeId },
    /// A move of the plan was undone.
    MoveFailed { replica: ReplicaId },
    /// Nothing of it could begin for too long.
    Stuck { replica: ReplicaId },
    /// Another plan took its place.
    Replaced,
}

impl OptimizeDrop {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Changed { .. } => "changed",
            Self::NoRoom { .. } => "no_room",
            Self::MoveFailed { .. } => "move_failed",
            Self::Stuck { .. } => "stuck",
            Self::Replaced => "replaced",
        }
    }
}

/// What is written of a plan that is carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizeStep {
    Started {
        moves: u32,
        gain: i64,
    },
    /// The move itself has its own events.
    Moved(Box<OptimizedMove>),
    /// With why the rest is not done, where it is not.
    Ended {
        done: u32,
        of: u32,
        why: Option<OptimizeDrop>,
    },
}

impl fmt::Display for OptimizeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BetterPlace => f.write_str("a better place"),
            Self::MakesRoom { of } => write!(f, "makes room for {of}"),
            Self::FreesNode => f.write_str("frees its node"),
        }
    }
}

impl fmt::Display for OptimizedMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { replica, src, dst, why, gain } = self;
        write!(f, "{replica} is moved for a better layout {src} → {dst}: {why}, {gain:+} points")
    }
}

impl fmt::Display for OptimizeDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { replica } => write!(f, "{replica} changed meanwhile"),
            Self::NoRoom { replica, node } => write!(f, "{node} cannot take {replica} any more"),
            Self::MoveFailed { replica } => write!(f, "the move of {replica} was undone"),
            Self::Stuck { replica } => write!(f, "the move of {replica} could not begin"),
            Self::Replaced => f.write_str("another plan took its place"),
        }
    }
}

impl fmt::Display for OptimizeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { moves, gain } => {
                write!(f, "a better layout was asked for: {moves} moves for {gain} points")
            }
            Self::Moved(moved) => write!(f, "{moved}"),
            Self::Ended { done, of, why: None } => {
                write!(f, "a better layout was reached: {done} of {of} moves")
            }
            Self::Ended { done, of, why: Some(why) } => {
                write!(f, "the better layout was given up after {done} of {of} moves: {why}")
            }
        }
    }
}
