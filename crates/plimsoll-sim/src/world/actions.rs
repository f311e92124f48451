//! What happens to the machines and to the leader. What operators ask for is in [`operations`](super::operations).

use plimsoll_kernel::agent::ContainerPhase;
use plimsoll_model::access::{Authority, Digest, KeyBytes};
use plimsoll_model::{
    Change, Generation, Guarded, Millis, NodeFacts, NodeId, ObservedCode, ReplicaId, ServiceKey,
    Writer,
};

use super::{Due, World};
use crate::machine::{Engine, Link, Machine};
use crate::scenario::Action;

/// How long a join token is good for, and how soon a node tries again that was not taken in.
const TOKEN_LIFE: Millis = Millis::minutes(24 * 60);
pub(super) const JOIN_AGAIN: Millis = Millis::seconds(2);

impl World<'_> {
    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Crash(node) => self.lose(&node, Link::Off),
            Action::Cut(node) => self.lose(&node, Link::Cut),
            Action::Wipe(node) => self.wipe(&node),
            Action::Kill(node) => self.kill_one(&node),
            Action::Sicken(node) => self.sicken_one(&node),
            Action::StopEngine(node) => self.lose_engine(&node, false),
            Action::LoseEngine(node) => self.lose_engine(&node, true),
            Action::StartEngine(node) => self.start_engine(&node),
            Action::Fail(service) => self.fail(&service),
            Action::Poison(service) => drop(self.poisoned.insert(service)),
            Action::Cure(service) => drop(self.poisoned.remove(&service)),
            Action::Break(image) => drop(self.broken.insert(image)),
            Action::Mend(image) => drop(self.broken.remove(&image)),
            Action::Withdraw(image) => drop(self.withdrawn.insert(image)),
            Action::Restore(image) => drop(self.withdrawn.remove(&image)),
            Action::ExhaustSubnets(node) => self.set_subnets(&node, true),
            Action::FreeSubnets(node) => self.set_subnets(&node, false),
            Action::NewLeader => self.depose(),
            Action::Skew(skew) => self.skew(skew),
            Action::Recover { node, lost } => self.recover(node, lost),
            // What follows is written down, so it waits for someone who can.
            other if self.leading.is_none() => self.wait_for_leader(other),
            Action::Return(node) => self.come_back(&node),
            Action::Join(node, facts) => self.join(&node, &facts),
            Action::Describe(node, facts) => self.describe(&node, facts),
            Action::Machines(action) => self.machine_action(action),
            other => self.ask(other),
        }
    }

    /// One batch, so that a cell of any size begins in one step.
    pub(super) fn found(&mut self) {
        let scenario = self.scenario;
        let mut batch = Vec::new();
        for (node, facts) in &scenario.nodes {
            self.install(node, facts);
            batch.push(Change::PutNode { node: node.clone(), facts: facts.clone() }.free());
        }
        if let Some(node) = scenario.nodes.keys().next().cloned() {
            let authority = Authority { certificate: vec![1], key: vec![1] };
            let key = self.give_key(&node);
            batch.push(Change::Found { authority, node, key }.free());
            batch.push(Change::CreateBackupKey { secret: KeyBytes([1; 32]) }.free());
        }
        for (node, facts) in scenario.nodes.iter().skip(1) {
            let (key, facts) = (self.give_key(node), facts.clone());
            batch.push(Change::Enrol { node: node.clone(), facts, key }.free());
        }
        for (deployment, services) in &scenario.deployments {
            let (deployment, services) = (deployment.clone(), services.clone());
            batch.push(Change::Deploy { deployment, services, routes: Vec::new() }.free());
        }
        if let Err(rejection) = self.apply(Writer::Operator, batch) {
            self.complaints.push(format!("the cell cannot begin: {rejection}"));
        }
        scenario.nodes.keys().for_each(|node| self.entrust(node));
    }

    fn install(&mut self, node: &NodeId, facts: &NodeFacts) {
        let boot = self.number();
        let machine = Machine::new(self.clock.now, boot, facts.clone());
        self.machines.insert(node.clone(), machine);
    }

    fn give_key(&mut self, node: &NodeId) -> Digest {
        let key = self.secret();
        if let Some(machine) = self.machines.get_mut(node) {
            machine.key = Some(key);
        }
        key
    }

    /// The digest of something secret that nobody had before.
    pub(super) fn secret(&mut self) -> Digest {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&self.number().to_be_bytes());
        Digest(digest)
    }

    fn lose(&mut self, node: &NodeId, link: Link) {
        let (now, boot) = (self.clock.now, self.number());
        let Some(machine) = self.machines.get_mut(node) else { return };
        if machine.link != Link::Up {
            return;
        }
        machine.link = link;
        machine.since = now;
        if link == Link::Off {
            machine.lose_power(boot);
        }
        // Its last heartbeat came before this, so its TTL runs out no later than one TTL from now.
        self.clock.after(self.scenario.policy.node_ttl(), Due::Listen);
    }

    pub(super) fn wipe(&mut self, node: &NodeId) {
        self.lose(node, Link::Off);
        let boot = self.number();
        if let Some(machine) = self.machines.get_mut(node) {
            machine.link = Link::Off;
            machine.lose_power(boot);
            machine.lose_disks();
        }
    }

    fn come_back(&mut self, node: &NodeId) {
        if self.machines.get(node).is_none_or(|machine| machine.link == Link::Up) {
            return;
        }
        if self.is_left_behind(node) {
            self.wipe(node);
        }
        let Some(machine) = self.machines.get(node) else { return };
        let (facts, is_wiped) = (machine.facts.clone(), machine.is_wiped);
        let token = format!("return-{}", self.number());
        // Without a certificate it joins anew, and a cell that still takes its old self for ready does not take it in.
        if is_wiped && !self.take_in(node, &facts, token) {
            self.clock.after(JOIN_AGAIN, Due::Act(Box::new(Action::Return(node.clone()))));
            return;
        }
        self.link_up(node);
    }

    fn link_up(&mut self, node: &NodeId) {
        let now = self.clock.now;
        let Some(machine) = self.machines.get_mut(node) else { return };
        (machine.link, machine.since, machine.is_wiped) = (Link::Up, now, false);
        self.welcome(node);
        self.reconnect(node);
        let first_beat = self.rng.between((Millis(1), self.scenario.policy.heartbeat));
        self.clock.after(first_beat, Due::Listen);
    }

    /// A new machine joins, or one whose node was removed.
    fn join(&mut self, node: &NodeId, facts: &NodeFacts) {
        let name = format!("join-{}", self.number());
        self.join_as(node, facts, name);
    }

    pub(super) fn join_as(&mut self, node: &NodeId, facts: &NodeFacts, token: String) {
        if self.machines.contains_key(node) || self.state.node(node).is_some() {
            self.refused += 1;
            return;
        }
        self.install(node, facts);
        if self.take_in(node, facts, token) {
            self.link_up(node);
        } else {
            self.machines.remove(node);
        }
    }

    /// By a token, as a newcomer does.
    fn take_in(&mut self, node: &NodeId, facts: &NodeFacts, name: String) -> bool {
        let (token, key) = (self.secret(), self.secret());
        let expires_at = self.leader_time().plus(TOKEN_LIFE);
        self.operate(vec![Change::CreateJoinToken { name, token, expires_at }.free()]);
        let (node, facts) = (node.clone(), facts.clone());
        let is_taken =
            self.operate(vec![Change::Join { token, node: node.clone(), facts, key }.free()]);
        if let Some(machine) = self.machines.get_mut(&node).filter(|_| is_taken) {
            machine.key = Some(key);
            self.entrust(&node);
        }
        is_taken
    }

    fn describe(&mut self, node: &NodeId, facts: NodeFacts) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        machine.facts = facts;
        if machine.link == Link::Up {
            self.welcome(node);
        }
    }

    /// Writes down what a node offers, if that has changed since it was last here.
    fn welcome(&mut self, id: &NodeId) {
        let Some(machine) = self.machines.get(id) else { return };
        if self.state.node(id).is_none_or(|known| known.facts == machine.facts) {
            return;
        }
        let (node, facts) = (id.clone(), machine.facts.clone());
        let change = match machine.key {
            Some(key) => Change::Enrol { node, facts, key },
            None => Change::PutNode { node, facts },
        };
        if let Err(rejection) = self.apply(Writer::Agent, vec![change.free()]) {
            self.complaints.push(format!("what {id} offers was refused: {}", rejection.reason));
        }
    }

    fn set_subnets(&mut self, node: &NodeId, lacks: bool) {
        if let Some(machine) = self.machines.get_mut(node) {
            machine.lacks_subnets = lacks;
        }
    }

    fn skew(&mut self, skew: i64) {
        let gained = Millis(self.skew.abs_diff(skew));
        self.gained = Millis(self.gained.0 + gained.0);
        self.depose();
        self.skew = skew;
    }

    /// The cell is recovered from one server: whoever led does not any more, and the lost nodes are gone.
    fn recover(&mut self, node: NodeId, lost: Vec<NodeId>) {
        let lost: Vec<NodeId> =
            lost.into_iter().filter(|lost| self.state.node(lost).is_some()).collect();
        let is_there = self.machines.get(&node).is_some_and(|machine| machine.link == Link::Up);
        if !is_there || self.state.node(&node).is_none() || lost.contains(&node) {
            self.refused += 1;
            return;
        }
        self.depose();
        for gone in &lost {
            self.machines.remove(gone);
        }
        let server = self.state.access().next_server.max(1);
        let batch: Vec<Guarded> = vec![Change::Survive { node, server, lost }.free()];
        if let Err(rejection) = self.apply(Writer::Operator, batch) {
            self.complaints.push(format!("the cell cannot be recovered: {rejection}"));
        }
    }

    /// One healthy container of the node, drawn at random, ends by itself.
    fn kill_one(&mut self, node: &NodeId) {
        if let Some((replica, generation)) = self.any_healthy(node) {
            let code = ObservedCode::Exited { status: Some(137) };
            self.exited(node, &replica, generation, code);
        }
    }

    /// Nobody looks at how a container is without its engine.
    fn sicken_one(&mut self, node: &NodeId) {
        if self.machines.get(node).is_some_and(|it| it.engine == Engine::Down) {
            return;
        }
        if let Some((replica, generation)) = self.any_healthy(node) {
            self.sicken(node, &replica, generation);
        }
    }

    fn any_healthy(&mut self, node: &NodeId) -> Option<(ReplicaId, Generation)> {
        let healthy = self.healthy(node, |_| true);
        self.rng.pick(&healthy).cloned()
    }

    fn fail(&mut self, service: &ServiceKey) {
        let nodes: Vec<NodeId> = self.machines.keys().cloned().collect();
        for node in nodes {
            for (replica, generation) in self.healthy(&node, |id| id.service == *service) {
                let code = ObservedCode::Exited { status: Some(1) };
                self.exited(&node, &replica, generation, code);
            }
        }
    }

    fn healthy(
        &self,
        node: &NodeId,
        is_meant: impl Fn(&ReplicaId) -> bool,
    ) -> Vec<(ReplicaId, Generation)> {
        let Some(machine) = self.machines.get(node) else { return Vec::new() };
        let all = machine.containers.iter().filter(|(replica, _)| is_meant(replica));
        all.flat_map(|(replica, all)| all.iter().map(move |container| (replica, container)))
            .filter(|(_, it)| it.local.phase == ContainerPhase::Up && it.is_healthy)
            .map(|(replica, container)| (replica.clone(), container.local.generation))
            .collect()
    }
}
