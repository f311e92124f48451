//! A slot of a schedule is decided once: started, or stated missed, and none is passed over, whoever leads and whatever its
//! clock says. Two runs of a service are never under way at once.

use std::collections::BTreeMap;

use plimsoll_model::schedule::{RunState, Schedule};
use plimsoll_model::state::Service;
use plimsoll_model::{AuditKind, Generation, NodeStatus, ReplicaId, ServiceKey, Timestamp};

use super::Invariant;
use crate::machine::{Container, Engine, Link};
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Schedules {
    /// Up to when each schedule has been decided, as far as was seen.
    decided: BTreeMap<ServiceKey, (Schedule, Timestamp)>,
    /// The first event of the audit that was not looked at yet.
    next: u64,
}

impl Invariant for Schedules {
    fn name(&self) -> &'static str {
        "schedules"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        let from = std::mem::replace(&mut self.next, world.state.audit().next_seq());
        // What another schedule decided in the same step says nothing of this one.
        self.decided.retain(|key, (known, _)| {
            schedule_of(world, key).is_some_and(|schedule| schedule.is_same_time(known))
        });
        for event in world.state.audit().since(from) {
            match &event.what {
                AuditKind::RunStarted { service, slot: Some(slot), .. } => {
                    self.decide(service, *slot, 1)?;
                }
                AuditKind::SlotsMissed { service, missed } => {
                    self.decide(service, missed.last, missed.count)?;
                }
                _ => {}
            }
        }
        for (key, service) in world.state.services() {
            let Some(schedule) = schedule_of(world, key) else { continue };
            let Some(row) = &service.row.schedule else {
                return Err(format!("{key} has a schedule and no runs"));
            };
            let decided = || (schedule.clone(), row.decided);
            self.decided.entry(key.clone()).or_insert_with(decided);
            one_at_a_time(key, service)?;
        }
        for (_, id, generation) in &world.first_starts {
            alone(world, id, *generation)?;
        }
        Ok(())
    }
}

fn schedule_of<'w>(world: &'w World<'_>, key: &ServiceKey) -> Option<&'w Schedule> {
    world.state.service(key)?.desired()?.schedule.as_ref()
}

impl Schedules {
    /// So many slots, up to this one, follow what was decided before.
    fn decide(&mut self, key: &ServiceKey, until: Timestamp, count: u32) -> Result<(), String> {
        let Some((schedule, decided)) = self.decided.get_mut(key) else { return Ok(()) };
        if until <= *decided {
            return Err(format!("{key} decides its slot at {until:?} again, after {decided:?}"));
        }
        let mut at = *decided;
        for nth in 1..=count {
            match schedule.next(at).filter(|slot| *slot <= until) {
                Some(slot) => at = slot,
                None => return Err(format!("{key} counts {count} slots, and has {}", nth - 1)),
            }
        }
        if at != until {
            return Err(format!("{key} passes over slots between {at:?} and {until:?}"));
        }
        *decided = until;
        Ok(())
    }
}

/// Only the last run may be under way.
fn one_at_a_time(key: &ServiceKey, service: &Service) -> Result<(), String> {
    let Some(row) = &service.row.schedule else { return Ok(()) };
    let earlier = row.runs.iter().rev().skip(1);
    match earlier.into_iter().find(|run| service.run_state(run) == RunState::Open) {
        Some(run) => {
            Err(format!("run {} of {key} is not over, and the next has begun", run.number))
        }
        None => Ok(()),
    }
}

/// Nothing of another run is up, where that could be known.
fn alone(world: &World<'_>, id: &ReplicaId, generation: Generation) -> Result<(), String> {
    let (Some(service), Some(replica)) =
        (world.state.service(&id.service), world.state.replica(id))
    else {
        return Ok(());
    };
    let held = replica.holds().find(|held| held.generation == generation);
    let (Some(run), Some(held)) = (replica.run, held) else { return Ok(()) };
    for (slot, other) in
        service.replicas.iter().filter(|(_, it)| it.run.is_some_and(|of| of != run))
    {
        let other_id = ReplicaId::new(id.service.clone(), slot.clone());
        let Some(there) = &other.assignment else { continue };
        let Some(machine) = world.machines.get(&there.node) else { continue };
        let node = world.state.node(&there.node);
        let is_ready = node
            .is_some_and(|node| node.status == NodeStatus::Ready && node.status_since < held.at);
        let can_tell = machine.link == Link::Up && machine.engine == Engine::Up;
        let is_known = is_ready && can_tell && machine.since < held.at;
        let container = machine.container(&other_id, there.generation);
        if is_known && container.is_some_and(Container::is_up) {
            let node = &there.node;
            return Err(format!("{id} starts, and {other_id} of another run is up on {node}"));
        }
    }
    Ok(())
}
