//! Compares candidates with every node, one after the other, each counting for the next, until the budget of the cell is
//! used up.

use std::collections::BTreeMap;

use plimsoll_model::reschedule::{RescheduleReason, RescheduledMove};
use plimsoll_model::{ServiceKey, State, Timestamp};

use super::RescheduleOffer;
use super::candidates::Candidate;
use super::shares::NodeShares;
use super::stay::{CycleSummary, ScoreComparison, StayReason, Staying};
use crate::place::filter::PlacementRequest;
use crate::place::{NodeComparison, Placer, Roster};
use crate::policy::Policy;
use crate::rebalance::{MoveInFlight, Rebalancer};

/// So many replicas of one service are compared in a cycle: what these do not find, hardly another one does.
const MOST_OF_SERVICE: usize = 16;

pub(super) struct Judge<'r> {
    pub(super) state: &'r State,
    pub(super) roster: Roster,
    pub(super) shares: NodeShares,
    pub(super) policy: &'r Policy,
    pub(super) measured: &'r Rebalancer,
    /// How many more may begin to move.
    pub(super) budget: usize,
    pub(super) now: Timestamp,
}

impl Judge<'_> {
    pub(super) fn offers(
        mut self,
        candidates: &[Candidate<'_>],
        summary: &mut CycleSummary,
    ) -> Vec<RescheduleOffer> {
        let mut offers = Vec::new();
        let mut of_service: BTreeMap<&ServiceKey, usize> = BTreeMap::new();
        let most = self.policy.reschedule.comparisons_per_cycle;
        summary.candidates = candidates.len();
        for candidate in candidates {
            if offers.len() >= self.budget {
                let moving = self.state.moving().len() + offers.len();
                summary.note(&StayReason::CellBudget { moving, most: moving });
                continue;
            }
            if summary.compared >= most {
                summary.note(&StayReason::ComparisonLimit);
                continue;
            }
            let tries = of_service.entry(&candidate.id.service).or_default();
            if *tries >= MOST_OF_SERVICE {
                summary.note(&StayReason::ServiceBudget);
                continue;
            }
            (summary.compared, *tries) = (summary.compared + 1, *tries + 1);
            match self.offer(candidate) {
                Ok(offer) => {
                    // A service has one budget for every cause: one of it moves at a time.
                    *tries = MOST_OF_SERVICE;
                    offers.push(offer);
                }
                Err(staying) => summary.note(&staying.why),
            }
        }
        summary.offers = offers.len();
        offers
    }

    /// The move that the candidate is better off with, or why it stays.
    pub(super) fn offer(&mut self, candidate: &Candidate<'_>) -> Result<RescheduleOffer, Staying> {
        let Candidate { id, service, spec, assignment, at, threshold, .. } = candidate;
        let (at, src) = (*at, &assignment.node);
        let ask = PlacementRequest::new(spec, &service.row.failures, self.policy, self.now);
        let headings = service.replicas.values().filter_map(|it| it.heading()).map(|it| &it.node);
        let mut placer = Placer::new(&mut self.roster, ask, headings);
        let compared = placer.compare(id, src);
        placer.close();
        let NodeComparison { best, current } = compared.ok_or(StayReason::NoOther)?;
        let dst = self.roster.id_at(best.at).clone();
        let stays = |why| Staying {
            why,
            compared: Some(ScoreComparison {
                best: dst.clone(),
                best_score: best.score,
                current_score: current,
                threshold: *threshold,
            }),
        };
        let gain = i32::from(best.score.total()) - i32::from(current.total());
        let fills = candidate.may_fill && gain >= 0;
        // Asked again: what was offered before it may have made the node fit.
        let has_no_room = candidate.is_one_too_many || self.shares.is_overfull(at);
        let why = if has_no_room {
            RescheduleReason::NoRoom
        } else if gain > i32::from(*threshold) {
            RescheduleReason::BetterScore
        } else if fills && self.shares.fills(at, best.at, spec, assignment.at) {
            RescheduleReason::Fill
        } else {
            return Err(stays(StayReason::NotBetter { gain, threshold: *threshold }));
        };
        if !self.shares.may_receive(best.at) {
            return Err(stays(StayReason::NodeRests { node: dst.clone() }));
        }
        let given = (self.state, &self.roster, self.policy);
        let footprint = |node| self.measured.footprint(given, (id, spec), node, self.now);
        let (off, on) = (footprint(src), footprint(&dst));
        let has_failed = service.row.failures.get(&dst).and_then(|times| times.last());
        let memory = self.policy.reschedule.loss_memory;
        if has_failed.is_some_and(|last| self.now.since(*last) < memory) {
            return Err(stays(StayReason::FailedThere { node: dst.clone() }));
        }
        if !self.measured.stays_cool(self.policy, &dst, on) {
            return Err(stays(StayReason::DstCap { node: dst.clone() }));
        }
        let shares = &self.shares;
        let moved = RescheduledMove {
            replica: id.clone(),
            src: src.clone(),
            dst: dst.clone(),
            why,
            before: (why != RescheduleReason::NoRoom).then_some(current),
            after: best.score,
            threshold: *threshold,
            src_before: shares.reserved(at),
            src_after: shares.without(at, spec),
            dst_before: shares.reserved(best.at),
            dst_after: shares.with(best.at, spec),
        };
        let (request, ports): (_, Vec<_>) = (spec.request(), spec.host_ports().collect());
        self.roster.take(best.at, request, &ports, id);
        self.roster.show(best.at);
        self.shares.pass_on(at, best.at, spec);
        let in_flight = MoveInFlight { src: src.clone(), dst, off, on };
        Ok(RescheduleOffer {
            moved: Box::new(moved),
            spec: spec.hash,
            generation: assignment.generation,
            in_flight,
        })
    }
}
