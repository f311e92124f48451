//! The form that cases of the rebalancer had before there was one format: nodes, services and replicas by name, shares in
//! millionths, cpu in thousandths of a core, memory in bytes. It is read on, and becomes the entries of a case.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use plimsoll_model::spec::{Constraint, HostPort};
use plimsoll_model::{
    Availability, Bytes, DeploymentName, Generation, MilliCpus, Millis, Mode, MoveCause, NodeId,
    NodePressure, NodeStatus, ObservedState, Pressure, ReplicaId, Resources, ServiceName, Slot,
    SpecHash, Zone,
};
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::{Location, Spanned};

use super::entries::{
    CaseEntry, CycleEntry, MemoryEntry, MoveEntry, ReplicaEntry, SampleEntry, SharesEntry,
    SuccessorEntry, TrendEntry, UsageEntry,
};
use crate::entries::deployment::{DeploymentEntry, LimitsEntry, ReserveEntry, ServiceEntry};
use crate::entries::node::NodeEntry;
use crate::entries::values::{ClockTime, Pairs, Parsed, PortText, ServiceRef, Share, WorkedOut};
use crate::mistake::Mistake;

/// Whether a text is of this form: its nodes are a mapping by name, not a list.
pub(super) fn is_meant(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Shape {
        nodes: IsMapping,
    }
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).is_ok_and(|shape: Shape| shape.nodes.0)
}

struct IsMapping(bool);

impl<'de> Deserialize<'de> for IsMapping {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = IsMapping;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list or a mapping")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<IsMapping, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(IsMapping(false))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<IsMapping, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(IsMapping(true))
            }
        }

        source.deserialize_any(Either)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LegacyCase {
    nodes: Pairs<Spanned<NodeId>, LegacyNode>,
    #[serde(default)]
    services: Pairs<Spanned<ServiceRef>, LegacyService>,
    #[serde(default)]
    replicas: Pairs<Spanned<ReplicaId>, LegacyReplica>,
    #[serde(default)]
    memory: LegacyMemory,
    #[serde(default)]
    moves_take: Millis,
    cycles: Vec<LegacyCycle>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LegacyNode {
    capacity: LegacyAmounts,
    #[serde(default)]
    reserved: LegacyAmounts,
    zone: Option<Zone>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    status: Option<NodeStatus>,
    availability: Option<Availability>,
    received_at: Option<Millis>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LegacyAmounts {
    cpu: MilliCpus,
    memory: Bytes,
    gpus: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LegacyService {
    spec: Option<SpecHash>,
    mode: Mode,
    #[serde(default)]
    constraints: BTreeSet<Constraint>,
    max_per_node: Option<u32>,
    #[serde(default)]
    reserves: LegacyAmounts,
    #[serde(default)]
    limits: LegacyAmounts,
    #[serde(default)]
    host_ports: Vec<HostPort>,
    #[serde(default)]
    is_stateful: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LegacyReplica {
    node: Spanned<NodeId>,
    at: Millis,
    #[serde(default, rename = "generation")]
    _generation: Option<Generation>,
    state: Option<ObservedState>,
    successor: Option<Spanned<LegacySuccessor>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LegacySuccessor {
    node: Spanned<NodeId>,
    at: Millis,
    #[serde(default, rename = "generation")]
    _generation: Option<Generation>,
    cause: MoveCause,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LegacyMemory {
    nodes: Pairs<Spanned<NodeId>, LegacyTrend>,
    moving: Pairs<Spanned<String>, LegacyMove>,
}

/// In millionths of a millionth of the node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LegacyTrend {
    at: Millis,
    cpu: u64,
    memory: u64,
    #[serde(alias = "cpu_crest")]
    cpu_peak: u64,
    #[serde(alias = "memory_crest")]
    memory_peak: u64,
    hot: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LegacyMove {
    src: Spanned<NodeId>,
    dst: Spanned<NodeId>,
    off: LegacyShares,
    on: LegacyShares,
}

/// Of cpu and memory.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum LegacyShares {
    InOrder([Pressure; 2]),
    Named(NodePressure),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LegacyCycle {
    at: Spanned<Millis>,
    #[serde(default)]
    nodes: Pairs<Spanned<NodeId>, LegacySample>,
    #[serde(default)]
    replicas: Pairs<Spanned<String>, LegacyUsage>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LegacySample {
    at: Option<Millis>,
    cpu: Pressure,
    memory: Pressure,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LegacyUsage {
    cpu: MilliCpus,
    memory: Bytes,
}

/// The entries that say the same.
pub(super) fn translated(case: LegacyCase) -> Result<CaseEntry, Mistake> {
    // Such cases could speak of what was not there any more, and nothing came of it.
    let nodes: BTreeSet<NodeId> = case.nodes.0.iter().map(|(id, _)| id.value.clone()).collect();
    let replicas: BTreeSet<ReplicaId> =
        case.replicas.0.iter().map(|(id, _)| id.value.clone()).collect();
    let is_node = |id: &NodeId| nodes.contains(id);
    let is_replica = |id: &str| id.parse().is_ok_and(|id: ReplicaId| replicas.contains(&id));

    let LegacyMemory { nodes: mut trends, moving: mut moves } = case.memory;
    trends.0.retain(|(id, _)| is_node(&id.value));
    moves.0.retain(|(id, it)| {
        is_replica(&id.value) && is_node(&it.src.value) && is_node(&it.dst.value)
    });
    let cycles = case.cycles.into_iter().map(|mut cycle| {
        cycle.nodes.0.retain(|(id, _)| is_node(&id.value));
        cycle.replicas.0.retain(|(id, _)| is_replica(&id.value));
        cycle.translated()
    });
    let replicas = case.replicas.0.into_iter().map(|(id, it)| it.translated(id));
    Ok(CaseEntry {
        replicas: replicas.collect::<Result<_, _>>()?,
        deployments: deployments(case.services.0),
        cycles: Some(cycles.collect()),
        nodes: case.nodes.0.into_iter().map(|(id, node)| node.translated(id)).collect(),
        memory: MemoryEntry {
            nodes: Pairs(trends.0.into_iter().map(|(id, it)| (id, it.translated())).collect()),
            moving: Pairs(moves.0.into_iter().map(|(id, it)| (id, it.translated())).collect()),
        },
        moves_take: Some(time(case.moves_take)),
        may_share_ports: true,
        ..CaseEntry::default()
    })
}

fn time(at: Millis) -> Parsed<ClockTime> {
    Parsed(ClockTime(at))
}

fn spanned<T>(value: T, at: Location) -> Spanned<T> {
    Spanned::new(value, at, at)
}

fn deployments(
    services: Vec<(Spanned<ServiceRef>, LegacyService)>,
) -> Vec<Spanned<DeploymentEntry>> {
    let mut deployments: BTreeMap<DeploymentName, BTreeMap<ServiceName, Spanned<ServiceEntry>>> =
        BTreeMap::new();
    for (Spanned { value: ServiceRef(key), referenced: at, .. }, service) in services {
        let services = deployments.entry(key.deployment).or_default();
        services.insert(key.service, spanned(service.translated(), at));
    }
    let entries = deployments.into_iter().map(|(name, services)| {
        let at = services.values().map(|service| service.referenced).next();
        let at = at.unwrap_or(Location::UNKNOWN);
        spanned(DeploymentEntry::of(spanned(name, at), services), at)
    });
    entries.collect()
}

impl LegacyNode {
    fn translated(self, name: Spanned<NodeId>) -> NodeEntry {
        let at = name.referenced;
        let mut entry = NodeEntry::new(name, self.capacity.into());
        entry.reserved = Some(spanned(Resources::from(self.reserved).into(), at));
        entry.zone = self.zone.map(|zone| spanned(zone, at));
        entry.labels = self.labels;
        entry.status = self.status.map(|status| spanned(status, at));
        entry.availability = self.availability.map(|it| spanned(it, at));
        entry.received_at = self.received_at.map(|it| spanned(time(it), at));
        entry
    }
}

impl From<LegacyAmounts> for Resources {
    fn from(LegacyAmounts { cpu, memory, gpus }: LegacyAmounts) -> Self {
        Self { cpu, memory, gpus, all_gpus: 0 }
    }
}

impl LegacyService {
    fn translated(self) -> ServiceEntry {
        let hosts = match &self.mode {
            Mode::Hosts { hosts, .. } => hosts.iter().map(ToString::to_string).collect(),
            Mode::Spread { .. } | Mode::Pack { .. } | Mode::Binpack { .. } | Mode::Global => {
                Vec::new()
            }
        };
        let cpus = |cpu: MilliCpus| (cpu.0 > 0).then(|| cpu.to_string());
        let memory = |memory: Bytes| (memory.0 > 0).then(|| memory.0.to_string());
        let (reserves, limits) = (self.reserves, self.limits);
        ServiceEntry {
            replicas: self.mode.replicas(),
            placement: Some(self.mode.word().to_owned()),
            hosts,
            reserve: ReserveEntry {
                cpus: cpus(reserves.cpu),
                memory: memory(reserves.memory),
                gpus: reserves.gpus,
                all_gpus: false,
            },
            limits: LimitsEntry { cpus: cpus(limits.cpu), memory: memory(limits.memory) },
            constraints: self.constraints.iter().map(ToString::to_string).collect(),
            max_per_node: self.max_per_node,
            host_ports: self.host_ports.into_iter().map(|port| Parsed(PortText(port))).collect(),
            volumes: self.is_stateful.then(|| "data".to_owned()).into_iter().collect(),
            spec: Some(self.spec.unwrap_or(SpecHash([0; 32]))),
            ..ServiceEntry::default()
        }
    }
}

impl LegacyReplica {
    fn translated(self, id: Spanned<ReplicaId>) -> Result<ReplicaEntry, Mistake> {
        let at = id.referenced;
        let ReplicaId { service, slot } = id.value;
        if let Slot::Node(own) = &slot
            && *own != self.node.value
        {
            let message = format!("this replica of {service} can only be on {own}");
            let hint = format!("write {service}/@{}, or `node: {own}`", self.node.value);
            return Err(Mistake::new(self.node.referenced, message).hint(hint));
        }
        let mut entry = ReplicaEntry::new(spanned(ServiceRef(service), at), self.node);
        entry.index = match slot {
            Slot::Index(index) => Some(spanned(index, at)),
            Slot::Node(_) => None,
        };
        entry.state = self.state.unwrap_or(ObservedState::Running);
        entry.at = Some(time(self.at));
        entry.successor = self.successor.map(|next| {
            let LegacySuccessor { node, at, cause, .. } = next.value;
            spanned(SuccessorEntry::new(node, cause, ClockTime(at)), next.referenced)
        });
        Ok(entry)
    }
}

impl LegacyTrend {
    fn translated(self) -> TrendEntry {
        let shares = |cpu, memory| SharesEntry {
            cpu: Parsed(WorkedOut(cpu)),
            memory: Parsed(WorkedOut(memory)),
        };
        TrendEntry {
            at: time(self.at),
            mean: shares(self.cpu, self.memory),
            peak: shares(self.cpu_peak, self.memory_peak),
            hot: self.hot,
        }
    }
}

impl LegacyMove {
    fn translated(self) -> MoveEntry {
        let share = |share: Pressure| Parsed(WorkedOut(u64::from(share.millionths())));
        let shares = |it: LegacyShares| {
            let (LegacyShares::InOrder([cpu, memory])
            | LegacyShares::Named(NodePressure { cpu, memory })) = it;
            SharesEntry { cpu: share(cpu), memory: share(memory) }
        };
        MoveEntry { src: self.src, dst: self.dst, off: shares(self.off), on: shares(self.on) }
    }
}

impl LegacyCycle {
    fn translated(self) -> CycleEntry {
        let sample = |it: LegacySample| SampleEntry {
            at: it.at.map(time),
            cpu: Share(it.cpu),
            memory: Share(it.memory),
        };
        let usage =
            |it: LegacyUsage| UsageEntry { cpus: Parsed(it.cpu), memory: Parsed(it.memory) };
        let Spanned { value, referenced, .. } = self.at;
        CycleEntry {
            at: Some(spanned(time(value), referenced)),
            nodes: Pairs(self.nodes.0.into_iter().map(|(id, it)| (id, sample(it))).collect()),
            replicas: Pairs(self.replicas.0.into_iter().map(|(id, it)| (id, usage(it))).collect()),
        }
    }
}
