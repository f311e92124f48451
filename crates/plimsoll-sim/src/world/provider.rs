//! A provider of machines, and a coordinator: the one does what machines are in a state for, after a while and not always; the other
//! says anything that a coordinator may say, also twice and out of order.

use std::collections::BTreeSet;

use plimsoll_kernel::shard;
use plimsoll_model::fleet::{
    Instruction, InstructionId, MachineId, MachineType, Order, Pool, TransferId, Zone,
};
use plimsoll_model::machines::{
    MachineChange, MachineClass, MachineKind, MachineState, TOKEN_PREFIX,
};
use plimsoll_model::{
    Bytes, Change, MilliCpus, Millis, NodeFacts, NodeId, Resources, Term, Writer,
};

use super::{Due, World};
use crate::scenario::MachineAction;

/// How long a provider takes for anything, and how often it fails.
const LATENCY: (Millis, Millis) = (Millis::seconds(1), Millis::seconds(90));
const FAILS_PERCENT: u64 = 10;

/// How long the coordinator has a machine set aside.
const TTL: Millis = Millis::minutes(10);

/// Few of each, so that things meet.
const NAMES: [&str; 6] = ["m1", "m2", "m3", "m4", "m5", "m6"];

fn machine(name: &str) -> MachineId {
    MachineId::new(name).expect("a valid name")
}

fn pool(nth: u64) -> Pool {
    let machine_type = MachineType::new(format!("c{}", 2 << nth)).expect("a valid name");
    let zone = Zone::new(if nth == 0 { "a" } else { "b" }).expect("a valid name");
    Pool { machine_type, zone }
}

impl World<'_> {
    pub(super) fn machine_action(&mut self, action: MachineAction) {
        let paused = |is_paused| MachineChange::Pause { is_paused };
        match action {
            MachineAction::Offer => self.offer(),
            MachineAction::Withdraw => {
                let machine = self.any_machine();
                self.provider_says(MachineChange::Drop { machine });
            }
            MachineAction::Pause => self.shard_setting(paused(true)),
            MachineAction::Resume => self.shard_setting(paused(false)),
            MachineAction::Instruct => self.instruct(),
        }
    }

    fn shard_setting(&mut self, change: MachineChange) {
        self.operate(vec![Change::Machines { change: Box::new(change) }.free()]);
    }

    fn any_machine(&mut self) -> MachineId {
        machine(self.rng.pick(&NAMES).copied().unwrap_or("m1"))
    }

    /// The provider has one more machine, or says again what it has.
    fn offer(&mut self) {
        let (machine, nth) = (self.any_machine(), self.rng.below(2));
        let kinds = [MachineKind::Spot, MachineKind::OnDemand, MachineKind::BareMetal];
        let kind = self.rng.pick(&kinds).copied().unwrap_or(MachineKind::Spot);
        let cpus = 2_u64 << nth;
        let (cpu, memory) = (MilliCpus(cpus * 1_000), Bytes(cpus << 32));
        let capacity = Resources { cpu, memory, ..Resources::NONE };
        let class = MachineClass { pool: pool(nth), capacity, kind, labels: [].into() };
        let is_there = self.rng.percent(50);
        let state = if is_there { MachineState::Idle } else { MachineState::Speculative };
        self.provider_says(MachineChange::Put { machine, class, state, epoch: 0 });
    }

    /// A provider that is refused says it to nobody.
    fn provider_says(&mut self, change: MachineChange) -> bool {
        let batch = vec![Change::Machines { change: Box::new(change) }.free()];
        let is_taken = self.apply(Writer::Provider, batch).is_ok();
        self.refused += u64::from(!is_taken);
        is_taken
    }

    /// Anything a coordinator may say, with an old number now and then.
    fn instruct(&mut self) {
        let count = 1 + u32::try_from(self.rng.below(2)).unwrap_or(0);
        let (one, pool) = (self.any_machine(), pool(self.rng.below(2)));
        let machines: BTreeSet<MachineId> = [one.clone()].into();
        let known = self.state.machines();
        let epoch = known.get(&one).map(|row| row.epoch).max(known.forgotten().get(&one).copied());
        let epoch = u64::from(epoch.unwrap_or(0)) + 1;
        let is_here = known.get(&one).is_some();
        let order = match self.rng.below(6) {
            0 => Order::Reserve { pool, count, ttl: TTL },
            1 => Order::Drain { pool, count, below_priority: 1, ttl: TTL },
            // Also what was set aside for too long, and is in use again.
            2 if is_here => Order::Forget { machines },
            3 if !is_here => Order::Adopt { machines: vec![(one, epoch)] },
            4 => Order::Release { machines },
            _ => Order::SetQuota { pool, slice: count + 1 },
        };
        let is_new = self.rng.percent(80);
        let number = if is_new { self.number() } else { self.rng.below(self.numbers.max(1)) };
        let (id, transfer) = (InstructionId(number), TransferId(number));
        let term = Term(1 + self.rng.below(3));
        let instruction = Instruction { term, id, transfer, order };
        let answer = if self.rng.percent(80) { vec![instruction] } else { Vec::new() };
        for batch in shard::obey_all(&self.state, &answer, self.leader_time()) {
            if let Err(rejection) = self.apply(Writer::Shard, batch) {
                self.complaints.push(format!("an instruction was refused: {rejection}"));
            }
        }
    }

    /// The provider will look at what it is to do.
    pub(super) fn call_provider(&mut self) {
        let latency = self.rng.between(LATENCY);
        self.clock.after(latency, Due::Provider);
    }

    /// One thing that is to be done, of those there are.
    pub(super) fn provide(&mut self) {
        if self.leading.is_none() {
            return self.call_provider();
        }
        let machines = self.state.machines();
        let adoption = shard::adoptions(machines).next().map(|(id, it, _)| (id, it.clone()));
        if let Some((id, machine)) = adoption {
            let nth = self.rng.below(2);
            let capacity =
                Resources { cpu: MilliCpus(4_000), memory: Bytes(1 << 34), ..Resources::NONE };
            let (kind, labels) = (MachineKind::OnDemand, [].into());
            let class = MachineClass { pool: pool(nth), capacity, kind, labels };
            self.provider_says(MachineChange::Adopted { id, machine, class });
        }
        let rows: Vec<_> =
            self.state.machines().all().iter().map(|(id, row)| (id.clone(), row.state)).collect();
        for (machine, from) in rows {
            let has_failed = self.rng.percent(FAILS_PERCENT);
            let is_gone = self
                .state
                .machines()
                .node_of(&machine)
                .is_none_or(|node| self.state.node(node).is_none());
            let to = match from {
                MachineState::Creating | MachineState::Configuring | MachineState::Deleting
                    if has_failed =>
                {
                    MachineState::Failed
                }
                MachineState::Creating => MachineState::Idle,
                MachineState::Deleting => MachineState::Speculative,
                MachineState::Draining if is_gone => {
                    self.unplug(&machine);
                    MachineState::Idle
                }
                MachineState::Configuring => {
                    self.configure(&machine);
                    continue;
                }
                _ => continue,
            };
            self.provider_says(MachineChange::Step { machine, from, to });
        }
    }

    fn configure(&mut self, machine: &MachineId) {
        let machines = self.state.machines();
        let class = machines.get(machine).and_then(|row| machines.class_of(row));
        let Some(class) = class else { return };
        let mut facts = NodeFacts::new(class.capacity);
        facts.zone = plimsoll_model::Zone::new(class.pool.zone.as_str()).ok();
        let Ok(node) = NodeId::new(machine.as_str()) else { return };
        self.unplug(machine);
        // The one before may not have been used.
        let name = format!("{TOKEN_PREFIX}{machine}");
        self.operate(vec![Change::RevokeJoinToken { name: name.clone() }.free()]);
        self.join_as(&node, &facts, name);
    }

    /// The agent on the machine is stopped, and its disks are wiped.
    fn unplug(&mut self, machine: &MachineId) {
        if let Ok(node) = NodeId::new(machine.as_str())
            && self.state.node(&node).is_none()
        {
            self.machines.remove(&node);
        }
    }
}
