//! Changes to where the volumes of deployments lie.

use super::Txn;
use crate::audit::AuditKind;
use crate::command::Refusal;
use crate::ids::{DeploymentName, NodeId};
use crate::spec::{ContainerSpec, MountedVolume};
use crate::units::Revision;
use crate::volume_holds::VolumeHoldFailure;
use crate::volumes::{VolumeHolders, VolumeMoveFailure, Volumes};

impl Txn<'_> {
    /// Someone wants the data of a deployment that has ended to go.
    pub(super) fn remove_volumes(&mut self, name: &DeploymentName) -> Result<(), Refusal> {
        if self.state.deployments.contains_key(name) {
            return Err(Refusal::StillDeployed { deployment: name.clone() });
        }
        let last = self.state.counters.revision.get(name).copied();
        let Some(volumes) = self.state.volumes.get(name) else { return Ok(()) };
        if volumes.doomed.is_some() || volumes.nodes().is_empty() {
            return Ok(());
        }
        let mut volumes = Volumes { doomed: last, ..volumes.clone() };
        let given_up = volumes.end_move(VolumeMoveFailure::Removed);
        let let_go = volumes.end_hold(Some(VolumeHoldFailure::Removed));
        self.set_volumes(name, Some(volumes));
        self.audit_failed_move(name, given_up);
        self.audit_ended_hold(name, let_go);
        self.audit(AuditKind::VolumesDoomed { deployment: name.clone() });
        Ok(())
    }

    /// A node has removed what it had. What it says of an earlier end of the deployment says nothing of this one.
    pub(super) fn volumes_removed(
        &mut self,
        name: &DeploymentName,
        node: &NodeId,
        revision: Revision,
    ) {
        let Some(volumes) = self.state.volumes.get(name) else { return };
        if volumes.doomed != Some(revision) || !volumes.nodes().contains(node) {
            return;
        }
        self.drop_volumes(name, node, |holders| !holders.is_external);
        let (deployment, node) = (name.clone(), node.clone());
        self.audit(AuditKind::VolumesRemoved { deployment, node });
    }

    /// A deployment that comes back under the name keeps its data.
    pub(super) fn spare_volumes(&mut self, name: &DeploymentName) {
        let Some(volumes) = self.state.volumes.get(name) else { return };
        if volumes.doomed.is_some() {
            let volumes = Volumes { doomed: None, ..volumes.clone() };
            self.set_volumes(name, Some(volumes));
        }
    }

    /// From now on the node may have what the container keeps in named volumes. None while one of them moves, and none beside
    /// an old copy, which it would take for the data.
    pub(super) fn note_volumes(
        &mut self,
        name: &DeploymentName,
        node: &NodeId,
        container: &ContainerSpec,
    ) -> Result<(), Refusal> {
        // An external volume that every node reaches is nowhere in particular, and nobody's to remove.
        let is_noted = |volume: &MountedVolume<'_>| volume.is_local() || !volume.is_external();
        let known = self.state.volumes.get(name);
        let has = |volume: &str| known.is_some_and(|it| it.nodes_of(volume).any(|on| on == node));
        let noted = container.mounted_volumes().filter(is_noted);
        let noted: Vec<(String, bool)> =
            noted.map(|volume| (volume.name(name), volume.is_external())).collect();
        if let Some(known) = known {
            // What every node reaches is in no place, and has no copies.
            known.check_free(name, node, container.local_volumes(name))?;
        }
        let is_going = |volume: &str| {
            let holders = known.and_then(|known| known.held.get(volume));
            holders.is_some_and(|it| it.discards.contains_key(node))
        };
        let is_new = |(volume, _): &(String, bool)| !has(volume) || is_going(volume);
        let new: Vec<(String, bool)> = noted.into_iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        let mut volumes = known.cloned().unwrap_or_default();
        for (volume, is_external) in new {
            let holders = volumes.held.entry(volume).or_default();
            holders.nodes.insert(node.clone());
            holders.is_external = is_external;
            // What comes back for its data before it is gone keeps it.
            holders.discards.remove(node);
        }
        self.set_volumes(name, Some(volumes));
        Ok(())
    }

    /// Whatever data a node that left had, is not the cell's any more.
    pub(super) fn forget_volumes(&mut self, node: &NodeId) {
        let has_some = |volumes: &Volumes| {
            let mut held = volumes.held.values();
            held.any(|it| it.has_copy(node))
                || volumes.moving.as_ref().is_some_and(|it| it.dst == *node)
                || volumes.hold.as_ref().is_some_and(|it| it.node == *node)
        };
        let held = self.state.volumes.iter().filter(|(_, volumes)| has_some(volumes));
        let names: Vec<DeploymentName> = held.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.drop_volumes(&name, node, |_| true);
        }
    }

    /// A node is given up that a volume moves to or from. The data stays where it was.
    pub(super) fn give_up_moves(&mut self, node: &NodeId) {
        let is_end = |volumes: &Volumes| {
            volumes.moving.as_ref().is_some_and(|it| it.src == *node || it.dst == *node)
        };
        let moving = self.state.volumes.iter().filter(|(_, volumes)| is_end(volumes));
        let names: Vec<DeploymentName> = moving.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.drop_volumes(&name, node, |_| false);
        }
    }

    fn drop_volumes(
        &mut self,
        name: &DeploymentName,
        node: &NodeId,
        is_gone: fn(&VolumeHolders) -> bool,
    ) {
        let Some(mut volumes) = self.state.volumes.get(name).cloned() else { return };
        let given_up = match volumes.moving.as_ref().map(|moving| (&moving.src, &moving.dst)) {
            Some((src, _)) if src == node => volumes.end_move(VolumeMoveFailure::SourceLost),
            Some((_, dst)) if dst == node => volumes.end_move(VolumeMoveFailure::DestinationLost),
            _ => None,
        };
        let is_held = volumes.hold.as_ref().is_some_and(|hold| hold.node == *node);
        let let_go =
            if is_held { volumes.end_hold(Some(VolumeHoldFailure::NodeLost)) } else { None };
        for holders in volumes.held.values_mut().filter(|holders| is_gone(holders)) {
            holders.drop_copy(node);
        }
        self.put_volumes(name, volumes);
        self.audit_failed_move(name, given_up);
        self.audit_ended_hold(name, let_go);
    }

    /// What nobody has any more is forgotten.
    pub(super) fn put_volumes(&mut self, name: &DeploymentName, mut volumes: Volumes) {
        volumes.held.retain(|_, holders| !holders.copies().is_empty());
        let is_over = volumes.doomed.is_some() && volumes.nodes().is_empty();
        volumes.doomed = volumes.doomed.filter(|_| !is_over);
        let is_some = !volumes.held.is_empty() || volumes.hold.is_some();
        self.set_volumes(name, is_some.then_some(volumes));
    }
}
