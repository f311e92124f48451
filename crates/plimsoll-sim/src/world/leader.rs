//! The leader: hears, judges, decides and commits, as the daemon's loop does.

use plimsoll_kernel::dirty::Dirty;
use plimsoll_kernel::place::Roster;
use plimsoll_kernel::{Scope, Signals, lint, liveness, reconcile};
use plimsoll_model::{
    Change, Generation, Guarded, Millis, NodeId, Observation, ObservedState, Pressure, ReplicaId,
    Writer,
};

use super::{Due, Leader, World};
use crate::machine::{Link, Machine};
use crate::scenario::Action;

/// How long the leader gathers what is dirty before it looks: a burst of reports becomes one pass.
const DEBOUNCE: Millis = Millis(50);

impl World<'_> {
    pub(super) fn elected(&mut self) {
        let signals = Signals::default();
        let roster = Roster::new(&self.state, &signals, &self.scenario.policy);
        self.leader = Some(Leader {
            since: self.clock.now,
            roster,
            signals,
            dirty: Dirty::default(),
            is_full_due: true,
            is_pass_due: false,
            is_committing: false,
            inbox: Vec::new(),
        });
        self.want_pass();
        let nodes: Vec<NodeId> = self.machines.keys().cloned().collect();
        for node in nodes {
            self.reconnect(&node);
        }
        // Nodes that stay silent are judged one TTL from now.
        self.clock.after(self.scenario.policy.node_ttl, Due::Listen);
    }

    pub(super) fn depose(&mut self) {
        self.leader = None;
        self.term.0 += 1;
        let election = self.chance.between(self.scenario.dwell.election);
        self.clock.after(election, Due::Elected);
    }

    pub(super) fn want_pass(&mut self) {
        let Some(leader) = &mut self.leader else { return };
        if !leader.is_pass_due && !leader.is_committing {
            leader.is_pass_due = true;
            self.clock.after(DEBOUNCE, Due::Pass(self.term));
        }
    }

    pub(super) fn look_at_everything(&mut self) {
        if let Some(leader) = &mut self.leader {
            leader.is_full_due = true;
            self.want_pass();
        }
    }

    /// The reports of a node reach the leader only while both are there.
    pub(super) fn hear(
        &mut self,
        node: &NodeId,
        replica: ReplicaId,
        generation: Generation,
        state: ObservedState,
    ) {
        if self.machines.get(node).is_none_or(|machine| machine.link != Link::Up) {
            return;
        }
        let observation = Observation { state, code: None, at: self.clock.now };
        let Some(leader) = &mut self.leader else { return };
        leader.inbox.push(Change::Observe { replica, generation, observation }.free());
        self.want_pass();
    }

    /// Commits the reports, then decides on what they changed. One batch at a time: a second one decided before the
    /// first is applied would count on the same room and the same budgets.
    pub(super) fn pass(&mut self) {
        let Some(leader) = &mut self.leader else { return };
        let reports = std::mem::take(&mut leader.inbox);
        self.commit_reports(reports);

        let Some(leader) = &mut self.leader else { return };
        leader.is_pass_due = false;
        if leader.is_committing {
            return;
        }
        let dirty = leader.dirty.take();
        let is_full = std::mem::take(&mut leader.is_full_due);
        let scope = if is_full { Scope::All } else { Scope::Services(&dirty) };
        let decision = reconcile(
            &self.state,
            &mut leader.roster,
            &self.scenario.policy,
            scope,
            self.clock.now,
        );
        if let Some(wake) = decision.wake {
            self.clock.at(wake, Due::Wake(self.term));
        }
        if decision.batch.is_empty() {
            return;
        }
        let broken = lint::plan(&self.state, &decision.batch);
        self.complaints
            .extend(broken.iter().map(|broken| format!("{broken}, of {:?}", decision.batch)));
        leader.is_committing = true;
        let latency = self.chance.between(self.scenario.dwell.commit);
        self.clock.after(
            latency,
            Due::Commit { term: self.term, decided_on: self.commands, batch: decision.batch },
        );
    }

    fn commit_reports(&mut self, mut reports: Vec<Guarded>) {
        while !reports.is_empty() {
            let Err(rejection) = self.apply(Writer::Agent, reports.clone()) else { return };
            let report = reports.remove(rejection.position);
            self.complaints
                .push(format!("report {:?} was refused: {}", report.change, rejection.reason));
        }
    }

    pub(super) fn commit(&mut self, decided_on: u64, batch: Vec<Guarded>) {
        if let Some(leader) = &mut self.leader {
            leader.is_committing = false;
        }
        let is_fresh = self.commands == decided_on;
        if let Err(rejection) = self.apply(Writer::Scheduler, batch) {
            if is_fresh {
                self.complaints.push(format!("a batch decided on this very state: {rejection}"));
            }
            // Something changed under it since it was decided: look again.
            self.refused += 1;
            self.look_at_everything();
        }
        self.want_pass();
    }

    pub(super) fn listen(&mut self) {
        let Some(heard) = self.heard() else { return };
        let batch = liveness::judge(&self.state, &heard, &self.scenario.policy, self.clock.now);
        if !batch.is_empty()
            && let Err(rejection) = self.apply(Writer::Liveness, batch)
        {
            self.complaints.push(format!("liveness was refused: {rejection}"));
        }
    }

    /// Every so often: nodes are measured and heard, and everything is looked at.
    pub(super) fn cycle(&mut self) {
        self.is_cycle = true;
        self.clock.after(self.scenario.cycle, Due::Cycle);
        self.listen();
        self.measured = self.measure();
        if let Some(leader) = &mut self.leader {
            for (node, pressure) in &self.measured {
                if leader.signals.pressure(node) != *pressure {
                    leader.signals.set(node, *pressure);
                    leader.roster.feel(node, *pressure);
                }
            }
        }
        self.look_at_everything();
    }

    /// What each node measures of itself now: cpu and memory. Nothing where it is not heard.
    fn measure(&self) -> Vec<(NodeId, Option<[Pressure; 2]>)> {
        let elapsed = self.elapsed();
        let usages: Vec<(u64, u64)> = self
            .scenario
            .usage
            .values()
            .map(|usage| (usage.cpu.at(elapsed), usage.memory.at(elapsed)))
            .collect();
        let of_machine = |(node, machine): (&NodeId, &Machine)| {
            let capacity = self.state.node(node)?.facts.capacity;
            let (mut cpu, mut memory) = (0, 0);
            for container in machine.containers.values().flatten().filter(|c| c.is_up()) {
                let reserved = container.spec.container.reservations;
                let used =
                    container.usage.map_or((reserved.cpu.0, reserved.memory.0), |at| usages[at]);
                cpu += used.0;
                memory += used.1;
            }
            let pressure =
                [Pressure::of(cpu, capacity.cpu.0), Pressure::of(memory, capacity.memory.0)];
            Some((node.clone(), (machine.link == Link::Up).then_some(pressure)))
        };
        self.machines.iter().filter_map(of_machine).collect()
    }

    /// An operator's or the world's doing. Operators wait for a leader.
    pub(super) fn wait_for_leader(&mut self, action: Action) {
        self.clock.after(Millis(200), Due::Act(Box::new(action)));
    }
}
