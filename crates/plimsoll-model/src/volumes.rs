//! Where named volumes lie. Data outlives the containers and the deployment, so the cell remembers the nodes that may hold some
//! until it has been told that it is gone.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::units::Revision;

/// The named volumes that one deployment uses, or used when there was one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Volumes {
    /// By the name each has on an engine.
    pub held: BTreeMap<String, VolumeHolders>,
    /// They are to go, because someone asked for that when the deployment ended at this revision. A node that is away
    /// removes them when it is back.
    pub doomed: Option<Revision>,
}

/// Who has a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VolumeHolders {
    /// The nodes that were told to run something with it, and so may have made it.
    pub nodes: BTreeSet<NodeId>,
    /// It was there before the deployment, and stays when that goes with all its volumes.
    pub is_external: bool,
}

impl Volumes {
    /// The nodes that have a volume of the deployment's own.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        let own = self.held.values().filter(|holders| !holders.is_external);
        own.flat_map(|holders| &holders.nodes).cloned().collect()
    }

    /// The nodes that have this one.
    pub fn nodes_of(&self, volume: &str) -> impl Iterator<Item = &NodeId> {
        self.held.get(volume).into_iter().flat_map(|holders| &holders.nodes)
    }
}
