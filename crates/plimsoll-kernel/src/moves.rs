//! The next step of a move under way. A move gives a replica a successor, waits until that runs, and makes it the
//! assignment; until then the original is not touched, so a move can be given up at any time. Which moves begin is
//! settled in [`reconcile`](crate::reconcile).

use plimsoll_model::reason::Undone;
use plimsoll_model::{
    Assignment, Node, NodeStatus, ObservedCode, ObservedState, Replica, SpecHash, Timestamp,
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
    if given.is_settled && replica.is_running() {
        return Step::Abandon(Undone::Needless);
    }
    let deadline = deadline(replica, &successor.assignment, given.policy);
    if given.now >= deadline { Step::Abandon(Undone::TimedOut) } else { Step::Wait(deadline) }
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
