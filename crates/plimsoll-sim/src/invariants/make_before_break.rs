//! A move ends only when the replica really runs at its destination: what the original gives up, the successor has.

use std::collections::BTreeMap;

use plimsoll_model::{Assignment, Event, Millis, ReplicaId, Timestamp};

use super::Invariant;
use crate::machine::Link;
use crate::world::World;

/// More than a report and a commit take together.
const MOMENT: Millis = Millis::seconds(2);

#[derive(Debug, Default)]
pub(super) struct MakeBeforeBreak {
    last: BTreeMap<ReplicaId, Assignment>,
    /// Until when those that make way for others may take, by what was known a step ago.
    evict_at: BTreeMap<ReplicaId, Timestamp>,
}

impl Invariant for MakeBeforeBreak {
    fn name(&self) -> &'static str {
        "make before break"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        let evict_at = self.note_victims(world);
        for event in world.applied.iter().flat_map(|applied| &applied.events) {
            let Event::Replica(id) = event else { continue };
            let Some(now) = world.state.replica(id).and_then(|replica| replica.assignment.as_ref())
            else {
                self.last.remove(id);
                continue;
            };
            let Some(before) = self.last.insert(id.clone(), now.clone()) else { continue };
            // In its own place the old one makes way first, and says so beforehand.
            if before.generation == now.generation || before.node == now.node {
                continue;
            }
            // What cannot run twice makes way here before it starts there.
            let spec = world.state.service(&id.service).and_then(|service| service.spec_of(now));
            if spec.is_some_and(|spec| !spec.can_run_twice()) {
                continue;
            }
            // What made way for another has had its time.
            if evict_at.get(id).is_some_and(|until| world.leader_time() >= *until) {
                continue;
            }
            let Some(machine) = world.machines.get(&now.node) else { continue };
            // A job may be done by then.
            let runs = machine
                .container(id, now.generation)
                .is_some_and(|c| (c.is_up() && c.is_healthy) || c.has_completed());
            // It may be lost, or end by itself, in the moment between its report and the commit.
            let just_lost = machine.link != Link::Up
                || machine
                    .container(id, now.generation)
                    .is_some_and(crate::machine::Container::has_failed)
                || world.now().since(machine.since) < MOMENT;
            if !runs && !just_lost {
                return Err(format!("{id} left {} before it ran on {}", before.node, now.node));
            }
        }
        Ok(())
    }
}

impl MakeBeforeBreak {
    /// Takes note of who makes way now, and returns what was known before.
    fn note_victims(&mut self, world: &World<'_>) -> BTreeMap<ReplicaId, Timestamp> {
        let in_flight = world.state.preemptions().in_flight().values();
        let victims = in_flight.flat_map(|it| &it.victims);
        let now = victims.map(|(id, victim)| (id.clone(), victim.until)).collect();
        std::mem::replace(&mut self.evict_at, now)
    }
}
