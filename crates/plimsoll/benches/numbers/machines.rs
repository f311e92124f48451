//! The machines of a cell: a cycle over half a million of them, and the memory that each takes.

use std::collections::BTreeMap;
use std::hint::black_box;

use plimsoll_kernel::shard::ShardCycles;
use plimsoll_model::fleet::{MachineId, MachineType, Pool, Zone};
use plimsoll_model::machines::{MachineChange, MachineClass, MachineKind, MachineState};
use plimsoll_model::reason::{Unplaced, UnplacedReason};
use plimsoll_model::testkit::{Cell, cell, cpus, service_key, spread};
use plimsoll_model::{Bytes, Change, MilliCpus, Resources, Writer};

use super::{Table, sample};

const RUNS: usize = 7;
const COUNT: u64 = 500_000;

/// How many are written at once: what a batch needs to be taken back is not what a machine takes.
const BATCH: u64 = 1_000;

pub(super) fn machines(table: &mut Table) {
    let mut cell = lacking();
    let before = resident();
    for begin in (0..COUNT).step_by(usize::try_from(BATCH).unwrap_or(1)) {
        let batch = (begin..begin + BATCH).map(|nth| {
            let change = MachineChange::Put {
                machine: MachineId::new(format!("i-{nth:017x}")).expect("a valid name"),
                class: class(nth % 30),
                state: if nth % 2 == 0 { MachineState::Idle } else { MachineState::Speculative },
                epoch: 0,
            };
            Change::Machines { change: Box::new(change) }.free()
        });
        let batch = batch.collect();
        cell.apply(Writer::Provider, batch).expect("machines can be put there");
    }
    let bytes = format!("{} bytes", (resident() - before) / COUNT);
    table.row("memory of a machine, 500k of them", "≤ 100 bytes", bytes.clone(), bytes);
    let times = sample(RUNS, || {
        let mut cycles = ShardCycles::new(cell.now);
        black_box(cycles.cycle(&cell.state, cell.now));
    });
    table.time("a cycle over 500k machines, 1k replicas without room", "≤ 50 ms", &times);
}

/// A service whose replicas found no room.
fn lacking() -> Cell {
    let service = spread(1_000).reserve(2_000, 1_024);
    let mut cell = cell().node("ash", cpus(1)).deploy("d", [("s", service)]);
    let unplaced = Some(Unplaced { missing: 1_000, why: UnplacedReason::NoNodes, since: cell.now });
    let change = Change::SetUnplaced { service: service_key("d/s"), unplaced };
    cell.change(Writer::Scheduler, change);
    cell
}

/// Ten types in three zones.
fn class(nth: u64) -> MachineClass {
    let machine_type = MachineType::new(format!("c{}", nth / 3)).expect("a valid name");
    let zone = Zone::new(["a", "b", "c"][usize::try_from(nth % 3).unwrap_or(0)]);
    let pool = Pool { machine_type, zone: zone.expect("a valid name") };
    let (cpu, memory) = (MilliCpus((nth / 3 + 1) * 1_000), Bytes((nth / 3 + 1) << 32));
    let capacity = Resources { cpu, memory, ..Resources::NONE };
    MachineClass { pool, capacity, kind: MachineKind::OnDemand, labels: BTreeMap::new() }
}

/// What this process has in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1_024
}
