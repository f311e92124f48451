//! A case of the rebalancer: a cell as far as its cycles look at it, what a leader remembered of it, and what was measured
//! in one cycle after another. It is plain data without secrets, so that a live cell can write it and anyone can replay
//! it. `docs/reference/rebalance-case.md` lists its words.
//!
//! Times are milliseconds on one clock, shares millionths of a node, cpu thousandths of a core, memory bytes.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::spec::{Constraint, HostPort};
use plimsoll_model::{
    Availability, Bytes, Generation, MilliCpus, Millis, Mode, MoveCause, NodeId, NodeStatus,
    ObservedState, Pressure, ReplicaId, Resources, ServiceKey, SpecHash, State, Timestamp, Zone,
};
use serde::{Deserialize, Serialize};

use super::{Ewma, Felt, Memory, Moving, Readings, Sample, Usage};

mod build;
mod replay;

pub use replay::{Step, Unfit};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub nodes: BTreeMap<NodeId, NodeEntry>,
    #[serde(default)]
    pub services: BTreeMap<ServiceKey, ServiceEntry>,
    #[serde(default)]
    pub replicas: BTreeMap<ReplicaId, ReplicaEntry>,
    /// What the leader remembered before the first cycle; nothing: it is new.
    #[serde(default)]
    pub memory: MemoryEntry,
    /// How long a move takes: it is done before the first cycle after that.
    #[serde(default)]
    pub moves_take: Millis,
    /// In order of time.
    pub cycles: Vec<CycleEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeEntry {
    pub capacity: Amounts,
    /// All that is set aside there; what the replicas of the case do not account for is held by something that stays.
    #[serde(default)]
    pub reserved: Amounts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Zone>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default = "ready")]
    pub status: NodeStatus,
    #[serde(default = "active")]
    pub availability: Availability,
    /// When a replica was last sent there for relief.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_at: Option<Timestamp>,
}

fn ready() -> NodeStatus {
    NodeStatus::Ready
}

fn active() -> Availability {
    Availability::Active
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Amounts {
    pub cpu: MilliCpus,
    pub memory: Bytes,
    #[serde(skip_serializing_if = "is_zero")]
    pub gpus: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl From<Resources> for Amounts {
    fn from(Resources { cpu, memory, gpus }: Resources) -> Self {
        Self { cpu, memory, gpus }
    }
}

impl From<Amounts> for Resources {
    fn from(Amounts { cpu, memory, gpus }: Amounts) -> Self {
        Self { cpu, memory, gpus }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceEntry {
    /// Of what it runs: it only comes back in what is decided.
    #[serde(default = "unnamed")]
    pub spec: SpecHash,
    pub mode: Mode,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub constraints: BTreeSet<Constraint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_per_node: Option<u32>,
    #[serde(default)]
    pub reserves: Amounts,
    #[serde(default)]
    pub limits: Amounts,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_ports: Vec<HostPort>,
    /// Its data lives on the node it runs on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stateful: bool,
}

fn unnamed() -> SpecHash {
    SpecHash([0; 32])
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaEntry {
    pub node: NodeId,
    /// When it was placed or moved there.
    pub at: Timestamp,
    /// Which assignment that was in the cell that was written down: a replay numbers its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    #[serde(default = "running")]
    pub state: ObservedState,
    /// Where it is going.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<SuccessorEntry>,
}

fn running() -> ObservedState {
    ObservedState::Running
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuccessorEntry {
    pub node: NodeId,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    pub cause: MoveCause,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryEntry {
    pub nodes: BTreeMap<NodeId, FeltEntry>,
    pub moving: BTreeMap<ReplicaId, Moving>,
}

/// Means and what they reached, in millionths of a millionth of the node: all that is known of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeltEntry {
    /// Of the last sample.
    pub at: Timestamp,
    pub cpu: u64,
    pub memory: u64,
    pub cpu_crest: u64,
    pub memory_crest: u64,
    pub hot: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CycleEntry {
    pub at: Timestamp,
    /// Nodes that are missing said nothing of late.
    #[serde(default)]
    pub nodes: BTreeMap<NodeId, SampleEntry>,
    /// What replicas use, smoothed.
    #[serde(default)]
    pub replicas: BTreeMap<ReplicaId, Usage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleEntry {
    /// When it was taken; with the cycle if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    pub cpu: Pressure,
    pub memory: Pressure,
}

impl Case {
    /// The cell and the memory as they are, with no cycle yet.
    pub fn of(state: &State, memory: &Memory) -> Self {
        let nodes = state.nodes().iter().map(|(id, node)| {
            let reserved = state.load(id).map(|load| load.reserved).unwrap_or_default();
            let entry = NodeEntry {
                capacity: node.facts.capacity.into(),
                reserved: reserved.into(),
                zone: node.facts.zone.clone(),
                labels: node.facts.labels.clone(),
                status: node.status,
                availability: node.availability,
                received_at: node.received_at,
            };
            (id.clone(), entry)
        });
        let services = state.services().iter().filter_map(|(key, service)| {
            let spec = service.desired()?;
            let entry = ServiceEntry {
                spec: spec.hash,
                mode: spec.placement.mode.clone(),
                constraints: spec.placement.constraints.clone(),
                max_per_node: spec.placement.max_per_node,
                reserves: spec.request().into(),
                limits: spec.container.limits.into(),
                host_ports: spec.host_ports().collect(),
                is_stateful: spec.is_stateful(),
            };
            Some((key.clone(), entry))
        });
        let services: BTreeMap<ServiceKey, ServiceEntry> = services.collect();
        let replicas = state.replicas().filter_map(|(id, replica)| {
            let at = replica.assignment.as_ref()?;
            services.get(&id.service)?;
            let state = replica.observation(at).map_or(ObservedState::Pending, |seen| seen.state);
            let (node, generation) = (at.node.clone(), Some(at.generation));
            let successor = replica.successor.as_ref().map(|next| SuccessorEntry {
                node: next.assignment.node.clone(),
                at: next.assignment.at,
                generation: Some(next.assignment.generation),
                cause: next.cause,
            });
            Some((id, ReplicaEntry { node, at: at.at, generation, state, successor }))
        });
        let replicas = replicas.collect();
        let (moves_take, cycles) = (Millis(0), Vec::new());
        let nodes = nodes.collect();
        Self { nodes, services, replicas, memory: MemoryEntry::of(memory), moves_take, cycles }
    }

    /// Adds what a cycle was told.
    pub fn push(&mut self, now: Timestamp, readings: &Readings) {
        let sample = |sample: &Sample| {
            let [cpu, memory] = sample.pressure;
            SampleEntry { at: Some(sample.at), cpu, memory }
        };
        self.cycles.push(CycleEntry {
            at: now,
            nodes: readings.nodes.iter().map(|(id, it)| (id.clone(), sample(it))).collect(),
            replicas: readings.replicas.clone(),
        });
    }
}

impl MemoryEntry {
    fn of(memory: &Memory) -> Self {
        let nodes = memory.nodes().iter().map(|felt| {
            let [cpu, memory] = felt.means.map(|mean| mean.fine());
            let [cpu_crest, memory_crest] = felt.crests.map(|crest| crest.fine());
            let (at, hot) = (felt.means[0].at(), felt.hot);
            (felt.node.clone(), FeltEntry { at, cpu, memory, cpu_crest, memory_crest, hot })
        });
        Self { nodes: nodes.collect(), moving: memory.moving().clone() }
    }

    fn recall(&self) -> Memory {
        let felt = |(node, it): (&NodeId, &FeltEntry)| {
            let recall = |one, other| [one, other].map(|fine| Ewma::recall(it.at, fine));
            let (means, crests) =
                (recall(it.cpu, it.memory), recall(it.cpu_crest, it.memory_crest));
            Felt::new(node.clone(), means, crests, it.hot)
        };
        Memory::recall(self.nodes.iter().map(felt).collect(), self.moving.clone())
    }
}

impl CycleEntry {
    fn readings(&self) -> Readings {
        let sample = |it: &SampleEntry| Sample {
            at: it.at.unwrap_or(self.at),
            pressure: [it.cpu, it.memory],
        };
        Readings {
            nodes: self.nodes.iter().map(|(id, it)| (id.clone(), sample(it))).collect(),
            replicas: self.replicas.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
