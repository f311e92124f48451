//! While a volume may be read for a backup, or replaced, nothing runs with it; and what was lost to its holder is not said to have
//! gone well.

use plimsoll_model::volume_holds::VolumeHoldPhase;
use plimsoll_model::{DeploymentName, NodeId};

use super::Invariant;
use crate::machine::Machine;
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct HeldVolumesRest;

impl Invariant for HeldVolumesRest {
    fn name(&self) -> &'static str {
        "held volumes rest"
    }

    fn check(&mut self, world: &World<'_>) -> Result<(), String> {
        let state = &world.state;
        for (deployment, volumes) in state.volumes() {
            let Some(hold) = &volumes.hold else { continue };
            if volumes.moving.is_some() {
                return Err(format!("volumes of {deployment} move while one is held"));
            }
            if hold.phase != VolumeHoldPhase::Open || !hold.purpose.stops() {
                continue;
            }
            let uses =
                |(node, it): &(&NodeId, &Machine)| uses(world, deployment, &hold.volume, node, it);
            if let Some((node, _)) = world.machines.iter().find(uses) {
                let noun = hold.purpose.noun();
                return Err(format!(
                    "{noun} of {} is under way, and it runs on {node}",
                    hold.volume
                ));
            }
        }
        Ok(())
    }
}

/// A machine that is not of the cell may run on with anything.
fn uses(
    world: &World<'_>,
    deployment: &DeploymentName,
    volume: &str,
    node: &NodeId,
    machine: &Machine,
) -> bool {
    world.state.node(node).is_some() && machine.uses_volume(deployment, volume)
}
