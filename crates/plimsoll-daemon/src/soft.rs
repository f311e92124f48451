//! What is measured and not written down: how busy nodes are, what replicas use, whether the runtime answers. It is gone
//! with the process, and comes back with the next measurement.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use plimsoll_model::{
    Bytes, Generation, Level, MilliCpus, NodeId, Replica, ReplicaId, ServiceKey, State, Timestamp,
};
use plimsoll_runtime::pressure::Reading;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::cluster::quorum::Quorum;
use crate::relief::Reliever;
use crate::routing::chart::{Chart, Correction};
use crate::view::{Problem, Runtime};

/// The latest word on everything soft that this process knows.
#[derive(Debug, Default)]
pub struct Soft {
    facts: Mutex<Facts>,
    /// What the relief of hot nodes remembers; none where this node does not lead.
    relief: Mutex<Option<Reliever>>,
    /// Says that a container of this node is reached elsewhere than before.
    moved: watch::Sender<()>,
    /// What routers go by: as this node's log has it, or as the leader told it. None while neither is known.
    chart: watch::Sender<Option<Arc<Chart>>>,
}

#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub nodes: BTreeMap<NodeId, NodeFact>,
    pub replicas: BTreeMap<(ReplicaId, Generation), ReplicaFact>,
    /// Published ports this node does not listen on for their services, and why, as a sentence.
    pub ports: BTreeMap<(ServiceKey, SocketAddr), String>,
    /// Whether this node takes requests for routes in the clear, and whether under TLS.
    pub entrances: (bool, bool),
    /// Hosts of routes that this node has no certificate for, and why, as a sentence.
    pub certificates: BTreeMap<String, String>,
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

impl Facts {
    /// Containers that the cell holds nowhere any more: their nodes say nothing of them, and nobody else takes them out.
    pub fn gone(&self, state: &State) -> Vec<(ReplicaId, Generation)> {
        let is_held = |(id, generation): &&(ReplicaId, Generation)| {
            let held = state.replica(id).into_iter().flat_map(Replica::holds);
            held.into_iter().any(|held| held.generation == *generation)
        };
        self.replicas.keys().filter(|key| !is_held(key)).cloned().collect()
    }

    pub fn forget(&mut self, gone: &[(ReplicaId, Generation)]) {
        for key in gone {
            self.replicas.remove(key);
        }
    }
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

    /// Takes note of where a container of this node is reached, and tells who waits for that.
    pub fn reach(&self, replica: ReplicaId, generation: Generation, address: Option<IpAddr>) {
        let mut facts = self.facts();
        let fact = facts.replicas.entry((replica, generation)).or_default();
        let before = std::mem::replace(&mut fact.address, address);
        drop(facts);
        if before != address {
            self.moved.send_replace(());
        }
    }

    pub fn chart(&self) -> Option<Arc<Chart>> {
        self.chart.borrow().clone()
    }

    /// The chart, as it changes.
    pub fn charts(&self) -> watch::Receiver<Option<Arc<Chart>>> {
        self.chart.subscribe()
    }

    pub fn chart_is(&self, chart: Chart) {
        self.chart.send_if_modified(|known| {
            let is_new = known.as_deref() != Some(&chart);
            if is_new {
                *known = Some(Arc::new(chart));
            }
            is_new
        });
    }

    /// The leader says what has changed of the chart.
    pub fn correct_chart(&self, correction: Correction) {
        let known = self.chart().unwrap_or_default();
        self.chart_is(known.corrected(correction));
    }

    /// Changes whenever a container of this node is reached elsewhere than before.
    pub fn moved(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
    }
}
