//! What is the matter with a replica where it is.

use plimsoll_model::{Assignment, NodeStatus, Replica, SpecHash, State, Timestamp};

use super::Pass;
use crate::place::Roster;
use crate::place::filter::{Ask, misplaced};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plight {
    /// Nothing.
    Settled,
    /// Its node is down, but may come back until then.
    InGrace(Timestamp),
    /// It runs an older spec than it should, or is to start anew.
    Outdated,
    /// Its node may not hold it any more.
    Misplaced,
    /// Its node is down beyond the grace, or gone.
    Lost,
}

impl Plight {
    /// How little is lost when this replica is the one to go.
    pub(super) fn severity(self) -> u8 {
        match self {
            Self::Settled | Self::Outdated => 0,
            Self::InGrace(_) => 1,
            Self::Misplaced => 2,
            Self::Lost => 3,
        }
    }
}

impl Pass<'_> {
    pub(super) fn plight(
        &self,
        roster: &Roster,
        ask: &Ask<'_>,
        replica: &Replica,
        assignment: &Assignment,
        desired: SpecHash,
    ) -> Plight {
        let Some(at) = roster.place_of(&assignment.node) else { return Plight::Lost };
        if !roster.is_up(at)
            && let Some(since) = down_since(self.state, assignment)
        {
            let until = since.plus(self.policy.loss_grace);
            return if self.now < until { Plight::InGrace(until) } else { Plight::Lost };
        }
        if misplaced(ask, roster, at).is_some() {
            return Plight::Misplaced;
        }
        let is_fresh = !replica.is_stale(assignment) && !replica.is_stopped(assignment);
        let is_current = assignment.spec == desired && is_fresh;
        if is_current { Plight::Settled } else { Plight::Outdated }
    }
}

fn down_since(state: &State, assignment: &Assignment) -> Option<Timestamp> {
    let node = state.node(&assignment.node)?;
    (node.status == NodeStatus::Down).then_some(node.status_since)
}
