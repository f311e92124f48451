//! What runs behind a container engine that is down is not moved for that: only what does not run is, and only after the
//! grace.

use std::collections::BTreeSet;

use plimsoll_model::{Event, Generation, MoveCause};

use super::Invariant;
use crate::machine::Engine;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Outages {
    /// Successors that were looked at when they came.
    judged: BTreeSet<Generation>,
}

impl Invariant for Outages {
    fn name(&self) -> &'static str {
        "outages"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        for event in world.applied.iter().flat_map(|applied| &applied.events) {
            let Event::Replica(id) = event else { continue };
            let Some(replica) = world.state.replica(id) else { continue };
            let (Some(src), Some(next)) = (&replica.assignment, &replica.successor) else {
                continue;
            };
            let is_new = self.judged.insert(next.assignment.generation);
            if next.cause != MoveCause::RuntimeLost || !is_new {
                continue;
            }
            // Once the engine is back it may run again before anyone has heard of that.
            let machine = world.machines.get(&src.node).filter(|it| it.engine == Engine::Down);
            let container = machine.and_then(|machine| machine.container(id, src.generation));
            if container.is_some_and(|container| container.is_up() && container.is_healthy) {
                return Err(format!("{id} runs on {} and is replaced all the same", src.node));
            }
            let outage = world.state.node(&src.node).and_then(|node| node.outage.as_ref());
            let grace = world.scenario.policy.runtime_grace;
            if outage.is_some_and(|it| world.leader_time() < it.since.plus(grace)) {
                return Err(format!("{id} is replaced before the engine of {} had time", src.node));
            }
        }
        Ok(())
    }
}
