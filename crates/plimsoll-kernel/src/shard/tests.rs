use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::access::Digest;
use plimsoll_model::fleet::{
    Ack, AckError, Bucket, Instruction, InstructionId, MachineId, MachineType, Order, Pool,
    ReportOrder, ShardId, TransferId, Zone,
};
use plimsoll_model::machines::{MachineClass, MachineKind, TOKEN_PREFIX};
use plimsoll_model::testkit::{Cell, cell, cpus, global, hosts, node_id, spread};
use plimsoll_model::{Bytes, MilliCpus, NodeId, Resources, ServiceSpec, Term, Writer};

use super::*;
use crate::testkit::Passes;

mod membership;

fn id(name: &str) -> MachineId {
    MachineId::new(name).unwrap()
}

fn pool(cpus: u64) -> Pool {
    let machine_type = MachineType::new(format!("c{cpus}")).unwrap();
    Pool { machine_type, zone: Zone::new("north").unwrap() }
}

fn of(cpus: u64, kind: MachineKind) -> MachineClass {
    let (cpu, memory) = (MilliCpus(cpus * 1_000), Bytes(cpus << 32));
    let capacity = Resources { cpu, memory, ..Resources::NONE };
    MachineClass { pool: pool(cpus), capacity, kind, labels: BTreeMap::new() }
}

/// A cell with machines, a provider that does at once as it is told, and cycles over it.
struct Shard {
    cell: Cell,
    cycles: ShardCycles,
    tokens: u8,
}

impl Shard {
    fn new(cell: Cell) -> Self {
        Self { cycles: ShardCycles::new(cell.now), cell, tokens: 0 }
    }

    fn write(&mut self, by: Writer, change: MachineChange) {
        self.cell.apply(by, vec![super::change(change)]).expect("a test writes what can be");
    }

    fn has(mut self, names: &[&str], class: &MachineClass, state: MachineState) -> Self {
        for name in names {
            let (machine, class) = (id(name), class.clone());
            self.write(Writer::Provider, MachineChange::Put { machine, class, state, epoch: 0 });
        }
        self
    }

    fn idle(self, names: &[&str]) -> Self {
        self.has(names, &of(4, MachineKind::OnDemand), MachineState::Idle)
    }

    /// One cycle ten seconds later, and what it wrote about machines.
    fn cycle(&mut self) -> Vec<String> {
        self.cell = self.cell.clone().later(CYCLE);
        let batch = self.cycles.turn(&self.cell.state, self.cell.now);
        let before = self.cell.state.audit().next_seq();
        self.cell.apply(Writer::Shard, batch).expect("decided on this very state");
        self.cell.state.audit().since(before).map(|event| event.what.to_string()).collect()
    }

    fn cycles(&mut self, count: usize) -> Vec<String> {
        (0..count).flat_map(|_| self.cycle()).collect()
    }

    /// The provider does what machines are in the state for, and nodes do as they are told.
    fn provide(&mut self) {
        let rows = self.cell.state.machines().all().clone();
        for (machine, row) in rows {
            let from = row.state;
            let gone = self
                .cell
                .state
                .machines()
                .node_of(&machine)
                .is_none_or(|node| self.cell.state.node(node).is_none());
            let to = match from {
                MachineState::Creating => MachineState::Idle,
                MachineState::Draining if gone => MachineState::Idle,
                MachineState::Deleting => MachineState::Speculative,
                MachineState::Configuring => {
                    self.join(&machine, row.class());
                    continue;
                }
                _ => continue,
            };
            self.write(Writer::Provider, MachineChange::Step { machine, from, to });
        }
        self.cell = self.cell.clone().settle();
    }

    fn join(&mut self, machine: &MachineId, class: usize) {
        self.tokens += 1;
        let (token, key) = (Digest([self.tokens; 32]), Digest([self.tokens + 100; 32]));
        let expires_at = self.cell.now.plus(Millis::minutes(5));
        let name = format!("{TOKEN_PREFIX}{machine}");
        let facts = needs::facts(&self.cell.state.machines().classes()[class]);
        let node = NodeId::new(machine.as_str()).unwrap();
        self.cell.change(Writer::Operator, Change::CreateJoinToken { name, token, expires_at });
        self.cell.change(Writer::Operator, Change::Join { token, node, facts, key });
    }

    fn state_of(&self, name: &str) -> MachineState {
        self.cell.state.machines().get(&id(name)).unwrap().state
    }

    fn in_state(&self, state: MachineState) -> Vec<String> {
        let rows = self.cell.state.machines().all().iter();
        rows.filter(|(_, row)| row.state == state).map(|(id, _)| id.to_string()).collect()
    }

    fn ages(&self) -> Vec<(u64, u64)> {
        let rows = self.cell.state.machines().ledger().values();
        rows.map(|row| (row.deficit.cpu.0 / 1_000, row.age)).collect()
    }

    /// What the coordinator says, and what the cell answers by now.
    fn told(&mut self, number: u64, order: Order) -> Option<Ack> {
        self.told_in(Term(1), number, order)
    }

    fn told_in(&mut self, term: Term, number: u64, order: Order) -> Option<Ack> {
        let (transfer, id) = (TransferId(number), InstructionId(number));
        let instruction = Instruction { term, id, transfer, order };
        let batch = obey(&self.cell.state, &instruction, self.cell.now);
        self.cell.apply(Writer::Shard, batch).expect("decided on this very state");
        self.ack(number)
    }

    fn ack(&self, number: u64) -> Option<Ack> {
        self.cell.state.machines().acks().get(&InstructionId(number)).cloned()
    }
}

#[expect(clippy::unnecessary_wraps, reason = "compared with what may not be there")]
fn reserved(names: &[&str]) -> Option<Ack> {
    Some(Ack::Reserved { machines: names.iter().map(|name| id(name)).collect() })
}

#[expect(clippy::unnecessary_wraps, reason = "compared with what may not be there")]
fn refused(reason: AckError) -> Option<Ack> {
    Some(Ack::Refused { reason })
}

const TTL: Millis = Millis::minutes(20);

fn reserve(count: u32) -> Order {
    Order::Reserve { pool: pool(4), count, ttl: TTL }
}

/// One node of two cpus, and replicas that take two each.
fn lacking(replicas: u32) -> Shard {
    let service = spread(replicas).reserve(2_000, 64);
    Shard::new(cell().node("ash", cpus(2)).deploy("d", [("s", service)]).settle())
}

/// Machines that are nodes, each full of replicas of a service that is told apart by what it is worth.
fn busy(names: &[&str], spec: impl Fn(ServiceSpec) -> ServiceSpec) -> Shard {
    let replicas = u32::try_from(names.len()).unwrap();
    let service = spec(spread(replicas).reserve(4_000, 64));
    let cell = cell().node("ash", cpus(2)).deploy("d", [("s", service)]).settle();
    let mut shard = Shard::new(cell).idle(names);
    shard.cycle();
    shard.provide();
    assert_eq!(shard.in_state(MachineState::Configured).len(), names.len());
    shard
}

#[test]
fn needs_take_idle_machines_and_then_those_that_could_be_made() {
    let mut shard = lacking(7).idle(&["m1"]).has(
        &["m2", "m3", "m4"],
        &of(4, MachineKind::OnDemand),
        MachineState::Speculative,
    );
    // Six replicas of two cpus lack room, two to a machine.
    shard.cycle();
    assert_eq!(shard.in_state(MachineState::Configuring), ["m1"]);
    assert_eq!(shard.in_state(MachineState::Creating), ["m2", "m3"]);
    assert_eq!(shard.in_state(MachineState::Speculative), ["m4"]);
    assert!(shard.ages().is_empty(), "what is on its way is supply");
    assert!(shard.cycles(5).is_empty(), "and is not asked for again");
    shard.provide();
    shard.cycle();
    shard.provide();
    assert_eq!(shard.in_state(MachineState::Configured), ["m1", "m2", "m3"]);
    assert_eq!(shard.cell.placed("d/s").len(), 7);
    assert!(shard.cycles(3).is_empty());
}

#[test]
fn a_quota_bounds_what_is_made() {
    let mut shard = lacking(7).has(
        &["m1", "m2", "m3"],
        &of(4, MachineKind::OnDemand),
        MachineState::Speculative,
    );
    assert_eq!(shard.told(1, Order::SetQuota { pool: pool(4), slice: 2 }), Some(Ack::Done));
    shard.cycle();
    assert_eq!(shard.in_state(MachineState::Creating), ["m1", "m2"]);
    assert_eq!(shard.ages(), [(4, 1)], "one machine's worth is missing");
}

#[test]
fn what_is_left_is_a_shortfall_that_ages_once_a_cycle_and_is_cleared_when_it_is_met() {
    let mut shard = lacking(4).idle(&["m1"]);
    let began = shard.cell.now;
    shard.cycles(6);
    assert_eq!(shard.ages(), [(2, 6)], "six cpus less the machine on its way");
    let row = shard.cell.state.machines().ledger().values().next().unwrap().clone();
    assert_eq!(row.since, began.plus(CYCLE), "and in seconds");
    shard = shard.idle(&["m2"]);
    shard.cycle();
    assert!(shard.ages().is_empty(), "the first cycle it is met");
}

#[test]
fn alike_needs_are_one_shortfall_and_others_are_not() {
    let service = |replicas| spread(replicas).reserve(2_000, 64);
    let mut important = service(1);
    important.priority = 9;
    let cell = cell().node("ash", cpus(1)).deploy(
        "d",
        [("a", service(1)), ("b", service(2)), ("c", important), ("g", global().reserve(9_000, 1))],
    );
    let mut shard =
        Shard::new(cell.settle()).has(&["m1"], &of(1, MachineKind::OnDemand), MachineState::Idle);
    shard.cycle();
    assert_eq!(shard.ages().into_iter().collect::<BTreeSet<_>>(), [(2, 1), (6, 1)].into());
}

#[test]
fn needs_of_higher_priority_are_served_first() {
    let mut urgent = spread(1).reserve(4_000, 64);
    urgent.priority = 5;
    let cell = cell()
        .node("ash", cpus(1))
        .deploy("d", [("a", spread(1).reserve(3_000, 64)), ("z", urgent)]);
    let mut shard = Shard::new(cell.settle()).idle(&["m1"]);
    shard.cycle();
    assert_eq!(shard.ages(), [(3, 1)], "the other one waits");
}

#[test]
fn what_no_machine_can_help_takes_none_and_is_said_to_be_so() {
    for (case, spec, is_constrained) in [
        ("a host that is not there", hosts(1, ["nowhere"]).reserve(2_000, 64), true),
        (
            "a label that no machine has",
            spread(1).reserve(2_000, 64).wants_label("disk", "ssd"),
            true,
        ),
        ("more than any machine has", spread(1).reserve(64_000, 64), false),
    ] {
        let cell = cell().node("ash", cpus(1)).deploy("d", [("s", spec)]);
        let mut shard = Shard::new(cell.settle()).idle(&["m1"]);
        shard.cycle();
        assert_eq!(shard.state_of("m1"), MachineState::Idle, "{case}");
        let row = shard.cell.state.machines().ledger().values().next().cloned();
        let found = row.expect("a shortfall").is_topology_constrained;
        assert_eq!(found, is_constrained, "{case}");
    }
}

#[test]
fn a_need_names_the_types_and_zones_its_constraints_leave() {
    use plimsoll_model::machines::TYPE_LABEL;
    let small = of(1, MachineKind::OnDemand);
    for (label, value, types) in [(TYPE_LABEL, "c16", vec!["c16"]), (TYPE_LABEL, "c1", vec!["c1"])]
    {
        let spec = spread(1).reserve(9_000, 64).wants_label(label, value);
        let cell = cell().node("ash", cpus(1)).deploy("d", [("s", spec)]).settle();
        let mut shard = Shard::new(cell).has(&["m1"], &small, MachineState::Idle);
        shard.cycle();
        let row = shard.cell.state.machines().ledger().values().next().unwrap().clone();
        let named: Vec<_> = row.accepts.types.iter().map(MachineType::as_str).collect();
        assert_eq!((named, row.is_topology_constrained), (types, false));
    }
}

/// An hour of each kind costs something else.
#[test]
fn an_empty_node_goes_back_after_its_hold_and_bare_metal_never() {
    for (kind, held) in [
        (MachineKind::OnDemand, Some(60)),
        (MachineKind::Spot, Some(6)),
        (MachineKind::BareMetal, None),
    ] {
        let service = spread(1).reserve(4_000, 64);
        let cell = cell().node("ash", cpus(2)).deploy("d", [("s", service)]).settle();
        let mut shard = Shard::new(cell).has(&["m1"], &of(4, kind), MachineState::Idle);
        shard.cycle();
        shard.provide();
        assert_eq!(shard.state_of("m1"), MachineState::Configured);
        assert!(shard.cycles(70).is_empty(), "a node that runs something stays");
        shard.cell = shard.cell.clone().deploy("d", [("s", spread(0))]).settle();
        let gone = (0..80).position(|_| !shard.cycle().is_empty());
        assert_eq!(gone, held, "{}", kind.word());
        if held.is_some() {
            assert_eq!(shard.state_of("m1"), MachineState::Draining);
            shard.cycle();
            assert!(shard.cell.state.node(&node_id("m1")).is_none(), "it left the cell");
            shard.provide();
            assert_eq!(shard.state_of("m1"), MachineState::Idle);
        }
    }
}

#[test]
fn a_twentieth_of_the_nodes_goes_back_in_a_cycle_and_of_servers_one_at_a_time() {
    let names: Vec<String> = (10..50).map(|nth| format!("m{nth}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut shard = busy(&names, |spec| spec);
    shard.cell = shard.cell.clone().deploy("d", [("s", spread(0))]).settle();
    let mut before = BTreeSet::new();
    let mut most = 0;
    for _ in 0..80 {
        shard.cycle();
        let draining: BTreeSet<String> =
            shard.in_state(MachineState::Draining).into_iter().collect();
        let fresh: Vec<&String> = draining.difference(&before).collect();
        // The seven that came first hold the log.
        let servers = fresh.iter().filter(|name| name.as_str() < "m17").count();
        assert!(servers <= 1, "{fresh:?}");
        most = most.max(fresh.len());
        before = draining;
    }
    assert_eq!(most, 2, "a twentieth of forty");
}

#[test]
fn a_demand_that_collapses_must_be_seen_three_times() {
    let mut shard = busy(&["m1", "m2"], |spec| spec);
    shard.cycles(5);
    // Empty for longer than any hold, under a leader that knows what was needed before.
    let full = shard.cell.clone();
    shard.cell = full.clone().deploy("d", [("s", spread(0))]).settle();
    let mut cycles = shard.cycles.clone();
    let mut seen = Vec::new();
    for nth in 0..3 {
        let now = shard.cell.now.plus(Millis::minutes(11 * nth));
        seen.push(cycles.cycle(&shard.cell.state, now).len());
    }
    assert_eq!(seen[..2], [0, 0]);
    assert!(seen[2] > 0, "the third look believes it");
    // One look in between that finds the demand as it was begins the count anew.
    let mut cycles = shard.cycles.clone();
    for (nth, state) in [&shard.cell.state, &full.state, &shard.cell.state, &shard.cell.state]
        .into_iter()
        .enumerate()
    {
        let now = shard.cell.now.plus(Millis::minutes(11 * u64::try_from(nth).unwrap()));
        assert!(cycles.cycle(state, now).is_empty(), "look {nth}");
    }
}

#[test]
fn a_node_with_data_is_not_given_back() {
    let service = spread(1).reserve(4_000, 64).volume("data");
    let cell = cell().node("ash", cpus(2)).deploy("d", [("s", service)]).settle();
    let mut shard = Shard::new(cell).idle(&["m1"]);
    shard.cycle();
    shard.provide();
    shard.cell = shard.cell.clone().undeploy("d").settle();
    assert!(shard.cycles(80).is_empty());
    assert_eq!(shard.state_of("m1"), MachineState::Configured);
}

#[test]
fn a_pause_stops_every_actuation_and_the_ledger_ages_on() {
    let mut shard = lacking(7).idle(&["m1"]);
    shard.write(Writer::Operator, MachineChange::Pause { is_paused: true });
    assert!(shard.cycles(4).is_empty());
    assert_eq!(shard.state_of("m1"), MachineState::Idle);
    assert_eq!(shard.ages(), [(8, 4)], "what a machine could serve is not missing");
    assert_eq!(shard.told(1, reserve(1)), refused(AckError::Paused));
    shard.write(Writer::Operator, MachineChange::Pause { is_paused: false });
    shard.cycle();
    assert_eq!(shard.state_of("m1"), MachineState::Configuring);
}

#[test]
fn a_donor_with_three_idle_machines_gives_two_those_of_least_value_first() {
    let spot = of(4, MachineKind::Spot);
    let shard = Shard::new(cell().node("ash", cpus(2))).idle(&["m1", "m2"]);
    let mut shard = shard.has(&["m3"], &spot, MachineState::Idle);
    assert_eq!(shard.told(1, reserve(9)), reserved(&["m1", "m3"]));
    assert_eq!(shard.told(2, reserve(1)), refused(AckError::NothingToGive));
    let speculative = of(4, MachineKind::OnDemand);
    shard = shard.has(&["m4", "m5"], &speculative, MachineState::Speculative);
    assert_eq!(shard.told(3, reserve(1)), refused(AckError::NothingToGive), "not idle");
}

#[test]
fn what_was_set_aside_serves_no_need_until_its_time_is_over() {
    let mut shard = lacking(1).idle(&["m1", "m2"]);
    assert_eq!(shard.told(1, reserve(1)), reserved(&["m1"]));
    let service = spread(5).reserve(2_000, 64);
    shard.cell = shard.cell.clone().deploy("d", [("s", service)]).settle();
    shard.cycle();
    assert_eq!(
        (shard.state_of("m1"), shard.state_of("m2")),
        (MachineState::Idle, MachineState::Configuring)
    );
    assert_eq!(shard.ages(), [(4, 1)]);
    shard.cell = shard.cell.clone().later(TTL);
    shard.cycles(2);
    assert_eq!(shard.state_of("m1"), MachineState::Configuring, "nobody came for it");
}

#[test]
fn an_instruction_is_carried_out_once_and_one_of_an_older_term_not_at_all() {
    let mut shard = Shard::new(cell().node("ash", cpus(2))).idle(&["m1", "m2", "m3", "m4"]);
    let first = shard.told_in(Term(2), 7, reserve(1));
    let before = shard.cell.state.clone();
    assert_eq!(shard.told_in(Term(2), 7, reserve(1)), first, "redelivered");
    assert_eq!(shard.told_in(Term(1), 8, reserve(1)), None, "from a leader of the past");
    assert_eq!(shard.cell.state, before);
}

#[test]
fn an_answer_is_kept_until_the_coordinator_does_not_ask_any_more() {
    let mut shard = Shard::new(cell().node("ash", cpus(2))).idle(&["m1", "m2", "m3"]);
    let said = Instruction {
        term: Term(1),
        id: InstructionId(7),
        transfer: TransferId(7),
        order: reserve(1),
    };
    for batch in obey_all(&shard.cell.state, std::slice::from_ref(&said), shard.cell.now) {
        shard.cell.apply(Writer::Shard, batch).unwrap();
    }
    assert!(obey_all(&shard.cell.state, &[said], shard.cell.now).is_empty());
    assert!(shard.ack(7).is_some());
    for batch in obey_all(&shard.cell.state, &[], shard.cell.now) {
        shard.cell.apply(Writer::Shard, batch).unwrap();
    }
    assert_eq!(shard.ack(7), None);
}

fn drain(count: u32, below_priority: i32) -> Order {
    Order::Drain { pool: pool(4), count, below_priority, ttl: TTL }
}

fn worth(priority: i32, penalty: u8) -> impl Fn(ServiceSpec) -> ServiceSpec {
    move |mut spec| {
        (spec.priority, spec.interruption_penalty) = (priority, penalty);
        spec
    }
}

#[test]
fn a_drain_is_answered_when_the_machine_is_empty() {
    let mut shard = busy(&["m1"], worth(0, 10)).has(
        &["m9"],
        &of(4, MachineKind::BareMetal),
        MachineState::Speculative,
    );
    // There is room for its replica elsewhere.
    shard.cell = shard.cell.clone().node("birch", cpus(4)).settle();
    assert_eq!(shard.told(1, drain(1, 5)), None);
    assert_eq!(shard.state_of("m1"), MachineState::Draining);
    shard.provide();
    assert_eq!(shard.cell.placed("d/s"), ["1@birch"], "make before break");
    shard.cycle();
    shard.provide();
    assert_eq!((shard.state_of("m1"), shard.ack(1)), (MachineState::Idle, None));
    shard.cycle();
    assert_eq!(shard.ack(1), reserved(&["m1"]));
}

#[test]
fn only_what_matters_less_is_drained_and_only_where_somebody_said_what_it_costs() {
    for (case, spec, drained) in [
        ("lower priority, a price", (0, 10), true),
        ("the same priority", (5, 10), false),
        ("no price", (0, 0), false),
        ("pinned", (0, 100), false),
    ] {
        let mut shard = busy(&["m1"], worth(spec.0, spec.1));
        let expected = if drained { None } else { refused(AckError::NothingToGive) };
        assert_eq!(shard.told(1, drain(1, 5)), expected, "{case}");
    }
}

#[test]
fn nothing_is_drained_by_force_and_what_cannot_leave_runs_on() {
    // Nowhere else is room.
    let mut shard = busy(&["m1"], worth(0, 10));
    shard.told(1, drain(1, 5));
    for _ in 0..200 {
        shard.cycle();
        shard.cell = shard.cell.clone().settle();
    }
    assert_eq!(shard.state_of("m1"), MachineState::Configured);
    assert_eq!(shard.ack(1), refused(AckError::InUse));
    assert!(shard.cell.state.node(&node_id("m1")).unwrap().is_open());
    assert_eq!(shard.cell.placed("d/s"), ["1@m1"]);
    assert!(shard.cell.state.machines().reservations().is_empty());
}

#[test]
fn a_pause_takes_a_drain_of_the_coordinator_back() {
    let mut shard = busy(&["m1"], worth(0, 10));
    shard.told(1, drain(1, 5));
    shard.write(Writer::Operator, MachineChange::Pause { is_paused: true });
    shard.cycles(2);
    assert_eq!(shard.state_of("m1"), MachineState::Configured);
    assert_eq!(shard.ack(1), refused(AckError::Paused));
    assert!(shard.cell.state.node(&node_id("m1")).unwrap().is_open());
}

#[test]
fn a_machine_in_use_that_belongs_to_another_cell_is_emptied_and_then_forgotten() {
    let mut shard = busy(&["m1"], |spec| spec);
    shard.cell = shard.cell.clone().node("birch", cpus(4)).settle();
    let forget = || Order::Forget { machines: [id("m1")].into() };
    assert_eq!(shard.told(1, forget()), Some(Ack::Failed { reason: AckError::InUse }));
    shard.provide();
    shard.cycle();
    shard.provide();
    let service = spread(3).reserve(4_000, 64);
    shard.cell = shard.cell.clone().deploy("d", [("s", service)]).settle();
    shard.cycles(2);
    assert_eq!(shard.state_of("m1"), MachineState::Idle, "no need takes it");
    assert_eq!(shard.told(1, forget()), Some(Ack::Done));
    assert!(shard.cell.state.machines().get(&id("m1")).is_none());
}

#[test]
fn an_adopted_machine_serves_a_need_in_the_next_cycle() {
    let mut shard = lacking(3).has(&["m0"], &of(1, MachineKind::Spot), MachineState::Idle);
    shard.cycle();
    assert_eq!(shard.ages(), [(4, 1)]);
    assert_eq!(shard.told(4, Order::Adopt { machines: vec![(id("m7"), 3)] }), None);
    let wanted: Vec<_> = adoptions(shard.cell.state.machines())
        .map(|(id, machine, epoch)| (id.0, machine.to_string(), epoch))
        .collect();
    assert_eq!(wanted, [(4, "m7".to_owned(), 3)]);
    let class = of(4, MachineKind::OnDemand);
    let change = MachineChange::Adopted { id: InstructionId(4), machine: id("m7"), class };
    shard.write(Writer::Provider, change);
    shard.cycle();
    assert_eq!(shard.state_of("m7"), MachineState::Configuring);
    assert_eq!(shard.ack(4), Some(Ack::Done));
    assert!(shard.ages().is_empty());
}

#[test]
fn quota_that_is_in_use_is_not_given() {
    let mut shard = Shard::new(cell().node("ash", cpus(2))).idle(&["m1", "m2"]);
    let set = |slice| Order::SetQuota { pool: pool(4), slice };
    assert_eq!(shard.told(1, set(5)), Some(Ack::Done));
    assert_eq!(shard.told(2, set(1)), refused(AckError::InUse));
    assert_eq!(shard.told(3, set(2)), Some(Ack::Done));
}

#[test]
fn a_report_says_what_the_state_says() {
    let mut shard = busy(&["m1", "m2"], worth(3, 10)).idle(&["m3", "m4", "m5"]).has(
        &["m6"],
        &of(4, MachineKind::OnDemand),
        MachineState::Speculative,
    );
    shard.told(1, reserve(1));
    let service = spread(1).reserve(9_000, 64);
    shard.cell = shard.cell.clone().deploy("e", [("s", service)]).settle();
    shard.cycles(3);
    let order = ReportOrder { epoch: 1, cycle: 9 };
    let said = report(&shard.cell.state, ShardId::new("a").unwrap(), order);
    said.check().unwrap();
    let supply = said.supply[&pool(4)];
    assert_eq!((supply.idle, supply.configured, supply.quota_used), (2, 2, 5));
    let [shortfall] = &said.shortfalls[..] else { panic!("{:?}", said.shortfalls) };
    assert_eq!((shortfall.deficit.cpu, shortfall.age), (MilliCpus(9_000), 3));
    let [row] = &said.preemptible[..] else { panic!("{:?}", said.preemptible) };
    assert_eq!((row.priority, row.bucket, row.machines), (3, Some(Bucket(2)), 2));
    assert_eq!(registration(shard.cell.state.machines()).types.len(), 1);
}

#[test]
fn what_takes_too_long_fails_and_is_given_back() {
    let mut shard = lacking(3).has(&["m1"], &of(4, MachineKind::Spot), MachineState::Speculative);
    shard.cycle();
    assert_eq!(shard.state_of("m1"), MachineState::Creating);
    shard.cell = shard.cell.clone().later(CREATE_TIMEOUT);
    shard.cycle();
    assert_eq!(shard.state_of("m1"), MachineState::Failed);
    shard.cell = shard.cell.clone().later(FAILED_HOLD);
    shard.cycle();
    assert_eq!(shard.state_of("m1"), MachineState::Deleting);
    shard.provide();
    shard.cycle();
    assert_eq!(shard.state_of("m1"), MachineState::Creating, "and tried again");
}

#[test]
fn a_cell_without_machines_takes_no_turns_for_them() {
    let mut shard = Shard::new(
        cell().node("ash", cpus(2)).deploy("d", [("s", spread(9).reserve(2_000, 64))]).settle(),
    );
    assert!(shard.cycles(9).is_empty());
    assert_eq!(shard.cycles.due(), Timestamp(u64::MAX));
    assert!(shard.cell.state.machines().is_empty());
}

/// A service that no such machine can run, though its numbers fit.
#[test]
fn a_machine_that_did_not_help_is_not_followed_by_all_the_others() {
    let mut shard = lacking(3).idle(&["m1", "m2", "m3"]);
    shard.cycle();
    let (machine, row) = (id("m1"), *shard.cell.state.machines().get(&id("m1")).unwrap());
    assert_eq!(row.state, MachineState::Configuring);
    shard.join(&machine, row.class());
    // Nothing is placed there: no pass is made.
    shard.cycles(30);
    assert_eq!(shard.in_state(MachineState::Idle), ["m2", "m3"]);
    let row = shard.cell.state.machines().ledger().values().next().unwrap().clone();
    assert!(row.is_topology_constrained, "and the fleet is not asked for more");
}
