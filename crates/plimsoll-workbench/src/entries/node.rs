//! A node as it is written, or many alike, and what it is to the cell.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::{
    Availability, Bytes, Capability, MilliCpus, Millis, NodeFacts, NodeId, NodeStatus, Resources,
    Zone,
};
use serde::Deserialize;
use serde_saphyr::{Location, Spanned};

use super::values::{ClockTime, Parsed, Share};
use crate::mistake::Mistake;

/// The most nodes a file may describe: ten times the largest cell plimsoll is measured on.
pub(crate) const MAX_NODES: usize = 100_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeEntry {
    pub(crate) name: Spanned<NodeId>,
    /// So many alike, named `name-1` and on.
    count: Option<Spanned<usize>>,
    cpus: Parsed<MilliCpus>,
    memory: Parsed<Bytes>,
    #[serde(default)]
    gpus: u32,
    pub(crate) zone: Option<Spanned<Zone>>,
    /// Dealt in turn to the nodes of a `count`.
    zones: Option<Spanned<Vec<Zone>>>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    os: Option<String>,
    arch: Option<String>,
    /// What its runtime cannot do.
    #[serde(default)]
    lacks: BTreeSet<Capability>,
    pub(crate) status: Option<Spanned<NodeStatus>>,
    /// How long it has been down; by default long enough to be given up.
    pub(crate) down_for: Option<Spanned<Parsed<Millis>>>,
    /// How long its container runtime has not answered; it answers where this is left out.
    pub(crate) runtime_down_for: Option<Spanned<Parsed<Millis>>>,
    pub(crate) availability: Option<Spanned<Availability>>,
    pub(crate) pressure: Option<Spanned<PressureEntry>>,
    /// All that is set aside there; what is not accounted for by replicas is held by something that stays.
    pub(crate) reserved: Option<Spanned<ReservedEntry>>,
    /// When a replica was last sent there for relief.
    pub(crate) received_at: Option<Spanned<Parsed<ClockTime>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReservedEntry {
    cpus: Option<Parsed<MilliCpus>>,
    memory: Option<Parsed<Bytes>>,
    #[serde(default)]
    gpus: u32,
}

impl From<&ReservedEntry> for Resources {
    fn from(entry: &ReservedEntry) -> Self {
        Self {
            cpu: entry.cpus.map_or(MilliCpus(0), |cpus| cpus.0),
            memory: entry.memory.map_or(Bytes(0), |memory| memory.0),
            gpus: entry.gpus,
            all_gpus: 0,
        }
    }
}

impl From<Resources> for ReservedEntry {
    fn from(Resources { cpu, memory, gpus, .. }: Resources) -> Self {
        Self { cpus: Some(Parsed(cpu)), memory: Some(Parsed(memory)), gpus }
    }
}

/// Shares of the node in use, as it would measure them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PressureEntry {
    pub(crate) cpu: Share,
    pub(crate) memory: Share,
}

impl NodeEntry {
    /// One node with nothing said beyond what it has.
    pub(crate) fn new(name: Spanned<NodeId>, capacity: Resources) -> Self {
        Self {
            name,
            count: None,
            cpus: Parsed(capacity.cpu),
            memory: Parsed(capacity.memory),
            gpus: capacity.gpus,
            zone: None,
            zones: None,
            labels: BTreeMap::new(),
            os: None,
            arch: None,
            lacks: BTreeSet::new(),
            status: None,
            down_for: None,
            runtime_down_for: None,
            availability: None,
            pressure: None,
            reserved: None,
            received_at: None,
        }
    }

    /// The nodes this entry stands for.
    pub(crate) fn nodes(&self) -> Result<Vec<(NodeId, NodeFacts)>, Mistake> {
        let (name, at) = (&self.name.value, self.name.referenced);
        if let (Some(_), Some(zones)) = (&self.zone, &self.zones) {
            let mistake = Mistake::new(zones.referenced, "the node has both `zone` and `zones`");
            return Err(mistake.hint("keep one of the two"));
        }
        let Some(count) = &self.count else {
            if let Some(zones) = &self.zones {
                let message = format!("`zones` deals zones to several nodes, and {name} is one");
                return Err(Mistake::new(zones.referenced, message)
                    .hint("write `zone`, or say how many nodes with `count`"));
            }
            return Ok(vec![(name.clone(), self.facts(0))]);
        };
        if count.value == 0 || count.value > MAX_NODES {
            let message =
                format!("`count` must be between 1 and {MAX_NODES}, found {}", count.value);
            return Err(Mistake::new(count.referenced, message));
        }
        let one = |at_name: usize| {
            let id = NodeId::new(format!("{name}-{}", at_name + 1));
            id.map(|id| (id, self.facts(at_name)))
        };
        let nodes = (0..count.value).map(one).collect::<Result<_, _>>();
        nodes.map_err(|invalid| Mistake::new(at, invalid.to_string()))
    }

    fn facts(&self, turn: usize) -> NodeFacts {
        let (cpu, memory, gpus) = (self.cpus.0, self.memory.0, self.gpus);
        let capacity = Resources { cpu, memory, gpus, all_gpus: 0 };
        let mut facts = NodeFacts::new(capacity);
        let zones = self.zones.as_ref().map_or(&[][..], |zones| &zones.value);
        let dealt = (!zones.is_empty()).then(|| zones[turn % zones.len()].clone());
        facts.zone = dealt.or_else(|| self.zone.as_ref().map(|zone| zone.value.clone()));
        facts.labels.clone_from(&self.labels);
        facts.os = self.os.clone().unwrap_or(facts.os);
        facts.arch = self.arch.clone().unwrap_or(facts.arch);
        facts.runtime.lacks.clone_from(&self.lacks);
        facts
    }

    /// The first thing it says of the node at one moment, which only a case has.
    pub(crate) fn momentary(&self) -> Option<(&'static str, Location)> {
        let status = self.status.as_ref().map(|status| ("status", status.referenced));
        let down_for = self.down_for.as_ref().map(|down_for| ("down_for", down_for.referenced));
        let outage = self.runtime_down_for.as_ref().map(|it| ("runtime_down_for", it.referenced));
        let down_for = down_for.or(outage);
        let availability = self.availability.as_ref().map(|a| ("availability", a.referenced));
        let pressure = self.pressure.as_ref().map(|p| ("pressure", p.referenced));
        let reserved = self.reserved.as_ref().map(|it| ("reserved", it.referenced));
        let received_at = self.received_at.as_ref().map(|it| ("received_at", it.referenced));
        status.or(down_for).or(availability).or(pressure).or(reserved).or(received_at)
    }
}

/// Where each node was first named: no two go by one name.
#[derive(Debug, Default)]
pub(crate) struct NodeNames(BTreeMap<NodeId, Location>);

impl NodeNames {
    /// The node has left: another may go by its name.
    pub(crate) fn forget(&mut self, name: &NodeId) {
        self.0.remove(name);
    }

    pub(crate) fn add(&mut self, name: &NodeId, at: Location) -> Result<(), Mistake> {
        if let Some(first) = self.0.insert(name.clone(), at) {
            let message = format!("node {name} is there twice, first on line {}", first.line());
            return Err(Mistake::new(at, message).hint("give one of them another name"));
        }
        if self.0.len() > MAX_NODES {
            return Err(Mistake::new(at, format!("there are more than {MAX_NODES} nodes")));
        }
        Ok(())
    }
}
