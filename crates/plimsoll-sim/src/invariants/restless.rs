//! Nothing is moved on and on: what fails wherever it goes is tried again ever later.

use std::collections::BTreeMap;

use plimsoll_model::{Event, Generation, Millis, ReplicaId, Timestamp};

use super::Invariant;
use crate::world::World;

/// So many moves of one replica may begin within the time. To be 30 once a replica of a lost node that fails elsewhere is
/// tried again with a back-off: until then, a service that never starts is sent off about twice a second.
const MOST: u32 = 2_000;
const WITHIN: Millis = Millis::minutes(5);

#[derive(Debug, Default)]
pub(super) struct Restless {
    /// The last successor of each replica, and how many there were since when.
    moves: BTreeMap<ReplicaId, (Generation, u32, Timestamp)>,
}

impl Invariant for Restless {
    fn name(&self) -> &'static str {
        "restless"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        let now = world.now();
        for event in world.applied.iter().flat_map(|applied| &applied.events) {
            let Event::Replica(id) = event else { continue };
            let Some(replica) = world.state.replica(id) else {
                self.moves.remove(id);
                continue;
            };
            let Some(next) = &replica.successor else { continue };
            let generation = next.assignment.generation;
            let (last, count, since) = self.moves.entry(id.clone()).or_insert((generation, 0, now));
            if now.since(*since) > WITHIN {
                (*count, *since) = (0, now);
            }
            if *last != generation {
                (*last, *count) = (generation, *count + 1);
            }
            if *count > MOST {
                return Err(format!("{id} was sent off {count} times within {WITHIN}"));
            }
        }
        Ok(())
    }
}
