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

    /// What this node has under the attribute; `name` is its own, which the facts do not hold.
    pub fn attribute<'a>(&'a self, name: &'a NodeId, attribute: &Attribute) -> Option<&'a str> {
        match attribute {
            Attribute::Name => Some(name.as_str()),
            Attribute::Zone => self.zone.as_ref().map(Zone::as_str),
            Attribute::Label(label) => self.labels.get(label).map(String::as_str),
            Attribute::Os => Some(&self.os),
            Attribute::Arch => Some(&self.arch),
        }
    }

    /// A node without the attribute differs from every value, as in Swarm.
    pub fn meets(&self, name: &NodeId, constraint: &Constraint) -> bool {
        (self.attribute(name, &constraint.on) == Some(constraint.value.as_str()))
            == constraint.equal
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
    ];
}
