//! The next step of a move under way. A move gives a replica a successor, waits until that runs, and makes it the
//! assignment; until then the original is not touched, so a move can be given up at any time. Which moves begin is
//! settled in [`reconcile`](crate::reconcile).

use plimsoll_model::reason::Undone;
use plimsoll_model::{Node, NodeStatus, ObservedState, Replica, SpecHash};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Not ready yet.
    Wait,
    Promote,
    Abandon(Undone),
}

/// `dst` is the successor's node, if it still exists; `settled` says that the original could stay where it is.
pub(crate) fn step(
    replica: &Replica,
    dst: Option<&Node>,
    desired: SpecHash,
    settled: bool,
) -> Step {
    let Some(successor) = &replica.successor else { return Step::Wait };
    if dst.is_none_or(|node| node.status == NodeStatus::Down) {
        return Step::Abandon(Undone::DestinationLost);
    }
    if successor.assignment.spec != desired {
        return Step::Abandon(Undone::Needless);
    }
    match replica.observation(&successor.assignment).map(|seen| seen.state) {
        Some(ObservedState::Running) => Step::Promote,
        Some(ObservedState::Failed | ObservedState::Stopped) => {
            Step::Abandon(Undone::SuccessorFailed)
        }
        // A lost node came back with the original still running, or its drain was called off.
        _ if settled && replica.is_running() => Step::Abandon(Undone::Needless),
        _ => Step::Wait,
    }
}
