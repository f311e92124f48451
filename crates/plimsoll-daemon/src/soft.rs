//! What is measured and not written down: how busy nodes are, what replicas use, whether the runtime answers. It is gone
//! with the process, and comes back with the next measurement.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard};

use plimsoll_model::{Bytes, Generation, MilliCpus, NodeId, ReplicaId, Timestamp};
use plimsoll_runtime::Description;
use plimsoll_runtime::pressure::Reading;

/// The latest word on everything soft that this process knows.
#[derive(Debug, Default)]
pub struct Soft(Mutex<Facts>);

#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub nodes: BTreeMap<NodeId, NodeFact>,
    pub replicas: BTreeMap<(ReplicaId, Generation), ReplicaFact>,
    /// Published ports this node cannot listen on, and why.
    pub ports: BTreeMap<SocketAddr, String>,
}

/// What a node last said of itself.
#[derive(Debug, Clone, Default)]
pub struct NodeFact {
    pub heard_at: Option<Timestamp>,
    pub reading: Option<Reading>,
    pub runtime: Option<RuntimeFact>,
    pub version: Option<String>,
}

/// Whether a node's runtime answers, as of the last time it was asked.
#[derive(Debug, Clone)]
pub enum RuntimeFact {
    Answers(Description),
    /// With what it said instead.
    Silent {
        runtime: &'static str,
        trouble: String,
        since: Timestamp,
    },
}

/// What a node last said of one container.
#[derive(Debug, Clone, Copy, Default)]
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
        self.0.lock().expect("nothing panics while it holds the facts")
    }
}
