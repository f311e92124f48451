//! A replica with a volume or a bind mount never changes its node.

use std::collections::BTreeMap;

use plimsoll_model::{Event, NodeId, ReplicaId};

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
            let Event::Replica(id) = event else { continue };
            let Some(service) = world.state.service(&id.service) else { continue };
            let Some(assignment) = service.replicas.get(&id.slot).and_then(|r| r.heading()) else {
                continue;
            };
            if !service.spec_of(assignment).is_some_and(|spec| spec.is_stateful()) {
                continue;
            }
            let home = self.homes.entry(id.clone()).or_insert_with(|| assignment.node.clone());
            if *home != assignment.node {
                return Err(format!("{id} has its data on {home} and goes to {}", assignment.node));
            }
        }
        Ok(())
    }
}
