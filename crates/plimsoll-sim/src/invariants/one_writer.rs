//! Two containers of one service never write the same data of a node at once, whatever brought the second one: an update, a move,
//! a restart, a scale down and up, a delete and apply, a volume that moved. Where a service has several replicas, those on one
//! node share what they mount, and only the copies of one replica take turns. Services that share a volume write it side by side.

use std::collections::BTreeSet;

use plimsoll_kernel::agent::ContainerPhase;
use plimsoll_model::{NodeId, ReplicaId};

use super::Invariant;
use crate::machine::{Container, Machine};
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct OneWriter;

impl Invariant for OneWriter {
    fn name(&self) -> &'static str {
        "one writer"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        for (node, replica, generation) in &world.first_starts {
            let machine = world.machines.get(node);
            let started = machine.and_then(|machine| machine.container(replica, *generation));
            let Some((machine, started)) = machine.zip(started) else { continue };
            is_alone(node, machine, replica, started)?;
        }
        Ok(())
    }
}

fn is_alone(
    node: &NodeId,
    machine: &Machine,
    replica: &ReplicaId,
    started: &Container,
) -> Result<(), String> {
    let own = written(replica, started);
    let is_only = |container: &Container| container.spec.copies() == Some(1);
    let of_service = machine.containers.iter().filter(|(id, _)| id.service == replica.service);
    for (other, containers) in of_service {
        let rivals = containers.iter().filter(|it| {
            let is_other = other != replica || it.local.generation != started.local.generation;
            let takes_turns = other == replica || (is_only(it) && is_only(started));
            is_other && takes_turns && runs(it)
        });
        for rival in rivals {
            if let Some(data) = written(other, rival).intersection(&own).next() {
                return Err(format!("{replica} starts on {node} while {other} writes {data}"));
            }
        }
    }
    Ok(())
}

fn written(replica: &ReplicaId, container: &Container) -> BTreeSet<String> {
    container.spec.container.written_data(&replica.service.deployment)
}

fn runs(container: &Container) -> bool {
    let phase = container.local.phase;
    matches!(phase, ContainerPhase::Starting | ContainerPhase::Up | ContainerPhase::Stopping)
}
