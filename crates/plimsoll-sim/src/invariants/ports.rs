//! No two replicas are sent to one node with the same host port. What is leaving does not count: it makes way first.

use std::collections::BTreeMap;

use plimsoll_model::spec::HostPort;
use plimsoll_model::{Event, NodeId, ReplicaId};

use super::Invariant;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Ports;

impl Invariant for Ports {
    fn name(&self) -> &'static str {
        "ports"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        let events = world.applied.iter().flat_map(|applied| &applied.events);
        let loads = events.filter_map(|event| match event {
            Event::Load(node) => Some(node),
            _ => None,
        });
        loads.into_iter().try_for_each(|node| check_node(world, node))
    }
}

fn check_node(world: &World<'_>, id: &NodeId) -> Result<(), String> {
    let mut taken: BTreeMap<HostPort, &ReplicaId> = BTreeMap::new();
    let tenants = world.state.load(id).into_iter().flat_map(|load| &load.tenants);
    for tenant in tenants {
        let Some(service) = world.state.service(&tenant.service) else { continue };
        let Some(replica) = service.replicas.get(&tenant.slot) else { continue };
        let coming = replica.successor.as_ref().map(|successor| &successor.assignment);
        let held = replica.assignment.iter().chain(coming).filter(|held| held.node == *id);
        for held in held.filter(|held| !replica.has_vacated(held)) {
            let ports = service.spec_of(held).into_iter().flat_map(|spec| spec.host_ports());
            for port in ports {
                if let Some(other) = taken.insert(port, tenant).filter(|other| *other != tenant) {
                    return Err(format!("{tenant} and {other} are both given {port} of {id}"));
                }
            }
        }
    }
    Ok(())
}
