//! What has completed is never started again, unless it is asked for anew; and no job runs twice at the same time, as far as
//! anyone could know.

use std::collections::BTreeMap;

use plimsoll_model::{
    Assignment, Event, Generation, NodeId, NodeStatus, Replica, ReplicaId, SpecHash,
};

use super::Invariant;
use crate::machine::{Engine, Link};
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Jobs {
    /// What last completed of each replica.
    completed: BTreeMap<ReplicaId, (SpecHash, Generation)>,
}

impl Invariant for Jobs {
    fn name(&self) -> &'static str {
        "jobs"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        for (node, id, generation) in &world.first_starts {
            let Some(replica) = world.state.replica(id) else { continue };
            let held = replica.holds().find(|held| held.generation == *generation);
            let Some(held) = held else { continue };
            self.never_again(node, id, replica, held)?;
            alone(world, node, id, replica, held)?;
        }
        for event in world.applied.iter().flat_map(|applied| &applied.events) {
            let Event::Replica(id) = event else { continue };
            let Some(replica) = world.state.replica(id) else {
                self.completed.remove(id);
                continue;
            };
            let Some(at) = &replica.assignment else { continue };
            if replica.has_completed(at) {
                self.completed.insert(id.clone(), (at.spec, at.generation));
            } else if self.completed.get(id).is_some_and(|(spec, _)| *spec != at.spec) {
                // Another spec ran since: going back to the one before is a change.
                self.completed.remove(id);
            }
        }
        Ok(())
    }
}

impl Jobs {
    fn never_again(
        &self,
        node: &NodeId,
        id: &ReplicaId,
        replica: &Replica,
        held: &Assignment,
    ) -> Result<(), String> {
        let Some((spec, last)) = self.completed.get(id) else { return Ok(()) };
        let is_asked = replica.fresh_from > *last;
        if *spec != held.spec || is_asked {
            return Ok(());
        }
        let generation = held.generation;
        Err(format!("{id} starts on {node} at {generation:?}, and has completed at {last:?}"))
    }
}

/// Where another copy was known to be up all along, this one should have waited.
fn alone(
    world: &World<'_>,
    node: &NodeId,
    id: &ReplicaId,
    replica: &Replica,
    held: &Assignment,
) -> Result<(), String> {
    let Some(service) = world.state.service(&id.service) else { return Ok(()) };
    // What was sent off before it was made a job may start before its node hears of that.
    let is_as_sent = held.revision == service.row.revision;
    if !is_as_sent || !service.spec_of(held).is_some_and(|spec| spec.is_job()) {
        return Ok(());
    }
    for other in replica.holds().filter(|other| other.generation != held.generation) {
        let Some(machine) = world.machines.get(&other.node) else { continue };
        let is_ready = world
            .state
            .node(&other.node)
            .is_some_and(|node| node.status == NodeStatus::Ready && node.status_since < held.at);
        // Without its engine a node cannot tell what still runs: a job is run at least once.
        let can_tell = machine.link == Link::Up && machine.engine == Engine::Up;
        let is_known = is_ready && can_tell && machine.since < held.at;
        let container = machine.container(id, other.generation);
        if is_known && container.is_some_and(super::super::machine::Container::is_up) {
            let (other, new) = (&other.node, held.generation);
            return Err(format!("{id} starts on {node} at {new:?}, and still runs on {other}"));
        }
    }
    Ok(())
}
