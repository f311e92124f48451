//! A shard that follows the protocol and no more: machines with their dwell times, a demand that somebody else sets, a ledger of
//! what is missing, and instructions, each carried out once however often it is heard, also across restarts.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::fleet::{
    Accepts, Ack, AckError, Bucket, CoordinatorAnswer, Instruction, InstructionId, MachineId,
    MachineType, Order, Pool, Preemptible, Profile, Registration, Report, ReportOrder, ShardId,
    ShardKinds, ShardMessage, Shortfall, Supply, Zone,
};
use plimsoll_model::{Bytes, MilliCpus, Millis, Resources, Term, Timestamp};

use super::FleetScenario;
use crate::rng::SimRng;

/// What every machine of a simulated fleet has.
pub(super) const MACHINE: Resources =
    Resources { cpu: MilliCpus(16_000), memory: Bytes(32 << 30), gpus: 0, all_gpus: 0 };

/// A machine on its way from one state to another.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Dwelling {
    Configuring,
    Creating,
    /// For an instruction, which is answered when the last of its machines is drained.
    Draining(InstructionId),
}

#[derive(Debug, Clone)]
pub(super) struct SimShard {
    pub(super) id: ShardId,
    pub(super) pool: Pool,
    pub(super) idle: BTreeSet<MachineId>,
    pub(super) configured: BTreeSet<MachineId>,
    dwelling: BTreeMap<MachineId, (Timestamp, Dwelling)>,
    /// Set aside for a transfer: neither given nor used until the coordinator says which.
    pub(super) reserved: BTreeSet<MachineId>,
    /// What it may make, as it was told last, and what it has made.
    pub(super) slice: u32,
    pub(super) made: u32,
    /// How many machines its work takes.
    pub(super) demand: u32,
    priority: i32,
    bucket: Bucket,
    /// For how many cycles something is missing.
    age: u64,
    order: ReportOrder,
    /// The newest term it has taken instructions of, and what it answered: both outlive a restart.
    term: Term,
    answered: BTreeMap<InstructionId, Ack>,
    drains: BTreeMap<InstructionId, BTreeSet<MachineId>>,
    /// What the coordinator has yet to hear.
    unheard: BTreeMap<InstructionId, Ack>,
    knows_kinds: bool,
    next_machine: u32,
    /// Until when it is down.
    pub(super) down_until: Timestamp,
}

impl SimShard {
    pub(super) fn new(nth: usize, scenario: &FleetScenario, rng: &mut SimRng) -> Self {
        let named =
            |what: &str, count: u64, rng: &mut SimRng| format!("{what}{}", rng.below(count));
        let pool = Pool {
            machine_type: MachineType::new(named("m", 2, rng)).expect("a short name"),
            zone: Zone::new(named("z", 2, rng)).expect("a short name"),
        };
        let id = ShardId::new(format!("s{nth:03}")).expect("a short name");
        let mut shard = Self {
            id,
            pool,
            idle: BTreeSet::new(),
            configured: BTreeSet::new(),
            dwelling: BTreeMap::new(),
            reserved: BTreeSet::new(),
            slice: scenario.quota,
            made: 0,
            demand: scenario.machines / 2,
            priority: i32::try_from(rng.below(4)).unwrap_or(0) * 100,
            bucket: Bucket(u8::try_from(rng.below(20)).unwrap_or(0)),
            age: 0,
            order: ReportOrder { epoch: 1, cycle: 0 },
            term: Term(0),
            answered: BTreeMap::new(),
            drains: BTreeMap::new(),
            unheard: BTreeMap::new(),
            knows_kinds: false,
            next_machine: 0,
            down_until: Timestamp(0),
        };
        for _ in 0..scenario.machines {
            let machine = shard.new_machine();
            shard.idle.insert(machine);
        }
        shard
    }

    fn new_machine(&mut self) -> MachineId {
        self.next_machine += 1;
        MachineId::new(format!("{}-{}", self.id, self.next_machine)).expect("a short name")
    }

    /// Every machine it holds, whatever for.
    pub(super) fn held(&self) -> impl Iterator<Item = &MachineId> {
        self.usable().chain(&self.reserved)
    }

    /// Those that it uses or could use.
    pub(super) fn usable(&self) -> impl Iterator<Item = &MachineId> {
        self.idle.iter().chain(&self.configured).chain(self.dwelling.keys())
    }

    pub(super) fn is_lacking(&self) -> bool {
        self.age > 0
    }

    /// A process dies: what it had not written down is gone, and its next reports are of another epoch.
    pub(super) fn crash(&mut self, until: Timestamp) {
        self.down_until = until;
        self.order = ReportOrder { epoch: self.order.epoch + 1, cycle: 0 };
        self.unheard.clear();
        self.knows_kinds = false;
        self.age = 0;
    }

    /// One cycle: what is done is done, needs take idle machines, then such as can be made; surplus goes back; what is left is
    /// missing.
    pub(super) fn cycle(&mut self, scenario: &FleetScenario, now: Timestamp, rng: &mut SimRng) {
        self.ripen(now);
        let coming = |it: &&(Timestamp, Dwelling)| !matches!(it.1, Dwelling::Draining(_));
        let on_its_way = self.dwelling.values().filter(coming).count();
        let has = u32::try_from(self.configured.len() + on_its_way).unwrap_or(u32::MAX);
        let mut missing = self.demand.saturating_sub(has);
        while missing > 0 {
            let (machine, span, what) = if let Some(machine) = self.idle.pop_first() {
                (machine, scenario.configure, Dwelling::Configuring)
            } else if self.made < self.slice {
                self.made += 1;
                (self.new_machine(), scenario.create, Dwelling::Creating)
            } else {
                break;
            };
            self.dwelling.insert(machine, (now.plus(rng.between(span)), what));
            missing -= 1;
        }
        let configured = u32::try_from(self.configured.len()).unwrap_or(u32::MAX);
        let surplus = configured.saturating_sub(self.demand).min((configured / 20).max(1));
        for _ in 0..surplus {
            let last = self.configured.pop_last();
            self.idle.extend(last);
        }
        self.age = if missing > 0 { self.age + 1 } else { 0 };
    }

    /// What takes time, and has had it.
    fn ripen(&mut self, now: Timestamp) {
        let ripe = |(at, _): &(Timestamp, Dwelling)| *at <= now;
        let done: Vec<MachineId> =
            self.dwelling.iter().filter(|(_, it)| ripe(it)).map(|(id, _)| id.clone()).collect();
        for machine in done {
            match self.dwelling.remove(&machine) {
                Some((_, Dwelling::Creating | Dwelling::Configuring)) => {
                    self.configured.insert(machine);
                }
                Some((_, Dwelling::Draining(id))) => {
                    // Until the coordinator says what becomes of it.
                    self.reserved.insert(machine);
                    self.drained(id);
                }
                None => {}
            }
        }
    }

    fn drained(&mut self, id: InstructionId) {
        let Some(machines) = self.drains.get(&id) else { return };
        if machines.iter().any(|it| self.dwelling.contains_key(it)) {
            return;
        }
        let machines = self.drains.remove(&id).unwrap_or_default();
        self.answer(id, Ack::Reserved { machines });
    }

    fn answer(&mut self, id: InstructionId, ack: Ack) {
        self.answered.insert(id, ack.clone());
        self.unheard.insert(id, ack);
    }

    fn missing(&self) -> u32 {
        let coming = |it: &&(Timestamp, Dwelling)| !matches!(it.1, Dwelling::Draining(_));
        let on_its_way = self.dwelling.values().filter(coming).count();
        let has = u32::try_from(self.configured.len() + on_its_way).unwrap_or(u32::MAX);
        self.demand.saturating_sub(has)
    }

    fn report(&self, scenario: &FleetScenario) -> Report {
        let count = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
        let supply = Supply {
            idle: count(self.idle.len()),
            configured: count(self.configured.len()),
            quota_used: self.made,
        };
        let missing = self.missing();
        let shortfall = Shortfall {
            profile: Profile::new("work").expect("a short name"),
            deficit: times(MACHINE, missing),
            min_unit: MACHINE,
            accepts: Accepts::default(),
            priority: self.priority,
            bucket: Some(self.bucket),
            age: self.age,
            is_topology_constrained: false,
        };
        let preemptible = Preemptible {
            pool: self.pool.clone(),
            priority: self.priority,
            bucket: Some(self.bucket),
            machines: count(self.configured.len()),
            grace: scenario.drain.1,
        };
        Report {
            shard: self.id.clone(),
            order: self.order,
            is_paused: false,
            supply: [(self.pool.clone(), supply)].into(),
            shortfalls: if missing > 0 { vec![shortfall] } else { Vec::new() },
            preemptible: vec![preemptible],
        }
    }

    /// What it says this cycle.
    pub(super) fn speak(&mut self, scenario: &FleetScenario) -> ShardMessage {
        self.order.cycle += 1;
        let report = self.report(scenario);
        let types = [(self.pool.machine_type.clone(), MACHINE)].into();
        let kinds = ShardKinds::of(Registration { types }, &report);
        let acks = self.unheard.iter().map(|(id, ack)| (*id, ack.clone())).take(256).collect();
        let message = ShardMessage::new(report, &kinds, !self.knows_kinds, acks);
        message.expect("its own kinds are among its kinds")
    }

    /// What the coordinator answers. An older leader is not heard.
    pub(super) fn hear(
        &mut self,
        answer: &CoordinatorAnswer,
        scenario: &FleetScenario,
        (now, rng): (Timestamp, &mut SimRng),
    ) {
        if answer.term < self.term {
            return;
        }
        self.term = answer.term;
        self.knows_kinds = !answer.wants_kinds;
        // What it is not told any more, the coordinator has heard.
        let told: BTreeSet<InstructionId> = answer.instructions.iter().map(|it| it.id).collect();
        self.unheard.retain(|id, _| told.contains(id));
        for instruction in &answer.instructions {
            self.carry_out(instruction, scenario, (now, &mut *rng));
        }
    }

    fn carry_out(
        &mut self,
        instruction: &Instruction,
        scenario: &FleetScenario,
        (now, rng): (Timestamp, &mut SimRng),
    ) {
        let Instruction { id, order, .. } = instruction;
        if let Some(ack) = self.answered.get(id).cloned() {
            self.unheard.insert(*id, ack);
            return;
        }
        if self.drains.contains_key(id) {
            return;
        }
        let wanted = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        let ack = match order {
            Order::Reserve { count, .. } => {
                let machines: BTreeSet<MachineId> =
                    self.idle.iter().take(wanted(*count)).cloned().collect();
                for machine in &machines {
                    self.idle.remove(machine);
                    self.reserved.insert(machine.clone());
                }
                given(machines)
            }
            Order::Drain { count, below_priority, .. } => {
                let is_less = self.priority < *below_priority;
                let count = if is_less { wanted(*count) } else { 0 };
                let machines: BTreeSet<MachineId> =
                    self.configured.iter().take(count).cloned().collect();
                for machine in &machines {
                    self.configured.remove(machine);
                    let until = now.plus(rng.between(scenario.drain));
                    let dwelling = (until, Dwelling::Draining(*id));
                    self.dwelling.insert(machine.clone(), dwelling);
                }
                if !machines.is_empty() {
                    self.drains.insert(*id, machines);
                    return;
                }
                given(machines)
            }
            Order::Forget { machines } => {
                for machine in machines {
                    self.reserved.remove(machine);
                }
                Ack::Done
            }
            Order::Adopt { machines } => {
                self.idle.extend(machines.iter().map(|(machine, _)| machine.clone()));
                Ack::Done
            }
            Order::Release { machines } => {
                for machine in machines {
                    if self.reserved.remove(machine) {
                        self.idle.insert(machine.clone());
                    }
                }
                Ack::Done
            }
            Order::SetQuota { slice, .. } if self.made > *slice => {
                Ack::Refused { reason: AckError::InUse }
            }
            Order::SetQuota { slice, .. } => {
                self.slice = *slice;
                Ack::Done
            }
        };
        self.answer(*id, ack);
    }
}

fn given(machines: BTreeSet<MachineId>) -> Ack {
    if machines.is_empty() {
        Ack::Refused { reason: AckError::NothingToGive }
    } else {
        Ack::Reserved { machines }
    }
}

pub(super) fn times(one: Resources, count: u32) -> Resources {
    let count = u64::from(count);
    Resources {
        cpu: MilliCpus(one.cpu.0 * count),
        memory: Bytes(one.memory.0 * count),
        gpus: 0,
        all_gpus: 0,
    }
}

/// A moment of a shard's demand.
pub(super) fn rotated(scenario: &FleetScenario, rng: &mut SimRng) -> u32 {
    let peak = u64::from(scenario.machines) * scenario.peak_percent / 100;
    // Most are calm at any moment, and some are not.
    let share = if rng.percent(30) { rng.below(peak + 1) } else { rng.below(peak / 2 + 1) };
    u32::try_from(share).unwrap_or(u32::MAX)
}

/// When a shard's demand changes next.
pub(super) fn next_rotation(scenario: &FleetScenario, rng: &mut SimRng) -> Millis {
    Millis(scenario.rotation.0 / 2 + rng.below(scenario.rotation.0))
}
