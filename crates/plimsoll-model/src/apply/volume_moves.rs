//! What is done with single volumes: a copy is removed, or all that tie services together move to another node.
//!
//! The claim to the data changes in one entry, when the destination has said that it has all of it. Until then the source is
//! the one that has it, whatever the destination holds; from then on the source keeps an old copy that nothing may use.

use std::collections::BTreeSet;

use super::Txn;
use crate::audit::AuditKind;
use crate::command::Refusal;
use crate::ids::{DeploymentName, NodeId, ServiceName};
use crate::node::NodeStatus;
use crate::spec::ServiceSpec;
use crate::units::Generation;
use crate::volumes::{
    FailedVolumeMove, VolumeChange, VolumeHolders, VolumeMove, VolumeMoveFailure, VolumeMovePhase,
    Volumes,
};

impl Volumes {
    /// Refuses what would run beside a move, or find an old copy in the place of the data.
    pub(super) fn check_free(
        &self,
        name: &DeploymentName,
        node: &NodeId,
        mounted: impl Iterator<Item = String>,
    ) -> Result<(), Refusal> {
        for volume in mounted {
            if self.hold.as_ref().is_some_and(|hold| hold.purpose.stops()) {
                self.check_unheld(Some(&volume))?;
            }
            if let Some(moving) = self.moving.as_ref().filter(|it| it.volumes.contains(&volume)) {
                let (deployment, to) = (name.clone(), moving.dst.clone());
                return Err(Refusal::VolumesMoving { deployment, to });
            }
            if self.held.get(&volume).is_some_and(|it| it.is_spoilt(node)) {
                return Err(Refusal::VolumeThere { volume, node: node.clone() });
            }
        }
        Ok(())
    }

    /// The volumes stay where they are. What the destination may have of them is to go.
    pub(super) fn end_move(&mut self, why: VolumeMoveFailure) -> Option<FailedVolumeMove> {
        let moving = self.moving.take()?;
        if moving.phase == VolumeMovePhase::Copying {
            for volume in &moving.volumes {
                if let Some(holders) = self.held.get_mut(volume) {
                    holders.discards.insert(moving.dst.clone(), moving.order);
                }
            }
        }
        let failed = FailedVolumeMove { order: moving.order, dst: moving.dst, why };
        self.move_failed = Some(failed.clone());
        Some(failed)
    }
}

impl VolumeHolders {
    pub(super) fn drop_copy(&mut self, node: &NodeId) {
        self.nodes.remove(node);
        self.old.remove(node);
        self.discards.remove(node);
    }
}

impl Txn<'_> {
    pub(super) fn volume(&mut self, change: &VolumeChange) -> Result<(), Refusal> {
        match change {
            VolumeChange::Remove { deployment, volume, node } => {
                self.remove_volume(deployment, volume, node)
            }
            VolumeChange::Forget { deployment, volume, node } => {
                self.forget_volume(deployment, volume, node)
            }
            VolumeChange::Removed { deployment, volume, node, order } => {
                self.volume_removed(deployment, volume, node, *order);
                Ok(())
            }
            VolumeChange::Move { deployment, volumes, src, dst } => {
                self.move_volumes(deployment, volumes, src, dst)
            }
            VolumeChange::Copy { deployment, order } => {
                self.copy_volumes(deployment, *order);
                Ok(())
            }
            VolumeChange::Copied { deployment, node, order } => {
                self.volumes_copied(deployment, node, *order);
                Ok(())
            }
            VolumeChange::GiveUp { deployment, order, why } => {
                self.give_up_volume_move(deployment, *order, why);
                Ok(())
            }
            VolumeChange::Hold { deployment, volume, node, purpose } => {
                self.hold_volume(deployment, volume, node, *purpose)
            }
            VolumeChange::OpenHold { deployment, order } => {
                self.open_hold(deployment, *order);
                Ok(())
            }
            VolumeChange::RenewHold { deployment, order } => self.renew_hold(deployment, *order),
            VolumeChange::EndHold { deployment, order, failure } => {
                self.end_volume_hold(deployment, *order, failure.as_ref())
            }
        }
    }

    fn remove_volume(
        &mut self,
        name: &DeploymentName,
        volume: &str,
        node: &NodeId,
    ) -> Result<(), Refusal> {
        let mut volumes = self.removable(name, volume, node)?;
        // One that is no node of the cell was given up, and may join again with what it has.
        if self.state.node(node).is_none_or(|node| node.status != NodeStatus::Ready) {
            return Err(Refusal::VolumeNodeDown { node: node.clone() });
        }
        let order = self.take_generation();
        if let Some(holders) = volumes.held.get_mut(volume) {
            // Asked for twice, it is removed once.
            if holders.discards.contains_key(node) {
                return Ok(());
            }
            holders.discards.insert(node.clone(), order);
        }
        self.set_volumes(name, Some(volumes));
        Ok(())
    }

    fn forget_volume(
        &mut self,
        name: &DeploymentName,
        volume: &str,
        node: &NodeId,
    ) -> Result<(), Refusal> {
        let mut volumes = self.removable(name, volume, node)?;
        if self.state.node(node).is_some_and(|node| node.status == NodeStatus::Ready) {
            return Err(Refusal::VolumeNodeReady { node: node.clone() });
        }
        if let Some(holders) = volumes.held.get_mut(volume) {
            holders.drop_copy(node);
        }
        self.put_volumes(name, volumes);
        let (deployment, volume) = (name.clone(), volume.to_owned());
        self.audit(AuditKind::VolumeForgotten { deployment, volume, node: node.clone() });
        Ok(())
    }

    /// The volumes of the deployment, where the node has a copy of this one that may go.
    fn removable(
        &self,
        name: &DeploymentName,
        volume: &str,
        node: &NodeId,
    ) -> Result<Volumes, Refusal> {
        let volumes = self.volumes_with(name, [volume])?;
        let holders = &volumes.held[volume];
        if holders.is_external {
            let (deployment, volume) = (name.clone(), volume.to_owned());
            return Err(Refusal::VolumeExternal { deployment, volume });
        }
        if !holders.has_copy(node) {
            let (volume, node) = (volume.to_owned(), node.clone());
            return Err(Refusal::VolumeNotThere { volume, node });
        }
        if let Some(moving) = volumes.moving.as_ref().filter(|it| it.volumes.contains(volume)) {
            let (deployment, to) = (name.clone(), moving.dst.clone());
            return Err(Refusal::VolumesMoving { deployment, to });
        }
        volumes.check_unheld(Some(volume))?;
        let mut users = self.state.users_of_volume(volume).into_iter();
        match users.find(|(_, on)| on == node) {
            Some((by, node)) => Err(Refusal::VolumeInUse { volume: volume.to_owned(), by, node }),
            None => Ok(volumes.clone()),
        }
    }

    fn volume_removed(
        &mut self,
        name: &DeploymentName,
        volume: &str,
        node: &NodeId,
        order: Generation,
    ) {
        let Some(mut volumes) = self.state.volumes.get(name).cloned() else { return };
        let Some(holders) = volumes.held.get_mut(volume) else { return };
        if holders.discards.get(node) != Some(&order) {
            return;
        }
        holders.drop_copy(node);
        self.put_volumes(name, volumes);
        let (deployment, volume) = (name.clone(), volume.to_owned());
        self.audit(AuditKind::VolumeRemoved { deployment, volume, node: node.clone() });
    }

    fn move_volumes(
        &mut self,
        name: &DeploymentName,
        moved: &BTreeSet<String>,
        src: &NodeId,
        dst: &NodeId,
    ) -> Result<(), Refusal> {
        let volumes = self.volumes_with(name, moved.iter().map(String::as_str))?;
        self.check_unshared(name, moved)?;
        self.check_declared(name, moved)?;
        volumes.check_idle(name)?;
        if volumes.doomed.is_some() {
            let volume = moved.first().cloned().unwrap_or_default();
            return Err(Refusal::VolumeGoing { volume, node: src.clone() });
        }
        for volume in moved {
            let holders = &volumes.held[volume];
            let volume = volume.clone();
            if holders.is_external {
                return Err(Refusal::VolumeExternal { deployment: name.clone(), volume });
            }
            if holders.nodes.len() > 1 {
                let nodes = holders.nodes.iter().cloned().collect();
                return Err(Refusal::VolumeSplit { volume, nodes });
            }
            if !holders.nodes.contains(src) {
                return Err(Refusal::VolumeNotThere { volume, node: src.clone() });
            }
            if holders.discards.contains_key(src) {
                return Err(Refusal::VolumeGoing { volume, node: src.clone() });
            }
            if holders.has_copy(dst) {
                return Err(Refusal::VolumeThere { volume, node: dst.clone() });
            }
        }
        for node in [src, dst] {
            if self.node(node)?.status != NodeStatus::Ready {
                return Err(Refusal::VolumeNodeDown { node: node.clone() });
            }
        }
        let mut volumes = volumes.clone();
        volumes.move_failed = None;
        volumes.moving = Some(VolumeMove {
            order: self.take_generation(),
            volumes: moved.clone(),
            src: src.clone(),
            dst: dst.clone(),
            phase: VolumeMovePhase::Stopping,
            since: self.at,
        });
        self.set_volumes(name, Some(volumes));
        let (deployment, moved) = (name.clone(), moved.clone());
        let (src, dst) = (src.clone(), dst.clone());
        self.audit(AuditKind::VolumeMoveStarted { deployment, volumes: moved, src, dst });
        Ok(())
    }

    /// What an image declares is a replica's own: all of one replica's moves at once, and with what the file mounts beside it.
    fn check_declared(
        &self,
        name: &DeploymentName,
        moved: &BTreeSet<String>,
    ) -> Result<(), Refusal> {
        let Some(volumes) = self.state.volumes.get(name) else { return Ok(()) };
        let left = |service: &ServiceName, volume: &String| {
            Err(Refusal::VolumeDeclared { service: service.clone(), volume: volume.clone() })
        };
        for volume in moved {
            let Some(declared) = volumes.held.get(volume).and_then(|it| it.declared.as_ref())
            else {
                continue;
            };
            let beside = volumes.declared_beside(volume);
            if let Some(volume) = beside.iter().find(|volume| !moved.contains(*volume)) {
                return left(&declared.service, volume);
            }
        }
        for key in self.state.services_of(name) {
            let Some(service) = self.state.service(key) else { continue };
            let Some(spec) = service.desired().filter(|spec| spec.has_declared()) else { continue };
            let mounts = |spec: &ServiceSpec| {
                spec.container.local_volumes(name).any(|it| moved.contains(&it))
            };
            if !mounts(spec) {
                continue;
            }
            for number in service.data_in_use() {
                let own = volumes.declared_of(&key.service).filter(|(.., it)| it.number == number);
                for (volume, ..) in own {
                    if !moved.contains(volume) {
                        return left(&key.service, volume);
                    }
                }
            }
        }
        Ok(())
    }

    /// A volume under a name that the deployment does not have for itself may be another's too.
    fn check_unshared(
        &self,
        name: &DeploymentName,
        moved: &BTreeSet<String>,
    ) -> Result<(), Refusal> {
        let others = self.state.volumes.iter().filter(|(other, _)| *other != name);
        for (by, volumes) in others {
            if let Some(volume) = moved.iter().find(|volume| volumes.held.contains_key(*volume)) {
                return Err(Refusal::VolumeShared { volume: volume.clone(), by: by.clone() });
            }
        }
        Ok(())
    }

    /// Refuses nothing: what was decided on another move, or too early, changes nothing.
    fn copy_volumes(&mut self, name: &DeploymentName, order: Generation) {
        let Some(volumes) = self.state.volumes.get(name) else { return };
        let Some(moving) = volumes.moving.as_ref().filter(|it| it.order == order) else { return };
        let is_used = |volume: &String| !self.state.users_of_volume(volume).is_empty();
        if moving.phase != VolumeMovePhase::Stopping || moving.volumes.iter().any(is_used) {
            return;
        }
        let moving =
            VolumeMove { phase: VolumeMovePhase::Copying, since: self.at, ..moving.clone() };
        let volumes = Volumes { moving: Some(moving), ..volumes.clone() };
        self.set_volumes(name, Some(volumes));
    }

    fn volumes_copied(&mut self, name: &DeploymentName, node: &NodeId, order: Generation) {
        let Some(mut volumes) = self.state.volumes.get(name).cloned() else { return };
        let is_meant = |it: &VolumeMove| {
            it.order == order && it.dst == *node && it.phase == VolumeMovePhase::Copying
        };
        let Some(moving) = volumes.moving.take_if(|moving| is_meant(moving)) else { return };
        for volume in &moving.volumes {
            if let Some(holders) = volumes.held.get_mut(volume) {
                holders.nodes = [moving.dst.clone()].into();
                holders.old.insert(moving.src.clone());
            }
        }
        self.set_volumes(name, Some(volumes));
        let VolumeMove { volumes, src, dst, .. } = moving;
        let deployment = name.clone();
        self.audit(AuditKind::VolumesMoved { deployment, volumes, src, dst });
    }

    fn give_up_volume_move(
        &mut self,
        name: &DeploymentName,
        order: Generation,
        why: &VolumeMoveFailure,
    ) {
        let Some(mut volumes) = self.state.volumes.get(name).cloned() else { return };
        if volumes.moving.as_ref().is_none_or(|moving| moving.order != order) {
            return;
        }
        let given_up = volumes.end_move(why.clone());
        self.set_volumes(name, Some(volumes));
        self.audit_failed_move(name, given_up);
    }

    pub(super) fn audit_failed_move(
        &mut self,
        name: &DeploymentName,
        failed: Option<FailedVolumeMove>,
    ) {
        if let Some(FailedVolumeMove { dst, why, .. }) = failed {
            self.audit(AuditKind::VolumeMoveFailed { deployment: name.clone(), dst, why });
        }
    }

    /// The volumes of the deployment, where it has all of these.
    fn volumes_with<'v>(
        &self,
        name: &DeploymentName,
        wanted: impl IntoIterator<Item = &'v str>,
    ) -> Result<&Volumes, Refusal> {
        let absent = |volume: &str| Refusal::NoSuchVolume {
            deployment: name.clone(),
            volume: volume.to_owned(),
        };
        let volumes = self.state.volumes.get(name).ok_or_else(|| absent("of this name"))?;
        let missing = wanted.into_iter().find(|volume| !volumes.held.contains_key(*volume));
        missing.map_or(Ok(volumes), |volume| Err(absent(volume)))
    }
}
