//! What nodes last said of themselves and of their containers. It is gone with the process, and comes back with the next
//! heartbeat.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::MutexGuard;

use plimsoll_api::view::Runtime;
use plimsoll_kernel::rebalance::ReplicaUsage;
use plimsoll_kernel::{Policy, PressureSample, Signals};
use plimsoll_model::{Bytes, Generation, MilliCpus, NodeId, Replica, ReplicaId, State, Timestamp};
use plimsoll_runtime::pressure::PressureReading;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::shared::Shared;

/// A leader's of the whole cell, any other node's of itself.
#[derive(Debug, Clone, Default)]
pub struct Measurements {
    pub nodes: BTreeMap<NodeId, NodeMeasurement>,
    pub replicas: BTreeMap<(ReplicaId, Generation), ReplicaMeasurement>,
}

/// What a node last said of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeMeasurement {
    /// By the clock of whoever heard it: a node's own may be wrong.
    pub heard_at: Option<Timestamp>,
    pub reading: Option<PressureReading>,
    /// When that was measured, by the same clock.
    pub measured_at: Option<Timestamp>,
    /// Its runtime, as of the last time it was asked.
    pub runtime: Option<Runtime>,
    pub version: Option<String>,
}

impl NodeMeasurement {
    /// How busy it said it is, as decisions take it.
    pub fn sample(&self) -> Option<PressureSample> {
        let pressure = self.reading.as_ref()?.pressure()?;
        Some(PressureSample { at: self.measured_at?, pressure })
    }
}

/// What a node last said of one container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReplicaMeasurement {
    pub cpu: Option<MilliCpus>,
    pub memory: Option<Bytes>,
    /// Failures in a row.
    pub failures: u32,
    /// When the next try is due.
    pub next_try: Option<Timestamp>,
    /// Where this node reaches its ports.
    pub address: Option<IpAddr>,
    /// The checks that failed since it was started, while none has passed.
    pub failed_checks: Option<FailedChecks>,
}

/// Health checks that failed in a row. What the first printed is in the log as the reason; what the last printed is only
/// measured: a log entry a check would be many, and each would put off the deadline of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedChecks {
    pub count: u32,
    /// At most [`MAX_CHECK_OUTPUT`] bytes of it.
    pub last_output: String,
}

/// What a heartbeat carries of a check's output: a few lines, of each replica that does not become healthy.
pub const MAX_CHECK_OUTPUT: usize = 512;

impl FailedChecks {
    pub fn new(count: u32, mut last_output: String) -> Self {
        last_output.truncate(last_output.floor_char_boundary(MAX_CHECK_OUTPUT));
        Self { count, last_output }
    }
}

/// `no such file (12 checks failed in a row)`
impl fmt::Display for FailedChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, last_output } = self;
        match count {
            0 | 1 => f.write_str(last_output),
            _ => write!(f, "{last_output} ({count} checks failed in a row)"),
        }
    }
}

impl ReplicaMeasurement {
    fn usage(&self) -> Option<ReplicaUsage> {
        Some(ReplicaUsage { cpu: self.cpu?, memory: self.memory? })
    }
}

impl Measurements {
    /// How busy nodes are, as the leader takes it into its decisions: what explains a decision must see what decided it.
    pub fn signals(&self, policy: &Policy, now: Timestamp) -> Signals {
        let mut signals = Signals::default();
        for (node, measured) in &self.nodes {
            let sample = measured.sample();
            signals.set(node, sample.and_then(|sample| sample.fresh_pressure(policy, now)));
        }
        signals
    }

    /// What containers were found to use.
    pub fn usages(&self) -> impl Iterator<Item = (&ReplicaId, Generation, ReplicaUsage)> {
        let measured = self.replicas.iter();
        measured.filter_map(|((id, generation), it)| Some((id, *generation, it.usage()?)))
    }

    /// Forgets containers that the cell holds nowhere any more: their nodes say nothing of them, and nobody else takes them
    /// out.
    pub fn forget_gone(&mut self, state: &State) {
        self.replicas.retain(|(id, generation), _| {
            let held = state.replica(id).into_iter().flat_map(Replica::holds);
            held.into_iter().any(|held| held.generation == *generation)
        });
    }
}

/// The measurements as the loops of a daemon share them.
#[derive(Debug, Clone, Default)]
pub struct SharedMeasurements {
    latest: Shared<Measurements>,
    /// Says that a container of this node is reached elsewhere than before.
    moved: watch::Sender<()>,
}

impl SharedMeasurements {
    pub fn lock(&self) -> MutexGuard<'_, Measurements> {
        self.latest.lock()
    }

    /// Takes note of where a container of this node is reached, and tells who waits for that.
    pub fn reach(&self, replica: ReplicaId, generation: Generation, address: Option<IpAddr>) {
        let mut latest = self.lock();
        let measured = latest.replicas.entry((replica, generation)).or_default();
        let before = std::mem::replace(&mut measured.address, address);
        drop(latest);
        if before != address {
            self.moved.send_replace(());
        }
    }

    /// Changes whenever a container of this node is reached elsewhere than before.
    pub fn moved(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::testkit::{cell, cpus, replica_id, spread};
    use plimsoll_model::{Change, Writer};

    use super::*;

    #[test]
    fn what_the_cell_holds_nowhere_any_more_is_forgotten() {
        let mut cell = cell().node("ash", cpus(4)).deploy("d", [("s", spread(1))]);
        let (runs, ended) = (replica_id("d/s/1"), replica_id("d/s/7"));
        let spec = cell.state.service(&runs.service).unwrap().desired().unwrap().hash;
        let node = cell.state.nodes().keys().next().unwrap().clone();
        let place = Change::Place { replica: runs.clone(), node, spec };
        cell.apply(Writer::Scheduler, vec![place.free()]).unwrap();
        let held = cell.state.replica(&runs).unwrap().assignment.as_ref().unwrap().generation;
        let mut measured = Measurements::default();
        for key in [(runs.clone(), held), (runs.clone(), Generation(99)), (ended, Generation(1))] {
            measured.replicas.insert(key, ReplicaMeasurement::default());
        }
        measured.forget_gone(&cell.state);
        let known: Vec<_> = measured.replicas.into_keys().collect();
        assert_eq!(known, [(runs, held)], "what runs is still known");
    }
}
