//! A volume that a single replica mounts, or several services, never begins anew on a second node while the cell knows the
//! first: whoever mounts it would find nothing there, and say nothing.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::{DeploymentName, Event, Mode, NodeId, State};

use super::Invariant;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct OneVolume {
    holders: BTreeMap<DeploymentName, BTreeMap<String, BTreeSet<NodeId>>>,
}

impl Invariant for OneVolume {
    fn name(&self) -> &'static str {
        "one volume"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        for event in world.applied.iter().flat_map(|applied| &applied.events) {
            let Event::Volumes(deployment) = event else { continue };
            let held = world.state.volumes().get(deployment).map(|volumes| &volumes.held);
            let held = held.into_iter().flatten();
            let now: BTreeMap<String, BTreeSet<NodeId>> =
                held.map(|(volume, holders)| (volume.clone(), holders.nodes.clone())).collect();
            let before = self.holders.insert(deployment.clone(), now.clone()).unwrap_or_default();
            for (volume, nodes) in now {
                let Some(before) = before.get(&volume) else { continue };
                let holders = world.state.volumes()[deployment].held.get(&volume);
                // It moved, and left an old copy behind.
                let has_moved = holders.is_some_and(|it| before.is_subset(&it.old));
                if let Some(second) = nodes.difference(before).next()
                    && !before.is_empty()
                    && !has_moved
                    && is_one(&world.state, deployment, &volume)
                {
                    return Err(format!("{volume} is on {before:?} and begins on {second}"));
                }
            }
        }
        Ok(())
    }
}

fn is_one(state: &State, deployment: &DeploymentName, volume: &str) -> bool {
    let specs = state.services_of(deployment).filter_map(|key| state.service(key)?.desired());
    let mounting =
        specs.filter(|spec| spec.container.local_volumes(deployment).any(|it| it == volume));
    let modes: Vec<&Mode> = mounting.map(|spec| &spec.placement.mode).collect();
    match modes.as_slice() {
        [only] => only.replicas() == Some(1),
        // Where one of them is on every node, so is the volume.
        modes => modes.len() > 1 && modes.iter().all(|mode| **mode != Mode::Global),
    }
}
