//! The next step of a move under way. A move gives a replica a successor, waits until that runs, and makes it the
//! assignment; until then the original is not touched, so a move can be given up at any time. Which moves begin is
//! settled in [`reconcile`](crate::reconcile).

use plimsoll_model::node::DRAIN_TIMEOUT;
use plimsoll_model::reason::AbandonReason;
use plimsoll_model::spec::Healthcheck;
use plimsoll_model::{
    Assignment, Availability, Millis, MoveCause, Node, NodeStatus, ObservedCode, ObservedState,
    Replica, ReplicaId, ServiceSpec, State, Timestamp,
};

use crate::policy::Policy;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MoveStep {
    /// The replica is not moving.
    None,
    /// Not ready yet; look again then at the latest, where there is such a time.
    Wait(Option<Timestamp>),
    Promote,
    Abandon(AbandonReason),
}

/// What a move's next step depends on besides the replica.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MoveContext<'a> {
    /// The node it leaves, if it still exists.
    pub(crate) src: Option<&'a Node>,
    /// The successor's node, if it still exists.
    pub(crate) dst: Option<&'a Node>,
    /// What should run now.
    pub(crate) spec: &'a ServiceSpec,
    /// The original could stay where it is.
    pub(crate) is_settled: bool,
    /// Until when it may take, where it makes way for a replica of higher priority.
    pub(crate) evict_at: Option<Timestamp>,
    pub(crate) policy: &'a Policy,
    pub(crate) now: Timestamp,
}

pub(crate) fn step(replica: &Replica, given: &MoveContext<'_>) -> MoveStep {
    let Some(successor) = &replica.successor else { return MoveStep::None };
    let is_current = |at: &Assignment| at.spec == given.spec.hash && !replica.is_stale(at);
    // What has ended is not run anywhere again, whatever became of its node; nor is a job that failed for good.
    let dst = &successor.assignment;
    let has_ended = replica.has_completed(dst) || (given.spec.is_job() && replica.is_over(dst));
    if is_current(dst) && has_ended {
        return MoveStep::Promote;
    }
    if given.dst.is_none_or(|node| node.status == NodeStatus::Down) {
        return MoveStep::Abandon(AbandonReason::DestinationLost);
    }
    if successor.assignment.spec != given.spec.hash || replica.is_stale(&successor.assignment) {
        return MoveStep::Abandon(AbandonReason::Needless);
    }
    // However it ends, a job that was started elsewhere is not started on yet another node.
    if given.spec.is_job() && replica.has_started(&successor.assignment) {
        return MoveStep::Promote;
    }
    // It was made a job while it moved, or its node came back: the original is at it, and does it alone.
    let is_at_it = |from: &Assignment| is_current(from) && replica.has_started(from);
    let is_there =
        given.src.is_some_and(|it| it.status == NodeStatus::Ready && it.outage.is_none());
    if given.spec.is_job() && is_there && replica.assignment.as_ref().is_some_and(is_at_it) {
        return MoveStep::Abandon(AbandonReason::Needless);
    }
    // It had ended for good before its node was lost, or did while it moved, and says so now.
    let is_done = |from: &Assignment| is_current(from) && replica.is_over(from);
    if replica.assignment.as_ref().is_some_and(is_done) {
        return MoveStep::Abandon(AbandonReason::Needless);
    }
    if successor.has_failed {
        return MoveStep::Abandon(AbandonReason::SuccessorFailed);
    }
    if replica.runs(&successor.assignment) {
        return MoveStep::Promote;
    }
    let runtime_lost = given.dst.and_then(|node| runtime_lost_at(node, given.policy));
    if runtime_lost.is_some_and(|lost| given.now >= lost) {
        return MoveStep::Abandon(AbandonReason::DestinationLost);
    }
    // Its node stopped it, for it cannot run twice and an older copy turned up elsewhere. What has stopped never starts
    // again; another successor does.
    if replica.is_stopped(&successor.assignment) {
        return MoveStep::Abandon(AbandonReason::Needless);
    }
    // A lost node came back with the original still running, or its drain was called off.
    let has_reason = successor.cause.is_chosen();
    if given.is_settled && replica.is_running() && !has_reason {
        return MoveStep::Abandon(AbandonReason::Needless);
    }
    // The room is needed now: where it goes it starts, and is missed until it has.
    if given.evict_at.is_some_and(|at| given.now >= at) {
        return MoveStep::Promote;
    }
    let limit = time_to_healthy(successor.cause, given.spec, given.src, given.policy);
    match deadline(replica, &successor.assignment, limit, given.policy) {
        Some(deadline) if given.now >= deadline => MoveStep::Abandon(AbandonReason::TimedOut),
        deadline => MoveStep::Wait([deadline, runtime_lost].into_iter().flatten().min()),
    }
}

/// When what does not run on the node is lost, because its container runtime does not answer; none while it does.
pub(crate) fn runtime_lost_at(node: &Node, policy: &Policy) -> Option<Timestamp> {
    node.outage.as_ref().map(|outage| outage.since.plus(policy.runtime_grace))
}

/// How long a successor may take to become healthy once its image is there. None: as long as it takes, for there is nothing
/// to go back to.
fn time_to_healthy(
    cause: MoveCause,
    spec: &ServiceSpec,
    src: Option<&Node>,
    policy: &Policy,
) -> Option<Millis> {
    let own = step_limit(spec, policy);
    match cause {
        MoveCause::NodeLost | MoveCause::RuntimeLost => None,
        MoveCause::Misplaced => {
            let is_draining = |node: &&Node| node.availability == Availability::Draining;
            let drain = src.filter(is_draining).and_then(|node| node.drain);
            Some(drain.map_or(own.max(DRAIN_TIMEOUT), |drain| drain.timeout))
        }
        MoveCause::Outdated
        | MoveCause::Restart
        | MoveCause::Pressure
        | MoveCause::Reschedule
        | MoveCause::Preempted
        | MoveCause::Optimize => Some(own),
    }
}

/// How long one step of a rollout may take: as long as its healthcheck may take to decide, and a minute at least.
pub(crate) fn step_limit(spec: &ServiceSpec, policy: &Policy) -> Millis {
    let check = spec.container.healthcheck.as_ref();
    policy.step_timeout.max(check.map_or(Millis(0), Healthcheck::time_to_decide))
}

/// How far a move has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveStage {
    /// Room is set aside at the destination.
    Reserve,
    Start,
    /// It runs and is about to take over.
    Healthy,
    /// The new one serves; the old one stops.
    Stop,
}

impl MoveStage {
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
pub struct MoveInProgress<'a> {
    pub src: &'a Assignment,
    pub dst: &'a Assignment,
    /// None for what is only stopping: what it made way for is known, why is in the audit.
    pub cause: Option<MoveCause>,
    pub stage: MoveStage,
    /// When it is given up, unless it comes further before.
    pub deadline: Option<Timestamp>,
}

/// The replica's move, if one is under way.
pub fn under_way<'a>(
    cell: &State,
    id: &ReplicaId,
    replica: &'a Replica,
    policy: &Policy,
) -> Option<MoveInProgress<'a>> {
    let current = replica.assignment.as_ref()?;
    let Some(successor) = &replica.successor else {
        let src = replica.leaving.last()?;
        return Some(MoveInProgress {
            src,
            dst: current,
            cause: None,
            stage: MoveStage::Stop,
            deadline: None,
        });
    };
    let dst = &successor.assignment;
    let stage = match replica.observation(dst).map(|seen| seen.state) {
        None | Some(ObservedState::Pending) => MoveStage::Reserve,
        Some(ObservedState::Running | ObservedState::Completed) => MoveStage::Healthy,
        Some(_) => MoveStage::Start,
    };
    let spec = cell.service(&id.service).and_then(|service| service.spec_of(dst));
    let limit = spec.map_or(Some(policy.step_timeout), |spec| {
        time_to_healthy(successor.cause, spec, cell.node(&current.node), policy)
    });
    let deadline = deadline(replica, dst, limit, policy);
    Some(MoveInProgress { src: current, dst, cause: Some(successor.cause), stage, deadline })
}

/// Until when an assignment may take for what it is doing; `limit` is for becoming healthy. A large image on a slow line is
/// not a fault; one that is not there is.
pub(crate) fn deadline(
    replica: &Replica,
    of: &Assignment,
    limit: Option<Millis>,
    policy: &Policy,
) -> Option<Timestamp> {
    let Some(seen) = replica.observation(of) else { return Some(of.at.plus(policy.pull_timeout)) };
    match (seen.state, &seen.code) {
        // Wherever else it goes, the image may be there.
        (ObservedState::Pending, Some(ObservedCode::ImagePullFailed { .. })) => {
            Some(of.at.plus(policy.step_timeout))
        }
        (ObservedState::Pending | ObservedState::Pulling, _) => {
            Some(of.at.plus(policy.pull_timeout))
        }
        _ => limit.map(|limit| seen.at.plus(limit)),
    }
}

#[cfg(test)]
mod tests;
