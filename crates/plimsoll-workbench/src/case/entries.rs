//! The words that only a case has, as they are written.

use plimsoll_model::{
    Bytes, CellId, Generation, MilliCpus, MoveCause, NodeId, ObservedState, SpecHash,
};
use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::entries::deployment::DeploymentEntry;
use crate::entries::node::NodeEntry;
use crate::entries::values::{ClockTime, Pairs, Parsed, ServiceRef, Share, WorkedOut};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseEntry {
    #[serde(rename = "cell", alias = "cluster")]
    pub(super) cell_id: Option<CellId>,
    pub(super) nodes: Vec<NodeEntry>,
    #[serde(default)]
    pub(super) deployments: Vec<Spanned<DeploymentEntry>>,
    #[serde(default)]
    pub(super) replicas: Vec<ReplicaEntry>,
    /// Where the next replica of a service does not get the index after the last: those between have ended.
    #[serde(default)]
    pub(super) next_index: Pairs<Spanned<ServiceRef>, u32>,
    /// What the leader remembered before the first cycle; nothing: it is new.
    #[serde(default)]
    pub(super) memory: MemoryEntry,
    /// How long a move takes: it is done before the first cycle after that.
    pub(super) moves_take: Option<Parsed<ClockTime>>,
    pub(super) cycles: Option<Vec<CycleEntry>>,
    /// It has a form in which two replicas could hold one port of a node.
    #[serde(skip)]
    pub(super) may_share_ports: bool,
}

/// A replica that exists when the scheduler looks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplicaEntry {
    pub(super) service: Spanned<ServiceRef>,
    pub(super) index: Option<Spanned<u32>>,
    pub(super) node: Spanned<NodeId>,
    #[serde(default = "running")]
    pub(super) state: ObservedState,
    /// What it runs, where that is not the service's image: it was started from an older spec.
    pub(super) image: Option<String>,
    /// Likewise, by the hash of that spec.
    pub(super) spec: Option<SpecHash>,
    /// When it was placed or moved there; long ago.
    pub(super) at: Option<Parsed<ClockTime>>,
    /// Which assignment that was in the cell that wrote the case: a replay numbers its own.
    #[serde(default, rename = "generation")]
    _generation: Option<Generation>,
    /// Where it is going.
    pub(super) successor: Option<Spanned<SuccessorEntry>>,
}

fn running() -> ObservedState {
    ObservedState::Running
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuccessorEntry {
    pub(super) node: Spanned<NodeId>,
    pub(super) cause: MoveCause,
    /// None where its node has reported nothing yet.
    pub(super) state: Option<ObservedState>,
    pub(super) at: Option<Parsed<ClockTime>>,
    #[serde(default, rename = "generation")]
    _generation: Option<Generation>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct MemoryEntry {
    pub(super) nodes: Pairs<Spanned<NodeId>, TrendEntry>,
    pub(super) moving: Pairs<Spanned<String>, MoveEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrendEntry {
    /// Of the last sample.
    pub(super) at: Parsed<ClockTime>,
    pub(super) mean: SharesEntry<12>,
    pub(super) peak: SharesEntry<12>,
    pub(super) hot: u32,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SharesEntry<const PLACES: u32> {
    pub(super) cpu: Parsed<WorkedOut<PLACES>>,
    pub(super) memory: Parsed<WorkedOut<PLACES>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MoveEntry {
    pub(super) src: Spanned<NodeId>,
    pub(super) dst: Spanned<NodeId>,
    pub(super) off: SharesEntry<6>,
    pub(super) on: SharesEntry<6>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CycleEntry {
    /// Half a minute after the one before, if left out.
    pub(super) at: Option<Spanned<Parsed<ClockTime>>>,
    /// Nodes that are missing said nothing of late.
    #[serde(default)]
    pub(super) nodes: Pairs<Spanned<NodeId>, SampleEntry>,
    /// What replicas use, smoothed.
    #[serde(default)]
    pub(super) replicas: Pairs<Spanned<String>, UsageEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SampleEntry {
    /// When it was taken; with the cycle if left out.
    pub(super) at: Option<Parsed<ClockTime>>,
    pub(super) cpu: Share,
    pub(super) memory: Share,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageEntry {
    pub(super) cpus: Parsed<MilliCpus>,
    pub(super) memory: Parsed<Bytes>,
}

impl ReplicaEntry {
    /// One that runs, and of which nothing else is known.
    pub(super) fn new(service: Spanned<ServiceRef>, node: Spanned<NodeId>) -> Self {
        Self {
            service,
            index: None,
            node,
            state: running(),
            image: None,
            spec: None,
            at: None,
            _generation: None,
            successor: None,
        }
    }
}

impl SuccessorEntry {
    pub(super) fn new(node: Spanned<NodeId>, cause: MoveCause, at: ClockTime) -> Self {
        Self { node, cause, state: None, at: Some(Parsed(at)), _generation: None }
    }
}
