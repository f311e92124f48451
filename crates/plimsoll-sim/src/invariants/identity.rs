//! A replica is named for life: an index never comes twice, and no two assignments share a generation.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::{Event, Generation, NodeId, ReplicaId, Slot};

use super::Invariant;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Identity {
    ended: BTreeSet<ReplicaId>,
    given: BTreeMap<Generation, (ReplicaId, NodeId)>,
}

impl Invariant for Identity {
    fn name(&self) -> &'static str {
        "identity"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        for event in world.applied.iter().flat_map(|applied| &applied.events) {
            let Event::Replica(id) = event else { continue };
            let Some(replica) = world.state.replica(id) else {
                if matches!(id.slot, Slot::Index(_)) {
                    self.ended.insert(id.clone());
                }
                continue;
            };
            if self.ended.contains(id) {
                return Err(format!("{id} ended and is back"));
            }
            for held in replica.holds() {
                let owner = (id.clone(), held.node.clone());
                let first = self.given.entry(held.generation).or_insert_with(|| owner.clone());
                if *first != owner {
                    return Err(format!(
                        "{} was given to {first:?} and to {owner:?}",
                        held.generation
                    ));
                }
            }
        }
        Ok(())
    }
}
