//! What the script does to the cell.

use plimsoll_kernel::agent::Phase;
use plimsoll_model::node::DRAIN_TIMEOUT;
use plimsoll_model::{Availability, Change, DeploymentName, Millis, NodeId, ReplicaId, Writer};

use super::{Due, HEARTBEAT, World};
use crate::machine::{Link, Machine};
use crate::scenario::Action;

impl World<'_> {
    pub(super) fn act(&mut self, action: Action) {
        let availability = |node, availability| Change::SetAvailability { node, availability };
        match action {
            Action::Crash(node) => self.lose(&node, Link::Off),
            Action::Cut(node) => self.lose(&node, Link::Cut),
            Action::Return(node) => self.come_back(&node),
            Action::Kill(node) => self.kill_one(&node),
            Action::Break(image) => drop(self.broken.insert(image)),
            Action::Mend(image) => drop(self.broken.remove(&image)),
            Action::NewLeader if self.leader.is_some() => self.depose(),
            Action::NewLeader => {}
            other if self.leader.is_none() => self.wait_for_leader(other),
            Action::Join(node, facts) => {
                self.machines.entry(node.clone()).or_insert_with(|| Machine::new(self.clock.now));
                self.operate(Change::PutNode { node, facts });
            }
            Action::Cordon(node) => self.operate(availability(node, Availability::Cordoned)),
            Action::Uncordon(node) => self.operate(availability(node, Availability::Active)),
            Action::Clear(node) => {
                self.operate(Change::Drain { node, timeout: DRAIN_TIMEOUT, force: true });
            }
            Action::Drain(node) => self.operate(availability(node, Availability::Draining)),
            Action::Deploy(deployment, services) => {
                self.operate(Change::Deploy { deployment, services, routes: Vec::new() });
            }
            Action::Undeploy(deployment) => self.operate(Change::Undeploy { deployment }),
            Action::Restart(deployment) => self.restart(&deployment),
        }
    }

    /// One batch, so that a cell of any size begins in one step.
    pub(super) fn found(&mut self) {
        let scenario = self.scenario;
        let mut batch = Vec::new();
        for (node, facts) in &scenario.nodes {
            self.machines.insert(node.clone(), Machine::new(self.clock.now));
            batch.push(Change::PutNode { node: node.clone(), facts: facts.clone() }.free());
        }
        for (deployment, services) in &scenario.deployments {
            let (deployment, services) = (deployment.clone(), services.clone());
            batch.push(Change::Deploy { deployment, services, routes: Vec::new() }.free());
        }
        if let Err(rejection) = self.apply(Writer::Operator, batch) {
            self.complaints.push(format!("the cell cannot begin: {rejection}"));
        }
    }

    fn lose(&mut self, node: &NodeId, link: Link) {
        let now = self.clock.now;
        let Some(machine) = self.machines.get_mut(node) else { return };
        if machine.link != Link::Up {
            return;
        }
        machine.link = link;
        machine.since = now;
        if link == Link::Off {
            machine.boots += 1;
            machine.containers.clear();
        }
        // Its last heartbeat came before this, so its TTL runs out no later than one TTL from now.
        self.clock.after(self.scenario.policy.node_ttl, Due::Listen);
    }

    fn come_back(&mut self, node: &NodeId) {
        let now = self.clock.now;
        let Some(machine) = self.machines.get_mut(node) else { return };
        if machine.link == Link::Up {
            return;
        }
        machine.link = Link::Up;
        machine.since = now;
        self.reconnect(node);
        let first_beat = self.chance.between((Millis(1), HEARTBEAT));
        self.clock.after(first_beat, Due::Listen);
    }

    fn restart(&mut self, deployment: &DeploymentName) {
        let ids = self.state.replicas().filter(|(id, replica)| {
            id.service.deployment == *deployment && replica.assignment.is_some()
        });
        let ids: Vec<ReplicaId> = ids.map(|(id, _)| id).collect();
        for replica in ids {
            self.operate(Change::Renew { replica });
        }
    }

    /// One healthy container of the node, drawn at random, ends by itself.
    fn kill_one(&mut self, node: &NodeId) {
        let Some(machine) = self.machines.get(node) else { return };
        let healthy: Vec<(ReplicaId, _)> = machine
            .containers
            .iter()
            .flat_map(|(replica, all)| all.iter().map(move |container| (replica, container)))
            .filter(|(_, container)| container.local.phase == Phase::Up && container.is_healthy)
            .map(|(replica, container)| (replica.clone(), container.local.generation))
            .collect();
        if let Some((replica, generation)) = self.chance.pick(&healthy).cloned() {
            self.exited(node, &replica, generation);
        }
    }
}
