//! What an image declares as a volume is mounted at every container, by one at a time, on the one node that is noted to have it:
//! a replica's data is neither lost with a container nor left behind on another node.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_kernel::agent::ContainerPhase;
use plimsoll_model::{Event, NodeId, ReplicaId};

use super::Invariant;
use crate::machine::{Container, Machine};
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct DeclaredData;

impl Invariant for DeclaredData {
    fn name(&self) -> &'static str {
        "declared data"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        for event in world.applied.iter().flat_map(|applied| &applied.events) {
            let Event::Volumes(deployment) = event else { continue };
            let held = world.state.volumes().get(deployment).map(|volumes| &volumes.held);
            for (volume, holders) in held.into_iter().flatten() {
                if holders.declared.is_some() && holders.nodes.len() > 1 {
                    return Err(format!("{volume} is on {:?}", holders.nodes));
                }
            }
        }
        for (node, replica, generation) in &world.first_starts {
            let machine = world.machines.get(node);
            let started = machine.and_then(|machine| machine.container(replica, *generation));
            let Some((machine, started)) = machine.zip(started) else { continue };
            is_complete(replica, started)?;
            is_noted(world, node, replica, started)?;
            is_alone(node, machine)?;
        }
        Ok(())
    }
}

/// Nothing that its image declares goes with the container.
fn is_complete(replica: &ReplicaId, started: &Container) -> Result<(), String> {
    let spec = &started.spec.container;
    let declared = crate::world::declared_by(&spec.image);
    let found = spec.unmounted(declared.iter().map(String::as_str));
    let mounted: BTreeSet<String> = started.declared.keys().cloned().collect();
    let lost = found.difference(&mounted).next();
    lost.map_or(Ok(()), |path| Err(format!("{replica} starts without its volume at {path}")))
}

/// Its node is noted before it starts.
fn is_noted(
    world: &World<'_>,
    node: &NodeId,
    replica: &ReplicaId,
    started: &Container,
) -> Result<(), String> {
    let deployment = &replica.service.deployment;
    let is_here =
        |name: &&String| world.state.nodes_with_volume(deployment, name).any(|at| at == node);
    let unknown = started.declared.values().find(|name| !is_here(name));
    unknown.map_or(Ok(()), |name| Err(format!("{replica} starts on {node}, not noted for {name}")))
}

/// Nobody else has it mounted.
fn is_alone(node: &NodeId, machine: &Machine) -> Result<(), String> {
    let mut mounted: BTreeMap<&String, &ReplicaId> = BTreeMap::new();
    for (replica, containers) in &machine.containers {
        for container in containers.iter().filter(|it| runs(it)) {
            for name in container.declared.values() {
                if let Some(other) = mounted.insert(name, replica) {
                    return Err(format!("{replica} and {other} mount {name} on {node}"));
                }
            }
        }
    }
    Ok(())
}

fn runs(container: &Container) -> bool {
    let phase = container.local.phase;
    matches!(phase, ContainerPhase::Starting | ContainerPhase::Up | ContainerPhase::Stopping)
}
