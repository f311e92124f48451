//! The machines: what the agent says to do next takes its time, and is reported.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_kernel::agent::{self, Local, Phase, Step};
use plimsoll_kernel::restart::back_off;
use plimsoll_model::{Generation, Millis, NodeId, ObservedState, ReplicaId, ServiceSpec};

use super::{Done, Due, World};
use crate::machine::{Container, Link};

/// The simulated node never gives up: it stands for a person who applies again.
const MAX_BACK_OFF: Millis = Millis::minutes(1);

/// How long it takes to find that an image is already there.
const PRESENT: Millis = Millis(20);

impl World<'_> {
    /// A node and a leader meet, or meet again: the node learns all its orders and says all it has.
    pub(super) fn reconnect(&mut self, node: &NodeId) {
        if !self.is_linked(node) {
            return;
        }
        let tenants = self.state.load(node).map(|load| load.tenants.clone()).unwrap_or_default();
        let here = self.machines[node].containers.keys().cloned();
        let replicas: BTreeSet<ReplicaId> = tenants.into_iter().chain(here).collect();
        for replica in replicas {
            self.say_all(node, &replica);
            self.sync(node, &replica);
        }
    }

    fn say_all(&mut self, node: &NodeId, replica: &ReplicaId) {
        let machine = &self.machines[node];
        let here = machine.containers.get(replica).into_iter().flatten();
        let mut reports: Vec<(Generation, ObservedState)> =
            here.map(|container| (container.local.generation, container.observed())).collect();
        let row = self.state.replica(replica);
        let held = row
            .into_iter()
            .flat_map(plimsoll_model::Replica::holds)
            .filter(|held| held.node == *node && row.is_none_or(|row| !row.is_stopped(held)));
        for generation in held.map(|held| held.generation) {
            if machine.container(replica, generation).is_none() {
                reports.push((generation, ObservedState::Pending));
            }
        }
        for (generation, state) in reports {
            self.report(node, replica, generation, state);
        }
    }

    /// Does what the agent says is next about one replica.
    pub(super) fn sync(&mut self, node: &NodeId, replica: &ReplicaId) {
        if self.leader.is_none() || !self.is_linked(node) {
            return;
        }
        let row = self.state.replica(replica);
        let locals = self.machines[node].locals(replica);
        let wanted: Vec<Generation> =
            agent::wanted(&self.state, node, replica).map(|held| held.generation).collect();
        let steps = agent::next(&wanted, &locals);
        // What leaves and is not here has stopped: a crash may have done it.
        let leaving =
            row.into_iter().flat_map(|row| &row.leaving).filter(|held| held.node == *node);
        let gone: Vec<Generation> = leaving
            .map(|held| held.generation)
            .filter(|generation| !locals.iter().any(|local| local.generation == *generation))
            .collect();
        for step in steps {
            self.begin(node, replica, step);
        }
        for generation in gone {
            self.report(node, replica, generation, ObservedState::Stopped);
        }
    }

    fn begin(&mut self, node: &NodeId, replica: &ReplicaId, step: Step) {
        let dwell = self.scenario.dwell;
        match step {
            Step::Pull(generation) => self.pull(node, replica, generation),
            Step::Start(generation) => {
                let Some(exits) = self.enter(node, replica, generation, Phase::Starting) else {
                    return;
                };
                let wait = if exits == 0 { Millis(0) } else { back_off(exits, MAX_BACK_OFF) };
                let start = self.chance.between(dwell.start);
                self.report(node, replica, generation, ObservedState::Starting);
                self.later(Millis(wait.0 + start.0), node, replica, generation, Done::Started);
            }
            Step::Stop(generation) => {
                self.enter(node, replica, generation, Phase::Stopping);
                let wait = self.chance.between(dwell.stop);
                self.later(wait, node, replica, generation, Done::Stopped);
            }
            Step::Remove(generation) => {
                self.machine(node).remove(replica, generation);
                self.report(node, replica, generation, ObservedState::Stopped);
            }
        }
    }

    fn pull(&mut self, node: &NodeId, replica: &ReplicaId, generation: Generation) {
        let Some(spec) = self.spec_of(replica, generation) else { return };
        let is_present = self.machines[node].images.contains(&spec.container.image);
        let local = Local { generation, phase: Phase::Pulling };
        let usage = self.scenario.usage.keys().position(|key| *key == replica.service);
        let container = Container { local, is_healthy: false, spec, usage, exits: 0 };
        self.machine(node).containers.entry(replica.clone()).or_default().push(container);
        let wait = if is_present { PRESENT } else { self.chance.between(self.scenario.dwell.pull) };
        self.report(node, replica, generation, ObservedState::Pulling);
        self.later(wait, node, replica, generation, Done::Pulled);
    }

    pub(super) fn done(
        &mut self,
        node: &NodeId,
        boots: u64,
        replica: &ReplicaId,
        generation: Generation,
        what: Done,
    ) {
        let machine = self.machine(node);
        let Some(container) = machine.container_mut(replica, generation) else { return };
        let image = container.spec.container.image.clone();
        let phase = container.local.phase;
        if machine.boots != boots {
            return;
        }
        match (what, phase) {
            (Done::Pulled, Phase::Pulling) => {
                machine.images.insert(image);
                self.enter(node, replica, generation, Phase::Pulled);
            }
            (Done::Started, Phase::Starting) if self.broken.contains(&image) => {
                self.exited(node, replica, generation);
                return;
            }
            (Done::Started, Phase::Starting) => {
                self.enter(node, replica, generation, Phase::Up);
                let health = self.chance.between(self.scenario.dwell.health);
                self.later(health, node, replica, generation, Done::Healthy);
            }
            (Done::Healthy, Phase::Up) => {
                if let Some(container) = self.machine(node).container_mut(replica, generation) {
                    (container.is_healthy, container.exits) = (true, 0);
                }
                self.report(node, replica, generation, ObservedState::Running);
            }
            (Done::Stopped, Phase::Stopping) => {
                self.machine(node).remove(replica, generation);
                self.report(node, replica, generation, ObservedState::Stopped);
            }
            // It went another way in the meantime.
            _ => {}
        }
        self.sync(node, replica);
    }

    pub(super) fn exited(&mut self, node: &NodeId, replica: &ReplicaId, generation: Generation) {
        let Some(container) = self.machine(node).container_mut(replica, generation) else { return };
        container.local.phase = Phase::Exited;
        container.is_healthy = false;
        container.exits += 1;
        self.report(node, replica, generation, ObservedState::Failed);
        self.sync(node, replica);
    }

    /// Takes the container into a phase and says how often it ended by itself before.
    fn enter(
        &mut self,
        node: &NodeId,
        replica: &ReplicaId,
        generation: Generation,
        phase: Phase,
    ) -> Option<u32> {
        let container = self.machine(node).container_mut(replica, generation)?;
        container.local.phase = phase;
        Some(container.exits)
    }

    fn later(
        &mut self,
        wait: Millis,
        node: &NodeId,
        replica: &ReplicaId,
        generation: Generation,
        what: Done,
    ) {
        let boots = self.machines[node].boots;
        let (node, replica) = (node.clone(), replica.clone());
        self.clock.after(wait, Due::Done { node, boots, replica, generation, what });
    }

    /// One latency for every report of a node, so that they arrive in the order they were sent.
    fn report(
        &mut self,
        node: &NodeId,
        replica: &ReplicaId,
        generation: Generation,
        state: ObservedState,
    ) {
        let latency = self.scenario.dwell.network.1;
        let (node, replica) = (node.clone(), replica.clone());
        self.clock.after(latency, Due::Report { node, replica, generation, state });
    }

    fn spec_of(&self, replica: &ReplicaId, generation: Generation) -> Option<Arc<ServiceSpec>> {
        let service = self.state.service(&replica.service)?;
        let row = service.replicas.get(&replica.slot)?;
        let held = row.holds().find(|held| held.generation == generation)?;
        service.spec_of(held).cloned()
    }

    fn is_linked(&self, node: &NodeId) -> bool {
        self.machines.get(node).is_some_and(|machine| machine.link == Link::Up)
    }

    fn machine(&mut self, node: &NodeId) -> &mut crate::machine::Machine {
        self.machines.get_mut(node).expect("a machine that has something to do exists")
    }
}
