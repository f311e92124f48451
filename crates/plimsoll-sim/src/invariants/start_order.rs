//! A replica starts for the first time only once what it depends on has come so far; until then it says what it waits for,
//! and no longer. Judged by looking at every replica there is, without the kernel.

use std::collections::BTreeMap;

use plimsoll_kernel::agent::ContainerPhase;
use plimsoll_model::spec::Dependency;
use plimsoll_model::{
    Assignment, Generation, Millis, NodeStatus, ObservedCode, ObservedState, Replica, ReplicaId,
    ServiceKey, ServiceName, SpecHash, Timestamp,
};

use super::Invariant;
use crate::machine::{Engine, Link, Machine};
use crate::world::World;

/// Time for the orders and the reports of everyone concerned, and for a cycle to look.
const PATIENCE: Millis = Millis::seconds(70);

#[derive(Debug, Default)]
pub(super) struct StartOrder {
    /// Since when something is said, or not said, that is wrong.
    wrong: BTreeMap<(ReplicaId, Generation), Timestamp>,
}

impl Invariant for StartOrder {
    fn name(&self) -> &'static str {
        "start_order"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        for (node, id, generation) in &world.first_starts {
            let row = world.state.replica(id);
            let held = row.and_then(|row| row.holds().find(|it| it.generation == *generation));
            if let Some((on, until)) = held.and_then(|held| awaited(world, id, held).pop()) {
                return Err(format!("{id} starts on {node} before {on} {until}"));
            }
        }
        if world.is_cycle { self.check_reasons(world) } else { Ok(()) }
    }
}

impl StartOrder {
    fn check_reasons(&mut self, world: &World<'_>) -> Result<(), String> {
        let mut wrong = BTreeMap::new();
        for (id, replica) in world.state.replicas() {
            for held in
                replica.assignment.iter().chain(replica.successor.iter().map(|it| &it.assignment))
            {
                let said = match replica.observation(held).and_then(|seen| seen.code.as_ref()) {
                    Some(ObservedCode::AwaitsService { service, until }) => Some((service, until)),
                    _ => None,
                };
                let awaited = awaited(world, &id, held);
                let is_known =
                    said.is_some_and(|said| awaited.iter().any(|it| (&it.0, &it.1) == said));
                let is_right = match is_held(world, &id, held) {
                    None => true,
                    Some(true) if !awaited.is_empty() => is_known,
                    Some(_) => said.is_none(),
                };
                if is_right || world.led_for() < PATIENCE {
                    continue;
                }
                let key = (id.clone(), held.generation);
                let since = self.wrong.get(&key).copied().unwrap_or(world.now());
                if world.now().since(since) > PATIENCE {
                    return Err(format!(
                        "{id} waits for {awaited:?} on {} and says {said:?}",
                        held.node
                    ));
                }
                wrong.insert(key, since);
            }
        }
        self.wrong = wrong;
        Ok(())
    }
}

/// Whether it has its image and has never started; none where nobody can tell. Until the next try of a start that failed it
/// says why that did.
fn is_held(world: &World<'_>, id: &ReplicaId, held: &Assignment) -> Option<bool> {
    let is_heard = |machine: &&Machine| machine.link == Link::Up && machine.engine == Engine::Up;
    let machine = world.machines.get(&held.node).filter(is_heard)?;
    let container = machine.container(id, held.generation)?;
    let is_due = container.due.is_none_or(|due| due <= world.now());
    let is_ready = is_due && world.now().since(machine.since) > PATIENCE;
    let is_alone = machine.containers.get(id).is_some_and(|all| all.len() == 1);
    let is_pulled = container.local.phase == ContainerPhase::Pulled;
    (is_ready && (is_alone || !is_pulled)).then_some(is_pulled && !container.local.has_started)
}

/// What the assignment waits for, all of it.
pub(super) fn awaited(
    world: &World<'_>,
    id: &ReplicaId,
    held: &Assignment,
) -> Vec<(ServiceName, Dependency)> {
    let state = &world.state;
    let spec = state.service(&id.service).and_then(|service| service.spec_of(held));
    let deployment = state.deployments().get(&id.service.deployment);
    let (Some(spec), Some(deployment)) = (spec, deployment) else { return Vec::new() };
    let current = &deployment.history[&deployment.revision].services;
    let Some(asked) = current.get(&id.service.service) else { return Vec::new() };
    let mut awaited = Vec::new();
    for (on, until) in &spec.depends_on {
        if !asked.depends_on.contains_key(on) {
            continue;
        }
        let beside = deployment.history.get(&held.revision).and_then(|it| it.services.get(on));
        let jobs = [current.get(on), beside].into_iter().flatten().map(|spec| spec.hash);
        let jobs: Vec<SpecHash> = jobs.collect();
        let key = ServiceKey::new(id.service.deployment.clone(), on.clone());
        // What was taken back comes back with the job it had, though the next one has failed in its place.
        let is_of_before = asked.hash != held.spec && *until == Dependency::Completed;
        let has_failed =
            is_of_before && state.replicas().any(|(id, it)| id.service == key && is_failed(it));
        if !has_failed && !has_come(world, &key, *until, &jobs) {
            awaited.push((on.clone(), *until));
        }
    }
    awaited
}

/// Whether it is a job that is not tried again.
fn is_failed(replica: &Replica) -> bool {
    let held = replica.assignment.as_ref();
    let seen = held.and_then(|held| replica.observed.get(&held.generation));
    seen.is_some_and(|seen| match seen.code {
        Some(ObservedCode::JobFailed { .. }) => true,
        Some(ObservedCode::RestartExhausted { .. }) => replica.run.is_some(),
        _ => false,
    })
}

/// Whether one replica of the service has come so far.
fn has_come(world: &World<'_>, on: &ServiceKey, until: Dependency, jobs: &[SpecHash]) -> bool {
    let mut replicas = world.state.replicas().filter(|(id, _)| id.service == *on);
    replicas.any(|(_, replica)| {
        replica.holds().any(|held| {
            let Some(seen) = replica.observed.get(&held.generation) else { return false };
            let node = world.state.node(&held.node);
            let is_up = node.is_some_and(|node| node.status == NodeStatus::Ready);
            let is_done = seen.state == ObservedState::Completed;
            match (until, seen.state) {
                (Dependency::Completed, _) => is_done && jobs.contains(&held.spec),
                _ if is_done => true,
                (Dependency::Started, ObservedState::Starting | ObservedState::Degraded)
                | (_, ObservedState::Running) => is_up,
                _ => false,
            }
        })
    })
}
