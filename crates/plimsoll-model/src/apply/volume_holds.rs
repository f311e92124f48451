//! A volume is held while somebody backs it up or restores it, and let go when they are done, or are not heard of any more.

use super::Txn;
use crate::audit::AuditKind;
use crate::command::Refusal;
use crate::ids::{DeploymentName, NodeId};
use crate::node::NodeStatus;
use crate::units::Generation;
use crate::volume_holds::{
    HOLD_LEASE, HoldPurpose, VolumeHold, VolumeHoldFailure, VolumeHoldPhase,
};
use crate::volumes::Volumes;

/// A hold that is over, for the audit.
pub(super) type EndedHold = (VolumeHold, Option<VolumeHoldFailure>);

impl Volumes {
    /// Refuses what would meet a move or a hold of the deployment's volumes.
    pub(super) fn check_idle(&self, name: &DeploymentName) -> Result<(), Refusal> {
        if let Some(moving) = &self.moving {
            let (deployment, to) = (name.clone(), moving.dst.clone());
            return Err(Refusal::VolumesMoving { deployment, to });
        }
        self.check_unheld(None)
    }

    /// Refuses what would meet a hold of this volume, or of any.
    pub(super) fn check_unheld(&self, volume: Option<&str>) -> Result<(), Refusal> {
        let is_meant = |hold: &&VolumeHold| volume.is_none_or(|volume| hold.volume == volume);
        match self.hold.as_ref().filter(is_meant) {
            Some(hold) => {
                let (volume, purpose) = (hold.volume.clone(), hold.purpose);
                Err(Refusal::VolumeHeld { volume, purpose })
            }
            None => Ok(()),
        }
    }

    /// What was stopped for it may start again. A volume that was to begin with it is removed, if there is anything of it.
    pub(super) fn end_hold(&mut self, failure: Option<VolumeHoldFailure>) -> Option<EndedHold> {
        let hold = self.hold.take()?;
        // Before it was open, nothing of a new volume was made.
        if hold.is_new && hold.phase == VolumeHoldPhase::Open {
            let holders = self.held.entry(hold.volume.clone()).or_default();
            let node = hold.node.clone();
            match &failure {
                None => drop(holders.nodes.insert(node)),
                Some(_) => drop(holders.discards.insert(node, hold.order)),
            }
        }
        Some((hold, failure))
    }
}

impl Txn<'_> {
    pub(super) fn hold_volume(
        &mut self,
        name: &DeploymentName,
        volume: &str,
        node: &NodeId,
        purpose: HoldPurpose,
    ) -> Result<(), Refusal> {
        if self.node(node)?.status != NodeStatus::Ready {
            return Err(Refusal::VolumeNodeDown { node: node.clone() });
        }
        let mut volumes = self.state.volumes.get(name).cloned().unwrap_or_default();
        volumes.check_idle(name)?;
        let others = self.state.volumes.iter().filter(|(other, _)| *other != name);
        let mut sharing = others.filter(|(_, it)| it.held.contains_key(volume));
        if let Some((by, _)) = sharing.next() {
            return Err(Refusal::VolumeShared { volume: volume.to_owned(), by: by.clone() });
        }
        let holders = volumes.held.get(volume);
        let is_new = holders.is_none_or(|holders| holders.nodes.is_empty());
        let there = || (volume.to_owned(), node.clone());
        if let Some(holders) = holders {
            if holders.is_external {
                let (deployment, volume) = (name.clone(), volume.to_owned());
                return Err(Refusal::VolumeExternal { deployment, volume });
            }
            if volumes.doomed.is_some() || holders.discards.contains_key(node) {
                let (volume, node) = there();
                return Err(Refusal::VolumeGoing { volume, node });
            }
            // To replace an old copy is to begin another volume beside the data.
            if holders.is_spoilt(node) && purpose == HoldPurpose::Restore {
                let (volume, node) = there();
                return Err(Refusal::VolumeThere { volume, node });
            }
        }
        let has_data = holders.is_some_and(|holders| holders.nodes.contains(node));
        let may_be_new = is_new && purpose == HoldPurpose::Restore;
        if !has_data && !may_be_new {
            let (volume, node) = there();
            return Err(Refusal::VolumeNotThere { volume, node });
        }
        let phase = if purpose.stops() { VolumeHoldPhase::Stopping } else { VolumeHoldPhase::Open };
        volumes.hold = Some(VolumeHold {
            order: self.take_generation(),
            volume: volume.to_owned(),
            node: node.clone(),
            purpose,
            phase,
            is_new,
            since: self.at,
            until: self.at.plus(HOLD_LEASE),
        });
        self.set_volumes(name, Some(volumes));
        let (deployment, (volume, node)) = (name.clone(), there());
        self.audit(AuditKind::VolumeHeld { deployment, volume, node, purpose });
        Ok(())
    }

    /// Refuses nothing: what was decided on another hold, or too early, changes nothing.
    pub(super) fn open_hold(&mut self, name: &DeploymentName, order: Generation) {
        let Some(volumes) = self.state.volumes.get(name) else { return };
        let Some(hold) = volumes.hold.as_ref().filter(|hold| hold.order == order) else { return };
        let is_used = !self.state.users_of_volume(&hold.volume).is_empty();
        if hold.phase != VolumeHoldPhase::Stopping || is_used {
            return;
        }
        let hold = VolumeHold { phase: VolumeHoldPhase::Open, ..hold.clone() };
        let volumes = Volumes { hold: Some(hold), ..volumes.clone() };
        self.set_volumes(name, Some(volumes));
    }

    pub(super) fn renew_hold(
        &mut self,
        name: &DeploymentName,
        order: Generation,
    ) -> Result<(), Refusal> {
        let mut volumes = self.held_by(name, order)?;
        if let Some(hold) = &mut volumes.hold {
            hold.until = hold.until.max(self.at.plus(HOLD_LEASE));
        }
        if self.state.volumes.get(name) != Some(&volumes) {
            self.set_volumes(name, Some(volumes));
        }
        Ok(())
    }

    pub(super) fn end_volume_hold(
        &mut self,
        name: &DeploymentName,
        order: Generation,
        failure: Option<&VolumeHoldFailure>,
    ) -> Result<(), Refusal> {
        let mut volumes = match (self.held_by(name, order), failure) {
            (Ok(volumes), _) => volumes,
            // It is over already, for whatever reason.
            (Err(_), Some(_)) => return Ok(()),
            (Err(refusal), None) => return Err(refusal),
        };
        let is_open = volumes.hold.as_ref().is_some_and(|it| it.phase == VolumeHoldPhase::Open);
        if failure.is_none() && !is_open {
            return Err(Refusal::VolumeNotHeld { deployment: name.clone() });
        }
        let ended = volumes.end_hold(failure.cloned());
        self.put_volumes(name, volumes);
        self.audit_ended_hold(name, ended);
        Ok(())
    }

    /// The volumes of the deployment, where they are held by this order.
    fn held_by(&self, name: &DeploymentName, order: Generation) -> Result<Volumes, Refusal> {
        let volumes = self.state.volumes.get(name);
        let held = volumes.filter(|it| it.hold.as_ref().is_some_and(|hold| hold.order == order));
        held.cloned().ok_or_else(|| Refusal::VolumeNotHeld { deployment: name.clone() })
    }

    pub(super) fn audit_ended_hold(&mut self, name: &DeploymentName, ended: Option<EndedHold>) {
        let Some((VolumeHold { volume, node, purpose, .. }, failure)) = ended else { return };
        let deployment = name.clone();
        self.audit(match failure {
            None => AuditKind::VolumeHoldDone { deployment, volume, node, purpose },
            Some(why) => AuditKind::VolumeHoldFailed { deployment, volume, purpose, why },
        });
    }
}
