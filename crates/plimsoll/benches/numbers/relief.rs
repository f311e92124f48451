//! The rebalancer's cycle in a large cell: with nothing hot, with a node that gives something away, and with one that
//! nobody can take anything from, so that every replica of it is weighed against every node.

use std::hint::black_box;
use std::time::{Duration, Instant};

use plimsoll_kernel::place::Roster;
use plimsoll_kernel::rebalance::{
    CycleOutcome, NodeTrend, PressureSample, Readings, RebalanceMemory, ReplicaUsage, cycle,
};
use plimsoll_kernel::{Policy, Signals};
use plimsoll_model::testkit::Cell;
use plimsoll_model::{Bytes, MilliCpus, Millis, NodePressure, Pressure, Timestamp};

use super::{Table, settled, unplaced};

const CYCLES: u64 = 25;

pub(super) fn relieving(table: &mut Table) {
    let cell = settled(unplaced(10_000, 1_000, 100)).later(Millis::minutes(20));
    let size = "10k nodes, 100k replicas";
    for (what, hottest, others, is_expected) in [
        ("nothing hot", 50, 50, (|it| *it == CycleOutcome::Calm) as fn(&CycleOutcome) -> bool),
        ("one node hot", 95, 50, |it| matches!(it, CycleOutcome::Moved { .. })),
        ("one node hot, no node cool", 98, 70, |it| matches!(it, CycleOutcome::Skipped(_))),
    ] {
        let times = cycles(&cell, hottest, others, is_expected);
        table.time(&format!("one cycle of the rebalancer, {size}, {what}"), "≤ 10 ms", &times);
    }
    let bytes = format!("{} bytes", size_of::<NodeTrend>());
    table.row(
        "what the rebalancer keeps of a node from cycle to cycle",
        "≤ 100 bytes",
        bytes,
        String::new(),
    );
}

/// Sorted times of cycles with these shares of processors in use, after two that do not count. Samples come a few milliseconds early or
/// late, as they do from nodes.
fn cycles(
    cell: &Cell,
    hottest: u32,
    others: u32,
    is_expected: fn(&CycleOutcome) -> bool,
) -> Vec<Duration> {
    let policy = Policy::default();
    let roster = Roster::new(&cell.state, &Signals::default(), &policy);
    // A tenth of a node of sixteen cores, and a little more.
    let usage = ReplicaUsage { cpu: MilliCpus(1_700), memory: Bytes(64 << 20) };
    let replicas = cell.state.replicas().map(|(id, _)| (id, usage)).collect();
    let mut readings = Readings { replicas, ..Readings::default() };
    let (mut memory, mut times) = (RebalanceMemory::default(), Vec::new());
    for nth in 0..CYCLES {
        let now = cell.now.plus(Millis(nth * 30_000));
        for (at, node) in (0_u64..).zip(cell.state.nodes().keys()) {
            let share = Pressure::percent(if at == 0 { hottest } else { others });
            let jitter = at * 7_919 % 1_000 + nth * at % 13;
            let sample = PressureSample {
                at: Timestamp(now.0 - jitter),
                pressure: NodePressure::new(share, Pressure::percent(40)),
            };
            readings.nodes.insert(node.clone(), sample);
        }
        let begun = Instant::now();
        let outcome = black_box(cycle(&cell.state, &roster, &policy, &readings, &mut memory, now));
        times.push(begun.elapsed());
        assert!(nth < 2 || is_expected(&outcome), "{outcome:?}");
    }
    let mut times = times.split_off(2);
    times.sort_unstable();
    times
}
