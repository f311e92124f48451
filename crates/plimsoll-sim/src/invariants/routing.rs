//! A replica is routed at one generation, and only where it was reported healthy on a node that is up. While one generation
//! is healthy, there is one that is routed, but for one that a forced drain is about to stop.

use std::collections::BTreeSet;

use plimsoll_kernel::endpoints::EndpointEligibility;
use plimsoll_model::{Event, Node, NodeStatus, ObservedCode, ObservedState, Replica, ReplicaId};

use super::Invariant;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Routing;

impl Invariant for Routing {
    fn name(&self) -> &'static str {
        "routing"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        let mut replicas: BTreeSet<ReplicaId> = BTreeSet::new();
        for event in world.applied.iter().flat_map(|applied| &applied.events) {
            match event {
                Event::Replica(id) => drop(replicas.insert(id.clone())),
                Event::Node(node) => {
                    let load = world.state.load(node);
                    replicas.extend(load.into_iter().flat_map(|load| load.tenants.iter().cloned()));
                }
                _ => {}
            }
        }
        replicas.iter().try_for_each(|id| match world.state.replica(id) {
            Some(replica) => judge(world, id, replica),
            None => Ok(()),
        })
    }
}

fn judge(world: &World<'_>, id: &ReplicaId, replica: &Replica) -> Result<(), String> {
    let is_routed = |held: &&plimsoll_model::Assignment| {
        EndpointEligibility::of(&world.state, replica, held) == EndpointEligibility::Eligible
    };
    let is_healthy = |held: &plimsoll_model::Assignment| {
        let status = world.state.node(&held.node).map(|node| node.status);
        let seen = replica.observed.get(&held.generation);
        // Nothing runs any more of a job that is done.
        let is_up = seen.is_some_and(|seen| {
            seen.state == ObservedState::Running && seen.code != Some(ObservedCode::Completed)
        });
        status == Some(NodeStatus::Ready) && is_up
    };
    let routed: Vec<_> = replica.holds().filter(is_routed).collect();
    if routed.len() > 1 {
        return Err(format!("{id} is routed at {} generations", routed.len()));
    }
    if let Some(held) = routed.iter().find(|held| !is_healthy(held)) {
        return Err(format!("{id} is routed on {} and is not healthy there", held.node));
    }
    let leaves = |held: &plimsoll_model::Assignment| {
        let is_cleared = world.state.node(&held.node).is_some_and(Node::is_cleared);
        let is_stuck = replica.waiting.is_some() && replica.successor.is_none();
        replica.leaving.contains(held) || (is_cleared && is_stuck)
    };
    let healthy = replica.holds().find(|held| is_healthy(held) && !leaves(held));
    match healthy {
        Some(held) if routed.is_empty() => {
            Err(format!("{id} is healthy on {} and is routed nowhere", held.node))
        }
        _ => Ok(()),
    }
}
