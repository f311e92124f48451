//! Changes to where the volumes of deployments lie.

use super::Txn;
use crate::audit::AuditKind;
use crate::command::Refusal;
use crate::ids::{DeploymentName, NodeId};
use crate::units::Revision;
use crate::volumes::Volumes;

impl Txn<'_> {
    /// Someone wants the data of a deployment that has ended to go.
    pub(super) fn remove_volumes(&mut self, name: &DeploymentName) -> Result<(), Refusal> {
        if self.state.deployments.contains_key(name) {
            return Err(Refusal::StillDeployed { deployment: name.clone() });
        }
        let last = self.state.counters.revision.get(name).copied();
        let Some(volumes) = self.state.volumes.get(name) else { return Ok(()) };
        if volumes.doomed.is_some() {
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
        if volumes.doomed != Some(revision) || !volumes.nodes.contains(node) {
            return;
        }
        self.drop_volumes(name, node);
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

    /// From now on the node may have data of the deployment.
    pub(super) fn note_volumes(&mut self, name: &DeploymentName, node: &NodeId) {
        let known = self.state.volumes.get(name);
        if known.is_some_and(|volumes| volumes.nodes.contains(node)) {
            return;
        }
        let mut volumes = known.cloned().unwrap_or_default();
        volumes.nodes.insert(node.clone());
        self.set_volumes(name, Some(volumes));
    }

    /// Whatever data a node that left had, is not the cell's any more.
    pub(super) fn forget_volumes(&mut self, node: &NodeId) {
        let held = self.state.volumes.iter().filter(|(_, volumes)| volumes.nodes.contains(node));
        let names: Vec<DeploymentName> = held.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.drop_volumes(&name, node);
        }
    }

    fn drop_volumes(&mut self, name: &DeploymentName, node: &NodeId) {
        let Some(mut volumes) = self.state.volumes.get(name).cloned() else { return };
        volumes.nodes.remove(node);
        self.set_volumes(name, (!volumes.nodes.is_empty()).then_some(volumes));
    }
}
