//! Which replica leaves a hot node, and where it goes: the one that relieves it most, of equals the lower id, to the coldest
//! node that may take it, then by name.
//!
//! What a replica relieves does not depend on where it goes. So candidates and destinations are each sorted once, and the
//! first pair that passes every gate is the best.

use std::cmp::Reverse;

use plimsoll_model::reason::FilterWord;
use plimsoll_model::{
    Assignment, Change, Mode, MoveCause, Node, NodeId, Pressure, Replica, ReplicaId, Resources,
    ServiceSpec,
};

use super::gates::Offer;
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
    Best(Box<Relief>, Moving),
    /// Why nothing moves, and what came nearest.
    Nothing(Skip, Option<Box<Relief>>),
}

struct Destination<'a> {
    id: &'a NodeId,
    node: &'a Node,
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
                destinations.push(Destination { id, node, at, before: felt.crest });
            }
        }
        destinations.sort_unstable_by_key(|it| (top(it.before), it.id));
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
        let limits = self.view.limits;
        let mut reasons = Reasons::None;
        let mut nearest = None;
        for candidate in &candidates {
            // Those after it relieve even less: all they could add is a further reason.
            if reasons == Reasons::Several && candidate.relief < limits.relief_floor {
                break;
            }
            let Some(mut asking) = self.asking(candidate) else { continue };
            for dst in &self.destinations {
                let Some(offer) = self.offer(candidate, &mut asking, dst) else { continue };
                let Some(why) = offer.blocked(limits) else {
                    let moving = self.moving(candidate, dst, asking.on.1);
                    return Found::Best(Box::new(self.relief(candidate, dst, &offer)), moving);
                };
                reasons.add(why);
                nearest.get_or_insert_with(|| Box::new(self.relief(candidate, dst, &offer)));
                // It would say so of every other destination too.
                if why == Skip::CooldownReplica {
                    break;
                }
            }
        }
        Found::Nothing(reasons.skip(), nearest)
    }

    /// The move that comes furthest through the gates, of equals the best, and its numbers.
    pub(super) fn closest(&self) -> Option<(&'a ReplicaId, &'a NodeId, Offer)> {
        let mut closest: Option<((bool, Option<Skip>), _, _, _)> = None;
        for candidate in self.candidates() {
            let Some(mut asking) = self.asking(&candidate) else { continue };
            for dst in &self.destinations {
                let Some(offer) = self.offer(&candidate, &mut asking, dst) else { continue };
                // No gate in the way is further than any.
                let far =
                    offer.blocked(self.view.limits).map_or((true, None), |at| (false, Some(at)));
                if closest.as_ref().is_none_or(|(furthest, ..)| far > *furthest) {
                    closest = Some((far, candidate.id, dst.id, offer));
                }
            }
        }
        closest.map(|(_, replica, dst, offer)| (replica, dst, offer))
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
        let (spec, facts) = (candidate.spec, &dst.node.facts);
        if !spec.placement.constraints.iter().all(|wants| facts.meets(dst.id, wants)) {
            return None;
        }
        if asking.on.0 != facts.capacity {
            let on = self.view.footprint(candidate.id, spec, facts.capacity);
            asking.on = (facts.capacity, on);
        }
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
            rested: self.view.now.since(candidate.assignment.at),
            dst_rested: dst.node.received_at.map(|at| self.view.now.since(at)),
            post_dst: more(dst.before, asking.on.1),
            fits,
            collides,
            pre_src: self.of(self.pressure),
            post_src: candidate.post_src,
        })
    }

    fn relief(&self, candidate: &Candidate<'_>, dst: &Destination<'_>, offer: &Offer) -> Relief {
        let Candidate { id, spec, assignment, relief, .. } = *candidate;
        let (replica, node) = (id.clone(), dst.id.clone());
        let change = Change::Succeed { replica, node, spec: spec.hash, cause: MoveCause::Pressure };
        let cost = i64::from(self.view.limits.move_cost.millionths());
        Relief {
            change: change.at_generation(Some(assignment.generation)),
            replica: id.clone(),
            src: self.src.clone(),
            dst: dst.id.clone(),
            dominant: self.dominant,
            relief,
            score: i64::from(relief.millionths()) - cost,
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
