//! Changes to nodes.

use super::Txn;
use crate::audit::AuditKind;
use crate::command::Refusal;
use crate::ids::{NodeId, ReplicaId};
use crate::node::{
    Availability, DRAIN_TIMEOUT, Drain, MAX_OUTAGE_TEXT, Node, NodeFacts, NodeStatus, RuntimeOutage,
};
use crate::replica::Replica;
use crate::rotation::RECOVERY_EPOCHS;
use crate::state::MAX_CAPACITY;
use crate::state::load::NodeLoad;
use crate::transition::{self, Writer};
use crate::units::{Millis, Resources};

impl Txn<'_> {
    pub(super) fn put_node(&mut self, id: &NodeId, facts: &NodeFacts) -> Result<(), Refusal> {
        let (has, max) = (facts.capacity, MAX_CAPACITY);
        for (what, found, max) in [
            ("cpu", has.cpu.0, max.cpu.0),
            ("memory", has.memory.0, max.memory.0),
            ("gpus", has.gpus.into(), max.gpus.into()),
        ] {
            if found > max {
                return Err(Refusal::TooMuch { what: format!("{what} of node {id}"), found, max });
            }
        }
        match self.state.nodes.get(id) {
            Some(node) if node.facts == *facts => Ok(()),
            Some(node) => {
                let node = Node { facts: facts.clone(), ..node.clone() };
                self.set_node(id, Some(node));
                self.audit(AuditKind::NodeChanged { node: id.clone() });
                Ok(())
            }
            None => {
                let node = Node {
                    facts: facts.clone(),
                    status: NodeStatus::Ready,
                    status_since: self.at,
                    availability: Availability::Active,
                    joined_at: self.at,
                    key: None,
                    server: None,
                    drain: None,
                    open_since: self.at,
                    lost_at: Vec::new(),
                    received_at: None,
                    outage: None,
                };
                self.set_node(id, Some(node));
                self.audit(AuditKind::NodeJoined { node: id.clone() });
                Ok(())
            }
        }
    }

    pub(super) fn set_status(&mut self, id: &NodeId, status: NodeStatus) -> Result<(), Refusal> {
        let node = self.node(id)?;
        if node.status == status {
            return Ok(());
        }
        let allowed = transition::allows(NodeStatus::EDGES, &node.status, &status, self.by.writer);
        if !allowed {
            return Err(self.illegal(&format!("node {id}"), &node.status, &status));
        }
        let node = Node { status, status_since: self.at, ..node.clone() };
        self.set_node(id, Some(node));
        self.audit(AuditKind::NodeStatus { node: id.clone(), status });
        Ok(())
    }

    /// A runtime that still does not answer is silent since it was first found to be, whatever it is silent for by now.
    pub(super) fn set_runtime(&mut self, id: &NodeId, why: Option<&str>) -> Result<(), Refusal> {
        let node = self.node(id)?;
        if let Some(why) = why.filter(|why| why.len() > MAX_OUTAGE_TEXT) {
            let (what, found) = (format!("the outage of {id}"), why.len() as u64);
            return Err(Refusal::Quota { what, found, max: MAX_OUTAGE_TEXT as u64 });
        }
        if node.outage.is_some() == why.is_some() {
            return Ok(());
        }
        if self.by.writer != Writer::Liveness {
            let (from, to) = if why.is_some() { ("up", "down") } else { ("down", "up") };
            return Err(self.illegal(&format!("the runtime of {id}"), &from, &to));
        }
        let outage = why.map(|why| RuntimeOutage { since: self.at, why: why.to_owned() });
        let node = Node { outage, ..node.clone() };
        self.set_node(id, Some(node));
        let why = why.map(str::to_owned);
        self.audit(AuditKind::NodeRuntime { node: id.clone(), why });
        Ok(())
    }

    pub(super) fn set_availability(
        &mut self,
        id: &NodeId,
        to: Availability,
    ) -> Result<(), Refusal> {
        let node = self.node(id)?;
        if node.availability == to {
            return Ok(());
        }
        if !transition::allows(Availability::EDGES, &node.availability, &to, self.by.writer) {
            return Err(self.illegal(&format!("node {id}"), &node.availability, &to));
        }
        if to == Availability::Draining {
            return self.drain(id, DRAIN_TIMEOUT, false);
        }
        let node = Node { availability: to, drain: None, ..node.clone() };
        self.set_node(id, Some(node));
        self.audit(AuditKind::NodeAvailability { node: id.clone(), availability: to });
        Ok(())
    }

    /// Asked for a second time it has its time anew.
    pub(super) fn drain(
        &mut self,
        id: &NodeId,
        timeout: Millis,
        is_forced: bool,
    ) -> Result<(), Refusal> {
        let (node, to) = (self.node(id)?, Availability::Draining);
        let is_on = node.availability == to;
        if !is_on
            && !transition::allows(Availability::EDGES, &node.availability, &to, self.by.writer)
        {
            return Err(self.illegal(&format!("node {id}"), &node.availability, &to));
        }
        let (since, progressed_at, has_timed_out) = (self.at, self.at, false);
        let drain = Drain { since, timeout, is_forced, progressed_at, has_timed_out };
        let node = Node { availability: to, drain: Some(drain), ..node.clone() };
        self.set_node(id, Some(node));
        self.audit(AuditKind::NodeAvailability { node: id.clone(), availability: to });
        Ok(())
    }

    pub(super) fn give_up_drain(&mut self, id: &NodeId) -> Result<(), Refusal> {
        let node = self.node(id)?;
        let Some(drain) = node.drain.filter(|_| node.availability == Availability::Draining) else {
            return Ok(());
        };
        let drain = Some(Drain { has_timed_out: true, ..drain });
        let node = Node { availability: Availability::Cordoned, drain, ..node.clone() };
        self.set_node(id, Some(node));
        let left = self.state.load(id).map_or(0, |load| load.tenants.len());
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        self.audit(AuditKind::DrainTimedOut { node: id.clone(), left });
        Ok(())
    }

    /// A replica has left the node: the next has its own time.
    pub(super) fn note_left(&mut self, id: &NodeId) {
        let Some(node) = self.state.nodes.get(id) else { return };
        let Some(drain) = node.drain.filter(|_| node.availability == Availability::Draining) else {
            return;
        };
        let drain = Some(Drain { progressed_at: self.at, ..drain });
        let node = Node { drain, ..node.clone() };
        self.set_node(id, Some(node));
    }

    /// The cell goes on with one server. The lost nodes go as [`remove_node`](Self::remove_node) has it, whatever their
    /// status: nobody will hear from them. Where their volumes are stays known: the data is on their disks, and what needs it
    /// waits for them to join again rather than begin anew.
    pub(super) fn survive(
        &mut self,
        id: &NodeId,
        server: u64,
        lost: &[NodeId],
    ) -> Result<(), Refusal> {
        if lost.contains(id) {
            return Err(Refusal::NoSuchNode { node: id.clone() });
        }
        for gone in lost {
            self.node(gone)?;
            self.give_up_moves(gone);
            self.forget_node(gone);
        }
        let mut access = self.state.access.clone();
        access.join_tokens.clear();
        access.next_server = access.next_server.max(server.saturating_add(1));
        if access != self.state.access {
            self.set_access(access);
        }
        if !self.state.nodes.contains_key(id) {
            // What it offers it says itself once it is up.
            self.put_node(id, &NodeFacts::new(Resources::default()))?;
        }
        let before = self.node(id)?;
        let mut node = before.clone();
        node.server = Some(server);
        if lost.is_empty() && node == *before && node.status == NodeStatus::Ready {
            return Ok(());
        }
        if node.status != NodeStatus::Ready {
            (node.status, node.status_since) = (NodeStatus::Ready, self.at);
        }
        self.set_node(id, Some(node));
        let mut access = self.state.access.clone();
        access.authority_epoch += RECOVERY_EPOCHS;
        self.set_access(access);
        let lost = u32::try_from(lost.len()).unwrap_or(u32::MAX);
        self.audit(AuditKind::Survived { node: id.clone(), lost });
        Ok(())
    }

    /// What a node that is down was still stopping will never be reported: it is forgotten with the node. What was
    /// assigned to it stays assigned, to be replaced by the scheduler as lost.
    pub(super) fn remove_node(&mut self, id: &NodeId) -> Result<(), Refusal> {
        let node = self.node(id)?;
        let tenants = self.state.load(id).map_or(0, |load| load.tenants.len());
        if node.status == NodeStatus::Ready && tenants > 0 {
            let replicas = u32::try_from(tenants).unwrap_or(u32::MAX);
            return Err(Refusal::NodeInUse { node: id.clone(), replicas });
        }
        self.forget_volumes(id);
        self.forget_node(id);
        Ok(())
    }

    fn forget_node(&mut self, id: &NodeId) {
        let tenants = self.state.load(id).into_iter().flat_map(NodeLoad::everyone);
        for tenant in tenants.cloned().collect::<Vec<_>>() {
            self.forget_leaving(&tenant, id);
        }
        let key = self.state.nodes.get(id).and_then(|node| node.key);
        self.set_node(id, None);
        self.forget_rotated(id);
        self.revoke_key(key);
        self.audit(AuditKind::NodeRemoved { node: id.clone() });
    }

    fn forget_leaving(&mut self, id: &ReplicaId, node: &NodeId) {
        let Some(replica) = self.state.replica(id) else { return };
        if !replica.leaving.iter().any(|leaving| leaving.node == *node) {
            return;
        }
        let mut replica: Replica = replica.clone();
        replica.leaving.retain(|leaving| leaving.node != *node);
        self.put_or_drop(id, replica);
    }

    pub(super) fn node(&self, id: &NodeId) -> Result<&Node, Refusal> {
        self.state.nodes.get(id).ok_or_else(|| Refusal::NoSuchNode { node: id.clone() })
    }

    pub(super) fn illegal(
        &self,
        what: &str,
        from: &impl std::fmt::Debug,
        to: &impl std::fmt::Debug,
    ) -> Refusal {
        Refusal::Transition {
            what: what.to_owned(),
            from: format!("{from:?}").to_lowercase(),
            to: format!("{to:?}").to_lowercase(),
            writer: self.by.writer,
        }
    }
}
