//! Changes to the authority of the cell: a rotation begins, nodes do their part of it, it goes a step on, or back.

use std::collections::BTreeSet;
use std::mem;

use super::Txn;
use crate::access::{Access, Authority};
use crate::audit::AuditKind;
use crate::command::Refusal;
use crate::ids::NodeId;
use crate::node::NodeStatus;
use crate::rotation::{Rotation, RotationPhase, RotationStep};

impl Txn<'_> {
    pub(super) fn rotate_authority(
        &mut self,
        next: &Authority,
        without: &[NodeId],
    ) -> Result<(), Refusal> {
        let mut access = self.state.access.clone();
        let Some(authority) = &access.authority else { return Err(Refusal::NoAuthority) };
        if access.rotation.is_some() {
            return Err(Refusal::Rotating);
        }
        // The same certificate under two names could not be told apart, let alone dropped.
        if authority.certificate == next.certificate {
            return Err(Refusal::Founded);
        }
        access.rotation = Some(Rotation {
            other: next.clone(),
            phase: RotationPhase::Trust,
            started_at: self.at,
            is_abort: false,
            done: BTreeSet::new(),
            without: BTreeSet::new(),
        });
        self.step(access, RotationStep::Started);
        self.rotate_without(without)
    }

    /// Only nodes that are down are left out: one that is ready would lose the cell under its feet.
    pub(super) fn rotate_without(&mut self, nodes: &[NodeId]) -> Result<(), Refusal> {
        let mut access = self.state.access.clone();
        let rotation = access.rotation.as_mut().ok_or(Refusal::NotRotating)?;
        let mut added = Vec::new();
        for node in nodes {
            if self.node(node)?.status == NodeStatus::Ready {
                return Err(Refusal::NodeReady { node: node.clone() });
            }
            if rotation.without.insert(node.clone()) {
                added.push(node.clone());
            }
        }
        if added.is_empty() {
            return Ok(());
        }
        self.set_access(access);
        for node in added {
            self.audit(AuditKind::AuthorityRotation { step: RotationStep::Without { node } });
        }
        Ok(())
    }

    /// A node has done what the authority's epoch asks. A word on another one is late, and changes nothing.
    pub(super) fn confirm_authority(&mut self, node: &NodeId, epoch: u64) {
        let is_enrolled = self.state.nodes.get(node).is_some_and(|it| it.key.is_some());
        if !is_enrolled || self.state.access.authority_epoch != epoch {
            return;
        }
        let mut access = self.state.access.clone();
        if access.rotation.as_mut().is_some_and(|it| it.done.insert(node.clone())) {
            self.set_access(access);
        }
    }

    /// Every node trusts both authorities: the next one signs.
    pub(super) fn switch_authority(&mut self) -> Result<(), Refusal> {
        let access = self.complete(RotationPhase::Trust)?;
        self.sign_with_other(access, RotationStep::Switched);
        Ok(())
    }

    /// Every node has a certificate of the authority that signs: the other one is dropped.
    pub(super) fn retire_authority(&mut self) -> Result<(), Refusal> {
        let mut access = self.complete(RotationPhase::Renew)?;
        let rotation = access.rotation.take();
        let left_out = rotation.into_iter().flat_map(|rotation| {
            let Rotation { without, done, .. } = rotation;
            without.into_iter().filter(move |node| !done.contains(node))
        });
        let left_behind = left_out.collect();
        self.step(access, RotationStep::Finished { left_behind });
        Ok(())
    }

    /// Before the next authority signs there is nothing to undo; after, certificates of it are replaced as those of the
    /// former one were.
    pub(super) fn abort_rotation(&mut self) -> Result<(), Refusal> {
        let mut access = self.state.access.clone();
        match &access.rotation {
            None => return Err(Refusal::NotRotating),
            Some(rotation) if rotation.is_abort => return Ok(()),
            Some(rotation) if rotation.phase == RotationPhase::Trust => {
                access.rotation = None;
                self.step(access, RotationStep::Aborted);
            }
            Some(_) => self.sign_with_other(access, RotationStep::Aborted),
        }
        Ok(())
    }

    /// A node that is gone, or comes by another key, has done nothing yet.
    pub(super) fn forget_rotated(&mut self, node: &NodeId) {
        let is_known = |it: &Rotation| it.done.contains(node) || it.without.contains(node);
        if !self.state.access.rotation.as_ref().is_some_and(is_known) {
            return;
        }
        let mut access = self.state.access.clone();
        if let Some(rotation) = &mut access.rotation {
            rotation.done.remove(node);
            rotation.without.remove(node);
        }
        self.set_access(access);
    }

    fn complete(&self, phase: RotationPhase) -> Result<Access, Refusal> {
        let access = self.state.access.clone();
        if access.rotation.as_ref().is_none_or(|rotation| rotation.phase != phase) {
            return Err(Refusal::NotRotating);
        }
        match self.state.awaited().next() {
            Some((node, _)) => Err(Refusal::Awaited { node: node.clone() }),
            None => Ok(access),
        }
    }

    fn sign_with_other(&mut self, mut access: Access, step: RotationStep) {
        if let (Some(signs), Some(rotation)) = (&mut access.authority, &mut access.rotation) {
            mem::swap(signs, &mut rotation.other);
            rotation.phase = RotationPhase::Renew;
            rotation.is_abort = step == RotationStep::Aborted;
            rotation.done.clear();
        }
        self.step(access, step);
    }

    fn step(&mut self, access: Access, step: RotationStep) {
        let authority_epoch = access.authority_epoch + 1;
        self.set_access(Access { authority_epoch, ..access });
        self.audit(AuditKind::AuthorityRotation { step });
    }
}

#[cfg(test)]
mod tests;
