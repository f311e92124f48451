//! All that one cycle looks at, and what a replica takes of a node by it.

use std::collections::BTreeMap;

use plimsoll_model::{
    NodeId, NodePressure, Pressure, ReplicaId, Resources, ServiceSpec, State, Timestamp,
};

use super::gates::RebalanceLimits;
use super::memory::MoveInFlight;
use super::{Readings, ReplicaUsage};
use crate::place::Roster;
use crate::policy::Policy;

pub(super) struct CycleInputs<'a> {
    pub(super) state: &'a State,
    pub(super) roster: &'a Roster,
    pub(super) policy: &'a Policy,
    pub(super) limits: &'a RebalanceLimits,
    pub(super) readings: &'a Readings,
    pub(super) now: Timestamp,
}

impl<'a> CycleInputs<'a> {
    pub(super) fn new(
        state: &'a State,
        roster: &'a Roster,
        policy: &'a Policy,
        readings: &'a Readings,
        now: Timestamp,
    ) -> Self {
        Self { state, roster, policy, limits: &policy.rebalance, readings, now }
    }

    /// What is on its way between two nodes.
    pub(super) fn moving(&self) -> BTreeMap<ReplicaId, MoveInFlight> {
        let moving = self.state.moving().iter().filter_map(|id| {
            let replica = self.state.replica(id)?;
            let (src, dst) = (replica.assignment.as_ref()?, replica.successor.as_ref()?);
            let (src, dst) = (&src.node, &dst.assignment.node);
            if src == dst {
                return None;
            }
            let spec = self.state.service(&id.service)?.desired()?;
            let footprint = |node| self.footprint(id, spec, self.capacity(node));
            let (off, on) = (footprint(src), footprint(dst));
            Some((id.clone(), MoveInFlight { src: src.clone(), dst: dst.clone(), off, on }))
        });
        moving.collect()
    }

    pub(super) fn capacity(&self, node: &NodeId) -> Resources {
        self.state.node(node).map(|node| node.facts.capacity).unwrap_or_default()
    }

    /// What the replica takes of a node: as measured, else as declared, else as a guess.
    pub(super) fn footprint(
        &self,
        id: &ReplicaId,
        spec: &ServiceSpec,
        capacity: Resources,
    ) -> NodePressure {
        if let Some(usage) = self.readings.replicas.get(id) {
            return usage.share_of(capacity);
        }
        let limits = spec.container.limits;
        let declared = ReplicaUsage { cpu: limits.cpu, memory: limits.memory }.share_of(capacity);
        let or = |declared: Pressure, is_declared: bool, unknown: Pressure| {
            if is_declared { declared } else { unknown }
        };
        let unknown = self.limits.unknown;
        NodePressure {
            cpu: or(declared.cpu, limits.cpu.0 > 0, unknown.cpu),
            memory: or(declared.memory, limits.memory.0 > 0, unknown.memory),
        }
    }
}
