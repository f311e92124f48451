//! While a volume is copied nothing runs with it, and it changes hands only to a node that has all of it: whenever a move is
//! cut short, exactly one node has the data, and it is the one that the cell knows.

use std::collections::BTreeMap;

use plimsoll_model::volumes::{VolumeMove, VolumeMovePhase};
use plimsoll_model::{DeploymentName, NodeId, State};

use super::Invariant;
use crate::machine::Machine;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct VolumesChangeHandsWhole {
    /// Where each volume was that is being copied, and what was in it.
    copied: BTreeMap<(DeploymentName, String), (NodeId, Option<u64>)>,
}

impl Invariant for VolumesChangeHandsWhole {
    fn name(&self) -> &'static str {
        "volumes change hands whole"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        let state = &world.state;
        for ((deployment, volume), (src, content)) in std::mem::take(&mut self.copied) {
            let held = state.volumes().get(&deployment).and_then(|it| it.held.get(&volume));
            let Some(holders) = held.filter(|it| it.old.contains(&src)) else { continue };
            let Some(dst) = holders.nodes.first() else { continue };
            let found = world.machines.get(dst).and_then(|it| it.contents.get(&volume).copied());
            if found != content {
                return Err(format!("{volume} moved from {src} to {dst} and is not the same"));
            }
        }
        for (deployment, moving) in copying(state) {
            for volume in &moving.volumes {
                let uses = |(node, it): &(&NodeId, &Machine)| {
                    state.node(node).is_some() && it.uses_volume(deployment, volume)
                };
                if let Some((node, _)) = world.machines.iter().find(uses) {
                    return Err(format!("{volume} is copied, and runs on {node}"));
                }
                let source = world.machines.get(&moving.src);
                let content = source.and_then(|it| it.contents.get(volume).copied());
                let key = (deployment.clone(), volume.clone());
                self.copied.insert(key, (moving.src.clone(), content));
            }
        }
        Ok(())
    }
}

fn copying(state: &State) -> impl Iterator<Item = (&DeploymentName, &VolumeMove)> {
    let all = state.volumes().iter();
    let moving = all.filter_map(|(name, volumes)| Some((name, volumes.moving.as_ref()?)));
    moving.filter(|(_, moving)| moving.phase == VolumeMovePhase::Copying)
}
