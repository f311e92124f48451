//! Why not: closed enums with the numbers that decided. Logs, audit and the CLI all render these values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::capability::Capability;
use crate::ids::{NodeId, ReplicaId, ServiceName};
use crate::preemption::PreemptedBy;
use crate::spec::{Constraint, HostPort, SpecHash};
use crate::units::{Bytes, MilliCpus, Millis, Resources, Timestamp};
use crate::volume_holds::HoldPurpose;

/// Why a node cannot take a replica. The order is the order in which they are checked and counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    NotReady,
    /// The node is heard, and its container runtime does not answer.
    RuntimeUnavailable,
    Cordoned,
    Draining,
    NotListed,
    Constraint {
        wants: Constraint,
        found: Option<String>,
    },
    /// The node's runtime lacks what the container needs.
    RuntimeLacks {
        runtime: String,
        needs: Capability,
    },
    /// A volume of it is on another node, and there is one of it in the cell.
    VolumeElsewhere {
        volume: String,
        node: NodeId,
    },
    /// Several nodes have the volume, and one is meant to: which of them, only a person knows.
    VolumeSplit {
        volume: String,
        nodes: BTreeSet<NodeId>,
    },
    /// The node has a copy of a volume that is not the data: an old one, or what is left of a move.
    VolumeCopy {
        volume: String,
    },
    /// What shares a volume with it could not go there too.
    VolumeSharer {
        service: ServiceName,
        why: Box<Filter>,
    },
    NoGpu {
        asked: GpusAsked,
        capacity: u32,
    },
    InsufficientCapacity(Shortage),
    PortTaken {
        port: HostPort,
        by: ReplicaId,
    },
    MaxPerNode {
        has: u32,
        max: u32,
    },
    /// Not shut out, only the last choice: every other node is tried first.
    RecentFailures {
        failures: u32,
        within: Millis,
    },
}

/// What a node has too little of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shortage {
    Cpu {
        asked: MilliCpus,
        free: MilliCpus,
    },
    Memory {
        asked: Bytes,
        free: Bytes,
    },
    Gpus {
        asked: GpusAsked,
        free: u32,
    },
    /// It holds as many as a node may, however little they ask for.
    Replicas {
        has: u32,
    },
}

/// How many GPUs a replica asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpusAsked {
    Count(u32),
    /// Every one that its node has, and at least one.
    All,
}

impl GpusAsked {
    /// What the request asks for, which is that of one replica.
    pub fn of(request: Resources) -> Self {
        if request.all_gpus > 0 { Self::All } else { Self::Count(request.gpus) }
    }
}

impl fmt::Display for GpusAsked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count} gpu"),
            Self::All => f.write_str("all gpus"),
        }
    }
}

/// A filter without its numbers, for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterWord {
    NotReady,
    RuntimeUnavailable,
    Cordoned,
    Draining,
    NotListed,
    Constraint,
    RuntimeLacks,
    VolumeElsewhere,
    VolumeSplit,
    VolumeCopy,
    VolumeSharer,
    NoGpu,
    InsufficientCapacity,
    PortTaken,
    MaxPerNode,
    RecentFailures,
    /// Not a filter of a node: another replica goes by the id this one would have there.
    IdTaken,
}

impl Filter {
    pub fn word(&self) -> FilterWord {
        match self {
            Self::NotReady => FilterWord::NotReady,
            Self::RuntimeUnavailable => FilterWord::RuntimeUnavailable,
            Self::Cordoned => FilterWord::Cordoned,
            Self::Draining => FilterWord::Draining,
            Self::NotListed => FilterWord::NotListed,
            Self::Constraint { .. } => FilterWord::Constraint,
            Self::RuntimeLacks { .. } => FilterWord::RuntimeLacks,
            Self::VolumeElsewhere { .. } => FilterWord::VolumeElsewhere,
            Self::VolumeSplit { .. } => FilterWord::VolumeSplit,
            Self::VolumeCopy { .. } => FilterWord::VolumeCopy,
            Self::VolumeSharer { .. } => FilterWord::VolumeSharer,
            Self::NoGpu { .. } => FilterWord::NoGpu,
            Self::InsufficientCapacity(_) => FilterWord::InsufficientCapacity,
            Self::PortTaken { .. } => FilterWord::PortTaken,
            Self::MaxPerNode { .. } => FilterWord::MaxPerNode,
            Self::RecentFailures { .. } => FilterWord::RecentFailures,
        }
    }
}

impl fmt::Display for FilterWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NotReady => "not_ready",
            Self::RuntimeUnavailable => "runtime_unavailable",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
            Self::NotListed => "not_listed",
            Self::Constraint => "constraint",
            Self::RuntimeLacks => "runtime_lacks",
            Self::VolumeElsewhere => "volume_elsewhere",
            Self::VolumeSplit => "volume_split",
            Self::VolumeCopy => "volume_copy",
            Self::VolumeSharer => "volume_sharer",
            Self::NoGpu => "no_gpu",
            Self::InsufficientCapacity => "insufficient_capacity",
            Self::PortTaken => "port_taken",
            Self::MaxPerNode => "max_per_node",
            Self::RecentFailures => "recent_failures",
            Self::IdTaken => "id_taken",
        })
    }
}

/// The numbers, as a person reads them beside the word.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("the node is down"),
            Self::RuntimeUnavailable => f.write_str("its container runtime does not answer"),
            Self::Cordoned => f.write_str("an operator cordoned it"),
            Self::Draining => f.write_str("it is being drained"),
            Self::NotListed => f.write_str("not among the service's hosts"),
            Self::Constraint { wants, found: Some(found) } => {
                write!(f, "wants {wants}, has {found}")
            }
            Self::Constraint { wants, found: None } => write!(f, "wants {wants}, has none"),
            Self::RuntimeLacks { runtime, needs } => {
                write!(f, "the {runtime} runtime cannot {needs}")
            }
            Self::VolumeElsewhere { volume, node } => write!(f, "volume {volume} is on {node}"),
            Self::VolumeSplit { volume, nodes } => {
                let names: Vec<&str> = nodes.iter().map(NodeId::as_str).collect();
                write!(f, "volume {volume} is on {} nodes: {}", nodes.len(), names.join(", "))
            }
            Self::VolumeCopy { volume } => {
                write!(f, "it has an old copy of volume {volume}, which nothing may use")
            }
            Self::VolumeSharer { service, why } => {
                write!(f, "{service} shares a volume with it and cannot go there: {why}")
            }
            Self::NoGpu { asked, capacity } => {
                write!(f, "asks for {asked}, the node has {capacity}")
            }
            Self::InsufficientCapacity(shortage) => shortage.fmt(f),
            Self::PortTaken { port, by } => write!(f, "{by} holds {port}"),
            Self::MaxPerNode { has, max } => write!(f, "holds {has} of at most {max}"),
            Self::RecentFailures { failures, within } => {
                write!(f, "failed here {failures} times in {within}; the last choice")
            }
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_over = match self {
            Self::Cpu { asked, free } => asked <= free,
            Self::Memory { asked, free } => asked <= free,
            Self::Gpus { asked: GpusAsked::Count(asked), free } => asked <= free,
            Self::Gpus { asked: GpusAsked::All, .. } | Self::Replicas { .. } => false,
        };
        match self {
            // Whatever is asked for, a node that promised more than it has gives nothing.
            Self::Cpu { .. } if is_over => f.write_str("more cpu is set aside than the node has"),
            Self::Memory { .. } if is_over => {
                f.write_str("more memory is set aside than the node has")
            }
            Self::Gpus { .. } if is_over => {
                f.write_str("more gpus are set aside than the node has")
            }
            Self::Cpu { asked, free } => write!(f, "asks for {asked} cpu, {free} free"),
            Self::Memory { asked, free } => write!(f, "asks for {asked}, {free} free"),
            Self::Gpus { asked, free } => write!(f, "asks for {asked}, {free} free"),
            Self::Replicas { has } => write!(f, "holds {has} replicas, the most a node may"),
        }
    }
}

/// Why replicas of a service have no place. Written once; it clears itself when they have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unplaced {
    pub missing: u32,
    pub why: UnplacedReason,
    pub since: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnplacedReason {
    /// The cell has no nodes at all.
    NoNodes,
    /// How many of the nodes each filter turned away.
    NoEligibleNode { nodes: u32, turned_away: BTreeMap<FilterWord, u32> },
    /// Replicas were stopped for one of higher priority, and no other node can take them; how many nodes each filter turned
    /// away.
    Preempted { by: Box<PreemptedBy>, nodes: u32, turned_away: BTreeMap<FilterWord, u32> },
    /// No node has room, and replicas of lower priority make way on one of them until then.
    Preempting { node: NodeId, victims: u32, until: Timestamp },
    /// What the scheduler decided for the service was refused twice by the state: a bug in plimsoll. It is tried again later
    /// and at the next apply; everything else goes on.
    DecisionRefused { why: String },
    /// `hosts` placement waits until enough of its nodes are ready.
    CannotSatisfyHostPlacement { needed: u32, missing: BTreeSet<NodeId> },
    /// It is stopped while its volumes move to another node.
    VolumeMoving { to: NodeId },
    /// It is stopped while a volume of it is backed up or restored.
    VolumeHeld { volume: String, purpose: HoldPurpose },
}

impl UnplacedReason {
    pub fn word(&self) -> &'static str {
        match self {
            Self::NoNodes => "no_nodes",
            Self::NoEligibleNode { .. } => "no_eligible_node",
            Self::Preempted { .. } => "preempted",
            Self::Preempting { .. } => "preempting",
            Self::DecisionRefused { .. } => "decision_refused",
            Self::CannotSatisfyHostPlacement { .. } => "cannot_satisfy_host_placement",
            Self::VolumeMoving { .. } => "volume_moving",
            Self::VolumeHeld { .. } => "volume_held",
        }
    }
}

impl fmt::Display for UnplacedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodes => f.write_str("the cell has no nodes"),
            Self::NoEligibleNode { nodes, turned_away } => nobody_can(f, *nodes, turned_away),
            Self::Preempted { by, nodes, turned_away } => {
                write!(f, "{by}; ")?;
                nobody_can(f, *nodes, turned_away)
            }
            Self::Preempting { node, victims: 1, .. } => {
                write!(f, "1 replica of lower priority makes way for it on {node}")
            }
            Self::Preempting { node, victims, .. } => {
                write!(f, "{victims} replicas of lower priority make way for it on {node}")
            }
            Self::DecisionRefused { why } => {
                write!(f, "the state refused what was decided for it: {why}")
            }
            Self::CannotSatisfyHostPlacement { needed, missing } => {
                let names: Vec<&str> = missing.iter().map(NodeId::as_str).collect();
                write!(f, "needs {needed} ready hosts; missing: {}", names.join(", "))
            }
            Self::VolumeMoving { to } => write!(f, "stopped while its volumes move to {to}"),
            Self::VolumeHeld { volume, purpose } => {
                write!(f, "stopped for the {} of volume {volume}", purpose.noun())
            }
        }
    }
}

fn nobody_can(
    f: &mut fmt::Formatter<'_>,
    nodes: u32,
    turned_away: &BTreeMap<FilterWord, u32>,
) -> fmt::Result {
    write!(f, "0 of {nodes} nodes can take it")?;
    for (i, (word, count)) in turned_away.iter().enumerate() {
        write!(f, "{} {count} {word}", if i == 0 { ":" } else { "," })?;
    }
    Ok(())
}

/// Why a replica that should move stays for now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// Its data lives on its node, so no loop moves it.
    Stateful,
    /// So many nodes vanished at once that the fault is more likely ours.
    MassLoss { down: u32, nodes: u32 },
    /// Nowhere else can take it.
    NoPlace(UnplacedReason),
    /// Its new copy would take the place of its old one and does not fit there. The old one runs on.
    NoRoomInPlace(Filter),
    /// It makes way for a replica of higher priority and finds no room elsewhere: it is stopped then.
    Preempted { by: Box<PreemptedBy>, until: Timestamp },
    /// The new spec did not become healthy once; it is not tried again until another one is applied.
    Stalled { spec: SpecHash },
    /// It is a job and runs: to move it is to run it twice, so it stays until it has ended.
    JobRunning,
}

impl WaitReason {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Stateful => "stateful",
            Self::MassLoss { .. } => "mass_loss",
            Self::NoPlace(why) => why.word(),
            Self::NoRoomInPlace(_) => "no_room_in_place",
            Self::Preempted { .. } => "preempted",
            Self::Stalled { .. } => "stalled",
            Self::JobRunning => "job_running",
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stateful => f.write_str("its data lives on its node"),
            Self::MassLoss { down, nodes } => {
                write!(
                    f,
                    "{down} of {nodes} nodes are down or have no runtime; replacement pauses above half"
                )
            }
            Self::NoPlace(why) => why.fmt(f),
            Self::NoRoomInPlace(filter) => {
                write!(f, "the new copy does not fit on its node: {filter}")
            }
            Self::Preempted { by, .. } => {
                let PreemptedBy { by, node, priority, own } = &**by;
                write!(
                    f,
                    "it makes way on {node} for {by} (priority {priority}, its own is {own}) and \
                     finds no room elsewhere"
                )
            }
            Self::Stalled { spec } => write!(f, "spec {} did not become healthy", spec.short()),
            Self::JobRunning => f.write_str("its job runs, and is not moved before it ends"),
        }
    }
}

/// Why a move was given up. The original was never touched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbandonReason {
    /// The destination failed to run it.
    SuccessorFailed,
    /// It did not get healthy in time.
    TimedOut,
    /// The destination went down first.
    DestinationLost,
    /// The reason for the move went away: the lost node returned, or the spec changed again.
    Needless,
}

impl AbandonReason {
    pub fn word(&self) -> &'static str {
        match self {
            Self::SuccessorFailed => "successor_failed",
            Self::TimedOut => "timed_out",
            Self::DestinationLost => "destination_lost",
            Self::Needless => "needless",
        }
    }
}
