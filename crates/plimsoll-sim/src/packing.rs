//! Requests that come and go, packed by the shipped placement mode `binpack`: how many machines they keep in use beside the
//! fewest that could hold them, alone and with a plan of `optimize` every hour.
//!
//! Each request is a deployment of one replica, placed by the scheduler's own pass and ended as it would be; a move is made of
//! the changes and the pass that every move is made of, and is done at once. Reading files is left to others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_kernel::optimize::{OptimizeLimits, optimize};
use plimsoll_kernel::place::Roster;
use plimsoll_kernel::rebalance::Rebalancer;
use plimsoll_kernel::what_if::KnownCell;
use plimsoll_kernel::{Policy, Scope, Signals, reconcile};
use plimsoll_model::{
    Author, Bytes, CellId, Change, Command, ContainerSpec, DeploymentName, Guarded, MilliCpus,
    Millis, Mode, MoveCause, NodeFacts, NodeId, Observation, ObservedState, ReplicaId, Resources,
    ServiceKey, ServiceName, ServiceSpec, SpecHash, State, Term, Timestamp, Writer,
};

/// When the replay begins, and when its machines joined: longer ago than any cooldown.
const START: Timestamp = Timestamp(1_000_000_000_000);
const BEFORE: Millis = Millis::minutes(60);

/// How often a better layout is searched for.
const HOUR: Millis = Millis::minutes(60);

/// How far it is searched for: one climb, for a few hundred machines.
const STEPS: u64 = 1_000_000;

/// More machines than the fewest that could hold everything at once: so many times as many.
const SPARE: u64 = 2;

/// Something that runs for a while, on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackingRequest {
    pub begin: Millis,
    /// None where it outlives the replay.
    pub end: Option<Millis>,
    pub size: Resources,
}

/// What is replayed.
#[derive(Debug, Clone)]
pub struct PackingTrace {
    pub name: String,
    /// Of each machine.
    pub capacity: Resources,
    pub length: Millis,
    /// In the order in which they come.
    pub requests: Vec<PackingRequest>,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PackingResult {
    /// The most machines in use at once, and the most that were needed.
    pub peak: u64,
    pub peak_bound: u64,
    /// Machines in use times the milliseconds that they were, and the same of the fewest that could have been.
    pub in_use: u128,
    pub bound: u128,
    pub moves: u64,
}

impl PackingResult {
    /// In use for each that was needed, on average, in ten-thousandths.
    pub fn ratio(&self) -> u64 {
        u64::try_from(self.in_use * 10_000 / self.bound.max(1)).unwrap_or(u64::MAX)
    }
}

/// Replays it, with at most so many moves an hour; `at` is told how far it has come.
pub fn replay(
    trace: &PackingTrace,
    hourly_moves: usize,
    at: &mut dyn FnMut(Millis),
) -> PackingResult {
    // At equal times what ends makes room for what begins.
    let mut events: Vec<(Millis, bool, usize)> = Vec::new();
    for (nth, request) in trace.requests.iter().enumerate() {
        let end = request.end.unwrap_or(trace.length);
        if request.begin >= trace.length || end <= request.begin {
            continue;
        }
        events.push((request.begin, true, nth));
        if end < trace.length {
            events.push((end, false, nth));
        }
    }
    events.sort_unstable();
    let mut replay = Replay::new(trace, &events);
    let mut hour = HOUR;
    let mut improve = |replay: &mut Replay<'_>, until: Millis| {
        while hourly_moves > 0 && hour <= until {
            replay.wait_until(hour);
            replay.improve(hourly_moves);
            hour = Millis(hour.0 + HOUR.0);
        }
    };
    for (time, begins, nth) in events {
        improve(&mut replay, time);
        replay.wait_until(time);
        if begins {
            replay.begin(nth);
        } else {
            replay.end(nth);
        }
        at(time);
    }
    improve(&mut replay, trace.length);
    replay.wait_until(trace.length);
    replay.result
}

struct Replay<'t> {
    trace: &'t PackingTrace,
    policy: Policy,
    state: State,
    roster: Roster,
    elapsed: Millis,
    /// What is asked for at the moment.
    demand: Resources,
    /// How many run on each machine that runs any.
    in_use: BTreeMap<NodeId, u32>,
    result: PackingResult,
}

impl<'t> Replay<'t> {
    fn new(trace: &'t PackingTrace, events: &[(Millis, bool, usize)]) -> Self {
        let policy = Policy::default();
        let state = State::new(CellId::new("packing").expect("a valid name"));
        let roster = Roster::new(&state, &Signals::default(), &policy);
        let mut replay = Self {
            trace,
            policy,
            state,
            roster,
            elapsed: Millis(0),
            demand: Resources::NONE,
            in_use: BTreeMap::new(),
            result: PackingResult::default(),
        };
        let (mut demand, mut most) = (Resources::NONE, 0);
        for (_, begins, nth) in events {
            let size = trace.requests[*nth].size;
            demand = if *begins { demand.plus(size) } else { demand.minus(size) };
            most = most.max(bound(demand, trace.capacity));
        }
        let machines = (0..=most * SPARE).map(|nth| {
            let node = NodeId::new(format!("m{nth:05}")).expect("a valid name");
            Change::PutNode { node, facts: NodeFacts::new(trace.capacity) }.free()
        });
        let machines: Vec<Guarded> = machines.collect();
        replay.apply_at(Timestamp(START.0 - BEFORE.0), Writer::Operator, machines);
        replay
    }

    fn now(&self) -> Timestamp {
        START.plus(self.elapsed)
    }

    /// Time passes, with what is in use and what would have to be.
    fn wait_until(&mut self, time: Millis) {
        let span = u128::from(time.0.saturating_sub(self.elapsed.0));
        let bound = bound(self.demand, self.trace.capacity);
        self.result.in_use += span * self.in_use.len() as u128;
        self.result.bound += span * u128::from(bound);
        self.elapsed = time;
    }

    fn begin(&mut self, nth: usize) {
        let id = replica(nth);
        let size = self.trace.requests[nth].size;
        let services = BTreeMap::from([(id.service.service.clone(), Arc::new(spec(size)))]);
        let (deployment, routes) = (id.service.deployment.clone(), Vec::new());
        let deploy = Change::Deploy { deployment, services, routes }.free();
        self.apply(Writer::Operator, vec![deploy]);
        self.pass(&id);
        self.demand = self.demand.plus(size);
        let at = self.state.replica(&id).and_then(|row| row.assignment.as_ref());
        let node = at.map(|at| at.node.clone()).expect("there are machines to spare");
        *self.in_use.entry(node).or_default() += 1;
        let result = &mut self.result;
        result.peak = result.peak.max(self.in_use.len() as u64);
        result.peak_bound = result.peak_bound.max(bound(self.demand, self.trace.capacity));
    }

    fn end(&mut self, nth: usize) {
        let id = replica(nth);
        let at = self.state.replica(&id).and_then(|row| row.assignment.as_ref());
        let node = at.map(|at| at.node.clone()).expect("it runs");
        self.leave(&node);
        let deployment = id.service.deployment.clone();
        self.apply(Writer::Operator, vec![Change::Undeploy { deployment }.free()]);
        self.pass(&id);
        self.demand = self.demand.minus(self.trace.requests[nth].size);
    }

    fn leave(&mut self, node: &NodeId) {
        let here = self.in_use.get_mut(node).expect("it runs there");
        *here -= 1;
        if *here == 0 {
            self.in_use.remove(node);
        }
    }

    /// A plan for a better layout, carried out.
    fn improve(&mut self, moves: usize) {
        let (signals, now) = (Signals::default(), self.now());
        let known = KnownCell {
            state: &self.state,
            signals: &signals,
            policy: &self.policy,
            rebalancer: Rebalancer::default(),
            now,
        };
        let limits = OptimizeLimits { moves, seed: self.elapsed.0 };
        let plan = optimize(&known, limits, &mut |steps| steps > STEPS);
        for moved in plan.moves {
            let (replica, node, cause) = (moved.replica, moved.dst, MoveCause::Optimize);
            let spec = self.state.service(&replica.service).and_then(|it| it.desired());
            let spec = spec.expect("it is deployed").hash;
            let succeed =
                Change::Succeed { replica: replica.clone(), node: node.clone(), spec, cause };
            self.apply(Writer::Rescheduler, vec![succeed.free()]);
            self.pass(&replica);
            self.leave(&moved.src);
            *self.in_use.entry(node).or_default() += 1;
            self.result.moves += 1;
        }
    }

    /// The scheduler and the machines do what there is to do about one service.
    fn pass(&mut self, id: &ReplicaId) {
        let only = BTreeSet::from([id.service.clone()]);
        // Placed or ended, then reported; a move is reported, promoted and reported once more.
        for _ in 0..2 {
            self.report(id);
            let now = self.now();
            let scope = Scope::Services(&only);
            let step = reconcile(&self.state, &mut self.roster, &self.policy, scope, now);
            self.apply(Writer::Scheduler, step.batch);
        }
        self.report(id);
    }

    /// All that is held of the replica does at once as it was told.
    fn report(&mut self, id: &ReplicaId) {
        let Some(row) = self.state.replica(id) else { return };
        let report = |generation, state| {
            let observation = Observation { state, code: None, at: self.now() };
            Change::Observe { replica: id.clone(), generation, observation }.free()
        };
        let next = row.successor.as_ref().map(|successor| &successor.assignment);
        let runs = row.assignment.iter().chain(next);
        let runs = runs.filter(|held| !row.runs(held));
        let runs = runs.map(|held| report(held.generation, ObservedState::Running));
        let ends = row.leaving.iter().map(|held| report(held.generation, ObservedState::Stopped));
        let reports: Vec<Guarded> = runs.chain(ends).collect();
        self.apply(Writer::Agent, reports);
    }

    fn apply(&mut self, writer: Writer, batch: Vec<Guarded>) {
        self.apply_at(self.now(), writer, batch);
    }

    fn apply_at(&mut self, now: Timestamp, writer: Writer, batch: Vec<Guarded>) {
        if batch.is_empty() {
            return;
        }
        let command = Command::new(now, Term(1), Author::new(writer, "packing"), batch);
        let events = self.state.apply(&command).expect("what is decided here can be applied");
        self.roster.follow(&self.state, &Signals::default(), &self.policy, &events);
    }
}

/// The fewest machines that could hold it, were it a fluid.
fn bound(demand: Resources, capacity: Resources) -> u64 {
    let machines = |demand: u64, capacity: u64| demand.div_ceil(capacity.max(1));
    machines(demand.cpu.0, capacity.cpu.0).max(machines(demand.memory.0, capacity.memory.0))
}

fn replica(nth: usize) -> ReplicaId {
    let deployment = DeploymentName::new(format!("r{nth:06}")).expect("a valid name");
    let service = ServiceName::new("vm").expect("a valid name");
    ReplicaId::indexed(&ServiceKey::new(deployment, service), 1)
}

fn spec(size: Resources) -> ServiceSpec {
    let container =
        ContainerSpec { image: "vm".to_owned(), reservations: size, ..ContainerSpec::default() };
    ServiceSpec::new(container, SpecHash([0; 32]), Mode::Binpack { replicas: 1 })
}

/// So many thousandths of a core, and bytes of memory.
pub fn size(milli_cpus: u64, bytes: u64) -> Resources {
    Resources { cpu: MilliCpus(milli_cpus), memory: Bytes(bytes), ..Resources::NONE }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(begin: u64, end: Option<u64>, cpu: u64) -> PackingRequest {
        let minutes = |minutes: u64| Millis::minutes(minutes);
        PackingRequest { begin: minutes(begin), end: end.map(minutes), size: size(cpu, 10) }
    }

    /// Three machines are needed for an hour, and then little is left on each.
    fn trace() -> PackingTrace {
        let mut requests = Vec::new();
        for _ in 0..3 {
            requests.push(request(0, Some(30), 800));
            requests.push(request(0, None, 200));
        }
        PackingTrace {
            name: "three".to_owned(),
            capacity: size(1_000, 1_000),
            length: Millis::minutes(10 * 60),
            requests,
        }
    }

    #[test]
    fn what_is_left_on_many_machines_is_packed_on_one() {
        let hour = u128::from(Millis::minutes(60).0);
        let alone = replay(&trace(), 0, &mut |_| {});
        assert_eq!((alone.peak, alone.peak_bound, alone.moves), (3, 3, 0));
        assert_eq!(alone.in_use, 30 * hour, "it stays where it was");
        assert_eq!(alone.bound, 3 * hour / 2 + 19 * hour / 2);
        let moved = replay(&trace(), 1, &mut |_| {});
        assert_eq!((moved.peak, moved.moves), (3, 2));
        // One is freed after an hour, another after two.
        assert_eq!(moved.in_use, 3 * hour + 2 * hour + 8 * hour);
        assert_eq!(moved, replay(&trace(), 1, &mut |_| {}), "equal inputs give equal results");
    }

    #[test]
    fn what_ends_makes_room_for_what_begins_at_the_same_time() {
        let requests = vec![request(0, Some(10), 900), request(10, None, 900)];
        let trace = PackingTrace { requests, ..trace() };
        let packed = replay(&trace, 0, &mut |_| {});
        assert_eq!((packed.peak, packed.peak_bound, packed.ratio()), (1, 1, 10_000));
    }
}
