//! Jobs of a Google cell: two lines for each job and day, `vm_<job>_<day>,cpu|mem,` and percentages, a sample every five
//! minutes. A day is a cell of its own.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll_kernel::rebalance::ReplicaUsage;
use plimsoll_model::{Bytes, MilliCpus, Resources};
use plimsoll_sim::trace::{Task, Trace};

use super::TraceError;
use super::read::{TraceLine, files, first_node, nodes_for};

/// What a node has of cpu and of memory, in percent: four of the machines that jobs were measured on. With ten jobs on
/// each, half of it is in use.
const NODE: u64 = 400;
const HALVES_A_NODE: usize = 20;

/// Samples of the first hour: what is set aside for a job is its 95th percentile there.
const FIRST_HOUR: usize = 12;

/// A percent of cpu is a core, of memory a million bytes: no sample is rounded.
const BYTES: u64 = 1_000_000;

/// A few jobs used more memory than they had; that much they cannot use here.
const MOST: u64 = 100_000;

/// Cpu and memory of a job, in thousandths of a percent.
type Job = [Vec<u64>; 2];

pub(super) fn read(directory: &Path, seed: &str) -> Result<Vec<Trace>, TraceError> {
    let mut days: BTreeMap<u32, BTreeMap<String, Job>> = BTreeMap::new();
    for file in files(directory)? {
        for line in file.lines()? {
            let (day, name, dimension) = head(&line)?;
            let percent = |field: &str| field.parse::<MilliCpus>().ok().map(|it| it.0.min(MOST));
            let jobs = days.entry(day).or_default();
            jobs.entry(name).or_default()[dimension] = line.series(2, percent)?;
        }
    }
    Ok(days.into_iter().map(|(day, jobs)| trace(day, &jobs, seed)).collect())
}

/// `vm_<job>_<day>,cpu`
fn head(line: &TraceLine<'_>) -> Result<(u32, String, usize), TraceError> {
    let mut fields = line.text.split(',');
    let name = fields.next().unwrap_or_default();
    let day = name.rsplit_once('_').and_then(|(_, day)| day.parse().ok());
    let day = day.ok_or_else(|| line.wrong(&format!("{name:?} does not end in a day")))?;
    let dimension = match fields.next() {
        Some("cpu") => 0,
        Some("mem") => 1,
        other => {
            let found = other.unwrap_or_default();
            return Err(line.wrong(&format!("{found:?} is neither cpu nor mem")));
        }
    };
    Ok((day, name.to_owned(), dimension))
}

fn trace(day: u32, jobs: &BTreeMap<String, Job>, seed: &str) -> Trace {
    let nodes = nodes_for(jobs.len(), HALVES_A_NODE);
    let usage = |[cpu, memory]: [u64; 2]| ReplicaUsage {
        cpu: MilliCpus(cpu),
        memory: Bytes(memory * (BYTES / 1_000)),
    };
    let resources = |percent: [u64; 2]| {
        let ReplicaUsage { cpu, memory } = usage(percent);
        Resources { cpu, memory, ..Resources::NONE }
    };
    let tasks = jobs.iter().map(|(name, job)| {
        let sample = |nth: usize| job.each_ref().map(|it| it.get(nth).copied().unwrap_or(0));
        let longest = job.iter().map(Vec::len).max().unwrap_or(0);
        Task {
            first: first_node(seed, name, nodes),
            limit: Resources::NONE,
            reservation: resources(job.each_ref().map(|it| percentile(it))),
            demand: (0..longest).map(|nth| usage(sample(nth))).collect(),
        }
    });
    let capacity = resources([NODE * 1_000; 2]);
    Trace { name: format!("day {day}"), nodes, capacity, tasks: tasks.collect() }
}

/// The 95th of the first hour, by nearest rank.
fn percentile(series: &[u64]) -> u64 {
    let mut first: Vec<u64> = series.iter().take(FIRST_HOUR).copied().collect();
    first.sort_unstable();
    let rank = (first.len() * 95).div_ceil(100);
    rank.checked_sub(1).map_or(0, |at| first[at])
}
