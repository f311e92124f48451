//! No node is ever promised more than it has. What is leaving does not count here: in its own place it makes way.

use plimsoll_model::{Event, NodeId, Resources};

use super::Invariant;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Capacity;

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
        nodes.into_iter().try_for_each(|node| fits(world, node))
    }
}

fn fits(world: &World<'_>, id: &NodeId) -> Result<(), String> {
    let (Some(node), Some(load)) = (world.state.node(id), world.state.load(id)) else {
        return Ok(());
    };
    let mut promised = Resources::NONE;
    for tenant in &load.tenants {
        let Some(service) = world.state.service(&tenant.service) else { continue };
        let Some(replica) = service.replicas.get(&tenant.slot) else { continue };
        let coming = replica.successor.as_ref().map(|successor| &successor.assignment);
        for held in replica.assignment.iter().chain(coming).filter(|held| held.node == *id) {
            promised =
                promised.plus(service.spec_of(held).map_or(Resources::NONE, |spec| spec.request()));
        }
    }
    if promised.fits_in(node.facts.capacity) {
        return Ok(());
    }
    Err(format!("{id} is promised {promised:?} of {:?}", node.facts.capacity))
}
