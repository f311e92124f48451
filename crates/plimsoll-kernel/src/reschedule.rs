//! Finds what time broke: replicas whose node is clearly worse for them than the best one, by the very filters and score that
//! placed them, since a node joined or came back, replicas ended, or limits changed. It walks all replicas, so many a
//! cycle, and looks at each as if it were nowhere.
//!
//! A quick look rules nearly all of them out ([`candidates`]); the rest are compared with every node through the search tree
//! ([`judge`]). Which nodes may be sent something, and what each has once all is done, is in [`shares`]. Cooldowns, budgets
//! and the ledger of what moves are the rebalancer's: neither undoes the other. How a move is carried out is settled in
//! [`moves`](crate::moves).

use std::collections::{BTreeMap, VecDeque};
use std::mem;

use plimsoll_model::reschedule::RescheduledMove;
use plimsoll_model::{
    Assignment, AuditEntry, Change, Generation, Guarded, MoveCause, NodeStatus, ReplicaId,
    ServiceKey, SpecHash, State, Timestamp,
};

use crate::place::Roster;
use crate::place::filter::{PlacementRequest, misplaced};
use crate::policy::Policy;
use crate::rebalance::{MoveInFlight, Rebalancer};

mod candidates;
mod fill_plan;
mod judge;
mod limits;
mod shares;
mod stay;
mod walk;

#[cfg(test)]
mod tests;

pub use fill_plan::{FillPlan, FillStage, FillSurvey, fill_plan};
pub use limits::RescheduleLimits;
pub use stay::{CycleSummary, RescheduleVerdict, ScoreComparison, StayReason, verdict};

use candidates::Finder;
use judge::Judge;
use shares::NodeShares;
use walk::Walk;

/// How many cycles a leader can tell of.
pub const CYCLES_KEPT: usize = 10;

/// The rescheduler as a leader keeps it. A new leader begins anew, and goes on with the same walk.
#[derive(Debug, Clone, Default)]
pub struct Rescheduler {
    is_due: bool,
    last: Vec<RescheduledMove>,
    /// The latest cycles, oldest first.
    cycles: VecDeque<CycleSummary>,
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

    /// One cycle: the batch of its moves, and none while it is paused or slowed down.
    pub fn cycle(
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
        let (offers, mut summary) = look(state, roster, policy, rebalancer, tried, now);
        self.last = offers.iter().map(|offer| (*offer.moved).clone()).collect();
        summary.withheld = summary.withheld.or_else(|| stay::withheld(state, policy, now));
        let is_withheld = summary.withheld.is_some();
        if self.cycles.len() >= CYCLES_KEPT {
            self.cycles.pop_front();
        }
        self.cycles.push_back(summary);
        if is_withheld {
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

    /// The latest cycles, oldest first.
    pub fn cycles(&self) -> &VecDeque<CycleSummary> {
        &self.cycles
    }

    fn is_tried(&self, id: &ReplicaId, policy: &Policy, now: Timestamp) -> bool {
        let at = self.tried.get(id);
        at.is_some_and(|at| now.since(*at) < policy.rebalance.cooldown_replica)
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

/// A replica that may be moved for something better, whoever finds it.
#[derive(Debug)]
pub(crate) struct MovableReplica<'s> {
    pub(crate) id: ReplicaId,
    pub(crate) service: &'s ServiceKey,
    /// Its node's place in the roster.
    pub(crate) at: usize,
}

/// Everything that may be moved for something better, by the rules of the rescheduler: nothing that keeps data, rests, rolls,
/// runs on every node or was told to stay.
pub(crate) fn movable<'s>(
    state: &'s State,
    roster: &Roster,
    policy: &Policy,
    now: Timestamp,
) -> Vec<MovableReplica<'s>> {
    let mut found = Vec::new();
    for (key, service) in state.services() {
        let Ok(spec) = candidates::may_move(service) else { continue };
        let ask = PlacementRequest::new(spec, &service.row.failures, policy, now);
        for (slot, replica) in &service.replicas {
            let movable =
                candidates::movable((state, roster, policy, now), (service, spec), slot, replica);
            let Ok((_, at)) = movable else { continue };
            if replica.successor.is_none() && misplaced(&ask, roster, at).is_none() {
                let id = ReplicaId::new(key.clone(), slot.clone());
                found.push(MovableReplica { id, service: key, at });
            }
        }
    }
    found
}

/// What keeps a replica from being moved now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MoveHindrance {
    /// As many move as may at once, of its service or of the cell: later.
    Budget,
    /// It is not what it was: gone, resting, rolling, moving or told to stay.
    Changed,
}

/// The replica's assignment, if a move of it may begin now as far as it, its service and the cell's budget go.
pub(crate) fn may_begin<'s>(
    state: &'s State,
    roster: &Roster,
    policy: &Policy,
    id: &ReplicaId,
    now: Timestamp,
) -> Result<&'s Assignment, MoveHindrance> {
    let (service, replica) =
        state.service(&id.service).zip(state.replica(id)).ok_or(MoveHindrance::Changed)?;
    let open = state.nodes().values().filter(|node| node.is_open()).count();
    if state.moving().len() >= policy.reschedule.moves_at_once(open) {
        return Err(MoveHindrance::Budget);
    }
    let spec = candidates::may_move(service).map_err(|why| match why {
        StayReason::ServiceBudget => MoveHindrance::Budget,
        _ => MoveHindrance::Changed,
    })?;
    let given = (state, roster, policy, now);
    let movable = candidates::movable(given, (service, spec), &id.slot, replica);
    let (assignment, at) = movable.map_err(|_| MoveHindrance::Changed)?;
    let ask = PlacementRequest::new(spec, &service.row.failures, policy, now);
    let may_stay = replica.successor.is_none() && misplaced(&ask, roster, at).is_none();
    may_stay.then_some(assignment).ok_or(MoveHindrance::Changed)
}

/// Closes every node of a roster that is to be sent nothing by choice: it came back a moment ago, or is busy.
pub(crate) fn close_untrusted(
    state: &State,
    roster: &mut Roster,
    policy: &Policy,
    measured: &Rebalancer,
    now: Timestamp,
) {
    NodeShares::new(state, roster, policy, measured, now);
}

/// What is better off elsewhere, as far as this cycle looks and the cell's budget goes, and the cycle in numbers. `is_tried`
/// are those that were offered a moment ago.
pub fn look(
    state: &State,
    roster: &Roster,
    policy: &Policy,
    measured: &Rebalancer,
    is_tried: impl Fn(&ReplicaId) -> bool,
    now: Timestamp,
) -> (Vec<RescheduleOffer>, CycleSummary) {
    let mut summary = CycleSummary::new(now);
    let open = state.nodes().values().filter(|node| node.is_open()).count();
    let (moving, most) = (state.moving().len(), policy.reschedule.moves_at_once(open));
    summary.withheld = if is_mass_loss(state) {
        Some(StayReason::MassLoss)
    } else {
        (moving >= most).then_some(StayReason::CellBudget { moving, most })
    };
    if summary.withheld.is_some() {
        return (Vec::new(), summary);
    }
    let target = state.rescheduling().target;
    let mut roster = roster.seen_by(|node| measured.mean(node), target);
    let shares = NodeShares::new(state, &mut roster, policy, measured, now);
    let budget = most - moving;
    let walk = Walk::new(state, policy, now);
    let finder = Finder { state, roster: &roster, shares: &shares, policy, walk, now };
    let mut candidates = finder.find();
    candidates.retain(|candidate| {
        let is_tried = is_tried(&candidate.id);
        if is_tried {
            summary.note(&StayReason::TriedLately);
        }
        !is_tried
    });
    let judge = Judge { state, roster, shares, policy, measured, budget, now };
    (judge.offers(&candidates, &mut summary), summary)
}

/// When so many nodes are down it is more likely us, and no time for improvements.
pub(crate) fn is_mass_loss(state: &State) -> bool {
    let lost = state.nodes().values();
    let lost = lost.filter(|node| node.status == NodeStatus::Down || node.outage.is_some()).count();
    2 * lost > state.nodes().len()
}
