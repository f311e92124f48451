//! Clients that back up and restore volumes. One in a few is killed on the way, and never heard of again.

use plimsoll_model::volume_holds::{HoldPurpose, VolumeHold, VolumeHoldPhase};
use plimsoll_model::volumes::VolumeChange;
use plimsoll_model::{Change, DeploymentName, Generation, Guarded, Millis, NodeId};

use super::{Due, World};
use crate::machine::Link;

/// One client in so many is killed.
const KILLED: u64 = 5;

/// One backup in so many is a live one.
const LIVE: u64 = 4;

/// How often a client says that it is there, and looks how far things are.
const RENEW: Millis = Millis::seconds(10);

impl World<'_> {
    /// A volume that the node has, or else any, is to be backed up.
    pub(super) fn back_up_volume(
        &mut self,
        deployment: DeploymentName,
        node: &NodeId,
    ) -> Vec<Guarded> {
        let is_live = self.rng.below(LIVE) == 0;
        let purpose = if is_live { HoldPurpose::LiveBackup } else { HoldPurpose::Backup };
        match self.volume_of(&deployment, node) {
            Some((volume, node)) => held(deployment, volume, node, purpose),
            None => Vec::new(),
        }
    }

    /// The same is to be replaced. Where the deployment has none, one begins on the node.
    pub(super) fn restore_volume(
        &mut self,
        deployment: DeploymentName,
        node: &NodeId,
    ) -> Vec<Guarded> {
        let (volume, node) = self
            .volume_of(&deployment, node)
            .unwrap_or_else(|| (format!("{deployment}_restored"), node.clone()));
        held(deployment, volume, node, HoldPurpose::Restore)
    }

    fn volume_of(&self, deployment: &DeploymentName, node: &NodeId) -> Option<(String, NodeId)> {
        let held = &self.state.volumes().get(deployment)?.held;
        let here = held.iter().find(|(_, holders)| holders.nodes.contains(node));
        if let Some((volume, _)) = here {
            return Some((volume.clone(), node.clone()));
        }
        held.iter().find_map(|(volume, it)| Some((volume.clone(), it.nodes.first()?.clone())))
    }

    /// Every hold has a client; some are killed at once.
    pub(super) fn follow_holds(&mut self) {
        let all = self.state.volumes().iter();
        let held = all.filter_map(|(name, it)| Some((name.clone(), it.hold.as_ref()?.order)));
        for (deployment, order) in held.collect::<Vec<_>>() {
            if self.clients.insert(order) && self.rng.below(KILLED) > 0 {
                self.clock.after(RENEW, Due::Client { deployment, order });
            }
        }
    }

    /// It does its work once it may, and says that it is there until then.
    pub(super) fn look_after_hold(&mut self, deployment: DeploymentName, order: Generation) {
        let volumes = self.state.volumes().get(&deployment);
        let hold = volumes.and_then(|it| it.hold.clone()).filter(|it| it.order == order);
        let Some(VolumeHold { volume, node, purpose, phase, .. }) = hold else { return };
        let is_done = phase == VolumeHoldPhase::Open
            && match purpose {
                HoldPurpose::Restore => self.swap(&deployment, &volume, &node),
                HoldPurpose::Backup | HoldPurpose::LiveBackup => true,
            };
        let change = if is_done {
            let deployment = deployment.clone();
            VolumeChange::EndHold { deployment, order, failure: None }
        } else {
            VolumeChange::RenewHold { deployment: deployment.clone(), order }
        };
        // Where nobody leads, it is said again.
        if !self.operate(vec![Change::Volume { change }.free()]) || !is_done {
            self.clock.after(RENEW, Due::Client { deployment, order });
        }
    }

    /// The node puts the backup in the place of the volume, if it is heard and nothing there runs with it.
    fn swap(&mut self, deployment: &DeploymentName, volume: &str, node: &NodeId) -> bool {
        let Some(machine) = self.machines.get_mut(node) else { return false };
        if machine.link != Link::Up || machine.uses_volume(deployment, volume) {
            return false;
        }
        self.numbers += 1;
        machine.contents.insert(volume.to_owned(), self.numbers);
        machine.volumes.insert(volume.to_owned(), deployment.clone());
        true
    }
}

fn held(
    deployment: DeploymentName,
    volume: String,
    node: NodeId,
    purpose: HoldPurpose,
) -> Vec<Guarded> {
    let change = VolumeChange::Hold { deployment, volume, node, purpose };
    vec![Change::Volume { change }.free()]
}
