//! What machines know of the cell's authorities: each learns from its leader which ones to trust, gets a certificate of the
//! one that signs, and says so. What it knows is on its disk. One that comes back after the cell has gone on without it can
//! speak to nobody, and joins anew with nothing.

use plimsoll_model::access::{Access, Authority};
use plimsoll_model::{Change, NodeId, NodeStatus};

use super::actions::JOIN_AGAIN;
use super::{Due, World};
use crate::machine::{Link, MachineTrust};
use crate::scenario::Action;

impl World<'_> {
    /// As a node is told that is taken in.
    pub(super) fn entrust(&mut self, node: &NodeId) {
        let trust = told(self.state.access());
        if let Some(machine) = self.machines.get_mut(node) {
            machine.trust = trust;
        }
    }

    /// What is trusted has changed, or a node and its leader meet.
    pub(super) fn tell_authorities(&mut self, nodes: Vec<NodeId>) {
        let epoch = self.state.access().authority_epoch;
        for node in nodes {
            let is_news = self.machines.get(&node).is_some_and(|machine| {
                machine.link == Link::Up && machine.key.is_some() && machine.trust.epoch <= epoch
            });
            if is_news && (self.state.access().rotation.is_some() || self.is_behind(&node)) {
                let latency = self.rng.between(self.scenario.dwell.network);
                self.clock.after(latency, Due::Authorities(node));
            }
        }
    }

    fn is_behind(&self, node: &NodeId) -> bool {
        let epoch = self.state.access().authority_epoch;
        self.machines.get(node).is_some_and(|machine| machine.trust.epoch < epoch)
    }

    /// A node learns which authorities there are, and asks for a certificate if it has none of the one that signs.
    pub(super) fn learn_authorities(&mut self, node: &NodeId) {
        if self.leading.is_none() || !self.is_linked(node) {
            return;
        }
        let now = told(self.state.access());
        let Some(machine) = self.machines.get_mut(node).filter(|it| it.key.is_some()) else {
            return;
        };
        if now.epoch > machine.trust.epoch {
            (machine.trust.epoch, machine.trust.anchors) = (now.epoch, now.anchors);
        }
        let latency = self.rng.between(self.scenario.dwell.network);
        self.clock.after(latency, Due::Certificate(node.clone()));
    }

    /// The leader signs for a node whose certificate holds, and hears that the node has done its part.
    pub(super) fn renew_certificate(&mut self, node: &NodeId) {
        if self.leading.is_none() || !self.is_linked(node) {
            return;
        }
        if self.is_left_behind(node) {
            // Nobody takes its certificate any more: an operator empties it.
            self.wipe(node);
            self.clock.after(JOIN_AGAIN, Due::Act(Box::new(Action::Return(node.clone()))));
            return;
        }
        let access = self.state.access();
        let (epoch, is_rotating) = (access.authority_epoch, access.rotation.is_some());
        let signs = access.authority.as_ref().map(|it| it.certificate.clone());
        let Some(machine) = self.machines.get_mut(node) else { return };
        if machine.trust.epoch != epoch {
            return;
        }
        machine.trust.signed_by = signs;
        if is_rotating {
            self.take(Change::ConfirmAuthority { node: node.clone(), epoch });
        }
    }

    /// Whether the machine and the cell do not accept each other's certificate any more.
    pub(super) fn is_left_behind(&self, node: &NodeId) -> bool {
        let access = self.state.access();
        let Some(machine) = self.machines.get(node).filter(|it| it.key.is_some()) else {
            return false;
        };
        let trust = &machine.trust;
        let signs = access.authority.as_ref().map(|it| &it.certificate);
        let is_accepted =
            trust.signed_by.as_deref().is_some_and(|by| access.anchors().any(|it| it == by));
        !is_accepted || signs.is_none_or(|signs| !trust.anchors.contains(signs))
    }

    pub(super) fn next_authority(&mut self) -> Authority {
        let number = self.number().to_be_bytes().to_vec();
        Authority { certificate: number.clone(), key: number }
    }

    /// The nodes that are down and awaited.
    pub(super) fn absentees(&self) -> Vec<NodeId> {
        let down = self.state.awaited().filter(|(_, node)| node.status == NodeStatus::Down);
        down.map(|(id, _)| id.clone()).collect()
    }
}

fn told(access: &Access) -> MachineTrust {
    MachineTrust {
        epoch: access.authority_epoch,
        anchors: access.anchors().map(<[u8]>::to_vec).collect(),
        signed_by: access.authority.as_ref().map(|it| it.certificate.clone()),
    }
}
