//! Whether requests are sent to a container, and if not, why: the one judgement that routers go by and people are told.

use std::fmt;

use plimsoll_model::{
    Assignment, Generation, NodeId, NodeStatus, ObservedCode, ObservedState, Replica, State,
};

/// What is ruled of one container, with what decided it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    Takes,
    /// It was told to stop, and ends what it has.
    Leaves,
    /// Its node has said nothing of it yet.
    Unseen,
    Unwell {
        state: ObservedState,
        code: Option<ObservedCode>,
    },
    /// Its node is not heard.
    Away {
        node: NodeId,
    },
    /// It is well, and takes over from another generation that is as well.
    Succeeds {
        from: Generation,
    },
}

impl Ruling {
    /// A replica is sent requests at one generation: the current one, and while that is not well the one that takes its
    /// place, if it is.
    pub fn of(state: &State, replica: &Replica, held: &Assignment) -> Self {
        let is = |other: &Assignment| other.generation == held.generation;
        if replica.leaving.iter().any(is) {
            return Self::Leaves;
        }
        if let Some(why) = hindrance(state, replica, held) {
            return why;
        }
        match &replica.assignment {
            Some(current) if !is(current) && hindrance(state, replica, current).is_none() => {
                Self::Succeeds { from: current.generation }
            }
            _ => Self::Takes,
        }
    }

    pub fn word(&self) -> &'static str {
        match self {
            Self::Takes => "takes_requests",
            Self::Leaves => "leaves",
            Self::Unseen => "unseen",
            Self::Unwell { state, .. } => state.word(),
            Self::Away { .. } => "node_down",
            Self::Succeeds { .. } => "takes_over",
        }
    }
}

impl fmt::Display for Ruling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Takes => f.write_str("it runs and is well"),
            Self::Leaves => f.write_str("it ends what is under way, and then stops"),
            Self::Unseen => f.write_str("its node has not said yet that it runs"),
            Self::Unwell { state, code: Some(code) } => write!(f, "it is {}: {code}", state.word()),
            Self::Unwell { state, code: None } => write!(f, "it is {}", state.word()),
            Self::Away { node } => write!(f, "{node} is not heard"),
            Self::Succeeds { from } => {
                write!(f, "it is well, and takes over once generation {} leaves", from.0)
            }
        }
    }
}

/// Why a container could not take requests whatever the others do.
fn hindrance(state: &State, replica: &Replica, held: &Assignment) -> Option<Ruling> {
    let status = state.node(&held.node).map(|node| node.status);
    if status != Some(NodeStatus::Ready) {
        return Some(Ruling::Away { node: held.node.clone() });
    }
    match replica.observation(held) {
        None => Some(Ruling::Unseen),
        Some(seen) if seen.state == ObservedState::Running => None,
        Some(seen) => Some(Ruling::Unwell { state: seen.state, code: seen.code.clone() }),
    }
}
