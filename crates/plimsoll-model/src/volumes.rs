//! Where the named volumes of deployments lie. Data outlives the containers and the deployment, so the cell remembers
//! the nodes that may hold some until it has been told that it is gone.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::units::Revision;

/// The named volumes of one deployment, now or of one that was.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Volumes {
    /// The nodes that have run something with a named volume of it.
    pub nodes: BTreeSet<NodeId>,
    /// They are to go, because someone asked for that when the deployment ended at this revision. A node that is away
    /// removes them when it is back.
    pub doomed: Option<Revision>,
}
