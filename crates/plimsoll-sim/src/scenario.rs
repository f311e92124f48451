//! What is simulated: the cell, how long its machines take, and what happens to it when.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_kernel::Policy;
use plimsoll_model::{
    DeploymentName, Millis, NodeFacts, NodeId, ServiceKey, ServiceName, ServiceSpec,
};

use crate::usage::Usage;

pub type Services = BTreeMap<ServiceName, Arc<ServiceSpec>>;

#[derive(Debug, Clone)]
pub struct Scenario {
    pub name: String,
    pub length: Millis,
    /// How often the leader looks at everything and nodes are measured.
    pub cycle: Millis,
    pub nodes: BTreeMap<NodeId, NodeFacts>,
    pub deployments: BTreeMap<DeploymentName, Services>,
    /// A service not named here uses what it reserves.
    pub usage: BTreeMap<ServiceKey, Usage>,
    pub dwell: Dwell,
    pub script: Vec<(Millis, Action)>,
    pub policy: Policy,
}

impl Scenario {
    pub fn new(name: &str, length: Millis) -> Self {
        Self {
            name: name.to_owned(),
            length,
            cycle: Millis::seconds(30),
            nodes: BTreeMap::new(),
            deployments: BTreeMap::new(),
            usage: BTreeMap::new(),
            dwell: Dwell::default(),
            script: Vec::new(),
            policy: Policy::default(),
        }
    }

    /// When the last scripted thing happens.
    pub fn last_action(&self) -> Millis {
        self.script.iter().map(|(at, _)| *at).max().unwrap_or_default()
    }
}

/// How long things take on a machine, at least and at most. Never nothing: an instant hides every race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dwell {
    pub pull: (Millis, Millis),
    pub start: (Millis, Millis),
    pub health: (Millis, Millis),
    pub stop: (Millis, Millis),
    /// From a node to the leader and back.
    pub network: (Millis, Millis),
    pub commit: (Millis, Millis),
    pub election: (Millis, Millis),
}

impl Default for Dwell {
    fn default() -> Self {
        let range = |least, most| (Millis(least), Millis(most));
        Self {
            pull: range(2_000, 15_000),
            start: range(200, 1_500),
            health: range(1_000, 6_000),
            stop: range(100, 10_000),
            network: range(1, 40),
            commit: range(2, 30),
            election: range(200, 3_000),
        }
    }
}

/// Something that happens to the cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The machine loses power; what ran on it is gone.
    Crash(NodeId),
    /// The machine runs on, but nobody hears of it.
    Cut(NodeId),
    /// Power or network are back.
    Return(NodeId),
    Join(NodeId, NodeFacts),
    Cordon(NodeId),
    Uncordon(NodeId),
    Drain(NodeId),
    /// What cannot move is stopped.
    Clear(NodeId),
    /// A running container ends by itself.
    Kill(NodeId),
    NewLeader,
    Deploy(DeploymentName, Services),
    Undeploy(DeploymentName),
    /// Every replica of the deployment is to start anew.
    Restart(DeploymentName),
    /// From now on containers of this image fail when started.
    Break(String),
    Mend(String),
}
