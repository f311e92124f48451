//! The authority of the cell, and how far its rotation has come.

use plimsoll_model::{NodeId, NodeStatus, State};
use plimsoll_peer::pki::Fingerprint;

use plimsoll_api::view::{Authority, AwaitedNode, Rotation, Time};

/// None before the cell is founded.
pub fn authority(state: &State) -> Option<Authority> {
    let access = state.access();
    let signs = access.authority.as_ref()?;
    let names = |nodes: &mut dyn Iterator<Item = &NodeId>| nodes.map(NodeId::to_string).collect();
    let rotation = access.rotation.as_ref().map(|rotation| Rotation {
        phase: rotation.phase.word().to_owned(),
        is_abort: rotation.is_abort,
        started_at: Time(rotation.started_at),
        other: Fingerprint::of(&rotation.other.certificate).to_string(),
        done: names(&mut rotation.done.iter()),
        awaited: state
            .awaited()
            .map(|(id, node)| AwaitedNode {
                node: id.to_string(),
                status: match node.status {
                    NodeStatus::Ready => "ready",
                    NodeStatus::Down => "down",
                }
                .to_owned(),
            })
            .collect(),
        without: names(&mut rotation.without.iter()),
    });
    let fingerprint = Fingerprint::of(&signs.certificate).to_string();
    Some(Authority { fingerprint, rotation })
}
