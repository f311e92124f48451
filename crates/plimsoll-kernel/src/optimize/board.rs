//! A layout that can be changed and changed back, with what each change brings.
//!
//! A layout is worth, in points of placement's score:
//! - of every replica, its headroom and preferred parts, as placement scores them;
//! - less, for services that ask for evenness, a zone step for each pair of replicas in one zone and a node step for each pair
//!   on one node, so that what one move changes is the difference of the zone and node parts of the two nodes' scores;
//! - less, of each node that only `binpack` keeps in use, ten thousand points where it runs many such replicas, half of that
//!   where it runs one: 10 000 − 10 000 / 2ⁿ, so that a node that is nearly empty is the one to be emptied.

use std::collections::BTreeMap;

use plimsoll_model::optimize::{OptimizeReason, OptimizedMove};
use plimsoll_model::spec::HostPort;
use plimsoll_model::{
    Millis, Mode, NodeId, NodePressure, Pressure, Replica, ReplicaId, Resources, ServiceKey,
    ServiceSpec, Slot, Timestamp,
};

use super::LayoutFigures;
use crate::place::filter::{PlacementRequest, filter};
use crate::place::rank::{HEADROOM_STEP, NODE_STEP, ZONE_STEP, preferred};
use crate::place::{NodeComparison, Placer, Roster, ServiceTally};
use crate::rebalance::Rebalancer;
use crate::reschedule::{close_untrusted, movable};
use crate::what_if::KnownCell;

/// What a node costs that only packed replicas keep in use.
const NODE_IN_USE: i64 = 10_000;

pub(super) struct Board<'s> {
    cell: BoardCell<'s>,
    roster: Roster,
    services: Vec<BoardService<'s>>,
    movers: Vec<Mover>,
    nodes: Vec<BoardNode>,
    /// Movers that are not where they began, in the order in which they left.
    away: Vec<usize>,
}

struct BoardCell<'s> {
    given: &'s plimsoll_model::State,
    policy: &'s crate::Policy,
    measured: Rebalancer,
    now: Timestamp,
}

struct BoardService<'s> {
    spec: &'s ServiceSpec,
    ask: PlacementRequest<'s>,
    failures: &'s BTreeMap<NodeId, Vec<Timestamp>>,
    tally: ServiceTally,
    is_packed: bool,
}

/// A replica that may be moved.
struct Mover {
    id: ReplicaId,
    service: usize,
    at: usize,
    home: usize,
}

#[derive(Debug, Clone, Default)]
struct BoardNode {
    /// Those of them that are there.
    movers: Vec<usize>,
    /// Replicas of `binpack` services, and of all others.
    packed: u32,
    plain: u32,
    /// Something else than what is packed and what runs on every node keeps it in use, whatever moves.
    is_pinned: bool,
    /// What was added to it, as far as that is known to be in use.
    warmed: NodePressure,
}

impl<'s> Board<'s> {
    pub(super) fn new(cell: &KnownCell<'s>, roster: &Roster) -> Self {
        let KnownCell { state, policy, now, .. } = *cell;
        let measured = cell.rebalancer.clone();
        let target = state.rescheduling().target;
        let mut roster = roster.seen_by(|node| measured.mean(node), target);
        close_untrusted(state, &mut roster, policy, &measured, now);
        let mut nodes = vec![BoardNode::default(); roster.len()];
        for service in state.services().values() {
            for (slot, replica) in &service.replicas {
                let Some(at) = replica.heading().and_then(|it| roster.place_of(&it.node)) else {
                    continue;
                };
                let spec = service.desired();
                if spec.is_some_and(|spec| is_packed(spec)) {
                    nodes[at].packed += 1;
                } else {
                    nodes[at].plain += 1;
                    nodes[at].is_pinned |= matches!(slot, Slot::Index(_));
                }
            }
        }
        let mut services = Vec::new();
        let mut by_key: BTreeMap<&ServiceKey, usize> = BTreeMap::new();
        let mut movers = Vec::new();
        for found in movable(state, &roster, policy, now) {
            let Some(service) = state.service(found.service) else { continue };
            let Some(spec) = service.desired() else { continue };
            let nth = *by_key.entry(found.service).or_insert_with(|| {
                let headings = service.replicas.values().filter_map(Replica::heading);
                let mut tally = ServiceTally {
                    by_zone: vec![0; roster.zones as usize],
                    ..ServiceTally::default()
                };
                for at in headings.filter_map(|it| roster.place_of(&it.node)) {
                    tally.add(at, roster.class_of(at).zone);
                }
                let failures = &service.row.failures;
                let ask = PlacementRequest::new(spec, failures, policy, now);
                let is_packed = is_packed(spec);
                services.push(BoardService { spec, ask, failures, tally, is_packed });
                services.len() - 1
            });
            nodes[found.at].movers.push(movers.len());
            movers.push(Mover { id: found.id, service: nth, at: found.at, home: found.at });
        }
        let cell = BoardCell { given: state, policy, measured, now };
        Self { cell, roster, services, movers, nodes, away: Vec::new() }
    }

    pub(super) fn movers(&self) -> usize {
        self.movers.len()
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn on(&self, at: usize) -> &[usize] {
        &self.nodes[at].movers
    }

    pub(super) fn at(&self, mover: usize) -> usize {
        self.movers[mover].at
    }

    pub(super) fn id(&self, mover: usize) -> &ReplicaId {
        &self.movers[mover].id
    }

    pub(super) fn node_of(&self, mover: usize) -> &NodeId {
        self.roster.id_at(self.movers[mover].at)
    }

    pub(super) fn place_of(&self, node: &NodeId) -> Option<usize> {
        self.roster.place_of(node)
    }

    pub(super) fn is_away(&self, mover: usize) -> bool {
        self.movers[mover].at != self.movers[mover].home
    }

    pub(super) fn is_packed(&self, mover: usize) -> bool {
        self.services[self.movers[mover].service].is_packed
    }

    /// Whether one node can score more for it than another, whatever else is on them.
    pub(super) fn can_score(&self, mover: usize) -> bool {
        let service = &self.services[self.movers[mover].service];
        !service.is_packed || !service.spec.placement.preferences.is_empty()
    }

    /// How many packed replicas keep the node in use; none where that would not free it.
    pub(super) fn packed_alone(&self, at: usize) -> Option<u32> {
        let node = &self.nodes[at];
        (!node.is_pinned && node.packed > 0).then_some(node.packed)
    }

    pub(super) fn is_in_use(&self, at: usize) -> bool {
        self.nodes[at].is_pinned || self.nodes[at].packed > 0
    }

    /// How much of the node is left, as `binpack` sees it, and its name.
    pub(super) fn fullness(&self, at: usize) -> (u8, &NodeId) {
        (self.roster.slots[at].room_left(), self.roster.id_at(at))
    }

    /// The share of the node that is reserved.
    pub(super) fn reserved(&self, at: usize) -> Pressure {
        let slot = &self.roster.slots[at];
        share(slot.reserved, slot.capacity)
    }

    /// How large a replica is for its node.
    pub(super) fn size(&self, mover: usize) -> Pressure {
        let Mover { service, at, .. } = &self.movers[mover];
        share(self.services[*service].ask.request, self.roster.slots[*at].capacity)
    }

    /// The replica of this name that may be moved, if it is there and has not been moved yet.
    pub(super) fn find(&self, id: &ReplicaId, src: &NodeId) -> Option<usize> {
        let at = self.roster.place_of(src)?;
        let known = self.nodes[at].movers.iter().copied();
        known.filter(|mover| !self.is_away(*mover)).find(|mover| self.movers[*mover].id == *id)
    }

    /// Whether the node takes the replica now, by placement's filters, by what is measured, and by how it fared there of late.
    pub(super) fn fits(&self, mover: usize, to: usize) -> bool {
        let Mover { id, service, at, .. } = &self.movers[mover];
        let BoardService { ask, tally, failures, spec, .. } = &self.services[*service];
        if *at == to || filter(ask, &self.roster, to, tally.here(to)).is_some() {
            return false;
        }
        let BoardCell { given, policy, measured, now } = &self.cell;
        let node = self.roster.id_at(to);
        let memory: Millis = policy.reschedule.loss_memory;
        let last = failures.get(node).and_then(|times| times.last());
        if last.is_some_and(|last| now.since(*last) < memory) {
            return false;
        }
        let warmed = self.nodes[to].warmed;
        // Of a node that is not measured nobody can say that it gets too busy, and a footprint takes a while.
        measured.mean(node).is_none() || {
            let given = (*given, &self.roster, *policy);
            let more = measured.footprint(given, (id, *spec), node, *now);
            measured.stays_cool(policy, node, warmed.plus(more))
        }
    }

    /// What the layout gains when the replica goes there.
    pub(super) fn delta(&self, mover: usize, to: usize) -> i64 {
        let Mover { service, at: from, .. } = &self.movers[mover];
        let from = *from;
        let BoardService { spec, ask, tally, is_packed, .. } = &self.services[*service];
        let mut gain = 0;
        if spec.placement.mode.is_even() {
            let zone_of = |at: usize| self.roster.class_of(at).zone as usize;
            let (left, entered) = (zone_of(from), zone_of(to));
            if left != entered {
                let in_zone = |zone: usize| i64::from(tally.by_zone[zone]);
                gain += i64::from(ZONE_STEP) * (in_zone(left) - 1 - in_zone(entered));
            }
            let here = |at: usize| i64::from(tally.here(at));
            gain += i64::from(NODE_STEP) * (here(from) - 1 - here(to));
        }
        if !spec.placement.preferences.is_empty() {
            let likes = |at: usize| {
                preferred(ask.preferred(self.roster.class_of(at), self.roster.id_at(at)))
            };
            gain += i64::from(likes(to)) - i64::from(likes(from));
        }
        let request = ask.request;
        let (src, dst) = (&self.roster.slots[from], &self.roster.slots[to]);
        let after = |at: usize, reserved: Resources, change: i64| {
            let BoardNode { packed, plain, .. } = self.nodes[at];
            let (packed, plain) = (i64::from(packed), i64::from(plain));
            let (packed, plain) =
                if *is_packed { (packed + change, plain) } else { (packed, plain + change) };
            self.points(at, reserved, packed, plain)
        };
        gain + after(from, src.reserved.minus(request), -1)
            + after(to, dst.reserved.plus(request), 1)
            - after(from, src.reserved, 0)
            - after(to, dst.reserved, 0)
    }

    /// What a node with so much on it brings or costs.
    fn points(&self, at: usize, reserved: Resources, packed: i64, plain: i64) -> i64 {
        let headroom = if plain == 0 {
            0
        } else {
            let band = i64::from(self.roster.band_with(at, reserved));
            plain * (2 - band) * i64::from(HEADROOM_STEP)
        };
        let in_use = if self.nodes[at].is_pinned || packed <= 0 {
            0
        } else {
            NODE_IN_USE - (NODE_IN_USE >> packed.min(62))
        };
        headroom - in_use
    }

    pub(super) fn shift(&mut self, mover: usize, to: usize) {
        let Mover { service, at: from, home, .. } = self.movers[mover];
        let Board { roster, services, nodes, movers, cell, away, .. } = self;
        let (service, id) = (&mut services[service], &movers[mover].id);
        service.tally.subtract(from, roster.class_of(from).zone);
        service.tally.add(to, roster.class_of(to).zone);
        let footprint = |at: usize| {
            let node = roster.id_at(at);
            let given = (cell.given, &*roster, cell.policy);
            let known = cell.measured.mean(node);
            known.map(|_| cell.measured.footprint(given, (id, service.spec), node, cell.now))
        };
        // What it takes where it began is measured there already.
        if to != home {
            nodes[to].warmed = nodes[to].warmed.plus(footprint(to).unwrap_or_default());
        }
        if from != home {
            nodes[from].warmed = nodes[from].warmed.minus(footprint(from).unwrap_or_default());
        }
        let request = service.ask.request;
        let src = &mut roster.slots[from];
        src.reserved = src.reserved.minus(request);
        src.replicas = src.replicas.saturating_sub(1);
        src.ports.retain(|(_, holder)| holder != id);
        let dst = &mut roster.slots[to];
        dst.reserved = dst.reserved.plus(request);
        dst.replicas += 1;
        let ports: &[HostPort] = &service.ask.ports;
        dst.ports.extend(ports.iter().map(|port| (*port, id.clone())));
        for (at, change) in [(from, -1_i32), (to, 1)] {
            let node = &mut nodes[at];
            let count = if service.is_packed { &mut node.packed } else { &mut node.plain };
            *count = count.saturating_add_signed(change);
        }
        nodes[from].movers.retain(|it| *it != mover);
        nodes[to].movers.push(mover);
        movers[mover].at = to;
        away.retain(|it| *it != mover);
        if to != home {
            away.push(mover);
        }
    }

    /// Everything is where it began.
    pub(super) fn reset(&mut self) {
        while let Some(mover) = self.away.last().copied() {
            self.shift(mover, self.movers[mover].home);
        }
        for node in &mut self.nodes {
            node.movers.sort_unstable();
        }
    }

    /// Whether the rescheduler lets all of these stay where they go, once they are there. All is as before afterwards.
    pub(super) fn is_settled_by(&mut self, moves: &[(usize, usize, OptimizeReason)]) -> bool {
        for (mover, to, _) in moves {
            self.shift(*mover, *to);
        }
        // Anew, since its tree knows nothing of what was shifted.
        let pressure: Vec<_> = self.roster.slots.iter().map(|slot| slot.pressure).collect();
        let at = |node: &NodeId| pressure[self.roster.place_of(node)?];
        let mut roster = self.roster.seen_by(at, None);
        let BoardCell { policy, now, .. } = self.cell;
        let is_settled = moves.iter().all(|(mover, to, _)| {
            let Mover { id, service, .. } = &self.movers[*mover];
            let BoardService { spec, failures, tally, .. } = &self.services[*service];
            let ask = PlacementRequest::new(spec, failures, policy, now);
            let headings = tally.by_node.iter().flat_map(|(at, count)| {
                std::iter::repeat_n(self.roster.id_at(*at), *count as usize)
            });
            let mut placer = Placer::new(&mut roster, ask, headings);
            let compared = placer.compare(id, self.roster.id_at(*to));
            placer.close();
            let gain = compared.map_or(0, |NodeComparison { best, current }| {
                i32::from(best.score.total()) - i32::from(current.total())
            });
            gain <= i32::from(threshold(spec, policy))
        });
        self.reset();
        is_settled
    }

    /// The move as it is told.
    pub(super) fn told(
        &self,
        mover: usize,
        src: &NodeId,
        why: OptimizeReason,
        gain: i64,
    ) -> OptimizedMove {
        let Mover { id, at, .. } = &self.movers[mover];
        let dst = self.roster.id_at(*at).clone();
        OptimizedMove { replica: id.clone(), src: src.clone(), dst, why, gain }
    }

    pub(super) fn figures(&self) -> LayoutFigures {
        let nodes = 0..self.nodes.len();
        LayoutFigures {
            nodes_in_use: nodes.clone().filter(|at| self.is_in_use(*at)).count(),
            fullest: nodes.map(|at| self.reserved(at)).max().unwrap_or(Pressure::ZERO),
        }
    }
}

fn is_packed(spec: &ServiceSpec) -> bool {
    matches!(spec.placement.mode, Mode::Binpack { .. })
}

/// What the rescheduler would move it for.
fn threshold(spec: &ServiceSpec, policy: &crate::Policy) -> u16 {
    use plimsoll_model::spec::Reschedule;
    match spec.reschedule {
        Reschedule::Default | Reschedule::Never => policy.reschedule.threshold,
        Reschedule::Above(score) => score,
    }
}

fn share(of: Resources, capacity: Resources) -> Pressure {
    let share = NodePressure {
        cpu: Pressure::of(of.cpu.0, capacity.cpu.0),
        memory: Pressure::of(of.memory.0, capacity.memory.0),
    };
    share.top()
}
