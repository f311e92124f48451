//! The container engine of a machine: it dies for a while, with its containers or without them, and returns. The machine is
//! heard all the same, and says what it sees: a process that runs on, or one that is gone.

use plimsoll_kernel::agent::ContainerPhase;
use plimsoll_model::{Generation, NodeId, ObservedCode, ObservedState, ReplicaId};

use super::{Done, Due, World};
use crate::machine::{Container, Engine};

impl World<'_> {
    /// Containers go with their engine, unless they are kept.
    pub(super) fn lose_engine(&mut self, node: &NodeId, keeps: bool) {
        let boot = self.number();
        let Some(machine) = self.machines.get_mut(node) else { return };
        if machine.engine == Engine::Down {
            return;
        }
        // Whatever was asked of the engine, and not done yet, never is.
        (machine.engine, machine.boot) = (Engine::Down, boot);
        for containers in machine.containers.values_mut() {
            containers.retain(|container| container.local.phase != ContainerPhase::Pulling);
            for container in containers {
                container.lose_engine(keeps);
            }
        }
        machine.containers.retain(|_, containers| !containers.is_empty());
        self.say_engine(node);
    }

    pub(super) fn start_engine(&mut self, node: &NodeId) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        if machine.engine == Engine::Up {
            return;
        }
        machine.engine = Engine::Up;
        let mut died: Vec<(ReplicaId, Generation)> = Vec::new();
        let mut unhealthy: Vec<(ReplicaId, Generation)> = Vec::new();
        let mut stopping: Vec<(ReplicaId, Generation)> = Vec::new();
        for (replica, containers) in &mut machine.containers {
            for container in containers {
                let key = (replica.clone(), container.local.generation);
                match container.local.phase {
                    _ if std::mem::take(&mut container.has_died) => died.push(key),
                    ContainerPhase::Up if !container.is_healthy => unhealthy.push(key),
                    ContainerPhase::Stopping => stopping.push(key),
                    _ => {}
                }
            }
        }
        let dwell = self.scenario.dwell;
        for (all, what, takes) in
            [(unhealthy, Done::Healthy, dwell.health), (stopping, Done::Stopped, dwell.stop)]
        {
            for (replica, generation) in all {
                let wait = self.rng.between(takes);
                self.later(wait, node, &replica, generation, what);
            }
        }
        for (replica, generation) in died {
            self.exited(node, &replica, generation, ObservedCode::Exited { status: None });
        }
        self.say_engine(node);
    }

    /// What a machine says of a container while its engine is down. What nobody asks for, and is gone, has stopped.
    pub(super) fn died(&mut self, node: &NodeId, replica: &ReplicaId, generation: Generation) {
        let machine = self.machines.get_mut(node);
        if let Some(container) = machine.and_then(|it| it.container_mut(replica, generation)) {
            container.die();
        }
        let code = Some(ObservedCode::RuntimeUnavailable);
        self.report(node, replica, generation, ObservedState::Unknown, code);
        self.sync(node, replica);
    }

    /// The machine says how it stands with its engine, and with all it has.
    fn say_engine(&mut self, node: &NodeId) {
        self.reconnect(node);
        self.clock.after(self.scenario.dwell.network.1, Due::Listen);
    }
}

impl Container {
    /// What it is once its engine is gone.
    fn lose_engine(&mut self, keeps: bool) {
        match self.local.phase {
            ContainerPhase::Up | ContainerPhase::Stopping if !keeps => self.die(),
            ContainerPhase::Starting => self.local.phase = ContainerPhase::Pulled,
            _ => {}
        }
    }

    fn die(&mut self) {
        (self.local.phase, self.is_healthy) = (ContainerPhase::Exited, false);
        (self.has_died, self.retry) = (true, None);
    }
}
