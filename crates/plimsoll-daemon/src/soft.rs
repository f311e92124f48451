//! What is measured and not written down: how busy nodes are, what replicas use, whether the runtime answers. It is gone
//! with the process, and comes back with the next measurement.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard};

use plimsoll_model::{
    Bytes, Generation, Level, MilliCpus, NodeId, ReplicaId, ServiceKey, Timestamp,
};
use plimsoll_runtime::pressure::Reading;
use serde::{Deserialize, Serialize};

use crate::cluster::quorum::Quorum;
use crate::relief::Reliever;
use crate::view::{Problem, Runtime};

/// The latest word on everything soft that this process knows.
#[derive(Debug, Default)]
pub struct Soft {
    facts: Mutex<Facts>,
    /// What the relief of hot nodes remembers; none where this node does not lead.
    relief: Mutex<Option<Reliever>>,
}

#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub nodes: BTreeMap<NodeId, NodeFact>,
    pub replicas: BTreeMap<(ReplicaId, Generation), ReplicaFact>,
    /// Published ports this node does not listen on for their services, and why, as a sentence.
    pub ports: BTreeMap<(ServiceKey, SocketAddr), String>,
    /// Which servers answered when they were last asked; none while somebody leads.
    pub quorum: Option<Quorum>,
    /// What each node can read that has a link to this one, with the number of its word.
    pub levels: BTreeMap<NodeId, (u64, Level)>,
    /// How many words on that there were.
    pub words: u64,
    /// Nodes of the cell that were turned away here as too old, and what they were told.
    pub turned_away: BTreeMap<NodeId, Problem>,
    /// What the leader said when it turned this node away as too old.
    pub outdated: Option<Problem>,
}

/// What a node last said of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeFact {
    /// By the clock of whoever heard it: a node's own may be wrong.
    pub heard_at: Option<Timestamp>,
    pub reading: Option<Reading>,
    /// When that was measured, by the same clock.
    pub measured_at: Option<Timestamp>,
    /// Its runtime, as of the last time it was asked.
    pub runtime: Option<Runtime>,
    pub version: Option<String>,
}

/// What a node last said of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReplicaFact {
    pub cpu: Option<MilliCpus>,
    pub memory: Option<Bytes>,
    /// Failures in a row.
    pub failures: u32,
    /// When the next try is due.
    pub next_try: Option<Timestamp>,
    /// Where this node reaches its ports.
    pub address: Option<IpAddr>,
}

impl Soft {
    /// Let it be brief: the loops wait for it.
    pub fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().expect("nothing panics while it holds the facts")
    }

    /// Whoever needs the state as well takes the state first.
    pub fn relief(&self) -> MutexGuard<'_, Option<Reliever>> {
        self.relief.lock().expect("nothing panics while it holds the relief")
    }
}
