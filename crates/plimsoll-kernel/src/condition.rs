//! The condition of a replica: whether it is where and as it should be, and if not, what is the matter, with the numbers.
//! Derived once, for the scheduler's pass, for [`progress`](crate::progress) and for whoever explains. What follows from it is
//! settled by them.

use std::fmt;

use plimsoll_model::reason::{Filter, WaitReason};
use plimsoll_model::state::Service;
use plimsoll_model::{
    Assignment, Mode, MoveCause, Node, NodeId, NodeStatus, Observation, ObservedState, Replica,
    SpecHash, State, Timestamp,
};

use crate::explain::misplaced;
use crate::moves::runtime_lost_at;
use crate::policy::Policy;

#[cfg(test)]
mod tests;

/// Whether an assignment may stay as it is on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlacementCondition {
    Settled,
    /// Its node is down, and has until then to come back.
    InGrace {
        until: Timestamp,
    },
    /// Its node is down beyond the grace period, or no longer of the cell.
    Lost,
    /// The container runtime of its node does not answer, and it runs on: it is left alone.
    Unattended,
    /// The container runtime of its node does not answer beyond the grace period, and it does not run.
    RuntimeLost,
    /// Its node may not hold it any more.
    Misplaced,
    /// It makes way for a replica of higher priority, and has until then to move elsewhere.
    Preempted {
        until: Timestamp,
    },
    /// It runs an older spec than it should.
    Outdated,
    /// It runs the right spec and is to be recreated: a restart was asked for, or it was stopped by force.
    RestartDue,
}

impl PlacementCondition {
    /// How little is lost when this replica is the one to go.
    pub(crate) fn severity(self) -> u8 {
        match self {
            Self::Settled | Self::Outdated | Self::RestartDue => 0,
            Self::InGrace { .. } | Self::Unattended => 1,
            Self::Misplaced | Self::Preempted { .. } => 2,
            Self::Lost | Self::RuntimeLost => 3,
        }
    }

    /// Whether it is to be recreated where it is.
    pub(crate) fn is_recreated(self) -> bool {
        matches!(self, Self::Outdated | Self::RestartDue)
    }
}

/// What the placement of an assignment depends on besides the replica.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NodeCondition {
    /// No longer of the cell.
    Gone,
    Down {
        since: Timestamp,
    },
    /// It is up, its container runtime is not, and whether it may keep a replica of the service.
    RuntimeDown {
        lost_at: Timestamp,
        may_keep: bool,
    },
    /// It is up, and whether it may keep a replica of the service.
    Up {
        may_keep: bool,
    },
}

impl NodeCondition {
    /// Of a node that is up.
    pub(crate) fn up(node: &Node, may_keep: bool, policy: &Policy) -> Self {
        match runtime_lost_at(node, policy) {
            Some(lost_at) => Self::RuntimeDown { lost_at, may_keep },
            None => Self::Up { may_keep },
        }
    }
}

/// The one judgement of an assignment where it is.
pub(crate) fn placement(
    replica: &Replica,
    assignment: &Assignment,
    desired: SpecHash,
    node: NodeCondition,
    policy: &Policy,
    now: Timestamp,
) -> PlacementCondition {
    // What ended for good needs no node any more, until it is to run again.
    if replica.is_over(assignment) && assignment.spec == desired && !replica.is_stale(assignment) {
        return PlacementCondition::Settled;
    }
    if replica.is_record(assignment) {
        return PlacementCondition::Settled;
    }
    // A run on a schedule that has started ends with the spec it began with: the next one has the new spec.
    let ends_so = replica.run.is_some() && replica.has_started(assignment);
    match node {
        NodeCondition::Gone => PlacementCondition::Lost,
        NodeCondition::Down { since } => {
            let until = since.plus(policy.loss_grace);
            if now < until {
                PlacementCondition::InGrace { until }
            } else {
                PlacementCondition::Lost
            }
        }
        NodeCondition::Up { may_keep: false }
        | NodeCondition::RuntimeDown { may_keep: false, .. } => PlacementCondition::Misplaced,
        // Where containers outlive their engine nothing is moved, and nothing can be renewed either.
        NodeCondition::RuntimeDown { .. }
            if replica.runs(assignment) && !replica.has_completed(assignment) =>
        {
            PlacementCondition::Unattended
        }
        NodeCondition::RuntimeDown { lost_at, .. } if now < lost_at => {
            PlacementCondition::InGrace { until: lost_at }
        }
        NodeCondition::RuntimeDown { .. } => PlacementCondition::RuntimeLost,
        NodeCondition::Up { may_keep: true } if assignment.spec != desired && !ends_so => {
            PlacementCondition::Outdated
        }
        NodeCondition::Up { may_keep: true } => {
            let is_due = replica.is_stale(assignment) || replica.is_stopped(assignment);
            if is_due { PlacementCondition::RestartDue } else { PlacementCondition::Settled }
        }
    }
}

/// The condition of a replica as a whole. Of several, the one that has to end before the next matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaCondition {
    Settled,
    /// It ended with status 0, as it was meant to.
    Completed,
    /// Its run of a schedule failed, and is over.
    RunFailed,
    /// Its service no longer asks for it.
    Retired {
        node: NodeId,
    },
    /// A container of it that is no longer needed stops.
    Stopping {
        node: NodeId,
    },
    /// It gets a successor, which is not healthy yet.
    Moving {
        cause: MoveCause,
        successor: Startup,
    },
    /// It has to change and cannot.
    Waiting(WaitReason),
    /// Its node is down, and has until then to come back.
    InGrace {
        node: NodeId,
        until: Timestamp,
    },
    /// Its node is down beyond the grace period, or no longer of the cell.
    Lost {
        node: NodeId,
    },
    /// Its node is down, and a `global` service has no other node for it.
    NodeDown {
        node: NodeId,
    },
    /// The container runtime of its node does not answer.
    RuntimeDown {
        node: NodeId,
        why: String,
        stage: BehindOutage,
    },
    /// Its node may not hold it any more.
    Misplaced {
        node: NodeId,
        why: Filter,
    },
    /// It should run and does not.
    Starting {
        startup: Startup,
        /// Why it is recreated all the same, where it is.
        replaced_for: Option<MoveCause>,
    },
    /// It runs an older spec than it should.
    Outdated,
    /// It runs, and is to be recreated with the same spec.
    RestartDue,
}

/// What becomes of a replica behind a container runtime that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BehindOutage {
    /// Its process was seen to run on.
    RunsOn,
    /// The runtime has until then to come back.
    InGrace {
        until: Timestamp,
    },
    Lost,
    /// A `global` service has no other node for it.
    Global,
}

impl fmt::Display for BehindOutage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RunsOn => "it runs on, and nothing can be done to it",
            Self::InGrace { .. } => "it is replaced elsewhere unless the runtime returns soon",
            Self::Lost => "it is being replaced elsewhere",
            Self::Global => "global has no other place for it",
        })
    }
}

/// An assignment on its way to running, as far as its node has reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Startup {
    pub node: NodeId,
    pub observed: Option<Observation>,
}

impl Startup {
    fn of(replica: &Replica, assignment: &Assignment) -> Self {
        let observed = replica.observation(assignment).cloned();
        Self { node: assignment.node.clone(), observed }
    }
}

impl ReplicaCondition {
    /// The condition of a replica of the service.
    pub fn of(
        state: &State,
        policy: &Policy,
        service: &Service,
        replica: &Replica,
        now: Timestamp,
    ) -> Self {
        let stopping = || {
            let leaving = replica.leaving.first();
            leaving.map_or(Self::Settled, |it| Self::Stopping { node: it.node.clone() })
        };
        let Some(assignment) = &replica.assignment else { return stopping() };
        let node = || assignment.node.clone();
        let Some(spec) = service.desired() else { return Self::Retired { node: node() } };
        if let Some(successor) = &replica.successor {
            let startup = Startup::of(replica, &successor.assignment);
            return Self::Moving { cause: successor.cause, successor: startup };
        }
        if let Some(why) = &replica.waiting {
            return Self::Waiting(why.clone());
        }
        let row = state.node(&assignment.node);
        let misfit =
            row.and_then(|row| misplaced(spec, &assignment.node, row, state.roles_for(spec)));
        let found = match row {
            None => NodeCondition::Gone,
            Some(row) if row.status == NodeStatus::Down => {
                NodeCondition::Down { since: row.status_since }
            }
            Some(row) => NodeCondition::up(row, misfit.is_none(), policy),
        };
        let condition = placement(replica, assignment, spec.hash, found, policy, now);
        let is_global = spec.placement.mode == Mode::Global;
        let outage =
            row.filter(|row| row.status == NodeStatus::Ready).and_then(|it| it.outage.as_ref());
        if let (Some(outage), Some(stage)) = (outage, behind_outage(condition, is_global)) {
            return Self::RuntimeDown { node: node(), why: outage.why.clone(), stage };
        }
        let replaced_for = match condition {
            PlacementCondition::InGrace { .. } | PlacementCondition::Lost if is_global => {
                return Self::NodeDown { node: node() };
            }
            PlacementCondition::InGrace { until } => return Self::InGrace { node: node(), until },
            PlacementCondition::Lost
            | PlacementCondition::RuntimeLost
            | PlacementCondition::Unattended => return Self::Lost { node: node() },
            PlacementCondition::Misplaced => {
                let why = misfit.expect("a node that may not keep it says why");
                return Self::Misplaced { node: node(), why };
            }
            PlacementCondition::Outdated => Some(MoveCause::Outdated),
            PlacementCondition::RestartDue => Some(MoveCause::Restart),
            // Whoever makes way says so by what it waits for, or is on its way.
            PlacementCondition::Settled | PlacementCondition::Preempted { .. } => None,
        };
        if replica.is_record(assignment) && !replica.has_completed(assignment) {
            return if replica.leaving.is_empty() { Self::RunFailed } else { stopping() };
        }
        if !replica.runs(assignment) {
            return Self::Starting { startup: Startup::of(replica, assignment), replaced_for };
        }
        match condition {
            PlacementCondition::Outdated => Self::Outdated,
            PlacementCondition::RestartDue => Self::RestartDue,
            _ if replica.has_completed(assignment) && replica.leaving.is_empty() => Self::Completed,
            _ => stopping(),
        }
    }

    /// The word that programs compare.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Completed => "completed",
            Self::RunFailed => "job_failed",
            Self::Retired { .. } => "retired",
            Self::Stopping { .. } => "stopping",
            Self::Moving { cause, successor } => successor.word().unwrap_or(cause.word()),
            Self::Waiting(why) => why.word(),
            Self::InGrace { .. } | Self::Lost { .. } | Self::NodeDown { .. } => "node_down",
            Self::RuntimeDown { .. } => "runtime_unavailable",
            Self::Misplaced { .. } => "misplaced",
            Self::Starting { startup, .. } => startup.word().unwrap_or("starting"),
            Self::Outdated => "outdated",
            Self::RestartDue => "restart",
        }
    }
}

/// What becomes of a replica on a node whose runtime does not answer; none where something else is the matter with it.
fn behind_outage(condition: PlacementCondition, is_global: bool) -> Option<BehindOutage> {
    match condition {
        PlacementCondition::Unattended => Some(BehindOutage::RunsOn),
        PlacementCondition::InGrace { .. } | PlacementCondition::RuntimeLost if is_global => {
            Some(BehindOutage::Global)
        }
        PlacementCondition::InGrace { until } => Some(BehindOutage::InGrace { until }),
        PlacementCondition::RuntimeLost => Some(BehindOutage::Lost),
        PlacementCondition::Settled
        | PlacementCondition::Lost
        | PlacementCondition::Misplaced
        | PlacementCondition::Preempted { .. }
        | PlacementCondition::Outdated
        | PlacementCondition::RestartDue => None,
    }
}

impl Startup {
    /// None where its node has reported nothing yet.
    fn word(&self) -> Option<&'static str> {
        let seen = self.observed.as_ref()?;
        Some(seen.code.as_ref().map_or(seen.state.word(), |code| code.word()))
    }
}

impl fmt::Display for ReplicaCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settled => f.write_str("running and healthy"),
            Self::Completed => f.write_str("it ended with status 0"),
            Self::RunFailed => f.write_str("its run failed and is over"),
            Self::Retired { node } => write!(f, "it ends on {node}"),
            Self::Stopping { node } => write!(f, "its old container stops on {node}"),
            Self::Moving { successor, .. } => successor.fmt(f),
            Self::Waiting(why @ WaitReason::Stalled { .. }) => {
                write!(f, "{why}; the old one serves on")
            }
            Self::Waiting(why) => why.fmt(f),
            Self::InGrace { node, .. } | Self::Lost { node } | Self::NodeDown { node } => {
                write!(f, "{node} is down")
            }
            Self::RuntimeDown { node, why, stage } => {
                write!(f, "the container runtime of {node} does not answer: {why}; {stage}")
            }
            Self::Misplaced { node, why } => write!(f, "its turn to leave {node} will come: {why}"),
            Self::Starting { startup, .. } => startup.fmt(f),
            Self::Outdated => f.write_str("its turn to get the new spec will come"),
            Self::RestartDue => f.write_str("its turn to be recreated will come"),
        }
    }
}

impl fmt::Display for Startup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = &self.node;
        let Some(seen) = &self.observed else { return write!(f, "{node} was told to start it") };
        if let Some(code) = &seen.code {
            return code.fmt(f);
        }
        match seen.state {
            ObservedState::Pending => write!(f, "{node} is about to start it"),
            ObservedState::Pulling => write!(f, "{node} pulls its image"),
            ObservedState::Starting => write!(f, "{node} starts it"),
            ObservedState::Running => write!(f, "it runs on {node} and is about to take over"),
            ObservedState::Degraded => write!(f, "unhealthy on {node}"),
            ObservedState::Failed => write!(f, "it failed on {node} and is retried"),
            ObservedState::Stopped => write!(f, "it stopped on {node}"),
            ObservedState::Completed => write!(f, "it completed on {node}"),
            ObservedState::Unknown => write!(f, "{node} cannot tell whether it runs"),
        }
    }
}
