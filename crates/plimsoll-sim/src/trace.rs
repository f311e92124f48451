//! Measured days replayed through the shipped rebalancer and rescheduler: how many moves they make of them, how hot nodes stay,
//! and how many of the moves were worth it.
//!
//! Only pressure is modelled. A node has all that its tasks ask for counted, also beyond what it offers; a move that one
//! cycle decides is done at the next, by the changes and the pass that every move is made of, and costs nothing. Reading
//! files, and where each task begins, is left to others.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use plimsoll_kernel::place::Roster;
use plimsoll_kernel::rebalance::{
    CycleOutcome, Decay, PressureSample, Readings, RebalanceLimits, RebalanceMemory, Rebalancer,
    ReplicaUsage, SmoothedUsage, cycle,
};
use plimsoll_kernel::reschedule::Rescheduler;
use plimsoll_kernel::review::reviews;
use plimsoll_kernel::{Policy, Scope, Signals, reconcile};
use plimsoll_model::review::{LoopRecord, MovingLoop};
use plimsoll_model::{
    AuditEntry, Author, Bytes, CellId, Change, Command, ContainerSpec, DeploymentName, Guarded,
    MilliCpus, Millis, Mode, NodeFacts, NodeId, NodePressure, Observation, ObservedState, Pressure,
    ReplicaId, Resources, ServiceKey, ServiceName, ServiceSpec, SpecHash, State, Term, Timestamp,
    Writer,
};

use crate::rng::SimRng;

pub mod measure;

pub use measure::{Measured, Tick};

/// How often the cell is looked at.
pub const CYCLE: Millis = Millis::seconds(30);

/// How many cycles lie between two samples of a series: five minutes.
const CYCLES_A_SAMPLE: u64 = 10;

/// Tasks were placed so long before the replay begins: longer ago than any cooldown.
const BEFORE: Millis = Millis::minutes(60);

/// When the replay begins.
const START: Timestamp = Timestamp(1_000_000_000_000);

/// A move that is taken back within this time was for nothing.
pub const REGRET: Millis = Millis::minutes(60);

/// Some time of a cell of nodes alike.
#[derive(Debug, Clone)]
pub struct Trace {
    pub name: String,
    pub nodes: usize,
    /// Of each node.
    pub capacity: Resources,
    pub tasks: Vec<Task>,
}

/// What runs as one replica, and what it asked for, a sample every five minutes.
#[derive(Debug, Clone)]
pub struct Task {
    /// The number of the node it begins on.
    pub first: usize,
    /// The most it may use, as declared.
    pub limit: Resources,
    /// What is set aside for it.
    pub reservation: Resources,
    pub demand: Vec<ReplicaUsage>,
}

impl Task {
    /// Linear between samples; the last one holds.
    fn at(&self, cycle: u64) -> ReplicaUsage {
        let (nth, past) = (cycle / CYCLES_A_SAMPLE, cycle % CYCLES_A_SAMPLE);
        let sample = |nth: u64| {
            let nth = usize::try_from(nth).unwrap_or(usize::MAX);
            self.demand.get(nth).or(self.demand.last()).copied().unwrap_or(ReplicaUsage::NOTHING)
        };
        let (one, other) = (sample(nth), sample(nth + 1));
        let between = |one: u64, other: u64| {
            (one * (CYCLES_A_SAMPLE - past) + other * past) / CYCLES_A_SAMPLE
        };
        let memory = Bytes(between(one.memory.0, other.memory.0));
        ReplicaUsage { cpu: MilliCpus(between(one.cpu.0, other.cpu.0)), memory }
    }
}

/// One move as it was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    pub at: Millis,
    /// Numbers of the task and of the nodes.
    pub task: usize,
    pub src: usize,
    pub dst: usize,
    /// What the source is relieved of; nothing of a move that the rescheduler chose.
    pub relief: Pressure,
    pub by: MovingLoop,
}

/// What came of a replay.
#[derive(Debug, Clone)]
pub struct Replayed {
    pub measured: Measured,
    pub ticks: Vec<Tick>,
    pub moves: Vec<Move>,
    /// How often nothing moved though a node was hot, by reason.
    pub skips: BTreeMap<&'static str, u64>,
    /// How the predictions of the rebalancer fared.
    pub record: LoopRecord,
}

impl Replayed {
    /// Moves that took a task back to where it had come from less than an hour before.
    pub fn undone(&self) -> usize {
        let is_undoing = |nth: usize, back: &Move| {
            self.moves[..nth].iter().rev().any(|there| {
                (there.task, there.src, there.dst) == (back.task, back.dst, back.src)
                    && back.at.0 - there.at.0 <= REGRET.0
            })
        };
        self.moves.iter().enumerate().filter(|(nth, back)| is_undoing(*nth, back)).count()
    }
}

/// What a replay is made under. By default nothing is in the rebalancer's way.
#[derive(Debug, Clone, Copy)]
pub struct Conditions {
    pub limits: RebalanceLimits,
    /// Without it nothing is ever moved.
    pub is_on: bool,
    /// How many cycles a move takes: at least one.
    pub move_cycles: u64,
    /// So much more or less is measured of a node than there is, by chance.
    pub noise: Pressure,
    /// A new leader, which remembers nothing, comes once in so many cycles, by chance; zero: never.
    pub leader_cycles: u64,
    /// What chance is drawn from.
    pub seed: u64,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            limits: RebalanceLimits::default(),
            is_on: true,
            move_cycles: 1,
            noise: Pressure::ZERO,
            leader_cycles: 0,
            seed: 0,
        }
    }
}

impl Conditions {
    /// As if there were no rebalancer.
    pub fn off() -> Self {
        Self { is_on: false, ..Self::default() }
    }
}

/// Replays the trace. `progress` is told of each cycle.
pub fn replay(
    trace: &Trace,
    conditions: &Conditions,
    progress: &mut dyn FnMut(Millis),
) -> Replayed {
    let mut replay = Replay::new(trace, *conditions);
    let mut replayed = Replayed {
        measured: Measured::default(),
        ticks: Vec::new(),
        moves: Vec::new(),
        skips: BTreeMap::new(),
        record: LoopRecord::default(),
    };
    for nth in 0..cycles(trace) {
        let at = Millis(nth * CYCLE.0);
        replay.now = START.plus(at);
        replay.finish_moves(nth);
        let tick = replay.measure(nth, &mut replayed.measured);
        replayed.ticks.push(Tick { at, moves: replayed.moves.len(), ..tick });
        if conditions.is_on {
            replay.feed(nth);
            replay.decide(nth, at, &mut replayed);
        }
        progress(at);
    }
    replayed.record = replay.state.reviews().of(MovingLoop::Rebalancer).clone();
    replayed
}

/// How many cycles it takes: as many as its longest series.
fn cycles(trace: &Trace) -> u64 {
    let longest = trace.tasks.iter().map(|task| task.demand.len()).max().unwrap_or(0);
    longest as u64 * CYCLES_A_SAMPLE
}

/// How long the trace is.
pub fn length(trace: &Trace) -> Millis {
    Millis(cycles(trace) * CYCLE.0)
}

struct Replay<'t> {
    trace: &'t Trace,
    policy: Policy,
    state: State,
    roster: Roster,
    memory: RebalanceMemory,
    readings: Readings,
    rescheduler: Rescheduler,
    nodes: Vec<NodeId>,
    /// Sorted, as their tasks are numbered.
    replicas: Vec<ReplicaId>,
    smoothed: Vec<SmoothedUsage>,
    /// The node each task is on.
    places: Vec<usize>,
    /// Of each node, in the cycle under way.
    loads: Vec<[u64; 2]>,
    /// The tasks under way, where to, and in which cycle they get there.
    moving: Vec<(usize, usize, u64)>,
    conditions: Conditions,
    rng: SimRng,
    now: Timestamp,
}

impl<'t> Replay<'t> {
    fn new(trace: &'t Trace, conditions: Conditions) -> Self {
        let policy = Policy { rebalance: conditions.limits, ..Policy::default() };
        let state = State::new(CellId::new("trace").expect("a valid name"));
        let node = |nth: usize| NodeId::new(format!("n{nth:05}")).expect("a valid name");
        let mut replay = Self {
            trace,
            roster: Roster::new(&state, &Signals::default(), &policy),
            policy,
            state,
            memory: RebalanceMemory::default(),
            readings: Readings::default(),
            rescheduler: Rescheduler::default(),
            nodes: (0..trace.nodes).map(node).collect(),
            replicas: (0..trace.tasks.len()).map(replica).collect(),
            smoothed: Vec::new(),
            places: trace.tasks.iter().map(|task| task.first).collect(),
            loads: Vec::new(),
            moving: Vec::new(),
            conditions,
            rng: SimRng::new(conditions.seed),
            now: Timestamp(START.0 - BEFORE.0),
        };
        replay.found();
        replay
    }

    /// Every node and every task, the tasks running where they begin.
    fn found(&mut self) {
        let nodes = self.nodes.iter().map(|node| {
            let facts = NodeFacts::new(self.trace.capacity);
            Change::PutNode { node: node.clone(), facts }.free()
        });
        let deployments = self.trace.tasks.iter().zip(&self.replicas).map(|(task, id)| {
            let services = BTreeMap::from([(id.service.service.clone(), Arc::new(spec(task)))]);
            let (deployment, routes) = (id.service.deployment.clone(), Vec::new());
            Change::Deploy { deployment, services, routes }.free()
        });
        let asked: Vec<Guarded> = nodes.chain(deployments).collect();
        self.apply(Writer::Operator, asked);
        let placed = self.replicas.iter().zip(&self.places).map(|(id, node)| {
            let (replica, node) = (id.clone(), self.nodes[*node].clone());
            Change::Place { replica, node, spec: SpecHash([0; 32]) }.free()
        });
        let placed: Vec<Guarded> = placed.collect();
        self.apply(Writer::Scheduler, placed);
        let reports: Vec<Guarded> = self.replicas.iter().flat_map(|id| self.reports(id)).collect();
        self.apply(Writer::Agent, reports);
    }

    /// All that is held of a replica does at once as it was told.
    fn reports(&self, id: &ReplicaId) -> Vec<Guarded> {
        let Some(row) = self.state.replica(id) else { return Vec::new() };
        let report = |generation, state| {
            let observation = Observation { state, code: None, at: self.now };
            Change::Observe { replica: id.clone(), generation, observation }.free()
        };
        let next = row.successor.as_ref().map(|successor| &successor.assignment);
        let runs = row.assignment.iter().chain(next);
        let runs = runs.map(|held| report(held.generation, ObservedState::Running));
        let ends = row.leaving.iter().map(|held| report(held.generation, ObservedState::Stopped));
        runs.chain(ends).collect()
    }

    fn finish_moves(&mut self, nth: u64) {
        let due = |(.., done): &mut (usize, usize, u64)| *done <= nth;
        let done: Vec<(usize, usize, u64)> = self.moving.extract_if(.., due).collect();
        for (task, dst, _) in done {
            self.finish_move(task, dst);
        }
    }

    /// The new one runs, the scheduler's pass takes the next step, the old one ends.
    fn finish_move(&mut self, task: usize, dst: usize) {
        let id = self.replicas[task].clone();
        let reports = self.reports(&id);
        self.apply(Writer::Agent, reports);
        let only = BTreeSet::from([id.service.clone()]);
        let scope = Scope::Services(&only);
        let step = reconcile(&self.state, &mut self.roster, &self.policy, scope, self.now);
        self.apply(Writer::Scheduler, step.batch);
        let reports = self.reports(&id);
        self.apply(Writer::Agent, reports);
        let at = self.state.replica(&id).and_then(|row| row.assignment.as_ref());
        assert_eq!(at.map(|at| &at.node), Some(&self.nodes[dst]), "the move ended as decided");
        self.places[task] = dst;
    }

    /// What the nodes are asked for in this cycle.
    fn measure(&mut self, nth: u64, measured: &mut Measured) -> Tick {
        self.loads.clear();
        self.loads.resize(self.nodes.len(), [0; 2]);
        for (task, place) in self.trace.tasks.iter().zip(&self.places) {
            let ReplicaUsage { cpu, memory } = task.at(nth);
            let [cpus, memories] = &mut self.loads[*place];
            *cpus += cpu.0;
            *memories += memory.0;
        }
        measured.count(&self.loads, self.trace.capacity)
    }

    /// What nodes and replicas say of themselves. A node cannot use more than it has.
    fn feed(&mut self, nth: u64) {
        let Resources { cpu, memory, .. } = self.trace.capacity;
        let noise = u64::from(self.conditions.noise.millionths());
        let mut share = |used: u64, of: u64| {
            let share = Pressure::of(used.min(of), of).millionths();
            let by = u32::try_from(self.rng.below(2 * noise + 1)).unwrap_or(0);
            let said = (share + by).saturating_sub(self.conditions.noise.millionths());
            Pressure::from_millionths(said).min(Pressure::FULL)
        };
        let samples = self.loads.iter().map(|load| PressureSample {
            at: self.now,
            pressure: NodePressure { cpu: share(load[0], cpu.0), memory: share(load[1], memory.0) },
        });
        renew(&mut self.readings.nodes, &self.nodes, samples);
        let mut decay = Decay::new(self.conditions.limits.usage_window);
        let samples = self.trace.tasks.iter().map(|task| task.at(nth));
        if self.smoothed.is_empty() {
            self.smoothed = samples.map(|sample| SmoothedUsage::seed(self.now, sample)).collect();
        } else {
            for (smoothed, sample) in self.smoothed.iter_mut().zip(samples) {
                smoothed.take_in(self.now, sample, &mut decay);
            }
        }
        let usages = self.smoothed.iter().map(SmoothedUsage::usage);
        renew(&mut self.readings.replicas, &self.replicas, usages);
    }

    fn decide(&mut self, nth: u64, at: Millis, replayed: &mut Replayed) {
        if self.conditions.leader_cycles > 0 && self.rng.below(self.conditions.leader_cycles) == 0 {
            self.memory = RebalanceMemory::default();
            self.rescheduler = Rescheduler::default();
        }
        let Self { state, roster, policy, readings, memory, now, .. } = self;
        let outcome = cycle(state, roster, policy, readings, memory, *now);
        match &outcome {
            CycleOutcome::Calm => {}
            CycleOutcome::Skipped(skipped) => {
                *replayed.skips.entry(skipped.why.word()).or_default() += 1;
            }
            CycleOutcome::Moved { relief, .. } => {
                let (by, moved) =
                    (MovingLoop::Rebalancer, (&relief.replica, &relief.src, &relief.dst));
                self.begin(nth, moved, (at, relief.relief, by), replayed);
                self.apply(Writer::Rebalancer, outcome.batch());
            }
        }
        self.review_and_reschedule(nth, at, replayed);
    }

    fn begin(
        &mut self,
        nth: u64,
        (replica, src, dst): (&ReplicaId, &NodeId, &NodeId),
        (at, relief, by): (Millis, Pressure, MovingLoop),
        replayed: &mut Replayed,
    ) {
        let place = |node: &NodeId| self.nodes.binary_search(node).expect("a node of the trace");
        let task = self.replicas.binary_search(replica).expect("a task of the trace");
        let (src, dst) = (place(src), place(dst));
        replayed.moves.push(Move { at, task, src, dst, relief, by });
        self.moving.push((task, dst, nth + self.conditions.move_cycles.max(1)));
    }

    /// The steps of a leader's turn after the rebalancer's.
    fn review_and_reschedule(&mut self, nth: u64, at: Millis, replayed: &mut Replayed) {
        let (memory, readings) = (mem::take(&mut self.memory), mem::take(&mut self.readings));
        let mut rebalancer = Rebalancer::recall(memory, readings);
        let reviewed = reviews(&self.state, &self.roster, &self.policy, &rebalancer, self.now);
        self.apply(Writer::Scheduler, reviewed);
        let Self { state, roster, policy, rescheduler, now, .. } = self;
        let batch = rescheduler.cycle(state, roster, policy, &mut rebalancer, *now);
        for guarded in &batch {
            if let Change::Record { entry: AuditEntry::Reschedule(moved) } = &guarded.change {
                let (by, nodes) =
                    (MovingLoop::Rescheduler, (&moved.replica, &moved.src, &moved.dst));
                self.begin(nth, nodes, (at, Pressure::ZERO, by), replayed);
            }
        }
        self.apply(Writer::Rescheduler, batch);
        (self.memory, self.readings) = rebalancer.into_parts();
    }

    fn apply(&mut self, writer: Writer, batch: Vec<Guarded>) {
        if batch.is_empty() {
            return;
        }
        let command = Command::new(self.now, Term(1), Author::new(writer, "trace"), batch);
        let events = self.state.apply(&command).expect("what is decided here can be applied");
        self.roster.follow(&self.state, &Signals::default(), &self.policy, &events);
    }
}

/// Gives each key its value; both stand sorted, so that only the first time costs anything.
fn renew<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, keys: &[K], values: impl Iterator<Item = V>) {
    if map.is_empty() {
        *map = keys.iter().cloned().zip(values).collect();
    } else {
        map.values_mut().zip(values).for_each(|(old, new)| *old = new);
    }
}

/// The tasks stand in the order of their numbers, also by name.
fn replica(nth: usize) -> ReplicaId {
    let deployment = DeploymentName::new(format!("t{nth:06}")).expect("a valid name");
    let service = ServiceName::new("task").expect("a valid name");
    ReplicaId::indexed(&ServiceKey::new(deployment, service), 1)
}

fn spec(task: &Task) -> ServiceSpec {
    let container = ContainerSpec {
        image: "task".to_owned(),
        limits: task.limit,
        reservations: task.reservation,
        ..ContainerSpec::default()
    };
    ServiceSpec::new(container, SpecHash([0; 32]), Mode::Spread { replicas: 1 })
}

#[cfg(test)]
mod tests;
