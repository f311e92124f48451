//! A replica that has a volume or a bind mount never changes its node, whatever it should have from now on: the data is
//! judged by what the replica has, not by the newest spec.

use std::collections::BTreeMap;

use plimsoll_model::{Assignment, Event, NodeId, Replica, ReplicaId};

use super::Invariant;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct DataStays {
    homes: BTreeMap<ReplicaId, NodeId>,
}

impl Invariant for DataStays {
    fn name(&self) -> &'static str {
        "data stays"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        for event in world.applied.iter().flat_map(|applied| &applied.events) {
            let id = match event {
                Event::Replica(id) => id,
                // A node has looked at an image, and it declares nothing of what was assumed of it.
                Event::Service(key) => {
                    self.homes.retain(|id, home| id.service != *key || !is_let_go(world, id, home));
                    continue;
                }
                _ => continue,
            };
            let replica = world.state.replica(id);
            let assigned = replica.and_then(|replica| replica.assignment.as_ref());
            let (Some(replica), Some(assigned)) = (replica, assigned) else {
                self.homes.remove(id);
                continue;
            };
            let heading = replica.heading().unwrap_or(assigned);
            if let Some(home) = self.homes.get(id).filter(|home| **home != heading.node) {
                return Err(format!("{id} has its data on {home} and goes to {}", heading.node));
            }
            if has_data(world, id, replica, assigned) {
                self.homes.insert(id.clone(), assigned.node.clone());
            } else {
                self.homes.remove(id);
            }
        }
        Ok(())
    }
}

/// Whether what the replica runs where it is has no data any more.
fn is_let_go(world: &World<'_>, id: &ReplicaId, home: &NodeId) -> bool {
    let replica = world.state.replica(id);
    let assigned = replica.and_then(|replica| replica.assignment.as_ref());
    let (Some(replica), Some(assigned)) = (replica, assigned) else { return false };
    assigned.node == *home && !has_data(world, id, replica, assigned)
}

fn has_data(world: &World<'_>, id: &ReplicaId, replica: &Replica, assigned: &Assignment) -> bool {
    let spec = world.state.service(&id.service).and_then(|service| service.spec_of(assigned));
    let declares = spec.is_some_and(|spec| spec.has_declared());
    (declares && has_declared(world, id, replica.data, &assigned.node))
        || spec.is_some_and(|spec| spec.mounts_data())
}

/// Whether the node has what images declared for the replica: that some may is not enough, as long as nothing started.
fn has_declared(world: &World<'_>, id: &ReplicaId, number: Option<u32>, node: &NodeId) -> bool {
    let volumes = world.state.volumes().get(&id.service.deployment);
    let held = volumes.into_iter().flat_map(|volumes| volumes.held.values());
    held.filter(|holders| holders.nodes.contains(node)).any(|holders| {
        let declared = holders.declared.as_ref();
        declared.is_some_and(|it| it.service == id.service.service && Some(it.number) == number)
    })
}
