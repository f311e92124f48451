//! What machines do with single volumes: copies are removed and moved as the cell asks for it, each in its time, and a copy
//! may fail.

use plimsoll_kernel::volume_moves;
use plimsoll_model::spec::VolumeGroup;
use plimsoll_model::volumes::{
    VolumeChange, VolumeHolders, VolumeMove, VolumeMoveFailure, VolumeMovePhase,
};
use plimsoll_model::{
    Change, DeploymentName, Generation, Guarded, Mode, NodeId, NodeStatus, ServiceKey,
};

use super::{Due, World};
use crate::machine::{Link, Machine};

/// One copy in so many fails.
const FAILS: u64 = 5;

impl World<'_> {
    /// Every node that is asked to and can removes copies of volumes, or begins to copy.
    pub(super) fn follow_volume_orders(&mut self) {
        if self.leading.is_none() {
            return;
        }
        self.follow_holds();
        let mut removed = Vec::new();
        for (node, machine) in self.machines.iter().filter(|(_, machine)| machine.can_stop()) {
            for (deployment, volume, order) in self.state.discards_on(node) {
                let is_used = machine.uses_volume(deployment, volume);
                let mut users = self.state.users_of_volume(volume).into_iter();
                if !is_used && !users.any(|(_, on)| on == *node) {
                    removed.push((node.clone(), deployment.clone(), volume.clone(), order));
                }
            }
        }
        for (node, deployment, volume, order) in removed {
            if let Some(machine) = self.machines.get_mut(&node) {
                machine.volumes.remove(&volume);
                machine.contents.remove(&volume);
            }
            let latency = self.scenario.dwell.network.1;
            let change = VolumeChange::Removed { deployment, volume, node, order };
            self.clock.after(latency, Due::Volume(change));
        }
        let all = self.state.volumes().iter();
        let copying = all.filter_map(|(name, it)| Some((name, it.moving.as_ref()?)));
        let copying = copying.filter(|(_, it)| it.phase == VolumeMovePhase::Copying);
        let copying: Vec<(DeploymentName, NodeId, Generation)> =
            copying.map(|(name, it)| (name.clone(), it.dst.clone(), it.order)).collect();
        for (deployment, node, order) in copying {
            let Some(machine) = self.machines.get(&node).filter(|it| it.can_stop()) else {
                continue;
            };
            let boot = machine.boot;
            if self.copying.insert((order, boot)) {
                let takes = self.rng.between(self.scenario.dwell.pull);
                self.clock.after(takes, Due::Copied { deployment, order, boot });
            }
        }
    }

    /// The time that a copy takes is over.
    pub(super) fn copied(&mut self, deployment: DeploymentName, order: Generation, boot: u64) {
        let volumes = self.state.volumes().get(&deployment);
        let moving = volumes.and_then(|it| it.moving.clone()).filter(|it| it.order == order);
        let Some(VolumeMove { volumes, src, dst, .. }) = moving else { return };
        let is_same = |machine: &&Machine| machine.boot == boot;
        self.copying.remove(&(order, boot));
        let Some(here) = self.machines.get(&dst).filter(is_same) else { return };
        let is_heard = here.link == Link::Up;
        let source = self.machines.get(&src).filter(|it| it.link == Link::Up && is_heard);
        // An empty volume is one that was never used: what there is to copy is copied.
        let contents = source.map(|source| source.contents.clone());
        let fails = contents.is_none() || self.rng.below(FAILS) == 0;
        if let Some(machine) = self.machines.get_mut(&dst) {
            for volume in &volumes {
                // Also what fails may leave something behind.
                machine.volumes.insert(volume.clone(), deployment.clone());
                machine.contents.remove(volume);
                if let Some(content) = contents.as_ref().and_then(|it| it.get(volume)) {
                    machine.contents.insert(volume.clone(), if fails { 0 } else { *content });
                }
            }
        }
        let change = if fails {
            let why = VolumeMoveFailure::Copy { error: "it was cut off".to_owned() };
            VolumeChange::GiveUp { deployment, order, why }
        } else {
            VolumeChange::Copied { deployment, node: dst, order }
        };
        self.clock.after(self.scenario.dwell.network.1, Due::Volume(change));
    }

    /// A node's word on a volume reaches the leader, while both are there.
    pub(super) fn hear_volume(&mut self, change: VolumeChange) {
        let node = match &change {
            VolumeChange::Removed { node, .. } | VolumeChange::Copied { node, .. } => Some(node),
            VolumeChange::GiveUp { deployment, .. } => {
                let volumes = self.state.volumes().get(deployment);
                volumes.and_then(|it| Some(&it.moving.as_ref()?.dst))
            }
            _ => None,
        };
        let machine = node.and_then(|node| self.machines.get(node));
        if machine.is_some_and(|machine| machine.link == Link::Up) {
            self.take(Change::Volume { change });
        }
    }

    /// The first of the deployment's volumes that can move, with all it is tied to.
    pub(super) fn move_volume(&self, deployment: &DeploymentName, dst: &NodeId) -> Vec<Guarded> {
        let Some(known) = self.state.volumes().get(deployment) else { return Vec::new() };
        let candidates = known.held.iter().filter(|(_, it)| it.nodes.len() == 1 && !it.is_external);
        for (volume, holders) in candidates {
            let Some(src) = holders.nodes.first().filter(|src| *src != dst) else { continue };
            let volumes = match volume_moves::tied(&self.state, deployment, volume) {
                Some(group) if is_per_replica(&group) => continue,
                Some(group) => {
                    group.volumes.into_iter().filter(|it| known.held.contains_key(it)).collect()
                }
                // Of a service that is on every node, each has its own.
                None if self.is_deployed(deployment, holders) => continue,
                None => {
                    let mut volumes = known.declared_beside(volume);
                    volumes.insert(volume.clone());
                    volumes
                }
            };
            let (src, dst) = (src.clone(), dst.clone());
            let change = VolumeChange::Move { deployment: deployment.clone(), volumes, src, dst };
            return vec![Change::Volume { change }.free()];
        }
        Vec::new()
    }

    /// Whether the service is there whose image declares the volume.
    fn is_deployed(&self, deployment: &DeploymentName, holders: &VolumeHolders) -> bool {
        let Some(declared) = &holders.declared else { return false };
        let key = ServiceKey::new(deployment.clone(), declared.service.clone());
        self.state.service(&key).is_some_and(|service| service.desired().is_some())
    }

    /// A copy of a volume that the node has is to go. Where there is none, one that a lost node has is forgotten.
    pub(super) fn remove_volume(&self, deployment: &DeploymentName, node: &NodeId) -> Vec<Guarded> {
        let known = self.state.volumes().get(deployment).into_iter();
        let mut held = known.flat_map(|known| &known.held).filter(|(_, it)| it.has_copy(node));
        let (deployment, node) = (deployment.clone(), node.clone());
        let change = match held.next() {
            Some((volume, _)) => VolumeChange::Remove { deployment, volume: volume.clone(), node },
            None => match self.lost_copy() {
                Some(lost) => lost,
                None => return Vec::new(),
            },
        };
        vec![Change::Volume { change }.free()]
    }

    /// A copy that nothing uses, on a node that is down.
    fn lost_copy(&self) -> Option<VolumeChange> {
        let is_down =
            |node: &NodeId| self.state.node(node).is_some_and(|it| it.status == NodeStatus::Down);
        let is_used = |volume: &str, node: &NodeId| {
            self.state.users_of_volume(volume).iter().any(|(_, on)| on == node)
        };
        self.state.volumes().iter().find_map(|(deployment, known)| {
            known.held.iter().find_map(|(volume, holders)| {
                let mut copies = holders.copies().into_iter();
                let node = copies.find(|node| is_down(node) && !is_used(volume, node))?;
                let (deployment, volume) = (deployment.clone(), volume.clone());
                Some(VolumeChange::Forget { deployment, volume, node })
            })
        })
    }
}

/// Whether each replica has a volume of its own.
fn is_per_replica(group: &VolumeGroup<'_>) -> bool {
    let modes: Vec<&Mode> = group.services.iter().map(|(_, spec)| &spec.placement.mode).collect();
    matches!(modes.as_slice(), [only] if only.replicas() != Some(1))
}
