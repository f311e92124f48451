//! Why a replica is left where it is.

use std::fmt;

use plimsoll_model::reason::WaitReason;
use plimsoll_model::{Millis, MoveCause, Timestamp};

use crate::condition::{BehindOutage, ReplicaCondition, Startup};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StayReason {
    /// It is where and as it should be.
    Settled,
    /// A move of it is under way.
    Moving(Startup),
    /// Its node is down and may come back for so long.
    InGrace { left: Millis },
    /// Its node is down, and a `global` service has no other node for it.
    NodeDown,
    /// The container runtime of its node does not answer. It runs on, or it is replaced unless that returns.
    RuntimeDown(BehindOutage),
    /// It has to change, and others of its service do so first.
    InTurn(MoveCause),
    /// It should move and cannot.
    Waiting(WaitReason),
}

impl StayReason {
    pub(super) fn of(condition: ReplicaCondition, now: Timestamp) -> Self {
        match condition {
            ReplicaCondition::Settled
            | ReplicaCondition::Completed
            | ReplicaCondition::RunFailed
            | ReplicaCondition::Retired { .. }
            | ReplicaCondition::Stopping { .. }
            | ReplicaCondition::Starting { replaced_for: None, .. } => Self::Settled,
            ReplicaCondition::Moving { successor, .. } => Self::Moving(successor),
            ReplicaCondition::InGrace { until, .. } => Self::InGrace { left: until.since(now) },
            ReplicaCondition::NodeDown { .. } => Self::NodeDown,
            ReplicaCondition::Lost { .. } => Self::InTurn(MoveCause::NodeLost),
            ReplicaCondition::RuntimeDown { stage: BehindOutage::Lost, .. } => {
                Self::InTurn(MoveCause::RuntimeLost)
            }
            ReplicaCondition::RuntimeDown { stage, .. } => Self::RuntimeDown(stage),
            ReplicaCondition::Misplaced { .. } => Self::InTurn(MoveCause::Misplaced),
            ReplicaCondition::RestartDue => Self::InTurn(MoveCause::Restart),
            ReplicaCondition::Outdated => Self::InTurn(MoveCause::Outdated),
            ReplicaCondition::Starting { replaced_for: Some(cause), .. } => Self::InTurn(cause),
            ReplicaCondition::Waiting(why) => Self::Waiting(why),
        }
    }

    /// The word that programs compare.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Moving(_) => "moving",
            Self::InGrace { .. } => "in_grace",
            Self::NodeDown => "node_down",
            Self::RuntimeDown(_) => "runtime_unavailable",
            Self::InTurn(_) => "in_turn",
            Self::Waiting(why) => why.word(),
        }
    }
}

impl fmt::Display for StayReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settled => f.write_str("existing placements on eligible nodes stay"),
            Self::Moving(successor) => write!(f, "it moves already: {successor}"),
            Self::InGrace { left } => {
                write!(f, "its node is down; it is replaced in {left} unless it returns")
            }
            Self::NodeDown => f.write_str("its node is down, and global has no other place for it"),
            Self::RuntimeDown(stage) => {
                write!(f, "the container runtime of its node does not answer; {stage}")
            }
            Self::InTurn(cause) => {
                let why = match cause {
                    MoveCause::NodeLost => "its node is lost",
                    MoveCause::RuntimeLost => "the container runtime of its node is lost",
                    MoveCause::Misplaced => "its node may not hold it any more",
                    MoveCause::Outdated => "it runs an older spec",
                    MoveCause::Pressure => "its node stays hot",
                    MoveCause::Reschedule => "another node suits it better",
                    MoveCause::Preempted => "a replica of higher priority needs its room",
                    MoveCause::Restart => "it is to be recreated",
                    MoveCause::Optimize => "a better layout was asked for",
                };
                write!(f, "{why}; one replica of a service changes at a time")
            }
            Self::Waiting(why) => why.fmt(f),
        }
    }
}
