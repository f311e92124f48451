//! The next step of a move under way. A move gives a replica a successor, waits until that runs, and makes it the
//! assignment; until then the original is not touched, so a move can be given up at any time. Which moves begin is
//! settled in [`reconcile`](crate::reconcile).

use plimsoll_model::reason::Undone;
use plimsoll_model::{
    Assignment, MoveCause, Node, NodeStatus, ObservedCode, ObservedState, Replica, SpecHash,
    Timestamp,
};

use crate::policy::Policy;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// The replica is not moving.
    None,
    /// Not ready yet; look again then at the latest.
    Wait(Timestamp),
    Promote,
    Abandon(Undone),
}

/// What a move's next step depends on besides the replica.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances<'a> {
    /// The successor's node, if it still exists.
    pub(crate) dst: Option<&'a Node>,
    /// The spec that should run now.
    pub(crate) desired: SpecHash,
    /// The original could stay where it is.
    pub(crate) is_settled: bool,
    pub(crate) policy: &'a Policy,
    pub(crate) now: Timestamp,
}

pub(crate) fn step(replica: &Replica, given: &Circumstances<'_>) -> Step {
    let Some(successor) = &replica.successor else { return Step::None };
    if given.dst.is_none_or(|node| node.status == NodeStatus::Down) {
        return Step::Abandon(Undone::DestinationLost);
    }
    if successor.assignment.spec != given.desired || replica.is_stale(&successor.assignment) {
        return Step::Abandon(Undone::Needless);
    }
    if successor.has_failed {
        return Step::Abandon(Undone::SuccessorFailed);
    }
    if replica.runs(&successor.assignment) {
        return Step::Promote;
    }
    // A lost node came back with the original still running, or its drain was called off.
    let has_reason = successor.cause == MoveCause::Pressure;
    if given.is_settled && replica.is_running() && !has_reason {
        return Step::Abandon(Undone::Needless);
    }
    let deadline = deadline(replica, &successor.assignment, given.policy);
    if given.now >= deadline { Step::Abandon(Undone::TimedOut) } else { Step::Wait(deadline) }
}

/// How far a move has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Room is set aside at the destination.
    Reserve,
    Start,
    /// It runs and is about to take over.
    Healthy,
    /// The new one serves; the old one stops.
    Stop,
}

impl Stage {
    pub fn word(self) -> &'static str {
        match self {
            Self::Reserve => "reserve",
            Self::Start => "start",
            Self::Healthy => "healthy",
            Self::Stop => "stop",
        }
    }
}

/// A move under way, as people ask about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Under<'a> {
    pub src: &'a Assignment,
    pub dst: &'a Assignment,
    /// None for what is only stopping: what it made way for is known, why is in the audit.
    pub cause: Option<MoveCause>,
    pub stage: Stage,
    /// When it is given up, unless it comes further before.
    pub deadline: Option<Timestamp>,
}

/// The replica's move, if one is under way.
pub fn under_way<'a>(replica: &'a Replica, policy: &Policy) -> Option<Under<'a>> {
    let current = replica.assignment.as_ref()?;
    let Some(successor) = &replica.successor else {
        let src = replica.leaving.last()?;
        return Some(Under { src, dst: current, cause: None, stage: Stage::Stop, deadline: None });
    };
    let dst = &successor.assignment;
    let stage = match replica.observation(dst).map(|seen| seen.state) {
        None | Some(ObservedState::Pending) => Stage::Reserve,
        Some(ObservedState::Running) => Stage::Healthy,
        Some(_) => Stage::Start,
    };
    let (cause, deadline) = (Some(successor.cause), Some(deadline(replica, dst, policy)));
    Some(Under { src: current, dst, cause, stage, deadline })
}

/// Until when an assignment may take for what it is doing. A large image on a slow line is not a fault; one that is not
/// there is.
pub(crate) fn deadline(replica: &Replica, of: &Assignment, policy: &Policy) -> Timestamp {
    let Some(seen) = replica.observation(of) else { return of.at.plus(policy.pull_timeout) };
    match (seen.state, &seen.code) {
        (ObservedState::Pending, Some(ObservedCode::ImagePullFailed { .. })) => {
            of.at.plus(policy.step_timeout)
        }
        (ObservedState::Pending | ObservedState::Pulling, _) => of.at.plus(policy.pull_timeout),
        _ => seen.at.plus(policy.step_timeout),
    }
}

#[cfg(test)]
mod tests;
