//! Which replica leaves a hot node, and where it goes: the one that relieves it most, of equals the lower id, to the coldest
//! node that may take it, then by name.
//!
//! What a replica relieves does not depend on where it goes. So candidates and destinations are each sorted once, and the
//! first pair that passes every gate is the best.

use std::cmp::Reverse;

use plimsoll_model::reason::FilterWord;
use plimsoll_model::{
    Assignment, Change, Guarded, Millis, Mode, MoveCause, Node, NodeId, Pressure, Replica,
    ReplicaId, Resources, ServiceSpec, Timestamp,
};
use serde::Serialize;

use super::gates::{Gate, Offer};
use super::memory::{Felt, Moving, Outlook, meet};
use super::view::{View, dominant, less, more, top};
use super::{Dimension, Relief, Skip};
use crate::place::filter::{Ask, filter};

/// A hot node, and all it could give something to.
pub(super) struct Search<'a> {
    view: &'a View<'a>,
    src: &'a NodeId,
    pressure: [Pressure; 2],
    dominant: Dimension,
    /// The coldest first.
    destinations: Vec<Destination<'a>>,
}

/// What came of it.
pub(super) enum Found {
    Best {
        change: Box<Guarded>,
        relief: Box<Relief>,
        moving: Moving,
    },
    /// Why nothing moves, and what came nearest.
    Nothing(Skip, Option<Relief>),
}

/// A replica that could leave the node, where it would go, and what each gate says to that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Weighed {
    pub replica: ReplicaId,
    pub dst: NodeId,
    pub relief: Pressure,
    pub gates: Vec<Gate>,
}

/// What is looked at for every candidate stands here by value: following a pointer for each pair would cost more than all
/// the gates.
struct Destination<'a> {
    id: &'a NodeId,
    node: &'a Node,
    capacity: Resources,
    received_at: Option<Timestamp>,
    /// Its place in the roster.
    at: usize,
    /// How hot it has been, which is what counts of a destination.
    before: [Pressure; 2],
}

/// A replica that may be moved at all.
struct Candidate<'a> {
    id: &'a ReplicaId,
    spec: &'a ServiceSpec,
    assignment: &'a Assignment,
    off: [Pressure; 2],
    post_src: Pressure,
    relief: Pressure,
}

/// A candidate's service as the destinations see it.
struct Asking<'a> {
    ask: Ask<'a>,
    /// How many replicas of the service each node of the roster has.
    here: Vec<u32>,
    /// What it takes of a node of this size: most nodes are alike.
    on: (Resources, [Pressure; 2]),
}

impl Asking<'_> {
    fn on(&mut self, view: &View<'_>, of: &Candidate<'_>, capacity: Resources) -> [Pressure; 2] {
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

impl<'a> Search<'a> {
    /// `felt` stands in the order of `nodes`.
    pub(super) fn new(view: &'a View<'a>, nodes: &'a [Felt], felt: &[Outlook], src: usize) -> Self {
        let mut rows = view.state.nodes().iter().peekable();
        let mut destinations = Vec::with_capacity(nodes.len());
        for (nth, (node, felt)) in nodes.iter().zip(felt).enumerate() {
            let row = meet(&mut rows, &node.node, |(id, _)| id).filter(|(_, row)| row.is_open());
            let Some((id, node)) = row.filter(|_| nth != src) else { continue };
            if let Some(at) = view.roster.place_of(id) {
                let (capacity, received_at) = (node.facts.capacity, node.received_at);
                let before = felt.crest;
                destinations.push(Destination { id, node, capacity, received_at, at, before });
            }
        }
        // Stable, and nodes come sorted by name: so equals are.
        destinations.sort_by_key(|it| top(it.before));
        let pressure = felt[src].mean;
        let src = &nodes[src].node;
        Self { view, src, pressure, dominant: dominant(pressure), destinations }
    }

    /// The best move off the node, or why there is none.
    pub(super) fn best(&self) -> Found {
        let candidates = self.candidates();
        if candidates.is_empty() {
            return Found::Nothing(Skip::NoCandidate, None);
        }
        let admitted = candidates.iter().find_map(|candidate| self.admitted(candidate));
        admitted.unwrap_or_else(|| self.refused(&candidates))
    }

    /// The move of this replica to the coldest destination that passes every gate. What costs little to see is seen first:
    /// the order of the gates only matters for what is said of a refusal.
    fn admitted(&self, candidate: &Candidate<'a>) -> Option<Found> {
        let (limits, rested) = (self.view.limits, self.rested(candidate));
        if candidate.relief < limits.relief_floor || rested < limits.cooldown_replica {
            return None;
        }
        let mut asking = self.asking(candidate)?;
        self.destinations.iter().find_map(|dst| {
            let on = asking.on(self.view, candidate, dst.capacity);
            if top(more(dst.before, on)) >= limits.dst_cap {
                return None;
            }
            let offer = self.offer(candidate, &mut asking, dst)?;
            let is_fine = offer.blocked(limits).is_none();
            is_fine.then(|| Found::Best {
                change: Box::new(change(candidate, dst)),
                relief: Box::new(self.relief(candidate, dst, &offer)),
                moving: self.moving(candidate, dst, on),
            })
        })
    }

    /// Why nothing moves: the one reason that all have, where they have one.
    fn refused(&self, candidates: &[Candidate<'a>]) -> Found {
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
        Found::Nothing(reasons.skip(), nearest)
    }

    fn rested(&self, candidate: &Candidate<'_>) -> Millis {
        self.view.now.since(candidate.assignment.at)
    }

    /// Every candidate with the first destination that would take it, or else the coldest.
    pub(super) fn weigh(&self) -> Vec<Weighed> {
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
            Some(Weighed { replica, dst, relief: candidate.relief, gates: offer.gates(limits) })
        };
        self.candidates().iter().filter_map(weigh).collect()
    }

    /// Replicas on the node that may be moved at all, the one that relieves it most first.
    fn candidates(&self) -> Vec<Candidate<'a>> {
        let View { state, .. } = *self.view;
        let capacity = self.view.capacity(self.src);
        let tenants = state.load(self.src).into_iter().flat_map(|load| &load.tenants);
        let movable = tenants.filter_map(|id| {
            let replica = state.replica(id)?;
            let assignment = replica.assignment.as_ref().filter(|at| at.node == *self.src)?;
            let spec = state.service(&id.service)?.desired()?;
            let stays = spec.is_stateful() || spec.placement.mode == Mode::Global;
            if stays || replica.successor.is_some() || !replica.is_running() {
                return None;
            }
            let off = self.view.footprint(id, spec, capacity);
            let (before, after) = (self.pressure, less(self.pressure, off));
            let (relief, post_src) = (self.of(less(before, after)), self.of(after));
            Some(Candidate { id, spec, assignment, off, post_src, relief })
        });
        let mut candidates: Vec<Candidate<'a>> = movable.collect();
        candidates.sort_unstable_by_key(|it| (Reverse(it.relief), it.id));
        candidates
    }

    fn asking(&self, candidate: &Candidate<'a>) -> Option<Asking<'a>> {
        let View { state, roster, policy, now, .. } = *self.view;
        let service = state.service(&candidate.id.service)?;
        let mut here = vec![0; roster.len()];
        for at in service.replicas.values().filter_map(Replica::heading) {
            if let Some(at) = roster.place_of(&at.node) {
                here[at] += 1;
            }
        }
        let ask = Ask::new(candidate.spec, &service.row.failures, policy, now);
        let capacity = self.view.capacity(self.src);
        Some(Asking { ask, here, on: (capacity, candidate.off) })
    }

    /// What would come of moving the replica; none where its constraints keep it off the node.
    fn offer(
        &self,
        candidate: &Candidate<'a>,
        asking: &mut Asking<'a>,
        dst: &Destination<'a>,
    ) -> Option<Offer> {
        let spec = candidate.spec;
        let mut constraints = spec.placement.constraints.iter();
        if !constraints.all(|wants| dst.node.facts.meets(dst.id, wants)) {
            return None;
        }
        let on = asking.on(self.view, candidate, dst.capacity);
        let here = asking.here[dst.at];
        let turned = filter(&asking.ask, self.view.roster, dst.at, here).map(|it| it.word());
        let fits = !matches!(
            turned,
            Some(FilterWord::InsufficientCapacity | FilterWord::NoGpu | FilterWord::PortTaken)
        );
        let collides = match &spec.placement.mode {
            Mode::Spread { .. } => here > 0,
            Mode::Hosts { hosts, .. } => !hosts.contains(dst.id),
            Mode::Pack { .. } => turned == Some(FilterWord::MaxPerNode),
            Mode::Global => true,
        };
        Some(Offer {
            rested: self.rested(candidate),
            dst_rested: dst.received_at.map(|at| self.view.now.since(at)),
            post_dst: more(dst.before, on),
            fits,
            collides,
            pre_src: self.of(self.pressure),
            post_src: candidate.post_src,
        })
    }

    fn relief(&self, candidate: &Candidate<'_>, dst: &Destination<'_>, offer: &Offer) -> Relief {
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
            dst_before: top(dst.before),
            dst_after: top(offer.post_dst),
        }
    }

    fn moving(
        &self,
        candidate: &Candidate<'_>,
        dst: &Destination<'_>,
        on: [Pressure; 2],
    ) -> Moving {
        Moving { src: self.src.clone(), dst: dst.id.clone(), off: candidate.off, on }
    }

    /// In what the source is hot in.
    fn of(&self, pressure: [Pressure; 2]) -> Pressure {
        pressure[usize::from(self.dominant == Dimension::Memory)]
    }
}

fn change(candidate: &Candidate<'_>, dst: &Destination<'_>) -> Guarded {
    let Candidate { id, spec, assignment, .. } = *candidate;
    let (replica, node, cause) = (id.clone(), dst.id.clone(), MoveCause::Pressure);
    let change = Change::Succeed { replica, node, spec: spec.hash, cause };
    change.at_generation(Some(assignment.generation))
}
