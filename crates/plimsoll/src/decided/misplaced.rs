//! Why a node may not keep a replica it has.

use plimsoll_model::{Availability, Mode, Node, NodeId, ServiceSpec};

/// The reason as the end of a sentence about the node, if there is one.
pub(crate) fn misplaced(spec: &ServiceSpec, id: &NodeId, node: &Node) -> Option<String> {
    if node.availability == Availability::Draining {
        return Some("is being drained".to_owned());
    }
    if matches!(&spec.placement.mode, Mode::Hosts { hosts, .. } if !hosts.contains(id)) {
        return Some("is not among the service's hosts".to_owned());
    }
    let mut constraints = spec.placement.constraints.iter();
    let unmet = constraints.find(|constraint| !node.facts.meets(id, constraint))?;
    Some(format!("does not meet {unmet}"))
}
