//! All that one cycle looks at, and what a replica takes of a node by it.

use std::collections::BTreeMap;

use plimsoll_model::{
    Bytes, MilliCpus, NodeId, Pressure, ReplicaId, Resources, ServiceSpec, State, Timestamp,
};

use super::gates::Limits;
use super::memory::Moving;
use super::{Dimension, Readings};
use crate::place::Roster;
use crate::policy::Policy;

pub(super) struct View<'a> {
    pub(super) state: &'a State,
    pub(super) roster: &'a Roster,
    pub(super) policy: &'a Policy,
    pub(super) limits: &'a Limits,
    pub(super) readings: &'a Readings,
    pub(super) now: Timestamp,
}

impl View<'_> {
    /// What is on its way between two nodes.
    pub(super) fn moving(&self) -> BTreeMap<ReplicaId, Moving> {
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
            Some((id.clone(), Moving { src: src.clone(), dst: dst.clone(), off, on }))
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
    ) -> [Pressure; 2] {
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
}

fn share(cpu: MilliCpus, memory: Bytes, capacity: Resources) -> [Pressure; 2] {
    [Pressure::of(cpu.0, capacity.cpu.0), Pressure::of(memory.0, capacity.memory.0)]
}

pub(super) fn top(pressure: [Pressure; 2]) -> Pressure {
    pressure[0].max(pressure[1])
}

/// What the node is hot in; of equals, cpu.
pub(super) fn dominant(pressure: [Pressure; 2]) -> Dimension {
    if pressure[1] > pressure[0] { Dimension::Memory } else { Dimension::Cpu }
}

pub(super) fn more(one: [Pressure; 2], other: [Pressure; 2]) -> [Pressure; 2] {
    let sum = |at: usize| one[at].millionths().saturating_add(other[at].millionths());
    [0, 1].map(|at| Pressure::from_millionths(sum(at)))
}

pub(super) fn less(one: [Pressure; 2], other: [Pressure; 2]) -> [Pressure; 2] {
    let rest = |at: usize| one[at].millionths().saturating_sub(other[at].millionths());
    [0, 1].map(|at| Pressure::from_millionths(rest(at)))
}
