//! Once faults stop the cell settles: everything runs that can, what cannot says why, and nothing is under way.

use plimsoll_kernel::place::Roster;
use plimsoll_kernel::{Scope, Signals, reconcile};
use plimsoll_model::rollout::Phase;
use plimsoll_model::{Mode, NodeStatus};

use super::Broken;
use crate::world::World;

pub fn check(world: &World<'_>) -> Result<(), Broken> {
    find(world).map_err(|what| Broken { invariant: "settled", what })
}

fn find(world: &World<'_>) -> Result<(), String> {
    let state = &world.state;
    for (id, replica) in state.replicas() {
        let on_down = |node| state.node(node).is_none_or(|node| node.status == NodeStatus::Down);
        if let Some(successor) = &replica.successor {
            return Err(format!("{id} is still moving to {}", successor.assignment.node));
        }
        if let Some(leaving) = replica.leaving.iter().find(|leaving| !on_down(&leaving.node)) {
            return Err(format!("{id} still leaves {}", leaving.node));
        }
        let Some(assignment) = &replica.assignment else { continue };
        let spec = state.service(&id.service).and_then(|service| service.spec_of(assignment));
        let is_broken = spec.is_some_and(|spec| world.broken.contains(&spec.container.image));
        if !replica.is_running() && !on_down(&assignment.node) && !is_broken {
            return Err(format!("{id} does not run on {}", assignment.node));
        }
        let container = world.machines.get(&assignment.node);
        let runs = container.and_then(|machine| machine.container(&id, assignment.generation));
        if replica.is_running() && !on_down(&assignment.node) && !runs.is_some_and(|c| c.is_healthy)
        {
            return Err(format!("{id} is said to run on {} and does not", assignment.node));
        }
    }
    for (key, service) in state.services() {
        // The way back to something that does not start either has no end.
        let image = service.desired().map(|spec| &spec.container.image);
        let is_broken = image.is_some_and(|image| world.broken.contains(image));
        if let Some(rollout) = service.row.rollout.as_ref()
            && !rollout.is_over()
            && rollout.phase != Phase::Paused
            && !is_broken
        {
            return Err(format!("the rollout of {key} is still {}", rollout.phase.word()));
        }
        let Some(spec) = service.desired() else {
            return Err(format!("{key} is retired and still there"));
        };
        let live = service.replicas.values().filter(|replica| replica.assignment.is_some()).count();
        let missing = match &spec.placement.mode {
            Mode::Global => 0,
            mode => (mode.replicas().unwrap_or(0) as usize).saturating_sub(live),
        };
        if missing > 0 && service.row.unplaced.is_none() {
            return Err(format!("{key} lacks {missing} replicas and does not say why"));
        }
    }
    let policy = &world.scenario.policy;
    let mut roster = Roster::new(state, &Signals::default(), policy);
    let decision = reconcile(state, &mut roster, policy, Scope::All, world.now());
    // Without measurements a pass may still find room it did not see before; it must not want to move anything.
    match decision.batch.iter().find(|guarded| guarded.change.replica().is_some()) {
        Some(guarded) => Err(format!("a pass still wants {:?}", guarded.change)),
        None => Ok(()),
    }
}
