//! What the model and the kernel call their reasons, as the API does. Every `match` is exhaustive: a new reason does not
//! compile until it is named here.

use plimsoll_kernel::condition::{ReplicaCondition, Startup};
use plimsoll_kernel::endpoints::EndpointEligibility;
use plimsoll_kernel::plan::StayReason;
use plimsoll_kernel::progress::ProgressReason;
use plimsoll_model::reason::{AbandonReason, Filter, FilterWord, UnplacedReason, WaitReason};
use plimsoll_model::rebalance::Skip;
use plimsoll_model::replica::MoveCause;
use plimsoll_model::{ObservedCode, ObservedState};

use super::ReasonCode;

impl From<&UnplacedReason> for ReasonCode {
    fn from(why: &UnplacedReason) -> Self {
        match why {
            UnplacedReason::NoNodes => Self::NoNodes,
            UnplacedReason::NoEligibleNode { .. } => Self::NoEligibleNode,
            UnplacedReason::Preempted { .. } => Self::Preempted,
            UnplacedReason::Preempting { .. } => Self::Preempting,
            UnplacedReason::DecisionRefused { .. } => Self::DecisionRefused,
            UnplacedReason::CannotSatisfyHostPlacement { .. } => Self::CannotSatisfyHostPlacement,
            UnplacedReason::VolumeMoving { .. } => Self::VolumeMoving,
            UnplacedReason::VolumeHeld { .. } => Self::VolumeHeld,
        }
    }
}

impl From<&WaitReason> for ReasonCode {
    fn from(why: &WaitReason) -> Self {
        match why {
            WaitReason::Stateful => Self::Stateful,
            WaitReason::MassLoss { .. } => Self::MassLoss,
            WaitReason::NoPlace(why) => why.into(),
            WaitReason::NoRoomInPlace(_) => Self::NoRoomInPlace,
            WaitReason::Preempted { .. } => Self::Preempted,
            WaitReason::Stalled { .. } => Self::Stalled,
            WaitReason::JobRunning => Self::JobRunning,
        }
    }
}

impl From<&StayReason> for ReasonCode {
    fn from(why: &StayReason) -> Self {
        match why {
            StayReason::Settled => Self::Settled,
            StayReason::Moving(_) => Self::Moving,
            StayReason::InGrace { .. } => Self::InGrace,
            StayReason::NodeDown => Self::NodeDown,
            StayReason::RuntimeDown(_) => Self::RuntimeUnavailable,
            StayReason::InTurn(_) => Self::InTurn,
            StayReason::Waiting(why) => why.into(),
        }
    }
}

impl From<&AbandonReason> for ReasonCode {
    fn from(why: &AbandonReason) -> Self {
        match why {
            AbandonReason::SuccessorFailed => Self::SuccessorFailed,
            AbandonReason::TimedOut => Self::TimedOut,
            AbandonReason::DestinationLost => Self::DestinationLost,
            AbandonReason::Needless => Self::Needless,
        }
    }
}

impl From<FilterWord> for ReasonCode {
    fn from(filter: FilterWord) -> Self {
        match filter {
            FilterWord::NotReady => Self::NotReady,
            FilterWord::RuntimeUnavailable => Self::RuntimeUnavailable,
            FilterWord::Cordoned => Self::Cordoned,
            FilterWord::Draining => Self::Draining,
            FilterWord::NotListed => Self::NotListed,
            FilterWord::Constraint => Self::Constraint,
            FilterWord::RuntimeLacks => Self::RuntimeLacks,
            FilterWord::VolumeElsewhere => Self::VolumeElsewhere,
            FilterWord::VolumeSplit => Self::VolumeSplit,
            FilterWord::VolumeCopy => Self::VolumeCopy,
            FilterWord::VolumeSharer => Self::VolumeSharer,
            FilterWord::NoGpu => Self::NoGpu,
            FilterWord::InsufficientCapacity => Self::InsufficientCapacity,
            FilterWord::PortTaken => Self::PortTaken,
            FilterWord::MaxPerNode => Self::MaxPerNode,
            FilterWord::RecentFailures => Self::RecentFailures,
            FilterWord::IdTaken => Self::IdTaken,
        }
    }
}

impl From<&Filter> for ReasonCode {
    fn from(filter: &Filter) -> Self {
        filter.word().into()
    }
}

impl From<&ObservedCode> for ReasonCode {
    fn from(code: &ObservedCode) -> Self {
        match code {
            ObservedCode::ImagePullFailed { .. } => Self::ImagePullFailed,
            ObservedCode::AwaitsService { .. } => Self::AwaitsService,
            ObservedCode::StartFailed { .. } => Self::StartFailed,
            ObservedCode::SubnetPoolExhausted { .. } => Self::SubnetPoolExhausted,
            ObservedCode::Unhealthy { .. } => Self::Unhealthy,
            ObservedCode::Exited { .. } => Self::Exited,
            ObservedCode::OutOfMemory => Self::OutOfMemory,
            ObservedCode::Vanished => Self::Vanished,
            ObservedCode::RestartExhausted { .. } => Self::RestartExhausted,
            ObservedCode::Completed | ObservedCode::JobCompleted { .. } => Self::Completed,
            ObservedCode::JobFailed { .. } => Self::JobFailed,
            ObservedCode::RuntimeUnavailable => Self::RuntimeUnavailable,
        }
    }
}

impl From<ObservedState> for ReasonCode {
    fn from(state: ObservedState) -> Self {
        match state {
            ObservedState::Pending => Self::Pending,
            ObservedState::Pulling => Self::Pulling,
            ObservedState::Starting => Self::Starting,
            ObservedState::Running => Self::Running,
            ObservedState::Degraded => Self::Degraded,
            ObservedState::Failed => Self::Failed,
            ObservedState::Stopped => Self::Stopped,
            ObservedState::Unknown => Self::Unknown,
            ObservedState::Completed => Self::Completed,
        }
    }
}

impl From<MoveCause> for ReasonCode {
    fn from(cause: MoveCause) -> Self {
        match cause {
            MoveCause::NodeLost => Self::NodeLost,
            MoveCause::RuntimeLost => Self::RuntimeLost,
            MoveCause::Misplaced => Self::Misplaced,
            MoveCause::Outdated => Self::Outdated,
            MoveCause::Pressure => Self::Pressure,
            MoveCause::Reschedule => Self::Reschedule,
            MoveCause::Preempted => Self::Preempted,
            MoveCause::Restart => Self::Restart,
            MoveCause::Optimize => Self::Optimize,
        }
    }
}

impl From<Skip> for ReasonCode {
    fn from(skip: Skip) -> Self {
        match skip {
            Skip::CooldownReplica => Self::CooldownReplica,
            Skip::CooldownNode => Self::CooldownNode,
            Skip::ResourceLimits => Self::ResourceLimits,
            Skip::AntiAffinity => Self::AntiAffinity,
            Skip::DstCap => Self::DstCap,
            Skip::ReliefFloor => Self::ReliefFloor,
            Skip::NoEligibleDst => Self::NoEligibleDst,
            Skip::NoCandidate => Self::NoCandidate,
            Skip::SlowedDown => Self::SlowedDown,
        }
    }
}

impl From<&EndpointEligibility> for ReasonCode {
    fn from(eligibility: &EndpointEligibility) -> Self {
        match eligibility {
            EndpointEligibility::Eligible => Self::TakesRequests,
            EndpointEligibility::Draining => Self::Leaves,
            EndpointEligibility::NotReported => Self::Unseen,
            EndpointEligibility::Unhealthy { state: ObservedState::Unknown, .. } => {
                Self::RuntimeUnavailable
            }
            EndpointEligibility::Unhealthy { state, .. } => (*state).into(),
            EndpointEligibility::NodeDown { .. } => Self::NodeDown,
            EndpointEligibility::Standby { .. } => Self::TakesOver,
        }
    }
}

impl From<&ProgressReason> for ReasonCode {
    fn from(why: &ProgressReason) -> Self {
        match why {
            ProgressReason::Retired => Self::Retired,
            ProgressReason::RolloutPaused(_) => Self::Paused,
            ProgressReason::RolloutUndoing(_) => Self::Undoing,
            ProgressReason::RolledBack(_) => Self::RolledBack,
            ProgressReason::Unplaced(unplaced) => (&unplaced.why).into(),
            ProgressReason::Scaling { .. } => Self::Scaling,
            ProgressReason::Replica(condition) => condition.into(),
            ProgressReason::RuntimeUnavailable { .. } => Self::RuntimeUnavailable,
            ProgressReason::PortUnavailable { .. } => Self::PortUnavailable,
        }
    }
}

impl From<&ReplicaCondition> for ReasonCode {
    fn from(condition: &ReplicaCondition) -> Self {
        match condition {
            ReplicaCondition::Settled => Self::Running,
            ReplicaCondition::Completed => Self::Completed,
            ReplicaCondition::RunFailed => Self::JobFailed,
            ReplicaCondition::Retired { .. } => Self::Retired,
            ReplicaCondition::Stopping { .. } => Self::Stopping,
            ReplicaCondition::Moving { cause, successor } => {
                observed(successor).unwrap_or((*cause).into())
            }
            ReplicaCondition::Waiting(why) => why.into(),
            ReplicaCondition::InGrace { .. }
            | ReplicaCondition::Lost { .. }
            | ReplicaCondition::NodeDown { .. } => Self::NodeDown,
            ReplicaCondition::RuntimeDown { .. } => Self::RuntimeUnavailable,
            ReplicaCondition::Misplaced { .. } => Self::Misplaced,
            ReplicaCondition::Starting { startup, .. } => {
                observed(startup).unwrap_or(Self::Starting)
            }
            ReplicaCondition::Outdated => Self::Outdated,
            ReplicaCondition::RestartDue => Self::Restart,
        }
    }
}

/// None where the node has reported nothing yet.
fn observed(startup: &Startup) -> Option<ReasonCode> {
    let seen = startup.observed.as_ref()?;
    Some(seen.code.as_ref().map_or(seen.state.into(), Into::into))
}
