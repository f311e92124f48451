//! Changes to where the volumes of deployments lie.

use super::Txn;
use crate::audit::AuditKind;
use crate::command::Refusal;
use crate::ids::{DeploymentName, NodeId};
use crate::spec::{ContainerSpec, MountedVolume};
use crate::units::Revision;
use crate::volumes::{VolumeHolders, Volumes};

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
        let volumes = Volumes { doomed: last, ..volumes.clone() };
        self.set_volumes(name, Some(volumes));
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

    /// From now on the node may have what the container keeps in named volumes.
    pub(super) fn note_volumes(
        &mut self,
        name: &DeploymentName,
        node: &NodeId,
        container: &ContainerSpec,
    ) {
        // An external volume that every node reaches is nowhere in particular, and nobody's to remove.
        let is_noted = |volume: &MountedVolume<'_>| volume.is_local() || !volume.is_external();
        let known = self.state.volumes.get(name);
        let has = |volume: &str| known.is_some_and(|it| it.nodes_of(volume).any(|on| on == node));
        let noted = container.mounted_volumes().filter(is_noted);
        let new: Vec<(String, bool)> = noted
            .map(|volume| (volume.name(name), volume.is_external()))
            .filter(|(volume, _)| !has(volume))
            .collect();
        if new.is_empty() {
            return;
        }
        let mut volumes = known.cloned().unwrap_or_default();
        for (volume, is_external) in new {
            let holders = volumes.held.entry(volume).or_default();
            holders.nodes.insert(node.clone());
            holders.is_external = is_external;
        }
        self.set_volumes(name, Some(volumes));
    }

    /// Whatever data a node that left had, is not the cell's any more.
    pub(super) fn forget_volumes(&mut self, node: &NodeId) {
        let has_some = |volumes: &Volumes| volumes.held.values().any(|it| it.nodes.contains(node));
        let held = self.state.volumes.iter().filter(|(_, volumes)| has_some(volumes));
        let names: Vec<DeploymentName> = held.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.drop_volumes(&name, node, |_| true);
        }
    }

    fn drop_volumes(
        &mut self,
        name: &DeploymentName,
        node: &NodeId,
        is_gone: fn(&VolumeHolders) -> bool,
    ) {
        let Some(mut volumes) = self.state.volumes.get(name).cloned() else { return };
        for holders in volumes.held.values_mut().filter(|holders| is_gone(holders)) {
            holders.nodes.remove(node);
        }
        volumes.held.retain(|_, holders| !holders.nodes.is_empty());
        let is_over = volumes.doomed.is_some() && volumes.nodes().is_empty();
        volumes.doomed = volumes.doomed.filter(|_| !is_over);
        self.set_volumes(name, (!volumes.held.is_empty()).then_some(volumes));
    }
}
