use super::*;
use crate::audit::Author;
use crate::command::{Change, Command, Refusal};
use crate::fleet::{AckError, MAX_PENDING, MachineType, Zone};
use crate::testkit::{Cell, cell, cpus, node_id};
use crate::transition::Writer;
use crate::units::{Bytes, MilliCpus, Millis};

pub(crate) fn machine(name: &str) -> MachineId {
    MachineId::new(name).unwrap()
}

/// Machines of so many cpus, and four times as many gigabytes.
pub(crate) fn class(cpus: u64) -> MachineClass {
    let pool = Pool {
        machine_type: MachineType::new(format!("c{cpus}")).unwrap(),
        zone: Zone::new("north").unwrap(),
    };
    let (cpu, memory) = (MilliCpus(cpus * 1_000), Bytes(cpus << 32));
    let capacity = Resources { cpu, memory, ..Resources::NONE };
    MachineClass { pool, capacity, kind: MachineKind::OnDemand, labels: BTreeMap::new() }
}

pub(crate) fn close(cycle: u64, cpus: u64) -> MachineChange {
    let deficit = Resources { cpu: MilliCpus(cpus * 1_000), ..Resources::NONE };
    let entry = LedgerEntry {
        deficit,
        min_unit: deficit,
        accepts: Accepts::default(),
        priority: 0,
        bucket: None,
        is_topology_constrained: false,
        age: 99,
        since: Timestamp(99),
    };
    let ledger = [(Profile::new("p").unwrap(), entry)].into();
    MachineChange::CloseCycle { cycle, ledger }
}

fn write(cell: &mut Cell, by: Writer, change: MachineChange) -> Result<(), MachineRefusal> {
    let change = Change::Machines { change: Box::new(change) };
    let by = Author::new(by, "test");
    let command = Command::new(cell.now, Term(1), by, vec![change.free()]);
    match cell.state.apply(&command).map_err(|rejection| rejection.reason) {
        Ok(_) => Ok(()),
        Err(Refusal::Machine(refusal)) => Err(refusal),
        Err(other) => panic!("{other}"),
    }
}

fn put(cell: &mut Cell, name: &str, state: MachineState, epoch: u32) -> Result<(), MachineRefusal> {
    let change = MachineChange::Put { machine: machine(name), class: class(4), state, epoch };
    write(cell, Writer::Provider, change)
}

fn idle(names: &[&str]) -> Cell {
    let mut cell = cell();
    for name in names {
        put(&mut cell, name, MachineState::Idle, 0).unwrap();
    }
    cell
}

fn obey(cell: &mut Cell, (term, id): (u64, u64), deed: Deed) -> Result<(), MachineRefusal> {
    let (term, id, transfer) = (Term(term), InstructionId(id), TransferId(id));
    write(cell, Writer::Shard, MachineChange::Obey { term, id, transfer, deed })
}

fn reserve(cell: &mut Cell, at: (u64, u64), names: &[&str]) -> Result<(), MachineRefusal> {
    let machines = names.iter().map(|name| machine(name)).collect();
    let until = cell.now.plus(Millis::minutes(5));
    obey(cell, at, Deed::Reserve { machines, until })
}

#[test]
fn a_row_has_twelve_bytes_so_that_half_a_million_machines_fit() {
    assert_eq!(size_of::<Machine>(), 12);
    assert_eq!(size_of::<MachineId>(), 16);
}

#[test]
fn each_writer_takes_the_edges_of_the_table_and_no_others() {
    for from in MachineState::ALL {
        for to in MachineState::ALL {
            for by in [Writer::Shard, Writer::Provider, Writer::Operator, Writer::Scheduler] {
                let mut cell = idle(&["m"]);
                let row = Machine::new(0, cell.now, 0, from);
                cell.state.machines.rows.insert(machine("m"), row);
                let change = MachineChange::Step { machine: machine("m"), from, to };
                let change = Change::Machines { change: Box::new(change) };
                let done = cell.apply(by, vec![change.free()]).is_ok();
                let is_edge = crate::transition::allows(MachineState::EDGES, &from, &to, by);
                assert_eq!(done, is_edge, "{from} → {to} by {by}");
            }
        }
    }
}

#[test]
fn every_state_is_reached_and_left() {
    for state in MachineState::ALL {
        let is_left = MachineState::EDGES.iter().any(|edge| edge.from == state);
        let is_reached = MachineState::EDGES.iter().any(|edge| edge.to.contains(&state));
        assert!(is_left && is_reached, "{state}");
    }
}

#[test]
fn a_step_that_was_decided_on_another_state_is_refused() {
    let mut cell = idle(&["m"]);
    let (from, to) = (MachineState::Speculative, MachineState::Creating);
    let refused =
        write(&mut cell, Writer::Shard, MachineChange::Step { machine: machine("m"), from, to });
    let found = MachineState::Idle;
    assert_eq!(refused, Err(MachineRefusal::Moved { machine: machine("m"), decided: from, found }));
}

#[test]
fn a_malformed_machine_is_refused_and_the_last_good_record_stays() {
    let mut cell = idle(&["m"]);
    let before = cell.state.clone();
    let mut broken = class(4);
    broken.capacity.memory = Bytes(0);
    let change = MachineChange::Put {
        machine: machine("m"),
        class: broken,
        state: MachineState::Idle,
        epoch: 0,
    };
    let refused = write(&mut cell, Writer::Provider, change).unwrap_err();
    assert_eq!(refused.to_string(), "machine m is malformed: it has no cpu or no memory");
    assert_eq!(cell.state, before);
}

#[test]
fn a_node_that_joins_with_the_token_of_a_machine_is_that_machine() {
    let mut cell = cell().node("ash", cpus(4));
    put(&mut cell, "m", MachineState::Idle, 0).unwrap();
    let (from, to) = (MachineState::Idle, MachineState::Configuring);
    write(&mut cell, Writer::Shard, MachineChange::Step { machine: machine("m"), from, to })
        .unwrap();
    let token = crate::access::Digest([7; 32]);
    let expires_at = cell.now.plus(Millis::minutes(9));
    let name = format!("{TOKEN_PREFIX}m");
    cell.apply(Writer::Shard, vec![Change::CreateJoinToken { name, token, expires_at }.free()])
        .unwrap();
    let key = crate::access::Digest([8; 32]);
    let join = Change::Join { token, node: node_id("birch"), facts: cpus(4), key };
    cell.apply(Writer::Operator, vec![join.free()]).unwrap();
    let machines = cell.state.machines();
    assert_eq!(machines.get(&machine("m")).unwrap().state, MachineState::Configured);
    assert_eq!(machines.node_of(&machine("m")), Some(&node_id("birch")));
}

#[test]
fn redelivery_after_a_restart_changes_nothing() {
    let mut cell = idle(&["m1", "m2", "m3"]);
    reserve(&mut cell, (3, 10), &["m1"]).unwrap();
    // A restart reads what was written.
    let text = serde_json::to_string(&cell.state).unwrap();
    cell.state = serde_json::from_str(&text).unwrap();
    let before = cell.state.clone();
    assert_eq!(
        reserve(&mut cell, (3, 10), &["m2"]),
        Err(MachineRefusal::Obeyed { id: InstructionId(10) })
    );
    assert_eq!(cell.state, before);
    let machines = [machine("m1")].into();
    assert_eq!(cell.state.machines().acks()[&InstructionId(10)], Ack::Reserved { machines });

    // The coordinator has heard it. A copy of the instruction that comes late still does nothing.
    write(&mut cell, Writer::Shard, MachineChange::Heard { ids: [InstructionId(10)].into() })
        .unwrap();
    assert!(cell.state.machines().acks().is_empty());
    assert!(reserve(&mut cell, (3, 10), &["m2"]).is_err());
}

#[test]
fn the_term_mark_survives_a_restart_and_an_older_coordinator_is_refused() {
    let mut cell = idle(&["m1", "m2", "m3"]);
    reserve(&mut cell, (3, 10), &["m1"]).unwrap();
    cell.state = serde_json::from_str(&serde_json::to_string(&cell.state).unwrap()).unwrap();
    let (term, seen, id) = (Term(2), Term(3), InstructionId(11));
    assert_eq!(
        reserve(&mut cell, (2, 11), &["m2"]),
        Err(MachineRefusal::OldTerm { id, term, seen })
    );
    reserve(&mut cell, (4, 11), &["m2"]).unwrap();
    assert_eq!(cell.state.machines().term(), Term(4));
}

#[test]
fn what_failed_is_tried_again_under_its_own_number_and_what_was_done_is_not() {
    let mut cell = idle(&["m1"]);
    obey(&mut cell, (1, 5), Deed::Fail { reason: AckError::Provider }).unwrap();
    let failed = Ack::Failed { reason: AckError::Provider };
    assert_eq!(cell.state.machines().acks()[&InstructionId(5)], failed);
    let before = cell.state.clone();
    obey(&mut cell, (1, 5), Deed::Fail { reason: AckError::Provider }).unwrap();
    assert_eq!(cell.state, before, "the same again writes nothing");
    reserve(&mut cell, (1, 5), &["m1"]).unwrap();
    assert!(reserve(&mut cell, (1, 5), &["m1"]).is_err());
}

#[test]
fn the_memory_of_instructions_is_bounded_and_the_oldest_stay_done() {
    let mut cell = idle(&["m1"]);
    let last = u64::try_from(MAX_OBEYED + MAX_PENDING).unwrap();
    for id in 0..=last {
        obey(&mut cell, (1, id), Deed::Refuse { reason: AckError::Paused }).unwrap();
    }
    let machines = cell.state.machines();
    assert_eq!((machines.book.obeyed.len(), machines.acks().len()), (MAX_OBEYED, MAX_OBEYED));
    assert!((0..=last).all(|id| machines.has_obeyed(InstructionId(id))));
}

#[test]
fn what_is_set_aside_is_not_taken_into_use_until_it_is_released() {
    let mut cell = idle(&["m1"]);
    reserve(&mut cell, (1, 1), &["m1"]).unwrap();
    let (from, to) = (MachineState::Idle, MachineState::Configuring);
    let step = || MachineChange::Step { machine: machine("m1"), from, to };
    let (held, transfer) = (machine("m1"), TransferId(1));
    assert_eq!(
        write(&mut cell, Writer::Shard, step()),
        Err(MachineRefusal::Reserved { machine: held, transfer })
    );
    obey(&mut cell, (1, 2), Deed::Release { machines: [machine("m1")].into() }).unwrap();
    write(&mut cell, Writer::Shard, step()).unwrap();
}

/// A provider that has not heard yet still lists the machine for its old owner.
#[test]
fn a_machine_that_was_given_away_comes_back_only_under_a_newer_epoch() {
    let mut cell = idle(&["m1"]);
    obey(&mut cell, (1, 1), Deed::Forget { machines: [machine("m1")].into() }).unwrap();
    let again = put(&mut cell, "m1", MachineState::Idle, 0);
    assert_eq!(again, Err(MachineRefusal::GivenAway { machine: machine("m1"), gave: 0, epoch: 0 }));
    let id = InstructionId(2);
    obey(&mut cell, (1, 2), Deed::Adopt { machines: [(machine("m1"), 2)].into() }).unwrap();
    let change = MachineChange::Adopted { id, machine: machine("m1"), class: class(4) };
    write(&mut cell, Writer::Provider, change).unwrap();
    let row = cell.state.machines().get(&machine("m1")).unwrap();
    assert_eq!((row.state, row.epoch), (MachineState::Idle, 2));
    assert!(cell.state.machines().forgotten().is_empty());
}

#[test]
fn a_machine_in_use_is_not_forgotten_before_it_is_empty() {
    let mut cell = idle(&["m1"]);
    let row = Machine::new(0, cell.now, 0, MachineState::Configured);
    cell.state.machines.rows.insert(machine("m1"), row);
    let refused = obey(&mut cell, (1, 1), Deed::Forget { machines: [machine("m1")].into() });
    let state = MachineState::Configured;
    assert_eq!(refused, Err(MachineRefusal::InUse { machine: machine("m1"), state }));
}

#[test]
fn the_ledger_ages_once_a_cycle_and_is_cleared_the_first_cycle_it_is_met() {
    let mut cell = cell();
    let began = cell.now;
    for cycle in 1..=3 {
        cell = cell.later(Millis::seconds(10));
        write(&mut cell, Writer::Shard, close(cycle, 2)).unwrap();
        let refused = write(&mut cell, Writer::Shard, close(cycle, 2));
        assert_eq!(refused, Err(MachineRefusal::Cycle { found: cycle, next: cycle + 1 }));
    }
    let entry = cell.state.machines().ledger().values().next().unwrap().clone();
    assert_eq!((entry.age, entry.since), (3, began.plus(Millis::seconds(10))));
    let met = MachineChange::CloseCycle { cycle: 4, ledger: BTreeMap::new() };
    write(&mut cell, Writer::Shard, met).unwrap();
    write(&mut cell, Writer::Shard, close(5, 1)).unwrap();
    assert_eq!(cell.state.machines().ledger().values().next().unwrap().age, 1, "it begins anew");
}

#[test]
fn a_slice_that_shrinks_must_hold_what_exists() {
    let mut cell = idle(&["m1", "m2"]);
    put(&mut cell, "m3", MachineState::Speculative, 0).unwrap();
    let set = |slice| Deed::SetQuota { pool: class(4).pool, slice };
    let (pool, slice, used) = (class(4).pool, 1, 2);
    assert_eq!(obey(&mut cell, (1, 1), set(1)), Err(MachineRefusal::Quota { pool, slice, used }));
    obey(&mut cell, (1, 2), set(2)).unwrap();
    assert_eq!(cell.state.machines().quota(&class(4).pool), Some(2));
}
