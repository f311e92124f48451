//! Once faults stop the cell settles: everything runs that can, what cannot says why, and nothing is under way.

use plimsoll_kernel::place::Roster;
use plimsoll_kernel::{Scope, Signals, reconcile};
use plimsoll_model::rollout::RolloutPhase;
use plimsoll_model::state::Service;
use plimsoll_model::{Assignment, Mode, Node, NodeId, NodeStatus, Replica, ReplicaId, ServiceKey};

use super::Broken;
use super::reasons::{is_refused, live};
use super::start_order::awaited;
use crate::machine::{Container, Engine};
use crate::world::World;

pub const NAME: &str = "settled";

pub fn check(world: &World<'_>) -> Result<(), Broken> {
    find(world).map_err(|what| Broken { invariant: NAME, what })
}

fn find(world: &World<'_>) -> Result<(), String> {
    let state = &world.state;
    // What is poisoned to the end has no end.
    let is_sane = |key: &ServiceKey| !world.poisoned.contains(key);
    for (id, replica) in state.replicas().filter(|(id, _)| is_sane(&id.service)) {
        find_in_replica(world, &id, replica)?;
    }
    for (key, service) in state.services().iter().filter(|(key, _)| is_sane(key)) {
        if is_refused(service) {
            return Err(format!("{key} still waits for a decision that was refused"));
        }
        // The way back to something that does not start either has no end.
        let image = service.desired().map(|spec| &spec.container.image);
        let is_broken = image.is_some_and(|image| world.broken.contains(image));
        // A step that cannot be taken says why: where its replica waits, or where there is no room for one.
        let is_held = service.replicas.iter().any(|(slot, replica)| {
            let id = ReplicaId::new(key.clone(), slot.clone());
            replica.heading().is_some_and(|held| !awaited(world, &id, held).is_empty())
        });
        let waits = is_held
            || service.row.unplaced.is_some()
            || service.replicas.values().any(|replica| replica.waiting.is_some());
        if let Some(rollout) = service.row.rollout.as_ref()
            && !rollout.is_over()
            && rollout.phase != RolloutPhase::Paused
            && !is_broken
            && !waits
        {
            return Err(format!("the rollout of {key} is still {}", rollout.phase.word()));
        }
        let Some(spec) = service.desired() else {
            return Err(format!("{key} is retired and still there"));
        };
        let live = live(service);
        let missing = match &spec.placement.mode {
            Mode::Global => 0,
            mode => (mode.replicas().unwrap_or(0) as usize).saturating_sub(live),
        };
        // A run may just have been started.
        if missing > 0 && service.row.unplaced.is_none() && spec.schedule.is_none() {
            return Err(format!("{key} lacks {missing} replicas and does not say why"));
        }
    }
    // What runs on a schedule needs room again and again.
    let is_scheduled = |key: &ServiceKey| {
        let spec = state.service(key).and_then(Service::desired);
        spec.is_some_and(|spec| spec.schedule.is_some())
    };
    let mut in_flight = state.preemptions().in_flight().iter();
    if let Some((node, held)) = in_flight.find(|(_, it)| !is_scheduled(&it.by.service))
        && is_sane(&held.by.service)
        && held.victims.keys().all(|id| is_sane(&id.service))
    {
        return Err(format!("room on {node} is still being freed for {}", held.by));
    }
    if let Some((node, _)) = state.awaited().next() {
        return Err(format!("the rotation of the authority still waits for {node}"));
    }
    if state.access().rotation.is_some() {
        return Err("the rotation of the authority does not end".to_owned());
    }
    let is_up =
        |node: &NodeId| state.node(node).is_some_and(|node| node.status == NodeStatus::Ready);
    for (name, volumes) in state.volumes().iter().filter(|(_, volumes)| volumes.doomed.is_some()) {
        if let Some(node) = volumes.nodes().into_iter().find(is_up) {
            return Err(format!("the volumes of {name} on {node} were to go and are still there"));
        }
    }
    for (name, volumes) in state.volumes() {
        if let Some(moving) = &volumes.moving {
            return Err(format!("volumes of {name} still move to {}", moving.dst));
        }
        if let Some(hold) = &volumes.hold {
            return Err(format!("{} is still held for a {}", hold.volume, hold.purpose.noun()));
        }
        for (volume, holders) in &volumes.held {
            if let Some(node) = holders.discards.keys().find(|node| is_up(node)) {
                return Err(format!("{volume} on {node} was to go and is still there"));
            }
        }
    }
    let policy = &world.scenario.policy;
    let mut roster = Roster::new(state, &Signals::default(), policy);
    let decision = reconcile(state, &mut roster, policy, Scope::All, world.leader_time());
    // Without measurements a pass may still find room it did not see before; it must not want to move anything, but for
    // what is tried on and on.
    let is_tried_on = |key: &ServiceKey| {
        let image = state.service(key).and_then(|it| it.desired()).map(|it| &it.container.image);
        image.is_some_and(|image| world.broken.contains(image))
    };
    let wants =
        decision.batch.iter().filter_map(|guarded| Some((guarded, guarded.change.replica()?)));
    let is_on_schedule =
        |key: &ServiceKey| state.service(key).is_some_and(|service| service.row.schedule.is_some());
    let is_wrong = |key: &ServiceKey| is_sane(key) && !is_tried_on(key) && !is_on_schedule(key);
    match wants.into_iter().find(|(_, replica)| is_wrong(&replica.service)) {
        Some((guarded, _)) => Err(format!("a pass still wants {:?}", guarded.change)),
        None => Ok(()),
    }
}

fn find_in_replica(world: &World<'_>, id: &ReplicaId, replica: &Replica) -> Result<(), String> {
    let state = &world.state;
    let on_down =
        |node: &NodeId| state.node(node).is_none_or(|node| node.status == NodeStatus::Down);
    let is_broken = |held: &Assignment| {
        let spec = state.service(&id.service).and_then(|service| service.spec_of(held));
        spec.is_some_and(|spec| world.broken.contains(&spec.container.image))
    };
    // What it depends on never comes, or is looked at for itself.
    let is_held = |held: &Assignment| !awaited(world, id, held).is_empty();
    // The way to something that never starts has no end either.
    if let Some(successor) =
        replica.successor.as_ref().filter(|_| replica.run.is_none()).filter(|successor| {
            !is_broken(&successor.assignment) && !is_held(&successor.assignment)
        })
    {
        return Err(format!("{id} is still moving to {}", successor.assignment.node));
    }
    let is_stopping = |it: &&Assignment| !on_down(&it.node) && !is_broken(it);
    if let Some(leaving) =
        replica.leaving.iter().find(is_stopping).filter(|_| replica.run.is_none())
    {
        return Err(format!("{id} still leaves {}", leaving.node));
    }
    let Some(assignment) = &replica.assignment else { return Ok(()) };
    let is_broken = is_broken(assignment);
    let machine = world.machines.get(&assignment.node);
    let runs = machine.and_then(|machine| machine.container(id, assignment.generation));
    // What failed too often waits for an operator, and says so.
    let has_given_up = replica.has_given_up() && runs.is_none_or(Container::is_exhausted);
    // What cannot leave a node that is drained by force is stopped there, and says so, as long as it may not run there
    // and can go nowhere else.
    let is_cleared = state.node(&assignment.node).is_some_and(Node::is_cleared);
    let is_stopped = replica.waiting.is_some() && (is_cleared || replica.is_stopped(assignment));
    // What went with an engine that stays away comes back with it.
    let is_out = machine.is_some_and(|machine| machine.engine == Engine::Down);
    // Some run of a schedule is always under way, and one that failed is over.
    let is_of_run = replica.run.is_some();
    let is_excused = is_broken
        || is_of_run
        || has_given_up
        || is_stopped
        || is_out
        || on_down(&assignment.node)
        || is_held(assignment);
    if !replica.is_running() && !is_excused {
        return Err(format!("{id} does not run on {}", assignment.node));
    }
    let is_done = replica.has_completed(assignment);
    let spec = state.service(&id.service).and_then(|service| service.spec_of(assignment));
    let is_job = spec.is_some_and(|spec| spec.is_job());
    if replica.is_running() && is_job && !is_of_run && !is_done && !on_down(&assignment.node) {
        return Err(format!("{id} does not end its job"));
    }
    if replica.is_running()
        && !is_done
        && !on_down(&assignment.node)
        && !runs.is_some_and(|c| c.is_healthy)
    {
        return Err(format!("{id} is said to run on {} and does not", assignment.node));
    }
    Ok(())
}
