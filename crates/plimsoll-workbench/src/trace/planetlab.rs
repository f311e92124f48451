//! Days of the planetlab traces: `YYYYMMDD.csv`, a line for each virtual machine, its name and whole percent of its own processor, a
//! sample every five minutes.

use std::path::Path;

use plimsoll_kernel::rebalance::ReplicaUsage;
use plimsoll_model::{Bytes, MilliCpus, Resources};
use plimsoll_sim::trace::{Task, Trace};

use super::TraceError;
use super::read::{TraceLine, files, first_node, nodes_for};

/// What a node has, in MIPS: two cores of the larger host of the published runs. A MIPS is a core here, so that no
/// share of one is ever rounded.
const NODE: u64 = 5_320;

/// A node for every 17.5 machines.
const HALVES_A_NODE: usize = 35;

/// MIPS of the four types, which stand in equal parts one after the other.
const TYPES: [u64; 4] = [2_500, 2_000, 1_000, 500];

pub(super) fn read(directory: &Path, seed: &str) -> Result<Vec<Trace>, TraceError> {
    let mut days = Vec::new();
    for file in files(directory)? {
        if file.name.len() != 8 || !file.name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let lines = file.lines()?;
        let nodes = nodes_for(lines.len(), HALVES_A_NODE);
        let tasks = lines.iter().enumerate().map(|(nth, line)| {
            let mips = TYPES[nth / lines.len().div_ceil(TYPES.len())];
            task(line, seed, nodes, mips)
        });
        let tasks = tasks.collect::<Result<_, _>>()?;
        let capacity = Resources { cpu: MilliCpus(NODE * 1_000), ..Resources::NONE };
        days.push(Trace { name: file.name.clone(), nodes, capacity, tasks });
    }
    Ok(days)
}

fn task(line: &TraceLine<'_>, seed: &str, nodes: usize, mips: u64) -> Result<Task, TraceError> {
    let name = line.text.split(',').next().unwrap_or_default();
    let percent = |field: &str| field.parse::<u64>().ok().filter(|percent| *percent <= 100);
    let demand = line.series(1, percent)?.into_iter().map(|percent| {
        // A hundredth of a core is ten of its thousandths.
        ReplicaUsage { cpu: MilliCpus(percent * mips * 10), memory: Bytes(0) }
    });
    Ok(Task {
        first: first_node(seed, name, nodes),
        limit: Resources { cpu: MilliCpus(mips * 1_000), ..Resources::NONE },
        reservation: Resources::NONE,
        demand: demand.collect(),
    })
}
