//! Relieves nodes that stay hot while others are cool, one replica at a time for the whole cell. It is always on, has no
//! knobs, and is biased to do nothing: a node must be hot in two cycles on end, others must be much cooler, and a move must
//! pass every gate.
//!
//! What must outlive a leader, it reads off the state: when a replica was moved or placed, when a node was last given one,
//! what is on its way. What it smooths is its own, and a new leader begins anew with two cycles.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::reason::FilterWord;
use plimsoll_model::{
    Bytes, Change, Guarded, MilliCpus, Mode, MoveCause, Node, NodeId, NodeStatus, Pressure,
    ReplicaId, Resources, ServiceSpec, State, Timestamp,
};

use crate::place::Roster;
use crate::place::filter::{Ask, filter};
use crate::policy::Policy;

pub mod ewma;
pub mod gates;

#[cfg(test)]
mod tests;

pub use ewma::Ewma;
use gates::Offer;
pub use gates::{Limits, Skip};

/// What a node measured of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub at: Timestamp,
    /// Cpu and memory.
    pub pressure: [Pressure; 2],
}

/// What a replica uses, smoothed and fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub cpu: MilliCpus,
    pub memory: Bytes,
}

/// What was measured for one cycle. A node or replica that is missing said nothing of late.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readings {
    pub nodes: BTreeMap<NodeId, Sample>,
    pub replicas: BTreeMap<ReplicaId, Usage>,
}

/// What a leader keeps from cycle to cycle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    nodes: BTreeMap<NodeId, Felt>,
    /// Moves that were under way when it last looked.
    moving: BTreeMap<ReplicaId, Moving>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Felt {
    means: [Ewma; 2],
    /// For how many cycles on end it has been hot.
    hot: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Moving {
    src: NodeId,
    dst: NodeId,
    /// What it takes from the one and brings to the other.
    off: [Pressure; 2],
    on: [Pressure; 2],
}

/// What came of a cycle, with the numbers that decided it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// No node is hot for long enough, or all are about as busy.
    Calm,
    Skipped {
        src: NodeId,
        dominant: Dimension,
        pressure: Pressure,
        why: Skip,
    },
    Moved(Box<Relief>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dimension {
    Cpu,
    Memory,
}

/// A move and what it brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relief {
    pub change: Guarded,
    pub replica: ReplicaId,
    pub src: NodeId,
    pub dst: NodeId,
    pub dominant: Dimension,
    pub relief: Pressure,
    /// Relief less the cost of a move, in millionths.
    pub score: i64,
    pub src_before: Pressure,
    pub src_after: Pressure,
    pub dst_before: Pressure,
    pub dst_after: Pressure,
}

/// One cycle.
pub fn cycle(
    state: &State,
    roster: &Roster,
    policy: &Policy,
    limits: &Limits,
    readings: &Readings,
    memory: &mut Memory,
    now: Timestamp,
) -> Outcome {
    let view = View { state, roster, policy, limits, readings, now };
    memory.settle(&view);
    memory.feed(&view);
    let felt = memory.predicted();
    memory.count(&felt, limits);
    let Some(src) = hottest(&felt, memory, limits) else { return Outcome::Calm };
    let (coolest, here) =
        (felt.values().copied().map(top).min().unwrap_or_default(), top(felt[&src]));
    if here.millionths() - coolest.millionths() < limits.imbalance.millionths() {
        return Outcome::Calm;
    }
    view.relieve(&src, &felt)
}

type Predicted = BTreeMap<NodeId, [Pressure; 2]>;

/// The best score first; of equals the lower id, to the coldest node, then by its name.
type Rank = (i64, Reverse<ReplicaId>, Reverse<(Pressure, NodeId)>);

fn top(pressure: [Pressure; 2]) -> Pressure {
    pressure[0].max(pressure[1])
}

/// The hottest node that has been hot for long enough; of equals, by name.
fn hottest(felt: &Predicted, memory: &Memory, limits: &Limits) -> Option<NodeId> {
    let is_trend = |node: &NodeId| {
        memory.nodes.get(node).is_some_and(|felt| felt.hot >= limits.trigger_cycles)
    };
    let hot = felt.iter().filter(|(node, _)| is_trend(node));
    hot.max_by_key(|(node, pressure)| (top(**pressure), Reverse(*node)))
        .map(|(node, _)| node.clone())
}

impl Memory {
    /// Takes in what was measured. A node that is silent, down or gone is forgotten: when it speaks again it begins anew.
    fn feed(&mut self, view: &View<'_>) {
        let fresh: BTreeMap<&NodeId, &Sample> = view.fresh().collect();
        self.nodes.retain(|node, _| fresh.contains_key(node));
        for (node, sample) in fresh {
            let [cpu, memory] = sample.pressure;
            let felt = self.nodes.entry(node.clone()).or_insert_with(|| Felt {
                means: [Ewma::seed(sample.at, cpu), Ewma::seed(sample.at, memory)],
                hot: 0,
            });
            felt.means[0].feed(sample.at, cpu, view.limits.window);
            felt.means[1].feed(sample.at, memory, view.limits.window);
        }
    }

    /// Moves that ended since the last cycle are taken into the means: these lag, and would order the same move again.
    fn settle(&mut self, view: &View<'_>) {
        let now_moving = view.moving();
        for (replica, moved) in std::mem::take(&mut self.moving) {
            let row = view.state.replica(&replica);
            let is_there = row
                .filter(|row| row.successor.is_none())
                .and_then(|row| row.assignment.as_ref())
                .is_some_and(|assignment| assignment.node == moved.dst);
            if is_there && !now_moving.contains_key(&replica) {
                self.shift(&moved.src, moved.off, -1);
                self.shift(&moved.dst, moved.on, 1);
            }
        }
        self.moving = now_moving;
    }

    fn shift(&mut self, node: &NodeId, by: [Pressure; 2], sign: i64) {
        if let Some(felt) = self.nodes.get_mut(node) {
            for (mean, by) in felt.means.iter_mut().zip(by) {
                mean.shift(sign * i64::from(by.millionths()));
            }
        }
    }

    /// The means, with every move under way counted at both ends as if it were done.
    fn predicted(&self) -> Predicted {
        let mut felt: Predicted = self
            .nodes
            .iter()
            .map(|(node, felt)| (node.clone(), felt.means.map(|mean| mean.value())))
            .collect();
        for moving in self.moving.values() {
            if let Some(src) = felt.get_mut(&moving.src) {
                *src = less(*src, moving.off);
            }
            if let Some(dst) = felt.get_mut(&moving.dst) {
                *dst = more(*dst, moving.on);
            }
        }
        felt
    }

    /// One hot cycle is a spike; several on end are a trend.
    fn count(&mut self, felt: &Predicted, limits: &Limits) {
        for (node, kept) in &mut self.nodes {
            let is_hot = felt.get(node).is_some_and(|it| top(*it) >= limits.trigger);
            kept.hot = if is_hot { kept.hot.saturating_add(1) } else { 0 };
        }
    }
}

struct View<'a> {
    state: &'a State,
    roster: &'a Roster,
    policy: &'a Policy,
    limits: &'a Limits,
    readings: &'a Readings,
    now: Timestamp,
}

impl View<'_> {
    /// Nodes that are up and have spoken of late.
    fn fresh(&self) -> impl Iterator<Item = (&NodeId, &Sample)> {
        self.readings.nodes.iter().filter(|(node, sample)| {
            let is_up = self.state.node(node).is_some_and(|it| it.status == NodeStatus::Ready);
            is_up && self.now.since(sample.at) <= self.limits.stale_after
        })
    }

    /// What is on its way between two nodes.
    fn moving(&self) -> BTreeMap<ReplicaId, Moving> {
        let moving = self.state.replicas().filter_map(|(id, replica)| {
            let (src, dst) = (replica.assignment.as_ref()?, replica.successor.as_ref()?);
            let (src, dst) = (src.node.clone(), dst.assignment.node.clone());
            if src == dst {
                return None;
            }
            let spec = self.state.service(&id.service)?.desired()?;
            let (off, on) = (self.footprint(&id, spec, &src), self.footprint(&id, spec, &dst));
            Some((id, Moving { src, dst, off, on }))
        });
        moving.collect()
    }

    /// What the replica takes of a node: as measured, else as declared, else as a guess.
    fn footprint(&self, id: &ReplicaId, spec: &ServiceSpec, node: &NodeId) -> [Pressure; 2] {
        let capacity = self.state.node(node).map(|node| node.facts.capacity).unwrap_or_default();
        if let Some(usage) = self.readings.replicas.get(id) {
            return share(usage.cpu, usage.memory, capacity);
        }
        let limits = spec.container.limits;
        let declared = share(limits.cpu, limits.memory, capacity);
        let or = |declared: Pressure, is_declared: bool, unknown: Pressure| {
            if is_declared { declared } else { unknown }
        };
        let [cpu, memory] = self.limits.unknown;
        [or(declared[0], limits.cpu.0 > 0, cpu), or(declared[1], limits.memory.0 > 0, memory)]
    }

    /// The best move off the node, or why there is none.
    fn relieve(&self, src: &NodeId, felt: &Predicted) -> Outcome {
        let pressure = felt[src];
        let dominant = if pressure[1] > pressure[0] { Dimension::Memory } else { Dimension::Cpu };
        let skipped = |why| {
            let (src, pressure) = (src.clone(), top(pressure));
            Outcome::Skipped { src, dominant, pressure, why }
        };
        let mut reasons: BTreeSet<Skip> = BTreeSet::new();
        let mut best: Option<(Rank, Relief)> = None;
        let mut has_candidate = false;
        for (id, spec) in self.candidates(src) {
            has_candidate = true;
            for (dst, before) in felt.iter().filter(|(dst, _)| *dst != src) {
                let Some(offer) = self.offer(&id, spec, (src, &pressure), (dst, before), dominant)
                else {
                    continue;
                };
                if let Some(why) = offer.blocked(self.limits) {
                    reasons.insert(why);
                    continue;
                }
                let relief = self.relief(&id, spec, src, dst, dominant, &offer, top(*before));
                let rank: Rank =
                    (relief.score, Reverse(id.clone()), Reverse((top(*before), dst.clone())));
                if best.as_ref().is_none_or(|(best, _)| rank > *best) {
                    best = Some((rank, relief));
                }
            }
        }
        match best {
            Some((_, relief)) => Outcome::Moved(Box::new(relief)),
            None if !has_candidate => skipped(Skip::NoCandidate),
            None if reasons.len() == 1 => {
                skipped(reasons.into_iter().next().unwrap_or(Skip::NoEligibleDst))
            }
            None => skipped(Skip::NoEligibleDst),
        }
    }

    /// Replicas on the node that may be moved at all.
    fn candidates(&self, node: &NodeId) -> Vec<(ReplicaId, &ServiceSpec)> {
        let tenants = self.state.load(node).into_iter().flat_map(|load| &load.tenants);
        let movable = tenants.filter_map(|id| {
            let replica = self.state.replica(id)?;
            let is_here = replica.assignment.as_ref().is_some_and(|at| at.node == *node);
            let is_still = replica.successor.is_none() && replica.is_running();
            let spec = self.state.service(&id.service)?.desired()?;
            let stays = spec.is_stateful() || spec.placement.mode == Mode::Global;
            (is_here && is_still && !stays).then(|| (id.clone(), &**spec))
        });
        movable.collect()
    }

    /// What would come of moving the replica; none where the node is no destination at all.
    fn offer(
        &self,
        id: &ReplicaId,
        spec: &ServiceSpec,
        (src, pressure): (&NodeId, &[Pressure; 2]),
        (dst, before): (&NodeId, &[Pressure; 2]),
        dominant: Dimension,
    ) -> Option<Offer> {
        let node = self.state.node(dst).filter(|node| Node::is_open(node))?;
        let meets = spec.placement.constraints.iter().all(|wants| node.facts.meets(dst, wants));
        let service = self.state.service(&id.service)?;
        let at = self.roster.place_of(dst).filter(|_| meets)?;
        let ask = Ask::new(spec, &service.row.failures, self.policy, self.now);
        let here = service.replicas.values().filter_map(plimsoll_model::Replica::heading);
        let here = u32::try_from(here.filter(|it| it.node == *dst).count()).unwrap_or(u32::MAX);
        let turned = filter(&ask, self.roster, at, here).map(|filter| filter.word());
        let fits = !matches!(
            turned,
            Some(FilterWord::InsufficientCapacity | FilterWord::NoGpu | FilterWord::PortTaken)
        );
        let collides = match &spec.placement.mode {
            Mode::Spread { .. } => here > 0,
            Mode::Hosts { hosts, .. } => !hosts.contains(dst),
            Mode::Pack { .. } => turned == Some(FilterWord::MaxPerNode),
            Mode::Global => true,
        };
        let replica = self.state.replica(id)?;
        let index = usize::from(dominant == Dimension::Memory);
        let off = self.footprint(id, spec, src);
        Some(Offer {
            rested: self.now.since(replica.assignment.as_ref()?.at),
            dst_rested: node.received_at.map(|at| self.now.since(at)),
            post_dst: more(*before, self.footprint(id, spec, dst)),
            fits,
            collides,
            pre_src: pressure[index],
            post_src: less(*pressure, off)[index],
        })
    }

    #[expect(clippy::too_many_arguments, reason = "the numbers of one line of the audit")]
    fn relief(
        &self,
        id: &ReplicaId,
        spec: &ServiceSpec,
        src: &NodeId,
        dst: &NodeId,
        dominant: Dimension,
        offer: &Offer,
        dst_before: Pressure,
    ) -> Relief {
        let assignment = self.state.replica(id).and_then(|replica| replica.assignment.as_ref());
        let (node, cause) = (dst.clone(), MoveCause::Pressure);
        let change = Change::Succeed { replica: id.clone(), node, spec: spec.hash, cause };
        let relief = offer.relief();
        let cost = i64::from(self.limits.move_cost.millionths());
        Relief {
            change: change.at_generation(assignment.map(|assignment| assignment.generation)),
            replica: id.clone(),
            src: src.clone(),
            dst: dst.clone(),
            dominant,
            relief,
            score: i64::from(relief.millionths()) - cost,
            src_before: offer.pre_src,
            src_after: offer.post_src,
            dst_before,
            dst_after: top(offer.post_dst),
        }
    }
}

fn share(cpu: MilliCpus, memory: Bytes, capacity: Resources) -> [Pressure; 2] {
    [Pressure::of(cpu.0, capacity.cpu.0), Pressure::of(memory.0, capacity.memory.0)]
}

fn more(one: [Pressure; 2], other: [Pressure; 2]) -> [Pressure; 2] {
    let sum = |at: usize| one[at].millionths().saturating_add(other[at].millionths());
    [0, 1].map(|at| Pressure::from_millionths(sum(at)))
}

fn less(one: [Pressure; 2], other: [Pressure; 2]) -> [Pressure; 2] {
    let rest = |at: usize| one[at].millionths().saturating_sub(other[at].millionths());
    [0, 1].map(|at| Pressure::from_millionths(rest(at)))
}
