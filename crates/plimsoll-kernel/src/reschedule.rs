//! Finds what time broke: replicas whose node is clearly worse for them than the best one, by the very filters and score that
//! placed them, since a node joined or came back, replicas ended, or limits changed. It walks all replicas, so many a
//! cycle, and looks at each as if it were nowhere.
//!
//! A quick look rules nearly all of them out ([`candidates`]); the rest are compared with every node through the search tree
//! ([`judge`]). Which nodes may be sent something, and what each has once all is done, is in [`shares`]. Cooldowns, budgets
//! and the ledger of what moves are the rebalancer's: neither undoes the other. How a move is carried out is settled in
//! [`moves`](crate::moves).

use std::collections::BTreeMap;
use std::mem;

use plimsoll_model::reschedule::RescheduledMove;
use plimsoll_model::{
    AuditEntry, Change, Generation, Guarded, MoveCause, NodeStatus, ReplicaId, SpecHash, State,
    Timestamp,
};

use crate::place::Roster;
use crate::policy::Policy;
use crate::rebalance::{MoveInFlight, Rebalancer};

mod candidates;
mod fill_plan;
mod judge;
mod limits;
mod shares;
mod walk;

#[cfg(test)]
mod tests;

pub use fill_plan::{FillPlan, FillStage, fill_plan};
pub use limits::RescheduleLimits;

use candidates::Finder;
use judge::Judge;
use shares::NodeShares;
use walk::Walk;

/// The rescheduler as a leader keeps it. A new leader begins anew, and goes on with the same walk.
#[derive(Debug, Clone, Default)]
pub struct Rescheduler {
    is_due: bool,
    last: Vec<RescheduledMove>,
    /// When each replica was last offered: a move that failed is not tried again at once.
    tried: BTreeMap<ReplicaId, Timestamp>,
}

/// A replica that is better off elsewhere, with the move that takes it there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RescheduleOffer {
    pub moved: Box<RescheduledMove>,
    spec: SpecHash,
    generation: Generation,
    in_flight: MoveInFlight,
}

impl Rescheduler {
    /// The next turn has a cycle.
    pub(crate) fn wake(&mut self) {
        self.is_due = true;
    }

    pub(crate) fn take_due(&mut self) -> bool {
        mem::take(&mut self.is_due)
    }

    /// One cycle: the batch of its moves, and none while it is paused.
    pub(crate) fn cycle(
        &mut self,
        state: &State,
        roster: &Roster,
        policy: &Policy,
        rebalancer: &mut Rebalancer,
        now: Timestamp,
    ) -> Vec<Guarded> {
        let rests = |at: Timestamp| now.since(at) < policy.rebalance.cooldown_replica;
        self.tried.retain(|_, at| rests(*at));
        let tried = |id: &ReplicaId| self.tried.contains_key(id);
        let offers = offers(state, roster, policy, rebalancer, tried, now);
        self.last = offers.iter().map(|offer| (*offer.moved).clone()).collect();
        if state.rescheduling().is_paused {
            return Vec::new();
        }
        for offer in &offers {
            self.tried.insert(offer.moved.replica.clone(), now);
            rebalancer.expect(offer.moved.replica.clone(), offer.in_flight.clone());
        }
        offers.into_iter().flat_map(RescheduleOffer::changes).collect()
    }

    /// What the last cycle moved, or would have moved were it not paused.
    pub fn last_offers(&self) -> &[RescheduledMove] {
        &self.last
    }
}

impl RescheduleOffer {
    fn changes(self) -> [Guarded; 2] {
        let RescheduledMove { replica, dst, .. } = &*self.moved;
        let (replica, node, cause) = (replica.clone(), dst.clone(), MoveCause::Reschedule);
        let succeed = Change::Succeed { replica, node, spec: self.spec, cause };
        let entry = AuditEntry::Reschedule(self.moved);
        [succeed.at_generation(Some(self.generation)), Change::Record { entry }.free()]
    }
}

/// What is better off elsewhere, as far as this cycle looks and the cell's budget goes. `is_tried` are those that were
/// offered a moment ago.
pub fn offers(
    state: &State,
    roster: &Roster,
    policy: &Policy,
    measured: &Rebalancer,
    is_tried: impl Fn(&ReplicaId) -> bool,
    now: Timestamp,
) -> Vec<RescheduleOffer> {
    let moving = state.moving().len();
    if moving >= policy.reschedule.most_moves || is_mass_loss(state) {
        return Vec::new();
    }
    let target = state.rescheduling().target;
    let mut roster = roster.seen_by(|node| measured.mean(node), target);
    let shares = NodeShares::new(state, &mut roster, policy, measured, now);
    let budget = policy.reschedule.moves_at_once(shares.open).saturating_sub(moving);
    if budget == 0 {
        return Vec::new();
    }
    let walk = Walk::new(state, policy, now);
    let finder = Finder { state, roster: &roster, shares: &shares, policy, walk, now };
    let mut candidates = finder.find();
    candidates.retain(|candidate| !is_tried(&candidate.id));
    Judge { state, roster, shares, policy, measured, budget, now }.offers(&candidates)
}

/// When so many nodes are down it is more likely us, and no time for improvements.
fn is_mass_loss(state: &State) -> bool {
    let lost = state.nodes().values();
    let lost = lost.filter(|node| node.status == NodeStatus::Down || node.outage.is_some()).count();
    2 * lost > state.nodes().len()
}
