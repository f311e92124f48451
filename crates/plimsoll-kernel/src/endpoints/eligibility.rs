//! Whether requests are sent to a replica at one of its generations, and if not, why: the one judgement that routers go by and
//! people are shown.

use std::fmt;

use plimsoll_model::{
    Assignment, Generation, NodeId, NodeStatus, ObservedCode, ObservedState, Replica, State,
};

use crate::agent::is_cleared_away;

/// Whether one generation of a replica is sent requests, with what decided it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointEligibility {
    Eligible,
    /// It was told to stop, and finishes open requests.
    Draining,
    /// Its node has not reported it yet.
    NotReported,
    Unhealthy {
        state: ObservedState,
        code: Option<ObservedCode>,
    },
    NodeDown {
        node: NodeId,
    },
    /// It is healthy, and takes over from another generation that is healthy as well.
    Standby {
        behind: Generation,
    },
}

impl EndpointEligibility {
    /// A replica is sent requests at one generation: the current one, and while that is unhealthy its successor, if that is
    /// healthy.
    pub fn of(state: &State, replica: &Replica, held: &Assignment) -> Self {
        let is = |other: &Assignment| other.generation == held.generation;
        // What a forced drain stops is not leaving, and gets no request all the same: its node waits for that before it
        // stops it.
        if replica.leaving.iter().any(is) || is_cleared_away(state, &held.node, replica) {
            return Self::Draining;
        }
        if let Some(why) = hindrance(state, replica, held) {
            return why;
        }
        match &replica.assignment {
            Some(current) if !is(current) && hindrance(state, replica, current).is_none() => {
                Self::Standby { behind: current.generation }
            }
            _ => Self::Eligible,
        }
    }

    pub fn word(&self) -> &'static str {
        match self {
            Self::Eligible => "takes_requests",
            Self::Draining => "leaves",
            Self::NotReported => "unseen",
            Self::Unhealthy { state: ObservedState::Unknown, .. } => "runtime_unavailable",
            Self::Unhealthy { state, .. } => state.word(),
            Self::NodeDown { .. } => "node_down",
            Self::Standby { .. } => "takes_over",
        }
    }
}

impl fmt::Display for EndpointEligibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eligible => f.write_str("running and healthy"),
            Self::Draining => f.write_str("draining: finishing open requests"),
            Self::NotReported => f.write_str("its node has not reported it yet"),
            Self::Unhealthy { state, code: Some(code) } => write!(f, "{}: {code}", state.word()),
            Self::Unhealthy { state, code: None } => f.write_str(state.word()),
            Self::NodeDown { node } => write!(f, "no heartbeat from {node}"),
            Self::Standby { behind } => {
                write!(f, "healthy; takes over once generation {} drains", behind.0)
            }
        }
    }
}

/// Why it could not be sent requests whatever the other generations do.
fn hindrance(state: &State, replica: &Replica, held: &Assignment) -> Option<EndpointEligibility> {
    let status = state.node(&held.node).map(|node| node.status);
    if status != Some(NodeStatus::Ready) {
        return Some(EndpointEligibility::NodeDown { node: held.node.clone() });
    }
    match replica.observation(held) {
        None => Some(EndpointEligibility::NotReported),
        // A job that is done counts as running, and nobody is there to answer.
        Some(seen)
            if seen.state == ObservedState::Running
                && seen.code != Some(ObservedCode::Completed) =>
        {
            None
        }
        Some(seen) => {
            Some(EndpointEligibility::Unhealthy { state: seen.state, code: seen.code.clone() })
        }
    }
}
