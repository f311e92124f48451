//! Which replica leaves a hot node, and where it goes: the one that relieves it most, of equals the lower id, to the coldest
//! node that may take it, then by name.
//!
//! What a replica relieves does not depend on where it goes. So candidates and destinations are each sorted once, and the
//! first pair that passes every gate is the best.

use std::cmp::Reverse;

use plimsoll_model::reason::{FilterWord, UnplacedReason};
use plimsoll_model::state::Service;
use plimsoll_model::{
    Assignment, Change, Guarded, Millis, Mode, MoveCause, NodeId, NodePressure, Pressure, Replica,
    ReplicaId, Resources, ServiceKey, ServiceSpec, Slot, Timestamp,
};
use serde::Serialize;

use super::gates::{CandidateMove, GateResult};
use super::memory::{MoveInFlight, NodeTrend, PredictedPressure, meet};
use super::view::CycleInputs;
use super::{Dimension, Relief, Skip};
use crate::budget::{DisruptionBudget, DisruptionCost};
use crate::data::has_data;
use crate::place::filter::{PlacementRequest, filter, misplaced, no_room};
use plimsoll_model::rebalance::{MAX_REFUSED, RefusedCandidate};

/// A hot node, and all it could give something to.
pub(super) struct MoveSearch<'a> {
    view: &'a CycleInputs<'a>,
    src: &'a NodeId,
    pressure: NodePressure,
    dominant: Dimension,
    /// The coldest first.
    destinations: Vec<Destination<'a>>,
}

/// What came of it.
pub(super) enum BestMove {
    Best {
        change: Box<Guarded>,
        relief: Box<Relief>,
        moving: MoveInFlight,
    },
    /// Why nothing moves, what came nearest, and what was refused.
    Nothing(Skip, Option<Relief>, Vec<RefusedCandidate>),
}

/// A replica that could leave the node, where it would go, and what each gate says to that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CandidateEvaluation {
    pub replica: ReplicaId,
    pub dst: NodeId,
    pub relief: Pressure,
    pub gates: Vec<GateResult>,
}

/// What is looked at for every candidate stands here by value: following a pointer for each pair would cost more than all
/// the gates.
struct Destination<'a> {
    id: &'a NodeId,
    capacity: Resources,
    received_at: Option<Timestamp>,
    /// Its place in the roster.
    at: usize,
    /// How hot it has been, which is what counts of a destination.
    before: NodePressure,
}

/// A replica that may be moved at all.
struct Candidate<'a> {
    id: &'a ReplicaId,
    spec: &'a ServiceSpec,
    assignment: &'a Assignment,
    off: NodePressure,
    post_src: Pressure,
    relief: Pressure,
}

/// A candidate's service as the destinations see it.
struct Asking<'a> {
    ask: PlacementRequest<'a>,
    /// How many replicas of the service each node of the roster has.
    here: Vec<u32>,
    /// What it takes of a node of this size: most nodes are alike.
    on: (Resources, NodePressure),
}

impl Asking<'_> {
    fn on(
        &mut self,
        view: &CycleInputs<'_>,
        of: &Candidate<'_>,
        capacity: Resources,
    ) -> NodePressure {
        if self.on.0 != capacity {
            self.on = (capacity, view.footprint(of.id, of.spec, capacity));
        }
        self.on.1
    }
}

/// What was said no for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reasons {
    None,
    One(Skip),
    Several,
}

impl Reasons {
    fn add(&mut self, why: Skip) {
        *self = match *self {
            Self::None => Self::One(why),
            Self::One(before) if before == why => Self::One(why),
            Self::One(_) | Self::Several => Self::Several,
        };
    }

    fn skip(self) -> Skip {
        match self {
            Self::One(why) => why,
            Self::None | Self::Several => Skip::NoEligibleDst,
        }
    }
}

impl<'a> MoveSearch<'a> {
    /// `predicted` stands in the order of `nodes`.
    pub(super) fn new(
        view: &'a CycleInputs<'a>,
        nodes: &'a [NodeTrend],
        predicted: &[PredictedPressure],
        src: usize,
    ) -> Self {
        let mut rows = view.state.nodes().iter().peekable();
        let mut destinations = Vec::with_capacity(nodes.len());
        for (nth, (node, now)) in nodes.iter().zip(predicted).enumerate() {
            let row = meet(&mut rows, &node.node, |(id, _)| id).filter(|(_, row)| row.is_open());
            let Some((id, node)) = row.filter(|_| nth != src) else { continue };
            if let Some(at) = view.roster.place_of(id) {
                let (capacity, received_at) = (node.facts.capacity, node.received_at);
                let before = now.peak;
                destinations.push(Destination { id, capacity, received_at, at, before });
            }
        }
        // Stable, and nodes come sorted by name: so equals are.
        destinations.sort_by_key(|it| it.before.top());
        let pressure = predicted[src].mean;
        let src = &nodes[src].node;
        Self { view, src, pressure, dominant: pressure.dominant(), destinations }
    }

    /// The best move off the node, or why there is none.
    pub(super) fn best(&self) -> BestMove {
        let candidates = self.candidates();
        if candidates.is_empty() {
            return BestMove::Nothing(Skip::NoCandidate, None, Vec::new());
        }
        let mut admitted = (0..).zip(&candidates).filter_map(|(nth, candidate)| {
            let (dst, offer, on) = self.admitted(candidate)?;
            Some((nth, candidate, dst, offer, on))
        });
        let Some((nth, candidate, dst, offer, on)) = admitted.next() else {
            let (why, nearest) = self.refused(&candidates);
            return BestMove::Nothing(why, nearest, self.reasons(&candidates));
        };
        let refused = self.reasons(&candidates[..nth]);
        BestMove::Best {
            change: Box::new(change(candidate, dst)),
            relief: Box::new(Relief { refused, ..self.relief(candidate, dst, &offer) }),
            moving: self.moving(candidate, dst, on),
        }
    }

    /// The gate that says no to each, for those that would relieve the node most.
    fn reasons(&self, candidates: &[Candidate<'a>]) -> Vec<RefusedCandidate> {
        let named = candidates.iter().take(MAX_REFUSED);
        let why = |it: &Candidate<'a>| self.refused(std::slice::from_ref(it)).0;
        named.map(|it| RefusedCandidate { replica: it.id.clone(), why: why(it) }).collect()
    }

    /// The coldest destination of this replica that passes every gate, and what it takes there. What costs little to see is
    /// seen first: the order of the gates only matters for what is said of a refusal.
    fn admitted(
        &self,
        candidate: &Candidate<'a>,
    ) -> Option<(&Destination<'a>, CandidateMove, NodePressure)> {
        let (limits, rested) = (self.view.limits, self.rested(candidate));
        if candidate.relief < limits.relief_floor || rested < limits.cooldown_replica {
            return None;
        }
        let mut asking = self.asking(candidate)?;
        self.destinations.iter().find_map(|dst| {
            let on = asking.on(self.view, candidate, dst.capacity);
            if dst.before.plus(on).top() >= limits.dst_cap {
                return None;
            }
            let offer = self.offer(candidate, &mut asking, dst)?;
            offer.blocked(limits).is_none().then_some((dst, offer, on))
        })
    }

    /// Why nothing moves: the one reason that all have, where they have one.
    fn refused(&self, candidates: &[Candidate<'a>]) -> (Skip, Option<Relief>) {
        let mut reasons = Reasons::None;
        let mut nearest = None;
        let pairs =
            candidates.iter().filter_map(|candidate| Some((candidate, self.asking(candidate)?)));
        'all: for (candidate, mut asking) in pairs {
            for dst in &self.destinations {
                let Some(offer) = self.offer(candidate, &mut asking, dst) else { continue };
                let Some(why) = offer.blocked(self.view.limits) else { continue };
                reasons.add(why);
                nearest.get_or_insert_with(|| self.relief(candidate, dst, &offer));
                if reasons == Reasons::Several {
                    break 'all;
                }
                // It would say so of every other destination too.
                if why == Skip::CooldownReplica {
                    break;
                }
            }
        }
        (reasons.skip(), nearest)
    }

    fn rested(&self, candidate: &Candidate<'_>) -> Millis {
        self.view.now.since(candidate.assignment.at)
    }

    /// Every candidate with the first destination that would take it, or else the coldest.
    pub(super) fn weigh(&self) -> Vec<CandidateEvaluation> {
        let limits = self.view.limits;
        let weigh = |candidate: &Candidate<'a>| {
            let mut asking = self.asking(candidate)?;
            let mut first = None;
            for dst in &self.destinations {
                let Some(offer) = self.offer(candidate, &mut asking, dst) else { continue };
                if offer.blocked(limits).is_none() {
                    first = Some((dst, offer));
                    break;
                }
                first.get_or_insert((dst, offer));
            }
            let (dst, offer) = first?;
            let (replica, dst) = (candidate.id.clone(), dst.id.clone());
            Some(CandidateEvaluation {
                replica,
                dst,
                relief: candidate.relief,
                gates: offer.gates(limits),
            })
        };
        self.candidates().iter().filter_map(weigh).collect()
    }

    /// Replicas on the node that may be moved at all, the one that relieves it most first.
    fn candidates(&self) -> Vec<Candidate<'a>> {
        let CycleInputs { state, .. } = *self.view;
        let capacity = self.view.capacity(self.src);
        let tenants = state.load(self.src).into_iter().flat_map(|load| &load.tenants);
        // Tenants come sorted by service, so each is asked once.
        let mut asked: Option<(&ServiceKey, bool)> = None;
        let movable = tenants.filter_map(|id| {
            let replica = state.replica(id)?;
            let assignment = replica.assignment.as_ref().filter(|at| at.node == *self.src)?;
            let service = state.service(&id.service)?;
            let spec = service.desired()?;
            let known = asked.filter(|(key, _)| **key == id.service);
            let (_, may_move) =
                *asked.insert(known.unwrap_or_else(|| (&id.service, self.may_move(service, spec))));
            // What is to be replaced or has data here leaves for that reason, or not at all.
            let is_current = assignment.spec == spec.hash
                && !replica.is_stale(assignment)
                && matches!(id.slot, Slot::Index(_))
                && !state.preemptions().is_victim(assignment.generation);
            // Nothing runs of a job that is done: it relieves nobody, and would be done a second time.
            let is_running = replica.is_running() && !replica.has_completed(assignment);
            if !may_move || !is_running || !is_current || has_data(service, replica) {
                return None;
            }
            let off = self.view.footprint(id, spec, capacity);
            // What stays hot in the other dimension is not relieved.
            let (before, post_src) = (self.pressure.top(), self.pressure.minus(off).top());
            let relief = before.millionths().saturating_sub(post_src.millionths());
            let relief = Pressure::from_millionths(relief);
            Some(Candidate { id, spec, assignment, off, post_src, relief })
        });
        let mut candidates: Vec<Candidate<'a>> = movable.collect();
        candidates.sort_unstable_by_key(|it| (Reverse(it.relief), it.id));
        candidates
    }

    /// Whether a replica of the service may leave the node now at all, for the node's sake. It must run elsewhere before it
    /// stops here: a hot node is no reason to drop a request. What may not stay here leaves for that reason, and the service
    /// has one budget for every cause.
    fn may_move(&self, service: &Service, spec: &ServiceSpec) -> bool {
        let CycleInputs { roster, policy, now, .. } = *self.view;
        let ask = PlacementRequest::new(spec, &service.row.failures, policy, now);
        let is_misplaced =
            roster.place_of(self.src).is_none_or(|at| misplaced(&ask, roster, at).is_some());
        // No pass would take such a move any further: what is decided for the service is refused.
        let said = service.row.unplaced.as_ref();
        let is_refused =
            said.is_some_and(|it| matches!(it.why, UnplacedReason::DecisionRefused { .. }));
        let is_global = spec.placement.mode == Mode::Global;
        if !spec.can_run_twice() || is_global || is_misplaced || is_refused {
            return false;
        }
        let replicas = service.replicas.values().filter(|replica| replica.heading().is_some());
        let budget = replicas.map(|replica| (replica.successor.is_some(), replica.is_running()));
        DisruptionBudget::new(budget).allows(1, DisruptionCost::Nothing)
    }

    fn asking(&self, candidate: &Candidate<'a>) -> Option<Asking<'a>> {
        let CycleInputs { state, roster, policy, now, .. } = *self.view;
        let service = state.service(&candidate.id.service)?;
        let mut here = vec![0; roster.len()];
        for at in service.replicas.values().filter_map(Replica::heading) {
            if let Some(at) = roster.place_of(&at.node) {
                here[at] += 1;
            }
        }
        let ask = PlacementRequest::new(candidate.spec, &service.row.failures, policy, now);
        let capacity = self.view.capacity(self.src);
        Some(Asking { ask, here, on: (capacity, candidate.off) })
    }

    /// What would come of moving the replica; none where its constraints keep it off the node.
    fn offer(
        &self,
        candidate: &Candidate<'a>,
        asking: &mut Asking<'a>,
        dst: &Destination<'a>,
    ) -> Option<CandidateMove> {
        let spec = candidate.spec;
        let on = asking.on(self.view, candidate, dst.capacity);
        let here = asking.here[dst.at];
        let turned = filter(&asking.ask, self.view.roster, dst.at, here).map(|it| it.word());
        let is_crowded = match turned {
            None
            | Some(FilterWord::InsufficientCapacity | FilterWord::NoGpu | FilterWord::PortTaken) => {
                false
            }
            Some(FilterWord::NotListed | FilterWord::MaxPerNode) => true,
            // It is no destination of this service at all.
            Some(
                FilterWord::NotReady
                | FilterWord::RuntimeUnavailable
                | FilterWord::Cordoned
                | FilterWord::Draining
                | FilterWord::Constraint
                | FilterWord::RuntimeLacks
                | FilterWord::VolumeElsewhere
                | FilterWord::VolumeSplit
                | FilterWord::VolumeCopy
                | FilterWord::VolumeSharer
                | FilterWord::RecentFailures
                | FilterWord::IdTaken,
            ) => return None,
        };
        let meets_own = matches!(spec.placement.mode, Mode::Spread { .. }) && here > 0;
        // Asked for itself: what may not be there may have no room there as well.
        let fits = no_room(&asking.ask, &self.view.roster.slots[dst.at]).is_none();
        let collides = is_crowded || meets_own || spec.placement.mode == Mode::Global;
        Some(CandidateMove {
            rested: self.rested(candidate),
            dst_rested: dst.received_at.map(|at| self.view.now.since(at)),
            post_dst: dst.before.plus(on),
            fits,
            collides,
            pre_src: self.pressure.top(),
            post_src: candidate.post_src,
        })
    }

    fn relief(
        &self,
        candidate: &Candidate<'_>,
        dst: &Destination<'_>,
        offer: &CandidateMove,
    ) -> Relief {
        let Candidate { id, relief, .. } = *candidate;
        let move_cost = self.view.limits.move_cost;
        Relief {
            replica: id.clone(),
            src: self.src.clone(),
            dst: dst.id.clone(),
            dominant: self.dominant,
            relief,
            score: i64::from(relief.millionths()) - i64::from(move_cost.millionths()),
            move_cost,
            src_before: offer.pre_src,
            src_after: offer.post_src,
            dst_before: dst.before.top(),
            dst_after: offer.post_dst.top(),
            refused: Vec::new(),
        }
    }

    fn moving(
        &self,
        candidate: &Candidate<'_>,
        dst: &Destination<'_>,
        on: NodePressure,
    ) -> MoveInFlight {
        MoveInFlight { src: self.src.clone(), dst: dst.id.clone(), off: candidate.off, on }
    }
}

fn change(candidate: &Candidate<'_>, dst: &Destination<'_>) -> Guarded {
    let Candidate { id, spec, assignment, .. } = *candidate;
    let (replica, node, cause) = (id.clone(), dst.id.clone(), MoveCause::Pressure);
    let change = Change::Succeed { replica, node, spec: spec.hash, cause };
    change.at_generation(Some(assignment.generation))
}
