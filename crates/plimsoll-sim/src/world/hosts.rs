//! The machines: what the agent says to do next takes its time, and is reported.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_kernel::agent::{
    self, ContainerPhase, ContainerStep, LocalContainer, WantedContainer,
};
use plimsoll_kernel::orders;
use plimsoll_kernel::restart::RestartRule;
use plimsoll_model::spec::Dependency;
use plimsoll_model::{
    DeploymentName, Generation, Millis, NodeId, ObservedCode, ObservedState, ReplicaId, Revision,
    ServiceName, ServiceSpec, Timestamp,
};

use super::{Done, Due, World};
use crate::machine::{Container, Engine, Link, Machine};

/// How long it takes to find that an image is already there.
const PRESENT: Millis = Millis(20);

impl World<'_> {
    /// A node and a leader meet, or meet again: the node learns all its orders and says all it has.
    pub(super) fn reconnect(&mut self, node: &NodeId) {
        if !self.is_linked(node) {
            return;
        }
        let tenants = self
            .state
            .load(node)
            .into_iter()
            .flat_map(plimsoll_model::state::load::NodeLoad::everyone);
        let here = self.machines[node].containers.keys();
        let replicas: BTreeSet<ReplicaId> = tenants.chain(here).cloned().collect();
        for replica in replicas {
            self.say_all(node, &replica);
            self.sync(node, &replica);
        }
        self.clear_volumes();
        self.follow_volume_orders();
        self.tell_authorities(vec![node.clone()]);
    }

    fn say_all(&mut self, node: &NodeId, replica: &ReplicaId) {
        let machine = &self.machines[node];
        let here = machine.containers.get(replica).into_iter().flatten();
        let mut reports: Vec<(Generation, ObservedState, Option<ObservedCode>)> =
            here.map(|it| (it.local.generation, it.observed(), it.said())).collect();
        let row = self.state.replica(replica);
        let held = row
            .into_iter()
            .flat_map(plimsoll_model::Replica::holds)
            .filter(|held| held.node == *node && row.is_none_or(|row| !row.is_stopped(held)));
        for generation in held.map(|held| held.generation) {
            // That it failed too often, or is done, outlives the container.
            if machine.container(replica, generation).is_none()
                && !self.is_at_its_end(replica, generation)
            {
                reports.push((generation, ObservedState::Pending, None));
            }
        }
        for (generation, state, code) in reports {
            self.report(node, replica, generation, state, code);
        }
    }

    /// Whether the cell was told that the assignment failed too often, or that its job is done.
    fn is_at_its_end(&self, replica: &ReplicaId, generation: Generation) -> bool {
        let seen = self.state.replica(replica).and_then(|row| row.observed.get(&generation));
        seen.and_then(|seen| seen.code.as_ref()).is_some_and(is_end)
    }

    /// Does what the agent says is next about one replica.
    pub(super) fn sync(&mut self, node: &NodeId, replica: &ReplicaId) {
        if self.leading.is_none() || !self.is_linked(node) {
            return;
        }
        let row = self.state.replica(replica);
        let locals = self.machines[node].locals(replica);
        let (mut wanted, mut awaits, mut jobs) = (Vec::new(), Vec::new(), Vec::new());
        let mut lacking = Vec::new();
        for order in orders::of(&self.state, node, replica) {
            let WantedContainer { generation, is_held, is_over } = order.wanted();
            let found = self.declared_at(node, replica, generation);
            let lacks_volumes = found.iter().any(|path| !order.declared.contains_key(path));
            let is_held = is_held || lacks_volumes;
            wanted.push(WantedContainer { generation, is_held, is_over });
            lacking.extend(lacks_volumes.then_some(generation));
            awaits.extend(order.awaits.map(|it| (generation, it)));
            jobs.extend(
                order.spec.retries().is_some().then_some((generation, order.spec.is_job())),
            );
        }
        let steps = agent::next(&wanted, &locals);
        // What leaves and is not here has stopped: a crash may have done it.
        let leaving =
            row.into_iter().flat_map(|row| &row.leaving).filter(|held| held.node == *node);
        let gone: Vec<Generation> = leaving
            .map(|held| held.generation)
            .filter(|generation| !locals.iter().any(|local| local.generation == *generation))
            .collect();
        for step in steps {
            if let ContainerStep::Await(generation) = step
                && lacking.contains(&generation)
            {
                self.tell_volumes(node, replica, generation);
            }
            let awaited = awaits.iter().find(|(held, _)| step == ContainerStep::Await(*held));
            if let Some((held, (service, until))) = awaited {
                self.hold(node, replica, *held, (service.clone(), *until));
                continue;
            }
            if let ContainerStep::Await(held) = step {
                self.await_volumes(node, replica, held);
            }
            self.begin(node, replica, step);
        }
        for (generation, is_job) in jobs {
            self.work(node, replica, generation, is_job);
        }
        for generation in gone {
            self.report(node, replica, generation, ObservedState::Stopped, None);
        }
    }

    fn begin(&mut self, node: &NodeId, replica: &ReplicaId, step: ContainerStep) {
        let dwell = self.scenario.dwell;
        // Without its engine a machine can only forget what does not run.
        let is_down = self.machines.get(node).is_some_and(|it| it.engine == Engine::Down);
        match step {
            ContainerStep::Pull(_) | ContainerStep::Start(_) | ContainerStep::Stop(_)
                if is_down => {}
            ContainerStep::Pull(generation) => self.pull(node, replica, generation),
            ContainerStep::Start(generation) => self.start(node, replica, generation),
            ContainerStep::Stop(generation) => {
                self.enter(node, replica, generation, ContainerPhase::Stopping);
                let wait = self.rng.between(dwell.stop);
                self.later(wait, node, replica, generation, Done::Stopped);
            }
            ContainerStep::Remove(generation) => {
                self.remove(node, replica, generation);
            }
            // Said where it is known what it waits for.
            ContainerStep::Await(_) => {}
        }
    }

    /// It waits for what it depends on, and says so once.
    fn hold(
        &mut self,
        node: &NodeId,
        replica: &ReplicaId,
        generation: Generation,
        (service, until): (ServiceName, Dependency),
    ) {
        let code = ObservedCode::AwaitsService { service, until };
        let now = self.clock.now;
        let Some(container) = self.container(node, replica, generation) else { return };
        // Until the next try it says why the last one failed.
        if let Some(due) = container.due.filter(|due| *due > now) {
            let (node, replica) = (node.clone(), replica.clone());
            return self.clock.at(due, Due::Orders { node, replica });
        }
        if container.is_at_its_end() || container.code.as_ref() == Some(&code) {
            return;
        }
        container.code = Some(code.clone());
        self.report(node, replica, generation, ObservedState::Pending, Some(code));
    }

    /// A job ends some time after it is up. Of what may end, some do, and some serve on.
    fn work(&mut self, node: &NodeId, replica: &ReplicaId, generation: Generation, is_job: bool) {
        let now = self.clock.now;
        // What was to end while its engine was away does so now.
        let is_due = |container: &Container| {
            let serves_on = container.ends_at == Some(Timestamp(u64::MAX));
            let is_decided = container.ends_at.is_some_and(|at| at >= now);
            // What served on and is a job by now ends like any other.
            container.is_healthy && (!is_decided || (is_job && serves_on))
        };
        let container = self.machines.get(node).and_then(|it| it.container(replica, generation));
        if !container.is_some_and(is_due) {
            return;
        }
        let serves_on = !is_job && self.rng.percent(60);
        let takes = self.rng.between(self.scenario.dwell.health);
        let ends_at = if serves_on { Timestamp(u64::MAX) } else { now.plus(takes) };
        if let Some(container) = self.container(node, replica, generation) {
            container.ends_at = Some(ends_at);
        }
        if !serves_on {
            self.later(takes, node, replica, generation, Done::Ended);
        }
    }

    /// It ended by itself, if that is what it is for: with status 0, or not.
    fn ended(&mut self, node: &NodeId, replica: &ReplicaId, generation: Generation) {
        let now = self.clock.now;
        let is_to_end =
            self.spec_of(replica, generation).is_some_and(|spec| spec.retries().is_some());
        let Some(container) = self.container(node, replica, generation) else { return };
        if container.ends_at != Some(now) {
            return;
        }
        container.ends_at = None;
        if !is_to_end || !container.is_healthy {
            return;
        }
        if self.rng.percent(25) {
            let code = ObservedCode::Exited { status: Some(1) };
            return self.exited(node, replica, generation, code);
        }
        let Some(container) = self.container(node, replica, generation) else { return };
        container.complete();
        let code = container.code.clone();
        self.report(node, replica, generation, ObservedState::Completed, code);
    }

    fn pull(&mut self, node: &NodeId, replica: &ReplicaId, generation: Generation) {
        let Some(spec) = self.spec_of(replica, generation) else { return };
        if self.is_at_its_end(replica, generation) {
            return;
        }
        let machine = &self.machines[node];
        let tried = machine.pulls.get(&(replica.clone(), generation));
        if let Some(due) = tried.map(|tried| tried.due).filter(|due| *due > self.clock.now) {
            let (node, replica) = (node.clone(), replica.clone());
            self.clock.at(due, Due::Orders { node, replica });
            return;
        }
        let is_present = machine.images.contains(&spec.container.image);
        let (phase, has_started) = (ContainerPhase::Pulling, false);
        let local = LocalContainer { generation, phase, has_started };
        let usage = self.scenario.usage.keys().position(|key| *key == replica.service);
        let container = Container::new(local, spec, usage);
        let wait = if is_present { PRESENT } else { self.rng.between(self.scenario.dwell.pull) };
        if let Some(machine) = self.machines.get_mut(node) {
            machine.containers.entry(replica.clone()).or_default().push(container);
        }
        self.report(node, replica, generation, ObservedState::Pulling, None);
        self.later(wait, node, replica, generation, Done::Pulled);
    }

    fn start(&mut self, node: &NodeId, replica: &ReplicaId, generation: Generation) {
        let now = self.clock.now;
        let Some(container) = self.container(node, replica, generation) else { return };
        if container.is_at_its_end() {
            return;
        }
        if let Some(due) = container.due.filter(|due| *due > now) {
            let (node, replica) = (node.clone(), replica.clone());
            self.clock.at(due, Due::Orders { node, replica });
            return;
        }
        container.local.phase = ContainerPhase::Starting;
        container.ends_at = None;
        let is_first = !std::mem::replace(&mut container.local.has_started, true);
        if is_first {
            container.code = None;
            self.first_starts.push((node.clone(), replica.clone(), generation));
        }
        self.mount_declared(node, replica, generation);
        let start = self.rng.between(self.scenario.dwell.start);
        self.report(node, replica, generation, ObservedState::Starting, None);
        self.later(start, node, replica, generation, Done::Started);
    }

    pub(super) fn done(
        &mut self,
        node: &NodeId,
        boot: u64,
        replica: &ReplicaId,
        generation: Generation,
        what: Done,
    ) {
        let Some(machine) = self.machines.get(node).filter(|machine| machine.boot == boot) else {
            return;
        };
        let Some(container) = machine.container(replica, generation) else { return };
        match (what, container.local.phase) {
            (Done::Pulled, ContainerPhase::Pulling) => self.pulled(node, replica, generation),
            (Done::Started, ContainerPhase::Starting) => self.started(node, replica, generation),
            (Done::Healthy, ContainerPhase::Up) => {
                let now = self.clock.now;
                let Some(container) = self.container(node, replica, generation) else { return };
                (container.is_healthy, container.code) = (true, None);
                container.tries.runs(now);
                self.report(node, replica, generation, ObservedState::Running, None);
            }
            (Done::Ended, ContainerPhase::Up) => self.ended(node, replica, generation),
            (Done::Stopped, ContainerPhase::Stopping) => self.stopped(node, replica, generation),
            // It went another way in the meantime.
            _ => {}
        }
        self.sync(node, replica);
    }

    fn pulled(&mut self, node: &NodeId, replica: &ReplicaId, generation: Generation) {
        let (now, policy) = (self.clock.now, &self.scenario.policy);
        let Some(machine) = self.machines.get_mut(node) else { return };
        let Some(container) = machine.container(replica, generation) else { return };
        let image = container.spec.container.image.clone();
        let key = (replica.clone(), generation);
        if self.withdrawn.contains(&image) && !machine.images.contains(&image) {
            machine.remove(replica, generation);
            machine.pulls.entry(key).or_default().fail(now, policy);
            let error = format!("{image} is not there");
            let code = ObservedCode::ImagePullFailed { image, error };
            self.report(node, replica, generation, ObservedState::Pending, Some(code));
            return;
        }
        machine.images.insert(image);
        machine.pulls.remove(&key);
        self.enter(node, replica, generation, ContainerPhase::Pulled);
        self.found_volumes(node, replica, generation);
    }

    fn started(&mut self, node: &NodeId, replica: &ReplicaId, generation: Generation) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        let Some(container) = machine.container(replica, generation) else { return };
        let spec = Arc::clone(&container.spec);
        if let Some(network) = machine.lacking_network(replica, container) {
            let error = format!("no addresses are left for {network}");
            let code = ObservedCode::SubnetPoolExhausted { error };
            let (now, policy) = (self.clock.now, self.scenario.policy);
            if let Some(container) = machine.container_mut(replica, generation) {
                container.lack_subnet(code.clone(), now, &policy);
            }
            return self.report(node, replica, generation, ObservedState::Pending, Some(code));
        }
        if machine.is_port_taken(replica, container) {
            let error = "a port of it is taken".to_owned();
            // Nothing of it has run: it may wait for others once more.
            machine.forget_start(replica, generation);
            return self.exited(node, replica, generation, ObservedCode::StartFailed { error });
        }
        let deployment = &replica.service.deployment;
        let declared: Vec<String> = container.declared.values().cloned().collect();
        for volume in spec.container.local_volumes(deployment).chain(declared) {
            self.numbers += 1;
            machine.contents.entry(volume.clone()).or_insert(self.numbers);
            machine.volumes.entry(volume).or_insert_with(|| deployment.clone());
        }
        if self.broken.contains(&spec.container.image) {
            let code = ObservedCode::Exited { status: Some(1) };
            return self.exited(node, replica, generation, code);
        }
        if let Some(container) = self.container(node, replica, generation) {
            (container.local.phase, container.subnet_failures) = (ContainerPhase::Up, 0);
        }
        // What says how long it takes to get healthy takes about that long.
        let start_period = spec.container.healthcheck.as_ref().and_then(|check| check.start_period);
        let takes = start_period.map_or(self.scenario.dwell.health, |it| (Millis(it.0 / 2), it));
        let health = self.rng.between(takes);
        self.later(health, node, replica, generation, Done::Healthy);
    }

    fn stopped(&mut self, node: &NodeId, replica: &ReplicaId, generation: Generation) {
        let is_wanted =
            agent::wanted(&self.state, node, replica).any(|held| held.generation == generation);
        let retry = self.container(node, replica, generation).and_then(|it| it.retry.take());
        match retry.filter(|_| is_wanted) {
            Some(code) => self.exited(node, replica, generation, code),
            None => self.remove(node, replica, generation),
        }
    }

    fn remove(&mut self, node: &NodeId, replica: &ReplicaId, generation: Generation) {
        if let Some(machine) = self.machines.get_mut(node) {
            machine.remove(replica, generation);
        }
        self.report(node, replica, generation, ObservedState::Stopped, None);
        self.clear_volumes();
        self.follow_volume_orders();
    }

    /// It ended by itself, so.
    pub(super) fn exited(
        &mut self,
        node: &NodeId,
        replica: &ReplicaId,
        generation: Generation,
        code: ObservedCode,
    ) {
        let (now, policy) = (self.clock.now, self.scenario.policy);
        if self.machines.get(node).is_some_and(|it| it.engine == Engine::Down) {
            return self.died(node, replica, generation);
        }
        let spec = self.spec_of(replica, generation);
        let Some(container) = self.container(node, replica, generation) else { return };
        let retries = spec.as_ref().unwrap_or(&container.spec).retries();
        container.fail(code, now, &RestartRule { policy: &policy, retries });
        let code = container.code.clone();
        self.report(node, replica, generation, ObservedState::Failed, code);
        self.sync(node, replica);
    }

    /// Its check fails: it is stopped, to start again.
    pub(super) fn sicken(&mut self, node: &NodeId, replica: &ReplicaId, generation: Generation) {
        let code = ObservedCode::Unhealthy { output: "no answer".to_owned() };
        let Some(container) = self.container(node, replica, generation) else { return };
        container.is_healthy = false;
        container.retry = Some(code.clone());
        container.local.phase = ContainerPhase::Stopping;
        self.report(node, replica, generation, ObservedState::Degraded, Some(code));
        let wait = self.rng.between(self.scenario.dwell.stop);
        self.later(wait, node, replica, generation, Done::Stopped);
    }

    /// Every node that is asked to and can removes the volumes of deployments that have ended.
    pub(super) fn clear_volumes(&mut self) {
        if self.leading.is_none() {
            return;
        }
        let doomed = self.state.volumes().iter().filter_map(|(deployment, volumes)| {
            volumes.doomed.map(|revision| (deployment, volumes.nodes(), revision))
        });
        let mut cleared: Vec<(NodeId, DeploymentName, Revision)> = Vec::new();
        for (deployment, nodes, revision) in doomed {
            let is_asked = |node: &NodeId| {
                let load = self.state.load(node);
                load.is_some_and(|it| {
                    it.tenants.iter().any(|id| id.service.deployment == *deployment)
                })
            };
            let can = |node: &&NodeId| {
                let machine = self.machines.get(*node).filter(|machine| machine.can_stop());
                machine.is_some_and(|it| !it.has_any_of(deployment)) && !is_asked(node)
            };
            let ready = nodes.iter().filter(can);
            cleared.extend(ready.map(|node| (node.clone(), deployment.clone(), revision)));
        }
        for (node, deployment, revision) in cleared {
            if let Some(machine) = self.machines.get_mut(&node) {
                machine.volumes.retain(|_, of| *of != deployment);
                let Machine { volumes, contents, .. } = machine;
                contents.retain(|name, _| volumes.contains_key(name));
            }
            let latency = self.scenario.dwell.network.1;
            self.clock.after(latency, Due::Cleared { node, deployment, revision });
        }
    }

    fn enter(
        &mut self,
        node: &NodeId,
        replica: &ReplicaId,
        generation: Generation,
        phase: ContainerPhase,
    ) {
        if let Some(container) = self.container(node, replica, generation) {
            container.local.phase = phase;
        }
    }

    pub(super) fn container(
        &mut self,
        node: &NodeId,
        replica: &ReplicaId,
        generation: Generation,
    ) -> Option<&mut Container> {
        self.machines.get_mut(node)?.container_mut(replica, generation)
    }

    pub(super) fn later(
        &mut self,
        wait: Millis,
        node: &NodeId,
        replica: &ReplicaId,
        generation: Generation,
        what: Done,
    ) {
        let Some(boot) = self.machines.get(node).map(|machine| machine.boot) else { return };
        let (node, replica) = (node.clone(), replica.clone());
        self.clock.after(wait, Due::Done { node, boot, replica, generation, what });
    }

    /// One latency for every report of a node, so that they arrive in the order they were sent.
    pub(super) fn report(
        &mut self,
        node: &NodeId,
        replica: &ReplicaId,
        generation: Generation,
        state: ObservedState,
        code: Option<ObservedCode>,
    ) {
        let latency = self.scenario.dwell.network.1;
        let (node, replica) = (node.clone(), replica.clone());
        self.clock.after(latency, Due::Report { node, replica, generation, state, code });
    }

    fn spec_of(&self, replica: &ReplicaId, generation: Generation) -> Option<Arc<ServiceSpec>> {
        let service = self.state.service(&replica.service)?;
        let row = service.replicas.get(&replica.slot)?;
        let held = row.holds().find(|held| held.generation == generation)?;
        service.spec_of(held).cloned()
    }

    pub(super) fn is_linked(&self, node: &NodeId) -> bool {
        self.machines.get(node).is_some_and(|machine| machine.link == Link::Up)
    }
}

/// Whether nothing more is tried of what says so.
fn is_end(code: &ObservedCode) -> bool {
    matches!(
        code,
        ObservedCode::RestartExhausted { .. }
            | ObservedCode::JobCompleted { .. }
            | ObservedCode::JobFailed { .. }
    )
}
