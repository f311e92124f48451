//! The leader: hears, takes its turns and commits, as the daemon's loop does. What it decides is the kernel's own.

use std::collections::{BTreeSet, VecDeque};

use plimsoll_kernel::leader::DEBOUNCE;
use plimsoll_kernel::rebalance::ReplicaUsage;
use plimsoll_kernel::{Leader, LeaderStep, PressureSample, batch, lint};
use plimsoll_model::{
    Bytes, Change, DeploymentName, Generation, Guarded, MilliCpus, Millis, NodeId, NodePressure,
    Observation, ObservedCode, ObservedState, Pressure, ReplicaId, Revision, ServiceKey, Slot,
    Timestamp, Writer,
};

use super::{Due, Leading, PoisonRefusal, World};
use crate::machine::{Container, Engine, Link};
use crate::scenario::Action;

impl World<'_> {
    pub(super) fn elected(&mut self) {
        self.leading = Some(Leading {
            since: self.clock.now,
            leader: Leader::new(self.scenario.policy, self.leader_time()),
            is_turn_due: false,
            is_committing: false,
            wake_at: None,
            inbox: Vec::new(),
        });
        self.want_turn();
        let nodes: Vec<NodeId> = self.machines.keys().cloned().collect();
        for node in nodes {
            self.reconnect(&node);
        }
        // Nodes that stay silent are judged one TTL from now.
        self.clock.after(self.scenario.policy.node_ttl(), Due::Listen);
    }

    pub(super) fn depose(&mut self) {
        if self.leading.is_none() {
            return;
        }
        self.leading = None;
        self.term.0 += 1;
        let election = self.rng.between(self.scenario.dwell.election);
        self.clock.after(election, Due::Elected);
    }

    pub(super) fn want_turn(&mut self) {
        let Some(leading) = &mut self.leading else { return };
        if !leading.is_turn_due && !leading.is_committing {
            leading.is_turn_due = true;
            self.clock.after(DEBOUNCE, Due::Turn(self.term));
        }
    }

    pub(super) fn wake(&mut self) {
        if let Some(leading) = &mut self.leading {
            leading.wake_at = None;
            self.want_turn();
        }
    }

    /// The reports of a node reach the leader only while both are there.
    pub(super) fn hear(
        &mut self,
        node: &NodeId,
        replica: ReplicaId,
        generation: Generation,
        state: ObservedState,
        code: Option<ObservedCode>,
    ) {
        if self.machines.get(node).is_none_or(|machine| machine.link != Link::Up) {
            return;
        }
        let observation = Observation { state, code, at: self.leader_time() };
        self.take(Change::Observe { replica, generation, observation });
    }

    pub(super) fn hear_cleared(
        &mut self,
        node: NodeId,
        deployment: DeploymentName,
        revision: Revision,
    ) {
        if self.machines.get(&node).is_some_and(|machine| machine.link == Link::Up) {
            self.take(Change::VolumesRemoved { deployment, node, revision });
        }
    }

    pub(super) fn take(&mut self, report: Change) {
        let Some(leading) = &mut self.leading else { return };
        leading.inbox.push(report.free());
        self.want_turn();
    }

    /// Commits the reports, then takes the steps of a turn.
    pub(super) fn turn(&mut self) {
        let Some(leading) = &mut self.leading else { return };
        let reports = std::mem::take(&mut leading.inbox);
        for piece in batch::pieces(reports, self.scenario.policy.max_changes) {
            self.commit_reports(piece);
        }
        self.listen();
        let Some(leading) = &mut self.leading else { return };
        leading.is_turn_due = false;
        if !leading.is_committing {
            self.steps(0);
        }
    }

    /// The steps of a turn from this one on. One batch at a time: a step sees what the one before it wrote.
    fn steps(&mut self, from: usize) {
        for (nth, step) in LeaderStep::TURN.into_iter().enumerate().skip(from) {
            let now = self.leader_time();
            let Some(leading) = &mut self.leading else { return };
            let leader = &mut leading.leader;
            if step == LeaderStep::Rebalance && leader.is_rebalance_due(now) {
                let usages = self.usages.iter();
                leader
                    .usage(&self.state, usages.map(|(id, generation, it)| (id, *generation, *it)));
            }
            let mut batch = leader.decide(step, &self.state, now);
            if batch.is_empty() {
                continue;
            }
            let broken = lint::plan(&self.state, &batch);
            self.complaints.extend(broken.iter().map(|broken| format!("{broken}, of {batch:?}")));
            poison(&mut batch, &self.poisoned);
            leading.is_committing = true;
            let pieces = batch::pieces(batch, self.scenario.policy.max_changes);
            self.send_to_log(nth, self.commands, pieces.into());
            return;
        }
        self.end_turn();
    }

    fn send_to_log(&mut self, nth: usize, decided_on: u64, pieces: VecDeque<Vec<Guarded>>) {
        let latency = self.rng.between(self.scenario.dwell.commit);
        let term = self.term;
        self.clock.after(latency, Due::Commit { term, nth, decided_on, pieces });
    }

    fn end_turn(&mut self) {
        let Some(leading) = &mut self.leading else { return };
        leading.is_committing = false;
        let due = Timestamp(leading.leader.due().0.saturating_add_signed(-self.skew));
        if leading.wake_at.is_none_or(|wake| due < wake) {
            leading.wake_at = Some(due);
            self.clock.at(due, Due::Wake(self.term));
        }
        if leading.leader.is_dirty() || !leading.inbox.is_empty() {
            self.want_turn();
        }
    }

    fn commit_reports(&mut self, mut reports: Vec<Guarded>) {
        while !reports.is_empty() {
            let Err(rejection) = self.apply(Writer::Agent, reports.clone()) else { return };
            let report = reports.remove(rejection.position);
            self.complaints
                .push(format!("report {:?} was refused: {}", report.change, rejection.reason));
        }
    }

    /// One entry of what a step decided, and the others after it. What is left of it once one is refused is decided again.
    pub(super) fn commit(
        &mut self,
        nth: usize,
        decided_on: u64,
        mut pieces: VecDeque<Vec<Guarded>>,
    ) {
        let (is_fresh, step) = (self.commands == decided_on, LeaderStep::TURN[nth]);
        let batch = pieces.pop_front().unwrap_or_default();
        if let Err(rejection) = self.apply(step.writer(), batch.clone()) {
            let poisoned = batch.get(rejection.position).and_then(poisoned_service).cloned();
            if is_fresh && poisoned.is_none() {
                self.complaints.push(format!("a batch decided on this very state: {rejection}"));
            }
            // Something changed under it since it was decided: look again.
            self.refused += 1;
            let now = self.leader_time();
            if let Some(leading) = &mut self.leading {
                let waits = leading.leader.refused(step, &self.state, &batch, &rejection, now);
                self.poison_refusal = poisoned.map(|service| PoisonRefusal { service, waits });
            }
        } else if !pieces.is_empty() {
            // Nothing came between but what it decided itself.
            let decided_on = if is_fresh { self.commands } else { decided_on };
            return self.send_to_log(nth, decided_on, pieces);
        }
        self.steps(nth + 1);
    }

    /// Who has said that it is alive, and when.
    fn listen(&mut self) {
        let Some(leading) = &mut self.leading else { return };
        let heartbeat = self.scenario.policy.heartbeat.0;
        for (node, machine) in &self.machines {
            let last = match machine.link {
                Link::Up => self.clock.now,
                Link::Cut | Link::Off => {
                    let beats = machine.since.since(self.begun).0 / heartbeat;
                    self.begun.plus(Millis(beats * heartbeat))
                }
            };
            if last >= leading.since {
                let at = Timestamp(last.0.saturating_add_signed(self.skew));
                leading.leader.heartbeat(node, at);
            }
            if machine.link == Link::Up {
                let trouble = (machine.engine == Engine::Down).then_some("the engine is down");
                leading.leader.runtime(node, trouble);
            }
        }
    }

    /// Every so often nodes measure themselves, and say so where they are heard.
    pub(super) fn cycle(&mut self) {
        self.is_cycle = true;
        self.follow_volume_orders();
        self.clock.after(self.scenario.policy.sample_interval, Due::Cycle);
        self.measure();
        let now = self.leader_time();
        if let Some(leading) = &mut self.leading {
            for (node, pressure) in &self.measured {
                if let Some(pressure) = *pressure {
                    leading.leader.sample(node, Some(PressureSample { at: now, pressure }), now);
                }
            }
        }
        self.want_turn();
    }

    /// What each node finds of itself and of its containers now. Nothing where it is not heard.
    fn measure(&mut self) {
        let elapsed = self.elapsed();
        let of_service = |usage: &crate::usage::Usage| ReplicaUsage {
            cpu: MilliCpus(usage.cpu.at(elapsed)),
            memory: Bytes(usage.memory.at(elapsed)),
        };
        let services: Vec<ReplicaUsage> = self.scenario.usage.values().map(of_service).collect();
        let usage = |container: &Container| {
            let reserved = container.spec.container.reservations;
            let declared = ReplicaUsage { cpu: reserved.cpu, memory: reserved.memory };
            container.usage.map_or(declared, |at| services[at])
        };
        self.measured.clear();
        self.usages.clear();
        for (node, machine) in &self.machines {
            let Some(capacity) = self.state.node(node).map(|node| node.facts.capacity) else {
                continue;
            };
            let (mut cpu, mut memory) = (0, 0);
            let is_heard = machine.link == Link::Up;
            for (replica, containers) in &machine.containers {
                for container in containers.iter().filter(|container| container.is_up()) {
                    let used = usage(container);
                    cpu += used.cpu.0;
                    memory += used.memory.0;
                    if is_heard {
                        self.usages.push((replica.clone(), container.local.generation, used));
                    }
                }
            }
            let pressure = NodePressure {
                cpu: Pressure::of(cpu, capacity.cpu.0),
                memory: Pressure::of(memory, capacity.memory.0),
            };
            self.measured.push((node.clone(), is_heard.then_some(pressure)));
        }
    }

    /// An operator's or the world's doing. Operators wait for a leader.
    pub(super) fn wait_for_leader(&mut self, action: Action) {
        self.clock.after(Millis(200), Due::Act(Box::new(action)));
    }
}

/// What is decided for the replicas of a poisoned service also ends one that there never is, before anything else: the state
/// refuses all of it.
fn poison(batch: &mut Vec<Guarded>, poisoned: &BTreeSet<ServiceKey>) {
    for key in poisoned {
        let is_its =
            |guarded: &Guarded| guarded.change.replica().is_some_and(|it| it.service == *key);
        if let Some(at) = batch.iter().position(is_its) {
            let replica = ReplicaId::indexed(key, u32::MAX);
            batch.insert(at, Change::Retire { replica }.free());
        }
    }
}

/// The service whose poison a change is.
fn poisoned_service(guarded: &Guarded) -> Option<&ServiceKey> {
    let replica = guarded.change.replica()?;
    (replica.slot == Slot::Index(u32::MAX)).then_some(&replica.service)
}
