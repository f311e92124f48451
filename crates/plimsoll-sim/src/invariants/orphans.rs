//! Nothing is left behind: a container that nobody asks for is gone within minutes of its node being heard.

use std::collections::BTreeMap;

use plimsoll_model::{Generation, Millis, NodeId, ReplicaId, Timestamp};

use super::Invariant;
use crate::world::World;

/// A stop takes seconds; a message lost with a leader is made up for at the next meeting.
const PATIENCE: Millis = Millis::minutes(3);

/// It looks at every container there is, so not every time.
const EVERY: Millis = Millis::minutes(4);

#[derive(Debug, Default)]
pub(super) struct Orphans {
    last: Timestamp,
    seen: BTreeMap<(NodeId, ReplicaId, Generation), Timestamp>,
}

impl Invariant for Orphans {
    fn name(&self) -> &'static str {
        "orphans"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        if !world.is_cycle || world.now().since(self.last) < EVERY {
            return Ok(());
        }
        self.last = world.now();
        let mut seen = BTreeMap::new();
        for (node, machine) in world.machines.iter().filter(|(_, m)| m.can_stop()) {
            for (replica, containers) in &machine.containers {
                let row = world.state.replica(replica);
                for container in containers {
                    let generation = container.local.generation;
                    let held = row.into_iter().flat_map(plimsoll_model::Replica::holds);
                    let is_held =
                        held.into_iter().any(|h| h.node == *node && h.generation == generation);
                    if is_held {
                        continue;
                    }
                    let key = (node.clone(), replica.clone(), generation);
                    let since = self.seen.get(&key).copied().unwrap_or(world.now());
                    let since = if world.has_leader() { since } else { world.now() };
                    if world.now().since(since) > PATIENCE {
                        return Err(format!(
                            "{replica} {generation} is still on {node}, and nobody asks for it"
                        ));
                    }
                    seen.insert(key, since);
                }
            }
        }
        self.seen = seen;
        Ok(())
    }
}
