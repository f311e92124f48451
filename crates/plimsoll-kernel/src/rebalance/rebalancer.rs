//! The rebalancer as a leader keeps it: what it was told of nodes and replicas, and what it smoothed and counted of that. A
//! new leader begins anew.

use std::collections::BTreeMap;

use plimsoll_model::{Generation, NodeId, NodePressure, ReplicaId, ServiceSpec, State, Timestamp};

use super::{
    CycleInputs, CycleOutcome, Decay, MeasuredCycle, MoveInFlight, NodeEvaluation, NodeLevels,
    PressureSample, Readings, RebalanceMemory, ReplicaUsage, SmoothedUsage, cycle, weigh,
};
use crate::place::Roster;
use crate::policy::Policy;

#[derive(Debug, Clone, Default)]
pub struct Rebalancer {
    memory: RebalanceMemory,
    /// Of each replica and what it was when measured: a new generation may be another program.
    smoothed: BTreeMap<ReplicaId, (Generation, SmoothedUsage)>,
    readings: Readings,
}

impl Rebalancer {
    /// A node says how busy it is, or nothing.
    pub fn sample(&mut self, node: &NodeId, sample: Option<PressureSample>) {
        match sample {
            None => drop(self.readings.nodes.remove(node)),
            Some(sample) => match self.readings.nodes.get_mut(node) {
                Some(known) => *known = sample,
                None => drop(self.readings.nodes.insert(node.clone(), sample)),
            },
        }
    }

    /// As [`next_cycle`](Self::next_cycle) wrote it down.
    pub fn recalled(state: &State, memory: RebalanceMemory, cycle: &MeasuredCycle) -> Self {
        let smoothed = cycle.readings.replicas.iter().filter_map(|(id, usage)| {
            let generation = state.replica(id)?.assignment.as_ref()?.generation;
            Some((id.clone(), (generation, SmoothedUsage::seed(cycle.at, *usage))))
        });
        Self { memory, smoothed: smoothed.collect(), readings: cycle.readings.clone() }
    }

    /// Makes readings of what it was told, as a cycle does.
    pub(crate) fn look(&mut self, state: &State, policy: &Policy, now: Timestamp) {
        self.read(state, policy, now);
    }

    /// What replicas use, as of the last look.
    pub(crate) fn usages(&self) -> &BTreeMap<ReplicaId, ReplicaUsage> {
        &self.readings.replicas
    }

    /// How busy nodes are, as of the last cycle.
    pub fn levels(&self) -> impl Iterator<Item = NodeLevels<'_>> {
        self.memory.levels()
    }

    /// The latest word of each node, however old.
    pub fn samples(&self) -> &BTreeMap<NodeId, PressureSample> {
        &self.readings.nodes
    }

    /// What replicas were found to use when their nodes were last measured. What a node holds no longer is passed over.
    pub fn usage<'a>(
        &mut self,
        state: &State,
        policy: &Policy,
        usages: impl IntoIterator<Item = (&'a ReplicaId, Generation, ReplicaUsage)>,
    ) {
        let mut decay = Decay::new(policy.rebalance.usage_window);
        for (replica, generation, usage) in usages {
            let held = state.replica(replica).and_then(|row| row.assignment.as_ref());
            let Some(held) = held.filter(|held| held.generation == generation) else { continue };
            let Some(at) = self.readings.nodes.get(&held.node).map(|it| it.at) else { continue };
            let known = self.smoothed.get_mut(replica);
            if let Some((_, smoothed)) = known.filter(|(known, _)| *known == generation) {
                smoothed.take_in(at, usage, &mut decay);
            } else {
                let smoothed = SmoothedUsage::seed(at, usage);
                self.smoothed.insert(replica.clone(), (generation, smoothed));
            }
        }
    }

    /// One cycle on what it was told.
    pub fn cycle(
        &mut self,
        state: &State,
        roster: &Roster,
        policy: &Policy,
        now: Timestamp,
    ) -> CycleOutcome {
        self.read(state, policy, now);
        cycle(state, roster, policy, &self.readings, &mut self.memory, now)
    }

    /// What there is to say of a node, as of the last cycle.
    pub fn weigh(
        &self,
        state: &State,
        roster: &Roster,
        policy: &Policy,
        node: &NodeId,
        now: Timestamp,
    ) -> Option<NodeEvaluation> {
        weigh(state, roster, policy, &self.readings, &self.memory, node, now)
    }

    /// How busy a node has been of late, smoothed; none where that is not known.
    pub(crate) fn mean(&self, node: &NodeId) -> Option<NodePressure> {
        self.memory.trend(node).map(|trend| trend.mean.value())
    }

    /// Whether the node would stay cool enough to be a destination with so much more on it. Of one that is not measured
    /// nobody can say otherwise.
    pub(crate) fn stays_cool(&self, policy: &Policy, node: &NodeId, more: NodePressure) -> bool {
        let peak = self.memory.trend(node).map(|trend| trend.peak.value());
        peak.is_none_or(|peak| peak.plus(more).top() < policy.rebalance.dst_cap)
    }

    /// What a replica takes of a node, as a cycle sees it.
    pub(crate) fn footprint(
        &self,
        (state, roster, policy): (&State, &Roster, &Policy),
        (replica, spec): (&ReplicaId, &ServiceSpec),
        node: &NodeId,
        now: Timestamp,
    ) -> NodePressure {
        let view = CycleInputs::new(state, roster, policy, &self.readings, now);
        view.footprint(replica, spec, view.capacity(node))
    }

    /// One that was told all this by others, and what it remembers afterwards. For those who smooth usage themselves.
    pub fn recall(memory: RebalanceMemory, readings: Readings) -> Self {
        Self { memory, smoothed: BTreeMap::new(), readings }
    }

    pub fn into_parts(self) -> (RebalanceMemory, Readings) {
        (self.memory, self.readings)
    }

    /// Somebody else moves a replica: it counts at both ends from now on, though it may begin and end before the next cycle.
    pub(crate) fn expect(&mut self, replica: ReplicaId, moving: MoveInFlight) {
        self.memory.expect(replica, moving);
    }

    /// What is remembered, and what the next cycle would be told if it were now. Whoever replays it decides the same.
    pub fn next_cycle(
        &self,
        state: &State,
        policy: &Policy,
        now: Timestamp,
    ) -> (RebalanceMemory, MeasuredCycle) {
        let mut then = self.clone();
        then.read(state, policy, now);
        (then.memory, MeasuredCycle { at: now, readings: then.readings })
    }

    /// Makes readings of what was smoothed, and forgets who is gone.
    fn read(&mut self, state: &State, policy: &Policy, now: Timestamp) {
        self.readings.nodes.retain(|node, _| state.node(node).is_some());
        let since = Timestamp(now.0.saturating_sub(policy.stale_after().0));
        self.smoothed.retain(|_, (_, smoothed)| smoothed.at() >= since);
        let usages = self.smoothed.iter();
        self.readings.replicas =
            usages.map(|(replica, (_, smoothed))| (replica.clone(), smoothed.usage())).collect();
    }
}
