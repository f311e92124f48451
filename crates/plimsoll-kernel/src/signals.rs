//! What nodes measure of themselves: soft, kept by the leader alone, and gone with it.

use std::collections::BTreeMap;

use plimsoll_model::{NodeId, Pressure};

/// The latest fresh measurement of each node. A node that is missing here said nothing of late: its pressure is
/// unknown, neither zero nor high.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signals {
    pressure: BTreeMap<NodeId, [Pressure; 2]>,
}

impl Signals {
    /// Cpu and memory, in this order.
    pub fn pressure(&self, node: &NodeId) -> Option<[Pressure; 2]> {
        self.pressure.get(node).copied()
    }

    pub fn set(&mut self, node: &NodeId, pressure: Option<[Pressure; 2]>) {
        match pressure {
            Some(pressure) => self.pressure.insert(node.clone(), pressure),
            None => self.pressure.remove(node),
        };
    }
}
