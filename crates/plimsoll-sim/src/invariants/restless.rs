//! Nothing is moved on and on: what fails wherever it goes is tried again ever later, and where the load does not change no
//! replica is moved back to a node that it was moved off for relief, or for a better place.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::{Event, Generation, Millis, MoveCause, NodeId, ReplicaId, Timestamp};

use super::Invariant;
use crate::run::SETTLING;
use crate::world::World;

/// So many moves of one replica may begin within the time: each failure of late doubles the wait before the next try.
const MOST: u32 = 30;
const WITHIN: Millis = Millis::minutes(5);

#[derive(Debug, Default)]
pub(super) struct Restless {
    moves: BTreeMap<ReplicaId, Moves>,
    /// From when on nothing happens to the cell and its load does not change; none yet where that is not known.
    steady_from: Option<Millis>,
}

#[derive(Debug)]
struct Moves {
    /// The last successor, and how many there were since when.
    last: Generation,
    count: u32,
    since: Timestamp,
    /// The nodes that were relieved of it, and those it left for a better place, while nothing changed.
    relieved: BTreeSet<NodeId>,
    left: BTreeSet<NodeId>,
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
            let (Some(src), Some(next)) = (&replica.assignment, &replica.successor) else {
                continue;
            };
            let generation = next.assignment.generation;
            let is_steady =
                world.elapsed() > *self.steady_from.get_or_insert_with(|| steady_from(world));
            let moves = self.moves.entry(id.clone()).or_insert_with(|| {
                let (relieved, left) = (BTreeSet::new(), BTreeSet::new());
                Moves { last: generation, count: 0, since: now, relieved, left }
            });
            if now.since(moves.since) > WITHIN {
                (moves.count, moves.since) = (0, now);
            }
            if moves.last != generation {
                (moves.last, moves.count) = (generation, moves.count + 1);
            }
            if moves.count > MOST {
                return Err(format!("{id} was sent off {} times within {WITHIN}", moves.count));
            }
            if next.cause.is_chosen() && is_steady {
                let dst = &next.assignment.node;
                if moves.relieved.contains(dst) {
                    return Err(format!("{id} goes back to {dst}, which was relieved of it"));
                }
                if next.cause == MoveCause::Pressure {
                    moves.relieved.insert(src.node.clone());
                } else if moves.left.contains(dst) {
                    return Err(format!(
                        "{id} goes back to {dst}, which it left for a better place"
                    ));
                } else {
                    moves.left.insert(src.node.clone());
                }
            }
        }
        Ok(())
    }
}

/// Some time after the last event, if the load is the same to the end; never if not.
fn steady_from(world: &World<'_>) -> Millis {
    let scenario = world.scenario;
    let from = Millis(scenario.last_action().0 + SETTLING.0);
    let is_steady = scenario.usage.values().all(|usage| usage.is_steady(from, scenario.length));
    if is_steady { from } else { Millis(u64::MAX) }
}
