//! No node is ever promised more than it has. What is leaving does not count here: in its own place it makes way. A node
//! that has less than it had keeps what it was promised, and is promised no more.

use std::collections::BTreeMap;

use plimsoll_model::{Event, NodeId, Resources};

use super::Invariant;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Capacity {
    /// What each node was promised when it was last looked at.
    promised: BTreeMap<NodeId, Resources>,
}

impl Invariant for Capacity {
    fn name(&self) -> &'static str {
        "capacity"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        let events = world.applied.iter().flat_map(|applied| &applied.events);
        let mut nodes: Vec<&NodeId> = events
            .filter_map(|event| if let Event::Load(node) = event { Some(node) } else { None })
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.into_iter().try_for_each(|node| self.check_node(world, node))
    }
}

impl Capacity {
    fn check_node(&mut self, world: &World<'_>, id: &NodeId) -> Result<(), String> {
        let promised = promised(world, id);
        let before = self.promised.insert(id.clone(), promised).unwrap_or(Resources::NONE);
        // What a node that left was promised waits for it: it may come back with less.
        let Some(node) = world.state.node(id) else { return Ok(()) };
        let capacity = node.facts.capacity;
        // In each dimension, what is too much must not have grown.
        let allowed = Resources {
            cpu: capacity.cpu.max(before.cpu),
            memory: capacity.memory.max(before.memory),
            gpus: capacity.gpus.max(before.on(capacity).gpus),
            all_gpus: 0,
        };
        if promised.on(capacity).fits_in(allowed) {
            return Ok(());
        }
        Err(format!("{id} is promised {promised:?} of {capacity:?}"))
    }
}

fn promised(world: &World<'_>, id: &NodeId) -> Resources {
    let mut promised = Resources::NONE;
    let tenants = world.state.load(id).into_iter().flat_map(|load| &load.tenants);
    for tenant in tenants {
        let Some(service) = world.state.service(&tenant.service) else { continue };
        let Some(replica) = service.replicas.get(&tenant.slot) else { continue };
        let coming = replica.successor.as_ref().map(|successor| &successor.assignment);
        let held = replica.assignment.iter().chain(coming).filter(|held| held.node == *id);
        // What has completed needs nothing any more.
        for held in held.filter(|held| !replica.has_vacated(held)) {
            promised =
                promised.plus(service.spec_of(held).map_or(Resources::NONE, |spec| spec.request()));
        }
    }
    promised
}
