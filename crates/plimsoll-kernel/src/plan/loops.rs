//! What moves replicas though nobody asked for it, on the cell of a plan: the rebalancer and the rescheduler of a leader, and
//! what nodes bear meanwhile.
//!
//! What replicas use is taken to stay as it was last measured. It goes with them from node to node, so each cycle is told what
//! nodes would measure by then.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::{
    Bytes, Change, Guarded, MilliCpus, NodeId, NodePressure, NodeStatus, ReplicaId, State,
    Timestamp,
};

use super::foresight::Foresight;
use crate::policy::Policy;
use crate::rebalance::{PressureSample, Rebalancer, ReplicaUsage};
use crate::reschedule::Rescheduler;
use crate::what_if::{NodeChange, NodeForecast, NodeUse};

/// Cycles on end without a move after which a large cell is only looked at once more, when all that rests has rested: what is
/// hot is found in two.
const CALM_CYCLES: u32 = 3;

/// How many replicas of a service say what one more of it will use.
const LIKE_IT: usize = 16;

#[derive(Debug)]
pub(crate) struct Loops {
    rebalancer: Rebalancer,
    rescheduler: Rescheduler,
    policy: Policy,
    /// The cell has more replicas than one cycle looks at. Here each cycle looks at all of them, in fewer cycles.
    is_large: bool,
    calm_cycles: u32,
    /// What each replica uses, of those that were measured.
    usage: BTreeMap<ReplicaId, ReplicaUsage>,
    /// How busy nodes are, of those that were measured.
    pressure: BTreeMap<NodeId, NodePressure>,
    /// What nodes bore to begin with.
    before: BTreeMap<NodeId, NodeUse>,
    /// The most that nodes bore, of those that were given anything.
    peaks: BTreeMap<NodeId, NodeUse>,
}

impl Loops {
    pub(crate) fn new(cell: &Foresight<'_>, mut rebalancer: Rebalancer) -> Self {
        let Foresight { state, signals, now, .. } = cell;
        let mut policy = *cell.policy;
        rebalancer.look(state, &policy, *now);
        let replicas: usize = state.services().values().map(|it| it.replicas.len()).sum();
        let is_large = replicas > policy.reschedule.replicas_per_cycle;
        if is_large {
            policy.reschedule.replicas_per_cycle = usize::MAX;
        }
        let pressure = state.nodes().keys().filter_map(|node| {
            let sample = || rebalancer.samples().get(node)?.fresh_pressure(&policy, *now);
            let known = rebalancer.mean(node).or_else(|| signals.pressure(node)).or_else(sample)?;
            Some((node.clone(), known))
        });
        let mut loops = Self {
            pressure: pressure.collect(),
            usage: rebalancer.usages().clone(),
            rebalancer,
            rescheduler: Rescheduler::default(),
            policy,
            is_large,
            calm_cycles: 0,
            before: BTreeMap::new(),
            peaks: BTreeMap::new(),
        };
        let nodes = state.nodes().keys();
        let before = nodes.filter_map(|it| Some((it.clone(), loops.node_use(state, it)?)));
        loops.before = before.collect();
        loops
    }

    /// What becomes of every node, of those that were there before and those that are there after.
    pub(crate) fn nodes(&self, before: &State, after: &State) -> BTreeMap<NodeId, NodeForecast> {
        let nodes = self.before.keys().chain(after.nodes().keys()).map(|node| {
            let (was, is) = (self.before.get(node).copied(), self.node_use(after, node));
            let peak = [was, is, self.peaks.get(node).copied()].into_iter().flatten();
            let peak = peak.reduce(NodeUse::max);
            let change = NodeChange::of(before, after, node);
            (node.clone(), NodeForecast { change, before: was, after: is, peak })
        });
        nodes.collect()
    }

    /// What a node bears now.
    fn node_use(&self, state: &State, node: &NodeId) -> Option<NodeUse> {
        let row = state.node(node)?;
        let is_up = row.status == NodeStatus::Ready;
        let pressure = self.pressure.get(node).copied().filter(|_| is_up);
        Some(NodeUse::of(state.load(node), row.facts.capacity, pressure))
    }

    /// The next cycle, with what nodes would measure by then. `calm_since`: when something was last moved.
    pub(super) fn begin_cycle(&mut self, cell: &mut Foresight<'_>, calm_since: Timestamp) {
        self.calm_cycles = if cell.now == calm_since { 1 } else { self.calm_cycles + 1 };
        let next = cell.now.plus(self.policy.sample_interval);
        let is_last = self.is_large && self.calm_cycles >= CALM_CYCLES;
        cell.now = if is_last { next.max(self.rested_at(cell, calm_since)) } else { next };
        self.measure(cell);
    }

    fn measure(&mut self, cell: &mut Foresight<'_>) {
        let is_measured = !self.pressure.is_empty();
        for (node, row) in cell.state.nodes() {
            // A node that joined says that it does nothing yet, where nodes are measured at all.
            if is_measured && !self.pressure.contains_key(node) {
                self.pressure.insert(node.clone(), NodePressure::default());
            }
            let is_up = row.status == NodeStatus::Ready;
            let pressure = self.pressure.get(node).copied().filter(|_| is_up);
            let sample = pressure.map(|pressure| PressureSample { at: cell.now, pressure });
            self.rebalancer.sample(node, sample);
            if cell.signals.pressure(node) != pressure {
                cell.signals.to_mut().set(node, pressure);
                cell.roster.feel(node, pressure);
            }
        }
        let usages = self.usage.iter().filter_map(|(id, usage)| {
            let assignment = cell.state.replica(id)?.assignment.as_ref()?;
            Some((id, assignment.generation, *usage))
        });
        self.rebalancer.usage(&cell.state, &self.policy, usages);
    }

    /// What leaves a hot node, if anything does.
    pub(super) fn rebalance(&mut self, cell: &Foresight<'_>) -> Vec<Guarded> {
        let Foresight { state, roster, now, .. } = cell;
        let batch = self.rebalancer.cycle(state, roster, &self.policy, *now).batch();
        let is_move = |it: &Guarded| matches!(it.change, Change::Succeed { .. });
        if batch.iter().any(is_move) { batch } else { Vec::new() }
    }

    /// What a better place is found for.
    pub(super) fn reschedule(&mut self, cell: &Foresight<'_>) -> Vec<Guarded> {
        let Foresight { state, roster, now, .. } = cell;
        self.rescheduler.cycle(state, roster, &self.policy, &mut self.rebalancer, *now)
    }

    /// Whether nothing rests any more that might move.
    pub(super) fn have_rested(&self, cell: &Foresight<'_>, calm_since: Timestamp) -> bool {
        cell.now >= self.rested_at(cell, calm_since)
    }

    /// Cooldowns are over by then, nodes that came back are trusted, and one more cycle has looked at all.
    fn rested_at(&self, cell: &Foresight<'_>, calm_since: Timestamp) -> Timestamp {
        let Policy { rebalance, reschedule, sample_interval, .. } = &self.policy;
        let rest = rebalance.cooldown_replica.0.max(rebalance.cooldown_node.0);
        let open = cell.state.nodes().values().filter(|node| node.is_open());
        let distrust = open.map(|node| reschedule.distrust(node, calm_since).0).max().unwrap_or(0);
        calm_since.plus(plimsoll_model::Millis(rest.max(distrust) + 2 * sample_interval.0))
    }

    /// Replicas came to nodes and left others.
    pub(super) fn shift(
        &mut self,
        cell: &Foresight<'_>,
        held: &BTreeMap<ReplicaId, BTreeSet<NodeId>>,
    ) {
        let mut burdened = BTreeSet::new();
        for (id, before) in held {
            let after = cell.holders(id);
            for node in before.difference(&after) {
                let off = self.footprint(cell, id, node);
                self.change(node, |it| it.minus(off));
            }
            for node in after.difference(before) {
                let on = self.footprint(cell, id, node);
                self.change(node, |it| it.plus(on));
                burdened.insert(node.clone());
            }
        }
        for node in burdened {
            let Some(now) = self.node_use(&cell.state, &node) else { continue };
            let peak = self.peaks.entry(node).or_insert(now);
            *peak = peak.max(now);
        }
    }

    fn change(&mut self, node: &NodeId, change: impl FnOnce(NodePressure) -> NodePressure) {
        if let Some(pressure) = self.pressure.get_mut(node) {
            *pressure = change(*pressure);
        }
    }

    /// What the replica takes of a node: as measured, as measured of others of its service, or as the rebalancer guesses.
    fn footprint(&mut self, cell: &Foresight<'_>, id: &ReplicaId, node: &NodeId) -> NodePressure {
        let Some(row) = cell.state.node(node) else { return NodePressure::default() };
        if !self.usage.contains_key(id)
            && let Some(alike) = self.usage_of_others(id)
        {
            self.usage.insert(id.clone(), alike);
        }
        if let Some(usage) = self.usage.get(id) {
            return usage.share_of(row.facts.capacity);
        }
        let spec = cell.state.service(&id.service).and_then(|service| service.desired());
        spec.map_or(self.policy.rebalance.unknown, |spec| {
            let view = (&cell.state, &cell.roster, &self.policy);
            self.rebalancer.footprint(view, (id, spec), node, cell.now)
        })
    }

    /// The mean of some replicas of the same service.
    fn usage_of_others(&self, id: &ReplicaId) -> Option<ReplicaUsage> {
        let first = ReplicaId::indexed(&id.service, 0);
        let others = self.usage.range(first..).take_while(|(other, _)| other.service == id.service);
        let some: Vec<&ReplicaUsage> = others.map(|(_, usage)| usage).take(LIKE_IT).collect();
        let count = u64::try_from(some.len()).ok().filter(|count| *count > 0)?;
        let mean = |of: fn(&ReplicaUsage) -> u64| some.iter().map(|it| of(it)).sum::<u64>() / count;
        let (cpu, memory) = (MilliCpus(mean(|it| it.cpu.0)), Bytes(mean(|it| it.memory.0)));
        Some(ReplicaUsage { cpu, memory })
    }
}
