//! How a cell changes its authority while it runs. For a while it has two: first every node learns to trust both, then the
//! next one signs and every node gets a certificate of it, then the former one is dropped. Each step waits for every node, so
//! that at any moment any two of them accept each other's certificate.
//!
//! What is done about it is decided in the kernel, how nodes learn of it is the daemon's.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::access::{Access, Authority};
use crate::ids::NodeId;
use crate::node::{Node, NodeStatus};
use crate::state::State;
use crate::units::Timestamp;

/// By so much a recovery advances the epoch: beyond any that nodes may have heard of from the servers that were lost.
pub const RECOVERY_EPOCHS: u64 = 1_000;

/// A change of authority under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotation {
    /// The authority beside the one that signs: the next one at first, the former one from when the next one signs.
    pub other: Authority,
    pub phase: RotationPhase,
    pub started_at: Timestamp,
    /// The former authority signs again, and the one that was to follow it is dropped.
    pub is_abort: bool,
    /// The nodes that have done what the phase asks of them.
    pub done: BTreeSet<NodeId>,
    /// The nodes that it goes on without while they are down.
    pub without: BTreeSet<NodeId>,
}

/// What is asked of every node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RotationPhase {
    /// To trust both authorities.
    Trust,
    /// To get a certificate of the one that signs.
    Renew,
}

impl RotationPhase {
    pub fn word(self) -> &'static str {
        match self {
            Self::Trust => "trust",
            Self::Renew => "renew",
        }
    }
}

/// A step of a rotation, for the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RotationStep {
    Started,
    /// It goes on without a node that is down.
    Without {
        node: NodeId,
    },
    /// Every node trusts both: the next one signs.
    Switched,
    Aborted,
    /// One authority is left. These nodes have no certificate of it.
    Finished {
        left_behind: Vec<NodeId>,
    },
}

impl fmt::Display for RotationStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => f.write_str("rotation of the authority started"),
            Self::Without { node } => {
                write!(f, "rotation of the authority does not wait for {node}, which is down")
            }
            Self::Switched => f.write_str("all nodes trust the next authority; it signs now"),
            Self::Aborted => f.write_str("rotation of the authority aborted"),
            Self::Finished { left_behind } if left_behind.is_empty() => f.write_str(
                "rotation of the authority finished; the other one is not trusted any more",
            ),
            Self::Finished { left_behind } => {
                let names: Vec<&str> = left_behind.iter().map(NodeId::as_str).collect();
                write!(f, "rotation of the authority finished without {}", names.join(", "))
            }
        }
    }
}

impl Access {
    /// The certificates of every authority that nodes trust, the one that signs first.
    pub fn anchors(&self) -> impl Iterator<Item = &[u8]> {
        let other = self.rotation.iter().map(|rotation| &rotation.other);
        self.authority.iter().chain(other).map(|it| it.certificate.as_slice())
    }
}

impl State {
    /// The nodes that the rotation under way waits for.
    pub fn awaited(&self) -> impl Iterator<Item = (&NodeId, &Node)> {
        let rotation = self.access.rotation.as_ref();
        rotation.into_iter().flat_map(|rotation| {
            let is_left_out = |id: &NodeId, node: &Node| {
                node.status == NodeStatus::Down && rotation.without.contains(id)
            };
            self.nodes.iter().filter(move |(id, node)| {
                node.key.is_some() && !rotation.done.contains(*id) && !is_left_out(id, node)
            })
        })
    }
}
