//! What would become of the cell: the scheduler's own passes over a copy of the state, read back by replica. It answers before
//! anything is done, and with the very code that will do it. A dry run, the contract of a drain and `decide place` are
//! renderings of this one value.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::preemption::PreemptedBy;
use plimsoll_model::reason::Unplaced;
use plimsoll_model::rollout::RolloutHalt;
use plimsoll_model::{
    Change, MoveCause, NodeId, Rejection, ReplicaId, ServiceKey, State, Timestamp, Writer,
};

use crate::place::Score;
use crate::policy::Policy;
use crate::{Decision, Signals};

pub mod estimate;
pub(crate) mod foresight;
pub(crate) mod loops;
mod stay;

#[cfg(test)]
mod tests;

use foresight::Foresight;
pub use stay::StayReason;

/// What becomes of each replica, and what its services lack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// What is begun, in that order; then what stays, by replica.
    pub outcomes: Vec<ReplicaOutcome>,
    /// Services that lack replicas in the end, and why.
    pub unplaced: BTreeMap<ServiceKey, Unplaced>,
    /// Services that have fewer replicas running at some moment than they have now and should have, and how few.
    pub shortfalls: BTreeMap<ServiceKey, ReplicaShortfall>,
    /// Rollouts that are stopped because too many of their steps failed.
    pub stopped_rollouts: BTreeMap<ServiceKey, StoppedRollout>,
}

/// What is done about a rollout, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoppedRollout {
    /// The service goes back to the spec before.
    Aborted(RolloutHalt),
    Paused(RolloutHalt),
}

/// What becomes of one replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaOutcome {
    pub id: ReplicaId,
    /// Where it goes or stays; of a retired one, where it was.
    pub node: NodeId,
    pub fate: ReplicaFate,
}

/// Rounds count from 1. What is begun in one round goes on at the same time, the next begins once it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaFate {
    /// New; `global` takes every node it may, so it has no score.
    Placed {
        score: Option<Score>,
        round: u32,
    },
    Moved {
        from: NodeId,
        cause: MoveCause,
        /// It makes way before it starts again: it cannot run twice.
        is_stop_first: bool,
        /// None where no node was chosen: it stays in its own place, or was on its way already.
        score: Option<Score>,
        round: u32,
    },
    Retired {
        round: u32,
    },
    /// It is stopped for a replica of higher priority, and comes back where there is room.
    Preempted {
        by: Box<PreemptedBy>,
        round: u32,
    },
    /// It is left where it is, by its condition once all else is done.
    Stays {
        why: StayReason,
        /// Its node is drained by force: it has stopped, and comes back with the node.
        is_stopped: bool,
    },
}

/// How few of a service run at the worst moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaShortfall {
    pub least: u32,
    pub of: u32,
}

/// One pass: as it would be written, what it comes to, and the cell once it is written.
#[derive(Debug)]
pub struct PlannedPass {
    pub decision: Decision,
    pub plan: Plan,
    pub after: State,
}

/// What the next pass does.
pub fn next_pass(
    state: &State,
    signals: &Signals,
    policy: &Policy,
    now: Timestamp,
) -> Result<PlannedPass, Rejection> {
    let mut foresight = Foresight::new(state.clone(), signals, policy, now);
    let decision = foresight.decide();
    foresight.begin(Writer::Scheduler, decision.clone())?;
    let (plan, after) = foresight.end();
    Ok(PlannedPass { decision, plan, after })
}

/// What comes of the changes, by these signals, to the end: passes until there is nothing left to do, on nodes that do at once
/// as they are told, with as much time between passes as they wait for. Also returns the cell as it is then.
pub fn what_if(
    state: State,
    signals: &Signals,
    policy: &Policy,
    (writer, changes): (Writer, Vec<Change>),
    now: Timestamp,
) -> Result<(Plan, State), Rejection> {
    let mut foresight = Foresight::new(state, signals, policy, now);
    foresight.suppose(writer, changes)?;
    foresight.play(&mut || false)?;
    Ok(foresight.end())
}

impl Plan {
    /// Only what is about these services, without replicas that stay as they should.
    pub fn about(mut self, services: &BTreeSet<ServiceKey>) -> Self {
        self.outcomes.retain(|it| services.contains(&it.id.service) && it.fate.is_news());
        self.unplaced.retain(|service, _| services.contains(service));
        self.shortfalls.retain(|service, _| services.contains(service));
        self.stopped_rollouts.retain(|service, _| services.contains(service));
        self
    }

    pub fn outcome(&self, id: &ReplicaId) -> Option<&ReplicaOutcome> {
        self.outcomes.iter().find(|outcome| outcome.id == *id)
    }
}

impl StoppedRollout {
    pub fn why(self) -> RolloutHalt {
        match self {
            Self::Aborted(why) | Self::Paused(why) => why,
        }
    }

    /// The word that programs compare.
    pub fn word(self) -> &'static str {
        match self {
            Self::Aborted(_) => "aborted",
            Self::Paused(_) => "paused",
        }
    }
}

impl ReplicaFate {
    /// When it is begun; none for what stays.
    pub fn round(&self) -> Option<u32> {
        match self {
            Self::Placed { round, .. }
            | Self::Moved { round, .. }
            | Self::Preempted { round, .. }
            | Self::Retired { round } => Some(*round),
            Self::Stays { .. } => None,
        }
    }

    /// Whether it is anything but a replica that stays as it should.
    pub(crate) fn is_news(&self) -> bool {
        !matches!(self, Self::Stays { why: StayReason::Settled, is_stopped: false })
    }

    /// The word that programs compare.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Placed { .. } => "placed",
            Self::Moved { .. } => "moved",
            Self::Retired { .. } => "retired",
            Self::Preempted { .. } => "preempted",
            Self::Stays { .. } => "stays",
        }
    }
}
