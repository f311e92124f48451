//! A host that runs replicas, as the cell knows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::access::Digest;
use crate::capability::RuntimeFacts;
use crate::ids::{NodeId, Zone};
use crate::spec::{Attribute, Constraint};
use crate::transition::{Edge, Writer};
use crate::units::{Millis, Resources, Timestamp};

/// What a node says of itself when it joins, and again when it changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    pub capacity: Resources,
    pub zone: Option<Zone>,
    pub labels: BTreeMap<String, String>,
    pub os: String,
    pub arch: String,
    pub runtime: RuntimeFacts,
    /// Where other nodes reach it; none while it is alone.
    pub address: Option<String>,
    /// Of the program it runs.
    pub version: String,
    /// Where operators reach its API over the network; none where it does not listen there.
    pub api: Option<String>,
}

impl NodeFacts {
    pub fn new(capacity: Resources) -> Self {
        Self {
            capacity,
            zone: None,
            labels: BTreeMap::new(),
            os: "linux".to_owned(),
            arch: "x86_64".to_owned(),
            runtime: RuntimeFacts::default(),
            address: None,
            version: String::new(),
            api: None,
        }
    }

    /// What this node has under the attribute; `name` and `role` are its own, which the facts do not hold.
    pub fn attribute<'a>(
        &'a self,
        name: &'a NodeId,
        role: NodeRole,
        attribute: &Attribute,
    ) -> Option<&'a str> {
        match attribute {
            Attribute::Name => Some(name.as_str()),
            Attribute::Zone => self.zone.as_ref().map(Zone::as_str),
            Attribute::Label(label) => self.labels.get(label).map(String::as_str),
            Attribute::Os => Some(&self.os),
            Attribute::Arch => Some(&self.arch),
            Attribute::Role => Some(role.word()),
        }
    }

    /// A node without the attribute differs from every value, as in Swarm.
    pub fn meets(&self, name: &NodeId, role: NodeRole, constraint: &Constraint) -> bool {
        if constraint.on == Attribute::Role {
            return role.meets(constraint.equal, &constraint.value);
        }
        (self.attribute(name, role, &constraint.on) == Some(constraint.value.as_str()))
            == constraint.equal
    }
}

/// The most nodes that hold the log. More would make every write slower and the cell no safer.
pub const MAX_SERVERS: usize = 7;

/// What Swarm would call a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeRole {
    Manager,
    Worker,
    /// All nodes of the cell hold the log, so there is none but these to work.
    Either,
}

impl NodeRole {
    pub fn word(self) -> &'static str {
        match self {
            Self::Manager => "manager",
            Self::Worker => "worker",
            Self::Either => "manager and worker",
        }
    }

    /// Who is not the one is the other.
    fn meets(self, equal: bool, role: &str) -> bool {
        match (role, equal) {
            ("manager", true) | ("worker", false) => self != Self::Worker,
            ("worker", true) | ("manager", false) => self != Self::Manager,
            (_, equal) => !equal,
        }
    }
}

/// Which nodes of a cell are managers. Told from the state alone, so that every leader decides alike: those that have been of the
/// cell longest, as many as can hold the log. Those hold it, unless one of them was lost and another took its place: then they are
/// still who they were, and what asks for a manager does not move because a server did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// The number of the youngest manager; none where all nodes are alike.
    last_manager: Option<u64>,
}

impl Roles {
    pub const ALIKE: Self = Self { last_manager: None };

    pub fn of(nodes: &BTreeMap<NodeId, Node>) -> Self {
        if nodes.len() <= MAX_SERVERS {
            return Self::ALIKE;
        }
        let mut numbers: Vec<u64> = nodes.values().filter_map(|node| node.server).collect();
        numbers.sort_unstable();
        // Nodes without numbers are in cells on paper, which say nothing of servers.
        let youngest = numbers.get(MAX_SERVERS - 1).or(numbers.last());
        Self { last_manager: youngest.copied() }
    }

    pub fn role(self, node: &Node) -> NodeRole {
        match (self.last_manager, node.server) {
            (None, _) => NodeRole::Either,
            (Some(last), Some(number)) if number <= last => NodeRole::Manager,
            (Some(_), _) => NodeRole::Worker,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub facts: NodeFacts,
    pub status: NodeStatus,
    pub status_since: Timestamp,
    pub availability: Availability,
    pub joined_at: Timestamp,
    /// Of the public key in its certificate: another with its name is not it.
    pub key: Option<Digest>,
    /// The number it has as a server, should it be one.
    pub server: Option<u64>,
    /// How its drain goes on, or how the last one ended.
    pub drain: Option<Drain>,
    /// Since when it takes new replicas without a break.
    pub open_since: Timestamp,
    /// When it, or its container runtime, was lost of late; oldest first, at most [`MAX_LOSSES`].
    pub lost_at: Vec<Timestamp>,
    /// When a replica was last sent here from another node.
    pub received_at: Option<Timestamp>,
    /// Since when its container runtime does not answer, while it does not. The node itself is heard.
    pub outage: Option<RuntimeOutage>,
}

/// How many losses of a node are remembered: more make it no less trusted.
pub const MAX_LOSSES: usize = 8;

/// What is kept of why a runtime does not answer: a line or two.
pub const MAX_OUTAGE_TEXT: usize = 512;

/// The container runtime of a node does not answer. What ran behind it may run on, or be gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeOutage {
    pub since: Timestamp,
    /// What came instead of an answer.
    pub why: String,
}

/// How long one replica may take to leave where nobody says otherwise.
pub const DRAIN_TIMEOUT: Millis = Millis::minutes(5);

/// A node gives away what it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    pub since: Timestamp,
    /// How long one replica may take.
    pub timeout: Millis,
    /// What cannot move is stopped.
    pub is_forced: bool,
    /// When the last replica left, or the drain began.
    pub progressed_at: Timestamp,
    /// It took too long: the node stays cordoned, and what it still had runs on.
    pub has_timed_out: bool,
}

impl Drain {
    /// When it has taken too long, unless something leaves before.
    pub fn deadline(&self) -> Timestamp {
        self.progressed_at.plus(self.timeout)
    }
}

impl Node {
    /// Whether it is to be empty even of what cannot move.
    pub fn is_cleared(&self) -> bool {
        self.availability == Availability::Draining
            && self.drain.is_some_and(|drain| drain.is_forced)
    }

    /// With what follows from having been `before`: since when it takes replicas, and whether it was lost.
    pub(crate) fn after(mut self, before: Option<&Self>, at: Timestamp) -> Self {
        if self.is_open() && before.is_none_or(|before| !before.is_open()) {
            self.open_since = at;
        }
        let is_lost = |node: &Self| node.status == NodeStatus::Down || node.outage.is_some();
        if is_lost(&self) && before.is_some_and(|before| !is_lost(before)) {
            self.lost_at.push(at);
            let excess = self.lost_at.len().saturating_sub(MAX_LOSSES);
            self.lost_at.drain(..excess);
        }
        self
    }

    /// Whether it takes anything new.
    pub fn is_open(&self) -> bool {
        self.status == NodeStatus::Ready
            && self.availability == Availability::Active
            && self.outage.is_none()
    }
}

/// Whether the leader hears from the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeStatus {
    Ready,
    Down,
}

impl NodeStatus {
    pub const EDGES: &[Edge<Self>] = &[
        Edge { from: Self::Ready, to: &[Self::Down], by: Writer::Liveness },
        Edge { from: Self::Down, to: &[Self::Ready], by: Writer::Liveness },
    ];
}

/// What an operator allows on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Availability {
    Active,
    /// Keeps what it runs and takes nothing new.
    Cordoned,
    /// Takes nothing new and gives away what it runs.
    Draining,
}

impl Availability {
    pub const EDGES: &[Edge<Self>] = &[
        Edge { from: Self::Active, to: &[Self::Cordoned, Self::Draining], by: Writer::Operator },
        Edge { from: Self::Cordoned, to: &[Self::Active, Self::Draining], by: Writer::Operator },
        Edge { from: Self::Draining, to: &[Self::Active, Self::Cordoned], by: Writer::Operator },
        Edge { from: Self::Draining, to: &[Self::Cordoned], by: Writer::Scheduler },
        Edge { from: Self::Active, to: &[Self::Draining], by: Writer::Shard },
        Edge { from: Self::Draining, to: &[Self::Active], by: Writer::Shard },
        // One whose drain took too long is taken back into use.
        Edge { from: Self::Cordoned, to: &[Self::Active], by: Writer::Shard },
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{Cell, cell, cpus, node_id};

    /// So many nodes, enrolled in the order of their names.
    fn of(nodes: u8) -> Cell {
        let name = |n: u8| format!("n{n}");
        let there = (1..=nodes).fold(cell(), |cell, n| cell.node(&name(n), cpus(4)));
        (1..=nodes).fold(there, |cell, n| cell.enrolled(&name(n)))
    }

    fn roles(cell: &Cell) -> Vec<NodeRole> {
        let nodes = cell.state.nodes();
        nodes.values().map(|node| Roles::of(nodes).role(node)).collect()
    }

    #[test]
    fn the_seven_that_came_first_are_managers_once_there_are_more() {
        assert_eq!(roles(&of(7)), [NodeRole::Either; 7]);
        let nine = roles(&of(9));
        assert_eq!(nine[..7], [NodeRole::Manager; 7]);
        assert_eq!(nine[7..], [NodeRole::Worker; 2]);
        let lost = of(9).down("n3");
        assert_eq!(roles(&lost), nine, "a node that is down is what it was");
    }

    #[test]
    fn nodes_that_nobody_counted_are_alike() {
        let paper = (0..9).fold(cell(), |cell, n| cell.node(&format!("n{n}"), cpus(4)));
        assert_eq!(roles(&paper), [NodeRole::Either; 9]);
    }

    #[test]
    fn who_is_not_the_one_is_the_other() {
        let cell = of(8);
        let (nodes, name) = (cell.state.nodes(), node_id("n1"));
        for (equal, value, roles) in [
            (true, "manager", [true, false, true]),
            (false, "worker", [true, false, true]),
            (true, "worker", [false, true, true]),
            (false, "manager", [false, true, true]),
            (true, "boss", [false, false, false]),
            (false, "boss", [true, true, true]),
        ] {
            let constraint = Constraint { on: Attribute::Role, equal, value: value.to_owned() };
            let met = [NodeRole::Manager, NodeRole::Worker, NodeRole::Either]
                .map(|role| nodes[&name].facts.meets(&name, role, &constraint));
            assert_eq!(met, roles, "{constraint}");
        }
    }
}
